/*
 * Data links over dgram: a second datagram session for bulk data, and everything that can happen to it.
 *
 *     client ◄── command channel ──► relay ◄── command channel ──► server
 *            ◄── data channel ─────►   │   ◄── data channel ─────►
 *                      datagrams of the first session are passed on; those of later ones
 *                      passed on, dropped, held back, altered; a session is reset
 *
 * The client calls the number at which the relay listens. The relay replaces the number of the data channel in
 * each Welcome by its own, and tells sessions apart by the client's cookie. Whatever happens to later sessions,
 * operations succeed with the right contents, small requests are answered meanwhile, and no host is told.
 */
#include "../support/bulk.h"
#include "../support/ids.h"
#include "../support/intruder.h"
#include "../support/pair.h"
#include "../support/service.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

/* ---- the relay ---- */

/* How the relay treats every session but the first. */
enum treatment {
    PASSES,
    /* Once, after `detail` bytes have passed: */
    RESETS,
    FALLS_SILENT,
    HOLDS_BACK, /* datagrams, until the session has been given up */
    /* When a new session begins: */
    REFUSES,
    SPOILS, /* alters the proof in the next Attach */
};

/* A stranger's Attach: as the client sent it on its data link, or altered. */
enum { AS_RECORDED, OTHER_PROOF, NEXT_NUMBER, OTHER_SESSION, REPLAYS };

enum {
    SESSIONS = 64,
    HELD = 256,
    HELD_BACK_MS = 9000,
    DATAGRAM_MAX = 65536,
    ATTACH = WIRE_HEADER + 16,
    ATTACH_WORD = 8,
    ATTACH_NUMBER = 16,
    NAME_PORT = 2, /* in the payload of a Welcome: length, tag, port */
    IN_A_ROW = 64,
    RELAYED_MS = 2 * BULK_MS, /* datagrams are lost while the relay waits for a processor */
};

enum { COMMAND, DATA, CHANNELS };
enum { UP, DOWN }; /* to the server, to the client */

struct channel {
    int to_client, to_server;
    struct sockaddr_in client;
};

struct session {
    uint64_t client, server; /* cookies */
    bool is_silent, is_spoiled;
    int64_t held_until;
};

struct held {
    int channel, way;
    size_t size;
    unsigned char *bytes;
};

static struct channel channels[CHANNELS];
static struct session sessions[SESSIONS];
static struct held held[HELD];
static int session_count, held_count, server_number, data_number;
static enum treatment treatment;
static int64_t detail; /* parameter of the treatment: bytes */
static int64_t bytes_passed; /* of all sessions but the first */
static unsigned char attach[ATTACH]; /* the client's first one */

static void send_on(int channel, int way, const unsigned char *bytes, size_t size)
{
    const struct channel *of = &channels[channel];

    if (way == UP)
        (void)!send(of->to_server, bytes, size, MSG_NOSIGNAL);
    else
        (void)!sendto(of->to_client, bytes, size, MSG_NOSIGNAL, (const struct sockaddr *)&of->client, sizeof of->client);
}

static void seal(unsigned char *datagram, size_t size)
{
    if ((number_at(datagram + AT_FLAGS, 2) & FLAG_SUMMED) != 0)
        wire_put(datagram + AT_PAYLOAD_SUM, crc32c(datagram + DATAGRAM_HEADER, size - DATAGRAM_HEADER), 4);
    wire_put(datagram + AT_SUM, 0, 4);
    wire_put(datagram + AT_SUM, crc32c(datagram, DATAGRAM_HEADER), 4);
}

static struct sockaddr_in here(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t)port)};
}

/* Keeps the number of the server's data channel, and writes that of the relay in its place. */
static void rename_data_channel(unsigned char *welcome, size_t size)
{
    unsigned char *port = welcome + DATAGRAM_HEADER + NAME_PORT;
    struct sockaddr_in server = here((int)number_at(port, 2));

    CHECK(connect(channels[DATA].to_server, (struct sockaddr *)&server, sizeof server) == 0);
    wire_put(port, (uint64_t)data_number, 2);
    seal(welcome, size);
}

static void reset(const struct session *session)
{
    unsigned char datagram[DATAGRAM_HEADER];

    datagram_head(datagram, DATAGRAM_RESET, session->server, session->client);
    seal(datagram, sizeof datagram);
    send_on(COMMAND, UP, datagram, sizeof datagram);
    datagram_head(datagram, DATAGRAM_RESET, session->client, session->server);
    seal(datagram, sizeof datagram);
    send_on(COMMAND, DOWN, datagram, sizeof datagram);
}

