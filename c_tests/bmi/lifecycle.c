/*
 * initialize and finalize, again and again, and the addresses in between.
 *
 *     lookup(listen) → initialize → ... → close_context → finalize → DROP_ADDR for each address
 *                          ▲                                  │
 *                          └──────────────────────────────────┘ in one process, any number of times
 */
#include "../support/pair.h"
#include "../support/pattern.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1024 * 1024)

/* ---- again ---- */

static void begins_again(struct side *side)
{
    (void)side;
    for (int i = 0; i < 5; i++) {
        int endpoint = host_start_server();
        struct bmi_method_addr *self = host_lookup_endpoint(endpoint);
        int64_t in = -1, out = i;
        struct op send = {0}, receive = {0};

        CHECK_THAT(op_recv(&receive, self, &in, 8, 1), >=, 0);
        CHECK_THAT(op_send(&send, self, &out, 8, 1), >=, 0);
        op_sent(&send);
        op_received(&receive, 8);
        CHECK_THAT(in, ==, i);
        host_stop();
        host_start_client();
        host_stop();
    }
}

static void same_endpoint_again(struct side *side)
{
    int endpoint = pair_serve(side);

    for (int i = 0; i < 5; i++) {
        struct arrival arrival = host_next();
        struct op reply = {0};

        CHECK_THAT(op_send(&reply, arrival.from, &i, sizeof i, 2), >=, 0);
        op_sent(&reply);
        arrival_free(&arrival);
        pair_hear(side, "got it");
        host_stop();
        if (i == 4)
            break;
        CHECK_THAT(host_try_server(endpoint), ==, 0);
        CHECK_THAT(ops->open_context(0), ==, 0);
        tell(side, "again", 0);
    }
    tell(side, "bye", 0);
    hear(side, "bye");
}

/* The client keeps its instance: it must notice each time, and come back. */
static void comes_back(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);

    for (int i = 0; i < 5; i++) {
        deadline_t deadline = deadline_in(WAIT_MS);
        int number = -1;
        struct op receive, send;

        /* The old session may end only now: such an attempt fails with an error and is
         * repeated, as OrangeFS's client does. */
        for (;;) {
            memset(&receive, 0, sizeof receive);
            memset(&send, 0, sizeof send);
            CHECK(!deadline_over(deadline));
            if (op_recv(&receive, server, &number, sizeof number, 2) < 0) {
                host_pump(5);
                continue;
            }
            if (op_send_unexpected(&send, server, "?", 1, 1) < 0) {
                ops->cancel(receive.id, 0);
                op_wait(&receive);
                continue;
            }
            op_wait(&send);
            if (send.error != 0) {
                if (!op_done(&receive))
                    ops->cancel(receive.id, 0);
                op_wait(&receive);
                continue;
            }
            op_wait(&receive);
            if (receive.error == 0)
                break;
        }
        CHECK_THAT(number, ==, i);
        tell(side, "got it", 0);
        if (i < 4)
            pair_hear(side, "again");
    }
    tell(side, "bye", 0);
    pair_hear(side, "bye");
    host_stop();
}

/* ---- what initialize refuses ---- */

static void refuses(struct side *side)
{
    struct bmi_method_addr *address;

    (void)side;
    host_load();
    /* A server needs a listen address, a client must not have one: an error, not exit(1). */
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, BMI_INIT_SERVER, NULL), ==, -BMI_EINVAL);
    address = ops->method_addr_lookup("mx://localhost:0:2000");
    CHECK(address != NULL);
    CHECK_THAT(ops->initialize(address, METHOD_ID, 0, NULL), ==, -BMI_EINVAL);
    CHECK_THAT(ops->set_info(BMI_DROP_ADDR, address), ==, 0);
    /* Neither has left anything behind. */
    host_start_client();
    /* Twice without finalize. */
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, NULL), <, 0);
    CHECK_THAT(host_testcontext(4, 0, 0), ==, 0);
    host_stop();
    /* finalize without initialize, twice: an error or nothing, no crash. */
    CHECK_THAT(ops->finalize(), <=, 0);
    CHECK_THAT(ops->finalize(), <=, 0);
    host_start_client();
    host_stop();
}

/* ---- second server ---- */

