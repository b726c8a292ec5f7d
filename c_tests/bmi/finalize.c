/*
 * finalize with everything in flight: it ends soon, all peers are told, and nothing is left behind.
 *
 *      door (stopped: no answer)       ◄── connecting ── ┌───────┐ ── peer, alive
 *                                                        │ ender │ ── peer, stopped
 *      threads asleep in testcontext, testunexpected ──► └───────┘ ── peer, dead
 *
 * Every time-out that could end an operation here is 20 s: an operation that ends sooner ends because its peer was
 * told. finalize waits at most a second for its last packets to leave, and only for peers that do not read them.
 *
 * Over rdm the first life of the library in a process does not count, because libfabric keeps what it opens once
 * per process. Later lives must add nothing.
 */
#include "../support/cleanup_check.h"
#include "../support/pair.h"

#include <limits.h>
#include <sys/syscall.h>

#define MIB (1024 * 1024)

enum {
    FEW = 4,
    MANY_UNEXPECTED = 10,
    BIG = 32 * MIB, /* more than rings and sockets hold */
    LESS = 2 * MIB, /* per life, in the test of fifty lives */
    TAG_BIG = 1,    /* from ender to peer and back */
    TAG_LOST = 100, /* receives without a message */
    TAG_OFFER = 200,
    TAG_LOUD = 300, /* unexpected messages */
    LINGERS_MS = 1000,
    /* Time that a busy machine may add, far below the 20 s of every time-out. */
    SLACK_MS = 4000,
    LIVES = 50,
    ENOUGH = 12,    /* lives that suffice on a busy machine */
    TIME_MS = 35000,
    /* KiB by which a process may grow after its tenth life, because malloc keeps memory. */
    GROWTH_KB = 4096,
    /* libfabric 1.17 may hold up to two endpoints' pools more or less at a given moment; a leaked pool for each
     * life would be several times as much. */
    GROWTH_RDM_KB = 65536,
};

/* ---- operations in flight with one peer ---- */

struct load {
    struct op lost[FEW], offer[FEW], big_out, big_in, loud[MANY_UNEXPECTED];
    char *out, *in, *room;
};

/* Posts the same operations on both sides. */
static void load_post(struct load *load, struct bmi_method_addr *peer, size_t big)
{
    memset(load, 0, sizeof *load);
    load->out = malloc(big);
    load->in = malloc(big);
    load->room = malloc(FEW * 1000);
    CHECK(load->out != NULL && load->in != NULL && load->room != NULL);
    memset(load->out, 7, big);
    for (int i = 0; i < FEW; i++) {
        CHECK_THAT(op_recv(&load->lost[i], peer, load->room + 1000 * i, 1000, TAG_LOST + i), ==, 0);
        CHECK_THAT(op_send(&load->offer[i], peer, load->out, MIB, TAG_OFFER + i), ==, 0);
    }
    CHECK_THAT(op_recv(&load->big_in, peer, load->in, (bmi_size_t)big, TAG_BIG), ==, 0);
    CHECK_THAT(op_send(&load->big_out, peer, load->out, (bmi_size_t)big, TAG_BIG), ==, 0);
}

/* Posts the peers' unexpected messages: more than the ender fetches, some small, some announced. */
static void load_shout(struct load *load, struct bmi_method_addr *peer)
{
    for (int i = 0; i < MANY_UNEXPECTED; i++)
        CHECK_THAT(op_send_unexpected(&load->loud[i], peer, load->out, i % 3 == 2 ? 100000 : 100,
                                      TAG_LOUD + i),
                   >=, 0);
}

static void must_have_been_reset(struct op *op)
{
    if (op->posted != 0)
        return;
    op_wait(op);
    CHECK_THAT(op->error, ==, -BMI_ENETRESET);
}

/* Waits for an operation that may have completed before the peer left. */
static void may_have_been_reset(struct op *op)
{
    if (op->posted != 0)
        return;
    op_wait(op);
    if (op->error != 0)
        CHECK_THAT(op->error, ==, -BMI_ENETRESET);
}

/* Waits for all operations, which end with the code for a peer that has left. */
static void load_must_end(struct load *load)
{
    for (int i = 0; i < FEW; i++) {
        must_have_been_reset(&load->lost[i]);
        must_have_been_reset(&load->offer[i]);
    }
    may_have_been_reset(&load->big_in);
    may_have_been_reset(&load->big_out);
    for (int i = 0; i < MANY_UNEXPECTED; i++)
        may_have_been_reset(&load->loud[i]);
}

