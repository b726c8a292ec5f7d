/* See traffic.h. */
#include "traffic.h"

#include "pattern.h"

enum {
    TAG_TALK = 1000,
    TAG_CALL = 2000,
    TAG_PING = 3000,
    TAG_STREAM = 4000,
};

/* Sizes around every limit that a datagram port can have: tiny messages, one datagram, an eager message, blocks. */
static const bmi_size_t sizes[TALK_SIZES] = {
    8,     736,    769,         1400,            4000,            16384,           32768,
    32769, 100000, 300000, 1024 * 1024, 3 * 1024 * 1024, 8 * 1024 * 1024, 16 * 1024 * 1024,
};

static void wait_until(struct op *op, deadline_t deadline, const char *what)
{
    if (!op_wait_within(op, deadline_left(deadline)))
        FAIL("%s does not end in time", what);
    CHECK_THAT(op->error, ==, 0);
}

/* ---- talk ---- */

void talk_begin(struct talk *talk, struct bmi_method_addr *peer, int64_t me, int64_t you,
                bool leads, int64_t largest)
{
    memset(talk, 0, sizeof *talk);
    talk->peer = peer;
    talk->me = me;
    talk->you = you;
    talk->leads = leads;
    while (talk->sizes < TALK_SIZES && sizes[talk->sizes] <= largest)
        talk->sizes++;
    for (int i = 0; i < talk->sizes; i++) {
        talk->in[i] = fenced((size_t)sizes[i]);
        talk->out[i] = fenced((size_t)sizes[i]);
    }
}

static uint64_t seed_of(const struct talk *talk, int64_t who, int i)
{
    return (uint64_t)((talk->round * 64 + who) * TALK_SIZES + i);
}

static void post_receive(struct talk *talk, int i)
{
    memset(&talk->receive[i], 0, sizeof talk->receive[i]);
    CHECK_THAT(op_recv(&talk->receive[i], talk->peer, talk->in[i], sizes[i], TAG_TALK + i), >=,
               0);
}

static void post_call(struct talk *talk, int i)
{
    int64_t *words = talk->words[i];

    memset(&talk->call[i], 0, sizeof talk->call[i]);
    words[0] = talk->me;
    words[1] = talk->round * TALK_UNEXPECTED + i;
    CHECK_THAT(op_send_unexpected(&talk->call[i], talk->peer, words, 2 * sizeof words[0],
                                  TAG_CALL),
               >=, 0);
}

/* Posts every second receive after the sends, when its message may have arrived already. */
static void post_round(struct talk *talk)
{
    for (int i = 0; i < talk->sizes; i += 2)
        post_receive(talk, i);
    for (int i = 0; i < talk->sizes; i++) {
        fill(talk->out[i], (size_t)sizes[i], seed_of(talk, talk->me, i));
        memset(&talk->send[i], 0, sizeof talk->send[i]);
        CHECK_THAT(op_send(&talk->send[i], talk->peer, talk->out[i], sizes[i], TAG_TALK + i), >=,
                   0);
    }
    if (talk->leads)
        for (int i = 0; i < TALK_UNEXPECTED; i++)
            post_call(talk, i);
    for (int i = 1; i < talk->sizes; i += 2)
        post_receive(talk, i);
}

static void finish_round(struct talk *talk, deadline_t deadline)
{
    for (int i = 0; i < talk->sizes; i++) {
        wait_until(&talk->send[i], deadline, "a send");
        wait_until(&talk->receive[i], deadline, "a receive");
        CHECK_THAT(talk->receive[i].size, ==, sizes[i]);
        check_filled(talk->in[i], (size_t)sizes[i], seed_of(talk, talk->you, i));
    }
    if (talk->leads)
        for (int i = 0; i < TALK_UNEXPECTED; i++)
            wait_until(&talk->call[i], deadline, "an unexpected send");
    talk->round++;
}

