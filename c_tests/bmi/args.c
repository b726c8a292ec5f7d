/*
 * Every entry point with good, missing, unusual and nonsense arguments, on a server that talks to itself, and
 * empty messages between two processes. A wrong call returns its error code and changes nothing: after each table
 * the instance still carries a message, and a rejected post never reports a completion.
 *
 * Every row of the two tables of docs/c-api.md (*Unusual arguments*) is called here.
 */
#include "../support/pair.h"

#include <limits.h>

#define WRONG(call) CHECK_THAT(call, ==, -BMI_EINVAL)
#define ODD(pointer) ((void *)((char *)(pointer) + 1))

/* The two ends of a connection to this process: a message sent from `called` is received from `self`. */
static struct bmi_method_addr *self, *called;

static void begin(void)
{
    self = host_lookup_endpoint(host_start_server());
}

static void call_self(void)
{
    called = pair_call_self(self);
}

static void still_works(void)
{
    call_self();
    pair_exchange_ends(self, called, 8, 4242);
    for (int c = 0; c < BMI_MAX_CONTEXTS; c++) {
        bmi_op_id_t ids[4];
        bmi_error_code_t errors[4];
        bmi_size_t sizes[4];
        int outcount = -1;

        CHECK_THAT(ops->open_context(c), ==, 0);
        CHECK_THAT(ops->testcontext(4, ids, &outcount, errors, sizes, NULL, 0, c), >=, 0);
        CHECK_THAT(outcount, ==, 0);
        if (c != 0)
            ops->close_context(c);
    }
    CHECK_THAT(host_testunexpected(4, 0), ==, 0);
}

static void end(void)
{
    still_works();
    host_stop();
}

/* ---- before initialize, after finalize ---- */

static void without_instance(struct bmi_method_addr *address)
{
    bmi_op_id_t id = 5;
    bmi_size_t actual = 5, size = 8;
    bmi_error_code_t error = 5;
    struct bmi_method_unexpected_info info;
    char buffer[8] = "";
    const void *out = buffer;
    void *in = buffer;
    int outcount = 5, index;

    CHECK_THAT(ops->post_send(&id, address, buffer, 8, BMI_EXT_ALLOC, 1, NULL, 0, NULL), ==,
               -BMI_ENODEV);
    CHECK_THAT(ops->post_sendunexpected(&id, address, buffer, 8, BMI_EXT_ALLOC, 1, NULL, 0,
                                        NULL), ==, -BMI_ENODEV);
    CHECK_THAT(ops->post_recv(&id, address, buffer, 8, &actual, BMI_EXT_ALLOC, 1, NULL, 0,
                              NULL), ==, -BMI_ENODEV);
    CHECK_THAT(ops->post_send_list(&id, address, &out, &size, 1, 8, BMI_EXT_ALLOC, 1, NULL, 0,
                                   NULL), ==, -BMI_ENODEV);
    CHECK_THAT(ops->post_sendunexpected_list(&id, address, &out, &size, 1, 8, BMI_EXT_ALLOC, 1,
                                             NULL, 0, NULL), ==, -BMI_ENODEV);
    CHECK_THAT(ops->post_recv_list(&id, address, &in, &size, 1, 8, &actual, BMI_EXT_ALLOC, 1,
                                   NULL, 0, NULL), ==, -BMI_ENODEV);
    CHECK_THAT(ops->test(1, &outcount, &error, &actual, NULL, 0, 0), ==, -BMI_ENODEV);
    CHECK_THAT(ops->testsome(1, &id, &outcount, &index, &error, &actual, NULL, 0, 0), ==, -BMI_ENODEV);
    CHECK_THAT(ops->testcontext(1, &id, &outcount, &error, &actual, NULL, 0, 0), ==, -BMI_ENODEV);
    CHECK_THAT(ops->testunexpected(1, &outcount, &info, 0), ==, -BMI_ENODEV);
    CHECK_THAT(ops->cancel(1, 0), ==, -BMI_ENODEV);
    CHECK_THAT(ops->open_context(0), ==, -BMI_ENODEV);
    CHECK_THAT(ops->finalize(), ==, -BMI_ENODEV);
    CHECK_THAT(id, ==, 5);
    CHECK(!host_may_drop(address));
    CHECK_THAT(outcount, ==, 5); /* outputs are written only on success */
    CHECK_THAT(error, ==, 5);
    CHECK_THAT(actual, ==, 5);
    CHECK_THAT(ops->set_info(BMI_TCP_BUFFER_SEND_SIZE, &outcount), ==, 0);
    ops->close_context(0);
    CHECK_THAT(ops->unexpected_free(NULL), ==, 0);
}

static void calls_without_an_instance(struct side *side)
{
    struct bmi_method_addr *address;

    host_load();
    address = ops->method_addr_lookup("mx://localhost:0:3");
    CHECK(address != NULL);
    without_instance(address);
    begin();
    CHECK_THAT(address->method_type, ==, METHOD_ID); /* although the address was made before */
    host_stop();
    without_instance(address);
    for (int again = 0; again < 2; again++) /* a second finalize does no harm */
        CHECK_THAT(ops->set_info(BMI_DROP_ADDR, address), ==, 0);
}

/* ---- initialize ---- */

static void initialize_arguments(struct side *side)
{
    char options[] = "MX_SPIN_US=20 NO_SUCH_THING=1 MX_SPIN_US=nonsense MX_EAGER_MAX=-1";
    char stranger[64] = {0};
    struct bmi_method_addr *address;

    host_load();
    WRONG(ops->initialize(NULL, METHOD_ID, BMI_INIT_SERVER, NULL));
    address = ops->method_addr_lookup("mx://localhost:0:2000");
    CHECK(address != NULL);
    WRONG(ops->initialize(address, METHOD_ID, 0, NULL)); /* a client has no address to listen on */
    CHECK_THAT(ops->set_info(BMI_DROP_ADDR, address), ==, 0);
    WRONG(ops->initialize((void *)stranger, METHOD_ID, BMI_INIT_SERVER, NULL));
    WRONG(ops->initialize(ODD(stranger), METHOD_ID, BMI_INIT_SERVER, NULL));
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, options), ==, 0);
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, NULL), ==, -BMI_EALREADY);
    CHECK_THAT(ops->open_context(0), ==, 0);
    CHECK_THAT(host_testcontext(4, 0, 0), ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
    for (int again = 0; again < 2; again++)
        CHECK_THAT(ops->finalize(), ==, -BMI_ENODEV);
    /* Undefined flags are accepted. */
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, BMI_TCP_BIND_SPECIFIC | BMI_AUTO_REF_COUNT, NULL),
               ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
    begin();
    CHECK_THAT(ops->initialize(host_listen_address(), METHOD_ID, BMI_INIT_SERVER, NULL), ==,
               -BMI_EALREADY);
    end();
}

