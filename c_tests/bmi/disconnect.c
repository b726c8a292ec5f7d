/*
 * A connection ends although both sides live: BMI_DROP_ADDR of the last address, or finalize; by
 * either side, also while a large message moves. By both at once, and while it begins, in every order: on the simulator
 * (testing/method/sim/explore.rs).
 *
 *     receives posted, sends offered or queued ──► -BMI_ENETRESET, once each, at once for the side
 *                                                  that ended it, for the other when it hears of it
 *     operations with others                   ──► nothing happens to them
 *     the next post                            ──► connects again
 *
 * There is no helper thread here (MX_HELPER=off): a side that makes no call hears of nothing, which
 * makes the order of things certain.
 */
#include "../support/guard.h"
#include "../support/pair.h"
#include "../support/pattern.h"
#include "../support/port.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024 * 1024)

/* ---- operations without an answer ---- */

enum { WAITING = 4, WAITING_SIZE = 300000, TAG_WANTED = 100, TAG_OFFERED = 200 };

struct waiting {
    struct op receive[WAITING], send[WAITING], list;
    char *bytes;
};

static struct waiting *wait_with(struct bmi_method_addr *peer)
{
    struct waiting *waiting = calloc(1, sizeof *waiting);
    struct cut cut;

    CHECK(waiting != NULL);
    waiting->bytes = fenced(WAITING_SIZE);
    for (int i = 0; i < WAITING; i++) {
        CHECK_THAT(op_recv(&waiting->receive[i], peer, waiting->bytes, 1000, TAG_WANTED + i), ==, 0);
        CHECK_THAT(op_send(&waiting->send[i], peer, waiting->bytes, WAITING_SIZE, TAG_OFFERED + i),
                   ==, 0);
    }
    cut = cut_up(waiting->bytes, WAITING_SIZE, 5000, 100, 2);
    CHECK_THAT(op_send_cut(&waiting->list, peer, &cut, TAG_OFFERED), ==, 0);
    cut_free(&cut);
    return waiting;
}

static struct op *waiting_op(struct waiting *waiting, int i)
{
    return i < WAITING       ? &waiting->receive[i]
           : i < 2 * WAITING ? &waiting->send[i - WAITING]
                             : &waiting->list;
}

static void still_waiting(struct waiting *waiting)
{
    for (int i = 0; i <= 2 * WAITING; i++)
        CHECK(!op_done(waiting_op(waiting, i)));
}

/* All have that end; nothing else and nothing more comes. */
static void all_ended(struct waiting *waiting, int error)
{
    for (int i = 0; i <= 2 * WAITING; i++)
        op_failed(waiting_op(waiting, i), error);
    for (int i = 0; i < 5; i++)
        CHECK_THAT(host_testcontext(64, 0, 0), ==, 0);
    fenced_free(waiting->bytes);
    free(waiting);
}

/* Without waiting: the next call has them. */
static void all_end_now(struct waiting *waiting, int error)
{
    host_testcontext(64, 0, 0);
    for (int i = 0; i <= 2 * WAITING; i++)
        CHECK(op_done(waiting_op(waiting, i)));
    all_ended(waiting, error);
}

/* One message each way. */
static void exchange(struct bmi_method_addr *peer, int tag)
{
    static char out[50000], in[50000];
    struct op send = {0}, receive = {0};

    fill(out, sizeof out, (uint64_t)tag);
    CHECK_THAT(op_recv(&receive, peer, in, sizeof in, tag), >=, 0);
    CHECK_THAT(op_send(&send, peer, out, sizeof out, tag), >=, 0);
    op_sent(&send);
    op_received(&receive, sizeof in);
    check_filled(in, sizeof in, (uint64_t)tag);
}

/* The first message each way after a connection was lost: what was before it is over. */
static void meet_again(struct bmi_method_addr *peer)
{
    struct op send = {0};
    struct arrival arrival;

    CHECK_THAT(op_send_unexpected(&send, peer, "again", 6, 1), >=, 0);
    op_sent(&send);
    arrival = host_next();
    CHECK(arrival.from == peer);
    arrival_free(&arrival);
}

/* ---- one of two servers is left, or leaves ---- */

/* Its client leaves it; then it reaches that client again, by an address that it has kept. */
static void left_server(struct side *side)
{
    struct bmi_method_addr *client;
    struct waiting *waiting;

    tell(side, "endpoint", host_start_server());
    client = pair_accept();
    waiting = wait_with(client);
    pair_hear(side, "left");
    all_ended(waiting, BMI_ENETRESET);
    meet_again(client); /* posted before the client knows of us again, or after */
    exchange(client, 1);
    pair_hear(side, "bye");
    host_stop();
}

