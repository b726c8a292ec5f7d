#define _GNU_SOURCE
#include "measure.h"

#include "serve.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Address of the other side of --self. */
struct found {
    uint64_t nic_id;
    uint32_t id;
};

/* Process of the other side of --self; 0 without one. */
static pid_t child;

static void fail(const struct options *options, const char *error)
{
    fprintf(stderr, "%s: %s\n", options->program->name, error);
    if (child > 0)
        kill(child, SIGKILL);
    exit(1);
}

static void check(const struct options *options, const char *error)
{
    if (error != NULL)
        fail(options, error);
}

/* Moves the two processes of --self to processors of their own, if that is permitted. */
static void pin(const struct options *options, int core)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;

    if (!options->pin || cores < 2)
        return;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

/* Serves as the other side, until its client is done. */
static void be_other_side(const struct options *options)
{
    char host[MX_MAX_HOSTNAME_LEN];
    struct link link;

    check(options, link_open(&link, options));
    if (mx_nic_id_to_hostname(link.nic_id, host) != MX_SUCCESS)
        snprintf(host, sizeof(host), "%012llx", (unsigned long long)link.nic_id);
    printf("%s: %s, endpoint %u\n", options->program->name, host, link.id);
    fflush(stdout);
    check(options, serve(&link, options));
    link_close(&link);
}

/* Runs the other side of --self: sends its address to the parent, serves, and ends with the parent. */
static void be_child(const struct options *options, int pipe_end, pid_t parent)
{
    struct link link;
    struct found found;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    pin(options, 1);
    check(options, link_open(&link, options));
    found = (struct found){link.nic_id, link.id};
    if (write(pipe_end, &found, sizeof(found)) != (ssize_t)sizeof(found))
        _exit(1);
    close(pipe_end);
    check(options, serve(&link, options));
    link_close(&link);
    exit(0);
}

/* Starts the other side, before this process has loaded a library that it would inherit. */
static struct found start_child(const struct options *options)
{
    pid_t parent = getpid();
    struct found found;
    int ends[2];

    if (pipe(ends) != 0 || (child = fork()) < 0)
        fail(options, "the other side cannot be started");
    if (child == 0) {
        close(ends[0]);
        be_child(options, ends[1], parent);
    }
    close(ends[1]);
    if (read(ends[0], &found, sizeof(found)) != (ssize_t)sizeof(found))
        fail(options, "the other side did not start");
    close(ends[0]);
    return found;
}

const char *measure_answer(struct session *session)
{
    struct answer words = {0, 0, 0};
    mx_request_t request = NULL;
    static char text[64];
    const char *error;

    error = link_post_recv(&session->link, &words, sizeof(words), MATCH_ANSWER | session->plan.id,
                           &request);
    if (error == NULL)
        error = link_finish(&session->link, &request, sizeof(words));
    if (error != NULL)
        return error;
    words = answer_wire(words);
    if (words.magic != PLAN_MAGIC || words.refused)
        return "the other side refuses that size";
    if (words.bad == 0)
        return NULL;
    snprintf(text, sizeof(text), "%u messages arrived with wrong bytes", words.bad);
    return text;
}

/* Sends a plan, and waits while others are served: only a synchronous send notices that the other side has ended
 * meanwhile. The answer follows at once.
 */
static const char *ask(struct session *session)
{
    struct plan words = plan_wire(session->plan);
    mx_request_t request = NULL;
    const char *error = link_post_ssend(&session->link, &words, sizeof(words), session->peer,
                                        MATCH_PLAN, &request);

    session->link.timeout_ms = WAIT_IN_LINE_MS;
    if (error == NULL)
        error = link_finish(&session->link, &request, sizeof(words));
    session->link.timeout_ms = WAIT_MS;
    return error != NULL ? error : measure_answer(session);
}

/* Tells the other side to end, unless it was started with --keep. It may end before it answers. */
static const char *quit(struct session *session)
{
    struct plan words;
    mx_request_t request = NULL;
    const char *error;

    session->plan.kind = PLAN_QUIT;
    words = plan_wire(session->plan);
    error = link_post_send(&session->link, &words, sizeof(words), session->peer, MATCH_PLAN,
                           &request);
    return error != NULL ? error : link_finish(&session->link, &request, sizeof(words));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static const char *measure_size(const struct measurement *measurement, struct session *session)
{
    uint32_t repeats = session->options->repeats, n;
    double *seconds = calloc(repeats, sizeof(*seconds)), warm;
    const char *error = seconds == NULL ? "out of memory" : NULL;
    struct times times;

    for (n = 0; n <= repeats && error == NULL; n++) {
        session->plan.id++;
        error = ask(session);
        if (error == NULL)
            error = measurement->repeat(session, n == 0 ? &warm : &seconds[n - 1]);
    }
    if (error == NULL) {
        qsort(seconds, repeats, sizeof(*seconds), by_value);
        times.median = (seconds[(repeats - 1) / 2] + seconds[repeats / 2]) / 2;
        times.least = seconds[0];
        times.most = seconds[repeats - 1];
        measurement->row(session, &times);
        fflush(stdout);
    }
    free(seconds);
    return error;
}

static void find_other_side(const struct options *options, struct found *found)
{
    char text[512];
    mx_return_t code = mx_hostname_to_nic_id(options->host, &found->nic_id);

    if (code != MX_SUCCESS) {
        snprintf(text, sizeof(text), "%s", link_reason(code));
        fail(options, text);
    }
    found->id = options->remote;
}

int measure_main(const struct measurement *measurement, int argc, char **argv)
{
    const struct options options = options_parse(&measurement->program, argc, argv);
    struct session session = {.options = &options};
    struct found found;
    uint64_t size;
    int status = 0;

    if (options.host == NULL && !options.self) {
        be_other_side(&options);
        return 0;
    }
    if (options.self) {
        found = start_child(&options);
        pin(&options, 0);
    }
    check(&options, link_open(&session.link, &options));
    if (!options.self)
        find_other_side(&options, &found);
    check(&options, link_connect(&session.link, found.nic_id, found.id, options.key,
                                 &session.peer));
    session.plan = (struct plan){
        .magic = PLAN_MAGIC,
        .kind = measurement->kind,
        /* Differs from the ids of other clients, even of one with the same process id on another host. */
        .id = (uint32_t)getpid() << 12 ^ (uint32_t)(link_now() * 1e6),
        .window = options.window,
        .sleep = (uint32_t)options.sleep,
        .verify = (uint32_t)options.verify,
    };
    if (!options.json)
        measurement->heading();
    fflush(stdout);
    for (size = options.first_size; size <= options.last_size; size = options_next_size(size)) {
        session.plan.size = (uint32_t)size;
        session.plan.count =
            options.iterations ? options.iterations : measurement->count((uint32_t)size);
        check(&options, measure_size(measurement, &session));
    }
    check(&options, quit(&session));
    if (options.self && (waitpid(child, &status, 0) != child || status != 0))
        fail(&options, "the other side failed");
    link_close(&session.link);
    return 0;
}
