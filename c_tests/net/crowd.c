/*
 * Servers that all call each other at the same instant, on a network that swallows the end of each TCP connection
 * (root).
 *
 *     16 servers ──── lo of a namespace, where nft drops every packet with FIN or RST
 *
 * A server learns only from the session's own packets that the other side has left, and a new life finds the
 * connections of its former one still open.
 */
#include "../support/crowd.h"
#include "../support/machines.h"
#include "../support/net.h"

static void ends_are_swallowed(struct world *world)
{
    machines_begin("nft --version");
    run("ip link set lo up");
    run("nft 'add table inet wall; add chain inet wall in { type filter hook input priority 0; }; "
        "add rule inet wall in tcp flags & (fin|rst) != 0 counter drop'");
    crowd_meets(world);
    CHECK(tried("nft list chain inet wall in | grep -q 'packets [1-9]'"));
}

TESTS(
    DIRECTED(sixteen_servers_that_all_call_all_at_once_need_no_end_of_tcp, ends_are_swallowed, {"server", one_of_crowd}))
