/*
 * Looking for completions and messages: test_any, wait_any, ipeek, peek, iprobe, probe; time-outs
 * and wake-up.
 *
 *     done      A B C D      test_any(bits, mask) takes the oldest that fits; peek leaves it
 *     arrived   m n o        probe sees these, and only these
 */
#include "support/party.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

static const uint64_t UNUSED = UINT64_C(0x0badf00d00000000);


static bool status_untouched(const mx_status_t *status)
{
    mx_status_t blank;

    memset(&blank, 0x5a, sizeof blank);
    return memcmp(status, &blank, sizeof blank) == 0;
}

/* ---- test_any, wait_any ---- */

static void any_takes_what_fits(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t me = address_of(ep);
    mx_request_t receives[6], stale;
    mx_status_t status;
    uint32_t result;
    int in[6], out = 5;

    (void)side;
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
    /* Even ones first, whatever completed before them. */
    for (int i = 0; i < 6; i += 2) {
        OK(mx_wait_any(ep, WAIT_MS, 0, UINT64_C(1) << 60, &status, &result));
        CHECK_THAT(result, ==, 1);
        CHECK_THAT(status.match_info, ==, i);
        CHECK(status.context == &in[i]);
        CHECK_THAT(in[i], ==, 5);
    }
    /* A handle that test_any has used up is none. */
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

/* Sends, receives and connects alike. */
static void any_finds_all_kinds(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t me = address_of(ep);
    int in = 0, out = 9, seen = 0, token[3];
    mx_segment_t segment = {&out, sizeof out};
    mx_request_t request;

    (void)side;
    OK(mx_iconnect(ep, local_nic(), id_of(ep), KEY, 0x701, &token[0], &request));
    OK(mx_isend(ep, &segment, 1, me, 0x702, &token[1], &request));
    segment.segment_ptr = &in;
    OK(mx_irecv(ep, &segment, 1, 2, 0xff, &token[2], &request)); /* the status has the sender's */
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

/* ---- peek ---- */

static void peek_leaves_it(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t me = address_of(ep);
    mx_request_t first, second, peeked = NULL;
    mx_status_t status;
    uint32_t result = 77;
    int in[2];

    (void)side;
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

/* ---- probe ---- */

static void probe_sees_unexpected_messages(struct side *side)
{
    static const size_t sizes[] = {0, 10, 32768, 100000};
    mx_endpoint_t a = party_open(), b = open_any();
    mx_endpoint_addr_t to_b = connect_to(a, id_of(b));
    mx_request_t sends[4], receiving;
    void *out[4], *in;
    mx_status_t status;
    uint32_t result = 77;

    (void)side;
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
        /* The oldest, again and again, until it is received. */
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
    /* A message that finds a receive is never seen. */
    receiving = receive(b, &result, 0, 0x200, EXACTLY);
    succeed(a, send_to(a, to_b, NULL, 0, 0x200), 0);
    succeed(b, receiving, 0);
    OK(mx_iprobe(b, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_close_endpoint(b));
    party_close(a);
}

/* ---- time-outs ---- */

static void time_outs_are_kept(struct side *side)
{
    enum { TIME_MS = 80 };
    mx_endpoint_t ep = party_open();
    mx_request_t never = receive(ep, NULL, 0, UNUSED, EXACTLY), peeked = NULL, again = never;
    mx_status_t status;
    uint32_t result;

    (void)side;
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

/* ---- wake-up ---- */

enum waiter_kind { WAIT, WAIT_ANY, PEEK, PROBE, CONNECT, BUFFERED, KINDS };

struct waiter {
    pthread_t thread;
    mx_endpoint_t ep;
    enum waiter_kind kind;
    mx_request_t request;
    uint32_t connect_to;
    atomic_bool done;
};

static void *wait_for_ever(void *argument)
{
    struct waiter *waiter = argument;
    mx_request_t peeked;
    mx_endpoint_addr_t address;
    mx_status_t status;
    uint32_t result = 77;

    switch (waiter->kind) {
    case WAIT:
        OK(mx_wait(waiter->ep, &waiter->request, MX_INFINITE, &status, &result));
        break;
    case WAIT_ANY:
        OK(mx_wait_any(waiter->ep, MX_INFINITE, UNUSED, EXACTLY, &status, &result));
        break;
    case PEEK:
        OK(mx_peek(waiter->ep, MX_INFINITE, &peeked, &result));
        break;
    case PROBE:
        OK(mx_probe(waiter->ep, MX_INFINITE, UNUSED, EXACTLY, &status, &result));
        break;
    case BUFFERED:
        OK(mx_buffered(waiter->ep, &waiter->request, MX_INFINITE, &result));
        break;
    case CONNECT:
    default:
        REFUSED(mx_connect(waiter->ep, local_nic(), waiter->connect_to, KEY, MX_INFINITE, &address),
                MX_TIMEOUT);
        result = 0;
        break;
    }
    CHECK_THAT(result, ==, 0);
    waiter->done = true;
    return NULL;
}

static void all_kinds_wake_up(struct side *side)
{
    mx_endpoint_t ep = party_open(), deaf = open_any(), mute = open_any();
    struct waiter waiters[KINDS];
    static char large[100000];
    mx_endpoint_addr_t to_mute = connect_to(ep, id_of(mute));
    uint32_t result = 77;
    mx_status_t status;
    bool all;

    (void)side;
    OK(mx_disable_progression(deaf)); /* does not answer the connect */
    OK(mx_disable_progression(mute)); /* does not take the message */
    /* Not latched: no thread waits for this one. */
    OK(mx_wakeup(ep));
    OK(mx_probe(ep, 50, UNUSED, EXACTLY, &status, &result));
    CHECK_THAT(result, ==, 0);
    for (int i = 0; i < KINDS; i++) {
        struct waiter *waiter = &waiters[i];

        *waiter = (struct waiter){.ep = ep, .kind = (enum waiter_kind)i, .connect_to = id_of(deaf)};
        if (waiter->kind == WAIT)
            waiter->request = receive(ep, NULL, 0, UNUSED, EXACTLY);
        if (waiter->kind == BUFFERED)
            waiter->request = ssend_to(ep, to_mute, large, sizeof large, UNUSED);
        CHECK(pthread_create(&waiter->thread, NULL, wait_for_ever, waiter) == 0);
    }
    /* It is not known when they sleep, so they are woken until all have been seen to. */
    for (deadline_t deadline = deadline_in(WAIT_MS); !deadline_over(deadline);) {
        OK(mx_wakeup(ep));
        all = true;
        for (int i = 0; i < KINDS; i++)
            all = all && waiters[i].done;
        if (all)
            break;
        OK(mx_probe(mute, 1, UNUSED, EXACTLY, &status, &result)); /* a moment's rest */
    }
    for (int i = 0; i < KINDS; i++)
        if (!waiters[i].done)
            FAIL("kind %d sleeps on", i);
    for (int i = 0; i < KINDS; i++)
        CHECK(pthread_join(waiters[i].thread, NULL) == 0);
    /* The receive is still there. */
    succeed(ep, send_to(ep, address_of(ep), NULL, 0, UNUSED), 0);
    succeed(ep, waiters[WAIT].request, 0);
    OK(mx_close_endpoint(mute));
    OK(mx_close_endpoint(deaf));
    party_close(ep);
}

/* Each thread waits for messages of its own; none takes another's. */
struct listener {
    pthread_t thread;
    mx_endpoint_t ep;
    uint64_t class;
    int count;
};

enum { LISTENERS = 4, EACH = 100 };

static void *listen_for_class(void *argument)
{
    struct listener *listener = argument;

    for (listener->count = 0; listener->count < EACH;) {
        mx_status_t status;
        uint32_t result = 0;

        OK(mx_wait_any(listener->ep, WAIT_MS, listener->class << 48, UINT64_C(0xffff) << 48,
                       &status, &result));
        CHECK_THAT(result, ==, 1);
        CHECK_THAT(status.match_info >> 48, ==, listener->class);
        CHECK_THAT(status.match_info & 0xffffff, ==, listener->count);
        listener->count++;
    }
    return NULL;
}

static void each_to_its_own_mask(struct side *side)
{
    mx_endpoint_t a = party_open(), b = open_any();
    mx_endpoint_addr_t to_b = connect_to(a, id_of(b));
    struct listener listeners[LISTENERS];
    uint32_t result;
    mx_status_t status;

    (void)side;
    for (uint64_t i = 0; i < LISTENERS; i++) {
        for (uint64_t message = 0; message < EACH; message++)
            receive(b, NULL, 0, i << 48 | message, EXACTLY);
        listeners[i] = (struct listener){.ep = b, .class = i};
        CHECK(pthread_create(&listeners[i].thread, NULL, listen_for_class, &listeners[i]) == 0);
    }
    for (uint64_t message = 0; message < EACH; message++)
        for (uint64_t i = 0; i < LISTENERS; i++)
            OK(mx_isend(a, NULL, 0, to_b, i << 48 | message, NULL, NULL));
    for (int i = 0; i < LISTENERS; i++)
        CHECK(pthread_join(listeners[i].thread, NULL) == 0);
    OK(mx_test_any(b, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_close_endpoint(b));
    party_close(a);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(test_any_takes_the_oldest_that_fits_its_mask, any_takes_what_fits),
        SOLO(test_any_finds_sends_receives_and_connects, any_finds_all_kinds),
        SOLO(peek_shows_the_oldest_and_leaves_it, peek_leaves_it),
        SOLO(probe_sees_what_has_no_receive_and_leaves_it, probe_sees_unexpected_messages),
        SOLO(a_wait_that_is_in_vain_takes_its_time_and_changes_nothing, time_outs_are_kept),
        SOLO(wakeup_ends_every_wait_and_is_not_kept, all_kinds_wake_up),
        SOLO(threads_waiting_with_masks_get_their_own_completions, each_to_its_own_mask),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
