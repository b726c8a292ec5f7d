/*
 * More than fits: messages without receives, and many clients at once.
 *
 * The bytes that strangers can make a server hold are set by its administrator (promise 5 in the
 * design); the rest waits at the senders. Nothing is lost or reordered.
 */
#include "../support/memory.h"
#include "../support/pair.h"
#include "../support/pattern.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FLOOD = 1500,
    FLOOD_SIZE = 20000,
    MANY = 10000,
    MANY_SIZE = 4096,
    EARLY = 500, /* far more than there are credits for */
    CLIENTS = 12,
    REQUESTS = 40,
};

/* A tenth of what is coming. */
static void little_room(void)
{
    setenv("MX_UNEXPECTED_BYTES", "1M", 1);
    setenv("BMI_MX_UNEXPECTED_MAX", "256K", 1);
}

/* ---- ten thousand before the first is looked at; the other direction is not their business ---- */

static void looks_late(struct side *side)
{
    struct bmi_method_addr *client;
    struct op answer = {0};
    int64_t before;

    little_room();
    client = pair_server(side);
    before = resident_kib(0);
    tell(side, "begin", 0);
    hear(side, "posted"); /* all of them, and not a single test call meanwhile */
    CHECK_THAT(op_send(&answer, client, "go on", 6, 1), >=, 0);
    while (!op_done(&answer))
        host_testcontext(4, 0, 2);
    hear(side, "heard");
    CHECK_THAT(resident_kib(0) - before, <, 12 * 1024 * slower());
    for (int i = 0; i < MANY; i++) {
        struct arrival arrival = host_next();

        CHECK(arrival.from == client);
        CHECK_THAT(arrival.tag, ==, i);
        CHECK_THAT(arrival.size, ==, MANY_SIZE);
        check_filled(arrival.buffer, MANY_SIZE, (uint64_t)(i % 7));
        arrival_free(&arrival);
    }
    pair_part(side);
}

static void sends_many(struct side *side)
{
    static struct op send[MANY];
    static char body[7][MANY_SIZE];
    struct bmi_method_addr *server = pair_client(side);
    struct op answer = {0};
    char room[6];

    for (int i = 0; i < 7; i++)
        fill(body[i], MANY_SIZE, (uint64_t)i);
    pair_hear(side, "begin");
    CHECK_THAT(op_recv(&answer, server, room, sizeof room, 1), >=, 0);
    for (int i = 0; i < MANY; i++)
        CHECK_THAT(op_send_unexpected(&send[i], server, body[i % 7], MANY_SIZE, i), >=, 0);
    tell(side, "posted", 0);
    op_received(&answer, sizeof room);
    CHECK(memcmp(room, "go on", 6) == 0);
    tell(side, "heard", 0);
    for (int i = 0; i < MANY; i++)
        op_sent(&send[i]);
    pair_part(side);
}

/* ---- expected messages without receives; an unexpected one must still get through ---- */

static void early_flooded(struct side *side)
{
    static struct op receive[EARLY];
    static char room[FLOOD_SIZE];
    struct bmi_method_addr *client;
    struct arrival arrival;
    int64_t before;

    little_room();
    client = pair_server(side);
    before = resident_kib(0);
    tell(side, "begin", 0);
    arrival = host_next(); /* behind all the others, which are not received yet */
    CHECK_THAT(arrival.tag, ==, 77);
    arrival_free(&arrival);
    CHECK_THAT(resident_kib(0) - before, <, 12 * 1024 * slower());
    for (int i = 0; i < EARLY; i++) {
        CHECK_THAT(op_recv(&receive[i], client, room, sizeof room, i % 3), >=, 0);
        op_received(&receive[i], FLOOD_SIZE);
        check_filled(room, FLOOD_SIZE, (uint64_t)(i % 7));
    }
    pair_part(side);
}