static void load_free(struct load *load)
{
    free(load->out);
    free(load->in);
    free(load->room);
}

/* ---- threads that sleep in the library ---- */

enum wait { IN_TEST, IN_TESTCONTEXT, IN_TESTUNEXPECTED };
static const char *const waits[] = {"test", "testcontext", "testunexpected"};

struct sleeper {
    enum wait wait;
    bmi_op_id_t id; /* IN_TEST: an operation in context 0 that does not end */
    pthread_t thread;
    atomic_int tid, over;
    int result;
};

/* Calls until the library reports that nothing is left to wait for. */
static void *sleep_in_library(void *argument)
{
    struct sleeper *sleeper = argument;

    atomic_store(&sleeper->tid, (int)syscall(SYS_gettid));
    do {
        struct bmi_method_unexpected_info info;
        bmi_op_id_t id;
        bmi_error_code_t error;
        bmi_size_t size;
        void *user;
        int count = 0;

        host_enter_test_call();
        switch (sleeper->wait) {
        case IN_TEST:
            sleeper->result = ops->test(sleeper->id, &count, &error, &size, &user, 60000, 0);
            break;
        case IN_TESTCONTEXT: /* returns without a result when an unexpected message waits */
            sleeper->result =
                ops->testcontext(1, &id, &count, &error, &size, &user, 60000, 1);
            break;
        case IN_TESTUNEXPECTED:
            sleeper->result = ops->testunexpected(1, &count, &info, 60000);
            if (sleeper->result >= 0 && count == 1)
                ops->unexpected_free(info.buffer);
            break;
        }
        host_leave_test_call();
    } while (sleeper->result >= 0);
    atomic_store(&sleeper->over, 1);
    return NULL;
}

static void sleeper_start(struct sleeper *sleeper, enum wait wait, bmi_op_id_t id)
{
    memset(sleeper, 0, sizeof *sleeper);
    sleeper->wait = wait;
    sleeper->id = id;
    CHECK_THAT(pthread_create(&sleeper->thread, NULL, sleep_in_library, sleeper), ==, 0);
}

/* Waits until the kernel reports that the thread sleeps. A thread that is still about to sleep meets finalize
 * there. */
static void sleeper_await(struct sleeper *sleeper)
{
    for (deadline_t deadline = deadline_in(WAIT_MS);;) {
        char path[64], state = '?';
        FILE *file;

        CHECK(!deadline_over(deadline));
        pause_ms(1);
        if (atomic_load(&sleeper->over))
            FAIL("a thread did not sleep: %s", code_text(sleeper->result));
        if (atomic_load(&sleeper->tid) == 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&sleeper->tid));
        file = fopen(path, "re");
        CHECK(file != NULL);
        CHECK(fscanf(file, "%*d %*s %c", &state) == 1);
        fclose(file);
        if (state == 'S')
            return;
    }
}

/* Waits for a thread that finalize has woken, and checks its result. */
static void sleeper_join(struct sleeper *sleeper)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5 * slower();
    if (pthread_timedjoin_np(sleeper->thread, NULL, &until) != 0)
        FAIL("a thread sleeps on in %s", waits[sleeper->wait]);
    CHECK_THAT(sleeper->result, ==, -BMI_ENODEV);
}

/* A thread that calls the library once and lives on. */
static pthread_barrier_t bystander_turn;

static void *stand_by(void *nothing)
{
    pthread_barrier_wait(&bystander_turn);
    CHECK_THAT(host_testcontext(1, 2, 0), ==, 0);
    pthread_barrier_wait(&bystander_turn);
    pthread_barrier_wait(&bystander_turn);
    return NULL;
}

/* ---- everything at once ---- */

enum { PEERS = 3, SLEEPERS = 3 };

static void first_life(void)
{
    if (port_uses_libfabric()) {
        host_start_server();
        host_stop();
    }
}

