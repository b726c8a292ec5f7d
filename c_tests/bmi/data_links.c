/*
 * Data links: further connections of a session over tcp, one or four, and everything that can happen to them.
 *
 *     client ◄── first connection ───► relay ◄───► server
 *            ◄── further ones ───────►   │ ◄·····► server, another server, or none
 *                                     passed on, cut, held up, closed, led astray
 *
 * The client calls the number at which the relay listens. Whatever happens to further connections, operations
 * succeed with the right contents, small requests are answered meanwhile, and no host is told. Each side has a
 * receive posted from the beginning which no message matches (support/service.h): it would fail if the session
 * were lost.
 */
#include "../support/bulk.h"
#include "../support/ids.h"
#include "../support/intruder.h"
#include "../support/pair.h"
#include "../support/service.h"

#include <poll.h>
#include <sys/socket.h>

enum {
    FOUR = 4,              /* data links of a session */
};

/* ---- the relay ---- */

/* How the relay treats every connection but the first. */
enum treatment {
    PASSES,
    PASSES_SLOWLY,
    HOLDS_ATTACHED, /* until the client has sent more over the first one, or for a while */
    /* Once, after `detail` bytes have passed: */
    RESETS,
    FINISHES,
    STANDS_STILL,
    HOLDS_BACK, /* resumes after a while */
    /* When a new connection comes: */
    CLOSES,
    LEADS_ASTRAY, /* to the endpoint `detail` */
    FORGES,       /* answers the next one itself, with data and without a proof */
};

/* A stranger's Attach: as the client sent it on its data link, or altered. */
enum { AS_RECORDED, OTHER_PROOF, NEXT_NUMBER, OTHER_SESSION, REPLAYS };

enum {
    FLOWS = 16,
    CHUNK = 64 * KIB,
    SLOW_CHUNK = 16 * KIB,
    SLOW_MS = 4,
    HELD_MS = 300,
    HELD_BACK_MS = 9000, /* the data link has been given up by then */
    ATTACH = WIRE_HEADER + 16,
    OPENED = WIRE_PREAMBLE + ATTACH, /* the caller's first bytes on a data link */
    NUMBER_AT = WIRE_PREAMBLE + 16,
    WORD_AT = WIRE_PREAMBLE + 8,
    PULL = WIRE_HEADER + 16,
    FORGED = 1000,
};

/* One direction of a connection. */
struct way {
    int from, to;
    size_t size, at; /* of bytes to be passed on */
    size_t passed;
    unsigned char bytes[CHUNK];
};

enum { UP, DOWN, WAYS }; /* to the server, to the client */

struct flow {
    struct way ways[WAYS];
    bool is_first, is_still, is_finished;
    int64_t quiet_until;
};

static struct flow flows[FLOWS];
static int flow_count, connections, server_number;
static enum treatment treatment;
static int64_t detail; /* parameter of the treatment: bytes, or an endpoint */
static int64_t bytes_passed; /* over all connections but the first */
static unsigned char opened[OPENED]; /* first bytes of the client on its second connection */
static unsigned char pull[PULL]; /* the client's latest Pull on the first connection */
static bool holds_answers; /* holds back the server's packets on the first connection */
static struct flow *held; /* connection whose Attached is held back */
static size_t held_until; /* bytes to the server on the first connection that end the hold */

