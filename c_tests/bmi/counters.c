/*
 * Queries about credits, BMI_MX_GET_CREDITS and BMI_MX_GET_PEER_CREDITS, and the warning that memory runs short.
 *
 *     server: 1 MiB, receives nothing          client: sends more than it can be lent credits for
 *         all that one peer may be lent, waiting  <───      send_free 0, send_stalled 1
 *         and one message in the slot
 *
 * A wrong question is answered with a code, and nothing is written.
 */
#include "../support/log.h"
#include "../support/pair.h"

#define WRONG(call) CHECK_THAT(call, ==, -BMI_EINVAL)
#define ODD(pointer) ((void *)((char *)(pointer) + 1))

enum {
    TOTAL = 2048,                   /* credits of 1 MiB */
    CREDIT_LIMIT = (TOTAL - TOTAL / 8) / 4, /* limit for one peer */
    SENT = CREDIT_LIMIT + 10,
    FLOOD = 60,
    FLOOD_SIZE = 64 * 1024, /* 129 credits, of which the server pays 128 to fetch it */
    UNTOUCHED = 0x5a,
};

static struct bmi_mx_credits credits(void)
{
    struct bmi_mx_credits all = {.size = sizeof all};

    CHECK_THAT(ops->get_info(BMI_MX_GET_CREDITS, &all), ==, 0);
    CHECK_THAT(all.size, ==, sizeof all);
    CHECK_THAT(all.total, ==, all.free + all.lent + all.drawn + all.copies + all.tombstones);
    CHECK_THAT(all.used_bytes, <=, all.limit_bytes);
    return all;
}

static struct bmi_mx_peer_credits credits_of(struct bmi_method_addr *peer)
{
    struct bmi_mx_peer_credits one = {.size = sizeof one, .addr = peer};

    CHECK_THAT(ops->get_info(BMI_MX_GET_PEER_CREDITS, &one), ==, 0);
    CHECK_THAT(one.size, ==, sizeof one);
    CHECK(one.addr == peer);
    return one;
}

static void untouched(const void *memory, size_t from, size_t to)
{
    for (size_t at = from; at < to; at++)
        CHECK_THAT(((const unsigned char *)memory)[at], ==, UNTOUCHED);
}

/* ---- questions ---- */

static void wrong_questions(struct side *side)
{
    static const size_t sizes[] = {4097, 8192, SIZE_MAX};
    struct bmi_mx_credits all = {.size = sizeof all};
    struct bmi_mx_peer_credits one = {.size = sizeof one};
    struct bmi_method_addr stranger = {0};
    struct bmi_method_addr *self;

    host_load();
    CHECK_THAT(ops->get_info(BMI_MX_GET_CREDITS, &all), ==, -BMI_ENODEV);
    one.addr = &stranger;
    CHECK_THAT(ops->get_info(BMI_MX_GET_PEER_CREDITS, &one), ==, -BMI_ENODEV);
    self = host_lookup_endpoint(host_start_server());

    memset(&all, UNTOUCHED, sizeof all);
    memset(&one, UNTOUCHED, sizeof one);
    WRONG(ops->get_info(BMI_MX_GET_CREDITS, NULL));
    WRONG(ops->get_info(BMI_MX_GET_PEER_CREDITS, NULL));
    WRONG(ops->get_info(BMI_MX_GET_CREDITS, ODD(&all)));
    WRONG(ops->get_info(BMI_MX_GET_PEER_CREDITS, ODD(&one)));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        all.size = one.size = sizes[i];
        one.addr = self;
        WRONG(ops->get_info(BMI_MX_GET_CREDITS, &all));
        WRONG(ops->get_info(BMI_MX_GET_PEER_CREDITS, &one));
        CHECK_THAT(all.size, ==, sizes[i]);
        CHECK_THAT(one.size, ==, sizes[i]);
    }
    for (size_t size = 0; size < 16; size++) { /* too small for the answer */
        all.size = size;
        WRONG(ops->get_info(BMI_MX_GET_CREDITS, &all));
    }
    for (size_t size = 0; size < 20; size++) {
        one.size = size;
        WRONG(ops->get_info(BMI_MX_GET_PEER_CREDITS, &one));
    }
    one.size = sizeof one;
    one.addr = NULL;
    WRONG(ops->get_info(BMI_MX_GET_PEER_CREDITS, &one));
    one.addr = ODD(self);
    WRONG(ops->get_info(BMI_MX_GET_PEER_CREDITS, &one));
    one.addr = &stranger;
    WRONG(ops->get_info(BMI_MX_GET_PEER_CREDITS, &one));
    untouched(&all, sizeof all.size, sizeof all);
    untouched(&one, offsetof(struct bmi_mx_peer_credits, state), sizeof one);
    CHECK_THAT(one.size, ==, sizeof one);
    CHECK(one.addr == &stranger);
    host_stop();
}