static void everything_ender(struct side *side)
{
    static struct load loads[PEERS];
    struct bmi_method_addr *clients[PEERS], *door;
    struct sleeper sleepers[SLEEPERS];
    static struct holdings before, after;
    struct op knock = {0}, wait_there = {0}, shout_there = {0};
    struct doors doors;
    pthread_t bystander;
    char byte = 0;
    int endpoint;
    int64_t begin;

    first_life();
    CHECK_THAT(pthread_barrier_init(&bystander_turn, NULL, 2), ==, 0);
    CHECK_THAT(pthread_create(&bystander, NULL, stand_by, NULL), ==, 0);
    holdings_take(&before);

    door = NULL;
    endpoint = host_start_server();
    CHECK_THAT(ops->open_context(1), ==, 0);
    CHECK_THAT(ops->open_context(2), ==, 0);
    tell(side, "endpoint", endpoint);
    pthread_barrier_wait(&bystander_turn);
    pthread_barrier_wait(&bystander_turn);
    for (int i = 0; i < PEERS; i++)
        clients[i] = pair_accept();
    for (int i = 0; i < PEERS; i++)
        load_post(&loads[i], clients[i], BIG);
    door = host_lookup_endpoint((int)pair_hear(side, "door"));
    CHECK_THAT(op_send(&knock, door, loads[0].out, MIB, 1), ==, 0);
    CHECK_THAT(op_recv(&wait_there, door, &byte, 1, 1), ==, 0);
    CHECK_THAT(op_send_unexpected(&shout_there, door, "x", 1, 1), ==, 0);
    tell(side, "posted", 0);
    hear(side, "end");
    sleeper_start(&sleepers[0], IN_TEST, knock.id);
    sleeper_start(&sleepers[1], IN_TEST, wait_there.id);
    for (int i = 0; i < 2; i++)
        sleeper_await(&sleepers[i]);
    sleeper_start(&sleepers[2], IN_TESTCONTEXT, 0);
    doors_take(&doors);
    if (!port_is("local"))
        CHECK_THAT(doors.tcp, >=, 1);
    if (port_is("local"))
        CHECK_THAT(doors.unix_, >=, 1);

    begin = now_ms();
    tell(side, "ending", begin);
    host_stop();
    CHECK_THAT(now_ms() - begin, <, LINGERS_MS + SLACK_MS * slower());
    printf("    finalize took %d ms\n", (int)(now_ms() - begin));
    for (int i = 0; i < SLEEPERS; i++)
        sleeper_join(&sleepers[i]);
    CHECK_THAT(now_ms() - begin, <, LINGERS_MS + SLACK_MS * slower());
    holdings_compare(&before, &after);
    doors_gone(&doors);
    pthread_barrier_wait(&bystander_turn);
    CHECK_THAT(pthread_join(bystander, NULL), ==, 0);
    /* The library no longer reads or writes this memory. */
    for (int i = 0; i < PEERS; i++)
        load_free(&loads[i]);

    /* A new life on the same endpoint, for the peers that are still running. */
    host_serve_at(endpoint);
    tell(side, "again", 0);
    for (int i = 0; i < 2; i++)
        pair_accept();
    pair_hear(side, "bye");
    host_stop();
}

/* Posts everything and then makes no progress: no calls, and no helper thread. */
static void everything_peer(struct side *side)
{
    static struct load load;
    struct bmi_method_addr *server;

    setenv("MX_HELPER", "off", 1);
    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(server);
    load_post(&load, server, BIG);
    tell(side, "connected", 0);
    hear(side, "shout");
    load_shout(&load, server);
    for (int i = 0; i < 3; i++)
        host_testcontext(1, 0, 0);
    CHECK(!op_done(&load.big_in) && !op_done(&load.big_out));
    tell(side, "shouted", 0);
    load_must_end(&load);
    tell(side, "all ended", now_ms());
    load_free(&load);
    pair_hear(side, "again");
    pair_hello(server);
    tell(side, "hello", 0);
    pair_hear(side, "bye");
    host_stop();
}

static void door_server(struct side *side)
{
    tell(side, "endpoint", host_start_server());
    hear(side, "bye");
    host_stop();
}

