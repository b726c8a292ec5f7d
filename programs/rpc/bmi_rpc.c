/*
 * bmi_rpc: remote procedure calls and bulk data over BMI's public calls, in the manner of Mercury.
 *
 *   bmi_rpc serve mx://localhost                  any endpoint that is free, which it prints
 *   bmi_rpc call mx://localhost:PORT [CALLS [BYTES]]
 *
 *   client                                   server
 *     | -- request (unexpected) -------------> |
 *     | -- or <- region (tag + 1) -----------> |   if it is about one: pulled from, or pushed to the client
 *     | <-- reply (tag) ---------------------- |
 *
 * Both sides are of one byte order. Any number of clients, each with a window of calls under way.
 */
#define _GNU_SOURCE
#include <stdint.h>

#include <bmi.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AT_ONCE 16
#define SLEEP_MS 250
#define REGION_MAX ((uint64_t)64 << 20)

enum function { SQUARE = 1, PULL = 2, PUSH = 3 };

struct request {
    uint32_t function;
    int32_t tag;
    uint64_t argument;
    uint64_t size; /* of the region */
};

struct reply {
    int64_t status; /* 0, or an errno of the server */
    uint64_t result;
};

/* One operation; it is its own user_ptr. */
struct op {
    struct call *call;
    bmi_op_id_t id;
    bmi_size_t actual;
    int busy;
};

/* State of a call, on either side. */
struct call {
    BMI_addr_t peer;
    struct request request;
    struct reply reply;
    unsigned char *region;
    int pending; /* operations under way */
    int error;
    int ending; /* server: the reply is being sent; client: pending operations have been cancelled */
    struct op ops[3];
};

enum which { REPLY, REGION, REQUEST };

static bmi_context_id context;
static volatile sig_atomic_t stopping;

static void on_signal(int number)
{
    (void)number;
    stopping = 1;
}

static int say(const char *what, int code)
{
    fprintf(stderr, "bmi_rpc: %s: BMI error %d\n", what, code);
    return 1;
}

static uint64_t checksum(const unsigned char *data, uint64_t size)
{
    uint64_t sum = size;

    for (uint64_t i = 0; i < size; i += 8) {
        uint64_t word = 0;

        memcpy(&word, data + i, size - i < 8 ? size - i : 8);
        sum = (sum ^ word) * 1099511628211u;
    }
    return sum;
}

