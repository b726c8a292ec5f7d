/*
 * libfabric inside a process: which library and provider may be asked for, what loading it changes in the process,
 * and peers that do not have it.
 *
 *     MX_LIBFABRIC, MX_PROVIDER ──► initialize ──► 0
 *                                        │
 *                                        └──► -BMI_EDEVINIT and one line: what was asked for,
 *                                             what was found, what to do; other ports work
 *
 * Each test sets MX_PORT by itself; the runner runs this program once, not once per port.
 */
#include "../support/limit.h"
#include "../support/log.h"
#include "../support/memory.h"
#include "../support/pair.h"
#include "../support/wait_children.h"

/* SA_RESTORER: libc sets this flag in every disposition that it has set once. */
enum { RESTORER = 0x04000000 };

/* ---- helpers ---- */

static bool has_libfabric(void)
{
    return maps("libfabric");
}

static int try_client(void)
{
    host_load();
    return ops->initialize(NULL, METHOD_ID, 0, NULL);
}

/* Checks that initialize fails with the documented code and logs the reason, and that tcp works afterwards. */
static void refused(const char *const *words)
{
    setenv("MX_PORT", "rdm", 1);
    log_forget();
    CHECK_THAT(try_client(), ==, -BMI_EDEVINIT);
    log_is_one(__FILE__, __LINE__, 0, words);
    setenv("MX_PORT", "tcp", 1);
    pair_exchange_self(host_lookup_endpoint(host_start_server()), 8, 1);
    /* Lines about occupied endpoints may come; tcp says nothing about a fabric. */
    CHECK_THAT(log_said("rdm") + log_said("libfabric"), ==, 0);
    host_stop();
}

