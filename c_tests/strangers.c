/*
 * Strangers at both doors of a server: its TCP port and its abstract Unix socket.
 *
 *     director ── nonsense ──► server ◄── good client, which keeps working
 *
 * After every kind of nonsense the good client exchanges messages; nothing it does is lost,
 * and the server neither crashes nor hangs. Recorded openings of a real client are replayed,
 * cut off, damaged, and followed by packets that mean harm.
 */
#include "support/pair.h"
#include "support/pattern.h"
#include "support/wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- roles ---- */

/* Sends every unexpected message back as an expected one. */
static void echo_server(struct side *side)
{
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
    hear(side, "stop");
    host_stop();
}

static void good_client(struct side *side)
{
    static const bmi_size_t sizes[] = {8, 20000, 200000};
    struct bmi_method_addr *server;
    int64_t turn;

    host_start_client();
    server = host_lookup_endpoint((int)hear(side, "endpoint"));
    while ((turn = pair_hear(side, "go")) >= 0) {
        for (int i = 0; i < 3; i++) {
            size_t size = (size_t)sizes[i];
            char *out = fenced(size), *in = fenced(size);
            struct op receive = {0}, send = {0};
            bmi_msg_tag_t tag = (bmi_msg_tag_t)(turn * 3 + i);

            fill(out, size, (uint64_t)tag);
            CHECK_THAT(op_recv(&receive, server, in, sizes[i], tag), >=, 0);
            CHECK_THAT(op_send_unexpected(&send, server, out, sizes[i], tag), >=, 0);
            op_sent(&send);
            op_received(&receive, sizes[i]);
            check_filled(in, size, (uint64_t)tag);
            fenced_free(out);
            fenced_free(in);
        }
        tell(side, "ok", turn);
    }
    host_stop();
}

/* Dials an endpoint where nobody sensible answers, until it is killed. */
static void dialler(struct side *side)
{
    struct bmi_method_addr *server;
    struct op send = {0};
    char text[ADDRESS_SIZE];
    int64_t endpoint = hear(side, "endpoint");

    snprintf(text, sizeof text, "mx://127.0.0.1:0:%d/%s", (int)endpoint,
             hear(side, "door") == DOOR_TCP ? "tcp" : "local");
    unsetenv("MX_PORT"); /* the address says which */
    host_start_client();
    server = host_lookup(text);
    CHECK(server != NULL);
    op_send_unexpected(&send, server, "hello", 5, 1);
    for (deadline_t deadline = deadline_in(3 * PATIENCE_MS); !deadline_over(deadline);)
        host_pump(5);
}

/* ---- the stage ---- */

struct stage {
    struct child *server, *good;
    int endpoint;
    int64_t turn;
};

static void check_good(struct stage *stage)
{
    child_tell(stage->good, "go", stage->turn);
    CHECK_THAT(child_hear(stage->good, "ok"), ==, stage->turn);
    stage->turn++;
}

static void set_up(struct world *world, struct stage *stage)
{
    stage->turn = 0;
    stage->server = spawn(world, "server");
    stage->endpoint = (int)child_hear(stage->server, "endpoint");
    stage->good = spawn(world, "good");
    child_tell(stage->good, "endpoint", stage->endpoint);
    check_good(stage);
}

static void take_down(struct stage *stage)
{
    check_good(stage);
    child_tell(stage->good, "go", -1);
    child_end(stage->good);
    child_tell(stage->server, "stop", 0);
    child_end(stage->server);
}

static int dial(const struct stage *stage, enum wire_door door)
{
    return wire_connect(door, child_pid(stage->server), stage->endpoint);
}

/* The door that MX_PORT opens must be open; the other one may be. */
static bool door_is_open(const struct stage *stage, enum wire_door door)
{
    const char *port = getenv("MX_PORT");
    int fd = dial(stage, door);

    if (fd >= 0) {
        close(fd);
        return true;
    }
    if (port == NULL || strcmp(port, "auto") == 0 ||
        strcmp(port, door == DOOR_TCP ? "tcp" : "local") == 0)
        FAIL("the %s door of the server is shut", door == DOOR_TCP ? "tcp" : "local");
    return false;
}

/* ---- noise ---- */

static void speak_nonsense(struct world *world, enum wire_door door)
{
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
        /* Many that say nothing at all, and stay. */
        while (silent_count < 20)
            CHECK((silent[silent_count++] = dial(&stage, door)) >= 0);
        check_good(&stage);
        for (int i = 0; i < silent_count; i++)
            close(silent[i]);
    }
    take_down(&stage);
}

