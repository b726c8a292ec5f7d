/* See user.h. */
#include "user.h"

#include <sys/prctl.h>

bool users_can_be_had(void)
{
    bool root = geteuid() == 0 && setegid(getegid()) == 0 && seteuid(SOME_USER) == 0;

    return root && seteuid(0) == 0;
}

/* The kernel clears this setting when the user changes. */
static void end_with_director(void)
{
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
}

void become_for_good(uid_t user)
{
    CHECK(setresgid(user, user, user) == 0);
    CHECK(setresuid(user, user, user) == 0);
    CHECK(setuid(0) != 0);
    end_with_director();
}

void become_for_now(uid_t user)
{
    CHECK(seteuid(user) == 0);
    end_with_director();
}