static void undisturbed_server(struct side *side)
{
    struct bmi_method_addr *client;

    tell(side, "endpoint", host_start_server());
    client = pair_accept();
    pair_hear(side, "answer");
    for (int i = 0; i < WAITING; i++) {
        static char room[WAITING_SIZE];
        struct op send = {0}, receive = {0};

        CHECK_THAT(op_recv(&receive, client, room, sizeof room, TAG_OFFERED + i), >=, 0);
        CHECK_THAT(op_send(&send, client, "answer", 6, TAG_WANTED + i), >=, 0);
        op_received(&receive, WAITING_SIZE);
        op_sent(&send);
    }
    pair_hear(side, "bye");
    host_stop();
}

static void answered(struct waiting *waiting, struct bmi_method_addr *peer)
{
    for (int i = 0; i < WAITING; i++) {
        op_received(&waiting->receive[i], 6);
        op_sent(&waiting->send[i]);
    }
    /* The list is not received. */
    CHECK_THAT(ops->cancel(waiting->list.id, 0), ==, 0);
    op_failed(&waiting->list, BMI_ECANCEL);
    fenced_free(waiting->bytes);
    free(waiting);
    (void)peer;
}

static void leaves_one(struct side *side)
{
    struct bmi_method_addr *left, *kept;
    struct waiting *with_left, *with_kept;
    int endpoint;

    host_start_client();
    left = host_lookup_endpoint(endpoint = (int)hear(side, "endpoint"));
    kept = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(left);
    pair_hello(kept);
    with_left = wait_with(left);
    with_kept = wait_with(kept);
    for (int i = 0; i < 5; i++)
        host_pump(1);
    host_drop(left);
    all_end_now(with_left, BMI_ENETRESET);
    still_waiting(with_kept);
    tell(side, "left", 0);
    left = host_lookup_endpoint(endpoint);
    meet_again(left);
    exchange(left, 1);
    still_waiting(with_kept);
    tell(side, "again", 0);
    answered(with_kept, kept);
    tell(side, "done", 0);
    pair_hear(side, "bye");
    host_stop();
}

static void one_is_left(struct world *world)
{
    struct child *left = spawn(world, "left"), *kept = spawn(world, "kept");
    struct child *client = spawn(world, "client");

    child_tell(client, "endpoint", child_hear(left, "endpoint"));
    child_tell(client, "endpoint", child_hear(kept, "endpoint"));
    child_hear(client, "left");
    child_tell(left, "left", 0);
    child_hear(client, "again");
    child_tell(kept, "answer", 0);
    child_hear(client, "done");
    child_tell(left, "bye", 0);
    child_tell(kept, "bye", 0);
    child_tell(client, "bye", 0);
}

/* The server leaves, with everything under way, and is there again. */
static void leaving_server(struct side *side)
{
    int endpoint = host_start_server();
    struct bmi_method_addr *client;
    struct waiting *waiting;

    tell(side, "endpoint", endpoint);
    client = pair_accept();
    waiting = wait_with(client);
    pair_hear(side, "leave");
    host_stop(); /* not one of the operations is reported: there is no call for it */
    fenced_free(waiting->bytes);
    free(waiting);
    tell(side, "left", 0);
    hear(side, "come back");
    host_serve_at(endpoint);
    tell(side, "back", 0);
    pair_accept();
    pair_hear(side, "bye");
    host_stop();
}

static void is_left(struct side *side)
{
    struct bmi_method_addr *leaving, *kept;
    struct waiting *with_leaving, *with_kept;

    host_start_client();
    leaving = host_lookup_endpoint((int)hear(side, "endpoint"));
    kept = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(leaving);
    pair_hello(kept);
    with_leaving = wait_with(leaving);
    with_kept = wait_with(kept);
    tell(side, "leave", 0);
    pair_hear(side, "left");
    all_ended(with_leaving, BMI_ENETRESET);
    still_waiting(with_kept);
    tell(side, "come back", 0);
    pair_hear(side, "back");
    pair_hello(leaving); /* the address is as good as before */
    answered(with_kept, kept);
    tell(side, "done", 0);
    pair_hear(side, "bye");
    host_stop();
}

