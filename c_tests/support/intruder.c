/* See intruder.h. */
#include "intruder.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "port.h"

enum {
    HELLO_VERSION = 8,
    CONNECTION_KEY = 0x70766673,
    HANDSHAKE_VERSION = 0x100,
    TCP_VERSION = 1,
    CONTROL = 24, /* bytes of a control message of the local port */
    LOCAL_VERSION = 4,
    CREDITS = 1000, /* lent once, never more */
    WINDOW = 1 << 20,
    ANSWER_MS = 10000,
    DATAGRAM_MS = 1500, /* a datagram may have been lost */
    TRIES = 5,
};

struct door door_of(uint32_t address, int number)
{
    struct door door = {.address = address, .number = number};

    door.route = port_uses_udp() ? OVER_DATAGRAMS : port_is("local") ? OVER_SHARED_MEMORY : OVER_TCP;
    return door;
}

uint64_t number_at(const unsigned char *at, int bytes)
{
    uint64_t value = 0;

    while (bytes-- > 0)
        value = value << 8 | at[bytes];
    return value;
}

static uint64_t any_number(void)
{
    static uint64_t state;

    /* splitmix64 */
    uint64_t x = (state += UINT64_C(0x9e3779b97f4a7c15)) + (uint64_t)getpid() * 1000003;

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static struct sockaddr_in address_of(const struct door *door)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)door->number)};

    address.sin_addr.s_addr = htonl(door->address);
    return address;
}

static bool is_readable(int fd, int ms)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    return poll(&entry, 1, ms) > 0;
}

/* ---- datagrams ---- */

/* Makes a header of the session, with the acknowledgement of what has been received. */
static void head(const struct intruder *it, unsigned char *out, int kind)
{
    datagram_head(out, kind, it->theirs, it->mine);
    wire_put(out + AT_WANTED, it->wanted, 4);
    wire_put(out + AT_WINDOW, WINDOW, 4);
    if (!it->is_open) {
        wire_put(out + AT_FLAGS, FLAG_OPENING, 2);
        wire_put(out + AT_FIRST_OF_CALLER, it->first, 4);
    }
}

static void send_datagram(const struct intruder *it, unsigned char *out, size_t size)
{
    struct sockaddr_in to = address_of(it->door);

    wire_put(out + AT_SUM, 0, 4);
    wire_put(out + AT_SUM, crc32c(out, DATAGRAM_HEADER), 4);
    (void)!sendto(it->fd, out, size, MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof to);
}

static void acknowledge(const struct intruder *it, uint32_t stamp)
{
    unsigned char out[DATAGRAM_HEADER];

    head(it, out, DATAGRAM_ACK);
    wire_put(out + AT_NUMBER, stamp, 4);
    send_datagram(it, out, sizeof out);
}

static void say_segment(struct intruder *it, const unsigned char *packet, size_t size)
{
    unsigned char out[DATAGRAM_HEADER + PACKET_MAX];
    uint16_t flags = FLAG_SUMMED | (it->is_open ? 0 : FLAG_OPENING);

    head(it, out, DATAGRAM_DATA);
    wire_put(out + AT_NUMBER, it->next++, 4);
    wire_put(out + AT_FLAGS, flags, 2);
    wire_put(out + AT_PAYLOAD, size, 2);
    wire_put(out + AT_PACKET, it->packets++, 4);
    wire_put(out + AT_WHOLE, size, 4);
    wire_put(out + AT_PAYLOAD_SUM, crc32c(packet, size), 4);
    memcpy(out + DATAGRAM_HEADER, packet, size);
    send_datagram(it, out, DATAGRAM_HEADER + size);
}

/* Receives the next segment that contains a whole packet, and returns the packet's size. */
static size_t hear_segment(struct intruder *it, unsigned char packet[PACKET_MAX], deadline_t deadline)
{
    unsigned char in[65536];

    while (is_readable(it->fd, deadline_left(deadline))) {
        ssize_t got = recv(it->fd, in, sizeof in, MSG_DONTWAIT);
        size_t size = got >= DATAGRAM_HEADER ? (size_t)number_at(in + AT_PAYLOAD, 2) : 0;

        if (got < DATAGRAM_HEADER || number_at(in + AT_TO, 8) != it->mine)
            continue;
        if (in[AT_KIND] == DATAGRAM_RESET)
            return 0;
        it->is_open = true;
        if (in[AT_KIND] == DATAGRAM_PING)
            acknowledge(it, (uint32_t)number_at(in + AT_NUMBER, 4));
        if (in[AT_KIND] != DATAGRAM_DATA || number_at(in + AT_NUMBER, 4) != it->wanted)
            continue;
        it->wanted++;
        acknowledge(it, 0);
        if (size <= PACKET_MAX && number_at(in + AT_WHOLE, 4) == size && (size_t)got == DATAGRAM_HEADER + size) {
            memcpy(packet, in + DATAGRAM_HEADER, size);
            return size;
        }
    }
    return 0;
}

