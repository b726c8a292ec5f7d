/*
 * One test for each numbered fault of BMI-HOST-ABI.md section 8.5 that can be shown from C,
 * in the order of that list and named after it.
 *
 * Not here: 12 and 13 (strangers.c sends such packets: harmful_packets_inside_a_session...),
 * 15 (no memory cannot be had on demand). Some have more thorough tests elsewhere; this file
 * is the list.
 */
#include "support/pair.h"
#include "support/pattern.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024 * 1024)

static int64_t cpu_ms(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

static int64_t resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;

    CHECK(file != NULL);
    CHECK(fscanf(file, "%*s %ld", &pages) == 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int open_files(void)
{
    DIR *list = opendir("/proc/self/fd");
    int count = 0;

    CHECK(list != NULL);
    while (readdir(list) != NULL)
        count++;
    closedir(list);
    return count;
}

/* A server that only keeps its client company. */
static void companion(struct side *side)
{
    pair_server(side);
    pair_part(side);
}

/* ---- process killers: whatever was exit(1) is an error or nothing ---- */

static void killers_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op send = {0};

    /* 2159: a client gets an unexpected message. */
    CHECK_THAT(op_send_unexpected(&send, client, "surprise", 8, 1), >=, 0);
    op_sent(&send);
    pair_part(side);
}

static void killers_client(struct side *side)
{
    struct arrival arrival;

    host_load();
    /* 976: bad arguments of initialize. */
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, BMI_INIT_SERVER, NULL), <, 0);
    pair_client(side);
    arrival = host_next();
    CHECK_THAT(arrival.size, ==, 8);
    arrival_free(&arrival);
    pair_part(side);
}

/* 1022: a server whose endpoint cannot be opened. 2097: a client that is dialled. */
static void dialled_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side), *third;
    int taken = (int)pair_hear(side, "taken");
    struct op send = {0};

    host_stop();
    CHECK_THAT(host_try_server(taken), <, 0);
    (void)server;
    host_start_client();
    third = host_lookup_endpoint(taken);
    CHECK_THAT(op_send_unexpected(&send, third, "x", 1, 1), >=, 0);
    op_sent(&send);
    pair_part(side);
}

static void dialling_server(struct side *side)
{
    int endpoint = pair_serve(side);
    struct arrival arrival;

    pair_accept();
    tell(side, "taken", endpoint);
    arrival = host_next();
    arrival_free(&arrival);
    pair_part(side);
}

/* ---- 1: errors lost, or inherited by the next operation ---- */

static void fault_1_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[100000];

    for (int i = 0; i < 6; i++) {
        struct op send = {0};
        bmi_size_t size = i % 2 == 0 ? 100 : 80000;

        pair_hear(side, "send");
        fill(body, (size_t)size, 1);
        CHECK_THAT(op_send(&send, client, body, size, 1), >=, 0);
        op_wait(&send);
        CHECK_THAT(op_send(&send, client, body, 8, 2), >=, 0);
        op_sent(&send);
        fill(body, 8, 2);
    }
    pair_part(side);
}

static void fault_1_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char room[100000];

    for (int i = 0; i < 6; i++) {
        struct op receive = {0}, next = {0};

        /* Too little room: an error, and no byte behind the room is written. */
        memset(room, 0x77, sizeof room);
        CHECK_THAT(op_recv(&receive, server, room, 40, 1), ==, 0);
        tell(side, "send", 0);
        if (i < 3) {
            op_wait(&receive);
        } else {
            int outcount = 0;
            bmi_error_code_t error = 0;
            bmi_size_t size = 0;

            host_enter_test_call();
            for (deadline_t deadline = deadline_in(PATIENCE_MS); outcount == 0;) {
                CHECK(!deadline_over(deadline));
                CHECK_THAT(ops->test(receive.id, &outcount, &error, &size, NULL, 10, 0), >=, 0);
            }
            host_leave_test_call();
            receive.error = error;
        }
        CHECK_THAT(receive.error, ==, -BMI_EMSGSIZE);
        for (size_t k = 40; k < sizeof room; k++)
            CHECK_THAT(room[k], ==, 0x77);
        /* The next one, probably in the same block, is a success. */
        CHECK_THAT(op_recv(&next, server, room, 40, 2), >=, 0);
        op_received(&next, 8);
    }
    pair_part(side);
}

