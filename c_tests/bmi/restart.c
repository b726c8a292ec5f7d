/*
 * Peers that are killed and restarted on the same address: nothing of a former life reaches the next one.
 *
 *     life 1 ──killed──► life 2 ──killed──► life 3 ...      "phoenix", on one endpoint throughout
 *        ▲                  ▲
 *        └── "loyal", which lives through all of them: operations that it leaves under way in one life
 *            use the tags of the messages that it exchanges in the next, and every message names the life
 *            it belongs to
 *
 * The phoenix is a server whose clients reconnect, or a guest that comes back to its server and is a new peer each
 * time. The loyal side polls, or computes with or without a helper thread, or is itself stopped while the phoenix
 * dies and returns.
 */
#include "../support/pair.h"

#define MIB (1024 * 1024)

enum {
    LIVES = 8,
    LIVES_SILENT = 2, /* each takes a while to be noticed */
    KINDS = 4,
    TAG_HELLO = 1,
    TAG_GO = 2,
    TAG_TO = 100,   /* from the loyal side to the phoenix */
    TAG_FROM = 200, /* from the phoenix to the loyal side */
    OFFERED = 1200000, /* more than any port sends eagerly (MX_EAGER_MAX) */
};

static const bmi_size_t sizes[KINDS] = {64, OFFERED, 2 * MIB, 5000};

static int lives(void)
{
    return death_is_silent() ? LIVES_SILENT : LIVES;
}

/* Returns the tag of an operation left under way, which is that of an exchange in the next life. */
static bmi_msg_tag_t left_tag(int64_t life, int kind)
{
    return (bmi_msg_tag_t)(life % 2 * KINDS + kind);
}

static bmi_msg_tag_t swap_tag(int64_t life, int kind)
{
    return left_tag(life + 1, kind);
}

/* Allocates a message that names its life. */
static char *letter(int64_t life, int kind)
{
    char *text = malloc((size_t)sizes[kind]);

    CHECK(text != NULL);
    fill(text, (size_t)sizes[kind], (uint64_t)(life * KINDS + kind));
    memcpy(text, &life, sizeof life);
    return text;
}

static void check_letter(const char *text, int64_t life, int kind)
{
    int64_t said;

    memcpy(&said, text, sizeof said);
    CHECK_THAT(said, ==, life);
    check_filled_from(text + sizeof said, sizeof said, (size_t)sizes[kind] - sizeof said,
                      (uint64_t)(life * KINDS + kind));
}

/* ---- an exchange within one life ---- */

static void swap(struct bmi_method_addr *peer, int64_t life, int send_base, int receive_base)
{
    struct op receive[KINDS] = {{0}}, send[KINDS] = {{0}};
    char *in[KINDS], *out[KINDS];

    for (int i = 0; i < KINDS; i++) {
        in[i] = fenced((size_t)sizes[i]);
        out[i] = letter(life, i);
        CHECK_THAT(op_recv(&receive[i], peer, in[i], sizes[i], receive_base + swap_tag(life, i)),
                   >=, 0);
        CHECK_THAT(op_send(&send[i], peer, out[i], sizes[i], send_base + swap_tag(life, i)), >=,
                   0);
    }
    for (int i = 0; i < KINDS; i++) {
        op_sent(&send[i]);
        op_received(&receive[i], sizes[i]);
        check_letter(in[i], life, i);
        fenced_free(in[i]);
        free(out[i]);
    }
}

/* ---- operations that the loyal side leaves under way ---- */

struct left {
    struct op receive[KINDS], send[KINDS];
    char *in[KINDS], *out[KINDS];
    bool any;
};

static void leave(struct left *left, struct bmi_method_addr *peer, int64_t life)
{
    memset(left, 0, sizeof *left);
    left->any = true;
    for (int i = 0; i < KINDS; i++) {
        left->in[i] = fenced((size_t)sizes[i]);
        left->out[i] = letter(life, i);
        CHECK_THAT(
            op_recv(&left->receive[i], peer, left->in[i], sizes[i], TAG_FROM + left_tag(life, i)),
            ==, 0);
        CHECK_THAT(op_send(&left->send[i], peer, left->out[i], sizes[i], TAG_TO + left_tag(life, i)),
                   >=, 0);
    }
}

