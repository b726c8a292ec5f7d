/*
 * A relay between clients and a server: passes on what both send, over tcp or datagrams, and records the first
 * packets of the first client.
 *
 *      client ◄────► relay, at the server's number ◄────► server
 *
 *      RELAY_PASSES                    RELAY_ALTERS                        RELAY_ADDS
 *      unchanged                       one bit of the nonce in a hello     a message behind a Connect
 *
 * Owns: its sockets. Knows nothing of: the library, why packets come to it.
 */
#ifndef C_TESTS_RELAY_H
#define C_TESTS_RELAY_H

#include "intruder.h"
#include "world.h"

enum relay_mode { RELAY_PASSES, RELAY_ALTERS, RELAY_ADDS };

enum { KEPT = 24 };

/* Packets of a client, from its Connect on; over datagrams, the datagrams. */
struct recording {
    unsigned char packets[KEPT][PACKET_MAX], datagrams[KEPT][DATAGRAM_HEADER + PACKET_MAX];
    size_t packet_sizes[KEPT], datagram_sizes[KEPT];
    int packet_count, datagram_count;
};

void relay_open(const struct door *server);
/* Passes packets on until a note comes, or `is_over(context)` returns true. */
void relay_until(struct side *side, enum relay_mode mode, bool (*is_over)(void *context), void *context);
const struct recording *relay_recording(void);

/* Replays a recording to a server. Returns the answer to the first packets, or to the recorded proof if the server
 * challenges. */
int replay(const struct recording *recording, const struct door *server);

#endif
