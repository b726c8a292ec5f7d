/* See limit.h. */
#include "limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MIB = 1 << 20, LEFT = MIB / 8 };

size_t address_space(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    CHECK(file != NULL);
    CHECK(fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

void leave_only(size_t mib)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = address_space() + mib * MIB;
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
