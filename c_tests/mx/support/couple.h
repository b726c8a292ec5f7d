/*
 * Two endpoints of one process, for tests in which one thread plays both sides.
 *
 *     a ── to_b ──► b
 *
 * Owns: the endpoints.
 */
#ifndef MX_TESTS_COUPLE_H
#define MX_TESTS_COUPLE_H

#include "party.h"

extern mx_endpoint_t a, b;
/* The address of b at a. */
extern mx_endpoint_addr_t to_b;

/* Starts the library, opens both, connects a to b. */
void open_two(void);
/* Closes both, and stops the library. */
void close_two(void);

#endif
