/*
 * Order: of messages of one sender, and of several under a mask; and a message as proof of those before it.
 *
 *     sender    1 2 3 4 ...      small and large mixed, equal match bits
 *     receives  a b c d ...      take them in this order, however they complete
 *
 *     sender      data k ── complete? ──► token k, which says so
 *     receiver    mx_irecv(data k), mx_forget            mx_irecv(token k) ──► data k is there, if it says so
 *
 * Libraries on top of MX tell each other so that memory has been written (Open MPI's btl mx).
 */
#include "support/party.h"

#include <stdlib.h>
#include <string.h>

#include "../support/pattern.h"

enum { MANY = 200 };

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

/* ---- from several senders, in each one's order, none twice ---- */

enum { SENDERS = 5, FROM_EACH = 60, WIDE = 50000 };

static size_t numbered_size(int i)
{
    return i % 7 == 3 ? WIDE : (size_t)(i * 13 % 3000) + 8;
}

static void one_of_many(struct side *side)
{
    mx_endpoint_t ep = party_open();
    uint32_t receiver = (uint32_t)hear(side, "receiver");
    uint64_t number = (uint64_t)hear(side, "number");
    mx_endpoint_addr_t to = connect_to(ep, receiver);
    mx_request_t requests[FROM_EACH];
    void *buffers[FROM_EACH];

    for (int i = 0; i < FROM_EACH; i++) {
        buffers[i] = fenced(numbered_size(i));
        fill(buffers[i], numbered_size(i), number * 1000 + (uint64_t)i);
        requests[i] = send_to(ep, to, buffers[i], numbered_size(i), number << 32 | (uint64_t)i);
    }
    for (int i = 0; i < FROM_EACH; i++) {
        succeed(ep, requests[i], numbered_size(i));
        fenced_free(buffers[i]);
    }
    tell(side, "sent", id_of(ep));
    hear(side, "stop");
    party_close(ep);
}

static void takes_from_any(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t source[SENDERS];
    int next[SENDERS] = {0};
    enum { WINDOW = 16 };
    mx_request_t window[WINDOW];
    void *buffers[WINDOW];

    tell(side, "receiver", id_of(ep));
    for (int i = 0; i < WINDOW; i++) {
        buffers[i] = fenced(WIDE);
        window[i] = receive(ep, buffers[i], WIDE, 0, UINT64_C(0xffff000000000000));
    }
    for (int total = 0; total < SENDERS * FROM_EACH; total++) {
        int slot = total % WINDOW; /* messages take receives in their order */
        mx_status_t status = finish(ep, window[slot]);
        uint64_t who = status.match_info >> 32, which = status.match_info & UINT32_MAX;
        uint64_t nic, peer_nic = local_nic();
        uint32_t id;

        STATUS_IS(status, MX_STATUS_SUCCESS);
        CHECK_THAT(who, <, SENDERS);
        if (next[who] == 0) {
            source[who] = status.source;
            OK(mx_decompose_endpoint_addr(status.source, &nic, &id));
            CHECK(nic == peer_nic);
            for (uint64_t other = 0; other < SENDERS; other++)
                CHECK(other == who || next[other] == 0 ||
                      !same_address(source[other], status.source));
        }
        CHECK(same_address(source[who], status.source));
        CHECK_THAT(which, ==, next[who]);
        next[who]++;
        CHECK_THAT(status.xfer_length, ==, numbered_size((int)which));
        check_filled(buffers[slot], status.xfer_length, who * 1000 + which);
        window[slot] = receive(ep, buffers[slot], WIDE, 0, UINT64_C(0xffff000000000000));
    }
    tell(side, "received", 0);
    hear(side, "stop");
    OK(mx_close_endpoint(ep)); /* receives are pending */
    for (int i = 0; i < WINDOW; i++)
        fenced_free(buffers[i]);
    party_stop();
}

static void many_to_one(struct world *world)
{
    struct child *one = spawn(world, "receiver"), *many[SENDERS];
    int64_t id = child_hear(one, "receiver");

    for (int i = 0; i < SENDERS; i++) {
        many[i] = spawn(world, "sender");
        child_tell(many[i], "receiver", id);
        child_tell(many[i], "number", i);
    }
    for (int i = 0; i < SENDERS; i++)
        child_hear(many[i], "sent");
    child_hear(one, "received");
    for (int i = 0; i < SENDERS; i++) {
        child_tell(many[i], "stop", 0);
        child_end(many[i]);
    }
    child_tell(one, "stop", 0);
    child_end(one);
}

/* ---- proof ---- */

