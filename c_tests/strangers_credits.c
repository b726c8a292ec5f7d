/*
 * Strangers that know how credits are asked for, and do not care whose they are.
 *
 *     stranger ── a recorded opening, CONN_REQ ──► server ◄── good client
 *              ◄── CONN_ACK: its id, its loan ──
 *              ── lies ──► forgiven sixteen times, then it is disconnected
 *              ── all that its credits let through ──► a server that fetches nothing: bounded
 *
 * And what an administrator can get wrong, and the end of a server with many clients.
 */
#include "support/memory.h"
#include "support/pattern.h"
#include "support/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/port.h"

enum {
    KIND_CONNECT = 1,
    KIND_REPLY = 2,
    KIND_EAGER = 3,
    KIND_DISCONNECT = 10,
    KIND_PING = 11,
    KIND_PONG = 12,
    HELLO = WIRE_HELLO,
    EPOCH_AT = 6,  /* in a hello */
    BODY_MAX = 40000,
    FORGIVEN = 16, /* BMI_MX_CREDITS_STRIKES */
};

/* ---- a stranger that got in ---- */

struct stranger {
    int fd;
    uint32_t allowed, sent; /* credits of the MX shim */
    uint64_t id; /* the server's for it, where match bits have it; 0: not known yet */
    uint32_t loan;
    unsigned pongs;
    bool over; /* it has been shown the door */
    unsigned char hello[HELLO];
    size_t have;
    unsigned char heard[WIRE_HEADER + BODY_MAX];
};

