/*
 * Networks that come after the processes, and addresses and names that change (root).
 *
 *      server 10.0.0.1 ──── storage ──── 10.0.0.2, and then 10.0.0.9: a client
 *         │
 *         `-- its name, then that of 10.0.0.7
 *
 * Nothing about addresses is settled when a process begins: it goes on within seconds of a change, without
 * being restarted. Requests that are under way then may fail, once.
 */
#include "../support/machines.h"
#include "../support/pair.h"
#include "../support/service.h"

enum {
    ENDPOINT = 3,
    AGAIN_MS = 4000, /* the kernel sends a lost SYN again after 1 s, and after 2 more */
    WITHOUT_MS = 500, /* without a network, before it comes */
    MOVES = 2, /* of a fabric's device from the loopback to a network that came, each of which ends the sessions: the
                  server's and the client's */
};

#define SERVER "10.0.0.1"
#define MOVED "10.0.0.7"
#define CLIENT "10.0.0.2"
#define RENUMBERED "10.0.0.9"

/* What a server listens on: each on an endpoint of its own. */
static const char *const listens[] = {
    "mx://localhost:0:3",
    "mx://" SERVER ":0:4",
    "mx://server:0:5",
    "mx://foo:0:6",
};

enum { LISTENS = sizeof listens / sizeof *listens };

/* ---- sides ---- */

static void server(struct side *side)
{
    become_machine(side);
    serve_at(side, listens[0]);
}

/* One of several on a machine. */
static void one_of_several(struct side *side)
{
    enter_machine(side);
    serve_at(side, listens[hear(side, "which")]);
}

/* ---- directors ---- */

/* Since a change, until all was well again. */
static void check_soon(int64_t begin)
{
    int64_t took = now_ms() - begin;

    printf("well %d ms after the change\n", (int)took);
    CHECK_THAT(took, <=, AGAIN_MS * slower());
}

/* ---- the network comes later ---- */

/* On the servers' machine: talks to each before and after. */
static void neighbour(struct side *side)
{
    struct bmi_method_addr *servers[LISTENS];
    int code;

    enter_machine(side);
    host_start_client();
    for (int i = 0; i < LISTENS; i++) {
        servers[i] = host_lookup_endpoint(ENDPOINT + i);
        CHECK(try_get(servers[i], EAGER_BYTES, &code));
    }
    tell(side, "well", 0);
    pair_hear(side, "again");
    for (int i = 0; i < LISTENS; i++) {
        for (int failed = 0; !try_put(servers[i], BULK_BYTES, &code); failed++)
            CHECK_THAT(failed, <, port_is("rdm") ? MOVES : 0);
        CHECK(lies_in(servers[i], "mx://" SERVER));
        CHECK(lies_in(servers[i], "mx://127.0.0.0@8"));
        CHECK(lies_in(servers[i], "mx://localhost"));
        CHECK(lies_in(servers[i], "mx://machine*"));
        CHECK(!lies_in(servers[i], "mx://" CLIENT));
    }
    host_stop();
}

static void later_guest(struct side *side)
{
    become_machine(side);
    host_start_client();
    for (int i = 0; i < LISTENS; i++)
        converse(service_of(SERVER, ENDPOINT + i), CLIENT);
    host_stop();
}

static void server_first(struct world *world)
{
    struct child *home, *servers[LISTENS], *local, *client;

    machines_begin(NULL);
    home = machine(world, "home");
    machine_on(home);
    client = machine(world, "client");
    name_machine(home, "hosts", SERVER, "server");
    for (int i = 0; i < LISTENS; i++) {
        servers[i] = machine_shared(world, "server", home);
        child_tell(servers[i], "which", i);
        child_hear(servers[i], "serving");
    }
    local = machine_shared(world, "local", home);
    child_hear(local, "well");
    plug(home, "eth0", "storage", SERVER "/24");
    plug(client, "eth0", "storage", CLIENT "/24");
    machine_on(client);
    child_end(client);
    child_tell(local, "again", 0);
    child_end(local);
    for (int i = 0; i < LISTENS; i++)
        end_service(servers[i], WHATEVER);
    child_tell(home, "stop", 0);
    child_end(home);
}

/* Begins before it has a network. */
static void early(struct side *side)
{
    struct bmi_method_addr *server;

    become_machine(side);
    host_start_client();
    server = service_of(SERVER, ENDPOINT);
    tell(side, "begun", 0);
    tell(side, "well", well_again(server));
    converse(server, CLIENT);
    host_stop();
}

static void client_first(struct world *world)
{
    struct child *server, *client;
    int64_t begin, failed;

    machines_begin(NULL);
    server = machine(world, "server");
    client = machine(world, "client");
    plug(server, "eth0", "storage", SERVER "/24");
    machine_on(server);
    child_hear(server, "serving");
    machine_on(client);
    child_hear(client, "begun");
    pause_ms(WITHOUT_MS);
    plug(client, "eth0", "storage", CLIENT "/24");
    begin = now_ms();
    failed = child_hear(client, "well");
    printf("    %s: %d requests failed without a network, ", port_name(), (int)failed);
    check_soon(begin);
    child_end(client);
    end_service(server, WHATEVER);
}