/* ---- 2: sizes of unexpected messages ---- */

static void fault_2_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    int64_t sizes[] = {8191, 8192, 8193, 20000, 0, 200000, 1};

    for (int i = 0; i < 7; i++) {
        struct arrival arrival = host_next();

        CHECK(arrival.from == client);
        CHECK_THAT(arrival.size, ==, sizes[i]);
        check_filled(arrival.buffer, (size_t)arrival.size, (uint64_t)i);
        arrival_free(&arrival);
    }
    pair_part(side);
}

static void fault_2_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    int64_t sizes[] = {8191, 8192, 8193, 20000, 0, 200000, 1};
    static char body[200000];

    for (int i = 0; i < 7; i++) {
        struct op send = {0};

        fill(body, (size_t)sizes[i], (uint64_t)i);
        CHECK_THAT(op_send_unexpected(&send, server, body, sizes[i], i), >=, 0);
        op_sent(&send);
    }
    pair_part(side);
}

/* ---- 3: a failed post is never reported ---- */

static void fault_3(struct side *side)
{
    struct bmi_method_addr *self;
    static char body[64];
    bmi_op_id_t id;
    bmi_size_t actual;
    struct op never = {0};

    (void)side;
    self = host_lookup_endpoint(host_start_server());
    for (int i = 0; i < 50; i++) {
        CHECK_THAT(ops->post_send(&id, self, NULL, 8, BMI_EXT_ALLOC, 1, &never, 0, NULL), <, 0);
        CHECK_THAT(ops->post_recv(&id, self, body, -8, &actual, BMI_EXT_ALLOC, 1, &never, 0, NULL),
                   <, 0);
        CHECK_THAT(ops->post_sendunexpected(&id, self, body, 8, BMI_EXT_ALLOC, 1, &never, 99, NULL),
                   <, 0);
    }
    never.id = -1; /* op_completed() would fail */
    for (int i = 0; i < 20; i++) {
        CHECK_THAT(host_testcontext(16, 0, 1), ==, 0);
        CHECK_THAT(host_testunexpected(16, 0), ==, 0);
    }
    host_stop();
}

/* ---- 4: a send that was delivered is not "cancelled"; a stuck one completes ---- */

static void fault_4_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char body[50000];
    struct op receive = {0};

    CHECK_THAT(op_recv(&receive, client, body, sizeof body, 1), >=, 0);
    op_received(&receive, sizeof body);
    tell(side, "got it", 0);
    pair_part(side);
}

static void fault_4_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char body[50000];
    struct op send = {0}, stuck = {0};

    CHECK_THAT(op_send(&stuck, server, body, sizeof body, 2), ==, 0); /* nobody takes it */
    CHECK_THAT(ops->open_context(1), ==, 0);
    send.context = 1;
    CHECK_THAT(op_send(&send, server, body, sizeof body, 1), >=, 0);
    pair_hear(side, "got it");
    for (int i = 0; i < 20; i++)
        host_pump(1);
    if (send.posted == 0)
        CHECK_THAT(ops->cancel(send.id, 1), ==, 0);
    op_sent(&send);
    CHECK_THAT(ops->cancel(stuck.id, 0), ==, 0);
    op_failed(&stuck, BMI_ECANCEL);
    ops->close_context(1);
    pair_part(side);
}

/* ---- 5: order across the connect, while another thread makes progress ---- */

enum { FIVE = 400 };
static atomic_bool stop;

static void *pump(void *nothing)
{
    (void)nothing;
    while (!atomic_load(&stop))
        host_pump(1);
    return NULL;
}

static void fault_5_server(struct side *side)
{
    struct arrival arrival;

    pair_serve(side);
    for (int i = 0; i < FIVE; i++) {
        int64_t number;

        arrival = host_next();
        memcpy(&number, arrival.buffer, 8);
        CHECK_THAT(number, ==, i);
        arrival_free(&arrival);
    }
    pair_part(side);
}

