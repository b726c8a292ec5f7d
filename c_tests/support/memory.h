/*
 * What a process has, by /proc: its memory, and how many descriptors or threads.
 *
 *     resident_kib(0)   this process       resident_kib(pid)   another
 *     entries("/proc/self/fd")
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
/* Is this in a name of what the process has mapped? */
bool maps(const char *name);
/* Entries of a directory, "." and ".." among them. */
int entries(const char *path);

#endif
