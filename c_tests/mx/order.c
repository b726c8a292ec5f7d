/*
 * Order: messages of one sender, receives posted, completions.
 *
 *     sender    1 2 3 4 ...      small and large mixed, equal match bits
 *     receives  a b c d ...      take them in this order, however they complete
 */
#include "support/party.h"

#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

enum { MANY = 200, FEW = 40 };

/* Sizes that take all the ways there are, in an order that mixes them. */
static size_t size_of(int i)
{
    static const size_t some[] = {8, 40000, 100, 32768, 200000, 0, 70000, 1};

    return some[i % 8];
}

static void sends_in_order(struct side *side)
{
    struct pair pair = pair_open(side);

    for (int round = 0; round < 2; round++) {
        mx_request_t requests[MANY];
        void *buffers[MANY];

        pair_sync(&pair);
        for (int i = 0; i < MANY; i++) {
            buffers[i] = fenced(size_of(i));
            fill(buffers[i], size_of(i), (uint64_t)i);
            requests[i] = send_to(pair.ep, pair.peer, buffers[i], size_of(i), 7);
        }
        tell(side, "posted", 0);
        for (int i = 0; i < MANY; i++) {
            succeed(pair.ep, requests[i], size_of(i));
            fenced_free(buffers[i]);
        }
    }
    pair_close(&pair);
}

static void receives_in_order(struct side *side)
{
    struct pair pair = pair_open(side);
    mx_request_t requests[MANY];
    void *buffers[MANY];

    for (int i = 0; i < MANY; i++)
        buffers[i] = fenced(200000);
    /* Receives are there first. */
    for (int i = 0; i < MANY; i++)
        requests[i] = receive(pair.ep, buffers[i], 200000, 7, i % 3 == 0 ? ANYTHING : EXACTLY);
    pair_sync(&pair);
    for (int i = 0; i < MANY; i++) {
        succeed(pair.ep, requests[i], size_of(i));
        check_filled(buffers[i], size_of(i), (uint64_t)i);
    }
    pair_hear(&pair, "posted");
    /* Messages are there first. */
    pair_sync(&pair);
    pair_hear(&pair, "posted");
    for (int i = 0; i < MANY; i++) {
        mx_status_t found = probe_for(pair.ep, 7, EXACTLY);

        CHECK_THAT(found.msg_length, ==, size_of(i));
        requests[i] = receive(pair.ep, buffers[i], 200000, 7, i % 3 == 0 ? ANYTHING : EXACTLY);
    }
    for (int i = 0; i < MANY; i++) {
        succeed(pair.ep, requests[i], size_of(i));
        check_filled(buffers[i], size_of(i), (uint64_t)i);
        fenced_free(buffers[i]);
    }
    pair_close(&pair);
}

/* The receiver takes classes of messages in an order of its own; within each they stay in order. */
static void sends_classes(struct side *side)
{
    struct pair pair = pair_open(side);
    mx_request_t requests[MANY];
    int numbers[MANY];

    for (int i = 0; i < MANY; i++) {
        numbers[i] = i;
        requests[i] = send_to(pair.ep, pair.peer, &numbers[i], sizeof numbers[i],
                              (uint64_t)(i % 5) << 32 | (uint64_t)i);
    }
    for (int i = 0; i < MANY; i++)
        succeed(pair.ep, requests[i], sizeof numbers[i]);
    pair_close(&pair);
}

static void takes_classes(struct side *side)
{
    struct pair pair = pair_open(side);
    const uint64_t mask = UINT64_C(0xffffffff00000000);

    for (int class = 4; class >= 0; class--)
        for (int i = class; i < MANY; i += 5) {
            int number = -1;
            mx_request_t request =
                receive(pair.ep, &number, sizeof number, (uint64_t)class << 32, mask);

            succeed(pair.ep, request, sizeof number);
            CHECK_THAT(number, ==, i);
        }
    pair_close(&pair);
}

/* ---- completions ---- */

static void completions_in_order(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t me = address_of(ep);
    int numbers[FEW], in[FEW];
    mx_request_t receives[FEW], oldest = NULL, again = NULL;
    mx_status_t status;
    uint32_t result;

    (void)side;
    for (int i = 0; i < FEW; i++)
        receives[i] = receive(ep, &in[i], sizeof in[i], (uint64_t)i, EXACTLY);
    /* In another order than they were posted. */
    for (int i = 0; i < FEW; i++) {
        int which = (i * 7) % FEW;

        numbers[i] = which;
        OK(mx_isend(ep,
                    &(mx_segment_t){.segment_ptr = &numbers[i], .segment_length = sizeof(int)}, 1,
                    me, (uint64_t)which, NULL, NULL));
    }
    /* 7 and 40 have no common factor: the last to complete is number 33. */
    for (deadline_t deadline = deadline_in(WAIT_MS);;) {
        OK(mx_progress(ep));
        OK(mx_test(ep, &receives[33], &status, &result));
        if (result == 1)
            break;
        CHECK(!deadline_over(deadline));
    }
    CHECK_THAT(in[33], ==, 33);
    for (int i = 0; i < FEW - 1; i++) {
        int which = (i * 7) % FEW;

        OK(mx_ipeek(ep, &oldest, &result));
        CHECK_THAT(result, ==, 1);
        CHECK(oldest == receives[which]);
        OK(mx_ipeek(ep, &again, &result));
        CHECK(again == oldest);
        if (i % 2 == 0) {
            OK(mx_test_any(ep, 0, ANYTHING, &status, &result));
            CHECK_THAT(result, ==, 1);
        } else {
            CHECK(is_done(ep, &oldest, &status));
        }
        CHECK_THAT(status.match_info, ==, which);
        CHECK_THAT(in[which], ==, which);
    }
    OK(mx_ipeek(ep, &oldest, &result));
    CHECK_THAT(result, ==, 0);
    party_close(ep);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        PAIR(messages_with_equal_bits_match_in_the_order_they_were_sent, sends_in_order,
             receives_in_order),
        PAIR(within_a_mask_messages_keep_their_order, sends_classes, takes_classes),
        SOLO(completions_are_handed_out_in_their_order, completions_in_order),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
