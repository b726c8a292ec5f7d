/*
 * Initializing and finalizing, error handlers, opening and closing endpoints.
 *
 *     mx_init  1 ── 2 (already) ── ... ── mx_finalize 1 ── 0: everything is closed, and again
 */
#include "support/party.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "../support/limit.h"
#include "../support/memory.h"

/* ---- init, finalize ---- */

/* Returns the number of threads, once joined ones have left. */
static int threads_now(void)
{
    int before, now = entries("/proc/self/task");

    do {
        before = now;
        pause_ms(10);
        now = entries("/proc/self/task");
    } while (now != before);
    return now;
}

static void nothing_is_left_behind(struct side *side)
{
    int descriptors = 0, threads = 0;

    for (int life = 0; life < 6; life++) {
        mx_endpoint_t a = party_open(), b = open_any();
        mx_endpoint_addr_t to_b = connect_to(a, id_of(b));

        exchange(a, to_b, b, 100000, 1);
        exchange(a, address_of(a), a, 100, 2);
        if (life % 2 == 0) {
            OK(mx_close_endpoint(b));
            OK(mx_close_endpoint(a));
        }
        party_stop(); /* closes open endpoints */
        if (life == 1) {
            /* By now libraries hold what they keep for good. */
            descriptors = entries("/proc/self/fd");
            threads = threads_now();
        }
    }
    if (!port_uses_libfabric()) { /* libfabric's threads and descriptors do not count */
        CHECK_THAT(entries("/proc/self/fd"), ==, descriptors);
        CHECK_THAT(threads_now(), ==, threads);
    }
}

/* mx_init reads the environment. */
static void environment_is_read_at_init(struct side *side)
{
    enum { ID = 901 };
    const char *ours = getenv("MX_PORT_BASE");
    struct sockaddr_in name = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), base = atoi(ours);
    mx_endpoint_t ep, was = ep = NULL;
    char other[16];

    snprintf(other, sizeof other, "%d", base + 10);
    name.sin_addr.s_addr = htonl(INADDR_ANY);
    name.sin_port = htons((uint16_t)(base + 10 + ID));
    CHECK(bind(fd, (struct sockaddr *)&name, sizeof name) == 0 && listen(fd, 1) == 0);
    party_start();
    setenv("MX_PORT_BASE", other, 1); /* too late */
    OK(mx_open_endpoint(MX_ANY_NIC, ID, KEY, NULL, 0, &ep));
    party_close(ep);
    party_start();
    REFUSED(mx_open_endpoint(MX_ANY_NIC, ID, KEY, NULL, 0, &was), MX_BUSY);
    CHECK(was == NULL);
    party_stop();
    setenv("MX_PORT_BASE", "no number", 1); /* an invalid value is ignored */
    party_start();
    OK(mx_close_endpoint(open_any()));
    party_stop();
    close(fd);
}

/* ---- error handlers ---- */

static mx_return_t another_answer(char *text, mx_return_t code)
{
    note_error(text, code);
    memset(text, 'x', strlen(text)); /* the text belongs to the handler */
    return MX_NO_MATCH;
}

static mx_return_t forgives(char *text, mx_return_t code)
{
    note_error(text, code);
    return MX_SUCCESS;
}

static void the_handler_answers(struct side *side)
{
    mx_endpoint_t ep;
    mx_status_t status;
    mx_request_t request;
    mx_endpoint_addr_t no_address;

    memset(&no_address, 0, sizeof no_address);
    /* Returns the previous handler, from the first call on. */
    CHECK(mx_set_error_handler(note_error) == MX_ERRORS_ARE_FATAL);
    CHECK(mx_set_error_handler(MX_ERRORS_RETURN) == note_error);
    CHECK(mx_set_error_handler(NULL) == MX_ERRORS_RETURN);
    CHECK(mx_set_error_handler(note_error) == MX_ERRORS_ARE_FATAL);
    ep = party_open();
    mx_set_error_handler(another_answer);
    errors_begin();
    CHECK(mx_progress(NULL) == MX_NO_MATCH);
    CHECK(errors.count == 1 && errors.code == MX_BAD_ENDPOINT);
    mx_set_error_handler(forgives);
    CHECK(mx_isend(ep, NULL, 0, no_address, 1, NULL, &request) == MX_SUCCESS);
    CHECK(errors.count == 2 && errors.code == MX_BAD_ENDPOINT);
    mx_set_error_handler(MX_ERRORS_RETURN);
    CHECK(mx_isend(ep, NULL, 0, no_address, 1, NULL, &request) == MX_BAD_ENDPOINT);
    CHECK_THAT(errors.count, ==, 2);
    /* Also called for a failed request, whose status is the handler's result. */
    for (int i = 0; i < 3; i++) {
        mx_set_error_handler(i == 0 ? another_answer : i == 1 ? forgives : note_error);
        OK(mx_iconnect(ep, local_nic(), 70000, KEY, 1, NULL, &request));
        status = finish(ep, request);
        CHECK(errors.count == 1 && errors.code == MX_BAD_ENDPOINT_ID);
        CHECK_THAT(status.code, ==, i == 0   ? (int)MX_NO_MATCH
                                    : i == 1 ? (int)MX_STATUS_SUCCESS
                                             : (int)MX_STATUS_BAD_ENDPOINT);
    }
    party_close(ep);
}

