/*
 * A server with two addresses, called at the one that the kernel would not choose as source of the answer, and
 * listening on both or on that one only (make check-net, root).
 *
 *      client ── side0 ══ hub ══ side0 ── server: 198.51.100.2 and another, on the same interface
 *                                          or behind it
 *
 * Messages of 8 bytes to 1 MiB both ways, and enough small ones in a row that they get a socket of their own. Over
 * dgram no other port is allowed: the client would drop an answer from the wrong address, and call over TCP.
 */
#include "../support/net.h"
#include "../support/pair.h"
#include "../support/traffic.h"

#include <arpa/inet.h>
#include <sys/socket.h>

enum { ROUNDS = 3, PINGS = 200, WITHIN_MS = 20000, CLIENT = 0, SERVER = 1 };

#define LARGEST (INT64_C(1) << 20)

/* The other address, and its place. */
struct home {
    const char *address, *device;
    const char *way; /* the client's route to it; NULL: on the same network */
};

/* Variants: the address's place, and whether the server listens there only. */
enum { INTERFACE, BEHIND, ONLY };

static const struct home homes[] = {
    {"198.51.100.77/24", "side0", NULL},
    {"203.0.113.77/32", "lo", "203.0.113.77/32 via 198.51.100.2"},
};

/* Formats the mx:// address. */
static void name_home(char text[ADDRESS_SIZE], const struct home *home, int endpoint)
{
    snprintf(text, ADDRESS_SIZE, "mx://%s%.*s:0:%d", port_is("dgram") ? "dgram@" : "",
             (int)strcspn(home->address, "/"), home->address, endpoint);
}

/* Starts a server that listens on that address only. */
static int start_only_at(const struct home *home)
{
    int endpoint = host_start_server(); /* finds a free endpoint and closes it again */
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

/* Returns whether a connection to that port of the server's first address succeeds. */
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
    const struct home *home = &homes[side->variant % ONLY];
    bool only = (side->variant & ONLY) != 0;
    deadline_t deadline = deadline_in(WITHIN_MS);
    struct bmi_method_addr *client;

    become_host(side);
    run("ip address add %s dev %s", home->address, home->device);
    tell(side, "endpoint", only ? start_only_at(home) : host_start_server());
    client = pair_accept();
    talk_rounds(client, false, LARGEST, ROUNDS, deadline);
    pong(client, PINGS, deadline);
    tell(side, "done", 0);
    net_part(side);
}

static void client(struct side *side)
{
    const struct home *home = &homes[side->variant % ONLY];
    bool only = (side->variant & ONLY) != 0;
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
    talk_rounds(server, true, LARGEST, ROUNDS, deadline);
    ping(server, PINGS, deadline);
    tell(side, "done", 0);
    net_part(side);
}

static void called_at(struct world *world)
{
    struct child *sides[2];

    make_hub();
    sides[CLIENT] = spawn(world, "client");
    sides[SERVER] = spawn(world, "server");
    for (int i = 0; i < 2; i++) {
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

#define SIDES {"client", client}, {"server", server}

TESTS(
    DIRECTED_OF(a_second_address_of_the_interface_answers_for_itself, INTERFACE, called_at, SIDES),
    DIRECTED_OF(an_address_behind_the_interface_answers_for_itself, BEHIND, called_at, SIDES),
    DIRECTED_OF(a_second_address_may_be_the_only_one_that_answers, INTERFACE | ONLY, called_at, SIDES),
    DIRECTED_OF(an_address_behind_the_interface_may_be_the_only_one, BEHIND | ONLY, called_at, SIDES))
