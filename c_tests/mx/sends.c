/*
 * When a send completes, and when its buffer is free: isend, issend, ibuffered, buffered.
 *
 *     isend,  small    completes whether or not it is received: up to MX_COPY_SEND_MAX, as far as
 *                      credit reaches
 *     isend,  large    completes when the receiver has the data
 *     issend, any      completes when a receive has taken the message
 */
#include "support/couple.h"

#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"
#include "../support/port.h"

enum { SMALL = 1000, EAGER = 32768, LARGE = 500000, PENDING_MS = 60 };

static bool buffered(mx_request_t *request)
{
    uint32_t result = 77;

    OK(mx_ibuffered(a, request, &result));
    CHECK(result == 0 || result == 1);
    return result == 1;
}

static void small_sends_complete_alone(struct side *side)
{
    size_t sizes[] = {0, 1, SMALL, 0};
    char *out = fenced(EAGER), *in = fenced(EAGER);
    uint32_t most = 0;

    (void)side;
    open_two();
    OK(mx_get_info(a, MX_COPY_SEND_MAX, NULL, 0, &most, sizeof most));
    CHECK_THAT(most, <=, EAGER);
    sizes[3] = most;
    for (int i = 0; i < 4; i++) {
        fill(out, sizes[i], (uint64_t)i);
        succeed(a, send_to(a, to_b, out, sizes[i], (uint64_t)i), sizes[i]);
        memset(out, 0, EAGER); /* ours again */
        succeed(b, receive(b, in, sizes[i], (uint64_t)i, EXACTLY), sizes[i]);
        check_filled(in, sizes[i], (uint64_t)i);
    }
    close_two();
    fenced_free(out);
    fenced_free(in);
}

/* A small send never tells how much room the receiver had. */
static void small_sends_know_nothing_of_truncation(struct side *side)
{
    static const size_t sizes[] = {1, SMALL, EAGER};
    char *out = fenced(EAGER);
    mx_request_t requests[30], receives[30];

    (void)side;
    open_two();
    for (int posted = 0; posted < 2; posted++) {
        for (int i = 0; posted && i < 30; i++)
            receives[i] = receive(b, NULL, 0, (uint64_t)i, EXACTLY);
        /* More than may be under way at once, so that some have to wait their turn. */
        for (int i = 0; i < 30; i++)
            requests[i] = send_to(a, to_b, out, sizes[i % 3], (uint64_t)i);
        for (int i = 0; !posted && i < 30; i++)
            receives[i] = receive(b, NULL, 0, (uint64_t)i, EXACTLY);
        for (int i = 0; i < 30; i++) {
            mx_status_t status = finish(b, receives[i]);

            STATUS_IS(status, MX_STATUS_TRUNCATED);
            succeed(a, requests[i], sizes[i % 3]);
        }
    }
    close_two();
    fenced_free(out);
}

/* Waits for the request that mx_peek shows, tests it, and says which it was. */
static int next_done(mx_request_t *requests, int count)
{
    mx_request_t peeked = NULL;
    mx_status_t status;
    uint32_t result = 0;
    int i = 0;

    for (deadline_t deadline = deadline_in(WAIT_MS); result == 0;) {
        OK(mx_peek(a, 10, &peeked, &result));
        OK(mx_progress(b));
        CHECK(!deadline_over(deadline));
    }
    while (i < count && requests[i] != peeked)
        i++;
    CHECK_THAT(i, <, count);
    CHECK(is_done(a, &requests[i], &status));
    STATUS_IS(status, MX_STATUS_SUCCESS);
    return i;
}