static void intervene(struct session *session)
{
    if (treatment == RESETS)
        reset(session);
    session->is_silent = treatment != HOLDS_BACK;
    if (treatment == HOLDS_BACK)
        session->held_until = now_ms() + HELD_BACK_MS;
    treatment = PASSES;
}

/* Returns the session of a datagram, which may be its first one, or NULL. */
static struct session *session_of(const unsigned char *datagram, int way)
{
    uint64_t client = number_at(datagram + (way == UP ? AT_FROM : AT_TO), 8);

    for (int i = 0; i < session_count; i++)
        if (sessions[i].client == client)
            return &sessions[i];
    if (way != UP || datagram[AT_KIND] != DATAGRAM_HELLO)
        return NULL;
    CHECK_THAT(session_count, <, SESSIONS);
    sessions[session_count] = (struct session){.client = client};
    return &sessions[session_count++];
}

static bool is_attach(const unsigned char *datagram, size_t size)
{
    return datagram[AT_KIND] == DATAGRAM_DATA && size == DATAGRAM_HEADER + ATTACH &&
           number_at(datagram + AT_WHOLE, 4) == ATTACH && datagram[DATAGRAM_HEADER] == KIND_ATTACH;
}

/* Applies the treatment to a datagram of a later session. Returns false if it is not to be passed on. */
static bool treats(struct session *session, int channel, int way, unsigned char *datagram, size_t size)
{
    bool waits = treatment >= RESETS && treatment <= HOLDS_BACK;

    if (session->is_silent || (treatment == REFUSES && session->server == 0))
        return false;
    if (session->held_until > now_ms()) {
        if (held_count < HELD) {
            held[held_count] = (struct held){channel, way, size, malloc(size)};
            memcpy(held[held_count++].bytes, datagram, size);
        }
        return false;
    }
    if (is_attach(datagram, size)) {
        if (treatment == SPOILS) {
            session->is_spoiled = true;
            treatment = PASSES;
        }
        if (session->is_spoiled) {
            datagram[size - 1] ^= 1;
            seal(datagram, size);
        } else if (attach[0] == 0) {
            memcpy(attach, datagram + DATAGRAM_HEADER, ATTACH);
        }
    }
    bytes_passed += (int64_t)size;
    if (waits && bytes_passed >= detail) {
        intervene(session);
        return false;
    }
    return true;
}

static void pass(int channel, int way, unsigned char *datagram, size_t size)
{
    struct session *session = size >= DATAGRAM_HEADER ? session_of(datagram, way) : NULL;

    if (session == NULL)
        return;
    if (way == DOWN && datagram[AT_KIND] == DATAGRAM_WELCOME) {
        session->server = number_at(datagram + AT_FROM, 8);
        rename_data_channel(datagram, size);
    }
    if (session == &sessions[0] || treats(session, channel, way, datagram, size))
        send_on(channel, way, datagram, size);
}

/* Passes on the datagrams that a socket has, a limited number in a row. */
static void pass_all(int channel, int way)
{
    static unsigned char datagram[DATAGRAM_MAX];
    struct channel *of = &channels[channel];

    for (int i = 0; i < IN_A_ROW; i++) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        int fd = way == UP ? of->to_client : of->to_server;
        ssize_t size = recvfrom(fd, datagram, sizeof datagram, MSG_DONTWAIT, (struct sockaddr *)&from, &length);

        /* No datagram is there, or the kernel reports that an earlier one was rejected. */
        if (size < 0)
            return;
        if (way == UP)
            of->client = from;
        pass(channel, way, datagram, (size_t)size);
    }
}

static void let_go(void)
{
    for (int i = 0; i < held_count; i++) {
        send_on(held[i].channel, held[i].way, held[i].bytes, held[i].size);
        free(held[i].bytes);
    }
    held_count = 0;
}

/* Opens a session with the server as a stranger and sends an Attach: the server does not answer it. */
static void replay(int64_t what)
{
    struct door door = door_of(INADDR_LOOPBACK, server_number);
    unsigned char says[ATTACH], heard[PACKET_MAX];
    struct intruder stranger;

    CHECK_THAT(attach[0], ==, KIND_ATTACH);
    memcpy(says, attach, sizeof says);
    if (what == OTHER_PROOF)
        says[ATTACH - 1] ^= 1;
    else if (what == NEXT_NUMBER)
        says[ATTACH_NUMBER]++;
    else if (what == OTHER_SESSION)
        says[ATTACH_WORD] ^= 1;
    CHECK(call_door(&stranger, &door));
    say_bytes(&stranger, says, sizeof says);
    CHECK_THAT(hear_packet(&stranger, heard, WAIT_MS / 4), ==, 0);
    hang_up(&stranger);
}

