/*
 * Messages between two processes: every size class, lists, short receives.
 *
 * Side a is a server, side b a client. Knows nothing of: order, contexts.
 */
#include "../support/pair.h"

/* Sizes around everything that might be a limit: inline lines, 8 and 16 KiB of older methods, the 32 KiB eager
 * limit, ring slots, a whole ring. */
static const bmi_size_t sizes[] = {0,         1,         7,     8,     15,    16,     24,    48,
                                   63,        64,        100,   127,   128,   1000,   4096,  8192,
                                   8193,      16383,     16384, 16385, 32735, 32736,  32767, 32768,
                                   32769,     65535,     65536, 65537, 99991, 262144, 300000,
                                   1024 * 1024, 1024 * 1024 + 3};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* ---- expected ---- */

static void echo_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);

    for (int i = 0; i < SIZES; i++) {
        void *buffer = fenced((size_t)sizes[i]);

        receive_message(client, buffer, sizes[i], i);
        check_filled(buffer, (size_t)sizes[i], (uint64_t)i);
        send_message(client, buffer, sizes[i], i);
        fenced_free(buffer);
    }
    pair_part(side);
}

static void echo_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    for (int i = 0; i < SIZES; i++) {
        void *out = fenced((size_t)sizes[i]);

        fill(out, (size_t)sizes[i], (uint64_t)i);
        send_message(server, out, sizes[i], i);
        memset(out, 0, (size_t)sizes[i]); /* the buffer may be reused: the peer must not see this */
        receive_pattern(server, sizes[i], i, (uint64_t)i);
        fenced_free(out);
    }
    pair_part(side);
}

/* ---- receive first, send first ---- */

enum { EARLY = 6 };
static const bmi_size_t early_sizes[EARLY] = {0, 8, 5000, 32768, 40000, 700000};

static void early_receives(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive[EARLY] = {{0}};
    void *buffer[EARLY];

    for (int i = 0; i < EARLY; i++) {
        buffer[i] = fenced((size_t)early_sizes[i]);
        CHECK_THAT(op_recv(&receive[i], client, buffer[i], early_sizes[i], 100 + i), ==, 0);
    }
    tell(side, "posted", 0);
    for (int i = 0; i < EARLY; i++) {
        op_received(&receive[i], early_sizes[i]);
        check_filled(buffer[i], (size_t)early_sizes[i], (uint64_t)i);
        fenced_free(buffer[i]);
    }
    /* The reverse order: messages are sent long before their receives are posted. */
    pair_hear(side, "sent");
    for (int i = 0; i < 20; i++)
        host_pump(1);
    for (int i = EARLY - 1; i >= 0; i--)
        receive_pattern(client, early_sizes[i], 200 + i, 50 + (uint64_t)i);
    pair_part(side);
}

static void late_sends(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    struct op send[EARLY] = {{0}}, early[EARLY] = {{0}};
    void *buffer[EARLY];

    pair_hear(side, "posted");
    for (int i = 0; i < EARLY; i++) {
        buffer[i] = fenced((size_t)early_sizes[i]);
        fill(buffer[i], (size_t)early_sizes[i], (uint64_t)i);
        CHECK_THAT(op_send(&send[i], server, buffer[i], early_sizes[i], 100 + i), >=, 0);
    }
    for (int i = 0; i < EARLY; i++) {
        op_sent(&send[i]);
        fill(buffer[i], (size_t)early_sizes[i], 50 + (uint64_t)i);
        CHECK_THAT(op_send(&early[i], server, buffer[i], early_sizes[i], 200 + i), >=, 0);
    }
    tell(side, "sent", 0);
    for (int i = 0; i < EARLY; i++) {
        op_sent(&early[i]);
        fenced_free(buffer[i]);
    }
    pair_part(side);
}

/* ---- receive posted before anything is connected (section 2: what OrangeFS's client does) ---- */

static void answers_a_client(struct side *side)
{
    struct arrival request;
    char answer[65568];

    pair_serve(side);
    request = host_next();
    CHECK_THAT(request.size, ==, 9372);
    check_filled(request.buffer, 9372, 1);
    fill(answer, sizeof answer, 2);
    send_message(request.from, answer, 60000, 1);
    arrival_free(&request);
    pair_part(side);
}

