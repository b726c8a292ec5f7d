/*
 * Memory runs out: RLIMIT_AS a little above what a process uses once it is running.
 *
 *     requests   without end: refused with MX_NO_RESOURCES, and again possible once the others have
 *                gone; also when the program has all memory itself
 *     messages   from peers, which are not received
 *     peers      that come when there is none
 *
 *     In each case the process goes on, and an honest peer is served afterwards.
 *
 * Over rdm no peer comes while there is no memory: what libfabric does then is not this library's to
 * say.
 */
#include "support/party.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/flood.h"
#include "../support/limit.h"
#include "../support/pattern.h"
#include "../support/port.h"

enum {
    POSTS_MAX = 1000000, /* more than fit */
    POSTS_LEAST = 2000,
    ROUNDS = 3,
    SMALL = 30000,
    LARGE = 100000,
    FLOODERS = 4,
    CROWD = 16,
};

static char buffer[LARGE];

static void exchange_words(struct pair *pair, uint64_t number)
{
    uint64_t in = 0, out = number;
    mx_request_t receiving = receive(pair->ep, &in, sizeof in, number, EXACTLY);

    succeed(pair->ep, send_to(pair->ep, pair->peer, &out, sizeof out, number), sizeof out);
    succeed(pair->ep, receiving, sizeof in);
    CHECK(in == number);
}

/* ---- requests without end ---- */

static void requests_too_much(struct side *side, bool starved)
{
    struct pair pair = pair_open(side);
    mx_segment_t segment = {buffer, sizeof buffer};
    mx_request_t *all = untouched(POSTS_MAX * sizeof *all);

    leave_only(48);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        int count = 0;
        mx_return_t code = MX_SUCCESS;

        if (starved)
            take_all();
        while (count < POSTS_MAX) {
            code = mx_irecv(pair.ep, &segment, 1, 1000 + (uint64_t)count, EXACTLY, NULL,
                            &all[count]);
            if (code != MX_SUCCESS)
                break;
            count++;
        }
        CHECK_THAT(code, ==, MX_NO_RESOURCES);
        if (!starved)
            CHECK_THAT(count, >, POSTS_LEAST);
        for (int i = 0; i < count; i++) {
            uint32_t result = 0;

            OK(mx_cancel(pair.ep, &all[i], &result));
            CHECK_THAT(result, ==, 1);
        }
        give_all();
        tell(side, "round", (int64_t)round);
        exchange_words(&pair, round + 1);
    }
    pair_close(&pair);
}

static void requests(struct side *side) { requests_too_much(side, false); }
static void starves(struct side *side) { requests_too_much(side, true); }

static void waits_for_requests(struct side *side)
{
    struct pair pair = pair_open(side);

    for (uint64_t round = 0; round < ROUNDS; round++) {
        pair_hear(&pair, "round");
        exchange_words(&pair, round + 1);
    }
    pair_close(&pair);
}

/* ---- peers, and messages that are not received ---- */

/* Receives nothing until it is told to, then serves one honest peer. */
static void receive_nothing(struct side *side, bool starved)
{
    mx_endpoint_t ep = party_open();
    uint64_t word = 0;
    mx_status_t found;

    flood_limit(side, id_of(ep), starved);
    while (!heard_anything(side)) {
        OK(mx_progress(ep));
        usleep(1000);
    }
    flood_ended(side);
    while (!heard_anything(side)) {
        uint32_t there = 0;

        OK(mx_iprobe(ep, ANYTHING, ANYTHING, &found, &there));
        if (there && found.match_info == 1)
            finish(ep, receive(ep, buffer, SMALL, 1, EXACTLY)); /* its sender may be dead */
        else if (there) {
            succeed(ep, receive(ep, &word, sizeof word, found.match_info, EXACTLY), sizeof word);
            succeed(ep, send_to(ep, found.source, &word, sizeof word, 2), sizeof word);
        }
    }
    hear(side, "stop");
    party_close(ep);
}

static void receives_nothing(struct side *side) { receive_nothing(side, false); }
static void has_nothing(struct side *side) { receive_nothing(side, true); }

static void sends_without_end(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t to = connect_to(ep, (uint32_t)hear(side, "endpoint"));
    mx_segment_t segment = {buffer, SMALL};

    while (!heard_anything(side)) {
        mx_request_t request;

        if (mx_isend(ep, &segment, 1, to, 1, NULL, &request) == MX_SUCCESS)
            mx_forget(ep, &request);
        else
            usleep(1000);
    }
    _exit(0);
}

/* Over rdm a connection that is made while memory is short may be lost in libfabric: then once more. */
static mx_endpoint_addr_t connect_again_to(mx_endpoint_t ep, uint32_t id)
{
    mx_endpoint_addr_t to;

    for (int tries = port_is("rdm") ? 2 : 0; tries > 0; tries--)
        if (mx_connect(ep, local_nic(), id, KEY, (uint32_t)(WAIT_MS / 2 * slower()), &to) == MX_SUCCESS)
            return to;
    return connect_to(ep, id);
}

static void honest(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpoint_addr_t to = connect_again_to(ep, (uint32_t)hear(side, "endpoint"));
    uint64_t out = 4711, in = 0;
    mx_request_t receiving = receive(ep, &in, sizeof in, 2, EXACTLY);

    succeed(ep, send_to(ep, to, &out, sizeof out, 3), sizeof out);
    succeed(ep, receiving, sizeof in);
    CHECK(in == out);
    tell(side, "served", 0);
    party_close(ep);
}

/* So many come to a server of that role, and are gone after a while. */
static void flood_with(struct world *world, const char *role, int mib, int count)
{
    struct flood flood = flood_begin(world, role, mib);
    struct child *good;

    flood_join(world, &flood, "sender", count);
    flood_over(&flood, FLOOD_MS);
    good = flood_survive(world, &flood, "honest");
    child_hear_within(good, "served", 2 * WAIT_MS);
    child_end(good);
    child_tell(flood.server, "stop", 0);
    child_end(flood.server);
}

static void flood_with_messages(struct world *world)
{
    /* More than there will be. */
    setenv("MX_UNEXPECTED_BYTES", "1G", 1);
    flood_with(world, "idle", 2, FLOODERS);
}

static void flood_with_peers(struct world *world)
{
    if (port_is("rdm"))
        skip_test("libfabric's own code does not stand that");
    flood_with(world, "starved", 4, CROWD);
}

static const struct scenario scenarios[] = {
    PAIR(requests_without_end_are_refused_and_then_others_go_on, requests, waits_for_requests),
    PAIR(requests_without_memory_are_refused_and_then_others_go_on, starves, waits_for_requests),
    DIRECTED(messages_that_are_not_received_end_no_process, flood_with_messages,
             {"idle", receives_nothing}, {"sender", sends_without_end}, {"honest", honest}),
    DIRECTED(peers_that_come_when_there_is_no_memory_are_served_later, flood_with_peers,
             {"starved", has_nothing}, {"sender", sends_without_end}, {"honest", honest}),
    {0},
};

int main(int argc, char **argv)
{
    return party_main(argc, argv, scenarios);
}