static bool greet_by_datagram(struct intruder *it)
{
    unsigned char out[DATAGRAM_HEADER + DATAGRAM_GREETING], in[2048];

    it->mine = any_number();
    it->first = it->next = (uint32_t)any_number();
    for (int i = 0; i < TRIES; i++) {
        datagram_hello(out, it->mine, it->first);
        send_datagram(it, out, sizeof out);
        while (is_readable(it->fd, DATAGRAM_MS / TRIES)) {
            ssize_t got = recv(it->fd, in, sizeof in, MSG_DONTWAIT);

            if (got < DATAGRAM_HEADER || in[AT_KIND] != DATAGRAM_WELCOME || number_at(in + AT_TO, 8) != it->mine)
                continue;
            it->theirs = number_at(in + AT_FROM, 8);
            it->wanted = (uint32_t)number_at(in + AT_NUMBER, 4);
            return true;
        }
    }
    return false;
}

/* ---- tcp, shared memory ---- */

static bool greet_by_tcp(struct intruder *it)
{
    unsigned char preamble[WIRE_PREAMBLE] = {0x93, 'M', 'X', 'T', 'C', 'P', TCP_VERSION, 0}, heard[WIRE_PREAMBLE];
    struct sockaddr_in to = address_of(it->door);

    return connect(it->fd, (struct sockaddr *)&to, sizeof to) == 0 && wire_say(it->fd, preamble, sizeof preamble) &&
           wire_hear(it->fd, heard, sizeof heard, ANSWER_MS) == sizeof heard &&
           memcmp(heard, preamble, sizeof heard) == 0;
}

/* Sends the true credentials: the kernel accepts no others. */
static bool greet_by_socket(struct intruder *it)
{
    unsigned char hello[CONTROL] = "mx-hello", heard[CONTROL];
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control = {0};
    struct iovec part = {hello, sizeof hello};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *with = CMSG_FIRSTHDR(&message);
    struct ucred user = {getpid(), geteuid(), getegid()};

    memcpy(to.sun_path + 1, it->door->name, it->door->name_length);
    wire_put(hello + 8, LOCAL_VERSION, 4);
    wire_put(hello + 12, 0, 4);
    wire_put(hello + 16, (uint64_t)it->door->own_number, 8);
    with->cmsg_level = SOL_SOCKET;
    with->cmsg_type = SCM_CREDENTIALS;
    with->cmsg_len = CMSG_LEN(sizeof user);
    memcpy(CMSG_DATA(with), &user, sizeof user);
    return connect(it->fd, (struct sockaddr *)&to,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + it->door->name_length)) == 0 &&
           sendmsg(it->fd, &message, MSG_NOSIGNAL) == CONTROL && is_readable(it->fd, ANSWER_MS) &&
           recv(it->fd, heard, sizeof heard, MSG_DONTWAIT) == CONTROL && memcmp(heard, "mx-welcm", 8) == 0;
}

/* ---- links ---- */

bool call_door(struct intruder *it, const struct door *door)
{
    static const int families[] = {AF_INET, AF_INET, AF_UNIX}, types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    static bool (*const greet[])(struct intruder *) = {greet_by_tcp, greet_by_datagram, greet_by_socket};

    *it = (struct intruder){.door = door, .fd = socket(families[door->route], types[door->route] | SOCK_CLOEXEC, 0)};
    CHECK(it->fd >= 0);
    if (greet[door->route](it))
        return true;
    hang_up(it);
    return false;
}

void hang_up(struct intruder *it)
{
    if (it->fd >= 0)
        close(it->fd);
    it->fd = -1;
}

void say_bytes(struct intruder *it, const unsigned char *packet, size_t size)
{
    if (it->door->route == OVER_DATAGRAMS)
        say_segment(it, packet, size);
    else
        (void)!send(it->fd, packet, size, MSG_NOSIGNAL);
}

void say_packet(struct intruder *it, struct packet packet, const void *body, size_t size)
{
    unsigned char out[PACKET_MAX];

    CHECK(WIRE_HEADER + size <= sizeof out);
    if (packet.body_length == 0)
        packet.body_length = (uint32_t)size;
    packet.credit = CREDITS;
    say_bytes(it, out, wire_packet(out, &packet, body, size));
}

size_t hear_packet(struct intruder *it, unsigned char packet[PACKET_MAX], int ms)
{
    deadline_t deadline = deadline_in(ms);
    size_t size;

    if (it->door->route == OVER_DATAGRAMS)
        return hear_segment(it, packet, deadline);
    if (it->door->route == OVER_SHARED_MEMORY) {
        while (is_readable(it->fd, deadline_left(deadline))) {
            ssize_t got = recv(it->fd, packet, PACKET_MAX, MSG_DONTWAIT);

            if (got <= 0)
                return 0;
            if (got >= WIRE_HEADER) /* a whole packet: no wake-up, no message about rings */
                return (size_t)got;
        }
        return 0;
    }
    if (wire_hear(it->fd, packet, WIRE_HEADER, ms) != WIRE_HEADER)
        return 0;
    size = (size_t)number_at(packet + 4, 4);
    if (size > PACKET_MAX - WIRE_HEADER || wire_hear(it->fd, packet + WIRE_HEADER, size, ms) != size)
        return 0;
    return WIRE_HEADER + size;
}

