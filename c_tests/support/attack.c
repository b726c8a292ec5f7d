/* See attack.h. */
#include "attack.h"

#include "service.h"

enum {
    UNEXPECTED = 0xd, EXPECTED = 0xe, /* types of messages */
    GUESSES = 12,    /* ids of peers, from 0 on */
    WORDS = 4,       /* ids of requests, from 0 on */
    FLOOD = 120,     /* links */
    HELLOS = 1000,   /* datagrams */
    FLOOD_MS = 300,
    ANSWER_MS = 10000,
    READ_MS = 1000,
    CLAIM_BYTES = 40,
};

static uint64_t bits(uint64_t type, uint64_t id, uint32_t tag)
{
    return type << 60 | id << 32 | tag;
}

struct identity learn(const struct door *door)
{
    struct identity stranger = {.number = (uint32_t)door->own_number, .life = 1, .nonce = {1}};
    struct identity answerer = {0};
    struct intruder intruder;
    uint32_t id;

    CHECK_THAT(enter_as(&intruder, door, &stranger, &answerer, &id), ==, WELCOME);
    hang_up(&intruder);
    return answerer;
}

void ask_as(struct intruder *it, uint64_t id, int64_t number)
{
    unsigned char question[QUESTION_MAX];
    size_t size = make_question(question, number);
    struct packet packet = {.kind = KIND_EAGER, .word = bits(UNEXPECTED, id, 1), .length = (uint32_t)size,
                            .status = SLOT_UNEXPECTED};

    say_packet(it, packet, question, size);
}

static bool is_answered(struct intruder *it)
{
    unsigned char answer[PACKET_MAX];

    for (deadline_t deadline = deadline_in(ANSWER_MS); !deadline_over(deadline);) {
        size_t size = hear_packet(it, answer, deadline_left(deadline));

        if (size == 0)
            return false;
        if (answer[0] == KIND_EAGER) {
            CHECK_THAT(answer[15] >> 4, ==, EXPECTED);
            CHECK_THAT(answer[12], ==, OWN_ID);
            return memcmp(answer + WIRE_HEADER, "mx://", 5) == 0;
        }
    }
    return false;
}

/* Introduces itself as that peer and gets a session of its own: its question is answered to itself. */
static void become_another(const struct door *door, const struct identity *as)
{
    for (int64_t number = 1;; number++) {
        struct identity answerer;
        struct intruder intruder;
        bool answered;
        uint32_t id;

        CHECK_THAT(enter_as(&intruder, door, as, &answerer, &id), ==, WELCOME);
        ask_as(&intruder, id, number);
        answered = is_answered(&intruder);
        hang_up(&intruder);
        if (answered)
            return;
        /* A datagram may have been lost. */
        CHECK(door->route == OVER_DATAGRAMS && number < 3);
    }
}

/* Hangs up once the server has read everything sent, or has closed the link. */
static void hang_up_after(struct intruder *it)
{
    unsigned char answer[PACKET_MAX];

    say_packet(it, (struct packet){.kind = KIND_PING, .word = 1}, NULL, 0);
    for (deadline_t deadline = deadline_in(READ_MS); !deadline_over(deadline);)
        if (hear_packet(it, answer, deadline_left(deadline)) == 0 || answer[0] == KIND_PONG)
            break;
    hang_up(it);
}

/* Sends messages with ids that the endpoint has given to others: one as their answer, one as their request. */
static void speak_for_others(const struct door *door, const struct identity *as)
{
    for (uint64_t guess = 0; guess < GUESSES; guess++) {
        for (int asks = 0; asks < 2; asks++) {
            struct packet packet = {.kind = KIND_EAGER, .word = bits(EXPECTED, guess, TAG_UNUSED), .length = 1,
                                    .status = SLOT_MATCHED};
            struct identity answerer;
            struct intruder intruder;
            uint32_t id;

            CHECK_THAT(enter_as(&intruder, door, as, &answerer, &id), ==, WELCOME);
            if (asks)
                ask_as(&intruder, guess, (int64_t)guess + 10);
            else
                say_packet(&intruder, packet, "x", 1);
            hang_up_after(&intruder);
        }
    }
}