static void first_server(struct side *side)
{
    struct bmi_method_addr *client;

    pair_serve(side);
    pair_hear(side, "refused");
    client = pair_accept(); /* the first one is none the worse for it */
    (void)client;
    pair_part(side);
}

static void second_server(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");

    CHECK_THAT(host_try_server(endpoint), <, 0);
    CHECK_THAT(host_try_server(endpoint), <, 0);
    tell(side, "refused", 0);
    host_start_server(); /* another endpoint is free */
    pair_hello(host_lookup_endpoint(endpoint));
    pair_part(side);
}

/* ---- finalize with operations in flight ---- */

enum { IN_FLIGHT = 8 };

static void finalizes_busy(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char receive_room[IN_FLIGHT][100000];
    char *big = fenced(16 * MIB);
    struct op receive[IN_FLIGHT] = {{0}}, send[IN_FLIGHT] = {{0}}, moving = {0};
    int64_t begin;

    for (int i = 0; i < IN_FLIGHT; i++) {
        CHECK_THAT(op_recv(&receive[i], client, receive_room[i], 100000, 100 + i), ==, 0);
        CHECK_THAT(op_send(&send[i], client, big, 1 * MIB, 200 + i), ==, 0);
    }
    CHECK_THAT(op_recv(&moving, client, big, 16 * MIB, 1), ==, 0);
    pair_sync(side);
    for (int i = 0; i < 3 && !op_done(&moving); i++)
        host_testcontext(1, 0, 0);
    begin = now_ms();
    ops->close_context(0);
    CHECK_THAT(ops->finalize(), ==, 0);
    CHECK_THAT(now_ms() - begin, <, 5000 * slower());
    /* All buffers are ours now: freeing them is what a memory checker watches. */
    memset(receive_room, 0x11, sizeof receive_room);
    fill(big, 16 * MIB, 1);
    tell(side, "gone", 0);
    hear(side, "saw it");
    check_filled(big, 16 * MIB, 1);
    fenced_free(big);
    /* Addresses are dropped after finalize; the process can begin again. */
    CHECK_THAT(ops->set_info(BMI_DROP_ADDR, client), ==, 0);
    CHECK_THAT(ops->set_info(BMI_DROP_ADDR, host_listen_address()), ==, 0);
}

static void sees_finalize(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char room[100000];
    char *big = fenced(16 * MIB);
    struct op receive[IN_FLIGHT] = {{0}}, moving = {0};

    for (int i = 0; i < IN_FLIGHT; i++)
        CHECK_THAT(op_recv(&receive[i], server, room, sizeof room, 300 + i), ==, 0);
    CHECK_THAT(op_send(&moving, server, big, 16 * MIB, 1), >=, 0);
    pair_sync(side);
    pair_hear(side, "gone");
    /* Everything with that peer completes with an error, soon. */
    for (int i = 0; i < IN_FLIGHT; i++) {
        op_wait(&receive[i]);
        CHECK_THAT(receive[i].error, <, 0);
    }
    op_wait(&moving); /* it may have been through */
    tell(side, "saw it", 0);
    fenced_free(big);
    host_stop();
}

/* ---- DROP_ADDR ---- */

static void drop_server(struct side *side)
{
    pair_serve(side);
    for (int i = 0; i < 3; i++) {
        struct arrival arrival = host_next();

        arrival_free(&arrival);
    }
    pair_part(side);
}

static void drops(struct side *side)
{
    struct bmi_method_addr *one = pair_join(side);
    char text[ADDRESS_SIZE];
    struct bmi_method_addr *unused = host_lookup("mx://localhost:0:2001");
    struct bmi_method_addr *two, *three;
    struct op send = {0}, receive[2] = {{0}};
    char buffer[2][64];

    /* An unused address. */
    CHECK(unused != NULL);
    host_drop(unused);
    CHECK_THAT(op_send_unexpected(&send, one, "1", 1, 1), >=, 0);
    op_sent(&send);
    /* A second and a third name for the same peer. */
    snprintf(text, sizeof text, "%s", ops->rev_lookup_unexpected(one));
    two = host_lookup(text);
    three = host_lookup(text);
    CHECK(two != NULL && three != NULL);
    /* Operations are pending on two of them while the third goes: they stay. */
    CHECK_THAT(op_recv(&receive[0], one, buffer[0], 64, 1), ==, 0);
    CHECK_THAT(op_recv(&receive[1], two, buffer[1], 64, 2), ==, 0);
    host_drop(three);
    CHECK_THAT(op_send_unexpected(&send, two, "2", 1, 1), >=, 0);
    op_sent(&send);
    CHECK(!op_done(&receive[0]));
    CHECK_THAT(ops->cancel(receive[0].id, 0), ==, 0);
    op_failed(&receive[0], BMI_ECANCEL);
    host_drop(one);
    CHECK_THAT(op_send_unexpected(&send, two, "3", 1, 1), >=, 0);
    op_sent(&send);
    /* The last one, with a receive still pending: that completes with an error. */
    host_drop(two);
    op_wait(&receive[1]);
    CHECK_THAT(receive[1].error, <, 0);
    pair_part(side);
}

