/*
 * Every entry point with good, missing and nonsense arguments, on a server that talks to
 * itself. A wrong call gets its code and changes nothing: after each table the instance
 * still carries a message, and nothing is ever reported for a refused post.
 *
 * Codes: docs/c-api.md.
 */
#include "support/pair.h"
#include "support/pattern.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRONG(call) CHECK_THAT(call, ==, -BMI_EINVAL)
#define ODD(pointer) ((void *)((char *)(pointer) + 1))

static struct bmi_method_addr *self;

static void begin(void)
{
    self = host_lookup_endpoint(host_start_server());
}

static void still_works(void)
{
    int64_t in = -1, out = 77;
    struct op send = {0}, receive = {0};

    CHECK_THAT(op_recv(&receive, self, &in, 8, 4242), >=, 0);
    CHECK_THAT(op_send(&send, self, &out, 8, 4242), >=, 0);
    op_sent(&send);
    op_received(&receive, 8);
    CHECK_THAT(in, ==, 77);
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
    CHECK_THAT(ops->test(1, &outcount, &error, &actual, NULL, 0, 0), <, 0);
    CHECK_THAT(ops->testsome(1, &id, &outcount, &index, &error, &actual, NULL, 0, 0), <, 0);
    CHECK_THAT(ops->testcontext(1, &id, &outcount, &error, &actual, NULL, 0, 0), <, 0);
    CHECK_THAT(ops->testunexpected(1, &outcount, &info, 0), <, 0);
    CHECK_THAT(ops->cancel(1, 0), <, 0);
    CHECK_THAT(ops->finalize(), ==, -BMI_ENODEV);
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

    (void)side;
    host_load();
    address = ops->method_addr_lookup("mx://localhost:0:3");
    CHECK(address != NULL);
    without_instance(address);
    begin();
    host_stop();
    without_instance(address);
    CHECK_THAT(ops->set_info(BMI_DROP_ADDR, address), ==, 0);
}

/* ---- initialize ---- */

static void initialize_arguments(struct side *side)
{
    char options[] = "MX_SPIN_US=20 NO_SUCH_THING=1 MX_SPIN_US=nonsense MX_EAGER_MAX=-1";
    char stranger[64] = {0};

    (void)side;
    host_load();
    WRONG(ops->initialize(NULL, METHOD_ID, BMI_INIT_SERVER, NULL));
    WRONG(ops->initialize((void *)stranger, METHOD_ID, BMI_INIT_SERVER, NULL));
    WRONG(ops->initialize(ODD(stranger), METHOD_ID, BMI_INIT_SERVER, NULL));
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, options), ==, 0);
    CHECK_THAT(ops->initialize(NULL, METHOD_ID, 0, NULL), ==, -BMI_EALREADY);
    CHECK_THAT(ops->finalize(), ==, 0);
    CHECK_THAT(ops->finalize(), ==, -BMI_ENODEV);
    /* Undefined flags are no reason to refuse. */
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

    (void)side;
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
        if (key == BMI_TCP_GET_PORT) /* standalone.c asks for it */
            continue;
#endif
        if (key != BMI_CHECK_MAXSIZE && key != BMI_GET_UNEXP_SIZE && key != BMI_DROP_ADDR_QUERY) {
            CHECK_THAT(ops->get_info(key, NULL), ==, -BMI_ENOSYS);
            CHECK_THAT(ops->get_info(key, &answer), ==, -BMI_ENOSYS);
        }
        /* Section 9: unknown set_info is 0; with every argument. */
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
    static const bmi_size_t sizes[] = {1, 2, 8, 63, 64, 4095, 4096, 4097, 65568, 1 << 20, 5 << 20};
    void *kept[64];

    (void)side;
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
    CHECK(ops->memalloc(0, BMI_SEND) == NULL);
    CHECK(ops->memalloc(-1, BMI_SEND) == NULL);
    CHECK(ops->memalloc(INT64_MIN, BMI_RECV) == NULL);
    CHECK(ops->memalloc(INT64_MAX, BMI_RECV) == NULL);
    CHECK(ops->memalloc((bmi_size_t)1 << 31, BMI_RECV) == NULL);
    CHECK_THAT(ops->memfree(NULL, 0, BMI_SEND), ==, 0);
    CHECK_THAT(ops->unexpected_free(NULL), ==, 0);
    /* Any op type, and a size that does not agree, are not looked at. */
    kept[0] = ops->memalloc(100, 99);
    CHECK(kept[0] != NULL);
    CHECK_THAT(ops->memfree(kept[0], -5, -7), ==, 0);
    /* Many at once, freed in another order, all different. */
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

