/*
 * Children that a host forks, without exec, and their end.
 *
 *     child   leave_fork("0")        parent   reap_fork(pid): polls as a host meanwhile
 *
 * Owns nothing.
 */
#ifndef C_TESTS_REAP_H
#define C_TESTS_REAP_H

#include "check.h"

#include <sys/types.h>

/* Forks; a child that hangs ends by itself. */
pid_t fork_child(void);
/* Ends a forked child with that status by executing another program: at a normal exit a leak checker would report
 * memory of the parent's threads, which the child does not have. */
_Noreturn void leave_fork(const char *status);
/* Waits until the child ends with status 0. */
void reap_fork(pid_t pid);

#endif
