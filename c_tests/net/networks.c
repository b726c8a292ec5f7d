/*
 * Machines with several networks, and clients behind a translator of addresses or a firewall (root).
 *
 *      server 10.0.0.1 ──── storage ──── 10.0.0.2, a client with another network before this one
 *                             │
 *                      10.0.0.254 router 192.168.7.1 ──── inside ──── clients, translated
 *
 * Every client that can reach a server can use it, whatever other networks the two machines have, and is named by
 * the address that its connection comes from. Export lists refer to that address (docs/security.md).
 */
#include "../support/machines.h"
#include "../support/pair.h"
#include "../support/service.h"

enum { ENDPOINT = 3, ROUNDS = 5, CLIENTS = 2 };

#define SERVER "10.0.0.1"
#define CLIENT "10.0.0.2"
#define SERVERS_OTHER "10.1.0.1"
#define CLIENTS_OTHER "10.1.0.2"
#define OUTSIDE "10.0.0.254" /* the translator's */

/* ---- sides ---- */

static void server(struct side *side)
{
    become_machine(side);
    serve_at(side, "mx://localhost:0:3");
}

static void client(struct side *side)
{
    struct bmi_method_addr *server;

    become_machine(side);
    host_start_client();
    server = service_of(SERVER, ENDPOINT);
    converse(server, CLIENT);
    CHECK(lies_in(server, "mx://10.0.0.0@24"));
    CHECK(lies_in(server, "mx://" CLIENT));
    CHECK(lies_in(server, "mx://10.0.*"));
    CHECK(lies_in(server, "mx://10.0.0.0@28"));
    CHECK(lies_in(server, "mx://" CLIENT ":77"));
    CHECK(!lies_in(server, "mx://node7"));
    CHECK(!lies_in(server, "mx://192.168.50.0@24"));
    CHECK(!lies_in(server, "mx://172.17.*"));
    CHECK(!lies_in(server, "mx://" SERVER));
    CHECK(!lies_in(server, "mx://localhost"));
    host_stop();
}

static void named_server(struct side *side)
{
    become_machine(side);
    serve_at(side, "mx://storage1:0:3");
}

/* Over a fabric the address allows no fallback. */
static void client_of_a_name(struct side *side)
{
    become_machine(side);
    host_start_client();
    converse(service_of(port_is("rdm") ? "rdm@" SERVER : SERVER, ENDPOINT), CLIENT);
    host_stop();
}

/* Runs on a machine with two addresses, and calls the server over the second network. */
static void over_the_second(struct side *side)
{
    struct bmi_method_addr *server;

    enter_machine(side);
    host_start_client();
    server = service_of(SERVERS_OTHER, ENDPOINT);
    converse(server, CLIENTS_OTHER);
    CHECK(lies_in(server, "mx://10.1.0.0@16"));
    CHECK(!lies_in(server, "mx://10.0.0.0@16"));
    host_stop();
}

/* ---- a network without the server comes first ---- */

static void meet(struct child *server, struct child *client)
{
    plug(server, "eth0", "storage", SERVER "/24");
    machine_on(server);
    child_hear(server, "serving");
    plug(client, "eth7", "storage", CLIENT "/24");
    machine_on(client);
    child_end(client);
    end_service(server, 1);
}

/* Each machine has a network that the other has not. */
static void management_first(struct world *world)
{
    struct child *server, *client;

    machines_begin(NULL);
    server = machine(world, "server");
    client = machine(world, "client");
    plug(server, "eth8", "management", "192.168.51.1/24");
    plug(client, "eth8", "others", "192.168.50.2/24");
    meet(server, client);
}

/* The server's name stands for its second address. */
static void named_after_the_second(struct world *world)
{
    struct child *server, *client;

    machines_begin(NULL);
    server = machine(world, "server");
    client = machine(world, "client");
    name_machine(server, "hosts", SERVER, "storage1");
    plug(server, "eth8", "management", "192.168.51.1/24");
    meet(server, client);
}

static void add_docker(struct child *machine)
{
    at(machine, "ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && "
                "ip link set docker0 up");
}

/* The variant: true if the server has such a bridge, too. */
static void docker_first(struct world *world)
{
    struct child *server, *client;

    machines_begin(NULL);
    server = machine(world, "server");
    client = machine(world, "client");
    if (variant_of(world))
        add_docker(server);
    add_docker(client);
    meet(server, client);
}

