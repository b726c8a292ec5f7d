/*
 * How long it takes until a death is noticed, with the settings that clusters use.
 *
 *     survivor ◄──── connected ────► victim ── kill -9
 *        │
 *        ├ an operation is pending       it ends with an error
 *        ├ nothing is pending            the host is told, or asks, whether it may drop the address
 *        └ the victim is restarted       the first request to it is answered
 *
 * A stopped process is not dead: its peers wait for it.
 */
#include "../support/pair.h"

/* Longest time that a host may have to wait, on a busy machine; keep-alive takes 20 s. */
enum { SOON_MS = 5000, STOPPED_MS = 3000, TAG = 7 };

static int64_t since(int64_t begin)
{
    return now_ms() - begin;
}

static void report(const char *what, int64_t ms)
{
    fprintf(stderr, "%s: %s after %d ms\n", port_name(), what, (int)ms);
    CHECK_THAT(ms, <=, SOON_MS * slower());
}

enum { SERVER_DIES, CLIENT_DIES };

/* ---- the survivors ---- */

/* Waits until the operation has ended because the peer is dead, and prints how long that took. The director kills
 * the peer when it hears "ready". */
static void miss(struct side *side, struct op *op, const char *what)
{
    int64_t begin;

    tell(side, "ready", 0);
    pair_hear(side, "killed");
    begin = now_ms();
    if (!op_wait_within(op, 30000))
        FAIL("%s: not within 30 s", what);
    CHECK_THAT(op->error, <, 0);
    report(what, since(begin));
}

/* A survivor with a receive posted. */
static void bereft(struct side *side)
{
    bool client = side->variant == SERVER_DIES;
    struct bmi_method_addr *peer = client ? pair_client(side) : pair_server(side);
    struct op receive = {0};
    char buffer[64];

    CHECK_THAT(op_recv(&receive, peer, buffer, sizeof buffer, TAG), ==, 0);
    miss(side, &receive, client ? "a receive from a dead server ends" : "a receive from a dead client ends");
    host_stop();
}

/* A survivor with large messages under way in both directions. */
static void busy_client(struct side *side)
{
    enum { BIG = 4 << 20 };
    struct bmi_method_addr *server = pair_client(side);
    struct op receive = {0}, send = {0};
    char *in = fenced(BIG), *out = fenced(BIG);

    memset(out, 1, BIG);
    CHECK_THAT(op_recv(&receive, server, in, BIG, TAG), ==, 0);
    CHECK_THAT(op_send(&send, server, out, BIG, TAG), ==, 0);
    miss(side, &receive, "a large receive from a dead server ends");
    op_wait(&send);
    CHECK_THAT(send.error, <, 0);
    fenced_free(in);
    fenced_free(out);
    host_stop();
}

/* A survivor with nothing pending; its host asks from time to time whether it may drop the address. */
static void idle_server(struct side *side)
{
    struct method_drop_addr_query query = {.addr = pair_server(side)};
    int64_t begin;

    CHECK_THAT(ops->get_info(BMI_DROP_ADDR_QUERY, &query), ==, 0);
    CHECK_THAT(query.response, ==, 0);
    tell(side, "ready", 0);
    pair_hear(side, "killed");
    begin = now_ms();
    while (query.response == 0 && since(begin) < 30000) {
        host_pump(5);
        CHECK_THAT(ops->get_info(BMI_DROP_ADDR_QUERY, &query), ==, 0);
    }
    report("an idle server misses a dead client", since(begin));
    host_stop();
}

/* ---- the victims ---- */

static void mortal_client(struct side *side)
{
    pair_client(side);
    pair_await_death();
}

static void mortal_server(struct side *side)
{
    pair_server(side);
    pair_await_death();
}

static void kills_one(struct world *world)
{
    struct child *server = spawn(world, "server"), *client = spawn(world, "client");
    struct child *survivor = variant_of(world) == SERVER_DIES ? client : server;

    child_tell(client, "endpoint", child_hear(server, "endpoint"));
    child_hear(survivor, "ready");
    child_kill(survivor == client ? server : client);
    child_tell(survivor, "killed", 0);
    child_end(survivor);
}

/* ---- the server dies first, then the post ---- */