static void other_versions(struct side *side)
{
    union {
        struct bmi_mx_credits all;
        struct bmi_mx_peer_credits one;
        unsigned char bytes[4096];
    } room;
    struct bmi_method_addr *self;
    uint64_t total;

    self = host_lookup_endpoint(host_start_server());
    total = credits().total;
    for (size_t size = 16; size <= sizeof room; size = size < 400 ? size + 1 : size * 2) {
        size_t whole = size < sizeof room.all ? size / 8 * 8 : sizeof room.all;

        memset(&room, UNTOUCHED, sizeof room);
        room.all.size = size;
        CHECK_THAT(ops->get_info(BMI_MX_GET_CREDITS, &room), ==, 0);
        CHECK_THAT(room.all.size, ==, whole);
        CHECK_THAT(room.all.total, ==, total);
        untouched(&room, whole, sizeof room);
    }
    for (size_t size = 20; size <= sizeof room; size = size < 100 ? size + 1 : size * 2) {
        size_t whole = size < sizeof room.one ? size / 4 * 4 : sizeof room.one;

        memset(&room, UNTOUCHED, sizeof room);
        room.one.size = size;
        room.one.addr = self;
        CHECK_THAT(ops->get_info(BMI_MX_GET_PEER_CREDITS, &room), ==, 0);
        CHECK_THAT(room.one.size, ==, whole);
        CHECK_THAT(room.one.state, ==, BMI_MX_PEER_INIT);
        untouched(&room, whole, sizeof room);
    }
    host_stop();
}

/* ---- a sender that is short of credits ---- */

static void little_memory(void)
{
    setenv("MX_UNEXPECTED_BYTES", "1M", 1);
    setenv("BMI_MX_UNEXPECTED_MAX", "64K", 1);
}

static void lends_little(struct side *side)
{
    struct bmi_mx_peer_credits one;
    struct bmi_mx_credits all;
    struct bmi_method_addr *client;

    little_memory();
    client = pair_server(side);
    tell(side, "send", 0);
    UNTIL (credits().ready >= CREDIT_LIMIT + 1)
        host_testcontext(4, 0, 2); /* not testunexpected: the messages stay */
    tell(side, "here", 0);
    hear(side, "stalled");
    all = credits();
    CHECK_THAT(all.total, ==, TOTAL);
    CHECK_THAT(all.peers, ==, 1);
    CHECK_THAT(all.waiting_peers, ==, 0); /* the client has all that one peer may have */
    CHECK_THAT(all.lent, ==, CREDIT_LIMIT);
    CHECK_THAT(all.ready, ==, CREDIT_LIMIT + 1); /* and one in the slot */
    CHECK_THAT(all.messages, >, CREDIT_LIMIT + 1); /* the hello counts, too */
    CHECK_THAT(all.unexpected_bytes, ==, (CREDIT_LIMIT + 1) * 100);
    CHECK_THAT(all.used_bytes, ==, CREDIT_LIMIT * 512);
    CHECK_THAT(all.limit_bytes, ==, TOTAL * 512);
    CHECK_THAT(all.violations + all.drawn + all.copies + all.tombstones, ==, 0);
    one = credits_of(client);
    CHECK_THAT(one.state, ==, BMI_MX_PEER_READY);
    CHECK_THAT(one.credit_limit, ==, CREDIT_LIMIT);
    CHECK_THAT(one.waiting, ==, CREDIT_LIMIT);
    CHECK_THAT(one.free, ==, 0);
    CHECK_THAT(one.owed, ==, 0);
    CHECK_THAT(one.wanted, ==, 0);
    CHECK_THAT(one.send_free, >, 0);
    CHECK_THAT(one.send_waiting, ==, 0);
    for (int i = 0; i < SENT; i++)
        host_take(i);
    pair_hear(side, "sent");
    CHECK_THAT(credits().unexpected_bytes, ==, 0);
    CHECK_THAT(credits_of(client).waiting, ==, 0);
    pair_part(side);
}