static void receives_before_connecting(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);
    void *request = ops->memalloc(9372, BMI_SEND);
    void *answer = ops->memalloc(65568, BMI_RECV);
    struct op receive = {0};

    CHECK(request != NULL && answer != NULL);
    memset(answer, 0, 65568);
    fill(request, 9372, 1);
    CHECK_THAT(op_recv(&receive, server, answer, 65568, 1), ==, 0);
    send_request(server, request, 9372, 1);
    op_received(&receive, 60000);
    check_filled(answer, 60000, 2);
    CHECK_THAT(ops->memfree(request, 9372, BMI_SEND), ==, 0);
    CHECK_THAT(ops->memfree(answer, 65568, BMI_RECV), ==, 0);
    pair_part(side);
}

/* ---- unexpected ---- */

/* Section 5: the method announces 16384; OrangeFS's largest request has 287 940 bytes. */
static const bmi_size_t unexpected_sizes[] = {0,     8,     100,   4096,   8192,   8193,
                                              16384, 16385, 25916, 32768,  32769,  69296,
                                              144564, 287940, 300 * 1024};
enum { UNEXPECTED = sizeof unexpected_sizes / sizeof unexpected_sizes[0] };

static void take_unexpected(const struct bmi_method_addr *from)
{
    for (int i = 0; i < UNEXPECTED; i++)
        CHECK(take_pattern(unexpected_sizes[i], 7000 + i, (uint64_t)i) == from);
}

static void give_unexpected(struct bmi_method_addr *to, bool all_at_once)
{
    struct op send[UNEXPECTED] = {{0}};
    void *buffer[UNEXPECTED];

    for (int i = 0; i < UNEXPECTED; i++) {
        buffer[i] = fenced((size_t)unexpected_sizes[i]);
        fill(buffer[i], (size_t)unexpected_sizes[i], (uint64_t)i);
        CHECK_THAT(op_send_unexpected(&send[i], to, buffer[i], unexpected_sizes[i], 7000 + i),
                   >=, 0);
        if (!all_at_once)
            op_sent(&send[i]);
    }
    for (int i = 0; i < UNEXPECTED; i++) {
        op_sent(&send[i]);
        fenced_free(buffer[i]);
    }
}

static void unexpected_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);

    take_unexpected(client);
    take_unexpected(client);
    pair_sync(side);
    give_unexpected(client, true); /* clients receive them, too (section 7, Mercury) */
    pair_part(side);
}

static void unexpected_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    give_unexpected(server, false);
    give_unexpected(server, true);
    pair_sync(side);
    take_unexpected(server);
    pair_part(side);
}

/* ---- lists ---- */

/* The segments of a message: size of the first, growth per segment, zero-length segments. */
struct shape {
    bmi_size_t size, first, step;
    int zero_every;
};
static const struct shape shapes[] = {
    {0, 1, 0, 0},         {0, 1, 0, 1},          {8, 1, 0, 0},          {100, 3, 1, 2},
    {8192, 1, 7, 3},      {16384, 5000, 1, 0},   {32768, 13, 17, 1},    {32769, 1, 4, 5},
    {100000, 777, 3, 4},  {300000, 1, 300, 2},   {1000003, 65537, 0, 1}, {2000, 1, 0, 0},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

enum { LIST, CONTIGUOUS, UNEXPECTED_LIST };

static void list_send(struct bmi_method_addr *to, int i, int how)
{
    const struct shape *shape = &shapes[i];
    void *buffer = fenced((size_t)shape->size);
    struct cut cut = cut_up(buffer, shape->size, shape->first, shape->step, shape->zero_every);
    struct op send = {0};

    fill(buffer, (size_t)shape->size, (uint64_t)i);
    if (how == CONTIGUOUS)
        CHECK_THAT(op_send(&send, to, buffer, shape->size, i), >=, 0);
    else if (how == UNEXPECTED_LIST)
        CHECK_THAT(op_send_unexpected_cut(&send, to, &cut, i), >=, 0);
    else
        CHECK_THAT(op_send_cut(&send, to, &cut, i), >=, 0);
    op_sent(&send);
    cut_free(&cut);
    fenced_free(buffer);
}

static void list_receive(struct bmi_method_addr *from, int i, bool contiguous)
{
    const struct shape *shape = &shapes[i];
    /* The receiver's segments differ from the sender's. */
    const struct shape *other = &shapes[(i + 5) % SHAPES];
    void *buffer = fenced((size_t)shape->size);
    /* Segments grow by at least a byte: a list has at most 65536 pieces. */
    struct cut cut = cut_up(buffer, shape->size, other->first,
                            other->step + shape->size / 100000, other->zero_every);
    struct op receive = {0};

    if (contiguous)
        CHECK_THAT(op_recv(&receive, from, buffer, shape->size, i), >=, 0);
    else
        CHECK_THAT(op_recv_cut(&receive, from, &cut, i), >=, 0);
    op_received(&receive, shape->size);
    check_filled(buffer, (size_t)shape->size, (uint64_t)i);
    cut_free(&cut);
    fenced_free(buffer);
}

static void list_sender(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);

    for (int i = 0; i < SHAPES; i++) {
        list_send(client, i, LIST);
        list_send(client, i, LIST);
        list_send(client, i, CONTIGUOUS);
    }
    pair_part(side);
}

