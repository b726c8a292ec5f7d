/*
 * fork without exec: the child takes over what the parent had, or makes no call and holds nothing.
 *
 *     parent   initialize, connect, post ──┬── goes on, exits, or is killed: as if there were no child
 *                                          │
 *     child                                ├── goes on: earlier operations end once, with an error;
 *                                          │   contexts, addresses and buffers stay, connections are new
 *                                          └── sleeps: no other process notices it
 *
 * The role "echo" answers every request with the same bytes.
 */
#include "../support/pair.h"
#include "../support/memory.h"
#include "../support/wait_children.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum {
    PENDING = 3,
    TAG = 10,
    LARGE = 700000,
    TAG_LATE = 500, /* tags of the echo's later messages */
    ASK_LATE = 77,
    SEEN_AT_ONCE_MS = 2000,
};

/* ---- roles and their parts ---- */

static void answer(struct arrival *request)
{
    struct op send = {0};
    int posted = op_send(&send, request->from, request->buffer, request->size, request->tag);

    /* The client may have exited by now. */
    if (posted == 0)
        CHECK(op_wait_within(&send, WAIT_MS));
    if (request->tag == ASK_LATE)
        for (int i = 0; i < PENDING; i++)
            send_message(request->from, "late", 5, TAG_LATE + i);
    arrival_free(request);
}

static void echo_until(struct side *side, bool (*over)(struct side *side))
{
    while (!over(side)) {
        struct arrival request;

        if (host_next_within(&request, 50))
            answer(&request);
    }
}

static void echo(struct side *side)
{
    pair_serve(side);
    echo_until(side, heard_anything);
    host_stop();
}

/* Sends a request and waits for its answer. Returns false if the other side has closed the connection. */
static bool asks(struct bmi_method_addr *server, size_t size, bmi_msg_tag_t tag)
{
    struct op receive = {0}, send = {0};
    char *out = malloc(size), *in = calloc(1, size);
    bool ok;

    CHECK(out != NULL && in != NULL);
    fill(out, size, (uint64_t)tag);
    ok = op_recv(&receive, server, in, (bmi_size_t)size, tag) >= 0 &&
         op_send_unexpected(&send, server, out, (bmi_size_t)size, tag) >= 0;
    if (receive.posted >= 0)
        op_wait(&receive);
    if (ok) {
        op_wait(&send);
        ok = send.error == 0 && receive.error == 0;
    }
    if (ok)
        CHECK(receive.size == (bmi_size_t)size && memcmp(in, out, size) == 0);
    free(in);
    free(out);
    return ok;
}

static void round_trips(struct bmi_method_addr *server, int count)
{
    for (int i = 0; i < count; i++) {
        CHECK(asks(server, 100, TAG + i));
        CHECK(asks(server, i == 0 ? LARGE / 4 : 5000, TAG + i));
    }
}

/* Repeats a request until the server is back, or an old connection has been given up. */
static void asks_again(struct bmi_method_addr *server)
{
    UNTIL (asks(server, 100, TAG))
        pause_ms(20);
}

/* Runs an echo and one client. The client, or its child, reports when it is done. */
static void with_an_echo(struct world *world)
{
    struct child *server = spawn(world, "echo"), *client = spawn(world, "client");

    child_tell(client, "endpoint", child_hear(server, "endpoint"));
    child_end(client);
    child_hear_within(client, "done", 6 * WAIT_MS);
    child_tell(server, "stop", 0);
    child_end(server);
}

static _Noreturn void done(struct side *side)
{
    tell(side, "done", 0);
    _exit(0);
}

/* ---- the child goes on ---- */

static void daemonizes(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);

    round_trips(server, 2);
    if (fork_child() != 0)
        _exit(0);
    round_trips(server, 3);
    host_stop();
    /* Begins another life of the library. */
    host_start_client();
    host_stop();
    done(side);
}

static void daemonizes_twice(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);

    if (fork_child() != 0)
        _exit(0);
    if (fork_child() != 0)
        _exit(0);
    round_trips(server, 2);
    if (fork_child() != 0)
        _exit(0);
    round_trips(server, 2);
    host_stop();
    done(side);
}

static void both_go_on(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);
    pid_t child;

    round_trips(server, 1);
    child = fork_child();
    round_trips(server, 20);
    if (child == 0)
        _exit(0);
    reap_fork(child);
    round_trips(server, 2);
    host_stop();
    done(side);
}

static char room[PENDING][100];

