/*
 * Memory after a rush: fifty clients write and read a file each at the same time, send small requests, and leave.
 * Then the server idles, as servers do at night.
 *
 *     KiB resident      ____ the rush
 *                      /    \___ buffers and tables kept for the next one
 *     before ─────────'         `─────── given back within seconds: LEFT_MIB of it may stay
 *
 * A first client comes before, so that memory allocated once is not counted. libfabric's own buffers grow in steps
 * (16.5 MiB over tcp;ofi_rxm 1.17, the first with the first message that is copied), and stay.
 */
#include "../support/pair.h"
#include "../support/memory.h"

#define MIB (1024 * 1024)

enum {
    CLIENTS = 50,
    JOBS = 4 * CLIENTS,
    FILE_SIZE = 4 * MIB,
    SMALL = 20,
    FIRST = 40000,
    LEFT_MIB = 20,
    LIBFABRIC_MIB = 34, /* two steps */
    TAG_SMALL = 1,
    TAG_WRITE = 2,
    TAG_READ = 3,
    TAG_DATA = 4,
    TAG_END = 5,
    TAG_FIRST = 6,
    ALONE = 1, /* a variant: without a helper thread */
};

/* ---- the server ---- */

/* A request that is being served. */
struct job {
    bool used;
    struct op op;
    bool sends;
    void *buffer;
    bmi_size_t size;
    struct bmi_method_addr *client;
};

static struct job jobs[JOBS];

static struct job *new_job(struct bmi_method_addr *client, bmi_size_t size, bool sends)
{
    for (int i = 0; i < JOBS; i++) {
        struct job *job = &jobs[i];

        if (job->used)
            continue;
        *job = (struct job){.used = true, .size = size, .sends = sends, .client = client};
        job->buffer = ops->memalloc(size, sends ? BMI_SEND : BMI_RECV);
        CHECK(job->buffer != NULL);
        memset(job->buffer, 1, (size_t)size);
        return job;
    }
    FAIL("more than %d requests at a time", JOBS);
}

static void send_from(struct bmi_method_addr *client, bmi_size_t size, bmi_msg_tag_t tag)
{
    struct job *job = new_job(client, size, true);

    CHECK_THAT(op_send(&job->op, client, job->buffer, size, tag), >=, 0);
}

static void serve(const struct arrival *request)
{
    struct job *job;

    switch (request->tag) {
    case TAG_SMALL:
        send_from(request->from, 64, TAG_SMALL);
        break;
    case TAG_FIRST:
        send_from(request->from, FIRST, TAG_DATA);
        break;
    case TAG_READ:
        send_from(request->from, FILE_SIZE, TAG_DATA);
        break;
    default:
        CHECK_THAT(request->tag, ==, TAG_WRITE);
        job = new_job(request->from, FILE_SIZE, false);
        CHECK_THAT(op_recv(&job->op, request->from, job->buffer, FILE_SIZE, TAG_DATA), >=, 0);
    }
}

/* Frees jobs that have completed. Returns the number of the others. */
static int end_jobs(void)
{
    int left = 0;

    for (int i = 0; i < JOBS; i++) {
        struct job *job = &jobs[i];

        if (!job->used)
            continue;
        if (!op_done(&job->op)) {
            left++;
            continue;
        }
        CHECK_THAT(job->op.error, ==, 0);
        CHECK_THAT(ops->memfree(job->buffer, job->size, job->sends ? BMI_SEND : BMI_RECV), ==, 0);
        job->used = false;
        if (!job->sends)
            send_from(job->client, 8, TAG_END);
    }
    return left;
}

/* Serves until the director sends that note. Returns the largest resident size, in KiB. */
static int64_t serve_until(struct side *side, const char *word)
{
    int64_t most = 0;

    while (end_jobs() > 0 || !heard_anything(side)) {
        struct arrival request;

        if (host_next_within(&request, 5)) {
            serve(&request);
            arrival_free(&request);
        }
        if (resident_kib(0) > most)
            most = resident_kib(0);
    }
    hear(side, word);
    return most;
}

