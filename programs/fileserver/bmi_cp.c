/*
 * bmi_cp: copies files to and from a bmi_fileserver.
 *
 *   bmi_cp FILE ADDRESS/NAME        bmi_cp report.pdf mx://localhost:3/report.pdf
 *   bmi_cp ADDRESS/NAME FILE
 *   bmi_cp --list ADDRESS | --stat ADDRESS/NAME | --remove ADDRESS/NAME | --ping ADDRESS
 *
 * Both sides compute a checksum of all bytes; a copy whose checksums differ fails.
 */
#define _GNU_SOURCE
#include "../method.h"
#include "protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define CONTEXT 0
#define SLEEP_MS 100
#define PINGS 2000

/* One operation under way; it is its own user_ptr. */
struct op {
    bmi_op_id_t id;
    bmi_size_t actual;
    int done;
    int error;
};

static const struct bmi_method_ops *ops;
static struct bmi_method_addr *server;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void posted(struct op *op, int rc, bmi_size_t size)
{
    op->done = rc != 0;
    op->error = rc < 0 ? rc : 0;
    if (rc == 1)
        op->actual = size;
}

static void post_send(struct op *op, const void *data, int64_t len, int32_t tag)
{
    posted(op, ops->post_send(&op->id, server, data, len, BMI_EXT_ALLOC, tag, op, CONTEXT, NULL),
           len);
}

static void post_recv(struct op *op, void *data, int64_t len, int32_t tag)
{
    bmi_size_t size = 0;
    int rc = ops->post_recv(&op->id, server, data, len, &size, BMI_EXT_ALLOC, tag, op, CONTEXT,
                            NULL);
    posted(op, rc, size);
}

/* Waits for one operation, and records others that complete meanwhile. Returns its error. */
static int wait_for(struct op *op)
{
    while (!op->done) {
        bmi_op_id_t ids[8];
        bmi_error_code_t errors[8];
        bmi_size_t sizes[8];
        void *done[8];
        int count = 0;
        int rc = ops->testcontext(8, ids, &count, errors, sizes, done, SLEEP_MS, CONTEXT);
        if (rc < 0)
            return rc;
        for (int i = 0; i < count; i++) {
            struct op *other = done[i];
            other->done = 1;
            other->error = errors[i];
            other->actual = sizes[i];
        }
    }
    return op->error;
}

static int complain(const char *what, int code)
{
    fprintf(stderr, "bmi_cp: %s: %s\n", what, code < 0 ? method_error(code) : strerror(code));
    return 1;
}

/* Sends a request and receives the first reply. Returns 0, an errno of the server, or a BMI error. */
static int ask(const struct fs_request *request, struct fs_reply *reply)
{
    unsigned char out[FS_REQUEST_MAX];
    unsigned char in[FS_REPLY_LEN];
    struct op send = {0};
    struct op recv = {0};
    size_t len = fs_emit_request(request, out);

    post_recv(&recv, in, sizeof in, request->tag);
    if (recv.error != 0)
        return recv.error;
    posted(&send,
           ops->post_sendunexpected(&send.id, server, out, (bmi_size_t)len, BMI_EXT_ALLOC,
                                    request->tag, &send, CONTEXT, NULL),
           (bmi_size_t)len);
    int error = wait_for(&send);
    if (error != 0) {
        /* The reply will not come, and its buffer is on this stack. */
        if (!recv.done)
            ops->cancel(recv.id, CONTEXT);
        wait_for(&recv);
        return error;
    }
    error = wait_for(&recv);
    if (error != 0)
        return error;
    if (!fs_parse_reply(in, (size_t)recv.actual, reply))
        return EPROTO;
    return reply->status;
}

static int last_reply(int32_t tag, struct fs_reply *reply)
{
    unsigned char in[FS_REPLY_LEN];
    struct op recv = {0};

    post_recv(&recv, in, sizeof in, tag);
    int error = wait_for(&recv);
    if (error != 0)
        return error;
    return fs_parse_reply(in, (size_t)recv.actual, reply) ? reply->status : EPROTO;
}

static void progress(const char *name, uint64_t done, uint64_t size, double start, int last)
{
    static double shown;
    double t = now();

    if (!isatty(STDERR_FILENO) || (!last && t - shown < 0.1))
        return;
    shown = t;
    int percent = size == 0 ? 100 : (int)(done * 100 / size);
    char bar[41];
    memset(bar, ' ', sizeof bar - 1);
    memset(bar, '#', (size_t)(percent * 40 / 100));
    bar[40] = '\0';
    fprintf(stderr, "\r%-20.20s [%s] %3d%% %8.1f MB/s%s", name, bar, percent,
            (double)done / 1e6 / (t - start + 1e-9), last ? "\n" : "");
}