/* Restores what the runner has set, because the tests may run with another libfabric. */
static void restore(const char *name, const char *value)
{
    if (value != NULL)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* ---- libraries and providers that are not available ---- */

static void asks_for_libraries(struct side *side)
{
    char text[] = "/tmp/c_tests_no_library.XXXXXX";
    /* The value of MX_LIBFABRIC, and texts that the line has to contain. */
    const char *const asked[][4] = {
        {"/nonexistent/libfabric.so.1", "not found", "MX_LIBFABRIC"},
        {"/nonexistent/libfabric.so.1", "not found", "MX_LIBFABRIC"}, /* a second time */
        {text, "cannot be loaded", "MX_LIBFABRIC"},
        {"/tmp", "cannot be loaded", "MX_LIBFABRIC"},
        {"libpthread.so.0", "fi_"}, /* a library, but not libfabric */
    };
    char *usual = getenv("MX_LIBFABRIC");
    int fd = mkstemp(text);

    log_take();
    CHECK(fd >= 0);
    CHECK_THAT(write(fd, "this is no library\n", 19), ==, 19);
    close(fd);
    usual = usual != NULL ? strdup(usual) : NULL;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        setenv("MX_LIBFABRIC", asked[i][0], 1);
        refused(asked[i]);
    }
    /* The right library still works afterwards, in the same process. */
    restore("MX_LIBFABRIC", usual);
    setenv("MX_PORT", "rdm", 1);
    CHECK_THAT(try_client(), ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
    unlink(text);
    free(usual);
}

static void asks_for_providers(struct side *side)
{
    static const char *const asked[][6] = {
        {"nonsense", "(nonsense)", "found", "tcp;ofi_rxm", "MX_PROVIDER"},
        {"sockets", "deprecated", "MX_PROVIDER"},
        {"net", "use tcp", "MX_PROVIDER"},
        {"net;ofi_rxm", "use tcp", "MX_PROVIDER"},
        {"shm", "shared memory", "MX_PROVIDER"},
        {"udp;ofi_rxd", "unfinished", "MX_PROVIDER"},
        {"udp", "no reliable messages", "MX_PROVIDER"},
    };
    char *usual = getenv("MX_PROVIDER");

    log_take();
    usual = usual != NULL ? strdup(usual) : NULL;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        setenv("MX_PROVIDER", asked[i][0], 1);
        refused(asked[i]);
    }
    restore("MX_PROVIDER", usual);
    setenv("MX_PORT", "rdm", 1);
    CHECK_THAT(try_client(), ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
    free(usual);
}

/* Providers without an adapter register no memory; those of adapters name the limit. */
static void locks_nothing(struct side *side)
{
    int result;

    log_take();
    limit_to(RLIMIT_MEMLOCK, 0);
    setenv("MX_PORT", "rdm", 1);
    log_forget();
    result = try_client();
    if (result != 0) {
        CHECK_THAT(result, ==, -BMI_EDEVINIT);
        log_one(0, "RLIMIT_MEMLOCK");
        return;
    }
    CHECK_THAT(ops->finalize(), ==, 0);
}

/* ---- changes to the process ---- */

static void local_and_tcp_load_nothing(struct side *side)
{
    static const char *const ports[] = {"local", "tcp"};

    for (int i = 0; i < 2; i++) {
        setenv("MX_PORT", ports[i], 1);
        pair_exchange_self(host_lookup_endpoint(host_start_server()), 8, 1);
        CHECK(!has_libfabric());
        host_stop();
    }
    setenv("MX_PORT", "rdm", 1);
    pair_exchange_self(host_lookup_endpoint(host_start_server()), 8, 1);
    CHECK(has_libfabric());
    host_stop();
}

static void on_signal(int number)
{
}

static void note_dispositions(struct sigaction *actions)
{
    for (int number = 1; number <= SIGRTMAX; number++) {
        memset(&actions[number], 0, sizeof actions[number]);
        (void)sigaction(number, NULL, &actions[number]); /* two signals are reserved by libc */
    }
}

static void keeps_signals(struct side *side)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGSEGV, SIGABRT, SIGCHLD};
    struct sigaction before[65], after[65];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_NODEFER};
    sigset_t mask, mask_after;

    sigaddset(&action.sa_mask, SIGUSR2);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        CHECK(sigaction(caught[i], &action, NULL) == 0);
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
    note_dispositions(before);
    setenv("MX_PORT", "rdm", 1);
    for (int again = 0; again < 2; again++) {
        host_start_client();
        note_dispositions(after);
        CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask_after) == 0);
        for (int number = 1; number <= SIGRTMAX; number++) {
            if (before[number].sa_handler != after[number].sa_handler ||
                (before[number].sa_flags ^ after[number].sa_flags) & ~RESTORER)
                FAIL("signal %d is handled in another way than before", number);
            for (int other = 1; other <= SIGRTMAX; other++)
                CHECK_THAT(sigismember(&before[number].sa_mask, other), ==,
                           sigismember(&after[number].sa_mask, other));
            CHECK_THAT(sigismember(&mask, number), ==, sigismember(&mask_after, number));
        }
        host_stop();
    }
}

/* ---- fork while a fabric is open and a peer connected ---- */

static void forks(struct side *side)
{
    struct bmi_method_addr *server;
    pid_t child;

    setenv("MX_PORT", "rdm", 1);
    server = pair_client(side);
    fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int outcount;
        struct bmi_method_unexpected_info info;

        /* The child opens a fabric of its own; fork.c tests messages over it. */
        if (ops->testunexpected(1, &outcount, &info, 0) != 0 || outcount != 0)
            leave_fork("1");
        if (ops->finalize() != 0)
            leave_fork("2");
        leave_fork("0");
    }
    reap_fork(child);
    /* The peer has noticed nothing, and the fabric still carries messages. */
    for (int i = 0; i < 5; i++)
        pair_hello(server);
    pair_part(side);
}

static void stays_with_parent(struct side *side)
{
    setenv("MX_PORT", "rdm", 1);
    pair_server(side);
    for (int i = 0; i < 5; i++)
        pair_accept();
    pair_part(side);
}

