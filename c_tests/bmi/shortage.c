/*
 * Memory runs out: RLIMIT_AS a little above what a process uses once it is running.
 *
 *     posts      of every kind, without end: rejected with -BMI_ENOMEM, and possible again once the
 *                others have been cancelled
 *     messages   from peers, without receives
 *     strangers  connections that send all but one byte of a message, each as another peer
 *     crowds     real clients, more than there is memory for
 *
 *     In each case the process goes on, and an honest client is served afterwards.
 *
 * Over rdm only posts and messages are tested: libfabric and its providers allocate memory for every peer, and
 * this library does not decide what they do without.
 */
#include "../support/limit.h"
#include "../support/stage.h"

#include <sys/socket.h>

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

/* Posts until a post is rejected, and cancels everything. Returns the number of posts. */
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

enum { RECEIVES, SENDS, REQUESTS, STARVED = 4 };

static const post_fn posts[] = {[RECEIVES] = post_receive, [SENDS] = post_large_send, [REQUESTS] = post_unexpected};

/* The variant: kind of the posts, plus STARVED if the program itself takes all memory first. */
static void posts_too_much(struct side *side)
{
    post_fn post = posts[side->variant % STARVED];
    bool starved = side->variant >= STARVED;
    struct bmi_method_addr *peer = pair_server(side);
    struct op *all = untouched(POSTS_MAX * sizeof *all);

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
        pair_exchange(peer, 10, TAG_LAST);
    }
    pair_part(side);
}

static void is_posted_to(struct side *side)
{
    struct bmi_method_addr *peer = pair_client(side);

    for (int round = 0; round < ROUNDS; round++) {
        pair_hear(side, "round");
        pair_exchange(peer, 10, TAG_LAST);
    }
    pair_part(side);
}

/* ---- floods: a server with little memory, peers that want all of it, and an honest peer afterwards ---- */

enum { FLOOD_MAX = 32, FLOOD_MS = 2500 };

struct flood {
    struct child *server, *members[FLOOD_MAX];
    int64_t endpoint;
    int count;
};

static struct flood flood_begin(struct world *world, const char *role, int mib)
{
    struct flood flood = {.server = spawn(world, role)};

    flood.endpoint = child_hear(flood.server, "endpoint");
    child_tell(flood.server, "mib", mib);
    child_hear(flood.server, "limited");
    return flood;
}

static void flood_join(struct world *world, struct flood *flood, const char *role, int count)
{
    CHECK(flood->count + count <= FLOOD_MAX);
    for (int i = 0; i < count; i++) {
        struct child *member = spawn(world, role);

        child_tell(member, "endpoint", flood->endpoint);
        flood->members[flood->count++] = member;
    }
}

static void flood_over(struct flood *flood, int ms)
{
    pause_ms(ms);
    for (int i = 0; i < flood->count; i++)
        child_kill(flood->members[i]);
    child_tell(flood->server, "over", 0);
}

static struct child *flood_survive(struct world *world, const struct flood *flood, const char *role)
{
    struct child *honest;

    /* The C library's heap does not shrink, so that there may be no address space left to map a link's shared
     * memory. Then peers come over TCP, if that port may be used. */
    if (port_is("local"))
        unsetenv("MX_PORT");
    honest = spawn(world, role);
    child_tell(honest, "endpoint", flood->endpoint);
    return honest;
}

/* ---- messages without receives ---- */

/* Receives nothing until it is told to, then everything, then serves. With `starved`, the program itself holds all
 * memory until then. */
static void take_nothing(struct side *side, bool starved)
{
    struct arrival arrival;

    limit_to(RLIMIT_NOFILE, RLIM_INFINITY);
    pair_serve(side);
    leave_only((size_t)hear(side, "mib"));
    if (starved)
        take_all();
    tell(side, "limited", 0);
    while (!heard_anything(side))
        host_testcontext(8, 0, 5);
    hear(side, "over");
    give_all();
    while (host_next_within(&arrival, 500))
        arrival_free(&arrival);
    tell(side, "taken", 0);
    echo_until_stopped(side);
}

