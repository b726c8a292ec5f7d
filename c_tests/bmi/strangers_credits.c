/*
 * Strangers that know the rules about credits, and break them.
 *
 *     stranger ── a recorded opening, CONN_REQ ──► server ◄── good client
 *              ◄── CONN_ACK: its id ──
 *              ── a violation of the rules ──► its link ends
 *              ── all that its credits allow ──► a server that receives nothing: its memory is bounded
 *
 * Also: wrong settings of an administrator, and the end of a server with many clients.
 */
#include "../support/memory.h"
#include "../support/stage.h"

#include <sys/mman.h>
#include <sys/socket.h>

enum {
    KIND_EAGER = 3,
    KIND_CREDIT = 9,
    KIND_DISCONNECT = 10,
    KIND_PING = 11,
    KIND_PONG = 12,
    KIND_RETURN = 14,
    BODY_MAX = 40000,
    FIRST_CREDITS = 80,
    CREDIT_LIMIT_MAX = 8200,
    WANTED_MAX = 0xffffff,
};

/* ---- a stranger that is a peer ---- */

struct stranger {
    int fd;
    uint32_t allowed, sent; /* credits in total */
    uint32_t wanted; /* field of every header */
    uint64_t id; /* the stranger's id, given by the server, at its place in match bits; 0: not known yet */
    unsigned pongs;
    bool over; /* the server has closed the link */
    size_t have;
    unsigned char heard[WIRE_HEADER + BODY_MAX];
};

static uint32_t get32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Sends a packet; `about` and `aux` are the header's length and status. */
static void say_about(struct stranger *stranger, int kind, uint64_t word, uint32_t about,
                      uint32_t aux, const void *body, size_t size)
{
    static unsigned char packet[WIRE_HEADER + BODY_MAX];
    struct packet p = {.kind = (unsigned char)kind,
                       .word = word,
                       .length = about,
                       .status = aux,
                       .credit = 100000, /* the server may send as much as it likes */
                       .slots_and_wanted = stranger->wanted,
                       .body_length = (uint32_t)size};

    if (!wire_say(stranger->fd, packet, wire_packet(packet, &p, body, size)))
        stranger->over = true;
}

static void say(struct stranger *stranger, int kind)
{
    say_about(stranger, kind, 0, 0, 0, NULL, 0);
}

/* Consumes one packet of the received bytes; false if it is not complete. */
static bool understand(struct stranger *stranger)
{
    uint32_t size;

    if (stranger->have < WIRE_HEADER)
        return false;
    size = get32(stranger->heard + 4);
    CHECK_THAT(size, <=, BODY_MAX);
    if (stranger->have < WIRE_HEADER + size)
        return false;
    if ((int32_t)(get32(stranger->heard + 24) - stranger->allowed) > 0)
        stranger->allowed = get32(stranger->heard + 24);
    switch (stranger->heard[0]) {
    case KIND_PING:
        say(stranger, KIND_PONG);
        break;
    case KIND_PONG:
        stranger->pongs++;
        break;
    case KIND_DISCONNECT:
        stranger->over = true;
        break;
    }
    stranger->have -= WIRE_HEADER + size;
    memmove(stranger->heard, stranger->heard + WIRE_HEADER + size, stranger->have);
    return true;
}

