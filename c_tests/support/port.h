/*
 * The port of the tests, and what a test may count on there.
 *
 *     MX_PORT       local, tcp                      rdm, dgram
 *     a peer dies   its socket hangs up: at once    it is silent: MX_RDM_KEEPALIVE_MS,
 *                                                   MX_DGRAM_GIVE_UP_MS, or sooner if its host says so
 *
 * Owns nothing. Knows nothing of: the library, beyond the names of its tunables.
 */
#ifndef C_TESTS_PORT_H
#define C_TESTS_PORT_H

#include "check.h"

/* The value of MX_PORT; "auto" without it. */
const char *port_name(void);
bool port_is(const char *name);

/* Sets a tunable that counts milliseconds, for this process and those it starts. */
void set_ms(const char *name, int ms);

/* The dead are silent here: it takes a while until they are missed, each time. */
bool death_is_silent(void);

/* For main(), before anything is started: where they are silent, has the dead noticed within a fraction of
 * WAIT_MS instead of the 20 s that are right for clusters. Leaves values that are set alone. */
void port_notices_deaths_soon(void);

#endif
