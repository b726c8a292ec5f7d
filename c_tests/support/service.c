/* See service.h. */
#include "service.h"

#include "op.h"
#include "pattern.h"

enum { TEXT = 96, WITHOUT_MASK = 32, FIRST_TAG = 100 };

enum kind { GET, PUT, ASK };

struct request {
    int64_t kind, size, seed;
    int64_t netmask;
    char range[TEXT];
};

/* The answer to ASK and PUT. */
struct answer {
    char name[TEXT];
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

/* Whether nothing more is to be done for it. */
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

/* Serves requests until any note comes; returns how many of its operations have failed. */
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
    /* What is left ends with the library, unreported. */
    return failed;
}

void serve_at(struct side *side, const char *address)
{
    int failed;

    CHECK_THAT(host_try_listen(address), ==, 0);
    CHECK_THAT(ops->open_context(0), ==, 0);
    tell(side, "serving", 0);
    failed = serve(side);
    hear(side, "stop");
    tell(side, "failed", failed);
    tell(side, "clients", host_registered());
    host_stop();
}

void end_service(struct child *server, int clients)
{
    int64_t failed, registered;

    child_tell(server, "stop", 0);
    failed = child_hear(server, "failed");
    registered = child_hear(server, "clients");
    child_end(server);
    if (clients == WHATEVER)
        return;
    CHECK_THAT(failed, ==, 0);
    CHECK_THAT(registered, ==, clients);
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

/* Has a request answered; false with the code of its first failure. */
static bool transact(struct bmi_method_addr *server, struct request *request, void *in,
                     bmi_size_t room, int *code)
{
    static bmi_msg_tag_t tag = FIRST_TAG;
    static int64_t seed;
    struct op receive = {0}, send = {0}, data = {0};
    bool puts = request->kind == PUT;
    char *out = puts ? fenced((size_t)request->size) : NULL;

    request->seed = ((int64_t)getpid() << 32) + ++seed;
    tag++;
    op_recv(&receive, server, in, room, tag);
    if (receive.posted >= 0)
        op_send_unexpected(&send, server, request, sizeof *request, tag);
    else
        send.posted = receive.posted;
    if (puts) {
        fill(out, (size_t)request->size, (uint64_t)request->seed);
        if (send.posted >= 0)
            op_send(&data, server, out, request->size, tag);
        else
            data.posted = send.posted;
    }
    *code = end(&send, 0);
    if (*code != 0 && puts)
        cancel(&data);
    if (puts)
        *code = end(&data, *code);
    if (*code != 0)
        cancel(&receive);
    *code = end(&receive, *code);
    if (puts)
        fenced_free(out);
    if (*code == 0)
        CHECK_THAT(receive.size, ==, room);
    return *code == 0;
}

bool try_get(struct bmi_method_addr *server, int64_t size, int *code)
{
    struct request request = {.kind = GET, .size = size};
    char *in = fenced((size_t)size);
    bool well = transact(server, &request, in, size, code);

    if (well)
        check_filled(in, (size_t)size, (uint64_t)request.seed);
    fenced_free(in);
    return well;
}

bool try_put(struct bmi_method_addr *server, int64_t size, int *code)
{
    struct request request = {.kind = PUT, .size = size};
    struct answer answer;

    return transact(server, &request, &answer, sizeof answer, code);
}

static void ask(struct bmi_method_addr *server, struct answer *answer, const char *range)
{
    struct request request = {.kind = ASK, .netmask = WITHOUT_MASK};
    char *mask;
    int code;

    snprintf(request.range, sizeof request.range, "%s", range);
    mask = strchr(request.range, '@');
    if (mask != NULL) {
        *mask = '\0';
        request.netmask = atoi(mask + 1);
    } else if (strchr(request.range, '*') != NULL) {
        request.netmask = -1;
    }
    if (!transact(server, &request, answer, sizeof *answer, &code))
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
