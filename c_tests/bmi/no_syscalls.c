/*
 * Starting where threads, system calls or descriptors are missing.
 *
 *     initialize ──► 0, and the library works
 *                └─► the documented code, and one line that names the limit or the call
 */
#include "../support/ids.h"
#include "../support/limit.h"
#include "../support/log.h"
#include "../support/pair.h"
#include "../support/syscalls.h"
#include "../support/user.h"
#include "../support/wire.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static void refused(int code, const char *word)
{
    host_load();
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, NULL), ==, code);
    log_one(0, word);
}

static void begins(void)
{
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, NULL), ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
}

/* ---- no threads ---- */

static void without_threads(struct side *side)
{
    rlim_t before;

    log_take();
    become_for_good(SOME_USER);
    before = limit_to(RLIMIT_NPROC, 1);
    for (int i = 0; i < 3; i++)
        refused(-BMI_EAGAIN, "RLIMIT_NPROC is 1");
    CHECK(setenv("MX_HELPER", "off", 1) == 0);
    begins();
    /* LeakSanitizer needs a thread at exit. */
    limit_to(RLIMIT_NPROC, before);
}

static void refuse_call(unsigned call, unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};

    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void without_clone3(struct side *side)
{
    log_take();
    refuse_call(SYS_clone3, EPERM);
    /* valgrind answers clone3 itself. */
    if (getenv("C_TESTS_WRAP") == NULL)
        refused(-BMI_EPERM, "clone");
    else
        host_load();
    CHECK(setenv("MX_HELPER", "off", 1) == 0);
    begins();
}

/* With ENOSYS, the answer of old kernels and most filters, the C library uses clone. */
static void with_clone_only(struct side *side)
{
    log_take();
    refuse_call(SYS_clone3, ENOSYS);
    host_load();
    begins();
}

/* ---- no eventfd ---- */

/* Number of the system call that fails, and its error; 0 lets it succeed again. */
static long failing_call;
static int failing_with;
static atomic_int asked;

static bool fail_call(long number, long arguments[6], long *answer)
{
    if (number != failing_call || failing_with == 0)
        return false;
    asked++;
    errno = failing_with;
    *answer = -1;
    return true;
}

static void let_fail(long call, int error)
{
    failing_call = call;
    failing_with = error;
    syscall_guard = fail_call;
}

static void without_eventfd(struct side *side)
{
    static const struct {
        int number, code;
    } errors[] = {{EMFILE, -BMI_EMFILE}, {ENFILE, -BMI_EMFILE}, {EPERM, -BMI_EPERM}, {ENOMEM, -BMI_ENOMEM}};

    log_take();
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        let_fail(SYS_eventfd2, errors[i].number);
        refused(errors[i].code, "eventfd");
    }
    failing_with = 0;
    begins();
    /* Fails also after it has worked once. */
    failing_with = EMFILE;
    refused(-BMI_EMFILE, "RLIMIT_NOFILE is ");
    failing_with = 0;
    begins();
}

/* ---- few descriptors ---- */

enum { FEWEST = 8, MOST = 80, ENOUGH = 4 };

/* Serves one client, or reports that the limit does not allow it. */
static void server_with_few(struct side *side)
{
    int attempt = 0, endpoint = ids_try(attempt), result;

    log_take();
    limit_to(RLIMIT_NOFILE, (rlim_t)hear(side, "descriptors"));
    while ((result = host_try_server(endpoint)) == -BMI_EADDRINUSE) {
        log_forget();
        endpoint = ids_try(++attempt);
    }
    if (result != 0) {
        CHECK_THAT(result, ==, -BMI_EMFILE);
        log_one(0, "RLIMIT_NOFILE is");
        tell(side, "endpoint", -1);
        return;
    }
    CHECK_THAT(ops->open_context(0), ==, 0);
    tell(side, "endpoint", endpoint);
    pair_accept();
    pair_part(side);
}

static void few_descriptors(struct world *world)
{
    int served = 0, refusals = 0;

    for (int few = FEWEST; served < ENOUGH; few++) {
        struct child *server = spawn(world, "server"), *client;
        int endpoint;

        CHECK_THAT(few, <, MOST);
        child_tell(server, "descriptors", few);
        endpoint = (int)child_hear(server, "endpoint");
        if (endpoint < 0) {
            CHECK_THAT(served, ==, 0);
            refusals++;
            child_end(server);
            continue;
        }
        client = spawn(world, "client");
        child_tell(client, "endpoint", endpoint);
        child_tell(server, "bye", child_hear(client, "bye"));
        child_tell(client, "bye", child_hear(server, "bye"));
        child_end(client);
        child_end(server);
        served++;
    }
    CHECK_THAT(refusals, >, 0);
}

/* More silent connections than descriptors. */
enum { LIMIT = 48, SILENT = 60 };

