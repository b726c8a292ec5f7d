/*
 * cancel at every moment of an operation's life, and later: exactly one completion, the peer stays.
 *
 *     queued ── offered / unmatched ── in flight ── complete, not reported ── reported
 *        │             │                  │                 │                   │
 *     ECANCEL       ECANCEL       ECANCEL or done    what it was anyway      nothing
 *
 * docs/buffers.md says what the other side sees. Side a is a server, side b a client; the
 * client cancels.
 */
#include "../support/pair.h"
#include "../support/pattern.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024 * 1024)

/* More than any port sends unasked (MX_EAGER_MAX): a send that waits until its receive is there. */
enum { OFFERED = 2 * MIB };

/* Cancels, and lets the one completion come out in bounded time. */
static void cancel(struct op *op)
{
    CHECK_THAT(ops->cancel(op->id, op->context), ==, 0);
    if (!op_wait_within(op, 2000))
        FAIL("a cancelled operation does not complete");
    CHECK(op->error == 0 || op->error == -BMI_ECANCEL);
}

static void cancelled(struct op *op)
{
    cancel(op);
    CHECK_THAT(op->error, ==, -BMI_ECANCEL);
}

/* One message each way with a tag of its own: the peers still work. */
static void still_works(struct bmi_method_addr *peer, uint64_t seed)
{
    static char out[50000], in[50000];
    struct op send = {0}, receive = {0};

    fill(out, sizeof out, seed);
    CHECK_THAT(op_recv(&receive, peer, in, sizeof in, 0x600d), >=, 0);
    CHECK_THAT(op_send(&send, peer, out, sizeof out, 0x600d), >=, 0);
    op_sent(&send);
    op_received(&receive, sizeof in);
    check_filled(in, sizeof in, seed);
}

/* Pumps long enough for a second, wrong completion to show. */
static void nothing_more(void)
{
    for (int i = 0; i < 20; i++)
        CHECK_THAT(host_testcontext(16, 0, 1), ==, 0);
}

/* ---- queued: not even connected, because the server is stopped ---- */

static void gets_one_after_cancelled(struct side *side)
{
    struct arrival arrival;

    pair_serve(side);
    stop_here(side);
    arrival = host_next();
    CHECK_THAT(arrival.tag, ==, 2); /* the cancelled ones (tag 1) never came */
    still_works(arrival.from, 1);
    arrival_free(&arrival);
    pair_part(side);
}

static void cancels_queued(struct side *side)
{
    static char body[100000];
    struct bmi_method_addr *server = pair_join(side);
    struct op send = {0}, unexpected = {0}, receive = {0}, real = {0};
    pid_t stopped = hear_stopped(side);

    fill(body, sizeof body, 9);
    CHECK_THAT(op_recv(&receive, server, body, sizeof body, 1), ==, 0);
    CHECK_THAT(op_send(&send, server, body, sizeof body, 1), ==, 0);
    CHECK_THAT(op_send_unexpected(&unexpected, server, body, 100, 1), ==, 0);
    CHECK_THAT(ops->cancel(unexpected.id, 0), ==, 0);
    CHECK_THAT(ops->cancel(send.id, 0), ==, 0);
    CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    op_failed(&send, BMI_ECANCEL);
    op_failed(&unexpected, BMI_ECANCEL);
    op_failed(&receive, BMI_ECANCEL);
    nothing_more();
    CHECK(kill(stopped, SIGCONT) == 0);
    CHECK_THAT(op_send_unexpected(&real, server, body, 100, 2), >=, 0);
    op_sent(&real);
    still_works(server, 1);
    pair_part(side);
}

/* ---- unmatched ---- */

