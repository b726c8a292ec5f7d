/*
 * Strangers who try to take the place of a server's client, or of the server, while both work (root).
 *
 *      server 10.0.0.1 ────┬──────────┬──────────── storage ────────┬──── 10.0.0.254 router 192.168.7.1 ──── inside
 *                    10.0.0.2      10.0.0.3                     10.0.0.9                        │          │
 *                     client      bystander                     attacker               192.168.7.2        .9
 *                                                                                           client    attacker
 *
 * The attacker knows everything that is said about client and server, or has heard all that they said to each
 * other: from another machine, from behind the client's own translator, or as a relay between them. It becomes at
 * most a peer of its own. Client and bystander go on without an error or a pause, no message is lost, comes twice
 * or belongs to another peer, and when the attacker has left, the server has the descriptors and the memory of
 * before.
 */
#include "../support/attack.h"
#include "../support/machines.h"
#include "../support/net.h"
#include "../support/port.h"
#include "../support/wait_children.h"
#include "../support/relay.h"
#include "../support/secret_file.h"
#include "../support/service.h"
#include "../support/siege.h"

#include <arpa/inet.h>
#include <sys/wait.h>

enum {
    ENDPOINT = 2003,
    ASSAULT_MS = 60000,
    CALL_MS = 10000,
    REPLAYS = 3,
    /* Variants. */
    SECRET = 1,
    FROM_INSIDE = 2,
};

#define SERVER "10.0.0.1"
#define CLIENT "10.0.0.2"
#define BYSTANDER "10.0.0.3"
#define ATTACKER "10.0.0.9"
#define OUTSIDE "10.0.0.254"
#define INSIDE "192.168.7.1"
#define CLIENT_INSIDE "192.168.7.2"
#define CALLER_INSIDE "192.168.7.3"
#define ATTACKER_INSIDE "192.168.7.9"

static uint32_t ipv4(const char *text)
{
    struct in_addr address;

    CHECK(inet_aton(text, &address) == 1);
    return ntohl(address.s_addr);
}

/* ---- sides ---- */

/* Becomes a machine, with the site's secret if the variant says so. */
static void become_of_the_site(struct side *side)
{
    become_machine(side);
    secret_file(side->variant & SECRET ? "letters that only the site's machines have" : NULL, 0600);
}

static void server(struct side *side)
{
    become_of_the_site(side);
    serve_attacked(side, "mx://localhost:0:2003");
    secret_file_gone();
}

static void client(struct side *side)
{
    become_of_the_site(side);
    host_start_client();
    secret_file_gone();
    besieged(side, service_of(SERVER, ENDPOINT));
}

/* Receives the client's address from the director. */
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
    attack(&of_server, &client, true);
    attack(&of_client, &server, false);
    if (on_network && port_is("dgram")) {
        forge(&of_server, of_client.address, of_client.number);
        forge(&of_client, of_server.address, of_server.number);
    }
    tell(side, "done", 0);
    hear(side, "stop");
}

/* ---- a relay, on the router ---- */