/* ---- set_info, get_info ---- */

static void info_keys(struct side *side)
{
    struct method_drop_addr_query query = {.addr = NULL, .response = 9};
    int answer = -1;

    begin();
    CHECK_THAT(ops->get_info(BMI_CHECK_MAXSIZE, &answer), ==, 0);
    CHECK_THAT(answer, ==, INT_MAX);
    CHECK_THAT(ops->get_info(BMI_GET_UNEXP_SIZE, &answer), ==, 0);
    CHECK_THAT(answer, ==, 16384); /* section 5 */
    query.addr = self;
    CHECK_THAT(ops->get_info(BMI_DROP_ADDR_QUERY, &query), ==, 0);
    CHECK_THAT(query.response, ==, 0);
    WRONG(ops->get_info(BMI_CHECK_MAXSIZE, NULL));
    WRONG(ops->get_info(BMI_GET_UNEXP_SIZE, NULL));
    WRONG(ops->get_info(BMI_DROP_ADDR_QUERY, NULL));
    WRONG(ops->get_info(BMI_CHECK_MAXSIZE, ODD(&query)));
    query.addr = NULL;
    query.response = 9;
    WRONG(ops->get_info(BMI_DROP_ADDR_QUERY, &query));
    CHECK_THAT(query.response, ==, 9);
    for (int key = -2; key < 40; key++) {
        static const int nothing = 0;

#ifdef BMI_MX_STANDALONE
        if (key == BMI_TCP_GET_PORT) /* tested in standalone.c */
            continue;
#endif
        if (key != BMI_CHECK_MAXSIZE && key != BMI_GET_UNEXP_SIZE && key != BMI_DROP_ADDR_QUERY) {
            CHECK_THAT(ops->get_info(key, NULL), ==, -BMI_ENOSYS);
            CHECK_THAT(ops->get_info(key, &answer), ==, -BMI_ENOSYS);
        }
        /* Section 9: set_info returns 0 for unknown keys, whatever the argument. */
        if (key != BMI_DROP_ADDR) {
            CHECK_THAT(ops->set_info(key, NULL), ==, 0);
            CHECK_THAT(ops->set_info(key, (void *)&nothing), ==, 0);
        }
    }
    CHECK_THAT(ops->get_info(INT_MIN, &answer), ==, -BMI_ENOSYS);
    CHECK_THAT(ops->get_info(INT_MAX, &answer), ==, -BMI_ENOSYS);
    WRONG(ops->set_info(BMI_DROP_ADDR, NULL));
    WRONG(ops->set_info(BMI_DROP_ADDR, ODD(&query)));
    end();
}

/* ---- memory ---- */

static void memory_arguments(struct side *side)
{
    static const bmi_size_t sizes[] = {0, 1, 2, 8, 63, 64, 4095, 4096, 4097, 65568, 1 << 20, 5 << 20};
    void *kept[64];

    begin();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int kind = BMI_SEND; kind <= BMI_RECV; kind++) {
            char *buffer = ops->memalloc(sizes[i], kind);

            CHECK(buffer != NULL);
            CHECK_THAT((uintptr_t)buffer % 8, ==, 0);
            if (sizes[i] >= 4096)
                CHECK_THAT((uintptr_t)buffer % 4096, ==, 0);
            memset(buffer, 0, (size_t)sizes[i]);
            CHECK_THAT(ops->memfree(buffer, sizes[i], kind), ==, 0);
        }
    }
    /* Empty buffers have distinct addresses, as from malloc(0). */
    for (int i = 0; i < 64; i++) {
        kept[i] = ops->memalloc(0, i % 2 == 0 ? BMI_SEND : BMI_RECV);
        CHECK(kept[i] != NULL);
        for (int k = 0; k < i; k++)
            CHECK(kept[i] != kept[k]);
    }
    for (int i = 0; i < 64; i++)
        CHECK_THAT(ops->memfree(kept[i], 0, BMI_SEND), ==, 0);
    CHECK(ops->memalloc(-1, BMI_SEND) == NULL);
    CHECK(ops->memalloc(INT64_MIN, BMI_RECV) == NULL);
    CHECK(ops->memalloc(INT64_MAX, BMI_RECV) == NULL); /* more than any machine has */
    kept[0] = ops->memalloc((bmi_size_t)1 << 31, BMI_RECV); /* more than a message can have */
    CHECK(kept[0] != NULL);
    ((char *)kept[0])[INT_MAX] = 1;
    CHECK_THAT(ops->memfree(kept[0], (bmi_size_t)1 << 31, BMI_RECV), ==, 0);
    kept[0] = ops->memalloc(1 << 20, BMI_RECV);
    CHECK(kept[0] != NULL);
    CHECK_THAT(ops->memfree(kept[0], 1 << 20, BMI_RECV), ==, 0);
    WRONG(ops->memfree(kept[0], 1 << 20, BMI_RECV)); /* freed twice, which the library can detect */
    CHECK_THAT(ops->memfree(NULL, 0, BMI_SEND), ==, 0);
    CHECK_THAT(ops->unexpected_free(NULL), ==, 0);
    /* The op type and a wrong size are ignored. */
    kept[0] = ops->memalloc(100, 99);
    CHECK(kept[0] != NULL);
    CHECK_THAT(ops->memfree(kept[0], -5, -7), ==, 0);
    /* Many buffers at once, freed in another order: all addresses differ. */
    for (int i = 0; i < 64; i++) {
        kept[i] = ops->memalloc(10000 + i, BMI_RECV);
        CHECK(kept[i] != NULL);
        memset(kept[i], i, (size_t)(10000 + i));
    }
    for (int i = 0; i < 64; i++) {
        const unsigned char *bytes = kept[(i * 37) % 64];

        for (int k = 0; k < 10000 + (i * 37) % 64; k++)
            CHECK_THAT(bytes[k], ==, (i * 37) % 64);
        CHECK_THAT(ops->memfree(kept[(i * 37) % 64], 10000 + (i * 37) % 64, BMI_RECV), ==, 0);
    }
    end();
}

