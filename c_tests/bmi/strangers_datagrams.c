/*
 * Strangers that speak datagrams to a server: floods from one address, and an honest newcomer.
 *
 *     director ── Hello, Hello, ... ──────────► UDP port of the server     (its endpoint's number)
 *              ── Hello, Welcome, Ping: a session, and another, ... ──►
 *     role "good" ── begins, and is served ───►
 *
 * Datagrams are made from docs/dgram.md. Where the server has no UDP port they go nowhere.
 */
#include "../support/memory.h"
#include "../support/stage.h"

#include <sys/socket.h>

enum {
    HEADER = 64,
    GREETING = 65, /* payload of a Hello */
    VERSION = 3,
    KIND_HELLO = 1,
    KIND_WELCOME = 2,
    KIND_PING = 5,
    FLAG_OPENING = 8,
    /* Where the fields are. */
    SUM = 4,
    TO = 8,
    CALLER = 16,
    FIRST = 24,
    FIRST_OF_CALLER = 32,
    FLAGS = 44,
    PAYLOAD = 46,
    STRANGER = 9, /* 127.0.0.9, which no honest client is */
    HELLOS = 50000,
    SESSIONS = 20000,
};

static const uint32_t FIRST_NUMBER = 7;

static uint32_t crc32c(const unsigned char *bytes, size_t size)
{
    uint32_t sum = ~UINT32_C(0);

    for (size_t i = 0; i < size; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~sum;
}

static void head(unsigned char *out, int kind, uint64_t to, uint64_t from)
{
    memset(out, 0, HEADER);
    memcpy(out, "mR", 2);
    out[2] = VERSION;
    out[3] = (unsigned char)kind;
    wire_put(out + TO, to, 8);
    wire_put(out + CALLER, from, 8);
}

static void say(int fd, unsigned char *datagram, size_t size)
{
    wire_put(datagram + SUM, crc32c(datagram, HEADER), 4);
    /* ECONNREFUSED is the answer to an earlier one. */
    (void)!send(fd, datagram, size, MSG_NOSIGNAL);
}

static void say_hello(int fd, uint64_t caller)
{
    unsigned char hello[HEADER + GREETING] = {0};

    head(hello, KIND_HELLO, 0, caller);
    wire_put(hello + FIRST, FIRST_NUMBER, 4);
    wire_put(hello + PAYLOAD, GREETING, 2);
    say(fd, hello, sizeof hello);
}

/* Memory that the strangers have cost the server so far; elsewhere the newcomer costs more than they. */
static void cost_at_most(const struct stage *stage, int64_t before, int64_t most_kib)
{
    int64_t cost = resident_kib(child_pid(stage->server)) - before;

    printf("    %lld KiB more at the server\n", (long long)cost);
    if (port_is("dgram"))
        CHECK_THAT(cost, <, most_kib * slower());
}

/* Reads the answers; the number of Welcomes in them, each of which makes a session. */
static int take_welcomes(int fd)
{
    unsigned char in[2048];
    int count = 0;

    for (;;) {
        ssize_t size = recv(fd, in, sizeof in, MSG_DONTWAIT);
        unsigned char ping[HEADER];

        if (size < HEADER)
            return count;
        if (in[3] != KIND_WELCOME)
            continue;
        head(ping, KIND_PING, 0, 0);
        memcpy(ping + TO, in + CALLER, 8);
        memcpy(ping + CALLER, in + TO, 8);
        wire_put(ping + FIRST, 1, 4);
        wire_put(ping + FIRST_OF_CALLER, FIRST_NUMBER, 8);
        wire_put(ping + FLAGS, FLAG_OPENING, 2);
        say(fd, ping, sizeof ping);
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
    if (port_is("dgram"))
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
