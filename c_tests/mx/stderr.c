/*
 * Log lines on a stderr that takes none are lost, and nothing else happens. The same code as libbmi_mx's
 * (c_tests/bmi/stderr.c has the rest).
 */
#include "support/party.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* Has mx_init log a line to the end of a pipe. */
static void warned(bool full)
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

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(a_pipe_without_a_reader_ends_nothing, no_reader),
        SOLO(a_full_pipe_holds_nothing_up, full),
        {0},
    };

    unsetenv("MX_LOG");
    return party_main(argc, argv, scenarios);
}
