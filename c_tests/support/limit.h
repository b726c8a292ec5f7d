/*
 * A process with little of a resource, or with little memory: RLIMIT_AS a little above what it uses now.
 *
 *     leave_only(48)   48 MiB more, and malloc has no more
 *     take_all()       the program has all of that itself      give_all()
 *     untouched(n)     place for results, to be had before
 *
 * Owns: what take_all() took. Knows nothing of: the library.
 */
#ifndef C_TESTS_LIMIT_H
#define C_TESTS_LIMIT_H

#include "check.h"

#include <sys/resource.h>

/* Sets the soft limit of a resource, to the hard one where that is less; returns the one of before. */
rlim_t limit_to(int resource, rlim_t value);

/* From now on this process may use so many MiB more. */
void leave_only(size_t mib);
/* Everything, but for what the C library may want itself (it ends the process when there is none for a
 * thread's variables). */
void take_all(void);
void give_all(void);
/* So many bytes of zeros, which take no memory but where they are written to. */
void *untouched(size_t size);

#endif
