/*
 * An intruder: speaks docs/wire-format.md and docs/dgram.md over sockets of its own, and claims any identity.
 *
 *     door       an endpoint, and the way there        identity    the claims of a hello
 *     call_door()     a link to that door, as a stranger
 *     introduce()    Connect, as any peer ──► Reply: a peer of its own;  or a Challenge;  or nothing
 *
 * Owns: its sockets, until hang_up(). Knows nothing of: the library, who is attacked.
 */
#ifndef C_TESTS_INTRUDER_H
#define C_TESTS_INTRUDER_H

#include "datagram.h"

#include <netinet/in.h>

enum route { OVER_TCP, OVER_DATAGRAMS, OVER_SHARED_MEMORY };

struct door {
    enum route route;
    uint32_t address; /* IPv4, in host byte order */
    int number;       /* of the endpoint, 1024 or more: also its port */
    char name[108];   /* name of the endpoint's abstract socket */
    size_t name_length;
    int own_number;   /* the caller's endpoint number; over shared memory also in its hellos */
};

struct identity {
    uint32_t number, epoch;
    uint64_t interface, life;
    unsigned char nonce[16];
};

struct intruder {
    const struct door *door;
    int fd;
    /* A session over datagrams. */
    uint64_t mine, theirs;
    uint32_t first, next, wanted, packets;
    bool is_open; /* something of the session has been received */
};

enum {
    KIND_CONNECT = 1, KIND_REPLY, KIND_EAGER, KIND_OFFER, KIND_PULL, KIND_DATA, KIND_NOTIFY, KIND_WITHDRAW, KIND_CREDIT,
    KIND_DISCONNECT, KIND_PING, KIND_PONG, KIND_REVOKE, KIND_RETURN, KIND_CLAIM, KIND_CHALLENGE = 17, KIND_PROVE, KIND_ATTACH,
    PACKET_MAX = 1024,
    STATUS_AT = 20,    /* offset in a header */
    PROOF_BYTES = 32,
    OWN_ID = 77,       /* id for messages to the intruder */
    SLOT_MATCHED = 1, SLOT_UNEXPECTED = 2,
};

/* Answers to Connect: the status of a Reply, or one of the last two. */
enum { WELCOME = 0, WRONG_PROOF = 5, REFUSED = 6, CHALLENGED = 100, TURNED_AWAY = 101 };

/* Makes the door of an endpoint over the port of this test (MX_PORT). */
struct door door_of(uint32_t address, int number);

/* Opens a link. Returns false if the link is closed or not answered. */
bool call_door(struct intruder *intruder, const struct door *door);
/* Sends a packet. Sets `body_length` to the body's, unless it is set. */
void say_packet(struct intruder *intruder, struct packet packet, const void *body, size_t size);
void say_bytes(struct intruder *intruder, const unsigned char *packet, size_t size);
/* Receives a packet. Returns its size; 0 if none comes in time or the link is closed. */
size_t hear_packet(struct intruder *intruder, unsigned char packet[PACKET_MAX], int ms);
void hang_up(struct intruder *intruder);

/* Makes the hello of that identity for a door, with a greeting; returns its size. */
size_t make_hello(unsigned char out[PACKET_MAX], const struct identity *as, const struct door *door);
void say_connect(struct intruder *intruder, const struct identity *as);
/* Returns the answer to a Connect or a Prove. */
int hear_answer(struct intruder *intruder, unsigned char answer[PACKET_MAX]);
/* Sends a Connect and returns the answer. On WELCOME sets *answerer from the Reply, and *id to the id for messages
 * to the server. */
int introduce(struct intruder *intruder, const struct identity *as, struct identity *answerer, uint32_t *id);
/* Opens a link and introduces itself; repeats that where a datagram may have been lost. */
int enter_as(struct intruder *intruder, const struct door *door, const struct identity *as, struct identity *answerer,
             uint32_t *id);

/* Reads a little-endian number of that many bytes. */
uint64_t number_at(const unsigned char *at, int bytes);

/* Sends a datagram with that source address (root). */
void forge_datagram(uint32_t from, int from_port, const struct door *to, unsigned char *datagram, size_t size);

#endif
