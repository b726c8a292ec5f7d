/*
 * Cancelling twice, after the operation was reported, and one operation among many: each operation completes
 * exactly once, and the peer and its other operations stay. testing/torture cancels at every moment of an
 * operation's life.
 *
 * Side a is a server, side b a client; the client cancels.
 */
#include "../support/pair.h"

#define MIB (1024 * 1024)

/* More than any port sends eagerly (MX_EAGER_MAX): the send waits for its receive. */
enum { OFFERED = 2 * MIB };

/* Cancels, and waits for the one completion, which has to come in bounded time. */
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

/* Polls long enough for a second, wrong completion to show. */
static void nothing_more(void)
{
    for (int i = 0; i < 20; i++)
        CHECK_THAT(host_testcontext(16, 0, 1), ==, 0);
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

/* Number of operations that are posted before the id of the oldest reported one is reused: src/op/blocks.rs. */
#ifdef BMI_MX_STANDALONE
enum { KEPT = 1024 };
#else
enum { KEPT = 32 };
#endif

/* Checks the words that a host reads of an operation before it asks the method: docs/hosts.md, Operation ids. */
static void check_readable(bmi_op_id_t id, const struct bmi_method_addr *peer)
{
    const char *op = (const char *)(intptr_t)id;
    const struct bmi_method_addr *address;
    int64_t read;

    memcpy(&read, op, sizeof read);
    CHECK_THAT(read, ==, id);
    memcpy(&address, op + ADDRESS_AT, sizeof address);
    CHECK(address == peer);
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
        check_readable(late[i].id, server);
        cancelled(&late[i]);
    }
    /* Old ids stay readable while more and more operations are posted. */
    for (int i = 0; i < KEPT; i++) {
        for (int n = 0; n < 4; n++) {
            check_readable(late[n].id, server);
            CHECK_THAT(ops->cancel(late[n].id, 0), ==, 0);
        }
        CHECK_THAT(op_recv(&receives[i], server, buffers[i], 8, 100 + i), ==, 0);
    }
    nothing_more();
    for (int i = 0; i < KEPT; i++)
        CHECK(!op_done(&receives[i]));
    for (int i = 0; i < KEPT; i++)
        cancelled(&receives[i]);
    /* An operation of another context gets the old id: cancelling that id in context 0 leaves it alone. */
    for (int i = 0; elsewhere.id != late[0].id; i++) {
        CHECK_THAT(i, <, 16 * KEPT);
        if (i > 0)
            cancelled(&elsewhere);
        elsewhere = (struct op){.context = 1};
        CHECK_THAT(op_recv(&elsewhere, server, other, sizeof other, 2), ==, 0);
    }
    check_readable(late[0].id, server);
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
        struct op receive = {0};

        CHECK_THAT(op_recv(&receive, client, body, sizeof body, 10 + i), >=, 0);
        op_received(&receive, 150000 + i);
        check_filled(body, (size_t)(150000 + i), (uint64_t)i);
        send_message(client, body, 150000 + i, 20 + i);
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

TESTS(
    PAIR(cancelling_twice_completes_once, only_server, cancels_twice),
    PAIR(cancelling_a_reported_operation_does_nothing, only_server, cancels_reported),
    PAIR(cancelling_a_send_keeps_the_peer_and_its_other_operations, others_server,
         others_client))
