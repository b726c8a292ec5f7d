/*
 * The four test calls: what they return, how long they wait, what wakes them.
 *
 * Side a is a server, side b a client. Times are compared with wide margins: a wake-up that
 * is lost shows as the whole idle time (seconds), never as a few milliseconds.
 */
#include "../support/pair.h"

enum { LONG_IDLE_MS = 8000, SOON_MS = 3000, MANY = 30 };

/* Waits for a marker that the other side sent after other messages: these have then been read from the port. */
static void after_marker(struct bmi_method_addr *peer)
{
    receive_message(peer, NULL, 0, 0x3a3a);
}

static void send_marker(struct bmi_method_addr *peer)
{
    send_message(peer, NULL, 0, 0x3a3a);
}

/* ---- a client that sends what the server asks for, by notes ---- */

static void obedient_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    for (;;) {
        int64_t request = pair_hear(side, "send");
        struct op send[MANY] = {{0}};

        if (request < 0)
            break;
        if (request == 0) { /* an unexpected one */
            CHECK_THAT(op_send_unexpected(&send[0], server, "boo", 3, 1), >=, 0);
            op_sent(&send[0]);
            continue;
        }
        /* `request` expected messages with tags 1 to `request`. */
        for (int64_t i = 0; i < request; i++) {
            CHECK_THAT(op_send(&send[i], server, "0123456789", i % 10, (int)i + 1), >=, 0);
            op_sent(&send[i]);
        }
        send_marker(server);
    }
    pair_part(side);
}

static void dismiss(struct side *side)
{
    tell(side, "send", -1);
    pair_part(side);
}

/* ---- test ---- */

static void tests_one(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive[3] = {{0}};
    char buffer[3][16];
    int outcount = -1, result;
    bmi_error_code_t error = 77;
    bmi_size_t size = 77;
    void *user = NULL;

    for (int i = 0; i < 3; i++)
        CHECK_THAT(op_recv(&receive[i], client, buffer[i], 16, i + 1), ==, 0);
    host_enter_test_call();
    result = ops->test(receive[1].id, &outcount, &error, &size, &user, 0, 0);
    CHECK_THAT(result, >=, 0);
    CHECK_THAT(outcount, ==, 0);
    tell(side, "send", 3);
    /* Reports exactly the operation asked for, although all three complete. */
    UNTIL (outcount != 0) {
        result = ops->test(receive[1].id, &outcount, &error, &size, &user, 10, 0);
        CHECK_THAT(result, >=, 0);
    }
    CHECK_THAT(outcount, ==, 1);
    CHECK_THAT(error, ==, 0);
    CHECK_THAT(size, ==, 1);
    CHECK(user == &receive[1]);
    /* user_ptr may be NULL. */
    outcount = 0;
    UNTIL (outcount == 1)
        CHECK_THAT(ops->test(receive[2].id, &outcount, &error, &size, NULL, 10, 0), >=, 0);
    CHECK_THAT(size, ==, 2);
    host_leave_test_call();
    op_received(&receive[0], 0); /* testcontext reports only the third */
    after_marker(client);
    dismiss(side);
}

/* ---- testsome ---- */

