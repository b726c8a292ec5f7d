/*
 * Calls: a process that looks a name up and sends to it calls, and gets a session and a peer with the address that
 * it looked up.
 *
 *     caller                                     called
 *     looked-up address ────── session ──────►  a new peer, with an address that the host is told of
 *                       ◄───── answers ───────
 *
 * The called side never calls back. If it looks the caller's name up, that is another session and another peer;
 * the same holds for two servers that call each other at once. The two ends of a call to oneself are two peers,
 * too. A caller that comes again, as a new life or because its connection was cut, is a new peer: the former one
 * stays dead.
 */
#include "../support/crowd.h"
#include "../support/pair.h"

#define MIB (1024 * 1024)

/* ---- oneself ---- */

static const bmi_size_t self_sizes[] = {0, 8, 5000, 32768, 32769, 300000, 4 * MIB};
enum { SELF = sizeof self_sizes / sizeof self_sizes[0] };

/* Sends an expected message from one end to the other; the receive is posted first or last. */
static void send_to_end(struct bmi_method_addr *from, struct bmi_method_addr *to, int number, bool receive_first)
{
    size_t size = (size_t)self_sizes[number];
    void *out = fenced(size), *in = fenced(size);
    struct op send = {0}, receive = {0};

    fill(out, size, (uint64_t)number);
    if (receive_first)
        CHECK_THAT(op_recv(&receive, to, in, self_sizes[number], number), >=, 0);
    CHECK_THAT(op_send(&send, from, out, self_sizes[number], number), >=, 0);
    if (!receive_first)
        CHECK_THAT(op_recv(&receive, to, in, self_sizes[number], number), >=, 0);
    op_received(&receive, self_sizes[number]);
    op_sent(&send);
    check_filled(in, size, (uint64_t)number);
    fenced_free(in);
    fenced_free(out);
}

/* Sends an unexpected message, which arrives from the other end. */
static void ask_end(struct bmi_method_addr *from, struct bmi_method_addr *to, int number)
{
    size_t size = (size_t)self_sizes[number];
    void *out = fenced(size);
    struct op send = {0};
    struct arrival arrival;

    fill(out, size, (uint64_t)number);
    CHECK_THAT(op_send_unexpected(&send, from, out, self_sizes[number], 40 + number), >=, 0);
    arrival = host_next();
    CHECK(arrival.from == to);
    CHECK_THAT(arrival.tag, ==, 40 + number);
    CHECK_THAT(arrival.size, ==, self_sizes[number]);
    check_filled(arrival.buffer, size, (uint64_t)number);
    arrival_free(&arrival);
    op_sent(&send);
    fenced_free(out);
}

/* Exchanges messages between the two ends: messages to `self`, which was looked up, come from `called`. */
static void to_oneself(struct bmi_method_addr *self, struct bmi_method_addr *called)
{
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < SELF; i++) {
            send_to_end(self, called, i, turn == 0);
            send_to_end(called, self, i, turn == 0);
        }
    }
    for (int i = 0; i < SELF - 1; i++) {
        ask_end(self, called, i);
        ask_end(called, self, i);
    }
}

static void a_server_alone(struct side *side)
{
    int endpoint = host_start_server();
    /* Section 2: the server looks up its own listen string. */
    struct bmi_method_addr *self = host_lookup_endpoint(endpoint), *called = pair_call_self(self);
    char never[8];
    struct op receive = {0};

    to_oneself(self, called);
    /* The listen address is another name for the same call. */
    pair_exchange_ends(host_listen_address(), called, 3 * MIB, 1);
    CHECK_THAT(host_registered(), ==, 1);
    /* Each end is a peer: a message sent to one end is not received from the same end. */
    CHECK_THAT(op_recv(&receive, self, never, sizeof never, 2), ==, 0);
    send_message(self, "1234567", 8, 2);
    receive_message(called, never, sizeof never, 2);
    CHECK(!op_done(&receive));
    CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    op_failed(&receive, BMI_ECANCEL);
    host_stop();
}

/* ---- oneself: the other end is told when one end is dropped ---- */

