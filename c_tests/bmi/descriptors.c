/*
 * A host that closes descriptors that it does not own, as daemons do: for (fd = 3; fd < 1024; fd++) close(fd).
 *
 *     peer ◄── pending operations ── host: closes all that were opened since its start
 *                                       │   its own files may take the numbers
 *                                       ├─► blocked and polling calls return: operations end, then -BMI_EBADF
 *                                       └─► one line, no CPU time, finalize closes no file of the host
 */
#include "../support/log.h"
#include "../support/pair.h"
#include "../support/wait_children.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { MOST = 1024, TAG = 7, THREADS = 2, SECOND = 1000 };

static const char WORD[] = "closed descriptors of this library";

/* LeakSanitizer asks this function: an endpoint without descriptors does not free its ports. */
int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
    return 1;
}

/* ---- descriptors ---- */

/* Descriptors that were open before the library was loaded. */
static bool before[MOST];
/* Files that the host has opened under the library's descriptor numbers. */
static struct stat theirs[MOST];
static int took;

static void note_descriptors(void)
{
    for (int fd = 0; fd < MOST; fd++)
        before[fd] = fcntl(fd, F_GETFD) >= 0;
}

static void close_the_others(void)
{
    for (int fd = 3; fd < MOST; fd++)
        if (!before[fd])
            close(fd);
}

/* A file with bytes to read, or an eventfd. */
static int open_one(int number)
{
    char name[] = "/tmp/descriptors_XXXXXX", bytes[64] = {0};
    int fd;

    if (number % 4 == 3)
        return eventfd(0, EFD_NONBLOCK);
    fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0);
    CHECK_THAT(pwrite(fd, bytes, sizeof bytes, 0), ==, sizeof bytes);
    return fd;
}

static void take_the_numbers(void)
{
    for (took = 0; took < 60; took++) {
        int fd = open_one(took);

        CHECK(fd >= 0 && fd < MOST && fstat(fd, &theirs[fd]) == 0);
        theirs[fd].st_nlink = 77; /* marks the number as the host's */
    }
}

/* Checks that the host's files are open, and that not a byte was read or written. */
static void check_numbers(void)
{
    int found = 0;

    for (int fd = 0; fd < MOST; fd++) {
        struct stat now;
        uint64_t rings;

        if (theirs[fd].st_nlink != 77)
            continue;
        found++;
        CHECK(fstat(fd, &now) == 0);
        CHECK_THAT(now.st_ino, ==, theirs[fd].st_ino);
        CHECK_THAT(now.st_size, ==, theirs[fd].st_size);
        CHECK_THAT(now.st_mtim.tv_nsec, ==, theirs[fd].st_mtim.tv_nsec);
        if (S_ISREG(now.st_mode))
            CHECK_THAT(lseek(fd, 0, SEEK_CUR), ==, 0);
        else
            CHECK_THAT(read(fd, &rings, sizeof rings), ==, -1);
    }
    CHECK_THAT(found, ==, took);
}

/* ---- calls ---- */

/* Makes one test call in this context, and counts the completions. */
static int test_once(bmi_context_id context, int idle_ms, int *count)
{
    bmi_op_id_t id;
    bmi_error_code_t error;
    bmi_size_t size;
    void *user;
    int result = ops->testcontext(1, &id, count, &error, &size, &user, idle_ms, context);

    if (result >= 0 && *count == 1) {
        CHECK_THAT(error, <, 0);
        op_completed(user, id, error, size, context);
    }
    return result;
}

/* Calls until the library reports that the endpoint is lost, which takes less than a second. */
static void test_until_lost(bmi_context_id context, int idle_ms)
{
    deadline_t deadline = deadline_in(SECOND);
    int result, count;

    while ((result = test_once(context, idle_ms, &count)) >= 0)
        CHECK(!deadline_over(deadline));
    CHECK_THAT(result, ==, -BMI_EBADF);
    CHECK(!deadline_over(deadline));
}

struct blocked {
    pthread_t thread;
    bmi_context_id context;
    int64_t returned;
};

static void *block(void *argument)
{
    struct blocked *blocked = argument;
    int result, count;

    while ((result = test_once(blocked->context, WAIT_MS, &count)) >= 0)
        continue;
    CHECK_THAT(result, ==, -BMI_EBADF);
    blocked->returned = now_ms();
    return NULL;
}

/* ---- the host ---- */

struct pending {
    struct op recv, send;
    char in[8];
    char *out;
};

enum { LARGE = 4 << 20 };

static void post(struct pending *pending, struct bmi_method_addr *peer)
{
    memset(pending, 0, sizeof *pending);
    pending->out = calloc(1, LARGE);
    CHECK(pending->out != NULL);
    CHECK_THAT(op_recv(&pending->recv, peer, pending->in, sizeof pending->in, TAG), ==, 0);
    /* The peer posts no receive for this send. */
    CHECK_THAT(op_send(&pending->send, peer, pending->out, LARGE, TAG), ==, 0);
}

static void let_go(struct side *side)
{
    CHECK_THAT(ops->finalize(), ==, 0);
    tell(side, "gone", 0);
    hear(side, "bye");
}

/* Begins a client with operations under way, and clears the log. */
static void begin(struct side *side, struct pending *pending)
{
    log_take();
    host_load();
    note_descriptors();
    post(pending, pair_client(side));
    host_pump(50);
    log_forget();
}