static void fault_5_client(struct side *side)
{
    static struct op send[FIVE];
    static int64_t numbers[FIVE];
    struct bmi_method_addr *server = pair_join(side);
    pthread_t pumper;

    ops_on_many_threads = true;
    CHECK_THAT(pthread_create(&pumper, NULL, pump, NULL), ==, 0);
    for (int i = 0; i < FIVE; i++) {
        numbers[i] = i;
        CHECK_THAT(op_send_unexpected(&send[i], server, &numbers[i], 8, 7), >=, 0);
    }
    atomic_store(&stop, true);
    CHECK_THAT(pthread_join(pumper, NULL), ==, 0);
    for (int i = 0; i < FIVE; i++)
        op_sent(&send[i]);
    pair_part(side);
}

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
        op_recv(&mine->ops[mine->count++], doomed, room, sizeof room, 1);
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
            /* Posted to a peer nobody answers for any more: fails by itself or is waiting
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
    for (deadline_t deadline = deadline_in(3 * PATIENCE_MS); !deadline_over(deadline);)
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
    struct bmi_method_addr *nobody;
    char buffer[64];
    int endpoint;

    (void)side;
    endpoint = host_start_server();
    host_stop();
    host_start_client();
    nobody = host_lookup_endpoint(endpoint);
    if (op_recv(&receive, nobody, buffer, 64, 1) >= 0)
        op_failed(&receive, BMI_ECONNREFUSED);
    if (op_send(&send, nobody, buffer, 64, 1) >= 0)
        op_failed(&send, BMI_ECONNREFUSED);
    if (op_send_unexpected(&unexpected, nobody, buffer, 64, 1) >= 0)
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
    deadline_t deadline = deadline_in(PATIENCE_MS);

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

/* ---- 14: dropped addresses leave nothing dangling ---- */

static void fault_14_client(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");
    struct bmi_method_addr *names[10];
    char buffer[64];

    host_start_client();
    for (int round = 0; round < 5; round++) {
        struct op send = {0}, receive = {0};

        for (int i = 0; i < 10; i++)
            names[i] = host_lookup_endpoint(endpoint);
        CHECK_THAT(op_send_unexpected(&send, names[3], "x", 1, 1), >=, 0);
        op_sent(&send);
        CHECK_THAT(op_recv(&receive, names[4], buffer, 64, 1), ==, 0);
        for (int i = 0; i < 10; i++) {
            if (i == 9)
                pair_hear(side, "got it");
            host_drop(names[i]);
        }
        op_wait(&receive);
        CHECK_THAT(receive.error, <, 0);
    }
    /* An address without a peer: looked up, never used, dropped after finalize. */
    CHECK(host_lookup("mx://foo:0:3") != NULL);
    pair_part(side);
}

static void fault_14_server(struct side *side)
{
    pair_serve(side);
    for (int i = 0; i < 5; i++) {
        struct arrival arrival = host_next();

        arrival_free(&arrival);
        tell(side, "got it", 0);
    }
    pair_part(side);
}

/* ---- 16: a failed initialize leaves nothing behind ---- */

static void fault_16_client(struct side *side)
{
    struct bmi_method_addr *server;
    int endpoint = (int)hear(side, "endpoint"), files;

    host_load();
    CHECK_THAT(host_try_server(endpoint), <, 0);
    files = open_files();
    for (int i = 0; i < 30; i++)
        CHECK_THAT(host_try_server(endpoint), <, 0);
    CHECK_THAT(open_files(), <=, files);
    CHECK_THAT(ops->finalize(), <, 0);
    host_start_client();
    server = host_lookup_endpoint(endpoint);
    pair_hello(server);
    pair_part(side);
}

/* ---- 17: threads that wait do not spin ---- */

static void *wait_in_context(void *context)
{
    for (int i = 0; i < 3; i++)
        host_testcontext(4, (bmi_context_id)(intptr_t)context, 200);
    return NULL;
}

static void fault_17(struct side *side)
{
    pthread_t threads[4];
    int64_t used;

    (void)side;
    host_start_server();
    for (int c = 1; c < 4; c++)
        CHECK_THAT(ops->open_context(c), ==, 0);
    used = cpu_ms();
    for (int c = 0; c < 4; c++)
        CHECK_THAT(pthread_create(&threads[c], NULL, wait_in_context, (void *)(intptr_t)c), ==, 0);
    for (int c = 0; c < 4; c++)
        CHECK_THAT(pthread_join(threads[c], NULL), ==, 0);
    /* Four threads waited 600 ms each. */
    CHECK_THAT(cpu_ms() - used, <, 200 * slower());
    for (int c = 1; c < 4; c++)
        ops->close_context(c);
    host_stop();
}

/* ---- 18: connections that fail leak nothing ---- */

