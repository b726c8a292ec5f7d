/*
 * Log lines, and last words, on a stderr that takes none are lost, and nothing else happens. The same code as libbmi_mx's
 * (c_tests/bmi/stderr.c has the rest).
 */
#include "support/party.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void break_stderr(bool full)
{
    int ends[2];

    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    if (full) {
        CHECK(fcntl(STDERR_FILENO, F_SETFL, O_WRONLY | O_NONBLOCK) == 0);
        while (write(STDERR_FILENO, "", 1) > 0)
            continue;
        CHECK(fcntl(STDERR_FILENO, F_SETFL, O_WRONLY) == 0);
    } else {
        close(ends[0]);
        close(ends[1]);
    }
}

/* Has mx_init log a line to the end of a pipe. */
static void warned(bool full)
{
    break_stderr(full);
    CHECK(setenv("MX_SPIN_US", "forever", 1) == 0);
    party_start();
    OK(mx_finalize());
}

static void no_reader(struct side *side)
{
    (void)side;
    warned(false);
}

static void full(struct side *side)
{
    (void)side;
    warned(true);
}

/* An error ends the process by MX_ERRORS_ARE_FATAL, not by a signal, and at once. */
static void failed(bool full)
{
    deadline_t deadline = deadline_in(WAIT_MS);
    pid_t pid = fork(), ended;
    int status;

    CHECK(pid >= 0);
    if (pid == 0) {
        break_stderr(full);
        mx_init();
        mx_progress(NULL);
        _exit(0);
    }
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && !deadline_over(deadline))
        pause_ms(10);
    if (ended == 0)
        kill(pid, SIGKILL);
    CHECK_THAT(ended, ==, pid);
    CHECK(WIFEXITED(status));
    CHECK_THAT(WEXITSTATUS(status), ==, 1);
}

static void fatal_without_reader(struct side *side)
{
    (void)side;
    failed(false);
}

static void fatal_and_full(struct side *side)
{
    (void)side;
    failed(true);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(a_pipe_without_a_reader_ends_nothing, no_reader),
        SOLO(a_full_pipe_holds_nothing_up, full),
        SOLO(a_fatal_error_without_a_reader_exits, fatal_without_reader),
        SOLO(a_fatal_error_exits_though_the_pipe_is_full, fatal_and_full),
        {0},
    };

    unsetenv("MX_LOG");
    return party_main(argc, argv, scenarios);
}
