/*
 * Strangers who ask an rdm server for its endpoint address, at its TCP port.
 *
 *     stranger ── preamble, 'L' question, endpoint address ──► server ── answer ──► the end
 *
 * The endpoint address is where the server's provider is told where the peer is: any byte of it may be wrong,
 * and the address may lead nowhere, to the server itself, or to a socket that never answers. The
 * good client, over rdm, notices nothing. Layouts: docs/wire-format.md.
 */
#include "../support/stage.h"

#include <arpa/inet.h>
#include <netinet/in.h>

enum {
    FIXED = 36,         /* of an endpoint address, before name and address */
    ENDPOINT_ADDRESS_MAX = 36 + 64 + 256,
    FORMAT_IN = 2,      /* FI_SOCKADDR_IN */
    CROWD = 200,
};

struct endpoint_address {
    const char *provider;
    const void *address;
    size_t address_length;
    uint32_t format;
};

static size_t emit_address(unsigned char *out, const struct endpoint_address *endpoint_address)
{
    size_t name = strlen(endpoint_address->provider);

    memset(out, 0, FIXED);
    memcpy(out, "MXrc", 4);
    wire_put(out + 4, 3, 2);
    out[6] = (unsigned char)name;
    wire_put(out + 8, endpoint_address->address_length, 2);
    wire_put(out + 12, endpoint_address->format, 4);
    wire_put(out + 16, 0x1122334455667788, 8);
    wire_put(out + 24, 0x99aabbccddeeff00, 8);
    wire_put(out + 32, 3, 4);
    memcpy(out + FIXED, endpoint_address->provider, name);
    memcpy(out + FIXED + name, endpoint_address->address, endpoint_address->address_length);
    return FIXED + name + endpoint_address->address_length;
}

/* Asks with that body, announced as `announced` bytes; the answer's body and its length, 0 when
 * the server closed without one. */
static size_t ask(const struct stage *stage, const unsigned char *opening, const void *body,
                  size_t size, size_t announced, unsigned version, unsigned char *answer,
                  size_t room)
{
    unsigned char header[WIRE_HEADER] = {'L', 1, 'm', 'x'}, heard[WIRE_PREAMBLE + WIRE_HEADER];
    int fd = dial(stage, DOOR_TCP);
    uint32_t length = 0;

    CHECK(fd >= 0);
    wire_put(header + 4, announced, 4);
    wire_put(header + 8, version, 2);
    if (wire_say(fd, opening, WIRE_PREAMBLE) && wire_say(fd, header, sizeof header) &&
        wire_say(fd, body, size) && answer != NULL &&
        wire_hear(fd, heard, sizeof heard, WAIT_MS) == sizeof heard) {
        memcpy(&length, heard + WIRE_PREAMBLE + 4, 4);
        CHECK_THAT(heard[WIRE_PREAMBLE], ==, 'L');
        CHECK_THAT(length, >, 0);
        CHECK_THAT(length, <=, room);
        CHECK_THAT(wire_hear(fd, answer, length, WAIT_MS), ==, length);
    }
    close(fd);
    return length;
}

/* The name of the server's provider, from a refusal. */
static void learn_provider(const struct stage *stage, const unsigned char *opening, char name[65])
{
    const struct endpoint_address other = {"no such provider", "\1\2\3\4", 4, FORMAT_IN};
    unsigned char body[ENDPOINT_ADDRESS_MAX], answer[ENDPOINT_ADDRESS_MAX + 1];
    size_t size = emit_address(body, &other);
    size_t length = ask(stage, opening, body, size, size, 1, answer, sizeof answer);

    CHECK_THAT(length, >, 3);
    CHECK_THAT(answer[0], ==, 0); /* no */
    CHECK_THAT(answer[2], ==, length - 3);
    CHECK_THAT(answer[2], <=, 64);
    memcpy(name, answer + 3, answer[2]);
    name[answer[2]] = '\0';
    CHECK(name[0] != '\0');
}

static struct sockaddr_in address_of(uint32_t host, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    address.sin_addr.s_addr = htonl(host);
    return address;
}

