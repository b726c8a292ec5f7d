/*
 * Log lines on a stderr that accepts none: they are lost and counted, and the program goes on.
 *
 *     server ── its stderr: a pipe or a socket, without a reader, or full
 *       ├── a stranger that does not know the secret: one line
 *       └── a client: is served
 */
#include "../support/limit.h"
#include "../support/log.h"
#include "../support/pair.h"
#include "../support/secret_file.h"

#include <sys/mman.h>
#include <sys/socket.h>

static const char ours[] = "one and the same for all";

enum kind { A_PIPE, A_SOCKET, KINDS };

/* Makes stderr one end of a pipe or a socket pair; returns the other end. */
static int connect_stderr(enum kind kind)
{
    int ends[2];

    CHECK((kind == A_PIPE ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) == 0);
    CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    close(ends[1]);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    return ends[0];
}

static void fill_stderr(void)
{
    static const char much[4096];

    CHECK(fcntl(STDERR_FILENO, F_SETFL, O_WRONLY | O_NONBLOCK) == 0);
    while (write(STDERR_FILENO, much, sizeof much) > 0)
        continue;
    CHECK_THAT(errno, ==, EAGAIN);
    while (write(STDERR_FILENO, much, 1) > 0)
        continue;
    CHECK(fcntl(STDERR_FILENO, F_SETFL, O_WRONLY) == 0);
}

/* Returns the text that can be read. */
static const char *drain(int fd)
{
    static char text[1 << 20];
    size_t size = 0;
    ssize_t got;

    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while ((got = read(fd, text + size, sizeof text - 1 - size)) > 0)
        size += (size_t)got;
    text[size] = '\0';
    return text;
}

/* Has the library log one line. */
static void warn(void)
{
    host_load();
    CHECK(ops->method_addr_lookup("mx://localhost:70000") == NULL);
}

/* ---- a server ---- */

enum trouble { NO_READER, FULL, NONE };

#define VARIANT(kind, trouble) ((trouble) * KINDS + (kind))

static void serve(struct side *side)
{
    enum kind kind = (enum kind)(side->variant % KINDS);
    enum trouble trouble = (enum trouble)(side->variant / KINDS);
    char user[64];
    int reader, endpoint;
    const char *text;

    secret_file(ours, 0600);
    endpoint = host_start_server();
    secret_file_gone();
    reader = connect_stderr(kind);
    if (trouble == NO_READER)
        close(reader);
    if (trouble == FULL)
        fill_stderr();
    tell(side, "endpoint", endpoint);
    pair_accept();
    pair_hear(side, "stop");
    /* The descriptor is shared with others, so the library must not change its flags. */
    CHECK((fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK) == 0);
    if (trouble == NONE) {
        text = drain(reader);
        CHECK(strstr(text, "rejected") != NULL);
        /* The user's number, whether this is root or not. */
        snprintf(user, sizeof user, "user %u of this machine", (unsigned)geteuid());
        CHECK(strstr(text, user) != NULL || !port_is("local"));
    }
    host_stop();
}

static void stranger(struct side *side)
{
    struct op request = {0};

    op_send_unexpected(&request, pair_join(side), "hello", 5, 1);
    CHECK_THAT(op_code(&request), ==, -BMI_EACCES);
    tell(side, "refused", 0);
    host_stop();
}

static void client(struct side *side)
{
    secret_file(ours, 0600);
    pair_hello(pair_join(side));
    secret_file_gone();
    tell(side, "answered", 0);
    host_stop();
}

static void a_visit(struct world *world)
{
    struct child *server = spawn(world, "server"), *visitor;
    int64_t endpoint = child_hear(server, "endpoint");

    visitor = spawn(world, "stranger");
    child_tell(visitor, "endpoint", endpoint);
    child_hear(visitor, "refused");
    child_end(visitor);
    visitor = spawn(world, "client");
    child_tell(visitor, "endpoint", endpoint);
    child_hear(visitor, "answered");
    child_end(visitor);
    child_tell(server, "stop", 0);
    child_end(server);
}

/* ---- a host's logger ---- */

static atomic_int refusals;

/* Logger of the host, which waits for the library's lock. */
static void log_that_calls(int level, const char *line)
{
    struct bmi_mx_credits all = {.size = sizeof all};

    (void)ops->get_info(BMI_MX_GET_CREDITS, &all);
    refusals += strstr(line, "rejected") != NULL;
}

