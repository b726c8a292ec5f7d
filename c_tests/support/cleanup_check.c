/* See cleanup_check.h. */
#include "cleanup_check.h"

#include "memory.h"
#include "port.h"
#include "wire.h"

#include <dirent.h>

/* ---- lists of texts ---- */

__attribute__((format(printf, 2, 3))) static void keep(struct held *held, const char *format, ...)
{
    va_list arguments;

    if (held->count == HELD_MAX)
        FAIL("more than %d things of a kind", HELD_MAX);
    va_start(arguments, format);
    vsnprintf(held->text[held->count++], HELD_TEXT, format, arguments);
    va_end(arguments);
}

static int compare_texts(const void *left, const void *right)
{
    return strcmp(left, right);
}

static void sort(struct held *held)
{
    qsort(held->text, (size_t)held->count, HELD_TEXT, compare_texts);
}

/* Lists the texts that `after` has more often than `before`; false if there are none. */
static bool added(const struct held *before, const struct held *after, char *out, size_t size)
{
    int b = 0;
    size_t used = 0;

    out[0] = '\0';
    for (int a = 0; a < after->count; a++) {
        int order = -1;

        while (b < before->count && (order = strcmp(before->text[b], after->text[a])) < 0)
            b++;
        if (b < before->count && order == 0) {
            b++;
            continue;
        }
        if (used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     after->text[a]);
    }
    return out[0] != '\0';
}

/* ---- sockets ---- */

enum { TCP_LISTENS = 0x0a }; /* as /proc/net has it */
enum door { DOOR_NONE, DOOR_TCP_LISTENS, DOOR_UNIX_NAMED };

/* Parses a line of /proc/net/{tcp,tcp6,unix}: the socket's inode, and whether others can connect to it. */
static enum door read_line(const char *line, bool of_unix, unsigned long *inode)
{
    unsigned state, flags;
    int at = 0;

    if (of_unix) {
        if (sscanf(line, "%*s %*x %*x %x %*x %*x %lu %n", &flags, inode, &at) < 2)
            return DOOR_NONE;
        return at > 0 && line[at] == '@' && (flags & 0x10000) != 0 ? DOOR_UNIX_NAMED : DOOR_NONE;
    }
    if (sscanf(line, "%*d: %*[0-9A-F]:%*x %*[0-9A-F]:%*x %x %*s %*s %*s %*d %*d %lu", &state,
               inode) != 2)
        return DOOR_NONE;
    return state == TCP_LISTENS ? DOOR_TCP_LISTENS : DOOR_NONE;
}

static const struct table {
    const char *path, *name;
} tables[] = {
    {"/proc/net/tcp", "TCP"},
    {"/proc/net/tcp6", "TCP"},
    {"/proc/net/unix", "Unix"},
};
enum { TABLES = sizeof tables / sizeof tables[0], UNIX_TABLE = TABLES - 1 };

/* Calls `seen` for every line of the tables of sockets. */
static void each_socket(void (*seen)(void *state, int table, const char *line), void *state)
{
    char line[512];

    for (int i = 0; i < TABLES; i++) {
        FILE *file = fopen(tables[i].path, "re");

        while (file != NULL && fgets(line, sizeof line, file) != NULL)
            seen(state, i, line);
        if (file != NULL)
            fclose(file);
    }
}

/* ---- resources of a process ---- */

struct socket {
    unsigned long inode;
    bool forgiven;
    char text[64];
};

/* Describes one socket by its line in /proc/net. */
static void describe_socket(void *state, int table, const char *line)
{
    struct socket *socket = state;
    unsigned tcp_state;
    unsigned long inode;

    if (table == UNIX_TABLE) {
        if (sscanf(line, "%*s %*x %*x %*x %*x %*x %lu", &inode) == 1 && inode == socket->inode)
            snprintf(socket->text, sizeof socket->text, "Unix socket");
        return;
    }
    if (sscanf(line, "%*d: %*[0-9A-F]:%*x %*[0-9A-F]:%*x %x %*s %*s %*s %*d %*d %lu", &tcp_state,
               &inode) != 2 ||
        inode != socket->inode)
        return;
    snprintf(socket->text, sizeof socket->text, "TCP socket, state %u", tcp_state);
    socket->forgiven = tcp_state != TCP_LISTENS;
}

static bool is_forgiven(const char *target, char *text, size_t size)
{
    struct socket socket = {.text = "socket"};

    if (sscanf(target, "socket:[%lu]", &socket.inode) != 1)
        return false;
    each_socket(describe_socket, &socket);
    snprintf(text, size, "%s", socket.text);
    return socket.forgiven && port_uses_libfabric();
}

