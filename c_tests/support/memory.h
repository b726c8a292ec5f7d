/*
 * Resources of a process, by /proc: its memory, and the number of its descriptors or threads.
 *
 *     resident_kib(0)   this process       resident_kib(pid)   another process
 *     entries("/proc/self/fd")
 *
 * Owns nothing. Knows nothing of: limits (limit.h), the library.
 */
#ifndef C_TESTS_MEMORY_H
#define C_TESTS_MEMORY_H

#include "check.h"

#include <sys/types.h>

/* Returns the resident size in KiB. */
int64_t resident_kib(pid_t pid);
/* Returns the KiB of address space in use. */
int64_t address_space_kib(pid_t pid);
/* Returns whether the name of a mapping of this process contains this text. */
bool maps(const char *name);
/* Returns the entries of a directory, including "." and "..". */
int entries(const char *path);

#endif