static void end_flow(struct flow *flow, bool resets)
{
    const struct linger at_once = {.l_onoff = 1};

    for (int i = 0; i < WAYS; i++) {
        if (resets)
            CHECK(setsockopt(flow->ways[i].from, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
        close(flow->ways[i].from);
        flow->ways[i].from = flow->ways[i].to = -1;
    }
}

/* Parses the client's packets on the first connection, and keeps the first Pull of a message. */
static void listen_in(const unsigned char *bytes, size_t size)
{
    static unsigned char packet[PULL];
    static size_t at, skipped = WIRE_PREAMBLE; /* bytes of the packet so far; bytes still to skip */

    for (; size > 0; bytes++, size--) {
        if (skipped > 0) {
            skipped--;
            continue;
        }
        packet[at++] = *bytes;
        if (at == WIRE_HEADER && (packet[0] != KIND_PULL || number_at(packet + 4, 4) != PULL - WIRE_HEADER)) {
            skipped = (size_t)number_at(packet + 4, 4);
            at = 0;
        } else if (at == PULL) {
            /* The first Pull of a message: it names the bytes that the client awaits next. */
            if (!holds_answers)
                memcpy(pull, packet, sizeof pull);
            holds_answers = treatment == FORGES;
            at = 0;
        }
    }
}

/* Sends data for the client's Pull over a data link, without having proven anything. */
static void forge(int client)
{
    unsigned char preamble[WIRE_PREAMBLE], heard[OPENED], packet[WIRE_HEADER + FORGED], body[FORGED] = {0};
    struct packet data = {.kind = KIND_DATA,
                          .word = number_at(pull + WIRE_HEADER, 8),
                          .length = (uint32_t)number_at(pull + 16, 4),
                          .status = (uint32_t)number_at(pull + STATUS_AT, 4),
                          .body_length = FORGED};

    CHECK(holds_answers);
    CHECK_THAT(wire_hear(client, preamble, sizeof preamble, WAIT_MS), ==, sizeof preamble);
    CHECK(wire_say(client, preamble, sizeof preamble));
    CHECK_THAT(wire_hear(client, heard, ATTACH, WAIT_MS), ==, ATTACH);
    CHECK_THAT(heard[0], ==, KIND_ATTACH);
    CHECK(wire_say(client, packet, wire_packet(packet, &data, body, sizeof body)));
    CHECK_THAT(wire_hear(client, heard, sizeof heard, WAIT_MS / 4), ==, 0);
    CHECK(recv(client, heard, 1, MSG_DONTWAIT) == 0 || errno != EAGAIN);
    close(client);
    treatment = PASSES;
    holds_answers = false;
}

static void begin_flow(int client)
{
    bool is_first = connections++ == 0;
    struct flow *flow = &flows[flow_count];
    int server;

    if (!is_first && treatment == CLOSES) {
        close(client);
        return;
    }
    if (!is_first && treatment == FORGES) {
        forge(client);
        return;
    }
    CHECK(flow_count++ < FLOWS);
    server = wire_connect(DOOR_TCP, 0, !is_first && treatment == LEADS_ASTRAY ? (int)detail : server_number);
    CHECK(server >= 0);
    flow->is_first = is_first;
    flow->ways[UP] = (struct way){.from = client, .to = server};
    flow->ways[DOWN] = (struct way){.from = server, .to = client};
}

/* Applies the treatment, once enough bytes have passed. */
static void intervene(struct flow *flow)
{
    switch (treatment) {
    case RESETS:
        end_flow(flow, true);
        break;
    case FINISHES:
        flow->is_finished = true;
        for (int i = 0; i < WAYS; i++) {
            struct way *way = &flow->ways[i];

            shutdown(way->to, SHUT_WR);
            way->at = way->size;
        }
        break;
    case HOLDS_BACK:
        flow->quiet_until = now_ms() + HELD_BACK_MS;
        break;
    default:
        flow->is_still = true;
    }
    treatment = PASSES;
}

static void count(struct flow *flow, const struct way *way, size_t size)
{
    bool waits = treatment >= RESETS && treatment <= HOLDS_BACK;

    if (flow->is_first) {
        if (held != NULL && flow->ways[UP].passed >= held_until)
            held->quiet_until = 0;
        return;
    }
    bytes_passed += (int64_t)size;
    if (waits && bytes_passed >= detail)
        intervene(flow);
    else if (treatment == HOLDS_ATTACHED && way == &flow->ways[UP] && way->passed == OPENED) {
        held = flow;
        held->quiet_until = now_ms() + HELD_MS;
        held_until = flows[0].ways[UP].passed + MIDDLE;
    }
}

/* Returns false at the end of a connection. */
static bool pass(struct flow *flow, struct way *way)
{
    ssize_t count_of;

    if (way->at == way->size) {
        bool is_slow = !flow->is_first && treatment == PASSES_SLOWLY;

        count_of = recv(way->from, way->bytes, is_slow ? SLOW_CHUNK : CHUNK, MSG_DONTWAIT);
        if (count_of <= 0)
            return count_of < 0 && errno == EAGAIN;
        if (flow->is_finished)
            return true;
        if (is_slow)
            flow->quiet_until = now_ms() + SLOW_MS;
        way->size = (size_t)count_of;
        way->at = 0;
    }
    count_of = send(way->to, way->bytes + way->at, way->size - way->at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count_of < 0)
        return errno == EAGAIN;
    if (way == &flows[0].ways[UP])
        listen_in(way->bytes + way->at, (size_t)count_of);
    for (size_t i = 0; i < (size_t)count_of && way == &flows[1].ways[UP] && way->passed + i < OPENED; i++)
        opened[way->passed + i] = way->bytes[way->at + i];
    way->at += (size_t)count_of;
    way->passed += (size_t)count_of;
    count(flow, way, (size_t)count_of);
    return true;
}

/* Connects to the server as a stranger and sends an Attach: the server closes the connection without an answer. */
static void replay(int64_t what)
{
    unsigned char says[OPENED], heard[OPENED];
    int stranger = wire_connect(DOOR_TCP, 0, server_number);

    CHECK(stranger >= 0 && flow_count > 1 && flows[1].ways[UP].passed >= OPENED);
    memcpy(says, opened, sizeof says);
    CHECK_THAT(says[WIRE_PREAMBLE], ==, KIND_ATTACH);
    if (what == OTHER_PROOF)
        says[OPENED - 1] ^= 1;
    else if (what == NEXT_NUMBER)
        says[NUMBER_AT]++;
    else if (what == OTHER_SESSION)
        says[WORD_AT] ^= 1;
    CHECK(wire_say(stranger, says, sizeof says));
    CHECK_THAT(wire_hear(stranger, heard, sizeof heard, WAIT_MS / 4), <=, WIRE_PREAMBLE);
    CHECK(recv(stranger, heard, 1, MSG_DONTWAIT) == 0 || errno != EAGAIN);
    close(stranger);
}

/* Returns the number of working connections, without the first, that have passed at least `bytes`. */
static int64_t busy(int64_t bytes)
{
    int64_t count_of = 0;

    for (int i = 0; i < flow_count; i++) {
        const struct flow *flow = &flows[i];

        count_of += !flow->is_first && !flow->is_still && flow->ways[UP].from >= 0 &&
                    (int64_t)(flow->ways[UP].passed + flow->ways[DOWN].passed) >= bytes;
    }
    return count_of;
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
        answer = connections;
        break;
    case TELL_BYTES:
        answer = bytes_passed;
        break;
    case TELL_BUSY:
        answer = busy(value);
        break;
    case REPLAY:
        replay(value);
        break;
    }
    tell(side, "is", answer);
    return what != END;
}

static void relay(struct side *side)
{
    int port = ids_try(0), listener = wire_listen(&port);

    server_number = (int)hear(side, "server");
    tell(side, "listens", port);
    for (;;) {
        struct pollfd polled[2 + WAYS * FLOWS];
        int flows_now = flow_count;
        bool is_early; /* there is no Pull yet to forge an answer to */

        polled[0] = (struct pollfd){.fd = side->line, .events = POLLIN};
        polled[1] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (int i = 0; i < WAYS * flows_now; i++) {
            const struct flow *flow = &flows[i / WAYS];
            const struct way *way = &flow->ways[i % WAYS];
            bool is_held = holds_answers && way == &flows[0].ways[DOWN];
            bool is_quiet = flow->is_still || now_ms() < flow->quiet_until || is_held;

            polled[2 + i] = way->at < way->size ? (struct pollfd){.fd = way->to, .events = POLLOUT}
                                                : (struct pollfd){.fd = way->from, .events = POLLIN};
            if (is_quiet)
                polled[2 + i].fd = -1;
        }
        poll(polled, 2 + WAYS * (nfds_t)flows_now, SLOW_MS);
        is_early = treatment == FORGES && connections > 0 && !holds_answers;
        if (polled[1].revents != 0 && !is_early)
            begin_flow(wire_accept(listener, 0));
        for (int i = 0; i < WAYS * flows_now; i++) {
            struct flow *flow = &flows[i / WAYS];

            if (polled[2 + i].fd >= 0 && polled[2 + i].revents != 0 && flow->ways[0].from >= 0 &&
                !pass(flow, &flow->ways[i % WAYS]))
                end_flow(flow, false);
        }
        if (polled[0].revents != 0 && !obey(side))
            return;
    }
}

/* ---- servers ---- */

static void server(struct side *side)
{
    serve_attacked(side, NULL);
}

/* ---- scenes ---- */

/* Spawns a process with this limit of data links per session. */
static struct child *spawn_with(struct world *world, const char *role, int links)
{
    struct child *child;
    char number[8];

    snprintf(number, sizeof number, "%d", links);
    setenv("MX_TCP_LINKS", number, 1);
    child = spawn(world, role);
    unsetenv("MX_TCP_LINKS");
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

/* Waits until `count` connections, without the first, carry large messages. */
static void await_data_links(const struct scene *scene, int count)
{
    UNTIL (order(scene->relay, TELL_BUSY, MIB) == count)
        have_done(scene, DO_GET, BULK, BULK_MS);
}

/* ---- tests ---- */

/* The variant: bulk goes by put instead of get. */
static void open_one(struct world *world)
{
    int what = variant_of(world) != 0 ? DO_PUT : DO_GET;
    struct scene scene;

    set_up(world, &scene);
    have_done(&scene, DO_GET, 8, BULK_MS);
    have_done(&scene, DO_GET, SMALL, BULK_MS);
    have_done(&scene, DO_PUT, SMALL, BULK_MS);
    CHECK_THAT(connections_of(&scene), ==, 1);
    have_done(&scene, what, BULK, BULK_MS);
    CHECK_THAT(connections_of(&scene), ==, 2);
    await_data_link(&scene);
    for (int i = 0; i < 5; i++) {
        have_done(&scene, DO_GET, MIB, BULK_MS);
        have_done(&scene, DO_PUT, MIB, BULK_MS);
    }
    CHECK_THAT(connections_of(&scene), ==, 2);
    end_scene(&scene);
}

/* The server has opened the data link, and the client goes on over the first connection. */
static void hold_attached(struct world *world)
{
    struct scene scene;

    set_up(world, &scene);
    treat(&scene, HOLDS_ATTACHED, 0);
    have_done(&scene, variant_of(world) != 0 ? DO_PUT : DO_GET, 2 * BULK, BULK_MS);
    CHECK_THAT(connections_of(&scene), ==, 2);
    await_data_link(&scene);
    end_scene(&scene);
}

enum { BY_PUT = 1, BY_FIN = 2 };

static void cut(struct world *world)
{
    struct scene scene;
    int64_t how = variant_of(world);

    set_up(world, &scene);
    await_data_link(&scene);
    treat(&scene, (how & BY_FIN) != 0 ? FINISHES : RESETS, bytes_of(&scene) + MIDDLE);
    have_done(&scene, (how & BY_PUT) != 0 ? DO_PUT : DO_GET, BULK, BULK_MS);
    /* Bytes that have arrived are not sent again; up to 3 MiB are under way in the kernel, and lost. */
    CHECK_THAT(bytes_of(&scene), <, BULK + MIDDLE - MIB / 2);
    await_data_link(&scene);
    CHECK_THAT(connections_of(&scene), ==, 3);
    end_scene(&scene);
}

static void stand_still(struct world *world)
{
    struct scene scene;

    set_up(world, &scene);
    await_data_link(&scene);
    treat(&scene, STANDS_STILL, bytes_of(&scene) + MIDDLE);
    have_done(&scene, DO_GET, BULK, STALLED_MS);
    await_data_link(&scene);
    CHECK_THAT(connections_of(&scene), ==, 3);
    end_client(&scene, 1);
    end_service(scene.server, 1);
}

/* The variant: bulk goes by put instead of get. */
static void open_four(struct world *world)
{
    int what = variant_of(world) != 0 ? DO_PUT : DO_GET;
    struct scene scene;

    set_up_with(world, &scene, FOUR, FOUR);
    have_done(&scene, DO_GET, LARGE, BULK_MS);
    have_done(&scene, DO_PUT, MIB, BULK_MS);
    CHECK_THAT(connections_of(&scene), ==, 2);
    await_data_links(&scene, FOUR);
    for (int i = 0; i < 3; i++)
        have_done(&scene, what, BULK, BULK_MS);
    CHECK_THAT(connections_of(&scene), ==, 1 + FOUR);
    end_scene(&scene);
}

/* The variant: number of the server's data links; the client has four. */
static void open_fewer(struct world *world)
{
    int64_t of_server = variant_of(world);
    struct scene scene;

    set_up_with(world, &scene, (int)of_server, FOUR);
    for (int i = 0; i < 3; i++) {
        have_done(&scene, DO_GET, BULK, BULK_MS);
        have_done(&scene, DO_PUT, BULK, BULK_MS);
    }
    CHECK_THAT(connections_of(&scene), ==, 1 + of_server);
    end_scene(&scene);
}

/* The variant: bulk goes by put instead of get. */
static void cut_one_of_four(struct world *world)
{
    struct scene scene;

    set_up_with(world, &scene, FOUR, FOUR);
    await_data_links(&scene, FOUR);
    treat(&scene, RESETS, bytes_of(&scene) + MIDDLE);
    have_done(&scene, variant_of(world) != 0 ? DO_PUT : DO_GET, BULK, BULK_MS);
    await_data_links(&scene, FOUR);
    CHECK_THAT(connections_of(&scene), ==, 2 + FOUR);
    end_scene(&scene);
}

/* The variant: how one of four connections fails while it carries a part. */
static void do_without_one_of_four(struct world *world)
{
    struct scene scene;
    deadline_t deadline;

    set_up_with(world, &scene, FOUR, FOUR);
    await_data_links(&scene, FOUR);
    treat(&scene, (enum treatment)variant_of(world), bytes_of(&scene) + MIDDLE);
    deadline = deadline_in(HELD_BACK_MS);
    have_done(&scene, DO_GET, BULK, STALLED_MS);
    /* Repeated until the old bytes, held back so far, arrive. */
    do
        have_done(&scene, DO_GET, BULK, BULK_MS);
    while (!deadline_over(deadline));
    await_data_links(&scene, FOUR);
    CHECK_THAT(connections_of(&scene), ==, 2 + FOUR);
    end_client(&scene, 1);
    end_service(scene.server, 1);
}

static void close_all(struct world *world)
{
    struct scene scene;

    set_up(world, &scene);
    treat(&scene, CLOSES, 0);
    have_done(&scene, DO_GET, BULK, BULK_MS);
    have_done(&scene, DO_PUT, BULK, BULK_MS);
    CHECK_THAT(connections_of(&scene), >, 1);
    CHECK_THAT(bytes_of(&scene), ==, 0);
    end_scene(&scene);
}

static void lead_astray(struct world *world)
{
    struct child *other = spawn(world, "server");
    int64_t number = child_hear(other, "serving");
    struct scene scene;

    set_up(world, &scene);
    treat(&scene, LEADS_ASTRAY, number);
    have_done(&scene, DO_GET, BULK, BULK_MS);
    have_done(&scene, DO_PUT, BULK, BULK_MS);
    CHECK_THAT(connections_of(&scene), >, 1);
    CHECK_THAT(bytes_of(&scene), <, LARGE);
    end_scene(&scene);
    end_service(other, 0);
}

static void forge_data(struct world *world)
{
    struct scene scene;

    set_up(world, &scene);
    treat(&scene, FORGES, 0);
    have_done(&scene, DO_GET, BULK, BULK_MS);
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
    have_done(&scene, DO_GET, BULK, BULK_MS);
    have_done(&scene, DO_PUT, BULK, BULK_MS);
    CHECK_THAT(connections_of(&scene), ==, 1);
    end_scene(&scene);
}

static void cancel_one(struct world *world)
{
    struct scene scene;
    int64_t before;

    set_up(world, &scene);
    await_data_link(&scene);
    treat(&scene, PASSES_SLOWLY, 0);
    before = bytes_of(&scene);
    have_done(&scene, DO_CANCEL, BULK, BULK_MS);
    CHECK_THAT(bytes_of(&scene), >, before);
    treat(&scene, PASSES, 0);
    have_done(&scene, DO_GET, MIB, BULK_MS);
    have_done(&scene, DO_PUT, MIB, BULK_MS);
    CHECK_THAT(connections_of(&scene), ==, 2);
    end_client(&scene, 0);
    /* The client has cancelled one of the server's operations. */
    end_attacked(scene.server, 1, 1);
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
        have_done(&scene, DO_GET, MIB, BULK_MS);
        CHECK_THAT(bytes_of(&scene), >, before + MIB);
        have_done(&scene, DO_PUT, MIB, BULK_MS);
    }
    CHECK_THAT(connections_of(&scene), ==, 2);
    end_scene(&scene);
}

/* ---- the order of equal tags ---- */

static const bmi_size_t in_order[] = {MIB, 8, 300 * KIB, 8};
enum { IN_ORDER = sizeof in_order / sizeof in_order[0], ROUNDS = 6, TAG_ROUND = 1, TAG_EQUAL = 2, LATE_MS = 50 };

static void giver(struct side *side)
{
    struct bmi_method_addr *taker;

    tell(side, "serving", host_start_server());
    taker = pair_accept();
    for (int round = 0; round < ROUNDS; round++) {
        struct op send[IN_ORDER] = {{0}};
        void *out[IN_ORDER];

        CHECK(host_take(TAG_ROUND) == taker);
        for (int i = 0; i < IN_ORDER; i++) {
            out[i] = fenced((size_t)in_order[i]);
            fill(out[i], (size_t)in_order[i], (uint64_t)(round * IN_ORDER + i));
            CHECK_THAT(op_send(&send[i], taker, out[i], in_order[i], TAG_EQUAL), >=, 0);
        }
        for (int i = 0; i < IN_ORDER; i++) {
            op_sent(&send[i]);
            fenced_free(out[i]);
        }
    }
    pair_hear(side, "stop");
    host_stop();
}

static void taker(struct side *side)
{
    struct bmi_method_addr *giver;
    int endpoint = (int)hear(side, "endpoint");

    host_start_client();
    giver = service_of("127.0.0.1", endpoint);
    pair_hello(giver);
    for (int round = 0; round < ROUNDS; round++) {
        bool is_late = round % 2 == 1;
        struct op receive[IN_ORDER] = {{0}};
        void *in[IN_ORDER];

        for (int turn = 0; turn < 2; turn++) {
            if ((turn == 0) == is_late) {
                send_request(giver, "go", 3, TAG_ROUND);
                for (deadline_t deadline = deadline_in(LATE_MS); is_late && !deadline_over(deadline);)
                    host_pump(5);
                continue;
            }
            for (int i = 0; i < IN_ORDER; i++) {
                in[i] = fenced((size_t)in_order[i]);
                /* A receive whose message has arrived still waits for the first one. */
                CHECK_THAT(op_recv(&receive[i], giver, in[i], in_order[i], TAG_EQUAL), ==, 0);
            }
        }
        for (int i = 0; i < IN_ORDER; i++) {
            op_received(&receive[i], in_order[i]);
            check_filled(in[i], (size_t)in_order[i], (uint64_t)(round * IN_ORDER + i));
            fenced_free(in[i]);
            if (i > 0)
                CHECK_THAT(receive[i].turn, >, receive[i - 1].turn);
        }
    }
    tell(side, "done", 0);
    host_stop();
}

static void keep_order(struct world *world)
{
    struct scene scene;
    int64_t number;

    scene.server = spawn(world, "giver");
    number = spawn_relay(world, &scene);
    treat(&scene, PASSES_SLOWLY, 0);
    scene.client = spawn(world, "taker");
    child_tell(scene.client, "endpoint", number);
    child_hear(scene.client, "done");
    child_end(scene.client);
    CHECK_THAT(bytes_of(&scene), >, MIB);
    child_tell(scene.server, "stop", 0);
    child_end(scene.server);
    order(scene.relay, END, 0);
    child_end(scene.relay);
}

#define ROLES_HERE {"server", server}, {"relay", relay}, {"client", bulk_client}

TESTS(
    DIRECTED_OF(the_first_large_get_opens_a_second_connection_and_no_more, 0, open_one, ROLES_HERE),
    DIRECTED_OF(the_first_large_put_opens_a_second_connection_and_no_more, 1, open_one, ROLES_HERE),
    DIRECTED_OF(a_get_survives_data_links_opened_in_turn, 0, hold_attached, ROLES_HERE),
    DIRECTED_OF(a_put_survives_data_links_opened_in_turn, 1, hold_attached, ROLES_HERE),
    DIRECTED_OF(a_get_survives_the_reset_of_its_data_link, 0, cut, ROLES_HERE),
    DIRECTED_OF(a_put_survives_the_reset_of_its_data_link, BY_PUT, cut, ROLES_HERE),
    DIRECTED_OF(a_get_survives_the_end_of_its_data_link, BY_FIN, cut, ROLES_HERE),
    DIRECTED_OF(a_put_survives_the_end_of_its_data_link, BY_PUT | BY_FIN, cut, ROLES_HERE),
    DIRECTED(a_get_survives_a_data_link_that_stands_still, stand_still, ROLES_HERE),
    DIRECTED_OF(a_large_get_comes_over_four_connections, 0, open_four, ROLES_HERE),
    DIRECTED_OF(a_large_put_goes_over_four_connections, 1, open_four, ROLES_HERE),
    DIRECTED_OF(a_server_that_takes_one_data_link_gets_one, 1, open_fewer, ROLES_HERE),
    DIRECTED_OF(a_server_that_takes_two_data_links_gets_two, 2, open_fewer, ROLES_HERE),
    DIRECTED_OF(a_get_survives_the_reset_of_one_of_four, 0, cut_one_of_four, ROLES_HERE),
    DIRECTED_OF(a_put_survives_the_reset_of_one_of_four, 1, cut_one_of_four, ROLES_HERE),
    DIRECTED_OF(a_get_survives_one_of_four_that_stands_still, STANDS_STILL, do_without_one_of_four, ROLES_HERE),
    DIRECTED_OF(old_bytes_of_one_of_four_do_not_count, HOLDS_BACK, do_without_one_of_four, ROLES_HERE),
    DIRECTED(bulk_data_needs_no_second_connection, close_all, ROLES_HERE),
    DIRECTED(a_data_link_that_leads_to_another_server_is_not_used, lead_astray, ROLES_HERE),
    DIRECTED(a_data_link_brings_nothing_before_its_end_has_proven_itself, forge_data, ROLES_HERE),
    DIRECTED_OF(a_server_can_do_without_data_links, 0, have_none, ROLES_HERE),
    DIRECTED_OF(a_client_can_do_without_data_links, 1, have_none, ROLES_HERE),
    DIRECTED(a_cancelled_receive_ends_at_once_while_its_bytes_come, cancel_one, ROLES_HERE),
    DIRECTED(a_stranger_cannot_attach_to_a_session, say_it_again, ROLES_HERE),
    DIRECTED(equal_tags_are_reported_in_send_order, keep_order, {"giver", giver},
             {"relay", relay}, {"taker", taker}))
