/*
 * Claims of identity: sockets that claim to be another peer.
 *
 *     director ── an opening, its claims changed ──► server ◄── victim, with a receive posted
 *              recorded from "dialler", a real client, or from the victim itself
 *
 * The sockets claim the victim's interface and endpoint, from this machine, with other session numbers or with the
 * victim's own: each becomes a peer of its own, and nothing of the victim's ends.
 */
#include "../support/stage.h"

#include <sys/socket.h>

enum {
    KIND_REPLY = 2,
    STATUS_AT = 20, /* in a header */
    STRANGER = 9,   /* 127.0.0.9 */
    TAG_LATE = 77,
    ATTEMPTS = 8,
};

/* Tells whether a connection from 127.0.0.source is accepted as a peer of its own. */
static bool let_in(unsigned source, int endpoint, const unsigned char *opening, size_t size)
{
    unsigned char heard[WIRE_PREAMBLE + WIRE_HEADER];
    const unsigned char *header = heard + WIRE_PREAMBLE;
    int fd = wire_dial_from(source, SOCK_STREAM, endpoint);
    bool answered;

    CHECK(fd >= 0);
    answered = wire_say(fd, opening, size) &&
               wire_hear(fd, heard, sizeof heard, WAIT_MS) == sizeof heard;
    close(fd);
    return answered && header[0] == KIND_REPLY && header[STATUS_AT] == 0;
}

/* ---- a victim with an operation under way ---- */

static void answers_late(struct side *side)
{
    struct arrival ask;

    tell(side, "endpoint", host_start_server());
    ask = host_next();
    tell(side, "asked", 0);
    pair_hear(side, "answer");
    send_message(ask.from, "late", 4, TAG_LATE);
    arrival_free(&ask);
    pair_hear(side, "stop");
    host_stop();
}

static void waits_long(struct side *side)
{
    struct op late = {0}, call = {0};
    struct bmi_method_addr *server, *director;
    char in[8], text[ADDRESS_SIZE];

    tell(side, "endpoint", host_start_server());
    server = host_lookup_endpoint((int)hear(side, "server"));
    CHECK_THAT(op_recv(&late, server, in, sizeof in, TAG_LATE), ==, 0);
    send_request(server, "ask", 3, 1);
    snprintf(text, sizeof text, "mx://tcp@127.0.0.1:0:%d", (int)pair_hear(side, "director"));
    director = host_lookup(text);
    CHECK(director != NULL);
    op_send_unexpected(&call, director, "hello", 5, 1);
    while (!heard_anything(side)) {
        host_pump(5);
        if (op_done(&late) && !heard_anything(side))
            FAIL("the receive was ended by another, with %d", late.error);
    }
    hear(side, "late");
    op_received(&late, 4);
    CHECK_THAT(op_code(&call), <, 0);
    tell(side, "received", 0);
    pair_hear(side, "stop");
    host_stop();
}

static void claim_a_living_peer(struct world *world)
{
    unsigned char opening[OPENING_MAX];
    struct child *server = spawn(world, "server"), *victim = spawn(world, "victim");
    int endpoint = (int)child_hear(server, "endpoint"), claimed, port = 0, listener = wire_listen(&port);
    size_t size;

    claimed = (int)child_hear(victim, "endpoint");
    child_tell(victim, "server", endpoint);
    child_hear(server, "asked");
    size = record_tcp(world, opening);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        claim(opening, claimed, 1000 + (uint64_t)attempt);
        CHECK(let_in(attempt % 2 ? STRANGER : 1, endpoint, opening, size));
    }
    child_tell(victim, "director", port);
    size = record_next(listener, opening);
    close(listener);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++)
        CHECK(let_in(attempt % 2 ? STRANGER : 1, endpoint, opening, size));
    child_tell(victim, "late", 0);
    child_tell(server, "answer", 0);
    child_hear(victim, "received");
    child_tell(victim, "stop", 0);
    child_tell(server, "stop", 0);
    child_end(victim);
    child_end(server);
}

TESTS(
    DIRECTED(the_operations_of_a_living_peer_are_not_ended_by_another, claim_a_living_peer,
             {"server", answers_late}, {"victim", waits_long}, {"dialler", dialler}))
