/*
 * The network is cut and restored: client and server on hosts of their own (make check-net, root).
 *
 *      hub, the director's namespace              what a cut is
 *      ┌────────── bridge ──────────┐
 *      │ port0                port1 │             pulled:  the hub's end goes down, and with it the
 *      └───┼────────────────────┼───┘                      carrier of the side's
 *       side0                 side0               silent:  the port is taken off the bridge; every
 *       client's namespace    server's                     link stays up, every packet is lost
 *
 * The figures printed are from the cut until the last operation had ended. The limit is the configured time and
 * 100 ms.
 */
#include "../support/net.h"
#include "../support/pair.h"

#define MIB (1024 * 1024)

enum {
    TIMEOUT_MS = 1000,
    TCP_TIMEOUT_MS = 2000, /* the kernel counts in seconds, and needs two */
    PATIENT_MS = 5000,
    MORE_MS = 100, /* limit beyond the configured time */
    HOSTS = 2,
    FEW = 3,
    TAG_LOST = 100,
    TAG_OFFER = 200,
};

enum pull { SILENT, PULLED, CUTS };
static const char *const cuts[CUTS] = {"silent", "pulled"};

/* Another variant: a pull while one side only receives. */
enum { IDLE = CUTS };

/* ---- sides ---- */

struct load {
    struct op lost[FEW], offer[FEW];
    char room[FEW][1000];
};

static void load_post(struct load *load, struct bmi_method_addr *peer, const char *big, bool sends)
{
    memset(load, 0, sizeof *load);
    for (int i = 0; i < FEW; i++) {
        CHECK_THAT(op_recv(&load->lost[i], peer, load->room[i], 1000, TAG_LOST + i), ==, 0);
        if (sends)
            CHECK_THAT(op_send(&load->offer[i], peer, big, MIB, TAG_OFFER + i), ==, 0);
    }
}

/* Waits for the operations to time out; returns when the last one had ended. */
static int64_t load_times_out(struct load *load, bool sends)
{
    int64_t end;

    for (int i = 0; i < FEW; i++) {
        op_wait(&load->lost[i]);
        if (sends)
            op_wait(&load->offer[i]);
    }
    end = now_ms();
    for (int i = 0; i < FEW; i++) {
        CHECK_THAT(load->lost[i].error, ==, -BMI_ETIMEDOUT);
        if (sends)
            CHECK_THAT(load->offer[i].error, ==, -BMI_ETIMEDOUT);
    }
    return end;
}

/* Repeats a hello until it is answered. */
static void greet(struct bmi_method_addr *server)
{
    int64_t out = 1, in;

    UNTIL_WITHIN (2 * WAIT_MS, try_ask(server, &out, &in, sizeof in, 1))
        host_pump(5);
}

/* Serves: has operations with the client, too, and answers every greeting. */
static void server(struct side *side)
{
    static struct load load;
    struct bmi_method_addr *client = NULL;
    bool sends = side->variant < CUTS, loaded = false;
    char *big = calloc(1, MIB);

    become_host(side);
    CHECK(big != NULL);
    tell(side, "endpoint", host_start_server());
    for (;;) {
        struct arrival arrival;

        if (heard_anything(side)) {
            if (!loaded)
                break;
            hear(side, "cut");
            tell(side, "ended", load_times_out(&load, sends));
            loaded = false;
        }
        if (!host_next_within(&arrival, 5))
            continue;
        {
            struct op reply = {0};

            op_send(&reply, arrival.from, arrival.buffer, arrival.size, arrival.tag);
            op_code(&reply);
        }
        arrival_free(&arrival);
        if (client == NULL) {
            client = arrival.from;
            load_post(&load, client, big, sends);
            loaded = true;
            tell(side, "loaded", 0);
        }
    }
    hear(side, "end");
    free(big);
    host_stop();
}

static void client(struct side *side)
{
    static struct load load, after;
    struct bmi_method_addr *server;
    bool sends = side->variant < CUTS;
    char *big = calloc(1, MIB);
    int64_t begin, end;

    become_host(side);
    CHECK(big != NULL);
    server = net_join(side, 1);
    greet(server);
    load_post(&load, server, big, sends);
    tell(side, "loaded", 0);
    pair_hear(side, "cut");
    if (sends)
        load_post(&after, server, big, true);
    end = load_times_out(&load, sends);
    if (sends)
        end = load_times_out(&after, true);
    tell(side, "ended", end);
    pair_hear(side, "healed");
    begin = now_ms();
    greet(server);
    tell(side, "greeted", now_ms() - begin);
    pair_hear(side, "end");
    free(big);
    host_stop();
}