static void sends_after_cancel(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    int64_t number = 42;
    struct op send = {0}, receive = {0};
    static char room[OFFERED];

    pair_hear(side, "cancelled");
    CHECK_THAT(op_send(&send, client, &number, 8, 1), >=, 0);
    op_sent(&send);
    /* The client's large sends with tag 2 and 3 were withdrawn; this is the one after. */
    for (int tag = 2; tag <= 3; tag++) {
        CHECK_THAT(op_recv(&receive, client, room, sizeof room, tag), >=, 0);
        op_received(&receive, 80000);
        check_filled(room, 80000, (uint64_t)tag);
    }
    still_works(client, 2);
    pair_part(side);
}

static void cancels_unmatched(struct side *side)
{
    static char body[2][OFFERED];
    struct bmi_method_addr *server = pair_client(side);
    struct op first = {0}, second = {0}, send[2] = {{0}}, again[2] = {{0}};
    int64_t numbers[2] = {-1, -1};

    CHECK_THAT(op_recv(&first, server, &numbers[0], 8, 1), ==, 0);
    CHECK_THAT(op_recv(&second, server, &numbers[1], 8, 1), ==, 0);
    cancelled(&first);
    for (int i = 0; i < 2; i++) {
        CHECK_THAT(op_send(&send[i], server, body[i], OFFERED, 2 + i), ==, 0);
        for (int k = 0; k < 10 * i; k++) /* the second has been offered to the peer by now */
            host_pump(1);
        cancelled(&send[i]);
        fill(body[i], 80000, 2 + (uint64_t)i);
    }
    tell(side, "cancelled", 0);
    /* The message goes to the receive that is left; the cancelled one's buffer is ours. */
    op_received(&second, 8);
    CHECK_THAT(numbers[1], ==, 42);
    CHECK_THAT(numbers[0], ==, -1);
    for (int i = 0; i < 2; i++) {
        CHECK_THAT(op_send(&again[i], server, body[i], 80000, 2 + i), >=, 0);
        op_sent(&again[i]);
    }
    still_works(server, 2);
    nothing_more();
    pair_part(side);
}

/* ---- a cancelled unmatched operation is out after one progress call (promise 3) ---- */

static void cancels_within_one_call(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    char buffer[64];

    for (int i = 0; i < 100; i++) {
        struct op receive = {0};

        CHECK_THAT(op_recv(&receive, server, buffer, sizeof buffer, 1), ==, 0);
        CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
        CHECK_THAT(host_testcontext(4, 0, 0), ==, 1);
        CHECK_THAT(receive.error, ==, -BMI_ECANCEL);
    }
    pair_part(side);
}

static void idle_server(struct side *side)
{
    pair_server(side);
    pair_part(side);
}

/* ---- in flight ---- */

static const int moments[] = {0, 1, 2, 3, 4, 6, 9, 14, 20, 30};
enum { MOMENTS = sizeof moments / sizeof moments[0], FLIGHT_SIZE = 16 * MIB };

/* Receives being filled. The sender learns it: its send completes, with success if the data
 * was through, else with an error. */
static void sends_to_canceller(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    char *body = fenced(FLIGHT_SIZE);

    fill(body, FLIGHT_SIZE, 1);
    for (int i = 0; i < MOMENTS; i++) {
        struct op send = {0};

        CHECK_THAT(op_send(&send, client, body, FLIGHT_SIZE, i), >=, 0);
        if (pair_hear(side, "was it cancelled") == 1 && !op_done(&send)) {
            /* Not matched yet when it was cancelled: then it is still on offer. */
            if (!op_wait_within(&send, 200))
                cancelled(&send);
        }
        op_wait(&send);
        fenced_check(body);
        tell(side, "next", send.error);
        still_works(client, (uint64_t)i);
    }
    fenced_free(body);
    pair_part(side);
}