/* ---- posts ---- */

static int send_now(bmi_op_id_t *id, struct bmi_method_addr *to, const void *buffer,
                    bmi_size_t size, bmi_context_id context)
{
    return ops->post_send(id, to, buffer, size, BMI_EXT_ALLOC, 1, NULL, context, NULL);
}

static int recv_now(bmi_op_id_t *id, struct bmi_method_addr *from, void *buffer, bmi_size_t size,
                    bmi_size_t *actual, bmi_context_id context)
{
    return ops->post_recv(id, from, buffer, size, actual, BMI_EXT_ALLOC, 1, NULL, context, NULL);
}

static int unexpected_now(bmi_op_id_t *id, struct bmi_method_addr *to, const void *buffer,
                          bmi_size_t size, bmi_context_id context)
{
    return ops->post_sendunexpected(id, to, buffer, size, BMI_EXT_ALLOC, 1, NULL, context, NULL);
}

/* Posts with a peer, each with a wrong argument. Nothing is written. */
static void wrong_posts(struct bmi_method_addr *peer)
{
    static const bmi_context_id contexts[] = {-1, 16, 17, INT_MAX, INT64_MAX, INT64_MIN};
    static const bmi_size_t large[] = {(bmi_size_t)INT_MAX + 1, (bmi_size_t)1 << 32,
                                       ((bmi_size_t)1 << 32) + 8, INT64_MAX};
    bmi_op_id_t ids[2] = {5, 5};
    bmi_size_t actual[2] = {5, 5};
    char buffer[64] = "";
    char stranger[64] = {0};

    WRONG(send_now(NULL, peer, buffer, 8, 0));
    WRONG(send_now(ODD(ids), peer, buffer, 8, 0));
    WRONG(send_now(ids, NULL, buffer, 8, 0));
    WRONG(send_now(ids, (void *)stranger, buffer, 8, 0));
    WRONG(send_now(ids, ODD(peer), buffer, 8, 0));
    WRONG(send_now(ids, peer, NULL, 8, 0));
    WRONG(send_now(ids, peer, buffer, -1, 0));
    WRONG(send_now(ids, peer, buffer, INT64_MIN, 0));
    WRONG(unexpected_now(NULL, peer, buffer, 8, 0));
    WRONG(unexpected_now(ids, NULL, buffer, 8, 0));
    WRONG(unexpected_now(ids, (void *)stranger, buffer, 8, 0));
    WRONG(unexpected_now(ids, peer, NULL, 8, 0));
    WRONG(unexpected_now(ids, peer, buffer, -1, 0));
    WRONG(recv_now(NULL, peer, buffer, 8, actual, 0));
    WRONG(recv_now(ODD(ids), peer, buffer, 8, actual, 0));
    WRONG(recv_now(ids, NULL, buffer, 8, actual, 0));
    WRONG(recv_now(ids, (void *)stranger, buffer, 8, actual, 0));
    WRONG(recv_now(ids, ODD(peer), buffer, 8, actual, 0));
    WRONG(recv_now(ids, peer, NULL, 8, actual, 0));
    WRONG(recv_now(ids, peer, buffer, 8, ODD(actual), 0));
    WRONG(recv_now(ids, peer, buffer, -1, actual, 0));
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        WRONG(send_now(ids, peer, buffer, 8, contexts[i]));
        WRONG(unexpected_now(ids, peer, buffer, 8, contexts[i]));
        WRONG(recv_now(ids, peer, buffer, 8, actual, contexts[i]));
    }
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        CHECK_THAT(send_now(ids, peer, buffer, large[i], 0), ==, -BMI_EMSGSIZE);
        CHECK_THAT(unexpected_now(ids, peer, buffer, large[i], 0), ==, -BMI_EMSGSIZE);
    }
    /* Too large for an unexpected message, but not for an expected one (BMI_MX_UNEXPECTED_MAX <= 1 GiB). */
    CHECK_THAT(unexpected_now(ids, peer, buffer, INT_MAX, 0), ==, -BMI_EMSGSIZE);
    CHECK_THAT(ids[0], ==, 5);
    CHECK_THAT(actual[0], ==, 5);
}

static void post_arguments(struct side *side)
{
    char buffer[64] = "";
    char stranger[64] = {0};

    begin();
    wrong_posts(self);
    /* Buffer types, user_ptr and hints are not checked. */
    {
        struct op receive = {0}, send = {0};

        receive.posted = ops->post_recv(&receive.id, self, buffer, 8, &receive.actual, -99, 1,
                                        &receive, 0, ODD(stranger));
        CHECK_THAT(receive.posted, ==, 0);
        call_self();
        send.posted = ops->post_send(&send.id, called, "1234567", 8, 12345, 1, &send, 0,
                                     ODD(stranger));
        CHECK_THAT(send.posted, >=, 0);
        if (send.posted == 0)
            op_sent(&send);
        op_received(&receive, 8);
    }
    /* Peers that are ready: their posts have a front. */
    wrong_posts(self);
    wrong_posts(called);
    end();
}

