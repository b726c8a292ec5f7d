/*
 * The host drops addresses: BMI_DROP_ADDR, BMI_DROP_ADDR_QUERY and the forget callback.
 *
 *     a client dies ──► forget callback, once, with its name
 *                       BMI_DROP_ADDR_QUERY answers 1 as soon as no message of it waits
 *     host drops    ──► address, id and memory are free; waiting messages are thrown away
 *     it comes again ─► as a new peer
 *
 * See lifecycle.c for names of one peer that are dropped one by one, and calls.c for callers that come again.
 */
#include "../support/log.h"
#include "../support/pair.h"

#include <malloc.h>
#include <stdatomic.h>

enum { OLD_LARGE = 2 * 1024 * 1024, TAG_SMALL = 1, TAG_LARGE, TAG_LIST, TAG_MARKER, TAG_LAST };

/* ---- dropping a peer discards the messages that it sent ---- */

static void drops_sender(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char room[OLD_LARGE];
    struct op marker = {0};

    /* Sent last: all other messages have arrived, and none has been received. */
    CHECK_THAT(op_recv(&marker, client, NULL, 0, TAG_MARKER), >=, 0);
    UNTIL (op_done(&marker)) /* unlike op_wait, without taking unexpected messages */
        host_testcontext(16, 0, 5);
    CHECK_THAT(marker.error, ==, 0);
    host_drop(client);
    for (int i = 0; i < 10; i++) {
        CHECK_THAT(host_testunexpected(16, 0), ==, 0);
        CHECK_THAT(host_testcontext(16, 0, 1), ==, 0);
    }
    tell(side, "dropped", 0);
    client = pair_accept(); /* no message comes before it */
    for (int tag = TAG_SMALL; tag <= TAG_LIST; tag++) {
        struct op receive = {0};

        CHECK_THAT(op_recv(&receive, client, room, sizeof room, tag), >=, 0);
        op_received(&receive, 1000 + tag);
        check_filled(room, 1000 + (size_t)tag, (uint64_t)tag);
    }
    /* The unexpected messages from before never come. */
    take_pattern(4, TAG_LAST, 0);
    pair_part(side);
}

static void is_dropped(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    struct op small = {0}, large = {0}, list = {0}, marker = {0}, unexpected[3] = {{0}};
    char *old = fenced(OLD_LARGE), fresh[4];
    struct cut cut = cut_up(old, OLD_LARGE, 7000, 10, 0);

    CHECK_THAT(op_send(&small, server, old, 500, TAG_SMALL), >=, 0);
    CHECK_THAT(op_send(&large, server, old, OLD_LARGE, TAG_LARGE), ==, 0);
    CHECK_THAT(op_send_cut(&list, server, &cut, TAG_LIST), ==, 0);
    CHECK_THAT(op_send_unexpected(&unexpected[0], server, "old", 4, TAG_LAST), >=, 0);
    CHECK_THAT(op_send_unexpected(&unexpected[1], server, old, OLD_LARGE, TAG_LAST), >=, 0);
    CHECK_THAT(op_send_unexpected(&unexpected[2], server, NULL, 0, TAG_LAST), >=, 0);
    CHECK_THAT(op_send(&marker, server, NULL, 0, TAG_MARKER), >=, 0);
    cut_free(&cut);
    pair_hear(side, "dropped");
    op_sent(&small);
    op_failed(&large, BMI_ENETRESET);
    op_failed(&list, BMI_ENETRESET);
    op_sent(&marker);
    for (int i = 0; i < 3; i++) {
        op_wait(&unexpected[i]); /* it had arrived, or was on its way */
        CHECK(unexpected[i].error == 0 || unexpected[i].error == -BMI_ENETRESET);
    }
    fenced_free(old);
    pair_hello(server);
    for (int tag = TAG_SMALL; tag <= TAG_LIST; tag++)
        send_pattern(server, 1000 + tag, tag, (uint64_t)tag);
    fill(fresh, sizeof fresh, 0);
    send_request(server, fresh, sizeof fresh, TAG_LAST);
    pair_part(side);
}

/* ---- the forget callback, and the query ---- */

enum { GUESTS = 4 };

/* Waits until an unexpected message has arrived, without taking it. */
static void await_message(void)
{
    struct bmi_mx_credits credits = {.size = sizeof credits};

    UNTIL (credits.ready > 0) {
        host_testcontext(16, 0, 2);
        CHECK_THAT(ops->get_info(BMI_MX_GET_CREDITS, &credits), ==, 0);
    }
}