static void take_descriptors(struct held *held)
{
    DIR *list = opendir("/proc/self/fd");
    struct dirent *entry;

    CHECK(list != NULL);
    while ((entry = readdir(list)) != NULL) {
        char path[300], target[HELD_TEXT];
        ssize_t length;

        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(list))
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        length = readlink(path, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = '\0';
        if (is_forgiven(target, target, sizeof target))
            continue;
        /* "pipe:[123]" has another number each time. */
        if (strncmp(target, "pipe:[", 6) == 0)
            target[4] = '\0';
        keep(held, "%s", target);
    }
    closedir(list);
    sort(held);
}

static void take_threads(struct held *held)
{
    DIR *list = opendir("/proc/self/task");
    struct dirent *entry;

    CHECK(list != NULL);
    while ((entry = readdir(list)) != NULL) {
        char path[300], name[64] = "?";
        FILE *file;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        file = fopen(path, "re");
        if (file == NULL) /* the thread has just ended */
            continue;
        if (fgets(name, sizeof name, file) == NULL)
            name[0] = '\0';
        fclose(file);
        name[strcspn(name, "\n")] = '\0';
        keep(held, "%s", name);
    }
    closedir(list);
    sort(held);
}

static void take_mappings(struct held *held)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char line[512];

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *path = strpbrk(line, "/[");

        line[strcspn(line, "\n")] = '\0';
        if (path != NULL && (strncmp(path, "/memfd:", 7) == 0 || strncmp(path, "/dev/shm/", 9) == 0))
            keep(held, "%s", path);
    }
    fclose(file);
    sort(held);
}

/* Files with this process's id in their name: other tests run meanwhile. Mapped ones are found by take_mappings. */
static void take_shared(struct held *held)
{
    DIR *list = opendir("/dev/shm");
    struct dirent *entry;
    char pid[32];

    snprintf(pid, sizeof pid, "%d", (int)getpid());
    while (list != NULL && (entry = readdir(list)) != NULL)
        if (strstr(entry->d_name, pid) != NULL)
            keep(held, "%s", entry->d_name);
    if (list != NULL)
        closedir(list);
    sort(held);
}

void holdings_take(struct holdings *holdings)
{
    memset(holdings, 0, sizeof *holdings);
    take_descriptors(&holdings->descriptors);
    take_threads(&holdings->threads);
    take_mappings(&holdings->mappings);
    take_shared(&holdings->shared);
    holdings->resident = (long)resident_kib(0);
}

void holdings_compare(const struct holdings *before, struct holdings *after)
{
    deadline_t deadline = deadline_in(WAIT_MS);
    char text[800];

    holdings_take(after);
    /* A joined thread stays in the list for a moment. */
    while (added(&before->threads, &after->threads, text, sizeof text) && !deadline_over(deadline)) {
        pause_ms(1);
        after->threads.count = 0;
        take_threads(&after->threads);
    }
    if (added(&before->descriptors, &after->descriptors, text, sizeof text))
        FAIL("descriptors left: %s", text);
    if (added(&before->threads, &after->threads, text, sizeof text))
        FAIL("threads left: %s", text);
    if (added(&before->mappings, &after->mappings, text, sizeof text))
        FAIL("mappings left: %s", text);
    if (added(&before->shared, &after->shared, text, sizeof text))
        FAIL("files left in /dev/shm: %s", text);
}

/* ---- doors: sockets that others can connect to ---- */

static void note_door(void *state, int table, const char *line)
{
    struct doors *doors = state;
    unsigned long inode;
    enum door door = read_line(line, table == UNIX_TABLE, &inode);

    if (door == DOOR_NONE || !wire_holds(getpid(), inode))
        return;
    CHECK(doors->count < HELD_MAX);
    doors->inodes[doors->count++] = inode;
    doors->tcp += door == DOOR_TCP_LISTENS;
    doors->unix_ += door == DOOR_UNIX_NAMED;
}

void doors_take(struct doors *doors)
{
    CHECK(access("/proc/self/fd", R_OK) == 0);
    memset(doors, 0, sizeof *doors);
    each_socket(note_door, doors);
}

static void check_door(void *state, int table, const char *line)
{
    const struct doors *doors = state;
    unsigned long inode;

    if (read_line(line, table == UNIX_TABLE, &inode) == DOOR_NONE)
        return;
    for (int i = 0; i < doors->count; i++)
        if (doors->inodes[i] == inode)
            FAIL("a door is still open: %s %s", tables[table].name, line);
}

void doors_gone(const struct doors *doors)
{
    each_socket(check_door, (void *)doors);
}