static void fault_18(struct side *side)
{
    int endpoint, files = 0;
    int64_t memory = 0;

    (void)side;
    endpoint = host_start_server();
    host_stop();
    host_start_client();
    for (int i = 0; i < 300; i++) {
        struct bmi_method_addr *nobody = host_lookup_endpoint(endpoint);
        struct op send = {0};

        if (op_send_unexpected(&send, nobody, "x", 1, 1) >= 0)
            op_wait(&send);
        host_drop(nobody);
        if (i == 50) {
            files = open_files();
            memory = resident_kib();
        }
    }
    CHECK_THAT(open_files(), <=, files + 2);
    CHECK_THAT(resident_kib() - memory, <, 2048 * slower());
    host_stop();
}

/* ---- 19: waiting ---- */

static void fault_19_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    struct op receive[3] = {{0}};
    char buffer[3][8];
    int64_t begin;

    for (int i = 0; i < 3; i++)
        CHECK_THAT(op_recv(&receive[i], client, buffer[i], 8, i), ==, 0);
    tell(side, "send", 0);
    pair_hear(side, "sent");
    for (int i = 0; i < 20 && !op_done(&receive[0]); i++)
        host_testcontext(1, 0, 5);
    /* Completions in hand: not waited for more. */
    begin = now_ms();
    while (!op_done(&receive[1]) || !op_done(&receive[2]))
        CHECK_THAT(host_testcontext(16, 0, 8000), >, 0);
    CHECK_THAT(now_ms() - begin, <, 4000 * slower());
    /* With room for one it waits as well. */
    while (host_testunexpected(4, 0) > 0 || host_testcontext(1, 0, 20) > 0)
        ;
    begin = now_ms();
    CHECK_THAT(host_testcontext(1, 0, 150), ==, 0);
    CHECK_THAT(now_ms() - begin, >=, 120);
    pair_part(side);
}

static void fault_19_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    pair_hear(side, "send");
    for (int i = 0; i < 3; i++) {
        struct op send = {0};

        CHECK_THAT(op_send(&send, server, "12345678", 8, i), >=, 0);
        op_sent(&send);
    }
    tell(side, "sent", 0);
    pair_part(side);
}

/* ---- 20: memory ---- */

static void fault_20(struct side *side)
{
    static void *small[2000];
    int64_t before, after;

    (void)side;
    host_load();
    before = resident_kib();
    host_start_client();
    after = resident_kib();
    CHECK_THAT(after - before, <, 8 * 1024 * slower());
    for (int i = 0; i < 2000; i++) {
        small[i] = ops->memalloc(16, BMI_SEND);
        CHECK(small[i] != NULL);
        memset(small[i], 1, 16);
    }
    CHECK_THAT(resident_kib() - after, <, 4 * 1024 * slower());
    for (int i = 0; i < 2000; i++)
        CHECK_THAT(ops->memfree(small[i], 16, BMI_SEND), ==, 0);
    host_stop();
}

/* ---- 21: limits ---- */

static void fault_21_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);
    static char room[10000];
    struct cut cut = cut_up(room, sizeof room, 3, 0, 0); /* more than 3000 segments */
    struct op receive = {0};
    struct arrival arrival;

    CHECK_THAT(cut.count, >, 3000);
    CHECK_THAT(op_recv_cut(&receive, client, &cut, 1), >=, 0);
    op_received(&receive, sizeof room);
    check_filled(room, sizeof room, 1);
    cut_free(&cut);
    arrival = host_next();
    CHECK_THAT(arrival.size, ==, 300 * 1024);
    check_filled(arrival.buffer, 300 * 1024, 2);
    arrival_free(&arrival);
    pair_part(side);
}

static void fault_21_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    static char body[300 * 1024];
    struct cut cut = cut_up(body, 10000, 7, 0, 0);
    struct op send = {0};
    bmi_op_id_t id;

    fill(body, 10000, 1);
    CHECK_THAT(op_send_cut(&send, server, &cut, 1), >=, 0);
    op_sent(&send);
    cut_free(&cut);
    fill(body, sizeof body, 2);
    CHECK_THAT(op_send_unexpected(&send, server, body, sizeof body, 1), >=, 0);
    op_sent(&send);
    /* 4 GiB and 8 bytes is not 8 bytes. */
    CHECK_THAT(ops->post_send(&id, server, body, ((bmi_size_t)1 << 32) + 8, BMI_EXT_ALLOC, 1, NULL,
                              0, NULL), ==, -BMI_EMSGSIZE);
    pair_part(side);
}