static void drops_own_ends(struct side *side)
{
    struct bmi_method_addr *self, *called, *again;
    struct op receive = {0};
    char in[8], text[ADDRESS_SIZE];

    /* The forced port makes this a session of its own, which the listen address does not keep alive. */
    snprintf(text, sizeof text, "mx://%s@localhost:%d", port_name(), host_start_server());
    self = host_lookup(text);
    CHECK(self != NULL);
    called = pair_call_self(self);
    /* The host drops the calling end. */
    CHECK_THAT(op_recv(&receive, called, in, sizeof in, 1), ==, 0);
    host_drop(self);
    op_failed(&receive, BMI_ENETRESET);
    pair_hears_death(called);
    pair_is_dead(called);
    self = host_lookup(text);
    CHECK(self != NULL);
    again = pair_call_self(self);
    CHECK(again != called);
    pair_is_dead(called);
    pair_exchange_ends(self, again, 8, 2);
    /* The host drops the called end: the calling end connects again. */
    CHECK_THAT(op_recv(&receive, self, in, sizeof in, 1), ==, 0);
    host_drop(again);
    op_failed(&receive, BMI_ENETRESET);
    pair_exchange_self(self, 8, 3);
    pair_is_dead(called);
    CHECK_THAT(host_registered(), ==, 3);
    host_stop();
}

/* ---- servers among themselves, both beginning at the same moment ---- */

enum { TALK = 50 };

/* Each side calls, and answers the other's requests: two sessions, on which requests, messages and answers have
 * the same tags. */
static void server_to_server(struct side *side)
{
    static struct op unexpected[TALK], send[TALK], receive[TALK], reply[TALK], answer[TALK];
    static int64_t out[TALK], in[TALK], asked[TALK], answers[TALK];
    int mine = host_start_server(), theirs;
    struct bmi_method_addr *peer, *caller = NULL;
    int before;

    tell(side, "endpoint", mine);
    theirs = (int)hear(side, "endpoint");
    peer = host_lookup_endpoint(theirs);
    before = host_addresses();
    for (int i = 0; i < TALK; i++) {
        out[i] = (int64_t)mine * 1000 + i;
        in[i] = answers[i] = -1;
        CHECK_THAT(op_recv(&answer[i], peer, &answers[i], 8, i), >=, 0);
        CHECK_THAT(op_send_unexpected(&unexpected[i], peer, &out[i], 8, i), >=, 0);
        CHECK_THAT(op_send(&send[i], peer, &out[i], 8, i), >=, 0);
    }
    for (int i = 0; i < TALK; i++) {
        struct arrival arrival = host_next();

        /* The peer that calls is another one than the peer that is called. */
        CHECK(arrival.from != peer);
        CHECK(caller == NULL || arrival.from == caller);
        caller = arrival.from;
        CHECK_THAT(arrival.tag, ==, i);
        CHECK_THAT(arrival.size, ==, 8);
        memcpy(&asked[i], arrival.buffer, 8);
        CHECK_THAT(asked[i], ==, (int64_t)theirs * 1000 + i);
        arrival_free(&arrival);
        asked[i] = -asked[i];
        CHECK_THAT(op_recv(&receive[i], caller, &in[i], 8, i), >=, 0);
        CHECK_THAT(op_send(&reply[i], caller, &asked[i], 8, i), >=, 0);
    }
    for (int i = 0; i < TALK; i++) {
        op_received(&receive[i], 8);
        CHECK_THAT(in[i], ==, (int64_t)theirs * 1000 + i);
        op_received(&answer[i], 8);
        CHECK_THAT(answers[i], ==, -out[i]);
        op_sent(&unexpected[i]);
        op_sent(&send[i]);
        op_sent(&reply[i]);
    }
    pair_sync(side);
    CHECK(!host_waiting());
    CHECK_THAT(host_registered(), ==, 1);
    CHECK_THAT(host_addresses() - before, ==, 1);
    pair_part(side);
}

/* ---- a caller is looked up by its name and called ---- */

enum { TAG_CALL = 1, TAG_BOTH = 2 };

/* Exchanges numbers on both sessions at once with the same tag: `mine` was looked up, `theirs` has called. The
 * other side's numbers have the opposite sign. */