/* ---- addresses change ---- */

/* While it is renumbered it is idle, or, in the second variant, has requests. */
static void renumbered(struct side *side)
{
    struct bmi_method_addr *server;
    bool busy = side->variant != 0;
    int failed = 0, code;

    become_machine(side);
    host_start_client();
    server = service_of(SERVER, ENDPOINT);
    converse(server, CLIENT);
    tell(side, "well", 0);
    while (busy && !heard_anything(side))
        failed += !try_put(server, BULK_BYTES, &code);
    if (!busy)
        pair_hear(side, "changed");
    else
        hear(side, "changed");
    well_again(server);
    tell(side, "again", failed);
    CHECK_THAT(failed, <=, 1);
    converse(server, RENUMBERED);
    CHECK(lies_in(server, "mx://" RENUMBERED));
    CHECK(!lies_in(server, "mx://" CLIENT));
    host_stop();
}

static void renumber(struct world *world)
{
    bool busy = variant_of(world) != 0;
    struct child *server, *client;
    int64_t begin, failed;

    machines_begin(NULL);
    server = machine(world, "server");
    client = machine(world, "client");
    plug(server, "eth0", "storage", SERVER "/24");
    machine_on(server);
    child_hear(server, "serving");
    plug(client, "eth0", "storage", CLIENT "/24");
    machine_on(client);
    child_hear(client, "well");
    /* As systemd has it; otherwise the second address of a network goes with its first. */
    at(client, "echo 1 > /proc/sys/net/ipv4/conf/all/promote_secondaries");
    at(client, "ip address add " RENUMBERED "/24 dev eth0");
    at(client, "ip address del " CLIENT "/24 dev eth0");
    begin = now_ms();
    child_tell(client, "changed", 0);
    failed = child_hear(client, "again");
    printf("    %s, %s: %d requests failed, ", port_name(), busy ? "busy" : "idle", (int)failed);
    check_soon(begin);
    child_end(client);
    end_service(server, WHATEVER);
}

/* Its server's name moves to another machine. */
static void faithful(struct side *side)
{
    struct bmi_method_addr *server;

    become_machine(side);
    host_start_client();
    server = service_of("server", ENDPOINT);
    converse(server, CLIENT);
    tell(side, "well", 0);
    pair_hear(side, "moved");
    well_again(server);
    tell(side, "again", 0);
    converse(server, CLIENT);
    host_stop();
}

/* The variant: in which file. */
static const char *const files[] = {"peers", "hosts"};

static void move_name(struct world *world)
{
    const char *file = files[variant_of(world)];
    struct child *first, *second, *client;
    int64_t begin;

    machines_begin(NULL);
    first = machine(world, "server");
    second = machine(world, "server");
    setenv("MX_PEERS", MACHINE_FILES "/peers", 1);
    client = machine(world, "client");
    unsetenv("MX_PEERS");
    name_machine(client, "peers", "10.0.0.100", "another");
    plug(first, "eth0", "storage", SERVER "/24");
    plug(second, "eth0", "storage", MOVED "/24");
    plug(client, "eth0", "storage", CLIENT "/24");
    machine_on(first);
    child_hear(first, "serving");
    name_machine(client, file, SERVER, "server");
    machine_on(client);
    child_hear(client, "well");
    end_service(first, 1);
    machine_on(second);
    child_hear(second, "serving");
    name_machine(client, file, MOVED, "server");
    begin = now_ms();
    child_tell(client, "moved", 0);
    child_hear(client, "again");
    printf("    %s, %s: ", port_name(), file);
    check_soon(begin);
    child_end(client);
    end_service(second, 1);
}

TESTS(
    DIRECTED(servers_are_reached_over_a_network_that_came_after_them, server_first,
             {"home", be_a_machine}, {"server", one_of_several}, {"local", neighbour},
             {"client", later_guest}),
    DIRECTED(a_client_uses_a_network_that_came_after_it, client_first, {"server", server},
             {"client", early}),
    DIRECTED_OF(an_idle_client_may_get_another_address, false, renumber, {"server", server},
                {"client", renumbered}),
    DIRECTED_OF(a_busy_client_may_get_another_address, true, renumber, {"server", server},
                {"client", renumbered}),
    DIRECTED_OF(an_address_object_follows_its_name_in_the_peers_file, 0, move_name,
                {"server", server}, {"client", faithful}),
    DIRECTED_OF(an_address_object_follows_its_name_in_the_hosts_file, 1, move_name,
                {"server", server}, {"client", faithful}))
