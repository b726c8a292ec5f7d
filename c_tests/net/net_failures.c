/*
 * A server that is killed and restarted, while its client has exchanges with it, over a path of two
 * milliseconds (make check-net, root).
 *
 *      client ── side0 ══ port0 ──[ cable: delay ]── port1 ══ side0 ── the server's machine
 *
 * The machine lives on and refuses connections while there is no server. A refusal takes longer than the
 * posts, so that all of an exchange waits when it comes; on a loopback device a post itself is refused. The
 * client must hear of sends first (support/exchange.h), and its exchanges reach the next server. The figures
 * are from the start of that one.
 */
#include "../support/cable.h"
#include "../support/exchange.h"
#include "../support/net.h"
#include "../support/pair.h"
#include "../support/port.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 3, AWAY_MS = 1500, MANY = 16, CLIENT = 0, SERVER = 1 };

static const struct way path = {.delay_us = 2000};

/* ---- sides ---- */

/* Does nothing but be there. */
static void machine(struct side *side)
{
    become_host(side);
    tell(side, "machine", getpid());
    while (!heard_anything(side))
        pause_ms(20);
}

static void server(struct side *side)
{
    int endpoint;

    enter_host((pid_t)hear(side, "machine"));
    endpoint = (int)hear(side, "endpoint");
    if (endpoint == 0) {
        endpoint = host_start_server();
    } else {
        CHECK_THAT(host_try_server(endpoint), ==, 0);
        CHECK_THAT(ops->open_context(0), ==, 0);
    }
    tell(side, "endpoint", endpoint);
    exchanges_serve(side);
    host_stop();
}

static void client(struct side *side)
{
    int incount = (int)hear(side, "incount");
    struct bmi_method_addr *server;

    become_host(side);
    host_start_client();
    server = look_up(SERVER, (int)hear(side, "endpoint"));
    exchanges_lose_servers(side, server, incount);
    host_stop();
}

/* ---- the director ---- */

static struct child *begin_server(struct world *world, int64_t machine, int64_t *endpoint)
{
    struct child *server = spawn(world, "server");

    child_tell(server, "machine", machine);
    child_tell(server, "endpoint", *endpoint);
    *endpoint = child_hear(server, "endpoint");
    return server;
}

static void restart(struct world *world, int incount)
{
    struct child *machine, *client, *server;
    int64_t endpoint = 0, home, worst = 0, refused = 0;
    struct cable *cable;

    make_hub();
    client = spawn(world, "client");
    child_tell(client, "incount", incount);
    machine = spawn(world, "machine");
    plug_in_plain(client, CLIENT, true);
    plug_in_plain(machine, SERVER, true);
    cable = cable_lay("port0", "port1", &path, &path);
    home = child_hear(machine, "machine");
    server = begin_server(world, home, &endpoint);
    child_tell(client, "endpoint", endpoint);
    child_hear(client, "well");
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin;

        child_tell(client, "go on", 1);
        child_hear(client, "begun");
        child_kill(server);
        child_tell(client, "killed", 0);
        child_hear(client, "failed");
        pause_ms(AWAY_MS);
        begin = now_ms();
        server = begin_server(world, home, &endpoint);
        refused += child_hear_within(client, "well", 3 * WAIT_MS);
        worst = now_ms() - begin > worst ? now_ms() - begin : worst;
    }
    CHECK_THAT(refused, >=, ROUNDS);
    printf("    %s, %d at a time: %d restarts, %d refusals, all well %d ms after the next server began\n",
           port_name(), incount, ROUNDS, (int)refused, (int)worst);
    child_tell(client, "go on", 0);
    child_end(client);
    child_tell(server, "stop", 0);
    child_end(server);
    child_tell(machine, "end", 0);
    child_end(machine);
    cable_remove(cable);
}

static void restarts_one(struct world *world)
{
    restart(world, 1);
}

static void restarts_many(struct world *world)
{
    restart(world, MANY);
}

static const struct scenario scenarios[] = {
    DIRECTED(restarts_over_a_path_with_completions_one_at_a_time, restarts_one,
             {"machine", machine}, {"server", server}, {"client", client}),
    DIRECTED(restarts_over_a_path_with_many_completions_at_a_time, restarts_many,
             {"machine", machine}, {"server", server}, {"client", client}),
    {0},
};

int main(int argc, char **argv)
{
    /* Nothing ends between two posts. */
    setenv("MX_HELPER", "off", 1);
    port_notices_deaths_soon();
    return harness_main(argc, argv, scenarios);
}
