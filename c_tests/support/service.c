/* See service.h. */
#include "service.h"

#include <malloc.h>

#include "pattern.h"

enum {
    WITHOUT_MASK = 32,
    FIRST_TAG = 100,
    ASK_TRIES = 3,
    CLIENT_SHIFT = 32, /* position of the client's number in a seed */
    MAPPED_BYTES = 64 * 1024,
};

enum kind { GET, PUT, ASK };

/* The answer to ASK and PUT. */
struct answer {
    char name[SERVICE_TEXT];
    int64_t inside;
};

/* ---- servers ---- */

/* A request that is being served. */
struct job {
    struct job *next;
    struct op op;
    struct bmi_method_addr *from;
    struct request request;
    bmi_msg_tag_t tag;
    bool takes; /* its operation is the receive of a PUT */
    char *bytes;
    bmi_size_t size;
};

/* A client, known by its address. */
struct client {
    struct client *next;
    struct bmi_method_addr *address;
    int64_t seed; /* of its latest request */
    struct op unused;
    char byte;
};

static struct client *clients;
static bool is_attacked; /* by strangers: see TAG_UNUSED */

static void post_unused(struct op *op, struct bmi_method_addr *from, char *byte)
{
    CHECK_THAT(op_recv(op, from, byte, 1, TAG_UNUSED), >=, 0);
}

static void check_turn(struct bmi_method_addr *address, int64_t seed)
{
    struct client *client = clients;

    while (client != NULL && client->address != address)
        client = client->next;
    if (client == NULL) {
        client = calloc(1, sizeof *client);
        CHECK(client != NULL);
        *client = (struct client){.next = clients, .address = address, .seed = seed - 1};
        clients = client;
        if (is_attacked)
            post_unused(&client->unused, address, &client->byte);
    }
    CHECK_THAT(seed >> CLIENT_SHIFT, ==, client->seed >> CLIENT_SHIFT);
    CHECK_THAT(seed, >, client->seed);
    client->seed = seed;
}

static void post_answer(struct job *job, const void *bytes, bmi_size_t size)
{
    job->takes = false;
    memset(&job->op, 0, sizeof job->op);
    op_send(&job->op, job->from, bytes, size, job->tag);
}

static void answer(struct job *job)
{
    struct answer answer = {.inside = -1};

    snprintf(answer.name, sizeof answer.name, "%s", ops->rev_lookup_unexpected(job->from));
    if (job->request.range[0] != '\0')
        answer.inside = ops->query_addr_range(job->from, job->request.range,
                                              (int)job->request.netmask);
    CHECK_THAT(job->size, >=, sizeof answer);
    memcpy(job->bytes, &answer, sizeof answer);
    post_answer(job, job->bytes, sizeof answer);
}

static struct job *begin(struct arrival *arrival)
{
    struct job *job = calloc(1, sizeof *job);

    CHECK(job != NULL);
    CHECK_THAT(arrival->size, ==, sizeof job->request);
    memcpy(&job->request, arrival->buffer, sizeof job->request);
    job->from = arrival->from;
    job->tag = arrival->tag;
    arrival_free(arrival);
    check_turn(job->from, job->request.seed);
    job->size = job->request.size;
    if (job->size < (bmi_size_t)sizeof(struct answer))
        job->size = sizeof(struct answer);
    job->bytes = fenced((size_t)job->size);
    switch (job->request.kind) {
    case GET:
        fill(job->bytes, (size_t)job->request.size, (uint64_t)job->request.seed);
        post_answer(job, job->bytes, job->request.size);
        break;
    case PUT:
        job->takes = true;
        op_recv(&job->op, job->from, job->bytes, job->request.size, job->tag);
        break;
    default:
        answer(job);
    }
    return job;
}

/* Moves a request on. Returns true if nothing is left to do for it. */
static bool is_served(struct job *job, int *failed)
{
    if (job->op.posted >= 0 && !op_done(&job->op))
        return false;
    if (job->op.posted < 0 || job->op.error != 0) {
        ++*failed;
        return true;
    }
    if (!job->takes)
        return true;
    CHECK_THAT(job->op.size, ==, job->request.size);
    check_filled(job->bytes, (size_t)job->request.size, (uint64_t)job->request.seed);
    answer(job);
    return false;
}

/* Serves requests until a note comes; returns the number of failed operations. */
static int serve(struct side *side)
{
    struct job *jobs = NULL;
    int failed = 0;

    while (!heard_anything(side)) {
        struct arrival arrival;

        if (host_next_within(&arrival, jobs == NULL ? 20 : 1) && arrival.error == 0) {
            struct job *job = begin(&arrival);

            job->next = jobs;
            jobs = job;
        }
        for (struct job **at = &jobs; *at != NULL;) {
            struct job *job = *at;

            if (is_served(job, &failed)) {
                *at = job->next;
                fenced_free(job->bytes);
                free(job);
            } else {
                at = &job->next;
            }
        }
    }
    /* The unmatched receives of clients that have left ended with an error; the others are pending. */
    for (const struct client *client = clients; client != NULL; client = client->next)
        CHECK(!op_done(&client->unused) || client->unused.error != 0);
    /* Pending operations end with the library, unreported. */
    return failed;
}

