/*
 * Buffers that can be taken away, to catch an access to one that is given back.
 *
 *     never there | the buffer's pages | never there
 *                        [ bytes ]          lend(): readable and writable
 *                                           take_away(): not there either
 *
 * An access then ends the process by SIGSEGV, or gets EFAULT if the kernel makes it.
 *
 * Owns: the mappings. Knows nothing of: messages.
 */
#ifndef C_TESTS_GUARD_H
#define C_TESTS_GUARD_H

#include "check.h"

struct room {
    char *pages;
    size_t length;
    char *bytes; /* end where the pages end */
};

/* Room for `size` bytes, taken away; it stays until the process ends. */
struct room room_for(size_t size);
void room_lend(const struct room *room);
void room_take_away(const struct room *room);

#endif