/* ---- the hub ---- */

static void cut(enum pull how)
{
    run(how == SILENT ? "ip link set port1 nomaster" : "ip link set port1 down");
}

static void heal(enum pull how)
{
    run(how == SILENT ? "ip link set port1 master hub" : "ip link set port1 up");
}

static void start_both(struct world *world, struct child *sides[HOSTS])
{
    sides[0] = spawn(world, "client");
    sides[1] = spawn(world, "server");
    for (int i = 0; i < HOSTS; i++) {
        plug_in(sides[i], i);
    }
    child_tell(sides[0], "endpoint", child_hear(sides[1], "endpoint"));
    for (int i = 0; i < HOSTS; i++)
        child_hear(sides[i], "loaded");
}

static void cut_and_heal(struct world *world, enum pull how, bool sends, const char *who,
                         int timeout_ms)
{
    struct child *sides[HOSTS];
    int64_t begin, took[HOSTS];

    make_hub();
    start_both(world, sides);
    pause_ms(300); /* until no packet is on its way */
    begin = now_ms();
    cut(how);
    for (int i = 0; i < HOSTS; i++)
        child_tell(sides[i], "cut", 0);
    for (int i = 0; i < HOSTS; i++)
        took[i] = child_hear(sides[i], "ended") - begin;
    heal(how);
    child_tell(sides[0], "healed", 0);
    printf("    %s, %s, cut %s, %s: client %d ms, server %d ms of %d; after healing %d ms\n",
           port_name(), who, cuts[how], sends ? "with sends" : "receives only", (int)took[0],
           (int)took[1], timeout_ms, (int)child_hear(sides[0], "greeted"));
    fflush(stdout);
    for (int i = 0; i < HOSTS; i++)
        CHECK_THAT(took[i], <=, (timeout_ms + MORE_MS) * slower());
    child_tell(sides[0], "end", 0);
    child_end(sides[0]);
    child_tell(sides[1], "end", 0);
    child_end(sides[1]);
}

/* ---- detection of the cut ---- */

static void watched(struct world *world)
{
    set_ms("BMI_MX_PEER_TIMEOUT_MS", TIMEOUT_MS);
    cut_and_heal(world, (enum pull)variant_of(world), true, "peer watch", TIMEOUT_MS);
    unsetenv("BMI_MX_PEER_TIMEOUT_MS");
}

/* Silence after which a port gives a peer up. */
static const char *keepalive(void)
{
    if (port_is("rdm"))
        return "MX_RDM_KEEPALIVE_MS";
    return port_is("dgram") ? "MX_DGRAM_GIVE_UP_MS" : "MX_TCP_KEEPALIVE_MS";
}

/* The transport's own keep-alive: the kernel's for TCP, otherwise the port's. */
static void kept_alive(struct world *world)
{
    enum pull how = (enum pull)(variant_of(world) % CUTS);
    bool sends = variant_of(world) < CUTS;
    int timeout_ms = port_is("tcp") ? TCP_TIMEOUT_MS : TIMEOUT_MS;

    set_ms("BMI_MX_PEER_TIMEOUT_MS", 0);
    set_ms(keepalive(), timeout_ms);
    cut_and_heal(world, how, sends, "keep-alive", timeout_ms);
    unsetenv("BMI_MX_PEER_TIMEOUT_MS");
    unsetenv(keepalive());
}

/* ---- a cut shorter than the time-outs ---- */

enum { ROUND_SIZES = 4 };
static const bmi_size_t sizes[ROUND_SIZES] = {16, 4000, 300000, 2 * MIB};

