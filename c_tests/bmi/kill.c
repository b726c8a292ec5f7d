/*
 * kill -9 of either side, at any moment. The survivor's operations complete with an error,
 * it keeps serving others, and the dead one's successor can come back.
 *
 * The director kills; sides report to it. Deaths are noticed through the socket at once, over
 * dgram perhaps by silence (promise 7), whose time is set low here: WAIT_MS is generous.
 */
#include "../support/pair.h"
#include "../support/pattern.h"
#include "../support/port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024 * 1024)
enum { PENDING = 6, ROUNDS = 4, ROUNDS_SILENT = 2 };

/* A silent death takes a while. */
static int rounds(void)
{
    return death_is_silent() ? ROUNDS_SILENT : ROUNDS;
}

/* ---- roles ---- */

/* A server that has, with its first client, receives and sends pending; reports when they
 * have all failed; then serves any number of further clients until told to stop. */
static void patient_server(struct side *side)
{
    struct bmi_method_addr *victim;
    static char room[PENDING][1000];
    char *big = fenced(16 * MIB);
    int64_t served = 0;

    tell(side, "endpoint", host_start_server());
    for (int round = 0; round < rounds(); round++) {
        struct op receive[PENDING] = {{0}}, send[PENDING] = {{0}}, moving = {0};
        int failed = 0;

        victim = pair_accept();
        for (int i = 0; i < PENDING; i++) {
            CHECK_THAT(op_recv(&receive[i], victim, room[i], sizeof room[i], 100 + i), ==, 0);
            CHECK_THAT(op_send(&send[i], victim, big, 2 * MIB, 200 + i), ==, 0);
        }
        CHECK_THAT(op_recv(&moving, victim, big, 16 * MIB, 1), >=, 0);
        tell(side, "pending", 0);
        for (int i = 0; i < PENDING; i++) {
            op_wait(&receive[i]);
            op_wait(&send[i]);
            failed += (receive[i].error < 0) + (send[i].error < 0);
        }
        op_wait(&moving);
        CHECK_THAT(failed, ==, 2 * PENDING); /* never success (fault 1) */
        tell(side, "all failed", failed);
        /* Posts to the dead: accepted or refused, but if accepted they complete. */
        {
            struct op late = {0};

            if (op_send(&late, victim, room, 8, 1) >= 0) {
                if (!op_wait_within(&late, 1000)) {
                    CHECK_THAT(ops->cancel(late.id, 0), ==, 0);
                    op_wait(&late);
                }
            }
        }
        pair_accept(); /* another client, quite alive */
        served++;
        tell(side, "served", served);
    }
    pair_hear(side, "stop");
    fenced_free(big);
    host_stop();
}

/* Connects, starts a large message, and waits to be killed in the middle of it. */
static void victim_client(struct side *side)
{
    struct bmi_method_addr *server;
    char *big = malloc(16 * MIB);
    struct op moving = {0};

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(server);
    CHECK(big != NULL);
    memset(big, 1, 16 * MIB);
    CHECK_THAT(op_send(&moving, server, big, 16 * MIB, 1), >=, 0);
    tell(side, "moving", 0);
    for (deadline_t deadline = deadline_in(3 * WAIT_MS); !deadline_over(deadline);)
        host_pump(1);
    FAIL("it was not killed");
}

static void short_client(struct side *side)
{
    host_start_client();
    pair_hello(host_lookup_endpoint((int)hear(side, "endpoint")));
    host_stop();
}

/* ---- kill -9 of clients ---- */

static void kills_clients(struct world *world)
{
    struct child *server = spawn(world, "server");
    int64_t endpoint = child_hear(server, "endpoint");

    for (int round = 0; round < rounds(); round++) {
        struct child *victim = spawn(world, "victim"), *next;

        child_tell(victim, "endpoint", endpoint);
        child_hear(server, "pending");
        if (round % 2 == 0)
            child_hear(victim, "moving");
        child_kill(victim);
        child_hear(server, "all failed");
        next = spawn(world, "short");
        child_tell(next, "endpoint", endpoint);
        CHECK_THAT(child_hear(server, "served"), ==, round + 1);
        child_end(next);
    }
    child_tell(server, "stop", 0);
    child_end(server);
}