/* Receives until something comes; false if nothing comes within `ms`. */
static bool listen_to(struct stranger *stranger, int ms)
{
    size_t got;

    if (stranger->over)
        return false;
    /* Waits for the first byte, then reads what is there. */
    got = wire_hear(stranger->fd, stranger->heard + stranger->have, 1, ms);
    if (got == 0) {
        char byte;

        /* A closed link is noticed at once, silence only after `ms`. */
        stranger->over = recv(stranger->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
        return false;
    }
    stranger->have += got;
    stranger->have += wire_hear(stranger->fd, stranger->heard + stranger->have,
                                sizeof stranger->heard - stranger->have, 0);
    while (understand(stranger))
        ;
    return true;
}

/* Sends a message once there are credits; false if there are too few within `ms`. */
static bool send_within(struct stranger *stranger, uint64_t word, const void *body, size_t size,
                        int ms)
{
    uint32_t cost = ((uint32_t)size + 320 + 511) / 512;

    while (stranger->allowed - stranger->sent < cost) {
        if (!listen_to(stranger, ms))
            return false;
    }
    say_about(stranger, KIND_EAGER, word, (uint32_t)size, 0, body, size);
    stranger->sent += cost;
    return !stranger->over;
}

static bool call(struct stranger *stranger)
{
    static const char name[] = "mx://stranger:0:1";

    return send_within(stranger, UINT64_C(0xc) << 60 | UINT64_C(5) << 32 | 0x100, name,
                       sizeof name, WAIT_MS);
}

/* Waits until the server has read everything sent so far. */
static void is_heard(struct stranger *stranger)
{
    unsigned before = stranger->pongs;
    deadline_t deadline = deadline_in(WAIT_MS);

    say(stranger, KIND_PING);
    while (stranger->pongs == before && !stranger->over && !deadline_over(deadline))
        listen_to(stranger, WAIT_MS);
    CHECK(stranger->pongs > before);
}

/* Connects and becomes a peer. */
static void come_in(struct stranger *stranger, const struct stage *stage,
                    const unsigned char *opening, size_t size)
{
    size_t rest;

    memset(stranger, 0, sizeof *stranger);
    stranger->fd = enter(stage, opening, size);
    CHECK(stranger->fd >= 0);
    CHECK_THAT(wire_hear(stranger->fd, stranger->heard, WIRE_HELLO, WAIT_MS), ==, WIRE_HELLO);
    /* Behind the hello follows the greeting of the server's method: version, id, name. */
    rest = stranger->heard[38];
    CHECK_THAT(rest, >, 8);
    CHECK_THAT(wire_hear(stranger->fd, stranger->heard + WIRE_HELLO, rest, WAIT_MS), ==, rest);
    stranger->id = (uint64_t)(get32(stranger->heard + WIRE_HELLO + 4) & 0xfffff) << 32;
    CHECK(stranger->id != 0);
    is_heard(stranger);
}

static void is_cut_off(struct stranger *stranger)
{
    deadline_t deadline = deadline_in(WAIT_MS);

    while (!stranger->over && !deadline_over(deadline))
        listen_to(stranger, WAIT_MS);
    CHECK(stranger->over);
    close(stranger->fd);
}

/* ---- breaches of the rules ---- */

static void break_rules(struct world *world)
{
    /* Messages that the server does not receive. */
    static const struct {
        const char *what;
        int kind, times;
        uint32_t about, aux;
        size_t size;
    } breaches[] = {
        {"more than it was lent", KIND_EAGER, 2, 30000, 0, 30000},
        {"in a slot that is in use", KIND_EAGER, 2, 0, 1, 0},
        {"too large for a slot", KIND_EAGER, 1, 1000, 2, 1000},
        {"in two slots", KIND_EAGER, 1, 0, 3, 0},
        {"returned without a request", KIND_RETURN, 1, 1, 0, 0},
    };
    static struct stranger stranger;
    static unsigned char body[BODY_MAX];
    unsigned char opening[OPENING_MAX];
    struct stage stage;
    deadline_t deadline;
    size_t size;

    if (!set_up_with_door(world, &stage, DOOR_TCP))
        return;
    size = record_tcp(world, opening);
    for (size_t i = 0; i < sizeof breaches / sizeof breaches[0]; i++) {
        come_in(&stranger, &stage, opening, size);
        for (int n = 0; n < breaches[i].times; n++) {
            CHECK(!stranger.over);
            if (n > 0)
                is_heard(&stranger); /* allowed once */
            say_about(&stranger, breaches[i].kind, UINT64_C(0xe) << 60 | stranger.id | 9,
                      breaches[i].about, breaches[i].aux, body, breaches[i].size);
        }
        printf("    %s\n", breaches[i].what);
        is_cut_off(&stranger);
        check_good(&stage);
    }
    /* Asks for credits without end: gets the limit for one peer, and then none. */
    come_in(&stranger, &stage, opening, size);
    CHECK_THAT(stranger.allowed - stranger.sent, <=, FIRST_CREDITS);
    stranger.wanted = WANTED_MAX;
    for (int n = 0; n < 1000; n++)
        say(&stranger, KIND_CREDIT);
    deadline = deadline_in(WAIT_MS);
    while (stranger.allowed - stranger.sent <= FIRST_CREDITS && !deadline_over(deadline))
        listen_to(&stranger, 10);
    is_heard(&stranger);
    CHECK_THAT(stranger.allowed - stranger.sent, >, FIRST_CREDITS);
    CHECK_THAT(stranger.allowed - stranger.sent, <=, CREDIT_LIMIT_MAX);
    check_good(&stage);
    close(stranger.fd);
    /* Sends CONN_REQ without end, beginning a new life each time. */
    come_in(&stranger, &stage, opening, size);
    for (int n = 0; n < 10000 && call(&stranger); n++)
        ;
    is_cut_off(&stranger);
    take_down(&stage);
}

/* ---- floods ---- */

#define MIB (1024 * 1024)

/* Receives nothing between the notes "hoard" and "fetch". */
static void hoarding_server(struct side *side)
{
    setenv("BMI_MX_UNEXPECTED_MAX", "256K", 1);
    setenv("MX_UNEXPECTED_BYTES", "2M", 1);
    tell(side, "endpoint", host_start_server());
    while (!heard_anything(side)) {
        struct arrival arrival;
        struct op reply = {0};

        if (!host_next_within(&arrival, 10))
            continue;
        if (op_send(&reply, arrival.from, arrival.buffer, arrival.size, arrival.tag) >= 0)
            op_wait(&reply);
        arrival_free(&arrival);
    }
    hear(side, "hoard");
    tell(side, "hoarding", 0);
    while (!heard_anything(side))
        host_testcontext(1, 0, 10);
    hear(side, "fetch");
    echo_until_stopped(side);
}

static void flood(struct world *world)
{
    static struct stranger stranger;
    static unsigned char body[16 * 1024];
    unsigned char opening[OPENING_MAX];
    struct stage stage;
    int64_t before, after;
    uint64_t sent = 0;
    size_t size;

    if (!set_up_with_door(world, &stage, DOOR_TCP))
        return;
    size = record_tcp(world, opening);
    come_in(&stranger, &stage, opening, size);
    stranger.wanted = WANTED_MAX;
    child_tell(stage.server, "hoard", 0);
    child_hear(stage.server, "hoarding");
    before = resident_kib(child_pid(stage.server));
    while (sent < UINT64_C(64) * MIB &&
           send_within(&stranger, UINT64_C(0xd) << 60 | stranger.id | (sent >> 14), body,
                       sizeof body, 300))
        sent += sizeof body;
    after = resident_kib(child_pid(stage.server));
    printf("    %ld KiB sent, the server grew by %ld KiB\n", (long)(sent / 1024),
           (long)(after - before));
    CHECK_THAT(sent, >, FIRST_CREDITS * 512);
    CHECK_THAT(sent, <, 2 * MIB);
    if (slower() == 1)
        CHECK_THAT(after - before, <, 4 * 1024); /* the limit, and malloc's overhead */
    child_tell(stage.server, "fetch", 0);
    check_good(&stage);
    is_heard(&stranger); /* it has broken no rule */
    close(stranger.fd);
    check_good(&stage);
    take_down(&stage);
}

/* ---- wrong settings ---- */

static void refused_with(const char *name, const char *value, const char *why)
{
    int log = memfd_create("log", MFD_CLOEXEC), error = dup(2), code;
    char text[4096];
    ssize_t length;

    CHECK(log >= 0 && error >= 0);
    setenv(name, value, 1);
    CHECK(dup2(log, 2) == 2);
    code = ops->initialize(NULL, METHOD_ID, 0, NULL);
    CHECK(dup2(error, 2) == 2);
    unsetenv(name);
    CHECK_THAT(code, ==, -BMI_EINVAL);
    length = pread(log, text, sizeof text - 1, 0);
    CHECK(length >= 0);
    text[length] = '\0';
    if (strstr(text, name) == NULL || strstr(text, value) == NULL || strstr(text, why) == NULL)
        FAIL("%s=%s: the log does not say %s, but:\n%s", name, value, why, text);
    close(log);
    close(error);
}

static void wrong_settings(struct side *side)
{
    host_load();
    refused_with("MX_UNEXPECTED_BYTES", "17", "4682K to 64G");
    refused_with("MX_UNEXPECTED_BYTES", "65G", "4682K to 64G");
    refused_with("MX_UNEXPECTED_BYTES", "many", "4682K to 64G");
    /* Each setting is valid, but not both together. */
    refused_with("MX_UNEXPECTED_BYTES", "1048576", "BMI_MX_UNEXPECTED_MAX is 4194304");
    refused_with("BMI_MX_UNEXPECTED_MAX", "67108864", "MX_UNEXPECTED_BYTES=67108864");
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, NULL), ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
}

