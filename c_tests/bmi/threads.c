/*
 * Every entry point from several threads at once (docs/hosts.md, Threads: the host
 * guarantees nothing).
 *
 *   poster 1..n ──► post_send / post_recv / cancel / memalloc      (any thread)
 *   pumper      ──► testunexpected + testcontext                   (as the BMI thread)
 *
 * Each message is checked by its receiver, each operation completes exactly once.
 */
#include "../support/pair.h"

enum { POSTERS = 4, ROUNDS = 150, WINDOW = 8 };

static struct bmi_method_addr *peer;
static atomic_bool stop;

/* Waits without testing: another thread's testcontext reports the completion. */
static void await(struct op *op)
{
    const struct timespec pause = {.tv_nsec = 200 * 1000};
    deadline_t deadline = deadline_in(2 * WAIT_MS);

    CHECK_THAT(op->posted, >=, 0);
    while (!op_done(op)) {
        if (deadline_over(deadline))
            FAIL("operation does not complete");
        nanosleep(&pause, NULL);
    }
}

static void *pump_all(void *nothing)
{
    while (!atomic_load(&stop))
        host_pump(2);
    return NULL;
}

static bmi_size_t size_in(int poster, int round)
{
    static const bmi_size_t mix[] = {8, 0, 3000, 32768, 50000, 120, 8192};

    return mix[(poster + round) % 7];
}

/* Each poster has a tag of its own and keeps WINDOW pairs of operations in flight. */
static void *exchange(void *argument)
{
    int poster = (int)(intptr_t)argument;
    struct op send[WINDOW] = {{0}}, receive[WINDOW] = {{0}};
    void *out[WINDOW], *in[WINDOW];

    for (int round = 0; round < ROUNDS; round += WINDOW) {
        for (int i = 0; i < WINDOW; i++) {
            size_t size = (size_t)size_in(poster, round + i);
            uint64_t seed = (uint64_t)(poster * 10000 + round + i);

            out[i] = fenced(size);
            in[i] = fenced(size);
            fill(out[i], size, seed);
            CHECK_THAT(op_recv(&receive[i], peer, in[i], (bmi_size_t)size, poster), >=, 0);
            CHECK_THAT(op_send(&send[i], peer, out[i], (bmi_size_t)size, poster), >=, 0);
        }
        for (int i = 0; i < WINDOW; i++) {
            size_t size = (size_t)size_in(poster, round + i);

            await(&send[i]);
            await(&receive[i]);
            CHECK_THAT(send[i].error, ==, 0);
            CHECK_THAT(receive[i].error, ==, 0);
            CHECK_THAT(receive[i].size, ==, size);
            check_filled(in[i], size, (uint64_t)(poster * 10000 + round + i));
            fenced_free(in[i]);
            fenced_free(out[i]);
        }
    }
    return NULL;
}

/* Cancels receives without a message, right after this thread has posted them. */
static void *cancel_away(void *nothing)
{
    char buffer[64];

    for (int i = 0; i < 300; i++) {
        struct op receive = {0};
        void *memory = ops->memalloc(1 + i * 97, BMI_RECV);

        CHECK(memory != NULL);
        CHECK_THAT(op_recv(&receive, peer, buffer, sizeof buffer, 0x7000), ==, 0);
        CHECK_THAT(ops->cancel(receive.id, 0), >=, 0);
        await(&receive);
        CHECK_THAT(receive.error, ==, -BMI_ECANCEL);
        CHECK_THAT(ops->memfree(memory, 1 + i * 97, BMI_RECV), ==, 0);
    }
    return NULL;
}

/* Sends unexpected messages from a thread of its own; the other side counts them. */
enum { BURST = 200 };

static void *send_burst(void *nothing)
{
    for (int i = 0; i < BURST; i++) {
        int64_t number = i;
        struct op send = {0};

        CHECK_THAT(op_send_unexpected(&send, peer, &number, 8, 1), >=, 0);
        await(&send);
        CHECK_THAT(send.error, ==, 0);
    }
    return NULL;
}

/* Makes the read-only calls that any thread may make at any time. */
static void *ask_around(void *nothing)
{
    while (!atomic_load(&stop)) {
        int size = 0;
        const char *name;

        CHECK_THAT(ops->get_info(BMI_CHECK_MAXSIZE, &size), ==, 0);
        CHECK_THAT(size, >, 0);
        name = ops->rev_lookup_unexpected(peer);
        CHECK(name != NULL);
        CHECK_THAT(ops->set_info(BMI_TCP_BUFFER_SEND_SIZE, &size), >=, 0);
    }
    return NULL;
}