/* ---- 22: what was NULL ---- */

static void fault_22_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);
    struct op receive = {0};
    char buffer[64];
    bmi_op_id_t ids[2];
    int outcount = 0, index = -1;
    bmi_error_code_t error = 1;
    bmi_size_t size = 1;

    CHECK_THAT(ops->query_addr_range(server, "mx://*", 0), ==, 1);
    CHECK_THAT(ops->query_addr_range(server, "mx://192.0.2.7", 32), ==, 0);
    CHECK_THAT(op_recv(&receive, server, buffer, 64, 1), ==, 0);
    CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    ids[0] = 0;
    ids[1] = receive.id;
    for (deadline_t deadline = deadline_in(PATIENCE_MS); outcount == 0;) {
        CHECK(!deadline_over(deadline));
        CHECK_THAT(ops->testsome(2, ids, &outcount, &index, &error, &size, NULL, 0, 0), >=, 0);
    }
    CHECK_THAT(outcount, ==, 1);
    CHECK_THAT(index, ==, 1);
    CHECK_THAT(error, ==, -BMI_ECANCEL);
    pair_part(side);
}

/* ---- parsing ---- */

static void fault_parsing(struct side *side)
{
    (void)side;
    host_start_client();
    CHECK(host_lookup("mx://h:") == NULL);
    CHECK(host_lookup("mx://h:4294967299") == NULL);
    CHECK(host_lookup("mx://h:0x10") == NULL);
    CHECK(host_lookup("mx://under_score:3") != NULL);
    CHECK(host_lookup("mx://[::1]:3") != NULL);
    CHECK(host_lookup("mx://a-name-of-more-than-63-characters.in-several-labels.of-a-domain."
                      "that-is-long.example:3") != NULL);
    host_stop();
}

static const struct scenario scenarios[] = {
    PAIR(fault_killers_a_client_survives_unexpected_messages_and_bad_arguments, killers_server,
         killers_client),
    PAIR(fault_killers_a_taken_endpoint_is_an_error, dialling_server, dialled_client),
    PAIR(fault_1_errors_are_reported_and_not_inherited, fault_1_server, fault_1_client),
    PAIR(fault_2_unexpected_messages_have_their_own_size, fault_2_server, fault_2_client),
    SOLO(fault_3_a_failed_post_is_never_reported, fault_3),
    PAIR(fault_4_cancel_tells_the_truth_and_always_completes, fault_4_server, fault_4_client),
    PAIR(fault_5_queued_messages_are_not_overtaken, fault_5_server, fault_5_client),
    PAIR(fault_6_cancelling_a_completed_operation_locks_nothing_up, fault_6_server,
         fault_6_client),
    DIRECTED(fault_7_posts_racing_with_a_death_complete, fault_7, {"server", fault_7_server},
             {"client", fault_7_client}),
    SOLO(fault_8_operations_waiting_for_a_connection_fail_with_it, fault_8),
    PAIR(fault_9_a_server_that_was_dialled_sends_what_was_queued, fault_9, fault_9),
    PAIR(fault_10_a_peer_that_was_down_is_reached_again, fault_10_server, fault_10_client),
    PAIR(fault_11_simultaneous_connects_end_in_one_peer, fault_11, fault_11),
    PAIR(fault_14_dropped_addresses_leave_nothing_dangling, fault_14_server, fault_14_client),
    PAIR(fault_16_a_failed_initialize_leaves_nothing_behind, companion, fault_16_client),
    SOLO(fault_17_waiting_threads_do_not_spin, fault_17),
    SOLO(fault_18_failed_connections_leak_nothing, fault_18),
    PAIR(fault_19_testcontext_waits_when_and_only_when_it_should, fault_19_server,
         fault_19_client),
    SOLO(fault_20_memory_is_taken_when_needed, fault_20),
    PAIR(fault_21_large_unexpected_many_segments_and_no_truncation, fault_21_server,
         fault_21_client),
    PAIR(fault_22_testsome_and_query_addr_range_are_there, companion, fault_22_client),
    SOLO(fault_parsing_numbers_are_decimal_and_names_are_names, fault_parsing),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
