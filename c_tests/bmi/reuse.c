/*
 * The server has exited, and an unrelated program has its address.
 *
 *      client ──post──► TCP port, abstract Unix name ◄── impostor: a plain program
 *                                                          mute        accepts no connection
 *                                                          silent      accepts it, says nothing
 *                                                          curt        accepts it and closes it
 *                                                          noisy       sends bytes of its own
 *                                                          echo        returns what it receives
 *                                                    ◄── another user of MX, with another key
 *
 * Whatever the program does, every posted operation ends with an error within the time for connecting, no data is
 * accepted from it, and the client's address works again when the server is back.
 */
#include "../support/stage.h"

#include <myriexpress.h>

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>

#define MIB (1024 * 1024)

enum {
    CONNECT_MS = 400,
    SLACK_MS = 4000, /* what a busy machine may add; every other time-out is 20 s */
    TRIES = 2,
};

enum manner { MUTE, SILENT, CURT, NOISY, ECHO, MANNERS };
static const char *const manners[MANNERS] = {"mute", "silent", "curt", "noisy", "echo"};

/* ---- the real server ---- */

static void server(struct side *side)
{
    int endpoint = (int)hear(side, "endpoint");

    tell(side, "endpoint", host_serve_at(endpoint));
    echo_until_stopped(side);
}

/* ---- the client ---- */

/* Checks that the code is one of those documented for a failed connect (docs/states.md). */
static void is_documented(int error)
{
    static const int codes[] = {BMI_ETIMEDOUT, BMI_ECONNREFUSED, BMI_ENETRESET, BMI_EPROTO,
                                BMI_EHOSTUNREACH};
    bool known = false;

    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        known = known || error == -codes[i];
    if (!known)
        FAIL("%s is no code for this", code_text(error));
}

/* Checks that an operation was rejected at once or fails within the time. Over rdm the server's death may not have
 * been noticed yet: then small messages complete when they have been copied. */
static int must_fail(struct op *op)
{
    int code = op_code(op);

    if (op->posted != 1 || !death_is_silent())
        is_documented(code);
    return code;
}

/* Posts operations that cannot succeed. Returns the code of the unexpected message. */
static int tries_in_vain(struct bmi_method_addr *address, char *big)
{
    struct op receive = {0}, send = {0}, unexpected = {0};
    char *room = fenced(1000);
    int64_t begin = now_ms();
    int code;

    op_recv(&receive, address, room, 1000, 1);
    op_send(&send, address, big, MIB, 2);
    op_send_unexpected(&unexpected, address, "?", 1, 3);
    must_fail(&receive);
    must_fail(&send);
    code = must_fail(&unexpected);
    CHECK_THAT(now_ms() - begin, <, (CONNECT_MS + SLACK_MS) * slower());
    check_untouched(room, 0, 1000);
    fenced_free(room);
    return code;
}

static void client(struct side *side)
{
    struct bmi_method_addr *address;
    char *big = malloc(MIB);
    int64_t real;

    CHECK(big != NULL);
    memset(big, 1, MIB);
    set_ms("BMI_MX_CONNECT_TIMEOUT_MS", CONNECT_MS * slower());
    address = pair_join(side);
    while ((real = pair_hear(side, "a peer is there")) >= 0) {
        int code = 0;

        for (int i = 0; i < TRIES; i++) {
            if (real) {
                int64_t out = 0x1234, in = 0;

                UNTIL (try_ask(address, &out, &in, sizeof in, 1) && in == out)
                    continue;
            } else {
                code = tries_in_vain(address, big);
            }
        }
        tell(side, "code", code);
    }
    free(big);
    host_stop();
}

/* ---- the impostor ---- */

enum { GUESTS = 32 };

static void welcome(int fd, enum manner manner)
{
    unsigned char noise[4096];

    if (manner == NOISY) {
        wire_noise(noise, sizeof noise, (unsigned)fd);
        wire_say(fd, noise, sizeof noise);
    }
    if (manner == CURT)
        close(fd);
}

/* Returns false if the guest has left. */
static bool listen_to(int fd, enum manner manner)
{
    unsigned char heard[4096];
    ssize_t got = recv(fd, heard, sizeof heard, MSG_DONTWAIT);

    if (got <= 0)
        return got < 0 && errno == EAGAIN;
    return manner != ECHO || wire_say(fd, heard, (size_t)got);
}

/* Takes the server's abstract name, too, if LOCAL_NAME and LOCAL_TYPE are set. */
static void impostor(struct side *side)
{
    enum manner manner = (enum manner)hear(side, "manner");
    int port = (int)hear(side, "endpoint");
    const char *name = getenv("LOCAL_NAME");
    struct pollfd fds[2 + GUESTS];
    int guests = 0;

    fds[0] = (struct pollfd){.fd = wire_listen(&port), .events = POLLIN};
    fds[1] = (struct pollfd){.fd = -1, .events = POLLIN};
    if (name != NULL) {
        fds[1].fd = wire_listen_local(name, strlen(name), atoi(getenv("LOCAL_TYPE")));
        CHECK(fds[1].fd >= 0);
    }
    tell(side, "ready", 0);
    while (!heard_anything(side)) {
        poll(fds, manner == MUTE ? 0 : 2 + (nfds_t)guests, 2);
        for (int i = 2; i < 2 + guests; i++)
            if (fds[i].fd >= 0 && fds[i].revents != 0 && !listen_to(fds[i].fd, manner)) {
                close(fds[i].fd);
                fds[i].fd = -1;
            }
        for (int i = 0; i < 2 && manner != MUTE; i++) {
            int fd;

            if (fds[i].fd < 0 || (fds[i].revents & POLLIN) == 0)
                continue;
            fd = accept4(fds[i].fd, NULL, NULL, SOCK_CLOEXEC);
            CHECK(fd >= 0 && guests < GUESTS);
            welcome(fd, manner);
            fds[2 + guests++] =
                (struct pollfd){.fd = manner == CURT ? -1 : fd, .events = POLLIN};
        }
    }
    hear(side, "stop");
}