static uint32_t get32(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void say_about(struct stranger *stranger, int kind, uint64_t word, uint32_t about,
                      const void *body, size_t size)
{
    static unsigned char packet[WIRE_HEADER + BODY_MAX];
    struct packet p = {.kind = (unsigned char)kind,
                       .word = word,
                       .length = about,
                       .credit = 100000, /* the server may say what it likes */
                       .body_length = (uint32_t)size};

    if (!wire_say(stranger->fd, packet, wire_packet(packet, &p, body, size)))
        stranger->over = true;
}

static void say(struct stranger *stranger, int kind, uint64_t word, const void *body, size_t size)
{
    say_about(stranger, kind, word, (uint32_t)size, body, size);
}

/* Takes one packet out of what was heard; false when it is not whole. */
static bool understand(struct stranger *stranger)
{
    const unsigned char *body = stranger->heard + WIRE_HEADER;
    uint32_t size, type;

    if (stranger->have < WIRE_HEADER)
        return false;
    size = get32(stranger->heard + 4);
    CHECK_THAT(size, <=, BODY_MAX);
    if (stranger->have < WIRE_HEADER + size)
        return false;
    if ((int32_t)(get32(stranger->heard + 24) - stranger->allowed) > 0)
        stranger->allowed = get32(stranger->heard + 24);
    type = get32(stranger->heard + 12) >> 28;
    switch (stranger->heard[0]) {
    case KIND_CONNECT: /* it connects back, to be sure: it is welcome */
        CHECK_THAT(size, >=, HELLO);
        say_about(stranger, KIND_REPLY,
                  get32(stranger->heard + 8) | (uint64_t)get32(stranger->heard + 12) << 32,
                  body[EPOCH_AT] | (uint32_t)body[EPOCH_AT + 1] << 8, stranger->hello, HELLO);
        break;
    case KIND_PING:
        say_about(stranger, KIND_PONG, 0, 0, NULL, 0);
        break;
    case KIND_PONG:
        stranger->pongs++;
        break;
    case KIND_DISCONNECT:
        stranger->over = true;
        break;
    case KIND_EAGER:
        if (type == 0xa && stranger->id == 0) {
            stranger->id = (uint64_t)(get32(stranger->heard + 12) & 0xfffff) << 32;
            stranger->loan = size >= 16 ? get32(body + 12) : 0;
        }
        break;
    }
    stranger->have -= WIRE_HEADER + size;
    memmove(stranger->heard, stranger->heard + WIRE_HEADER + size, stranger->have);
    return true;
}

/* Listens until something was said, or the time is over; false for the latter. */
static bool listen_to(struct stranger *stranger, int ms)
{
    size_t got;

    if (stranger->over)
        return false;
    /* The first byte as soon as it comes, then what is there already. */
    got = wire_hear(stranger->fd, stranger->heard + stranger->have, 1, ms);
    if (got == 0) {
        char byte;

        /* The end is heard at once, silence only when the time is over. */
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

/* Sends a message as soon as there are credits; false when there are too few for `ms`. */
static bool send_within(struct stranger *stranger, uint64_t word, const void *body, size_t size,
                        int ms)
{
    uint32_t cost = ((uint32_t)size + 320 + 511) / 512;

    while (stranger->allowed - stranger->sent < cost) {
        if (!listen_to(stranger, ms))
            return false;
    }
    say(stranger, KIND_EAGER, word, body, size);
    stranger->sent += cost;
    return !stranger->over;
}

static bool send_word(struct stranger *stranger, uint64_t word, const void *body, size_t size)
{
    return send_within(stranger, word | stranger->id, body, size, PATIENCE_MS);
}

/* The server has taken in all that was said. */
static void is_heard(struct stranger *stranger)
{
    unsigned before = stranger->pongs;
    deadline_t deadline = deadline_in(PATIENCE_MS);

    say(stranger, KIND_PING, 0, NULL, 0);
    while (stranger->pongs == before && !stranger->over && !deadline_over(deadline))
        listen_to(stranger, PATIENCE_MS);
    CHECK(stranger->pongs > before);
}

/* Gets in and is a peer: one that knows credits, and lends `loan` of them, or an old one. */
static void come_in(struct stranger *stranger, const struct stage *stage,
                    const unsigned char *opening, size_t size, bool knows, uint32_t loan)
{
    static unsigned char visits; /* as enter() counts them */
    unsigned char request[64] = "mx://stranger:0:1";
    size_t length = strlen((char *)request) + 1;
    deadline_t deadline = deadline_in(PATIENCE_MS);

    memset(stranger, 0, sizeof *stranger);
    stranger->fd = enter(stage, opening, size);
    CHECK(stranger->fd >= 0);
    memcpy(stranger->hello, opening + WIRE_PREAMBLE + WIRE_HEADER, HELLO);
    stranger->hello[SESSION_AT - WIRE_PREAMBLE - WIRE_HEADER] ^= ++visits;
    CHECK_THAT(wire_hear(stranger->fd, stranger->heard, HELLO, PATIENCE_MS), ==, HELLO);
    is_heard(stranger);
    if (knows) {
        memcpy(request + length, "MXrs", 4);
        wire_put(request + length + 4, 8, 4);
        wire_put(request + length + 8, 1, 4);
        wire_put(request + length + 12, loan, 4);
        length += 16;
    }
    CHECK(send_word(stranger, UINT64_C(0xc) << 60 | UINT64_C(5) << 32 | 0x100, request, length));
    while (stranger->id == 0 && !deadline_over(deadline))
        listen_to(stranger, PATIENCE_MS);
    CHECK(stranger->id != 0);
    CHECK(knows == (stranger->loan > 0));
}

static void is_shown_the_door(struct stranger *stranger)
{
    deadline_t deadline = deadline_in(PATIENCE_MS);

    while (!stranger->over && !deadline_over(deadline))
        listen_to(stranger, PATIENCE_MS);
    CHECK(stranger->over);
    close(stranger->fd);
}

/* ---- lies ---- */

static const uint64_t want = UINT64_C(8) << 60 | UINT64_C(1) << 29 | 8191 << 13;

static void tell_lies(struct world *world)
{
    static const struct {
        uint64_t word;
        size_t size;
    } lies[] = {
        {UINT64_C(0xd) << 60, 0},                             /* costs one, says none */
        {UINT64_C(0xd) << 60 | UINT64_C(9) << 52, 0},         /* costs one, says nine */
        {UINT64_C(0xd) << 60 | UINT64_C(15) << 52, 30000},    /* costs more than it was lent */
        {UINT64_C(8) << 60 | UINT64_C(4) << 29 | 5 << 13, 0}, /* returns what nobody asked for */
        {UINT64_C(8) << 60 | UINT64_C(2) << 29 | 1, 0},       /* grants what nobody wanted */
    };
    static struct stranger stranger;
    static unsigned char body[BODY_MAX];
    unsigned char opening[OPENING_MAX];
    struct stage stage;
    size_t size;

    set_up(world, &stage);
    if (!door_is_open(&stage, DOOR_TCP)) {
        take_down(&stage);
        return;
    }
    size = record_tcp(world, opening);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        come_in(&stranger, &stage, opening, size, true, 64);
        for (int n = 0; n < FORGIVEN; n++)
            CHECK(send_word(&stranger, lies[i].word, body, lies[i].size));
        is_heard(&stranger);
        check_good(&stage);
        is_heard(&stranger); /* still there */
        send_word(&stranger, lies[i].word, body, lies[i].size);
        is_shown_the_door(&stranger);
        check_good(&stage);
    }
    /* Wants for ever: it gets what one peer may have, and then nothing. */
    come_in(&stranger, &stage, opening, size, true, 64);
    for (int n = 0; n < 10000 && send_word(&stranger, want, NULL, 0); n++)
        ;
    is_shown_the_door(&stranger);
    /* Calls for ever, and begins anew each time. */
    come_in(&stranger, &stage, opening, size, true, 64);
    for (int n = 0; n < 10000; n++)
        if (!send_within(&stranger, UINT64_C(0xc) << 60 | UINT64_C(5) << 32 | 0x100, "mx://x:1",
                         9, PATIENCE_MS))
            break;
    is_shown_the_door(&stranger);
    take_down(&stage);
}

/* ---- floods ---- */

#define MIB (1024 * 1024)

/* Fetches nothing between "hoard" and "fetch". */
static void hoarding_server(struct side *side)
{
    setenv("BMI_MX_UNEXPECTED_MEMORY", "2M", 1);
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
    size_t size;

    set_up(world, &stage);
    if (!door_is_open(&stage, DOOR_TCP)) {
        take_down(&stage);
        return;
    }
    size = record_tcp(world, opening);
    for (int knows = 0; knows < 2; knows++) {
        int64_t before = 0, after = 0;
        uint64_t sent = 0, paid = knows ? UINT64_C(15) << 52 : 0;

        come_in(&stranger, &stage, opening, size, knows, 64);
        if (knows == 0) {
            child_tell(stage.server, "hoard", 0);
            child_hear(stage.server, "hoarding");
        }
        before = resident_kib(child_pid(stage.server));
        while (sent < UINT64_C(64) * MIB &&
               send_within(&stranger, UINT64_C(0xd) << 60 | paid | stranger.id | (sent >> 14),
                           body, sizeof body, 300))
            sent += sizeof body;
        after = resident_kib(child_pid(stage.server));
        printf("    %s: %ld KiB sent, the server grew by %ld KiB\n",
               knows ? "knows credits" : "knows none", (long)(sent / 1024),
               (long)(after - before));
        if (slower() == 1)
            CHECK_THAT(after - before, <, 6 * 1024); /* both limits, and what malloc adds */
        if (knows) {
            /* It has used up what it was lent, and its lies. */
            is_shown_the_door(&stranger);
        } else {
            CHECK(sent < UINT64_C(8) * MIB);
            child_tell(stage.server, "fetch", 0);
            check_good(&stage);
            is_heard(&stranger); /* it did nothing wrong */
            close(stranger.fd);
        }
        check_good(&stage);
    }
    take_down(&stage);
}

/* ---- what an administrator can get wrong ---- */

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
    (void)side;
    host_load();
    refused_with("BMI_MX_CREDITS_STRIKES", "0", "1 to 255");
    refused_with("BMI_MX_CREDITS_STRIKES", "256", "1 to 255");
    refused_with("BMI_MX_CREDITS_MAXIMUM", "65536", "1 to 65535");
    refused_with("BMI_MX_CREDITS_INITIAL", "many", "0 to 65535");
    refused_with("BMI_MX_CREDITS_LENT", "101", "0 to 100");
    refused_with("BMI_MX_UNEXPECTED_MEMORY", "17", "64G");
    /* Each is possible, but not both. */
    setenv("BMI_MX_CREDITS_MAXIMUM", "7", 1);
    setenv("BMI_MX_CREDITS_MINIMUM", "3", 1);
    refused_with("BMI_MX_CREDITS_INITIAL", "8", "BMI_MX_CREDITS_MAXIMUM=7");
    unsetenv("BMI_MX_CREDITS_MAXIMUM");
    unsetenv("BMI_MX_CREDITS_MINIMUM");
    refused_with("BMI_MX_UNEXPECTED_MEMORY", "1048576", "BMI_MX_UNEXPECTED_MAX=4194304");
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

static const struct scenario scenarios[] = {
    DIRECTED(liars_are_forgiven_sixteen_times_and_then_shown_the_door, tell_lies, STAGE),
    DIRECTED(a_flood_grows_a_server_that_fetches_nothing_no_further_than_its_limits, flood,
             {"server", hoarding_server}, {"good", good_client}, {"dialler", dialler}),
    SOLO(impossible_settings_are_refused_by_name_and_range, wrong_settings),
    DIRECTED(a_server_that_leaves_tells_all_and_waits_for_nobody_that_is_stopped, leave,
             {"server", leaving_server}, {"guest", guest}),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