static int own_calls;

static mx_return_t own_handler(char *text, mx_return_t code)
{
    own_calls++;
    return code;
}

static void endpoints_have_handlers_of_their_own(struct side *side)
{
    mx_param_t params[] = {{.key = MX_PARAM_ERROR_HANDLER, .val = {.error_handler = own_handler}},
                           {.key = MX_PARAM_ERROR_HANDLER, .val = {.error_handler = NULL}}};
    mx_endpoint_t with, without, null;
    mx_endpoint_addr_t no_address;
    mx_request_t request;
    mx_status_t status;
    uint32_t result;

    memset(&no_address, 0, sizeof no_address);
    party_start();
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, params, 1, &with));
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, params + 1, 1, &null));
    without = open_any();
    CHECK(mx_isend(with, NULL, 0, no_address, 0, NULL, NULL) == MX_BAD_ENDPOINT);
    CHECK_THAT(own_calls, ==, 1);
    REFUSED(mx_isend(without, NULL, 0, no_address, 0, NULL, NULL), MX_BAD_ENDPOINT);
    REFUSED(mx_isend(null, NULL, 0, no_address, 0, NULL, NULL), MX_BAD_ENDPOINT);
    CHECK_THAT(own_calls, ==, 1);
    OK(mx_iconnect(with, local_nic(), 70000, KEY, 0, NULL, &request));
    OK(mx_wait(with, &request, WAIT_MS, &status, &result));
    CHECK_THAT(result, ==, 1);
    STATUS_IS(status, MX_STATUS_BAD_ENDPOINT);
    CHECK_THAT(own_calls, ==, 2);
    /* Calls without an open endpoint use the process's handler. */
    OK(mx_close_endpoint(with));
    REFUSED(mx_progress(with), MX_BAD_ENDPOINT);
    CHECK_THAT(own_calls, ==, 2);
    party_stop();
}