static void nonsense_at_tcp(struct world *world)
{
    speak_nonsense(world, DOOR_TCP);
}

static void nonsense_at_local(struct world *world)
{
    speak_nonsense(world, DOOR_LOCAL);
}

/* ---- recorded openings, damaged ---- */

enum { OPENING_MAX = 4096 };

/* What a real client says over TCP before it has heard anything but our preamble. */
static size_t record_tcp(struct world *world, unsigned char *opening)
{
    int port = 0, listener = wire_listen(&port), fd;
    struct child *client = spawn(world, "dialler");
    size_t size;

    child_tell(client, "endpoint", port);
    child_tell(client, "door", DOOR_TCP);
    fd = wire_accept(listener, PATIENCE_MS);
    size = wire_hear(fd, opening, WIRE_PREAMBLE, PATIENCE_MS);
    CHECK_THAT(size, ==, WIRE_PREAMBLE);
    CHECK(wire_say(fd, opening, WIRE_PREAMBLE));
    size += wire_hear(fd, opening + size, OPENING_MAX - size, 300);
    close(fd);
    close(listener);
    child_kill(client);
    CHECK_THAT(size, >, WIRE_PREAMBLE + WIRE_HEADER);
    return size;
}

static void replay_damaged(struct world *world)
{
    unsigned char opening[OPENING_MAX], copy[OPENING_MAX], heard[4096];
    struct stage stage;
    size_t size;

    set_up(world, &stage);
    if (!door_is_open(&stage, DOOR_TCP)) {
        take_down(&stage);
        return;
    }
    size = record_tcp(world, opening);
    /* The whole of it is understood: the server answers with more than a preamble. Then the
     * recorded client, which is dead, leaves again. */
    {
        int fd = dial(&stage, DOOR_TCP);

        CHECK(fd >= 0 && wire_say(fd, opening, size));
        CHECK_THAT(wire_hear(fd, heard, WIRE_PREAMBLE + WIRE_HEADER, PATIENCE_MS), ==,
                   WIRE_PREAMBLE + WIRE_HEADER);
        close(fd);
    }
    check_good(&stage);
    for (size_t cut = 0; cut < size; cut += 5) { /* cut off anywhere */
        int fd = dial(&stage, DOOR_TCP);

        CHECK(fd >= 0);
        wire_say(fd, opening, cut);
        close(fd);
    }
    check_good(&stage);
    for (size_t at = 0; at < size; at++) { /* any byte wrong */
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

/* ---- well-formed packets that mean harm, inside a session ---- */

/* Opens a session as the recorded client; returns -1 when the server turns it away. */
static int enter(const struct stage *stage, const unsigned char *opening, size_t size)
{
    unsigned char heard[WIRE_PREAMBLE + WIRE_HEADER];
    int fd = dial(stage, DOOR_TCP);

    CHECK(fd >= 0);
    if (wire_say(fd, opening, size) &&
        wire_hear(fd, heard, sizeof heard, PATIENCE_MS) == sizeof heard)
        return fd;
    close(fd);
    return -1;
}

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

    set_up(world, &stage);
    if (!door_is_open(&stage, DOOR_TCP)) {
        take_down(&stage);
        return;
    }
    size = record_tcp(world, opening);
    memset(body, 'A', sizeof body); /* no NUL anywhere */
    for (unsigned kind = 0; kind < 16; kind++) {
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
                                   .credit_bytes = numbers[(n + kind) % 7],
                                   .credit_messages = numbers[(n + 3) % 7],
                                   .body_length = (uint32_t)body_size};
                size_t length = wire_packet(packet, &p, body, body_size);

                count++;
                if (!wire_say(fd, packet, length))
                    break; /* shown the door: fine */
            }
            close(fd);
        }
        check_good(&stage);
    }
    /* Impossible lengths: more than follows, more than there is memory. */
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

/* ---- shared memory ---- */

struct opening_local {
    unsigned char bytes[256];
    size_t size;
    int fds[8];
    int count;
};

static ssize_t receive_with_fds(int fd, struct opening_local *opening)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = opening->bytes, .iov_len = sizeof opening->bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);

    opening->count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); size >= 0 && c != NULL;
         c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_type == SCM_RIGHTS) {
            int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));

            for (int i = 0; i < count && opening->count < 8; i++)
                memcpy(&opening->fds[opening->count++], CMSG_DATA(c) + (size_t)i * sizeof(int),
                       sizeof(int));
        }
    }
    opening->size = size > 0 ? (size_t)size : 0;
    return size;
}