/* Pending receives and a send without a receive end in the child; in the parent they complete with their messages. */
static void forks_with_pending(struct side *side)
{
    struct op receive[PENDING] = {{0}}, on_the_way = {0};
    struct bmi_method_addr *server = pair_join(side);
    char *large = calloc(1, LARGE);
    pid_t child;

    round_trips(server, 1);
    for (int i = 0; i < PENDING; i++)
        CHECK_THAT(op_recv(&receive[i], server, room[i], sizeof room[i], TAG_LATE + i), ==, 0);
    CHECK_THAT(op_send(&on_the_way, server, large, LARGE, TAG_LATE), ==, 0);
    child = fork_child();
    if (child == 0) {
        op_failed(&on_the_way, BMI_ENETRESET);
        for (int i = 0; i < PENDING; i++)
            op_failed(&receive[i], BMI_ENETRESET);
        free(large);
        round_trips(server, 2);
        host_pump(10); /* no completion is reported twice */
        CHECK_THAT(ops->cancel(receive[0].id, 0), <=, 0);
        _exit(0);
    }
    reap_fork(child);
    CHECK(!op_done(&on_the_way));
    CHECK(asks(server, 10, ASK_LATE));
    for (int i = 0; i < PENDING; i++) {
        op_received(&receive[i], 5);
        CHECK(memcmp(room[i], "late", 5) == 0);
    }
    CHECK_THAT(ops->cancel(on_the_way.id, 0), ==, 0);
    op_wait(&on_the_way);
    host_stop();
    free(large);
    done(side);
}

/* An operation that ended before the fork is reported in both processes. */
static void forks_with_completions(struct side *side)
{
    static char in[100];
    struct op receive = {.context = 1};
    struct bmi_method_addr *server = pair_join(side);
    pid_t child;

    CHECK_THAT(ops->open_context(1), ==, 0);
    CHECK_THAT(op_recv(&receive, server, in, sizeof in, TAG_LATE), ==, 0);
    {
        struct op others[PENDING - 1] = {{0}};

        for (int i = 1; i < PENDING; i++)
            CHECK_THAT(op_recv(&others[i - 1], server, room[i], 100, TAG_LATE + i), ==, 0);
        CHECK(asks(server, 10, ASK_LATE));
        /* These come behind that message, on the same connection. */
        for (int i = 1; i < PENDING; i++)
            op_received(&others[i - 1], 5);
    }
    child = fork_child();
    op_received(&receive, 5);
    CHECK(memcmp(in, "late", 5) == 0);
    if (child == 0)
        _exit(0);
    reap_fork(child);
    host_stop();
    done(side);
}

/* ---- servers ---- */

static int parents_end[2];

static bool parent_wants_to_end(struct side *side)
{
    char byte;

    return recv(parents_end[0], &byte, 1, MSG_DONTWAIT) == 1;
}

static void serves_and_daemonizes(struct side *side)
{
    struct arrival request;

    pair_serve(side);
    request = host_next();
    answer(&request);
    if (fork_child() != 0)
        _exit(0);
    echo_until(side, heard_anything);
    hear(side, "stop");
    host_stop();
    done(side);
}

static void asks_before_and_after(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);

    CHECK(asks(server, 100, TAG));
    pause_ms(100);
    asks_again(server);
    round_trips(server, 2);
    host_stop();
}

static void asks_only_after(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);

    asks_again(server);
    round_trips(server, 2);
    host_stop();
}

static void a_server_daemonizes(struct world *world)
{
    struct child *server = spawn(world, "server"), *old = spawn(world, "before"), *new;
    int64_t endpoint = child_hear(server, "endpoint");

    child_tell(old, "endpoint", endpoint);
    child_end(server);
    new = spawn(world, "after");
    child_tell(new, "endpoint", endpoint);
    child_end(old);
    child_end(new);
    child_tell(server, "stop", 0);
    child_hear(server, "done");
}

/* The parent keeps the endpoint: the child gets an error, and takes the endpoint over once the parent has exited. */
static void serves_and_lives(struct side *side)
{
    struct op early = {0};
    struct bmi_method_addr *self;
    int64_t began;

    pair_serve(side);
    self = host_listen_address();
    CHECK_THAT(socketpair(AF_UNIX, SOCK_STREAM, 0, parents_end), ==, 0);
    if (fork_child() != 0) {
        echo_until(side, parent_wants_to_end);
        host_stop();
        _exit(0);
    }
    began = now_ms();
    CHECK_THAT(op_send(&early, self, "x", 1, 1), ==, -BMI_EADDRINUSE);
    CHECK_THAT(now_ms() - began, <, 2 * SEEN_AT_ONCE_MS * slower());
    began = now_ms();
    CHECK_THAT(op_send(&early, self, "x", 1, 1), ==, -BMI_EADDRINUSE);
    /* The library waits 2 s for a living parent, once. */
    CHECK_THAT(now_ms() - began, <, SEEN_AT_ONCE_MS * slower());
    CHECK_THAT(write(parents_end[1], "x", 1), ==, 1);
    UNTIL (ops->open_context(0) == 0)
        pause_ms(10);
    tell(side, "took over", 0);
    echo_until(side, heard_anything);
    hear(side, "stop");
    host_stop();
    done(side);
}

