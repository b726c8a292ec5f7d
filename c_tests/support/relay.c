/* See relay.h. */
#include "relay.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include "service.h"

enum {
    FLOWS = 16,
    CHUNK = 65536,
    PASS_MS = 20,
    TRIES = 5,
    NONCE_AT = WIRE_HEADER + 48, /* offset in a Connect */
};

/* A client's connection, or its datagrams. */
struct flow {
    int to_client, to_server; /* over datagrams all clients share the first */
    struct sockaddr_in client;
    /* Bytes of the client that are held back until its Connect is complete. */
    unsigned char begun[WIRE_PREAMBLE + PACKET_MAX];
    size_t size;
    bool is_introduced;
};

static struct door server_door;
static struct flow flows[FLOWS];
static int flow_count, listener = -1;
static struct recording recording;

const struct recording *relay_recording(void)
{
    return &recording;
}

static struct sockaddr_in address_of(uint32_t address, int port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    name.sin_addr.s_addr = htonl(address);
    return name;
}

static bool is_by_datagrams(void)
{
    return server_door.route == OVER_DATAGRAMS;
}

void relay_open(const struct door *server)
{
    struct sockaddr_in here = address_of(INADDR_ANY, server->number);

    server_door = *server;
    listener = socket(AF_INET, (is_by_datagrams() ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&here, sizeof here) == 0);
    CHECK(is_by_datagrams() || listen(listener, FLOWS) == 0);
}

static int connect_to_server(void)
{
    struct sockaddr_in there = address_of(server_door.address, server_door.number);
    int fd = socket(AF_INET, (is_by_datagrams() ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&there, sizeof there) == 0);
    return fd;
}

static struct flow *begin_flow(int to_client)
{
    struct flow *flow = flows;

    while (flow < flows + flow_count && flow->to_server >= 0)
        flow++;
    CHECK(flow < flows + FLOWS);
    if (flow == flows + flow_count)
        flow_count++;
    *flow = (struct flow){.to_client = to_client, .to_server = connect_to_server()};
    return flow;
}

static void keep(const unsigned char *packet, size_t size)
{
    if (recording.packet_count == KEPT || size > PACKET_MAX)
        return;
    memcpy(recording.packets[recording.packet_count], packet, size);
    recording.packet_sizes[recording.packet_count++] = size;
}

/* Makes the message that the relay adds; returns its size. */
static size_t make_addition(unsigned char out[PACKET_MAX])
{
    unsigned char question[QUESTION_MAX];
    size_t size = make_question(question, 1);
    struct packet packet = {.kind = KIND_EAGER, .word = UINT64_C(0xd) << 60 | 1, .length = (uint32_t)size,
                            .status = SLOT_UNEXPECTED, .body_length = (uint32_t)size};

    return wire_packet(out, &packet, question, size);
}

/* ---- tcp ---- */

static void end_flow(struct flow *flow)
{
    close(flow->to_client);
    close(flow->to_server);
    flow->to_client = flow->to_server = -1;
}

/* Passes on the preamble at once, and the Connect, or a data link's Attach, once it is complete. */
static void pass_introduction(struct flow *flow, enum relay_mode mode)
{
    unsigned char *connect = flow->begun + WIRE_PREAMBLE, addition[PACKET_MAX];
    size_t length;

    if (flow->size < WIRE_PREAMBLE + WIRE_HEADER)
        return;
    length = WIRE_HEADER + (size_t)number_at(connect + 4, 4);
    CHECK(length <= PACKET_MAX);
    if (flow->size < WIRE_PREAMBLE + length)
        return;
    CHECK(connect[0] == KIND_CONNECT || connect[0] == KIND_ATTACH);
    if (flow == flows)
        keep(connect, length);
    if (mode == RELAY_ALTERS && connect[0] == KIND_CONNECT)
        connect[NONCE_AT] ^= 1;
    wire_say(flow->to_server, connect, length);
    if (mode == RELAY_ADDS)
        wire_say(flow->to_server, addition, make_addition(addition));
    CHECK_THAT(flow->size, ==, WIRE_PREAMBLE + length); /* a client waits for the answer */
    flow->is_introduced = true;
}

