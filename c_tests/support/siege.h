/*
 * A server and two clients that strangers attack: their resources before and after.
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

/* Uses the server. Sends the number of its own endpoint before, and the longest round trip of a small request
 * after. */
void besieged(struct side *side, struct bmi_method_addr *server);

/* Measures the server while all are at work. */
void siege_begin(struct siege *siege);
/* Checks, after the attacker has left, that the server has the descriptors and the memory of before, that no
 * operation of a client has failed, and that none had to wait. Ends them; the server has registered at most
 * `strangers` more peers. */
void siege_end(struct siege *siege, int strangers);

#endif