/* ---- kill -9 of the server; a new one on the same endpoint ---- */

static void victim_server(struct side *side)
{
    int64_t wanted = hear(side, "endpoint");
    struct bmi_method_addr *client;

    if (wanted == 0) {
        wanted = host_start_server();
    } else {
        /* The dead one's sockets are closed by the kernel: the endpoint is free at once. */
        CHECK_THAT(host_try_server((int)wanted), ==, 0);
        CHECK_THAT(ops->open_context(0), ==, 0);
    }
    tell(side, "endpoint", wanted);
    client = pair_accept();
    (void)client;
    tell(side, "accepted", 0);
    for (deadline_t deadline = deadline_in(3 * WAIT_MS); !deadline_over(deadline);)
        host_pump(1);
    FAIL("it was not killed");
}

static bool greet(struct bmi_method_addr *server)
{
    struct op receive = {0}, send = {0};
    static const char hello[] = "hello";
    char buffer[64];

    if (op_recv(&receive, server, buffer, sizeof buffer, 0x0e110) < 0)
        return false;
    if (op_send_unexpected(&send, server, hello, sizeof hello, 0x0e110) >= 0)
        op_wait(&send);
    if (send.posted < 0 || send.error != 0) {
        if (!op_done(&receive))
            CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
        op_wait(&receive);
        return false;
    }
    op_wait(&receive);
    return receive.error == 0;
}

/* One process, one address, several servers in turn. */
static void loyal_client(struct side *side)
{
    struct bmi_method_addr *server;
    static char room[PENDING][1000];
    char *big = fenced(4 * MIB);

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    for (int round = 0; round < rounds(); round++) {
        struct op receive[PENDING] = {{0}}, send[PENDING] = {{0}};
        deadline_t deadline = deadline_in(WAIT_MS);

        /* Comes back although the peer was down in between (fault 10). */
        while (!greet(server)) {
            CHECK(!deadline_over(deadline));
            host_pump(10);
        }
        for (int i = 0; i < PENDING; i++) {
            CHECK_THAT(op_recv(&receive[i], server, room[i], sizeof room[i], 100 + i), ==, 0);
            CHECK_THAT(op_send(&send[i], server, big, 4 * MIB, 200 + i), ==, 0);
        }
        tell(side, "pending", 0);
        for (int i = 0; i < PENDING; i++) {
            op_wait(&receive[i]);
            op_wait(&send[i]);
            CHECK_THAT(receive[i].error, <, 0);
            CHECK_THAT(send[i].error, <, 0);
        }
        /* The memory is ours; the dead peer cannot touch it. */
        fill(big, 4 * MIB, (uint64_t)round);
        fenced_check(big);
        tell(side, "all failed", 0);
        pair_hear(side, "go on");
    }
    fenced_free(big);
    host_stop();
}

static void kills_servers(struct world *world)
{
    struct child *client = spawn(world, "loyal");
    int64_t endpoint = 0;

    for (int round = 0; round < rounds(); round++) {
        struct child *server = spawn(world, "server");

        child_tell(server, "endpoint", endpoint);
        endpoint = child_hear(server, "endpoint");
        if (round == 0)
            child_tell(client, "endpoint", endpoint);
        else
            child_tell(client, "go on", 0);
        child_hear(server, "accepted");
        child_hear(client, "pending");
        child_kill(server);
        child_hear(client, "all failed");
    }
    child_tell(client, "go on", 0);
    child_end(client);
}

/* ---- the server dies first, then the post ---- */