/* Carries out an order of the director. Returns false if the relay has to end. */
static bool obey(struct side *side)
{
    int64_t what = hear(side, "order"), value = hear(side, "value"), answer = 0;

    switch (what) {
    case TREAT:
        treatment = (enum treatment)value;
        break;
    case DETAIL:
        detail = value;
        break;
    case TELL_CONNECTIONS:
        answer = session_count;
        break;
    case TELL_BYTES:
        answer = bytes_passed;
        break;
    case REPLAY:
        replay(value);
        break;
    }
    tell(side, "is", answer);
    return what != END;
}

/* Opens a socket at the first free number from this attempt on, or at any number for -1. */
static int open_at(int attempt, int *number)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), room = 4 * MIB;
    struct sockaddr_in own;
    socklen_t length = sizeof own;

    CHECK(fd >= 0);
    (void)!setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    for (;; attempt++) {
        own = here(attempt < 0 ? 0 : ids_try(attempt));
        if (bind(fd, (struct sockaddr *)&own, sizeof own) == 0)
            break;
        CHECK(attempt >= 0 && attempt < IDS && errno == EADDRINUSE);
    }
    CHECK(getsockname(fd, (struct sockaddr *)&own, &length) == 0);
    *number = ntohs(own.sin_port);
    return fd;
}

static void relay(struct side *side)
{
    int number, unused;
    struct sockaddr_in server;

    for (int i = 0; i < CHANNELS; i++) {
        channels[i].to_client = open_at(i == COMMAND ? 0 : -1, i == COMMAND ? &number : &data_number);
        channels[i].to_server = open_at(-1, &unused);
    }
    server_number = (int)hear(side, "server");
    server = here(server_number);
    CHECK(connect(channels[COMMAND].to_server, (struct sockaddr *)&server, sizeof server) == 0);
    tell(side, "listens", number);
    for (;;) {
        struct pollfd polled[1 + 2 * CHANNELS] = {{.fd = side->line, .events = POLLIN}};
        bool holds = false;

        for (int i = 0; i < CHANNELS; i++) {
            polled[1 + 2 * i + UP] = (struct pollfd){.fd = channels[i].to_client, .events = POLLIN};
            polled[1 + 2 * i + DOWN] = (struct pollfd){.fd = channels[i].to_server, .events = POLLIN};
        }
        poll(polled, 1 + 2 * CHANNELS, 100);
        for (int i = 0; i < 2 * CHANNELS; i++)
            if (polled[1 + i].revents != 0)
                pass_all(i / 2, i % 2);
        for (int i = 0; i < session_count; i++)
            holds |= sessions[i].held_until > now_ms();
        if (!holds)
            let_go();
        if (polled[0].revents != 0 && !obey(side))
            return;
    }
}

static void server(struct side *side)
{
    serve_attacked(side, NULL);
}

/* ---- scenes ---- */

/* Spawns a process with this limit of data links per session. */
static struct child *spawn_with(struct world *world, const char *role, int links)
{
    struct child *child;

    setenv("MX_DGRAM_LINKS", links != 0 ? "1" : "0", 1);
    child = spawn(world, role);
    unsetenv("MX_DGRAM_LINKS");
    return child;
}

static void set_up_with(struct world *world, struct scene *scene, int of_server, int of_client)
{
    int64_t number;

    scene->server = spawn_with(world, "server", of_server);
    number = spawn_relay(world, scene);
    scene->client = spawn_with(world, "client", of_client);
    child_tell(scene->client, "endpoint", number);
}

static void set_up(struct world *world, struct scene *scene)
{
    set_up_with(world, scene, 1, 1);
}

static void treat(const struct scene *scene, enum treatment how, int64_t with)
{
    order(scene->relay, DETAIL, with);
    order(scene->relay, TREAT, how);
}

/* ---- tests ---- */

/* The variant: direction of the bulk data. */
static void begin_one(struct world *world)
{
    struct scene scene;

    set_up(world, &scene);
    have_done(&scene, DO_GET, 8, RELAYED_MS);
    have_done(&scene, DO_GET, SMALL, RELAYED_MS);
    have_done(&scene, DO_PUT, SMALL, RELAYED_MS);
    CHECK_THAT(connections_of(&scene), ==, 1);
    have_done(&scene, (enum bulk_order)variant_of(world), BULK, RELAYED_MS);
    CHECK_THAT(connections_of(&scene), ==, 2);
    await_data_link(&scene);
    for (int i = 0; i < 5; i++) {
        have_done(&scene, DO_GET, MIB, RELAYED_MS);
        have_done(&scene, DO_PUT, MIB, RELAYED_MS);
    }
    CHECK_THAT(connections_of(&scene), ==, 2);
    end_scene(&scene);
}

