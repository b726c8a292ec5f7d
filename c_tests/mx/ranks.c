/*
 * Ranks of a parallel job: each connects to all at the same instant, itself included, and sends each a message.
 *
 *     director ── the ids of all, "begin", "send", "end" ──► 64 ranks, an endpoint each, in 8 processes
 *                                                            (make nightly: in 64)
 *     begin:  receives from all are posted, connects to all begun, while one process is stopped: its ranks alone are missing
 *     send:   all are connected, and no receive has completed; now messages go, small and large
 *
 * An address stands for a process's endpoint, whichever side called: a rank's messages come from the address that
 * it has connected to. Descriptors and memory of a rank are limited.
 */
#include "../support/memory.h"
#include "support/party.h"

enum {
    RANKS = 64,
    TOGETHER = 8,       /* ranks per process */
    FEW = 1,            /* rounds */
    LARGE_EVERY = 8,    /* every eighth message is large */
    SMALL = 200,
    LARGE = 300000,
    PHASE_MS = 60000,   /* two processors make 4096 connects */
    DESCRIPTORS = 140,  /* one link per call, one or two between two ranks, and the endpoint's own */
    KIB = 12 * 1024,
};

/* Under a checker so many ranks take longer to answer than a peer waits. */
static int ranks(void)
{
    return slower() > 1 ? RANKS / 4 : RANKS;
}

static int together(void)
{
    return getenv("C_TESTS_ROUNDS") != NULL ? 1 : TOGETHER;
}

static int processes(void)
{
    return ranks() / together();
}

/* State of one rank towards another. */
struct other {
    uint32_t id;
    mx_endpoint_addr_t address;
    mx_request_t connect, receive, send;
    char *in, *out;
};

/* One rank of this process. */
struct rank {
    mx_endpoint_t ep;
    int self;
    struct other others[RANKS];
};

static size_t size_of(int from, int to)
{
    return (from + to) % LARGE_EVERY == 1 ? LARGE : SMALL;
}

static uint64_t bits_of(int64_t round, int from, int to)
{
    return ((uint64_t)round * RANKS + (uint64_t)from) * RANKS + (uint64_t)to;
}

static void begin(struct rank *rank, int64_t round)
{
    uint64_t nic = local_nic();

    for (int k = 0; k < ranks(); k++) {
        int i = (rank->self + k) % ranks();
        struct other *other = &rank->others[i];
        size_t size = size_of(i, rank->self);

        other->in = fenced(size);
        other->receive = receive(rank->ep, other->in, size, bits_of(round, i, rank->self), EXACTLY);
        OK(mx_iconnect(rank->ep, nic, other->id, KEY, (uint64_t)i, other, &other->connect));
    }
}

/* Checks that the connects to these ranks complete, each with the right address. */
static void are_connected(struct rank *rank, int first, int end)
{
    for (int i = first; i < end; i++) {
        struct other *other = &rank->others[i];
        mx_status_t status = finish(rank->ep, other->connect);
        uint64_t nic;
        uint32_t id;

        STATUS_IS(status, MX_STATUS_SUCCESS);
        CHECK_THAT(status.match_info, ==, i);
        CHECK(status.context == other);
        other->address = status.source;
        OK(mx_decompose_endpoint_addr(other->address, &nic, &id));
        CHECK_THAT(id, ==, other->id);
    }
}

static void connects_wait(struct rank *rank, int first, int end)
{
    mx_status_t status;

    for (int i = first; i < end; i++)
        CHECK(!is_done(rank->ep, &rank->others[i].connect, &status));
}

static void receives_wait(struct rank *rank)
{
    mx_status_t status;

    for (int i = 0; i < ranks(); i++)
        CHECK(!is_done(rank->ep, &rank->others[i].receive, &status));
}

static void send_to_all(struct rank *rank, int64_t round)
{
    for (int k = 0; k < ranks(); k++) {
        int i = (rank->self + k) % ranks();
        struct other *other = &rank->others[i];
        size_t size = size_of(rank->self, i);
        uint64_t bits = bits_of(round, rank->self, i);

        other->out = fenced(size);
        fill(other->out, size, bits);
        other->send = send_to(rank->ep, other->address, other->out, size, bits);
    }
}

