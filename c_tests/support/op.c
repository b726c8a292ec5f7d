/* See op.h. */
#include "op.h"

#include "host.h"

bool ops_on_many_threads;

static atomic_int reported;

/* Checks the words that the real host reads from an id while the operation is pending (section 6.2). */
static void check_id_block(const struct op *op)
{
    int64_t number;
    void *block_address;
    int type;

    memcpy(&number, (void *)(intptr_t)op->id, sizeof number);
    CHECK_THAT(number, ==, op->id);
    memcpy(&block_address, (char *)(intptr_t)op->id + ADDRESS_AT, sizeof block_address);
    CHECK(block_address != NULL);
    memcpy(&type, block_address, sizeof type);
    CHECK_THAT(type, ==, METHOD_ID);
}

static void prepare(struct op *op)
{
    host_load();
    op->id = -1;
    op->actual = -1;
    op->size = -1;
    op->error = 1;
    atomic_store(&op->completions, 0);
}

/* With several threads another thread may have reported the operation already: then nothing of `op` but `posted`
 * is touched, and its id block may belong to another operation. */
int op_posted(struct op *op, int result)
{
    op->posted = result;
    CHECK_THAT(result, <=, 1);
    if (result == 1) {
        op->error = 0;
        op->size = op->actual;
        atomic_fetch_add(&op->completions, 1);
    } else if (result == 0 && !ops_on_many_threads) {
        check_id_block(op);
    }
    return result;
}

int op_send(struct op *op, struct bmi_method_addr *to, const void *buffer, bmi_size_t size,
            bmi_msg_tag_t tag)
{
    prepare(op);
    return op_posted(op, ops->post_send(&op->id, to, buffer, size, BMI_EXT_ALLOC, tag, op,
                                     op->context, NULL));
}

int op_send_unexpected(struct op *op, struct bmi_method_addr *to, const void *buffer,
                       bmi_size_t size, bmi_msg_tag_t tag)
{
    prepare(op);
    return op_posted(op, ops->post_sendunexpected(&op->id, to, buffer, size, BMI_EXT_ALLOC, tag,
                                               op, op->context, NULL));
}

int op_recv(struct op *op, struct bmi_method_addr *from, void *buffer, bmi_size_t size,
            bmi_msg_tag_t tag)
{
    prepare(op);
    return op_posted(op, ops->post_recv(&op->id, from, buffer, size, &op->actual, BMI_EXT_ALLOC,
                                     tag, op, op->context, NULL));
}

struct cut cut_up(void *buffer, bmi_size_t size, bmi_size_t first, bmi_size_t step,
                  int zero_every)
{
    struct cut cut = {.total = size};
    bmi_size_t at = 0, length = first;
    int room = 16;

    cut.buffers = malloc((size_t)room * sizeof *cut.buffers);
    cut.sizes = malloc((size_t)room * sizeof *cut.sizes);
    while (at < size || cut.count == 0) {
        bmi_size_t take = length < size - at ? length : size - at;

        if (cut.count + 2 > room) {
            room *= 2;
            cut.buffers = realloc(cut.buffers, (size_t)room * sizeof *cut.buffers);
            cut.sizes = realloc(cut.sizes, (size_t)room * sizeof *cut.sizes);
        }
        CHECK(cut.buffers != NULL && cut.sizes != NULL);
        cut.buffers[cut.count] = (char *)buffer + at;
        cut.sizes[cut.count++] = take;
        at += take;
        length += step;
        if (zero_every > 0 && cut.count % (zero_every + 1) == zero_every) {
            cut.buffers[cut.count] = NULL;
            cut.sizes[cut.count++] = 0;
        }
    }
    return cut;
}

void cut_free(struct cut *cut)
{
    free(cut->buffers);
    free(cut->sizes);
}

int op_send_cut(struct op *op, struct bmi_method_addr *to, const struct cut *cut,
                bmi_msg_tag_t tag)
{
    prepare(op);
    return op_posted(op, ops->post_send_list(&op->id, to, (const void *const *)cut->buffers,
                                          cut->sizes, cut->count, cut->total, BMI_EXT_ALLOC,
                                          tag, op, op->context, NULL));
}