static bool send_with_fds(int fd, const void *bytes, size_t size, const int *fds, int count)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    memset(&control, 0, sizeof control);
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, (size_t)count * sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

/* What a real client hands over: a server is started, its socket's name taken after its
 * death, and a client dials it. */
static bool record_local(struct world *world, struct opening_local *opening)
{
    struct child *victim = spawn(world, "server"), *client;
    int endpoint = (int)child_hear(victim, "endpoint");
    char name[108];
    size_t length;
    int type, listener, fd;
    bool named = wire_local_name(child_pid(victim), name, &length, &type);

    child_kill(victim);
    if (!named)
        return false;
    listener = wire_listen_local(name, length, type);
    CHECK(listener >= 0);
    client = spawn(world, "dialler");
    child_tell(client, "endpoint", endpoint);
    child_tell(client, "door", DOOR_LOCAL);
    fd = wire_accept(listener, PATIENCE_MS);
    CHECK_THAT(receive_with_fds(fd, opening), >, 0);
    CHECK_THAT(opening->count, >=, 1);
    close(fd);
    close(listener);
    child_kill(client);
    return true;
}

static int memory_of(size_t size, unsigned seals)
{
    int fd = memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    CHECK(fd >= 0);
    CHECK(ftruncate(fd, (off_t)size) == 0);
    if (seals != 0)
        CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void hand_over_wrong_memory(struct world *world)
{
    struct opening_local opening;
    struct stage stage;
    struct stat real;
    int wrong[8], count = 0;

    set_up(world, &stage);
    if (!door_is_open(&stage, DOOR_LOCAL) || !record_local(world, &opening)) {
        take_down(&stage);
        return;
    }
    CHECK(fstat(opening.fds[0], &real) == 0);
    wrong[count++] = open("/dev/null", O_RDWR | O_CLOEXEC);
    wrong[count++] = open("/dev/zero", O_RDWR | O_CLOEXEC);
    wrong[count++] = memory_of(0, F_SEAL_SHRINK | F_SEAL_GROW);
    wrong[count++] = memory_of(4096, F_SEAL_SHRINK | F_SEAL_GROW);
    wrong[count++] = memory_of((size_t)real.st_size, 0); /* not sealed: could fault us */
    wrong[count++] = memory_of((size_t)real.st_size, F_SEAL_SHRINK | F_SEAL_GROW); /* no magic */
    wrong[count++] = dup(0);
    for (int i = 0; i < count; i++) {
        for (int fds = 0; fds <= 8; fds += 1 + 3 * (fds > 1)) {
            int list[8];
            int fd = dial(&stage, DOOR_LOCAL);

            CHECK(fd >= 0);
            for (int k = 0; k < 8; k++)
                list[k] = wrong[i];
            /* The rest of the recorded descriptors as they were. */
            for (int k = 1; k < opening.count && k < fds; k++)
                list[k] = opening.fds[k];
            send_with_fds(fd, opening.bytes, opening.size, list, fds);
            {
                char answer[256];

                wire_hear(fd, answer, sizeof answer, 2);
            }
            close(fd);
        }
        check_good(&stage);
    }
    /* The memory of a real client, the message damaged. */
    for (size_t at = 0; at < opening.size; at++) {
        unsigned char copy[256];
        int fd = dial(&stage, DOOR_LOCAL);

        CHECK(fd >= 0);
        memcpy(copy, opening.bytes, opening.size);
        copy[at] ^= (unsigned char)(1u << (at % 8)) | 0x80;
        send_with_fds(fd, copy, opening.size, opening.fds, opening.count);
        close(fd);
    }
    take_down(&stage);
}

/* A client that got in writes rubbish over all the shared memory, again and again. */
static void scribble(struct world *world)
{
    struct opening_local opening;
    struct stage stage;
    struct stat real;
    unsigned char *memory;
    int accepted = 0;

    set_up(world, &stage);
    if (!door_is_open(&stage, DOOR_LOCAL) || !record_local(world, &opening)) {
        take_down(&stage);
        return;
    }
    CHECK(fstat(opening.fds[0], &real) == 0);
    memory = mmap(NULL, (size_t)real.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, opening.fds[0],
                  0);
    CHECK(memory != MAP_FAILED);
    for (unsigned seed = 0; seed < 12; seed++) {
        static unsigned char saved[64 * 1024 * 1024];
        char answer[256];
        int fd = dial(&stage, DOOR_LOCAL);
        size_t size = (size_t)real.st_size;

        CHECK(fd >= 0);
        if (size > sizeof saved)
            size = sizeof saved;
        if (seed == 0)
            memcpy(saved, memory, size);
        memcpy(memory, saved, size);
        send_with_fds(fd, opening.bytes, opening.size, opening.fds, opening.count);
        if (wire_hear(fd, answer, 1, seed == 0 ? PATIENCE_MS : 500) == 1)
            accepted++;
        for (int round = 0; round < 10; round++) {
            size_t from = round % 3 == 0 ? 0 : (size_t)round * 1000;

            if (round % 2 == 0)
                wire_noise(memory + from, size - from < 300000 ? size - from : 300000,
                           seed * 10 + (unsigned)round);
            else
                memset(memory, round % 4 == 1 ? 0xff : 0, size);
            wire_say(fd, "w", 1); /* wake up, look what I have for you */
        }
        check_good(&stage);
        close(fd);
    }
    CHECK_THAT(accepted, >, 0);
    munmap(memory, (size_t)real.st_size);
    take_down(&stage);
}

/* ---- a server of strangers: it listens and never answers (fault 8) ---- */

static void waits_in_vain(struct side *side)
{
    char text[ADDRESS_SIZE], options[] = "BMI_MX_CONNECT_TIMEOUT_MS=1500";
    int64_t endpoint = hear(side, "endpoint"), begin;
    struct op receive = {0}, send = {0}, unexpected = {0};
    struct bmi_method_addr *server;
    char buffer[64];

    host_load();
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, options), ==, 0);
    CHECK_THAT(ops->open_context(0), ==, 0);
    snprintf(text, sizeof text, "mx://127.0.0.1:0:%d", (int)endpoint);
    server = ops->method_addr_lookup(text);
    CHECK(server != NULL);
    begin = now_ms();
    CHECK_THAT(op_recv(&receive, server, buffer, sizeof buffer, 1), ==, 0);
    CHECK_THAT(op_send(&send, server, buffer, sizeof buffer, 1), ==, 0);
    CHECK_THAT(op_send_unexpected(&unexpected, server, buffer, sizeof buffer, 1), ==, 0);
    op_wait(&receive);
    op_wait(&send);
    op_wait(&unexpected);
    CHECK_THAT(receive.error, <, 0);
    CHECK_THAT(send.error, <, 0);
    CHECK_THAT(unexpected.error, <, 0);
    CHECK_THAT(now_ms() - begin, <, 6000 * slower());
    ops->close_context(0);
    CHECK_THAT(ops->finalize(), ==, 0);
    CHECK_THAT(ops->set_info(BMI_DROP_ADDR, server), ==, 0);
}