static void hear_from_all(struct rank *rank, int64_t round)
{
    for (int i = 0; i < ranks(); i++) {
        struct other *other = &rank->others[i];
        size_t size = size_of(i, rank->self);
        mx_status_t status = succeed(rank->ep, other->receive, size);

        CHECK(same_address(status.source, other->address));
        check_filled(other->in, size, bits_of(round, i, rank->self));
        succeed(rank->ep, other->send, size_of(rank->self, i));
        fenced_free(other->in);
        fenced_free(other->out);
    }
}

static void process(struct side *side)
{
    static struct rank all[TOGETHER];
    int count = together(), first = (int)hear(side, "first"), stopped = ranks() - count;

    for (int64_t round = 0; round < rounds(FEW); round++) {
        struct pair pair = {.side = side};
        int descriptors;
        int64_t kib;

        party_start();
        for (int k = 0; k < count; k++) {
            all[k].self = first + k;
            all[k].ep = open_any();
            tell(side, "id", id_of(all[k].ep));
        }
        pair.ep = all[0].ep;
        descriptors = entries("/proc/self/fd");
        kib = resident_kib(0);
        for (int i = 0; i < ranks(); i++) {
            uint32_t id = (uint32_t)hear(side, "other");

            for (int k = 0; k < count; k++)
                all[k].others[i].id = id;
        }
        pair_hear(&pair, "begin");
        for (int k = 0; k < count; k++)
            begin(&all[k], round);
        for (int k = 0; k < count; k++)
            are_connected(&all[k], 0, stopped);
        if (first != stopped) {
            for (int k = 0; k < count; k++)
                connects_wait(&all[k], stopped, ranks());
            tell(side, "some are missing", 0);
        }
        for (int k = 0; k < count; k++)
            are_connected(&all[k], stopped, ranks());
        for (int k = 0; k < count; k++)
            receives_wait(&all[k]);
        tell(side, "connected", 0);
        pair_hear(&pair, "send");
        for (int k = 0; k < count; k++)
            send_to_all(&all[k], round);
        for (int k = 0; k < count; k++)
            hear_from_all(&all[k], round);
        tell(side, "descriptors", (entries("/proc/self/fd") - descriptors) / count);
        tell(side, "kib", (resident_kib(0) - kib) / count);
        pair_hear(&pair, "end");
        for (int k = 0; k < count; k++)
            OK(mx_close_endpoint(all[k].ep));
        party_stop();
    }
}

static void await(struct child *const *all, int count, const char *word)
{
    for (int i = 0; i < count; i++)
        child_hear_within(all[i], word, PHASE_MS);
}

static void tell_all(struct child *const *all, int count, const char *word)
{
    for (int i = 0; i < count; i++)
        child_tell(all[i], word, 0);
}

/* Returns the largest of the numbers that the processes report. */
static int64_t most_of(struct child *const *all, const char *word)
{
    int64_t most = 0;

    for (int i = 0; i < processes(); i++) {
        int64_t value = child_hear_within(all[i], word, PHASE_MS);

        most = value > most ? value : most;
    }
    return most;
}

static void all_connect_to_all(struct world *world)
{
    struct child *all[RANKS], **last = &all[processes() - 1];

    for (int i = 0; i < processes(); i++) {
        all[i] = spawn(world, "process");
        child_tell(all[i], "first", i * together());
    }
    for (int round = 0; round < rounds(FEW); round++) {
        int64_t ids[RANKS], descriptors, kib;

        for (int i = 0; i < ranks(); i++)
            ids[i] = child_hear(all[i / together()], "id");
        for (int i = 0; i < processes(); i++)
            for (int k = 0; k < ranks(); k++)
                child_tell(all[i], "other", ids[k]);
        child_stop(*last);
        tell_all(all, processes(), "begin");
        await(all, processes() - 1, "some are missing");
        child_continue(*last);
        await(all, processes(), "connected");
        tell_all(all, processes(), "send");
        descriptors = most_of(all, "descriptors");
        kib = most_of(all, "kib");
        printf("    a rank of %d has %d descriptors and %d KiB at most\n", ranks(), (int)descriptors, (int)kib);
        CHECK_THAT(descriptors, <=, DESCRIPTORS);
        if (slower() == 1)
            CHECK_THAT(kib, <=, KIB);
        tell_all(all, processes(), "end");
    }
    for (int i = 0; i < processes(); i++)
        child_end(all[i]);
}

PARTY_TESTS(
    DIRECTED(all_ranks_connect_to_all_at_once, all_connect_to_all, {"process", process}))
