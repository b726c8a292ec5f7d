/*
 * Requests, with each call for them made from C: completion and looking for it, cancel and forget, synchronous and
 * buffered sends, context ids, progression, time-outs. Their behaviour in every order and state is tested in Rust
 * (myriexpress/src, engine and process).
 *
 *     done      A B C D      test_any(bits, mask) takes the oldest that fits; peek leaves it
 *     arrived   m n o        probe sees these only
 *
 *     cancel    a receive or connect that has not been answered; not a send
 *     forget    any request: it goes on, and its completion is not reported
 */
#include "support/party.h"

#include <stdatomic.h>

enum { SMALL = 1000, EAGER = 32768, LARGE = 500000, PENDING_MS = 60, SHORT_MS = 150 };

/* ---- test_any, wait_any, peek, probe ---- */

static bool status_untouched(const mx_status_t *status)
{
    mx_status_t blank;

    memset(&blank, 0x5a, sizeof blank);
    return memcmp(status, &blank, sizeof blank) == 0;
}

static void any_takes_what_fits(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t me = address_of(ep);
    mx_request_t receives[6], stale;
    mx_status_t status;
    uint32_t result;
    int in[6], out = 5;

    memset(&status, 0x5a, sizeof status);
    OK(mx_test_any(ep, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    CHECK(status_untouched(&status));
    for (int i = 0; i < 6; i++)
        receives[i] = receive(ep, &in[i], sizeof in[i], (uint64_t)(i % 2) << 60 | (uint64_t)i,
                              EXACTLY);
    stale = receives[4];
    for (int i = 0; i < 6; i++) {
        mx_segment_t segment = {&out, sizeof out};

        OK(mx_isend(ep, &segment, 1, me, (uint64_t)(i % 2) << 60 | (uint64_t)i, NULL, NULL));
    }
    /* Even ones first, whatever order they completed in. */
    for (int i = 0; i < 6; i += 2) {
        OK(mx_wait_any(ep, WAIT_MS, 0, UINT64_C(1) << 60, &status, &result));
        CHECK_THAT(result, ==, 1);
        CHECK_THAT(status.match_info, ==, i);
        CHECK(status.context == &in[i]);
        CHECK_THAT(in[i], ==, 5);
    }
    /* A request that test_any has reported is no longer valid. */
    REFUSED(mx_test(ep, &stale, &status, &result), MX_BAD_REQUEST);
    memset(&status, 0x5a, sizeof status);
    OK(mx_test_any(ep, 0, UINT64_C(1) << 60, &status, &result));
    CHECK_THAT(result, ==, 0);
    CHECK(status_untouched(&status));
    OK(mx_wait_any(ep, WAIT_MS, UINT64_C(1) << 60 | 3, EXACTLY, &status, &result));
    CHECK_THAT(result, ==, 1);
    CHECK_THAT(status.match_info & 0xff, ==, 3);
    for (int i = 1; i < 6; i += 4) {
        OK(mx_wait_any(ep, MX_INFINITE, 0, ANYTHING, &status, &result));
        CHECK_THAT(result, ==, 1);
        CHECK_THAT(status.match_info & 0xff, ==, i);
    }
    OK(mx_test_any(ep, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    party_close(ep);
}

/* Requests of all kinds: sends, receives and connects. */
static void any_finds_all_kinds(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t me = address_of(ep);
    int in = 0, out = 9, seen = 0, token[3];
    mx_segment_t segment = {&out, sizeof out};
    mx_request_t request;

    OK(mx_iconnect(ep, local_nic(), id_of(ep), KEY, 0x701, &token[0], &request));
    OK(mx_isend(ep, &segment, 1, me, 0x702, &token[1], &request));
    segment.segment_ptr = &in;
    OK(mx_irecv(ep, &segment, 1, 2, 0xff, &token[2], &request)); /* the status has the sender's match bits */
    while (seen != 7) {
        mx_status_t status;
        uint32_t result = 0;
        int which;

        OK(mx_wait_any(ep, WAIT_MS, 0x700, 0xf00, &status, &result));
        CHECK_THAT(result, ==, 1);
        STATUS_IS(status, MX_STATUS_SUCCESS);
        which = (int)((int *)status.context - token);
        CHECK(which >= 0 && which < 3 && (seen & 1 << which) == 0);
        seen |= 1 << which;
        CHECK_THAT(status.match_info, ==, which == 0 ? 0x701 : 0x702);
        CHECK(same_address(status.source, me));
    }
    CHECK_THAT(in, ==, 9);
    party_close(ep);
}

static void peek_leaves_it(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t me = address_of(ep);
    mx_request_t first, second, peeked = NULL;
    mx_status_t status;
    uint32_t result = 77;
    int in[2];

    first = receive(ep, &in[0], sizeof in[0], 1, EXACTLY);
    second = receive(ep, &in[1], sizeof in[1], 2, EXACTLY);
    OK(mx_ipeek(ep, &peeked, &result));
    CHECK_THAT(result, ==, 0);
    CHECK(peeked == NULL);
    succeed(ep, send_to(ep, me, &in[0], 0, 2), 0);
    OK(mx_peek(ep, WAIT_MS, &peeked, &result));
    CHECK_THAT(result, ==, 1);
    CHECK(peeked == second);
    succeed(ep, send_to(ep, me, &in[0], 0, 1), 0);
    for (int i = 0; i < 3; i++) {
        OK(mx_peek(ep, MX_INFINITE, &peeked, &result));
        CHECK_THAT(result, ==, 1);
        CHECK(peeked == second); /* the oldest, until it is tested */
    }
    CHECK(is_done(ep, &second, &status));
    OK(mx_peek(ep, WAIT_MS, &peeked, &result));
    CHECK(peeked == first);
    CHECK(is_done(ep, &peeked, &status));
    REFUSED(mx_test(ep, &first, &status, &result), MX_BAD_REQUEST);
    OK(mx_ipeek(ep, &peeked, &result));
    CHECK_THAT(result, ==, 0);
    party_close(ep);
}

static void probe_sees_unexpected_messages(struct side *side)
{
    static const size_t sizes[] = {0, 10, 32768, 100000};
    mx_request_t sends[4], receiving;
    void *out[4], *in;
    mx_status_t status;
    uint32_t result = 77;

    open_two();
    memset(&status, 0x5a, sizeof status);
    OK(mx_iprobe(b, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    CHECK(status_untouched(&status));
    for (int i = 0; i < 4; i++) {
        out[i] = fenced(sizes[i]);
        fill(out[i], sizes[i], (uint64_t)i);
        sends[i] = send_to(a, to_b, out[i], sizes[i], 0x100 + (uint64_t)i);
    }
    for (int i = 3; i >= 0; i--) {
        status = probe_for(b, 0x100 + (uint64_t)i, EXACTLY);
        CHECK_THAT(status.msg_length, ==, sizes[i]);
        CHECK_THAT(status.xfer_length, ==, sizes[i]);
        CHECK_THAT(status.match_info, ==, 0x100 + i);
    }
    for (int i = 0; i < 4; i++) {
        /* Finds the oldest message, repeatedly, until it is received. */
        for (int again = 0; again < 3; again++) {
            OK(mx_iprobe(b, 0, ANYTHING, &status, &result));
            CHECK_THAT(result, ==, 1);
            CHECK_THAT(status.match_info, ==, 0x100 + i);
        }
        in = fenced(sizes[i]);
        receiving = receive(b, in, sizes[i], status.match_info, EXACTLY);
        status = succeed(b, receiving, sizes[i]);
        check_filled(in, sizes[i], (uint64_t)i);
        fenced_free(in);
        succeed(a, sends[i], sizes[i]);
        fenced_free(out[i]);
    }
    OK(mx_iprobe(b, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    /* A message that finds a receive is never reported by probe. */
    receiving = receive(b, &result, 0, 0x200, EXACTLY);
    succeed(a, send_to(a, to_b, NULL, 0, 0x200), 0);
    succeed(b, receiving, 0);
    OK(mx_iprobe(b, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    close_two();
}

static void time_outs_are_kept(struct side *side)
{
    enum { TIME_MS = 80 };
    mx_endpoint_t ep = party_open();
    mx_request_t never = receive(ep, NULL, 0, UINT64_C(0x0badf00d00000000), EXACTLY), peeked = NULL, again = never;
    mx_status_t status;
    uint32_t result;

    memset(&status, 0x5a, sizeof status);
    for (int which = 0; which < 4; which++) {
        int64_t begin = now_ms(), took;

        result = 77;
        switch (which) {
        case 0:
            OK(mx_wait(ep, &again, TIME_MS, &status, &result));
            break;
        case 1:
            OK(mx_wait_any(ep, TIME_MS, 0, ANYTHING, &status, &result));
            break;
        case 2:
            OK(mx_peek(ep, TIME_MS, &peeked, &result));
            break;
        case 3:
            OK(mx_probe(ep, TIME_MS, 0, ANYTHING, &status, &result));
            break;
        }
        took = now_ms() - begin;
        CHECK_THAT(result, ==, 0);
        CHECK_THAT(took, >=, TIME_MS - 1);
        CHECK_THAT(took, <, TIME_MS + 1000 * slower());
        CHECK(again == never && peeked == NULL && status_untouched(&status));
    }
    OK(mx_cancel(ep, &never, &result));
    CHECK_THAT(result, ==, 1);
    party_close(ep);
}

/* ---- cancel, forget ---- */

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

    open_two();
    for (int i = 0; i < 3; i++) {
        char *early = fenced(LARGE), *late = fenced(LARGE), *out = fenced(LARGE);
        mx_request_t request = receive(b, early, LARGE, 5, EXACTLY), sending;

        cancelled(b, &request);
        fill(out, sizes[i], (uint64_t)i);
        sending = send_to(a, to_b, out, sizes[i], 5);
        probe_for(b, 5, EXACTLY); /* the receive did not take the message */
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

static void sends_cannot_be_cancelled(struct side *side)
{
    char *in = fenced(LARGE), *out = fenced(LARGE);
    mx_request_t requests[3];
    uint32_t result = 77;

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

    a = party_open();
    deaf = open_any();
    id = id_of(deaf);
    OK(mx_disable_progression(deaf));
    OK(mx_iconnect(a, local_nic(), id, KEY, 6, NULL, &request));
    stays_pending(a, &request, 30);
    cancelled(a, &request);
    nothing_is_done(a);
    OK(mx_reenable_progression(deaf));
    /* The next connect begins anew. */
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

static void a_forgotten_request_goes_on(struct side *side)
{
    char *in = fenced(SMALL), *out = fenced(SMALL);
    mx_request_t request;

    open_two();
    fill(out, SMALL, 8);
    request = receive(b, in, SMALL, 5, EXACTLY);
    forgotten(b, &request);
    succeed(a, ssend_to(a, to_b, out, SMALL, 5), SMALL); /* it has been received */
    exchange(a, to_b, b, 0, 6);                          /* and so has everything before it */
    check_filled(in, SMALL, 8);
    request = ssend_to(a, to_b, out, SMALL, 7);
    forgotten(a, &request);
    succeed(b, receive(b, in, SMALL, 7, EXACTLY), SMALL);
    nothing_is_done(a);
    nothing_is_done(b);
    close_two();
    fenced_free(in);
    fenced_free(out);
}

/* ---- sends ---- */

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

    open_two();
    OK(mx_get_info(a, MX_COPY_SEND_MAX, NULL, 0, &most, sizeof most));
    CHECK_THAT(most, <=, EAGER);
    sizes[3] = most;
    for (int i = 0; i < 4; i++) {
        fill(out, sizes[i], (uint64_t)i);
        succeed(a, send_to(a, to_b, out, sizes[i], (uint64_t)i), sizes[i]);
        memset(out, 0, EAGER); /* the buffer may be reused */
        succeed(b, receive(b, in, sizes[i], (uint64_t)i, EXACTLY), sizes[i]);
        check_filled(in, sizes[i], (uint64_t)i);
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
        /* With a receive that is posted already. */
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

static void buffered_says_when_the_buffer_is_free(struct side *side)
{
    char *out = fenced(LARGE), *in = fenced(LARGE);
    mx_request_t small, large, synchronous, receiving;
    mx_status_t status;
    uint32_t result = 77;

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

    /* Only sends can be buffered. */
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

static void requests_know_their_context(struct side *side)
{
    mx_request_t sending, receiving, kept;
    void *context = NULL;
    char out[8] = "context", in[8];

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

static void a_small_unexpected_queue(struct side *side)
{
    enum { COUNT = 2600, SIZE = 4000, ROOM = 64 << 10 };
    mx_param_t room = {.key = MX_PARAM_UNEXP_QUEUE_MAX, .val = {.unexp_queue_max = ROOM}};
    char *out = fenced(SIZE), *in = fenced(SIZE);
    mx_request_t requests[COUNT];
    mx_status_t status;
    int complete = 0;

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
    /* Those for which the receiver lends credits complete; the others wait, and none is lost. */
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

/* ---- context ids: a field of the match bits ---- */

static mx_endpoint_t open_with(uint8_t bits, uint8_t shift)
{
    mx_param_t param = {.key = MX_PARAM_CONTEXT_ID};
    mx_endpoint_t ep = NULL;

    param.val.context_id.bits = bits;
    param.val.context_id.shift = shift;
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, &param, 1, &ep));
    return ep;
}

static const struct {
    uint8_t bits, shift;
} fields[] = {{1, 0}, {8, 56}, {16, 48}, {16, 0}, {4, 13}, {1, 63}};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static void masks_must_cover_the_field(struct side *side)
{
    party_start();
    for (int i = 0; i < FIELDS; i++) {
        mx_endpoint_t ep = open_with(fields[i].bits, fields[i].shift);
        uint64_t field = ((UINT64_C(1) << fields[i].bits) - 1) << fields[i].shift;
        mx_request_t request = (mx_request_t)&ep, was = request, peeked = was;
        mx_status_t status;
        uint32_t result = 77;
        const mx_return_t code = MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK;

        REFUSED(mx_irecv(ep, NULL, 0, 0, ANYTHING, NULL, &request), code);
        REFUSED(mx_irecv(ep, NULL, 0, 0, ~field, NULL, &request), code);
        /* All bits of the field but one. */
        REFUSED(mx_irecv(ep, NULL, 0, 0, ~(UINT64_C(1) << fields[i].shift), NULL, &request), code);
        CHECK(request == was);
        REFUSED(mx_ipeek(ep, &peeked, &result), MX_NOT_SUPPORTED_WITH_CONTEXT_ID);
        REFUSED(mx_peek(ep, 1, &peeked, &result), MX_NOT_SUPPORTED_WITH_CONTEXT_ID);
        CHECK(result == 77 && peeked == was);
        OK(mx_irecv(ep, NULL, 0, 0, field, NULL, &request));
        OK(mx_cancel(ep, &request, &result));
        CHECK_THAT(result, ==, 1);
        OK(mx_irecv(ep, NULL, 0, 0, EXACTLY, NULL, &request));
        OK(mx_cancel(ep, &request, &result));
        /* Looking for completions needs no mask over the whole field. */
        OK(mx_test_any(ep, 0, ANYTHING, &status, &result));
        CHECK_THAT(result, ==, 0);
        exchange(ep, address_of(ep), ep, 1000, EXACTLY);
        exchange(ep, address_of(ep), ep, 1000, 0);
        OK(mx_close_endpoint(ep));
    }
    party_stop();
}

/* ---- progression ---- */

static atomic_int handler_calls;

static mx_unexp_handler_action_t counts(void *context, mx_endpoint_addr_t source, uint64_t bits,
                                        uint32_t length, void *data)
{
    handler_calls++;
    return MX_RECV_CONTINUE;
}

static void disabled_and_enabled(struct side *side)
{
    char *in = fenced(LARGE), *out = fenced(LARGE);
    mx_request_t receiving, sending, large, gone;
    mx_status_t status;
    uint32_t result = 77;

    open_two();
    fill(out, LARGE, 1);
    receiving = receive(b, in, SMALL, 1, EXACTLY);
    OK(mx_disable_progression(b));
    OK(mx_disable_progression(b)); /* a second call does no harm */
    OK(mx_register_unexp_handler(b, counts, NULL));
    sending = ssend_to(a, to_b, out, SMALL, 1);
    large = send_to(a, to_b, out, LARGE, 2);
    OK(mx_isend(a, NULL, 0, to_b, 3, NULL, NULL));
    stays_pending(b, &receiving, PENDING_MS);
    stays_pending(a, &sending, PENDING_MS);
    OK(mx_iprobe(b, 3, EXACTLY, &status, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_probe(b, PENDING_MS, 3, EXACTLY, &status, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_progress(b));
    CHECK_THAT(handler_calls, ==, 0);
    /* Posting and cancelling need no progress. */
    gone = receive(b, in, SMALL, 9, EXACTLY);
    OK(mx_cancel(b, &gone, &result));
    CHECK_THAT(result, ==, 1);
    /* The other endpoint of the process is not affected. */
    exchange(a, address_of(a), a, SMALL, 5);
    OK(mx_reenable_progression(b));
    OK(mx_reenable_progression(b));
    succeed(b, receiving, SMALL);
    check_filled(in, SMALL, 1);
    succeed(a, sending, SMALL);
    succeed(b, receive(b, in, LARGE, 2, EXACTLY), LARGE);
    check_filled(in, LARGE, 1);
    succeed(a, large, LARGE);
    probe_for(b, 3, EXACTLY);
    CHECK(handler_calls == 1 || handler_calls == 2); /* 2: the large message had no receive at first */
    close_two();
    fenced_free(in);
    fenced_free(out);
}

static void computes(struct side *side)
{
    struct pair pair = pair_open(side);
    char *in = fenced(LARGE);
    mx_request_t receiving = receive(pair.ep, in, LARGE, 1, EXACTLY);

    tell(side, "posted", 0);
    hear(side, "sent"); /* no call of the library meanwhile */
    succeed(pair.ep, receiving, LARGE);
    check_filled(in, LARGE, 4);
    fenced_free(in);
    pair_close(&pair);
}

static void sends_to_who_computes(struct side *side)
{
    struct pair pair = pair_open(side);
    char *out = fenced(LARGE);

    fill(out, LARGE, 4);
    pair_hear(&pair, "posted");
    succeed(pair.ep, send_to(pair.ep, pair.peer, out, LARGE, 1), LARGE);
    tell(side, "sent", 0);
    fenced_free(out);
    pair_close(&pair);
}

/* ---- time-outs ---- */

static mx_endpoint_t ep, deaf;
static mx_endpoint_addr_t to_deaf;
static char *buffer;

/* Opens an endpoint that makes no progress. */
static void open_deaf(void)
{
    ep = party_open();
    deaf = open_any();
    to_deaf = connect_to(ep, id_of(deaf));
    OK(mx_disable_progression(deaf));
    buffer = fenced(LARGE);
}

static void close_deaf(void)
{
    OK(mx_close_endpoint(deaf));
    party_close(ep);
    fenced_free(buffer);
}

/* Checks that the send times out after its own time-out, with the tolerance of a busy machine. */
static void expires(mx_request_t request, int64_t begin)
{
    mx_status_t status = finish(ep, request);
    int64_t took = now_ms() - begin;

    if (status.code != MX_STATUS_TIMEOUT && status.code != MX_STATUS_ENDPOINT_UNREACHABLE)
        FAIL("time is up: %s", status_text(status.code));
    CHECK_THAT(errors.count, ==, 1);
    CHECK(errors.code == MX_TIMEOUT || errors.code == MX_CONNECTION_FAILED);
    CHECK_THAT(took, >=, SHORT_MS - 20);
    CHECK_THAT(took, <, SHORT_MS + 3000 * slower());
}

static void later_requests(struct side *side)
{
    mx_request_t earlier, request;
    int64_t begin;

    open_deaf();
    earlier = ssend_to(ep, to_deaf, buffer, 100, 1);
    OK(mx_set_request_timeout(ep, NULL, SHORT_MS));
    begin = now_ms();
    expires(ssend_to(ep, to_deaf, buffer, 100, 2), begin);
    begin = now_ms();
    expires(send_to(ep, to_deaf, buffer, LARGE, 3), begin);
    /* 0 means for ever, as everywhere. */
    OK(mx_set_request_timeout(ep, NULL, MX_INFINITE));
    request = ssend_to(ep, to_deaf, buffer, 100, 4);
    stays_pending(ep, &request, SHORT_MS + 50);
    CHECK(earlier != NULL);
    close_deaf();
}

static void one_request(struct side *side)
{
    mx_request_t hurried, patient;
    int64_t begin;

    open_deaf();
    patient = ssend_to(ep, to_deaf, buffer, LARGE, 1);
    hurried = ssend_to(ep, to_deaf, buffer, LARGE, 2);
    OK(mx_set_request_timeout(ep, hurried, SHORT_MS));
    begin = now_ms();
    expires(hurried, begin);
    stays_pending(ep, &patient, 30);
    OK(mx_set_request_timeout(ep, patient, 60000));
    stays_pending(ep, &patient, 30);
    /* A completed request cannot time out. */
    close_deaf();
}

/* Requests that take long but make progress do not time out. */
static void nothing_that_moves(struct side *side)
{
    enum { HUGE = 48 << 20 };
    struct pair pair = pair_open(side);
    char *huge = malloc(HUGE);

    CHECK(huge != NULL);
    memset(huge, 1, HUGE);
    OK(mx_set_request_timeout(pair.ep, NULL, 1000));
    if (pair.id < pair.peer_id) {
        succeed(pair.ep, send_to(pair.ep, pair.peer, huge, HUGE, 1), HUGE);
    } else {
        succeed(pair.ep, receive(pair.ep, huge, HUGE, 1, EXACTLY), HUGE);
    }
    pair_close(&pair);
    free(huge);
}

PARTY_TESTS(
    SOLO(test_any_takes_the_oldest_that_fits_its_mask, any_takes_what_fits),
    SOLO(test_any_finds_sends_receives_and_connects, any_finds_all_kinds),
    SOLO(peek_shows_the_oldest_and_leaves_it, peek_leaves_it),
    SOLO(probe_sees_what_has_no_receive_and_leaves_it, probe_sees_unexpected_messages),
    SOLO(a_wait_that_is_in_vain_takes_its_time_and_changes_nothing, time_outs_are_kept),
    SOLO(a_cancelled_receive_takes_no_message, a_cancelled_receive_is_gone),
    SOLO(a_send_cannot_be_cancelled_and_goes_on, sends_cannot_be_cancelled),
    SOLO(a_connect_that_is_not_answered_can_be_cancelled, connects_can_be_cancelled),
    SOLO(a_forgotten_request_goes_on_and_is_not_reported, a_forgotten_request_goes_on),
    SOLO(small_sends_complete_without_a_receiver, small_sends_complete_alone),
    SOLO(synchronous_sends_of_any_size_wait_for_a_match, synchronous_sends_wait_for_a_match),
    SOLO(synchronous_sends_of_any_size_tell_of_truncation, synchronous_sends_tell_of_truncation),
    SOLO(buffered_says_when_a_sends_buffer_is_free, buffered_says_when_the_buffer_is_free),
    SOLO(a_receiver_with_little_room_makes_senders_wait, a_small_unexpected_queue),
    SOLO(a_requests_context_can_be_asked_for_until_it_is_tested, requests_know_their_context),
    SOLO(receives_name_their_context_and_peeking_is_refused, masks_must_cover_the_field),
    SOLO(disabled_progression_moves_and_loses_nothing, disabled_and_enabled),
    PAIR(messages_move_while_the_program_computes, computes, sends_to_who_computes),
    SOLO(a_time_out_of_the_endpoint_concerns_later_sends, later_requests),
    SOLO(a_time_out_of_a_request_concerns_that_one, one_request),
    PAIR(a_transfer_that_gets_on_does_not_time_out, nothing_that_moves, nothing_that_moves))