/* Takes an unexpected message, which must be the next of its sender. */
static void take_call(struct talk *talks, int count)
{
    struct arrival arrival = host_next();
    struct talk *talk = talks;
    int64_t words[2];

    while (talk < talks + count && talk->peer != arrival.from)
        talk++;
    CHECK(talk < talks + count);
    CHECK_THAT(arrival.size, ==, sizeof words);
    CHECK_THAT(arrival.tag, ==, TAG_CALL);
    memcpy(words, arrival.buffer, sizeof words);
    CHECK_THAT(words[0], ==, talk->you);
    CHECK_THAT(words[1], ==, talk->unexpected);
    talk->unexpected++;
    arrival_free(&arrival);
}

static bool calls_are_missing(const struct talk *talks, int count)
{
    for (int i = 0; i < count; i++)
        if (!talks[i].leads && talks[i].unexpected < talks[i].round * TALK_UNEXPECTED)
            return true;
    return false;
}

void talk_round(struct talk *talks, int count, deadline_t deadline)
{
    for (int i = 0; i < count; i++)
        post_round(&talks[i]);
    for (int i = 0; i < count; i++)
        finish_round(&talks[i], deadline);
    while (host_waiting() || calls_are_missing(talks, count))
        take_call(talks, count);
}

void talk_end(struct talk *talk)
{
    for (int i = 0; i < talk->sizes; i++) {
        fenced_free(talk->in[i]);
        fenced_free(talk->out[i]);
    }
}

void talk_rounds(struct bmi_method_addr *peer, bool leads, int64_t largest, int rounds, deadline_t deadline)
{
    struct talk *talk = calloc(1, sizeof *talk);

    CHECK(talk != NULL);
    talk_begin(talk, peer, leads, !leads, leads, largest);
    for (int round = 0; round < rounds; round++)
        talk_round(talk, 1, deadline);
    talk_end(talk);
    free(talk);
}

/* ---- pings ---- */

static int64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void one_send(struct bmi_method_addr *peer, int64_t word, deadline_t deadline)
{
    struct op send = {0};

    CHECK_THAT(op_send(&send, peer, &word, sizeof word, TAG_PING), >=, 0);
    wait_until(&send, deadline, "a ping");
}

struct pings ping(struct bmi_method_addr *peer, int count, deadline_t deadline)
{
    int64_t *took = calloc((size_t)count, sizeof *took);
    struct pings result;

    CHECK(took != NULL);
    for (int i = 0; i < count; i++) {
        struct op receive = {0};
        int64_t word = 0, begin = now_us();

        CHECK_THAT(op_recv(&receive, peer, &word, sizeof word, TAG_PING), >=, 0);
        one_send(peer, i, deadline);
        wait_until(&receive, deadline, "a pong");
        took[i] = now_us() - begin;
        CHECK_THAT(word, ==, i);
    }
    qsort(took, (size_t)count, sizeof *took, ascending);
    result = (struct pings){took[count / 2], took[count - 1]};
    free(took);
    return result;
}

void pong(struct bmi_method_addr *peer, int count, deadline_t deadline)
{
    for (int i = 0; i < count; i++) {
        struct op receive = {0};
        int64_t word = 0;

        CHECK_THAT(op_recv(&receive, peer, &word, sizeof word, TAG_PING), >=, 0);
        wait_until(&receive, deadline, "a ping");
        one_send(peer, word, deadline);
    }
}

/* ---- streams ---- */

/* Begin of a message: its number, and 1 if it is the last one except for as many short ones as the receiver had
 * receives posted. */
struct mark {
    int64_t number, last;
};

static void post_marked(struct op *op, struct bmi_method_addr *peer, char *buffer, bmi_size_t size,
                        const struct mark *mark)
{
    memcpy(buffer, mark, sizeof *mark);
    memset(op, 0, sizeof *op);
    CHECK_THAT(op_send(op, peer, buffer, size, TAG_STREAM), >=, 0);
}

