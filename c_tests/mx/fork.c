/*
 * fork: the parent or the child goes on with the same endpoint.
 *
 *     parent   init, open ── fork ── exchanges as before
 *                              └── child: MX_BUSY; mx_init, open, exchange; exit
 *
 *     parent   init, open, connect, post ── fork ── ends
 *                                             └── child: requests end, connects again, exchanges
 */
#include "support/party.h"

#include <sys/wait.h>

static mx_endpoint_t ep, other;
static mx_endpoint_addr_t to_other;
static mx_request_t pending;

/* Runs `act` in a child of this process and waits until it ends with 0. */
static void in_a_child(void (*act)(void))
{
    pid_t pid = fork();
    deadline_t deadline = deadline_in(2 * WAIT_MS);

    CHECK(pid >= 0);
    if (pid == 0) {
        act();
        _exit(0);
    }
    for (int status;;) {
        pid_t done = waitpid(pid, &status, WNOHANG);

        if (done == pid) {
            CHECK(WIFEXITED(status));
            CHECK_THAT(WEXITSTATUS(status), ==, 0);
            return;
        }
        if (deadline_over(deadline)) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            FAIL("the child hangs");
        }
        exchange(ep, to_other, other, 1000, 3); /* the parent goes on */
    }
}

static void uses_what_is_not_its(void)
{
    mx_status_t status;
    uint32_t result = 77, id;
    uint64_t nic;
    mx_endpoint_addr_t address;
    mx_request_t request = pending;
    void *context = NULL;
    int64_t began;

    REFUSED(mx_progress(ep), MX_BUSY);
    began = now_ms();
    REFUSED(mx_isend(ep, NULL, 0, to_other, 1, NULL, NULL), MX_BUSY);
    REFUSED(mx_irecv(ep, NULL, 0, 1, EXACTLY, NULL, NULL), MX_BUSY);
    REFUSED(mx_test(ep, &request, &status, &result), MX_BUSY);
    REFUSED(mx_wait_any(ep, MX_INFINITE, 0, ANYTHING, &status, &result), MX_BUSY);
    REFUSED(mx_probe(ep, MX_INFINITE, 0, ANYTHING, &status, &result), MX_BUSY);
    REFUSED(mx_cancel(ep, &request, &result), MX_BUSY);
    REFUSED(mx_get_endpoint_addr(ep, &address), MX_BUSY);
    REFUSED(mx_decompose_endpoint_addr(to_other, &nic, &id), MX_BUSY);
    REFUSED(mx_wakeup(ep), MX_BUSY);
    /* Only the first call has waited for the parent. */
    CHECK_THAT(now_ms() - began, <, 1000 * slower());
    OK(mx_context(&request, &context));
    CHECK(result == 77 && request == pending && context != NULL);
}

static void opens_its_own(void)
{
    mx_endpoint_t own = NULL;
    mx_endpoint_addr_t to_parent;

    uses_what_is_not_its();
    OK(mx_init());
    REFUSED(mx_init(), MX_ALREADY_INITIALIZED);
    own = open_any();
    CHECK(own != ep && own != other);
    exchange(own, address_of(own), own, 1000, 5);
    OK(mx_close_endpoint(ep));
    REFUSED(mx_progress(ep), MX_BAD_ENDPOINT);
    /* The parent is a peer like any other. */
    to_parent = connect_to(own, (uint32_t)atoi(getenv("PARENT")));
    succeed(own, send_to(own, to_parent, "from child", 10, 0x40), 10);
    OK(mx_close_endpoint(own));
    OK(mx_finalize());
    OK(mx_finalize());
    REFUSED(mx_finalize(), MX_NOT_INITIALIZED);
}

/* Ends by exit(), with the parent's endpoints in memory. A leak checker would report memory of the parent's other
 * threads, which a child does not have. */
static void leave(void)
{
#ifdef __SANITIZE_ADDRESS__
    _exit(0);
#else
    exit(0);
#endif
}

static void opens_without_init(void)
{
    mx_endpoint_t own = open_any();

    exchange(own, address_of(own), own, 100000, 5);
    OK(mx_close_endpoint(own));
    leave();
}

static void closes_only(void)
{
    mx_request_t request = pending;
    void *context = NULL;

    OK(mx_close_endpoint(ep));
    REFUSED(mx_close_endpoint(ep), MX_BAD_ENDPOINT);
    REFUSED(mx_context(&request, &context), MX_BAD_REQUEST);
    OK(mx_close_endpoint(other));
    OK(mx_finalize());
}

static void only_leaves(void)
{
    leave();
}

static void finalizes_only(void)
{
    OK(mx_finalize());
    OK(mx_init());
    OK(mx_close_endpoint(open_any()));
    OK(mx_finalize());
}

static void a_child_is_born(struct side *side)
{
    static void (*const acts[])(void) = {uses_what_is_not_its, opens_its_own, opens_without_init,
                                         closes_only, only_leaves, finalizes_only};
    char in[16], text[16];

    ep = party_open();
    other = open_any();
    OK(mx_close_endpoint(open_any())); /* leaves an empty place in the table at the fork */
    to_other = connect_to(ep, id_of(other));
    pending = receive(ep, in, sizeof in, 0x40, EXACTLY);
    snprintf(text, sizeof text, "%u", id_of(ep));
    setenv("PARENT", text, 1);
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        in_a_child(acts[i]);
    succeed(ep, pending, 10); /* the child's greeting */
    CHECK(memcmp(in, "from child", 10) == 0);
    exchange(ep, to_other, other, 300000, 6);
    exchange(ep, to_other, other, 100, 7);
    OK(mx_close_endpoint(other));
    party_close(ep);
}