static void takes_nothing(struct side *side) { take_nothing(side, false); }
static void has_nothing(struct side *side) { take_nothing(side, true); }

/* Checks that an honest client is served after the flood. */
static void recovers(struct world *world, const struct flood *flood)
{
    struct stage stage = {.turn = 0, .server = flood->server, .endpoint = (int)flood->endpoint};

    child_hear_within(stage.server, "taken", 3 * WAIT_MS);
    stage.good = flood_survive(world, flood, "good");
    check_good(&stage);
    take_down(&stage);
}

/* Sends what it can, expected or unexpected messages, whether they succeed or not. */
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

static void flood_with_messages(struct world *world)
{
    struct flood flood;

    /* A limit that is not reached. */
    setenv("MX_UNEXPECTED_BYTES", "1G", 1);
    flood = flood_begin(world, "taker", 32);
    flood_join(world, &flood, "sender", 1);
    flood_join(world, &flood, "asker", 3);
    flood_over(&flood, FLOOD_MS);
    recovers(world, &flood);
}

/* ---- strangers ---- */

enum { STRANGERS = 2500 };

static void flood_with_strangers(struct world *world)
{
    static unsigned char opening[OPENING_MAX], part[WIRE_HEADER + 32768];
    static int fds[STRANGERS];
    struct packet packet = {.kind = 3, /* eager */
                            .word = UINT64_C(0xb) << 60 | 5,
                            .length = 32768,
                            .body_length = 32768};
    struct flood flood;
    size_t size;
    int left_behind = 0;

    if (port_uses_libfabric())
        skip_test("the strangers speak tcp");
    limit_to(RLIMIT_NOFILE, 8192);
    size = record_tcp(world, opening);
    flood = flood_begin(world, "taker", 24);
    for (int i = 0; i < STRANGERS && i + 64 < (int)sysconf(_SC_OPEN_MAX); i++) {
        /* Each from an address of its own, as another peer. */
        fds[i] = wire_dial_from(2 + (unsigned)i, SOCK_STREAM | SOCK_NONBLOCK, (int)flood.endpoint);
        if (fds[i] < 0)
            continue;
        claim(opening, 2000 + i, 1000 + (uint64_t)i);
        /* A hello, and all but one byte of a message behind it. */
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
    flood_over(&flood, 0);
    recovers(world, &flood);
}

/* ---- crowds ---- */

enum { CROWD = 24, CROWD_MS = 1500 };

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
    struct flood flood;

    if (port_uses_libfabric())
        skip_test("libfabric's own code does not stand that");
    flood = flood_begin(world, "starved", 4);
    flood_join(world, &flood, "member", CROWD);
    flood_over(&flood, CROWD_MS);
    recovers(world, &flood);
}

TESTS_AFTER(port_notices_deaths_soon(),
    PAIR_OF(receives_without_end_are_refused_and_then_others_go_on, RECEIVES, posts_too_much, 0, is_posted_to),
    PAIR_OF(sends_without_end_are_refused_and_then_others_go_on, SENDS, posts_too_much, 0, is_posted_to),
    PAIR_OF(requests_without_end_are_refused_and_then_others_go_on, REQUESTS, posts_too_much, 0, is_posted_to),
    PAIR_OF(receives_without_memory_are_refused_and_then_others_go_on, STARVED + RECEIVES, posts_too_much,
            0, is_posted_to),
    PAIR_OF(sends_without_memory_are_refused_and_then_others_go_on, STARVED + SENDS, posts_too_much, 0, is_posted_to),
    DIRECTED(messages_without_receives_end_no_process, flood_with_messages, {"taker", takes_nothing},
             {"sender", sends_without_end}, {"asker", asks_without_end}, {"good", good_client}),
    DIRECTED(parts_of_messages_end_no_process, flood_with_strangers, {"taker", takes_nothing},
             {"good", good_client}, {"dialler", dialler}),
    DIRECTED(clients_that_come_when_there_is_no_memory_are_served_later, flood_with_clients,
             {"starved", has_nothing}, {"member", stays_connected}, {"good", good_client}))