/* More than the receiver lends at first, and no more than it would lend. */
static void small_sends_complete_in_order(struct side *side)
{
    enum { COUNT = 64, MANY = 700 };
    static const struct {
        size_t size;
        int count;
    } rounds[] = {{20000, COUNT}, {EAGER - 5000, COUNT}, {SMALL, MANY}, {0, MANY}, {200, MANY}};
    char *out = fenced(EAGER), *in = fenced(EAGER);
    static mx_request_t requests[MANY];

    (void)side;
    for (int received_first = 0; received_first < 2; received_first++)
        for (size_t r = 0; r < sizeof rounds / sizeof rounds[0]; r++) {
            size_t size = rounds[r].size;
            int count = rounds[r].count;

            open_two();
            for (int i = 0; i < count; i++)
                requests[i] = send_to(a, to_b, out, i % 3 == 1 ? size / 2 : size, (uint64_t)i);
            for (int i = 0; received_first && i < count; i++)
                finish(b, receive(b, in, EAGER, (uint64_t)i, EXACTLY));
            for (int i = 0; i < count; i++)
                CHECK_THAT(next_done(requests, count), ==, i);
            for (int i = 0; !received_first && i < count; i++)
                finish(b, receive(b, in, EAGER, (uint64_t)i, EXACTLY));
            close_two();
        }
    fenced_free(out);
    fenced_free(in);
}

/* To oneself, where the same thread does everything. */
static void small_sends_to_oneself_complete_in_order(struct side *side)
{
    enum { COUNT = 64, SIZE = 20000 };
    char *out = fenced(SIZE), *in = fenced(SIZE);
    mx_request_t requests[COUNT];
    mx_endpoint_addr_t me;

    (void)side;
    open_two();
    me = address_of(a);
    for (int i = 0; i < COUNT; i++)
        requests[i] = send_to(a, me, out, SIZE, (uint64_t)i);
    for (int i = 0; i < COUNT; i++)
        succeed(a, receive(a, in, SIZE, (uint64_t)i, EXACTLY), SIZE);
    for (int i = 0; i < COUNT; i++)
        CHECK_THAT(next_done(requests, COUNT), ==, i);
    close_two();
    fenced_free(out);
    fenced_free(in);
}

static void large_sends_wait_for_the_receiver(struct side *side)
{
    static const size_t sizes[] = {EAGER + 1, LARGE};
    char *out = fenced(LARGE), *in = fenced(LARGE);

    (void)side;
    open_two();
    for (int i = 0; i < 2; i++) {
        mx_request_t request;

        fill(out, sizes[i], (uint64_t)i);
        request = send_to(a, to_b, out, sizes[i], (uint64_t)i);
        stays_pending(a, &request, PENDING_MS);
        probe_for(b, (uint64_t)i, EXACTLY);
        stays_pending(a, &request, PENDING_MS);
        succeed(b, receive(b, in, sizes[i], (uint64_t)i, EXACTLY), sizes[i]);
        check_filled(in, sizes[i], (uint64_t)i);
        succeed(a, request, sizes[i]);
    }
    close_two();
    fenced_free(out);
    fenced_free(in);
}

static void synchronous_sends_wait_for_a_match(struct side *side)
{
    static const size_t sizes[] = {0, 1, SMALL, EAGER, LARGE};
    char *out = fenced(LARGE), *in = fenced(LARGE);
    mx_endpoint_addr_t me;

    (void)side;
    open_two();
    me = address_of(a);
    for (int i = 0; i < 5; i++) {
        mx_request_t request, receiving;
        mx_status_t status;

        fill(out, sizes[i], (uint64_t)i);
        request = ssend_to(a, to_b, out, sizes[i], (uint64_t)i);
        stays_pending(a, &request, PENDING_MS);
        status = probe_for(b, (uint64_t)i, EXACTLY);
        CHECK_THAT(status.msg_length, ==, sizes[i]);
        stays_pending(a, &request, PENDING_MS);
        succeed(b, receive(b, in, sizes[i], (uint64_t)i, EXACTLY), sizes[i]);
        check_filled(in, sizes[i], (uint64_t)i);
        status = succeed(a, request, sizes[i]);
        CHECK(same_address(status.source, to_b));
        CHECK(status.context == out);
        /* A receive that is there already. */
        receiving = receive(b, in, sizes[i], 0x99, EXACTLY);
        request = ssend_to(a, to_b, out, sizes[i], 0x99);
        succeed(b, receiving, sizes[i]);
        succeed(a, request, sizes[i]);
        /* To oneself. */
        request = ssend_to(a, me, out, sizes[i], 0x77);
        stays_pending(a, &request, 10);
        succeed(a, receive(a, in, sizes[i], 0x77, EXACTLY), sizes[i]);
        succeed(a, request, sizes[i]);
    }
    close_two();
    fenced_free(out);
    fenced_free(in);
}

