/*
 * One server and eight clients, each a host, and all clients behind one narrow or bad cable to the server (make
 * check-net, root).
 *
 *      client 0 ══ port0 ──┐
 *         ...              bridge ── up0 ══ up1 ──[ cable: a rate and a short queue, loss ]── port8 ══ server
 *      client 7 ══ port7 ──┘
 *
 * Incast: all send as fast as they can for a while. The cable must be used, and no client may starve: the total
 * goodput and each client's share are printed. Crowd: all talk at once over a cable with losses.
 */
#include "../support/cable.h"
#include "../support/net.h"
#include "../support/pair.h"
#include "../support/traffic.h"

#define KIB (INT64_C(1024))
#define MIB (1024 * KIB)

enum {
    CLIENTS = 8,
    SERVER = CLIENTS,
    INCAST_MS = 4000,
    ROUNDS = 2,
    WITHIN_MS = 45000,
    /* Least share of a client, in percent of the fair share. */
    SHARE_MIN_PERCENT = 25,
    /* Least use of the cable's rate, headers included. */
    USED_MIN_PERCENT = 60,
};

struct scene {
    struct child *server, *clients[CLIENTS];
    struct cable *cable;
};

/* ---- incast ---- */

/* Accepts all clients, in the order of their hellos. */
static void await_clients(struct bmi_method_addr *clients[CLIENTS])
{
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = pair_accept();
}

