/*
 * Threads that are cancelled (pthread_cancel) while they are in a call.
 *
 *     worker 1..n ── call, call, call ... ◄── pthread_cancel ── main: joins them, then talks to the peer
 *
 * A call is finished first: the thread ends after it, and holds nothing that the others need.
 */
#include "../support/pair.h"

enum { WORKERS = 3, ROUNDS = 20, OWN = 1, AT_ONCE = 4, TAG = 5, IDLE_MS = 40 };

static struct bmi_method_addr *peer;

/* ---- what they do ---- */

static void test_own(int idle_ms)
{
    bmi_op_id_t ids[AT_ONCE];
    bmi_error_code_t errors[AT_ONCE];
    bmi_size_t sizes[AT_ONCE];
    void *users[AT_ONCE];
    int outcount = 0;

    CHECK_THAT(ops->testcontext(AT_ONCE, ids, &outcount, errors, sizes, users, idle_ms, OWN), ==, 0);
}

static void sleeps(void)
{
    test_own(IDLE_MS);
}

static void polls(void)
{
    test_own(0);
}

static void sleeps_for_messages(void)
{
    struct bmi_method_unexpected_info infos[AT_ONCE];
    int outcount = 0;

    CHECK_THAT(ops->testunexpected(AT_ONCE, &outcount, infos, IDLE_MS), ==, 0);
    CHECK_THAT(outcount, ==, 0);
}

static char sent[8];

static void posts(void)
{
    bmi_op_id_t id;

    CHECK_THAT(ops->post_sendunexpected(&id, peer, sent, sizeof sent, BMI_EXT_ALLOC, TAG, NULL, OWN, NULL),
               >=, 0);
    test_own(0);
}

static void begins_and_ends(void)
{
    /* Where others do the same at once, one of them has begun already. */
    (void)ops->initialize(NULL, METHOD_ID, 0, NULL);
    (void)ops->finalize();
}

/* ---- and their end ---- */

struct worker {
    void (*work)(void);
    atomic_bool begun;
    pthread_t thread;
};

static void *works(void *argument)
{
    struct worker *worker = argument;

    for (;;) {
        atomic_store(&worker->begun, true);
        worker->work();
        pthread_testcancel();
    }
    return NULL;
}

static void cancel_some(void (*work)(void), int count, int round)
{
    struct worker workers[WORKERS];

    for (int i = 0; i < count; i++) {
        workers[i] = (struct worker){.work = work};
        CHECK(pthread_create(&workers[i].thread, NULL, works, &workers[i]) == 0);
    }
    for (int i = 0; i < count; i++) {
        deadline_t deadline = deadline_in(WAIT_MS);

        while (!atomic_load(&workers[i].begun))
            CHECK(!deadline_over(deadline));
    }
    /* Anywhere: as it begins, as it spins, asleep. */
    pause_ms(round % 5);
    for (int i = 0; i < count; i++)
        CHECK(pthread_cancel(workers[i].thread) == 0);
    for (int i = 0; i < count; i++) {
        void *result = NULL;

        CHECK(pthread_join(workers[i].thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
}

static void cancels(struct side *side, void (*work)(void))
{
    peer = pair_client(side);
    CHECK_THAT(ops->open_context(OWN), ==, 0);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        cancel_some(work, 1 + round % WORKERS, round);
        pair_hello(peer);
    }
    ops->close_context(OWN);
    pair_part(side);
}

static void cancels_sleepers(struct side *side) { cancels(side, sleeps); }
static void cancels_pollers(struct side *side) { cancels(side, polls); }
static void cancels_waiters(struct side *side) { cancels(side, sleeps_for_messages); }
static void cancels_posters(struct side *side) { cancels(side, posts); }

/* Answers hellos, and takes what else comes. */
static void answers(struct side *side)
{
    pair_server(side);
    while (!heard_anything(side)) {
        struct arrival arrival;

        if (!host_waiting()) {
            host_pump(2);
            continue;
        }
        arrival = host_next();
        if (arrival.tag != TAG)
            send_message(arrival.from, arrival.buffer, arrival.size, arrival.tag);
        arrival_free(&arrival);
    }
    pair_part(side);
}

static void cancels_beginners(struct side *side)
{
    host_load();
    for (int round = 0; round < 2 * ROUNDS; round++) {
        cancel_some(begins_and_ends, 1 + round % WORKERS, round);
        (void)ops->finalize();
    }
    peer = host_lookup_endpoint(host_start_server());
    pair_exchange(peer, sizeof sent, TAG);
    host_stop();
}

TESTS(
    PAIR(threads_asleep_in_testcontext, answers, cancels_sleepers),
    PAIR(threads_that_poll, answers, cancels_pollers),
    PAIR(threads_asleep_in_testunexpected, answers, cancels_waiters),
    PAIR(threads_that_post, answers, cancels_posters),
    SOLO(threads_that_initialize_and_finalize, cancels_beginners))