/* The variant: direction of the bulk data. */
static void cut(struct world *world)
{
    struct scene scene;

    set_up(world, &scene);
    await_data_link(&scene);
    treat(&scene, RESETS, bytes_of(&scene) + MIDDLE);
    have_done(&scene, (enum bulk_order)variant_of(world), BULK, RELAYED_MS);
    await_data_link(&scene);
    CHECK_THAT(connections_of(&scene), ==, 3);
    end_scene(&scene);
}

/* The variant: how the data session fails while it carries a part. */
static void do_without_it(struct world *world)
{
    struct scene scene;
    deadline_t deadline;

    set_up(world, &scene);
    await_data_link(&scene);
    treat(&scene, (enum treatment)variant_of(world), bytes_of(&scene) + MIDDLE);
    deadline = deadline_in(HELD_BACK_MS);
    have_done(&scene, DO_GET, BULK, STALLED_MS);
    /* Repeated until the old datagrams, held back so far, arrive. */
    do
        have_done(&scene, DO_GET, MIB, RELAYED_MS);
    while (!deadline_over(deadline));
    await_data_link(&scene);
    CHECK_THAT(connections_of(&scene), ==, 3);
    end_client(&scene, 1);
    end_service(scene.server, 1);
}

static void refuse_all(struct world *world)
{
    struct scene scene;

    set_up(world, &scene);
    treat(&scene, REFUSES, 0);
    have_done(&scene, DO_GET, BULK, RELAYED_MS);
    have_done(&scene, DO_PUT, BULK, RELAYED_MS);
    CHECK_THAT(connections_of(&scene), >, 1);
    CHECK_THAT(bytes_of(&scene), ==, 0);
    end_scene(&scene);
}

static void spoil_proof(struct world *world)
{
    struct scene scene;

    set_up(world, &scene);
    treat(&scene, SPOILS, 0);
    have_done(&scene, DO_GET, BULK, RELAYED_MS);
    await_data_link(&scene);
    CHECK_THAT(connections_of(&scene), ==, 3);
    end_scene(&scene);
}

/* The variant: true if the server has data links and the client none, false for the reverse. */
static void have_none(struct world *world)
{
    int of_server = (int)variant_of(world);
    struct scene scene;

    set_up_with(world, &scene, of_server, 1 - of_server);
    have_done(&scene, DO_GET, BULK, RELAYED_MS);
    have_done(&scene, DO_PUT, BULK, RELAYED_MS);
    CHECK_THAT(connections_of(&scene), ==, 1);
    end_scene(&scene);
}

static void say_it_again(struct world *world)
{
    struct scene scene;
    int64_t before;

    set_up(world, &scene);
    await_data_link(&scene);
    for (int what = 0; what < REPLAYS; what++) {
        order(scene.relay, REPLAY, what);
        before = bytes_of(&scene);
        have_done(&scene, DO_GET, MIB, RELAYED_MS);
        CHECK_THAT(bytes_of(&scene), >, before + MIB);
        have_done(&scene, DO_PUT, MIB, RELAYED_MS);
    }
    CHECK_THAT(connections_of(&scene), ==, 2);
    end_scene(&scene);
}

#define ROLES_HERE {"server", server}, {"relay", relay}, {"client", bulk_client}

TESTS(
    DIRECTED_OF(the_first_large_get_begins_a_second_session_and_no_more, DO_GET, begin_one, ROLES_HERE),
    DIRECTED_OF(the_first_large_put_begins_a_second_session_and_no_more, DO_PUT, begin_one, ROLES_HERE),
    DIRECTED_OF(a_get_survives_the_reset_of_its_data_session, DO_GET, cut, ROLES_HERE),
    DIRECTED_OF(a_put_survives_the_reset_of_its_data_session, DO_PUT, cut, ROLES_HERE),
    DIRECTED_OF(a_get_survives_a_data_session_that_falls_silent, FALLS_SILENT, do_without_it, ROLES_HERE),
    DIRECTED_OF(old_datagrams_of_a_data_session_do_not_count, HOLDS_BACK, do_without_it, ROLES_HERE),
    DIRECTED(bulk_data_needs_no_second_session, refuse_all, ROLES_HERE),
    DIRECTED(a_data_session_whose_proof_is_wrong_is_not_used, spoil_proof, ROLES_HERE),
    DIRECTED_OF(a_server_can_do_without_data_sessions, 0, have_none, ROLES_HERE),
    DIRECTED_OF(a_client_can_do_without_data_sessions, 1, have_none, ROLES_HERE),
    DIRECTED(a_stranger_cannot_attach_to_a_session, say_it_again, ROLES_HERE))