/* Closes the descriptors that the host has not opened; with a variant of `true`, opens files under those numbers. */
static void lose(struct side *side)
{
    close_the_others();
    if (side->variant)
        take_the_numbers();
}

/* Checks that the operations have ended, that every call fails at once, and that no thread uses the processor. */
static void over(struct side *side, struct pending *pending)
{
    int64_t begun = cpu_ms();
    int count;

    CHECK(op_done(&pending->recv) && op_done(&pending->send));
    free(pending->out);
    CHECK_THAT(test_once(0, 0, &count), ==, -BMI_EBADF);
    CHECK_THAT(test_once(0, WAIT_MS, &count), ==, -BMI_EBADF);
    pause_ms(SECOND);
    CHECK_THAT(cpu_ms() - begun, <, 30 * slower());
    log_one(LOG_ERROR, WORD);
    let_go(side);
    check_numbers();
}

static void polls(struct side *side)
{
    struct pending pending;

    begin(side, &pending);
    lose(side);
    test_until_lost(0, 0);
    over(side, &pending);
}

static void blocks(struct side *side)
{
    struct blocked blocked[THREADS] = {{.context = 0}, {.context = 1}};
    struct pending pending;
    int64_t begun;

    begin(side, &pending);
    CHECK_THAT(ops->open_context(1), ==, 0);
    ops_on_many_threads = true;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&blocked[i].thread, NULL, block, &blocked[i]) == 0);
    pause_ms(300); /* asleep */
    begun = now_ms();
    lose(side);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(blocked[i].thread, NULL) == 0);
        CHECK_THAT(blocked[i].returned - begun, <, SECOND * slower());
    }
    over(side, &pending);
}

/* No call is made between the closing and finalize; then the library is initialized again. */
static void finalizes(struct side *side)
{
    struct pending pending;
    int64_t begun;

    begin(side, &pending);
    pause_ms(300); /* the helper polls by now */
    lose(side);
    begun = now_ms();
    let_go(side);
    CHECK_THAT(now_ms() - begun, <, 2 * SECOND * slower());
    log_one(LOG_ERROR, WORD);
    check_numbers();
    free(pending.out);
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, NULL), ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
    if (log_count() != 0)
        log_one(0, "no line at all"); /* prints the line, if there is one */
    check_numbers();
}

/* A child closes no file of the host, although it closes the descriptors of its parent's library. */
static void forks(struct side *side)
{
    pid_t child;
    int status;

    host_load();
    note_descriptors();
    pair_client(side);
    close_the_others();
    take_the_numbers();
    child = fork_child();
    if (child == 0) {
        check_numbers();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    let_go(side);
    check_numbers();
}

/* The host closes only eventfds, and its sockets take their numbers: the library writes no wake-ups to them. */
static void eventfds(struct side *side)
{
    int host[MOST], count = 0;
    struct pending pending;

    begin(side, &pending);
    pause_ms(300); /* the helper polls by now */
    for (int fd = 3; fd < MOST; fd++) {
        char name[32], file[32] = {0};
        int pair[2];

        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        if (before[fd] || readlink(name, file, sizeof file - 1) < 0 || strcmp(file, "anon_inode:[eventfd]") != 0)
            continue;
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
        before[pair[0]] = before[pair[1]] = true;
        CHECK(dup2(pair[0], fd) == fd && close(pair[0]) == 0);
        host[count++] = pair[1];
    }
    CHECK_THAT(count, >, 1);
    test_until_lost(0, 0);
    over(side, &pending);
    for (int i = 0; i < count; i++) {
        char byte;

        CHECK_THAT(recv(host[i], &byte, 1, 0), ==, -1);
        CHECK_THAT(errno, ==, EAGAIN);
    }
}

/* A peer that loses its client and works on. */
static void peer(struct side *side)
{
    pair_server(side);
    pair_hear(side, "gone");
    tell(side, "bye", 0);
    host_stop();
}

#define ALWAYS \
    PAIR_OF(polling_calls_return_when_descriptors_are_closed, 0, peer, false, polls), \
    PAIR_OF(polling_calls_return_when_files_have_the_numbers, 0, peer, true, polls), \
    PAIR_OF(blocked_calls_return_when_descriptors_are_closed, 0, peer, false, blocks), \
    PAIR_OF(blocked_calls_return_when_files_have_the_numbers, 0, peer, true, blocks), \
    PAIR_OF(finalize_returns_when_descriptors_are_closed, 0, peer, false, finalizes), \
    PAIR_OF(finalize_returns_when_files_have_the_numbers, 0, peer, true, finalizes), \
    PAIR(a_child_closes_no_file_that_has_a_number, peer, forks)

static const struct scenario scenarios[] = {
    ALWAYS,
    PAIR(sockets_at_the_numbers_of_eventfds_are_not_written, peer, eventfds),
    {0},
};

/* libfabric has eventfds, too, and writes to them: not over rdm. */
static const struct scenario over_rdm[] = {ALWAYS, {0}};

int main(int argc, char **argv)
{
    port_notices_deaths_soon();
    return harness_main(argc, argv, port_uses_libfabric() ? over_rdm : scenarios);
}