/* A receive may be larger than any message, and its pointer for the received size may be NULL. */
static void large_receives(struct side *side)
{
    static const bmi_size_t sizes[] = {INT_MAX, (bmi_size_t)INT_MAX + 1,
                                       ((bmi_size_t)1 << 32) + 8, INT64_MAX};
    char in[2][64];

    begin();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        /* Receive posted before the message, then after it. */
        for (int early = 0; early < 2; early++) {
            struct op receive = {0}, send = {0};
            void *pieces[2] = {in[0], in[1]};
            const bmi_size_t lengths[2] = {10, sizes[i] - 10};

            memset(in, 0, sizeof in);
            for (int step = 0; step < 2; step++) {
                if (step == early)
                    CHECK_THAT(op_recv(&receive, self, in[0], sizes[i], 3), >=, 0);
                if (called == NULL) /* the first receive is posted before the connection exists */
                    call_self();
                if (step != early)
                    CHECK_THAT(op_send(&send, called, "12345678901234567890", 20, 3), >=, 0);
            }
            op_sent(&send);
            op_received(&receive, 20);
            CHECK(memcmp(in[0], "12345678901234567890", 20) == 0);
            /* A list without a pointer for the size: the test call reports the size, if it is asked for. */
            memset(&receive, 0, sizeof receive);
            memset(in, 0, sizeof in);
            op_posted(&receive,
                      ops->post_recv_list(&receive.id, self, pieces, lengths, 2, sizes[i], NULL,
                                          BMI_EXT_ALLOC, 4, &receive, 0, NULL));
            CHECK_THAT(receive.posted, ==, 0);
            send_message(called, "12345678901234567890", 20, 4);
            op_received(&receive, 20);
            CHECK(memcmp(in[0], "1234567890", 10) == 0 && in[0][10] == 0);
            CHECK(memcmp(in[1], "1234567890", 10) == 0);
        }
    }
    {
        bmi_op_id_t id = 5;
        int posted;

        /* The message has arrived: the receive completes at once, and its size is not asked for. */
        send_message(called, "1234567", 8, 5);
        send_message(called, "", 1, 6);
        receive_message(self, in[1], 1, 6); /* so the message before it has arrived, too */
        posted = ops->post_recv(&id, self, in[0], 8, NULL, BMI_EXT_ALLOC, 5, NULL, 0, NULL);
        CHECK_THAT(posted, ==, 1);
        CHECK_THAT(in[0][6], ==, '7');
    }
    end();
}

/* ---- lists ---- */

/* Posts both list sends with the same arguments; both must return `code`. */
static void sends_give(int code, const void *const *buffers, const bmi_size_t *sizes, int count,
                       bmi_size_t total)
{
    bmi_op_id_t id = 5;

    CHECK_THAT(ops->post_send_list(&id, self, buffers, sizes, count, total, BMI_EXT_ALLOC, 1, NULL,
                                   0, NULL), ==, code);
    CHECK_THAT(ops->post_sendunexpected_list(&id, self, buffers, sizes, count, total,
                                             BMI_EXT_ALLOC, 1, NULL, 0, NULL), ==, code);
    CHECK_THAT(id, ==, 5);
}

/* Posts the three lists; each must return -BMI_EINVAL. */
static void lists_wrong(void *const *buffers, const bmi_size_t *sizes, int count, bmi_size_t total)
{
    bmi_op_id_t id = 5;
    bmi_size_t actual = 5;

    sends_give(-BMI_EINVAL, (const void *const *)buffers, sizes, count, total);
    WRONG(ops->post_recv_list(&id, self, buffers, sizes, count, total, &actual, BMI_EXT_ALLOC, 1,
                              NULL, 0, NULL));
    CHECK_THAT(id, ==, 5);
    CHECK_THAT(actual, ==, 5);
}

static void list_arguments(struct side *side)
{
    char a[100], b[100];
    void *buffers[3] = {a, b, a};
    const void *const out[3] = {a, b, a};
    void *holes[3] = {a, NULL, b};
    bmi_size_t sizes[3] = {10, 20, 30};
    const bmi_size_t negative[3] = {10, -20, 30}, huge[3] = {INT64_MAX, INT64_MAX, 2},
                     wraps[3] = {INT64_MAX, INT64_MAX, 62};
    const bmi_size_t minimum[3] = {INT64_MIN, INT64_MIN, 60};
    bmi_op_id_t id = 5;
    bmi_size_t actual = 5;

    begin();
    lists_wrong(NULL, sizes, 3, 60);
    lists_wrong(buffers, NULL, 3, 60);
    lists_wrong(ODD(buffers), sizes, 3, 60);
    lists_wrong(buffers, ODD(sizes), 3, 60);
    lists_wrong(buffers, sizes, 0, 60);
    lists_wrong(buffers, sizes, -1, 60);
    lists_wrong(NULL, NULL, 0, 60);
    lists_wrong(buffers, sizes, 65537, 60);
    lists_wrong(buffers, sizes, INT_MIN, 60);
    lists_wrong(buffers, sizes, INT_MAX, 60); /* rejected before the arrays are read */
    lists_wrong(buffers, sizes, 3, 59);
    lists_wrong(buffers, sizes, 3, 61);
    lists_wrong(buffers, sizes, 3, 0);
    lists_wrong(buffers, sizes, 3, -60);
    lists_wrong(holes, sizes, 3, 60); /* NULL with a size */
    lists_wrong(buffers, negative, 3, 20);
    lists_wrong(buffers, negative, 3, 60);
    lists_wrong(buffers, wraps, 3, 60); /* sums that overflow do not match either */
    lists_wrong(buffers, minimum, 3, 60);
    sends_give(-BMI_EMSGSIZE, out, huge, 3, INT64_MAX);
    sends_give(-BMI_EMSGSIZE, out, sizes, 3, ((bmi_size_t)1 << 32) + 60);
    /* The expected size is INT64_MAX, and the sum of the sizes is larger. */
    WRONG(ops->post_recv_list(&id, self, buffers, huge, 3, INT64_MAX, &actual, BMI_EXT_ALLOC, 1,
                              NULL, 0, NULL));
    WRONG(ops->post_send_list(NULL, self, (const void *const *)buffers, sizes, 3, 60,
                              BMI_EXT_ALLOC, 1, NULL, 0, NULL));
    WRONG(ops->post_send_list(&id, NULL, (const void *const *)buffers, sizes, 3, 60,
                              BMI_EXT_ALLOC, 1, NULL, 0, NULL));
    WRONG(ops->post_send_list(&id, self, (const void *const *)buffers, sizes, 3, 60,
                              BMI_EXT_ALLOC, 1, NULL, 16, NULL));
    WRONG(ops->post_sendunexpected_list(NULL, self, (const void *const *)buffers, sizes, 3, 60,
                                        BMI_EXT_ALLOC, 1, NULL, 0, NULL));
    WRONG(ops->post_sendunexpected_list(&id, NULL, (const void *const *)buffers, sizes, 3, 60,
                                        BMI_EXT_ALLOC, 1, NULL, 0, NULL));
    WRONG(ops->post_recv_list(NULL, self, buffers, sizes, 3, 60, &actual, BMI_EXT_ALLOC, 1, NULL,
                              0, NULL));
    WRONG(ops->post_recv_list(&id, NULL, buffers, sizes, 3, 60, &actual, BMI_EXT_ALLOC, 1, NULL,
                              0, NULL));
    WRONG(ops->post_recv_list(&id, self, buffers, sizes, 3, 60, ODD(&actual), BMI_EXT_ALLOC, 1,
                              NULL, 0, NULL));
    CHECK_THAT(id, ==, 5);
    CHECK_THAT(actual, ==, 5);
    /* The arrays belong to the caller again when the call returns (docs/buffers.md). */
    {
        static char in[60000], out[60000];
        struct cut cut = cut_up(in, sizeof in, 1000, 0, 3);
        struct op receive = {0}, send = {0};

        fill(out, sizeof out, 3);
        CHECK_THAT(op_recv_cut(&receive, self, &cut, 6), ==, 0);
        call_self();
        for (int i = 0; i < cut.count; i++) {
            cut.buffers[i] = NULL;
            cut.sizes[i] = -1;
        }
        cut_free(&cut);
        cut = cut_up(out, sizeof out, 777, 0, 2);
        CHECK_THAT(op_send_cut(&send, called, &cut, 6), >=, 0);
        for (int i = 0; i < cut.count; i++) {
            cut.buffers[i] = NULL;
            cut.sizes[i] = -1;
        }
        cut_free(&cut);
        op_received(&receive, sizeof in);
        op_sent(&send);
        check_filled(in, sizeof in, 3);
    }
    end();
}

