/*
 * Large messages, and the peers that are not plain clients: oneself and other servers.
 */
#include "../support/pair.h"

#define MIB (1024 * 1024)

/* ---- 16 MiB both ways at once ---- */

enum { BIG = 16 * MIB, BIG_EACH_WAY = 2 };

static void both_ways(struct side *side, struct bmi_method_addr *peer, uint64_t mine,
                      uint64_t theirs)
{
    struct op send[BIG_EACH_WAY] = {{0}}, receive[BIG_EACH_WAY] = {{0}};
    void *out[BIG_EACH_WAY], *in[BIG_EACH_WAY];

    for (int i = 0; i < BIG_EACH_WAY; i++) {
        out[i] = fenced(BIG);
        in[i] = fenced(BIG);
        fill(out[i], BIG, mine + (uint64_t)i);
        CHECK_THAT(op_recv(&receive[i], peer, in[i], BIG, i), >=, 0);
    }
    pair_sync(side);
    for (int i = 0; i < BIG_EACH_WAY; i++)
        CHECK_THAT(op_send(&send[i], peer, out[i], BIG, i), >=, 0);
    for (int i = 0; i < BIG_EACH_WAY; i++) {
        op_received(&receive[i], BIG);
        op_sent(&send[i]);
        check_filled(in[i], BIG, theirs + (uint64_t)i);
        fenced_free(in[i]);
        fenced_free(out[i]);
    }
}

static void big_server(struct side *side)
{
    both_ways(side, pair_server(side), 1000, 2000);
    pair_part(side);
}

static void big_client(struct side *side)
{
    both_ways(side, pair_client(side), 2000, 1000);
    pair_part(side);
}

/* ---- a large message does not hold up small ones with other tags ---- */

static void large_and_small_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    void *big = fenced(BIG);
    struct op large = {0};

    CHECK_THAT(op_recv(&large, client, big, BIG, 1), >=, 0);
    for (int i = 0; i < 100; i++) {
        int64_t number = -1;

        receive_message(client, &number, 8, 2);
        CHECK_THAT(number, ==, i);
    }
    op_received(&large, BIG);
    check_filled(big, BIG, 5);
    fenced_free(big);
    pair_part(side);
}

static void large_and_small_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    void *big = fenced(BIG);
    struct op large = {0};

    fill(big, BIG, 5);
    CHECK_THAT(op_send(&large, server, big, BIG, 1), >=, 0);
    for (int i = 0; i < 100; i++) {
        int64_t number = i;

        send_message(server, &number, 8, 2);
    }
    op_sent(&large);
    fenced_free(big);
    pair_part(side);
}

/* ---- memory from memalloc ---- */

static void memalloc_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    unsigned char *buffer = ops->memalloc(4 * MIB, BMI_RECV);
    bmi_op_id_t id;
    bmi_size_t actual = -1;
    struct op receive = {0};

    CHECK(buffer != NULL);
    memset(buffer, 0, 4 * MIB); /* as BMI_memalloc does */
    receive.posted = ops->post_recv(&id, client, buffer, 4 * MIB, &actual, BMI_PRE_ALLOC, 3,
                                    &receive, 0, NULL);
    receive.id = id;
    CHECK_THAT(receive.posted, ==, 0);
    tell(side, "posted", 0);
    op_received(&receive, 4 * MIB);
    check_filled(buffer, 4 * MIB, 77);
    CHECK_THAT(ops->memfree(buffer, 4 * MIB, BMI_RECV), ==, 0);
    pair_part(side);
}

static void memalloc_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    void *buffer = ops->memalloc(4 * MIB, BMI_SEND);
    bmi_op_id_t id;
    struct op send = {0};

    CHECK(buffer != NULL);
    fill(buffer, 4 * MIB, 77);
    pair_hear(side, "posted");
    send.posted = ops->post_send(&id, server, buffer, 4 * MIB, BMI_PRE_ALLOC, 3, &send, 0, NULL);
    send.id = id;
    CHECK_THAT(send.posted, >=, 0);
    if (send.posted == 0)
        op_sent(&send);
    CHECK_THAT(ops->memfree(buffer, 4 * MIB, BMI_SEND), ==, 0);
    pair_part(side);
}

