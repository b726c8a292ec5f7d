/* See limit.h. */
#include "limit.h"

#include "memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

enum { MIB = 1 << 20, LEFT = MIB / 8 };

void leave_only(size_t mib)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = (rlim_t)address_space_kib(0) * 1024 + mib * MIB;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Each piece begins with the address of the one before it. */
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
