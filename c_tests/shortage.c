/*
 * Memory runs out: RLIMIT_AS a little above what a process uses once it is running.
 *
 *     posts      without end, of every kind: refused with -BMI_ENOMEM, and again possible once the
 *                others have been called off
 *     messages   from peers whose messages nobody takes
 *     strangers  connections that leave all but one byte of a message behind, each as another peer
 *     crowds     real clients, more than there is memory for
 *
 *     In each case the process goes on, and an honest client is served afterwards.
 *
 * Over rdm only the first two: libfabric and its providers allocate for every peer, and what they do
 * when they cannot is not this library's to say.
 */
#include "support/limit.h"
#include "support/pattern.h"
#include "support/port.h"
#include "support/stage.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    POSTS_MAX = 1000000, /* more than fit */
    POSTS_LEAST = 2000,
    ROUNDS = 3,
    TAG_FLOOD = 1000,
    TAG_LAST = 7,
    LARGE = 100000,
};

/* ---- posts without end ---- */

typedef int (*post_fn)(struct op *op, struct bmi_method_addr *peer, int number);

static char buffer[LARGE];

static int post_receive(struct op *op, struct bmi_method_addr *peer, int number)
{
    return op_recv(op, peer, buffer, sizeof buffer, TAG_FLOOD + number);
}

static int post_large_send(struct op *op, struct bmi_method_addr *peer, int number)
{
    return op_send(op, peer, buffer, sizeof buffer, TAG_FLOOD + number);
}

static int post_unexpected(struct op *op, struct bmi_method_addr *peer, int number)
{
    return op_send_unexpected(op, peer, buffer, 10000, TAG_FLOOD + number);
}

/* Posts until that is refused, and calls everything off. How many there were. */
static int flood_with(struct op *all, struct bmi_method_addr *peer, post_fn post)
{
    int count = 0, posted = 0;

    while (count < POSTS_MAX && (posted = post(&all[count], peer, count)) >= 0)
        count++;
    CHECK_THAT(posted, ==, -BMI_ENOMEM);
    for (int i = 0; i < count; i++)
        if (!op_done(&all[i]))
            CHECK_THAT(ops->cancel(all[i].id, 0), ==, 0);
    for (int i = 0; i < count; i++)
        op_wait(&all[i]);
    return count;
}

static void exchange(struct bmi_method_addr *peer)
{
    struct op send = {0}, receive = {0};
    char in[64];

    CHECK_THAT(op_recv(&receive, peer, in, sizeof in, TAG_LAST), >=, 0);
    CHECK_THAT(op_send(&send, peer, "still here", 10, TAG_LAST), >=, 0);
    op_sent(&send);
    op_received(&receive, 10);
    CHECK(memcmp(in, "still here", 10) == 0);
}

