/*
 * The faults of the C method in docs/hosts.md, "hangs and lost wake-ups" (6 to 11): a test for
 * each, named after it. See faults_results.c.
 */
#include "../support/pair.h"
#include "../support/port.h"
#include "../support/pattern.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

static atomic_bool stop;

/* ---- 6: cancelling a completed operation locks nothing up ---- */

static void fault_6_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    for (int i = 0; i < 50; i++) {
        struct op receive = {0}, send = {0};
        char buffer[64];

        CHECK_THAT(op_recv(&receive, server, buffer, 64, 1), ==, 0);
        CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
        CHECK_THAT(ops->cancel(receive.id, 0), ==, 0); /* complete, not reported */
        op_failed(&receive, BMI_ECANCEL);
        (void)ops->cancel(receive.id, 0); /* reported */
        CHECK_THAT(op_send_unexpected(&send, server, "x", 1, 1), >=, 0);
        op_sent(&send);
    }
    pair_part(side);
}

static void fault_6_server(struct side *side)
{
    pair_server(side);
    for (int i = 0; i < 50; i++) {
        struct arrival arrival = host_next();

        arrival_free(&arrival);
    }
    pair_part(side);
}

/* ---- 7: posts that race with a peer's death complete all the same ---- */

enum { SEVEN_THREADS = 4, SEVEN_MAX = 5000 };
static struct bmi_method_addr *doomed;

static atomic_int under_way; /* posted while the server was certainly alive */

struct seven {
    struct op ops[SEVEN_MAX];
    int count;
};

