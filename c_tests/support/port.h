/*
 * Which port the tests run over, and what a test may count on there.
 *
 *     MX_PORT       local, tcp                         rdm
 *     a peer dies   its socket hangs up: at once       it is silent: keep-alive, MX_RDM_KEEPALIVE_MS
 *
 * Owns nothing. Knows nothing of: the library, beyond the names of its tunables.
 */
#ifndef C_TESTS_PORT_H
#define C_TESTS_PORT_H

#include "check.h"

/* What MX_PORT says; "auto" without it. */
const char *port_name(void);
bool port_is(const char *name);

/* Sets a tunable that counts milliseconds, for this process and those it starts. */
void set_ms(const char *name, int ms);

/* For main(), before anything is started: over rdm, has the dead noticed within a fraction of
 * PATIENCE_MS instead of the 20 s that are right for clusters. Leaves a value that is set alone. */
void port_notices_deaths_soon(void);

#endif
