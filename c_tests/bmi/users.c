/*
 * Users of one machine: a process that is root when it initializes, and another user when it connects.
 *
 *     root ── initialize ── setuid ──► some user ── connect ──►  server: root, another user, or a process
 *                 `── seteuid and back, a child of fork                  that was root itself
 *
 * Over shared memory the kernel tells each side the other's user, which has to be the current one. If shared
 * memory is refused, "auto" goes over tcp, and "local" fails.
 */
#include "../support/pair.h"
#include "../support/wait_children.h"
#include "../support/syscalls.h"
#include "../support/user.h"

#include <sys/socket.h>
#include <sys/syscall.h>

enum { TAG = 5 };

/* ---- no shared memory: a security module forbids it, or a process sends no credentials ---- */

static bool no_local_sockets, no_credentials;

static bool guard(long number, long arguments[6], long *answer)
{
    static _Thread_local struct msghdr bare;
    const struct cmsghdr *with;

    if (no_local_sockets && number == SYS_connect &&
        ((const struct sockaddr *)arguments[1])->sa_family == AF_UNIX) {
        errno = EACCES;
        *answer = -1;
        return true;
    }
    if (no_credentials && number == SYS_sendmsg) {
        bare = *(const struct msghdr *)arguments[1];
        with = CMSG_FIRSTHDR(&bare);
        if (with != NULL && with->cmsg_type == SCM_CREDENTIALS) {
            bare.msg_control = NULL;
            bare.msg_controllen = 0;
            arguments[1] = (long)&bare;
        }
    }
    return false;
}

/* A side's variant. */
enum { BY_AUTO = 1, WITHOUT_SOCKETS = 2, WITHOUT_CREDENTIALS = 4 };

static void prepare(const struct side *side)
{
    if (side->variant & BY_AUTO)
        CHECK(setenv("MX_PORT", "auto", 1) == 0);
    no_local_sockets = (side->variant & WITHOUT_SOCKETS) != 0;
    no_credentials = (side->variant & WITHOUT_CREDENTIALS) != 0;
    syscall_guard = guard;
}

/* ---- roles ---- */

/* Accepts every peer that says hello, until the other side sends a note. */
static void greets(struct side *side, int endpoint)
{
    tell(side, "endpoint", endpoint);
    pair_accept();
    while (!heard_anything(side))
        if (host_waiting())
            pair_accept();
        else
            host_pump(2);
    pair_part(side);
}

static void roots_server(struct side *side)
{
    greets(side, host_start_server());
}

static void others_server(struct side *side)
{
    prepare(side);
    become_for_good(ANOTHER_USER);
    greets(side, host_start_server());
}

static void server_that_was_root(struct side *side)
{
    int endpoint = host_start_server();

    become_for_good(ANOTHER_USER);
    greets(side, endpoint);
}

static void others_client(struct side *side)
{
    become_for_good(SOME_USER);
    only_client(side);
}

static void client_that_was_root(struct side *side)
{
    struct bmi_method_addr *server;
    int endpoint = (int)hear(side, "endpoint");

    prepare(side);
    host_start_client();
    become_for_good(SOME_USER);
    server = host_lookup_endpoint(endpoint);
    pair_hello(server);
    /* A second time. */
    host_drop(server);
    pair_hello(host_lookup_endpoint(endpoint));
    pair_part(side);
}

/* A server that calls another server. */
static void caller_that_was_root(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");

    host_start_server();
    become_for_good(SOME_USER);
    pair_hello(host_lookup_endpoint(endpoint));
    pair_part(side);
}

static void client_that_changes_while_connected(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);

    pair_hello(server);
    become_for_now(SOME_USER);
    pair_hello(server);
    become_for_now(0);
    become_for_good(SOME_USER);
    pair_hello(server);
    pair_part(side);
}

static void client_with_a_child(struct side *side)
{
    struct bmi_method_addr *server = pair_join(side);
    pid_t child;

    pair_hello(server);
    child = fork_child();
    if (child == 0) {
        become_for_good(SOME_USER);
        pair_hello(server);
        host_stop();
        _exit(0);
    }
    reap_fork(child);
    pair_hello(server);
    pair_part(side);
}

/* ---- seteuid and back, between the connect and the answer ---- */