static void never_answer(struct world *world)
{
    struct child *victim = spawn(world, "server"), *client;
    int endpoint = (int)child_hear(victim, "endpoint"), tcp, local = -1, type = 0;
    char name[108];
    size_t length;
    bool named = wire_local_name(child_pid(victim), name, &length, &type);

    child_kill(victim);
    tcp = wire_listen(&endpoint);
    if (named)
        CHECK((local = wire_listen_local(name, length, type)) >= 0);
    client = spawn(world, "client");
    child_tell(client, "endpoint", endpoint);
    child_end(client);
    close(tcp);
    if (local >= 0)
        close(local);
}

#define STAGE {"server", echo_server}, {"good", good_client}, {"dialler", dialler}

static const struct scenario scenarios[] = {
    DIRECTED(nonsense_at_the_tcp_port_is_shrugged_off, nonsense_at_tcp, STAGE),
    DIRECTED(nonsense_at_the_unix_socket_is_shrugged_off, nonsense_at_local, STAGE),
    DIRECTED(damaged_openings_are_turned_away, replay_damaged, STAGE),
    DIRECTED(harmful_packets_inside_a_session_hurt_nobody_else, send_harm, STAGE),
    DIRECTED(wrong_shared_memory_is_turned_away, hand_over_wrong_memory, STAGE),
    DIRECTED(scribbling_over_shared_memory_hurts_nobody_else, scribble, STAGE),
    DIRECTED(operations_towards_a_silent_stranger_time_out, never_answer,
             {"server", echo_server}, {"client", waits_in_vain}),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
