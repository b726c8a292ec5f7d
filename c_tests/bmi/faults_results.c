/*
 * The faults of the C method in docs/hosts.md, "process killers", "wrong results" (1 to 5) and
 * "parsing": a test for each that can be shown from C, named after it. The next numbers are
 * in faults_hangs.c and faults_memory.c; many have more thorough tests elsewhere.
 */
#include "../support/pair.h"
#include "../support/pattern.h"

#include <pthread.h>
#include <string.h>

/* ---- process killers: whatever was exit(1) is an error or nothing ---- */

static void killers_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op send = {0};

    /* 2159: a client gets an unexpected message. */
    CHECK_THAT(op_send_unexpected(&send, client, "surprise", 8, 1), >=, 0);
    op_sent(&send);
    pair_part(side);
}

static void killers_client(struct side *side)
{
    struct arrival arrival;

    host_load();
    /* 976: bad arguments of initialize. */
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, BMI_INIT_SERVER, NULL), <, 0);
    pair_client(side);
    arrival = host_next();
    CHECK_THAT(arrival.size, ==, 8);
    arrival_free(&arrival);
    pair_part(side);
}

/* 1022: a server whose endpoint cannot be opened. 2097: a client that is dialled. */
static void dialled_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side), *third;
    int taken = (int)pair_hear(side, "taken");
    struct op send = {0};

    host_stop();
    CHECK_THAT(host_try_server(taken), <, 0);
    (void)server;
    host_start_client();
    third = host_lookup_endpoint(taken);
    CHECK_THAT(op_send_unexpected(&send, third, "x", 1, 1), >=, 0);
    op_sent(&send);
    pair_part(side);
}

static void dialling_server(struct side *side)
{
    int endpoint = pair_serve(side);
    struct arrival arrival;

    pair_accept();
    tell(side, "taken", endpoint);
    arrival = host_next();
    arrival_free(&arrival);
    pair_part(side);
}

/* ---- 1: errors lost, or inherited by the next operation ---- */

static void fault_1_server(struct side *side)
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
        CHECK_THAT(op_send(&send, client, body, 8, 2), >=, 0);
        op_sent(&send);
        fill(body, 8, 2);
    }
    pair_part(side);
}

static void fault_1_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char room[100000];

    for (int i = 0; i < 6; i++) {
        struct op receive = {0}, next = {0};

        /* Too little room: an error, and no byte behind the room is written. */
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
            for (deadline_t deadline = deadline_in(WAIT_MS); outcount == 0;) {
                CHECK(!deadline_over(deadline));
                CHECK_THAT(ops->test(receive.id, &outcount, &error, &size, NULL, 10, 0), >=, 0);
            }
            host_leave_test_call();
            receive.error = error;
        }
        CHECK_THAT(receive.error, ==, -BMI_EMSGSIZE);
        for (size_t k = 40; k < sizeof room; k++)
            CHECK_THAT(room[k], ==, 0x77);
        /* The next one, probably in the same block, is a success. */
        CHECK_THAT(op_recv(&next, server, room, 40, 2), >=, 0);
        op_received(&next, 8);
    }
    pair_part(side);
}

/* ---- 2: sizes of unexpected messages ---- */

static void fault_2_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    int64_t sizes[] = {8191, 8192, 8193, 20000, 0, 200000, 1};

    for (int i = 0; i < 7; i++) {
        struct arrival arrival = host_next();

        CHECK(arrival.from == client);
        CHECK_THAT(arrival.size, ==, sizes[i]);
        check_filled(arrival.buffer, (size_t)arrival.size, (uint64_t)i);
        arrival_free(&arrival);
    }
    pair_part(side);
}

static void fault_2_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    int64_t sizes[] = {8191, 8192, 8193, 20000, 0, 200000, 1};
    static char body[200000];

    for (int i = 0; i < 7; i++) {
        struct op send = {0};

        fill(body, (size_t)sizes[i], (uint64_t)i);
        CHECK_THAT(op_send_unexpected(&send, server, body, sizes[i], i), >=, 0);
        op_sent(&send);
    }
    pair_part(side);
}

/* ---- 3: a failed post is never reported ---- */

static void fault_3(struct side *side)
{
    struct bmi_method_addr *self;
    static char body[64];
    bmi_op_id_t id;
    bmi_size_t actual;
    struct op never = {0};

    (void)side;
    self = host_lookup_endpoint(host_start_server());
    for (int i = 0; i < 50; i++) {
        CHECK_THAT(ops->post_send(&id, self, NULL, 8, BMI_EXT_ALLOC, 1, &never, 0, NULL), <, 0);
        CHECK_THAT(ops->post_recv(&id, self, body, -8, &actual, BMI_EXT_ALLOC, 1, &never, 0, NULL),
                   <, 0);
        CHECK_THAT(ops->post_sendunexpected(&id, self, body, 8, BMI_EXT_ALLOC, 1, &never, 99, NULL),
                   <, 0);
    }
    never.id = -1; /* op_completed() would fail */
    for (int i = 0; i < 20; i++) {
        CHECK_THAT(host_testcontext(16, 0, 1), ==, 0);
        CHECK_THAT(host_testunexpected(16, 0), ==, 0);
    }
    host_stop();
}

