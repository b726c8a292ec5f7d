/* See wire.h. */
#include "wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

bool wire_holds(pid_t pid, unsigned long inode)
{
    char directory[64], wanted[64], path[400], target[128];
    struct dirent *entry;
    bool found = false;
    DIR *list;

    snprintf(directory, sizeof directory, "/proc/%d/fd", (int)pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    list = opendir(directory);
    if (list == NULL)
        return false;
    while (!found && (entry = readdir(list)) != NULL) {
        ssize_t length;

        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        length = readlink(path, target, sizeof target - 1);
        if (length > 0) {
            target[length] = '\0';
            found = strcmp(target, wanted) == 0;
        }
    }
    closedir(list);
    return found;
}

static bool listed_name(pid_t pid, char name[108], size_t *length, int *type)
{
    FILE *table = fopen("/proc/net/unix", "r");
    char line[512];
    bool found = false;

    CHECK(table != NULL);
    while (!found && fgets(line, sizeof line, table) != NULL) {
        unsigned long inode;
        unsigned flags, kind;
        int at = 0;

        /* Num RefCount Protocol Flags Type St Inode Path; flag 0x10000: listening */
        if (sscanf(line, "%*s %*x %*x %x %x %*x %lu %n", &flags, &kind, &inode, &at) != 3)
            continue;
        if (at == 0 || line[at] != '@' || (flags & 0x10000) == 0 || !wire_holds(pid, inode))
            continue;
        line[strcspn(line, "\n")] = '\0';
        *length = strlen(line + at + 1);
        if (*length > 107)
            continue;
        memcpy(name, line + at + 1, *length + 1);
        *type = (int)kind;
        found = true;
    }
    fclose(table);
    return found;
}

bool wire_local_name(pid_t pid, char name[108], size_t *length, int *type)
{
    /* The kernel lists sockets piece by piece, and may leave one out while others come and go. */
    for (int tries = 0; tries < 8; tries++)
        if (listed_name(pid, name, length, type))
            return true;
    return false;
}

unsigned long wire_listener_inode(int port)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};

    for (int i = 0; i < 2; i++) {
        FILE *table = fopen(tables[i], "r");
        char line[512];

        while (table != NULL && fgets(line, sizeof line, table) != NULL) {
            unsigned long inode;
            unsigned local, state;

            /* sl local:port remote:port st tx:rx tr:when retrnsmt uid timeout inode; 0A: listens */
            if (sscanf(line, "%*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %*d %*d %lu", &local,
                       &state, &inode) == 3 &&
                state == 0x0a && (int)local == port) {
                fclose(table);
                return inode;
            }
        }
        if (table != NULL)
            fclose(table);
    }
    FAIL("no socket listens on TCP port %d", port);
}

static socklen_t local_address(struct sockaddr_un *address, const char *name, size_t length)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int wire_connect(enum wire_door door, pid_t server, int endpoint)
{
    int fd;

    if (door == DOOR_TCP) {
        struct sockaddr_in address = loopback(endpoint);

        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
    } else {
        struct sockaddr_un address;
        char name[108];
        size_t length;
        socklen_t size;
        int type;

        if (!wire_local_name(server, name, &length, &type))
            return -1;
        size = local_address(&address, name, length);
        fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0);
        if (connect(fd, (struct sockaddr *)&address, size) == 0)
            return fd;
        /* The socket was there a moment ago. */
        fprintf(stderr, "    connect to @%s: %s\n", name, strerror(errno));
    }
    close(fd);
    return -1;
}

int wire_dial_from(unsigned source, int type, int endpoint)
{
    struct sockaddr_in from = {.sin_family = AF_INET}, to = loopback(endpoint);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + source);
    CHECK(bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

int wire_listen(int *port)
{
    struct sockaddr_in address = loopback(*port);
    socklen_t size = sizeof address;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 16) != 0)
        FAIL("listen on %d: %s", *port, strerror(errno));
    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

int wire_listen_local(const char *name, size_t length, int type)
{
    struct sockaddr_un address;
    socklen_t size = local_address(&address, name, length);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0);
    if (bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 16) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool ready(int fd, short events, deadline_t deadline)
{
    struct pollfd entry = {.fd = fd, .events = events};

    for (;;) {
        int count = poll(&entry, 1, deadline_left(deadline));

        if (count > 0)
            return true;
        if (count == 0 && deadline_over(deadline))
            return false;
    }
}

int wire_accept(int listener, int ms)
{
    int fd;

    if (!ready(listener, POLLIN, deadline_in(ms)))
        FAIL("no client dialled");
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

bool wire_say(int fd, const void *bytes, size_t size)
{
    const char *next = bytes;
    deadline_t deadline = deadline_in(WAIT_MS);

    while (size > 0) {
        ssize_t sent = send(fd, next, size, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent > 0) {
            next += sent;
            size -= (size_t)sent;
        } else if (errno == EAGAIN) {
            if (!ready(fd, POLLOUT, deadline))
                return false; /* the other side no longer reads: as good as closed */
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

size_t wire_hear(int fd, void *bytes, size_t size, int ms)
{
    deadline_t deadline = deadline_in(ms);
    size_t got = 0;

    while (got < size && ready(fd, POLLIN, deadline)) {
        ssize_t count = recv(fd, (char *)bytes + got, size - got, MSG_DONTWAIT);

        if (count > 0)
            got += (size_t)count;
        else if (count == 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    return got;
}

void wire_put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

size_t wire_packet(unsigned char *out, const struct packet *packet, const void *body,
                   size_t body_size)
{
    out[0] = packet->kind;
    out[1] = 0;
    out[2] = 'M';
    out[3] = 'X';
    wire_put(out + 4, packet->body_length, 4);
    wire_put(out + 8, packet->word, 4);
    wire_put(out + 12, packet->word >> 32, 4);
    wire_put(out + 16, packet->length, 4);
    wire_put(out + 20, packet->status, 4);
    wire_put(out + 24, packet->credit, 4);
    wire_put(out + 28, packet->slots_and_wanted, 4);
    if (body_size > 0)
        memcpy(out + WIRE_HEADER, body, body_size);
    return WIRE_HEADER + body_size;
}

void wire_noise(unsigned char *bytes, size_t size, unsigned seed)
{
    uint32_t x = seed * 2654435761u + 12345u;

    for (size_t i = 0; i < size; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        bytes[i] = (unsigned char)x;
    }
}
