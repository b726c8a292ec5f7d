/*
 * An intruder: speaks docs/wire-format.md and docs/dgram.md over sockets of its own, and says of itself what it likes.
 *
 *     door       an endpoint, and the way there        identity    what a hello says
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
    uint32_t address; /* IPv4, in the machine's order */
    int number;       /* of the endpoint, 1024 and more: also its port */
    char name[108];   /* of the endpoint's abstract socket */
    size_t name_length;
    int own_number;   /* of the caller, over shared memory that in its hellos, too */
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
    bool is_open; /* something of the session has been heard */
};

enum {
    KIND_CONNECT = 1, KIND_REPLY, KIND_EAGER, KIND_OFFER, KIND_PULL, KIND_DATA, KIND_NOTIFY, KIND_WITHDRAW, KIND_CREDIT,
    KIND_DISCONNECT, KIND_PING, KIND_PONG, KIND_REVOKE, KIND_RETURN, KIND_CLAIM, KIND_CHALLENGE = 17, KIND_PROVE, KIND_ATTACH,
    PACKET_MAX = 1024,
    STATUS_AT = 20,    /* in a header */
    PROOF_BYTES = 32,
    OWN_ID = 77,       /* for messages to the intruder */
    SLOT_MATCHED = 1, SLOT_UNEXPECTED = 2,
};

/* Answers to Connect: the status of a Reply, or these. */
enum { WELCOME = 0, WRONG_PROOF = 5, REFUSED = 6, CHALLENGED = 100, TURNED_AWAY = 101 };

/* The door of an endpoint over the port of this test (MX_PORT). */
struct door door_of(uint32_t address, int number);

/* False if the link is closed or not answered. */
bool call_door(struct intruder *intruder, const struct door *door);
/* `body_length` of the packet is the body's, unless it is set. */
void say_packet(struct intruder *intruder, struct packet packet, const void *body, size_t size);
void say_bytes(struct intruder *intruder, const unsigned char *packet, size_t size);
/* The size of the next packet; 0 when none comes in time or the link is closed. */
size_t hear_packet(struct intruder *intruder, unsigned char packet[PACKET_MAX], int ms);
void hang_up(struct intruder *intruder);

/* The hello of that identity to a door, with a greeting; its size. */
size_t make_hello(unsigned char out[PACKET_MAX], const struct identity *as, const struct door *door);
void say_connect(struct intruder *intruder, const struct identity *as);
/* The answer to a Connect or a Prove. */
int hear_answer(struct intruder *intruder, unsigned char answer[PACKET_MAX]);
/* What is said of the answerer is put to *answerer, and the id for messages to it to *id, if it is a welcome. */
int introduce(struct intruder *intruder, const struct identity *as, struct identity *answerer, uint32_t *id);
/* Dials and introduces; again where a datagram may have been lost. */
int enter_as(struct intruder *intruder, const struct door *door, const struct identity *as, struct identity *answerer,
             uint32_t *id);

/* A number of so many bytes, the lowest first. */
uint64_t number_at(const unsigned char *at, int bytes);

/* Sends a datagram that says it comes from there (root). */
void forge_datagram(uint32_t from, int from_port, const struct door *to, unsigned char *datagram, size_t size);

#endif
