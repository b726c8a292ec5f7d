/*
 * Peers that connect over TCP and send false data about a fabric.
 *
 *     director ── Connect, with the feature ──► server ── Reply, Upgrade: its address ──►     then Fence, Lost, nonsense
 *              ◄── Connect, with the feature ── "caller", a real client; Reply, Upgrade: any address ──►
 *
 * The address in an Upgrade tells the client's provider where the peer is: any byte of it may be wrong, and it may
 * lead nowhere, to the client itself, or to a socket that never answers. Then the session stays on TCP, and the
 * good client, over rdm, notices nothing. Layouts: docs/wire-format.md.
 */
#include "../support/stage.h"

#include <arpa/inet.h>
#include <netinet/in.h>

enum {
    KIND_CONNECT = 1,
    KIND_REPLY = 2,
    KIND_EAGER = 3,
    KIND_ATTACH = 19,
    KIND_LOST = 21,
    KIND_UPGRADE = 22,
    KIND_FENCE = 23,
    FABRIC_RDM = 4,     /* a feature bit, and the fabric named in an Upgrade */
    LENGTH_AT = 4,
    WORD_AT = 8,
    FABRIC_AT = 16,
    FEATURES_AT = WIRE_HEADER + 44,
    NUMBER_AT = WIRE_HEADER + 12,
    OUR_ID_AT = WIRE_HEADER + WIRE_HELLO + 4,
    MESSAGE_MAX = 4096,
    FIXED = 28,         /* part of an endpoint address before its name and address */
    ADDRESS_ROOM = FIXED + 64 + 256,
    FORMAT_IN = 2,      /* FI_SOCKADDR_IN */
    CROWD = 200,
    CALLS = 200,
    TAG = 5,
    OUR_ID = 0x345,
};

static const unsigned char preamble[WIRE_PREAMBLE] = "\x93MXTCP\x01";

/* Header, hello, greeting of the method (c_tests/bmi/versions.c). */
static const unsigned char hello[] = {
    1, 0, 'M', 'X', 85, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0,
    'M', 'X', 's', '1', 8, 0, 1, 0, 0x73, 0x66, 0x76, 0x70, 0xb7, 0x0b, 0, 0,
    1, 0, 0, 127, 0x58, 0x4d, 8, 0, 't', 'p', 'e', 'k', 1, 2, 3, 4,
    1, 0, 0, 127, 0x58, 0x4d, 21, 0, 0, 0, 0, 0, FABRIC_RDM, 0, 0, 0,
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    0, 1, 0, 0, 0x45, 3, 0, 0,
    'm', 'x', ':', '/', '/', 'k', 'e', 'p', 't', ':', '0', ':', '3',
};

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Receives a packet, header and body; returns its size, or 0 if the link has ended. */
static size_t hear_packet(int fd, unsigned char in[MESSAGE_MAX])
{
    size_t body;

    if (wire_hear(fd, in, WIRE_HEADER, WAIT_MS) < WIRE_HEADER)
        return 0;
    body = get32(in + LENGTH_AT);
    CHECK_THAT(body, <=, MESSAGE_MAX - WIRE_HEADER);
    CHECK_THAT(wire_hear(fd, in + WIRE_HEADER, body, WAIT_MS), ==, body);
    return WIRE_HEADER + body;
}

static void say_packet(int fd, const struct packet *packet, const void *body)
{
    unsigned char out[MESSAGE_MAX];

    CHECK(wire_say(fd, out, wire_packet(out, packet, body, packet->body_length)));
}

static void say(int fd, int kind, uint32_t length)
{
    struct packet packet = {.kind = (unsigned char)kind, .length = length};

    say_packet(fd, &packet, NULL);
}

/* Connects to the server, and receives its address on the fabric. Returns the id for messages to it. */
static uint32_t meet(const struct stage *stage, int *fd, unsigned char address[MESSAGE_MAX], size_t *size)
{
    unsigned char in[MESSAGE_MAX];
    uint32_t id;

    *fd = dial(stage, DOOR_TCP);
    CHECK(*fd >= 0);
    CHECK(wire_say(*fd, preamble, sizeof preamble) && wire_say(*fd, hello, sizeof hello));
    CHECK_THAT(wire_hear(*fd, in, sizeof preamble, WAIT_MS), ==, sizeof preamble);
    CHECK_THAT(hear_packet(*fd, in), >, OUR_ID_AT);
    CHECK_THAT(in[0], ==, KIND_REPLY);
    CHECK_THAT(get32(in + FEATURES_AT) & FABRIC_RDM, ==, FABRIC_RDM);
    id = get32(in + OUR_ID_AT);
    *size = hear_packet(*fd, in);
    CHECK_THAT(*size, >, WIRE_HEADER + FIXED);
    CHECK_THAT(in[0], ==, KIND_UPGRADE);
    CHECK_THAT(get32(in + FABRIC_AT), ==, FABRIC_RDM);
    *size -= WIRE_HEADER;
    memcpy(address, in + WIRE_HEADER, *size);
    CHECK(memcmp(address, "MXrc\4\0", 6) == 0);
    return id;
}