static void server_at_its_limit(struct side *side)
{
    log_take();
    limit_to(RLIMIT_NOFILE, LIMIT);
    CHECK(setenv("MX_HELPER", "off", 1) == 0);
    pair_serve(side);
    /* One poll finds all connections, and drops none for another. */
    hear(side, "dialled");
    UNTIL (log_said("tcp: rejected ") != 0)
        host_pump(5);
    CHECK_THAT(log_said("; RLIMIT_NOFILE is 48: raise it with ulimit -n or LimitNOFILE="), >, 0);
    tell(side, "said", 0);
    host_stop();
}

static void silent_connections(struct world *world)
{
    struct child *server = spawn(world, "server");
    int endpoint = (int)child_hear(server, "endpoint"), sockets[SILENT];

    for (int i = 0; i < SILENT; i++)
        CHECK((sockets[i] = wire_connect(DOOR_TCP, child_pid(server), endpoint)) >= 0);
    child_tell(server, "dialled", 0);
    child_hear(server, "said");
    for (int i = 0; i < SILENT; i++)
        close(sockets[i]);
    child_end(server);
}

/* ---- no membarrier ---- */

enum { SLEEPS = 500, WITHOUT = -1 };

static void refuse_membarrier(void)
{
    CHECK(setenv("MX_SPIN_US", "0", 1) == 0);
    refuse_call(SYS_membarrier, ENOSYS);
    CHECK(syscall(SYS_membarrier, 0, 0, 0) == -1 && errno == ENOSYS);
}

/* Sleeps until the operation is done: a lost wake-up would cost the whole timeout. */
static void asleep(struct op *op)
{
    while (!op_done(op))
        host_testcontext(1, 0, WAIT_MS);
}

/* Each message finds its receiver asleep or about to sleep. */
static void sleeps(struct bmi_method_addr *peer, bool first)
{
    for (int i = 0; i < SLEEPS; i++) {
        struct op sent = {0}, received = {0};
        int byte = i & 0x7f, got = -1;

        op_recv(&received, peer, &got, sizeof got, i);
        if (!first)
            asleep(&received);
        op_send(&sent, peer, &byte, sizeof byte, i);
        op_sent(&sent);
        asleep(&received);
        op_received(&received, sizeof got);
        CHECK_THAT(got, ==, byte);
    }
}

/* The variant: WITHOUT if membarrier is missing. */
static void server_sleeps(struct side *side)
{
    if (side->variant == WITHOUT)
        refuse_membarrier();
    sleeps(pair_server(side), false);
    pair_part(side);
}

static void client_sleeps(struct side *side)
{
    if (side->variant == WITHOUT)
        refuse_membarrier();
    sleeps(pair_client(side), true);
    pair_part(side);
}

/* ---- no epoll_pwait2 ---- */

/* The library tries the call once; after the error that a filter gives it still sleeps. The variant is that error. */
static void without_pwait2(struct side *side, void (*sleep)(struct side *))
{
    CHECK(setenv("MX_SPIN_US", "0", 1) == 0);
    let_fail(SYS_epoll_pwait2, (int)side->variant);
    sleep(side);
    CHECK_THAT(asked, ==, 1);
    CHECK_THAT(cpu_ms(), <, 5000 * slower());
}

static void server_without_pwait2(struct side *side) { without_pwait2(side, server_sleeps); }
static void client_without_pwait2(struct side *side) { without_pwait2(side, client_sleeps); }

#define ALWAYS \
    SOLO(without_clone3_it_says_so, without_clone3), \
    SOLO(where_clone3_is_unknown_it_begins, with_clone_only), \
    SOLO(without_eventfd_it_says_so, without_eventfd), \
    PAIR_OF(without_epoll_pwait2_it_is_asked_for_once, ENOSYS, server_without_pwait2, EPERM, client_without_pwait2)
/* libfabric opens as many descriptors as it likes. */
#define FEW \
    DIRECTED(who_begins_with_few_descriptors_serves, few_descriptors, {"server", server_with_few}, \
             {"client", only_client}), \
    DIRECTED(a_server_at_its_limit_of_descriptors_names_it, silent_connections, {"server", server_at_its_limit})
/* If only one side has membarrier, neither relies on it. */
#define NO_BARRIERS \
    PAIR_OF(without_membarrier_sleepers_are_woken, WITHOUT, server_sleeps, WITHOUT, client_sleeps), \
    PAIR_OF(a_server_without_membarrier_wakes_and_is_woken, WITHOUT, server_sleeps, 0, client_sleeps), \
    PAIR_OF(a_client_without_membarrier_wakes_and_is_woken, 0, server_sleeps, WITHOUT, client_sleeps)

static const struct scenario as_root[] = {SOLO(without_threads_it_says_so, without_threads), ALWAYS, FEW, NO_BARRIERS, {0}};
static const struct scenario as_user[] = {ALWAYS, FEW, NO_BARRIERS, {0}};
static const struct scenario over_rdm[] = {ALWAYS, {0}};

int main(int argc, char **argv)
{
    port_notices_deaths_soon();
    return harness_main(argc, argv, port_uses_libfabric() ? over_rdm : users_can_be_had() ? as_root : as_user);
}
