/*
 * A server with two addresses, called at the one it would not answer from by itself, where it listens on
 * both or on that one only (make check-net, root).
 *
 *      client ── side0 ══ hub ══ side0 ── server: 198.51.100.2 and another, on the same interface
 *                                          or behind it
 *
 * Messages of 8 bytes to 1 MiB both ways, and enough tiny ones in a row that they take their own
 * socket. Over dgram no other port will do: an answer from the wrong address would not be taken, and
 * the call would be made over TCP.
 */
#include "../support/net.h"
#include "../support/pair.h"
#include "../support/traffic.h"

#include <arpa/inet.h>
#include <sys/socket.h>

enum { ROUNDS = 3, PINGS = 200, WITHIN_MS = 20000, CLIENT = 0, SERVER = 1 };

#define LARGEST (INT64_C(1) << 20)

/* The other address, and what makes it one. */
struct home {
    const char *address, *device;
    const char *way; /* how the client gets there; NULL: it is a neighbour */
};

static const struct home homes[] = {
    {"198.51.100.77/24", "side0", NULL},
    {"203.0.113.77/32", "lo", "203.0.113.77/32 via 198.51.100.2"},
};

static const struct home *hear_home(struct side *side)
{
    return &homes[hear(side, "home")];
}

/* Its address in mx://. */
static void name_home(char text[ADDRESS_SIZE], const struct home *home, int endpoint)
{
    snprintf(text, ADDRESS_SIZE, "mx://%s%.*s:0:%d", port_is("dgram") ? "dgram@" : "",
             (int)strcspn(home->address, "/"), home->address, endpoint);
}

/* A server that listens on that address only. */
static int start_only_at(const struct home *home)
{
    int endpoint = host_start_server(); /* finds one that is free, and frees it again */
    struct bmi_method_addr *address;
    char text[ADDRESS_SIZE];

    host_stop();
    name_home(text, home, endpoint);
    address = host_lookup(text);
    CHECK(address != NULL);
    address->method_type = METHOD_ID;
    CHECK_THAT(ops->initialize(address, METHOD_ID, BMI_INIT_SERVER | BMI_TCP_BIND_SPECIFIC, NULL), ==, 0);
    CHECK_THAT(ops->open_context(0), ==, 0);
    return endpoint;
}

static void converse(struct bmi_method_addr *peer, bool leads, deadline_t deadline)
{
    struct talk *talk = calloc(1, sizeof *talk);

    CHECK(talk != NULL);
    talk_begin(talk, peer, leads, !leads, leads, LARGEST);
    for (int round = 0; round < ROUNDS; round++)
        talk_round(talk, 1, deadline);
    talk_end(talk);
    free(talk);
}

static void end_side(struct side *side)
{
    tell(side, "done", 0);
    while (!heard_anything(side))
        host_pump(5);
    hear(side, "end");
    host_stop();
}

/* Does a connection to that port of the server's first address succeed? */
static bool is_open_at_first(int port)
{
    struct sockaddr_in first = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool open;

    CHECK_THAT(fd, >=, 0);
    CHECK_THAT(inet_pton(AF_INET, "198.51.100.2", &first.sin_addr), ==, 1);
    open = connect(fd, (struct sockaddr *)&first, sizeof first) == 0;
    if (!open)
        CHECK_THAT(errno, ==, ECONNREFUSED);
    close(fd);
    return open;
}

static void server(struct side *side)
{
    const struct home *home = hear_home(side);
    bool only = hear(side, "only") != 0;
    deadline_t deadline = deadline_in(WITHIN_MS);
    struct bmi_method_addr *client;

    become_host(side);
    run("ip address add %s dev %s", home->address, home->device);
    tell(side, "endpoint", only ? start_only_at(home) : host_start_server());
    client = pair_accept();
    converse(client, false, deadline);
    pong(client, PINGS, deadline);
    end_side(side);
}

static void client(struct side *side)
{
    const struct home *home = hear_home(side);
    bool only = hear(side, "only") != 0;
    deadline_t deadline = deadline_in(WITHIN_MS);
    struct bmi_method_addr *server;
    char text[ADDRESS_SIZE];
    int endpoint;

    become_host(side);
    if (home->way != NULL)
        run("ip route add %s", home->way);
    host_start_client();
    endpoint = (int)hear(side, "endpoint");
    CHECK(is_open_at_first(endpoint) != only);
    name_home(text, home, endpoint);
    server = host_lookup(text);
    CHECK(server != NULL);
    pair_hello(server);
    converse(server, true, deadline);
    ping(server, PINGS, deadline);
    end_side(side);
}

static void called_at(struct world *world, int home, bool only)
{
    struct child *sides[2];

    make_hub();
    sides[CLIENT] = spawn(world, "client");
    sides[SERVER] = spawn(world, "server");
    for (int i = 0; i < 2; i++) {
        child_tell(sides[i], "home", home);
        child_tell(sides[i], "only", only);
        plug_in(sides[i], i);
    }
    child_tell(sides[CLIENT], "endpoint", child_hear(sides[SERVER], "endpoint"));
    for (int i = 0; i < 2; i++)
        child_hear_within(sides[i], "done", WITHIN_MS);
    for (int i = 0; i < 2; i++) {
        child_tell(sides[i], "end", 0);
        child_end(sides[i]);
    }
}

static void on_the_interface(struct world *world)
{
    called_at(world, 0, false);
}

static void behind_it(struct world *world)
{
    called_at(world, 1, false);
}

static void only_on_the_interface(struct world *world)
{
    called_at(world, 0, true);
}

static void only_behind_it(struct world *world)
{
    called_at(world, 1, true);
}

TESTS(
    DIRECTED(a_second_address_of_the_interface_answers_for_itself, on_the_interface,
             {"client", client}, {"server", server}),
    DIRECTED(an_address_behind_the_interface_answers_for_itself, behind_it, {"client", client},
             {"server", server}),
    DIRECTED(a_second_address_may_be_the_only_one_that_answers, only_on_the_interface,
             {"client", client}, {"server", server}),
    DIRECTED(an_address_behind_the_interface_may_be_the_only_one, only_behind_it, {"client", client},
             {"server", server}))