/* Exchanges messages both ways in rounds, until the client, which is told so, marks the last round in a message. */
static void talk(struct side *side, struct bmi_method_addr *peer, bool leads)
{
    char *in[ROUND_SIZES], *out[ROUND_SIZES];
    int64_t words[2] = {0, 0};

    for (int i = 0; i < ROUND_SIZES; i++) {
        in[i] = fenced((size_t)sizes[i]);
        out[i] = fenced((size_t)sizes[i]);
    }
    for (int64_t round = 0; words[0] == 0; round++) {
        struct op receive[ROUND_SIZES] = {{0}}, send[ROUND_SIZES] = {{0}};
        int64_t last = leads && heard_anything(side);

        words[0] = last;
        words[1] = round;
        memcpy(out[0], words, sizeof words);
        for (int i = 1; i < ROUND_SIZES; i++)
            fill(out[i], (size_t)sizes[i], (uint64_t)(round * ROUND_SIZES + i));
        for (int i = 0; i < ROUND_SIZES; i++) {
            CHECK_THAT(op_recv(&receive[i], peer, in[i], sizes[i], i), >=, 0);
            CHECK_THAT(op_send(&send[i], peer, out[i], sizes[i], i), >=, 0);
        }
        for (int i = 0; i < ROUND_SIZES; i++) {
            op_sent(&send[i]);
            op_received(&receive[i], sizes[i]);
            if (i > 0)
                check_filled(in[i], (size_t)sizes[i], (uint64_t)(round * ROUND_SIZES + i));
        }
        memcpy(words, in[0], sizeof words);
        CHECK_THAT(words[1], ==, round);
        words[0] |= last;
        if (round == 3)
            tell(side, "talking", 0);
    }
    for (int i = 0; i < ROUND_SIZES; i++) {
        fenced_free(in[i]);
        fenced_free(out[i]);
    }
    pair_hear(side, "enough");
    tell(side, "done", 0);
    pair_hear(side, "end");
    host_stop();
}

static void talking_server(struct side *side)
{
    become_host(side);
    tell(side, "endpoint", host_start_server());
    talk(side, pair_accept(), false);
}

static void talking_client(struct side *side)
{
    struct bmi_method_addr *server;

    become_host(side);
    server = net_join(side, 1);
    pair_hello(server);
    talk(side, server, true);
}

static void cuts_briefly(struct world *world)
{
    struct child *sides[HOSTS];

    make_hub();
    set_ms("BMI_MX_PEER_TIMEOUT_MS", PATIENT_MS);
    set_ms(keepalive(), PATIENT_MS);
    sides[0] = spawn(world, "client");
    sides[1] = spawn(world, "server");
    unsetenv("BMI_MX_PEER_TIMEOUT_MS");
    unsetenv(keepalive());
    for (int i = 0; i < HOSTS; i++)
        plug_in(sides[i], i);
    child_tell(sides[0], "endpoint", child_hear(sides[1], "endpoint"));
    for (int i = 0; i < HOSTS; i++)
        child_hear(sides[i], "talking");
    for (int i = 0; i < 2 * CUTS; i++) {
        cut((enum pull)(i % CUTS));
        pause_ms(250);
        heal((enum pull)(i % CUTS));
        pause_ms(1000); /* TCP retransmits after twice the time of the cut */
    }
    child_tell(sides[0], "enough", 0);
    child_hear(sides[0], "done");
    child_tell(sides[1], "enough", 0);
    child_hear(sides[1], "done");
    for (int i = 0; i < HOSTS; i++) {
        child_tell(sides[i], "end", 0);
        child_end(sides[i]);
    }
}

#define HOSTS_OF(server, client) {"server", server}, {"client", client}

TESTS(
    DIRECTED_OF(a_silent_cut_is_noticed_by_the_peer_watch_and_heals, SILENT, watched,
                HOSTS_OF(server, client)),
    DIRECTED_OF(a_pulled_cable_is_noticed_by_the_peer_watch_and_heals, PULLED, watched,
                HOSTS_OF(server, client)),
    DIRECTED_OF(keep_alive_notices_a_silent_cut_while_idle, IDLE + SILENT, kept_alive,
                HOSTS_OF(server, client)),
    DIRECTED_OF(keep_alive_notices_a_silent_cut_while_sending, SILENT, kept_alive,
                HOSTS_OF(server, client)),
    DIRECTED_OF(a_pulled_cable_is_noticed_by_keep_alive, PULLED, kept_alive,
                HOSTS_OF(server, client)),
    DIRECTED(a_cut_shorter_than_the_time_outs_loses_nothing, cuts_briefly,
             HOSTS_OF(talking_server, talking_client)))