static void a_server_lives(struct world *world)
{
    struct child *server = spawn(world, "server"), *client = spawn(world, "after");
    int64_t endpoint = child_hear(server, "endpoint");

    child_hear_within(server, "took over", 3 * WAIT_MS);
    child_end(server);
    child_tell(client, "endpoint", endpoint);
    child_end(client);
    child_tell(server, "stop", 0);
    child_hear(server, "done");
}

/* ---- the child makes no call ---- */

enum { FDS = 4096 };

/* Looks at this process's descriptors. With `note`, marks the open ones in `had`; otherwise returns one that is
 * not marked, or -1. */
static int unknown_descriptor(bool *had, bool note)
{
    DIR *list = opendir("/proc/self/fd");
    int found = -1;

    CHECK(list != NULL);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        int fd = atoi(entry->d_name);
        struct stat what;

        if (entry->d_name[0] == '.' || fd == dirfd(list) || fd >= FDS || fstat(fd, &what) != 0)
            continue;
        if (note)
            had[fd] = true;
        /* libfabric's own descriptors cannot be told apart. */
        else if (!had[fd] && !port_uses_libfabric())
            found = fd;
    }
    closedir(list);
    return found;
}

static void child_has_nothing(struct side *side)
{
    static bool had[FDS];
    struct bmi_method_addr *server;
    pid_t child;

    host_load();
    unknown_descriptor(had, true);
    server = pair_join(side);
    round_trips(server, 2);
    CHECK(port_uses_libfabric() || unknown_descriptor(had, false) >= 0);
    child = fork_child();
    if (child == 0) {
        char path[64], what[256] = "";
        int fd = unknown_descriptor(had, false);

        if (fd >= 0) {
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            CHECK(readlink(path, what, sizeof what - 1) > 0);
            FAIL("the child has descriptor %d: %s", fd, what);
        }
        CHECK(!maps("memfd:mx-"));
        _exit(0);
    }
    reap_fork(child);
    round_trips(server, 1);
    host_stop();
    done(side);
}

static void only_leaves(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);
    pid_t child;

    round_trips(server, 1);
    child = fork_child();
    if (child == 0) {
#ifdef __SANITIZE_ADDRESS__
        /* The leak checker would report memory of threads that the child does not have. */
        _exit(0);
#else
        exit(0);
#endif
    }
    reap_fork(child);
    child = fork_child();
    if (child == 0) {
        CHECK_THAT(ops->finalize(), ==, 0);
        CHECK_THAT(ops->finalize(), ==, -BMI_ENODEV);
        _exit(0);
    }
    reap_fork(child);
    round_trips(server, 1);
    host_stop();
    done(side);
}

/* Forks a child that sleeps; returns when it has begun to. */
static pid_t sleeper(void)
{
    int begun[2];
    char byte;
    pid_t pid;

    CHECK_THAT(pipe(begun), ==, 0);
    pid = fork_child();
    if (pid == 0) {
        CHECK_THAT(write(begun[1], "x", 1), ==, 1);
        for (;;)
            pause();
    }
    CHECK_THAT(read(begun[0], &byte, 1), ==, 1);
    close(begun[0]);
    close(begun[1]);
    return pid;
}

/* Forks before and after the first connection; both children outlive the server. */
static void serves_and_is_killed(struct side *side)
{
    struct arrival request;

    pair_serve(side);
    tell(side, "sleeper", sleeper());
    request = host_next();
    answer(&request);
    tell(side, "sleeper", sleeper());
    echo_until(side, heard_anything);
}

static void serves_there(struct side *side)
{
    host_serve_at(hear(side, "endpoint"));
    tell(side, "back", 0);
    echo_until(side, heard_anything);
    host_stop();
}

