/*
 * Hosts that change their process in ways that hosts do: docs/c-api.md.
 *
 *     a client, a server, or both: no descriptors 0 to 2, a storm of signals, another root, exit in a handler,
 *     variables of Rust's standard library
 *     ── and messages are exchanged
 */
#include "../support/pair.h"
#include "../support/log.h"
#include "../support/memory.h"
#include "../support/wait_children.h"
#include "../support/user.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { TAG = 7, TIMES = 30, LARGE = 300000 };
#define HUGE_STACK (INT64_C(1) << 60)

/* ---- messages ---- */

static void serves(struct side *side)
{
    pair_exchange_all(pair_server(side), TIMES);
    pair_part(side);
}

static void calls(struct side *side)
{
    pair_exchange_all(pair_client(side), TIMES);
    pair_part(side);
}

/* ---- no descriptors 0 to 2 ---- */

static void close_the_first(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        close(fd);
}

static void server_without_the_first(struct side *side)
{
    close_the_first();
    serves(side);
}

/* The log writes lines to a descriptor that is closed. */
static void client_without_the_first(struct side *side)
{
    close_the_first();
    CHECK(setenv("BMI_MX_LOG", "trace", 1) == 0);
    calls(side);
}

/* ---- signals ---- */

static volatile sig_atomic_t handled;

static void handle(int signal)
{
    handled++;
}

static void every_half_millisecond(void)
{
    const struct itimerval often = {{0, 500}, {0, 500}};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK}; /* without SA_RESTART */
    static char memory[1 << 16];
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};

    CHECK(sigaltstack(&stack, NULL) == 0); /* the stacks of the calls are small */
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && sigaction(SIGPROF, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0 && setitimer(ITIMER_PROF, &often, NULL) == 0);
}

/* Messages get through; calls that wait for nothing do not fail. */
static void in_a_storm(struct side *side, struct bmi_method_addr *(*meet)(struct side *))
{
    struct bmi_method_addr *peer;

    every_half_millisecond();
    peer = meet(side);
    pair_exchange_all(peer, TIMES);
    pair_sync(side);
    for (int64_t begin = now_ms(); now_ms() - begin < 300;) {
        CHECK_THAT(host_testcontext(4, 0, 100), ==, 0);
        CHECK_THAT(host_testunexpected(4, 20), ==, 0);
    }
    pair_exchange(peer, 8, TAG);
    pair_part(side);
    CHECK(handled > 0);
}

static void server_in_a_storm(struct side *side) { in_a_storm(side, pair_server); }
static void client_in_a_storm(struct side *side) { in_a_storm(side, pair_client); }

/* ---- exit ---- */

static void exits(int signal)
{
    exit(0);
}

static void client_that_exits(struct side *side)
{
    struct bmi_method_addr *peer = pair_client(side);
    const struct itimerval once = {{0, 0}, {0, 50000}};
    struct op never = {0};
    char in[8];

    CHECK(signal(SIGALRM, exits) != SIG_ERR);
    CHECK_THAT(op_recv(&never, peer, in, sizeof in, TAG), ==, 0);
    CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
    op_wait(&never);
    FAIL("the handler did not come");
}

static void server_of_one_that_exits(struct side *side)
{
    pair_server(side);
    pair_idle(side); /* until its end */
    host_stop();
}

/* ---- another root ---- */

static void go_where_nothing_is(void)
{
    char directory[] = "/tmp/guest_XXXXXX";

    host_load();
    if (slower() > 1) /* a checker needs /proc */
        return;
    CHECK(mkdtemp(directory) != NULL);
    CHECK(chdir(directory) == 0 && rmdir(directory) == 0 && chroot(".") == 0); /* the root is a deleted directory */
}

static void server_where_nothing_is(struct side *side)
{
    go_where_nothing_is();
    serves(side);
}

static void client_where_nothing_is(struct side *side)
{
    go_where_nothing_is();
    calls(side);
}

/* Containers may forbid that; then the root stays writable. */
static void make_root_read_only(void)
{
    int made;

    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("/", "/", "none", MS_BIND | MS_REC, NULL) != 0 || chdir("/") != 0 || chroot(".") != 0 ||
        mount("none", "/", "none", MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) != 0)
        return;
    made = open("/guest", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(made < 0 || unlink("/guest") == 0);
}

static void server_that_cannot_write(struct side *side)
{
    make_root_read_only();
    serves(side);
}

static void client_that_cannot_write(struct side *side)
{
    make_root_read_only();
    calls(side);
}

/* ---- dlclose ---- */

static void *visits(void *unused)
{
    const struct bmi_method_ops *table = the_ops();

    CHECK(table != NULL && maps("libbmi_mx"));
    CHECK_THAT(table->initialize(NULL, METHOD_ID, 0, NULL), ==, 0);
    CHECK_THAT(table->open_context(0), ==, 0);
    CHECK(table->method_addr_lookup("mx://localhost:70000") == NULL); /* logs a line */
    table->close_context(0);
    CHECK_THAT(table->finalize(), ==, 0);
    return unused;
}

