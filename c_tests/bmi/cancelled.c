/*
 * Threads that are cancelled (pthread_cancel) while they are in a call (support/workers.h); then the main thread
 * talks to the peer.
 */
#include "../support/pair.h"
#include "../support/workers.h"

enum { OWN = 1, AT_ONCE = 4, TAG = 5, IDLE_MS = 40 };

static struct bmi_method_addr *peer;

/* ---- the calls that are cancelled ---- */

static void test_own(int idle_ms)
{
    bmi_op_id_t ids[AT_ONCE];
    bmi_error_code_t errors[AT_ONCE];
    bmi_size_t sizes[AT_ONCE];
    void *users[AT_ONCE];
    int outcount = 0;

    CHECK_THAT(ops->testcontext(AT_ONCE, ids, &outcount, errors, sizes, users, idle_ms, OWN), ==, 0);
}

static void sleeps(int number)
{
    test_own(IDLE_MS);
}

static void polls(int number)
{
    test_own(0);
}

static void sleeps_for_messages(int number)
{
    struct bmi_method_unexpected_info infos[AT_ONCE];
    int outcount = 0;

    CHECK_THAT(ops->testunexpected(AT_ONCE, &outcount, infos, IDLE_MS), ==, 0);
    CHECK_THAT(outcount, ==, 0);
}

static char sent[8];

static void posts(int number)
{
    bmi_op_id_t id;

    CHECK_THAT(ops->post_sendunexpected(&id, peer, sent, sizeof sent, BMI_EXT_ALLOC, TAG, NULL, OWN, NULL),
               >=, 0);
    test_own(0);
}

static void begins_and_ends(int number)
{
    /* Fails if another thread has initialized the library already. */
    (void)ops->initialize(NULL, METHOD_ID, 0, NULL);
    (void)ops->finalize();
}

/* ---- rounds of cancellation ---- */

static const work_fn works[] = {sleeps, polls, sleeps_for_messages, posts};

static void cancels(struct side *side)
{
    peer = pair_client(side);
    CHECK_THAT(ops->open_context(OWN), ==, 0);
    for (int round = 0; round < CANCEL_ROUNDS; round++) {
        workers_cancel(works[side->variant], round);
        pair_hello(peer);
    }
    ops->close_context(OWN);
    pair_part(side);
}

/* Answers hellos, and takes every other message. */
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
    for (int round = 0; round < CANCEL_ROUNDS; round++) {
        workers_cancel(begins_and_ends, round);
        (void)ops->finalize();
    }
    pair_exchange_self(host_lookup_endpoint(host_start_server()), sizeof sent, TAG);
    host_stop();
}

TESTS(
    PAIR_OF(threads_asleep_in_testcontext, 0, answers, 0, cancels),
    PAIR_OF(threads_that_poll, 0, answers, 1, cancels),
    PAIR_OF(threads_asleep_in_testunexpected, 0, answers, 2, cancels),
    PAIR_OF(threads_that_post, 0, answers, 3, cancels),
    SOLO(threads_that_initialize_and_finalize, cancels_beginners))
