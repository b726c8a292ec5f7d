/* See world.h. */
#include "world.h"

#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Needs the headers above. */
#include <cmocka.h>

#include "ids.h"

enum {
    LINE_FD = 3,            /* descriptor of a side's line */
    MAX_CHILDREN = 64,      /* of one test, at a time */
    MAX_SCENARIOS = 256,    /* of one program */
    SIDE_LIFETIME_MS = 60000, /* longest life of a side: only a hang reaches it */
    FAILED_EXIT = 99,       /* exit status of a side whose CHECK failed */
};

struct child {
    const char *role;
    pid_t pid;
    int line;
    bool alive;
};

struct world {
    const struct scenario *scenario;
    struct child children[MAX_CHILDREN];
    int count;
};

static char program[4096];
static const char *role_name; /* NULL in the director */
static const char *scenario_name;
static struct world *current; /* of the director */
static const char *skip_all;  /* reason why every test is skipped, or NULL */
static int skipped;

/* ---- notes ---- */

static bool readable(int fd, deadline_t deadline)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    for (;;) {
        int ready = poll(&entry, 1, deadline_left(deadline));

        if (ready > 0)
            return true;
        if (ready == 0 && deadline_over(deadline))
            return false;
        if (ready < 0 && errno != EINTR)
            FAIL("poll: %s", strerror(errno));
    }
}

static void send_note(int fd, const char *word, int64_t value)
{
    struct note note = {.value = value};

    snprintf(note.word, sizeof note.word, "%s", word);
    if (send(fd, &note, sizeof note, MSG_NOSIGNAL) != (ssize_t)sizeof note)
        FAIL("cannot tell '%s': %s", word, strerror(errno));
}

static int64_t receive_note(int fd, const char *word, const char *from, int ms)
{
    struct note note;
    ssize_t got;

    if (!readable(fd, deadline_in(ms)))
        FAIL("%s did not say '%s' in time", from, word);
    got = recv(fd, &note, sizeof note, 0);
    if (got == 0 || (got < 0 && errno == ECONNRESET))
        FAIL("%s ended before it said '%s'", from, word);
    if (got != (ssize_t)sizeof note)
        FAIL("recv: %zd bytes, %s", got, strerror(errno));
    note.word[sizeof note.word - 1] = '\0';
    if (strcmp(note.word, word) != 0)
        FAIL("%s said '%s' instead of '%s'", from, note.word, word);
    return note.value;
}

void tell(struct side *side, const char *word, int64_t value)
{
    send_note(side->line, word, value);
}

int64_t hear(struct side *side, const char *word)
{
    return receive_note(side->line, word, "the other side", 2 * WAIT_MS);
}

bool heard_anything(struct side *side)
{
    struct pollfd entry = {.fd = side->line, .events = POLLIN};

    return poll(&entry, 1, 0) > 0;
}

/* Returns whether this thread is stopped, or has ended. /proc has its state behind the last parenthesis. */
static bool thread_stopped(pid_t pid, const char *thread)
{
    char path[300], text[512], *end;
    FILE *file;
    size_t got;

    snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid, thread);
    file = fopen(path, "re");
    if (file == NULL)
        return true;
    got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = 0;
    end = strrchr(text, ')');
    return end == NULL || end[1] == 0 || end[2] == 'T';
}

/* Returns whether every thread has stopped: they stop one by one. */
static bool stopped(pid_t pid)
{
    char path[64];
    struct dirent *entry;
    bool all = true;
    DIR *list;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    list = opendir(path);
    if (list == NULL)
        FAIL("%s: %s", path, strerror(errno));
    while (all && (entry = readdir(list)) != NULL)
        all = entry->d_name[0] == '.' || thread_stopped(pid, entry->d_name);
    closedir(list);
    return all;
}

static void await_stop(pid_t pid)
{
    for (deadline_t deadline = deadline_in(WAIT_MS); !stopped(pid);) {
        if (deadline_over(deadline))
            FAIL("process %d does not stop", (int)pid);
        pause_ms(1);
    }
}

void child_tell(struct child *child, const char *word, int64_t value)
{
    send_note(child->line, word, value);
}

int64_t child_hear(struct child *child, const char *word)
{
    return child_hear_within(child, word, 2 * WAIT_MS);
}

int64_t child_hear_within(struct child *child, const char *word, int ms)
{
    return receive_note(child->line, word, child->role, ms);
}

/* ---- processes ---- */