/* ---- the end of a server with many clients ---- */

enum { GUESTS = 5, SHUTDOWN_MS = 400, SLACK_MS = 8000, PARCEL = 8 * MIB };

static void leaving_server(struct side *side)
{
    static char parcel[PARCEL];
    static struct op sends[GUESTS];
    int64_t begin;

    setenv("BMI_MX_SHUTDOWN_MS", "400", 1);
    tell(side, "endpoint", host_start_server());
    for (int i = 0; i < GUESTS; i++) {
        struct bmi_method_addr *guest = pair_accept();

        CHECK_THAT(op_send(&sends[i], guest, parcel, PARCEL, 7), ==, 0);
    }
    tell(side, "posted", 0);
    pair_hear(side, "end");
    begin = now_ms();
    host_stop();
    tell(side, "took", now_ms() - begin);
}

static void guest(struct side *side)
{
    struct bmi_method_addr *server;
    struct op receive = {0};
    char byte;

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(server);
    CHECK_THAT(op_recv(&receive, server, &byte, 1, 8), ==, 0);
    tell(side, "waits", 0);
    op_wait(&receive);
    CHECK_THAT(receive.error, <, 0);
    tell(side, "told", 0);
    host_stop();
}

static void leave(struct world *world)
{
    struct child *server = spawn(world, "server"), *guests[GUESTS];
    int64_t endpoint = child_hear(server, "endpoint"), took;

    for (int i = 0; i < GUESTS; i++) {
        guests[i] = spawn(world, "guest");
        child_tell(guests[i], "endpoint", endpoint);
        child_hear(guests[i], "waits");
    }
    child_hear(server, "posted");
    child_stop(guests[0]);
    child_stop(guests[1]);
    child_tell(server, "end", 0);
    took = child_hear(server, "took");
    printf("    finalize took %d of %d ms, with two of %d stopped\n", (int)took, SHUTDOWN_MS,
           GUESTS);
    CHECK_THAT(took, <, SHUTDOWN_MS + SLACK_MS * slower());
    child_end(server);
    for (int i = 2; i < GUESTS; i++) {
        child_hear(guests[i], "told");
        child_end(guests[i]);
    }
    for (int i = 0; i < 2; i++) {
        child_continue(guests[i]);
        child_hear(guests[i], "told");
        child_end(guests[i]);
    }
}

TESTS(
    DIRECTED(a_peer_that_breaks_the_rules_is_cut_off_and_no_other_notices, break_rules, STAGE),
    DIRECTED(a_flood_grows_a_passive_server_only_to_its_limits, flood,
             {"server", hoarding_server}, {"good", good_client}, {"dialler", dialler}),
    SOLO(impossible_settings_are_refused_by_name_and_range, wrong_settings),
    DIRECTED(a_leaving_server_tells_all_and_waits_for_no_stopped_one, leave,
             {"server", leaving_server}, {"guest", guest}))