/* ---- peers without a fabric ---- */

enum { ROUNDS = 3, SIZE = 300000 };

static void exchange(struct bmi_method_addr *peer)
{
    for (int i = 0; i < ROUNDS; i++)
        pair_exchange(peer, SIZE, i);
}

static void tcp_server(struct side *side)
{
    setenv("MX_PORT", "tcp", 1);
    exchange(pair_server(side));
    CHECK(!has_libfabric());
    pair_part(side);
}

/* Warns once, however often the client connects. */
static void rdm_client(struct side *side)
{
    struct bmi_method_addr *server;

    log_take();
    setenv("MX_PORT", "rdm", 1);
    server = pair_client(side);
    exchange(server);
    log_one(0, "tcp", "falling back");
    pair_part(side);
}

static void rdm_server(struct side *side)
{
    struct bmi_method_addr *client;

    log_take();
    setenv("MX_PORT", "rdm", 1);
    pair_serve(side);
    log_forget(); /* lines about occupied endpoints */
    client = pair_accept();
    exchange(client);
    /* A peer that comes over tcp is served over tcp, without a warning. */
    CHECK_THAT(log_count(), ==, 0);
    pair_part(side);
}

static void tcp_client(struct side *side)
{
    setenv("MX_PORT", "tcp", 1);
    exchange(pair_client(side));
    CHECK(!has_libfabric());
    pair_part(side);
}

/* An address with rdm@ allows no fallback. */
static void insists(struct side *side)
{
    struct bmi_method_addr *server;
    struct op send = {0};
    char text[ADDRESS_SIZE];

    setenv("MX_PORT", "rdm", 1);
    host_start_client();
    snprintf(text, sizeof text, "mx://rdm@localhost:0:%d", (int)hear(side, "endpoint"));
    server = host_lookup(text);
    CHECK(server != NULL);
    if (op_send_unexpected(&send, server, "hello", 5, 1) >= 0) {
        op_wait(&send);
        CHECK_THAT(send.error, <, 0);
    }
    tell(side, "failed", 0);
    host_stop();
}

static void has_no_rdm(struct side *side)
{
    struct arrival arrival;

    setenv("MX_PORT", "tcp", 1);
    pair_serve(side);
    while (!heard_anything(side))
        CHECK(!host_next_within(&arrival, 10));
    hear(side, "failed");
    host_stop();
}

/* A process that forces another port still reaches an rdm address: the port is opened when needed. */
static void tcp_client_of_rdm_address(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");
    struct bmi_method_addr *server;
    char text[ADDRESS_SIZE];

    setenv("MX_PORT", "tcp", 1);
    host_start_client();
    CHECK(!has_libfabric());
    snprintf(text, sizeof text, "mx://rdm@localhost:0:%d", endpoint);
    server = host_lookup(text);
    CHECK(server != NULL);
    pair_hello(server);
    CHECK(has_libfabric());
    exchange(server);
    pair_part(side);
}

TESTS(
    SOLO(libraries_that_are_none_are_named_and_other_ports_work, asks_for_libraries),
    SOLO(missing_or_banned_providers_are_rejected_with_reason,
         asks_for_providers),
    SOLO(without_lockable_memory_initialize_works_or_names_the_limit, locks_nothing),
    SOLO(only_rdm_loads_libfabric, local_and_tcp_load_nothing),
    SOLO(initialize_leaves_signals_as_they_were, keeps_signals),
    PAIR(a_forked_child_opens_its_own_fabric, stays_with_parent,
         forks),
    PAIR(a_client_with_rdm_reaches_a_server_without_and_says_so_once, tcp_server, rdm_client),
    PAIR(a_server_with_rdm_serves_a_client_without, rdm_server, tcp_client),
    PAIR(an_address_with_rdm_has_no_fallback, has_no_rdm, insists),
    PAIR(an_address_with_rdm_opens_the_fabric_when_it_is_needed, rdm_server,
         tcp_client_of_rdm_address))
