/*
 * Two servers and a client that see each other over two networks at once, and call each other at the same time
 * over different networks (root).
 *
 *      north 10.0.0.0/24 ────┬───────────┬───────────┬────
 *                          .1│         .2│         .3│
 *                         server 0    server 1    client        0 calls 1 over north, 1 calls 0 over south;
 *                          .1│         .2│         .3│          the client calls both, over both
 *      south 10.1.0.0/24 ────┴───────────┴───────────┴────
 *
 * Each address that is called is a session, and a peer of its own to the called host, which answers on it. No
 * message is lost or comes twice, and messages of a session keep their order. Each round begins with new lives of
 * all processes.
 */
#include "../support/machines.h"
#include "../support/pair.h"

enum {
    ENDPOINT = 3,
    NETWORKS = 2,
    SERVERS = 2,
    HOSTS = SERVERS + 1,
    ROUNDS = 6,
    MESSAGES = 20, /* to each address of a host */
    TAG_NUMBER = 10,
    TAG_BACK = 11,
    BACK_BYTES = 1000 * 1000, /* more than any port sends eagerly */
};

/* An unexpected message: the `number`-th on this session, sent in this phase. */
struct numbered {
    int64_t sender, phase, network, number;
};

/* State of one host towards another. */
struct other {
    struct bmi_method_addr *called[NETWORKS];
    struct bmi_method_addr *callers[NETWORKS]; /* sources of the messages that the other host sends over that network */
    int64_t next[NETWORKS];
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

/* Posts the messages of a phase to one host, the first to its address on network `first`. */
static void send_numbered(struct other *other, struct op *sends, struct numbered *words, int self,
                          int phase, int first)
{
    for (int i = 0; i < NETWORKS * MESSAGES; i++) {
        int network = (i + first) % NETWORKS;

        memset(&sends[i], 0, sizeof sends[i]);
        words[i] = (struct numbered){self, phase, network, i / NETWORKS};
        CHECK_THAT(op_send_unexpected(&sends[i], other->called[network], &words[i], sizeof words[i],
                                      TAG_NUMBER), >=, 0);
    }
}

/* Returns whether an address belongs to another host or another session. */
static bool is_of_another(const struct other *others, const struct numbered *words,
                          const struct bmi_method_addr *address)
{
    for (int host = 0; host < HOSTS; host++)
        for (int network = 0; network < NETWORKS; network++)
            if (address == others[host].called[network] ||
                (address == others[host].callers[network] && (host != words->sender || network != words->network)))
                return true;
    return false;
}

/* Takes one message, and checks its order and its source. */
static void take(struct other *others, int phase, deadline_t deadline)
{
    struct arrival arrival;
    struct numbered words;
    struct other *other;

    if (!host_next_within(&arrival, deadline_left(deadline)))
        FAIL("messages are missing in phase %d", phase);
    CHECK_THAT(arrival.tag, ==, TAG_NUMBER);
    CHECK_THAT(arrival.size, ==, sizeof words);
    memcpy(&words, arrival.buffer, sizeof words);
    arrival_free(&arrival);
    CHECK_THAT(words.phase, ==, phase);
    other = &others[words.sender];
    if (is_of_another(others, &words, arrival.from))
        FAIL("a message of host %d over network %d comes from another address", (int)words.sender, (int)words.network);
    if (other->callers[words.network] == NULL)
        other->callers[words.network] = arrival.from;
    if (other->callers[words.network] != arrival.from)
        FAIL("a session of host %d is two peers", (int)words.sender);
    CHECK_THAT(words.number, ==, other->next[words.network]);
    other->next[words.network]++;
}

/* Sends a large message on each session on which this host was called, and receives one on each that it has
 * called. */
static void answer_back(struct other *other, bool calls, int phase, deadline_t deadline)
{
    static char out[NETWORKS][BACK_BYTES], in[NETWORKS][BACK_BYTES];
    struct op send[NETWORKS] = {{0}}, receive[NETWORKS] = {{0}};

    for (int network = 0; network < NETWORKS; network++) {
        memset(out[network], phase * NETWORKS + network + 1, BACK_BYTES);
        memset(in[network], 0, BACK_BYTES);
        if (calls)
            CHECK_THAT(op_recv(&receive[network], other->called[network], in[network], BACK_BYTES, TAG_BACK), >=, 0);
        if (other->callers[network] != NULL)
            CHECK_THAT(op_send(&send[network], other->callers[network], out[network], BACK_BYTES, TAG_BACK), >=, 0);
    }
    for (int network = 0; network < NETWORKS; network++) {
        if (other->callers[network] != NULL &&
            (!op_wait_within(&send[network], deadline_left(deadline)) || send[network].error != 0))
            FAIL("no answer can be sent in phase %d", phase);
        if (!calls)
            continue;
        if (!op_wait_within(&receive[network], deadline_left(deadline)))
            FAIL("an answer does not come on the address that was looked up");
        op_received(&receive[network], BACK_BYTES);
        CHECK(memcmp(in[network], out[network], BACK_BYTES) == 0);
    }
}

/* Runs one host's part in a phase. */
static void phase(struct other *others, int self, int phase)
{
    static struct op sends[SERVERS][NETWORKS * MESSAGES];
    static struct numbered words[SERVERS][NETWORKS * MESSAGES];
    bool serves = self < SERVERS;
    deadline_t deadline = deadline_in(WAIT_MS);

    for (int host = 0; host < SERVERS; host++)
        if (host != self)
            send_numbered(&others[host], sends[host], words[host], self, phase, self % NETWORKS);
    for (int host = 0; host < HOSTS; host++)
        memset(others[host].next, 0, sizeof others[host].next);
    for (int left = serves ? (HOSTS - 1) * NETWORKS * MESSAGES : 0; left > 0; left--)
        take(others, phase, deadline);
    for (int host = 0; host < SERVERS; host++)
        for (int i = 0; host != self && i < NETWORKS * MESSAGES; i++)
            op_sent(&sends[host][i]);
    for (int host = 0; host < HOSTS; host++) {
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
        CHECK(!host_waiting());
        CHECK_THAT(host_registered(), ==, self < SERVERS ? (HOSTS - 1) * NETWORKS : 0);
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
    DIRECTED(calls_over_two_networks_cross_and_each_is_a_session, cross, {"host", host}))
