/*
 * Peers that stop moving and are not dead: kill -STOP, and -CONT later.
 *
 *      watcher ──┬── frozen: stopped with operations under way     ends with ETIMEDOUT
 *                ├── door:   stopped before the first call         ends with ETIMEDOUT
 *                └── good:   answers                               notices nothing
 *
 * The peer timeout is TIMEOUT_MS where the death is to be noticed, and PATIENT_MS, which even a busy
 * machine does not make a living peer miss, where the peer is to be waited for. Nothing else could
 * end an operation here: every other time-out is 20 s.
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
    PATIENT_MS = 2000,
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

/* Under a checker living peers are slower too, but not that much. */
static int patient_ms(void)
{
    return PATIENT_MS * (slower() < 2 ? slower() : 2);
}

/* Says hello until it works: the last connection may have to end first. */
static void greet(struct bmi_method_addr *server)
{
    static const char hello[] = "hello";

    for (deadline_t deadline = deadline_in(WAIT_MS);;) {
        struct op receive = {0}, send = {0};
        char buffer[64];

        CHECK(!deadline_over(deadline));
        if (op_recv(&receive, server, buffer, sizeof buffer, 0x0e110) < 0)
            continue;
        if (op_send_unexpected(&send, server, hello, sizeof hello, 0x0e110) >= 0)
            op_wait(&send);
        if ((send.posted < 0 || send.error != 0) && !op_done(&receive))
            CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
        op_wait(&receive);
        if (receive.error == 0)
            return;
    }
}

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
    greet(frozen);
    greet(door);
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

/* ---- a peer that lives is waited for ---- */

static void silent_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive[FEW] = {{0}}, send[FEW] = {{0}};
    char *in[FEW], *out = malloc(OFFERED);

    CHECK(out != NULL);
    tell(side, "ready", 0);
    hear(side, "now"); /* not one call: the helper thread says that we are here */
    fill(out, OFFERED, 99);
    for (int i = 0; i < FEW; i++) {
        in[i] = fenced(OFFERED);
        CHECK_THAT(op_recv(&receive[i], client, in[i], OFFERED, TAG_OFFER + i), >=, 0);
        CHECK_THAT(op_send(&send[i], client, out, OFFERED, TAG_LATE + i), >=, 0);
    }
    for (int i = 0; i < FEW; i++) {
        op_received(&receive[i], OFFERED);
        check_filled(in[i], OFFERED, (uint64_t)i);
        op_sent(&send[i]);
        fenced_free(in[i]);
    }
    for (int i = 0; i < FEW; i++) {
        struct arrival arrival = host_next();

        CHECK_THAT(arrival.size, ==, SHOUT);
        CHECK_THAT(arrival.tag, ==, TAG_SHOUT + i);
        check_filled(arrival.buffer, SHOUT, (uint64_t)i);
        arrival_free(&arrival);
    }
    free(out);
    pair_part(side);
}

static void waits_for_it(struct side *side)
{
    struct op receive[FEW] = {{0}}, send[FEW] = {{0}}, shout[FEW] = {{0}};
    struct bmi_method_addr *server;
    char *in[FEW], *out[FEW];
    int64_t begin;

    set_ms("BMI_MX_PEER_TIMEOUT_MS", patient_ms());
    server = pair_client(side);
    hear(side, "ready");
    begin = now_ms();
    for (int i = 0; i < FEW; i++) {
        in[i] = fenced(OFFERED);
        out[i] = malloc(OFFERED);
        CHECK(out[i] != NULL);
        fill(out[i], OFFERED, (uint64_t)i);
        CHECK_THAT(op_recv(&receive[i], server, in[i], OFFERED, TAG_LATE + i), ==, 0);
        CHECK_THAT(op_send(&send[i], server, out[i], OFFERED, TAG_OFFER + i), ==, 0);
        CHECK_THAT(op_send_unexpected(&shout[i], server, out[i], SHOUT, TAG_SHOUT + i), >=, 0);
    }
    while (now_ms() - begin < 2 * patient_ms() + patient_ms() / 2) {
        host_pump(20);
        for (int i = 0; i < FEW; i++)
            CHECK(!op_done(&receive[i]) && !op_done(&send[i]));
    }
    tell(side, "now", 0);
    for (int i = 0; i < FEW; i++) {
        op_sent(&send[i]);
        op_sent(&shout[i]);
        op_received(&receive[i], OFFERED);
        check_filled(in[i], OFFERED, 99);
        fenced_free(in[i]);
        free(out[i]);
    }
    pair_part(side);
}

/* ---- a freeze shorter than the time-out ---- */

enum { ROUND_SIZES = 5 };
static const bmi_size_t sizes[ROUND_SIZES] = {16, 4000, 40000, 300000, 2 * MIB};

/* Both send and receive `sizes`; the first number of the smallest is 1 in the last round. */
static bool exchange(struct bmi_method_addr *peer, int64_t round, int64_t last, char *in[],
                     char *out[])
{
    struct op receive[ROUND_SIZES] = {{0}}, send[ROUND_SIZES] = {{0}};
    int64_t words[2] = {last, round};

    memcpy(out[0], words, sizeof words);
    for (int i = 1; i < ROUND_SIZES; i++)
        fill(out[i], (size_t)sizes[i], (uint64_t)(round * ROUND_SIZES + i));
    for (int i = 0; i < ROUND_SIZES; i++) {
        CHECK_THAT(op_recv(&receive[i], peer, in[i], sizes[i], i), >=, 0);
        CHECK_THAT(op_send(&send[i], peer, out[i], sizes[i], i), >=, 0);
    }
    for (int i = 0; i < ROUND_SIZES; i++) {
        op_sent(&send[i]);
        op_received(&receive[i], sizes[i]);
        if (i > 0)
            check_filled(in[i], (size_t)sizes[i], (uint64_t)(round * ROUND_SIZES + i));
    }
    memcpy(words, in[0], sizeof words);
    CHECK_THAT(words[1], ==, round);
    return words[0] != 0 || last != 0;
}