/* Runs the default handler in a process of its own; returns its exit status and its message. */
static int last_words(void (*act)(void), char *text, size_t size)
{
    int fds[2], status;
    size_t used = 0;
    ssize_t got;
    pid_t pid;

    CHECK(pipe(fds) == 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(fds[1], 2);
        close(fds[0]);
        close(fds[1]);
        act();
        _exit(0);
    }
    close(fds[1]);
    while ((got = read(fds[0], text + used, size - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    close(fds[0]);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void refused_call(void)
{
    mx_init();
    mx_progress(NULL);
}

static void second_init(void)
{
    mx_init();
    mx_init();
}

static void failed_request(void)
{
    mx_endpoint_t ep;
    mx_request_t request;
    mx_status_t status;
    uint32_t result;
    uint64_t nic;
    char name[] = "localhost";

    mx_init();
    mx_hostname_to_nic_id(name, &nic);
    mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 1, NULL, 0, &ep);
    mx_iconnect(ep, nic, 70000, 1, 0, NULL, &request);
    mx_wait(ep, &request, MX_INFINITE, &status, &result);
}

static void the_default_is_fatal(struct side *side)
{
    static const struct {
        void (*act)(void);
        mx_return_t code;
    } acts[] = {{refused_call, MX_BAD_ENDPOINT},
                {second_init, MX_ALREADY_INITIALIZED},
                {failed_request, MX_BAD_ENDPOINT_ID}};

    unsetenv("MX_LOG");
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        char text[4096];

        CHECK_THAT(last_words(acts[i].act, text, sizeof text), ==, 1);
        if (strstr(text, mx_strerror(acts[i].code)) == NULL)
            FAIL("'%s' says nothing of '%s'", text, mx_strerror(acts[i].code));
        CHECK(strchr(text, '\n') == text + strlen(text) - 1); /* one line */
    }
}

/* Variables of MX that MPI libraries set, and that this library ignores, or nearly. */
static const char *const of_mx[] = {
    "MX_BONDING",        "MX_CSUM",       "MX_DISABLE_SELF",  "MX_DISABLE_SHARED",
    "MX_DISABLE_SHMEM",  "MX_FW_ACK",     "MX_IMM_ACK",       "MX_MONOTHREAD",
    "MX_NO_MYRINET",     "MX_PIPELINE_LOG", "MX_RCACHE",      "MX_STATS",
    "MX_ZOMBIE",         "MX_ZOMBIE_SEND",  "MX_ERRORS_ARE_FATAL"};

static void open_and_close(void)
{
    mx_endpoint_t ep;

    mx_init();
    mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 1, NULL, 0, &ep);
    mx_close_endpoint(ep);
    mx_finalize();
}

static void says_nothing_of_variables_of_mx(struct side *side)
{
    char text[4096];

    unsetenv("MX_LOG");
    for (size_t i = 0; i < sizeof of_mx / sizeof of_mx[0]; i++)
        setenv(of_mx[i], i % 2 == 0 ? "1" : "0", 1);
    CHECK_THAT(last_words(open_and_close, text, sizeof text), ==, 0);
    if (text[0] != '\0')
        FAIL("'%s'", text);
    setenv("MX_DISABLE_SHRAED", "1", 1);
    CHECK_THAT(last_words(open_and_close, text, sizeof text), ==, 0);
    CHECK(strstr(text, "MX_DISABLE_SHRAED") != NULL);
}

static void errors_need_not_be_fatal(struct side *side)
{
    char text[4096];

    unsetenv("MX_LOG");
    setenv("MX_ERRORS_ARE_FATAL", "0", 1);
    CHECK_THAT(last_words(refused_call, text, sizeof text), ==, 0);
    CHECK(text[0] == '\0');
    setenv("MX_ERRORS_ARE_FATAL", "1", 1);
    CHECK_THAT(last_words(refused_call, text, sizeof text), ==, 1);
}

/* With the library's own thread, or without. */
static void helper_can_be_forgone(struct side *side)
{
    for (int without = 0; without < 2; without++) {
        mx_endpoint_t ep;
        int before;

        setenv("MX_MONOTHREAD", without ? "1" : "0", 1);
        party_start();
        OK(mx_close_endpoint(open_any())); /* threads of a port that stay */
        before = threads_now();
        ep = open_any();
        CHECK_THAT(threads_now() > before, ==, !without);
        party_close(ep);
    }
}

/* ---- opening ---- */

static void keeps_an_id(struct side *side)
{
    mx_endpoint_t ep = party_open();

    tell(side, "id", id_of(ep));
    hear(side, "close");
    OK(mx_close_endpoint(ep));
    tell(side, "closed", 0);
    hear(side, "exit");
    party_stop();
}

static void wants_the_id(struct side *side)
{
    mx_endpoint_t ep = NULL, own = party_open();
    uint32_t id = (uint32_t)hear(side, "id");

    REFUSED(mx_open_endpoint(MX_ANY_NIC, id, KEY, NULL, 0, &ep), MX_BUSY);
    REFUSED(mx_open_endpoint(0, id, KEY, NULL, 0, &ep), MX_BUSY);
    REFUSED(mx_open_endpoint(0, id_of(own), KEY, NULL, 0, &ep), MX_BUSY); /* in use by this process */
    CHECK(ep == NULL);
    tell(side, "close", 0);
    hear(side, "closed");
    OK(mx_open_endpoint(MX_ANY_NIC, id, KEY, NULL, 0, &ep));
    CHECK_THAT(id_of(ep), ==, id);
    exchange(ep, connect_to(ep, id_of(own)), own, 1000, 1);
    tell(side, "exit", 0);
    party_stop();
}

static void what_cannot_be_opened(struct side *side)
{
    static const uint32_t ids[] = {65536, 70000, 1u << 31, UINT32_MAX - 1};
    static const uint32_t boards[] = {1000, 1u << 31, UINT32_MAX - 1};
    mx_param_t params[2] = {{.key = MX_PARAM_UNEXP_QUEUE_MAX, .val = {.unexp_queue_max = 1 << 20}}};
    static const struct {
        uint8_t bits, shift;
    } fields[] = {{17, 0}, {255, 0}, {16, 49}, {1, 64}, {8, 255}};
    mx_endpoint_t ep = (mx_endpoint_t)&params, was = ep;

    party_start();
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        REFUSED(mx_open_endpoint(MX_ANY_NIC, ids[i], KEY, NULL, 0, &ep), MX_BAD_ENDPOINT);
    for (size_t i = 0; i < sizeof boards / sizeof boards[0]; i++)
        REFUSED(mx_open_endpoint(boards[i], MX_ANY_ENDPOINT, KEY, NULL, 0, &ep),
                MX_BOARD_UNKNOWN);
    REFUSED(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 1, &ep), MX_BAD_PARAM_LIST);
    params[1].key = (mx_param_key_t)3;
    REFUSED(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, params, 2, &ep),
            MX_BAD_PARAM_NAME);
    params[1].key = MX_PARAM_CONTEXT_ID;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        params[1].val.context_id.bits = fields[i].bits;
        params[1].val.context_id.shift = fields[i].shift;
        REFUSED(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, params, 2, &ep),
                MX_BAD_PARAM_VAL);
    }
    REFUSED(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 0, NULL), MX_FAILURE);
    CHECK(ep == was);
    /* The failed open has left no endpoint. */
    OK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, params, 1, &ep));
    params[1].val.context_id.bits = 16;
    params[1].val.context_id.shift = 48;
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, KEY, params, 2, &was));
    CHECK_THAT(id_of(was), ==, id_of(ep) + 1);
    /* A list of length 0 is not read. */
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, KEY, (mx_param_t *)1, 0, &ep));
    party_stop();
}