static void sends_more(struct side *side)
{
    static const char body[100];
    struct bmi_method_addr *server = pair_client(side);
    static struct op send[SENT];
    struct bmi_mx_peer_credits one = credits_of(server);

    CHECK_THAT(one.state, ==, BMI_MX_PEER_READY);
    CHECK_THAT(one.send_free, >, 0);
    pair_hear(side, "send");
    for (int i = 0; i < SENT; i++)
        CHECK_THAT(op_send_unexpected(&send[i], server, body, sizeof body, i), >=, 0);
    pair_hear(side, "here");
    UNTIL ((one = credits_of(server)).send_waiting == SENT - CREDIT_LIMIT - 1 && one.send_stalled == 1 &&
           credits().operations == SENT - CREDIT_LIMIT - 1)
        host_testcontext(4, 0, 2);
    CHECK_THAT(one.send_free, ==, 0);
    CHECK_THAT(credits().peers_without_credits, ==, 1);
    CHECK_THAT(credits().credit_stalls, >, 0);
    tell(side, "stalled", 0);
    for (int i = 0; i < SENT; i++)
        op_sent(&send[i]);
    one = credits_of(server);
    CHECK_THAT(one.send_waiting, ==, 0);
    CHECK_THAT(one.send_stalled, ==, 0);
    CHECK_THAT(credits().peers_without_credits, ==, 0);
    CHECK_THAT(credits().operations, ==, 0);
    tell(side, "sent", 0);
    pair_part(side);
}

/* ---- the warning, logged once ---- */

static int told(void)
{
    return log_said("MX_UNEXPECTED_BYTES=1048576");
}

static void runs_out(struct side *side)
{
    little_memory();
    unsetenv("BMI_MX_LOG");
    unsetenv("MX_LOG");
    log_take();
    pair_server(side);
    CHECK_THAT(told(), ==, 0);
    for (int round = 0; round < 2; round++) {
        struct bmi_mx_credits all = credits();
        uint64_t refused = all.draws_refused;

        tell(side, "flood", 0);
        /* Fetched messages hold all memory, and more are announced. */
        UNTIL (told() != 0 && (all = credits()).held > 0 && all.coming == 0 && all.draws_refused != refused)
            host_testcontext(4, 0, 2);
        CHECK_THAT(told(), ==, 1);
        for (int i = 0; i < FLOOD; i++)
            host_take(i);
        pair_hear(side, "sent");
    }
    CHECK_THAT(told(), ==, 1);
    pair_part(side);
}

static void floods(struct side *side)
{
    static struct op send[FLOOD];
    static char body[FLOOD_SIZE];
    struct bmi_method_addr *server = pair_client(side);

    for (int round = 0; round < 2; round++) {
        memset(send, 0, sizeof send);
        pair_hear(side, "flood");
        for (int i = 0; i < FLOOD; i++)
            CHECK_THAT(op_send_unexpected(&send[i], server, body, FLOOD_SIZE, i), >=, 0);
        for (int i = 0; i < FLOOD; i++)
            op_sent(&send[i]);
        tell(side, "sent", 0);
    }
    pair_part(side);
}

TESTS(
    SOLO(wrong_questions_get_a_code_and_nothing_is_written, wrong_questions),
    SOLO(callers_of_other_versions_get_what_they_have_room_for, other_versions),
    PAIR(a_sender_short_of_credits_is_seen_on_both_sides, lends_little, sends_more),
    PAIR(memory_that_runs_short_is_told_once, runs_out, floods))
