/* See stacks.h. */
#include "stacks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { GUARD = 1 << 20, ARGUMENTS = 12, NESTED = 1, PAINT = 0xa5 };

/* All arguments and results are integers or pointers. */
typedef long word;
typedef word (*any_fn)(word, word, word, word, word, word, word, word, word, word, word, word);

struct stack {
    unsigned char *bottom;
    size_t size;
};

/* One call of one thread. */
struct call {
    any_fn function;
    const word *arguments;
    word result;
    ucontext_t caller, callee;
};

static const struct bmi_method_ops *inner;
static size_t small, large; /* bytes */
/* The small one, the large one, and one for a callback of the library's that calls it. */
static _Thread_local struct stack stacks[2 + NESTED];
static _Thread_local struct call *current;
static _Thread_local int nested;

static void paint(unsigned char *from, const unsigned char *to)
{
    memset(from, PAINT, (size_t)(to - from));
}

static struct stack *stack_of(bool is_large)
{
    struct stack *stack = &stacks[current != NULL ? 1 + nested : is_large];

    CHECK_THAT(nested, <=, NESTED);
    if (stack->bottom == NULL) {
        unsigned char *start;

        stack->size = is_large ? large : small;
        start = mmap(NULL, GUARD + stack->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(start != MAP_FAILED);
        stack->bottom = start + GUARD;
        CHECK(mprotect(stack->bottom, stack->size, PROT_READ | PROT_WRITE) == 0);
        paint(stack->bottom, stack->bottom + stack->size);
    }
    return stack;
}

/* Bytes used since it was painted; painted again. */
static size_t depth(struct stack *stack)
{
    unsigned char *deepest = stack->bottom, *top = stack->bottom + stack->size;

    while (deepest < top && *deepest == PAINT)
        deepest++;
    paint(deepest, top);
    return (size_t)(top - deepest);
}

static void note(const char *name, size_t bytes)
{
    const char *path = getenv("C_TESTS_STACKS_LOG");
    static _Thread_local struct {
        const char *name;
        size_t bytes;
    } most[32];
    char line[200];
    size_t i = 0;
    int fd;

    if (path == NULL)
        return;
    while (most[i].name != NULL && most[i].name != name)
        i++;
    if (most[i].name != NULL && bytes <= most[i].bytes)
        return;
    most[i].name = name;
    most[i].bytes = bytes;
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    snprintf(line, sizeof line, "%s %zu %s\n", name, bytes, program_invocation_short_name);
    (void)!write(fd, line, strlen(line));
    close(fd);
}

static void enter(void)
{
    const word *a = current->arguments;

    current->result = current->function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}

static word on_stack(const char *name, bool is_large, void (*function)(void), const word *arguments)
{
    struct call call = {.function = (any_fn)function, .arguments = arguments}, *outer = current;
    struct stack *stack;

    nested += outer != NULL;
    stack = stack_of(is_large);
    CHECK(getcontext(&call.callee) == 0);
    call.callee.uc_stack.ss_sp = stack->bottom;
    call.callee.uc_stack.ss_size = stack->size;
    call.callee.uc_link = &call.caller;
    makecontext(&call.callee, enter, 0);
    current = &call;
    CHECK(swapcontext(&call.caller, &call.callee) == 0);
    current = outer;
    nested -= outer != NULL;
    note(name, depth(stack));
    return call.result;
}

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
    const char *sizes = getenv("C_TESTS_STACKS");
    unsigned kib[2];

    if (sizes == NULL)
        return table;
    CHECK(sscanf(sizes, "%u %u", &kib[0], &kib[1]) == 2);
    small = (size_t)kib[0] << 10;
    large = (size_t)kib[1] << 10;
    inner = table;
    outer = wrappers;
    outer.method_name = table->method_name;
    outer.flags = table->flags;
    return &outer;
}