static void line_pair(int fds[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
        FAIL("socketpair: %s", strerror(errno));
}

/* Returns a place for another child: if there are many, the place of one that has ended. */
static struct child *place(struct world *world)
{
    if (world->count < MAX_CHILDREN)
        return &world->children[world->count++];
    for (int i = 0; i < MAX_CHILDREN; i++) {
        struct child *child = &world->children[i];

        if (!child->alive) {
            if (child->line >= 0)
                close(child->line);
            return child;
        }
    }
    FAIL("more than %d processes", MAX_CHILDREN);
}

static struct child *start(struct world *world, const char *role, int far_end, int near_end)
{
    struct child *child = place(world);
    pid_t director = getpid();

    fflush(NULL);
    ids_turn();
    child->role = role;
    child->line = near_end;
    child->pid = fork();
    if (child->pid < 0)
        FAIL("fork: %s", strerror(errno));
    if (child->pid == 0) {
        /* C_TESTS_WRAP: a memory checker and its options, for the sides only. */
        static const char wrapped[] = "exec $C_TESTS_WRAP \"$0\" --role \"$1\" \"$2\"";
        const char *name = world->scenario->name;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != director)
            _exit(FAILED_EXIT);
        if (far_end == LINE_FD) /* dup2 onto itself would keep the close-on-exec flag */
            far_end = dup(far_end);
        dup2(far_end, LINE_FD);
        if (getenv("C_TESTS_WRAP") != NULL)
            execl("/bin/sh", "sh", "-c", wrapped, program, name, role, (char *)NULL);
        else
            execl(program, program, "--role", name, role, (char *)NULL);
        _exit(FAILED_EXIT);
    }
    child->alive = true;
    close(far_end);
    return child;
}

struct child *spawn(struct world *world, const char *role)
{
    int fds[2];

    line_pair(fds);
    return start(world, role, fds[1], fds[0]);
}

int64_t variant_of(const struct world *world)
{
    return world->scenario->variants[0];
}

pid_t child_pid(const struct child *child)
{
    return child->pid;
}

/* Waits for a child. Returns true if it has exited; its wait status is then in *status. */
static bool reap_by(struct child *child, deadline_t deadline, int *status)
{
    const struct timespec pause = {.tv_nsec = 500 * 1000};

    for (;;) {
        pid_t done = waitpid(child->pid, status, WNOHANG);

        if (done == child->pid) {
            child->alive = false;
            return true;
        }
        if (done < 0 && errno != EINTR)
            FAIL("waitpid: %s", strerror(errno));
        if (deadline_over(deadline))
            return false;
        nanosleep(&pause, NULL);
    }
}

void child_kill(struct child *child)
{
    int status = 0;

    if (!child->alive)
        return;
    kill(child->pid, SIGKILL);
    if (!reap_by(child, deadline_in(WAIT_MS), &status))
        FAIL("%s survives SIGKILL", child->role);
}

void child_stop(struct child *child)
{
    CHECK(child->alive && kill(child->pid, SIGSTOP) == 0);
    await_stop(child->pid);
}

void child_continue(struct child *child)
{
    CHECK(child->alive && kill(child->pid, SIGCONT) == 0);
}

static void describe(const struct child *child, int status, char *text, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(text, size, "side %s was ended by signal %d (%s)", child->role,
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == FAILED_EXIT)
        snprintf(text, size, "side %s: a check failed, see above", child->role);
    else
        snprintf(text, size, "side %s exited with %d", child->role, WEXITSTATUS(status));
}

void child_end(struct child *child)
{
    int status = 0;
    char text[256];

    if (!reap_by(child, deadline_in(SIDE_LIFETIME_MS), &status))
        FAIL("side %s hangs", child->role);
    if (status != 0) {
        describe(child, status, text, sizeof text);
        FAIL("%s", text);
    }
}

/* Waits for all children at once, so that the first to fail is reported. */
static void end_all(struct world *world)
{
    deadline_t deadline = deadline_in(SIDE_LIFETIME_MS);
    char text[256] = "";

    for (;;) {
        int alive = 0;

        for (int i = 0; i < world->count; i++) {
            struct child *child = &world->children[i];
            int status = 0;

            if (!child->alive)
                continue;
            if (!reap_by(child, now_ms() + 1, &status))
                alive++;
            else if (status != 0) {
                if (text[0] == '\0')
                    describe(child, status, text, sizeof text);
                /* The others may be waiting for this child: they get a moment to end. */
                deadline = deadline_in(500);
            }
        }
        if (alive == 0 || deadline_over(deadline))
            break;
    }
    if (text[0] != '\0')
        FAIL("%s", text);
    for (int i = 0; i < world->count; i++)
        if (world->children[i].alive)
            FAIL("side %s hangs", world->children[i].role);
}