static void synchronous_sends_tell_of_truncation(struct side *side)
{
    static const size_t sizes[] = {1, SMALL, EAGER, LARGE};
    char *out = fenced(LARGE), *in = fenced(LARGE);

    (void)side;
    open_two();
    for (int i = 0; i < 4; i++) {
        mx_request_t request = ssend_to(a, to_b, out, sizes[i], 3);
        mx_status_t status = finish(b, receive(b, in, sizes[i] - 1, 3, EXACTLY));

        STATUS_IS(status, MX_STATUS_TRUNCATED);
        CHECK_THAT(status.xfer_length, ==, sizes[i] - 1);
        status = finish(a, request);
        STATUS_IS(status, MX_STATUS_TRUNCATED);
        CHECK_THAT(status.xfer_length, ==, sizes[i] - 1);
        CHECK_THAT(status.msg_length, ==, sizes[i]);
    }
    close_two();
    fenced_free(out);
    fenced_free(in);
}

/* Waiting for a match, they keep their place among the others. */
static void synchronous_sends_keep_the_order(struct side *side)
{
    mx_request_t requests[8];
    int numbers[8];

    (void)side;
    open_two();
    for (int i = 0; i < 8; i++) {
        numbers[i] = i;
        requests[i] = i % 2 == 0 ? ssend_to(a, to_b, &numbers[i], sizeof(int), 1)
                                 : send_to(a, to_b, &numbers[i], sizeof(int), 1);
    }
    for (int i = 0; i < 8; i++) {
        int in = -1;

        succeed(b, receive(b, &in, sizeof in, 1, EXACTLY), sizeof in);
        CHECK_THAT(in, ==, i);
        succeed(a, requests[i], sizeof(int));
        if (i + 2 < 8 && i % 2 == 0)
            stays_pending(a, &requests[i + 2], 5);
    }
    close_two();
}

/* ---- buffered ---- */

static void buffered_says_when_the_buffer_is_free(struct side *side)
{
    char *out = fenced(LARGE), *in = fenced(LARGE);
    mx_request_t small, large, synchronous, receiving;
    mx_status_t status;
    uint32_t result = 77;

    (void)side;
    open_two();
    fill(out, SMALL, 1);
    small = send_to(a, to_b, out, SMALL, 1);
    OK(mx_buffered(a, &small, WAIT_MS, &result));
    CHECK_THAT(result, ==, 1);
    CHECK(small != NULL);
    CHECK(buffered(&small));
    memset(out, 0, SMALL); /* free, although the request is not tested */
    succeed(b, receive(b, in, SMALL, 1, EXACTLY), SMALL);
    check_filled(in, SMALL, 1);
    CHECK(buffered(&small));
    succeed(a, small, SMALL);

    large = send_to(a, to_b, out, LARGE, 2);
    synchronous = ssend_to(a, to_b, out, SMALL, 3);
    CHECK(!buffered(&large) && !buffered(&synchronous));
    result = 77;
    OK(mx_buffered(a, &large, PENDING_MS, &result));
    CHECK_THAT(result, ==, 0);
    result = 77;
    OK(mx_buffered(a, &synchronous, PENDING_MS, &result));
    CHECK_THAT(result, ==, 0);
    succeed(b, receive(b, in, SMALL, 3, EXACTLY), SMALL);
    succeed(b, receive(b, in, LARGE, 2, EXACTLY), LARGE);
    OK(mx_buffered(a, &large, WAIT_MS, &result));
    CHECK_THAT(result, ==, 1);
    OK(mx_buffered(a, &synchronous, MX_INFINITE, &result));
    CHECK_THAT(result, ==, 1);
    CHECK(is_done(a, &large, &status) && is_done(a, &synchronous, &status));

    /* Sends only. */
    receiving = receive(a, in, SMALL, 9, EXACTLY);
    result = 77;
    REFUSED(mx_ibuffered(a, &receiving, &result), MX_BAD_REQUEST);
    REFUSED(mx_buffered(a, &receiving, 1, &result), MX_BAD_REQUEST);
    CHECK_THAT(result, ==, 77);
    CHECK(receiving != NULL);
    close_two();
    fenced_free(out);
    fenced_free(in);
}