/* The longest list allowed, with nearly all pieces empty. */
static void longest_list(struct side *side)
{
    enum { MOST = 65536 };
    static void *buffers[MOST];
    static bmi_size_t sizes[MOST];
    struct cut cut = {buffers, sizes, MOST, 8};
    struct op receive = {0}, send = {0};
    int64_t in = -1, out = 77;

    begin();
    buffers[MOST - 1] = &in;
    sizes[MOST - 1] = 8;
    CHECK_THAT(op_recv_cut(&receive, self, &cut, 2), ==, 0);
    call_self();
    memset(buffers, 0, sizeof buffers);
    memset(sizes, 0, sizeof sizes);
    buffers[MOST / 2] = &out;
    sizes[MOST / 2] = 8;
    CHECK_THAT(op_send_cut(&send, called, &cut, 2), >=, 0);
    op_sent(&send);
    op_received(&receive, 8);
    CHECK_THAT(in, ==, 77);
    end();
}

/* ---- empty messages between two processes ---- */

enum {
    WAYS = 6,    /* to describe an empty message */
    NO_BYTES = 100,
    TO_SELF = 200,
};

static char somewhere[1];
static void *const nowhere[3] = {NULL, NULL, somewhere};
static const bmi_size_t nothing[3] = {0, 0, 0};

/* Describes an empty message as a list: no pieces, with or without arrays, or one or more empty pieces. */
static struct cut empty_cut(int way)
{
    struct cut cut = {(void **)nowhere, (bmi_size_t *)nothing, 0, 0};

    switch (way) {
    case 2:
        break;
    case 3:
        cut.buffers = NULL;
        cut.sizes = NULL;
        break;
    case 4:
        cut.count = 1;
        break;
    default:
        cut.count = 3;
    }
    return cut;
}

/* Sends an empty message, expected or unexpected. */
static void send_nothing(struct bmi_method_addr *to, int way, bmi_msg_tag_t tag, bool unexpected)
{
    struct cut cut = empty_cut(way);
    const void *buffer = way == 0 ? NULL : somewhere;
    struct op send = {0};

    if (way < 2)
        CHECK_THAT((unexpected ? op_send_unexpected : op_send)(&send, to, buffer, 0, tag), >=, 0);
    else
        CHECK_THAT((unexpected ? op_send_unexpected_cut : op_send_cut)(&send, to, &cut, tag), >=, 0);
    op_sent(&send);
}

static void receive_nothing(struct op *receive, struct bmi_method_addr *from, int way,
                            bmi_msg_tag_t tag)
{
    struct cut cut = empty_cut(way);

    if (way < 2)
        CHECK_THAT(op_recv(receive, from, way == 0 ? NULL : somewhere, 0, tag), >=, 0);
    else
        CHECK_THAT(op_recv_cut(receive, from, &cut, tag), >=, 0);
}

/* Combines each description of an empty message with each description of an empty receive, posted before and
 * after. */
static void expect_nothing(struct side *side, struct bmi_method_addr *peer)
{
    static struct op receive[WAYS][WAYS];

    memset(receive, 0, sizeof receive);
    for (int in = 0; in < WAYS; in++)
        for (int out = 0; out < WAYS; out += 2)
            receive_nothing(&receive[in][out], peer, in, NO_BYTES + in * WAYS + out);
    pair_sync(side);
    for (int in = 0; in < WAYS; in++)
        for (int out = 0; out < WAYS; out++)
            send_nothing(peer, out, NO_BYTES + in * WAYS + out, false);
    pair_sync(side);
    for (int in = 0; in < WAYS; in++)
        for (int out = 1; out < WAYS; out += 2)
            receive_nothing(&receive[in][out], peer, in, NO_BYTES + in * WAYS + out);
    for (int in = 0; in < WAYS; in++)
        for (int out = 0; out < WAYS; out++)
            op_received(&receive[in][out], 0);
    pair_sync(side);
}

static void hear_nothing(int way)
{
    struct arrival arrival = host_next();

    CHECK_THAT(arrival.tag, ==, way);
    CHECK_THAT(arrival.size, ==, 0);
    CHECK_THAT(arrival.error, ==, 0);
    CHECK(arrival.buffer != NULL); /* a host may take NULL for no message */
    arrival_free(&arrival);
}

/* A small read of the file system (docs/hosts.md, Calls): the answer is a header and the data. At the end of a
 * file the data is a buffer from memalloc(0); the reader's receive is larger.
 */
static void answer_reads(struct bmi_method_addr *client)
{
    static const bmi_size_t lengths[] = {0, 1, 4096, 0};

    for (int i = 0; i < 4; i++) {
        char header[24] = "header";
        void *data = ops->memalloc(lengths[i], BMI_SEND);
        void *buffers[3] = {header, data, NULL};
        bmi_size_t sizes[3] = {sizeof header, lengths[i], 0};
        struct cut cut = {buffers, sizes, 3, (bmi_size_t)sizeof header + lengths[i]};
        struct op send = {0};

        CHECK(data != NULL);
        fill(data, (size_t)lengths[i], (unsigned)i);
        CHECK_THAT(op_send_cut(&send, client, &cut, i), >=, 0);
        op_sent(&send);
        CHECK_THAT(ops->memfree(data, 4096, BMI_SEND), ==, 0);
    }
}

