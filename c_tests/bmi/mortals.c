/*
 * Two hundred clients come to one server and are killed in the middle of something; another one
 * goes on exchanging messages with it all the time.
 *
 *      steady ──────────── request, reply, request, reply ... ────────────►┌────────┐
 *      mortal 1 ── connects ──✗                                            │ server │
 *      mortal 2 ── connects, sends, receives ──✗          ...          ───►└────────┘
 *
 * The steady one sees no error. What the server holds after the first few it holds after the
 * last: descriptors, threads, mappings, memory, addresses.
 */
#include "../support/leftovers.h"
#include "../support/pair.h"
#include "../support/pattern.h"
#include "../support/port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024 * 1024)

enum {
    MORTALS = 200,
    MORTALS_RDM = 12, /* libfabric takes its time to open */
    AT_A_TIME = 64,
    TAG_STEADY = 1,
    TAG_MORTAL = 2,
    TAG_LOST = 100,
    EARLY = 4,        /* every fourth dies before it has connected */
    GROWTH_KB = 3072, /* what malloc may keep of the largest crowd there was */
    GROWTH_RDM_KB = 8192, /* libfabric's own, of the most connections it had at a time */
};

static int mortals(void)
{
    return port_is("rdm") ? MORTALS_RDM : MORTALS / (slower() < 3 ? slower() : 3);
}

/* So many die before what the server holds is written down. */
static int warm(void)
{
    return port_is("rdm") ? mortals() / 2 : mortals() / 8;
}

/* ---- the server ---- */

/* Operations with one mortal. */
struct visit {
    struct bmi_method_addr *from; /* NULL: free */
    struct op receive, send;
    char room[1000];
};

static struct visit visits[AT_A_TIME];
static char *offered;

static int visitors(void)
{
    int count = 0;

    for (int i = 0; i < AT_A_TIME; i++)
        count += visits[i].from != NULL;
    return count;
}

/* A post to the dead may be refused. */
static bool is_over(const struct op *op)
{
    return op->posted < 0 || op_done(op);
}

static void must_have_failed(struct op *op)
{
    if (op->posted < 0)
        return;
    op_wait(op);
    CHECK_THAT(op->error, <, 0);
}

static void visit_has_ended(struct visit *visit)
{
    must_have_failed(&visit->receive);
    must_have_failed(&visit->send);
    visit->from = NULL;
}

static void welcome(struct bmi_method_addr *from)
{
    struct visit *visit = NULL;

    for (int i = 0; i < AT_A_TIME; i++) {
        /* It has the endpoint, and so the address, of one who died a moment ago. */
        if (visits[i].from == from)
            visit_has_ended(&visits[i]);
        if (visits[i].from == NULL && visit == NULL)
            visit = &visits[i];
    }
    CHECK(visit != NULL);
    memset(visit, 0, sizeof *visit);
    visit->from = from;
    op_recv(&visit->receive, from, visit->room, sizeof visit->room, TAG_LOST);
    op_send(&visit->send, from, offered, MIB, TAG_LOST);
}

static void see_out_the_dead(void)
{
    for (int i = 0; i < AT_A_TIME; i++) {
        struct visit *visit = &visits[i];
        struct bmi_method_addr *from = visit->from;

        if (from == NULL || !is_over(&visit->receive) || !is_over(&visit->send))
            continue;
        /* The library says when its address may be dropped: not while it lives. */
        if (host_release(from))
            visit_has_ended(visit);
    }
}

static void attend(void)
{
    struct arrival arrival;
    struct op reply = {0};

    see_out_the_dead();
    if (!host_next_within(&arrival, 2))
        return;
    if (arrival.tag == TAG_STEADY) {
        CHECK_THAT(op_send(&reply, arrival.from, arrival.buffer, arrival.size, TAG_STEADY), >=, 0);
        op_sent(&reply);
    } else {
        CHECK_THAT(arrival.tag, ==, TAG_MORTAL);
        if (op_send(&reply, arrival.from, arrival.buffer, arrival.size, TAG_MORTAL) >= 0)
            op_wait(&reply);
        welcome(arrival.from);
    }
    arrival_free(&arrival);
}

