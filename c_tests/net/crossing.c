/*
 * Two servers and a client that see each other over two networks at once, and call each other at the same
 * time, each over another one (root).
 *
 *      north 10.0.0.0/24 ────┬───────────┬───────────┬────
 *                          .1│         .2│         .3│
 *                         server 0    server 1    client        0 calls 1 over north, 1 calls 0 over south;
 *                          .1│         .2│         .3│          the client calls both, over both
 *      south 10.1.0.0/24 ────┴───────────┴───────────┴────
 *
 * A process is one peer, whatever it is called and wherever it calls from: messages that servers send each
 * other come from addresses that were looked up, and the client is one address. Nothing is lost, and
 * messages keep their order. A round begins with new processes' lives.
 */
#include "../support/machines.h"
#include "../support/pair.h"

enum {
    ENDPOINT = 3,
    NETWORKS = 2,
    SERVERS = 2,
    HOSTS = SERVERS + 1,
    ROUNDS = 6,
    MESSAGES = 40, /* to one host, on both addresses together */
    TAG_NUMBER = 10,
    TAG_BACK = 11,
    BACK_BYTES = 1000 * 1000, /* more than goes at once */
};

/* An unexpected message: the `number`-th to this receiver, which was sent in a phase. */
struct numbered {
    int64_t sender, phase, network, number;
};

/* What one host knows of another. */
struct other {
    struct bmi_method_addr *called[NETWORKS];
    struct bmi_method_addr *from; /* its messages came from there */
    int64_t next[NETWORKS];       /* by the address that it was sent to, while hosts connect */
    int64_t in_order;             /* afterwards, whatever that address */
    int got;
};

static void look_up_both(struct other *other, int host)
{
    for (int network = 0; network < NETWORKS; network++) {
        char text[ADDRESS_SIZE];

        snprintf(text, sizeof text, "mx://10.%d.0.%d:0:%d", network, host + 1, ENDPOINT);
        other->called[network] = host_lookup(text);
        CHECK(other->called[network] != NULL);
    }
}

/* Posts the messages of a phase to one host, the first to the address on that network. */
static void send_numbered(struct other *other, struct op *sends, struct numbered *words, int self,
                          int phase, int first)
{
    for (int i = 0; i < MESSAGES; i++) {
        int network = (i + first) % NETWORKS;

        memset(&sends[i], 0, sizeof sends[i]);
        words[i] = (struct numbered){self, phase, network, i};
        CHECK_THAT(op_send_unexpected(&sends[i], other->called[network], &words[i], sizeof words[i],
                                      TAG_NUMBER), >=, 0);
    }
}

/* Takes one message, and checks its order and where it comes from. */
static void take(struct other *others, int phase, deadline_t deadline)
{
    struct arrival arrival;
    struct numbered words;
    struct other *other;

    if (!host_next_within(&arrival, deadline_left(deadline)))
        FAIL("messages are missing in phase %d: %d, %d and %d have come", phase, others[0].got,
             others[1].got, others[2].got);
    CHECK_THAT(arrival.tag, ==, TAG_NUMBER);
    CHECK_THAT(arrival.size, ==, sizeof words);
    memcpy(&words, arrival.buffer, sizeof words);
    arrival_free(&arrival);
    CHECK_THAT(words.phase, ==, phase);
    other = &others[words.sender];
    if (other->from == NULL)
        other->from = arrival.from;
    if (other->from != arrival.from)
        FAIL("host %d is two peers", (int)words.sender);
    if (phase == 0) {
        CHECK_THAT(words.number, >=, other->next[words.network]);
        other->next[words.network] = words.number + 1;
    } else {
        CHECK_THAT(words.number, ==, other->in_order);
        other->in_order++;
    }
    other->got++;
}

/* Each sends a large message to where the other's have come from, and takes one on any address that it has
 * looked up. */
