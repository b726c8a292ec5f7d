/*
 * The memory of a process: /proc/PID/statm.
 *
 *     resident_kib(0)   this process       resident_kib(pid)   another
 *
 * Owns nothing. Knows nothing of: limits (limit.h), the library.
 */
#ifndef C_TESTS_MEMORY_H
#define C_TESTS_MEMORY_H

#include "check.h"

#include <sys/types.h>

/* KiB in memory. */
int64_t resident_kib(pid_t pid);
/* KiB of address space in use. */
int64_t address_space_kib(pid_t pid);

#endif