static void cancels_receives_in_flight(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    unsigned char *buffer = fenced(FLIGHT_SIZE);
    int was_cancelled = 0;

    for (int i = 0; i < MOMENTS; i++) {
        struct op receive = {0};

        CHECK_THAT(op_recv(&receive, server, buffer, FLIGHT_SIZE, i), >=, 0);
        for (int k = 0; k < moments[i] && !op_done(&receive); k++)
            host_pump(0);
        if (!op_done(&receive))
            cancel(&receive);
        if (receive.error == 0) {
            CHECK_THAT(receive.size, ==, FLIGHT_SIZE);
            check_filled(buffer, FLIGHT_SIZE, 1);
        }
        was_cancelled += receive.error != 0;
        /* It is ours again (promise 2): nothing may write to it any more. */
        fill(buffer, FLIGHT_SIZE, 4);
        tell(side, "was it cancelled", receive.error != 0);
        pair_hear(side, "next");
        still_works(server, (uint64_t)i);
        check_filled(buffer, FLIGHT_SIZE, 4);
        fenced_check(buffer);
    }
    CHECK_THAT(was_cancelled, >, 0); /* at least the one cancelled before any progress */
    fenced_free(buffer);
    nothing_more();
    pair_part(side);
}

/* Sends being pulled. A receive that had matched waits again, as if nothing had been sent;
 * or it has got the whole message already, which the sender could not know yet. Never a part
 * of it, and never a byte written after the cancel. */
static void receives_from_canceller(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    char *buffer = fenced(FLIGHT_SIZE);

    for (int i = 0; i < MOMENTS; i++) {
        struct op receive = {0}, marker = {0};
        int64_t is_cancelled;

        CHECK_THAT(op_recv(&receive, client, buffer, FLIGHT_SIZE, i), >=, 0);
        tell(side, "posted", 0);
        is_cancelled = pair_hear(side, "was it cancelled");
        /* Comes behind whatever was sent of the large message, and behind its withdrawal. */
        CHECK_THAT(op_recv(&marker, client, NULL, 0, 0x3a3a), >=, 0);
        op_received(&marker, 0);
        if (is_cancelled && !op_done(&receive)) {
            tell(side, "still waiting", 1);
            op_received(&receive, 123456);
            check_filled(buffer, 123456, 6);
        } else {
            op_received(&receive, FLIGHT_SIZE);
            check_filled(buffer, FLIGHT_SIZE, 5);
            tell(side, "still waiting", 0);
        }
        still_works(client, (uint64_t)i);
    }
    fenced_free(buffer);
    pair_part(side);
}

static void cancels_sends_in_flight(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    char *body = fenced(FLIGHT_SIZE), *second = fenced(123456);
    int was_cancelled = 0;

    fill(second, 123456, 6);
    for (int i = 0; i < MOMENTS; i++) {
        struct op send = {0}, marker = {0};

        fill(body, FLIGHT_SIZE, 5);
        pair_hear(side, "posted");
        CHECK_THAT(op_send(&send, server, body, FLIGHT_SIZE, i), >=, 0);
        for (int k = 0; k < moments[i] && !op_done(&send); k++)
            host_pump(0);
        if (!op_done(&send))
            cancel(&send);
        was_cancelled += send.error != 0;
        /* Ours again: what we write now must not be seen by the receiver. */
        if (send.error != 0)
            memset(body, 0xdd, FLIGHT_SIZE);
        tell(side, "was it cancelled", send.error != 0);
        CHECK_THAT(op_send(&marker, server, NULL, 0, 0x3a3a), >=, 0);
        op_sent(&marker);
        if (pair_hear(side, "still waiting") == 1) {
            struct op real = {0};

            CHECK_THAT(op_send(&real, server, second, 123456, i), >=, 0);
            op_sent(&real);
        }
        still_works(server, (uint64_t)i);
    }
    CHECK_THAT(was_cancelled, >, 0);
    fenced_free(body);
    fenced_free(second);
    nothing_more();
    pair_part(side);
}

/* ---- complete already ---- */

