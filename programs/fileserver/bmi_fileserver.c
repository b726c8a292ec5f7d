/*
 * bmi_fileserver: serves the files of one directory over BMI.
 *
 *   bmi_fileserver ADDRESS DIRECTORY        bmi_fileserver mx://localhost:3 /srv/files
 *
 * One thread, any number of clients. The loop of every BMI server:
 *
 *   +--> testunexpected: new requests --> a session each
 *   |         testcontext: operations that completed --> their session goes on
 *   +-------------'   (sleeps here when there is nothing; a request wakes it)
 */
#define _GNU_SOURCE
#include "../method.h"
#include "protocol.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define CONTEXT 0
#define REQUESTS_AT_ONCE 16
#define COMPLETIONS_AT_ONCE 64
#define SLEEP_MS 250

enum stage {
    ANSWERING, /* the only reply is being sent */
    OPENING,   /* the first reply is being sent, data follows */
    MOVING,    /* data is being moved */
    CLOSING    /* the last reply is being sent */
};

/* One operation under way; it is its own user_ptr. */
struct slot {
    struct session *session;
    bmi_op_id_t id;
    unsigned char *buffer;
    int64_t len;
    int64_t actual;
    int busy;
    int ready;
};

/* One request being served. */
struct session {
    struct bmi_method_addr *client;
    struct fs_request request;
    enum stage stage;
    int failed;          /* the client is lost: nothing more is sent to it */
    int status;          /* errno for the last reply */
    int pending;         /* operations under way */
    struct slot reply;
    unsigned char wire[FS_REPLY_LEN];
    struct slot slots[FS_WINDOW];
    unsigned next_post;  /* slots are used in a ring, so that data stays in order */
    unsigned next_take;
    uint64_t posted;     /* bytes for which an operation has been posted */
    uint64_t moved;      /* bytes whose operation has completed */
    uint64_t size;
    int fd;
    char temporary[FS_NAME_MAX + 24];
    char *listing;
    XXH3_state_t *sum;
};

static const struct bmi_method_ops *ops;
static int directory = -1;
static volatile sig_atomic_t stopping;

static void on_signal(int number)
{
    (void)number;
    stopping = 1;
}

/* Gives a client up after an error: cancels the operations under way. */
static void fail(struct session *session, int code)
{
    if (session->failed)
        return;
    session->failed = 1;
    fprintf(stderr, "bmi_fileserver: %s: %s\n", ops->rev_lookup_unexpected(session->client),
            method_error(code));
    if (session->reply.busy)
        ops->cancel(session->reply.id, CONTEXT);
    for (int i = 0; i < FS_WINDOW; i++) {
        if (session->slots[i].busy)
            ops->cancel(session->slots[i].id, CONTEXT);
    }
}

static void end_session(struct session *session)
{
    struct method_drop_addr_query query = {session->client, 0};

    if (session->fd >= 0)
        close(session->fd);
    if (session->temporary[0] != '\0')
        unlinkat(directory, session->temporary, 0);
    for (int i = 0; i < FS_WINDOW; i++) {
        if (session->slots[i].buffer != NULL)
            ops->memfree(session->slots[i].buffer, FS_CHUNK, BMI_SEND);
    }
    XXH3_freeState(session->sum);
    free(session->listing);
    /* Drops the address of a client that has left for good, as real hosts do. */
    if (ops->get_info(BMI_DROP_ADDR_QUERY, &query) == 0 && query.response)
        ops->set_info(BMI_DROP_ADDR, session->client);
    free(session);
}

/* Posts one send or receive. Returns 0 if its completion will come, 1 if it has completed. */
static int post(struct session *session, struct slot *slot, int receive, int32_t tag)
{
    int rc;

    slot->session = session;
    if (receive)
        rc = ops->post_recv(&slot->id, session->client, slot->buffer, slot->len, &slot->actual,
                            BMI_EXT_ALLOC, tag, slot, CONTEXT, NULL);
    else
        rc = ops->post_send(&slot->id, session->client, slot->buffer, slot->len, BMI_EXT_ALLOC, tag,
                            slot, CONTEXT, NULL);
    if (rc < 0) {
        fail(session, rc);
        return 1;
    }
    if (rc == 0) {
        slot->busy = 1;
        session->pending++;
        return 0;
    }
    if (!receive)
        slot->actual = slot->len;
    return 1;
}