static void read_small(struct bmi_method_addr *server)
{
    static const bmi_size_t lengths[] = {0, 1, 4096, 0};

    for (int i = 0; i < 4; i++) {
        char header[24], *data = ops->memalloc(16 * 1024, BMI_RECV);
        void *buffers[5] = {NULL, header, NULL, data, NULL};
        bmi_size_t sizes[5] = {0, sizeof header, 0, 16 * 1024, 0};
        struct cut cut = {buffers, sizes, 5, (bmi_size_t)sizeof header + 16 * 1024};
        struct op receive = {0};

        CHECK(data != NULL);
        CHECK_THAT(op_recv_cut(&receive, server, &cut, i), >=, 0);
        op_received(&receive, (bmi_size_t)sizeof header + lengths[i]);
        CHECK(strcmp(header, "header") == 0);
        check_filled(data, (size_t)lengths[i], (unsigned)i);
        CHECK_THAT(ops->memfree(data, 16 * 1024, BMI_RECV), ==, 0);
    }
}

/* Small and large messages, for receives that are larger than any of them. */
enum { LARGE = 3 << 20, HUGE_TAG = 1000 };

static const bmi_size_t message_sizes[] = {20, LARGE};

static void send_to_huge(struct side *side, struct bmi_method_addr *client)
{
    char *out = fenced(LARGE);

    fill(out, LARGE, 9);
    for (int i = 0; i < 4; i++) {
        struct op send = {0};

        if (i % 2 == 0) /* the receive is posted first */
            pair_sync(side);
        CHECK_THAT(op_send(&send, client, out, message_sizes[i / 2], HUGE_TAG + i), >=, 0);
        if (i % 2 == 1)
            pair_sync(side);
        op_sent(&send);
    }
    fenced_free(out);
}

static void receive_huge(struct side *side, struct bmi_method_addr *server)
{
    for (int i = 0; i < 4; i++) {
        char *in = fenced(LARGE);
        struct op receive = {0};

        if (i % 2 == 1)
            pair_sync(side);
        CHECK_THAT(op_recv(&receive, server, in, i < 3 ? (bmi_size_t)1 << 32 : INT64_MAX,
                           HUGE_TAG + i), >=, 0);
        if (i % 2 == 0)
            pair_sync(side);
        op_received(&receive, message_sizes[i / 2]);
        check_filled(in, (size_t)message_sizes[i / 2], 9);
        check_untouched(in, (size_t)message_sizes[i / 2], LARGE);
        fenced_free(in);
    }
}

static void nothing_server(struct side *side)
{
    struct bmi_method_addr *client = pair_server(side);

    for (int way = 0; way < WAYS; way++)
        hear_nothing(way);
    expect_nothing(side, client);
    answer_reads(client);
    send_to_huge(side, client);
    pair_part(side);
}

static void nothing_client(struct side *side)
{
    struct bmi_method_addr *server = pair_client(side);

    for (int way = 0; way < WAYS; way++)
        send_nothing(server, way, way, true);
    expect_nothing(side, server);
    read_small(server);
    receive_huge(side, server);
    pair_part(side);
}

static void nothing_to_self(struct side *side)
{
    begin();
    for (int way = 0; way < WAYS; way++) {
        struct op receive[2] = {{0}};

        receive_nothing(&receive[0], self, WAYS - 1 - way, TO_SELF + way);
        if (called == NULL)
            call_self();
        receive_nothing(&receive[1], called, WAYS - 1 - way, TO_SELF + way);
        send_nothing(called, way, TO_SELF + way, false);
        send_nothing(self, way, TO_SELF + way, false);
        op_received(&receive[0], 0);
        op_received(&receive[1], 0);
        send_nothing(self, way, way, true);
        hear_nothing(way);
        send_nothing(called, way, way, true);
        hear_nothing(way);
    }
    end();
}

/* ---- test calls ---- */

