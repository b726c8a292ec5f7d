/*
 * Peers that stop, die, close, or exit right after their last send.
 *
 *     stopped   posting, testing and cancelling go on; small sends complete, others wait
 *     killed    what was under way ends with a status; what had arrived stays
 *     exited    a large send that was complete has been delivered
 */
#include "support/party.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/pattern.h"
#include "../support/port.h"

enum { SMALL = 1000, LARGE = 2000000 };

static bool is_end(mx_status_code_t code)
{
    /* Over some ports a dead process is merely silent. */
    return code == MX_STATUS_ENDPOINT_UNREACHABLE || code == MX_STATUS_ENDPOINT_CLOSED ||
           (code == MX_STATUS_TIMEOUT && death_is_silent());
}

/* Both sides of every test begin so. */
static struct pair meet_peer(struct side *side)
{
    struct pair pair = {.side = side, .ep = party_open()};

    pair.id = id_of(pair.ep);
    tell(side, "id", pair.id);
    pair.peer_id = (uint32_t)hear(side, "id");
    pair.peer = connect_to(pair.ep, pair.peer_id);
    tell(side, "ready", 0);
    return pair;
}

/* ---- the peer ---- */

static void echoes_until_told(struct side *side)
{
    struct pair pair = meet_peer(side);
    char *buffer = fenced(LARGE);

    for (int64_t turn; (turn = pair_hear(&pair, "echo")) >= 0;) {
        mx_status_t found = probe_for(pair.ep, (uint64_t)turn, EXACTLY);
        size_t size = found.msg_length;

        succeed(pair.ep, receive(pair.ep, buffer, size, (uint64_t)turn, EXACTLY), size);
        succeed(pair.ep, send_to(pair.ep, pair.peer, buffer, size, (uint64_t)turn), size);
        tell(side, "echoed", turn);
    }
    fenced_free(buffer);
    party_close(pair.ep);
}

static void sends_and_exits(struct side *side)
{
    struct pair pair = meet_peer(side);
    char *out = malloc(LARGE);

    CHECK(out != NULL);
    fill(out, LARGE, 5);
    succeed(pair.ep, send_to(pair.ep, pair.peer, out, LARGE, 5), LARGE);
    _exit(0); /* nothing is closed */
}

/* ---- the one that stays ---- */

static void stays(struct side *side)
{
    struct pair pair = meet_peer(side);
    char *out = fenced(LARGE), *in = fenced(LARGE);
    mx_request_t synchronous, large, request;
    mx_status_t status;
    uint32_t result = 77;
    int64_t begin;

    fill(out, LARGE, 1);
    hear(side, "stopped");
    /* Posting, testing and cancelling return at once; small sends complete. */
    begin = now_ms();
    for (uint64_t i = 0; i < 10; i++)
        succeed(pair.ep, send_to(pair.ep, pair.peer, out, SMALL, 100 + i), SMALL);
    synchronous = ssend_to(pair.ep, pair.peer, out, SMALL, 1);
    large = send_to(pair.ep, pair.peer, out, LARGE, 2);
    request = receive(pair.ep, in, LARGE, 3, EXACTLY);
    OK(mx_cancel(pair.ep, &request, &result));
    CHECK_THAT(result, ==, 1);
    CHECK(!is_done(pair.ep, &synchronous, &status) && !is_done(pair.ep, &large, &status));
    exchange(pair.ep, address_of(pair.ep), pair.ep, SMALL, 7);
    CHECK_THAT(now_ms() - begin, <, 2000 * slower());
    stays_pending(pair.ep, &synchronous, 100);
    stays_pending(pair.ep, &large, 100);
    tell(side, "continue", 0);
    hear(side, "continued");
    succeed(pair.ep, synchronous, SMALL);
    request = receive(pair.ep, in, LARGE, 2, EXACTLY);
    succeed(pair.ep, large, LARGE);
    succeed(pair.ep, request, LARGE);
    check_filled(in, LARGE, 1);
    tell(side, "done", 0);
    hear(side, "end");
    party_close(pair.ep);
    fenced_free(out);
    fenced_free(in);
}

static void meet(struct child *a, struct child *b)
{
    int64_t id_a = child_hear(a, "id"), id_b = child_hear(b, "id");

    child_tell(a, "id", id_b);
    child_tell(b, "id", id_a);
    child_hear(a, "ready");
    child_hear(b, "ready");
}

static void a_stopped_peer(struct world *world)
{
    struct child *stopped = spawn(world, "peer"), *other = spawn(world, "stays");

    meet(stopped, other);
    child_stop(stopped);
    child_tell(other, "stopped", 0);
    child_hear(other, "continue");
    child_continue(stopped);
    child_tell(other, "continued", 0);
    child_tell(stopped, "echo", 1);
    child_hear(stopped, "echoed");
    child_tell(stopped, "echo", 2);
    child_hear(stopped, "echoed");
    child_hear(other, "done");
    child_tell(stopped, "echo", -1);
    child_end(stopped);
    child_tell(other, "end", 0);
    child_end(other);
}

/* ---- killed ---- */

