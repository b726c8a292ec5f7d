/* The table of libbmi_mx, each entry on a stack of its own (stacks.h). */
#include "bmi.h"
#include "stacks.h"

static const struct bmi_method_ops *inner;

#define CALL(large, name, ...)                                                   \
    on_stack(#name, large, (void (*)(void))inner->name, (const word[ARGUMENTS]){__VA_ARGS__})
#define W(value) (word)(value)

static int initialize(struct bmi_method_addr *listen, int id, int flags, char *options)
{
    return (int)CALL(true, initialize, W(listen), id, flags, W(options));
}

static int finalize(void)
{
    return (int)CALL(true, finalize, 0);
}

static int set_info(int option, void *parameter)
{
    return (int)CALL(false, set_info, option, W(parameter));
}

static int get_info(int option, void *parameter)
{
    return (int)CALL(false, get_info, option, W(parameter));
}

static void *memalloc(bmi_size_t size, bmi_op_type type)
{
    return (void *)CALL(false, memalloc, W(size), W(type));
}

static int memfree(void *buffer, bmi_size_t size, bmi_op_type type)
{
    return (int)CALL(false, memfree, W(buffer), W(size), W(type));
}

static int unexpected_free(void *buffer)
{
    return (int)CALL(false, unexpected_free, W(buffer));
}

static int post_send(bmi_op_id_t *id, struct bmi_method_addr *peer, const void *buffer, bmi_size_t size,
                     bmi_buffer_type type, bmi_msg_tag_t tag, void *user, bmi_context_id context, bmi_hint hints)
{
    return (int)CALL(false, post_send, W(id), W(peer), W(buffer), W(size), W(type), W(tag), W(user), W(context),
                     W(hints));
}

static int post_sendunexpected(bmi_op_id_t *id, struct bmi_method_addr *peer, const void *buffer, bmi_size_t size,
                               bmi_buffer_type type, bmi_msg_tag_t tag, void *user, bmi_context_id context,
                               bmi_hint hints)
{
    return (int)CALL(false, post_sendunexpected, W(id), W(peer), W(buffer), W(size), W(type), W(tag), W(user),
                     W(context), W(hints));
}

static int post_recv(bmi_op_id_t *id, struct bmi_method_addr *peer, void *buffer, bmi_size_t size,
                     bmi_size_t *actual, bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                     bmi_context_id context, bmi_hint hints)
{
    return (int)CALL(false, post_recv, W(id), W(peer), W(buffer), W(size), W(actual), W(type), W(tag), W(user),
                     W(context), W(hints));
}

static int test(bmi_op_id_t id, int *count, bmi_error_code_t *error, bmi_size_t *size, void **user, int idle_ms,
                bmi_context_id context)
{
    return (int)CALL(false, test, W(id), W(count), W(error), W(size), W(user), W(idle_ms), W(context));
}

static int testsome(int incount, bmi_op_id_t *ids, int *count, int *indexes, bmi_error_code_t *errors,
                    bmi_size_t *sizes, void **users, int idle_ms, bmi_context_id context)
{
    return (int)CALL(false, testsome, incount, W(ids), W(count), W(indexes), W(errors), W(sizes), W(users), idle_ms,
                     W(context));
}

static int testcontext(int incount, bmi_op_id_t *ids, int *count, bmi_error_code_t *errors, bmi_size_t *sizes,
                       void **users, int idle_ms, bmi_context_id context)
{
    return (int)CALL(false, testcontext, incount, W(ids), W(count), W(errors), W(sizes), W(users), idle_ms,
                     W(context));
}

static int testunexpected(int incount, int *count, struct bmi_method_unexpected_info *infos, int idle_ms)
{
    return (int)CALL(false, testunexpected, incount, W(count), W(infos), idle_ms);
}

static struct bmi_method_addr *method_addr_lookup(const char *text)
{
    return (struct bmi_method_addr *)CALL(false, method_addr_lookup, W(text));
}

static int post_send_list(bmi_op_id_t *id, struct bmi_method_addr *peer, const void *const *buffers,
                          const bmi_size_t *sizes, int count, bmi_size_t total, bmi_buffer_type type,
                          bmi_msg_tag_t tag, void *user, bmi_context_id context, bmi_hint hints)
{
    return (int)CALL(false, post_send_list, W(id), W(peer), W(buffers), W(sizes), count, W(total), W(type), W(tag),
                     W(user), W(context), W(hints));
}

static int post_recv_list(bmi_op_id_t *id, struct bmi_method_addr *peer, void *const *buffers,
                          const bmi_size_t *sizes, int count, bmi_size_t total, bmi_size_t *actual,
                          bmi_buffer_type type, bmi_msg_tag_t tag, void *user, bmi_context_id context,
                          bmi_hint hints)
{
    return (int)CALL(false, post_recv_list, W(id), W(peer), W(buffers), W(sizes), count, W(total), W(actual),
                     W(type), W(tag), W(user), W(context), W(hints));
}

static int post_sendunexpected_list(bmi_op_id_t *id, struct bmi_method_addr *peer, const void *const *buffers,
                                    const bmi_size_t *sizes, int count, bmi_size_t total, bmi_buffer_type type,
                                    bmi_msg_tag_t tag, void *user, bmi_context_id context, bmi_hint hints)
{
    return (int)CALL(false, post_sendunexpected_list, W(id), W(peer), W(buffers), W(sizes), count, W(total), W(type),
                     W(tag), W(user), W(context), W(hints));
}

static int open_context(bmi_context_id context)
{
    return (int)CALL(false, open_context, W(context));
}

static void close_context(bmi_context_id context)
{
    (void)CALL(false, close_context, W(context));
}

static int cancel(bmi_op_id_t id, bmi_context_id context)
{
    return (int)CALL(false, cancel, W(id), W(context));
}

static const char *rev_lookup_unexpected(struct bmi_method_addr *address)
{
    return (const char *)CALL(false, rev_lookup_unexpected, W(address));
}

static int query_addr_range(struct bmi_method_addr *address, const char *wildcard, int netmask)
{
    return (int)CALL(false, query_addr_range, W(address), W(wildcard), netmask);
}

const struct bmi_method_ops *on_stacks(const struct bmi_method_ops *table)
{
    static const struct bmi_method_ops wrappers = {
        .initialize = initialize,
        .finalize = finalize,
        .set_info = set_info,
        .get_info = get_info,
        .memalloc = memalloc,
        .memfree = memfree,
        .unexpected_free = unexpected_free,
        .post_send = post_send,
        .post_sendunexpected = post_sendunexpected,
        .post_recv = post_recv,
        .test = test,
        .testsome = testsome,
        .testcontext = testcontext,
        .testunexpected = testunexpected,
        .method_addr_lookup = method_addr_lookup,
        .post_send_list = post_send_list,
        .post_recv_list = post_recv_list,
        .post_sendunexpected_list = post_sendunexpected_list,
        .open_context = open_context,
        .close_context = close_context,
        .cancel = cancel,
        .rev_lookup_unexpected = rev_lookup_unexpected,
        .query_addr_range = query_addr_range,
    };
    static struct bmi_method_ops outer;

    if (!are_stacks_wanted())
        return table;
    inner = table;
    outer = wrappers;
    outer.method_name = table->method_name;
    outer.flags = table->flags;
    return &outer;
}