static bool pass_to_server(struct flow *flow, enum relay_mode mode)
{
    static unsigned char chunk[CHUNK];
    bool is_begun = !flow->is_introduced;
    ssize_t got = recv(flow->to_client, is_begun ? flow->begun + flow->size : chunk,
                       is_begun ? sizeof flow->begun - flow->size : sizeof chunk, MSG_DONTWAIT);

    if (got <= 0)
        return false;
    if (is_begun) {
        size_t before = flow->size;

        flow->size += (size_t)got;
        if (before < WIRE_PREAMBLE) {
            size_t preamble = flow->size < WIRE_PREAMBLE ? flow->size : WIRE_PREAMBLE;

            wire_say(flow->to_server, flow->begun + before, preamble - before);
        }
        pass_introduction(flow, mode);
        return true;
    }
    /* Small packets come in one read. */
    if (flow == flows && (size_t)got >= WIRE_HEADER && WIRE_HEADER + number_at(chunk + 4, 4) == (size_t)got)
        keep(chunk, (size_t)got);
    return wire_say(flow->to_server, chunk, (size_t)got);
}

static bool pass_to_client(struct flow *flow)
{
    static unsigned char chunk[CHUNK];
    ssize_t got = recv(flow->to_server, chunk, sizeof chunk, MSG_DONTWAIT);

    return got > 0 && wire_say(flow->to_client, chunk, (size_t)got);
}

/* ---- datagrams ---- */

static void add_datagram(const struct flow *flow, const unsigned char *connect)
{
    unsigned char out[DATAGRAM_HEADER + PACKET_MAX];
    size_t size = make_addition(out + DATAGRAM_HEADER);

    memcpy(out, connect, DATAGRAM_HEADER);
    wire_put(out + AT_NUMBER, number_at(connect + AT_NUMBER, 4) + 1, 4);
    wire_put(out + AT_PACKET, number_at(connect + AT_PACKET, 4) + 1, 4);
    wire_put(out + AT_PAYLOAD, size, 2);
    wire_put(out + AT_WHOLE, size, 4);
    wire_put(out + AT_PAYLOAD_SUM, crc32c(out + DATAGRAM_HEADER, size), 4);
    datagram_say(flow->to_server, out, DATAGRAM_HEADER + size);
}

static struct flow *flow_of(const struct sockaddr_in *client)
{
    struct flow *flow = flows;

    for (; flow < flows + flow_count; flow++)
        if (flow->client.sin_addr.s_addr == client->sin_addr.s_addr && flow->client.sin_port == client->sin_port)
            return flow;
    flow = begin_flow(listener);
    flow->client = *client;
    return flow;
}

static void pass_datagram_to_server(enum relay_mode mode)
{
    unsigned char in[CHUNK], *payload = in + DATAGRAM_HEADER;
    struct sockaddr_in client;
    socklen_t length = sizeof client;
    ssize_t got = recvfrom(listener, in, sizeof in, MSG_DONTWAIT, (struct sockaddr *)&client, &length);
    struct flow *flow;
    bool is_connect;

    if (got < DATAGRAM_HEADER)
        return;
    flow = flow_of(&client);
    is_connect = in[AT_KIND] == DATAGRAM_DATA && got >= DATAGRAM_HEADER + WIRE_HEADER + WIRE_HELLO &&
                 payload[0] == KIND_CONNECT;
    if (flow == flows && (size_t)got <= sizeof recording.datagrams[0] && recording.datagram_count < KEPT) {
        memcpy(recording.datagrams[recording.datagram_count], in, (size_t)got);
        recording.datagram_sizes[recording.datagram_count++] = (size_t)got;
        if (in[AT_KIND] == DATAGRAM_DATA && number_at(in + AT_WHOLE, 4) == (size_t)got - DATAGRAM_HEADER)
            keep(payload, (size_t)got - DATAGRAM_HEADER);
    }
    if (is_connect && mode == RELAY_ALTERS) {
        payload[NONCE_AT] ^= 1;
        wire_put(in + AT_PAYLOAD_SUM, crc32c(payload, (size_t)got - DATAGRAM_HEADER), 4);
    }
    datagram_say(flow->to_server, in, (size_t)got);
    if (is_connect && mode == RELAY_ADDS)
        add_datagram(flow, in);
}