static void test_arguments(struct side *side)
{
    static const bmi_op_id_t nonsense[] = {0, 1, -1, 7, 8, 4096, 0x1234567, INT64_MAX, INT64_MIN};
    static const bmi_context_id contexts[] = {-1, 16, INT64_MAX, INT64_MIN};
    struct bmi_method_unexpected_info infos[2];
    bmi_op_id_t ids[2] = {0, 0};
    bmi_error_code_t errors[2] = {5, 5};
    bmi_size_t sizes[2] = {5, 5};
    void *users[2];
    int outcount = 5, indices[2];
    char buffer[8];
    struct op pending = {0};

    begin();
    CHECK_THAT(ops->open_context(1), ==, 0);
    CHECK_THAT(op_recv(&pending, self, buffer, 8, 99), ==, 0);
    ids[0] = pending.id;
    host_enter_test_call();

    WRONG(ops->test(pending.id, NULL, errors, sizes, users, 0, 0));
    WRONG(ops->test(pending.id, &outcount, NULL, sizes, users, 0, 0));
    WRONG(ops->test(pending.id, &outcount, errors, sizes, users, -1, 0));
    WRONG(ops->test(pending.id, &outcount, errors, sizes, users, 0, 1)); /* another context */
    WRONG(ops->testsome(1, NULL, &outcount, indices, errors, sizes, users, 0, 0));
    WRONG(ops->testsome(1, ids, NULL, indices, errors, sizes, users, 0, 0));
    WRONG(ops->testsome(1, ids, &outcount, NULL, errors, sizes, users, 0, 0));
    WRONG(ops->testsome(1, ids, &outcount, indices, NULL, sizes, users, 0, 0));
    WRONG(ops->testsome(1, ids, &outcount, indices, errors, sizes, users, -1, 0));
    WRONG(ops->testsome(-1, ids, &outcount, indices, errors, sizes, users, 0, 0));
    WRONG(ops->testcontext(1, NULL, &outcount, errors, sizes, users, 0, 0));
    WRONG(ops->testcontext(1, ids, NULL, errors, sizes, users, 0, 0));
    WRONG(ops->testcontext(1, ids, &outcount, NULL, sizes, users, 0, 0));
    WRONG(ops->testcontext(1, ids, &outcount, errors, sizes, users, -1, 0));
    WRONG(ops->testcontext(INT_MIN, ids, &outcount, errors, sizes, users, 0, 0));
    WRONG(ops->testsome(0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0));
    WRONG(ops->testcontext(0, NULL, NULL, NULL, NULL, NULL, 0, 0));
    WRONG(ops->testunexpected(0, NULL, NULL, 0));
    WRONG(ops->testunexpected(1, NULL, infos, 0));
    WRONG(ops->testunexpected(1, &outcount, NULL, 0));
    WRONG(ops->testunexpected(1, &outcount, ODD(infos), 0));
    WRONG(ops->testunexpected(-1, &outcount, infos, 0));
    WRONG(ops->testunexpected(1, &outcount, infos, -1));
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        WRONG(ops->test(pending.id, &outcount, errors, sizes, users, 0, contexts[i]));
        WRONG(ops->testsome(1, ids, &outcount, indices, errors, sizes, users, 0, contexts[i]));
        WRONG(ops->testcontext(1, ids, &outcount, errors, sizes, users, 0, contexts[i]));
        WRONG(ops->cancel(pending.id, contexts[i]));
    }
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        bmi_op_id_t two[2] = {pending.id, nonsense[i]};

        WRONG(ops->test(nonsense[i], &outcount, errors, sizes, users, 0, 0));
        WRONG(ops->cancel(nonsense[i], 0));
        if (nonsense[i] != 0)
            WRONG(ops->testsome(2, two, &outcount, indices, errors, sizes, users, 0, 0));
    }
    /* Addresses near a live id, and addresses of other objects. */
    WRONG(ops->test(pending.id + 8, &outcount, errors, sizes, users, 0, 0));
    WRONG(ops->test(pending.id + 1, &outcount, errors, sizes, users, 0, 0));
    WRONG(ops->cancel(pending.id + 1, 0));
    WRONG(ops->cancel(pending.id + 8, 0));
    WRONG(ops->cancel((bmi_op_id_t)(intptr_t)buffer, 0));
    WRONG(ops->cancel((bmi_op_id_t)(intptr_t)self, 0));
    CHECK_THAT(ops->cancel(pending.id, 1), ==, 0); /* reported in its context 0, if at all */
    CHECK_THAT(outcount, ==, 5);
    CHECK_THAT(errors[0], ==, 5);
    CHECK_THAT(sizes[0], ==, 5);
    host_leave_test_call();

    CHECK(!op_done(&pending));
    CHECK_THAT(ops->cancel(pending.id, 0), ==, 0);
    op_failed(&pending, BMI_ECANCEL);
    /* The id is stale now: test rejects it, and cancel has nothing to do. */
    WRONG(ops->test(pending.id, &outcount, errors, sizes, users, 0, 0));
    CHECK_THAT(ops->cancel(pending.id, 0), ==, 0);
    ops->close_context(1);
    end();
}

/* Milliseconds that a call takes which must find nothing. */
#define NOTHING(call)                        \
    (outcount = -1, begun = now_ms(),        \
     CHECK_ZERO(call), now_ms() - begun)
#define CHECK_ZERO(call)                                                       \
    ((call) == 0 && outcount == 0 ? (void)0                                    \
                                  : check_failed(__FILE__, __LINE__, "%s", #call))

/* Calls that ask for no results, and outputs that are not wanted. */
static void counts_of_none(struct side *side)
{
    struct bmi_method_unexpected_info info;
    bmi_op_id_t ids[3] = {0, 0, 0};
    bmi_error_code_t error = 5;
    int outcount, index = 5;
    int64_t begun;
    struct op receive = {0}, send = {0};
    char buffer[8];

    begin();
    host_enter_test_call();
    /* Nothing has completed: the waiting calls wait for their whole time. */
    CHECK_THAT(NOTHING(ops->testsome(0, NULL, &outcount, NULL, NULL, NULL, NULL, 0, 0)), <, 5000);
    CHECK_THAT(NOTHING(ops->testsome(0, NULL, &outcount, NULL, NULL, NULL, NULL, 60000, 0)), <,
               30000);
    CHECK_THAT(NOTHING(ops->testsome(3, ids, &outcount, &index, &error, NULL, NULL, 60000, 0)), <,
               30000);
    CHECK_THAT(NOTHING(ops->testcontext(0, NULL, &outcount, NULL, NULL, NULL, 0, 0)), <, 5000);
    CHECK_THAT(NOTHING(ops->testunexpected(0, &outcount, NULL, 0)), <, 5000);
    CHECK_THAT(NOTHING(ops->testunexpected(0, &outcount, NULL, 100)), >=, 95);
    CHECK_THAT(NOTHING(ops->testcontext(0, NULL, &outcount, NULL, NULL, NULL, 100, 0)), >=, 95);
    CHECK_THAT(NOTHING(ops->testcontext(0, NULL, &outcount, NULL, NULL, NULL, 0, 7)), <, 5000);
    host_leave_test_call();

    /* Something has completed: the calls return early and consume nothing. On a connected peer small sends
     * complete at once. */
    still_works();
    CHECK_THAT(op_recv(&receive, self, buffer, 8, 9), ==, 0);
    ids[1] = receive.id; /* nothing has completed */
    CHECK_THAT(NOTHING(ops->testsome(3, ids, &outcount, &index, &error, NULL, NULL, 100, 0)), >=, 95);
    CHECK_THAT(op_send(&send, called, "1234567", 8, 9), ==, 1);
    host_enter_test_call();
    for (int i = 0; i < 3; i++)
        CHECK_THAT(NOTHING(ops->testcontext(0, NULL, &outcount, NULL, NULL, NULL, 60000, 0)), <,
                   30000);
    CHECK_THAT(NOTHING(ops->testsome(0, NULL, &outcount, NULL, NULL, NULL, NULL, 0, 0)), <, 5000);
    host_leave_test_call();
    /* Arrays of sizes may be NULL. */
    UNTIL (outcount != 0) {
        void *user = NULL;

        host_enter_test_call();
        CHECK_THAT(ops->test(receive.id, &outcount, &error, NULL, &user, 5, 0), ==, 0);
        host_leave_test_call();
        if (outcount == 1)
            CHECK(user == &receive && error == 0 && buffer[6] == '7');
    }
    for (int call = 0; call < 2; call++) {
        bmi_op_id_t id = 5;

        memset(&receive, 0, sizeof receive);
        CHECK_THAT(op_recv(&receive, self, buffer, 8, 9), ==, 0);
        CHECK_THAT(op_send(&send, called, "1234567", 8, 9), ==, 1);
        ids[1] = receive.id;
        outcount = 0;
        UNTIL (outcount != 0) {
            error = 5;
            host_enter_test_call();
            if (call == 0)
                CHECK_THAT(ops->testcontext(1, &id, &outcount, &error, NULL, NULL, 5, 0), ==, 0);
            else
                CHECK_THAT(ops->testsome(3, ids, &outcount, &index, &error, NULL, NULL, 5, 0), ==,
                           0);
            host_leave_test_call();
            if (outcount == 1)
                CHECK(error == 0 && (call == 0 ? id == receive.id : index == 1));
        }
    }

    /* Likewise for an unexpected message. */
    CHECK_THAT(op_send_unexpected(&send, self, "1234567", 8, 9), ==, 1);
    host_enter_test_call();
    for (int i = 0; i < 3; i++)
        CHECK_THAT(NOTHING(ops->testunexpected(0, &outcount, NULL, 60000)), <, 30000);
    CHECK_THAT(ops->testunexpected(1, &outcount, &info, 0), ==, 0);
    host_leave_test_call();
    CHECK_THAT(outcount, ==, 1);
    CHECK_THAT(info.size, ==, 8);
    CHECK_THAT(ops->unexpected_free(info.buffer), ==, 0);
    end();
}

/* ---- contexts ---- */

static void context_arguments(struct side *side)
{
    static const bmi_context_id wrong[] = {-1, 16, 100, INT64_MAX, INT64_MIN};

    begin();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        WRONG(ops->open_context(wrong[i]));
        ops->close_context(wrong[i]);
    }
    /* Opened twice, closed twice, closed unopened: open_context of 0..15 never fails, because the host would keep
     * a mutex locked (section 4). */
    for (int c = 1; c < BMI_MAX_CONTEXTS; c++) {
        CHECK_THAT(ops->open_context(c), ==, 0);
        CHECK_THAT(ops->open_context(c), ==, 0);
        ops->close_context(c);
        ops->close_context(c);
        CHECK_THAT(ops->open_context(c), ==, 0);
        ops->close_context(c);
    }
    end();
}

/* ---- options ---- */

/* Option strings without content count as none. */
static void empty_options(struct side *side)
{
    static char texts[][8] = {"", " ", "\n\t ", ",;", "=", "A="};

    host_load();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, texts[i]), ==, 0);
        CHECK_THAT(ops->finalize(), ==, 0);
    }
}

