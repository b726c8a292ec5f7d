/*
 * The unexpected handler.
 *
 *     message ── no posted receive ──► handler ── CONTINUE ──► posted receives again, else unexpected
 *                                         └────── FINISHED ──► gone; a synchronous sender sees that
 *
 * One runs at a time, in the order of each peer's messages, without any lock held.
 */
#include "support/party.h"

#include <stdatomic.h>

enum { SMALL = 1000, LARGE = 300000, NOTED = 4096 };

/* Recorded calls of the handler, and its answer. */
static struct {
    atomic_int calls, inside, worst;
    mx_unexp_handler_action_t action;
    uint64_t bits[NOTED];
    uint32_t length[NOTED];
    bool had_data[NOTED];
    mx_endpoint_addr_t source[NOTED];
    void *context;
    uint64_t check_pattern; /* seed of the pattern to check; 0: none */
    void (*act)(mx_endpoint_addr_t source, uint64_t bits, uint32_t length, void *data);
} seen;

static mx_unexp_handler_action_t handler(void *context, mx_endpoint_addr_t source, uint64_t bits,
                                         uint32_t length, void *data)
{
    int inside = ++seen.inside, call = seen.calls;

    if (inside > seen.worst)
        seen.worst = inside;
    if (call < NOTED) {
        seen.bits[call] = bits;
        seen.length[call] = length;
        seen.had_data[call] = data != NULL;
        seen.source[call] = source;
    }
    seen.context = context;
    if (data != NULL && seen.check_pattern != 0)
        check_filled(data, length, seen.check_pattern);
    if (seen.act != NULL)
        seen.act(source, bits, length, data);
    seen.inside--;
    seen.calls = call + 1;
    return seen.action;
}

static void await_calls(int calls)
{
    for (deadline_t deadline = deadline_in(WAIT_MS); seen.calls < calls;) {
        mx_status_t status;
        uint32_t result;

        if (deadline_over(deadline))
            FAIL("the handler ran %d times, not %d", seen.calls, calls);
        OK(mx_probe(b, 2, UINT64_C(0xfeedfacecafe), EXACTLY, &status, &result));
    }
    CHECK_THAT(seen.calls, ==, calls);
}

/* ---- arguments of the handler ---- */

static void is_told_of_messages(struct side *side)
{
    static const size_t sizes[] = {0, 1, SMALL, 32768, LARGE};
    char *out = fenced(LARGE), *in = fenced(LARGE);
    mx_request_t requests[5], posted;
    uint64_t nic;
    uint32_t id, result;
    mx_status_t status;
    int token;

    open_two();
    OK(mx_register_unexp_handler(b, handler, &token));
    fill(out, LARGE, 6);
    seen.check_pattern = 6;
    /* Not called for a message with a posted receive. */
    posted = receive(b, in, SMALL, 99, EXACTLY);
    succeed(a, send_to(a, to_b, out, SMALL, 99), SMALL);
    succeed(b, posted, SMALL);
    CHECK_THAT(seen.calls, ==, 0);
    for (int i = 0; i < 5; i++) {
        requests[i] = send_to(a, to_b, out, sizes[i], (uint64_t)i);
        await_calls(i + 1);
        CHECK_THAT(seen.bits[i], ==, i);
        CHECK_THAT(seen.length[i], ==, sizes[i]);
        CHECK(seen.context == &token);
        OK(mx_decompose_endpoint_addr(seen.source[i], &nic, &id));
        CHECK_THAT(id, ==, id_of(a));
        /* With the data of eager messages; without the data of announced ones. */
        if (i == 1 || i == 2)
            CHECK(seen.had_data[i]);
        if (i == 4)
            CHECK(!seen.had_data[i]);
    }
    /* The messages stayed unexpected afterwards. */
    for (int i = 0; i < 5; i++) {
        OK(mx_iprobe(b, (uint64_t)i, EXACTLY, &status, &result));
        CHECK_THAT(result, ==, 1);
        succeed(b, receive(b, in, sizes[i], (uint64_t)i, EXACTLY), sizes[i]);
        check_filled(in, sizes[i], 6);
        succeed(a, requests[i], sizes[i]);
    }
    CHECK_THAT(seen.calls, ==, 5);
    /* Without a handler, messages are unexpected as before. */
    OK(mx_register_unexp_handler(b, NULL, NULL));
    succeed(a, send_to(a, to_b, out, SMALL, 50), SMALL);
    probe_for(b, 50, EXACTLY);
    CHECK_THAT(seen.calls, ==, 5);
    close_two();
    fenced_free(out);
    fenced_free(in);
}

