/*
 * The scene of the strangers' tests: a server, a good client, and doors to knock at.
 *
 *     director ── nonsense ──► server (role "server") ◄── good client (role "good")
 *              ── replays what "dialler", a real client, was heard to say
 *
 * Owns: the children of a scene. Knows nothing of: which nonsense.
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
/* The same of a server that runs already: until it hears "stop", which ends the library. */
void echo_until_stopped(struct side *side);
/* At each "go" sends three messages of different sizes and checks their echoes. */
void good_client(struct side *side);
/* Dials an endpoint without a proper server, until it is killed. */
void dialler(struct side *side);

/* ---- for directors ---- */

void set_up(struct world *world, struct stage *stage);
/* The same; taken down again, and false, where that door is shut. */
bool set_up_with_door(struct world *world, struct stage *stage, enum wire_door door);
/* The good client exchanges its messages now, all of them. */
void check_good(struct stage *stage);
/* A good client that is not known yet is served: the milliseconds that took from its start. */
int64_t newcomer(struct world *world, int endpoint);
/* Once more check_good(), then both end by themselves. */
void take_down(struct stage *stage);
/* A connection to the server, or -1. */
int dial(const struct stage *stage, enum wire_door door);
/* The door that MX_PORT needs must be open; the other one may be shut: false. */
bool door_is_open(const struct stage *stage, enum wire_door door);

/* An opening, and the claims in its hello: docs/wire-format.md. */
enum {
    OPENING_MAX = 4096,
    ENDPOINT_AT = WIRE_PREAMBLE + WIRE_HEADER + 12,
    NIC_AT = WIRE_PREAMBLE + WIRE_HEADER + 16,
    SESSION_AT = WIRE_PREAMBLE + WIRE_HEADER + 24,
};
/* The opening of a real client over TCP, before it has heard anything but our preamble. */
size_t record_tcp(struct world *world, unsigned char opening[OPENING_MAX]);
/* Records the opening of the next client that dials this TCP port. */
size_t record_next(int listener, unsigned char opening[OPENING_MAX]);
/* Has an opening say that it is that endpoint's, in that session. */
void claim(unsigned char *opening, int endpoint, uint64_t session);
/* Opens a session as the recorded client, restarted: each time with another session number.
 * -1 when the server turns it away. */
int enter(const struct stage *stage, const unsigned char *opening, size_t size);

#endif