/* ---- introductions ---- */

size_t make_hello(unsigned char out[PACKET_MAX], const struct identity *as, const struct door *door)
{
    static const char name[] = "mx://stranger";

    memset(out, 0, PACKET_MAX);
    memcpy(out, "MXs1", 4);
    wire_put(out + 4, HELLO_VERSION, 2);
    wire_put(out + 6, as->epoch, 2);
    wire_put(out + 8, CONNECTION_KEY, 4);
    wire_put(out + 12, as->number, 4);
    wire_put(out + 16, as->interface, 6);
    wire_put(out + 22, HELLO_VERSION, 2);
    wire_put(out + 24, as->life, 8);
    wire_put(out + 32, UINT64_C(0x4d58) << 32 | door->address, 6);
    out[38] = (unsigned char)(8 + sizeof name - 1);
    wire_put(out + 40, (uint64_t)door->number, 4);
    memcpy(out + 48, as->nonce, sizeof as->nonce);
    wire_put(out + WIRE_HELLO, HANDSHAKE_VERSION, 4);
    wire_put(out + WIRE_HELLO + 4, OWN_ID, 4);
    memcpy(out + WIRE_HELLO + 8, name, sizeof name - 1);
    return WIRE_HELLO + 8 + sizeof name - 1;
}

int hear_answer(struct intruder *it, unsigned char answer[PACKET_MAX])
{
    size_t size = hear_packet(it, answer, it->door->route == OVER_DATAGRAMS ? DATAGRAM_MS : ANSWER_MS);

    if (size == 0)
        return TURNED_AWAY;
    if (answer[0] == KIND_CHALLENGE)
        return CHALLENGED;
    if (answer[0] != KIND_REPLY)
        FAIL("an introduction is answered with a packet of kind %d", answer[0]);
    CHECK_THAT(size, >=, WIRE_HEADER + WIRE_HELLO);
    return (int)number_at(answer + STATUS_AT, 4);
}

void say_connect(struct intruder *it, const struct identity *as)
{
    unsigned char hello[PACKET_MAX];

    say_packet(it, (struct packet){.kind = KIND_CONNECT, .word = 1}, hello, make_hello(hello, as, it->door));
}

int introduce(struct intruder *it, const struct identity *as, struct identity *answerer, uint32_t *id)
{
    unsigned char answer[PACKET_MAX];
    const unsigned char *says = answer + WIRE_HEADER;
    int told;

    say_connect(it, as);
    told = hear_answer(it, answer);
    if (told == WELCOME) {
        *id = (uint32_t)number_at(says + WIRE_HELLO + 4, 4);
        *answerer = (struct identity){(uint32_t)number_at(says + 12, 4), (uint32_t)number_at(says + 6, 2),
                                      number_at(says + 16, 6), number_at(says + 24, 8), {0}};
        memcpy(answerer->nonce, says + 48, sizeof answerer->nonce);
    }
    return told;
}

int enter_as(struct intruder *it, const struct door *door, const struct identity *as, struct identity *answerer,
             uint32_t *id)
{
    int answer = TURNED_AWAY;

    for (int i = 0; i < (door->route == OVER_DATAGRAMS ? TRIES : 1) && answer == TURNED_AWAY; i++) {
        if (!call_door(it, door))
            continue;
        answer = introduce(it, as, answerer, id);
        if (answer == TURNED_AWAY)
            hang_up(it);
    }
    return answer;
}

/* ---- forgeries ---- */

void forge_datagram(uint32_t from, int from_port, const struct door *to, unsigned char *datagram, size_t size)
{
    unsigned char packet[sizeof(struct iphdr) + sizeof(struct udphdr) + 512];
    struct iphdr ip = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP, .saddr = htonl(from),
                       .daddr = htonl(to->address)};
    struct udphdr udp = {0};
    struct sockaddr_in address = address_of(to);
    int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);

    CHECK(fd >= 0 && size <= 512);
    udp.source = htons((uint16_t)from_port);
    udp.dest = address.sin_port;
    udp.len = htons((uint16_t)(sizeof udp + size));
    wire_put(datagram + AT_SUM, 0, 4);
    wire_put(datagram + AT_SUM, crc32c(datagram, DATAGRAM_HEADER), 4);
    memcpy(packet, &ip, sizeof ip);
    memcpy(packet + sizeof ip, &udp, sizeof udp);
    memcpy(packet + sizeof ip + sizeof udp, datagram, size);
    (void)!sendto(fd, packet, sizeof ip + sizeof udp + size, MSG_NOSIGNAL, (struct sockaddr *)&address, sizeof address);
    close(fd);
}
