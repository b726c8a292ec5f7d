/*
 * A server is killed and restarted while its client has exchanges with it, over a path with a delay of two
 * milliseconds (make check-net, root).
 *
 *      client ── side0 ══ port0 ──[ cable: delay ]── port1 ══ side0 ── the server's machine
 *
 * The machine stays up and rejects connections while there is no server. A rejection takes longer than the posts,
 * so that all of an exchange is waiting when it comes; on a loopback device the post itself is rejected. The
 * client must be told of failed sends first, and its exchanges reach the next server. The figures count from the
 * start of that server.
 */
#include "../support/cable.h"
#include "../support/net.h"
#include "../support/pair.h"

enum { ROUNDS = 3, AWAY_MS = 1500, MANY = 16, CLIENT = 0, SERVER = 1 };

static const struct way path = {.delay_us = 2000};

enum {
    REQUEST_BYTES = 200,
    DATA_BYTES = 2 * 1024 * 1024,
    ANSWER_BYTES = 32,
    SERVED = 16,
    EXCHANGES = 3,
};

/* ---- clients ---- */

/* Exchanges as OrangeFS's clients have them, begun together: the answer's receive, a request, data that is too
 * large for the request. */
struct exchanges {
    struct op answer[EXCHANGES], request[EXCHANGES], data[EXCHANGES];
};

/* Begins the exchanges; any post may be rejected. */
static void exchanges_begin(struct exchanges *all, struct bmi_method_addr *server)
{
    static char request[REQUEST_BYTES], answers[EXCHANGES][ANSWER_BYTES], *data;
    static bmi_msg_tag_t tag = 1000;

    memset(all, 0, sizeof *all);
    if (data == NULL) {
        data = malloc(DATA_BYTES);
        CHECK(data != NULL);
        fill(data, DATA_BYTES, 1);
    }
    for (int i = 0; i < EXCHANGES; i++, tag++) {
        op_recv(&all->answer[i], server, answers[i], ANSWER_BYTES, tag);
        op_send_unexpected(&all->request[i], server, request, REQUEST_BYTES, tag);
        op_send(&all->data[i], server, data, DATA_BYTES, tag);
    }
}

static bool is_over(const struct op *op)
{
    return op->posted < 0 || op_done(op);
}

static bool are_over(const struct exchanges *all)
{
    for (int i = 0; i < EXCHANGES; i++)
        if (!is_over(&all->answer[i]) || !is_over(&all->request[i]) || !is_over(&all->data[i]))
            return false;
    return true;
}

static bool has_failed(const struct op *op)
{
    return op->posted >= 0 && op->error < 0;
}

/* Checks that an operation was reported after those up to `last`; returns the position of the latest one. */
static int last_told(const struct op *op, int last, const char *what)
{
    if (!has_failed(op))
        return last;
    if (op->turn < last)
        FAIL("a failed %s is told too late (%s)", what, code_text(op->error));
    return op->turn;
}

/* Waits until all have ended, calling testcontext for `incount` completions at a time, and checks the order in
 * which failures are reported: a client that learns of a failed receive before the sends that fail with it hangs
 * (docs/hosts.md, Calls). Returns whether all succeeded. */
static bool exchanges_end(struct exchanges *all, int incount, int ms)
{
    bool well = true;
    int told = 0;

    UNTIL_WITHIN (ms, are_over(all)) {
        host_testunexpected(4, 0);
        host_testcontext(incount, 0, 5);
    }
    for (int i = 0; i < EXCHANGES; i++) {
        told = last_told(&all->request[i], told, "request");
        told = last_told(&all->data[i], told, "send of data");
        well = well && all->request[i].error == 0 && all->data[i].error == 0;
    }
    for (int i = 0; i < EXCHANGES; i++) {
        told = last_told(&all->answer[i], told, "receive");
        well = well && all->answer[i].error == 0;
    }
    return well;
}

/* Checks that every operation was accepted and has failed. */
static void exchanges_all_failed(const struct exchanges *all)
{
    for (int i = 0; i < EXCHANGES; i++) {
        CHECK(has_failed(&all->answer[i]));
        CHECK(has_failed(&all->data[i]));
    }
}

/* Repeats the exchanges until they succeed; returns the number of failed attempts. */
static int exchanges_retry(struct bmi_method_addr *server, int incount, int ms)
{
    deadline_t deadline = deadline_in(ms);
    struct exchanges again;

    for (int failed = 0;; failed++) {
        exchanges_begin(&again, server);
        if (exchanges_end(&again, incount, deadline_left(deadline)))
            return failed;
        CHECK(!deadline_over(deadline));
        pause_ms(20);
    }
}

/* Follows the director: exchanges that succeed ("well", with the number of failed attempts), and exchanges during
 * which the server is killed ("begun", "killed", "failed"). */
static void exchanges_lose_servers(struct side *side, struct bmi_method_addr *server, int incount)
{
    struct exchanges all;

    for (;;) {
        tell(side, "well", exchanges_retry(server, incount, 2 * WAIT_MS));
        if (hear(side, "go on") == 0)
            break;
        exchanges_begin(&all, server);
        tell(side, "begun", 0);
        hear(side, "killed");
        CHECK(!exchanges_end(&all, incount, WAIT_MS));
        exchanges_all_failed(&all);
        tell(side, "failed", 0);
    }
}