static void completes_then_cancelled(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[60000];
    struct op receive = {0}, send = {0};

    CHECK_THAT(op_recv(&receive, client, body, sizeof body, 1), >=, 0);
    op_received(&receive, sizeof body);
    check_filled(body, sizeof body, 8);
    CHECK_THAT(op_send(&send, client, body, 700, 2), >=, 0);
    op_sent(&send);
    tell(side, "done", 0);
    still_works(client, 3);
    pair_part(side);
}

static void cancels_completed(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char body[60000], in[1000];
    struct op send = {0}, receive = {0};
    bmi_op_id_t stale;

    CHECK_THAT(ops->open_context(1), ==, 0);
    fill(body, sizeof body, 8);
    /* In context 1, which is not tested: complete but not reported. */
    send.context = receive.context = 1;
    CHECK_THAT(op_recv(&receive, server, in, sizeof in, 2), ==, 0);
    CHECK_THAT(op_send(&send, server, body, sizeof body, 1), >=, 0);
    pair_hear(side, "done");
    for (int i = 0; i < 20; i++)
        host_pump(1);
    if (!op_done(&send))
        CHECK_THAT(ops->cancel(send.id, 1), ==, 0);
    CHECK_THAT(ops->cancel(receive.id, 1), ==, 0);
    op_sent(&send); /* success: it was delivered (fault 4) */
    op_received(&receive, 700);
    /* And reported already: a stale id. The host calls all the same; nothing comes of it. */
    stale = receive.id;
    for (int i = 0; i < 3; i++)
        (void)ops->cancel(stale, 1);
    for (int i = 0; i < 20; i++) {
        CHECK_THAT(host_testcontext(16, 1, 0), ==, 0);
        CHECK_THAT(host_testcontext(16, 0, 1), ==, 0);
    }
    still_works(server, 3);
    ops->close_context(1);
    pair_part(side);
}

/* ---- twice ---- */

static void cancels_twice(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    char buffer[64];
    struct op receive = {0}, send = {0};
    static char body[OFFERED];

    CHECK_THAT(op_recv(&receive, server, buffer, sizeof buffer, 1), ==, 0);
    CHECK_THAT(op_send(&send, server, body, sizeof body, 1), ==, 0);
    CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    CHECK_THAT(ops->cancel(send.id, 0), ==, 0);
    CHECK_THAT(ops->cancel(send.id, 0), ==, 0);
    op_failed(&receive, BMI_ECANCEL);
    op_failed(&send, BMI_ECANCEL);
    nothing_more();
    pair_part(side);
}

/* ---- too late ---- */

/* Operations that are posted before the oldest reported one's id is given out again: src/op/places.rs. */
#ifdef BMI_MX_STANDALONE
enum { KEPT = 1024 };
#else
enum { KEPT = 32 };
#endif

/* What a host reads of an operation before it asks the method: docs/hosts.md, Operation ids. */
static void check_readable(bmi_op_id_t id)
{
    const char *op = (const char *)(intptr_t)id;
    struct bmi_method_addr *address;
    int64_t read;

    memcpy(&read, op, sizeof read);
    CHECK_THAT(read, ==, id);
    memcpy(&address, op + ADDRESS_AT, sizeof address);
    CHECK_THAT(address->method_type, ==, METHOD_ID);
}

