/*
 * Hosts in a process whose descriptor functions have been replaced by a tool that logs or redirects files.
 *
 *     side ── its own socket, open, read, close, ... ── initialize, messages of all sizes, a death, finalize
 *
 * The library makes none of its calls through them, so that no table of descriptors there ever has one of its own.
 */
#include "../support/interposer.h"
#include "../support/log.h"
#include "../support/pair.h"

static void saw_nothing_of_the_library(void)
{
    const char *function = "none";
    int fd = open("/dev/null", O_RDONLY);

    CHECK(fd >= 0 && close(fd) == 0);
    /* The functions are in place. */
    CHECK_THAT(interposer_calls("interposed", &function), >, 1);
    if (interposer_calls("libbmi_mx", &function) > 0)
        FAIL("the library called %s", function);
}

static void exchange(struct bmi_method_addr *peer)
{
    static const size_t sizes[] = {0, 8, 5000, 32768, 300000, 3000000};

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        pair_exchange(peer, sizes[k], (bmi_msg_tag_t)k);
}

static void serves(struct side *side)
{
    exchange(pair_server(side));
    pair_part(side);
    saw_nothing_of_the_library();
}

static void calls(struct side *side)
{
    exchange(pair_client(side));
    pair_part(side);
    saw_nothing_of_the_library();
}

TESTS(
    PAIR(an_interposer_sees_no_call_of_the_library, serves, calls))