/* After the last address of a peer is gone, a new look-up reaches it again. */
static void looked_up_again_server(struct side *side)
{
    struct bmi_method_addr *client = NULL;

    pair_serve(side);
    for (int i = 0; i < 6; i++) {
        struct arrival arrival = host_next();

        CHECK_THAT(arrival.tag, ==, i);
        client = arrival.from;
        arrival_free(&arrival);
        tell(side, "got it", 0);
    }
    {
        struct op send = {0};

        CHECK_THAT(op_send(&send, client, "end", 3, 9), >=, 0);
        op_sent(&send);
    }
    pair_part(side);
}

static void looks_up_again(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");
    struct op receive = {0};
    char buffer[8];

    host_start_client();
    for (int i = 0; i < 6; i++) {
        struct bmi_method_addr *server = host_lookup_endpoint(endpoint);
        struct op send = {0};

        if (i == 5)
            CHECK_THAT(op_recv(&receive, server, buffer, sizeof buffer, 9), >=, 0);
        CHECK_THAT(op_send_unexpected(&send, server, "x", 1, i), >=, 0);
        op_sent(&send);
        pair_hear(side, "got it"); /* dropping may take unsent messages along */
        if (i < 5)
            host_drop(server);
    }
    op_received(&receive, 3);
    pair_part(side);
}

/* ---- DROP_ADDR_QUERY ---- */

static void query_server(struct side *side)
{
    pair_serve(side);
    for (int i = 0; i < 8; i++) {
        struct arrival arrival = host_next();
        deadline_t deadline = deadline_in(WAIT_MS);

        arrival_free(&arrival);
        /* Alive: keep it. host_release() answers what DROP_ADDR_QUERY says. */
        CHECK(!host_release(arrival.from));
        tell(side, "you may go", 0);
        /* Dead, without operations: the host is asked to forget it, and may drop it. */
        while (!host_release(arrival.from)) {
            CHECK(!deadline_over(deadline));
            host_pump(5);
        }
    }
    /* Nothing of the eight is left. */
    CHECK_THAT(host_addresses(), ==, 0);
    CHECK_THAT(host_registered(), ==, 8);
    CHECK_THAT(host_forgotten(), >=, 1);
    tell(side, "bye", 0);
    hear(side, "bye");
    host_stop();
}

static void query_client(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");

    for (int i = 0; i < 8; i++) {
        struct op send = {0};

        host_start_client();
        CHECK_THAT(op_send_unexpected(&send, host_lookup_endpoint(endpoint), "x", 1, 1), >=, 0);
        op_sent(&send);
        pair_hear(side, "you may go");
        host_stop();
    }
    tell(side, "bye", 0);
    hear(side, "bye");
}

/* ---- the host asks before any test call told it of the death; then it hears no more ---- */

static void quiet_server(struct side *side)
{
    const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};

    pair_serve(side);
    for (int i = 0; i < 8; i++) {
        struct bmi_method_addr *client = pair_accept();
        deadline_t timeout = deadline_in(1000);

        tell(side, "you may go", 0);
        hear(side, "gone");
        /* The helper thread notices; should it be off, a test call has to. */
        while (!host_release(client)) {
            if (deadline_over(timeout))
                host_pump(1);
            nanosleep(&pause, NULL);
        }
        for (int k = 0; k < 10; k++)
            host_pump(1); /* host_stop() tells if the dropped address is named here */
    }
    tell(side, "bye", 0);
    hear(side, "bye");
    host_stop();
}

