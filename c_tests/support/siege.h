/*
 * A server and two clients that strangers attack: what they have, before and after.
 *
 *     role of a client: besieged()      director: siege_begin() ... the attack ... siege_end()
 *
 * Owns nothing. Knows nothing of: the attack.
 */
#ifndef C_TESTS_SIEGE_H
#define C_TESTS_SIEGE_H

#include "host.h"
#include "world.h"

enum { BESIEGED = 2 };

struct siege {
    struct child *server, *clients[BESIEGED];
    int descriptors;
    int64_t kib;
};

/* Uses the server, and tells the number of its own endpoint before, the longest round trip of a small request after. */
void besieged(struct side *side, struct bmi_method_addr *server);

/* All are at work. */
void siege_begin(struct siege *siege);
/* The attacker has gone. The server has the descriptors and the memory of before, no operation of a client has failed, and
 * none had to wait. Ends them; the server has heard of so many strangers at most. */
void siege_end(struct siege *siege, int strangers);

#endif
