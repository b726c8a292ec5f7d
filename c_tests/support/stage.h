/*
 * The scene of the strangers' tests: a server, a good client, and doors (sockets) to connect to.
 *
 *     director ── nonsense ──► server (role "server") ◄── good client (role "good")
 *              ── replays what "dialler", a real client, was recorded to send
 *
 * Owns: the children of a scene. Knows nothing of: the nonsense.
 */
#ifndef C_TESTS_STAGE_H
#define C_TESTS_STAGE_H

#include "pair.h"
#include "wire.h"

struct stage {
    struct child *server, *good;
    int endpoint;
    int64_t turn;
};

/* ---- roles, for DIRECTED scenarios: DIRECTED(name, director, STAGE) ---- */

#define STAGE {"server", echo_server}, {"good", good_client}, {"dialler", dialler}

/* Sends every unexpected message back as an expected one. */
void echo_server(struct side *side);
/* Likewise, for a server that is running already: until it receives "stop", then finalizes. */
void echo_until_stopped(struct side *side);
/* At each "go" sends three messages of different sizes and checks their echoes. */
void good_client(struct side *side);
/* Calls an endpoint without a proper server, until it is killed. */
void dialler(struct side *side);

/* ---- for directors ---- */

void set_up(struct world *world, struct stage *stage);
/* Likewise; returns false, with everything ended again, if that door is closed. */
bool set_up_with_door(struct world *world, struct stage *stage, enum wire_door door);
/* Has the good client exchange its messages, all of which must arrive. */
void check_good(struct stage *stage);
/* Starts another good client. Returns the milliseconds from its start until it was served. */
int64_t newcomer(struct world *world, int endpoint);
/* Calls check_good() once more; then server and client end by themselves. */
void take_down(struct stage *stage);
/* Connects to the server; -1 if that fails. */
int dial(const struct stage *stage, enum wire_door door);
/* Returns whether the door is open. Fails the test if MX_PORT needs it. */
bool door_is_open(const struct stage *stage, enum wire_door door);

/* Offsets of the claims in an opening's hello: docs/wire-format.md. */
enum {
    OPENING_MAX = 4096,
    ENDPOINT_AT = WIRE_PREAMBLE + WIRE_HEADER + 12,
    NIC_AT = WIRE_PREAMBLE + WIRE_HEADER + 16,
    SESSION_AT = WIRE_PREAMBLE + WIRE_HEADER + 24,
};
/* Records the opening of a real client over TCP, before it has received anything but a preamble. */
size_t record_tcp(struct world *world, unsigned char opening[OPENING_MAX]);
/* Records the opening of the next client that dials this TCP port. */
size_t record_next(int listener, unsigned char opening[OPENING_MAX]);
/* Writes that endpoint and that session into an opening's hello. */
void claim(unsigned char *opening, int endpoint, uint64_t session);
/* Opens a session as the recorded client, restarted: each time with another session number. Returns -1 if the
 * server rejects it. */
int enter(const struct stage *stage, const unsigned char *opening, size_t size);

#endif