static bool has_ended(void *child)
{
    const pid_t *pid = child;
    siginfo_t info = {0};

    CHECK(waitid(P_PID, (id_t)*pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0);
    return info.si_pid != 0;
}

static bool is_refused(int answer)
{
    return answer == WRONG_PROOF || answer == TURNED_AWAY;
}

/* Once without the secret, once with a wrong proof. */
static void intrude_without_secret(const struct door *door)
{
    static const unsigned char proof[PROOF_BYTES] = "letters that are none";
    struct identity stranger = {.number = 5, .life = 9, .nonce = {1}}, answerer;

    for (int proves = 0; proves < 2; proves++) {
        unsigned char answer[PACKET_MAX];
        struct intruder intruder;
        uint32_t id;

        CHECK_THAT(enter_as(&intruder, door, &stranger, &answerer, &id), ==, CHALLENGED);
        if (proves)
            say_packet(&intruder, (struct packet){.kind = KIND_PROVE}, proof, sizeof proof);
        else
            ask_as(&intruder, 1, 1);
        CHECK(is_refused(hear_answer(&intruder, answer)));
        hang_up(&intruder);
    }
}

/* Replays the recording on this machine and on another one. */
static void replay_everywhere(const struct side *side, pid_t elsewhere)
{
    struct door of_server = door_of(ipv4(SERVER), ENDPOINT);

    for (int place = 0; place < 2; place++) {
        for (int i = 0; i < REPLAYS; i++) {
            int told = replay(relay_recording(), &of_server);

            CHECK(side->variant & SECRET ? is_refused(told) : told == WELCOME);
        }
        if (side->variant & SECRET)
            intrude_without_secret(&of_server);
        if (place == 0)
            enter_namespace(elsewhere, "net");
    }
}

static void relay(struct side *side)
{
    struct door of_server = door_of(ipv4(SERVER), ENDPOINT);
    pid_t elsewhere, child;

    become_machine(side);
    relay_open(&of_server);
    tell(side, "open", 0);
    relay_until(side, RELAY_PASSES, NULL, NULL);
    elsewhere = (pid_t)hear(side, "replay");
    child = fork_child();
    if (child == 0) {
        replay_everywhere(side, elsewhere);
        leave_fork("0");
    }
    relay_until(side, RELAY_PASSES, has_ended, &child);
    reap_fork(child);
    tell(side, "replayed", 0);
    for (;;) {
        enum relay_mode mode;

        relay_until(side, RELAY_PASSES, NULL, NULL);
        mode = (enum relay_mode)hear(side, "mode");
        if (mode == RELAY_PASSES)
            break;
        tell(side, "on", 0);
        relay_until(side, mode, NULL, NULL);
        hear(side, "mode");
    }
}

/* Calls once over the relay; reports whether it was answered. */
static void caller(struct side *side)
{
    struct in_addr address;
    int code = 0;

    become_of_the_site(side);
    set_ms("BMI_MX_CONNECT_TIMEOUT_MS", CALL_MS);
    address.s_addr = htonl((uint32_t)hear(side, "target"));
    host_start_client();
    secret_file_gone();
    try_get(service_of(inet_ntoa(address), ENDPOINT), 8, &code);
    tell(side, "code", code);
    host_stop();
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

/* The variant: FROM_INSIDE for an attacker behind the client's translator. */
static void claim_the_client(struct world *world)
{
    bool is_inside = (variant_of(world) & FROM_INSIDE) != 0;
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

/* Makes the router redirect packets for the server to its relay. */
static struct child *begin_relay(struct world *world)
{
    struct child *relay = machine(world, "relay");

    begin_router(relay);
    at(relay, "nft \"add chain ip nat in { type nat hook prerouting priority -100; }; "
              "add rule ip nat in iif eth0 ip protocol { tcp, udp } th dport 2003 redirect\"");
    child_hear(relay, "open");
    return relay;
}

/* Returns the code with which a call from inside ends. */
static int call(struct world *world, const char *target)
{
    struct child *caller = machine(world, "caller");
    int code;

    plug(caller, "eth0", "inside", CALLER_INSIDE "/24");
    at(caller, "ip route add default via " INSIDE);
    machine_on(caller);
    child_tell(caller, "target", ipv4(target));
    code = (int)child_hear(caller, "code");
    child_end(caller);
    return code;
}

/* A call that the relay alters, or adds to, is rejected; so is a call to the relay's own name. */
static void meddle_with_calls(struct world *world, struct child *relay)
{
    int code;

    for (int mode = RELAY_ALTERS; mode <= RELAY_ADDS; mode++) {
        child_tell(relay, "mode", mode);
        child_hear(relay, "on");
        code = call(world, SERVER);
        CHECK(mode == RELAY_ADDS ? code < 0 : code == -BMI_EACCES);
        child_tell(relay, "mode", mode);
    }
    CHECK_THAT(call(world, INSIDE), ==, -BMI_EPERM);
}

/* The variant: whether the site has a secret. */
static void repeat_the_client(struct world *world)
{
    bool with_secret = (variant_of(world) & SECRET) != 0;
    struct siege siege;
    struct child *relay, *elsewhere;
    int64_t number;

    machines_begin("nft --version");
    siege.server = begin_server(world);
    relay = begin_relay(world);
    siege.clients[0] = begin_client(world, "inside", CLIENT_INSIDE "/24", INSIDE, &number);
    siege.clients[1] = begin_client(world, "storage", BYSTANDER "/24", NULL, &number);
    siege_begin(&siege);
    elsewhere = machine(world, "elsewhere");
    plug(elsewhere, "eth0", "storage", ATTACKER "/24");
    machine_on(elsewhere);
    child_tell(relay, "replay", child_pid(elsewhere));
    child_hear_within(relay, "replayed", ASSAULT_MS);
    if (with_secret)
        meddle_with_calls(world, relay);
    child_tell(elsewhere, "stop", 0);
    child_end(elsewhere);
    siege_end(&siege, with_secret ? 0 : 2 * REPLAYS);
    child_tell(relay, "mode", RELAY_PASSES);
    child_end(relay);
}

TESTS(
    DIRECTED_OF(no_stranger_takes_a_clients_place_from_another_machine, 0, claim_the_client, {"server", server},
                {"client", client}, {"attacker", attacker}),
    DIRECTED_OF(no_stranger_takes_a_clients_place_from_behind_its_translator, FROM_INSIDE, claim_the_client,
                {"server", server}, {"client", client}, {"attacker", attacker}, {"router", be_a_machine}),
    DIRECTED_OF(what_a_client_has_said_is_of_no_use_to_others, 0, repeat_the_client, {"server", server}, {"client", client},
                {"relay", relay}, {"elsewhere", be_a_machine}),
    DIRECTED_OF(with_a_secret_it_is_refused_and_so_is_a_relay, SECRET, repeat_the_client, {"server", server},
                {"client", client}, {"relay", relay}, {"elsewhere", be_a_machine}, {"caller", caller}))