/* ---- a receiver with little room ---- */

static void a_small_unexpected_queue(struct side *side)
{
    enum { COUNT = 2600, SIZE = 4000, ROOM = 64 << 10 };
    mx_param_t room = {.key = MX_PARAM_UNEXP_QUEUE_MAX, .val = {.unexp_queue_max = ROOM}};
    char *out = fenced(SIZE), *in = fenced(SIZE);
    mx_request_t requests[COUNT];
    mx_status_t status;
    int complete = 0;

    (void)side;
    a = party_open();
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, &room, 1, &b));
    to_b = connect_to(a, id_of(b));
    fill(out, SIZE, 1);
    for (uint64_t i = 0; i < COUNT; i++)
        requests[i] = send_to(a, to_b, out, SIZE, i);
    stays_pending(a, &requests[COUNT - 1], PENDING_MS);
    for (int i = 0; i < COUNT; i++)
        if (is_done(a, &requests[i], &status)) {
            STATUS_IS(status, MX_STATUS_SUCCESS);
            complete++;
        }
    /* Those for which the receiver has room; the others wait, and none is lost. */
    CHECK_THAT(complete, >=, 1);
    CHECK_THAT(complete, <=, ROOM / SIZE);
    for (uint64_t i = 0; i < COUNT; i++) {
        memset(in, 0, SIZE);
        succeed(b, receive(b, in, SIZE, i, EXACTLY), SIZE);
        check_filled(in, SIZE, 1);
    }
    for (int i = 0; i < COUNT; i++)
        if (requests[i] != NULL)
            succeed(a, requests[i], SIZE);
    close_two();
    fenced_free(out);
    fenced_free(in);
}

/* ---- context ---- */

static void requests_know_their_context(struct side *side)
{
    mx_request_t sending, receiving, kept;
    void *context = NULL;
    char out[8] = "context", in[8];

    (void)side;
    open_two();
    receiving = receive(b, in, sizeof in, 4, EXACTLY);
    OK(mx_context(&receiving, &context));
    CHECK(context == in);
    sending = ssend_to(a, to_b, out, sizeof out, 4);
    OK(mx_context(&sending, &context));
    CHECK(context == out);
    kept = receiving;
    succeed(a, sending, sizeof out);
    for (uint32_t result = 0; result == 0;)
        OK(mx_peek(b, WAIT_MS, &receiving, &result));
    CHECK(receiving == kept);
    OK(mx_context(&receiving, &context)); /* done, not tested */
    CHECK(context == in);
    succeed(b, receiving, sizeof in);
    REFUSED(mx_context(&kept, &context), MX_BAD_REQUEST);
    close_two();
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(small_sends_complete_without_a_receiver, small_sends_complete_alone),
        SOLO(small_sends_complete_whole_whatever_the_receiver_has_room_for,
             small_sends_know_nothing_of_truncation),
        SOLO(small_sends_complete_in_the_order_posted, small_sends_complete_in_order),
        SOLO(small_sends_to_oneself_complete_in_the_order_posted,
             small_sends_to_oneself_complete_in_order),
        SOLO(large_sends_complete_when_the_receiver_has_the_data,
             large_sends_wait_for_the_receiver),
        SOLO(synchronous_sends_of_any_size_wait_for_a_match, synchronous_sends_wait_for_a_match),
        SOLO(synchronous_sends_of_any_size_tell_of_truncation,
             synchronous_sends_tell_of_truncation),
        SOLO(synchronous_sends_keep_their_place, synchronous_sends_keep_the_order),
        SOLO(buffered_says_when_a_sends_buffer_is_free, buffered_says_when_the_buffer_is_free),
        SOLO(a_receiver_with_little_room_makes_senders_wait, a_small_unexpected_queue),
        SOLO(a_requests_context_can_be_asked_for_until_it_is_tested, requests_know_their_context),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