enum { ROUNDS = 2000, AT_ONCE = 64, SMALL_MAX = 32768 };

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
static size_t data_size(int k)
{
    static const size_t some[] = {SMALL_MAX, 1,     20000, 4000,  16000, 100,
                                  16384,     12345, 8,     30000, 9000,  SMALL_MAX - 1};

    return some[(k * 7 + k / 12) % 12];
}

/* ---- the flood ---- */

/* Waits for what round k sent, if that is still under way. */
static void finish_round(struct pair *pair, int k, mx_request_t *data, mx_request_t *tokens)
{
    if (k < 0)
        return;
    if (data[k % AT_ONCE] != NULL)
        succeed(pair->ep, data[k % AT_ONCE], data_size(k));
    if (tokens[k % AT_ONCE] != NULL)
        succeed(pair->ep, tokens[k % AT_ONCE], sizeof(struct token));
    data[k % AT_ONCE] = tokens[k % AT_ONCE] = NULL;
}

static void sends_data_and_tokens(struct side *side)
{
    struct pair pair = pair_open(side);
    mx_request_t data[AT_ONCE] = {NULL}, tokens[AT_ONCE] = {NULL};
    struct token said[AT_ONCE];
    char *out[AT_ONCE];
    mx_status_t status;
    int proofs = 0;

    for (int i = 0; i < AT_ONCE; i++)
        out[i] = fenced(SMALL_MAX);
    pair_sync(&pair);
    for (int k = 0; k < ROUNDS; k++) {
        int at = k % AT_ONCE;

        finish_round(&pair, k - AT_ONCE, data, tokens);
        /* A send when nothing is on its way is complete at once, however slow the receiver is. */
        for (int before = k - AT_ONCE + 1; at == 0 && before < k; before++)
            finish_round(&pair, before, data, tokens);
        fill(out[at], data_size(k), (uint64_t)k);
        data[at] = send_to(pair.ep, pair.peer, out[at], data_size(k), data_bits(k));
        said[at].number = (uint64_t)k;
        said[at].complete = is_done(pair.ep, &data[at], &status);
        proofs += (int)said[at].complete;
        tokens[at] = send_to(pair.ep, pair.peer, &said[at], sizeof said[at], token_bits(k));
    }
    for (int k = ROUNDS - AT_ONCE; k < ROUNDS; k++) {
        finish_round(&pair, k, data, tokens);
        fenced_free(out[k % AT_ONCE]);
    }
    tell(side, "complete", 0);
    CHECK_THAT(proofs, >=, ROUNDS / 20); /* or nothing has been tested */
    pair_close(&pair);
}

static void takes_tokens_for_data(struct side *side)
{
    struct pair pair = pair_open(side);
    mx_request_t tokens[AT_ONCE];
    struct token said[AT_ONCE];
    char *in[ROUNDS], *wanted = fenced(SMALL_MAX);
    int late = 0;

    for (int k = 0; k < ROUNDS + AT_ONCE; k++) {
        int at = k % AT_ONCE, before = k - AT_ONCE;
        mx_request_t data;

        if (before >= 0) {
            succeed(pair.ep, tokens[at], sizeof said[at]);
            CHECK_THAT(said[at].number, ==, before);
            fill(wanted, data_size(before), (uint64_t)before);
            late += said[at].complete && memcmp(wanted, in[before], data_size(before)) != 0;
            /* Now and then everything is on its way that may be, and no credit is left. */
            if (k % AT_ONCE == 0)
                pause_ms(5);
        }
        if (k < ROUNDS) {
            in[k] = fenced(SMALL_MAX);
            data = receive(pair.ep, in[k], data_size(k), data_bits(k), EXACTLY);
            OK(mx_forget(pair.ep, &data));
            tokens[at] = receive(pair.ep, &said[at], sizeof said[at], token_bits(k), EXACTLY);
        }
        if (k == AT_ONCE - 1)
            pair_sync(&pair);
    }
    if (late > 0)
        FAIL("%d of %d messages were late", late, ROUNDS);
    /* The sender says so when all of it is complete. */
    pair_hear(&pair, "complete");
    for (int k = 0; k < ROUNDS; k++) {
        check_filled(in[k], data_size(k), (uint64_t)k);
        check_untouched(in[k], data_size(k), SMALL_MAX);
        fenced_free(in[k]);
    }
    fenced_free(wanted);
    pair_close(&pair);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        PAIR(messages_with_equal_bits_match_in_the_order_they_were_sent, sends_in_order,
             receives_in_order),
        DIRECTED(wildcard_receives_take_from_all_senders_in_each_ones_order, many_to_one,
                 {"receiver", takes_from_any}, {"sender", one_of_many}),
        PAIR(what_was_complete_is_there_when_a_later_message_is_received, sends_data_and_tokens,
             takes_tokens_for_data),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
