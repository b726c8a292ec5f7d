/*
 * Differences of the stand-alone BMI from OrangeFS: classes, a port that can be asked for, addresses that are not
 * dropped. support/standalone.c checks the layouts; the other programs, built over this host's table, too, test
 * the rest.
 *
 * Side a is a server, side b a client.
 */
#include "../support/pair.h"

enum { CLASSES = 3, EACH = 4, TAG = 70 };

static const uint8_t classes[CLASSES] = {0, 7, 255};

/* Receives up to `most` messages of a class within `ms`; checks their class and order. Returns their number. */
static int take(uint8_t class, int most, int ms, int first)
{
    deadline_t deadline = deadline_in(ms);
    int taken = 0;

    while (taken < most && !deadline_over(deadline)) {
        struct bmi_method_unexpected_info info;
        int outcount = 0;

        host_enter_test_call();
        CHECK_THAT(the_table()->testunexpected(1, &outcount, &info, class, 5), ==, 0);
        host_leave_test_call();
        host_testcontext(4, 0, 0);
        if (outcount == 0)
            continue;
        CHECK_THAT(info.error_code, ==, 0);
        CHECK_THAT(info.size, ==, 1);
        CHECK_THAT(*(uint8_t *)info.buffer, ==, class);
        CHECK_THAT(info.tag, ==, TAG + first + taken);
        CHECK_THAT(ops->unexpected_free(info.buffer), ==, 0);
        taken++;
    }
    return taken;
}

static void asks_by_class(struct side *side)
{
    pair_server(side);
    /* No test call meanwhile: it would receive messages of class 0. */
    hear(side, "sent");
    /* No message of this class has been sent. */
    CHECK_THAT(take(9, 1, 50, 0), ==, 0);
    /* In reverse order: no class waits for another. */
    for (int i = CLASSES - 1; i >= 0; i--)
        CHECK_THAT(take(classes[i], EACH, WAIT_MS, 0), ==, EACH);
    for (int i = 0; i < CLASSES; i++)
        CHECK_THAT(take(classes[i], 1, 20, EACH), ==, 0);
    tell(side, "taken", 0);
    pair_part(side);
}

static void sends_of_all_classes(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    struct op sends[EACH][CLASSES] = {{{0}}};

    for (int n = 0; n < EACH; n++) {
        for (int i = 0; i < CLASSES; i++) {
            const void *buffer = &classes[i];
            bmi_size_t size = 1;
            struct op *send = &sends[n][i];

            CHECK_THAT(op_posted(send, the_table()->post_sendunexpected_list(
                                           &send->id, server, &buffer, &size, 1, 1, BMI_EXT_ALLOC,
                                           TAG + n, classes[i], send, 0, NULL)),
                       >=, 0);
        }
    }
    for (int n = 0; n < EACH; n++)
        for (int i = 0; i < CLASSES; i++)
            op_sent(&sends[n][i]);
    tell(side, "sent", 0);
    pair_hear(side, "taken");
    pair_part(side);
}

/* Messages of a class that is not asked for do not keep a waiting call awake. */
static void sleeps_beside_a_class(struct side *side)
{
    int64_t before;

    pair_server(side);
    pair_hear(side, "sent");
    for (int i = 0; i < 20; i++)
        CHECK_THAT(take(0, 1, 5, 0), ==, 0);
    before = cpu_ms();
    for (int i = 0; i < 10; i++) {
        host_testunexpected(4, 0);
        host_testcontext(4, 0, 50);
    }
    CHECK_THAT(cpu_ms() - before, <, 250 * slower());
    CHECK_THAT(take(7, 1, WAIT_MS, 0), ==, 1);
    tell(side, "taken", 0);
    pair_part(side);
}

static void sends_of_one_class(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    const void *buffer = &classes[1];
    struct op send = {0};
    bmi_size_t size = 1;

    CHECK_THAT(op_posted(&send, the_table()->post_sendunexpected_list(&send.id, server, &buffer, &size, 1,
                                                                      1, BMI_EXT_ALLOC, TAG, 7, &send, 0,
                                                                      NULL)),
               >=, 0);
    op_sent(&send);
    tell(side, "sent", 0);
    pair_hear(side, "taken");
    pair_part(side);
}

/* An address without an endpoint stands for any free one, whose number can be asked for. */
static void listens_anywhere(struct side *side)
{
    struct bmi_method_addr *listen, *self;
    char text[ADDRESS_SIZE];
    int port = 0;

    host_load();
    CHECK_THAT(ops->get_info(BMI_TCP_GET_PORT, &port), ==, -BMI_ENODEV);
    for (int life = 0; life < 2; life++) {
        listen = ops->method_addr_lookup("mx://localhost");
        CHECK(listen != NULL);
        CHECK_THAT(ops->initialize(listen, METHOD_ID, BMI_INIT_SERVER | BMI_TCP_BIND_SPECIFIC, NULL), ==,
                   0);
        CHECK_THAT(ops->get_info(BMI_TCP_GET_PORT, NULL), ==, -BMI_EINVAL);
        CHECK_THAT(ops->get_info(BMI_TCP_GET_PORT, &port), ==, 0);
        CHECK_THAT(port, >, 0);
        /* Such an address can only be listened on. */
        CHECK(ops->method_addr_lookup("mx://localhost") == NULL);
        snprintf(text, sizeof text, "mx://localhost:%d", port);
        self = ops->method_addr_lookup(text);
        CHECK(self != NULL);
        CHECK_THAT(listen->ref_count, ==, 1);
        CHECK_THAT(self->ref_count, ==, 1);
        CHECK_THAT(self->method_type, ==, METHOD_ID);
        /* This host drops no address: finalize frees them. */
        CHECK(strcmp(ops->rev_lookup_unexpected(self), text) == 0);
        CHECK_THAT(ops->finalize(), ==, 0);
        CHECK(strcmp(ops->rev_lookup_unexpected(self), "(unknown)") == 0);
        CHECK_THAT(ops->set_info(BMI_DROP_ADDR, self), ==, 0);
    }
}

TESTS(
    PAIR(unexpected_messages_are_had_by_class_each_in_order, asks_by_class, sends_of_all_classes),
    PAIR(a_class_that_is_not_asked_for_keeps_no_thread_awake, sleeps_beside_a_class, sends_of_one_class),
    SOLO(an_address_without_an_endpoint_is_any_and_can_be_asked_for, listens_anywhere))