static void comes_and_goes(struct side *side)
{
    int descriptors = 0;

    for (int i = 0; i < 6; i++) {
        pthread_t thread;
        pid_t child;
        int status;

        if (i % 2 == 0) {
            CHECK(pthread_create(&thread, NULL, visits, NULL) == 0);
            CHECK(pthread_join(thread, NULL) == 0);
        } else {
            visits(NULL);
        }
        library_close();
        CHECK(maps("libbmi_mx")); /* the library stays mapped */
        if (getenv("C_TESTS_EMULATOR") == NULL) /* the emulator has a thread of its own */
            UNTIL (entries("/proc/self/task") == 3) /* . and ..; a thread that was joined may still be leaving */
                pause_ms(1);
        if (i == 0)
            descriptors = entries("/proc/self/fd");
        CHECK_THAT(entries("/proc/self/fd"), <=, descriptors);
        child = fork_child();
        if (child == 0)
            _exit(0);
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* ---- variables of Rust's standard library ---- */

/* Thread-local data, which the C library puts on the stack of every thread. */
static _Thread_local volatile char thread_data[3 << 20];

static void set_variables_of_rust(const struct side *side)
{
    char stack[24];

    snprintf(stack, sizeof stack, "%lld", (long long)side->variant);
    thread_data[0] = 1;
    CHECK(setenv("RUST_MIN_STACK", stack, 1) == 0);
    CHECK(setenv("RUST_BACKTRACE", "full", 1) == 0);
    CHECK(setenv("RUST_LOG", "trace", 1) == 0);
    log_take();
}

static void answer_requests(struct side *side)
{
    char *answer = fenced(LARGE);

    set_variables_of_rust(side);
    pair_serve(side);
    for (int i = 0; i < 2; i++) {
        struct arrival request;

        usleep(200000);
        request = host_next();
        send_message(request.from, answer, LARGE, TAG);
        arrival_free(&request);
    }
    fenced_free(answer);
    pair_part(side);
}

/* Both sides leave connecting to the library's own thread; this side lets that thread receive the answer, too. */
static void ask_and_sleep(struct side *side)
{
    struct bmi_method_addr *server;
    char *answer = fenced(LARGE);

    set_variables_of_rust(side);
    server = pair_join(side);
    for (int i = 0; i < 2; i++) {
        struct op ask = {0}, receive = {0};

        CHECK_THAT(op_recv(&receive, server, answer, LARGE, TAG), >=, 0);
        CHECK_THAT(op_send_unexpected(&ask, server, "ask", 3, TAG), >=, 0);
        usleep(400000);
        op_sent(&ask);
        op_received(&receive, LARGE);
    }
    fenced_free(answer);
    CHECK_THAT(log_count(), ==, 0);
    CHECK_THAT(log_said("INIT -> WAIT"), ==, 0); /* a line of level debug */
    pair_part(side);
}

#define ALWAYS \
    PAIR(a_server_without_descriptors_0_to_2, server_without_the_first, calls), \
    PAIR(a_client_without_descriptors_0_to_2, serves, client_without_the_first), \
    PAIR(both_without_descriptors_0_to_2, server_without_the_first, client_without_the_first), \
    PAIR(both_in_a_storm_of_signals, server_in_a_storm, client_in_a_storm), \
    PAIR(a_client_that_exits_in_a_handler, server_of_one_that_exits, client_that_exits), \
    PAIR_OF(a_min_stack_of_0_changes_nothing, 0, answer_requests, 0, ask_and_sleep), \
    PAIR_OF(a_min_stack_of_1_changes_nothing, 1, answer_requests, 1, ask_and_sleep), \
    PAIR_OF(a_small_min_stack_changes_nothing, 24576, answer_requests, 24576, ask_and_sleep), \
    PAIR_OF(a_huge_min_stack_changes_nothing, HUGE_STACK, answer_requests, HUGE_STACK, ask_and_sleep)
#define AS_ROOT \
    PAIR(both_where_there_are_no_files, server_where_nothing_is, client_where_nothing_is), \
    PAIR(both_where_no_file_can_be_written, server_that_cannot_write, client_that_cannot_write)

/* libfabric stays loaded, and needs its files. */
static const struct scenario over_rdm[] = {ALWAYS, {0}};
static const struct scenario as_user[] = {ALWAYS, SOLO(closed_and_opened_again, comes_and_goes), {0}};
static const struct scenario as_root[] = {ALWAYS, SOLO(closed_and_opened_again, comes_and_goes), AS_ROOT, {0}};

int main(int argc, char **argv)
{
    port_notices_deaths_soon();
    return harness_main(argc, argv, port_uses_libfabric() ? over_rdm : users_can_be_had() ? as_root : as_user);
}
