/*
 * Crowds over TCP: thousands of connections that leave a part of a message, and 1200 that are silent where
 * descriptors are few.
 *
 *     director ── 3000 connections, each a part of a message ──► server ◄── newcomer (role "good")
 *              ── 1200 connections, each a preamble          ──►
 *
 * The growth of the server's memory is limited, and a newcomer is served meanwhile. The program prints the
 * figures.
 */
#include "../support/limit.h"
#include "../support/memory.h"
#include "../support/stage.h"

#include <sys/socket.h>

enum {
    PARTS = 3000,
    SILENT = 1200,
    FEW = 1024,
    MESSAGE = 32 * 1024,
    SOURCES = 30,
    /* Limit of KiB: a 32nd of MX_UNEXPECTED_BYTES, messages without an owner, and the cost of a peer. */
    KEPT_MAX = 2 * 1024,
    REST_MAX = 1024,
    PEER_MAX = 2,
};

static void few_descriptors(struct side *side)
{
    limit_to(RLIMIT_NOFILE, FEW);
    echo_server(side);
}

/* ---- the crowd ---- */

/* Sends all but one byte of a message; less if the server does not read that much, or has closed the link. */
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

/* The variant: true for peers that have introduced themselves, false for strangers. */
static void leave_parts(struct world *world)
{
    bool introduced = variant_of(world) != 0;
    static int fds[PARTS];
    unsigned char opening[OPENING_MAX], heard[WIRE_PREAMBLE + WIRE_HEADER];
    struct child *server = spawn(world, "server");
    int endpoint = (int)child_hear(server, "endpoint"), let_in = 0;
    int64_t before, height, after, ms;
    size_t size;

    if (!port_is("tcp"))
        goto end;
    size = record_tcp(world, opening);
    newcomer(world, endpoint);
    before = resident_kib(child_pid(server));
    for (int i = 0; i < PARTS; i++) {
        fds[i] = wire_dial_from(2 + (unsigned)i % SOURCES, SOCK_STREAM, endpoint);
        CHECK(fds[i] >= 0);
        claim(opening, 2000 + i, 1000 + (uint64_t)i);
        if (introduced) {
            if (wire_say(fds[i], opening, size) &&
                wire_hear(fds[i], heard, sizeof heard, WAIT_MS) == sizeof heard)
                let_in++;
        } else {
            wire_say(fds[i], opening, WIRE_PREAMBLE);
        }
        leave_a_part(fds[i]);
    }
    usleep(500 * 1000);
    height = resident_kib(child_pid(server));
    ms = newcomer(world, endpoint);
    close_all(fds, PARTS);
    newcomer(world, endpoint);
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

static void silence(struct world *world)
{
    static int fds[SILENT];
    struct child *server = spawn(world, "server");
    int endpoint = (int)child_hear(server, "endpoint");
    int64_t ms;

    if (port_is("tcp")) {
        for (int i = 0; i < SILENT; i++) {
            fds[i] = wire_dial_from(2, SOCK_STREAM, endpoint);
            CHECK(fds[i] >= 0);
            send(fds[i], "\x93MXTCP\x01", WIRE_PREAMBLE, MSG_NOSIGNAL);
        }
        ms = newcomer(world, endpoint);
        printf("%d silent connections at a server with %d descriptors: a newcomer is served after %d "
               "ms\n",
               SILENT, FEW, (int)ms);
        CHECK_THAT(ms, <, 5000);
        close_all(fds, SILENT);
    }
    child_tell(server, "stop", 0);
    child_end(server);
}

TESTS(
    DIRECTED_OF(parts_of_messages_of_strangers_are_not_kept, false, leave_parts, STAGE),
    DIRECTED_OF(parts_of_messages_of_peers_are_kept_up_to_the_limit, true, leave_parts, STAGE),
    DIRECTED(more_silent_ones_than_descriptors_keep_no_peer_out, silence, {"server", few_descriptors},
             {"good", good_client}))