static void server_that_calls(struct side *side)
{
    log_by(log_that_calls);
    secret_file(ours, 0600);
    pair_serve(side);
    secret_file_gone();
    pair_accept();
    pair_hear(side, "stop");
    UNTIL (refusals >= 1) /* perhaps by the library's own thread; over a fabric also over TCP */
        host_pump(2);
    host_stop();
}

/* ---- lines ---- */

static void lost_lines(struct side *side)
{
    for (int turn = 0; turn < 2 * KINDS; turn++) {
        int reader = connect_stderr((enum kind)(turn % KINDS));
        const char *text;
        rlim_t before;

        fill_stderr();
        if (turn >= KINDS) /* stderr cannot be opened again, and poll accepts one descriptor only */
            before = limit_to(RLIMIT_NOFILE, 1);
        warn();
        warn();
        drain(reader);
        warn();
        text = drain(reader);
        CHECK(strstr(text, " 2 log lines could not be written\n[") != NULL);
        CHECK(strstr(text, "70000") != NULL);
        warn(); /* the number is logged once */
        CHECK(strstr(drain(reader), "could not be written") == NULL);
        close(reader);
        warn(); /* without a reader */
        if (turn >= KINDS)
            limit_to(RLIMIT_NOFILE, before);
        reader = connect_stderr(A_PIPE);
        warn(); /* the next turn begins without lost lines */
        close(reader);
    }
}

/* The library raises no SIGPIPE, and leaves the host's pending one alone. */
static void signals(struct side *side)
{
    sigset_t only, pending;

    close(connect_stderr(A_PIPE));
    sigemptyset(&only);
    sigaddset(&only, SIGPIPE);
    CHECK(sigprocmask(SIG_BLOCK, &only, NULL) == 0);
    warn();
    CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGPIPE));
    CHECK(raise(SIGPIPE) == 0);
    warn();
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE));
}

/* A stderr that is a file which may not grow. */
static void limited_file(struct side *side)
{
    FILE *file = tmpfile();
    const char *text;
    rlim_t before;

    CHECK(file != NULL && dup2(fileno(file), STDERR_FILENO) == STDERR_FILENO);
    before = limit_to(RLIMIT_FSIZE, 10);
    warn(); /* ten bytes of it are written */
    warn();
    limit_to(RLIMIT_FSIZE, before);
    warn();
    CHECK(lseek(fileno(file), 0, SEEK_SET) == 0);
    text = drain(fileno(file));
    CHECK(text[10] == '\n');
    CHECK(strstr(text + 10, " 2 log lines could not be written\n[") != NULL);
}

/* Descriptor 2 may be something else, once a host has closed its stderr: one end of the host's pipe, or the
 * library's memory. */
static void other_descriptors(struct side *side)
{
    int ends[2], memory = memfd_create("link", MFD_CLOEXEC);

    CHECK(pipe(ends) == 0 && dup2(ends[0], STDERR_FILENO) == STDERR_FILENO);
    warn();
    CHECK(strlen(drain(ends[0])) == 0);
    CHECK(memory >= 0 && dup3(memory, STDERR_FILENO, O_CLOEXEC) == STDERR_FILENO);
    warn();
    CHECK_THAT(lseek(memory, 0, SEEK_END), ==, 0);
    close(STDERR_FILENO);
    warn();
}

static void prepare(void)
{
    unsetenv("BMI_MX_LOG");
    unsetenv("MX_LOG");
}

#define VISIT(sentence, variant, server) \
    DIRECTED_OF(sentence, variant, a_visit, {"server", server}, {"stranger", stranger}, {"client", client})

TESTS_AFTER(prepare(),
    VISIT(a_pipe_without_a_reader_does_not_end_a_server, VARIANT(A_PIPE, NO_READER), serve),
    VISIT(a_full_pipe_does_not_hold_a_server_up, VARIANT(A_PIPE, FULL), serve),
    VISIT(a_socket_without_a_peer_does_not_end_a_server, VARIANT(A_SOCKET, NO_READER), serve),
    VISIT(a_full_socket_does_not_hold_a_server_up, VARIANT(A_SOCKET, FULL), serve),
    VISIT(a_refusal_names_the_user, VARIANT(A_PIPE, NONE), serve),
    VISIT(a_hosts_logger_is_called_without_a_lock, 0, server_that_calls),
    SOLO(lost_lines_are_counted_and_the_next_one_says_so, lost_lines),
    SOLO(a_signal_of_the_hosts_stays_and_one_of_the_logs_goes, signals),
    SOLO(a_file_at_its_limit_ends_nothing, limited_file),
    SOLO(nothing_is_written_to_a_descriptor_that_is_not_stderr, other_descriptors))