static void exchange_on_both(struct bmi_method_addr *mine, struct bmi_method_addr *theirs, int64_t caller,
                             int64_t called)
{
    struct op receive[2] = {{0}}, send[2] = {{0}};
    int64_t in[2] = {0, 0};

    CHECK_THAT(op_recv(&receive[0], mine, &in[0], 8, TAG_BOTH), >=, 0);
    CHECK_THAT(op_recv(&receive[1], theirs, &in[1], 8, TAG_BOTH), >=, 0);
    CHECK_THAT(op_send(&send[0], mine, &caller, 8, TAG_BOTH), >=, 0);
    CHECK_THAT(op_send(&send[1], theirs, &called, 8, TAG_BOTH), >=, 0);
    op_received(&receive[0], 8);
    op_received(&receive[1], 8);
    op_sent(&send[0]);
    op_sent(&send[1]);
    CHECK_THAT(in[0], ==, -called);
    CHECK_THAT(in[1], ==, -caller);
}

static void calls_its_caller(struct side *side)
{
    struct bmi_method_addr *caller = pair_server(side), *mine;
    char name[ADDRESS_SIZE];

    snprintf(name, sizeof name, "%s", ops->rev_lookup_unexpected(caller));
    mine = host_lookup(name);
    CHECK(mine != NULL);
    send_request(mine, "call", 5, TAG_CALL);
    exchange_on_both(mine, caller, 1, 2);
    pair_sync(side);
    /* One session ends, the other one stays. */
    host_drop(mine);
    pair_hear(side, "gone");
    pair_exchange(caller, 8, 3);
    CHECK_THAT(host_forgotten_of(caller), ==, 0);
    CHECK_THAT(host_registered(), ==, 1);
    pair_part(side);
}

static void is_called_by_its_server(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");
    struct bmi_method_addr *server, *caller;

    if (side->variant != 0)
        host_start_server();
    else
        host_start_client();
    server = host_lookup_endpoint(endpoint);
    pair_hello(server);
    caller = host_take(TAG_CALL);
    CHECK(caller != server);
    exchange_on_both(server, caller, -1, -2);
    pair_sync(side);
    pair_hears_death(caller);
    pair_is_dead(caller);
    tell(side, "gone", 0);
    pair_exchange(server, 8, 3);
    CHECK_THAT(host_registered(), ==, 1);
    pair_part(side);
}

/* ---- a caller dies, is kept by the host, and comes again ---- */

enum { LIVES = 4, LIVES_SILENT = 2 }; /* a silent death takes a while */

static int lives(void)
{
    return death_is_silent() ? LIVES_SILENT : LIVES;
}

static void keeps_dead(struct side *side)
{
    struct bmi_method_addr *callers[LIVES];

    pair_serve(side);
    for (int life = 0; life < lives(); life++) {
        struct bmi_method_addr *caller = callers[life] = pair_accept();

        CHECK_THAT(host_registered(), ==, life + 1);
        CHECK(!host_may_drop(caller));
        CHECK_THAT(host_forgotten_of(caller), ==, 0);
        /* The caller listens on the endpoint of the lives before it. */
        for (int i = 0; i < life; i++) {
            CHECK(callers[i] != caller);
            pair_is_dead(callers[i]);
        }
        tell(side, "known", 0);
        pair_hears_death(caller);
        pair_is_dead(caller);
        tell(side, "forgotten", 0);
    }
    for (int i = 0; i < lives(); i++) {
        pair_is_dead(callers[i]);
        host_drop(callers[i]);
    }
    CHECK_THAT(host_addresses(), ==, 0);
    hear(side, "bye");
    host_stop();
}

/* Listens on the same endpoint in every life. It receives nothing that was posted for the lives before it. */
static void caller(struct side *side)
{
    int endpoint = (int)hear(side, "mine");

    tell(side, "mine", host_serve_at(endpoint));
    pair_hello(host_lookup_endpoint((int)hear(side, "endpoint")));
    pair_hear(side, "dead ones are posted to");
    CHECK(!host_waiting());
    CHECK_THAT(host_registered(), ==, 0);
    tell(side, "not called", 0);
    pair_await_death();
}