static ssize_t read_all(int fd, unsigned char *buffer, size_t len)
{
    size_t at = 0;
    while (at < len) {
        ssize_t n = read(fd, buffer + at, len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        at += (size_t)n;
    }
    return (ssize_t)at;
}

static int write_all(int fd, const unsigned char *buffer, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = write(fd, buffer + at, len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

/* Moves `size` bytes between the server and `fd` (-1: standard output), a window of chunks at a time. */
static int transfer(const char *name, int sending, int32_t tag, int fd, uint64_t size,
                    uint64_t *checksum)
{
    struct op window[FS_WINDOW];
    unsigned char *buffers[FS_WINDOW] = {NULL};
    int64_t lens[FS_WINDOW];
    unsigned head = 0, tail = 0;
    uint64_t begun = 0, moved = 0;
    int error = 0;
    double start = now();
    XXH3_state_t *sum = XXH3_createState();

    if (sum == NULL)
        return ENOMEM;
    XXH3_64bits_reset(sum);
    for (int i = 0; i < FS_WINDOW; i++) {
        buffers[i] = ops->memalloc(FS_CHUNK, sending ? BMI_SEND : BMI_RECV);
        if (buffers[i] == NULL)
            error = ENOMEM;
    }
    while (error == 0 && moved < size) {
        while (error == 0 && begun < size && head - tail < FS_WINDOW) {
            unsigned i = head % FS_WINDOW;
            uint64_t left = size - begun;
            lens[i] = left < (uint64_t)FS_CHUNK ? (int64_t)left : FS_CHUNK;
            memset(&window[i], 0, sizeof window[i]);
            if (sending) {
                ssize_t got = read_all(fd, buffers[i], (size_t)lens[i]);
                if (got != lens[i]) {
                    error = got < 0 ? errno : EIO;
                    break;
                }
                XXH3_64bits_update(sum, buffers[i], (size_t)lens[i]);
                post_send(&window[i], buffers[i], lens[i], tag);
            } else {
                post_recv(&window[i], buffers[i], lens[i], tag);
            }
            begun += (uint64_t)lens[i];
            head++;
        }
        if (error != 0)
            break;
        unsigned i = tail % FS_WINDOW;
        error = wait_for(&window[i]);
        if (error != 0)
            break;
        tail++;
        if (!sending) {
            if (window[i].actual != lens[i]) {
                error = EPROTO;
                break;
            }
            XXH3_64bits_update(sum, buffers[i], (size_t)lens[i]);
            if (write_all(fd, buffers[i], (size_t)lens[i]) != 0) {
                error = errno;
                break;
            }
        }
        moved += (uint64_t)lens[i];
        progress(name, moved, size, start, moved == size);
    }
    /* Buffers may be freed only when no operation uses them. */
    for (; tail != head; tail++) {
        struct op *op = &window[tail % FS_WINDOW];
        if (!op->done)
            ops->cancel(op->id, CONTEXT);
        wait_for(op);
    }
    for (int i = 0; i < FS_WINDOW; i++) {
        if (buffers[i] != NULL)
            ops->memfree(buffers[i], FS_CHUNK, sending ? BMI_SEND : BMI_RECV);
    }
    *checksum = XXH3_64bits_digest(sum);
    XXH3_freeState(sum);
    return error;
}

static int verdict(const char *what, const struct fs_reply *reply, uint64_t size, uint64_t checksum,
                   double start)
{
    double seconds = now() - start;

    if (reply->size != size || reply->checksum != checksum) {
        fprintf(stderr,
                "bmi_cp: %s: CHECKSUMS DIFFER: here %" PRIu64 " bytes %016" PRIx64
                ", there %" PRIu64 " bytes %016" PRIx64 "\n",
                what, size, checksum, reply->size, reply->checksum);
        return 1;
    }
    printf("%s: %" PRIu64 " bytes in %.3f s, %.1f MB/s, checksum %016" PRIx64 " verified\n", what,
           size, seconds, (double)size / 1e6 / seconds, checksum);
    return 0;
}

static int put(const char *file, struct fs_request *request)
{
    struct stat info;
    struct fs_reply reply;
    uint64_t checksum = 0;
    int fd = open(file, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return complain(file, fd < 0 ? errno : EINVAL);
    double start = now();
    request->op = FS_PUT;
    request->size = (uint64_t)info.st_size;
    int error = ask(request, &reply);
    if (error == 0)
        error = transfer(request->name, 1, request->tag + 1, fd, request->size, &checksum);
    if (error == 0)
        error = last_reply(request->tag, &reply);
    close(fd);
    if (error != 0)
        return complain(request->name, error);
    return verdict("put", &reply, request->size, checksum, start);
}

static int get(const char *file, struct fs_request *request)
{
    struct fs_reply reply;
    uint64_t checksum = 0;
    char temporary[4096];

    if (snprintf(temporary, sizeof temporary, "%s.%ld.part", file, (long)getpid()) >=
        (int)sizeof temporary)
        return complain(file, ENAMETOOLONG);
    double start = now();
    request->op = FS_GET;
    int error = ask(request, &reply);
    if (error != 0)
        return complain(request->name, error);
    int fd = open(temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0)
        return complain(temporary, errno);
    uint64_t size = reply.size;
    error = transfer(request->name, 0, request->tag + 1, fd, size, &checksum);
    if (error == 0)
        error = last_reply(request->tag, &reply);
    if (close(fd) != 0 && error == 0)
        error = errno;
    int status = error != 0 ? complain(request->name, error)
                            : verdict("get", &reply, size, checksum, start);
    if (status == 0 && rename(temporary, file) != 0)
        status = complain(file, errno);
    if (status != 0)
        unlink(temporary);
    return status;
}

static int list(struct fs_request *request)
{
    struct fs_reply reply;
    uint64_t checksum = 0;

    request->op = FS_LIST;
    int error = ask(request, &reply);
    if (error == 0) {
        uint64_t size = reply.size;
        error = transfer("list", 0, request->tag + 1, STDOUT_FILENO, size, &checksum);
        if (error == 0)
            error = last_reply(request->tag, &reply);
        if (error == 0 && reply.checksum != checksum)
            error = EIO;
    }
    return error == 0 ? 0 : complain("list", error);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int ping(struct fs_request *request)
{
    static double round_trips[PINGS];
    struct fs_reply reply;

    request->op = FS_PING;
    for (int i = 0; i < PINGS; i++) {
        double start = now();
        int error = ask(request, &reply);
        if (error != 0)
            return complain("ping", error);
        round_trips[i] = (now() - start) * 1e6;
    }
    qsort(round_trips, PINGS, sizeof round_trips[0], by_value);
    printf("ping: %d requests, round trip median %.1f us, 99%% %.1f us\n", PINGS,
           round_trips[PINGS / 2], round_trips[PINGS * 99 / 100]);
    return 0;
}

static int simple(struct fs_request *request, uint32_t op)
{
    struct fs_reply reply;

    request->op = op;
    int error = ask(request, &reply);
    if (error != 0)
        return complain(request->name, error);
    if (op == FS_STAT)
        printf("%s: %" PRIu64 " bytes, modified %" PRId64 "\n", request->name, reply.size,
               reply.mtime);
    else
        printf("%s: removed\n", request->name);
    return 0;
}

/* Splits ADDRESS/NAME; returns 0 if it has no mx:// or a part is too long. */
static int split(const char *remote, char *address, size_t room, char *name)
{
    const char *host = strncmp(remote, "mx://", 5) == 0 ? remote + 5 : NULL;
    if (host == NULL)
        return 0;
    const char *slash = strchr(host, '/');
    size_t len = slash == NULL ? strlen(remote) : (size_t)(slash - remote);
    const char *rest = slash == NULL ? "" : slash + 1;
    if (len >= room || strlen(rest) > FS_NAME_MAX)
        return 0;
    memcpy(address, remote, len);
    address[len] = '\0';
    strcpy(name, rest);
    return 1;
}

static int usage(FILE *out)
{
    fprintf(out, "usage: bmi_cp FILE mx://HOST[:BOARD]:ENDPOINT/NAME\n"
                 "       bmi_cp mx://HOST[:BOARD]:ENDPOINT/NAME FILE\n"
                 "       bmi_cp --list|--ping mx://HOST[:BOARD]:ENDPOINT\n"
                 "       bmi_cp --stat|--remove mx://HOST[:BOARD]:ENDPOINT/NAME\n");
    return out == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    struct fs_request request = {0};
    char address[512];
    int status;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return usage(stdout);
    if (argc != 3)
        return usage(stderr);
    const char *remote = strncmp(argv[1], "mx://", 5) == 0 ? argv[1] : argv[2];
    if (!split(remote, address, sizeof address, request.name)) {
        fprintf(stderr, "bmi_cp: '%s' is not mx://HOST[:BOARD]:ENDPOINT[/NAME]\n", remote);
        return usage(stderr);
    }
    /* Any tag will do: replies come to this client only. */
    request.tag = (int32_t)(getpid() & 0x3fffffff) * 2;
    ops = method_open("bmi_cp");
    if (ops == NULL)
        return 1;
    int rc = ops->initialize(NULL, 0, 0, NULL);
    if (rc < 0)
        return complain("starting the method", rc);
    ops->open_context(CONTEXT);
    server = ops->method_addr_lookup(address);
    if (server == NULL) {
        fprintf(stderr, "bmi_cp: '%s' is not an mx:// address, or the host is unknown\n", address);
        ops->close_context(CONTEXT);
        ops->finalize();
        return 1;
    }
    if (strcmp(argv[1], "--list") == 0)
        status = list(&request);
    else if (strcmp(argv[1], "--ping") == 0)
        status = ping(&request);
    else if (strcmp(argv[1], "--stat") == 0)
        status = simple(&request, FS_STAT);
    else if (strcmp(argv[1], "--remove") == 0)
        status = simple(&request, FS_REMOVE);
    else if (strncmp(argv[1], "--", 2) == 0)
        status = usage(stderr);
    else if (remote == argv[1])
        status = get(argv[2], &request);
    else
        status = put(argv[1], &request);
    ops->close_context(CONTEXT);
    ops->finalize();
    ops->set_info(BMI_DROP_ADDR, server);
    return status;
}