static void tests_some(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive[MANY] = {{0}};
    char buffer[MANY][16];
    bmi_op_id_t ids[MANY];
    int done = 0, only = 0, index = -1;
    bmi_error_code_t error = 1;
    bmi_size_t size = 1;

    /* Positions are those in id_array, whatever is skipped (fault 22). */
    CHECK_THAT(op_recv(&receive[0], client, buffer[0], 16, 99), ==, 0);
    CHECK_THAT(ops->cancel(receive[0].id, 0), ==, 0);
    ids[0] = 0;
    ids[1] = receive[0].id;
    UNTIL (only != 0)
        CHECK_THAT(ops->testsome(2, ids, &only, &index, &error, &size, NULL, 0, 0), >=, 0);
    CHECK(only == 1 && index == 1 && error == -BMI_ECANCEL);
    memset(&receive[0], 0, sizeof receive[0]);
    for (int i = 0; i < MANY; i++) {
        CHECK_THAT(op_recv(&receive[i], client, buffer[i], 16, i + 1), ==, 0);
        ids[i] = i % 3 == 0 ? 0 : receive[i].id; /* 0 is skipped (section 4) */
    }
    tell(side, "send", MANY);
    after_marker(client); /* testcontext within it may report those left out */
    host_enter_test_call();
    for (deadline_t deadline = deadline_in(WAIT_MS); done < MANY;) {
        int indices[MANY], outcount = -1;
        bmi_error_code_t errors[MANY];
        bmi_size_t amounts[MANY];
        void *users[MANY];
        int pending = 0;

        for (int i = 0; i < MANY; i++) {
            if (op_done(&receive[i]))
                ids[i] = 0;
            pending += ids[i] != 0;
        }
        if (pending == 0)
            break;
        CHECK(!deadline_over(deadline));
        CHECK_THAT(ops->testsome(MANY, ids, &outcount, indices, errors, amounts,
                                 done % 2 == 0 ? users : NULL, 5, 0), >=, 0);
        CHECK(outcount >= 0 && outcount <= pending);
        for (int k = 0; k < outcount; k++) {
            int i = indices[k];

            CHECK(i >= 0 && i < MANY && ids[i] != 0); /* positions in id_array */
            if (done % 2 == 0)
                CHECK(users[k] == &receive[i]);
            op_completed(&receive[i], ids[i], errors[k], amounts[k], 0);
            CHECK_THAT(amounts[k], ==, i % 10);
        }
        done += outcount;
    }
    host_leave_test_call();
    for (int i = 0; i < MANY; i++)
        op_received(&receive[i], i % 10);
    dismiss(side);
}

/* Repeated with testsome only, idle time 0 and user_ptrs NULL, as driver-bw-multi calls it. */
static void tests_some_polling(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive[MANY] = {{0}};
    char buffer[MANY][16];
    bmi_op_id_t ids[MANY];
    int done = 0, outcount = -1, indices[MANY];
    bmi_error_code_t errors[MANY];
    bmi_size_t amounts[MANY];

    for (int i = 0; i < MANY; i++) {
        CHECK_THAT(op_recv(&receive[i], client, buffer[i], 16, i + 1), ==, 0);
        ids[i] = receive[i].id;
    }
    tell(side, "send", MANY);
    host_enter_test_call();
    UNTIL (done >= MANY) {
        CHECK_THAT(ops->testsome(MANY, ids, &outcount, indices, errors, amounts, NULL, 0, 0),
                   >=, 0);
        for (int k = 0; k < outcount; k++) {
            CHECK(ids[indices[k]] != 0);
            CHECK_THAT(errors[k], ==, 0);
            CHECK_THAT(amounts[k], ==, indices[k] % 10);
            ids[indices[k]] = 0;
        }
        done += outcount;
    }
    /* Only zeros: the call reports nothing and does not wait. */
    CHECK_THAT(ops->testsome(MANY, ids, &outcount, indices, errors, amounts, NULL, 0, 0), >=, 0);
    CHECK_THAT(outcount, ==, 0);
    host_leave_test_call();
    after_marker(client);
    dismiss(side);
}

/* ---- testcontext with incount 1, NULL user pointers ---- */

