/* See limit.h. */
#include "limit.h"

#include "memory.h"

#include <sys/mman.h>

enum { MIB = 1 << 20, LEFT = MIB / 8 };

rlim_t limit_to(int resource, rlim_t value)
{
    struct rlimit limit;
    rlim_t before;

    CHECK(getrlimit(resource, &limit) == 0);
    before = limit.rlim_cur;
    limit.rlim_cur = value < limit.rlim_max ? value : limit.rlim_max;
    CHECK(setrlimit(resource, &limit) == 0);
    return before;
}

void leave_only(size_t mib)
{
    limit_to(RLIMIT_AS, (rlim_t)address_space_kib(0) * 1024 + mib * MIB);
}

/* Last piece of memory; each piece begins with the address of the one before it. */
static void **taken;

void take_all(void)
{
    void *left = malloc(LEFT);

    for (size_t size = MIB; size >= 64; size /= 4)
        for (void **piece; (piece = malloc(size)) != NULL; taken = piece)
            *piece = taken;
    free(left);
}

void give_all(void)
{
    while (taken != NULL) {
        void **piece = taken;

        taken = *piece;
        free(piece);
    }
}

void *untouched(size_t size)
{
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(place != MAP_FAILED);
    return place;
}