static void notices(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);
    struct op waiting = {0};
    int64_t killed;
    char in[8];

    CHECK(asks(server, 100, TAG));
    CHECK_THAT(op_recv(&waiting, server, in, sizeof in, TAG_LATE), ==, 0);
    tell(side, "connected", 0);
    /* The operation is tested all the time; the director compares its end with the time of the kill. */
    op_wait(&waiting);
    CHECK_THAT(waiting.error, <, 0);
    killed = now_ms();
    tell(side, "noticed", killed);
    (void)hear(side, "back");
    asks_again(server);
    round_trips(server, 1);
    host_stop();
}

static void sleepers_hold_nothing(struct world *world)
{
    struct child *server = spawn(world, "server"), *client = spawn(world, "client"), *next;
    int64_t endpoint = child_hear(server, "endpoint"), killed;
    pid_t sleepers[2];

    sleepers[0] = (pid_t)child_hear(server, "sleeper");
    child_tell(client, "endpoint", endpoint);
    sleepers[1] = (pid_t)child_hear(server, "sleeper");
    child_hear(client, "connected");
    killed = now_ms();
    child_kill(server);
    next = spawn(world, "next");
    child_tell(next, "endpoint", endpoint);
    child_hear(next, "back");
    CHECK_THAT(now_ms() - killed, <, SEEN_AT_ONCE_MS * slower());
    {
        int64_t noticed = child_hear(client, "noticed");

        /* Where a death is silent, the successor reveals it. */
        printf("%s: noticed after %lld ms\n", port_name(), (long long)(noticed - killed));
        CHECK_THAT(noticed - killed, <, SEEN_AT_ONCE_MS * (death_is_silent() ? 3 : 1) * slower());
    }
    child_tell(client, "back", 0);
    child_end(client);
    child_tell(next, "stop", 0);
    child_end(next);
    kill(sleepers[0], SIGKILL);
    kill(sleepers[1], SIGKILL);
}

/* ---- threads ---- */

#ifndef __SANITIZE_ADDRESS__ /* its locks stay taken in the child of a process with threads */

enum { THREADS = 3 };

static atomic_bool over;

static void *tests(void *nothing)
{
    while (!atomic_load(&over))
        (void)host_testcontext(4, 0, 20);
    return NULL;
}

static void with_threads(struct bmi_method_addr *server, int count, void (*meanwhile)(void))
{
    pthread_t threads[THREADS];

    ops_on_many_threads = true;
    atomic_store(&over, false);
    for (int i = 0; i < THREADS; i++)
        CHECK_THAT(pthread_create(&threads[i], NULL, tests, NULL), ==, 0);
    for (int i = 0; i < count; i++) {
        round_trips(server, 1);
        if (meanwhile != NULL)
            meanwhile();
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static struct bmi_method_addr *its_server;

static void forks_meanwhile(void)
{
    pid_t child = fork_child();

    if (child == 0) {
        with_threads(its_server, 3, NULL);
        _exit(0);
    }
    reap_fork(child);
}

static void forks_with_threads(struct side *side)
{
    its_server = pair_join(side);
    with_threads(its_server, 8, forks_meanwhile);
    host_stop();
    done(side);
}

#endif

#define WITH_ECHO(sentence, client) DIRECTED(sentence, with_an_echo, {"echo", echo}, {"client", client})
#ifndef __SANITIZE_ADDRESS__
#define THREADED , WITH_ECHO(forks_of_a_process_with_threads_in_test_calls_go_on, forks_with_threads)
#else
#define THREADED
#endif

TESTS_AFTER(port_notices_deaths_soon(),
    WITH_ECHO(a_client_that_daemonizes_goes_on_in_its_child, daemonizes),
    WITH_ECHO(a_grandchild_goes_on_too, daemonizes_twice),
    WITH_ECHO(parent_and_child_both_go_on, both_go_on),
    WITH_ECHO(pending_operations_end_once_in_the_child_and_go_on_in_the_parent, forks_with_pending),
    WITH_ECHO(what_had_ended_is_reported_in_both, forks_with_completions),
    DIRECTED(a_server_that_daemonizes_serves_its_old_clients_and_new_ones, a_server_daemonizes,
             {"server", serves_and_daemonizes}, {"before", asks_before_and_after},
             {"after", asks_only_after}),
    DIRECTED(a_child_of_a_living_server_waits_for_its_place, a_server_lives,
             {"server", serves_and_lives}, {"after", asks_only_after}),
    WITH_ECHO(a_child_that_merely_lives_has_nothing, child_has_nothing),
    WITH_ECHO(a_child_that_only_ends_changes_nothing, only_leaves),
    DIRECTED(sleeping_children_of_a_killed_server_hold_nothing, sleepers_hold_nothing,
             {"server", serves_and_is_killed}, {"client", notices}, {"next", serves_there}) THREADED)