static void post_arguments(struct side *side)
{
    static const bmi_context_id contexts[] = {-1, 16, 17, INT_MAX, INT64_MAX, INT64_MIN};
    static const bmi_size_t large[] = {(bmi_size_t)INT_MAX + 1, (bmi_size_t)1 << 32,
                                       ((bmi_size_t)1 << 32) + 8, INT64_MAX};
    bmi_op_id_t ids[2] = {5, 5};
    bmi_size_t actual[2] = {5, 5};
    char buffer[64] = "";
    char stranger[64] = {0};

    (void)side;
    begin();
    WRONG(send_now(NULL, self, buffer, 8, 0));
    WRONG(send_now(ODD(ids), self, buffer, 8, 0));
    WRONG(send_now(ids, NULL, buffer, 8, 0));
    WRONG(send_now(ids, (void *)stranger, buffer, 8, 0));
    WRONG(send_now(ids, ODD(self), buffer, 8, 0));
    WRONG(send_now(ids, self, NULL, 8, 0));
    WRONG(send_now(ids, self, buffer, -1, 0));
    WRONG(send_now(ids, self, buffer, INT64_MIN, 0));
    WRONG(unexpected_now(NULL, self, buffer, 8, 0));
    WRONG(unexpected_now(ids, NULL, buffer, 8, 0));
    WRONG(unexpected_now(ids, (void *)stranger, buffer, 8, 0));
    WRONG(unexpected_now(ids, self, NULL, 8, 0));
    WRONG(unexpected_now(ids, self, buffer, -1, 0));
    WRONG(recv_now(NULL, self, buffer, 8, actual, 0));
    WRONG(recv_now(ids, NULL, buffer, 8, actual, 0));
    WRONG(recv_now(ids, (void *)stranger, buffer, 8, actual, 0));
    WRONG(recv_now(ids, self, NULL, 8, actual, 0));
    WRONG(recv_now(ids, self, buffer, 8, NULL, 0));
    WRONG(recv_now(ids, self, buffer, 8, ODD(actual), 0));
    WRONG(recv_now(ids, self, buffer, -1, actual, 0));
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        WRONG(send_now(ids, self, buffer, 8, contexts[i]));
        WRONG(unexpected_now(ids, self, buffer, 8, contexts[i]));
        WRONG(recv_now(ids, self, buffer, 8, actual, contexts[i]));
    }
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        CHECK_THAT(send_now(ids, self, buffer, large[i], 0), ==, -BMI_EMSGSIZE);
        CHECK_THAT(unexpected_now(ids, self, buffer, large[i], 0), ==, -BMI_EMSGSIZE);
        CHECK_THAT(recv_now(ids, self, buffer, large[i], actual, 0), ==, -BMI_EMSGSIZE);
    }
    /* Too large for an unexpected message, not for another (BMI_MX_UNEXPECTED_MAX <= 1 GiB). */
    CHECK_THAT(unexpected_now(ids, self, buffer, INT_MAX, 0), ==, -BMI_EMSGSIZE);
    CHECK_THAT(ids[0], ==, 5);
    CHECK_THAT(actual[0], ==, 5);
    /* Any buffer type; user_ptr and hints may be anything. */
    {
        struct op receive = {0}, send = {0};

        receive.posted = ops->post_recv(&receive.id, self, buffer, 8, &receive.actual, -99, 1,
                                        &receive, 0, ODD(stranger));
        CHECK_THAT(receive.posted, ==, 0);
        send.posted = ops->post_send(&send.id, self, "1234567", 8, 12345, 1, &send, 0,
                                     ODD(stranger));
        CHECK_THAT(send.posted, >=, 0);
        if (send.posted == 0)
            op_sent(&send);
        op_received(&receive, 8);
    }
    end();
}

/* ---- lists ---- */

/* The three list posts with the same arguments; all must give `code`. */
static void lists_give(int code, void *const *buffers, const bmi_size_t *sizes, int count,
                       bmi_size_t total)
{
    bmi_op_id_t id = 5;
    bmi_size_t actual = 5;
    const void *const *out = (const void *const *)buffers;

    CHECK_THAT(ops->post_send_list(&id, self, out, sizes, count, total, BMI_EXT_ALLOC, 1, NULL,
                                   0, NULL), ==, code);
    CHECK_THAT(ops->post_sendunexpected_list(&id, self, out, sizes, count, total, BMI_EXT_ALLOC,
                                             1, NULL, 0, NULL), ==, code);
    CHECK_THAT(ops->post_recv_list(&id, self, buffers, sizes, count, total, &actual,
                                   BMI_EXT_ALLOC, 1, NULL, 0, NULL), ==, code);
    CHECK_THAT(id, ==, 5);
    CHECK_THAT(actual, ==, 5);
}