static void client_to_and_fro(struct side *side)
{
    struct bmi_method_addr *server[2];
    struct op request[2] = {{0}, {0}};

    host_start_client();
    for (int i = 0; i < 2; i++)
        server[i] = host_lookup_endpoint((int)hear(side, "server"));
    become_for_now(SOME_USER);
    CHECK_THAT(op_send_unexpected(&request[0], server[0], "ask", 3, TAG), >=, 0);
    host_pump(20);
    become_for_now(0);
    CHECK_THAT(op_send_unexpected(&request[1], server[1], "ask", 3, TAG), >=, 0);
    host_pump(20);
    become_for_now(SOME_USER);
    tell(side, "called", 0);
    op_sent(&request[0]);
    op_sent(&request[1]);
    tell(side, "sent", 0);
    pair_hear(side, "stop");
    /* The user as whom a leak checker may look at this process. */
    become_for_now(0);
    host_stop();
}

static void waits_for_requests(struct side *side)
{
    become_for_good(ANOTHER_USER);
    pair_serve(side);
    hear(side, "go");
    host_take(TAG);
    pair_hear(side, "stop");
    host_stop();
}

static void to_and_fro(struct world *world)
{
    struct child *client = spawn(world, "client");
    struct child *servers[] = {spawn(world, "server"), spawn(world, "server")};

    for (int i = 0; i < 2; i++)
        child_tell(client, "server", child_hear(servers[i], "endpoint"));
    child_hear(client, "called");
    for (int i = 0; i < 2; i++)
        child_tell(servers[i], "go", 0);
    child_hear(client, "sent");
    child_tell(client, "stop", 0);
    for (int i = 0; i < 2; i++) {
        child_tell(servers[i], "stop", 0);
        child_end(servers[i]);
    }
    child_end(client);
}

/* ---- local only ---- */

static void unreached_server(struct side *side)
{
    become_for_good(ANOTHER_USER);
    pair_serve(side);
    pair_hear(side, "tried");
    CHECK(!host_waiting());
    tell(side, "stop", 0);
    host_stop();
}

/* The process was root, and has become another user meanwhile. */
static void reaches_no_peer(struct side *side)
{
    struct bmi_method_addr *server;
    struct op request = {0};

    prepare(side);
    server = pair_join(side);
    become_for_good(SOME_USER);
    if (port_is("local")) {
        op_send_unexpected(&request, server, "hello", 5, 1);
        CHECK_THAT(op_code(&request), ==, side->variant == WITHOUT_SOCKETS ? -BMI_EHOSTUNREACH : -BMI_EPERM);
    }
    tell(side, "tried", 0);
    pair_hear(side, "stop");
    host_stop();
}

static void prepare_all(void)
{
    port_notices_deaths_soon();
    if (!users_can_be_had())
        skip_tests("only root can give up its user");
}

TESTS_AFTER(prepare_all(),
    PAIR(users_who_were_never_others_meet, others_server, others_client),
    PAIR(a_client_that_was_root_reaches_roots_server, roots_server, client_that_was_root),
    PAIR(a_client_that_was_root_reaches_a_users_server, others_server, client_that_was_root),
    PAIR(a_server_that_was_root_calls_another, others_server, caller_that_was_root),
    PAIR(a_server_that_was_root_is_reached_by_root, server_that_was_root, only_client),
    PAIR(a_server_that_was_root_is_reached_by_a_user, server_that_was_root, others_client),
    PAIR(both_were_root, server_that_was_root, client_that_was_root),
    PAIR(who_becomes_another_stays_connected, others_server, client_that_changes_while_connected),
    PAIR(a_child_of_fork_can_be_another_user, others_server, client_with_a_child),
    PAIR_OF(by_auto_too, BY_AUTO, others_server, BY_AUTO, client_that_was_root),
    PAIR_OF(without_shared_memory_auto_goes_over_tcp, BY_AUTO, others_server,
            BY_AUTO | WITHOUT_SOCKETS, client_that_was_root),
    PAIR_OF(without_shared_memory_local_leads_nowhere, 0, unreached_server, WITHOUT_SOCKETS, reaches_no_peer),
    PAIR_OF(where_it_is_denied_auto_goes_over_tcp, BY_AUTO, others_server,
            BY_AUTO | WITHOUT_CREDENTIALS, client_that_was_root),
    PAIR_OF(where_it_is_denied_local_leads_nowhere, 0, unreached_server, WITHOUT_CREDENTIALS, reaches_no_peer),
    DIRECTED(who_changes_to_and_fro_gets_in_each_time, to_and_fro, {"server", waits_for_requests},
             {"client", client_to_and_fro}))