static void everything_at_once(struct side *side)
{
    pthread_t posters[POSTERS], pumpers[2], canceller, burster, asker;

    ops_on_many_threads = true;
    pair_sync(side);
    for (int i = 0; i < 2; i++)
        CHECK_THAT(pthread_create(&pumpers[i], NULL, pump_all, NULL), ==, 0);
    for (int i = 0; i < POSTERS; i++)
        CHECK_THAT(pthread_create(&posters[i], NULL, exchange, (void *)(intptr_t)i), ==, 0);
    CHECK_THAT(pthread_create(&canceller, NULL, cancel_away, NULL), ==, 0);
    CHECK_THAT(pthread_create(&burster, NULL, send_burst, NULL), ==, 0);
    CHECK_THAT(pthread_create(&asker, NULL, ask_around, NULL), ==, 0);
    for (int i = 0; i < POSTERS; i++)
        CHECK_THAT(pthread_join(posters[i], NULL), ==, 0);
    CHECK_THAT(pthread_join(canceller, NULL), ==, 0);
    CHECK_THAT(pthread_join(burster, NULL), ==, 0);
    /* Two pumpers may take the other side's burst in either order, but all of it must come. */
    {
        bool seen[BURST] = {false};

        for (int i = 0; i < BURST; i++) {
            struct arrival arrival = host_next();
            int64_t number;

            CHECK_THAT(arrival.size, ==, 8);
            memcpy(&number, arrival.buffer, 8);
            CHECK(number >= 0 && number < BURST && !seen[number]);
            seen[number] = true;
            arrival_free(&arrival);
        }
    }
    pair_sync(side); /* the other side may still need this side to poll */
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        CHECK_THAT(pthread_join(pumpers[i], NULL), ==, 0);
    CHECK_THAT(pthread_join(asker, NULL), ==, 0);
    pair_part(side);
}

static void busy_server(struct side *side)
{
    peer = pair_server(side);
    everything_at_once(side);
}

static void busy_client(struct side *side)
{
    peer = pair_client(side);
    everything_at_once(side);
}

/* ---- the first posts of several threads race with the connect (faults 5 and 7) ---- */

enum { RACERS = 6, RACE = 40 };

static void *race(void *argument)
{
    int racer = (int)(intptr_t)argument;
    struct op send[RACE] = {{0}};
    int64_t numbers[RACE];

    for (int i = 0; i < RACE; i++) {
        numbers[i] = i;
        CHECK_THAT(op_send_unexpected(&send[i], peer, &numbers[i], 8, racer), >=, 0);
    }
    for (int i = 0; i < RACE; i++) {
        await(&send[i]);
        CHECK_THAT(send[i].error, ==, 0);
    }
    return NULL;
}

static void race_server(struct side *side)
{
    int next[RACERS] = {0};

    pair_serve(side);
    for (int i = 0; i < RACERS * RACE; i++) {
        struct arrival arrival = host_next();
        int64_t number;

        CHECK(arrival.tag >= 0 && arrival.tag < RACERS);
        memcpy(&number, arrival.buffer, 8);
        CHECK_THAT(number, ==, next[arrival.tag]); /* in the order of each thread */
        next[arrival.tag]++;
        arrival_free(&arrival);
    }
    pair_part(side);
}

static void race_client(struct side *side)
{
    pthread_t racers[RACERS], pumper;

    peer = pair_join(side);
    ops_on_many_threads = true;
    CHECK_THAT(pthread_create(&pumper, NULL, pump_all, NULL), ==, 0);
    for (int i = 0; i < RACERS; i++)
        CHECK_THAT(pthread_create(&racers[i], NULL, race, (void *)(intptr_t)i), ==, 0);
    for (int i = 0; i < RACERS; i++)
        CHECK_THAT(pthread_join(racers[i], NULL), ==, 0);
    atomic_store(&stop, true);
    CHECK_THAT(pthread_join(pumper, NULL), ==, 0);
    pair_part(side);
}

/* ---- two threads asleep in two contexts: each is woken by its own completion ---- */

static atomic_int woken[2];

static void *sleep_in_context(void *argument)
{
    int context = (int)(intptr_t)argument;
    deadline_t deadline = deadline_in(2 * WAIT_MS);

    while (host_testcontext(4, context, 8000) == 0)
        CHECK(!deadline_over(deadline));
    atomic_store(&woken[context], 1);
    return NULL;
}