/* Checks that all receives have ended with an error, and wrote nothing. Sends have, too, unless they were copied. */
static void left_has_ended(struct left *left)
{
    if (!left->any)
        return;
    left->any = false;
    for (int i = 0; i < KINDS; i++) {
        op_wait(&left->receive[i]);
        CHECK_THAT(left->receive[i].error, <, 0);
        op_wait(&left->send[i]);
        if (sizes[i] >= OFFERED)
            CHECK_THAT(left->send[i].error, <, 0);
        check_untouched(left->in[i], 0, (size_t)sizes[i]);
        fenced_free(left->in[i]);
        free(left->out[i]);
    }
}

/* ---- greetings ---- */

static int64_t greet(struct bmi_method_addr *peer, int64_t own)
{
    int64_t life;

    UNTIL (try_ask(peer, &own, &life, sizeof life, TAG_HELLO))
        continue;
    return life;
}

/* Returns the number in an arrival, and frees it. */
static int64_t read_number(struct arrival *arrival)
{
    int64_t number;

    CHECK_THAT(arrival->error, ==, 0);
    CHECK_THAT(arrival->size, ==, sizeof number);
    memcpy(&number, arrival->buffer, sizeof number);
    arrival_free(arrival);
    return number;
}

/* Answers a peer that may be dead again, or have given up. */
static void answer(struct bmi_method_addr *peer, int64_t life)
{
    struct op reply = {0};

    op_send(&reply, peer, &life, sizeof life, TAG_HELLO);
    op_code(&reply);
}

/* ---- a server that is restarted, and its clients ---- */

static void phoenix_server(struct side *side)
{
    int64_t life = hear(side, "life"), endpoint = hear(side, "endpoint");

    tell(side, "endpoint", host_serve_at(endpoint));
    for (deadline_t deadline = deadline_in(5 * WAIT_MS); !deadline_over(deadline);) {
        struct arrival arrival;

        if (!host_next_within(&arrival, 10))
            continue;
        if (arrival.tag == TAG_HELLO) {
            read_number(&arrival);
            answer(arrival.from, life);
        } else {
            CHECK_THAT(arrival.tag, ==, TAG_GO);
            CHECK_THAT(read_number(&arrival), ==, life);
            swap(arrival.from, life, TAG_FROM, TAG_TO);
        }
    }
    FAIL("it was not killed");
}

enum { PUMPS = 0, COMPUTES = 1, COMPUTES_ALONE = 2 };

static void loyal_client(struct side *side)
{
    struct bmi_method_addr *server = NULL;
    int64_t habit = hear(side, "habit"), endpoint = hear(side, "endpoint"), life;
    struct left left = {0};

    if (habit == COMPUTES_ALONE)
        setenv("MX_HELPER", "off", 1);
    host_start_client();
    server = host_lookup_endpoint((int)endpoint);
    while ((life = habit == PUMPS ? pair_hear(side, "life") : hear(side, "life")) > 0) {
        CHECK_THAT(greet(server, life), ==, life);
        left_has_ended(&left);
        send_request(server, &life, sizeof life, TAG_GO);
        swap(server, life, TAG_TO, TAG_FROM);
        leave(&left, server, life);
        tell(side, "pending", 0);
    }
    left_has_ended(&left);
    host_stop();
}

static struct child *raise_server(struct world *world, int64_t life, int64_t *endpoint)
{
    struct child *server = spawn(world, "server");

    child_tell(server, "life", life);
    child_tell(server, "endpoint", *endpoint);
    *endpoint = child_hear(server, "endpoint");
    return server;
}

static void servers_come_back(struct world *world)
{
    bool freezes = variant_of(world) != 0;
    static const int64_t habits[] = {PUMPS, COMPUTES, COMPUTES_ALONE};
    enum { CLIENTS = 3 };
    struct child *server, *clients[CLIENTS];
    int64_t endpoint = 0;

    server = raise_server(world, 1, &endpoint);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = spawn(world, "client");
        child_tell(clients[i], "habit", habits[i]);
        child_tell(clients[i], "endpoint", endpoint);
    }
    for (int64_t life = 1;; life++) {
        for (int i = 0; i < CLIENTS; i++)
            child_tell(clients[i], "life", life);
        for (int i = 0; i < CLIENTS; i++)
            child_hear(clients[i], "pending");
        for (int i = 0; freezes && i < CLIENTS; i++)
            child_stop(clients[i]);
        child_kill(server);
        if (life < lives())
            server = raise_server(world, life + 1, &endpoint);
        for (int i = 0; freezes && i < CLIENTS; i++)
            child_continue(clients[i]);
        if (life == lives())
            break;
    }
    for (int i = 0; i < CLIENTS; i++) {
        child_tell(clients[i], "life", 0);
        child_end(clients[i]);
    }
}