/* A host with four guests: one is killed, one finalizes, one is killed while its message waits, one lives on. */
static void host_of_guests(struct side *side)
{
    struct bmi_method_addr *guest[GUESTS];
    struct op receive = {0};
    char room[8];

    pair_serve(side);
    for (int i = 0; i < GUESTS; i++) {
        guest[i] = pair_accept();
        tell(side, "seated", i);
    }
    for (int i = 0; i < GUESTS; i++) {
        CHECK(!host_may_drop(guest[i]));
        CHECK_THAT(host_forgotten_of(guest[i]), ==, 0);
    }
    CHECK_THAT(op_recv(&receive, guest[0], room, sizeof room, 5), ==, 0);
    tell(side, "ready", 0);
    pair_hear(side, "gone"); /* the first two */
    pair_hears_death(guest[0]);
    pair_hears_death(guest[1]);
    op_failed(&receive, BMI_ENETRESET);
    CHECK(host_may_drop(guest[0]) && host_may_drop(guest[1]));
    CHECK(!host_may_drop(guest[2]) && !host_may_drop(guest[3]));

    /* The third guest sends a message, and dies before the server takes it. */
    tell(side, "say it", 0);
    await_message();
    tell(side, "it is here", 0);
    hear(side, "dead");
    pair_hears_death(guest[2]);
    CHECK(!host_may_drop(guest[2]));
    CHECK(host_take(7) == guest[2]);
    CHECK(host_may_drop(guest[2]));

    /* The callback is called once for each dead guest, however long the host keeps it. */
    for (int i = 0; i < 20; i++)
        host_pump(1);
    CHECK_THAT(host_forgotten_of(guest[3]), ==, 0);
    CHECK(!host_may_drop(guest[3]));
    for (int i = 0; i < 3; i++)
        pair_is_dead(guest[i]);
    for (int i = 0; i < 3; i++)
        host_drop(guest[i]);
    CHECK_THAT(host_addresses(), ==, 1);
    tell(side, "dropped", 0);
    pair_hear(side, "bye");
    host_stop();
}

static void guest(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    pair_idle(side);
    if (hear(side, "now") != 0) {
        send_request(server, "I was here", 11, 7);
        pair_hear(side, "now");
    }
    host_stop();
}

static void sees_guests_off(struct world *world)
{
    struct child *server = spawn(world, "server"), *guests[GUESTS];
    int64_t endpoint = child_hear(server, "endpoint");

    for (int i = 0; i < GUESTS; i++) {
        guests[i] = spawn(world, "guest");
        child_tell(guests[i], "endpoint", endpoint);
        child_hear(server, "seated");
    }
    child_hear(server, "ready");
    child_kill(guests[0]);
    child_tell(guests[1], "now", 0);
    child_end(guests[1]);
    child_tell(server, "gone", 0);
    child_hear(server, "say it");
    child_tell(guests[2], "now", 1);
    child_hear(server, "it is here");
    child_kill(guests[2]);
    child_tell(server, "dead", 0);
    child_hear(server, "dropped");
    child_tell(guests[3], "now", 0);
    child_end(guests[3]);
    child_tell(server, "bye", 0);
    child_end(server);
}

/* ---- a caller dies before the host has heard of it ---- */

static void meets_dead(struct side *side)
{
    struct bmi_method_addr *caller;

    pair_serve(side);
    await_message();
    tell(side, "it is here", 0);
    hear(side, "dead");
    for (int i = 0; i < 20; i++)
        host_testcontext(16, 0, 2);
    CHECK_THAT(host_registered(), ==, 0);
    caller = host_take(7);
    pair_hears_death(caller);
    pair_is_dead(caller);
    host_drop(caller);
    host_stop();
}

static void dies_unknown(struct side *side)
{
    send_request(pair_join(side), "I was here", 11, 7);
    pair_await_death();
}

static void kills_unknown(struct world *world)
{
    struct child *server = spawn(world, "server"), *caller = spawn(world, "caller");

    child_tell(caller, "endpoint", child_hear(server, "endpoint"));
    child_hear(server, "it is here");
    child_kill(caller);
    child_tell(server, "dead", 0);
    child_end(server);
}

/* An id is not reused before 1024 others were given out, and some are in use. */

enum { STREAMS = 4, CLIENTS = 2000, CLIENTS_RDM = 96, SETTLED = 1200, SETTLED_RDM = 12, LAST = 12 };
/* Ids rest before they are given out again: 1024 of them, and some are in use. */
enum { IDS = 1024 + 4 * STREAMS };

static int clients(void)
{
    return (port_uses_libfabric() ? CLIENTS_RDM : CLIENTS) / (slower() > 1 ? 5 : 1);
}

static int settled(void)
{
    return port_uses_libfabric() ? SETTLED_RDM : SETTLED;
}

static atomic_int last_id;

static void listen_for_ids(int level, const char *line)
{
    const char *at = strstr(line, "(id ");
    int id;

    if (at != NULL && strstr(line, "known to the host") != NULL && sscanf(at, "(id %d)", &id) == 1)
        atomic_store(&last_id, id);
}

