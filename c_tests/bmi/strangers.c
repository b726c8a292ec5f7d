/*
 * Strangers that connect to a server's TCP port and abstract Unix socket.
 *
 * After every kind of nonsense the good client exchanges messages: it loses none, and the server neither crashes
 * nor hangs. Recorded openings of a real client are replayed, cut off, damaged, and followed by malicious packets.
 * Shared memory has a program of its own, strangers_memory.c.
 */
#include "../support/stage.h"

#include <sys/socket.h>

/* ---- noise ---- */

static void speak_nonsense(struct world *world)
{
    enum wire_door door = (enum wire_door)variant_of(world);
    static const char *const words[] = {
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "MX", "\x93MXTCP", "\x93MXTCP\x01",
    };
    static unsigned char noise[200000];
    struct stage stage;
    int silent[20], silent_count = 0;

    set_up(world, &stage);
    if (door_is_open(&stage, door)) {
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            int fd = dial(&stage, door);

            CHECK(fd >= 0);
            wire_say(fd, words[i], strlen(words[i]));
            close(fd);
        }
        check_good(&stage);
        for (unsigned seed = 0; seed < 24; seed++) {
            static const size_t sizes[] = {1, 7, 8, 9, 31, 32, 33, 64, 4096, 200000};
            int fd = dial(&stage, door);
            size_t size = sizes[seed % 10];

            CHECK(fd >= 0);
            wire_noise(noise, size, seed);
            if (seed % 3 == 0) /* looks right at first */
                memcpy(noise, "\x93MXTCP\x01\x00", size < 8 ? size : 8);
            wire_say(fd, noise, size);
            if (seed % 2 == 0)
                shutdown(fd, SHUT_WR);
            wire_hear(fd, noise, sizeof noise, 2);
            close(fd);
        }
        check_good(&stage);
        /* Connections that send nothing and stay open. */
        while (silent_count < 20)
            CHECK((silent[silent_count++] = dial(&stage, door)) >= 0);
        check_good(&stage);
        for (int i = 0; i < silent_count; i++)
            close(silent[i]);
    }
    take_down(&stage);
}

/* ---- recorded openings, damaged ---- */

static void replay_damaged(struct world *world)
{
    unsigned char opening[OPENING_MAX], copy[OPENING_MAX], heard[4096];
    struct stage stage;
    size_t size;

    if (!set_up_with_door(world, &stage, DOOR_TCP))
        return;
    size = record_tcp(world, opening);
    /* The recorded opening is valid as a whole: the server answers with more than a preamble, and then notices
     * that the recorded client has gone. */
    {
        int fd = dial(&stage, DOOR_TCP);

        CHECK(fd >= 0 && wire_say(fd, opening, size));
        CHECK_THAT(wire_hear(fd, heard, WIRE_PREAMBLE + WIRE_HEADER, WAIT_MS), ==,
                   WIRE_PREAMBLE + WIRE_HEADER);
        close(fd);
    }
    check_good(&stage);
    for (size_t cut = 0; cut < size; cut += 5) { /* cut off at any byte */
        int fd = dial(&stage, DOOR_TCP);

        CHECK(fd >= 0);
        wire_say(fd, opening, cut);
        close(fd);
    }
    check_good(&stage);
    for (size_t at = 0; at < size; at++) { /* any byte damaged */
        int fd = dial(&stage, DOOR_TCP);

        CHECK(fd >= 0);
        memcpy(copy, opening, size);
        copy[at] ^= (unsigned char)(1u << (at % 8)) | 0x80;
        wire_say(fd, copy, size);
        wire_hear(fd, heard, sizeof heard, 1);
        close(fd);
    }
    take_down(&stage);
}

/* ---- well-formed but malicious packets, within a session ---- */

static void send_harm(struct world *world)
{
    static const uint64_t words[] = {0,
                                     1,
                                     UINT64_MAX,
                                     UINT64_C(0xd) << 60,                 /* unexpected, no id */
                                     UINT64_C(0xd) << 60 | UINT64_C(1) << 32 | 5,
                                     UINT64_C(0xe) << 60 | UINT64_C(0xfffff) << 32 | 5,
                                     UINT64_C(0xe) << 60 | UINT64_C(1) << 32,
                                     UINT64_C(0xa) << 60 | UINT64_C(1) << 32 | 0x100, /* CONN_ACK */
                                     UINT64_C(0xc) << 60 | UINT64_C(1) << 32 | 0x100, /* CONN_REQ */
                                     UINT64_C(0x5) << 60,                 /* no such type */
                                     UINT64_C(0xf) << 60,
                                     UINT64_C(0x9) << 60,
                                     UINT64_C(0xb) << 60};
    static const uint32_t numbers[] = {0, 1, 8, 32768, 0x7fffffff, 0x80000000u, UINT32_MAX};
    static unsigned char body[40000], packet[WIRE_HEADER + sizeof body];
    unsigned char opening[OPENING_MAX];
    struct stage stage;
    size_t size;
    unsigned count = 0;

    if (!set_up_with_door(world, &stage, DOOR_TCP))
        return;
    size = record_tcp(world, opening);
    memset(body, 'A', sizeof body); /* no NUL anywhere */
    for (unsigned kind = 0; kind < 20; kind++) {
        for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
            int fd = enter(&stage, opening, size);

            if (fd < 0)
                FAIL("a new session is turned away after %u strange packets", count);
            for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
                static const size_t sizes[] = {0, 8, 12, 24, 32, 300, 9000};
                size_t body_size = sizes[(kind + w + n) % 7];
                struct packet p = {.kind = (unsigned char)kind,
                                   .word = words[w],
                                   .length = numbers[n],
                                   .status = numbers[(n + w) % 7],
                                   .credit = numbers[(n + kind) % 7],
                                   .slots_and_wanted = numbers[(n + 3) % 7],
                                   .body_length = (uint32_t)body_size};
                size_t length = wire_packet(packet, &p, body, body_size);

                count++;
                if (!wire_say(fd, packet, length))
                    break; /* rejected: fine */
            }
            close(fd);
        }
        check_good(&stage);
    }
    /* Impossible lengths: more than follows, more than there is memory for. */
    for (size_t n = 1; n < sizeof numbers / sizeof numbers[0]; n++) {
        for (unsigned kind = 1; kind <= 10; kind++) {
            int fd = enter(&stage, opening, size);
            struct packet p = {.kind = (unsigned char)kind,
                               .word = UINT64_C(0xd) << 60 | UINT64_C(1) << 32,
                               .length = numbers[n],
                               .body_length = numbers[n]};

            CHECK(fd >= 0);
            wire_say(fd, packet, wire_packet(packet, &p, body, 20));
            close(fd);
        }
    }
    take_down(&stage);
}

TESTS(
    DIRECTED_OF(nonsense_at_the_tcp_port_is_shrugged_off, DOOR_TCP, speak_nonsense, STAGE),
    DIRECTED_OF(nonsense_at_the_unix_socket_is_shrugged_off, DOOR_LOCAL, speak_nonsense, STAGE),
    DIRECTED(damaged_openings_are_turned_away, replay_damaged, STAGE),
    DIRECTED(harmful_packets_inside_a_session_hurt_no_other_peer, send_harm, STAGE))
