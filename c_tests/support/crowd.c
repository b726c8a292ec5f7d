/* See crowd.h. */
#include "crowd.h"

#include "pair.h"

enum {
    CROWD = 16,
    FEW = 4, /* rounds */
    ASKED = 3, /* requests from each server to each */
    TAG_ASK = 1,
    TAG_ANSWER = 100, /* added to the request's number */
};

/* Under valgrind or an emulator so many servers take longer to answer than a peer waits. */
static int crowd_size(void)
{
    return slower() > 3 ? CROWD / 4 : CROWD;
}

/* Sizes of the answers, by request. */
static const bmi_size_t answer_sizes[ASKED] = {8, 70000, 8};

struct request {
    int64_t round, from, to, number;
};

static uint64_t answer_seed(const struct request *request)
{
    return (uint64_t)(((request->round * CROWD + request->from) * CROWD + request->to) * ASKED + request->number);
}

/* State of one server towards another one of the crowd, or towards itself. */
struct neighbour {
    struct bmi_method_addr *called, *caller; /* looked up; source of its requests */
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

/* Takes a request and answers it. Requests of one server come in order and from one address, which no other peer
 * has. */
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
    CHECK(request.from >= 0 && request.from < crowd_size());
    other = &others[request.from];
    CHECK_THAT(request.number, ==, other->heard);
    i = other->heard++;
    for (int k = 0; k < crowd_size(); k++)
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

void one_of_crowd(struct side *side)
{
    static struct neighbour others[CROWD];
    int self = (int)hear(side, "self");
    int64_t endpoint = 0;

    for (int64_t round = 0; round < rounds(FEW); round++) {
        memset(others, 0, sizeof others);
        endpoint = host_serve_at(endpoint);
        tell(side, "endpoint", endpoint);
        for (int i = 0; i < crowd_size(); i++) {
            others[i].called = host_lookup_endpoint((int)hear(side, "other"));
            for (int k = 0; k < ASKED; k++)
                others[i].requests[k] = (struct request){round, self, i, k};
        }
        tell(side, "ready", 0);
        hear(side, "all");
        for (int i = 0; i < crowd_size(); i++)
            ask_neighbour(&others[(self + i) % crowd_size()]);
        for (int left = crowd_size() * ASKED; left > 0; left--)
            answer_neighbour(others, self, round);
        for (int i = 0; i < crowd_size(); i++)
            is_answered(&others[i]);
        tell(side, "answered", 0);
        pair_hear(side, "all");
        CHECK(!host_waiting());
        CHECK_THAT(host_registered(), ==, crowd_size());
        CHECK_THAT(host_addresses(), ==, 2 * crowd_size());
        host_stop();
        tell(side, "down", 0);
        hear(side, "all");
    }
}

static void await_crowd(struct child *const *crowd, const char *word)
{
    for (int i = 0; i < crowd_size(); i++)
        child_hear(crowd[i], word);
    for (int i = 0; i < crowd_size(); i++)
        child_tell(crowd[i], "all", 0);
}

void crowd_meets(struct world *world)
{
    struct child *crowd[CROWD];

    for (int i = 0; i < crowd_size(); i++) {
        crowd[i] = spawn(world, "server");
        child_tell(crowd[i], "self", i);
    }
    for (int round = 0; round < rounds(FEW); round++) {
        int64_t endpoints[CROWD];

        for (int i = 0; i < crowd_size(); i++)
            endpoints[i] = child_hear(crowd[i], "endpoint");
        for (int i = 0; i < crowd_size(); i++)
            for (int k = 0; k < crowd_size(); k++)
                child_tell(crowd[i], "other", endpoints[k]);
        await_crowd(crowd, "ready");
        await_crowd(crowd, "answered");
        await_crowd(crowd, "down");
    }
    for (int i = 0; i < crowd_size(); i++)
        child_end(crowd[i]);
}