static void list_receiver(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    for (int i = 0; i < SHAPES; i++) {
        list_receive(server, i, false); /* lists on both sides */
        list_receive(server, i, true);  /* list on the sending side only */
        list_receive(server, i, false); /* list on the receiving side only */
    }
    pair_part(side);
}

static void unexpected_list_receiver(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);

    for (int i = 0; i < SHAPES; i++)
        if (shapes[i].size <= 300 * 1024)
            CHECK(take_pattern(shapes[i].size, i, (uint64_t)i) == client);
    pair_part(side);
}

static void unexpected_list_sender(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    for (int i = 0; i < SHAPES; i++)
        if (shapes[i].size <= 300 * 1024)
            list_send(server, i, UNEXPECTED_LIST);
    pair_part(side);
}

/* ---- short receives ---- */

static const struct {
    bmi_size_t sent, room;
} shorts[] = {{0, 8},         {0, 100000},     {1, 8},          {8, 9},
              {100, 8192},    {8192, 65568},   {32768, 40000},  {32768, 200000},
              {32769, 65536}, {40000, 300000}, {500000, 600000}};
enum { SHORTS = sizeof shorts / sizeof shorts[0] };

static void short_sender(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);

    for (int i = 0; i < 2 * SHORTS; i++)
        send_pattern(client, shorts[i / 2].sent, i / 2, (uint64_t)i / 2);
    pair_part(side);
}

static void short_receiver(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    for (int i = 0; i < SHORTS; i++) {
        void *buffer = fenced((size_t)shorts[i].room), *pieces = fenced((size_t)shorts[i].room);
        struct cut cut = cut_up(pieces, shorts[i].room, 3, 100, 2);
        struct op receive = {0};

        CHECK_THAT(op_recv(&receive, server, buffer, shorts[i].room, i), >=, 0);
        op_received(&receive, shorts[i].sent);
        check_filled(buffer, (size_t)shorts[i].sent, (uint64_t)i);
        check_untouched(buffer, (size_t)shorts[i].sent, (size_t)shorts[i].room);
        CHECK_THAT(op_recv_cut(&receive, server, &cut, i), >=, 0);
        op_received(&receive, shorts[i].sent);
        check_filled(pieces, (size_t)shorts[i].sent, (uint64_t)i);
        check_untouched(pieces, (size_t)shorts[i].sent, (size_t)shorts[i].room);
        cut_free(&cut);
        fenced_free(buffer);
        fenced_free(pieces);
    }
    pair_part(side);
}

/* ---- messages that are too long: fault 1, errors lost or inherited by the next operation ---- */

static void too_long_sender(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[100000];

    for (int i = 0; i < 6; i++) {
        struct op send = {0};
        bmi_size_t size = i % 2 == 0 ? 100 : 80000;

        pair_hear(side, "send");
        fill(body, (size_t)size, 1);
        CHECK_THAT(op_send(&send, client, body, size, 1), >=, 0);
        op_wait(&send);
        send_message(client, body, 8, 2);
        fill(body, 8, 2);
    }
    pair_part(side);
}