static void without_means(struct side *side)
{
    mx_endpoint_t ep = NULL;
    rlim_t before;

    party_start();
    OK(mx_close_endpoint(open_any()));
    before = limit_to(RLIMIT_NOFILE, (rlim_t)entries("/proc/self/fd") + 1);
    for (int i = 0; i < 5; i++)
        REFUSED(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 0, &ep),
                MX_NO_RESOURCES);
    CHECK(ep == NULL);
    limit_to(RLIMIT_NOFILE, before);
    ep = open_any();
    exchange(ep, address_of(ep), ep, 1000, 1);
    party_close(ep);
}

/* LeakSanitizer ignores allocations of this thread from now on: an endpoint without descriptors does not free its
 * ports. */
extern void __lsan_disable(void) __attribute__((weak));

static void expect_leaks(void)
{
    if (__lsan_disable != NULL)
        __lsan_disable();
}

/* Like bmi/descriptors.c for the other library, here with one call of each kind. */
static void closes_descriptors(struct side *side)
{
    enum { MOST = 256 };
    bool before[MOST];
    mx_endpoint_t ep;
    mx_request_t request;
    mx_status_t status;
    char in[8];
    uint32_t result = 0;
    deadline_t deadline;

    expect_leaks();
    for (int fd = 0; fd < MOST; fd++)
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    party_start();
    ep = open_any();
    request = receive(ep, in, sizeof in, 1, EXACTLY);
    for (int fd = 3; fd < MOST; fd++)
        if (!before[fd])
            close(fd);
    /* The handler is told of the request's failure, and calls return errors. */
    for (deadline = deadline_in(1000); result == 0;) {
        CHECK(!deadline_over(deadline));
        CHECK_THAT(mx_test(ep, &request, &status, &result), ==, MX_SUCCESS);
    }
    STATUS_IS(status, MX_STATUS_ENDPOINT_UNREACHABLE);
    REFUSED(mx_progress(ep), MX_NIC_DEAD);
    REFUSED(mx_wait_any(ep, MX_INFINITE, 0, 0, &status, &result), MX_NIC_DEAD);
    OK(mx_close_endpoint(ep));
    ep = open_any();
    exchange(ep, address_of(ep), ep, 1000, 1);
    party_close(ep);
}

static void without_a_fabric(struct side *side)
{
    mx_endpoint_t ep = NULL;

    setenv("MX_PORT", "rdm", 1);
    setenv("MX_PROVIDER", "no-such-provider", 1);
    party_start();
    REFUSED(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, KEY, NULL, 0, &ep), MX_NO_DEV);
    CHECK(ep == NULL);
    party_stop();
}

PARTY_TESTS(
    SOLO(after_finalize_no_descriptor_and_no_thread_is_left, nothing_is_left_behind),
    SOLO(the_environment_is_read_when_init_is_called, environment_is_read_at_init),
    SOLO(what_the_handler_returns_is_the_answer, the_handler_answers),
    SOLO(an_endpoints_own_handler_comes_first, endpoints_have_handlers_of_their_own),
    SOLO(by_default_an_error_prints_a_line_and_exits, the_default_is_fatal),
    SOLO(nothing_is_said_of_variables_of_mx, says_nothing_of_variables_of_mx),
    SOLO(a_variable_makes_errors_return, errors_need_not_be_fatal),
    SOLO(a_variable_forgoes_the_helper_thread, helper_can_be_forgone),
    PAIR(an_id_belongs_to_one_until_it_is_closed, keeps_an_id, wants_the_id),
    SOLO(what_cannot_be_opened_is_refused_with_the_reason, what_cannot_be_opened),
    SOLO(without_descriptors_nothing_is_opened_and_nothing_lost, without_means),
    SOLO(an_endpoint_ends_whose_descriptors_are_closed, closes_descriptors),
    SOLO(a_fabric_that_cannot_be_had_is_no_device, without_a_fabric))
