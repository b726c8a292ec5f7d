/*
 * Strangers who try to take the place of a server's client, or of the server, while both work (root).
 *
 *      server 10.0.0.1 ────┬──────────┬──────────── storage ────────┬──── 10.0.0.254 router 192.168.7.1 ──── inside
 *                    10.0.0.2      10.0.0.3                     10.0.0.9                        │          │
 *                     client      bystander                     attacker               192.168.7.2        .9
 *                                                                                           client    attacker
 *
 * The attacker knows all that is said of the client and of the server, or has heard all that they said to each other: from
 * another machine, from behind the client's own translator, or as a relay between them. It becomes a peer of its own at
 * most. Client and bystander go on without an error and without a pause, no message is lost, comes twice or is another's,
 * and the server has the descriptors and the memory of before when the attacker is gone.
 */
#include "../support/assault.h"
#include "../support/machines.h"
#include "../support/net.h"
#include "../support/port.h"
#include "../support/service.h"
#include "../support/siege.h"

#include <arpa/inet.h>

enum {
    ENDPOINT = 2003,
    ASSAULT_MS = 60000,
};

#define SERVER "10.0.0.1"
#define CLIENT "10.0.0.2"
#define BYSTANDER "10.0.0.3"
#define ATTACKER "10.0.0.9"
#define OUTSIDE "10.0.0.254"
#define INSIDE "192.168.7.1"
#define CLIENT_INSIDE "192.168.7.2"
#define ATTACKER_INSIDE "192.168.7.9"

static uint32_t ipv4(const char *text)
{
    struct in_addr address;

    CHECK(inet_aton(text, &address) == 1);
    return ntohl(address.s_addr);
}

/* ---- sides ---- */

static void server(struct side *side)
{
    become_machine(side);
    serve_attacked(side, "mx://localhost:0:2003");
}

static void client(struct side *side)
{
    become_machine(side);
    host_start_client();
    besieged(side, service_of(SERVER, ENDPOINT));
}

/* Hears where the client is. */
static void attacker(struct side *side)
{
    struct door of_server = door_of(ipv4(SERVER), ENDPOINT), of_client;
    struct identity server, client;
    uint32_t address;
    bool on_network;

    become_machine(side);
    address = (uint32_t)hear(side, "client");
    of_client = door_of(address, (int)hear(side, "number"));
    on_network = hear(side, "on network") != 0;
    server = learn(&of_server);
    client = learn(&of_client);
    assault(&of_server, &client, true);
    assault(&of_client, &server, false);
    if (on_network && port_is("dgram")) {
        forge(&of_server, of_client.address, of_client.number);
        forge(&of_client, of_server.address, of_server.number);
    }
    tell(side, "done", 0);
    hear(side, "stop");
}

/* ---- directors ---- */

static struct child *begin_server(struct world *world)
{
    struct child *server = machine(world, "server");

    plug(server, "eth0", "storage", SERVER "/24");
    machine_on(server);
    child_hear(server, "serving");
    return server;
}

static struct child *begin_client(struct world *world, const char *network, const char *address, const char *gateway,
                                  int64_t *number)
{
    struct child *client = machine(world, "client");

    plug(client, "eth0", network, address);
    if (gateway != NULL)
        at(client, "ip route add default via %s", gateway);
    machine_on(client);
    *number = child_hear(client, "number");
    return client;
}

static void begin_router(struct child *router)
{
    machine_on(router);
    plug(router, "eth0", "inside", INSIDE "/24");
    plug(router, "eth1", "storage", OUTSIDE "/24");
    at(router, "echo 1 > /proc/sys/net/ipv4/ip_forward");
    at(router, "nft \"add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; "
               "add rule ip nat out oif eth1 masquerade\"");
}

/* The variant: behind the translator of the client. */
static void claim_the_client(struct world *world)
{
    bool is_inside = variant_of(world) != 0;
    struct siege siege;
    struct child *attacker, *router = NULL;
    int64_t number, other;

    machines_begin("nft --version");
    siege.server = begin_server(world);
    siege.clients[0] = begin_client(world, "storage", BYSTANDER "/24", NULL, &other);
    if (is_inside) {
        router = machine(world, "router");
        begin_router(router);
        siege.clients[1] = begin_client(world, "inside", CLIENT_INSIDE "/24", INSIDE, &number);
    } else {
        siege.clients[1] = begin_client(world, "storage", CLIENT "/24", NULL, &number);
    }
    siege_begin(&siege);
    attacker = machine(world, "attacker");
    plug(attacker, "eth0", is_inside ? "inside" : "storage", is_inside ? ATTACKER_INSIDE "/24" : ATTACKER "/24");
    if (is_inside)
        at(attacker, "ip route add default via " INSIDE);
    machine_on(attacker);
    child_tell(attacker, "client", ipv4(is_inside ? CLIENT_INSIDE : CLIENT));
    child_tell(attacker, "number", number);
    child_tell(attacker, "on network", !is_inside);
    child_hear_within(attacker, "done", ASSAULT_MS);
    child_tell(attacker, "stop", 0);
    child_end(attacker);
    siege_end(&siege, STRANGERS_MAX);
    if (router != NULL) {
        child_tell(router, "stop", 0);
        child_end(router);
    }
}

TESTS(
    DIRECTED_OF(nobody_takes_a_clients_place_from_another_machine, false, claim_the_client, {"server", server},
                {"client", client}, {"attacker", attacker}),
    DIRECTED_OF(nobody_takes_a_clients_place_from_behind_its_translator, true, claim_the_client, {"server", server},
                {"client", client}, {"attacker", attacker}, {"router", be_a_machine}))
