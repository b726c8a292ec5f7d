/*
 * Threads that are cancelled (pthread_cancel) while they are in a call.
 *
 *     worker 1..n ── call, call, call ... ◄── pthread_cancel ── main: joins them, then exchanges a message
 */
#include "support/party.h"

#include <stdatomic.h>

enum { WORKERS = 3, ROUNDS = 20, IDLE_MS = 40 };

/* Bits that nothing is sent with. */
#define UNUSED UINT64_C(0x77)

struct worker {
    void (*work)(struct worker *worker);
    atomic_bool begun;
    pthread_t thread;
    mx_request_t never;
    mx_endpoint_t own;
    char in;
};

/* ---- what they do ---- */

static void waits(struct worker *worker)
{
    mx_status_t status;
    uint32_t result = 0;

    OK(mx_wait(b, &worker->never, IDLE_MS, &status, &result));
    CHECK_THAT(result, ==, 0);
}

static void waits_for_any(struct worker *worker)
{
    mx_status_t status;
    uint32_t result = 0;

    OK(mx_wait_any(b, IDLE_MS, UNUSED, EXACTLY, &status, &result));
}

static void probes(struct worker *worker)
{
    mx_status_t status;
    uint32_t result = 0;

    OK(mx_probe(b, IDLE_MS, UNUSED, EXACTLY, &status, &result));
    OK(mx_iprobe(b, UNUSED, EXACTLY, &status, &result));
}

static void posts(struct worker *worker)
{
    mx_request_t request = receive(b, &worker->in, 1, UNUSED, EXACTLY);
    uint32_t result = 0;

    OK(mx_cancel(b, &request, &result));
}

static void opens(struct worker *worker)
{
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 0, &worker->own));
    OK(mx_close_endpoint(worker->own));
    worker->own = NULL;
}

/* ---- and their end ---- */

static void *works(void *argument)
{
    struct worker *worker = argument;

    for (;;) {
        atomic_store(&worker->begun, true);
        worker->work(worker);
        pthread_testcancel();
    }
    return NULL;
}

static void cancel_some(void (*work)(struct worker *), int count, int round)
{
    static struct worker workers[WORKERS];

    for (int i = 0; i < count; i++) {
        workers[i] = (struct worker){.work = work};
        workers[i].never = receive(b, &workers[i].in, 1, UNUSED + 1 + (uint64_t)i, EXACTLY);
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
        void *ended = NULL;
        uint32_t result = 0;

        CHECK(pthread_join(workers[i].thread, &ended) == 0);
        CHECK(ended == PTHREAD_CANCELED);
        OK(mx_cancel(b, &workers[i].never, &result));
        CHECK_THAT(result, ==, 1);
        /* It may have been closed already. */
        if (workers[i].own != NULL)
            (void)mx_close_endpoint(workers[i].own);
    }
}

static void cancels(void (*work)(struct worker *))
{
        open_two();
    for (int round = 0; round < 2 * ROUNDS; round++) {
        cancel_some(work, 1 + round % WORKERS, round);
        exchange(a, to_b, b, 100, 5);
    }
    close_two();
}

static void cancels_waiters(struct side *side)
{
    cancels(waits);
}

static void cancels_takers(struct side *side)
{
    cancels(waits_for_any);
}

static void cancels_probers(struct side *side)
{
    cancels(probes);
}

static void cancels_posters(struct side *side)
{
    cancels(posts);
}

static void cancels_openers(struct side *side)
{
    cancels(opens);
}

PARTY_TESTS(
    SOLO(threads_in_mx_wait, cancels_waiters),
    SOLO(threads_in_mx_wait_any, cancels_takers),
    SOLO(threads_in_mx_probe, cancels_probers),
    SOLO(threads_that_post_and_cancel, cancels_posters),
    SOLO(threads_that_open_and_close, cancels_openers))
