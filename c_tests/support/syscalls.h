/*
 * System calls of the library under test, which a test can answer in place of the kernel.
 *
 *     library ──► syscall() of the program ──► syscall_guard ──► the kernel
 *                                               `── an answer of its own
 *
 * The library makes its calls on descriptors only by the C library's `syscall` (libraries/system_calls). A program
 * that is linked with syscalls.o replaces that function, and exports it because of -rdynamic.
 */
#ifndef C_TESTS_SYSCALLS_H
#define C_TESTS_SYSCALLS_H

#include "check.h"

/* Called before each system call, on the caller's thread. Returns true to answer with *answer (errno set for -1);
 * false passes the call on, with arguments that it may have changed. NULL until a test sets it. */
extern bool (*syscall_guard)(long number, long arguments[6], long *answer);

#endif
