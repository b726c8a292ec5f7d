/*
 * Processes whose files may not grow (RLIMIT_FSIZE, `ulimit -f`).
 *
 *     either side, or both: 0, 4096 bytes, 500 KiB ── initialize, messages of all sizes, finalize
 *
 * A link's shared memory and the page of counters are files. Without them messages go over sockets, tools do not
 * see the endpoint, and a line says which limit that is; the signal of the limit does not come.
 */
#include "../support/log.h"
#include "../support/pair.h"

#include <sys/resource.h>

/* The bytes of the page of counters. */
enum { COUNTERS = 8192 };
enum { TIMES = 10, LARGE = 300000 };

static void limit_to(rlim_t bytes)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    log_take();
}

/* ---- messages ---- */

static void exchange(struct bmi_method_addr *peer)
{
    static const size_t sizes[] = {0, 8, 5000, 32768, LARGE};

    for (int i = 0; i < TIMES; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            pair_exchange(peer, sizes[k], i);
}

static void serves(struct side *side)
{
    exchange(pair_server(side));
    pair_part(side);
}

static void calls(struct side *side)
{
    exchange(pair_client(side));
    pair_part(side);
}

static void server_with(struct side *side, rlim_t bytes)
{
    limit_to(bytes);
    serves(side);
    CHECK_THAT(log_said("tools will not see the endpoint: RLIMIT_FSIZE"), ==, bytes < COUNTERS);
}

static void client_with(struct side *side, rlim_t bytes)
{
    limit_to(bytes);
    calls(side);
    CHECK_THAT(log_said("tools will not see the endpoint: RLIMIT_FSIZE"), ==, bytes < COUNTERS);
    CHECK_THAT(log_said("RLIMIT_FSIZE is below the"), ==, port_is("local"));
}

static void server_with_none(struct side *side) { server_with(side, 0); }
static void server_with_a_page(struct side *side) { server_with(side, 4096); }
static void server_with_500_kib(struct side *side) { server_with(side, 500 << 10); }
static void client_with_none(struct side *side) { client_with(side, 0); }
static void client_with_a_page(struct side *side) { client_with(side, 4096); }
static void client_with_500_kib(struct side *side) { client_with(side, 500 << 10); }

TESTS(
    PAIR(a_server_whose_files_may_not_grow, server_with_none, calls),
    PAIR(a_client_whose_files_may_not_grow, serves, client_with_none),
    PAIR(both_whose_files_may_not_grow, server_with_none, client_with_none),
    PAIR(both_with_files_of_a_page, server_with_a_page, client_with_a_page),
    PAIR(both_with_files_below_a_ring, server_with_500_kib, client_with_500_kib))