static void tests_context_singly(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive[MANY] = {{0}};
    char buffer[MANY][16];
    bool seen[MANY] = {false};
    int done = 0;

    for (int i = 0; i < MANY; i++)
        CHECK_THAT(op_recv(&receive[i], client, buffer[i], 16, i + 1), ==, 0);
    tell(side, "send", MANY);
    host_enter_test_call();
    for (deadline_t deadline = deadline_in(WAIT_MS); done < MANY;) {
        bmi_op_id_t id;
        bmi_error_code_t error;
        bmi_size_t size;
        int outcount = -1, i;

        CHECK(!deadline_over(deadline));
        CHECK_THAT(ops->testcontext(1, &id, &outcount, &error, &size, NULL, 10, 0), >=, 0);
        CHECK(outcount == 0 || outcount == 1);
        if (outcount == 0)
            continue;
        for (i = 0; i < MANY && receive[i].id != id; i++)
            ;
        CHECK(i < MANY && !seen[i]);
        seen[i] = true;
        CHECK_THAT(error, ==, 0);
        CHECK_THAT(size, ==, i % 10);
        done++;
    }
    host_leave_test_call();
    after_marker(client);
    dismiss(side);
}

/* ---- waiting and waking ---- */

/* Polls until connecting has caused all its events, so that testcontext really waits. */
static void settle(void)
{
    for (int i = 0; i < 20; i++) {
        host_testunexpected(8, 0);
        host_testcontext(8, 0, 1);
    }
}

/* A thread that asks the other side for messages a moment later, when this thread is asleep. */
static struct {
    struct side *side;
    int64_t request, begin;
    pthread_t thread;
} asker;

static void *ask(void *unused)
{
    pause_ms(150);
    tell(asker.side, "send", asker.request);
    return NULL;
}

static void ask_soon(struct side *side, int64_t request)
{
    asker.side = side;
    asker.request = request;
    CHECK_THAT(pthread_create(&asker.thread, NULL, ask, NULL), ==, 0);
    asker.begin = now_ms();
}

static void woken_soon(void)
{
    CHECK_THAT(now_ms() - asker.begin, <, (int64_t)SOON_MS * slower());
    CHECK_THAT(pthread_join(asker.thread, NULL), ==, 0);
}

static void wakes_for_unexpected(struct side *side)
{
    int got;

    pair_server(side);
    settle();
    ask_soon(side, 0);
    CHECK_THAT(host_testcontext(5, 0, LONG_IDLE_MS * slower()), ==, 0);
    woken_soon();
    UNTIL ((got = host_testunexpected(5, 0)) != 0)
        continue;
    CHECK_THAT(got, ==, 1);
    dismiss(side);
}

static void wakes_for_completion(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive = {0};
    char buffer[16];

    settle();
    CHECK_THAT(op_recv(&receive, client, buffer, 16, 1), ==, 0);
    ask_soon(side, 1);
    CHECK_THAT(host_testcontext(1, 0, LONG_IDLE_MS * slower()), ==, 1);
    woken_soon();
    CHECK(op_done(&receive));
    after_marker(client);
    dismiss(side);
}

static void unexpected_waits(struct side *side)
{
    pair_server(side);
    settle();
    ask_soon(side, 0);
    CHECK_THAT(host_testunexpected(5, LONG_IDLE_MS * slower()), ==, 1);
    woken_soon();
    dismiss(side);
}

static void test_waits(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive = {0};
    char buffer[16];
    bmi_error_code_t error = 1;
    bmi_size_t size = 1;
    int outcount = 0;

    settle();
    CHECK_THAT(op_recv(&receive, client, buffer, 16, 1), ==, 0);
    ask_soon(side, 1);
    host_enter_test_call();
    while (outcount == 0) {
        CHECK_THAT(ops->test(receive.id, &outcount, &error, &size, NULL,
                             LONG_IDLE_MS * slower(), 0), >=, 0);
        CHECK_THAT(now_ms() - asker.begin, <, (int64_t)SOON_MS * slower());
    }
    host_leave_test_call();
    CHECK_THAT(error, ==, 0);
    CHECK_THAT(size, ==, 0);
    woken_soon();
    after_marker(client);
    dismiss(side);
}

/* ---- a blocked call returns after its idle time, and sleeps until then ---- */

static void *wait_in_context(void *context)
{
    for (int i = 0; i < 3; i++)
        host_testcontext(4, (bmi_context_id)(intptr_t)context, 200);
    return NULL;
}

