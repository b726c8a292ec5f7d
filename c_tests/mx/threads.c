/*
 * Threads: many on one endpoint, many endpoints in one process, and everything at once.
 */
#include "support/party.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"
#include "../support/port.h"

enum { THREADS = 6, EACH = 150 };

static mx_endpoint_t a, b;
static mx_endpoint_addr_t to_b, to_a;

static size_t size_of(int i)
{
    return i % 20 == 7 ? 60000 : (size_t)(i * 37 % 2000);
}

static void start_all(pthread_t *threads, int count, void *(*run)(void *))
{
    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i) == 0);
}

static void join_all(pthread_t *threads, int count)
{
    for (int i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- many threads, two endpoints ---- */

/* Each pair of threads talks by match bits of its own. */
static void *talks(void *number)
{
    uint64_t me = (uint64_t)(intptr_t)number;
    bool first = me % 2 == 0;
    mx_endpoint_t ep = first ? a : b;
    mx_endpoint_addr_t to = first ? to_b : to_a;
    uint64_t topic = (me / 2) << 32;

    for (int i = 0; i < EACH; i++) {
        size_t size = size_of(i);
        char *in = fenced(size), *out = fenced(size);
        mx_request_t receiving = receive(ep, in, size, topic | (uint64_t)i, EXACTLY), sending;

        fill(out, size, topic + (uint64_t)i + (first ? 0 : 1000));
        sending = i % 3 == 0 ? ssend_to(ep, to, out, size, topic | (uint64_t)i)
                             : send_to(ep, to, out, size, topic | (uint64_t)i);
        succeed(ep, receiving, size);
        check_filled(in, size, topic + (uint64_t)i + (first ? 1000 : 0));
        succeed(ep, sending, size);
        fenced_free(in);
        fenced_free(out);
    }
    return NULL;
}

static void many_on_one_endpoint(struct side *side)
{
    pthread_t threads[THREADS];
    uint32_t result;
    mx_status_t status;

    (void)side;
    a = party_open();
    b = open_any();
    to_b = connect_to(a, id_of(b));
    to_a = connect_to(b, id_of(a));
    start_all(threads, THREADS, talks);
    join_all(threads, THREADS);
    OK(mx_test_any(a, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_close_endpoint(b));
    party_close(a);
}

/* ---- each completion to exactly one ---- */

static atomic_int taken[THREADS * EACH];
static atomic_int total;

static void *takes_any(void *number)
{
    int me = (int)(intptr_t)number;

    while (total < THREADS * EACH) {
        mx_status_t status;
        uint32_t result = 0;

        if (me % 2 == 0)
            OK(mx_wait_any(b, 20, 0, ANYTHING, &status, &result));
        else
            OK(mx_test_any(b, 0, ANYTHING, &status, &result));
        if (result == 0)
            continue;
        CHECK_THAT(status.match_info, <, THREADS * EACH);
        CHECK_THAT(taken[status.match_info]++, ==, 0);
        total++;
    }
    return NULL;
}

static void completions_reach_one(struct side *side)
{
    pthread_t threads[THREADS];
    static char in[THREADS * EACH];

    (void)side;
    a = party_open();
    b = open_any();
    to_b = connect_to(a, id_of(b));
    for (int i = 0; i < THREADS * EACH; i++)
        receive(b, &in[i], 1, (uint64_t)i, EXACTLY);
    start_all(threads, THREADS, takes_any);
    for (int i = 0; i < THREADS * EACH; i++)
        OK(mx_isend(a, NULL, 0, to_b, (uint64_t)i, NULL, NULL));
    join_all(threads, THREADS);
    for (int i = 0; i < THREADS * EACH; i++)
        CHECK_THAT(taken[i], ==, 1);
    OK(mx_close_endpoint(b));
    party_close(a);
}

/* ---- an endpoint for each thread ---- */

static atomic_uint ids[THREADS];
static pthread_barrier_t barrier;

static void *has_an_endpoint(void *number)
{
    int me = (int)(intptr_t)number;
    mx_endpoint_t ep = open_any();
    mx_endpoint_addr_t next, previous;
    mx_status_t status;
    char out = 'x', in;

    ids[me] = id_of(ep);
    pthread_barrier_wait(&barrier);
    next = connect_to(ep, ids[(me + 1) % THREADS]);
    for (int i = 0; i < EACH; i++) {
        mx_request_t receiving = receive(ep, &in, 1, (uint64_t)i, EXACTLY);

        succeed(ep, send_to(ep, next, &out, 1, (uint64_t)i), 1);
        status = succeed(ep, receiving, 1);
        previous = status.source;
    }
    {
        uint64_t nic;
        uint32_t id;

        OK(mx_decompose_endpoint_addr(previous, &nic, &id));
        CHECK_THAT(id, ==, ids[(me + THREADS - 1) % THREADS]);
    }
    pthread_barrier_wait(&barrier);
    OK(mx_close_endpoint(ep));
    return NULL;
}

static void an_endpoint_for_each(struct side *side)
{
    pthread_t threads[THREADS];

    (void)side;
    party_start();
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    start_all(threads, THREADS, has_an_endpoint);
    join_all(threads, THREADS);
    pthread_barrier_destroy(&barrier);
    party_stop();
}

/* ---- opening and closing at once ---- */

static void *opens_and_closes(void *turns)
{
    for (int i = 0; i < (int)(intptr_t)turns; i++) {
        mx_endpoint_t ep = open_any();

        exchange(ep, address_of(ep), ep, 100, (uint64_t)i);
        OK(mx_close_endpoint(ep));
    }
    return NULL;
}

static void opening_at_once(struct side *side)
{
    pthread_t threads[4];
    int turns = port_is("rdm") ? 3 : 20;

    (void)side;
    party_start();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, opens_and_closes, (void *)(intptr_t)turns) == 0);
    join_all(threads, 4);
    party_stop();
}

/* ---- closed under the feet of those who wait ---- */

static atomic_int waiting;

static void *waits_until_it_is_closed(void *number)
{
    int me = (int)(intptr_t)number;
    mx_request_t request, peeked;
    mx_status_t status;
    uint32_t result = 77;

    errors_begin();
    switch (me) {
    case 0:
        request = receive(b, NULL, 0, 1, EXACTLY);
        waiting++;
        REFUSED(mx_wait(b, &request, MX_INFINITE, &status, &result), MX_BAD_ENDPOINT);
        break;
    case 1:
        waiting++;
        REFUSED(mx_wait_any(b, MX_INFINITE, 0, ANYTHING, &status, &result), MX_BAD_ENDPOINT);
        break;
    case 2:
        waiting++;
        REFUSED(mx_peek(b, MX_INFINITE, &peeked, &result), MX_BAD_ENDPOINT);
        break;
    default:
        waiting++;
        REFUSED(mx_probe(b, MX_INFINITE, 0, ANYTHING, &status, &result), MX_BAD_ENDPOINT);
        break;
    }
    CHECK_THAT(result, ==, 77);
    return NULL;
}

static void closed_while_threads_wait(struct side *side)
{
    pthread_t threads[4];

    (void)side;
    a = party_open();
    b = open_any();
    start_all(threads, 4, waits_until_it_is_closed);
    for (deadline_t deadline = deadline_in(WAIT_MS); waiting < 4;) {
        OK(mx_progress(a));
        CHECK(!deadline_over(deadline));
    }
    OK(mx_close_endpoint(b));
    join_all(threads, 4);
    party_close(a);
}

/* ---- everything at once ---- */

static atomic_bool stop;

static void *meddles(void *number)
{
    int me = (int)(intptr_t)number;
    unsigned random = (unsigned)me * 2654435761u + 1;
    char in[8];

    while (!stop) {
        mx_request_t request;
        mx_status_t status;
        uint32_t result = 0;
        void *context;

        random = random * 1664525u + 1013904223u;
        switch (random >> 28) {
        case 0:
            request = receive(b, in, sizeof in, UINT64_C(0xffff) << 40 | (uint64_t)me, EXACTLY);
            OK(mx_context(&request, &context));
            OK(mx_cancel(b, &request, &result));
            CHECK_THAT(result, ==, 1);
            break;
        case 1:
            OK(mx_iprobe(b, UINT64_C(0xffff) << 40, EXACTLY, &status, &result));
            break;
        case 2:
            OK(mx_wakeup(b));
            break;
        case 3:
            OK(mx_progress(b));
            break;
        case 4:
            OK(mx_get_endpoint_addr_context(to_a, &context));
            break;
        case 5: {
            mx_endpoint_addr_t address;
            mx_return_t code;

            errors_begin();
            code = mx_connect(b, local_nic(), id_of(a), KEY, WAIT_MS, &address);
            /* A wake-up of the others ends it early. */
            CHECK(code == MX_TIMEOUT || (code == MX_SUCCESS && same_address(address, to_a)));
            break;
        }
        case 6:
            OK(mx_ipeek(b, &request, &result));
            break;
        case 7:
            OK(mx_disable_progression(b));
            OK(mx_reenable_progression(b));
            break;
        case 8:
            request = send_to(b, address_of(b), NULL, 0, UINT64_C(0xfffe) << 40 | (uint64_t)me);
            OK(mx_forget(b, &request));
            succeed(b, receive(b, NULL, 0, UINT64_C(0xfffe) << 40 | (uint64_t)me, EXACTLY), 0);
            break;
        case 9:
            OK(mx_set_request_timeout(b, NULL, 60000));
            break;
        default:
            OK(mx_probe(b, 1, UINT64_C(0xffff) << 40, EXACTLY, &status, &result));
            break;
        }
    }
    return NULL;
}

static void everything_at_once(struct side *side)
{
    pthread_t talkers[4], meddlers[3];

    (void)side;
    a = party_open();
    b = open_any();
    to_b = connect_to(a, id_of(b));
    to_a = connect_to(b, id_of(a));
    start_all(meddlers, 3, meddles);
    start_all(talkers, 4, talks);
    join_all(talkers, 4);
    stop = true;
    join_all(meddlers, 3);
    OK(mx_close_endpoint(b));
    party_close(a);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(many_threads_use_one_endpoint, many_on_one_endpoint),
        SOLO(each_completion_reaches_one_thread, completions_reach_one),
        SOLO(each_thread_has_an_endpoint_of_its_own, an_endpoint_for_each),
        SOLO(endpoints_are_opened_and_closed_by_several_threads, opening_at_once),
        SOLO(threads_that_wait_return_when_their_endpoint_is_closed, closed_while_threads_wait),
        SOLO(all_calls_at_once_do_no_harm, everything_at_once),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