static void *post_until_stopped(void *argument)
{
    struct seven *mine = argument;
    static char room[64];
    const struct timespec pause = {.tv_nsec = 200 * 1000};

    while (!atomic_load(&stop) && mine->count < SEVEN_MAX) {
        if (op_recv(&mine->ops[mine->count++], doomed, room, sizeof room, 1) >= 0)
            atomic_fetch_add(&under_way, 1);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void fault_7_client(struct side *side)
{
    static struct seven posts[SEVEN_THREADS];
    pthread_t threads[SEVEN_THREADS];
    int64_t seen_down = 0;
    deadline_t until;

    host_start_client();
    doomed = host_lookup_endpoint((int)hear(side, "endpoint"));
    pair_hello(doomed);
    ops_on_many_threads = true;
    for (int i = 0; i < SEVEN_THREADS; i++)
        CHECK_THAT(pthread_create(&threads[i], NULL, post_until_stopped, &posts[i]), ==, 0);
    until = deadline_in(WAIT_MS);
    while (atomic_load(&under_way) < 3 * SEVEN_THREADS) {
        CHECK(!deadline_over(until));
        host_pump(1);
    }
    tell(side, "posting", 0);
    pair_hear(side, "it is dead");
    until = deadline_in(300); /* posts go on across the disconnect */
    while (!deadline_over(until))
        host_pump(1);
    atomic_store(&stop, true);
    for (int i = 0; i < SEVEN_THREADS; i++)
        CHECK_THAT(pthread_join(threads[i], NULL), ==, 0);
    for (int i = 0; i < SEVEN_THREADS; i++) {
        for (int k = 0; k < posts[i].count; k++) {
            struct op *op = &posts[i].ops[k];

            if (op->posted < 0)
                continue;
            /* Posted to a peer that does not answer any more: fails by itself or is waiting
             * for a new connection; in no case is it lost. */
            if (!op_done(op) && !op_wait_within(op, 3000)) {
                CHECK_THAT(ops->cancel(op->id, 0), ==, 0);
                op_wait(op);
            }
            CHECK_THAT(op->error, <, 0);
            seen_down++;
        }
    }
    CHECK_THAT(seen_down, >, 0);
    host_stop();
}

static void fault_7_server(struct side *side)
{
    tell(side, "endpoint", host_start_server());
    pair_accept();
    tell(side, "accepted", 0);
    for (deadline_t deadline = deadline_in(3 * WAIT_MS); !deadline_over(deadline);)
        host_pump(1);
}

static void fault_7(struct world *world)
{
    struct child *server = spawn(world, "server"), *client = spawn(world, "client");

    child_tell(client, "endpoint", child_hear(server, "endpoint"));
    child_hear(server, "accepted");
    child_hear(client, "posting");
    child_kill(server);
    child_tell(client, "it is dead", 0);
    child_end(client);
}

/* ---- 8: operations queued for a connection that fails do not wait for ever ---- */

static void fault_8(struct side *side)
{
    struct op receive = {0}, send = {0}, unexpected = {0};
    struct bmi_method_addr *absent;
    char buffer[64];
    int endpoint;

    (void)side;
    endpoint = host_start_server();
    host_stop();
    host_start_client();
    absent = host_lookup_endpoint(endpoint);
    if (op_recv(&receive, absent, buffer, 64, 1) >= 0)
        op_failed(&receive, BMI_ECONNREFUSED);
    if (op_send(&send, absent, buffer, 64, 1) >= 0)
        op_failed(&send, BMI_ECONNREFUSED);
    if (op_send_unexpected(&unexpected, absent, buffer, 64, 1) >= 0)
        op_failed(&unexpected, BMI_ECONNREFUSED);
    host_stop();
}

/* ---- 9 and 11: servers among themselves ---- */

static void servers(struct side *side, bool both_dial)
{
    int mine = host_start_server(), theirs;
    struct bmi_method_addr *peer = NULL;
    struct op send[4] = {{0}}, receive[4] = {{0}};
    static char out[4][50000], in[4][50000];
    int before;

    tell(side, "endpoint", mine);
    theirs = (int)hear(side, "endpoint");
    if (both_dial || mine < theirs) {
        peer = host_lookup_endpoint(theirs);
    } else {
        struct arrival arrival = host_next();

        peer = arrival.from;
        arrival_free(&arrival);
    }
    before = host_registered();
    if (!both_dial && mine < theirs) {
        struct op first = {0};

        CHECK_THAT(op_send_unexpected(&first, peer, "x", 1, 1), >=, 0);
        op_sent(&first);
    }
    for (int i = 0; i < 4; i++) {
        fill(out[i], sizeof out[i], (uint64_t)(mine + i));
        CHECK_THAT(op_send(&send[i], peer, out[i], i % 2 == 0 ? 8 : 50000, i), >=, 0);
        CHECK_THAT(op_recv(&receive[i], peer, in[i], 50000, i), >=, 0);
    }
    for (int i = 0; i < 4; i++) {
        op_received(&receive[i], i % 2 == 0 ? 8 : 50000);
        check_filled(in[i], (size_t)receive[i].size, (uint64_t)(theirs + i));
        op_sent(&send[i]);
    }
    /* A looked-up address is never registered on top (host.c watches for that too). */
    if (both_dial)
        CHECK_THAT(host_registered() - before, <=, 1);
    pair_part(side);
}

static void fault_9(struct side *side)
{
    servers(side, false);
}

static void fault_11(struct side *side)
{
    servers(side, true);
}

/* ---- 10: a peer is not down for ever ---- */

static void fault_10_server(struct side *side)
{
    int endpoint = host_start_server();
    struct arrival arrival;

    host_stop();
    tell(side, "endpoint", endpoint);
    hear(side, "failed");
    CHECK_THAT(host_try_server(endpoint), ==, 0);
    CHECK_THAT(ops->open_context(0), ==, 0);
    tell(side, "up", 0);
    arrival = host_next();
    arrival_free(&arrival);
    pair_part(side);
}

static void fault_10_client(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);
    struct op send = {0};
    deadline_t deadline = deadline_in(WAIT_MS);

    /* Only an unexpected send: nothing else of that peer is ever completed. */
    if (op_send_unexpected(&send, server, "x", 1, 1) >= 0)
        op_wait(&send);
    tell(side, "failed", 0);
    hear(side, "up"); /* no test call in between */
    do {
        CHECK(!deadline_over(deadline));
        if (op_send_unexpected(&send, server, "x", 1, 1) < 0) {
            host_pump(1);
            continue;
        }
        op_wait(&send);
    } while (send.posted < 0 || send.error != 0);
    pair_part(side);
}

static const struct scenario scenarios[] = {
    PAIR(fault_6_cancelling_a_completed_operation_locks_nothing_up, fault_6_server,
         fault_6_client),
    DIRECTED(fault_7_posts_racing_with_a_death_complete, fault_7, {"server", fault_7_server},
             {"client", fault_7_client}),
    SOLO(fault_8_operations_waiting_for_a_connection_fail_with_it, fault_8),
    PAIR(fault_9_a_server_that_was_dialled_sends_what_was_queued, fault_9, fault_9),
    PAIR(fault_10_a_peer_that_was_down_is_reached_again, fault_10_server, fault_10_client),
    PAIR(fault_11_simultaneous_connects_end_in_one_peer, fault_11, fault_11),
    {0},
};

int main(int argc, char **argv)
{
    port_notices_deaths_soon();
    return harness_main(argc, argv, scenarios);
}