static void incast_server(struct side *side)
{
    static struct inflow flows[CLIENTS];
    struct bmi_method_addr *clients[CLIENTS];
    bmi_size_t piece = hear(side, "piece");
    deadline_t deadline;
    int going = CLIENTS;
    int64_t begin, first_end = 0;

    become_host(side);
    tell(side, "endpoint", host_start_server());
    await_clients(clients);
    for (int i = 0; i < CLIENTS; i++)
        inflow_begin(&flows[i], clients[i], piece);
    tell(side, "ready", 0);
    deadline = deadline_in(WITHIN_MS);
    for (begin = now_ms(); going > 0;) {
        if (deadline_over(deadline))
            FAIL("the streams of %d clients do not end in time", going);
        host_pump(5);
        going = 0;
        for (int i = 0; i < CLIENTS; i++)
            going += inflow_step(&flows[i]);
        /* All compete until the first one has finished. */
        if (going < CLIENTS && first_end == 0) {
            first_end = now_ms();
            for (int i = 0; i < CLIENTS; i++)
                tell(side, "bytes", flows[i].bytes);
            tell(side, "took", first_end - begin);
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        inflow_end(&flows[i]);
    tell(side, "all in", now_ms() - begin);
    net_part(side);
}

static void incast_client(struct side *side)
{
    bmi_size_t piece = hear(side, "piece");
    struct bmi_method_addr *server;

    become_host(side);
    server = net_join(side, SERVER);
    pair_hello(server);
    tell(side, "ready", 0);
    pair_hear(side, "go");
    outflow(server, piece, INCAST_MS, deadline_in(WITHIN_MS));
    net_part(side);
}

/* ---- crowd ---- */

static void crowd_server(struct side *side)
{
    struct talk *talks = calloc(CLIENTS, sizeof *talks);
    struct bmi_method_addr *clients[CLIENTS];
    bmi_size_t largest = hear(side, "piece");
    deadline_t deadline;

    CHECK(talks != NULL);
    become_host(side);
    tell(side, "endpoint", host_start_server());
    await_clients(clients);
    for (int i = 0; i < CLIENTS; i++)
        talk_begin(&talks[i], clients[i], 0, 1, false, largest);
    tell(side, "ready", 0);
    deadline = deadline_in(WITHIN_MS);
    for (int round = 0; round < ROUNDS; round++)
        talk_round(talks, CLIENTS, deadline);
    tell(side, "talked", 0);
    pair_idle(side);
    for (int i = 0; i < CLIENTS; i++)
        talk_end(&talks[i]);
    free(talks);
    host_stop();
}

static void crowd_client(struct side *side)
{
    bmi_size_t largest = hear(side, "piece");
    struct bmi_method_addr *server;

    become_host(side);
    server = net_join(side, SERVER);
    pair_hello(server);
    tell(side, "ready", 0);
    pair_hear(side, "go");
    talk_rounds(server, true, largest, ROUNDS, deadline_in(WITHIN_MS));
    tell(side, "talked", 0);
    net_part(side);
}

/* ---- the director ---- */

static void set_up(struct world *world, struct scene *scene, int64_t piece, const struct way *way)
{
    int64_t endpoint;

    make_hub();
    scene->server = spawn(world, "server");
    child_tell(scene->server, "piece", piece);
    plug_in_plain(scene->server, SERVER, true);
    run("ip link add up0 type veth peer name up1");
    run("ip link set up0 addrgenmode none up master hub");
    run("ip link set up1 addrgenmode none up");
    scene->cable = cable_lay("up1", "port8", way, way);
    endpoint = child_hear(scene->server, "endpoint");
    for (int i = 0; i < CLIENTS; i++) {
        scene->clients[i] = spawn(world, "client");
        child_tell(scene->clients[i], "piece", piece);
        plug_in_plain(scene->clients[i], i, false);
        child_tell(scene->clients[i], "endpoint", endpoint);
        child_hear(scene->clients[i], "ready");
    }
    child_hear(scene->server, "ready");
    for (int i = 0; i < CLIENTS; i++)
        child_tell(scene->clients[i], "go", 0);
}

static void take_down(struct scene *scene)
{
    for (int i = 0; i < CLIENTS; i++)
        child_tell(scene->clients[i], "end", 0);
    for (int i = 0; i < CLIENTS; i++)
        child_end(scene->clients[i]);
    child_tell(scene->server, "end", 0);
    child_end(scene->server);
    cable_remove(scene->cable);
}

static const struct way narrow = {.delay_us = 200, .rate_mbit = 100, .queue_kib = 64};

/* The variant: size of the messages. */
static void incast(struct world *world)
{
    const struct way *way = &narrow;
    int64_t piece = variant_of(world);
    struct scene scene;
    int64_t bytes[CLIENTS], sum = 0, took, all;
    double seconds;
    char text[200];

    set_up(world, &scene, piece, way);
    for (int i = 0; i < CLIENTS; i++) {
        bytes[i] = child_hear_within(scene.server, "bytes", WITHIN_MS);
        sum += bytes[i];
    }
    took = child_hear(scene.server, "took");
    all = child_hear_within(scene.server, "all in", WITHIN_MS);
    seconds = (double)took / 1e3;
    printf("    %s, %d to 1, messages of %lld KiB, %s: %.2f MB/s, everything in after %d ms; shares",
           port_name(), CLIENTS, (long long)(piece / KIB), way_text(way, text, sizeof text),
           (double)sum / 1e6 / seconds, (int)all);
    for (int i = 0; i < CLIENTS; i++)
        printf(" %.1f%%", 100.0 * (double)bytes[i] / (double)(sum > 0 ? sum : 1));
    printf("\n");
    fflush(stdout);
    take_down(&scene);
    CHECK_THAT(sum / took, >=, (int64_t)way->rate_mbit * 125 * USED_MIN_PERCENT / 100);
    for (int i = 0; i < CLIENTS; i++)
        CHECK_THAT(bytes[i] * CLIENTS * 100, >=, sum * SHARE_MIN_PERCENT);
}

static void crowd(struct world *world)
{
    static const struct way bad = {.delay_us = 1000, .loss = 20, .duplicate = 5, .reorder = 10,
                                   .rate_mbit = 400, .queue_kib = 256};
    struct scene scene;
    char text[200];
    int64_t begin;

    set_up(world, &scene, 3 * MIB, &bad);
    begin = now_ms();
    for (int i = 0; i < CLIENTS; i++)
        child_hear_within(scene.clients[i], "talked", WITHIN_MS);
    child_hear_within(scene.server, "talked", WITHIN_MS);
    printf("    %s, a crowd of %d, messages to 3 MiB, %s: %d ms\n", port_name(), CLIENTS,
           way_text(&bad, text, sizeof text), (int)(now_ms() - begin));
    fflush(stdout);
    take_down(&scene);
}

TESTS(
    DIRECTED_OF(eight_senders_of_large_messages_share_a_narrow_cable, 256 * KIB, incast,
                {"server", incast_server}, {"client", incast_client}),
    DIRECTED_OF(eight_senders_of_small_messages_share_a_narrow_cable, 8 * KIB, incast,
                {"server", incast_server}, {"client", incast_client}),
    DIRECTED(eight_clients_talk_to_a_server_over_a_cable_that_loses, crowd,
             {"server", crowd_server}, {"client", crowd_client}))