static void clear(struct world *world)
{
    for (int i = 0; i < world->count; i++) {
        struct child *child = &world->children[i];

        if (child->alive) {
            int status;

            kill(child->pid, SIGKILL);
            waitpid(child->pid, &status, 0);
            child->alive = false;
        }
        if (child->line >= 0)
            close(child->line);
    }
    world->count = 0;
}

void world_give_up(const char *file, int line, const char *text)
{
    if (role_name != NULL) {
        fprintf(stderr, "    %s, side %s: %s:%d: %s\n", scenario_name, role_name, file, line,
                text);
        fflush(NULL);
        _exit(FAILED_EXIT);
    }
    fprintf(stderr, "    %s, director: %s:%d: %s\n",
            current != NULL ? current->scenario->name : "?", file, line, text);
    if (current != NULL)
        clear(current);
    _fail(file, line);
    abort(); /* _fail does not return */
}

/* ---- tests ---- */

void skip_tests(const char *why)
{
    skip_all = why;
}

/* Returns whether C_TESTS_LEFT_OUT, a list separated by blanks, contains this test. */
static bool left_out(const char *name)
{
    const char *names = getenv("C_TESTS_LEFT_OUT");
    size_t length = strlen(name);

    for (const char *at = names; at != NULL && (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
            return true;
    return false;
}

void skip_test(const char *why)
{
    printf("    skipped: %s\n", why);
    fflush(stdout);
    skipped++;
    current = NULL;
    skip();
    abort(); /* skip() does not return */
}

static void run_scenario(void **state)
{
    struct world world = {.scenario = *state};
    const struct scenario *scenario = world.scenario;

    current = &world;
    if (skip_all != NULL)
        skip_test(skip_all);
    if (left_out(scenario->name))
        skip_test("left out by the caller");
    if (scenario->direct != NULL) {
        scenario->direct(&world);
    } else if (scenario->roles[1].run == NULL) {
        spawn(&world, scenario->roles[0].name);
    } else {
        int fds[2];

        line_pair(fds);
        start(&world, scenario->roles[0].name, fds[0], -1);
        start(&world, scenario->roles[1].name, fds[1], -1);
    }
    end_all(&world);
    clear(&world);
    current = NULL;
}

static int run_role(const struct scenario *scenarios, const char *name, const char *role)
{
    struct side side = {.line = LINE_FD};

    for (const struct scenario *s = scenarios; s->name != NULL; s++) {
        if (strcmp(s->name, name) != 0)
            continue;
        for (int i = 0; i < ROLES && s->roles[i].run != NULL; i++) {
            if (strcmp(s->roles[i].name, role) != 0)
                continue;
            role_name = role;
            scenario_name = name;
            side.variant = s->variants[i];
            s->roles[i].run(&side);
            return 0;
        }
    }
    fprintf(stderr, "no role %s in %s\n", role, name);
    return FAILED_EXIT;
}

int harness_main(int argc, char **argv, const struct scenario *scenarios)
{
    static struct CMUnitTest tests[MAX_SCENARIOS];
    size_t count = 0;
    int failed;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);

    if (length <= 0) {
        perror("readlink /proc/self/exe");
        return FAILED_EXIT;
    }
    program[length] = '\0';
    if (argc == 4 && strcmp(argv[1], "--role") == 0)
        return run_role(scenarios, argv[2], argv[3]);
    ids_claim();

    for (const struct scenario *s = scenarios; s->name != NULL && count < MAX_SCENARIOS; s++) {
        /* An argument chooses the tests whose name contains it. */
        if (argc == 2 && strstr(s->name, argv[1]) == NULL)
            continue;
        tests[count].name = s->name;
        tests[count].test_func = run_scenario;
        tests[count].initial_state = (void *)s;
        count++;
    }
    failed = _cmocka_run_group_tests(program_invocation_short_name, tests, count, NULL, NULL);
    /* The runner adds these lines up. */
    printf("tally %zu passed %d failed %d skipped\n", count - (size_t)(failed + skipped), failed, skipped);
    return failed == 0 ? 0 : 1;
}