/* ---- servers ---- */

struct served {
    struct bmi_method_addr *from;
    bmi_msg_tag_t tag;
    struct op data, answer;
    char *room; /* NULL: the place is free */
    bool answered;
};

static void serve(struct served *one, const struct arrival *request)
{
    memset(one, 0, sizeof *one);
    one->from = request->from;
    one->tag = request->tag;
    one->room = malloc(DATA_BYTES);
    CHECK(one->room != NULL);
    op_recv(&one->data, one->from, one->room, DATA_BYTES, one->tag);
}

/* Takes the next step, if it is possible. */
static void go_on(struct served *one)
{
    if (!is_over(&one->data) || (one->answered && !is_over(&one->answer)))
        return;
    if (one->answered || one->data.posted < 0 || one->data.error != 0) {
        free(one->room);
        one->room = NULL;
        return;
    }
    check_filled(one->room, DATA_BYTES, 1);
    one->answered = true;
    op_send(&one->answer, one->from, "done", 4, one->tag);
}

/* Serves exchanges until a note comes. */
static void exchanges_serve(struct side *side)
{
    static struct served all[SERVED];

    while (!heard_anything(side)) {
        struct served *room = NULL;
        struct arrival arrival;

        for (int i = 0; i < SERVED; i++) {
            if (all[i].room != NULL)
                go_on(&all[i]);
            if (all[i].room == NULL)
                room = &all[i];
        }
        if (room == NULL) {
            host_testcontext(SERVED, 0, 5);
        } else if (host_next_within(&arrival, 5)) {
            serve(room, &arrival);
            arrival_free(&arrival);
        }
    }
}

/* ---- sides ---- */

/* A machine without a task of its own. */
static void machine(struct side *side)
{
    become_host(side);
    tell(side, "machine", getpid());
    while (!heard_anything(side))
        pause_ms(20);
}

static void server(struct side *side)
{
    int endpoint;

    enter_namespace((pid_t)hear(side, "machine"), "net");
    endpoint = (int)hear(side, "endpoint");
    tell(side, "endpoint", host_serve_at(endpoint));
    exchanges_serve(side);
    host_stop();
}

static void client(struct side *side)
{
    become_host(side);
    exchanges_lose_servers(side, net_join(side, SERVER), (int)side->variant);
    host_stop();
}

/* ---- the director ---- */

static struct child *begin_server(struct world *world, int64_t machine, int64_t *endpoint)
{
    struct child *server = spawn(world, "server");

    child_tell(server, "machine", machine);
    child_tell(server, "endpoint", *endpoint);
    *endpoint = child_hear(server, "endpoint");
    return server;
}

/* The variant: number of completions that the client takes at a time. */
static void restart(struct world *world)
{
    int incount = (int)variant_of(world);
    struct child *machine, *client, *server;
    int64_t endpoint = 0, home, worst = 0, refused = 0;
    struct cable *cable;

    make_hub();
    client = spawn(world, "client");
    machine = spawn(world, "machine");
    plug_in_plain(client, CLIENT, true);
    plug_in_plain(machine, SERVER, true);
    cable = cable_lay("port0", "port1", &path, &path);
    home = child_hear(machine, "machine");
    server = begin_server(world, home, &endpoint);
    child_tell(client, "endpoint", endpoint);
    child_hear(client, "well");
    for (int round = 0; round < ROUNDS; round++) {
        int64_t begin;

        child_tell(client, "go on", 1);
        child_hear(client, "begun");
        child_kill(server);
        child_tell(client, "killed", 0);
        child_hear(client, "failed");
        pause_ms(AWAY_MS);
        begin = now_ms();
        server = begin_server(world, home, &endpoint);
        refused += child_hear_within(client, "well", 3 * WAIT_MS);
        worst = now_ms() - begin > worst ? now_ms() - begin : worst;
    }
    CHECK_THAT(refused, >=, ROUNDS);
    printf("    %s, %d at a time: %d restarts, %d refusals, all well %d ms after the next server began\n",
           port_name(), incount, ROUNDS, (int)refused, (int)worst);
    child_tell(client, "go on", 0);
    child_end(client);
    child_tell(server, "stop", 0);
    child_end(server);
    child_tell(machine, "end", 0);
    child_end(machine);
    cable_remove(cable);
}

static void prepare(void)
{
    /* No operation ends between two posts. */
    setenv("MX_HELPER", "off", 1);
    /* The server dies once for each case. */
    set_ms("MX_DGRAM_GIVE_UP_MS", 1500 * slower());
}

#define SIDES {"machine", machine}, {"server", server}, {"client", client}

TESTS_AFTER(prepare(),
    DIRECTED_OF(restarts_over_a_path_with_completions_one_at_a_time, 1, restart, SIDES),
    DIRECTED_OF(restarts_over_a_path_with_many_completions_at_a_time, MANY, restart, SIDES))
