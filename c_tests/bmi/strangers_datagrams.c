/*
 * Strangers that send datagrams to a server: floods from one address, and an honest newcomer.
 *
 *     director ── Hello, Hello, ... ──────────► UDP port of the server     (its endpoint's number)
 *              ── Hello, Welcome, Ping: a session, and another, ... ──►
 *     role "good" ── begins, and is served ───►
 *
 * The datagrams are built from docs/dgram.md. If the server has no UDP port they are lost.
 */
#include "../support/datagram.h"
#include "../support/memory.h"
#include "../support/stage.h"

#include <sys/socket.h>

enum {
    STRANGER = 9, /* 127.0.0.9, which no honest client has */
    HELLOS = 50000,
    SESSIONS = 20000,
};

static const uint32_t FIRST_NUMBER = 7;

static void say_hello(int fd, uint64_t caller)
{
    unsigned char hello[DATAGRAM_HEADER + DATAGRAM_GREETING];

    datagram_hello(hello, caller, FIRST_NUMBER);
    datagram_say(fd, hello, sizeof hello);
}

/* Limits the memory that the strangers have cost the server so far. Over other ports the newcomer costs more than
 * they. */
static void cost_at_most(const struct stage *stage, int64_t before, int64_t most_kib)
{
    int64_t cost = resident_kib(child_pid(stage->server)) - before;

    printf("    %lld KiB more at the server\n", (long long)cost);
    if (port_uses_udp())
        CHECK_THAT(cost, <, most_kib * slower());
}

/* Reads the answers. Returns the number of Welcomes, each of which opens a session. */
static int take_welcomes(int fd)
{
    unsigned char in[2048];
    int count = 0;

    for (;;) {
        ssize_t size = recv(fd, in, sizeof in, MSG_DONTWAIT);
        unsigned char ping[DATAGRAM_HEADER];

        if (size < DATAGRAM_HEADER)
            return count;
        if (in[AT_KIND] != DATAGRAM_WELCOME)
            continue;
        datagram_head(ping, DATAGRAM_PING, 0, 0);
        memcpy(ping + AT_TO, in + AT_FROM, 8);
        memcpy(ping + AT_FROM, in + AT_TO, 8);
        wire_put(ping + AT_NUMBER, 1, 4);
        wire_put(ping + AT_FIRST_OF_CALLER, FIRST_NUMBER, 8);
        wire_put(ping + AT_FLAGS, FLAG_OPENING, 2);
        datagram_say(fd, ping, sizeof ping);
        count++;
    }
}

static void flood_of_hellos(struct world *world)
{
    struct stage stage;
    int64_t before, took;
    int fd;

    set_up(world, &stage);
    before = resident_kib(child_pid(stage.server));
    fd = wire_dial_from(STRANGER, SOCK_DGRAM, stage.endpoint);
    CHECK(fd >= 0);
    for (uint64_t i = 1; i <= HELLOS; i++) {
        say_hello(fd, i << 20);
        if (i == HELLOS / 2)
            check_good(&stage);
    }
    took = newcomer(world, stage.endpoint);
    printf("    a newcomer is served after %lld ms\n", (long long)took);
    CHECK_THAT(took, <, WAIT_MS / 2);
    cost_at_most(&stage, before, 2048);
    close(fd);
    take_down(&stage);
}

static void flood_of_sessions(struct world *world)
{
    struct stage stage;
    int64_t before, took;
    int fd, sessions = 0;

    set_up(world, &stage);
    before = resident_kib(child_pid(stage.server));
    fd = wire_dial_from(STRANGER, SOCK_DGRAM, stage.endpoint);
    CHECK(fd >= 0);
    for (uint64_t i = 1; i <= SESSIONS; i++) {
        say_hello(fd, i << 20);
        sessions += take_welcomes(fd);
        if (i == SESSIONS / 2)
            check_good(&stage);
    }
    pause_ms(50);
    sessions += take_welcomes(fd);
    took = newcomer(world, stage.endpoint);
    if (port_uses_udp())
        CHECK_THAT(sessions, >, SESSIONS / 20);
    printf("    %d sessions of %d, a newcomer is served after %lld ms\n", sessions, SESSIONS,
           (long long)took);
    CHECK_THAT(took, <, WAIT_MS / 2);
    cost_at_most(&stage, before, 1024 + 2 * sessions);
    close(fd);
    take_down(&stage);
}

TESTS(
    DIRECTED(a_flood_of_first_datagrams_leaves_nothing_behind, flood_of_hellos, STAGE),
    DIRECTED(one_address_with_all_its_sessions_keeps_no_peer_out, flood_of_sessions, STAGE))