static void one_leaves(struct world *world)
{
    struct child *leaving = spawn(world, "leaving"), *kept = spawn(world, "kept");
    struct child *client = spawn(world, "client");

    child_tell(client, "endpoint", child_hear(leaving, "endpoint"));
    child_tell(client, "endpoint", child_hear(kept, "endpoint"));
    child_hear(client, "leave");
    child_tell(leaving, "leave", 0);
    child_hear(leaving, "left");
    child_tell(client, "left", 0);
    child_hear(client, "come back");
    child_tell(leaving, "come back", 0);
    child_hear(leaving, "back");
    child_tell(kept, "answer", 0);
    child_tell(client, "back", 0);
    child_hear(client, "done");
    child_tell(leaving, "bye", 0);
    child_tell(kept, "bye", 0);
    child_tell(client, "bye", 0);
}

/* ---- while a large message moves ---- */

enum { MOVING_SIZE = 16 * MIB, MOVES = 8 };

/* In even rounds the receiver drops the sender, in odd ones the sender the receiver; later and
 * later. In the first two the sender makes no call after its post, so that nothing has moved. */
static bool i_drop(bool i_receive, int round)
{
    return i_receive == (round % 2 == 0);
}

static void move_on(int round, const struct op *op)
{
    for (int i = 0; i < round / 2 * 2 && !op_done(op); i++)
        host_testcontext(1, 0, 0);
}

static void moves(struct side *side, bool receives, bool serves)
{
    struct room room = room_for(MOVING_SIZE);
    struct bmi_method_addr *peer;
    int endpoint = 0, broken = 0;

    if (serves) {
        pair_serve(side);
        peer = pair_accept();
    } else {
        endpoint = (int)hear(side, "endpoint");
        host_start_client();
        peer = host_lookup_endpoint(endpoint);
        pair_hello(peer);
    }
    for (int round = 0; round < MOVES; round++) {
        bool i_do = i_drop(receives, round);
        struct op op = {0};

        /* Both go on calling while the other's hello may still need an answer of theirs. */
        pair_sync(side);
        room_lend(&room);
        if (receives) {
            hear(side, "posted");
            CHECK_THAT(op_recv(&op, peer, room.bytes, MOVING_SIZE, round), ==, 0);
            for (int i = 0; i < 3 && !op_done(&op); i++)
                host_testcontext(1, 0, 0);
        } else {
            fill(room.bytes, MOVING_SIZE, (uint64_t)round);
            CHECK_THAT(op_send(&op, peer, room.bytes, MOVING_SIZE, round), ==, 0);
            tell(side, "posted", 0);
        }
        tell(side, "go", 0);
        hear(side, "go");
        move_on(round, &op);
        if (i_do) {
            host_drop(peer);
            if (!op_done(&op))
                CHECK_THAT(host_testcontext(1, 0, 0), ==, 1);
            tell(side, "dropped", 0);
        } else {
            pair_hear(side, "dropped");
        }
        op_wait(&op);
        if (op.error == 0 && receives)
            check_filled(room.bytes, MOVING_SIZE, (uint64_t)round);
        else if (op.error != 0)
            CHECK_THAT(op.error, ==, -BMI_ENETRESET);
        if (round < 2 && !port_is("rdm")) /* there the provider may read by itself */
            CHECK_THAT(op.error, ==, -BMI_ENETRESET);
        broken += op.error != 0;
        room_take_away(&room);
        /* Whichever side connects, and whichever dropped: the next message gets through. */
        pair_sync(side);
        if (serves) {
            peer = pair_accept();
        } else {
            if (i_do)
                peer = host_lookup_endpoint(endpoint);
            /* When the operation ended well before the end of the connection was noticed, the next
             * message ends with that. */
            if (i_do || op.error != 0 || !pair_try_hello(peer))
                pair_hello(peer);
        }
    }
    CHECK(broken > 0 || port_is("rdm"));
    pair_part(side);
}

static void server_receives(struct side *side)
{
    moves(side, true, true);
}

static void server_sends(struct side *side)
{
    moves(side, false, true);
}

static void client_receives(struct side *side)
{
    moves(side, true, false);
}

static void client_sends(struct side *side)
{
    moves(side, false, false);
}

static const struct scenario scenarios[] = {
    DIRECTED(dropping_a_server_ends_what_there_is_with_it_and_nothing_else, one_is_left,
             {"left", left_server}, {"kept", undisturbed_server}, {"client", leaves_one}),
    DIRECTED(a_server_that_finalizes_ends_what_there_is_with_it_and_nothing_else, one_leaves,
             {"leaving", leaving_server}, {"kept", undisturbed_server}, {"client", is_left}),
    PAIR(a_connection_ends_while_a_large_message_moves_to_the_server, server_receives,
         client_sends),
    PAIR(a_connection_ends_while_a_large_message_moves_to_the_client, server_sends,
         client_receives),
    {0},
};

int main(int argc, char **argv)
{
    setenv("MX_HELPER", "off", 1);
    return harness_main(argc, argv, scenarios);
}