static void cancels_reported(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char buffers[KEPT][8], other[8];
    static struct op receives[KEPT];
    struct op late[4] = {{0}}, elsewhere = {0};

    CHECK_THAT(ops->open_context(1), ==, 0);
    for (int i = 0; i < 4; i++) {
        CHECK_THAT(op_recv(&late[i], server, other, sizeof other, 1), ==, 0);
        cancelled(&late[i]);
    }
    /* While nothing else is posted, and while ever more are. */
    for (int i = 0; i < KEPT; i++) {
        for (int n = 0; n < 4; n++) {
            check_readable(late[n].id);
            CHECK_THAT(ops->cancel(late[n].id, 0), ==, 0);
        }
        CHECK_THAT(op_recv(&receives[i], server, buffers[i], 8, 100 + i), ==, 0);
    }
    nothing_more();
    for (int i = 0; i < KEPT; i++)
        CHECK(!op_done(&receives[i]));
    for (int i = 0; i < KEPT; i++)
        cancelled(&receives[i]);
    /* One of another context gets the id: it stays. */
    for (int i = 0; elsewhere.id != late[0].id; i++) {
        CHECK_THAT(i, <, 16 * KEPT);
        if (i > 0)
            cancelled(&elsewhere);
        elsewhere = (struct op){.context = 1};
        CHECK_THAT(op_recv(&elsewhere, server, other, sizeof other, 2), ==, 0);
    }
    check_readable(late[0].id);
    CHECK_THAT(ops->cancel(late[0].id, 0), ==, 0);
    nothing_more();
    CHECK(!op_done(&elsewhere));
    cancelled(&elsewhere);
    nothing_more();
    ops->close_context(1);
    pair_part(side);
}

/* ---- the other operations of the peer are left alone (fault list 8.4, Mercury) ---- */

static void others_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[200000];

    pair_hear(side, "cancelled");
    for (int i = 0; i < 5; i++) {
        struct op send = {0}, receive = {0};

        CHECK_THAT(op_recv(&receive, client, body, sizeof body, 10 + i), >=, 0);
        op_received(&receive, 150000 + i);
        check_filled(body, (size_t)(150000 + i), (uint64_t)i);
        CHECK_THAT(op_send(&send, client, body, 150000 + i, 20 + i), >=, 0);
        op_sent(&send);
    }
    pair_part(side);
}

static void others_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char out[5][200000], in[5][200000], lost[OFFERED];
    struct op send[5] = {{0}}, receive[5] = {{0}}, victim[5] = {{0}};

    for (int i = 0; i < 5; i++) {
        fill(out[i], sizeof out[i], (uint64_t)i);
        CHECK_THAT(op_recv(&receive[i], server, in[i], sizeof in[i], 20 + i), ==, 0);
        CHECK_THAT(op_send(&victim[i], server, lost, sizeof lost, 99), ==, 0);
        CHECK_THAT(op_send(&send[i], server, out[i], 150000 + i, 10 + i), >=, 0);
    }
    for (int i = 0; i < 10; i++)
        host_pump(1);
    for (int i = 0; i < 5; i++)
        cancelled(&victim[i]);
    tell(side, "cancelled", 0);
    for (int i = 0; i < 5; i++) {
        op_sent(&send[i]);
        op_received(&receive[i], 150000 + i);
        check_filled(in[i], (size_t)(150000 + i), (uint64_t)i);
    }
    pair_part(side);
}

static const struct scenario scenarios[] = {
    PAIR(queued_operations_are_cancelled_before_the_connection_is_up, gets_one_after_cancelled,
         cancels_queued),
    PAIR(unmatched_operations_are_cancelled_and_later_ones_match, sends_after_cancel,
         cancels_unmatched),
    PAIR(a_cancelled_unmatched_receive_is_reported_by_the_next_test_call, idle_server,
         cancels_within_one_call),
    PAIR(receives_in_flight_are_cancelled_and_their_buffers_come_back, sends_to_canceller,
         cancels_receives_in_flight),
    PAIR(sends_in_flight_are_cancelled_and_the_receive_waits_again, receives_from_canceller,
         cancels_sends_in_flight),
    PAIR(cancel_leaves_completed_operations_as_they_are, completes_then_cancelled,
         cancels_completed),
    PAIR(cancelling_twice_completes_once, idle_server, cancels_twice),
    PAIR(cancelling_what_was_reported_does_nothing_and_reads_nothing_wrong, idle_server, cancels_reported),
    PAIR(cancelling_a_send_keeps_the_peer_and_its_other_operations, others_server,
         others_client),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
