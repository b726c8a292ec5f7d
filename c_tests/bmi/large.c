/*
 * Large messages, alone and beside small ones.
 */
#include "../support/pair.h"

#define MIB (1024 * 1024)

/* ---- 16 MiB both ways at once ---- */

enum { BIG = 16 * MIB, BIG_EACH_WAY = 2 };

static void both_ways(struct side *side, struct bmi_method_addr *peer, uint64_t mine,
                      uint64_t theirs)
{
    struct op send[BIG_EACH_WAY] = {{0}}, receive[BIG_EACH_WAY] = {{0}};
    void *out[BIG_EACH_WAY], *in[BIG_EACH_WAY];

    for (int i = 0; i < BIG_EACH_WAY; i++) {
        out[i] = fenced(BIG);
        in[i] = fenced(BIG);
        fill(out[i], BIG, mine + (uint64_t)i);
        CHECK_THAT(op_recv(&receive[i], peer, in[i], BIG, i), >=, 0);
    }
    pair_sync(side);
    for (int i = 0; i < BIG_EACH_WAY; i++)
        CHECK_THAT(op_send(&send[i], peer, out[i], BIG, i), >=, 0);
    for (int i = 0; i < BIG_EACH_WAY; i++) {
        op_received(&receive[i], BIG);
        op_sent(&send[i]);
        check_filled(in[i], BIG, theirs + (uint64_t)i);
        fenced_free(in[i]);
        fenced_free(out[i]);
    }
}

static void big_server(struct side *side)
{
    both_ways(side, pair_server(side), 1000, 2000);
    pair_part(side);
}

static void big_client(struct side *side)
{
    both_ways(side, pair_client(side), 2000, 1000);
    pair_part(side);
}

/* ---- a large message does not hold up small ones with other tags ---- */

static void large_and_small_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    void *big = fenced(BIG);
    struct op large = {0};

    CHECK_THAT(op_recv(&large, client, big, BIG, 1), >=, 0);
    for (int i = 0; i < 100; i++) {
        int64_t number = -1;

        receive_message(client, &number, 8, 2);
        CHECK_THAT(number, ==, i);
    }
    op_received(&large, BIG);
    check_filled(big, BIG, 5);
    fenced_free(big);
    pair_part(side);
}

static void large_and_small_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    void *big = fenced(BIG);
    struct op large = {0};

    fill(big, BIG, 5);
    CHECK_THAT(op_send(&large, server, big, BIG, 1), >=, 0);
    for (int i = 0; i < 100; i++) {
        int64_t number = i;

        send_message(server, &number, 8, 2);
    }
    op_sent(&large);
    fenced_free(big);
    pair_part(side);
}

/* ---- memory from memalloc ---- */

static void memalloc_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    unsigned char *buffer = ops->memalloc(4 * MIB, BMI_RECV);
    bmi_op_id_t id;
    bmi_size_t actual = -1;
    struct op receive = {0};

    CHECK(buffer != NULL);
    memset(buffer, 0, 4 * MIB); /* as BMI_memalloc does */
    receive.posted = ops->post_recv(&id, client, buffer, 4 * MIB, &actual, BMI_PRE_ALLOC, 3,
                                    &receive, 0, NULL);
    receive.id = id;
    CHECK_THAT(receive.posted, ==, 0);
    tell(side, "posted", 0);
    op_received(&receive, 4 * MIB);
    check_filled(buffer, 4 * MIB, 77);
    CHECK_THAT(ops->memfree(buffer, 4 * MIB, BMI_RECV), ==, 0);
    pair_part(side);
}

static void memalloc_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    void *buffer = ops->memalloc(4 * MIB, BMI_SEND);
    bmi_op_id_t id;
    struct op send = {0};

    CHECK(buffer != NULL);
    fill(buffer, 4 * MIB, 77);
    pair_hear(side, "posted");
    send.posted = ops->post_send(&id, server, buffer, 4 * MIB, BMI_PRE_ALLOC, 3, &send, 0, NULL);
    send.id = id;
    CHECK_THAT(send.posted, >=, 0);
    if (send.posted == 0)
        op_sent(&send);
    CHECK_THAT(ops->memfree(buffer, 4 * MIB, BMI_SEND), ==, 0);
    pair_part(side);
}

TESTS(
    PAIR(sixteen_MiB_messages_cross_both_ways_at_once, big_server, big_client),
    PAIR(small_messages_are_not_stuck_behind_a_large_one, large_and_small_server,
         large_and_small_client),
    PAIR(memory_from_memalloc_carries_messages, memalloc_server, memalloc_client))
