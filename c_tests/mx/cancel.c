/*
 * Taking requests back, and giving them up: cancel and forget.
 *
 *     receive, not matched     cancelled: result 1, handle gone, buffer never written
 *     receive, matched         too late: result 0, tested as usual
 *     send                     refused
 *     anything                 forgotten: goes on, and its end is not reported
 */
#include "support/couple.h"

#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

enum { SMALL = 1000, LARGE = 400000 };

static void cancelled(mx_endpoint_t ep, mx_request_t *request)
{
    mx_request_t was = *request;
    mx_status_t status;
    uint32_t result = 77;

    OK(mx_cancel(ep, request, &result));
    CHECK_THAT(result, ==, 1);
    CHECK(*request == NULL);
    REFUSED(mx_test(ep, &was, &status, &result), MX_BAD_REQUEST);
    REFUSED(mx_cancel(ep, &was, &result), MX_BAD_REQUEST);
    CHECK(was != NULL);
}

static void nothing_is_done(mx_endpoint_t ep)
{
    mx_status_t status;
    uint32_t result = 77;

    OK(mx_test_any(ep, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
}

static void a_cancelled_receive_is_gone(struct side *side)
{
    static const size_t sizes[] = {0, SMALL, LARGE};

    (void)side;
    open_two();
    for (int i = 0; i < 3; i++) {
        char *early = fenced(LARGE), *late = fenced(LARGE), *out = fenced(LARGE);
        mx_request_t request = receive(b, early, LARGE, 5, EXACTLY), sending;

        cancelled(b, &request);
        fill(out, sizes[i], (uint64_t)i);
        sending = send_to(a, to_b, out, sizes[i], 5);
        probe_for(b, 5, EXACTLY); /* it did not take the message */
        nothing_is_done(b);
        succeed(b, receive(b, late, LARGE, 5, EXACTLY), sizes[i]);
        check_filled(late, sizes[i], (uint64_t)i);
        check_untouched(early, 0, LARGE);
        succeed(a, sending, sizes[i]);
        fenced_free(early);
        fenced_free(late);
        fenced_free(out);
    }
    close_two();
}

static void one_of_many_is_cancelled(struct side *side)
{
    enum { MANY = 50 };
    mx_request_t requests[MANY];
    int in[MANY];

    (void)side;
    open_two();
    for (int i = 0; i < MANY; i++)
        requests[i] = receive(b, &in[i], sizeof in[i], 1, i % 2 == 0 ? EXACTLY : ANYTHING);
    for (int i = 0; i < MANY; i += 3)
        cancelled(b, &requests[i]);
    for (int i = 0; i < MANY; i++)
        if (i % 3 != 0)
            succeed(a, send_to(a, to_b, &i, sizeof i, 1), sizeof i);
    for (int i = 0; i < MANY; i++)
        if (i % 3 != 0) {
            succeed(b, requests[i], sizeof i);
            CHECK_THAT(in[i], ==, i);
        }
    close_two();
}

static void too_late(struct side *side)
{
    char *in = fenced(LARGE), *out = fenced(LARGE);
    mx_request_t request, sending, peeked;
    uint32_t result = 0;

    (void)side;
    open_two();
    /* Complete. */
    request = receive(b, in, SMALL, 1, EXACTLY);
    succeed(a, send_to(a, to_b, out, SMALL, 1), SMALL);
    while (result == 0)
        OK(mx_peek(b, WAIT_MS, &peeked, &result));
    result = 77;
    OK(mx_cancel(b, &request, &result));
    CHECK_THAT(result, ==, 0);
    CHECK(request == peeked);
    succeed(b, request, SMALL);
    /* Matched, and possibly under way. */
    for (int i = 0; i < 10; i++) {
        fill(out, LARGE, (uint64_t)i);
        sending = send_to(a, to_b, out, LARGE, 2);
        probe_for(b, 2, EXACTLY);
        request = receive(b, in, LARGE, 2, EXACTLY);
        result = 77;
        OK(mx_cancel(b, &request, &result));
        CHECK_THAT(result, ==, 0);
        succeed(b, request, LARGE);
        check_filled(in, LARGE, (uint64_t)i);
        succeed(a, sending, LARGE);
    }
    close_two();
    fenced_free(in);
    fenced_free(out);
}

static void sends_cannot_be_cancelled(struct side *side)
{
    char *in = fenced(LARGE), *out = fenced(LARGE);
    mx_request_t requests[3];
    uint32_t result = 77;

    (void)side;
    open_two();
    fill(out, LARGE, 4);
    requests[0] = send_to(a, to_b, out, SMALL, 0);
    requests[1] = send_to(a, to_b, out, LARGE, 1);
    requests[2] = ssend_to(a, to_b, out, SMALL, 2);
    for (int i = 0; i < 3; i++) {
        mx_request_t was = requests[i];

        REFUSED(mx_cancel(a, &requests[i], &result), MX_CANCEL_NOT_SUPPORTED);
        CHECK_THAT(result, ==, 77);
        CHECK(requests[i] == was);
    }
    for (int i = 0; i < 3; i++) {
        size_t size = i == 1 ? LARGE : SMALL;

        succeed(b, receive(b, in, size, (uint64_t)i, EXACTLY), size);
        check_filled(in, size, 4);
        succeed(a, requests[i], size);
    }
    close_two();
    fenced_free(in);
    fenced_free(out);
}

static void connects_can_be_cancelled(struct side *side)
{
    mx_endpoint_t deaf;
    mx_request_t request, done;
    mx_status_t status;
    uint32_t result = 77, id;

    (void)side;
    a = party_open();
    deaf = open_any();
    id = id_of(deaf);
    OK(mx_disable_progression(deaf));
    OK(mx_iconnect(a, local_nic(), id, KEY, 6, NULL, &request));
    stays_pending(a, &request, 30);
    cancelled(a, &request);
    nothing_is_done(a);
    OK(mx_reenable_progression(deaf));
    /* And the next one is a new one. */
    OK(mx_iconnect(a, local_nic(), id, KEY, 7, NULL, &request));
    while (OK(mx_peek(a, WAIT_MS, &done, &result)), result == 0)
        ;
    CHECK(done == request);
    OK(mx_cancel(a, &request, &result)); /* answered: too late */
    CHECK_THAT(result, ==, 0);
    CHECK(request == done);
    status = finish(a, request);
    STATUS_IS(status, MX_STATUS_SUCCESS);
    exchange(a, status.source, deaf, SMALL, 3);
    OK(mx_close_endpoint(deaf));
    party_close(a);
}

/* Against messages on their way: each is either received or still there, never both or neither. */
static void cancel_races_with_messages(struct side *side)
{
    enum { TURNS = 300 };
    int taken = 0;

    (void)side;
    open_two();
    for (int i = 0; i < TURNS; i++) {
        int in = -1, late = -1;
        mx_request_t request = receive(b, &in, sizeof in, 1, EXACTLY), sending;
        uint32_t result = 77;

        sending = send_to(a, to_b, &i, sizeof i, 1);
        for (int spin = 0; spin < i % 20; spin++)
            OK(mx_progress(a));
        OK(mx_cancel(b, &request, &result));
        if (result == 1) {
            CHECK(request == NULL);
            succeed(b, receive(b, &late, sizeof late, 1, EXACTLY), sizeof late);
            CHECK_THAT(late, ==, i);
            CHECK_THAT(in, ==, -1);
        } else {
            succeed(b, request, sizeof in);
            CHECK_THAT(in, ==, i);
            taken++;
        }
        succeed(a, sending, sizeof i);
    }
    CHECK_THAT(taken, <=, TURNS);
    close_two();
}

/* ---- forget ---- */

static void forgotten(mx_endpoint_t ep, mx_request_t *request)
{
    mx_request_t was = *request;
    mx_status_t status;
    uint32_t result = 77;

    OK(mx_forget(ep, request));
    CHECK(*request == NULL);
    REFUSED(mx_test(ep, &was, &status, &result), MX_BAD_REQUEST);
    REFUSED(mx_forget(ep, &was), MX_BAD_REQUEST);
}

static void forgotten_requests_go_their_way(struct side *side)
{
    char *in = fenced(LARGE), *out = fenced(LARGE);
    mx_request_t request, peeked;
    uint32_t result = 0;
    mx_endpoint_addr_t again;

    (void)side;
    open_two();
    fill(out, LARGE, 8);
    /* Sends: they arrive. */
    for (int i = 0; i < 4; i++) {
        size_t size = i == 1 ? LARGE : SMALL;

        request = i == 2 ? ssend_to(a, to_b, out, size, (uint64_t)i)
                         : send_to(a, to_b, out, size, (uint64_t)i);
        forgotten(a, &request);
        succeed(b, receive(b, in, size, (uint64_t)i, EXACTLY), size);
        check_filled(in, size, 8);
    }
    /* A receive: it takes its message. */
    memset(in, 0, SMALL);
    request = receive(b, in, SMALL, 5, EXACTLY);
    forgotten(b, &request);
    succeed(a, ssend_to(a, to_b, out, SMALL, 5), SMALL); /* so it has been taken */
    exchange(a, to_b, b, 0, 6);                          /* and everything before is there */
    check_filled(in, SMALL, 8);
    /* One that is done. */
    request = receive(b, in, SMALL, 7, EXACTLY);
    succeed(a, send_to(a, to_b, out, SMALL, 7), SMALL);
    while (result == 0)
        OK(mx_peek(b, WAIT_MS, &peeked, &result));
    CHECK(peeked == request);
    forgotten(b, &request);
    OK(mx_ipeek(b, &peeked, &result));
    CHECK_THAT(result, ==, 0);
    /* A connect. */
    OK(mx_iconnect(b, local_nic(), id_of(a), KEY, 0, NULL, &request));
    forgotten(b, &request);
    again = connect_to(b, id_of(a));
    exchange(b, again, a, SMALL, 9);
    nothing_is_done(a);
    nothing_is_done(b);
    close_two();
    fenced_free(in);
    fenced_free(out);
}

/* Requests posted without a place for the handle are forgotten from the start. */
static void requests_without_a_handle(struct side *side)
{
    char *in = fenced(LARGE), *out = fenced(LARGE);
    mx_segment_t segment = {out, LARGE};

    (void)side;
    open_two();
    fill(out, LARGE, 3);
    OK(mx_isend(a, &segment, 1, to_b, 1, NULL, NULL));
    OK(mx_issend(a, &segment, 1, to_b, 2, NULL, NULL));
    OK(mx_iconnect(b, local_nic(), id_of(a), KEY, 0, NULL, NULL));
    succeed(b, receive(b, in, LARGE, 1, EXACTLY), LARGE);
    succeed(b, receive(b, in, LARGE, 2, EXACTLY), LARGE);
    check_filled(in, LARGE, 3);
    segment = (mx_segment_t){in, LARGE};
    memset(in, 0, LARGE);
    OK(mx_irecv(b, &segment, 1, 3, EXACTLY, NULL, NULL));
    succeed(a, ssend_to(a, to_b, out, LARGE, 3), LARGE);
    check_filled(in, LARGE, 3);
    nothing_is_done(a);
    nothing_is_done(b);
    close_two();
    fenced_free(in);
    fenced_free(out);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(a_cancelled_receive_takes_no_message, a_cancelled_receive_is_gone),
        SOLO(cancelling_one_receive_leaves_the_others_in_order, one_of_many_is_cancelled),
        SOLO(a_receive_that_is_matched_cannot_be_cancelled, too_late),
        SOLO(a_send_cannot_be_cancelled_and_goes_on, sends_cannot_be_cancelled),
        SOLO(a_connect_that_is_not_answered_can_be_cancelled, connects_can_be_cancelled),
        SOLO(a_message_that_meets_a_cancel_is_received_once, cancel_races_with_messages),
        SOLO(forgotten_requests_go_on_and_are_not_reported, forgotten_requests_go_their_way),
        SOLO(a_null_handle_forgets_from_the_start, requests_without_a_handle),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
