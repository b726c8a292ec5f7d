/*
 * The port of the tests, and what a test may count on there.
 *
 *     MX_PORT       local, tcp                      rdm, and dgram with            dgram
 *                                                   MX_DGRAM_BACKEND=fabric
 *     a peer dies   its socket hangs up: at once    the one beside the fabric      its host says so, unless that is
 *                                                   does: in a quarter of a        lost (MX_DGRAM_FAULTS): then
 *                                                   second                         MX_DGRAM_GIVE_UP_MS of silence
 *
 * Owns nothing. Knows nothing of: the library, beyond the names of its tunables.
 */
#ifndef C_TESTS_PORT_H
#define C_TESTS_PORT_H

#include "check.h"

/* The value of MX_PORT; "auto" without it. */
const char *port_name(void);
bool port_is(const char *name);

/* Datagrams go over the kernel's UDP, which a test can speak. */
bool port_uses_udp(void);

/* Sessions move to libfabric, whose threads, descriptors and memory are not ours to count. */
bool port_uses_libfabric(void);

/* Sets a tunable that counts milliseconds, for this process and those it starts. */
void set_ms(const char *name, int ms);

/* The dead are silent here: it takes a while until they are missed, each time, and what is sent to them
 * meanwhile is lost. */
bool death_is_silent(void);

/* For main(), before anything is started: where datagrams are lost, and with them what a peer or its host says last, has
 * the dead noticed within a fraction of WAIT_MS instead of the default 20 s. Elsewhere nothing needs that, and a peer that
 * a busy machine keeps waiting would be taken for dead. Leaves a value that is set alone. */
void port_notices_deaths_soon(void);

#endif
