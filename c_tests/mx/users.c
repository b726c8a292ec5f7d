/*
 * Users of one machine: endpoints that root opens, in processes that are other users when they connect.
 *
 *     root ── mx_open_endpoint ── setuid ──► some user ── mx_connect ──►  root, another user, or one that
 *                    `── fork, setuid, mx_open_endpoint ──►                   was root itself
 */
#include "support/party.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/user.h"

enum { SIZE = 1000 };

/* Each sends one message and receives the other's. */
static void exchange_with(mx_endpoint_t ep, mx_endpoint_addr_t peer, uint64_t bits)
{
    char out[SIZE] = "message", in[SIZE];
    mx_request_t request = send_to(ep, peer, out, SIZE, bits);

    succeed(ep, receive(ep, in, SIZE, bits, EXACTLY), SIZE);
    succeed(ep, request, SIZE);
}

/* Becomes `before`, opens, becomes `after`, and connects; 0: stays as it is. */
static void meets(struct side *side, uid_t before, uid_t after)
{
    struct pair pair = {.side = side};

    if (before != 0)
        become_for_good(before);
    pair.ep = party_open();
    if (after != 0)
        become_for_good(after);
    pair.id = id_of(pair.ep);
    tell(side, "endpoint", pair.id);
    pair.peer_id = (uint32_t)hear(side, "endpoint");
    pair.peer = connect_to(pair.ep, pair.peer_id);
    exchange_with(pair.ep, pair.peer, 1);
    pair_close(&pair);
}

static void root(struct side *side) { meets(side, 0, 0); }
static void another(struct side *side) { meets(side, ANOTHER_USER, 0); }
static void was_root(struct side *side) { meets(side, 0, SOME_USER); }
static void was_root_too(struct side *side) { meets(side, 0, ANOTHER_USER); }

static void was_root_by_auto(struct side *side)
{
    CHECK(setenv("MX_PORT", "auto", 1) == 0);
    was_root(side);
}

static void another_by_auto(struct side *side)
{
    CHECK(setenv("MX_PORT", "auto", 1) == 0);
    another(side);
}

/* The effective user changes between any two connects. */
static void to_and_fro(struct side *side)
{
    struct pair pair = {.side = side, .ep = party_open()};
    int64_t peers[2];

    tell(side, "endpoint", pair.id = id_of(pair.ep));
    peers[0] = hear(side, "endpoint");
    peers[1] = hear(side, "endpoint");
    for (int i = 0; i < 2; i++) {
        become_for_now(i == 0 ? SOME_USER : 0);
        pair.peer = connect_to(pair.ep, (uint32_t)peers[i]);
        exchange_with(pair.ep, pair.peer, 1);
        become_for_now(i == 0 ? 0 : SOME_USER);
    }
    /* As which a leak checker may look at this process. */
    become_for_now(0);
    pair_close(&pair);
}

static void two_endpoints_of_another(struct side *side)
{
    struct pair pair = {.side = side};
    mx_endpoint_t second;
    uint32_t caller;

    become_for_good(ANOTHER_USER);
    pair.ep = party_open();
    second = open_any();
    tell(side, "endpoint", id_of(pair.ep));
    tell(side, "endpoint", id_of(second));
    caller = (uint32_t)hear(side, "endpoint");
    exchange_with(pair.ep, connect_to(pair.ep, caller), 1);
    exchange_with(second, connect_to(second, caller), 1);
    OK(mx_close_endpoint(second));
    pair_close(&pair);
}

/* The child opens an endpoint of its own. */
static void has_a_child(struct side *side)
{
    mx_endpoint_t ep = party_open();
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        become_for_good(SOME_USER);
        meets(side, 0, 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    party_close(ep);
}

static const struct scenario scenarios[] = {
    PAIR(who_was_root_meets_root, was_root, root),
    PAIR(who_was_root_meets_another_user, was_root, another),
    PAIR(both_were_root, was_root, was_root_too),
    PAIR(by_auto_too, was_root_by_auto, another_by_auto),
    PAIR(who_changes_to_and_fro_is_one_peer, to_and_fro, two_endpoints_of_another),
    PAIR(a_child_of_fork_can_be_another_user, has_a_child, another),
    {0},
};

int main(int argc, char **argv)
{
    if (!users_can_be_had())
        skip_tests("only root can give up its user");
    return party_main(argc, argv, scenarios);
}