int op_send_unexpected_cut(struct op *op, struct bmi_method_addr *to, const struct cut *cut,
                           bmi_msg_tag_t tag)
{
    prepare(op);
    return op_posted(op,
                  ops->post_sendunexpected_list(&op->id, to, (const void *const *)cut->buffers,
                                                cut->sizes, cut->count, cut->total,
                                                BMI_EXT_ALLOC, tag, op, op->context, NULL));
}

int op_recv_cut(struct op *op, struct bmi_method_addr *from, const struct cut *cut,
                bmi_msg_tag_t tag)
{
    prepare(op);
    return op_posted(op, ops->post_recv_list(&op->id, from, (void *const *)cut->buffers,
                                          cut->sizes, cut->count, cut->total, &op->actual,
                                          BMI_EXT_ALLOC, tag, op, op->context, NULL));
}

void op_completed(void *user, bmi_op_id_t id, bmi_error_code_t error, bmi_size_t size,
                  bmi_context_id context)
{
    struct op *op = user;

    CHECK(op != NULL);
    CHECK_THAT(id, ==, op->id);
    CHECK_THAT(error, <=, 0);
    CHECK_THAT(context, ==, op->context);
    op->error = error;
    op->size = size;
    op->turn = atomic_fetch_add(&reported, 1);
    if (atomic_fetch_add(&op->completions, 1) != 0)
        FAIL("operation completed twice (%s)", code_text(error));
}

bool op_done(const struct op *op)
{
    return atomic_load(&op->completions) > 0;
}

bool op_wait_within(struct op *op, int ms)
{
    deadline_t deadline = deadline_in(ms);

    CHECK_THAT(op->posted, >=, 0);
    while (!op_done(op)) {
        if (deadline_over(deadline))
            return false;
        if (op->context == 0) {
            host_pump(5);
        } else {
            host_testunexpected(4, 0);
            host_testcontext(4, op->context, 5);
        }
    }
    CHECK_THAT(atomic_load(&op->completions), ==, 1);
    return true;
}

void op_wait(struct op *op)
{
    if (!op_wait_within(op, WAIT_MS))
        FAIL("operation does not complete");
}

void op_sent(struct op *op)
{
    op_wait(op);
    CHECK_THAT(op->error, ==, 0);
}

void op_received(struct op *op, bmi_size_t size)
{
    op_wait(op);
    CHECK_THAT(op->error, ==, 0);
    CHECK_THAT(op->size, ==, size);
}

void op_failed(struct op *op, int error)
{
    op_wait(op);
    CHECK_THAT(op->error, ==, -error);
}

int op_code(struct op *op)
{
    if (op->posted < 0)
        return op->posted;
    op_wait(op);
    return op->error;
}

void send_message(struct bmi_method_addr *to, const void *buffer, bmi_size_t size, bmi_msg_tag_t tag)
{
    struct op send = {0};

    CHECK_THAT(op_send(&send, to, buffer, size, tag), >=, 0);
    op_sent(&send);
}

void send_request(struct bmi_method_addr *to, const void *buffer, bmi_size_t size, bmi_msg_tag_t tag)
{
    struct op send = {0};

    CHECK_THAT(op_send_unexpected(&send, to, buffer, size, tag), >=, 0);
    op_sent(&send);
}

void receive_message(struct bmi_method_addr *from, void *buffer, bmi_size_t size, bmi_msg_tag_t tag)
{
    struct op receive = {0};

    CHECK_THAT(op_recv(&receive, from, buffer, size, tag), >=, 0);
    op_received(&receive, size);
}

bool try_ask(struct bmi_method_addr *server, const void *request, void *answer, bmi_size_t size, bmi_msg_tag_t tag)
{
    struct op receive = {0}, send = {0};

    if (op_recv(&receive, server, answer, size, tag) != 0)
        return false;
    op_send_unexpected(&send, server, request, size, tag);
    if (op_code(&send) != 0 && !op_done(&receive))
        CHECK_THAT(ops->cancel(receive.id, 0), ==, 0);
    op_wait(&receive);
    if (receive.error != 0)
        return false;
    CHECK_THAT(receive.size, ==, size);
    return true;
}
