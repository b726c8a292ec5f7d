/*
 * The port of the tests, and what a test can rely on over it.
 *
 *     MX_PORT       local, tcp                      rdm, and dgram with            dgram
 *                                                   MX_DGRAM_BACKEND=fabric
 *     a peer dies   its socket hangs up: at once    the meeting link hangs up:     its host reports it, unless that is
 *                                                   in a quarter of a second       lost (MX_DGRAM_FAULTS): then
 *                                                                                  MX_DGRAM_GIVE_UP_MS of silence
 *
 * Owns nothing. Knows nothing of: the library, beyond the names of its tunables.
 */
#ifndef C_TESTS_PORT_H
#define C_TESTS_PORT_H

#include "check.h"

/* Returns the value of MX_PORT, "auto" without it. */
const char *port_name(void);
bool port_is(const char *name);

/* Returns true if datagrams go over the kernel's UDP, which a test can speak. */
bool port_uses_udp(void);

/* Returns true if sessions move to libfabric, whose threads, descriptors and memory do not count. */
bool port_uses_libfabric(void);

/* Sets a tunable in milliseconds, for this process and those it starts. */
void set_ms(const char *name, int ms);

/* Returns true if deaths are silent: each takes a while to be noticed, and messages sent meanwhile are lost. */
bool death_is_silent(void);

/* For main(), before anything is started. Where datagrams are lost, and with them a peer's or its host's last
 * ones, it has deaths noticed within a fraction of WAIT_MS instead of the default 20 s. Elsewhere that is not
 * needed, and a peer that a busy machine delays would be declared dead. Leaves a value that is set alone. */
void port_notices_deaths_soon(void);

#endif