static void quiet_client(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");

    for (int i = 0; i < 8; i++) {
        host_start_client();
        pair_hello(host_lookup_endpoint(endpoint));
        pair_hear(side, "you may go");
        host_stop();
        tell(side, "gone", 0);
    }
    tell(side, "bye", 0);
    hear(side, "bye");
}

/* ---- threads: every caller of initialize but one is refused ---- */

enum { CALLERS = 6 };
static atomic_int accepted;

static void *initialize_once(void *nothing)
{
    (void)nothing;
    if (ops->initialize(NULL, METHOD_ID, 0, NULL) == 0)
        atomic_fetch_add(&accepted, 1);
    return NULL;
}

static void *finalize_once(void *nothing)
{
    (void)nothing;
    if (ops->finalize() == 0)
        atomic_fetch_sub(&accepted, 1);
    return NULL;
}

static void initializes_on_many_threads(struct side *side)
{
    (void)side;
    host_load();
    for (int round = 0; round < 5; round++) {
        pthread_t callers[CALLERS];

        for (int i = 0; i < CALLERS; i++)
            CHECK_THAT(pthread_create(&callers[i], NULL, initialize_once, NULL), ==, 0);
        for (int i = 0; i < CALLERS; i++)
            CHECK_THAT(pthread_join(callers[i], NULL), ==, 0);
        CHECK_THAT(atomic_load(&accepted), ==, 1);
        CHECK_THAT(ops->open_context(0), ==, 0);
        CHECK_THAT(host_testcontext(1, 0, 0), ==, 0);
        ops->close_context(0);
        for (int i = 0; i < CALLERS; i++)
            CHECK_THAT(pthread_create(&callers[i], NULL, finalize_once, NULL), ==, 0);
        for (int i = 0; i < CALLERS; i++)
            CHECK_THAT(pthread_join(callers[i], NULL), ==, 0);
        /* One has done it; the others did nothing, whatever they returned. */
        CHECK_THAT(atomic_load(&accepted), <=, 0);
        atomic_store(&accepted, 0);
    }
}

/* finalize while another thread sleeps in testcontext: that one returns soon, and lives. */
static void *sleep_through(void *result)
{
    bmi_op_id_t id;
    int outcount = -1;
    bmi_error_code_t error;
    bmi_size_t size;

    *(int *)result = ops->testcontext(1, &id, &outcount, &error, &size, NULL, 8000, 0);
    return NULL;
}

static void finalize_wakes_sleepers(struct side *side)
{
    pthread_t sleeper;
    int result = 1;
    int64_t begin;

    (void)side;
    host_start_server();
    CHECK_THAT(pthread_create(&sleeper, NULL, sleep_through, &result), ==, 0);
    for (int i = 0; i < 20; i++)
        host_testunexpected(1, 5);
    begin = now_ms();
    host_stop();
    CHECK_THAT(pthread_join(sleeper, NULL), ==, 0);
    CHECK_THAT(now_ms() - begin, <, 4000 * slower());
    CHECK_THAT(result, <=, 0);
}

static const struct scenario scenarios[] = {
    SOLO(finalize_and_initialize_again_in_one_process, begins_again),
    PAIR(a_server_restarts_on_its_endpoint_and_the_client_comes_back, same_endpoint_again,
         comes_back),
    SOLO(initialize_refuses_wrong_arguments_and_a_second_call, refuses),
    PAIR(a_second_server_on_the_endpoint_gets_an_error, first_server, second_server),
    PAIR(finalize_with_operations_in_flight_gives_all_buffers_back, finalizes_busy,
         sees_finalize),
    PAIR(dropping_one_name_of_a_peer_leaves_the_others, drop_server, drops),
    PAIR(a_dropped_peer_can_be_looked_up_again, looked_up_again_server, looks_up_again),
    PAIR(drop_addr_query_tells_dead_clients_from_living, query_server, query_client),
    PAIR(a_dropped_address_is_never_named_again, quiet_server, quiet_client),
    SOLO(initialize_from_many_threads_succeeds_once, initializes_on_many_threads),
    SOLO(finalize_wakes_a_sleeping_testcontext, finalize_wakes_sleepers),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
