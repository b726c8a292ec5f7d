/*
 * Children that a host forks, without exec, and their end.
 *
 *     child   leave_fork("0")        parent   reap_fork(pid): goes on as a host meanwhile
 *
 * Owns nothing.
 */
#ifndef C_TESTS_REAP_H
#define C_TESTS_REAP_H

#include "check.h"

#include <sys/types.h>

/* Forks; the child ends by itself should it hang. */
pid_t fork_child(void);
/* Ends a forked child with that status by way of another program: at an exit of its own a leak checker would count
 * what belonged to the parent's threads, which are not in the child. */
_Noreturn void leave_fork(const char *status);
/* Waits for its good end. */
void reap_fork(pid_t pid);

#endif