/* Serves on an initialized endpoint. */
static void serve_until_stopped(struct side *side, int endpoint)
{
    int failed;

    tell(side, "serving", endpoint);
    failed = serve(side);
    hear(side, "stop");
    tell(side, "failed", failed);
    tell(side, "clients", host_registered());
    host_stop();
}

void serve_at(struct side *side, const char *address)
{
    CHECK_THAT(host_try_listen(address), ==, 0);
    CHECK_THAT(ops->open_context(0), ==, 0);
    serve_until_stopped(side, 0);
}

void serve_attacked(struct side *side, const char *address)
{
    /* Freed memory goes back to the system at once, because the server's memory is measured. */
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    is_attacked = true;
    if (address != NULL)
        serve_at(side, address);
    else
        serve_until_stopped(side, host_start_server());
}

/* Returns the number of clients. */
static int64_t stop_service(struct child *server, int64_t *failed)
{
    int64_t registered;

    child_tell(server, "stop", 0);
    *failed = child_hear(server, "failed");
    registered = child_hear(server, "clients");
    child_end(server);
    return registered;
}

void end_service(struct child *server, int clients)
{
    int64_t failed, registered = stop_service(server, &failed);

    if (clients == WHATEVER)
        return;
    CHECK_THAT(failed, ==, 0);
    CHECK_THAT(registered, ==, clients);
}

void end_attacked(struct child *server, int clients, int strangers)
{
    int64_t failed, registered = stop_service(server, &failed);

    /* Answers to strangers that have left. */
    CHECK_THAT(failed, <=, strangers);
    CHECK_THAT(registered, >=, clients);
    CHECK_THAT(registered, <=, clients + strangers);
}

/* ---- clients ---- */

struct bmi_method_addr *service_of(const char *host, int endpoint)
{
    char text[ADDRESS_SIZE];
    struct bmi_method_addr *address;

    snprintf(text, sizeof text, "mx://%s:0:%d", host, endpoint);
    address = host_lookup(text);
    if (address == NULL)
        FAIL("cannot look up %s", text);
    return address;
}

static void cancel(struct op *op)
{
    if (op->posted == 0 && !op_done(op))
        CHECK_THAT(ops->cancel(op->id, 0), ==, 0);
}

static int end(struct op *op, int code)
{
    if (op->posted < 0)
        return code == 0 ? op->posted : code;
    op_wait(op);
    return code == 0 ? op->error : code;
}

/* Posts a request and its other operations. `exchange` has the request, the buffers and the space for the answer. */
static void begin_exchange(struct exchange *exchange, struct bmi_method_addr *server)
{
    static bmi_msg_tag_t tag = FIRST_TAG;
    static int64_t seed;
    struct request *request = &exchange->request;

    request->seed = ((int64_t)getpid() << CLIENT_SHIFT) + ++seed;
    tag++;
    op_recv(&exchange->receive, server, exchange->in, exchange->room, tag);
    if (exchange->receive.posted >= 0)
        op_send_unexpected(&exchange->send, server, request, sizeof *request, tag);
    else
        exchange->send.posted = exchange->receive.posted;
    if (exchange->out == NULL)
        return;
    fill(exchange->out, (size_t)request->size, (uint64_t)request->seed);
    if (exchange->send.posted >= 0)
        op_send(&exchange->data, server, exchange->out, request->size, tag);
    else
        exchange->data.posted = exchange->send.posted;
}

static bool is_ended(const struct op *op)
{
    return op->posted < 0 || op_done(op);
}

bool is_over(const struct exchange *exchange)
{
    return is_ended(&exchange->send) && is_ended(&exchange->receive) && (exchange->out == NULL || is_ended(&exchange->data));
}

/* Waits until all of its operations have ended; cancels those that depend on one that failed. */
static int await_end(struct exchange *exchange)
{
    int code = end(&exchange->send, 0);

    if (exchange->out != NULL) {
        if (code != 0)
            cancel(&exchange->data);
        code = end(&exchange->data, code);
    }
    if (code != 0)
        cancel(&exchange->receive);
    code = end(&exchange->receive, code);
    if (code == 0)
        CHECK_THAT(exchange->receive.size, ==, exchange->room);
    return code;
}

void begin_get(struct exchange *exchange, struct bmi_method_addr *server, int64_t size)
{
    *exchange = (struct exchange){.request = {.kind = GET, .size = size}, .room = size, .in = fenced((size_t)size)};
    begin_exchange(exchange, server);
}

void begin_put(struct exchange *exchange, struct bmi_method_addr *server, int64_t size)
{
    *exchange = (struct exchange){.request = {.kind = PUT, .size = size},
                              .room = sizeof(struct answer),
                              .in = fenced(sizeof(struct answer)),
                              .out = fenced((size_t)size)};
    begin_exchange(exchange, server);
}