/* ---- 4: a send that was delivered is not "cancelled"; a stuck one completes ---- */

static void fault_4_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[50000];
    struct op receive = {0};

    CHECK_THAT(op_recv(&receive, client, body, sizeof body, 1), >=, 0);
    op_received(&receive, sizeof body);
    tell(side, "got it", 0);
    pair_part(side);
}

static void fault_4_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char body[50000], large[1024 * 1024];
    struct op send = {0}, stuck = {0};

    CHECK_THAT(op_send(&stuck, server, large, sizeof large, 2), ==, 0); /* it is not received */
    CHECK_THAT(ops->open_context(1), ==, 0);
    send.context = 1;
    CHECK_THAT(op_send(&send, server, body, sizeof body, 1), >=, 0);
    pair_hear(side, "got it");
    for (int i = 0; i < 20; i++)
        host_pump(1);
    if (send.posted == 0)
        CHECK_THAT(ops->cancel(send.id, 1), ==, 0);
    op_sent(&send);
    CHECK_THAT(ops->cancel(stuck.id, 0), ==, 0);
    op_failed(&stuck, BMI_ECANCEL);
    ops->close_context(1);
    pair_part(side);
}

/* ---- 5: order across the connect, while another thread makes progress ---- */

enum { FIVE = 400 };
static atomic_bool stop;

static void *pump(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&stop))
        host_pump(1);
    return NULL;
}

static void fault_5_server(struct side *side)
{
    struct arrival arrival;

    pair_serve(side);
    for (int i = 0; i < FIVE; i++) {
        int64_t number;

        arrival = host_next();
        memcpy(&number, arrival.buffer, 8);
        CHECK_THAT(number, ==, i);
        arrival_free(&arrival);
    }
    pair_part(side);
}

static void fault_5_client(struct side *side)
{
    static struct op send[FIVE];
    static int64_t numbers[FIVE];
    struct bmi_method_addr *server = pair_join(side);
    pthread_t pumper;

    ops_on_many_threads = true;
    CHECK_THAT(pthread_create(&pumper, NULL, pump, NULL), ==, 0);
    for (int i = 0; i < FIVE; i++) {
        numbers[i] = i;
        CHECK_THAT(op_send_unexpected(&send[i], server, &numbers[i], 8, 7), >=, 0);
    }
    atomic_store(&stop, true);
    CHECK_THAT(pthread_join(pumper, NULL), ==, 0);
    for (int i = 0; i < FIVE; i++)
        op_sent(&send[i]);
    pair_part(side);
}

/* ---- parsing ---- */

static void fault_parsing(struct side *side)
{
    static const char *const names[] = {
        "mx://under_score:3", "mx://[::1]:3",
        "mx://a-name-of-more-than-63-characters.in-several-labels.of-a-domain.that-is-long.example:3"};

    (void)side;
    host_load();
    /* Before initialize, when it does not matter whether they are known. */
    for (int i = 0; i < 3; i++) {
        struct bmi_method_addr *address = host_lookup(names[i]);

        CHECK(address != NULL);
        host_drop(address);
    }
    host_start_client();
    CHECK(host_lookup("mx://h:") == NULL);
    CHECK(host_lookup("mx://h:4294967299") == NULL);
    CHECK(host_lookup("mx://h:0x10") == NULL);
    host_stop();
}

static const struct scenario scenarios[] = {
    PAIR(fault_killers_a_client_survives_unexpected_messages_and_bad_arguments, killers_server,
         killers_client),
    PAIR(fault_killers_a_taken_endpoint_is_an_error, dialling_server, dialled_client),
    PAIR(fault_1_errors_are_reported_and_not_inherited, fault_1_server, fault_1_client),
    PAIR(fault_2_unexpected_messages_have_their_own_size, fault_2_server, fault_2_client),
    SOLO(fault_3_a_failed_post_is_never_reported, fault_3),
    PAIR(fault_4_cancel_tells_the_truth_and_always_completes, fault_4_server, fault_4_client),
    PAIR(fault_5_queued_messages_are_not_overtaken, fault_5_server, fault_5_client),
    SOLO(fault_parsing_numbers_are_decimal_and_names_are_names, fault_parsing),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
