/*
 * Starting without what the library needs or uses: threads, calls of the kernel, descriptors.
 *
 *     initialize ──► 0, and it works
 *                └─► the documented code, and one line that names the limit or the call
 */
#include "../support/log.h"
#include "../support/pair.h"
#include "../support/port.h"
#include "../support/user.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    struct rlimit before, one;

    (void)side;
    log_take();
    become_for_good(SOME_USER);
    CHECK(getrlimit(RLIMIT_NPROC, &before) == 0);
    one = before;
    one.rlim_cur = 1;
    CHECK(setrlimit(RLIMIT_NPROC, &one) == 0);
    for (int i = 0; i < 3; i++)
        refused(-BMI_EAGAIN, "RLIMIT_NPROC is 1");
    CHECK(setenv("MX_HELPER", "off", 1) == 0);
    begins();
    /* The look for leaks at the end has a thread. */
    CHECK(setrlimit(RLIMIT_NPROC, &before) == 0);
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
    (void)side;
    log_take();
    refuse_call(SYS_clone3, EPERM);
    /* valgrind has clone for it. */
    if (getenv("C_TESTS_WRAP") == NULL)
        refused(-BMI_EPERM, "clone");
    else
        host_load();
    CHECK(setenv("MX_HELPER", "off", 1) == 0);
    begins();
}

/* As old kernels and most filters answer: the C library has another call. */
static void with_clone_only(struct side *side)
{
    (void)side;
    log_take();
    refuse_call(SYS_clone3, ENOSYS);
    host_load();
    begins();
}

/* ---- no eventfd ---- */

static int no_eventfd;

/* In place of the C library's; the library calls it by that name. */
int guarded_eventfd(unsigned initial, int flags) __asm__("eventfd");

int guarded_eventfd(unsigned initial, int flags)
{
    if (no_eventfd != 0) {
        errno = no_eventfd;
        return -1;
    }
    return (int)syscall(SYS_eventfd2, initial, flags);
}

static void without_eventfd(struct side *side)
{
    static const struct {
        int number, code;
    } errors[] = {{EMFILE, -BMI_EMFILE}, {ENFILE, -BMI_EMFILE}, {EPERM, -BMI_EPERM}, {ENOMEM, -BMI_ENOMEM}};

    (void)side;
    log_take();
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        no_eventfd = errors[i].number;
        refused(errors[i].code, "eventfd");
    }
    no_eventfd = 0;
    begins();
    /* And where it had them once. */
    no_eventfd = EMFILE;
    refused(-BMI_EMFILE, "RLIMIT_NOFILE");
    no_eventfd = 0;
    begins();
}

/* ---- few descriptors ---- */

enum { FEWEST = 8, MOST = 80, ENOUGH = 4 };

/* Serves one client, or says that it cannot. */
static void server_with_few(struct side *side)
{
    struct rlimit few;
    int endpoint = 1024 + (int)((unsigned)getpid() * 2654435761u % 27000u), result;

    log_take();
    CHECK(getrlimit(RLIMIT_NOFILE, &few) == 0);
    few.rlim_cur = (rlim_t)hear(side, "descriptors");
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while ((result = host_try_server(endpoint)) == -BMI_EADDRINUSE) {
        log_forget();
        endpoint++;
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

static void client_of_few(struct side *side)
{
    pair_hello(pair_join(side));
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

/* ---- no membarrier ---- */

enum { SLEEPS = 500 };

static void refuse_membarrier(void)
{
    CHECK(setenv("MX_SPIN_US", "0", 1) == 0);
    refuse_call(SYS_membarrier, ENOSYS);
    CHECK(syscall(SYS_membarrier, 0, 0, 0) == -1 && errno == ENOSYS);
}

/* Asleep until it is woken: each wake-up that is lost costs the whole time. */
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

static void server_sleeps(struct side *side)
{
    sleeps(pair_server(side), false);
    pair_part(side);
}

static void client_sleeps(struct side *side)
{
    sleeps(pair_client(side), true);
    pair_part(side);
}

static void server_without_membarrier(struct side *side)
{
    refuse_membarrier();
    server_sleeps(side);
}

static void client_without_membarrier(struct side *side)
{
    refuse_membarrier();
    client_sleeps(side);
}

#define ALWAYS                                                                            \
    SOLO(without_clone3_it_says_so, without_clone3),                                      \
        SOLO(where_clone3_is_unknown_it_begins, with_clone_only),                         \
        SOLO(without_eventfd_it_says_so, without_eventfd)
/* libfabric opens what it likes. */
#define FEW                                                                               \
    DIRECTED(who_begins_with_few_descriptors_serves, few_descriptors, {"server", server_with_few}, \
             {"client", client_of_few})
/* Where the other side has it, neither relies on it. */
#define NO_BARRIERS                                                                       \
    PAIR(without_membarrier_sleepers_are_woken, server_without_membarrier, client_without_membarrier), \
        PAIR(a_server_without_membarrier_wakes_and_is_woken, server_without_membarrier, client_sleeps),  \
        PAIR(a_client_without_membarrier_wakes_and_is_woken, server_sleeps, client_without_membarrier)

static const struct scenario as_root[] = {SOLO(without_threads_it_says_so, without_threads), ALWAYS, FEW, NO_BARRIERS, {0}};
static const struct scenario as_user[] = {ALWAYS, FEW, NO_BARRIERS, {0}};
static const struct scenario over_rdm[] = {ALWAYS, {0}};

int main(int argc, char **argv)
{
    port_notices_deaths_soon();
    return harness_main(argc, argv, port_is("rdm") ? over_rdm : users_can_be_had() ? as_root : as_user);
}
