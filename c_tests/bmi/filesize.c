/*
 * Processes whose files may not grow (RLIMIT_FSIZE, `ulimit -f`).
 *
 *     either side, or both: 0, 4096 bytes, 500 KiB ── initialize, messages of all sizes, finalize
 *
 * A link's shared memory and the page of counters are files. Without them messages go over sockets, tools do not
 * see the endpoint, and a line says which limit that is; the signal of the limit does not come.
 */
#include "../support/pair.h"
#include "../support/pattern.h"
#include "../support/port.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

/* The bytes of the page of counters. */
enum { COUNTERS = 8192 };
enum { TAG = 7, TIMES = 10, LARGE = 300000 };

/* ---- the log ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int of_counters, of_rings;

static void take_line(int level, const char *line)
{
    (void)level;
    pthread_mutex_lock(&lock);
    if (strstr(line, "RLIMIT_FSIZE") != NULL) {
        of_counters += strstr(line, "tools") != NULL;
        of_rings += strstr(line, "shared memory") != NULL;
    }
    pthread_mutex_unlock(&lock);
}

static void take_log(void)
{
    int (*set_host)(const struct bmi_mx_host *);
    struct bmi_mx_host host = {.size = sizeof host, .log = take_line};
    void *symbol = library_symbol("bmi_mx_set_host");

    CHECK(symbol != NULL);
    memcpy(&set_host, &symbol, sizeof set_host);
    CHECK_THAT(set_host(&host), ==, 0);
}

static void limit_to(rlim_t bytes)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    take_log();
}

/* ---- messages ---- */

static void exchange(struct bmi_method_addr *peer, bool first)
{
    static const size_t sizes[] = {0, 8, 5000, 32768, LARGE};

    for (int i = 0; i < TIMES; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            struct op send = {0}, receive = {0};
            char *out = fenced(sizes[k]), *in = fenced(sizes[k]);

            fill(out, sizes[k], (uint64_t)i + (first ? 0 : 100));
            CHECK_THAT(op_recv(&receive, peer, in, (bmi_size_t)sizes[k], TAG), >=, 0);
            CHECK_THAT(op_send(&send, peer, out, (bmi_size_t)sizes[k], TAG), >=, 0);
            op_sent(&send);
            op_received(&receive, (bmi_size_t)sizes[k]);
            check_filled(in, sizes[k], (uint64_t)i + (first ? 100 : 0));
            fenced_free(in);
            fenced_free(out);
        }
}

static void serves(struct side *side)
{
    exchange(pair_server(side), true);
    pair_part(side);
}

static void calls(struct side *side)
{
    exchange(pair_client(side), false);
    pair_part(side);
}

static void server_with(struct side *side, rlim_t bytes)
{
    limit_to(bytes);
    serves(side);
    CHECK_THAT(of_counters, ==, bytes < COUNTERS);
}

static void client_with(struct side *side, rlim_t bytes)
{
    limit_to(bytes);
    calls(side);
    CHECK_THAT(of_counters, ==, bytes < COUNTERS);
    CHECK_THAT(of_rings, ==, port_is("local"));
}

static void server_with_none(struct side *side) { server_with(side, 0); }
static void server_with_a_page(struct side *side) { server_with(side, 4096); }
static void server_with_500_kib(struct side *side) { server_with(side, 500 << 10); }
static void client_with_none(struct side *side) { client_with(side, 0); }
static void client_with_a_page(struct side *side) { client_with(side, 4096); }
static void client_with_500_kib(struct side *side) { client_with(side, 500 << 10); }

static const struct scenario scenarios[] = {
    PAIR(a_server_whose_files_may_not_grow, server_with_none, calls),
    PAIR(a_client_whose_files_may_not_grow, serves, client_with_none),
    PAIR(both_whose_files_may_not_grow, server_with_none, client_with_none),
    PAIR(both_with_files_of_a_page, server_with_a_page, client_with_a_page),
    PAIR(both_with_files_below_a_ring, server_with_500_kib, client_with_500_kib),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