static void two_sleepers(struct side *side)
{
    struct op receive[2] = {{0}};
    char buffer[2][8];
    pthread_t sleepers[2];
    const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};

    peer = pair_server(side);
    ops_on_many_threads = true;
    CHECK_THAT(ops->open_context(1), ==, 0);
    for (int c = 0; c < 2; c++) {
        receive[c].context = c;
        CHECK_THAT(op_recv(&receive[c], peer, buffer[c], 8, c), ==, 0);
    }
    for (int c = 0; c < 2; c++) {
        CHECK_THAT(pthread_create(&sleepers[c], NULL, sleep_in_context, (void *)(intptr_t)c),
                   ==, 0);
        pause_ms(100); /* asleep: the first thread polls for both, and has to wake the second */
    }
    for (int c = 1; c >= 0; c--) {
        deadline_t deadline = deadline_in(4000); /* half the idle time: a lost wake-up would take longer */

        tell(side, "send", c);
        while (!atomic_load(&woken[c])) {
            CHECK(!deadline_over(deadline));
            nanosleep(&pause, NULL);
        }
    }
    for (int c = 0; c < 2; c++)
        CHECK_THAT(pthread_join(sleepers[c], NULL), ==, 0);
    ops->close_context(1);
    pair_part(side);
}

static void wakes_sleepers(struct side *side)
{
    peer = pair_client(side);
    for (int i = 0; i < 2; i++)
        send_message(peer, "12345678", 8, (bmi_msg_tag_t)pair_hear(side, "send"));
    pair_part(side);
}

/* ---- a post from another thread while this one sleeps in testcontext ---- */

static void *post_later(void *argument)
{
    struct op *send = argument;
    static char body[100000];
    const struct timespec pause = {.tv_nsec = 150 * 1000 * 1000};

    nanosleep(&pause, NULL);
    fill(body, sizeof body, 3);
    CHECK_THAT(op_send(send, peer, body, sizeof body, 4), >=, 0);
    return NULL;
}

static void sleeper_posts(struct side *side)
{
    struct op send = {0};
    pthread_t poster;
    deadline_t deadline;

    peer = pair_client(side);
    deadline = deadline_in(4000);
    ops_on_many_threads = true;
    CHECK_THAT(pthread_create(&poster, NULL, post_later, &send), ==, 0);
    while (!op_done(&send)) {
        CHECK(!deadline_over(deadline));
        host_testcontext(4, 0, 1000);
    }
    CHECK_THAT(pthread_join(poster, NULL), ==, 0);
    CHECK_THAT(send.error, ==, 0);
    pair_part(side);
}

static void takes_post(struct side *side)
{
    static char body[100000];
    struct op receive = {0};

    peer = pair_server(side);
    CHECK_THAT(op_recv(&receive, peer, body, sizeof body, 4), ==, 0);
    op_received(&receive, sizeof body);
    check_filled(body, sizeof body, 3);
    pair_part(side);
}

/* ---- a post to oneself wakes the thread that waits ---- */

/* The called end of a call to oneself; `peer` is the other. */
static struct bmi_method_addr *called;

static void *post_to_self(void *unexpected)
{
    struct op send = {.context = 1};

    pause_ms(150); /* the other thread is asleep */
    if (unexpected != NULL)
        CHECK_THAT(op_send_unexpected(&send, peer, "1234567", 8, 4), ==, 1);
    else
        CHECK_THAT(op_send(&send, called, "1234567", 8, 4), ==, 1);
    return NULL;
}

static void wakes_itself(struct side *side)
{
    peer = host_lookup_endpoint(host_start_server());
    called = pair_call_self(peer);
    pair_exchange_ends(peer, called, 8, 1);
    ops_on_many_threads = true;
    CHECK_THAT(ops->open_context(1), ==, 0);
    for (int unexpected = 0; unexpected < 2; unexpected++) {
        deadline_t deadline = deadline_in(4000);
        struct op receive = {0};
        pthread_t poster;
        char buffer[8];

        CHECK_THAT(op_recv(&receive, peer, buffer, 8, 4), ==, 0);
        CHECK_THAT(pthread_create(&poster, NULL, post_to_self, unexpected ? &peer : NULL), ==, 0);
        CHECK_THAT(host_testcontext(1, 0, 8000 * slower()), ==, !unexpected);
        CHECK(!deadline_over(deadline));
        CHECK_THAT(pthread_join(poster, NULL), ==, 0);
        if (unexpected) {
            CHECK_THAT(host_testunexpected(1, 0), ==, 1);
            CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
            op_failed(&receive, BMI_ECANCEL);
        }
    }
    host_stop();
}

TESTS(
    PAIR(all_entry_points_at_once_from_many_threads, busy_server, busy_client),
    PAIR(first_posts_of_many_threads_race_with_the_connect, race_server, race_client),
    PAIR(threads_asleep_in_two_contexts_wake_for_their_own, two_sleepers, wakes_sleepers),
    PAIR(a_post_goes_out_while_another_thread_sleeps_in_testcontext, takes_post, sleeper_posts),
    SOLO(a_post_to_oneself_wakes_the_thread_that_waits, wakes_itself))
