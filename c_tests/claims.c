/*
 * Who may speak for whom: sockets that claim to be somebody else.
 *
 *     director ── an opening, its claims changed ──► server ◄── victim, with a receive posted
 *              recorded from "dialler", a real client
 *
 *   1. From 127.0.0.9, the claim of an interface that the network has not proven: refused. By that
 *      address hosts decide who may mount.
 *   2. The claim of the victim's interface and endpoint with another session number: nothing of the
 *      victim's ends.
 */
#include "support/stage.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The hello's fields in an opening: docs/wire-format.md. */
enum {
    HELLO_AT = WIRE_PREAMBLE + WIRE_HEADER,
    ENDPOINT_AT = HELLO_AT + 12,
    NIC_AT = HELLO_AT + 16,
    SESSION_AT = HELLO_AT + 24,
    KIND_REPLY = 2,
    STATUS_AT = 20, /* in a header */
    TAG_LATE = 77,
    ATTEMPTS = 8,
};

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static int dial_from(const char *source, int endpoint)
{
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    CHECK(inet_pton(AF_INET, source, &from.sin_addr) == 1);
    CHECK(inet_pton(AF_INET, "127.0.0.1", &to.sin_addr) == 1);
    to.sin_port = htons((uint16_t)endpoint);
    CHECK(bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

/* Is the connection let in as whom it says it is? */
static bool let_in(int fd, const unsigned char *opening, size_t size)
{
    unsigned char heard[WIRE_PREAMBLE + WIRE_HEADER];
    const unsigned char *header = heard + WIRE_PREAMBLE;

    if (!wire_say(fd, opening, size) ||
        wire_hear(fd, heard, sizeof heard, PATIENCE_MS) != sizeof heard)
        return false;
    return header[0] == KIND_REPLY && header[STATUS_AT] == 0;
}

static void claim_another_machine(struct world *world)
{
    /* "MX", 4, and the address: 10.1.2.3, which is nobody here. */
    static const uint64_t claimed = UINT64_C(0x4d5800040a010203);
    unsigned char opening[OPENING_MAX];
    struct stage stage;
    size_t size;

    set_up(world, &stage);
    if (door_is_open(&stage, DOOR_TCP)) {
        int fd;

        size = record_tcp(world, opening);
        CHECK_THAT(size, >=, SESSION_AT + 8);
        fd = dial_from("127.0.0.9", stage.endpoint);
        CHECK(let_in(fd, opening, size)); /* as itself */
        close(fd);
        put(opening + NIC_AT, claimed, 8);
        put(opening + SESSION_AT, 12345, 8);
        fd = dial_from("127.0.0.9", stage.endpoint);
        if (let_in(fd, opening, size))
            FAIL("127.0.0.9 is let in as 10.1.2.3");
        close(fd);
    }
    take_down(&stage);
}

/* ---- a victim with an operation under way ---- */

static void answers_late(struct side *side)
{
    struct arrival ask;
    struct op late = {0};

    tell(side, "endpoint", host_start_server());
    ask = host_next();
    tell(side, "asked", 0);
    pair_hear(side, "answer");
    CHECK_THAT(op_send(&late, ask.from, "late", 4, TAG_LATE), >=, 0);
    op_sent(&late);
    arrival_free(&ask);
    pair_hear(side, "stop");
    host_stop();
}

static void waits_long(struct side *side)
{
    struct op request = {0}, late = {0};
    struct bmi_method_addr *server;
    char in[8];

    tell(side, "endpoint", host_start_server());
    server = host_lookup_endpoint((int)hear(side, "server"));
    CHECK_THAT(op_recv(&late, server, in, sizeof in, TAG_LATE), ==, 0);
    CHECK_THAT(op_send_unexpected(&request, server, "ask", 3, 1), >=, 0);
    op_sent(&request);
    while (!heard_anything(side)) {
        host_pump(5);
        if (op_done(&late) && !heard_anything(side))
            FAIL("somebody else has ended the receive, with %d", late.error);
    }
    hear(side, "late");
    op_received(&late, 4);
    tell(side, "received", 0);
    pair_hear(side, "stop");
    host_stop();
}

static void claim_a_living_peer(struct world *world)
{
    unsigned char opening[OPENING_MAX];
    struct child *server = spawn(world, "server"), *victim = spawn(world, "victim");
    int endpoint = (int)child_hear(server, "endpoint"), claimed, fd;
    size_t size;

    claimed = (int)child_hear(victim, "endpoint");
    child_tell(victim, "server", endpoint);
    child_hear(server, "asked");
    size = record_tcp(world, opening);
    CHECK_THAT(size, >=, SESSION_AT + 8);
    put(opening + ENDPOINT_AT, (uint64_t)claimed, 4);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        put(opening + SESSION_AT, 1000 + (uint64_t)attempt, 8);
        fd = dial_from(attempt % 2 ? "127.0.0.9" : "127.0.0.1", endpoint);
        if (let_in(fd, opening, size))
            FAIL("attempt %d is let in at the place of a living peer", attempt);
        close(fd);
    }
    child_tell(victim, "late", 0);
    child_tell(server, "answer", 0);
    child_hear(victim, "received");
    child_tell(victim, "stop", 0);
    child_tell(server, "stop", 0);
    child_end(victim);
    child_end(server);
}

static const struct scenario scenarios[] = {
    DIRECTED(nobody_is_let_in_under_an_address_that_is_not_its_own, claim_another_machine, STAGE),
    DIRECTED(nobody_ends_the_operations_of_a_living_peer, claim_a_living_peer,
             {"server", answers_late}, {"victim", waits_long}, {"dialler", dialler}),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