static void posts_to_dead(struct side *side)
{
    struct bmi_method_addr *server;
    char buffer[64];

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(server);
    tell(side, "connected", 0);
    hear(side, "it is dead"); /* without a single test call in between */
    {
        struct op receive = {0}, send = {0}, unexpected = {0};
        int accepted = 0;

        accepted += op_recv(&receive, server, buffer, 64, 1) >= 0;
        accepted += op_send(&send, server, buffer, 64, 1) >= 0;
        accepted += op_send_unexpected(&unexpected, server, buffer, 64, 1) >= 0;
        /* Small sends may have completed into the void; the receive cannot. */
        if (receive.posted >= 0) {
            op_wait(&receive);
            CHECK_THAT(receive.error, <, 0);
        }
        if (send.posted >= 0)
            op_wait(&send);
        if (unexpected.posted >= 0)
            op_wait(&unexpected);
        tell(side, "accepted", accepted);
    }
    /* Cancelling with a dead peer is bounded too: it answers or is refused. */
    {
        struct op late = {0};

        if (op_recv(&late, server, buffer, 64, 2) >= 0) {
            CHECK_THAT(ops->cancel(late.id, 0), ==, 0);
            CHECK(op_wait_within(&late, 2000));
            CHECK_THAT(late.error, <, 0);
        }
    }
    host_stop();
}

static void simple_server(struct side *side)
{
    tell(side, "endpoint", host_start_server());
    pair_accept();
    for (deadline_t deadline = deadline_in(3 * WAIT_MS); !deadline_over(deadline);)
        host_pump(1);
}

static void kills_before_posts(struct world *world)
{
    struct child *server = spawn(world, "server"), *client = spawn(world, "client");

    child_tell(client, "endpoint", child_hear(server, "endpoint"));
    child_hear(client, "connected");
    child_kill(server);
    child_tell(client, "it is dead", 0);
    child_hear(client, "accepted");
    child_end(client);
}

/* ---- many die at once while others work ---- */

enum { CROWD = 10 };

static void crowd_server(struct side *side)
{
    int64_t alive = 0;

    tell(side, "endpoint", host_start_server());
    while (!heard_anything(side)) {
        struct arrival arrival;
        struct op reply = {0};

        if (!host_next_within(&arrival, 20))
            continue;
        if (op_send(&reply, arrival.from, arrival.buffer, arrival.size, arrival.tag) >= 0)
            op_wait(&reply); /* success or the client's death */
        arrival_free(&arrival);
        alive++;
    }
    hear(side, "stop");
    CHECK_THAT(alive, >, 0);
    host_stop();
}

/* Sends requests for ever; `answers` of them are reported. */
static void restless_client(struct side *side)
{
    struct bmi_method_addr *server;

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    for (int i = 0; i < 60; i++) {
        static char out[20000], in[20000];
        struct op receive = {0}, send = {0};

        fill(out, sizeof out, (uint64_t)i);
        CHECK_THAT(op_recv(&receive, server, in, sizeof in, i), >=, 0);
        CHECK_THAT(op_send_unexpected(&send, server, out, sizeof out, i), >=, 0);
        op_sent(&send);
        op_received(&receive, sizeof in);
        check_filled(in, sizeof in, (uint64_t)i);
        if (i == 3)
            tell(side, "busy", 0);
    }
    host_stop();
}

static void kills_half_a_crowd(struct world *world)
{
    struct child *server = spawn(world, "server");
    struct child *clients[CROWD];
    int64_t endpoint = child_hear(server, "endpoint");

    for (int i = 0; i < CROWD; i++) {
        clients[i] = spawn(world, "client");
        child_tell(clients[i], "endpoint", endpoint);
    }
    for (int i = 0; i < CROWD; i += 2) {
        child_hear(clients[i], "busy");
        child_kill(clients[i]);
    }
    for (int i = 1; i < CROWD; i += 2)
        child_end(clients[i]);
    child_tell(server, "stop", 0);
    child_end(server);
}

static const struct scenario scenarios[] = {
    DIRECTED(a_server_survives_clients_killed_with_operations_pending, kills_clients,
             {"server", patient_server}, {"victim", victim_client}, {"short", short_client}),
    DIRECTED(a_client_survives_its_servers_and_reconnects_to_each_successor, kills_servers,
             {"server", victim_server}, {"loyal", loyal_client}),
    DIRECTED(posts_to_a_server_that_has_just_died_fail_or_complete_with_an_error,
             kills_before_posts, {"server", simple_server}, {"client", posts_to_dead}),
    DIRECTED(killing_half_the_clients_leaves_the_other_half_served, kills_half_a_crowd,
             {"server", crowd_server}, {"client", restless_client}),
    {0},
};

int main(int argc, char **argv)
{
    port_notices_deaths_soon();
    return harness_main(argc, argv, scenarios);
}
