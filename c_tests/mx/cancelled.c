/*
 * Threads that are cancelled (pthread_cancel) while they are in a call (support/workers.h); then the main thread
 * exchanges a message.
 */
#include "support/party.h"

#include "../support/workers.h"

enum { IDLE_MS = 40 };

/* Match bits without a message. */
#define UNUSED UINT64_C(0x77)

/* State of each thread. */
static struct {
    mx_request_t never;
    mx_endpoint_t own;
    char in;
} threads[WORKERS];

/* ---- the calls that are cancelled ---- */

static void waits(int number)
{
    mx_status_t status;
    uint32_t result = 0;

    OK(mx_wait(b, &threads[number].never, IDLE_MS, &status, &result));
    CHECK_THAT(result, ==, 0);
}

static void waits_for_any(int number)
{
    mx_status_t status;
    uint32_t result = 0;

    OK(mx_wait_any(b, IDLE_MS, UNUSED, EXACTLY, &status, &result));
}

static void probes(int number)
{
    mx_status_t status;
    uint32_t result = 0;

    OK(mx_probe(b, IDLE_MS, UNUSED, EXACTLY, &status, &result));
    OK(mx_iprobe(b, UNUSED, EXACTLY, &status, &result));
}

static void posts(int number)
{
    mx_request_t request = receive(b, &threads[number].in, 1, UNUSED, EXACTLY);
    uint32_t result = 0;

    OK(mx_cancel(b, &request, &result));
}

static void opens(int number)
{
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 0, &threads[number].own));
    OK(mx_close_endpoint(threads[number].own));
    threads[number].own = NULL;
}

/* ---- rounds of cancellation ---- */

static const work_fn works[] = {waits, waits_for_any, probes, posts, opens};

static void cancels(struct side *side)
{
    open_two();
    for (int round = 0; round < CANCEL_ROUNDS; round++) {
        int count;

        for (int i = 0; i < WORKERS; i++)
            threads[i].never = receive(b, &threads[i].in, 1, UNUSED + 1 + (uint64_t)i, EXACTLY);
        count = workers_cancel(works[side->variant], round);
        for (int i = 0; i < WORKERS; i++) {
            uint32_t result = 0;

            OK(mx_cancel(b, &threads[i].never, &result));
            CHECK_THAT(result, ==, 1);
            /* The endpoint may have been closed already. */
            if (i < count && threads[i].own != NULL)
                (void)mx_close_endpoint(threads[i].own);
            threads[i].own = NULL;
        }
        exchange(a, to_b, b, 100, 5);
    }
    close_two();
}

PARTY_TESTS(
    SOLO_OF(threads_in_mx_wait, 0, cancels),
    SOLO_OF(threads_in_mx_wait_any, 1, cancels),
    SOLO_OF(threads_in_mx_probe, 2, cancels),
    SOLO_OF(threads_that_post_and_cancel, 3, cancels),
    SOLO_OF(threads_that_open_and_close, 4, cancels))