static void send_reply(struct session *session, const struct fs_reply *reply, enum stage stage)
{
    fs_emit_reply(reply, session->wire);
    session->stage = stage;
    session->reply.buffer = session->wire;
    session->reply.len = FS_REPLY_LEN;
    post(session, &session->reply, 0, session->request.tag);
}

static void answer(struct session *session, int status)
{
    struct fs_reply reply = {.status = status};
    send_reply(session, &reply, ANSWERING);
}

/* A name is one visible file of the directory. */
static int bad_name(const char *name)
{
    return name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL;
}

static int make_slots(struct session *session)
{
    for (int i = 0; i < FS_WINDOW; i++) {
        session->slots[i].buffer = ops->memalloc(FS_CHUNK, BMI_SEND);
        if (session->slots[i].buffer == NULL)
            return ENOMEM;
    }
    session->sum = XXH3_createState();
    if (session->sum == NULL)
        return ENOMEM;
    XXH3_64bits_reset(session->sum);
    return 0;
}

static void begin_put(struct session *session)
{
    static unsigned serial;
    struct fs_reply reply = {.size = session->request.size};

    session->size = session->request.size;
    snprintf(session->temporary, sizeof session->temporary, ".%s.%u", session->request.name,
             serial++);
    session->fd = openat(directory, session->temporary, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
    if (session->fd < 0) {
        session->temporary[0] = '\0';
        answer(session, errno);
        return;
    }
    int status = make_slots(session);
    if (status != 0)
        answer(session, status);
    else
        send_reply(session, &reply, OPENING);
}

static void begin_get(struct session *session)
{
    struct stat info;
    struct fs_reply reply = {0};

    session->fd = openat(directory, session->request.name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (session->fd < 0 || fstat(session->fd, &info) != 0) {
        answer(session, errno);
        return;
    }
    if (!S_ISREG(info.st_mode)) {
        answer(session, EISDIR);
        return;
    }
    int status = make_slots(session);
    if (status != 0) {
        answer(session, status);
        return;
    }
    session->size = (uint64_t)info.st_size;
    reply.size = session->size;
    reply.mtime = info.st_mtime;
    send_reply(session, &reply, OPENING);
}

static void begin_list(struct session *session)
{
    struct fs_reply reply = {0};
    size_t size = 0;
    int copy = dup(directory);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    FILE *text = open_memstream(&session->listing, &size);
    struct dirent *entry;

    if (dir == NULL || text == NULL) {
        answer(session, errno);
    } else {
        rewinddir(dir);
        while ((entry = readdir(dir)) != NULL) {
            struct stat info;
            if (bad_name(entry->d_name) ||
                fstatat(directory, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
                !S_ISREG(info.st_mode))
                continue;
            fprintf(text, "%12" PRIu64 "  %s\n", (uint64_t)info.st_size, entry->d_name);
        }
        fflush(text);
        session->size = size;
        reply.size = size;
        int status = make_slots(session);
        if (status != 0)
            answer(session, status);
        else
            send_reply(session, &reply, OPENING);
    }
    if (dir != NULL)
        closedir(dir);
    else if (copy >= 0)
        close(copy);
    if (text != NULL)
        fclose(text);
}

static void begin(struct session *session)
{
    const char *name = session->request.name;
    struct fs_reply reply = {0};
    struct stat info;

    switch (session->request.op) {
    case FS_PING:
        answer(session, 0);
        return;
    case FS_LIST:
        begin_list(session);
        return;
    case FS_PUT:
    case FS_GET:
    case FS_REMOVE:
    case FS_STAT:
        break;
    default:
        answer(session, ENOSYS);
        return;
    }
    if (bad_name(name)) {
        answer(session, EINVAL);
    } else if (session->request.op == FS_PUT) {
        begin_put(session);
    } else if (session->request.op == FS_GET) {
        begin_get(session);
    } else if (session->request.op == FS_REMOVE) {
        answer(session, unlinkat(directory, name, 0) == 0 ? 0 : errno);
    } else if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        answer(session, errno);
    } else {
        reply.size = (uint64_t)info.st_size;
        reply.mtime = info.st_mtime;
        send_reply(session, &reply, ANSWERING);
    }
}

/* Fills a slot with the next bytes to send. If they cannot be read the slot stays empty, which a client that
 * expects data takes for the end. */
static void load(struct session *session, struct slot *slot)
{
    if (session->listing != NULL) {
        memcpy(slot->buffer, session->listing + session->posted, (size_t)slot->len);
        return;
    }
    for (int64_t at = 0; at < slot->len;) {
        ssize_t n = pread(session->fd, slot->buffer + at, (size_t)(slot->len - at),
                          (off_t)(session->posted + (uint64_t)at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            session->status = n == 0 ? EIO : errno;
            fprintf(stderr, "bmi_fileserver: reading %s: %s\n", session->request.name,
                    n == 0 ? "it has become shorter" : strerror(errno));
            session->size = session->posted;
            slot->len = 0;
            return;
        }
        at += n;
    }
}

/* Writes the bytes of a completed slot to the file. After an error the rest is received and dropped. */
static void store(struct session *session, struct slot *slot)
{
    XXH3_64bits_update(session->sum, slot->buffer, (size_t)slot->len);
    if (session->request.op != FS_PUT || session->status != 0)
        return;
    if (slot->actual != slot->len) {
        fprintf(stderr, "bmi_fileserver: %s: a part of %" PRId64 " bytes instead of %" PRId64 "\n",
                session->request.name, slot->actual, slot->len);
        session->status = EPROTO;
    }
    for (int64_t at = 0; at < slot->len && session->status == 0;) {
        ssize_t n = pwrite(session->fd, slot->buffer + at, (size_t)(slot->len - at),
                           (off_t)(session->moved + (uint64_t)at));
        if (n >= 0) {
            at += n;
        } else if (errno != EINTR) {
            session->status = errno;
            fprintf(stderr, "bmi_fileserver: writing %s: %s\n", session->request.name,
                    strerror(errno));
        }
    }
}

static void finish(struct session *session)
{
    struct fs_reply reply = {.status = session->status, .size = session->moved};

    reply.checksum = XXH3_64bits_digest(session->sum);
    if (session->request.op == FS_PUT && session->status == 0) {
        if (renameat(directory, session->temporary, directory, session->request.name) != 0)
            reply.status = errno;
        else
            session->temporary[0] = '\0';
    }
    send_reply(session, &reply, CLOSING);
}

/* Keeps a window of data operations under way. */
static void move_data(struct session *session)
{
    int receive = session->request.op == FS_PUT;
    int stuck = 0;

    while (!session->failed && !stuck) {
        struct slot *take = &session->slots[session->next_take % FS_WINDOW];
        struct slot *give = &session->slots[session->next_post % FS_WINDOW];
        stuck = 1;
        if (session->next_take != session->next_post && take->ready) {
            take->ready = 0;
            session->next_take++;
            store(session, take);
            session->moved += (uint64_t)take->len;
            stuck = 0;
        } else if (session->posted < session->size &&
                   session->next_post - session->next_take < FS_WINDOW) {
            uint64_t left = session->size - session->posted;
            give->len = left < (uint64_t)FS_CHUNK ? (int64_t)left : FS_CHUNK;
            if (!receive)
                load(session, give);
            session->posted += (uint64_t)give->len;
            session->next_post++;
            give->ready = post(session, give, receive, session->request.tag + 1);
            stuck = 0;
        }
    }
    if (!session->failed && session->moved == session->size)
        finish(session);
}

/* Advances a session as far as possible; frees it when it is over. */
static void pump(struct session *session)
{
    if (session->stage == OPENING && !session->reply.busy && !session->failed)
        session->stage = MOVING;
    if (session->stage == MOVING && !session->failed)
        move_data(session);
    int last = session->stage == ANSWERING || session->stage == CLOSING;
    if (session->pending == 0 && (session->failed || last))
        end_session(session);
}

static void accept_request(const struct bmi_method_unexpected_info *info)
{
    struct session *session = calloc(1, sizeof *session);

    if (session == NULL) {
        fprintf(stderr, "bmi_fileserver: out of memory, dropping a request\n");
        return;
    }
    session->client = info->addr;
    session->fd = -1;
    if (info->error_code != 0 ||
        !fs_parse_request(info->buffer, (size_t)info->size, &session->request)) {
        fprintf(stderr, "bmi_fileserver: %s sent %" PRId64 " bytes that are not a request\n",
                ops->rev_lookup_unexpected(info->addr), info->size);
        free(session);
        return;
    }
    begin(session);
    pump(session);
}

static void complete(struct slot *slot, bmi_error_code_t error, int64_t size)
{
    struct session *session = slot->session;

    slot->busy = 0;
    slot->actual = size;
    slot->ready = 1;
    session->pending--;
    if (error != 0)
        fail(session, error);
    pump(session);
}

static int serve(void)
{
    struct bmi_method_unexpected_info requests[REQUESTS_AT_ONCE];
    bmi_op_id_t ids[COMPLETIONS_AT_ONCE];
    bmi_error_code_t errors[COMPLETIONS_AT_ONCE];
    bmi_size_t sizes[COMPLETIONS_AT_ONCE];
    void *slots[COMPLETIONS_AT_ONCE];

    while (!stopping) {
        int count = 0;
        int rc = ops->testunexpected(REQUESTS_AT_ONCE, &count, requests, 0);
        if (rc < 0) {
            fprintf(stderr, "bmi_fileserver: testunexpected: %s\n", method_error(rc));
            return 1;
        }
        for (int i = 0; i < count; i++) {
            accept_request(&requests[i]);
            ops->unexpected_free(requests[i].buffer);
        }
        int done = 0;
        rc = ops->testcontext(COMPLETIONS_AT_ONCE, ids, &done, errors, sizes, slots,
                              count > 0 ? 0 : SLEEP_MS, CONTEXT);
        if (rc < 0) {
            fprintf(stderr, "bmi_fileserver: testcontext: %s\n", method_error(rc));
            return 1;
        }
        for (int i = 0; i < done; i++)
            complete(slots[i], errors[i], sizes[i]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};

    int help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc != 3) {
        fprintf(help ? stdout : stderr, "usage: bmi_fileserver ADDRESS DIRECTORY\n"
                                        "  e.g. bmi_fileserver mx://localhost:3 /srv/files\n");
        return help ? 0 : 2;
    }
    directory = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        fprintf(stderr, "bmi_fileserver: %s: %s\n", argv[2], strerror(errno));
        return 1;
    }
    ops = method_open("bmi_fileserver");
    if (ops == NULL)
        return 1;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);

    struct bmi_method_addr *listen = ops->method_addr_lookup(argv[1]);
    if (listen == NULL) {
        fprintf(stderr, "bmi_fileserver: '%s' is not an mx:// address\n", argv[1]);
        return 1;
    }
    int rc = ops->initialize(listen, 0, BMI_INIT_SERVER, NULL);
    if (rc < 0) {
        fprintf(stderr, "bmi_fileserver: listening on %s: %s\n", argv[1], method_error(rc));
        return 1;
    }
    ops->open_context(CONTEXT);
    printf("bmi_fileserver: serving %s on %s\n", argv[2], argv[1]);
    fflush(stdout);
    int status = serve();
    ops->close_context(CONTEXT);
    ops->finalize();
    ops->set_info(BMI_DROP_ADDR, listen);
    return status;
}
