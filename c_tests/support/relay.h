/*
 * A relay between clients and a server: passes on what both say, over tcp or datagrams, and keeps what the first client
 * said first.
 *
 *      client ◄────► relay, at the server's number ◄────► server
 *
 *      RELAY_PASSES                    RELAY_ALTERS                        RELAY_ADDS
 *      as it is                        one bit of the nonce in a hello     a message behind a Connect
 *
 * Owns: its sockets. Knows nothing of: the library, why packets come to it.
 */
#ifndef C_TESTS_RELAY_H
#define C_TESTS_RELAY_H

#include "intruder.h"
#include "world.h"

enum relay_mode { RELAY_PASSES, RELAY_ALTERS, RELAY_ADDS };

enum { KEPT = 24 };

/* What a client has said, from its Connect on: packets, and over datagrams those. */
struct recording {
    unsigned char packets[KEPT][PACKET_MAX], datagrams[KEPT][DATAGRAM_HEADER + PACKET_MAX];
    size_t packet_sizes[KEPT], datagram_sizes[KEPT];
    int packet_count, datagram_count;
};

void relay_open(const struct door *server);
/* Passes on until any note comes, or `is_over(context)`. */
void relay_until(struct side *side, enum relay_mode mode, bool (*is_over)(void *context), void *context);
const struct recording *relay_recording(void);

/* Says what was recorded to a server again: the answer to the first packets, or to the recorded proof if they are
 * challenged. */
int replay(const struct recording *recording, const struct door *server);

#endif