void outflow(struct bmi_method_addr *peer, bmi_size_t size, int ms, deadline_t deadline)
{
    struct op sends[STREAM_AHEAD] = {{0}};
    char *buffers[STREAM_AHEAD];
    int64_t end = now_ms() + ms;
    struct mark mark = {0, 0};
    int64_t after = 0;

    for (int i = 0; i < STREAM_AHEAD; i++) {
        buffers[i] = malloc((size_t)size);
        CHECK(buffers[i] != NULL);
        fill(buffers[i], (size_t)size, 1);
    }
    for (; after < STREAM_AHEAD; mark.number++) {
        int i = (int)(mark.number % STREAM_AHEAD);

        if (mark.number >= STREAM_AHEAD)
            wait_until(&sends[i], deadline, "a send of a stream");
        mark.last |= now_ms() >= end;
        post_marked(&sends[i], peer, buffers[i], after > 0 ? (bmi_size_t)sizeof mark : size, &mark);
        after += mark.last;
    }
    for (int i = 0; i < STREAM_AHEAD; i++)
        wait_until(&sends[i], deadline, "the last send of a stream");
    for (int i = 0; i < STREAM_AHEAD; i++)
        free(buffers[i]);
}

static void post_next(struct inflow *flow, int i)
{
    memset(&flow->receives[i], 0, sizeof flow->receives[i]);
    CHECK_THAT(op_recv(&flow->receives[i], flow->peer, flow->buffers[i], flow->size, TAG_STREAM),
               >=, 0);
}

void inflow_begin(struct inflow *flow, struct bmi_method_addr *peer, bmi_size_t size)
{
    memset(flow, 0, sizeof *flow);
    flow->peer = peer;
    flow->size = size;
    flow->more = -1;
    for (int i = 0; i < STREAM_AHEAD; i++) {
        flow->buffers[i] = fenced((size_t)size);
        post_next(flow, i);
    }
}

static void take_message(struct inflow *flow, int i)
{
    struct mark mark;

    CHECK_THAT(flow->receives[i].error, ==, 0);
    memcpy(&mark, flow->buffers[i], sizeof mark);
    CHECK_THAT(mark.number, ==, flow->number);
    if (flow->more < 0) {
        CHECK_THAT(flow->receives[i].size, ==, flow->size);
        check_filled_from(flow->buffers[i] + sizeof mark, sizeof mark,
                          (size_t)flow->size - sizeof mark, 1);
        flow->bytes += flow->size;
    } else {
        CHECK_THAT(flow->receives[i].size, ==, sizeof mark);
    }
    flow->number++;
}

bool inflow_step(struct inflow *flow)
{
    while (!flow->ended) {
        int i = (int)(flow->number % STREAM_AHEAD);
        struct mark mark;

        if (!op_done(&flow->receives[i]))
            return true;
        take_message(flow, i);
        memcpy(&mark, flow->buffers[i], sizeof mark);
        if (flow->more >= 0)
            flow->ended = --flow->more == 0;
        else if (mark.last)
            flow->more = STREAM_AHEAD - 1;
        else
            post_next(flow, i);
    }
    return false;
}

void inflow_end(struct inflow *flow)
{
    for (int i = 0; i < STREAM_AHEAD; i++)
        fenced_free(flow->buffers[i]);
}

double take_stream(struct bmi_method_addr *peer, bmi_size_t size, deadline_t deadline)
{
    struct inflow flow;
    int64_t begin = 0, end = 0, counted = 0;
    bool going = true;

    inflow_begin(&flow, peer, size);
    while (going) {
        if (deadline_over(deadline))
            FAIL("a stream does not end in time: %lld messages have come",
                 (long long)flow.number);
        host_pump(5);
        going = inflow_step(&flow);
        /* From the first whole message to the last. */
        if (flow.bytes > counted) {
            end = now_us();
            begin = begin == 0 ? end : begin;
            counted = flow.bytes;
        }
    }
    inflow_end(&flow);
    return end > begin ? (double)(counted - flow.size) * 1e6 / (double)(end - begin) : 0;
}