static void survives(struct side *side)
{
    struct pair pair = meet_peer(side);
    char *out = fenced(LARGE), *in = fenced(LARGE);
    mx_request_t sends[3], from_any, retry;
    mx_status_t status;
    uint32_t result;

    from_any = receive(pair.ep, in, LARGE, 9, EXACTLY);
    sends[0] = send_to(pair.ep, pair.peer, out, LARGE, 1);
    sends[1] = ssend_to(pair.ep, pair.peer, out, SMALL, 2);
    sends[2] = ssend_to(pair.ep, pair.peer, out, 0, 3);
    tell(side, "kill", 0);
    for (int i = 0; i < 3; i++) {
        status = finish(pair.ep, sends[i]);
        if (!is_end(status.code))
            FAIL("send %d to a process that was killed: %s", i, status_text(status.code));
        CHECK_THAT(errors.count, ==, 1);
    }
    /* A receive is from any peer, so it waits on. */
    stays_pending(pair.ep, &from_any, 20);
    /* The peer is not there any more. */
    OK(mx_iconnect(pair.ep, local_nic(), pair.peer_id, KEY, 0, NULL, &retry));
    status = finish(pair.ep, retry);
    STATUS_IS(status, MX_STATUS_ENDPOINT_CLOSED);
    status = finish(pair.ep, send_to(pair.ep, pair.peer, out, SMALL, 4));
    STATUS_IS(status, MX_STATUS_ENDPOINT_UNREACHABLE);
    OK(mx_cancel(pair.ep, &from_any, &result));
    CHECK_THAT(result, ==, 1);
    tell(side, "done", 0);
    party_close(pair.ep);
    fenced_free(out);
    fenced_free(in);
}

static void a_killed_peer(struct world *world)
{
    struct child *victim = spawn(world, "peer"), *survivor = spawn(world, "survives");

    meet(victim, survivor);
    child_hear(survivor, "kill");
    child_kill(victim);
    child_hear(survivor, "done");
    child_end(survivor);
}

/* ---- what had arrived stays ---- */

static void inherits(struct side *side)
{
    struct pair pair = meet_peer(side);
    char in[SMALL];

    for (uint64_t i = 0; i < 10; i++)
        probe_for(pair.ep, i, EXACTLY);
    tell(side, "arrived", 0);
    hear(side, "gone");
    /* It is noticed before the messages are asked for. */
    for (deadline_t deadline = deadline_in(WAIT_MS);;) {
        mx_status_t status = finish(pair.ep, ssend_to(pair.ep, pair.peer, NULL, 0, 99));

        if (status.code != MX_STATUS_SUCCESS)
            break;
        CHECK(!deadline_over(deadline));
    }
    for (uint64_t i = 0; i < 10; i++) {
        uint64_t nic;
        uint32_t id;
        mx_status_t status =
            succeed(pair.ep, receive(pair.ep, in, SMALL, i, EXACTLY), SMALL);

        check_filled(in, SMALL, i);
        CHECK(same_address(status.source, pair.peer)); /* a peer is known for good */
        OK(mx_decompose_endpoint_addr(status.source, &nic, &id));
        CHECK_THAT(id, ==, pair.peer_id);
    }
    tell(side, "done", 0);
    party_close(pair.ep);
}

static void leaves_messages(struct side *side)
{
    struct pair pair = meet_peer(side);
    char out[SMALL];

    for (uint64_t i = 0; i < 10; i++) {
        fill(out, SMALL, i);
        succeed(pair.ep, send_to(pair.ep, pair.peer, out, SMALL, i), SMALL);
    }
    hear(side, "close");
    party_close(pair.ep);
}

static void what_had_arrived(struct world *world)
{
    for (int killed = 0; killed < 2; killed++) {
        struct child *sender = spawn(world, "leaves"), *heir = spawn(world, "inherits");

        meet(sender, heir);
        child_hear(heir, "arrived");
        if (killed) {
            child_kill(sender);
        } else {
            child_tell(sender, "close", 0);
            child_end(sender);
        }
        child_tell(heir, "gone", 0);
        child_hear(heir, "done");
        child_end(heir);
    }
}

/* ---- exit right after ---- */

static void receives_the_last(struct side *side)
{
    struct pair pair = meet_peer(side);
    char *in = fenced(LARGE);
    mx_request_t request;

    request = receive(pair.ep, in, LARGE, 5, EXACTLY);
    hear(side, "gone"); /* its sender has exited before we look */
    succeed(pair.ep, request, LARGE);
    check_filled(in, LARGE, 5);
    party_close(pair.ep);
    fenced_free(in);
}

static void exits_right_after(struct world *world)
{
    struct child *sender = spawn(world, "exits"), *receiver = spawn(world, "last");

    meet(sender, receiver);
    child_end(sender);
    child_tell(receiver, "gone", 0);
    child_end(receiver);
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        DIRECTED(a_stopped_peer_blocks_no_other, a_stopped_peer, {"peer", echoes_until_told},
                 {"stays", stays}),
        DIRECTED(what_is_under_way_to_a_killed_peer_ends, a_killed_peer,
                 {"peer", echoes_until_told}, {"survives", survives}),
        DIRECTED(messages_that_had_arrived_outlive_their_sender, what_had_arrived,
                 {"leaves", leaves_messages}, {"inherits", inherits}),
        DIRECTED(a_large_send_that_is_complete_has_been_delivered, exits_right_after,
                 {"exits", sends_and_exits}, {"last", receives_the_last}),
        {0},
    };

    return party_main(argc, argv, scenarios);
}
