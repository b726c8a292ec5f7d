/*
 * Hosts in a process whose descriptor functions have been replaced by a tool that logs or redirects files.
 *
 *     side ── its own socket, open, read, close, ... ── initialize, messages of all sizes, a death, finalize
 *
 * The library calls none of the replaced functions, so that the tool's table of descriptors never contains one of
 * the library's.
 */
#include "../support/interposer.h"
#include "../support/pair.h"

static void saw_nothing_of_the_library(void)
{
    const char *function = "none";
    int fd = open("/dev/null", O_RDONLY);

    CHECK(fd >= 0 && close(fd) == 0);
    /* The replaced functions are in use. */
    CHECK_THAT(interposer_calls("interposed", &function), >, 1);
    if (interposer_calls("libbmi_mx", &function) > 0)
        FAIL("the library called %s", function);
}

static void serves(struct side *side)
{
    pair_exchange_all(pair_server(side), 1);
    pair_part(side);
    saw_nothing_of_the_library();
}

static void calls(struct side *side)
{
    pair_exchange_all(pair_client(side), 1);
    pair_part(side);
    saw_nothing_of_the_library();
}

TESTS(
    PAIR(an_interposer_sees_no_call_of_the_library, serves, calls))