static void ends_everything(struct world *world)
{
    struct child *door = spawn(world, "door"), *ender = spawn(world, "ender");
    struct child *peers[PEERS]; /* alive, stopped, dead */
    int64_t endpoint, closed = child_hear(door, "endpoint"), begin;

    child_stop(door);
    endpoint = child_hear(ender, "endpoint");
    for (int i = 0; i < PEERS; i++) {
        peers[i] = spawn(world, "peer");
        child_tell(peers[i], "endpoint", endpoint);
    }
    for (int i = 0; i < PEERS; i++)
        child_hear(peers[i], "connected");
    child_tell(ender, "door", closed);
    child_hear(ender, "posted");
    for (int i = 0; i < PEERS; i++) {
        child_tell(peers[i], "shout", 0);
        child_hear(peers[i], "shouted");
    }
    child_stop(peers[1]);
    child_kill(peers[2]);
    child_tell(ender, "end", 0);
    begin = child_hear(ender, "ending");
    CHECK_THAT(child_hear(peers[0], "all ended") - begin, <, SLACK_MS * slower());
    child_hear(ender, "again");
    child_continue(peers[1]);
    child_hear(peers[1], "all ended");
    for (int i = 0; i < 2; i++) {
        child_tell(peers[i], "again", 0);
        child_hear(peers[i], "hello");
    }
    for (int i = 0; i < 2; i++) {
        child_tell(peers[i], "bye", 0);
        child_end(peers[i]);
    }
    child_continue(door);
    child_tell(door, "bye", 0);
    child_end(door);
    child_tell(ender, "bye", 0);
    child_end(ender);
}

/* ---- fifty lives in a row ---- */

static void fifty_lives(struct side *side)
{
    static struct holdings before, after;
    deadline_t deadline = deadline_in(TIME_MS / slower());
    long early = 0, late = LONG_MAX; /* largest of the first ten lives, smallest of the others */
    int endpoint = 0;

    first_life();
    holdings_take(&before);
    for (int life = 0; life < LIVES; life++) {
        struct bmi_method_addr *client;
        struct sleeper sleeper;
        struct doors doors;
        static struct load load;

        if (life >= ENOUGH && deadline_over(deadline))
            break;
        endpoint = host_serve_at(endpoint);
        CHECK_THAT(ops->open_context(1), ==, 0);
        tell(side, "endpoint", endpoint);
        client = pair_accept();
        load_post(&load, client, LESS);
        doors_take(&doors);
        tell(side, "posted", 0);
        hear(side, "posted");
        sleeper_start(&sleeper, life % 2 == 0 ? IN_TESTUNEXPECTED : IN_TEST, load.lost[0].id);
        sleeper_await(&sleeper);
        tell(side, "ending", 0);
        host_stop();
        sleeper_join(&sleeper);
        load_free(&load);
        holdings_compare(&before, &after);
        doors_gone(&doors);
        if (life < 10)
            early = after.resident > early ? after.resident : early;
        else
            late = after.resident < late ? after.resident : late;
        hear(side, "all ended");
    }
    /* A memory checker keeps freed memory, and looks for leaks itself. */
    if (slower() == 1)
        CHECK_THAT(late - early, <=, port_uses_libfabric() ? GROWTH_RDM_KB : GROWTH_KB);
    tell(side, "endpoint", -1);
    hear(side, "bye");
}

static void lives_through_them(struct side *side)
{
    static struct holdings third, later;
    static struct load load;
    struct bmi_method_addr *server = NULL;

    /* Over rdm the helper has to send keep-alives. */
    if (!port_uses_libfabric())
        setenv("MX_HELPER", "off", 1);
    host_start_client();
    for (int life = 0;; life++) {
        int endpoint = (int)pair_hear(side, "endpoint");

        if (endpoint < 0)
            break;
        if (server == NULL)
            server = host_lookup_endpoint(endpoint);
        pair_hello(server);
        load_post(&load, server, LESS);
        load_shout(&load, server);
        hear(side, "posted");
        tell(side, "posted", 0);
        hear(side, "ending");
        load_must_end(&load);
        load_free(&load);
        if (life == 2)
            holdings_take(&third);
        tell(side, "all ended", 0);
    }
    /* The last connection may still be open, as in the third life. */
    if (!port_uses_libfabric())
        holdings_compare(&third, &later);
    tell(side, "bye", 0);
    host_stop();
}

TESTS(
    DIRECTED(finalize_in_full_flight_is_quick_and_leaves_nothing, ends_everything,
             {"door", door_server}, {"ender", everything_ender}, {"peer", everything_peer}),
    PAIR(fifty_lives_of_the_library_in_one_process_leave_nothing, fifty_lives, lives_through_them))
