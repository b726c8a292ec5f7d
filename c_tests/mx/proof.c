/*
 * A message as proof of those before it: what is complete when a later one is sent is in place when that
 * one is received.
 *
 *     sender      data k ── complete? ──► token k, which says so
 *     receiver    mx_irecv(data k), mx_forget            mx_irecv(token k) ──► data k is there, if it says so
 *
 * Libraries on top of MX tell each other so that memory has been written (Open MPI's btl mx).
 */
#include "support/couple.h"

#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

enum { ROUNDS = 2000, WINDOW = 64, SMALL_MAX = 32768 };

struct token {
    uint64_t number;
    uint64_t complete;
};

static uint64_t data_bits(int k)
{
    return UINT64_C(1) << 32 | (uint64_t)k;
}

static uint64_t token_bits(int k)
{
    return UINT64_C(2) << 32 | (uint64_t)k;
}

/* Around the limits of all ports, and below. */
static size_t size_of(int k)
{
    static const size_t some[] = {SMALL_MAX, 1,     20000, 4000,  16000, 100,
                                  16384,     12345, 8,     30000, 9000,  SMALL_MAX - 1};

    return some[(k * 7 + k / 12) % 12];
}

static uint32_t limit(mx_endpoint_t ep, mx_get_info_key_t key)
{
    uint32_t value = 0;

    OK(mx_get_info(ep, key, NULL, 0, &value, sizeof value));
    return value;
}

/* ---- the flood ---- */

/* Waits for what round k sent, if that is still under way. */
static void finish_round(struct pair *pair, int k, mx_request_t *data, mx_request_t *tokens)
{
    if (k < 0)
        return;
    if (data[k % WINDOW] != NULL)
        succeed(pair->ep, data[k % WINDOW], size_of(k));
    if (tokens[k % WINDOW] != NULL)
        succeed(pair->ep, tokens[k % WINDOW], sizeof(struct token));
    data[k % WINDOW] = tokens[k % WINDOW] = NULL;
}

static void sends_data_and_tokens(struct side *side)
{
    struct pair pair = pair_open(side);
    mx_request_t data[WINDOW] = {NULL}, tokens[WINDOW] = {NULL};
    struct token said[WINDOW];
    char *out[WINDOW];
    mx_status_t status;
    int proofs = 0;

    for (int i = 0; i < WINDOW; i++)
        out[i] = fenced(SMALL_MAX);
    pair_sync(&pair);
    for (int k = 0; k < ROUNDS; k++) {
        int at = k % WINDOW;

        finish_round(&pair, k - WINDOW, data, tokens);
        /* A send when nothing is on its way is complete at once, however slow the receiver is. */
        for (int before = k - WINDOW + 1; at == 0 && before < k; before++)
            finish_round(&pair, before, data, tokens);
        fill(out[at], size_of(k), (uint64_t)k);
        data[at] = send_to(pair.ep, pair.peer, out[at], size_of(k), data_bits(k));
        said[at].number = (uint64_t)k;
        said[at].complete = is_done(pair.ep, &data[at], &status);
        proofs += (int)said[at].complete;
        tokens[at] = send_to(pair.ep, pair.peer, &said[at], sizeof said[at], token_bits(k));
    }
    for (int k = ROUNDS - WINDOW; k < ROUNDS; k++) {
        finish_round(&pair, k, data, tokens);
        fenced_free(out[k % WINDOW]);
    }
    tell(side, "complete", 0);
    CHECK_THAT(proofs, >=, ROUNDS / 20); /* or nothing has been tested */
    pair_close(&pair);
}

static void takes_tokens_for_data(struct side *side)
{
    struct pair pair = pair_open(side);
    mx_request_t tokens[WINDOW];
    struct token said[WINDOW];
    char *in[ROUNDS], *wanted = fenced(SMALL_MAX);
    int late = 0;

    for (int k = 0; k < ROUNDS + WINDOW; k++) {
        int at = k % WINDOW, before = k - WINDOW;
        mx_request_t data;

        if (before >= 0) {
            succeed(pair.ep, tokens[at], sizeof said[at]);
            CHECK_THAT(said[at].number, ==, before);
            fill(wanted, size_of(before), (uint64_t)before);
            late += said[at].complete && memcmp(wanted, in[before], size_of(before)) != 0;
            /* Now and then everything is on its way that may be, and no credit is left. */
            if (k % WINDOW == 0)
                pause_ms(5);
        }
        if (k < ROUNDS) {
            in[k] = fenced(SMALL_MAX);
            data = receive(pair.ep, in[k], size_of(k), data_bits(k), EXACTLY);
            OK(mx_forget(pair.ep, &data));
            tokens[at] = receive(pair.ep, &said[at], sizeof said[at], token_bits(k), EXACTLY);
        }
        if (k == WINDOW - 1)
            pair_sync(&pair);
    }
    if (late > 0)
        FAIL("%d of %d messages were late", late, ROUNDS);
    /* The sender says so when all of it is complete. */
    pair_hear(&pair, "complete");
    for (int k = 0; k < ROUNDS; k++) {
        check_filled(in[k], size_of(k), (uint64_t)k);
        check_untouched(in[k], size_of(k), SMALL_MAX);
        fenced_free(in[k]);
    }
    fenced_free(wanted);
    pair_close(&pair);
}

/* ---- what the limits promise ---- */

/* One message fits whatever was sent before has been received; larger ones are pulled. */
static void limits_are_true(struct side *side)
{
    enum { PENDING_MS = 60, ROOM = 2 * SMALL_MAX };
    char *out = fenced(ROOM), *in = fenced(ROOM);
    uint32_t copied;

    (void)side;
    open_two();
    copied = limit(a, MX_COPY_SEND_MAX);
    CHECK_THAT(copied, >=, 4096);
    CHECK_THAT(copied, <=, SMALL_MAX);
    CHECK_THAT(limit(a, MX_PIO_SEND_MAX), <=, copied);
    for (uint64_t round = 0; round < 20; round++) {
        mx_request_t request;

        fill(out, copied, round);
        request = send_to(a, to_b, out, copied, round);
        succeed(a, request, copied); /* it is not received yet */
        memset(out, 0, copied);
        succeed(b, receive(b, in, copied, round, EXACTLY), copied);
        check_filled(in, copied, round);
        request = send_to(a, to_b, out, copied + 1, round);
        stays_pending(a, &request, PENDING_MS);
        succeed(b, receive(b, in, copied + 1, round, EXACTLY), copied + 1);
        succeed(a, request, copied + 1);
    }
    close_two();
    fenced_free(out);
    fenced_free(in);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        PAIR(what_was_complete_is_there_when_a_later_message_is_received, sends_data_and_tokens,
             takes_tokens_for_data),
        SOLO(what_the_limits_say_is_sent_at_once_is_and_more_is_not, limits_are_true),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