static void fill(unsigned char *data, uint64_t size, uint64_t seed)
{
    for (uint64_t i = 0; i < size; i++)
        data[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

/* Records the result of a post: 0 is pending, 1 done, less than 0 an error. */
static void posted(struct op *op, int rc)
{
    op->busy = rc == 0;
    op->call->pending += op->busy;
    if (rc < 0)
        op->call->error = rc;
}

static struct op *op_of(struct call *call, enum which which)
{
    call->ops[which].call = call;
    return &call->ops[which];
}

static void post_send(struct call *call, enum which which, const void *buffer, uint64_t size)
{
    struct op *op = op_of(call, which);

    posted(op, BMI_post_send(&op->id, call->peer, buffer, (bmi_size_t)size, BMI_EXT_ALLOC,
                             call->request.tag + (int)which, op, context, NULL));
}

static void post_recv(struct call *call, enum which which, void *buffer, uint64_t size)
{
    struct op *op = op_of(call, which);

    posted(op, BMI_post_recv(&op->id, call->peer, buffer, (bmi_size_t)size, &op->actual, BMI_EXT_ALLOC,
                             call->request.tag + (int)which, op, context, NULL));
}

/* Waits for completions, and calls `advance` with each call that has one. */
static int progress(int idle_ms, void (*advance)(struct call *call))
{
    bmi_op_id_t ids[AT_ONCE];
    bmi_error_code_t errors[AT_ONCE];
    bmi_size_t sizes[AT_ONCE];
    void *ops[AT_ONCE];
    int count = 0;
    int rc = BMI_testcontext(AT_ONCE, ids, &count, errors, sizes, ops, idle_ms, context);

    for (int i = 0; i < count; i++) {
        struct op *op = ops[i];

        op->busy = 0;
        if (errors[i] != 0 && op->call->error == 0)
            op->call->error = errors[i];
    }
    /* After all of them, so that no id is cancelled that has just completed. */
    for (int i = 0; i < count; i++) {
        struct call *call = ((struct op *)ops[i])->call;

        call->pending--;
        advance(call);
    }
    return rc;
}

/* ---- the server ---- */

static void end_call(struct call *call)
{
    if (call->error != 0)
        fprintf(stderr, "bmi_rpc: a call of %s: BMI error %d\n", BMI_addr_rev_lookup_unexpected(call->peer),
                call->error);
    free(call->region);
    free(call);
}

/* Sends the reply when the region has been moved, and ends the call after that. */
static void advance_server(struct call *call)
{
    if (call->pending == 0 && call->error == 0 && !call->ending) {
        call->ending = 1;
        if (call->request.function == PULL && call->region != NULL)
            call->reply.result = checksum(call->region, call->request.size);
        post_send(call, REPLY, &call->reply, sizeof call->reply);
    }
    if (call->pending == 0)
        end_call(call);
}

static void begin_call(const struct BMI_unexpected_info *info)
{
    struct call *call = calloc(1, sizeof *call);

    if (call == NULL || info->error_code != 0 || info->size != sizeof call->request) {
        fprintf(stderr, "bmi_rpc: dropped an invalid request\n");
        free(call);
        return;
    }
    call->peer = info->addr;
    memcpy(&call->request, info->buffer, sizeof call->request);
    uint64_t size = call->request.size, argument = call->request.argument;

    if (call->request.function == SQUARE) {
        call->reply.result = argument * argument;
    } else if (call->request.function != PULL && call->request.function != PUSH) {
        call->reply.status = ENOSYS;
    } else if (size > REGION_MAX || (call->region = malloc(size + 1)) == NULL) {
        call->reply.status = ENOMEM;
    } else if (call->request.function == PULL) {
        post_recv(call, REGION, call->region, size);
    } else {
        fill(call->region, size, argument);
        call->reply.result = checksum(call->region, size);
        post_send(call, REGION, call->region, size);
    }
    advance_server(call);
}

static int serve(const char *address)
{
    struct sigaction action = {.sa_handler = on_signal};
    char methods[32];
    int port = 0, rc;

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* mx://... belongs to the method bmi_mx. */
    snprintf(methods, sizeof methods, "bmi_%.*s", (int)strcspn(address, ":"), address);
    if ((rc = BMI_initialize(methods, address, BMI_INIT_SERVER | BMI_TCP_BIND_SPECIFIC)) < 0)
        return say(address, rc);
    if ((rc = BMI_open_context(&context)) < 0)
        return say("a context", rc);
    if (strrchr(address, ':') == strchr(address, ':') && BMI_get_info(0, BMI_TCP_GET_PORT, &port) >= 0)
        printf("bmi_rpc: serving on %s:%d\n", address, port);
    else
        printf("bmi_rpc: serving on %s\n", address);
    fflush(stdout);

    while (!stopping) {
        struct BMI_unexpected_info requests[AT_ONCE];
        int count = 0;

        if ((rc = BMI_testunexpected(AT_ONCE, &count, requests, 0)) < 0)
            return say("testunexpected", rc);
        for (int i = 0; i < count; i++) {
            begin_call(&requests[i]);
            BMI_unexpected_free(requests[i].addr, requests[i].buffer);
        }
        if ((rc = progress(count > 0 ? 0 : SLEEP_MS, advance_server)) < 0)
            return say("testcontext", rc);
    }
    BMI_close_context(context);
    return BMI_finalize() < 0;
}

/* ---- the client ---- */

/* Cancels what can no longer complete: an operation has failed, or the server has rejected the call. */
static void advance_client(struct call *call)
{
    if (call->ending || (call->error == 0 && call->reply.status == 0))
        return;
    call->ending = 1;
    for (int i = 0; i < 3; i++) {
        if (call->ops[i].busy)
            BMI_cancel(call->ops[i].id, context);
    }
}

static void start_call(struct call *call)
{
    struct op *op = op_of(call, REQUEST);

    post_recv(call, REPLY, &call->reply, sizeof call->reply);
    if (call->request.function == PULL)
        post_send(call, REGION, call->region, call->request.size);
    else if (call->request.function != SQUARE)
        post_recv(call, REGION, call->region, call->request.size);
    posted(op, BMI_post_sendunexpected(&op->id, call->peer, &call->request, sizeof call->request,
                                       BMI_EXT_ALLOC, call->request.tag, op, context, NULL));
    advance_client(call);
}

static int check_call(const struct call *call)
{
    uint64_t argument = call->request.argument;
    uint64_t expected = call->request.function == SQUARE ? argument * argument
                                                         : checksum(call->region, call->request.size);

    if (call->reply.status != 0) {
        fprintf(stderr, "bmi_rpc: the server says: %s\n", strerror((int)call->reply.status));
        return 1;
    }
    if (call->error != 0)
        return say("a call", call->error);
    if (call->reply.result != expected) {
        fprintf(stderr, "bmi_rpc: wrong result of function %u\n", call->request.function);
        return 1;
    }
    return 0;
}

/* Makes that many calls of a function, a window of them at a time, and prints how long they took. */
static int make_calls(BMI_addr_t server, uint32_t function, int calls, uint64_t size)
{
    struct timespec begin, end;
    struct call window[AT_ONCE];
    double seconds = 0;
    int failed = 0;

    for (int done = 0; done < calls && !failed; done += AT_ONCE) {
        int count = calls - done < AT_ONCE ? calls - done : AT_ONCE;

        memset(window, 0, sizeof window);
        for (int i = 0; i < count; i++) {
            window[i].peer = server;
            window[i].request = (struct request){function, 4 * i, (uint64_t)(done + i), size};
            if (size > 0 && (window[i].region = malloc(size)) == NULL)
                return say("memory", -BMI_ENOMEM);
            fill(window[i].region, size, function == PULL ? (uint64_t)(done + i) : 0);
        }
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < count; i++)
            start_call(&window[i]);
        for (int i = 0; i < count; i++) {
            while (window[i].pending > 0)
                progress(SLEEP_MS, advance_client);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        seconds += (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
        for (int i = 0; i < count; i++) {
            failed = check_call(&window[i]) || failed;
            free(window[i].region);
        }
    }
    if (!failed)
        printf("%-6s %6d calls  %10.1f us each  %8.1f MB/s\n",
               function == SQUARE ? "square" : function == PULL ? "pull" : "push", calls,
               seconds / calls * 1e6, (double)size * calls / seconds / 1e6);
    return failed;
}

static int call(const char *address, int calls, uint64_t size)
{
    BMI_addr_t server;
    int rc, failed;

    if ((rc = BMI_initialize(NULL, NULL, 0)) < 0)
        return say("a client", rc);
    if ((rc = BMI_open_context(&context)) < 0)
        return say("a context", rc);
    if ((rc = BMI_addr_lookup(&server, address)) < 0)
        return say(address, rc);
    failed = make_calls(server, SQUARE, calls, 0) || make_calls(server, PULL, calls, size) ||
             make_calls(server, PUSH, calls, size);
    BMI_close_context(context);
    return BMI_finalize() < 0 || failed;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2]);
    if (argc >= 3 && argc <= 5 && strcmp(argv[1], "call") == 0)
        return call(argv[2], argc > 3 ? atoi(argv[3]) : 100, argc > 4 ? strtoull(argv[4], NULL, 0) : 1 << 20);
    fprintf(stderr, "usage: bmi_rpc serve ADDRESS              e.g. mx://localhost\n"
                    "       bmi_rpc call ADDRESS [CALLS [BYTES]]   with the endpoint that serve prints\n");
    return 2;
}
