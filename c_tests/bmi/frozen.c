/*
 * Peers that stop moving and are not dead: kill -STOP, and -CONT later.
 *
 *      watcher ──┬── frozen: stopped with operations under way     ends with ETIMEDOUT
 *                ├── door:   stopped before the first call         ends with ETIMEDOUT
 *                └── good:   answers                               notices nothing
 *
 * The peer timeout is TIMEOUT_MS. Nothing else could end an operation here: every other time-out is 20 s. That a
 * peer which lives is waited for is tested on the simulator (testing/method/sim/timeouts.rs).
 */
#include "../support/pair.h"
#include "../support/pattern.h"
#include "../support/port.h"
#include "../support/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1024 * 1024)

enum {
    FEW = 4,
    TIMEOUT_MS = 1000,
    CONNECT_MS = 2500, /* more than a busy machine needs for a connection */
    SLACK_MS = 8000, /* what a busy machine may add */
    BIG = 16 * MIB,
    OFFERED = 2 * MIB, /* more than any port sends unasked (MX_EAGER_MAX) */
    SHOUT = 100000,
    TAG_LOST = 100, /* receives without a message */
    TAG_OFFER = 200,
    TAG_BIG = 300,
    TAG_SHOUT = 400,
    TAG_ECHO = 500,
    TAG_LATE = 600,
};

/* ---- everything with a frozen peer ends ---- */

struct attempts {
    struct op lost[FEW], offer[FEW], shout[FEW], small, big;
    char room[FEW][1000];
};

static void attempt(struct attempts *attempts, struct bmi_method_addr *peer, char *big)
{
    memset(attempts, 0, sizeof *attempts);
    for (int i = 0; i < FEW; i++) {
        CHECK_THAT(op_recv(&attempts->lost[i], peer, attempts->room[i], 1000, TAG_LOST + i), ==, 0);
        CHECK_THAT(op_send(&attempts->offer[i], peer, big, OFFERED, TAG_OFFER + i), ==, 0);
        CHECK_THAT(op_send_unexpected(&attempts->shout[i], peer, big, SHOUT, TAG_SHOUT + i), ==,
                   0);
    }
    CHECK_THAT(op_send(&attempts->small, peer, big, 8, TAG_OFFER + FEW), >=, 0);
    CHECK_THAT(op_send(&attempts->big, peer, big, BIG, TAG_BIG), ==, 0);
}

static bool all_over(struct attempts *attempts)
{
    bool over = op_done(&attempts->small) && op_done(&attempts->big);

    for (int i = 0; i < FEW; i++)
        over = over && op_done(&attempts->lost[i]) && op_done(&attempts->offer[i]) &&
               op_done(&attempts->shout[i]);
    return over;
}

static void all_timed_out(struct attempts *attempts)
{
    for (int i = 0; i < FEW; i++) {
        op_failed(&attempts->lost[i], BMI_ETIMEDOUT);
        op_failed(&attempts->offer[i], BMI_ETIMEDOUT);
        op_failed(&attempts->shout[i], BMI_ETIMEDOUT);
    }
    op_failed(&attempts->big, BMI_ETIMEDOUT);
    /* A small one may be on its way, and is done with, when it has been copied. */
    op_wait(&attempts->small);
    if (attempts->small.error != 0)
        CHECK_THAT(attempts->small.error, ==, -BMI_ETIMEDOUT);
}

static void echoes(struct bmi_method_addr *good, int64_t turn)
{
    static char out[20000], in[20000];
    struct op receive = {0}, send = {0};

    fill(out, sizeof out, (uint64_t)turn);
    CHECK_THAT(op_recv(&receive, good, in, sizeof in, TAG_ECHO), >=, 0);
    CHECK_THAT(op_send_unexpected(&send, good, out, sizeof out, TAG_ECHO), >=, 0);
    op_sent(&send);
    op_received(&receive, sizeof in);
    check_filled(in, sizeof in, (uint64_t)turn);
}

