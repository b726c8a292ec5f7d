/*
 * Other users: a process that is root becomes one, for good or for a while.
 *
 * Owns nothing. Knows nothing of: the library.
 */
#ifndef C_TESTS_USER_H
#define C_TESTS_USER_H

#include "check.h"

#include <sys/types.h>

/* User ids that no machine has. */
enum { SOME_USER = 65531, ANOTHER_USER = 65530 };

/* Returns whether this process is root and can become another user. */
bool users_can_be_had(void);

/* Becomes another user for good; the process still ends with its director. */
void become_for_good(uid_t user);
/* Changes the effective user only, which can be changed back. */
void become_for_now(uid_t user);

#endif