static void answer_back(struct other *other, bool calls, int phase, deadline_t deadline)
{
    static char out[BACK_BYTES], in[BACK_BYTES];
    struct op send = {0}, receive = {0};

    memset(out, phase + 1, sizeof out);
    if (calls)
        CHECK_THAT(op_recv(&receive, other->called[phase % NETWORKS], in, sizeof in, TAG_BACK), >=, 0);
    if (other->from != NULL) {
        CHECK_THAT(op_send(&send, other->from, out, sizeof out, TAG_BACK), >=, 0);
        if (!op_wait_within(&send, deadline_left(deadline)) || send.error != 0)
            FAIL("no answer can be sent in phase %d", phase);
    }
    if (!calls)
        return;
    if (!op_wait_within(&receive, deadline_left(deadline)))
        FAIL("an answer does not come on the address that was looked up");
    op_received(&receive, sizeof in);
    CHECK(memcmp(in, out, sizeof in) == 0);
}

/* The others of a host, and its part in a phase. */
static void phase(struct other *others, int self, int phase)
{
    static struct op sends[SERVERS][MESSAGES];
    static struct numbered words[SERVERS][MESSAGES];
    bool serves = self < SERVERS;
    deadline_t deadline = deadline_in(WAIT_MS);

    for (int host = 0; host < SERVERS; host++)
        if (host != self)
            send_numbered(&others[host], sends[host], words[host], self, phase, self % NETWORKS);
    for (int host = 0; host < HOSTS; host++)
        others[host].got = 0;
    for (int left = serves ? (HOSTS - 1) * MESSAGES : 0; left > 0; left--)
        take(others, phase, deadline);
    for (int host = 0; host < SERVERS; host++)
        for (int i = 0; host != self && i < MESSAGES; i++)
            op_sent(&sends[host][i]);
    for (int host = 0; host < HOSTS; host++) {
        others[host].in_order = 0;
        if (host != self)
            answer_back(&others[host], host < SERVERS, phase, deadline);
    }
}

static void host(struct side *side)
{
    int self;

    become_machine(side);
    self = (int)hear(side, "self");
    while (hear(side, "begin") != 0) {
        struct other others[HOSTS] = {0};

        if (self < SERVERS) {
            CHECK_THAT(host_try_server(ENDPOINT), ==, 0);
            CHECK_THAT(ops->open_context(0), ==, 0);
        } else {
            host_start_client();
        }
        tell(side, "here", 0);
        hear(side, "all");
        for (int i = 0; i < SERVERS; i++)
            if (i != self)
                look_up_both(&others[i], i);
        for (int i = 0; i < 2; i++) {
            phase(others, self, i);
            tell(side, "done", 0);
            pair_hear(side, "all");
        }
        if (self < SERVERS) {
            struct other *server = &others[SERVERS - 1 - self];

            CHECK(server->from == server->called[0] || server->from == server->called[1]);
            CHECK_THAT(host_registered(), ==, 1);
        }
        host_stop();
    }
}

static void tell_all(struct child *const *hosts, const char *word, int64_t value)
{
    for (int i = 0; i < HOSTS; i++)
        child_tell(hosts[i], word, value);
}

static void hear_all(struct child *const *hosts, const char *word)
{
    for (int i = 0; i < HOSTS; i++)
        child_hear(hosts[i], word);
}

static void cross(struct world *world)
{
    struct child *hosts[HOSTS];

    machines_begin(NULL);
    for (int i = 0; i < HOSTS; i++) {
        char address[32];

        hosts[i] = machine(world, "host");
        for (int network = 0; network < NETWORKS; network++) {
            snprintf(address, sizeof address, "10.%d.0.%d/24", network, i + 1);
            plug(hosts[i], network == 0 ? "eth0" : "eth1", network == 0 ? "north" : "south", address);
        }
        machine_on(hosts[i]);
        child_tell(hosts[i], "self", i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        tell_all(hosts, "begin", 1);
        hear_all(hosts, "here");
        tell_all(hosts, "all", 0);
        for (int i = 0; i < 2; i++) {
            hear_all(hosts, "done");
            tell_all(hosts, "all", 0);
        }
    }
    tell_all(hosts, "begin", 0);
    for (int i = 0; i < HOSTS; i++)
        child_end(hosts[i]);
}

TESTS(
    DIRECTED(servers_that_call_each_other_over_two_networks_are_one_peer_each, cross, {"host", host}))