/* ---- finished ---- */

static void finishes_messages_off(struct side *side)
{
    static const size_t sizes[] = {0, SMALL, LARGE, SMALL, 0};
    char *out = fenced(LARGE);
    mx_request_t request;
    mx_status_t status;
    uint32_t result;

    open_two();
    OK(mx_register_unexp_handler(b, handler, NULL));
    seen.action = MX_RECV_FINISHED;
    for (int i = 0; i < 5; i++) {
        bool synchronous = i >= 3;

        request = synchronous ? ssend_to(a, to_b, out, sizes[i], (uint64_t)i)
                              : send_to(a, to_b, out, sizes[i], (uint64_t)i);
        await_calls(i + 1);
        status = finish(a, request);
        /* Senders that wait for the receiver learn that no byte was received. */
        if (sizes[i] > 0 && (synchronous || sizes[i] > 32768)) {
            STATUS_IS(status, MX_STATUS_TRUNCATED);
            CHECK_THAT(status.xfer_length, ==, 0);
        } else {
            STATUS_IS(status, MX_STATUS_SUCCESS);
        }
        CHECK_THAT(status.msg_length, ==, sizes[i]);
    }
    OK(mx_iprobe(b, 0, ANYTHING, &status, &result));
    CHECK_THAT(result, ==, 0);
    CHECK_THAT(seen.calls, ==, 5);
    close_two();
    fenced_free(out);
}

/* ---- calls that it may make ---- */

static void do_everything(mx_endpoint_addr_t source, uint64_t bits, uint32_t length, void *data)
{
    mx_request_t request, peeked;
    mx_status_t status;
    uint32_t result = 77, id;
    uint64_t nic;
    void *context;
    static int token;

    OK(mx_set_endpoint_addr_context(source, &token));
    OK(mx_get_endpoint_addr_context(source, &context));
    CHECK(context == &token);
    OK(mx_decompose_endpoint_addr(source, &nic, &id));
    CHECK_THAT(id, ==, id_of(a));
    OK(mx_isend(b, NULL, 0, source, 0x1001, NULL, NULL));
    request = receive(b, NULL, 0, 0x1002, EXACTLY);
    OK(mx_context(&request, &context));
    OK(mx_cancel(b, &request, &result));
    CHECK_THAT(result, ==, 1);
    OK(mx_test_any(b, 0x1003, EXACTLY, &status, &result));
    OK(mx_ipeek(b, &peeked, &result));
    OK(mx_iprobe(b, 0x1003, EXACTLY, &status, &result));
    OK(mx_progress(b));
    OK(mx_wakeup(b));
    OK(mx_iconnect(b, local_nic(), id_of(a), KEY, 0x1004, NULL, &request));
    OK(mx_forget(b, &request));
    OK(mx_set_request_timeout(b, NULL, 20000));
    OK(mx_disable_progression(b));
    OK(mx_reenable_progression(b));
    REFUSED(mx_close_endpoint(b), MX_CLOSE_IN_HANDLER);
    REFUSED(mx_finalize(), MX_CLOSE_IN_HANDLER);
    /* Another endpoint may be used freely. */
    OK(mx_close_endpoint(open_any()));
    OK(mx_progress(a));
}

static void may_do_what_it_likes(struct side *side)
{
    mx_request_t answer;

    open_two();
    OK(mx_register_unexp_handler(b, handler, NULL));
    seen.act = do_everything;
    seen.action = MX_RECV_FINISHED;
    answer = receive(a, NULL, 0, 0x1001, EXACTLY);
    OK(mx_isend(a, NULL, 0, to_b, 1, NULL, NULL));
    await_calls(1);
    CHECK_THAT(seen.worst, ==, 1);
    succeed(a, answer, 0);
    seen.act = NULL;
    exchange(a, to_b, b, SMALL, 9); /* the endpoint works */
    close_two();
}

/* ---- order, one at a time ---- */

static void *progress_until_told(void *stop)
{
    while (!*(atomic_bool *)stop) {
        mx_status_t status;
        uint32_t result;

        OK(mx_wait_any(b, 1, UINT64_C(0xfeedfacecafe), EXACTLY, &status, &result));
    }
    return NULL;
}