int end_exchange(struct exchange *exchange)
{
    int code = await_end(exchange);

    if (code == 0 && exchange->out == NULL)
        check_filled(exchange->in, (size_t)exchange->request.size, (uint64_t)exchange->request.seed);
    fenced_free(exchange->in);
    fenced_free(exchange->out);
    return code;
}

bool try_get(struct bmi_method_addr *server, int64_t size, int *code)
{
    struct exchange exchange;

    begin_get(&exchange, server, size);
    *code = end_exchange(&exchange);
    return *code == 0;
}

bool try_put(struct bmi_method_addr *server, int64_t size, int *code)
{
    struct exchange exchange;

    begin_put(&exchange, server, size);
    *code = end_exchange(&exchange);
    return *code == 0;
}

/* Repeats the request, as hosts do, if the session ends meanwhile, for example because a fabric's device moves. */
static void ask(struct bmi_method_addr *server, struct answer *answer, const char *range)
{
    struct request question = {.kind = ASK, .netmask = WITHOUT_MASK};
    char *mask;
    int code = 0;

    snprintf(question.range, sizeof question.range, "%s", range);
    mask = strchr(question.range, '@');
    if (mask != NULL) {
        *mask = '\0';
        question.netmask = atoi(mask + 1);
    } else if (strchr(question.range, '*') != NULL) {
        question.netmask = -1;
    }
    for (int i = 0; i < ASK_TRIES; i++) {
        struct exchange exchange = {.request = question, .in = (char *)answer, .room = sizeof *answer};

        begin_exchange(&exchange, server);
        code = await_end(&exchange);
        if (code == 0)
            return;
    }
    FAIL("the server cannot be asked: %s", code_text(code));
}

void seen_as(struct bmi_method_addr *server, const char *host)
{
    struct answer answer;
    size_t length = strlen(host);

    ask(server, &answer, "");
    if (strncmp(answer.name, "mx://", 5) != 0 || strncmp(answer.name + 5, host, length) != 0 ||
        (answer.name[5 + length] != ':' && answer.name[5 + length] != '\0'))
        FAIL("seen as %s, not as mx://%s", answer.name, host);
}

int number_seen(struct bmi_method_addr *server)
{
    struct answer answer;
    char *number;

    ask(server, &answer, "");
    number = strrchr(answer.name, ':');
    CHECK(number != NULL);
    return atoi(number + 1);
}

int64_t use_steadily(struct side *side, struct bmi_method_addr *server, int64_t largest)
{
    static const int64_t sizes[] = {8, 8, EAGER_BYTES, BULK_BYTES};
    struct op unused = {0};
    char byte;
    int64_t longest = 0;

    post_unused(&unused, server, &byte);
    for (int i = 0; !heard_anything(side); i = (i + 1) % (int)(sizeof sizes / sizeof *sizes)) {
        int64_t size = sizes[i] < largest ? sizes[i] : largest, begin = now_ms(), took;
        int code;

        if (!try_get(server, size, &code))
            FAIL("a get of %d bytes: %s", (int)size, code_text(code));
        took = now_ms() - begin;
        if (size == sizes[0] && took > longest)
            longest = took;
        if (!try_put(server, size, &code))
            FAIL("a put of %d bytes: %s", (int)size, code_text(code));
        CHECK(!op_done(&unused));
    }
    cancel(&unused);
    op_wait(&unused);
    return longest;
}

bool lies_in(struct bmi_method_addr *server, const char *range)
{
    struct answer answer;

    ask(server, &answer, range);
    if (answer.inside < 0)
        FAIL("%s is no range: %s", range, code_text(answer.inside));
    return answer.inside == 1;
}

void converse(struct bmi_method_addr *server, const char *host)
{
    static const int64_t sizes[] = {8, EAGER_BYTES, BULK_BYTES};
    int code;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!try_get(server, sizes[i], &code))
            FAIL("a get of %d bytes: %s", (int)sizes[i], code_text(code));
        if (!try_put(server, sizes[i], &code))
            FAIL("a put of %d bytes: %s", (int)sizes[i], code_text(code));
    }
    seen_as(server, host);
}

int well_again(struct bmi_method_addr *server)
{
    deadline_t deadline = deadline_in(WAIT_MS);
    int failed = 0, code;

    for (; !try_get(server, 8, &code); failed++) {
        if (deadline_over(deadline))
            FAIL("not well again: %s", code_text(code));
        pause_ms(20);
    }
    return failed;
}

/* ---- strangers ---- */

size_t make_question(void *bytes, int64_t number)
{
    struct request request = {.kind = ASK, .netmask = WITHOUT_MASK};

    request.seed = ((int64_t)getpid() << CLIENT_SHIFT) + number;
    memcpy(bytes, &request, sizeof request);
    return sizeof request;
}
