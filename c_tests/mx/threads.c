/*
 * Threads: woken and closed while they wait, and all calls at once.
 */
#include "support/party.h"

#include <stdatomic.h>

enum { EACH = 150 };

static mx_endpoint_addr_t to_a;

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

/* ---- threads that exchange messages ---- */

/* Each pair of threads uses match bits of its own. */
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

/* ---- wake-ups, and closing while threads wait ---- */

static atomic_int woken;

static mx_return_t wait_in(int call, mx_request_t *request, uint32_t *result)
{
    mx_request_t peeked;
    mx_status_t status;

    switch (call) {
    case 0:
        return mx_wait(b, request, MX_INFINITE, &status, result);
    case 1:
        return mx_wait_any(b, MX_INFINITE, 0, ANYTHING, &status, result);
    case 2:
        return mx_peek(b, MX_INFINITE, &peeked, result);
    default:
        return mx_probe(b, MX_INFINITE, 0, ANYTHING, &status, result);
    }
}

/* Is woken at least once, and then waits until the endpoint is closed. */
static void *waits_until_it_is_closed(void *number)
{
    int me = (int)(intptr_t)number;
    mx_request_t request = me == 0 ? receive(b, NULL, 0, 1, EXACTLY) : NULL;
    uint32_t result = 77;
    mx_return_t code;

    OK(wait_in(me, &request, &result));
    CHECK_THAT(result, ==, 0);
    woken++;
    do {
        result = 77;
        errors_begin();
        code = wait_in(me, &request, &result);
    } while (code == MX_SUCCESS);
    CHECK_THAT(code, ==, MX_BAD_ENDPOINT);
    CHECK_THAT(errors.count, ==, 1);
    CHECK_THAT(result, ==, 77);
    return NULL;
}

static void woken_and_closed(struct side *side)
{
    pthread_t threads[4];
    mx_status_t status;
    uint32_t result = 77;

    a = party_open();
    b = open_any();
    /* A wake-up without a waiting thread is not kept. */
    OK(mx_wakeup(b));
    OK(mx_probe(b, 50, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    start_all(threads, 4, waits_until_it_is_closed);
    for (deadline_t deadline = deadline_in(WAIT_MS); woken < 4;) {
        OK(mx_wakeup(b));
        OK(mx_probe(a, 1, 0, ANYTHING, &status, &result)); /* a short pause */
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
            /* A wake-up for other threads may end it early. */
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

    open_two();
    to_a = connect_to(b, id_of(a));
    start_all(meddlers, 3, meddles);
    start_all(talkers, 4, talks);
    join_all(talkers, 4);
    stop = true;
    join_all(meddlers, 3);
    close_two();
}

PARTY_TESTS(
    SOLO(waiting_threads_return_when_their_endpoint_closes, woken_and_closed),
    SOLO(all_calls_at_once_do_no_harm, everything_at_once))