/* ---- oneself ---- */

static const bmi_size_t self_sizes[] = {0, 8, 5000, 32768, 32769, 300000, 4 * MIB};
enum { SELF = sizeof self_sizes / sizeof self_sizes[0] };

/* An expected message from one end to the other; its receive is posted first, or last. */
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

/* An unexpected one, which comes from the other end. */
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

/* `self` was looked up; messages to it come from `called`. */
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
    /* Its listen address is another name for the same call. */
    pair_exchange_ends(host_listen_address(), called, 3 * MIB, 1);
    CHECK_THAT(host_registered(), ==, 1);
    /* Each end is a peer: what one sends, it does not receive itself. */
    CHECK_THAT(op_recv(&receive, self, never, sizeof never, 2), ==, 0);
    send_message(self, "1234567", 8, 2);
    receive_message(called, never, sizeof never, 2);
    CHECK(!op_done(&receive));
    CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    op_failed(&receive, BMI_ECANCEL);
    host_stop();
}

/* ---- servers among themselves, both beginning at the same moment ---- */

enum { TALK = 50 };

/* Each calls, and answers what the other asks: two sessions, on which requests, messages and answers have the same tags. */
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

        /* The caller is another peer than the one that is called. */
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

/* ---- a crowd of servers: all call all at the same instant, also themselves ---- */

enum {
    CROWD = 16,
    ROUNDS = 4,
    ASKED = 3, /* requests from each to each */
    TAG_ASK = 1,
    TAG_ANSWER = 100, /* and the request's number */
};

/* Of each request the size of its answer. */
static const bmi_size_t answer_sizes[ASKED] = {8, 70000, 8};

struct request {
    int64_t round, from, to, number;
};

static uint64_t answer_seed(const struct request *request)
{
    return (uint64_t)(((request->round * CROWD + request->from) * CROWD + request->to) * ASKED + request->number);
}

/* What a server has to do with one of them. */
struct neighbour {
    struct bmi_method_addr *called, *caller; /* looked up; from where its requests come */
    struct request requests[ASKED];
    struct op send[ASKED], answer[ASKED], reply[ASKED];
    char *in[ASKED], *out[ASKED];
    int heard;
};

static void ask_neighbour(struct neighbour *other)
{
    for (int i = 0; i < ASKED; i++) {
        other->in[i] = fenced((size_t)answer_sizes[i]);
        CHECK_THAT(op_recv(&other->answer[i], other->called, other->in[i], answer_sizes[i], TAG_ANSWER + i), >=, 0);
        CHECK_THAT(op_send_unexpected(&other->send[i], other->called, &other->requests[i], sizeof other->requests[i],
                                      TAG_ASK), >=, 0);
    }
}

/* Takes a request, and answers it. Those of one server are in order, and from one address, which nobody else has. */
static void answer_neighbour(struct neighbour *others, int self, int64_t round)
{
    struct arrival arrival = host_next();
    struct request request;
    struct neighbour *other;
    int i;

    CHECK_THAT(arrival.tag, ==, TAG_ASK);
    CHECK_THAT(arrival.size, ==, sizeof request);
    memcpy(&request, arrival.buffer, sizeof request);
    arrival_free(&arrival);
    CHECK_THAT(request.round, ==, round);
    CHECK_THAT(request.to, ==, self);
    CHECK(request.from >= 0 && request.from < CROWD);
    other = &others[request.from];
    CHECK_THAT(request.number, ==, other->heard);
    i = other->heard++;
    for (int k = 0; k < CROWD; k++)
        CHECK(arrival.from != others[k].called && (k == request.from || arrival.from != others[k].caller));
    CHECK(other->caller == NULL || other->caller == arrival.from);
    other->caller = arrival.from;
    other->out[i] = fenced((size_t)answer_sizes[i]);
    fill(other->out[i], (size_t)answer_sizes[i], answer_seed(&request));
    CHECK_THAT(op_send(&other->reply[i], other->caller, other->out[i], answer_sizes[i], TAG_ANSWER + i), >=, 0);
}