/* ---- a handler that forks, and returns in both processes ---- */

static pid_t forked;

static mx_unexp_handler_action_t forks(void *context, mx_endpoint_addr_t source, uint64_t bits, uint32_t length,
                                       void *data)
{
    forked = fork();
    return MX_RECV_CONTINUE;
}

/* The parent's call goes on; in the child the message is lost, and the endpoint works. */
static void the_handler_forks(struct side *side)
{
    mx_status_t status;
    uint32_t result = 0;
    mx_return_t code;
    int ended;

    ep = party_open();
    OK(mx_register_unexp_handler(ep, forks, NULL));
    OK(mx_isend(ep, NULL, 0, address_of(ep), 1, NULL, NULL));
    errors_begin();
    code = mx_probe(ep, 2 * WAIT_MS, 1, EXACTLY, &status, &result);
    if (forked == 0)
        _exit(code != MX_BUSY);
    CHECK(code == MX_SUCCESS && result == 1);
    CHECK(waitpid(forked, &ended, 0) == forked && ended == 0);
    party_close(ep);
}

/* The process forks and exits; its child lives on. */
static void the_parent_dies_first(struct side *side)
{
    struct pair pair = pair_open(side);

    pair_sync(&pair);
    if (pair.id > pair.peer_id) {
        char last;

        /* The peer notices the exit, although a child holds copies of everything. */
        succeed(pair.ep, receive(pair.ep, &last, 1, 1, EXACTLY), 1);
        for (deadline_t deadline = deadline_in(WAIT_MS);;) {
            mx_status_t status = finish(pair.ep, ssend_to(pair.ep, pair.peer, NULL, 0, 2));

            if (status.code != MX_STATUS_SUCCESS)
                break;
            CHECK(!deadline_over(deadline));
        }
        tell(side, "noticed", 0);
        party_close(pair.ep);
        return;
    }
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        hear(side, "noticed");
        _exit(0);
    }
    succeed(pair.ep, send_to(pair.ep, pair.peer, "x", 1, 1), 1);
    party_close(pair.ep);
    {
        int status;

        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
}

/* ---- the child goes on ---- */

enum { LATE = 0x77, ROUND_TRIPS = 20 };

static mx_endpoint_addr_t connect_again(mx_endpoint_t ep, uint32_t id)
{
    deadline_t deadline = deadline_in(WAIT_MS);
    mx_endpoint_addr_t address;

    while (mx_connect(ep, local_nic(), id, KEY, 1000, &address) != MX_SUCCESS)
        CHECK(!deadline_over(deadline));
    return address;
}

static void answers(struct pair *pair)
{
    char in[100];

    for (int i = 0; i < ROUND_TRIPS; i++) {
        mx_status_t status = succeed(pair->ep, receive(pair->ep, in, sizeof in, 1, EXACTLY), 100);

        succeed(pair->ep, send_to(pair->ep, status.source, in, 100, 2), 100);
    }
}

static void asks(mx_endpoint_t ep, mx_endpoint_addr_t to)
{
    for (int i = 0; i < ROUND_TRIPS; i++) {
        char in[100], out[100];
        mx_request_t request = receive(ep, in, sizeof in, 2, EXACTLY);

        fill(out, sizeof out, (uint64_t)i);
        succeed(ep, send_to(ep, to, out, sizeof out, 1), sizeof out);
        succeed(ep, request, sizeof in);
        CHECK(memcmp(in, out, sizeof in) == 0);
    }
}

/* The parent ends, and its child continues with everything it had. */
static void daemonizes(struct side *side)
{
    struct pair pair = pair_open(side);
    char in[8];
    mx_request_t late, connect;
    uint32_t result = 0;

    pair_sync(&pair);
    if (pair.id > pair.peer_id) {
        answers(&pair);
        answers(&pair);
        hear(side, "done");
        party_close(pair.ep);
        return;
    }
    asks(pair.ep, pair.peer);
    late = receive(pair.ep, in, sizeof in, LATE, EXACTLY);
    OK(mx_iconnect(pair.ep, local_nic(), pair.peer_id, KEY, 0, NULL, &connect));
    fflush(NULL);
    if (fork() != 0)
        _exit(0);
    alarm(6 * WAIT_MS / 1000 * (unsigned)slower());
    CHECK(finish(pair.ep, late).code != MX_STATUS_SUCCESS);
    finish(pair.ep, connect);
    {
        mx_status_t status;

        OK(mx_test_any(pair.ep, ANYTHING, ANYTHING, &status, &result));
        CHECK_THAT(result, ==, 0);
    }
    CHECK_THAT(id_of(pair.ep), ==, pair.id);
    asks(pair.ep, connect_again(pair.ep, pair.peer_id));
    exchange(pair.ep, address_of(pair.ep), pair.ep, 1000, 9);
    party_close(pair.ep);
    tell(side, "done", 0);
    _exit(0);
}

PARTY_TESTS(
    SOLO(a_child_gets_clean_errors_and_may_open_its_own, a_child_is_born),
    SOLO(a_handler_may_fork, the_handler_forks),
    PAIR(a_child_goes_on_when_its_parent_ends, daemonizes, daemonizes),
    PAIR(a_child_does_not_keep_its_parents_endpoint_alive, the_parent_dies_first,
         the_parent_dies_first))
