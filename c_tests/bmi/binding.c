/*
 * The address that a server listens on: the one in its name with BMI_TCP_BIND_SPECIFIC, otherwise all addresses.
 *
 *     mx://127.0.0.2:0:N ──initialize──► listening on 127.0.0.2     BMI_TCP_BIND_SPECIFIC
 *                                        listening on all of them   without
 *     mx://192.0.2.77:0:N ──initialize──► refused                    BMI_TCP_BIND_SPECIFIC
 *                                        a warning, and all         without
 *
 * The test's own sockets ask at each address whether there is a listener. Over shared memory no process of another
 * machine can connect, whatever the name.
 */
#include "../support/log.h"
#include "../support/pair.h"

#include <arpa/inet.h>
#include <sys/socket.h>

enum { SPECIFIC = BMI_INIT_SERVER | BMI_TCP_BIND_SPECIFIC, LARGE = 300000 };

/* Loopback addresses, which every machine has. */
static const char *const own[] = {"127.0.0.1", "127.0.0.2", "::1"};
enum { OWN = sizeof own / sizeof own[0] };

static socklen_t socket_address(struct sockaddr_storage *out, const char *text, int port)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return sizeof *v4;
    }
    CHECK_THAT(inet_pton(AF_INET6, text, &v6->sin6_addr), ==, 1);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    return sizeof *v6;
}

/* Tells whether a socket of this type listens there. On the loopback device the kernel answers at once. */
static bool answers(int type, const char *text, int port)
{
    struct sockaddr_storage address;
    socklen_t length = socket_address(&address, text, port);
    int fd = socket(address.ss_family, type | SOCK_CLOEXEC, 0), result;

    CHECK_THAT(fd, >=, 0);
    result = connect(fd, (struct sockaddr *)&address, length);
    if (result == 0 && type == SOCK_DGRAM) {
        /* The kernel rejects the first datagram and reports that to the second call. */
        CHECK_THAT(send(fd, "?", 1, 0), ==, 1);
        usleep(2000);
        result = send(fd, "?", 1, 0) == 1 ? 0 : -1;
    }
    if (result != 0)
        CHECK_THAT(errno, ==, ECONNREFUSED);
    close(fd);
    return result == 0;
}

static struct bmi_method_addr *named(const char *host, int endpoint)
{
    const char *form = strchr(host, ':') == NULL ? "mx://%s:0:%d" : "mx://[%s]:0:%d";
    char text[ADDRESS_SIZE];
    struct bmi_method_addr *address;

    snprintf(text, sizeof text, form, host, endpoint);
    address = ops->method_addr_lookup(text);
    if (address == NULL)
        FAIL("cannot look up %s", text);
    address->method_type = METHOD_ID;
    return address;
}

/* Returns a number that is free, or was a moment ago. */
static int free_endpoint(void)
{
    int endpoint = host_start_server();

    host_stop();
    return endpoint;
}

/* Starts a server with that name; returns the result of initialize. */
static int serve_as(const char *host, int endpoint, int flags)
{
    struct bmi_method_addr *address = named(host, endpoint);
    int result = ops->initialize(address, METHOD_ID, flags, NULL);

    if (result != 0)
        ops->set_info(BMI_DROP_ADDR, address);
    return result;
}

static void only_the_named(struct side *side)
{
    for (int name = 0; name < OWN; name++) {
        int endpoint = free_endpoint();

        CHECK_THAT(serve_as(own[name], endpoint, SPECIFIC), ==, 0);
        for (int at = 0; at < OWN; at++) {
            /* The local port claims the number on 127.0.0.1 only. */
            bool expected = port_is("local") ? at == 0 : at == name;

            if (answers(SOCK_STREAM, own[at], endpoint) != expected)
                FAIL("%s, listening on %s: %sconnections", own[at], own[name], expected ? "no " : "");
            if (port_uses_udp() && answers(SOCK_DGRAM, own[at], endpoint) != expected)
                FAIL("%s, listening on %s: %sdatagrams", own[at], own[name], expected ? "no " : "");
        }
        CHECK_THAT(ops->finalize(), ==, 0);
    }
}

static void all_without_the_flag(struct side *side)
{
    int endpoint = free_endpoint();

    CHECK_THAT(serve_as(own[1], endpoint, BMI_INIT_SERVER), ==, 0);
    for (int at = 0; at < OWN && !port_is("local"); at++) {
        CHECK(answers(SOCK_STREAM, own[at], endpoint));
        if (port_uses_udp())
            CHECK(answers(SOCK_DGRAM, own[at], endpoint));
    }
    CHECK_THAT(ops->finalize(), ==, 0);
}

/* ---- peers find the server at its address ---- */