static void too_long_receiver(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char room[100000];

    for (int i = 0; i < 6; i++) {
        struct op receive = {0}, next = {0};

        /* A receive that is too short ends with an error, and no byte behind its buffer is written. */
        memset(room, 0x77, sizeof room);
        CHECK_THAT(op_recv(&receive, server, room, 40, 1), ==, 0);
        tell(side, "send", 0);
        if (i < 3) {
            op_wait(&receive);
        } else {
            int outcount = 0;
            bmi_error_code_t error = 0;
            bmi_size_t size = 0;

            host_enter_test_call();
            UNTIL (outcount != 0)
                CHECK_THAT(ops->test(receive.id, &outcount, &error, &size, NULL, 10, 0), >=, 0);
            host_leave_test_call();
            receive.error = error;
        }
        CHECK_THAT(receive.error, ==, -BMI_EMSGSIZE);
        for (size_t k = 40; k < sizeof room; k++)
            CHECK_THAT(room[k], ==, 0x77);
        /* The next operation, probably in the same block, succeeds. */
        CHECK_THAT(op_recv(&next, server, room, 40, 2), >=, 0);
        op_received(&next, 8);
    }
    pair_part(side);
}

/* ---- many small ones in a row ---- */

enum { ROW = 60, ROWS = 20, TAG_ROW = 300 };

static void takes_rows(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);

    for (int row = 0; row < ROWS; row++) {
        struct op receive[ROW] = {{0}};
        int64_t in[ROW];

        for (int i = 0; i < ROW; i++)
            CHECK_THAT(op_recv(&receive[i], client, &in[i], sizeof in[i], TAG_ROW), ==, 0);
        tell(side, "posted", row);
        for (int i = 0; i < ROW; i++) {
            op_received(&receive[i], sizeof in[i]);
            CHECK_THAT(in[i], ==, row * ROW + i);
        }
        tell(side, "received", row);
    }
    host_stop();
}

enum { WITH_HELPER, WITHOUT_HELPER };

/* Small messages that completed at once arrive although the sender makes no further call, or finalizes after the
 * last row. Without the helper thread, which would send what is held, nothing may be held: the kernel has it all. */
static void sends_rows(struct side *side)
{
    struct bmi_method_addr *server;

    if (side->variant == WITHOUT_HELPER)
        CHECK(setenv("MX_HELPER", "off", 1) == 0);
    server = pair_client(side);
    for (int row = 0; row < ROWS; row++) {
        struct op send[ROW] = {{0}};

        pair_hear(side, "posted");
        for (int64_t i = 0; i < ROW; i++) {
            int64_t out = row * ROW + i;

            CHECK_THAT(op_send(&send[i], server, &out, sizeof out, TAG_ROW), >=, 0);
            op_sent(&send[i]);
        }
        if (row + 1 == ROWS)
            host_stop();
        hear(side, "received");
    }
}

#define EVERYWHERE \
    PAIR_OF(small_messages_in_a_row_arrive_while_their_sender_computes, WITH_HELPER, takes_rows, \
            WITH_HELPER, sends_rows), \
    PAIR(expected_messages_of_every_size_arrive_whole_both_ways, echo_server, echo_client), \
    PAIR(receives_may_be_posted_before_or_after_the_send, early_receives, late_sends), \
    PAIR(a_receive_posted_before_the_first_send_gets_the_answer, answers_a_client, \
         receives_before_connecting), \
    PAIR(unexpected_messages_up_to_300_KiB_arrive_in_order_both_ways, unexpected_server, \
         unexpected_client), \
    PAIR(lists_with_odd_segments_work_on_either_and_both_sides, list_sender, list_receiver), \
    PAIR(unexpected_lists_arrive_as_one_message, unexpected_list_receiver, \
         unexpected_list_sender), \
    PAIR(short_messages_report_the_received_size, short_sender, short_receiver), \
    PAIR(a_message_that_is_too_long_fails_its_receive_and_no_other, too_long_sender, too_long_receiver)

static const struct scenario over_streams[] = {
    EVERYWHERE,
    PAIR_OF(small_messages_in_a_row_arrive_although_no_helper_sends_them, WITHOUT_HELPER,
            takes_rows, WITHOUT_HELPER, sends_rows),
    {0}};
/* What these ports send may need an answer before all of it has left. */
static const struct scenario over_windows[] = {EVERYWHERE, {0}};

int main(int argc, char **argv)
{
    bool windows = port_uses_udp() || port_uses_libfabric();

    return harness_main(argc, argv, windows ? over_windows : over_streams);
}
