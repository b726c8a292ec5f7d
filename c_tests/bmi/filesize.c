/*
 * Processes whose files may not grow (RLIMIT_FSIZE, `ulimit -f`).
 *
 *     either side, or both: 0, 4096 bytes, 500 KiB ── initialize, messages of all sizes, finalize
 *
 * The shared memory of a link and the page of counters are files. Without them messages go over sockets, tools do
 * not see the endpoint, and a line names the limit. No signal (SIGXFSZ) is raised.
 */
#include "../support/limit.h"
#include "../support/log.h"
#include "../support/pair.h"

/* Size of the page of counters. */
enum { COUNTERS = 8192 };
/* A limit that no file reaches. */
#define ANY INT64_MAX
enum { TIMES = 10 };

/* ---- sides; the variant is the limit in bytes ---- */

static void serves(struct side *side)
{
    limit_to(RLIMIT_FSIZE, (rlim_t)side->variant);
    log_take();
    pair_exchange_all(pair_server(side), TIMES);
    pair_part(side);
    CHECK_THAT(log_said("tools will not see the endpoint: RLIMIT_FSIZE"), ==, side->variant < COUNTERS);
}

static void calls(struct side *side)
{
    limit_to(RLIMIT_FSIZE, (rlim_t)side->variant);
    log_take();
    pair_exchange_all(pair_client(side), TIMES);
    pair_part(side);
    CHECK_THAT(log_said("tools will not see the endpoint: RLIMIT_FSIZE"), ==, side->variant < COUNTERS);
    CHECK_THAT(log_said("RLIMIT_FSIZE is below the"), ==, port_is("local") && side->variant < ANY);
}

enum { PAGE = 4096, BELOW_A_RING = 500 << 10 };

TESTS(
    PAIR_OF(a_server_whose_files_may_not_grow, 0, serves, ANY, calls),
    PAIR_OF(a_client_whose_files_may_not_grow, ANY, serves, 0, calls),
    PAIR_OF(both_whose_files_may_not_grow, 0, serves, 0, calls),
    PAIR_OF(both_with_files_of_a_page, PAGE, serves, PAGE, calls),
    PAIR_OF(both_with_files_below_a_ring, BELOW_A_RING, serves, BELOW_A_RING, calls))