/* Clients that have come and those that have gone; the host drops them as OrangeFS does. */
struct crowd {
    struct bmi_method_addr *here[2 * STREAMS];
    int count, gone;
};

static void serve_crowd(struct crowd *crowd)
{
    if (crowd->count - crowd->gone < 2 * STREAMS && host_waiting()) {
        struct bmi_method_addr *guest = pair_accept();

        /* A client is a new peer even if its endpoint's last one has not been dropped yet. */
        for (int i = 0; i < crowd->count - crowd->gone; i++)
            CHECK(crowd->here[i] != guest);
        crowd->here[crowd->count++ - crowd->gone] = guest;
    }
    for (int i = 0; i < crowd->count - crowd->gone; i++) {
        if (host_release(crowd->here[i])) {
            crowd->gone++;
            crowd->here[i--] = crowd->here[crowd->count - crowd->gone];
        }
    }
    host_pump(1);
}

static void forgets_thousands(struct side *side)
{
    struct crowd crowd = {.count = 0};
    size_t before = 0, after = SIZE_MAX;
    deadline_t deadline;

    /* The environment may ask for less. */
    CHECK(setenv("BMI_MX_LOG", "info", 1) == 0);
    host_load();
    log_by(listen_for_ids);
    tell(side, "endpoint", host_start_server());
    /* A busy machine serves fewer clients within the time. */
    for (deadline = deadline_in(WAIT_MS); crowd.gone < clients() && !deadline_over(deadline);) {
        size_t used = mallinfo2().uordblks;

        serve_crowd(&crowd);
        /* Connected clients take memory too (19 kB each in libfabric), and their number varies: the comparison
         * takes the most of the first part and the least of the last. */
        if (crowd.gone < settled())
            before = used > before ? used : before;
        else if (crowd.gone > clients() - LAST)
            after = used < after ? used : after;
    }
    /* The small host keeps a record of each address, to notice one that is registered again. */
    if (after < SIZE_MAX && slower() == 1)
        CHECK_THAT(after, <, before + (size_t)(crowd.gone - settled()) * 96 + 65536);
    /* The log is limited to 100 lines a second: serves more clients until the line with an id comes. */
    atomic_store(&last_id, 0);
    for (deadline = deadline_in(WAIT_MS); atomic_load(&last_id) == 0;) {
        CHECK(!deadline_over(deadline));
        serve_crowd(&crowd);
    }
    tell(side, "enough", 0);
    for (deadline = deadline_in(2 * WAIT_MS); !heard_anything(side) || host_waiting() ||
                                                  crowd.gone < crowd.count;) {
        CHECK(!deadline_over(deadline));
        serve_crowd(&crowd);
    }
    hear(side, "over");
    printf("%d clients over %s: one of the last has id %d; %zu bytes in use at most for %d, "
           "%zu at least for the last %d\n",
           crowd.count, port_name(), atomic_load(&last_id), before, settled(), after, LAST);
    fflush(stdout);
    CHECK_THAT(host_addresses(), ==, 0);
    CHECK_THAT(atomic_load(&last_id), <=, IDS);
    host_stop();
    log_by(NULL);
}

static void come_and_go(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");

    while (!heard_anything(side)) {
        host_start_client();
        pair_hello(host_lookup_endpoint(endpoint));
        host_stop();
    }
}

static void thousands(struct world *world)
{
    struct child *server = spawn(world, "server"), *streams[STREAMS];
    int64_t endpoint = child_hear(server, "endpoint");

    for (int i = 0; i < STREAMS; i++) {
        streams[i] = spawn(world, "clients");
        child_tell(streams[i], "endpoint", endpoint);
    }
    child_hear(server, "enough");
    for (int i = 0; i < STREAMS; i++)
        child_tell(streams[i], "enough", 0);
    for (int i = 0; i < STREAMS; i++)
        child_end(streams[i]);
    child_tell(server, "over", 0);
    child_end(server);
}

static const struct scenario scenarios[] = {
    PAIR(what_a_dropped_peer_had_sent_is_thrown_away, drops_sender, is_dropped),
    DIRECTED(the_host_hears_once_of_each_death_and_may_drop_then, sees_guests_off,
             {"server", host_of_guests}, {"guest", guest}),
    DIRECTED(a_caller_that_died_before_it_was_known_is_told_once, kills_unknown, {"server", meets_dead},
             {"caller", dies_unknown}),
    DIRECTED(thousands_of_clients_come_and_go_and_leave_nothing_behind, thousands,
             {"server", forgets_thousands}, {"clients", come_and_go}),
    {0},
};

int main(int argc, char **argv)
{
    port_notices_deaths_soon();
    setenv("MALLOC_ARENA_MAX", "1", 1); /* mallinfo2 knows the main arena only */
    return harness_main(argc, argv, scenarios);
}
