/*
 * Two hosts and a bad link between them, one test for each kind of fault (make check-net, root).
 *
 *      client ── side0 ══ port0 ──[ cable: delay, loss, ... ]── port1 ══ side0 ── server
 *
 * Over each link: messages of 8 bytes to 16 MiB both ways at once, each intact, exactly once and in order; pings;
 * a stream each way. The table limits the time, so that a protocol that waits where it should retransmit fails.
 * Prints what it measured.
 */
#include "../support/cable.h"
#include "../support/net.h"
#include "../support/pair.h"
#include "../support/traffic.h"

#include <sys/mman.h>

#define KIB (INT64_C(1024))
#define MIB (1024 * KIB)

enum {
    ROUNDS = 3,
    PINGS = 40,
    STREAM_MS = 2000,
    CLIENT = 0,
    SERVER = 1,
};

/* The director's plan for both sides. */
struct plan {
    int64_t largest; /* of the messages */
    int64_t piece;   /* size of a message of the stream */
    int64_t within_ms;
};

static struct plan hear_plan(struct side *side)
{
    struct plan plan;

    plan.largest = hear(side, "largest");
    plan.piece = hear(side, "piece");
    plan.within_ms = hear(side, "within");
    return plan;
}

static void tell_plan(struct child *child, const struct plan *plan)
{
    child_tell(child, "largest", plan->largest);
    child_tell(child, "piece", plan->piece);
    child_tell(child, "within", plan->within_ms);
}

/* ---- sides ---- */

/* The library's warnings, which are collected and printed again at the end. */
static int warnings = -1, old_stderr = -1;

static void keep_warnings(void)
{
    warnings = memfd_create("warnings", MFD_CLOEXEC);
    old_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    CHECK(warnings >= 0 && old_stderr >= 0);
    CHECK(dup2(warnings, STDERR_FILENO) >= 0);
}

static bool warned_of(const char *words)
{
    static char text[1 << 16];
    ssize_t got = pread(warnings, text, sizeof text - 1, 0);

    CHECK(got >= 0);
    text[got] = 0;
    CHECK(dup2(old_stderr, STDERR_FILENO) >= 0);
    fputs(text, stderr);
    return strstr(text, words) != NULL;
}

static void begin_side(struct side *side)
{
    if (hear(side, "black hole"))
        keep_warnings();
    become_host(side);
}

static void end_side(struct side *side)
{
    tell(side, "done", warnings >= 0 && warned_of("MTU"));
    net_part(side);
}

static void server(struct side *side)
{
    struct plan plan = hear_plan(side);
    deadline_t deadline = deadline_in((int)plan.within_ms);
    struct bmi_method_addr *client;

    begin_side(side);
    tell(side, "endpoint", host_start_server());
    client = pair_accept();
    talk_rounds(client, false, plan.largest, ROUNDS, deadline);
    pong(client, PINGS, deadline);
    tell(side, "there", (int64_t)take_stream(client, plan.piece, deadline));
    outflow(client, plan.piece, STREAM_MS, deadline);
    end_side(side);
}

static void client(struct side *side)
{
    struct plan plan = hear_plan(side);
    deadline_t deadline = deadline_in((int)plan.within_ms);
    struct bmi_method_addr *server;
    struct pings pings;
    int64_t begin;

    begin_side(side);
    server = net_join(side, SERVER);
    begin = now_ms();
    pair_hello(server);
    tell(side, "hello", now_ms() - begin);
    begin = now_ms();
    talk_rounds(server, true, plan.largest, ROUNDS, deadline);
    tell(side, "talk", now_ms() - begin);
    pings = ping(server, PINGS, deadline);
    tell(side, "median", pings.median_us);
    tell(side, "worst", pings.worst_us);
    outflow(server, plan.piece, STREAM_MS, deadline);
    tell(side, "back", (int64_t)take_stream(server, plan.piece, deadline));
    end_side(side);
}

/* ---- the director ---- */

static void print_figures(struct child *client, struct child *server, const struct way *way,
                          const struct plan *plan)
{
    char text[200];
    int ms = (int)plan->within_ms;
    int64_t hello = child_hear_within(client, "hello", ms);
    int64_t talk = child_hear_within(client, "talk", ms);
    int64_t median = child_hear_within(client, "median", ms);
    int64_t worst = child_hear_within(client, "worst", ms);
    int64_t there = child_hear_within(server, "there", ms);
    int64_t back = child_hear_within(client, "back", ms);

    printf("    %s, %s: hello %d ms, messages to %lld KiB %d ms, ping %.1f ms (worst %.1f), "
           "stream %.1f and %.1f MB/s\n",
           port_name(), way_text(way, text, sizeof text), (int)hello,
           (long long)(plan->largest / KIB), (int)talk, (double)median / 1e3,
           (double)worst / 1e3, (double)there / 1e6, (double)back / 1e6);
    fflush(stdout);
}