/* At "settle" it waits until every mortal it has seen is gone, and looks at what it holds. */
static void server(struct side *side)
{
    static struct holdings first, last;
    int64_t turn = 0;

    offered = calloc(1, MIB);
    CHECK(offered != NULL);
    tell(side, "endpoint", host_start_server());
    while (turn >= 0) {
        deadline_t deadline = deadline_in(WAIT_MS);

        if (!heard_anything(side)) {
            attend();
            continue;
        }
        turn = hear(side, "settle");
        while (visitors() > 0 || host_addresses() > 1) {
            if (deadline_over(deadline))
                FAIL("%d visitors and %d addresses stay", visitors(), host_addresses());
            attend();
        }
        if (turn == 1)
            holdings_take(&first);
        if (turn == 2) {
            holdings_compare(&first, &last);
            /* A checker keeps freed memory; it looks for what is lost by itself. */
            if (slower() == 1)
                CHECK_THAT(last.resident - first.resident, <=,
                           port_is("rdm") ? GROWTH_RDM_KB : GROWTH_KB);
            printf("    %ld KiB after %d, %ld KiB after %d\n", first.resident, warm(),
                   last.resident, mortals());
        }
        tell(side, "settled", 0);
    }
    free(offered);
    host_stop();
}

/* ---- clients ---- */

static void steady(struct side *side)
{
    static char out[20000], in[20000];
    struct bmi_method_addr *address;
    int64_t turn = 0;

    host_start_client();
    address = host_lookup_endpoint((int)hear(side, "endpoint"));
    while (!heard_anything(side)) {
        struct op receive = {0}, send = {0};

        fill(out, sizeof out, (uint64_t)turn);
        CHECK_THAT(op_recv(&receive, address, in, sizeof in, TAG_STEADY), >=, 0);
        CHECK_THAT(op_send_unexpected(&send, address, out, sizeof out, TAG_STEADY), >=, 0);
        op_sent(&send);
        op_received(&receive, sizeof in);
        check_filled(in, sizeof in, (uint64_t)turn);
        if (turn++ == 0)
            tell(side, "begun", 0);
    }
    hear(side, "stop");
    tell(side, "turns", turn);
    pair_hear(side, "end");
    host_stop();
}

static void mortal(struct side *side)
{
    struct op receive = {0}, send = {0}, lost = {0}, offer = {0};
    struct bmi_method_addr *address;
    char *big = calloc(1, MIB), in[8], byte;

    CHECK(big != NULL);
    host_start_client();
    address = host_lookup_endpoint((int)hear(side, "endpoint"));
    CHECK_THAT(op_recv(&receive, address, in, sizeof in, TAG_MORTAL), >=, 0);
    CHECK_THAT(op_send_unexpected(&send, address, big, sizeof in, TAG_MORTAL), >=, 0);
    tell(side, "begun", 0);
    op_sent(&send);
    op_received(&receive, sizeof in);
    CHECK_THAT(op_recv(&lost, address, &byte, 1, TAG_STEADY), >=, 0);
    CHECK_THAT(op_send(&offer, address, big, MIB, TAG_STEADY), >=, 0);
    tell(side, "busy", 0);
    pair_await_death();
}

static void settle(struct child *child, int64_t turn)
{
    child_tell(child, "settle", turn);
    child_hear(child, "settled");
}

static void kills_two_hundred(struct world *world)
{
    struct child *house = spawn(world, "server"), *other = spawn(world, "steady");
    int64_t endpoint = child_hear(house, "endpoint"), turns;

    child_tell(other, "endpoint", endpoint);
    child_hear(other, "begun");
    for (int i = 0; i < mortals(); i++) {
        struct child *victim = spawn(world, "mortal");

        child_tell(victim, "endpoint", endpoint);
        child_hear(victim, "begun");
        if (i % EARLY != 0)
            child_hear(victim, "busy");
        child_kill(victim);
        if (i == warm())
            settle(house, 1);
    }
    settle(house, 2);
    child_tell(other, "stop", 0);
    turns = child_hear(other, "turns");
    CHECK_THAT(turns, >=, 1);
    printf("    %lld turns of the steady client meanwhile\n", (long long)turns);
    child_tell(other, "end", 0);
    child_end(other);
    settle(house, -1);
    child_end(house);
}

static const struct scenario scenarios[] = {
    DIRECTED(two_hundred_killed_clients_leave_nothing_and_disturb_no_other, kills_two_hundred,
             {"server", server}, {"steady", steady}, {"mortal", mortal}),
    {0},
};

int main(int argc, char **argv)
{
    port_notices_deaths_soon();
    return harness_main(argc, argv, scenarios);
}
