/*
 * Strangers with shared memory: wrong descriptors, unsealed and too small memory, damaged messages, and a client
 * that overwrites all rings.
 *
 *     recorded:  hello of a real client, then its offer + descriptors
 *     replayed:  the same bytes with other descriptors, other bytes with the same ones,
 *                and both unchanged, with garbage in the memory
 */
#include "../support/stage.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* ---- descriptors over sockets ---- */

struct opening_local {
    unsigned char hello[256], bytes[256];
    size_t hello_size, size;
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

/* Sends the recorded hello, then an offer with descriptors. */
static bool open_with(int fd, const struct opening_local *opening, const void *bytes, size_t size,
                      const int *fds, int count)
{
    return send_with_fds(fd, opening->hello, opening->hello_size, NULL, 0) &&
           send_with_fds(fd, bytes, size, fds, count);
}

/* Records the opening of a real client: starts a server, takes its socket's name after its death, and has a client
 * call it. */
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
    fd = wire_accept(listener, WAIT_MS);
    CHECK_THAT(receive_with_fds(fd, opening), >, 0);
    CHECK_THAT(opening->count, ==, 0);
    memcpy(opening->hello, opening->bytes, sizeof opening->hello);
    opening->hello_size = opening->size;
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
    wrong[count++] = memory_of((size_t)real.st_size, 0); /* not sealed: a peer could truncate it */
    wrong[count++] = memory_of((size_t)real.st_size, F_SEAL_SHRINK | F_SEAL_GROW); /* no magic */
    wrong[count++] = dup(0);
    for (int i = 0; i < count; i++) {
        for (int fds = 0; fds <= 8; fds += 1 + 3 * (fds > 1)) {
            int list[8];
            int fd = dial(&stage, DOOR_LOCAL);

            CHECK(fd >= 0);
            for (int k = 0; k < 8; k++)
                list[k] = wrong[i];
            /* The other recorded descriptors, unchanged. */
            for (int k = 1; k < opening.count && k < fds; k++)
                list[k] = opening.fds[k];
            open_with(fd, &opening, opening.bytes, opening.size, list, fds);
            {
                char answer[256];

                wire_hear(fd, answer, sizeof answer, 2);
            }
            close(fd);
        }
        check_good(&stage);
    }
    /* The memory of a real client, with a damaged message. */
    for (size_t at = 0; at < opening.size; at++) {
        unsigned char copy[256];
        int fd = dial(&stage, DOOR_LOCAL);

        CHECK(fd >= 0);
        memcpy(copy, opening.bytes, opening.size);
        copy[at] ^= (unsigned char)(1u << (at % 8)) | 0x80;
        open_with(fd, &opening, copy, opening.size, opening.fds, opening.count);
        close(fd);
        fd = dial(&stage, DOOR_LOCAL);
        CHECK(fd >= 0);
        memcpy(copy, opening.hello, opening.hello_size);
        copy[at] ^= (unsigned char)(1u << (at % 8)) | 0x80;
        send_with_fds(fd, copy, opening.hello_size, NULL, 0);
        close(fd);
    }
    take_down(&stage);
}

/* An accepted client overwrites all shared memory with garbage, again and again. */
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
        open_with(fd, &opening, opening.bytes, opening.size, opening.fds, opening.count);
        if (wire_hear(fd, answer, 1, seed == 0 ? WAIT_MS : 500) == 1)
            accepted++;
        for (int round = 0; round < 10; round++) {
            size_t from = round % 3 == 0 ? 0 : (size_t)round * 1000;

            if (round % 2 == 0)
                wire_noise(memory + from, size - from < 300000 ? size - from : 300000,
                           seed * 10 + (unsigned)round);
            else
                memset(memory, round % 4 == 1 ? 0xff : 0, size);
            wire_say(fd, "w", 1); /* wakes the server */
        }
        check_good(&stage);
        close(fd);
    }
    CHECK_THAT(accepted, >, 0);
    munmap(memory, (size_t)real.st_size);
    take_down(&stage);
}

/* An accepted client sends messages about memory that are out of place, with the right memory, with other
 * descriptors and without any, while it has rings and after it has given them back. */
static void talk_in_sleep(struct world *world)
{
    static const char *const words[] = {"mx-offer", "mx-taken", "mx-later", "mx-bye!!",
                                        "mx-welcm", "mx-rest!", "mx-deny!", "mx-sleep"};
    enum { WORDS = sizeof words / sizeof *words, WORD = 24 };
    struct opening_local opening;
    struct stage stage;
    struct stat real;
    unsigned char *memory;

    set_up(world, &stage);
    if (!door_is_open(&stage, DOOR_LOCAL) || !record_local(world, &opening)) {
        take_down(&stage);
        return;
    }
    CHECK(fstat(opening.fds[0], &real) == 0);
    memory = mmap(NULL, (size_t)real.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, opening.fds[0],
                  0);
    CHECK(memory != MAP_FAILED);
    for (unsigned round = 0; round < 4 * WORDS * 3; round++) {
        unsigned char word[WORD + 1] = {0};
        int wrong = memory_of(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        int fd = dial(&stage, DOOR_LOCAL);
        char answer[256];

        CHECK(fd >= 0);
        memset(memory, 0, 4096);
        open_with(fd, &opening, opening.bytes, opening.size, opening.fds, opening.count);
        CHECK_THAT(wire_hear(fd, answer, 1, WAIT_MS), ==, 1);
        CHECK_THAT(opening.size, ==, WORD);
        if (round / WORDS % 2 == 1) {
            /* No packet has gone through the ring. */
            memcpy(word, opening.bytes, 12);
            memcpy(word, "mx-rest!", 8);
            send_with_fds(fd, word, WORD, NULL, 0);
        }
        /* Sizes and version of a real client. */
        memcpy(word, opening.bytes, WORD);
        memcpy(word, words[round % WORDS], 8);
        wire_say(fd, "w", 1);
        send_with_fds(fd, word, round % 8 == 6 ? WORD + 1 : WORD,
                      round % 3 == 1 ? &wrong : opening.fds, round % 3 != 0);
        wire_say(fd, "w", 1);
        if (round % WORDS == 0)
            check_good(&stage);
        close(fd);
        close(wrong);
    }
    check_good(&stage);
    munmap(memory, (size_t)real.st_size);
    take_down(&stage);
}

TESTS(
    DIRECTED(wrong_shared_memory_is_turned_away, hand_over_wrong_memory, STAGE),
    DIRECTED(scribbling_over_shared_memory_hurts_no_other_peer, scribble, STAGE),
    DIRECTED(words_about_memory_out_of_place_hurt_no_other_peer, talk_in_sleep, STAGE))