/* ---- another user of MX ---- */

#define FUNCTION(name)                                                                   \
    __typeof__(&name) call_##name;                                                       \
    *(void **)&call_##name = dlsym(library, #name)

static void other_key(struct side *side)
{
    bool mute = hear(side, "manner") == MUTE;
    uint32_t endpoint_id = (uint32_t)hear(side, "endpoint");
    void *library = dlopen("libmyriexpress.so", RTLD_NOW);
    mx_endpoint_t endpoint;

    CHECK(mute);
    if (library == NULL)
        FAIL("%s", dlerror());
    {
        FUNCTION(mx__init_api);
        FUNCTION(mx_open_endpoint);
        FUNCTION(mx_close_endpoint);
        FUNCTION(mx_finalize);

        CHECK_THAT(call_mx__init_api(MX_API), ==, MX_SUCCESS);
        CHECK_THAT(call_mx_open_endpoint(MX_ANY_NIC, endpoint_id, 0x5ca1ab1e, NULL, 0, &endpoint),
                   ==, MX_SUCCESS);
        tell(side, "ready", 0);
        hear(side, "stop");
        CHECK_THAT(call_mx_close_endpoint(endpoint), ==, MX_SUCCESS);
        CHECK_THAT(call_mx_finalize(), ==, MX_SUCCESS);
    }
}

/* ---- directors ---- */

static struct child *raise_server(struct world *world, int64_t *endpoint)
{
    struct child *child = spawn(world, "server");

    child_tell(child, "endpoint", *endpoint);
    *endpoint = child_hear(child, "endpoint");
    return child;
}

static int visit(struct child *client, bool real)
{
    child_tell(client, "a peer is there", real);
    return (int)child_hear(client, "code");
}

/* Stores the abstract name that the server uses over shared memory, for impostors to take. */
static void note_local_name(const struct child *server)
{
    char name[108], text[16];
    size_t length;
    int type;

    unsetenv("LOCAL_NAME");
    if (!wire_local_name(child_pid(server), name, &length, &type))
        return;
    snprintf(text, sizeof text, "%d", type);
    setenv("LOCAL_NAME", name, 1);
    setenv("LOCAL_TYPE", text, 1);
}

/* Starts a server and a client that has exchanged messages with it. */
static struct child *begin(struct world *world, struct child **real, int64_t *endpoint)
{
    struct child *visitor;

    *endpoint = 0;
    *real = raise_server(world, endpoint);
    visitor = spawn(world, "client");
    child_tell(visitor, "endpoint", *endpoint);
    CHECK_THAT(visit(visitor, true), ==, 0);
    return visitor;
}

/* Kills the server, has another program take its place while the client calls, and starts a server again. Returns
 * the code that the client got meanwhile. */
static int replaced(struct world *world, struct child *visitor, struct child **real, int64_t endpoint, const char *role,
                    enum manner manner)
{
    struct child *other;
    int code;

    child_kill(*real);
    other = spawn(world, role);
    child_tell(other, "manner", manner);
    child_tell(other, "endpoint", endpoint);
    child_hear(other, "ready");
    code = visit(visitor, false);
    child_tell(other, "stop", 0);
    child_end(other);
    *real = raise_server(world, &endpoint);
    CHECK_THAT(visit(visitor, true), ==, 0);
    return code;
}

static void end(struct child *visitor, struct child *real)
{
    child_tell(real, "stop", 0);
    child_end(real);
    child_tell(visitor, "a peer is there", -1);
    child_end(visitor);
}

static void impostors(struct world *world)
{
    struct child *real, *visitor;
    int64_t endpoint;

    visitor = begin(world, &real, &endpoint);
    note_local_name(real);
    CHECK(!port_is("local") || getenv("LOCAL_NAME") != NULL);
    for (int i = MUTE; i < MANNERS; i++)
        printf("    %s: %s\n", manners[i],
               code_text(replaced(world, visitor, &real, endpoint, "impostor", (enum manner)i)));
    end(visitor, real);
}

static void another_key(struct world *world)
{
    struct child *real, *visitor;
    int64_t endpoint;

    visitor = begin(world, &real, &endpoint);
    CHECK_THAT(replaced(world, visitor, &real, endpoint, "other", MUTE), ==, -BMI_ECONNREFUSED);
    end(visitor, real);
}

TESTS_AFTER(port_notices_deaths_soon(),
    DIRECTED(a_program_at_a_dead_servers_address_is_not_trusted, impostors,
             {"server", server}, {"client", client}, {"impostor", impostor}),
    DIRECTED(an_endpoint_with_another_key_at_that_address_rejects, another_key,
             {"server", server}, {"client", client}, {"other", other_key}))
