/*
 * Progress: calls make it, a helper thread makes it, and it can be switched off.
 *
 *     disable ──► nothing is sent, taken in or handed to the handler ──► reenable: all that piled up
 */
#include "support/couple.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

enum { SMALL = 1000, LARGE = 300000, QUIET_MS = 80 };

static atomic_int handler_calls;

static mx_unexp_handler_action_t counts(void *context, mx_endpoint_addr_t source, uint64_t bits,
                                        uint32_t length, void *data)
{
    (void)context;
    (void)source;
    (void)bits;
    (void)length;
    (void)data;
    handler_calls++;
    return MX_RECV_CONTINUE;
}

static void disabled_and_enabled(struct side *side)
{
    char *in = fenced(LARGE), *out = fenced(LARGE);
    mx_request_t receiving, sending, large, gone;
    mx_status_t status;
    uint32_t result = 77;

    (void)side;
    open_two();
    fill(out, LARGE, 1);
    receiving = receive(b, in, SMALL, 1, EXACTLY);
    OK(mx_disable_progression(b));
    OK(mx_disable_progression(b)); /* once is as good as twice */
    OK(mx_register_unexp_handler(b, counts, NULL));
    sending = ssend_to(a, to_b, out, SMALL, 1);
    large = send_to(a, to_b, out, LARGE, 2);
    OK(mx_isend(a, NULL, 0, to_b, 3, NULL, NULL));
    stays_pending(b, &receiving, QUIET_MS);
    stays_pending(a, &sending, QUIET_MS);
    OK(mx_iprobe(b, 3, EXACTLY, &status, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_probe(b, QUIET_MS, 3, EXACTLY, &status, &result));
    CHECK_THAT(result, ==, 0);
    OK(mx_progress(b));
    CHECK_THAT(handler_calls, ==, 0);
    /* Posting and cancelling need no progress. */
    gone = receive(b, in, SMALL, 9, EXACTLY);
    OK(mx_cancel(b, &gone, &result));
    CHECK_THAT(result, ==, 1);
    /* The other endpoint of the process is not concerned. */
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
    CHECK(handler_calls == 1 || handler_calls == 2); /* 2: the large one had no receive yet */
    close_two();
    fenced_free(in);
    fenced_free(out);
}

/* Sends that are posted while it is off go out when it is on again, in order. */
static void posted_meanwhile(struct side *side)
{
    enum { COUNT = 50 };
    int numbers[COUNT];

    (void)side;
    open_two();
    OK(mx_disable_progression(a));
    for (int i = 0; i < COUNT; i++) {
        mx_segment_t segment = {&numbers[i], sizeof(int)};

        numbers[i] = i;
        OK(mx_isend(a, &segment, 1, to_b, 1, NULL, NULL));
    }
    OK(mx_reenable_progression(a));
    for (int i = 0, in = -1; i < COUNT; i++) {
        succeed(b, receive(b, &in, sizeof in, 1, EXACTLY), sizeof in);
        CHECK_THAT(in, ==, i);
    }
    close_two();
}

static void off_many_times(struct side *side)
{
    (void)side;
    open_two();
    for (int i = 0; i < 200; i++) {
        OK(mx_disable_progression(i % 2 == 0 ? a : b));
        if (i % 5 == 0)
            OK(mx_isend(a, NULL, 0, to_b, (uint64_t)i, NULL, NULL));
        OK(mx_reenable_progression(i % 2 == 0 ? a : b));
    }
    for (uint64_t i = 0; i < 200; i += 5)
        succeed(b, receive(b, NULL, 0, i, EXACTLY), 0);
    /* Closing needs no progress. */
    OK(mx_disable_progression(a));
    OK(mx_disable_progression(b));
    close_two();
}

/* ---- the helper thread ---- */

static void computes(struct side *side)
{
    struct pair pair = pair_open(side);
    char *in = fenced(LARGE);
    mx_request_t receiving = receive(pair.ep, in, LARGE, 1, EXACTLY);

    tell(side, "posted", 0);
    hear(side, "sent"); /* not a call of the library meanwhile */
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

/* Without it, calls on any of the endpoint's functions move everything. */
static void without_a_helper(struct side *side)
{
    char *in = fenced(LARGE), *out = fenced(LARGE);
    mx_request_t connecting, receiving, sending;
    mx_status_t status;
    uint32_t connected = 0, received = 0;

    (void)side;
    setenv("MX_HELPER", "off", 1);
    a = party_open();
    b = open_any();
    OK(mx_iconnect(a, local_nic(), id_of(b), KEY, 0, NULL, &connecting));
    for (deadline_t deadline = deadline_in(WAIT_MS); connected == 0;) {
        CHECK(!deadline_over(deadline));
        OK(mx_progress(b));
        OK(mx_test(a, &connecting, &status, &connected));
    }
    STATUS_IS(status, MX_STATUS_SUCCESS);
    fill(out, LARGE, 9);
    receiving = receive(b, in, LARGE, 1, EXACTLY);
    sending = send_to(a, status.source, out, LARGE, 1);
    for (deadline_t deadline = deadline_in(WAIT_MS); received == 0;) {
        CHECK(!deadline_over(deadline));
        OK(mx_progress(a));
        OK(mx_test(b, &receiving, &status, &received));
    }
    check_filled(in, LARGE, 9);
    for (deadline_t deadline = deadline_in(WAIT_MS); !is_done(a, &sending, &status);) {
        CHECK(!deadline_over(deadline));
        OK(mx_progress(b));
    }
    OK(mx_close_endpoint(b));
    party_close(a);
    fenced_free(in);
    fenced_free(out);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        SOLO(while_progression_is_disabled_nothing_moves_and_nothing_is_lost,
             disabled_and_enabled),
        SOLO(what_is_posted_while_disabled_goes_out_in_order, posted_meanwhile),
        SOLO(disabling_again_and_again_loses_nothing, off_many_times),
        PAIR(messages_move_while_the_program_computes, computes, sends_to_who_computes),
        SOLO(without_a_helper_thread_calls_move_everything, without_a_helper),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