static void list_arguments(struct side *side)
{
    char a[100], b[100];
    void *buffers[3] = {a, b, a};
    void *holes[3] = {a, NULL, b};
    bmi_size_t sizes[3] = {10, 20, 30};
    const bmi_size_t negative[3] = {10, -20, 30}, huge[3] = {INT64_MAX, INT64_MAX, 2},
                     wraps[3] = {INT64_MAX, INT64_MAX, 62};
    const bmi_size_t minimum[3] = {INT64_MIN, INT64_MIN, 60};
    bmi_op_id_t id = 5;
    bmi_size_t actual = 5;

    (void)side;
    begin();
    lists_give(-BMI_EINVAL, NULL, sizes, 3, 60);
    lists_give(-BMI_EINVAL, buffers, NULL, 3, 60);
    lists_give(-BMI_EINVAL, ODD(buffers), sizes, 3, 60);
    lists_give(-BMI_EINVAL, buffers, ODD(sizes), 3, 60);
    lists_give(-BMI_EINVAL, buffers, sizes, 0, 60);
    lists_give(-BMI_EINVAL, buffers, sizes, 0, 0);
    lists_give(-BMI_EINVAL, buffers, sizes, -1, 60);
    lists_give(-BMI_EINVAL, buffers, sizes, INT_MIN, 60);
    lists_give(-BMI_EINVAL, buffers, sizes, INT_MAX, 60); /* noticed before they are read */
    lists_give(-BMI_EINVAL, buffers, sizes, 3, 59);
    lists_give(-BMI_EINVAL, buffers, sizes, 3, 61);
    lists_give(-BMI_EINVAL, buffers, sizes, 3, 0);
    lists_give(-BMI_EINVAL, buffers, sizes, 3, -60);
    lists_give(-BMI_EINVAL, holes, sizes, 3, 60); /* NULL with a size */
    lists_give(-BMI_EINVAL, buffers, negative, 3, 20);
    lists_give(-BMI_EINVAL, buffers, negative, 3, 60);
    lists_give(-BMI_EINVAL, buffers, wraps, 3, 60); /* sums that overflow do not match either */
    lists_give(-BMI_EINVAL, buffers, minimum, 3, 60);
    lists_give(-BMI_EMSGSIZE, buffers, huge, 3, INT64_MAX);
    lists_give(-BMI_EMSGSIZE, buffers, sizes, 3, ((bmi_size_t)1 << 32) + 60);
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
    WRONG(ops->post_recv_list(&id, self, buffers, sizes, 3, 60, NULL, BMI_EXT_ALLOC, 1, NULL, 0,
                              NULL));
    /* The arrays belong to the caller again when the call returns (docs/buffers.md). */
    {
        static char in[60000], out[60000];
        struct cut cut = cut_up(in, sizeof in, 1000, 0, 3);
        struct op receive = {0}, send = {0};

        fill(out, sizeof out, 3);
        CHECK_THAT(op_recv_cut(&receive, self, &cut, 6), ==, 0);
        for (int i = 0; i < cut.count; i++) {
            cut.buffers[i] = NULL;
            cut.sizes[i] = -1;
        }
        cut_free(&cut);
        cut = cut_up(out, sizeof out, 777, 0, 2);
        CHECK_THAT(op_send_cut(&send, self, &cut, 6), >=, 0);
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

    (void)side;
    begin();
    CHECK_THAT(ops->open_context(1), ==, 0);
    CHECK_THAT(op_recv(&pending, self, buffer, 8, 99), ==, 0);
    ids[0] = pending.id;
    host_enter_test_call();

    WRONG(ops->test(pending.id, NULL, errors, sizes, users, 0, 0));
    WRONG(ops->test(pending.id, &outcount, NULL, sizes, users, 0, 0));
    WRONG(ops->test(pending.id, &outcount, errors, NULL, users, 0, 0));
    WRONG(ops->test(pending.id, &outcount, errors, sizes, users, -1, 0));
    WRONG(ops->test(pending.id, &outcount, errors, sizes, users, 0, 1)); /* another context */
    WRONG(ops->testsome(1, NULL, &outcount, indices, errors, sizes, users, 0, 0));
    WRONG(ops->testsome(1, ids, NULL, indices, errors, sizes, users, 0, 0));
    WRONG(ops->testsome(1, ids, &outcount, NULL, errors, sizes, users, 0, 0));
    WRONG(ops->testsome(1, ids, &outcount, indices, NULL, sizes, users, 0, 0));
    WRONG(ops->testsome(1, ids, &outcount, indices, errors, NULL, users, 0, 0));
    WRONG(ops->testsome(1, ids, &outcount, indices, errors, sizes, users, -1, 0));
    WRONG(ops->testsome(0, ids, &outcount, indices, errors, sizes, users, 0, 0));
    WRONG(ops->testsome(-1, ids, &outcount, indices, errors, sizes, users, 0, 0));
    WRONG(ops->testcontext(1, NULL, &outcount, errors, sizes, users, 0, 0));
    WRONG(ops->testcontext(1, ids, NULL, errors, sizes, users, 0, 0));
    WRONG(ops->testcontext(1, ids, &outcount, NULL, sizes, users, 0, 0));
    WRONG(ops->testcontext(1, ids, &outcount, errors, NULL, users, 0, 0));
    WRONG(ops->testcontext(1, ids, &outcount, errors, sizes, users, -1, 0));
    WRONG(ops->testcontext(0, ids, &outcount, errors, sizes, users, 0, 0));
    WRONG(ops->testcontext(INT_MIN, ids, &outcount, errors, sizes, users, 0, 0));
    WRONG(ops->testunexpected(1, NULL, infos, 0));
    WRONG(ops->testunexpected(1, &outcount, NULL, 0));
    WRONG(ops->testunexpected(1, &outcount, ODD(infos), 0));
    WRONG(ops->testunexpected(0, &outcount, infos, 0));
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
    /* Addresses near a live id, and of other things. */
    WRONG(ops->test(pending.id + 8, &outcount, errors, sizes, users, 0, 0));
    WRONG(ops->cancel(pending.id + 8, 0));
    WRONG(ops->cancel((bmi_op_id_t)(intptr_t)buffer, 0));
    WRONG(ops->cancel((bmi_op_id_t)(intptr_t)self, 0));
    WRONG(ops->cancel(pending.id, 1)); /* its context is 0 */
    CHECK_THAT(outcount, ==, 5);
    CHECK_THAT(errors[0], ==, 5);
    CHECK_THAT(sizes[0], ==, 5);
    host_leave_test_call();

    CHECK(!op_done(&pending));
    CHECK_THAT(ops->cancel(pending.id, 0), ==, 0);
    op_failed(&pending, BMI_ECANCEL);
    /* Stale now. */
    WRONG(ops->test(pending.id, &outcount, errors, sizes, users, 0, 0));
    WRONG(ops->cancel(pending.id, 0));
    ops->close_context(1);
    end();
}

/* ---- contexts ---- */

static void context_arguments(struct side *side)
{
    static const bmi_context_id wrong[] = {-1, 16, 100, INT64_MAX, INT64_MIN};

    (void)side;
    begin();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        WRONG(ops->open_context(wrong[i]));
        ops->close_context(wrong[i]);
    }
    /* Opened twice, closed twice, closed unopened: open_context of 0..15 never fails, a host
     * would keep a mutex locked (section 4). */
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

/* ---- names ---- */

static void name_arguments(struct side *side)
{
    char stranger[64] = {0};

    (void)side;
    begin();
    CHECK(ops->method_addr_lookup(NULL) == NULL);
    CHECK(ops->rev_lookup_unexpected(NULL) == NULL);
    CHECK(ops->rev_lookup_unexpected(ODD(self)) == NULL);
    (void)ops->rev_lookup_unexpected((void *)stranger); /* any answer, no crash */
    CHECK(ops->rev_lookup_unexpected(self) != NULL);
    WRONG(ops->query_addr_range(NULL, "mx://*", 0));
    WRONG(ops->query_addr_range(self, NULL, 0));
    WRONG(ops->query_addr_range((void *)stranger, "mx://*", 0));
    WRONG(ops->query_addr_range(self, "", 8));
    WRONG(ops->query_addr_range(self, "mx://nonsense", 8));
    WRONG(ops->query_addr_range(self, "mx://127.0.0.1", 129));
    WRONG(ops->query_addr_range(self, "mx://127.0.0.1", 33));
    CHECK_THAT(ops->query_addr_range(self, "mx://*", 0), ==, 1);
    CHECK_THAT(ops->query_addr_range(self, "mx://*", -1), ==, 1);
    end();
}

static const struct scenario scenarios[] = {
    SOLO(every_call_without_an_instance_is_refused, calls_without_an_instance),
    SOLO(initialize_checks_its_arguments, initialize_arguments),
    SOLO(set_info_and_get_info_check_keys_and_pointers, info_keys),
    SOLO(memalloc_and_memfree_check_their_arguments, memory_arguments),
    SOLO(posts_check_their_arguments, post_arguments),
    SOLO(list_posts_check_their_arguments, list_arguments),
    SOLO(test_calls_and_cancel_check_their_arguments, test_arguments),
    SOLO(open_context_and_close_context_check_their_arguments, context_arguments),
    SOLO(name_calls_check_their_arguments, name_arguments),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