static void is_answered(struct neighbour *other)
{
    for (int i = 0; i < ASKED; i++) {
        op_sent(&other->send[i]);
        op_received(&other->answer[i], answer_sizes[i]);
        check_filled(other->in[i], (size_t)answer_sizes[i], answer_seed(&other->requests[i]));
        op_sent(&other->reply[i]);
        fenced_free(other->in[i]);
        fenced_free(other->out[i]);
    }
}

static void one_of_crowd(struct side *side)
{
    static struct neighbour others[CROWD];
    int self = (int)hear(side, "self");
    int64_t endpoint = 0;

    for (int64_t round = 0; round < ROUNDS; round++) {
        memset(others, 0, sizeof others);
        endpoint = host_serve_at(endpoint);
        tell(side, "endpoint", endpoint);
        for (int i = 0; i < CROWD; i++) {
            others[i].called = host_lookup_endpoint((int)hear(side, "other"));
            for (int k = 0; k < ASKED; k++)
                others[i].requests[k] = (struct request){round, self, i, k};
        }
        tell(side, "ready", 0);
        hear(side, "all");
        for (int i = 0; i < CROWD; i++)
            ask_neighbour(&others[(self + i) % CROWD]);
        for (int left = CROWD * ASKED; left > 0; left--)
            answer_neighbour(others, self, round);
        for (int i = 0; i < CROWD; i++)
            is_answered(&others[i]);
        tell(side, "answered", 0);
        pair_hear(side, "all");
        CHECK(!host_waiting());
        CHECK_THAT(host_registered(), ==, CROWD);
        CHECK_THAT(host_addresses(), ==, 2 * CROWD);
        host_stop();
        tell(side, "down", 0);
        hear(side, "all");
    }
}

static void await_crowd(struct child *const *crowd, const char *word)
{
    for (int i = 0; i < CROWD; i++)
        child_hear(crowd[i], word);
    for (int i = 0; i < CROWD; i++)
        child_tell(crowd[i], "all", 0);
}

static void all_call_all(struct world *world)
{
    struct child *crowd[CROWD];

    for (int i = 0; i < CROWD; i++) {
        crowd[i] = spawn(world, "server");
        child_tell(crowd[i], "self", i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int64_t endpoints[CROWD];

        for (int i = 0; i < CROWD; i++)
            endpoints[i] = child_hear(crowd[i], "endpoint");
        for (int i = 0; i < CROWD; i++)
            for (int k = 0; k < CROWD; k++)
                child_tell(crowd[i], "other", endpoints[k]);
        await_crowd(crowd, "ready");
        await_crowd(crowd, "answered");
        await_crowd(crowd, "down");
    }
    for (int i = 0; i < CROWD; i++)
        child_end(crowd[i]);
}

TESTS(
    PAIR(sixteen_MiB_messages_cross_both_ways_at_once, big_server, big_client),
    PAIR(small_messages_are_not_stuck_behind_a_large_one, large_and_small_server,
         large_and_small_client),
    PAIR(memory_from_memalloc_carries_messages, memalloc_server, memalloc_client),
    SOLO(a_server_that_calls_itself_has_two_ends, a_server_alone),
    PAIR(two_servers_that_call_each_other_at_once_have_two_sessions, server_to_server, server_to_server),
    DIRECTED(sixteen_servers_that_all_call_all_at_once_are_answered, all_call_all, {"server", one_of_crowd}))