/* ---- a guest that comes back to its server ---- */

static void phoenix_guest(struct side *side)
{
    int64_t life = hear(side, "life"), endpoint = hear(side, "endpoint");
    struct bmi_method_addr *server;

    tell(side, "endpoint", host_serve_at(endpoint));
    server = host_lookup_endpoint((int)hear(side, "server"));
    greet(server, life);
    send_request(server, &life, sizeof life, TAG_GO);
    swap(server, life, TAG_FROM, TAG_TO);
    pair_await_death();
}

static void loyal_server(struct side *side)
{
    struct bmi_method_addr *guests[LIVES + 1] = {NULL}; /* by life */
    struct left left = {0};
    int64_t life = 0;

    pair_serve(side);
    while (life < lives()) {
        struct arrival arrival = host_next();
        int64_t said = read_number(&arrival);

        CHECK_THAT(said, >=, life); /* no message of an old life comes after one of the new */
        if (arrival.tag == TAG_HELLO) {
            answer(arrival.from, said);
            continue;
        }
        CHECK_THAT(arrival.tag, ==, TAG_GO);
        CHECK_THAT(said, ==, life + 1);
        life = said;
        guests[life] = arrival.from;
        left_has_ended(&left);
        /* The host keeps the addresses of dead guests; nothing that it posts for them reaches the new one. */
        for (int64_t former = 1; former < life; former++) {
            CHECK(guests[former] != guests[life]);
            pair_hears_death(guests[former]);
            pair_is_dead(guests[former]);
        }
        swap(guests[life], life, TAG_TO, TAG_FROM);
        leave(&left, guests[life], life);
        tell(side, "pending", life);
        hear(side, "go on"); /* comes once the guest is dead, perhaps restarted */
    }
    left_has_ended(&left);
    CHECK_THAT(host_registered(), ==, lives());
    for (life = 1; life <= lives(); life++) {
        pair_hears_death(guests[life]);
        pair_is_dead(guests[life]);
    }
    host_stop();
}

static struct child *raise_guest(struct world *world, int64_t life, int64_t *endpoint,
                                 int64_t server)
{
    struct child *guest = spawn(world, "guest");

    child_tell(guest, "life", life);
    child_tell(guest, "endpoint", *endpoint);
    *endpoint = child_hear(guest, "endpoint");
    child_tell(guest, "server", server);
    return guest;
}

static void guests_come_back(struct world *world)
{
    bool freezes = variant_of(world) != 0;
    struct child *server = spawn(world, "server"), *guest;
    int64_t address = child_hear(server, "endpoint"), endpoint = 0;

    guest = raise_guest(world, 1, &endpoint, address);
    for (int64_t life = 1;; life++) {
        CHECK_THAT(child_hear(server, "pending"), ==, life);
        if (freezes)
            child_stop(server);
        child_kill(guest);
        if (life < lives())
            guest = raise_guest(world, life + 1, &endpoint, address);
        if (freezes)
            child_continue(server);
        child_tell(server, "go on", 0);
        if (life == lives())
            break;
    }
    child_end(server);
}

TESTS_AFTER(port_notices_deaths_soon(),
    DIRECTED_OF(a_returning_server_gets_nothing_of_its_former_lives, false, servers_come_back,
                {"server", phoenix_server}, {"client", loyal_client}),
    DIRECTED_OF(a_server_returning_to_stopped_clients_is_new, true, servers_come_back,
                {"server", phoenix_server}, {"client", loyal_client}),
    DIRECTED_OF(a_returning_guest_gets_nothing_of_its_former_lives, false, guests_come_back,
                {"server", loyal_server}, {"guest", phoenix_guest}),
    DIRECTED_OF(a_guest_returning_to_a_stopped_server_is_new, true, guests_come_back,
                {"server", loyal_server}, {"guest", phoenix_guest}))