static void listens_on_each(struct side *side)
{
    for (int name = 0; name < OWN; name++) {
        struct bmi_method_addr *client;
        int endpoint = free_endpoint();

        CHECK_THAT(serve_as(own[name], endpoint, SPECIFIC), ==, 0);
        CHECK_THAT(ops->open_context(0), ==, 0);
        tell(side, "endpoint", endpoint);
        client = host_take(1);
        receive_pattern(client, LARGE, 5, (uint64_t)name);
        send_pattern(client, LARGE, 6, (uint64_t)name);
        pair_sync(side);
        ops->close_context(0);
        CHECK_THAT(ops->finalize(), ==, 0);
    }
}

static void talks_to_each(struct side *side)
{
    host_start_client();
    for (int name = 0; name < OWN; name++) {
        struct bmi_method_addr *server = named(own[name], (int)hear(side, "endpoint"));
        static char body[LARGE], back[LARGE];
        struct op receive = {0}, send = {0}, hello = {0};

        fill(body, LARGE, (uint64_t)name);
        CHECK_THAT(op_recv(&receive, server, back, LARGE, 6), >=, 0);
        CHECK_THAT(op_send_unexpected(&hello, server, "x", 1, 1), >=, 0);
        CHECK_THAT(op_send(&send, server, body, LARGE, 5), >=, 0);
        op_sent(&hello);
        op_sent(&send);
        op_received(&receive, LARGE);
        check_filled(back, LARGE, (uint64_t)name);
        pair_sync(side);
        ops->set_info(BMI_DROP_ADDR, server);
    }
    host_stop();
}

/* ---- names of other machines ---- */

static const struct {
    const char *host;
    int code;
    const char *refusal, *warning;
} foreign[] = {
    /* An address reserved for documentation: no machine has it. */
    {"192.0.2.77", BMI_EADDRNOTAVAIL, "192.0.2.77 is not an address of this machine",
     "192.0.2.77 is not an address of this machine"},
    {"2001:db8::1", BMI_EADDRNOTAVAIL, "2001:db8::1 is not an address of this machine",
     "2001:db8::1 is not an address of this machine"},
    /* RFC 6761: never resolves. */
    {"no-such-host.invalid", BMI_EHOSTUNREACH, "unknown host 'no-such-host.invalid'",
     "unknown host 'no-such-host.invalid'"},
    {"0.0.0.0", BMI_EINVAL, "'0.0.0.0' is not a host address", "unknown host '0.0.0.0'"},
};

static void not_this_machine(struct side *side)
{
    log_take();
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        int endpoint = free_endpoint();

        log_forget();
        CHECK_THAT(serve_as(foreign[i].host, endpoint, SPECIFIC), ==, -foreign[i].code);
        log_one(LOG_ERROR, foreign[i].refusal);
        CHECK(!answers(SOCK_STREAM, own[0], endpoint));
        /* The failed start has left nothing behind. */
        CHECK_THAT(serve_as("localhost", endpoint, SPECIFIC), ==, 0);
        CHECK_THAT(ops->finalize(), ==, 0);
        /* Without the flag the name is accepted, since a translator of addresses may use it, and a warning says
         * so. */
        log_forget();
        CHECK_THAT(serve_as(foreign[i].host, endpoint, BMI_INIT_SERVER), ==, 0);
        log_one(LOG_WARNING, foreign[i].warning);
        CHECK(answers(SOCK_STREAM, own[0], endpoint));
        CHECK_THAT(ops->finalize(), ==, 0);
    }
    log_by(NULL);
}

/* This machine's own names cause no warning. */
static void this_machine(struct side *side)
{
    char name[200] = "";

    CHECK_THAT(gethostname(name, sizeof name - 1), ==, 0);
    log_take();
    for (int flags = BMI_INIT_SERVER; flags <= SPECIFIC; flags += BMI_TCP_BIND_SPECIFIC) {
        int endpoint = free_endpoint();

        log_forget();
        CHECK_THAT(serve_as(name, endpoint, flags), ==, 0);
        CHECK_THAT(ops->finalize(), ==, 0);
        CHECK_THAT(serve_as("localhost", endpoint, flags), ==, 0);
        CHECK_THAT(ops->finalize(), ==, 0);
        CHECK_THAT(log_count(), ==, 0);
    }
    log_by(NULL);
}

TESTS(
    SOLO(bound_to_its_name_a_server_listens_on_that_address_only, only_the_named),
    SOLO(otherwise_it_listens_on_all_of_them, all_without_the_flag),
    PAIR(peers_find_a_server_at_the_only_address_it_has, listens_on_each, talks_to_each),
    SOLO(a_name_of_no_address_here_is_refused_or_told, not_this_machine),
    SOLO(the_names_of_this_machine_are_all_right, this_machine))