/* Takes so long that another call could come in. */
static void dawdle(mx_endpoint_addr_t source, uint64_t bits, uint32_t length, void *data)
{
    for (int i = 0; i < 20 && bits % 10 == 0; i++)
        OK(mx_progress(b));
}

static void runs_one_at_a_time_in_order(struct side *side)
{
    enum { COUNT = 300, THREADS = 3 };
    atomic_bool stop = false;
    pthread_t threads[THREADS];
    char *out = fenced(LARGE);

    open_two();
    OK(mx_register_unexp_handler(b, handler, NULL));
    seen.action = MX_RECV_FINISHED;
    seen.act = dawdle;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, progress_until_told, &stop) == 0);
    for (int i = 0; i < COUNT; i++) {
        mx_segment_t segment = {out, i % 17 == 3 ? LARGE : (uint32_t)(i % 50)};

        OK(mx_isend(a, &segment, 1, to_b, (uint64_t)i, NULL, NULL));
    }
    await_calls(COUNT);
    stop = true;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_THAT(seen.worst, ==, 1);
    for (int i = 0; i < COUNT; i++)
        CHECK_THAT(seen.bits[i], ==, i);
    close_two();
    fenced_free(out);
}

/* ---- a handler that takes its time ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void wait_at_the_gate(mx_endpoint_addr_t source, uint64_t bits, uint32_t length, void *data)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static atomic_bool unregistered;

static void *unregister(void *unused)
{
    OK(mx_register_unexp_handler(b, NULL, NULL));
    unregistered = true;
    CHECK_THAT(seen.inside, ==, 0); /* the handler had returned */
    return NULL;
}

static void others_go_on_meanwhile(struct side *side)
{
    mx_request_t early, late;
    mx_status_t status;
    uint32_t result = 77;
    pthread_t thread;
    int in = 0, out = 5;

    open_two();
    early = receive(b, &in, sizeof in, 7, EXACTLY);
    succeed(a, send_to(a, to_b, &out, sizeof out, 7), sizeof out);
    for (mx_request_t peeked; result != 1;)
        OK(mx_peek(b, WAIT_MS, &peeked, &result));
    seen.act = wait_at_the_gate;
    pthread_mutex_lock(&gate);
    OK(mx_register_unexp_handler(b, handler, NULL));
    CHECK(pthread_create(&thread, NULL, progress_until_told, &unregistered) == 0);
    OK(mx_isend(a, NULL, 0, to_b, 8, NULL, NULL));
    for (deadline_t deadline = deadline_in(WAIT_MS); seen.inside == 0;) {
        OK(mx_progress(a));
        CHECK(!deadline_over(deadline));
    }
    /* While the handler runs, posting, testing and cancelling work; no message arrives. */
    CHECK(is_done(b, &early, &status));
    late = receive(b, &in, sizeof in, 9, EXACTLY);
    OK(mx_isend(b, NULL, 0, address_of(b), 10, NULL, NULL));
    succeed(a, send_to(a, to_b, &out, sizeof out, 9), sizeof out);
    stays_pending(b, &late, 50);
    OK(mx_progress(b));
    exchange(a, address_of(a), a, 100, 1); /* another endpoint is not affected */
    CHECK_THAT(seen.calls, ==, 0);
    {
        pthread_t other;

        CHECK(pthread_create(&other, NULL, unregister, NULL) == 0);
        stays_pending(b, &late, 50);
        CHECK(!unregistered);
        pthread_mutex_unlock(&gate);
        CHECK(pthread_join(other, NULL) == 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    succeed(b, late, sizeof in);
    CHECK_THAT(in, ==, 5);
    probe_for(b, 8, EXACTLY);
    probe_for(b, 10, EXACTLY);
    close_two();
}

PARTY_TESTS(
    SOLO(the_handler_is_told_of_every_message_without_a_receive, is_told_of_messages),
    SOLO(a_message_it_has_finished_is_gone_and_its_sender_knows, finishes_messages_off),
    SOLO(inside_everything_works_but_closing, may_do_what_it_likes),
    SOLO(it_runs_one_at_a_time_in_the_order_of_messages, runs_one_at_a_time_in_order),
    SOLO(while_it_runs_other_calls_work_and_nothing_arrives, others_go_on_meanwhile))
