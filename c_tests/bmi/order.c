/*
 * Matching of messages and receives: tags, order, contexts, immediate completions.
 *
 * Side a is a server, side b a client.
 */
#include "../support/pair.h"
#include "../support/pattern.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TAGS = 40,   /* different tags in flight */
    DEPTH = 5,   /* messages with each of them */
    FLIGHT = TAGS * DEPTH,
};

/* Sizes that take different ways (eager, rendezvous) within one tag: order must hold across
 * them all. */
static bmi_size_t size_of(int tag, int turn)
{
    static const bmi_size_t mix[] = {8, 40000, 0, 5000, 33000, 100, 70000};

    return mix[(tag * 3 + turn) % 7] + turn;
}

static uint64_t seed_of(int tag, int turn)
{
    return (uint64_t)tag * 100 + (uint64_t)turn;
}

/* A fixed shuffle of 0..count-1, the same in both processes. */
static void shuffle(int *order, int count, unsigned seed)
{
    for (int i = 0; i < count; i++)
        order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int other, kept = order[i];

        seed = seed * 1664525u + 1013904223u;
        other = (int)((seed >> 8) % (unsigned)(i + 1));
        order[i] = order[other];
        order[other] = kept;
    }
}

static void post_receives(struct bmi_method_addr *from, struct op *receive, void **buffer,
                          unsigned seed)
{
    int order[FLIGHT], turn_of_tag[TAGS] = {0};

    shuffle(order, FLIGHT, seed);
    for (int i = 0; i < FLIGHT; i++) {
        int tag = order[i] % TAGS, turn = turn_of_tag[tag]++, slot = tag * DEPTH + turn;
        bmi_size_t size = size_of(tag, turn);

        buffer[slot] = fenced((size_t)size);
        CHECK_THAT(op_recv(&receive[slot], from, buffer[slot], size, tag), >=, 0);
    }
}

static void check_receives(struct op *receive, void **buffer)
{
    for (int slot = 0; slot < FLIGHT; slot++) {
        int tag = slot / DEPTH, turn = slot % DEPTH;

        op_received(&receive[slot], size_of(tag, turn));
        check_filled(buffer[slot], (size_t)size_of(tag, turn), seed_of(tag, turn));
        fenced_free(buffer[slot]);
    }
}

static void post_sends(struct bmi_method_addr *to, struct op *send, void **buffer, unsigned seed)
{
    int order[FLIGHT], turn_of_tag[TAGS] = {0};

    shuffle(order, FLIGHT, seed);
    for (int i = 0; i < FLIGHT; i++) {
        int tag = order[i] % TAGS, turn = turn_of_tag[tag]++, slot = tag * DEPTH + turn;
        bmi_size_t size = size_of(tag, turn);

        buffer[slot] = fenced((size_t)size);
        fill(buffer[slot], (size_t)size, seed_of(tag, turn));
        CHECK_THAT(op_send(&send[slot], to, buffer[slot], size, tag), >=, 0);
    }
}

static void check_sends(struct op *send, void **buffer)
{
    for (int slot = 0; slot < FLIGHT; slot++) {
        op_sent(&send[slot]);
        fenced_free(buffer[slot]);
    }
}

static void flight_server(struct side *side)
{
    static struct op receive[FLIGHT], send[FLIGHT];
    static void *in[FLIGHT], *out[FLIGHT];
    struct bmi_method_addr *client = pair_server(side);

    post_receives(client, receive, in, 11); /* receives first, then late ones */
    pair_sync(side);
    post_sends(client, send, out, 12);
    check_receives(receive, in);
    check_sends(send, out);
    pair_part(side);
}

static void flight_client(struct side *side)
{
    static struct op receive[FLIGHT], send[FLIGHT];
    static void *in[FLIGHT], *out[FLIGHT];
    struct bmi_method_addr *server = pair_client(side);

    pair_sync(side);
    post_sends(server, send, out, 13);
    post_receives(server, receive, in, 14);
    check_receives(receive, in);
    check_sends(send, out);
    pair_part(side);
}

/* ---- sends queued while the connection is being made keep their order (fault 5 too) ---- */

enum { QUEUED = 200 };

static void takes_in_order(struct side *side)
{
    struct bmi_method_addr *client = NULL;

    pair_serve(side);
    for (int i = 0; i < QUEUED; i++) {
        struct arrival arrival = host_next();

        CHECK(client == NULL || arrival.from == client);
        client = arrival.from;
        CHECK_THAT(arrival.tag, ==, 5);
        CHECK_THAT(arrival.size, ==, i * 7 % 500);
        check_filled(arrival.buffer, (size_t)arrival.size, (uint64_t)i);
        arrival_free(&arrival);
    }
    for (int i = 0; i < QUEUED; i++) {
        char buffer[8] = "";
        struct op receive = {0};
        int64_t number;

        CHECK_THAT(op_recv(&receive, client, buffer, 8, 6), >=, 0);
        op_received(&receive, 8);
        memcpy(&number, buffer, 8);
        CHECK_THAT(number, ==, i);
    }
    pair_part(side);
}