static void ask_strangely(struct world *world)
{
    unsigned char opening[OPENING_MAX], body[ENDPOINT_ADDRESS_MAX], copy[ENDPOINT_ADDRESS_MAX], answer[ENDPOINT_ADDRESS_MAX + 1];
    struct sockaddr_in silent = address_of(INADDR_LOOPBACK, 0);
    struct endpoint_address endpoint_address = {.format = FORMAT_IN};
    int port = 0, listener = wire_listen(&port);
    struct stage stage;
    char provider[65];
    size_t size;

    set_up(world, &stage);
    record_tcp(world, opening);
    learn_provider(&stage, opening, provider);
    endpoint_address.provider = provider;
    silent.sin_port = htons((uint16_t)port);
    endpoint_address.address = &silent;
    endpoint_address.address_length = sizeof silent;
    size = emit_address(body, &endpoint_address);
    /* A sound one is answered with an endpoint address, without a check of the asker. */
    CHECK_THAT(ask(&stage, opening, body, size, size, 1, answer, sizeof answer), >, FIXED);
    CHECK_THAT(answer[0], ==, 1);
    check_good(&stage);
    /* Of another version, cut off, announced longer or shorter than it is, or as the longest. */
    ask(&stage, opening, body, size, size, 2, answer, sizeof answer);
    for (size_t cut = 0; cut < size; cut += 7) {
        ask(&stage, opening, body, cut, cut, 1, answer, sizeof answer);
        ask(&stage, opening, body, cut, size, 1, NULL, 0);
        ask(&stage, opening, body, size, cut, 1, NULL, 0);
    }
    ask(&stage, opening, body, size, UINT32_MAX, 1, NULL, 0);
    check_good(&stage);
    /* Any byte wrong. */
    for (size_t at = 0; at < size; at++) {
        memcpy(copy, body, size);
        copy[at] ^= 0xa5;
        ask(&stage, opening, copy, size, size, 1, answer, sizeof answer);
    }
    check_good(&stage);
    close(listener);
    take_down(&stage);
}

/* Peers' addresses that lead elsewhere, which the provider is given. */
static void lead_astray(struct world *world)
{
    static unsigned char zeros[256], ones[256];
    unsigned char opening[OPENING_MAX], body[ENDPOINT_ADDRESS_MAX], answer[ENDPOINT_ADDRESS_MAX + 1];
    int port = 0, listener = wire_listen(&port);
    struct sockaddr_in places[4];
    struct stage stage;
    char provider[65];

    memset(ones, 0xff, sizeof ones);
    set_up(world, &stage);
    record_tcp(world, opening);
    learn_provider(&stage, opening, provider);
    places[0] = address_of(INADDR_LOOPBACK, stage.endpoint); /* its own TCP port */
    places[1] = address_of(INADDR_LOOPBACK, port);           /* accepts, and says nothing */
    places[2] = address_of(INADDR_BROADCAST, 1);
    places[3] = address_of(INADDR_ANY, 0);
    for (size_t i = 0; i < 4; i++) {
        struct endpoint_address endpoint_address = {provider, &places[i], sizeof places[i], FORMAT_IN};
        size_t size = emit_address(body, &endpoint_address);

        ask(&stage, opening, body, size, size, 1, answer, sizeof answer);
    }
    check_good(&stage);
    for (size_t length = 1; length <= 256; length = length * 3 / 2 + 1) {
        struct endpoint_address zero = {provider, zeros, length, FORMAT_IN};
        struct endpoint_address one = {provider, ones, length, FORMAT_IN};
        size_t size = emit_address(body, &zero);

        ask(&stage, opening, body, size, size, 1, answer, sizeof answer);
        size = emit_address(body, &one);
        ask(&stage, opening, body, size, size, 1, answer, sizeof answer);
    }
    check_good(&stage);
    /* Many who ask and never come: their links end by themselves. */
    for (int i = 0; i < CROWD; i++) {
        struct sockaddr_in absent = address_of(INADDR_LOOPBACK, 1 + i % 1000);
        struct endpoint_address endpoint_address = {provider, &absent, sizeof absent, FORMAT_IN};
        size_t size = emit_address(body, &endpoint_address);

        ask(&stage, opening, body, size, size, 1, answer, sizeof answer);
    }
    check_good(&stage);
    close(listener);
    take_down(&stage);
}

TESTS_AFTER(setenv("MX_PORT", "rdm", 1),
    DIRECTED(strange_questions_are_answered_or_turned_away, ask_strangely, STAGE),
    DIRECTED(endpoint_addresses_that_lead_astray_hurt_no_other_peer, lead_astray, STAGE))