/* Sends a request over TCP, which the server answers there. */
static void is_served(int fd, uint32_t id)
{
    static const char request[] = "over tcp";
    struct packet packet = {.kind = KIND_EAGER,
                            .word = UINT64_C(0xd) << 60 | (uint64_t)id << 32 | TAG,
                            .length = sizeof request,
                            .body_length = sizeof request};
    unsigned char in[MESSAGE_MAX];

    say_packet(fd, &packet, request);
    do
        CHECK_THAT(hear_packet(fd, in), >, 0);
    while (in[0] != KIND_EAGER);
    CHECK(memcmp(in + WIRE_HEADER, request, sizeof request) == 0);
}

static void is_cut_off(int fd)
{
    unsigned char in[MESSAGE_MAX];

    while (hear_packet(fd, in) > 0)
        continue;
    close(fd);
}

static void call_strangely(struct world *world)
{
    unsigned char address[MESSAGE_MAX];
    struct stage stage;
    uint32_t id;
    size_t size;
    int fd;

    set_up(world, &stage);
    id = meet(&stage, &fd, address, &size);
    is_served(fd, id);
    /* A Fence without a link over the fabric: the server stays on TCP, also after a Lost of the caller. */
    say(fd, KIND_FENCE, 0);
    say(fd, KIND_LOST, 0);
    is_served(fd, id);
    say(fd, KIND_FENCE, 0);
    is_served(fd, id);
    close(fd);
    check_good(&stage);
    /* Packets that only the other side may send, or that come twice. */
    meet(&stage, &fd, address, &size);
    say(fd, KIND_UPGRADE, FABRIC_RDM);
    is_cut_off(fd);
    meet(&stage, &fd, address, &size);
    say(fd, KIND_FENCE, 0);
    say(fd, KIND_FENCE, 0);
    is_cut_off(fd);
    meet(&stage, &fd, address, &size);
    say(fd, KIND_ATTACH, 0);
    is_cut_off(fd);
    check_good(&stage);
    /* A stranger's link that claims to be a session's link over the fabric. */
    fd = dial(&stage, DOOR_TCP);
    CHECK(fd >= 0 && wire_say(fd, preamble, sizeof preamble));
    {
        struct packet packet = {.kind = KIND_ATTACH, .word = 1, .body_length = 16};

        say_packet(fd, &packet, "0123456789abcdef");
    }
    is_cut_off(fd);
    /* Many peers that connect and never move to the fabric. */
    for (int i = 0; i < CROWD; i++) {
        meet(&stage, &fd, address, &size);
        close(fd);
    }
    check_good(&stage);
    take_down(&stage);
}

/* ---- a client receives false addresses ---- */

static void caller(struct side *side)
{
    struct bmi_method_addr *peer;
    char text[ADDRESS_SIZE], in[8];

    host_start_client();
    while (hear(side, "call")) {
        struct op request = {0}, answer = {0};

        snprintf(text, sizeof text, "mx://127.0.0.1:0:%d", (int)hear(side, "endpoint"));
        peer = host_lookup(text);
        CHECK(peer != NULL);
        CHECK_THAT(op_recv(&answer, peer, in, sizeof in, TAG), ==, 0);
        op_send_unexpected(&request, peer, "ask", 4, TAG);
        CHECK_THAT(op_code(&request), ==, 0);
        op_received(&answer, 4);
        tell(side, "answered", 1);
    }
    host_stop();
}

/* Listeners of the calls so far. They stay open, so that no call gets the port of another one: the client may not have
 * noticed the end of the session with that endpoint, and its request would be lost with it. */
struct listeners {
    int count, fds[CALLS];
};