/* ---- a client with two addresses ---- */

static void two_addresses(struct world *world)
{
    struct child *server, *home, *second;

    machines_begin(NULL);
    server = machine(world, "server");
    home = machine(world, "client");
    plug(server, "eth0", "storage", SERVER "/24");
    plug(server, "eth1", "backup", SERVERS_OTHER "/24");
    plug(home, "eth0", "storage", CLIENT "/24");
    plug(home, "eth1", "backup", CLIENTS_OTHER "/24");
    machine_on(server);
    child_hear(server, "serving");
    second = machine_shared(world, "second", home);
    child_end(second);
    machine_on(home);
    child_end(home);
    end_service(server, CLIENTS);
}

/* ---- clients that cannot be reached ---- */

static void behind_firewall(struct world *world)
{
    struct child *server, *client;

    machines_begin("nft --version");
    server = machine(world, "server");
    client = machine(world, "client");
    at(client, "nft \"add table ip wall; add chain ip wall in { type filter hook input priority 0; "
               "policy drop; }; add rule ip wall in iif lo accept; "
               "add rule ip wall in ct state established accept\"");
    meet(server, client);
}

/* One of two clients with the same number behind one translator. */
static void translated(struct side *side)
{
    struct bmi_method_addr *server;

    become_machine(side);
    CHECK_THAT(host_try_listen("mx://localhost:0:5"), ==, 0);
    CHECK_THAT(ops->open_context(0), ==, 0);
    server = service_of(SERVER, ENDPOINT);
    converse(server, OUTSIDE);
    for (int round = 0; round < ROUNDS; round++) {
        tell(side, "well", 0);
        pair_hear(side, "go on");
        converse(server, OUTSIDE);
    }
    seen_as(server, OUTSIDE ":0:5");
    CHECK(lies_in(server, "mx://" OUTSIDE));
    CHECK(!lies_in(server, "mx://192.168.7.0@24"));
    host_stop();
}

static void behind_translator(struct world *world)
{
    struct child *server, *router, *clients[CLIENTS];

    machines_begin("nft --version");
    server = machine(world, "server");
    router = machine(world, "router");
    machine_on(router);
    plug(server, "eth0", "storage", SERVER "/24");
    plug(router, "eth0", "inside", "192.168.7.1/24");
    plug(router, "eth1", "storage", OUTSIDE "/24");
    at(router, "echo 1 > /proc/sys/net/ipv4/ip_forward");
    at(router, "nft \"add table ip nat; add chain ip nat out { type nat hook postrouting "
               "priority 100; }; add rule ip nat out oif eth1 masquerade\"");
    machine_on(server);
    child_hear(server, "serving");
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = machine(world, "client");
        plug(clients[i], "eth0", "inside", i == 0 ? "192.168.7.2/24" : "192.168.7.3/24");
        at(clients[i], "ip route add default via 192.168.7.1");
        machine_on(clients[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLIENTS; i++)
            child_hear(clients[i], "well");
        for (int i = 0; i < CLIENTS; i++)
            child_tell(clients[i], "go on", 0);
    }
    for (int i = 0; i < CLIENTS; i++)
        child_end(clients[i]);
    end_service(server, CLIENTS);
    child_tell(router, "stop", 0);
    child_end(router);
}

TESTS(
    DIRECTED(the_first_networks_of_two_machines_may_differ, management_first,
             {"server", server}, {"client", client}),
    DIRECTED(a_server_is_found_at_the_address_of_its_name, named_after_the_second,
             {"server", named_server}, {"client", client_of_a_name}),
    DIRECTED_OF(a_bridge_of_containers_may_come_first_on_both, true, docker_first, {"server", server}, {"client", client}),
    DIRECTED_OF(a_bridge_of_containers_may_come_first_on_the_client, false, docker_first, {"server", server},
                {"client", client}),
    DIRECTED(a_client_with_two_addresses_is_seen_at_its_source, two_addresses,
             {"server", server}, {"client", client}, {"second", over_the_second}),
    DIRECTED(a_client_may_be_behind_a_firewall, behind_firewall, {"server", server},
             {"client", client}),
    DIRECTED(clients_behind_a_translator_may_have_the_same_number, behind_translator,
             {"server", server}, {"router", be_a_machine}, {"client", translated}))