static void posts_too_much(struct side *side, post_fn post, bool starved)
{
    struct bmi_method_addr *peer = pair_server(side);
    /* Not touched, so it takes no memory but this. */
    struct op *all = mmap(NULL, POSTS_MAX * sizeof *all, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(all != MAP_FAILED);
    leave_only(48);
    for (int round = 0; round < ROUNDS; round++) {
        int count;

        if (starved)
            take_all();
        count = flood_with(all, peer, post);
        give_all();
        if (!starved)
            CHECK_THAT(count, >, POSTS_LEAST);
        memset(all, 0, (size_t)(count + 1) * sizeof *all);
        tell(side, "round", round);
        exchange(peer);
    }
    pair_part(side);
}

static void posts_receives(struct side *side) { posts_too_much(side, post_receive, false); }
static void posts_sends(struct side *side) { posts_too_much(side, post_large_send, false); }
static void posts_unexpected(struct side *side) { posts_too_much(side, post_unexpected, false); }
static void starves_receives(struct side *side) { posts_too_much(side, post_receive, true); }
static void starves_sends(struct side *side) { posts_too_much(side, post_large_send, true); }

static void is_posted_to(struct side *side)
{
    struct bmi_method_addr *peer = pair_client(side);

    for (int round = 0; round < ROUNDS; round++) {
        pair_hear(side, "round");
        exchange(peer);
    }
    pair_part(side);
}

/* ---- messages that nobody takes ---- */

/* Takes nothing until it is told to, then everything, then serves. `starved`: all memory is the
 * program's until then. */
static void take_nothing(struct side *side, bool starved)
{
    struct arrival arrival;
    struct rlimit files;

    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    tell(side, "endpoint", host_start_server());
    leave_only((size_t)hear(side, "mib"));
    if (starved)
        take_all();
    tell(side, "limited", 0);
    while (!heard_anything(side))
        host_testcontext(8, 0, 5);
    hear(side, "take");
    give_all();
    while (host_next_within(&arrival, 500))
        arrival_free(&arrival);
    tell(side, "taken", 0);
    echo_until_stopped(side);
}

static void takes_nothing(struct side *side) { take_nothing(side, false); }
static void has_nothing(struct side *side) { take_nothing(side, true); }

/* A server of that role with so many MiB more. */
static struct stage limited(struct world *world, const char *role, int mib)
{
    struct stage stage = {.turn = 0, .server = spawn(world, role)};

    stage.endpoint = (int)child_hear(stage.server, "endpoint");
    child_tell(stage.server, "mib", mib);
    child_hear(stage.server, "limited");
    return stage;
}

/* The flood is over: an honest client is served. */
static void recovers(struct world *world, struct stage *stage)
{
    child_tell(stage->server, "take", 0);
    child_hear_within(stage->server, "taken", 3 * PATIENCE_MS);
    /* What the C library's heap has grown to it keeps, so that there may be no place to map the
     * memory of a link over shared memory. Then peers come over TCP, if they may. */
    if (port_is("local"))
        unsetenv("MX_PORT");
    stage->good = spawn(world, "good");
    child_tell(stage->good, "endpoint", stage->endpoint);
    check_good(stage);
    take_down(stage);
}

/* Sends what it can, expected messages or others, whatever becomes of it. */
static void send_without_end(struct side *side, post_fn post)
{
    enum { AHEAD = 1000 };
    static struct op sends[AHEAD];
    struct bmi_method_addr *server;

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    for (int i = 0; !heard_anything(side); i = (i + 1) % AHEAD) {
        struct op *op = &sends[i];

        if (op->id == 0 || op->posted < 0 || op_done(op))
            post(op, server, 0);
        host_testcontext(64, 0, i % 64 == 0);
    }
    _exit(0);
}

static int post_small_send(struct op *op, struct bmi_method_addr *peer, int number)
{
    return op_send(op, peer, buffer, 30000, TAG_FLOOD + number);
}

static void sends_without_end(struct side *side) { send_without_end(side, post_small_send); }
static void asks_without_end(struct side *side) { send_without_end(side, post_unexpected); }

enum { FLOODERS = 4, FLOOD_MS = 2500 };

static void flood_with_messages(struct world *world)
{
    struct child *flooders[FLOODERS];
    struct stage stage;

    /* More than there will be. */
    setenv("BMI_MX_UNEXPECTED_MEMORY", "1G", 1);
    setenv("MX_UNEXPECTED_BYTES", "1G", 1);
    setenv("BMI_MX_CREDITS_INITIAL", "65000", 1);
    setenv("BMI_MX_CREDITS_MAXIMUM", "65000", 1);
    stage = limited(world, "taker", 32);
    for (int i = 0; i < FLOODERS; i++) {
        flooders[i] = spawn(world, i == 0 ? "sender" : "asker");
        child_tell(flooders[i], "endpoint", stage.endpoint);
    }
    pause_ms(FLOOD_MS);
    for (int i = 0; i < FLOODERS; i++)
        child_kill(flooders[i]);
    recovers(world, &stage);
}

/* ---- strangers ---- */

/* The hello's fields in an opening: docs/wire-format.md. */
enum {
    ENDPOINT_AT = WIRE_PREAMBLE + WIRE_HEADER + 12,
    NIC_AT = WIRE_PREAMBLE + WIRE_HEADER + 16,
    SESSION_AT = WIRE_PREAMBLE + WIRE_HEADER + 24,
    STRANGERS = 2500,
};

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

/* As `number`th peer: from an address of its own in 127/8. -1: the server does not answer. */
static int dial_as(int number, int endpoint, unsigned char *opening)
{
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    CHECK(fd >= 0);
    from.sin_addr.s_addr = htonl(0x7f000000u + 2 + (unsigned)number);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)endpoint);
    CHECK(bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    put(opening + ENDPOINT_AT, 2000 + (uint64_t)number, 4);
    put(opening + SESSION_AT, 1000 + (uint64_t)number, 8);
    return fd;
}

