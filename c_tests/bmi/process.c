/*
 * The library inside the host's process: threads, signals, forks, descriptors.
 *
 *     host's signals ──► host's threads only (section 9: the library's threads block them)
 *     fork           ──► a child may begin another life, the parent notices nothing (see fork.c)
 *     finalize       ──► no thread, no descriptor, no mapping of a ring is left
 */
#include "../support/pair.h"
#include "../support/memory.h"
#include "../support/wait_children.h"
#include "../support/wire.h"

#include <dirent.h>

enum { CONTEXT = 1 };

/* ---- threads and signals ---- */

/* Tells whether a thread blocks all signals that a process can block, by its mask in /proc. */
static bool blocks_all(const char *task)
{
    char path[300], line[256];
    unsigned long long mask = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    file = fopen(path, "r");
    if (file == NULL) /* the thread has just ended */
        return true;
    while (fgets(line, sizeof line, file) != NULL)
        sscanf(line, "SigBlk: %llx", &mask);
    fclose(file);
    for (int number = 1; number < 32; number++) {
        if (number == SIGKILL || number == SIGSTOP || number == SIGSEGV || number == SIGBUS ||
            number == SIGFPE || number == SIGILL)
            continue; /* cannot be blocked, or must not be */
        if ((mask >> (number - 1) & 1) == 0)
            return false;
    }
    return true;
}

static void threads_block_signals(struct side *side)
{
    struct dirent *entry;
    char own[32];
    DIR *list;

    pair_exchange_self(host_lookup_endpoint(host_start_server()), 8, 1);
    snprintf(own, sizeof own, "%d", (int)getpid());
    list = opendir("/proc/self/task");
    CHECK(list != NULL);
    while ((entry = readdir(list)) != NULL)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, own) != 0 &&
            !blocks_all(entry->d_name))
            FAIL("thread %s of the library takes the host's signals", entry->d_name);
    closedir(list);
    host_stop();
}

/* ---- fork ---- */

/* Sends a message from a forked child, whose instance has no context yet. */
static bool reaches(struct bmi_method_addr *peer)
{
    bmi_op_id_t id, done;
    bmi_error_code_t error = -1;
    bmi_size_t size;
    void *user;
    int outcount = 0, sent;

    if (ops->open_context(CONTEXT) != 0)
        return false;
    sent = ops->post_sendunexpected(&id, peer, "x", 1, BMI_EXT_ALLOC, 1, NULL, CONTEXT, NULL);
    for (deadline_t deadline = deadline_in(WAIT_MS); sent == 0 && outcount == 0;)
        if (deadline_over(deadline) ||
            ops->testcontext(1, &done, &outcount, &error, &size, &user, 10, CONTEXT) < 0)
            return false;
    return sent == 1 || (outcount == 1 && error == 0);
}

static void forks(struct side *side)
{
    struct bmi_method_addr *self = host_lookup_endpoint(host_start_server()), *called = pair_call_self(self);
    pid_t child;

    pair_exchange_ends(self, called, 8, 1);
    child = fork_child();
    if (child == 0) {
        /* The child has made no call that would continue the parent's life, so this is a life of its own, in which
         * the parent's object stands for that server only. */
        (void)ops->method_addr_lookup("mx://localhost:0:6");
        if (ops->initialize(NULL, METHOD_ID, 0, NULL) != 0)
            leave_fork("3");
        if (ops->initialize(NULL, METHOD_ID, 0, NULL) != -BMI_EALREADY)
            leave_fork("6");
        if (ops->method_addr_lookup("mx://localhost:0:6") == NULL)
            leave_fork("4");
        leave_fork(reaches(self) ? "0" : "5");
    }
    reap_fork(child);
    pair_exchange_ends(self, called, 8, 1);
    host_stop();
}

/* Without close-on-exec, a program started by the server would keep its connections open after its death. */
static void execs(struct side *side)
{
    char command[] = "ls -l /proc/self/fd | grep -oE 'socket:.*|memfd:.*|.*eventfd.*|.*eventpoll.*'";
    char line[300], door[64];
    int count = 0, endpoint = host_start_server();
    FILE *pipe;

    pair_exchange_self(host_lookup_endpoint(endpoint), 8, 1);
    snprintf(door, sizeof door, "socket:[%lu]", wire_listener_inode(endpoint));
    pipe = popen(command, "r");
    CHECK(pipe != NULL);
    while (fgets(line, sizeof line, pipe) != NULL) {
        CHECK(strncmp(line, door, strlen(door)) != 0);
        count++;
    }
    pclose(pipe);
    /* Every descriptor of the library is close-on-exec; the line to the director may be inherited. libfabric opens
     * descriptors without the flag: over rdm only the listening socket can be checked. */
    if (!port_uses_libfabric())
        CHECK_THAT(count, <=, 1);
    host_stop();
}

/* ---- failed connections leak nothing (fault 18) ---- */

static void fails_to_connect(struct side *side)
{
    int endpoint = host_start_server(), files = 0;
    int64_t memory = 0;

    host_stop();
    host_start_client();
    for (int i = 0; i < 300; i++) {
        struct bmi_method_addr *absent = host_lookup_endpoint(endpoint);
        struct op send = {0};

        if (op_send_unexpected(&send, absent, "x", 1, 1) >= 0)
            op_wait(&send);
        host_drop(absent);
        if (i == 50) {
            files = entries("/proc/self/fd");
            memory = resident_kib(0);
        }
    }
    CHECK_THAT(entries("/proc/self/fd"), <=, files + 2);
#ifndef __SANITIZE_ADDRESS__ /* it keeps freed memory; its leak checker looks instead */
    CHECK_THAT(resident_kib(0) - memory, <, 1024 * slower());
#else
    (void)memory;
#endif
    host_stop();
}

/* ---- memory is allocated when it is needed (fault 20) ---- */

static void takes_what_it_needs(struct side *side)
{
    static void *small[2000];
    int64_t before, after;
    /* libfabric with all its providers and queues comes on top. */
    int fabric_kib = port_uses_libfabric() ? 40 * 1024 : 0;

    host_load();
    before = resident_kib(0);
    host_start_client();
    after = resident_kib(0);
    CHECK_THAT(after - before, <, (8 * 1024 + fabric_kib) * slower());
    for (int i = 0; i < 2000; i++) {
        small[i] = ops->memalloc(16, BMI_SEND);
        CHECK(small[i] != NULL);
        memset(small[i], 1, 16);
    }
    CHECK_THAT(resident_kib(0) - after, <, 4 * 1024 * slower());
    for (int i = 0; i < 2000; i++)
        CHECK_THAT(ops->memfree(small[i], 16, BMI_SEND), ==, 0);
    host_stop();
}

TESTS(
    SOLO(threads_of_the_library_block_signals, threads_block_signals),
    SOLO(a_forked_child_may_begin_a_life_of_its_own, forks),
    SOLO(descriptors_are_closed_on_exec, execs),
    SOLO(connections_that_fail_leave_nothing, fails_to_connect),
    SOLO(memory_is_taken_when_it_is_needed, takes_what_it_needs))
