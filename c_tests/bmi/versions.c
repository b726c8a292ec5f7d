/*
 * A peer of version 8, kept as bytes, and later versions made from it.
 *
 *     director ── preamble, Connect, a request ──► server ── Reply, the echo ──►     over TCP, the Unix socket, UDP
 *              ── the same of version 9, 60000, ... ──►      a Reply that rejects, where version 8 reads it
 *              ◄── Connect ── "caller", a real client; Reply ──►
 *
 * The bytes follow docs/wire-format.md and docs/dgram.md, and do not change when the version does.
 */
#include "../support/datagram.h"
#include "../support/log.h"
#include "../support/stage.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum { WAY_TCP, WAY_LOCAL, WAY_DGRAM, WAY_ANY };

enum {
    KIND_CONNECT = 1,
    KIND_REPLY = 2,
    KIND_EAGER = 3,
    KIND_DISCONNECT = 10,
    OTHER_VERSION = 2, /* status in a Reply */
    /* Offsets in a packet: header and hello. */
    LENGTH_AT = 4,
    WORD_AT = 8,
    STATUS_AT = 20,
    CREDIT_AT = 24,
    VERSION_AT = WIRE_HEADER + 4,
    NUMBER_AT = WIRE_HEADER + 12,
    OLDEST_AT = WIRE_HEADER + 22,
    GREETING_LENGTH_AT = WIRE_HEADER + 38,
    FEATURES_AT = WIRE_HEADER + 44,
    GREETING_AT = WIRE_HEADER + WIRE_HELLO,
    OUR_ID_AT = GREETING_AT + 4,
    MESSAGE_MAX = 4096,
    LOCAL_VERSION_AT = 8, /* in a control message of shared memory */
    LOCAL_NUMBER_AT = 16,
    FIRST_NUMBER = 7,
    KEPT_NUMBER = 2999,
    HELLO_SIZE = DATAGRAM_HEADER + DATAGRAM_GREETING,
    DATA_LINKS = 1, FABRIC_RDM = 4, /* feature bits */
    CALLS = 2, /* attempts of a client before it gives up a peer that closes its calls */
    TAG = 5,
    OUR_ID = 0x345,
};

/* ---- the kept bytes ---- */

static const unsigned char preamble[WIRE_PREAMBLE] = "\x93MXTCP\x01";

/* "mx-hello", version 4, no kernel barriers, endpoint 2999. */
static const unsigned char local_hello[24] = "mx-hello\x04\0\0\0\0\0\0\0\xb7\x0b";