/* ---- names ---- */

static void name_arguments(struct side *side)
{
    static char endless[5000];
    char stranger[64] = {0};

    begin();
    memset(endless, '1', sizeof endless - 1);
    memcpy(endless, "mx://", 5);
    CHECK(ops->method_addr_lookup(endless) == NULL);
    CHECK(ops->method_addr_lookup("mx://\xff:3") == NULL);
    WRONG(ops->query_addr_range(self, endless, -1));
    WRONG(ops->query_addr_range(self, "mx://\xff", -1));
    CHECK(ops->method_addr_lookup(NULL) == NULL);
    CHECK(ops->method_addr_lookup("") == NULL);
    CHECK(ops->method_addr_lookup("mx://") == NULL);
    /* Hosts print the name. */
    CHECK(strcmp(ops->rev_lookup_unexpected(NULL), "(unknown)") == 0);
    CHECK(strcmp(ops->rev_lookup_unexpected(ODD(self)), "(unknown)") == 0);
    CHECK(strcmp(ops->rev_lookup_unexpected((void *)stranger), "(unknown)") == 0);
    CHECK(strncmp(ops->rev_lookup_unexpected(self), "mx://", 5) == 0);
    WRONG(ops->query_addr_range(NULL, "mx://*", 0));
    WRONG(ops->query_addr_range(self, NULL, 0));
    WRONG(ops->query_addr_range((void *)stranger, "mx://*", 0));
    WRONG(ops->query_addr_range(self, "", 8));
    WRONG(ops->query_addr_range(self, "mx://nonsense", 8));
    WRONG(ops->query_addr_range(self, "mx://127.0.0.1", 129));
    WRONG(ops->query_addr_range(self, "mx://127.0.0.1", 33));
    WRONG(ops->query_addr_range(self, "mx://*", 8));
    WRONG(ops->query_addr_range(self, "mx://", 0));
    /* A mask of 0 bits matches every address; text is compared as a whole. */
    CHECK_THAT(ops->query_addr_range(self, "mx://0.0.0.0", 0), ==, 1);
    CHECK_THAT(ops->query_addr_range(self, "mx://0.0.0.0", -1), ==, 0);
    CHECK_THAT(ops->query_addr_range(self, "tcp://0.0.0.0", 0), ==, 0);
    CHECK_THAT(ops->query_addr_range(self, "mx://127.0.0.*", INT_MIN), ==, 1);
    CHECK_THAT(ops->query_addr_range(self, "mx://*", 0), ==, 1);
    CHECK_THAT(ops->query_addr_range(self, "mx://*", -1), ==, 1);
    end();
}

TESTS(
    SOLO(every_call_without_an_instance_is_refused, calls_without_an_instance),
    SOLO(initialize_checks_its_arguments, initialize_arguments),
    SOLO(set_info_and_get_info_check_keys_and_pointers, info_keys),
    SOLO(memalloc_and_memfree_check_their_arguments, memory_arguments),
    SOLO(posts_check_their_arguments, post_arguments),
    SOLO(receives_may_be_larger_than_any_message, large_receives),
    SOLO(list_posts_check_their_arguments, list_arguments),
    SOLO(a_list_of_the_most_pieces_nearly_all_empty_is_one_message, longest_list),
    SOLO(no_bytes_go_to_oneself_however_they_are_named, nothing_to_self),
    PAIR(empty_and_small_reads_work_with_huge_receives, nothing_server, nothing_client),
    SOLO(calls_that_ask_for_no_results_or_sizes_are_answered, counts_of_none),
    SOLO(test_calls_and_cancel_check_their_arguments, test_arguments),
    SOLO(open_context_and_close_context_check_their_arguments, context_arguments),
    SOLO(options_that_say_nothing_are_none, empty_options),
    SOLO(name_calls_check_their_arguments, name_arguments))