static void watcher(struct side *side)
{
    struct bmi_method_addr *frozen, *good, *door;
    static struct attempts with_frozen, with_door;
    char *big = malloc(BIG), byte;
    struct op idle = {0};
    int64_t begin, turn = 0;

    CHECK(big != NULL);
    memset(big, 1, BIG);
    set_ms("BMI_MX_PEER_TIMEOUT_MS", TIMEOUT_MS);
    set_ms("BMI_MX_CONNECT_TIMEOUT_MS", CONNECT_MS);
    host_start_client();
    good = host_lookup_endpoint((int)hear(side, "good"));
    frozen = host_lookup_endpoint((int)hear(side, "frozen"));
    door = host_lookup_endpoint((int)hear(side, "door"));
    pair_hello(frozen);
    echoes(good, turn++);
    CHECK_THAT(op_recv(&idle, good, &byte, 1, TAG_LOST), ==, 0);
    tell(side, "connected", 0);
    pair_hear(side, "they are stopped");

    begin = now_ms();
    attempt(&with_frozen, frozen, big);
    attempt(&with_door, door, big);
    while (!all_over(&with_frozen)) {
        CHECK_THAT(now_ms() - begin, <, TIMEOUT_MS + SLACK_MS * slower());
        echoes(good, turn++);
    }
    printf("    frozen: timed out after %d of %d ms\n", (int)(now_ms() - begin), TIMEOUT_MS);
    while (!all_over(&with_door)) {
        CHECK_THAT(now_ms() - begin, <, CONNECT_MS + SLACK_MS * slower());
        echoes(good, turn++);
    }
    printf("    door: timed out after %d of %d ms\n", (int)(now_ms() - begin), CONNECT_MS);
    all_timed_out(&with_frozen);
    all_timed_out(&with_door);
    CHECK(!op_done(&idle));
    /* It is not looked at any more, then or later. */
    fill(big, BIG, 7);
    tell(side, "timed out", 0);
    pair_hear(side, "they go on");
    pair_hello_again(frozen);
    pair_hello_again(door);
    echoes(good, turn);
    check_filled(big, BIG, 7);
    CHECK(!op_done(&idle));
    CHECK_THAT(ops->cancel(idle.id, 0), ==, 0);
    op_failed(&idle, BMI_ECANCEL);
    tell(side, "done", 0);
    pair_hear(side, "end");
    free(big);
    host_stop();
}

/* Has operations of its own with the watcher when it is stopped. */
static void frozen_server(struct side *side)
{
    static char room[FEW][1000];
    struct op lost[FEW] = {{0}}, offer[FEW] = {{0}}, big = {0};
    char *in = fenced(BIG), *out = malloc(OFFERED);
    struct bmi_method_addr *client;
    int64_t met = 0;

    CHECK(out != NULL);
    memset(out, 1, OFFERED);
    tell(side, "endpoint", host_start_server());
    client = pair_accept();
    CHECK_THAT(op_recv(&big, client, in, BIG, TAG_BIG), ==, 0);
    for (int i = 0; i < FEW; i++) {
        CHECK_THAT(op_recv(&lost[i], client, room[i], 1000, TAG_LATE + i), ==, 0);
        CHECK_THAT(op_send(&offer[i], client, out, OFFERED, TAG_LATE + i), ==, 0);
    }
    tell(side, "posted", 0);
    hear(side, "go on"); /* stopped meanwhile */
    for (int i = 0; i < FEW; i++) {
        op_wait(&lost[i]);
        op_wait(&offer[i]);
        CHECK_THAT(lost[i].error, <, 0);
        CHECK_THAT(offer[i].error, <, 0);
    }
    op_wait(&big);
    CHECK_THAT(big.error, <, 0);
    fenced_free(in);
    free(out);
    tell(side, "all ended", 0);
    /* Unexpected messages of before may have got through; a greeting is what counts. */
    while (!heard_anything(side)) {
        struct arrival arrival;
        struct op reply = {0};

        if (!host_next_within(&arrival, 10))
            continue;
        if (arrival.tag == 0x0e110 &&
            op_send(&reply, arrival.from, arrival.buffer, arrival.size, arrival.tag) >= 0)
            op_wait(&reply);
        met += arrival.tag == 0x0e110 && reply.error == 0;
        arrival_free(&arrival);
    }
    CHECK_THAT(met, >=, 1);
    hear(side, "stop");
    host_stop();
}

static void freezes(struct world *world)
{
    struct child *good = spawn(world, "good"), *frozen = spawn(world, "frozen");
    struct child *door = spawn(world, "good"), *watcher = spawn(world, "watcher");

    child_tell(watcher, "good", child_hear(good, "endpoint"));
    child_tell(watcher, "frozen", child_hear(frozen, "endpoint"));
    child_tell(watcher, "door", child_hear(door, "endpoint"));
    child_hear(frozen, "posted");
    child_hear(watcher, "connected");
    child_stop(frozen);
    child_stop(door);
    child_tell(watcher, "they are stopped", 0);
    child_hear(watcher, "timed out");
    child_continue(frozen);
    child_continue(door);
    child_tell(frozen, "go on", 0);
    child_hear(frozen, "all ended");
    child_tell(watcher, "they go on", 0);
    child_hear(watcher, "done");
    child_tell(watcher, "end", 0);
    child_end(watcher);
    child_tell(frozen, "stop", 0);
    child_tell(good, "stop", 0);
    child_tell(door, "stop", 0);
    child_end(frozen);
    child_end(good);
    child_end(door);
}

static const struct scenario scenarios[] = {
    DIRECTED(everything_with_a_frozen_peer_times_out_and_it_can_be_talked_to_later, freezes,
             {"good", echo_server}, {"frozen", frozen_server}, {"watcher", watcher}),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