static void over(struct world *world, const struct way *way, const struct plan *plan)
{
    struct child *sides[2];
    struct cable *cable;
    bool warned = false;

    make_hub();
    sides[CLIENT] = spawn(world, "client");
    sides[SERVER] = spawn(world, "server");
    for (int i = 0; i < 2; i++) {
        tell_plan(sides[i], plan);
        child_tell(sides[i], "black hole", way->black_hole);
        plug_in_plain(sides[i], i, true);
    }
    cable = cable_lay("port0", "port1", way, way);
    child_tell(sides[CLIENT], "endpoint", child_hear(sides[SERVER], "endpoint"));
    print_figures(sides[CLIENT], sides[SERVER], way, plan);
    for (int i = 0; i < 2; i++)
        warned |= child_hear_within(sides[i], "done", (int)plan->within_ms) != 0;
    for (int i = 0; i < 2; i++)
        child_tell(sides[i], "end", 0);
    for (int i = 0; i < 2; i++)
        child_end(sides[i]);
    cable_remove(cable);
    /* Over dgram the library detects the fault, and logs what is wrong with the network. */
    if (way->black_hole > 0 && port_is("dgram"))
        CHECK(warned);
}

/* ---- the links ---- */

/* X(test, largest message, messages of the stream, seconds, the link) */
#define LINKS_FOR_ALL(X)                                                                          \
    X(a_cable, 16 * MIB, MIB, 20, {0})                                                            \
    X(a_millisecond, 16 * MIB, MIB, 20, {.delay_us = 1000})                                       \
    X(twenty_milliseconds, 16 * MIB, MIB, 30, {.delay_us = 20000})                                \
    X(jitter, 16 * MIB, MIB, 30, {.delay_us = 1000, .jitter_us = 1000})                           \
    X(much_jitter, 16 * MIB, MIB, 40, {.delay_us = 10000, .jitter_us = 10000})                    \
    X(loss_of_1_in_1000, 16 * MIB, MIB, 30, {.delay_us = 1000, .loss = 1})                        \
    X(loss_of_1_percent, 16 * MIB, MIB, 40, {.delay_us = 1000, .loss = 10})                       \
    X(reordering, 16 * MIB, MIB, 30, {.delay_us = 1000, .reorder = 50})                           \
    X(duplicates, 16 * MIB, MIB, 30, {.delay_us = 1000, .duplicate = 50})                         \
    X(corruption, 16 * MIB, MIB, 30, {.delay_us = 1000, .corrupt = 10})                           \
    X(ten_megabits_with_a_short_queue, MIB, 256 * KIB, 40,                                        \
      {.delay_us = 1000, .rate_mbit = 10, .queue_kib = 32})                                       \
    X(a_hundred_megabits_with_a_short_queue, 16 * MIB, MIB, 40,                                   \
      {.delay_us = 1000, .rate_mbit = 100, .queue_kib = 64})                                      \
    X(a_hundred_megabits_far_away, 16 * MIB, MIB, 50,                                             \
      {.delay_us = 20000, .rate_mbit = 100, .queue_kib = 256})

/* Links over which TCP has hardly any goodput, or none. */
#define LINKS_FOR_DGRAM(X)                                                                        \
    X(loss_of_5_percent, 16 * MIB, MIB, 40, {.delay_us = 1000, .loss = 50})                       \
    X(loss_of_10_percent, 16 * MIB, MIB, 50, {.delay_us = 1000, .loss = 100})                     \
    X(loss_of_20_percent, 16 * MIB, 256 * KIB, 100, {.delay_us = 1000, .loss = 200})              \
    X(loss_of_1_percent_far_away, 16 * MIB, MIB, 60, {.delay_us = 20000, .loss = 10})             \
    X(loss_of_10_percent_far_away, 3 * MIB, 256 * KIB, 60, {.delay_us = 20000, .loss = 100})      \
    X(corruption_that_checksums_of_udp_miss, 16 * MIB, MIB, 40,                                   \
      {.delay_us = 1000, .garble = 10})                                                           \
    X(everything_at_once, 16 * MIB, 256 * KIB, 90,                                                \
      {.delay_us = 2000, .jitter_us = 2000, .loss = 20, .duplicate = 10, .reorder = 20,           \
       .corrupt = 5, .garble = 5, .rate_mbit = 100, .queue_kib = 64})                             \
    X(a_black_hole_of_1300_bytes, 16 * MIB, MIB, 40, {.delay_us = 1000, .black_hole = 1300})      \
    X(a_black_hole_of_700_bytes, 3 * MIB, 256 * KIB, 40, {.delay_us = 1000, .black_hole = 700})

#define DIRECTOR(name, largest, piece, seconds, ...)                                              \
    static void name(struct world *world)                                                         \
    {                                                                                             \
        static const struct way way = __VA_ARGS__;                                                \
        static const struct plan plan = {largest, piece, seconds * 1000};                         \
                                                                                                  \
        over(world, &way, &plan);                                                                 \
    }

#define SCENARIO(name, ...)                                                                       \
    DIRECTED(messages_get_over_##name, name, {"client", client}, {"server", server}),

LINKS_FOR_ALL(DIRECTOR)
LINKS_FOR_DGRAM(DIRECTOR)

static const struct scenario dgram_too[] = {LINKS_FOR_ALL(SCENARIO) LINKS_FOR_DGRAM(SCENARIO){0}};
static const struct scenario others[] = {LINKS_FOR_ALL(SCENARIO){0}};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, port_is("dgram") ? dgram_too : others);
}