/* Header, hello, greeting of the method. */
static const unsigned char kept[] = {
    1, 0, 'M', 'X', 85, 0, 0, 0,                   /* Connect, zero, magic, body length */
    7, 0, 0, 0, 0, 0, 0, 0,                        /* connect id */
    0, 0, 0, 0, 0, 0, 0, 0,                        /* length, status */
    64, 0, 0, 0, 0, 0, 0, 0,                       /* credits; slots, wanted */
    'M', 'X', 's', '1', 8, 0, 1, 0,                /* magic, version, epoch */
    0x73, 0x66, 0x76, 0x70, 0xb7, 0x0b, 0, 0,      /* key, endpoint number 2999 */
    1, 0, 0, 127, 0x58, 0x4d, 8, 0,                /* interface 127.0.0.1, oldest version */
    't', 'p', 'e', 'k', 1, 2, 3, 4,                /* life */
    1, 0, 0, 127, 0x58, 0x4d, 21, 0,               /* interface called, length of the greeting, zero */
    0, 0, 0, 0, 0, 0, 0, 0,                        /* number called, features */
    1, 2, 3, 4, 5, 6, 7, 8,                        /* nonce */
    9, 10, 11, 12, 13, 14, 15, 16,
    0, 1, 0, 0, 0x45, 3, 0, 0,                     /* version of the match bits, the id for messages to us */
    'm', 'x', ':', '/', '/', 'k', 'e', 'p', 't', ':', '0', ':', '3',
};

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static unsigned get16(const unsigned char *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

/* ---- the kept peer's end of a link ---- */

struct link {
    int way, fd;
    uint64_t to, from;         /* cookies */
    uint32_t number, wanted;   /* of datagrams */
    uint32_t packets;
};

static void acknowledge(struct link *link)
{
    unsigned char ack[DATAGRAM_HEADER];

    datagram_head(ack, DATAGRAM_ACK, link->to, link->from);
    wire_put(ack + AT_WANTED, link->wanted, 4);
    wire_put(ack + AT_WINDOW, 100000, 4);
    datagram_say(link->fd, ack, sizeof ack);
}

static size_t hear_datagram(struct link *link, unsigned char *in, size_t room)
{
    struct timeval time = {.tv_sec = WAIT_MS / 1000};
    ssize_t size;

    setsockopt(link->fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    do
        size = recv(link->fd, in, room, 0);
    while (size < 0 && errno == EINTR);
    return size < DATAGRAM_HEADER ? 0 : (size_t)size;
}

static int udp_socket(const struct stage *stage)
{
    int fd = wire_dial_from(1, SOCK_DGRAM, stage->endpoint);

    CHECK(fd >= 0);
    return fd;
}

static void open_session(struct link *link)
{
    unsigned char hello[DATAGRAM_HEADER + DATAGRAM_GREETING], in[MESSAGE_MAX];

    link->from = UINT64_C(0x1122334455667788) + (unsigned)link->fd;
    link->number = FIRST_NUMBER;
    datagram_hello(hello, link->from, FIRST_NUMBER);
    datagram_say(link->fd, hello, sizeof hello);
    CHECK_THAT(hear_datagram(link, in, sizeof in), ==, sizeof hello);
    CHECK_THAT(in[AT_VERSION], ==, DATAGRAM_VERSION);
    CHECK_THAT(in[AT_KIND], ==, DATAGRAM_WELCOME);
    CHECK(memcmp(in + AT_TO, &link->from, 8) == 0);
    memcpy(&link->to, in + AT_FROM, 8);
    link->wanted = get32(in + AT_NUMBER);
}

/* Opens a link as the endpoint with that number; over shared memory the link's first message carries it, too. */
static struct link open_link(const struct stage *stage, int way, uint64_t number)
{
    struct link link = {.way = way};

    if (way == WAY_DGRAM) {
        link.fd = udp_socket(stage);
        open_session(&link);
        return link;
    }
    link.fd = dial(stage, way == WAY_TCP ? DOOR_TCP : DOOR_LOCAL);
    CHECK(link.fd >= 0);
    if (way == WAY_TCP) {
        unsigned char in[WIRE_PREAMBLE];

        CHECK(wire_say(link.fd, preamble, sizeof preamble));
        CHECK_THAT(wire_hear(link.fd, in, sizeof in, WAIT_MS), ==, sizeof in);
        CHECK(memcmp(in, preamble, sizeof in) == 0);
    } else {
        unsigned char hello[sizeof local_hello], in[sizeof hello];

        memcpy(hello, local_hello, sizeof hello);
        wire_put(hello + LOCAL_NUMBER_AT, number, 4);
        CHECK(wire_say(link.fd, hello, sizeof hello));
        CHECK_THAT(wire_hear(link.fd, in, sizeof in, WAIT_MS), ==, sizeof in);
        CHECK(memcmp(in, "mx-welcm\x04\0\0\0", 12) == 0);
    }
    return link;
}

static void say(struct link *link, const unsigned char *packet, size_t size)
{
    unsigned char out[MESSAGE_MAX];

    if (link->way != WAY_DGRAM) {
        CHECK(wire_say(link->fd, packet, size));
        return;
    }
    datagram_head(out, DATAGRAM_DATA, link->to, link->from);
    wire_put(out + AT_NUMBER, link->number++, 4);
    wire_put(out + AT_WANTED, link->wanted, 4);
    wire_put(out + AT_FIRST_OF_CALLER, link->packets == 0 ? FIRST_NUMBER : 0, 8);
    wire_put(out + AT_WINDOW, 100000, 4);
    wire_put(out + AT_FLAGS, link->packets == 0 ? FLAG_SUMMED | FLAG_OPENING : FLAG_SUMMED, 2);
    wire_put(out + AT_PAYLOAD, size, 2);
    wire_put(out + AT_PACKET, link->packets++, 4);
    wire_put(out + AT_WHOLE, size, 4);
    wire_put(out + AT_PAYLOAD_SUM, crc32c(packet, size), 4);
    memcpy(out + DATAGRAM_HEADER, packet, size);
    datagram_say(link->fd, out, DATAGRAM_HEADER + size);
}

/* Receives a packet, header and body; returns its size, or 0 if the link has ended. */
static size_t hear_packet(struct link *link, unsigned char in[MESSAGE_MAX])
{
    unsigned char datagram[MESSAGE_MAX];
    size_t size, body;

    if (link->way == WAY_TCP) {
        if (wire_hear(link->fd, in, WIRE_HEADER, WAIT_MS) < WIRE_HEADER)
            return 0;
        body = get32(in + LENGTH_AT);
        CHECK_THAT(body, <=, MESSAGE_MAX - WIRE_HEADER);
        CHECK_THAT(wire_hear(link->fd, in + WIRE_HEADER, body, WAIT_MS), ==, body);
        return WIRE_HEADER + body;
    }
    if (link->way == WAY_LOCAL) {
        struct timeval time = {.tv_sec = WAIT_MS / 1000};
        ssize_t count;

        /* Wake-ups and messages about memory are shorter than a packet. */
        setsockopt(link->fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
        do
            count = recv(link->fd, in, MESSAGE_MAX, 0);
        while (count > 0 && count < WIRE_HEADER);
        return count < 0 ? 0 : (size_t)count;
    }
    for (;;) {
        size = hear_datagram(link, datagram, sizeof datagram);
        if (size == 0 || datagram[AT_KIND] == DATAGRAM_RESET)
            return 0;
        if (datagram[AT_KIND] == DATAGRAM_DATA && get32(datagram + AT_NUMBER) == link->wanted) {
            link->wanted++;
            acknowledge(link);
            size -= DATAGRAM_HEADER;
            CHECK_THAT(get32(datagram + AT_OFFSET), ==, 0);
            CHECK_THAT(get32(datagram + AT_WHOLE), ==, size);
            memcpy(in, datagram + DATAGRAM_HEADER, size);
            return size; /* 0: nothing follows */
        }
        acknowledge(link);
    }
}

/* ---- a conversation ---- */

/* Checks for a Reply with that status, whose header and first 32 bytes of hello are where version 8 has them. */
static void is_answered(struct link *link, unsigned char in[MESSAGE_MAX], unsigned status)
{
    size_t size = hear_packet(link, in);

    CHECK_THAT(size, >=, WIRE_HEADER + 32);
    CHECK_THAT(in[0], ==, KIND_REPLY);
    CHECK_THAT(in[1], ==, 0);
    CHECK(memcmp(in + 2, "MX", 2) == 0);
    CHECK_THAT(get32(in + LENGTH_AT), ==, size - WIRE_HEADER);
    CHECK(memcmp(in + WORD_AT, kept + WORD_AT, 8) == 0);
    CHECK_THAT(get32(in + STATUS_AT), ==, status);
    CHECK(memcmp(in + WIRE_HEADER, "MXs1", 4) == 0);
    CHECK_THAT(get16(in + VERSION_AT), >=, 8);
    CHECK_THAT(get16(in + OLDEST_AT), <=, 8);
}

/* Connects with those bytes, and has a request served. */
static void is_served(const struct stage *stage, int way, unsigned char *connect, size_t size)
{
    struct link link = open_link(stage, way, KEPT_NUMBER);
    unsigned char in[MESSAGE_MAX], out[MESSAGE_MAX];
    static const char request[] = "of version 8";
    uint32_t id;

    wire_put(connect + LENGTH_AT, size - WIRE_HEADER, 4);
    say(&link, connect, size);
    is_answered(&link, in, 0);
    CHECK_THAT(get32(in + NUMBER_AT), ==, stage->endpoint);
    /* The server offers features that the kept peer does not read. */
    unsigned links = way == WAY_TCP || way == WAY_DGRAM ? DATA_LINKS : 0;
    CHECK_THAT(get32(in + FEATURES_AT) & ~(unsigned)FABRIC_RDM, ==, links);
    CHECK(way == WAY_TCP || (get32(in + FEATURES_AT) & FABRIC_RDM) == 0);
    CHECK_THAT(get32(in + CREDIT_AT), >, 0);
    CHECK_THAT(in[GREETING_LENGTH_AT], >, 8);
    CHECK_THAT(get32(in + GREETING_AT), ==, 0x100);
    id = get32(in + OUR_ID_AT);
    {
        struct packet packet = {.kind = KIND_EAGER,
                                .word = UINT64_C(0xd) << 60 | (uint64_t)id << 32 | TAG,
                                .length = sizeof request,
                                .body_length = sizeof request};

        say(&link, out, wire_packet(out, &packet, request, sizeof request));
    }
    do
        CHECK_THAT(hear_packet(&link, in), >, 0);
    while (in[0] != KIND_EAGER);
    CHECK_THAT(get32(in + WORD_AT), ==, TAG);
    CHECK_THAT(get32(in + WORD_AT + 4), ==, UINT32_C(0xe0000000) | OUR_ID);
    CHECK_THAT(get32(in + LENGTH_AT), ==, sizeof request);
    CHECK(memcmp(in + WIRE_HEADER, request, sizeof request) == 0);
    {
        struct packet packet = {.kind = KIND_DISCONNECT};

        say(&link, out, wire_packet(out, &packet, NULL, 0));
    }
    close(link.fd);
}

static const struct { unsigned version, oldest; } refused[] = {
    {60000, 60000}, {65535, 65535}, {9, 9}, {8, 9}, {7, 9}, {7, 7}, {0, 0}, {0, 65535},
};
enum { REFUSED = sizeof refused / sizeof refused[0] };

static void is_refused(const struct stage *stage, int way, int which)
{
    struct link link = open_link(stage, way, 3000 + (uint64_t)which);
    unsigned char connect[sizeof kept], in[MESSAGE_MAX];
    /* All of it, or the part that all versions have. */
    size_t size = which % 2 == 0 ? sizeof kept : WIRE_HEADER + 32;

    memcpy(connect, kept, sizeof kept);
    wire_put(connect + LENGTH_AT, size - WIRE_HEADER, 4);
    wire_put(connect + VERSION_AT, refused[which].version, 2);
    wire_put(connect + OLDEST_AT, refused[which].oldest, 2);
    wire_put(connect + NUMBER_AT, 3000 + (uint64_t)which, 4);
    say(&link, connect, size);
    is_answered(&link, in, OTHER_VERSION);
    CHECK_THAT(hear_packet(&link, in), ==, 0);
    close(link.fd);
}

/* Sends a preamble, Hello or first datagram of another version: the answer names the server's. */
static void says_another_version(const struct stage *stage, int way)
{
    unsigned char out[MESSAGE_MAX], in[MESSAGE_MAX];
    struct link link = {.way = way};

    if (way == WAY_DGRAM) {
        link.fd = udp_socket(stage);
        datagram_hello(out, 77, FIRST_NUMBER);
        out[AT_VERSION] = 200;
        datagram_say(link.fd, out, DATAGRAM_HEADER + DATAGRAM_GREETING);
        CHECK_THAT(hear_datagram(&link, in, sizeof in), ==, DATAGRAM_HEADER);
        CHECK_THAT(in[AT_VERSION], ==, DATAGRAM_VERSION);
        CHECK_THAT(in[AT_KIND], ==, DATAGRAM_RESET);
        CHECK_THAT(get32(in + AT_TO), ==, 77);
    } else if (way == WAY_LOCAL) {
        link.fd = dial(stage, DOOR_LOCAL);
        memcpy(out, local_hello, sizeof local_hello);
        out[LOCAL_VERSION_AT] = 200;
        CHECK(wire_say(link.fd, out, sizeof local_hello));
        CHECK_THAT(wire_hear(link.fd, in, sizeof local_hello, WAIT_MS), ==, sizeof local_hello);
        CHECK(memcmp(in, "mx-later\x04\0\0\0", 12) == 0);
        CHECK_THAT(wire_hear(link.fd, in, 1, WAIT_MS), ==, 0);
    } else {
        link.fd = dial(stage, DOOR_TCP);
        memcpy(out, preamble, sizeof preamble);
        out[6] = 200;
        memcpy(out + sizeof preamble, kept, sizeof kept);
        CHECK(wire_say(link.fd, out, sizeof preamble + sizeof kept));
        CHECK_THAT(wire_hear(link.fd, in, sizeof in, WAIT_MS), ==, sizeof preamble);
        CHECK(memcmp(in, preamble, sizeof preamble) == 0);
    }
    close(link.fd);
}

/* An echo server that reports how often its log has named another version. */
static void logging_server(struct side *side)
{
    log_take();
    tell(side, "endpoint", host_start_server());
    echo_until_stopped(side);
    tell(side, "refusals", log_said("ours is 8: rejected (rejection 1)"));
    tell(side, "again", log_said("(rejection 2)"));
    tell(side, "preambles", log_said("it uses version 200 instead of 1 (1 so far)") +
                                log_said("version 200, ours is 4: no shared memory with it (attempt 1)") +
                                log_said("with datagram version 200; ours is 3 (occurrence 1)"));
}

static bool way_is_open(const struct stage *stage, int way)
{
    if (way == WAY_DGRAM)
        return port_uses_udp();
    return door_is_open(stage, way == WAY_TCP ? DOOR_TCP : DOOR_LOCAL);
}

static void come_as_others(struct world *world)
{
    unsigned char connect[MESSAGE_MAX];
    int way = (int)variant_of(world);
    struct stage stage;
    bool open;

    set_up(world, &stage);
    open = way_is_open(&stage, way);
    if (open) {
        size_t size = sizeof kept;

        memcpy(connect, kept, size);
        is_served(&stage, way, connect, size);
        connect[1] = 0x5a; /* the second byte has no meaning */
        is_served(&stage, way, connect, size);
        for (int i = 0; i < REFUSED; i++)
            is_refused(&stage, way, i);
        says_another_version(&stage, way);
        check_good(&stage);
        /* Version 9, which also understands 8: all features, a longer greeting, and bytes behind it. */
        memcpy(connect, kept, size);
        wire_put(connect + VERSION_AT, 9, 2);
        wire_put(connect + FEATURES_AT, UINT32_MAX, 4);
        connect[GREETING_LENGTH_AT] = 100;
        memset(connect + size, 'x', MESSAGE_MAX - size);
        is_served(&stage, way, connect, GREETING_AT + 100 + 28);
    }
    check_good(&stage);
    child_tell(stage.good, "go", -1);
    child_end(stage.good);
    child_tell(stage.server, "stop", 0);
    CHECK_THAT(child_hear(stage.server, "refusals"), ==, open ? REFUSED : 0);
    CHECK_THAT(child_hear(stage.server, "again"), ==, 0);
    CHECK_THAT(child_hear(stage.server, "preambles"), ==, open);
    child_end(stage.server);
}

/* ---- a client calls the kept peer ---- */

static void caller(struct side *side)
{
    struct op request = {0}, answer = {0};
    struct bmi_method_addr *server;
    char text[ADDRESS_SIZE], in[8];
    int code = (int)hear(side, "code");
    static const char *const ports[] = {[WAY_TCP] = "tcp@", [WAY_DGRAM] = "dgram@", [WAY_ANY] = ""};
    const char *port = ports[hear(side, "way")];

    snprintf(text, sizeof text, "mx://%s127.0.0.1:0:%d", port, (int)hear(side, "endpoint"));
    host_start_client();
    server = host_lookup(text);
    CHECK(server != NULL);
    CHECK_THAT(op_recv(&answer, server, in, sizeof in, TAG), ==, 0);
    op_send_unexpected(&request, server, "ask", 4, TAG);
    CHECK_THAT(op_code(&request), ==, code);
    if (code == 0)
        op_received(&answer, 4);
    else
        op_failed(&answer, -code);
    pair_hear(side, "stop");
    host_stop();
}

static struct child *spawn_caller(struct world *world, int code, int way, int port)
{
    struct child *client = spawn(world, "caller");

    child_tell(client, "code", code);
    child_tell(client, "way", way);
    child_tell(client, "endpoint", port);
    return client;
}

static void caller_ends(struct child *client)
{
    child_tell(client, "stop", 0);
    child_end(client);
}

static int listen_for_datagrams(int port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof here) == 0);
    return fd;
}

/* Answers a call over datagrams as another version does. Returns the call's cookie, because a Hello may be
 * repeated before the answer. */
static uint64_t refuse_datagram(int fd)
{
    unsigned char in[MESSAGE_MAX], out[DATAGRAM_HEADER];
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    uint64_t cookie;

    CHECK_THAT(recvfrom(fd, in, sizeof in, 0, (struct sockaddr *)&from, &size), ==, HELLO_SIZE);
    CHECK(memcmp(in, "mR\x03\x01", 4) == 0);
    datagram_head(out, DATAGRAM_RESET, 0, 0);
    out[AT_VERSION] = 200;
    memcpy(out + AT_TO, in + AT_FROM, 8);
    memcpy(out + AT_FROM, in + AT_FROM, 8);
    CHECK(connect(fd, (struct sockaddr *)&from, size) == 0);
    datagram_say(fd, out, sizeof out);
    memcpy(&cookie, in + AT_FROM, sizeof cookie);
    return cookie;
}

/* A real client calls, gets this answer, and then an answer to its request. Over "dgram" it calls with datagrams
 * first. */
static void answer_as(struct world *world, unsigned version, unsigned oldest, unsigned status, size_t size, int code)
{
    unsigned char in[MESSAGE_MAX], out[MESSAGE_MAX];
    int port = 0, listener = wire_listen(&port), datagrams = listen_for_datagrams(port);
    struct child *client = spawn_caller(world, code, port_uses_udp() ? WAY_ANY : WAY_TCP, port);
    struct link link = {.way = WAY_TCP};

    if (port_uses_udp())
        refuse_datagram(datagrams);
    close(datagrams);
    link.fd = wire_accept(listener, WAIT_MS);
    CHECK_THAT(wire_hear(link.fd, in, sizeof preamble, WAIT_MS), ==, sizeof preamble);
    CHECK(memcmp(in, preamble, sizeof preamble) == 0);
    CHECK(wire_say(link.fd, preamble, sizeof preamble));
    CHECK_THAT(hear_packet(&link, in), >, GREETING_AT + 8);
    CHECK(in[0] == KIND_CONNECT && in[1] == 0 && memcmp(in + WIRE_HEADER, "MXs1", 4) == 0);
    CHECK(get16(in + VERSION_AT) >= 8 && get16(in + OLDEST_AT) <= 8);
    memset(out, 'x', sizeof out);
    memcpy(out, kept, sizeof kept);
    out[0] = KIND_REPLY;
    memcpy(out + WORD_AT, in + WORD_AT, 8);
    wire_put(out + LENGTH_AT, size - WIRE_HEADER, 4);
    wire_put(out + STATUS_AT, status, 4);
    wire_put(out + VERSION_AT, version, 2);
    wire_put(out + OLDEST_AT, oldest, 2);
    wire_put(out + NUMBER_AT, (uint64_t)port, 4);
    if (version > 8)
        wire_put(out + FEATURES_AT, UINT32_MAX, 4);
    say(&link, out, size);
    if (code == 0) {
        uint64_t id = get32(in + OUR_ID_AT);
        struct packet packet = {.kind = KIND_EAGER,
                                .word = UINT64_C(0xe) << 60 | id << 32 | TAG,
                                .length = 4,
                                .body_length = 4};

        do
            CHECK_THAT(hear_packet(&link, in), >, 0);
        while (in[0] != KIND_EAGER);
        CHECK_THAT(get32(in + WORD_AT), ==, TAG);
        CHECK_THAT(get32(in + WORD_AT + 4), ==, UINT32_C(0xd0000000) | OUR_ID);
        CHECK(memcmp(in + WIRE_HEADER, "ask", 4) == 0);
        say(&link, out, wire_packet(out, &packet, "you", 4));
    }
    child_tell(client, "stop", 0);
    while (hear_packet(&link, in) > 0)
        continue;
    close(link.fd);
    close(listener);
    child_end(client);
}

/* A real client calls, and each time reads another version instead of an answer. */
static void answer_in_another_version(struct world *world)
{
    unsigned char in[MESSAGE_MAX], out[sizeof preamble];
    int port = 0, listener = wire_listen(&port), fd;
    struct child *client = spawn_caller(world, -BMI_EHOSTUNREACH, WAY_TCP, port);
    uint64_t before = 0, cookie;

    for (int call = 0; call < CALLS; call++) {
        fd = wire_accept(listener, WAIT_MS);
        memcpy(out, preamble, sizeof preamble);
        out[6] = 200;
        CHECK(wire_say(fd, out, sizeof preamble));
        CHECK_THAT(wire_hear(fd, in, sizeof in, WAIT_MS), >=, sizeof preamble);
        close(fd);
    }
    caller_ends(client);
    close(listener);

    fd = listen_for_datagrams(port);
    client = spawn_caller(world, -BMI_EHOSTUNREACH, WAY_DGRAM, port);
    for (int call = 0; call < CALLS; call++) {
        do
            cookie = refuse_datagram(fd);
        while (cookie == before);
        before = cookie;
    }
    caller_ends(client);
    close(fd);
}

static void is_called(struct world *world)
{
    answer_in_another_version(world);
    answer_as(world, 8, 8, 0, sizeof kept, 0);
    answer_as(world, 9, 8, 0, sizeof kept + 50, 0);
    answer_as(world, 60000, 60000, OTHER_VERSION, WIRE_HEADER + 32, -BMI_EPROTO);
    answer_as(world, 60000, 60000, 0, sizeof kept, -BMI_EPROTO);
}

#define SERVED {"server", logging_server}, {"good", good_client}

TESTS(
    DIRECTED_OF(the_peer_of_version_8_is_served_over_tcp, WAY_TCP, come_as_others, SERVED),
    DIRECTED_OF(the_peer_of_version_8_is_served_over_shared_memory, WAY_LOCAL, come_as_others, SERVED),
    DIRECTED_OF(the_peer_of_version_8_is_served_over_datagrams, WAY_DGRAM, come_as_others, SERVED),
    DIRECTED(the_peer_of_version_8_is_called, is_called, {"caller", caller}))
