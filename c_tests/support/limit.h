/*
 * A process with little of a resource, or with little memory: RLIMIT_AS a little above what it uses now.
 *
 *     leave_only(48)   48 MiB more, and malloc fails
 *     take_all()       the program allocates all of that itself      give_all()
 *     untouched(n)     space for results, reserved before
 *
 * Owns: the memory of take_all(). Knows nothing of: the library.
 */
#ifndef C_TESTS_LIMIT_H
#define C_TESTS_LIMIT_H

#include "check.h"

#include <sys/resource.h>

/* Sets the soft limit of a resource, or the hard limit if that is lower; returns the previous soft limit. */
rlim_t limit_to(int resource, rlim_t value);

/* From now on this process may use that many MiB more. */
void leave_only(size_t mib);
/* Allocates everything, except for what the C library may need itself (it ends the process if there is no memory
 * for a thread's variables). */
void take_all(void);
void give_all(void);
/* Returns that many bytes of zeros, which take no memory until they are written. */
void *untouched(size_t size);

#endif
