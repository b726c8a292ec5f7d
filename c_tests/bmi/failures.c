/*
 * The order in which a host is told of operations that fail together: sends before receives, whatever ends
 * them, and whatever it asks for at a time (support/exchange.h says why).
 *
 *     client                                  server
 *     three exchanges under way      ◄──►     is killed, restarts
 *
 * Every other end is tested on the simulator (testing/method/sim/failures.rs). There is no helper thread here, so
 * nothing ends between two posts.
 */
#include "../support/exchange.h"
#include "../support/pair.h"
#include "../support/port.h"

#include <stdlib.h>
#include <string.h>

enum {
    MANY = 16,
    ROUNDS = 3,
    ROUNDS_SILENT = 2,
};

static int rounds(void)
{
    return death_is_silent() ? ROUNDS_SILENT : ROUNDS;
}

/* ---- sides ---- */

/* Serves hellos and nothing else, or exchanges too if the director says so, until it is told to stop. */
static void server(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");

    if (endpoint == 0) {
        endpoint = host_start_server();
    } else {
        CHECK_THAT(host_try_server(endpoint), ==, 0);
        CHECK_THAT(ops->open_context(0), ==, 0);
    }
    tell(side, "endpoint", endpoint);
    if (hear(side, "serves"))
        exchanges_serve(side);
    else
        pair_accept();
    pair_hear(side, "stop");
    host_stop();
}

/* Has exchanges that all fail, as often as the director says. */
static void client(struct side *side)
{
    int incount = (int)hear(side, "incount");
    struct bmi_method_addr *server;
    struct exchanges all;

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    while (hear(side, "go on") != 0) {
        pair_hello(server);
        exchanges_begin(&all, server);
        tell(side, "begun", 0);
        CHECK(!exchanges_end(&all, incount, WAIT_MS));
        exchanges_all_failed(&all);
        tell(side, "failed", 0);
    }
    host_stop();
}

/* The same until they go well, with one server after the other. */
static void loyal_client(struct side *side)
{
    int incount = (int)hear(side, "incount");
    struct bmi_method_addr *server;

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    exchanges_lose_servers(side, server, incount);
    host_stop();
}

/* Asks for the completions of some operations, receives first. */
static void asks_for_some(struct side *side)
{
    enum { COUNT = 3 * EXCHANGES };
    bmi_op_id_t ids[COUNT];
    bmi_error_code_t errors[COUNT];
    bmi_size_t sizes[COUNT];
    int places[COUNT], count = 0, told = 0;
    struct bmi_method_addr *server;
    struct exchanges all;

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(server);
    exchanges_begin(&all, server);
    for (int i = 0; i < EXCHANGES; i++)
        ids[count++] = all.answer[i].id;
    for (int i = 0; i < EXCHANGES; i++)
        ids[count++] = all.data[i].id;
    tell(side, "begun", 0);
    hear(side, "killed");
    host_enter_test_call();
    for (deadline_t deadline = deadline_in(WAIT_MS); told == 0;) {
        CHECK(!deadline_over(deadline));
        CHECK_THAT(ops->testsome(count, ids, &told, places, errors, sizes, NULL, 20, 0), ==, 0);
    }
    host_leave_test_call();
    /* They have ended together, and come in the order in which they were asked for. */
    CHECK_THAT(told, ==, count);
    for (int i = 0; i < told; i++) {
        CHECK_THAT(places[i], ==, i);
        CHECK_THAT(errors[i], <, 0);
    }
    /* The requests may have been among what failed. */
    for (int i = 0; i < EXCHANGES; i++)
        if (all.request[i].posted == 0)
            op_wait(&all.request[i]);
    host_stop();
}

/* ---- directors ---- */

static struct child *begin_server(struct world *world, int64_t *endpoint, bool serves)
{
    struct child *server = spawn(world, "server");

    child_tell(server, "endpoint", *endpoint);
    *endpoint = child_hear(server, "endpoint");
    child_tell(server, "serves", serves);
    return server;
}

static struct child *begin_client(struct world *world, int incount, int64_t endpoint)
{
    struct child *client = spawn(world, "client");

    child_tell(client, "incount", incount);
    child_tell(client, "endpoint", endpoint);
    return client;
}

static void end_client(struct child *client)
{
    child_tell(client, "go on", 0);
    child_end(client);
}

/* With one completion at a time, and with many; where that takes long, with one only. */
static void each_incount(struct world *world, void (*with)(struct world *, int))
{
    with(world, 1);
    if (!death_is_silent())
        with(world, MANY);
}

static void kill_while_pending(struct world *world, int incount)
{
    int64_t endpoint = 0;
    struct child *server = begin_server(world, &endpoint, false);
    struct child *client = begin_client(world, incount, endpoint);

    child_tell(client, "go on", 1);
    child_hear(client, "begun");
    child_kill(server);
    child_hear(client, "failed");
    end_client(client);
}

static void kills_while_pending(struct world *world)
{
    each_incount(world, kill_while_pending);
}

static void restart(struct world *world, int incount)
{
    int64_t endpoint = 0;
    struct child *server = begin_server(world, &endpoint, true);
    struct child *client = begin_client(world, incount, endpoint);

    child_hear(client, "well");
    for (int round = 0; round < rounds(); round++) {
        child_tell(client, "go on", 1);
        child_hear(client, "begun");
        child_kill(server);
        child_tell(client, "killed", 0);
        child_hear(client, "failed");
        /* In some rounds it is away for a while. */
        pause_ms(round % 2 * 200);
        server = begin_server(world, &endpoint, true);
        child_hear_within(client, "well", 3 * WAIT_MS);
    }
    end_client(client);
    child_tell(server, "stop", 0);
    child_end(server);
}

static void restarts(struct world *world)
{
    each_incount(world, restart);
}

static void tests_some(struct world *world)
{
    int64_t endpoint = 0;
    struct child *server = begin_server(world, &endpoint, false);
    struct child *client = spawn(world, "client");

    child_tell(client, "endpoint", endpoint);
    child_hear(client, "begun");
    child_kill(server);
    child_tell(client, "killed", 0);
    child_end(client);
}

static const struct scenario scenarios[] = {
    DIRECTED(a_server_that_is_killed_fails_sends_first, kills_while_pending, {"server", server},
             {"client", client}),
    DIRECTED(exchanges_that_are_tried_again_reach_the_next_server, restarts, {"server", server},
             {"client", loyal_client}),
    DIRECTED(testsome_keeps_the_order_of_its_ids, tests_some, {"server", server},
             {"client", asks_for_some}),
    {0},
};

int main(int argc, char **argv)
{
    setenv("MX_HELPER", "off", 1);
    port_notices_deaths_soon();
    return harness_main(argc, argv, scenarios);
}
