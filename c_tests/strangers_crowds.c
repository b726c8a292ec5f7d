/*
 * Crowds over TCP: thousands that leave a part of a message behind, and 1200 that say nothing
 * where descriptors are few.
 *
 *     director ── 3000 connections, each a part of a message ──► server ◄── newcomer
 *              ── 1200 connections, each a preamble          ──►
 *
 * What the server's memory grows to is held against a limit, and a newcomer is served meanwhile. The
 * figures are printed.
 */
#include "support/port.h"
#include "support/stage.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PARTS = 3000,
    SILENT = 1200,
    FEW = 1024,
    MESSAGE = 32 * 1024,
    SOURCES = 30,
    /* The hello's fields in an opening: docs/wire-format.md. */
    ENDPOINT_AT = WIRE_PREAMBLE + WIRE_HEADER + 12,
    SESSION_AT = WIRE_PREAMBLE + WIRE_HEADER + 24,
    /* KiB: a 32nd of MX_UNEXPECTED_BYTES, what has no owner, and what a peer costs that is let in. */
    KEPT_MAX = 2 * 1024,
    REST_MAX = 1024,
    PEER_MAX = 2,
};

static int64_t resident_kib(pid_t pid)
{
    char name[64];
    long pages = 0;
    FILE *file;

    snprintf(name, sizeof name, "/proc/%d/statm", (int)pid);
    file = fopen(name, "r");
    CHECK(file != NULL && fscanf(file, "%*s %ld", &pages) == 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* ---- roles ---- */

static void few_descriptors(struct side *side)
{
    struct rlimit few = {FEW, FEW};

    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    echo_server(side);
}

/* Comes once, is served once, and says how many milliseconds that took. */
static void newcomer(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");
    int64_t begin = now_ms();
    struct bmi_method_addr *server;
    struct op receive = {0}, send = {0};
    static char out[20000], in[20000];

    host_start_client();
    server = host_lookup_endpoint(endpoint);
    CHECK_THAT(op_recv(&receive, server, in, sizeof in, 1), >=, 0);
    CHECK_THAT(op_send_unexpected(&send, server, out, sizeof out, 1), >=, 0);
    op_sent(&send);
    op_received(&receive, sizeof in);
    tell(side, "ms", now_ms() - begin);
    pair_hear(side, "stop");
    host_stop();
}

static int64_t a_newcomer_takes(struct world *world, int endpoint)
{
    struct child *child = spawn(world, "newcomer");
    int64_t ms;

    child_tell(child, "endpoint", endpoint);
    ms = child_hear(child, "ms");
    child_tell(child, "stop", 0);
    child_end(child);
    return ms;
}

/* ---- the crowd ---- */

static int dial_from(int source, int endpoint)
{
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (unsigned)source);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)endpoint);
    CHECK(bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

/* All but one byte of a message; less when the other side does not take that much, or has closed. */
static void leave_a_part(int fd)
{
    static unsigned char message[WIRE_HEADER + MESSAGE];
    struct packet packet = {.kind = 5, .body_length = MESSAGE};
    size_t size = sizeof message - 1;

    wire_packet(message, &packet, NULL, 0);
    for (size_t said = 0; said < size;) {
        ssize_t n = send(fd, message + said, size - said, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0)
            return;
        said += (size_t)n;
    }
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

static void leave_parts(struct world *world, bool introduced)
{
    static int fds[PARTS];
    unsigned char opening[OPENING_MAX], heard[WIRE_PREAMBLE + WIRE_HEADER];
    struct child *server = spawn(world, "server");
    int endpoint = (int)child_hear(server, "endpoint"), let_in = 0;
    int64_t before, height, after, ms;
    size_t size;

    if (!port_is("tcp"))
        goto end;
    size = record_tcp(world, opening);
    a_newcomer_takes(world, endpoint);
    before = resident_kib(child_pid(server));
    for (int i = 0; i < PARTS; i++) {
        uint32_t claimed = 2000 + (uint32_t)i;

        fds[i] = dial_from(i % SOURCES, endpoint);
        for (int at = 0; at < 4; at++)
            opening[ENDPOINT_AT + at] = (unsigned char)(claimed >> (8 * at));
        opening[SESSION_AT + 1] = (unsigned char)i;
        opening[SESSION_AT + 2] = (unsigned char)(i >> 8);
        if (introduced) {
            if (wire_say(fds[i], opening, size) &&
                wire_hear(fds[i], heard, sizeof heard, PATIENCE_MS) == sizeof heard)
                let_in++;
        } else {
            wire_say(fds[i], opening, WIRE_PREAMBLE);
        }
        leave_a_part(fds[i]);
    }
    usleep(500 * 1000);
    height = resident_kib(child_pid(server));
    ms = a_newcomer_takes(world, endpoint);
    close_all(fds, PARTS);
    a_newcomer_takes(world, endpoint);
    after = resident_kib(child_pid(server));
    printf("%d connections, %d let in, each all but one byte of %d KiB: server %d KiB before, %d at "
           "the height, %d after; a newcomer is served after %d ms\n",
           PARTS, let_in, MESSAGE / 1024, (int)before, (int)height, (int)after, (int)ms);
    if (introduced)
        CHECK_THAT(let_in, ==, PARTS);
    CHECK_THAT(height - before, <, (KEPT_MAX + REST_MAX + let_in * PEER_MAX) * slower());
    CHECK_THAT(after - before, <, (KEPT_MAX + REST_MAX + let_in * PEER_MAX) * slower());
    CHECK_THAT(ms, <, 5000);
end:
    child_tell(server, "stop", 0);
    child_end(server);
}

static void parts_of_strangers(struct world *world)
{
    leave_parts(world, false);
}

static void parts_of_peers(struct world *world)
{
    leave_parts(world, true);
}

static void silence(struct world *world)
{
    static int fds[SILENT];
    struct child *server = spawn(world, "server");
    int endpoint = (int)child_hear(server, "endpoint");
    int64_t ms;

    if (port_is("tcp")) {
        for (int i = 0; i < SILENT; i++) {
            fds[i] = dial_from(0, endpoint);
            send(fds[i], "\x93MXTCP\x01", WIRE_PREAMBLE, MSG_NOSIGNAL);
        }
        ms = a_newcomer_takes(world, endpoint);
        printf("%d silent connections at a server with %d descriptors: a newcomer is served after %d "
               "ms\n",
               SILENT, FEW, (int)ms);
        CHECK_THAT(ms, <, 5000);
        close_all(fds, SILENT);
    }
    child_tell(server, "stop", 0);
    child_end(server);
}

static const struct scenario scenarios[] = {
    DIRECTED(parts_of_messages_of_strangers_are_not_kept, parts_of_strangers,
             {"server", echo_server}, {"newcomer", newcomer}, {"dialler", dialler}),
    DIRECTED(parts_of_messages_of_peers_are_kept_up_to_the_limit, parts_of_peers,
             {"server", echo_server}, {"newcomer", newcomer}, {"dialler", dialler}),
    DIRECTED(more_silent_ones_than_descriptors_keep_nobody_out, silence, {"server", few_descriptors},
             {"newcomer", newcomer}),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