/* Sends packets about requests, credits and sessions of others. */
static void meddle(const struct door *door, const struct identity *as)
{
    static const struct {
        unsigned char kind;
        size_t size;
    } packets[] = {
        {KIND_OFFER, 8}, {KIND_PULL, 12}, {KIND_DATA, 8}, {KIND_NOTIFY, 0}, {KIND_WITHDRAW, 0}, {KIND_CREDIT, 0},
        {KIND_PONG, 0}, {KIND_REVOKE, 0}, {KIND_RETURN, 0}, {KIND_CLAIM, CLAIM_BYTES}, {KIND_PROVE, PROOF_BYTES},
        {KIND_CONNECT, 0}, {KIND_REPLY, 0}, {KIND_DISCONNECT, 0},
    };

    for (size_t i = 0; i < sizeof packets / sizeof *packets; i++) {
        struct packet packet = {.kind = packets[i].kind, .length = 8, .status = 1};
        unsigned char body[PACKET_MAX] = {0};
        size_t size = packets[i].size;
        struct identity answerer;
        struct intruder intruder;
        uint32_t id;

        CHECK_THAT(enter_as(&intruder, door, as, &answerer, &id), ==, WELCOME);
        if (packet.kind == KIND_CONNECT || packet.kind == KIND_REPLY) {
            /* Claims to be another peer on the same link. */
            struct identity other = answerer;

            other.number++;
            size = make_hello(body, &other, door);
        }
        for (uint64_t word = 0; word < WORDS; word++) {
            packet.word = word;
            say_packet(&intruder, packet, body, size);
        }
        hang_up_after(&intruder);
    }
}

/* Opens many links at once for a moment, with half of an introduction or a whole one. */
static void flood(const struct door *door, const struct identity *as)
{
    static struct intruder intruders[FLOOD];

    for (int i = 0; i < FLOOD; i++) {
        struct intruder *it = &intruders[i];
        struct identity answerer;
        uint32_t id;

        if (!call_door(it, door))
            continue;
        if (i % 3 == 1)
            say_packet(it, (struct packet){.kind = KIND_CONNECT, .word = 1, .body_length = WIRE_HELLO}, NULL, 0);
        else if (i % 3 == 2)
            introduce(it, as, &answerer, &id);
    }
    pause_ms(FLOOD_MS);
    for (int i = 0; i < FLOOD; i++)
        hang_up(&intruders[i]);
}

static void flood_with_datagrams(const struct door *door)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)door->number)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(door->address);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    for (uint32_t i = 0; i < HELLOS; i++) {
        unsigned char hello[DATAGRAM_HEADER + DATAGRAM_GREETING];

        datagram_hello(hello, i + 1, i);
        datagram_say(fd, hello, sizeof hello);
    }
    close(fd);
}

void attack(const struct door *door, const struct identity *as, bool is_server)
{
    if (is_server)
        become_another(door, as);
    speak_for_others(door, as);
    meddle(door, as);
    flood(door, as);
    if (door->route == OVER_DATAGRAMS)
        flood_with_datagrams(door);
}

void forge(const struct door *door, uint32_t from, int from_port)
{
    static const int kinds[] = {DATAGRAM_HELLO, DATAGRAM_DATA, DATAGRAM_ACK, DATAGRAM_RESET};

    for (uint64_t i = 0; i < HELLOS; i++) {
        unsigned char datagram[DATAGRAM_HEADER + DATAGRAM_GREETING];
        int kind = kinds[i % (sizeof kinds / sizeof *kinds)];

        datagram_hello(datagram, i + 1, (uint32_t)i);
        if (kind != DATAGRAM_HELLO) {
            datagram_head(datagram, kind, i, i + 1);
            wire_put(datagram + AT_FLAGS, FLAG_OPENING, 2);
        }
        forge_datagram(from, from_port, door, datagram, sizeof datagram);
    }
}