static void talk(struct side *side, struct bmi_method_addr *peer, bool leads)
{
    char *in[ROUND_SIZES], *out[ROUND_SIZES];

    for (int i = 0; i < ROUND_SIZES; i++) {
        in[i] = fenced((size_t)sizes[i]);
        out[i] = fenced((size_t)sizes[i]);
    }
    for (int64_t round = 0;; round++) {
        int64_t last = leads && heard_anything(side);

        if (exchange(peer, round, last, in, out))
            break;
        if (round == 3)
            tell(side, "talking", 0);
    }
    for (int i = 0; i < ROUND_SIZES; i++) {
        fenced_free(in[i]);
        fenced_free(out[i]);
    }
    pair_hear(side, "enough");
    tell(side, "done", 0);
    pair_hear(side, "end");
    host_stop();
}

static void talking_server(struct side *side)
{
    tell(side, "endpoint", host_start_server());
    talk(side, pair_accept(), false);
}

static void talking_client(struct side *side)
{
    struct bmi_method_addr *server;

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(server);
    talk(side, server, true);
}

static void freezes_briefly(struct world *world)
{
    struct child *sides[2];

    set_ms("BMI_MX_PEER_TIMEOUT_MS", WAIT_MS); /* both inherit it */
    sides[0] = spawn(world, "server");
    sides[1] = spawn(world, "client");
    unsetenv("BMI_MX_PEER_TIMEOUT_MS");
    child_tell(sides[1], "endpoint", child_hear(sides[0], "endpoint"));
    for (int i = 0; i < 2; i++)
        child_hear(sides[i], "talking");
    for (int i = 0; i < 6; i++) {
        child_stop(sides[i % 2]);
        pause_ms(150);
        child_continue(sides[i % 2]);
        pause_ms(20 + 10 * i); /* to be met at another moment */
    }
    child_tell(sides[1], "enough", 0);
    child_hear(sides[1], "done");
    child_tell(sides[0], "enough", 0);
    child_hear(sides[0], "done");
    for (int i = 0; i < 2; i++) {
        child_tell(sides[i], "end", 0);
        child_end(sides[i]);
    }
}

/* ---- one's own absence is not the peer's ---- */

static void absent_client(struct side *side)
{
    struct bmi_method_addr *server;
    struct op receive = {0}, send = {0};
    char *in = fenced(OFFERED), *out = malloc(OFFERED);

    CHECK(out != NULL);
    fill(out, OFFERED, 5);
    set_ms("BMI_MX_PEER_TIMEOUT_MS", patient_ms());
    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(server);
    CHECK_THAT(op_recv(&receive, server, in, OFFERED, TAG_BIG), ==, 0);
    CHECK_THAT(op_send(&send, server, out, OFFERED, TAG_BIG), ==, 0);
    tell(side, "posted", 0);
    pair_hear(side, "you were away");
    for (deadline_t deadline = now_ms() + patient_ms() / 4; !deadline_over(deadline);)
        host_pump(10);
    CHECK(!op_done(&receive) && !op_done(&send));
    tell(side, "still waiting", 0);
    op_received(&receive, OFFERED);
    check_filled(in, OFFERED, 6);
    op_sent(&send);
    fenced_free(in);
    free(out);
    pair_hear(side, "end");
    host_stop();
}

static void present_server(struct side *side)
{
    struct bmi_method_addr *client;
    struct op receive = {0}, send = {0};
    char *in = fenced(OFFERED), *out = malloc(OFFERED);

    CHECK(out != NULL);
    fill(out, OFFERED, 6);
    tell(side, "endpoint", host_start_server());
    client = pair_accept();
    pair_hear(side, "post");
    CHECK_THAT(op_recv(&receive, client, in, OFFERED, TAG_BIG), >=, 0);
    CHECK_THAT(op_send(&send, client, out, OFFERED, TAG_BIG), >=, 0);
    op_received(&receive, OFFERED);
    op_sent(&send);
    check_filled(in, OFFERED, 5);
    fenced_free(in);
    free(out);
    tell(side, "done", 0);
    pair_hear(side, "end");
    host_stop();
}

static void is_away(struct world *world)
{
    struct child *server = spawn(world, "server"), *client = spawn(world, "client");

    child_tell(client, "endpoint", child_hear(server, "endpoint"));
    child_hear(client, "posted");
    child_stop(client);
    pause_ms(patient_ms() + patient_ms() / 2);
    child_continue(client);
    child_tell(client, "you were away", 0);
    child_hear(client, "still waiting");
    child_tell(server, "post", 0);
    child_hear(server, "done");
    child_tell(client, "end", 0);
    child_end(client);
    child_tell(server, "end", 0);
    child_end(server);
}

static const struct scenario scenarios[] = {
    DIRECTED(everything_with_a_frozen_peer_times_out_and_it_can_be_talked_to_later, freezes,
             {"good", echo_server}, {"frozen", frozen_server}, {"watcher", watcher}),
    PAIR(a_peer_that_lives_but_posts_nothing_is_waited_for, silent_server, waits_for_it),
    DIRECTED(a_freeze_shorter_than_the_time_out_loses_nothing, freezes_briefly,
             {"server", talking_server}, {"client", talking_client}),
    DIRECTED(an_absence_of_ones_own_is_not_held_against_the_peer, is_away,
             {"server", present_server}, {"client", absent_client}),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