static void server(struct side *side)
{
    int64_t left = (LEFT_MIB + (port_uses_libfabric() ? LIBFABRIC_MIB : 0)) * 1024, before, most, now;
    deadline_t deadline;

    if (side->variant == ALONE)
        setenv("MX_HELPER", "off", 1);
    pair_serve(side);
    serve_until(side, "rush");
    before = resident_kib(0);
    tell(side, "ready", 0);
    most = serve_until(side, "gone");
    now = resident_kib(0);
    printf("    %s: %d MiB before, %d at most, %d when all have left", port_name(), (int)(before >> 10),
           (int)(most >> 10), (int)(now >> 10));
    deadline = deadline_in(3 * WAIT_MS);
    while (resident_kib(0) > before + left && !deadline_over(deadline))
        host_pump(100);
    printf(", %d later\n", (int)(resident_kib(0) >> 10));
    fflush(stdout);
    CHECK_THAT(resident_kib(0), <=, before + left);
    host_stop();
}

/* ---- the clients ---- */

static void ask(struct bmi_method_addr *address, bmi_msg_tag_t what, void *answer, bmi_size_t size,
                bmi_msg_tag_t tag)
{
    struct op receive = {0};

    CHECK_THAT(op_recv(&receive, address, answer, size, tag), >=, 0);
    send_request(address, "please", 6, what);
    op_received(&receive, size);
}

static void client(struct side *side)
{
    struct bmi_method_addr *address;
    struct op data = {0}, request = {0}, end = {0};
    char *file = malloc(FILE_SIZE), small[64];

    CHECK(file != NULL);
    memset(file, 2, FILE_SIZE);
    address = pair_join(side);
    ask(address, TAG_SMALL, small, sizeof small, TAG_SMALL);
    tell(side, "ready", 0);
    pair_hear(side, "go");
    CHECK_THAT(op_recv(&end, address, small, 8, TAG_END), >=, 0);
    CHECK_THAT(op_send_unexpected(&request, address, "please", 6, TAG_WRITE), >=, 0);
    CHECK_THAT(op_send(&data, address, file, FILE_SIZE, TAG_DATA), >=, 0);
    op_sent(&request);
    op_sent(&data);
    op_received(&end, 8);
    ask(address, TAG_READ, file, FILE_SIZE, TAG_DATA);
    for (int i = 0; i < SMALL; i++)
        ask(address, TAG_SMALL, small, sizeof small, TAG_SMALL);
    host_stop();
    free(file);
}

static void first_client(struct side *side)
{
    char *bytes = malloc(FIRST);

    CHECK(bytes != NULL);
    ask(pair_join(side), TAG_FIRST, bytes, FIRST, TAG_DATA);
    host_stop();
    free(bytes);
}

static void comes_and_goes(struct world *world)
{
    struct child *house = spawn(world, "server"), *first = spawn(world, "first"), *clients[CLIENTS];
    int64_t endpoint = child_hear(house, "endpoint");

    child_tell(first, "endpoint", endpoint);
    child_end(first);
    child_tell(house, "rush", 0);
    child_hear(house, "ready");
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = spawn(world, "client");
        child_tell(clients[i], "endpoint", endpoint);
    }
    for (int i = 0; i < CLIENTS; i++)
        child_hear(clients[i], "ready");
    for (int i = 0; i < CLIENTS; i++)
        child_tell(clients[i], "go", 0);
    for (int i = 0; i < CLIENTS; i++)
        child_end(clients[i]);
    child_tell(house, "gone", 0);
    child_end(house);
}

TESTS(
    DIRECTED(a_server_frees_what_fifty_clients_needed, comes_and_goes,
             {"server", server}, {"first", first_client}, {"client", client}),
    DIRECTED_OF(so_does_one_without_a_helper_thread, ALONE, comes_and_goes, {"server", server},
                {"first", first_client}, {"client", client}))