static void queues_before_connecting(struct side *side)
{
    static struct op unexpected[QUEUED], expected[QUEUED];
    static unsigned char body[QUEUED][500];
    static int64_t numbers[QUEUED];
    struct bmi_method_addr *server = pair_join(side);

    /* Some before the connection, some while it is made, some after: no pause in between
     * but test calls at random places. */
    for (int i = 0; i < QUEUED; i++) {
        bmi_size_t size = i * 7 % 500;

        fill(body[i], (size_t)size, (uint64_t)i);
        numbers[i] = i;
        CHECK_THAT(op_send_unexpected(&unexpected[i], server, body[i], size, 5), >=, 0);
        CHECK_THAT(op_send(&expected[i], server, &numbers[i], 8, 6), >=, 0);
        if (i % 13 == 12)
            host_pump(0);
    }
    for (int i = 0; i < QUEUED; i++) {
        op_sent(&unexpected[i]);
        op_sent(&expected[i]);
    }
    pair_part(side);
}

/* ---- immediate completions ---- */

enum { SMALL = 300 };

static void immediate_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    int at_once = 0;

    pair_hear(side, "sent");
    for (int i = 0; i < 100; i++)
        host_pump(i < 5 ? 2 : 0);
    for (int i = 0; i < SMALL; i++) {
        int64_t number = -1;
        struct op receive = {0};

        CHECK_THAT(op_recv(&receive, client, &number, 8, 9), >=, 0);
        at_once += receive.posted == 1;
        op_received(&receive, 8);
        CHECK_THAT(number, ==, i);
    }
    /* They were all here: a post that completes at once must say so (job.c reads the size
     * from *actual_size then), and nothing of it may come out of testcontext later. */
    CHECK_THAT(at_once, >, 0);
    for (int i = 0; i < 20; i++)
        CHECK_THAT(host_testcontext(16, 0, 0), ==, 0);
    pair_part(side);
}

static void immediate_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    int at_once = 0;

    for (int i = 0; i < SMALL; i++) {
        int64_t number = i;
        struct op send = {0};

        CHECK_THAT(op_send(&send, server, &number, 8, 9), >=, 0);
        at_once += send.posted == 1;
        op_sent(&send);
        number = -1;
    }
    CHECK_THAT(at_once, >, 0);
    tell(side, "sent", 0);
    pair_part(side);
}

/* ---- the whole range of tags ---- */

static const bmi_msg_tag_t tags[] = {0, 1, -1, INT32_MAX, INT32_MIN, 0x100, 0x7ffffffe, -12345};
enum { TAG_COUNT = sizeof tags / sizeof tags[0] };

static void tags_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive[TAG_COUNT] = {{0}};
    int64_t number[TAG_COUNT];

    for (int i = 0; i < TAG_COUNT; i++)
        CHECK_THAT(op_recv(&receive[i], client, &number[i], 8, tags[i]), >=, 0);
    tell(side, "posted", 0);
    for (int i = TAG_COUNT - 1; i >= 0; i--) {
        op_received(&receive[i], 8);
        CHECK_THAT(number[i], ==, i);
    }
    for (int i = 0; i < TAG_COUNT; i++) {
        struct arrival arrival = host_next();

        CHECK_THAT(arrival.tag, ==, tags[i]);
        arrival_free(&arrival);
    }
    pair_part(side);
}

static void tags_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    pair_hear(side, "posted");
    for (int i = TAG_COUNT - 1; i >= 0; i--) {
        int64_t number = i;
        struct op send = {0};

        CHECK_THAT(op_send(&send, server, &number, 8, tags[i]), >=, 0);
        op_sent(&send);
    }
    for (int i = 0; i < TAG_COUNT; i++) {
        struct op send = {0};

        CHECK_THAT(op_send_unexpected(&send, server, "x", 1, tags[i]), >=, 0);
        op_sent(&send);
    }
    pair_part(side);
}

static const struct scenario scenarios[] = {
    PAIR(many_tags_in_flight_shuffled_and_equal_tags_stay_in_order, flight_server,
         flight_client),
    PAIR(messages_queued_across_the_connect_keep_their_order, takes_in_order,
         queues_before_connecting),
    PAIR(small_messages_complete_at_once_and_only_once, immediate_server, immediate_client),
    PAIR(tags_of_all_32_bits_are_told_apart, tags_server, tags_client),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