/* Answers a call, sends that address on the fabric, and serves the request over TCP. */
static void answer_with(struct listeners *listeners, struct child *client, const unsigned char *address, size_t size)
{
    int port = 0, listener = wire_listen(&port), fd;
    unsigned char in[MESSAGE_MAX], out[sizeof hello];
    struct packet upgrade = {.kind = KIND_UPGRADE, .length = FABRIC_RDM, .body_length = (uint32_t)size};

    CHECK_THAT(listeners->count, <, CALLS);
    listeners->fds[listeners->count++] = listener;
    child_tell(client, "call", 1);
    child_tell(client, "endpoint", port);
    fd = wire_accept(listener, WAIT_MS);
    CHECK(wire_say(fd, preamble, sizeof preamble));
    CHECK_THAT(wire_hear(fd, in, sizeof preamble, WAIT_MS), ==, sizeof preamble);
    CHECK_THAT(hear_packet(fd, in), >, OUR_ID_AT);
    CHECK_THAT(in[0], ==, KIND_CONNECT);
    CHECK_THAT(get32(in + FEATURES_AT) & FABRIC_RDM, ==, FABRIC_RDM);
    memcpy(out, hello, sizeof out);
    out[0] = KIND_REPLY;
    memcpy(out + WORD_AT, in + WORD_AT, 8);
    wire_put(out + NUMBER_AT, (uint64_t)port, 4);
    CHECK(wire_say(fd, out, sizeof out));
    say_packet(fd, &upgrade, address);
    {
        uint64_t id = get32(in + OUR_ID_AT);
        struct packet packet = {.kind = KIND_EAGER,
                                .word = UINT64_C(0xe) << 60 | id << 32 | TAG,
                                .length = 4,
                                .body_length = 4};

        do
            CHECK_THAT(hear_packet(fd, in), >, 0);
        while (in[0] != KIND_EAGER);
        say_packet(fd, &packet, "you");
    }
    child_hear(client, "answered");
    close(fd);
}

static size_t emit_address(unsigned char *out, const unsigned char *model, const void *address, size_t length)
{
    size_t name = model[6];

    memcpy(out, model, FIXED + name);
    wire_put(out + 8, length, 2);
    memcpy(out + FIXED + name, address, length);
    return FIXED + name + length;
}

static void answer_strangely(struct world *world)
{
    static unsigned char zeros[256], ones[256];
    unsigned char model[MESSAGE_MAX], body[ADDRESS_ROOM];
    int silent = 0, mute = wire_listen(&silent), fd;
    struct listeners listeners = {0};
    struct sockaddr_in places[4];
    struct child *client;
    struct stage stage;
    size_t size;

    memset(ones, 0xff, sizeof ones);
    set_up(world, &stage);
    meet(&stage, &fd, model, &size);
    close(fd);
    client = spawn(world, "caller");
    /* The server's own address, with the cookie of a link that has ended. */
    answer_with(&listeners, client, model, size);
    for (size_t at = 0; at < size; at += 3) {
        memcpy(body, model, size);
        body[at] ^= 0xa5;
        answer_with(&listeners, client, body, size);
        answer_with(&listeners, client, model, at);
    }
    check_good(&stage);
    for (int i = 0; i < 4; i++) {
        uint32_t hosts[] = {INADDR_LOOPBACK, INADDR_LOOPBACK, INADDR_BROADCAST, INADDR_ANY};
        int ports[] = {stage.endpoint, silent, 1, 0};

        memset(&places[i], 0, sizeof places[i]);
        places[i].sin_family = AF_INET;
        places[i].sin_port = htons((uint16_t)ports[i]);
        places[i].sin_addr.s_addr = htonl(hosts[i]);
        size = emit_address(body, model, &places[i], sizeof places[i]);
        answer_with(&listeners, client, body, size);
    }
    for (size_t length = 1; length <= 256; length = length * 3 / 2 + 1) {
        size = emit_address(body, model, zeros, length);
        answer_with(&listeners, client, body, size);
        size = emit_address(body, model, ones, length);
        answer_with(&listeners, client, body, size);
    }
    check_good(&stage);
    child_tell(client, "call", 0);
    child_end(client);
    while (listeners.count > 0)
        close(listeners.fds[--listeners.count]);
    close(mute);
    take_down(&stage);
}

#define SERVED {"server", echo_server}, {"good", good_client}

TESTS_AFTER(setenv("MX_PORT", "rdm", 1),
    DIRECTED(callers_that_say_strange_things_hurt_no_other_peer, call_strangely, SERVED),
    DIRECTED(addresses_that_lead_astray_leave_a_session_on_tcp, answer_strangely, SERVED, {"caller", caller}))