static void posts_to_dead(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    char buffer[64] = "";

    tell(side, "ready", 0);
    hear(side, "killed"); /* without a test call in between */
    {
        struct op receive = {0}, send = {0}, unexpected = {0};

        op_recv(&receive, server, buffer, 64, 1);
        op_send(&send, server, buffer, 64, 1);
        op_send_unexpected(&unexpected, server, buffer, 64, 1);
        /* Small sends may have completed before the death was noticed; the receive cannot. */
        CHECK_THAT(op_code(&receive), <, 0);
        op_code(&send);
        op_code(&unexpected);
    }
    /* Cancelling after the peer's death is bounded, too: the post is rejected, or the operation ends soon. */
    {
        struct op late = {0};

        if (op_recv(&late, server, buffer, 64, 2) >= 0) {
            CHECK_THAT(ops->cancel(late.id, 0), ==, 0);
            CHECK(op_wait_within(&late, 2000));
            CHECK_THAT(late.error, <, 0);
        }
    }
    host_stop();
}

/* ---- a server that is restarted ---- */

static void next_server(struct side *side)
{
    host_serve_at(hear(side, "endpoint"));
    tell(side, "up", 0);
    pair_accept();
    pair_hear(side, "stop");
    host_stop();
}

static void returning_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    int64_t begin;

    tell(side, "ready", 0);
    /* Makes no call meanwhile, like a mount that is not in use. */
    hear(side, "back");
    begin = now_ms();
    while (!pair_try_hello(server) && since(begin) < 30000)
        host_pump(10);
    report("the first request to a restarted server is answered", since(begin));
    host_stop();
}

static void server_returns(struct world *world)
{
    struct child *server = spawn(world, "server"), *client = spawn(world, "client");
    int64_t endpoint = child_hear(server, "endpoint");

    child_tell(client, "endpoint", endpoint);
    child_hear(client, "ready");
    child_kill(server);
    server = spawn(world, "next");
    child_tell(server, "endpoint", endpoint);
    child_hear(server, "up");
    child_tell(client, "back", 0);
    child_end(client);
    child_tell(server, "stop", 0);
    child_end(server);
}

/* ---- a stopped peer is not dead ---- */

static void stopped_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);

    pair_hear(side, "go on");
    send_message(client, "late", 5, TAG);
    pair_hear(side, "stop");
    host_stop();
}

static void waiting_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    struct op receive = {0};
    char buffer[64];

    CHECK_THAT(op_recv(&receive, server, buffer, sizeof buffer, TAG), ==, 0);
    tell(side, "ready", 0);
    op_received(&receive, 5);
    host_stop();
}

static void stops_server(struct world *world)
{
    struct child *server = spawn(world, "server"), *client = spawn(world, "client");

    child_tell(client, "endpoint", child_hear(server, "endpoint"));
    child_hear(client, "ready");
    child_stop(server);
    pause_ms(STOPPED_MS);
    child_continue(server);
    child_tell(server, "go on", 0);
    child_end(client);
    child_tell(server, "stop", 0);
    child_end(server);
}

TESTS(
    DIRECTED_OF(a_receive_from_a_server_that_is_killed_ends_soon, SERVER_DIES, kills_one,
                {"server", mortal_server}, {"client", bereft}),
    DIRECTED_OF(large_messages_with_a_server_that_is_killed_end_soon, SERVER_DIES, kills_one,
                {"server", mortal_server}, {"client", busy_client}),
    DIRECTED_OF(a_receive_from_a_client_that_is_killed_ends_soon, CLIENT_DIES, kills_one,
                {"server", bereft}, {"client", mortal_client}),
    DIRECTED_OF(an_idle_server_misses_a_client_that_is_killed_soon, CLIENT_DIES, kills_one,
                {"server", idle_server}, {"client", mortal_client}),
    DIRECTED_OF(posts_to_a_dying_server_fail_or_end_with_an_error, SERVER_DIES, kills_one,
                {"server", mortal_server}, {"client", posts_to_dead}),
    DIRECTED(the_first_request_to_a_restarted_server_is_answered_soon, server_returns,
             {"server", mortal_server}, {"next", next_server}, {"client", returning_client}),
    DIRECTED(a_stopped_server_is_not_taken_for_dead, stops_server, {"server", stopped_server},
             {"client", waiting_client}))
