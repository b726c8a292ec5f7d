/*
 * A server with two addresses on two networks, which its clients call by its name (root).
 *
 *      north 10.0.0.0/24 ────┬──────────────────┬────
 *                          .1│                .2│
 *                          server             client       the peers file: 10.0.0.1 server
 *                          .1│                .2│                          10.1.0.1 server
 *      south 10.1.0.0/24 ────┴──────────────────┴────
 *
 * The first address does not answer, rejects, or is cut while in use: the client continues over the other one,
 * with the same address object, within a quarter of a second and a round trip. Of the attempts that reach the
 * server its host sees one peer.
 */
#include "../support/machines.h"
#include "../support/pair.h"
#include "../support/service.h"

enum {
    ENDPOINT = 3,
    BESIDE_MS = 250,   /* until the second address is tried */
    SOON_MS = 3000,    /* shorter than every time-out */
    FALLBACK_MS = 7000,
    STOPPED_MS = 1500, /* longer than it takes to begin all attempts */
    TIMEOUT_MS = 4000, /* for a silent peer */
};

#define NORTH "10.0.0.1"
#define SOUTH "10.1.0.1"
#define CLIENT_NORTH "10.0.0.2"
#define CLIENT_SOUTH "10.1.0.2"

/* ---- sides ---- */

static void server(struct side *side)
{
    become_machine(side);
    serve_at(side, "mx://localhost:0:3");
}

/* Makes a request, which must succeed; returns the time that it took. */
static int get_in(struct bmi_method_addr *server)
{
    int64_t begin = now_ms();
    int code;

    if (!try_get(server, 8, &code))
        FAIL("the server is not reached: %s", code_text(code));
    return (int)(now_ms() - begin);
}

/* Its first request reaches the server's second address. */
static void calls_a_name(struct side *side)
{
    struct bmi_method_addr *server;
    int took;

    become_machine(side);
    host_start_client();
    server = service_of("server", ENDPOINT);
    took = get_in(server);
    converse(server, CLIENT_SOUTH);
    tell(side, "took", took);
    host_stop();
}

/* Calls while the server is stopped. */
static void calls_at_both(struct side *side)
{
    struct bmi_method_addr *server;

    become_machine(side);
    host_start_client();
    server = service_of("server", ENDPOINT);
    tell(side, "begun", 0);
    get_in(server);
    get_in(server);
    host_stop();
}

static void is_cut(struct side *side)
{
    struct bmi_method_addr *server;
    int code;

    become_machine(side);
    host_start_client();
    server = service_of("server", ENDPOINT);
    converse(server, CLIENT_NORTH);
    tell(side, "well", 0);
    hear(side, "cut");
    CHECK(!try_get(server, 8, &code));
    tell(side, "took", get_in(server));
    converse(server, CLIENT_SOUTH);
    /* The second address is tried first from now on. */
    tell(side, "again", get_in(server));
    host_stop();
}

/* ---- directors ---- */

/* Makes everything from that machine to that address vanish on the wire. */
static void swallow(struct child *machine, const char *address)
{
    at(machine, "ip neighbour replace %s lladdr 02:00:00:00:00:99 dev eth0 nud permanent", address);
}

static struct child *two_networks(struct world *world)
{
    struct child *client;

    setenv("MX_PEERS", MACHINE_FILES "/peers", 1);
    client = machine(world, "client");
    unsetenv("MX_PEERS");
    at(client, "{ echo " NORTH " server; echo " SOUTH " server; } > " MACHINE_FILES "/peers");
    plug(client, "eth0", "north", CLIENT_NORTH "/24");
    plug(client, "eth1", "south", CLIENT_SOUTH "/24");
    return client;
}

static void serve_both(struct child *server)
{
    plug(server, "eth0", "north", NORTH "/24");
    plug(server, "eth1", "south", SOUTH "/24");
    machine_on(server);
    child_hear(server, "serving");
}

/* Over a fabric the server's endpoint has one address, whichever address was called. If that one does not answer,
 * the client calls over TCP after the fabric's time-out, at the address that answers. */
static void check_took(struct child *client, const char *what, int least)
{
    int took = (int)child_hear(client, what);

    printf("    %s: reached in %d ms\n", port_name(), took);
    CHECK_THAT(took, >=, least);
    CHECK_THAT(took, <=, (port_is("rdm") ? FALLBACK_MS : SOON_MS) * slower());
}

static void silent_first(struct world *world)
{
    struct child *server, *client;

    machines_begin(NULL);
    server = machine(world, "server");
    client = two_networks(world);
    serve_both(server);
    swallow(client, NORTH);
    machine_on(client);
    check_took(client, "took", BESIDE_MS);
    child_end(client);
    end_service(server, 1);
}

/* The first address belongs to another machine, without a server. */
static void refused_first(struct world *world)
{
    struct child *server, *client, *other;

    machines_begin(NULL);
    server = machine(world, "server");
    other = machine(world, "other");
    client = two_networks(world);
    plug(other, "eth0", "north", NORTH "/24");
    machine_on(other);
    plug(server, "eth1", "south", SOUTH "/24");
    machine_on(server);
    child_hear(server, "serving");
    machine_on(client);
    check_took(client, "took", 0);
    child_end(client);
    end_service(server, 1);
    child_tell(other, "stop", 0);
    child_end(other);
}

static void slow_to_both(struct world *world)
{
    struct child *server, *client;

    machines_begin(NULL);
    server = machine(world, "server");
    client = two_networks(world);
    serve_both(server);
    child_stop(server);
    machine_on(client);
    child_hear(client, "begun");
    pause_ms(STOPPED_MS);
    child_continue(server);
    child_end(client);
    end_service(server, 1);
}

static void cut_in_use(struct world *world)
{
    struct child *server, *client;
    char timeout[16];

    machines_begin(NULL);
    server = machine(world, "server");
    snprintf(timeout, sizeof timeout, "%d", TIMEOUT_MS);
    setenv("BMI_MX_PEER_TIMEOUT_MS", timeout, 1);
    client = two_networks(world);
    unsetenv("BMI_MX_PEER_TIMEOUT_MS");
    serve_both(server);
    machine_on(client);
    child_hear(client, "well");
    swallow(client, NORTH);
    swallow(server, CLIENT_NORTH);
    child_tell(client, "cut", 0);
    check_took(client, "took", BESIDE_MS);
    CHECK_THAT(child_hear(client, "again"), <=, BESIDE_MS * slower());
    child_end(client);
    /* Two sessions, one after the other. */
    end_service(server, 2);
}

TESTS(
    DIRECTED(a_silent_address_costs_a_quarter_of_a_second, silent_first, {"server", server},
             {"client", calls_a_name}),
    DIRECTED(an_address_that_refuses_costs_nothing, refused_first, {"server", server},
             {"other", be_a_machine}, {"client", calls_a_name}),
    DIRECTED(a_server_that_is_reached_at_both_has_one_client, slow_to_both, {"server", server},
             {"client", calls_at_both}),
    DIRECTED(a_client_goes_on_when_the_address_in_use_is_cut, cut_in_use, {"server", server},
             {"client", is_cut}))
