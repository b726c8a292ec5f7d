/* See stacks.h. */
#include "stacks.h"

#include "check.h"

#include <sys/mman.h>
#include <ucontext.h>

enum { GUARD = 1 << 20, NESTED = 1, PAINT = 0xa5 };

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

static size_t small, large; /* bytes */
/* A small stack and a large one, and the same for calls that a callback of the library makes. */
static _Thread_local struct stack stacks[1 + NESTED][2];
static _Thread_local struct call *current;
static _Thread_local int nested;

static void paint(unsigned char *from, const unsigned char *to)
{
    memset(from, PAINT, (size_t)(to - from));
}

static struct stack *stack_of(bool is_large)
{
    struct stack *stack;

    CHECK_THAT(nested, <=, NESTED);
    stack = &stacks[nested][is_large];
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

/* Returns the bytes used since the stack was painted, and paints it again. */
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
    } most[64];
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

word on_stack(const char *name, bool is_large, void (*function)(void), const word *arguments)
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

bool are_stacks_wanted(void)
{
    const char *sizes = getenv("C_TESTS_STACKS");
    unsigned kib[2];

    if (sizes == NULL)
        return false;
    if (large == 0) {
        CHECK(sscanf(sizes, "%u %u", &kib[0], &kib[1]) == 2);
        small = (size_t)kib[0] << 10;
        large = (size_t)kib[1] << 10;
    }
    return true;
}