static void flood_with_strangers(struct world *world)
{
    static unsigned char opening[OPENING_MAX], part[WIRE_HEADER + 32768];
    static int fds[STRANGERS];
    struct packet packet = {.kind = 3, /* eager */
                            .word = UINT64_C(0xb) << 60 | 5,
                            .length = 32768,
                            .body_length = 32768};
    struct rlimit files;
    struct stage stage;
    size_t size;
    int left_behind = 0;

    if (port_is("rdm"))
        return;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max < 8192 ? files.rlim_max : 8192;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    size = record_tcp(world, opening);
    CHECK_THAT(size, >=, SESSION_AT + 8);
    stage = limited(world, "taker", 24);
    for (int i = 0; i < STRANGERS && i + 64 < (int)files.rlim_cur; i++) {
        fds[i] = dial_as(i, stage.endpoint, opening);
        if (fds[i] < 0)
            continue;
        /* Its hello, and all but one byte of a message behind it. */
        send(fds[i], opening, size, MSG_NOSIGNAL);
    }
    wire_packet(part, &packet, NULL, 0);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < STRANGERS; i++) {
            unsigned char heard[4096];

            if (fds[i] <= 0 || recv(fds[i], heard, sizeof heard, MSG_DONTWAIT) <= 0)
                continue;
            left_behind += send(fds[i], part, sizeof part - 1, MSG_NOSIGNAL) > 0;
        }
        pause_ms(50);
    }
    CHECK_THAT(left_behind, >, 100);
    for (int i = 0; i < STRANGERS; i++)
        if (fds[i] > 0)
            close(fds[i]);
    recovers(world, &stage);
}

/* ---- crowds ---- */

enum { CROWD = 24 };

static void stays_connected(struct side *side)
{
    struct bmi_method_addr *server;
    struct op request = {0};

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    op_send_unexpected(&request, server, "here", 4, 1);
    while (!heard_anything(side))
        host_pump(20);
    _exit(0);
}

static void flood_with_clients(struct world *world)
{
    struct stage stage;
    struct child *crowd[CROWD];

    if (port_is("rdm"))
        return;
    stage = limited(world, "starved", 4);
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = spawn(world, "member");
        child_tell(crowd[i], "endpoint", stage.endpoint);
    }
    pause_ms(1500);
    for (int i = 0; i < CROWD; i++)
        child_kill(crowd[i]);
    recovers(world, &stage);
}

static const struct scenario scenarios[] = {
    PAIR(receives_without_end_are_refused_and_then_others_go_on, posts_receives, is_posted_to),
    PAIR(sends_without_end_are_refused_and_then_others_go_on, posts_sends, is_posted_to),
    PAIR(requests_without_end_are_refused_and_then_others_go_on, posts_unexpected, is_posted_to),
    PAIR(receives_without_memory_are_refused_and_then_others_go_on, starves_receives,
         is_posted_to),
    PAIR(sends_without_memory_are_refused_and_then_others_go_on, starves_sends, is_posted_to),
    DIRECTED(messages_that_nobody_takes_end_nobody, flood_with_messages, {"taker", takes_nothing},
             {"sender", sends_without_end}, {"asker", asks_without_end}, {"good", good_client}),
    DIRECTED(parts_of_messages_end_nobody, flood_with_strangers, {"taker", takes_nothing},
             {"good", good_client}, {"dialler", dialler}),
    DIRECTED(clients_that_come_when_there_is_no_memory_are_served_later, flood_with_clients,
             {"starved", has_nothing}, {"member", stays_connected}, {"good", good_client}),
    {0},
};

int main(int argc, char **argv)
{
    port_notices_deaths_soon();
    return harness_main(argc, argv, scenarios);
}