static void pass_datagram_to_client(struct flow *flow)
{
    static unsigned char in[CHUNK];
    ssize_t got = recv(flow->to_server, in, sizeof in, MSG_DONTWAIT);

    if (got > 0)
        (void)!sendto(listener, in, (size_t)got, MSG_NOSIGNAL, (struct sockaddr *)&flow->client, sizeof flow->client);
}

/* ---- both ---- */

static void pass(enum relay_mode mode)
{
    struct pollfd polled[1 + 2 * FLOWS];
    int count = flow_count;

    polled[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (int i = 0; i < count; i++) {
        polled[1 + 2 * i] = (struct pollfd){.fd = flows[i].to_server, .events = POLLIN};
        polled[2 + 2 * i] = (struct pollfd){.fd = is_by_datagrams() ? -1 : flows[i].to_client, .events = POLLIN};
    }
    if (poll(polled, 1 + 2 * (nfds_t)count, PASS_MS) <= 0)
        return;
    if (polled[0].revents != 0) {
        if (is_by_datagrams())
            pass_datagram_to_server(mode);
        else
            begin_flow(wire_accept(listener, 0));
    }
    for (int i = 0; i < count; i++) {
        if (is_by_datagrams()) {
            if (polled[1 + 2 * i].revents != 0)
                pass_datagram_to_client(&flows[i]);
        } else if ((polled[1 + 2 * i].revents != 0 && !pass_to_client(&flows[i])) ||
                   (polled[2 + 2 * i].revents != 0 && !pass_to_server(&flows[i], mode))) {
            end_flow(&flows[i]);
        }
    }
}

void relay_until(struct side *side, enum relay_mode mode, bool (*is_over)(void *context), void *context)
{
    while (!heard_anything(side) && (is_over == NULL || !is_over(context)))
        pass(mode);
}

/* ---- replaying ---- */

/* A datagram may be lost, and a busy server may be late. */
static int tries_at(const struct door *server)
{
    return server->route == OVER_DATAGRAMS ? TRIES : 1;
}

/* Replays the recording once. Returns whether the first packet was answered. */
static bool say_again(const struct recording *it, const struct door *server, int *told)
{
    unsigned char answer[PACKET_MAX];
    struct intruder intruder;
    bool is_answered;

    for (int tries = 1; !call_door(&intruder, server); tries++)
        CHECK_THAT(tries, <, tries_at(server));
    say_bytes(&intruder, it->packets[0], it->packet_sizes[0]);
    *told = hear_answer(&intruder, answer);
    is_answered = *told != TURNED_AWAY;
    for (int i = 1; i < it->packet_count; i++)
        say_bytes(&intruder, it->packets[i], it->packet_sizes[i]);
    if (*told == CHALLENGED)
        *told = hear_answer(&intruder, answer);
    hang_up(&intruder);
    return is_answered;
}

int replay(const struct recording *it, const struct door *server)
{
    int told, tries = 1;

    CHECK_THAT(it->packet_count, >=, 3);
    if (server->route == OVER_DATAGRAMS) {
        struct sockaddr_in there = address_of(server->address, server->number);
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&there, sizeof there) == 0);
        for (int i = 0; i < it->datagram_count; i++)
            (void)!send(fd, it->datagrams[i], it->datagram_sizes[i], MSG_NOSIGNAL);
        close(fd);
    }
    while (!say_again(it, server, &told) && tries < tries_at(server))
        tries++;
    return told;
}