static void early_floods(struct side *side)
{
    static struct op send[EARLY];
    static char body[7][FLOOD_SIZE];
    struct op last = {0};
    struct bmi_method_addr *server = pair_client(side);

    for (int i = 0; i < 7; i++)
        fill(body[i], FLOOD_SIZE, (uint64_t)i);
    pair_hear(side, "begin");
    for (int i = 0; i < EARLY; i++)
        CHECK_THAT(op_send(&send[i], server, body[i % 7], FLOOD_SIZE, i % 3), >=, 0);
    CHECK_THAT(op_send_unexpected(&last, server, "x", 1, 77), >=, 0);
    op_sent(&last);
    for (int i = 0; i < EARLY; i++)
        op_sent(&send[i]);
    pair_part(side);
}

/* ---- many clients at once, each with requests of all sizes ---- */

static void serves_many(struct side *side)
{
    static struct {
        struct op reply;
        void *buffer;
        struct bmi_method_addr *client;
    } work[CLIENTS * REQUESTS];

    tell(side, "endpoint", host_start_server());
    for (int i = 0; i < CLIENTS * REQUESTS; i++) {
        struct arrival arrival = host_next();

        /* The answer goes out while the next requests come in. */
        work[i].buffer = arrival.buffer;
        work[i].client = arrival.from;
        CHECK_THAT(op_send(&work[i].reply, arrival.from, arrival.buffer, arrival.size,
                           arrival.tag), >=, 0);
    }
    for (int i = 0; i < CLIENTS * REQUESTS; i++) {
        op_sent(&work[i].reply);
        CHECK_THAT(ops->unexpected_free(work[i].buffer), ==, 0);
    }
    CHECK_THAT(host_registered(), ==, CLIENTS);
    tell(side, "served", 0);
    pair_hear(side, "stop");
    host_stop();
}

static void one_of_many(struct side *side)
{
    static const bmi_size_t sizes[] = {8, 1000, 16384, 40000, 0, 100000, 300};
    struct bmi_method_addr *server;

    host_start_client();
    tell(side, "ready", 0);
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    for (int i = 0; i < REQUESTS; i++) {
        size_t size = (size_t)sizes[i % 7];
        char *out = fenced(size), *in = fenced(size);
        struct op receive = {0}, send = {0};

        fill(out, size, (uint64_t)(getpid() + i));
        CHECK_THAT(op_recv(&receive, server, in, sizes[i % 7], i), >=, 0);
        CHECK_THAT(op_send_unexpected(&send, server, out, sizes[i % 7], i), >=, 0);
        op_sent(&send);
        op_received(&receive, sizes[i % 7]);
        check_filled(in, size, (uint64_t)(getpid() + i));
        fenced_free(out);
        fenced_free(in);
    }
    pair_hear(side, "stop");
    host_stop();
}

static void many_clients(struct world *world)
{
    struct child *server = spawn(world, "server"), *clients[CLIENTS];
    int64_t endpoint = child_hear(server, "endpoint");

    for (int i = 0; i < CLIENTS; i++)
        clients[i] = spawn(world, "client");
    /* All at once: starting takes far longer than being served, over a fabric. */
    for (int i = 0; i < CLIENTS; i++)
        child_hear(clients[i], "ready");
    for (int i = 0; i < CLIENTS; i++)
        child_tell(clients[i], "endpoint", endpoint);
    child_hear(server, "served");
    for (int i = 0; i < CLIENTS; i++) {
        child_tell(clients[i], "stop", 0);
        child_end(clients[i]);
    }
    child_tell(server, "stop", 0);
    child_end(server);
}

static const struct scenario scenarios[] = {
    PAIR(ten_thousand_unexpected_messages_wait_and_block_nothing, looks_late, sends_many),
    PAIR(early_messages_wait_at_the_sender_and_block_no_other, early_flooded, early_floods),
    DIRECTED(many_clients_are_served_at_once, many_clients, {"server", serves_many},
             {"client", one_of_many}),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