static void kills_caller(struct world *world)
{
    struct child *server = spawn(world, "server");
    int64_t endpoint = child_hear(server, "endpoint"), mine = 0;

    for (int life = 0; life < lives(); life++) {
        struct child *child = spawn(world, "caller");

        child_tell(child, "mine", mine);
        mine = child_hear(child, "mine");
        child_tell(child, "endpoint", endpoint);
        child_hear(server, "known");
        child_tell(child, "dead ones are posted to", 0);
        child_hear(child, "not called");
        child_kill(child);
        child_hear(server, "forgotten");
    }
    child_tell(server, "bye", 0);
    child_end(server);
}

/* ---- a caller lives on, its connection does not ---- */

enum { CUT_MS = 1500, TAG_NEVER = 9, TAG_LAST };

/* Declares a caller lost that is merely stopped. */
static void cuts_off(struct side *side)
{
    struct bmi_method_addr *caller, *again;
    struct op receive = {0};
    char in[8];

    set_ms("BMI_MX_PEER_TIMEOUT_MS", CUT_MS);
    caller = pair_server(side);
    tell(side, "seated", 0);
    hear(side, "stopped");
    CHECK_THAT(op_recv(&receive, caller, in, sizeof in, TAG_NEVER), ==, 0);
    op_failed(&receive, BMI_ETIMEDOUT);
    pair_hears_death(caller);
    pair_is_dead(caller);
    tell(side, "cut", 0);
    again = pair_accept();
    CHECK(again != caller);
    CHECK_THAT(host_registered(), ==, 2);
    CHECK_THAT(host_forgotten_of(again), ==, 0);
    CHECK(!host_may_drop(again));
    pair_is_dead(caller);
    host_drop(caller);
    send_message(again, "1234567", 8, TAG_LAST); /* the new session is not affected */
    tell(side, "sent", 0);
    pair_hear(side, "bye");
    host_stop();
}

static void is_cut_off(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    struct op receive = {0};
    char in[8];

    CHECK_THAT(op_recv(&receive, server, in, sizeof in, TAG_NEVER), ==, 0);
    tell(side, "waits", 0);
    op_wait(&receive);
    /* Where deaths are silent, a link may have given up first. */
    CHECK(receive.error == -BMI_ENETRESET || (death_is_silent() && receive.error == -BMI_ETIMEDOUT));
    UNTIL (pair_try_hello(server))
        continue;
    receive_message(server, in, sizeof in, TAG_LAST);
    CHECK(strcmp(in, "1234567") == 0);
    pair_hear(side, "bye");
    host_stop();
}

static void cuts_caller(struct world *world)
{
    struct child *server = spawn(world, "server"), *caller = spawn(world, "caller");

    child_tell(caller, "endpoint", child_hear(server, "endpoint"));
    child_hear(server, "seated");
    child_hear(caller, "waits");
    child_stop(caller);
    child_tell(server, "stopped", 0);
    child_hear(server, "cut");
    child_continue(caller);
    child_hear(server, "sent");
    child_tell(caller, "bye", 0);
    child_end(caller);
    child_tell(server, "bye", 0);
    child_end(server);
}

TESTS_AFTER(port_notices_deaths_soon(),
    SOLO(a_server_that_calls_itself_has_two_ends, a_server_alone),
    SOLO(either_end_of_a_call_to_oneself_may_be_dropped, drops_own_ends),
    PAIR(two_servers_that_call_each_other_at_once_have_two_sessions, server_to_server, server_to_server),
    PAIR_OF(a_client_that_is_looked_up_by_name_has_a_second_session, 0, calls_its_caller, 0, is_called_by_its_server),
    PAIR_OF(so_has_a_server_that_is_looked_up_by_name, 0, calls_its_caller, 1, is_called_by_its_server),
    DIRECTED(sixteen_servers_that_all_call_all_at_once_are_answered, crowd_meets, {"server", one_of_crowd}),
    DIRECTED(a_caller_that_comes_again_is_new_and_the_dead_one_stays_dead, kills_caller, {"server", keeps_dead},
             {"caller", caller}),
    DIRECTED(a_caller_whose_connection_is_cut_comes_again_as_a_new_peer, cuts_caller, {"server", cuts_off},
             {"caller", is_cut_off}))
