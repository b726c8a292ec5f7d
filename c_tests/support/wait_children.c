/* See wait_children.h. */
#include "wait_children.h"

#include <sys/wait.h>

#include "host.h"

pid_t fork_child(void)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        alarm(6 * WAIT_MS / 1000 * (unsigned)slower());
    return pid;
}

void leave_fork(const char *status)
{
    execl("/bin/sh", "sh", "-c", "exit $0", status, (char *)NULL);
    _exit(9);
}

void reap_fork(pid_t pid)
{
    int status = -1;

    for (deadline_t deadline = deadline_in(5 * WAIT_MS); waitpid(pid, &status, WNOHANG) == 0;) {
        if (deadline_over(deadline)) {
            kill(pid, SIGKILL);
            FAIL("the forked child hangs");
        }
        host_pump(2);
    }
    CHECK(WIFEXITED(status));
    CHECK_THAT(WEXITSTATUS(status), ==, 0);
}