static void sleeps(struct side *side)
{
    pthread_t threads[4];
    int64_t begin, used;

    host_start_server();
    settle();
    /* Idle time 0 does not wait. The machine may delay the call, but not each time. */
    for (deadline_t deadline = deadline_in(WAIT_MS);;) {
        begin = now_ms();
        CHECK_THAT(host_testcontext(5, 0, 0), ==, 0);
        if (now_ms() - begin < 20)
            break;
        CHECK(!deadline_over(deadline));
    }
    begin = now_ms();
    used = cpu_ms();
    for (int i = 0; i < 3; i++)
        CHECK_THAT(host_testcontext(5, 0, 200), ==, 0);
    CHECK_THAT(now_ms() - begin, >=, 3 * 200 - 30);
    CHECK_THAT(now_ms() - begin, <, 3 * 200 + 1500 * slower());
    /* The spin before the sleep is short: a tenth of the time would be a busy wait. */
    CHECK_THAT(cpu_ms() - used, <, 60 * slower());
    begin = now_ms();
    CHECK_THAT(host_testunexpected(5, 200), ==, 0);
    CHECK_THAT(now_ms() - begin, >=, 170);
    /* Four threads wait for 600 ms without spinning (fault 17). */
    for (int c = 1; c < 4; c++)
        CHECK_THAT(ops->open_context(c), ==, 0);
    used = cpu_ms();
    for (int c = 0; c < 4; c++)
        CHECK_THAT(pthread_create(&threads[c], NULL, wait_in_context, (void *)(intptr_t)c), ==, 0);
    for (int c = 0; c < 4; c++)
        CHECK_THAT(pthread_join(threads[c], NULL), ==, 0);
    CHECK_THAT(cpu_ms() - used, <, 200 * slower());
    for (int c = 1; c < 4; c++)
        ops->close_context(c);
    host_stop();
}

/* ---- testunexpected returns as many messages as fit ---- */

static void unexpected_in_batches(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op first = {0}, marker = {0};
    struct arrival arrival;
    int calls = 0;

    for (int i = 0; i < MANY; i++)
        tell(side, "send", 0);
    tell(side, "send", 1);
    CHECK_THAT(op_recv(&first, client, NULL, 0, 1), >=, 0);
    CHECK_THAT(op_recv(&marker, client, NULL, 0, 0x3a3a), >=, 0);
    UNTIL (op_done(&marker)) {
        host_testcontext(8, 0, 5);
    }
    CHECK(op_done(&first));
    /* The marker came after all of them, so each call returns several. */
    for (int i = 0; i < MANY; i++) {
        if (!host_next_within(&arrival, 0)) {
            calls++;
            arrival = host_next();
        }
        CHECK_THAT(arrival.size, ==, 3);
        arrival_free(&arrival);
    }
    CHECK_THAT(calls, <=, 3);
    dismiss(side);
}

TESTS(
    PAIR(test_reports_exactly_the_operation_asked_for, tests_one, obedient_client),
    PAIR(testsome_skips_zero_ids_and_reports_positions, tests_some, obedient_client),
    PAIR(testsome_alone_makes_progress, tests_some_polling, obedient_client),
    PAIR(testcontext_with_room_for_one_reports_all_one_by_one, tests_context_singly,
         obedient_client),
    PAIR(blocked_testcontext_wakes_for_an_unexpected_message, wakes_for_unexpected,
         obedient_client),
    PAIR(blocked_testcontext_wakes_for_a_completion, wakes_for_completion, obedient_client),
    PAIR(blocked_testunexpected_wakes_for_a_message, unexpected_waits, obedient_client),
    PAIR(blocked_test_wakes_for_its_operation, test_waits, obedient_client),
    SOLO(idle_calls_wait_their_time_asleep, sleeps),
    PAIR(testunexpected_gives_many_messages_per_call, unexpected_in_batches, obedient_client))
