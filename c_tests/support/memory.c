/* See memory.h. */
#include "memory.h"

#include <dirent.h>

struct pages {
    long mapped, resident;
};

static struct pages pages_of(pid_t pid)
{
    struct pages pages = {0};
    char path[64];
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)(pid != 0 ? pid : getpid()));
    file = fopen(path, "re");
    CHECK(file != NULL);
    CHECK(fscanf(file, "%ld %ld", &pages.mapped, &pages.resident) == 2);
    fclose(file);
    return pages;
}

static int64_t kib(long pages)
{
    return (int64_t)pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int64_t resident_kib(pid_t pid)
{
    return kib(pages_of(pid).resident);
}

int64_t address_space_kib(pid_t pid)
{
    return kib(pages_of(pid).mapped);
}

bool maps(const char *name)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char line[4096];
    bool found = false;

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        found |= strstr(line, name) != NULL;
    fclose(file);
    return found;
}

int entries(const char *path)
{
    DIR *list = opendir(path);
    int count = 0;

    CHECK(list != NULL);
    while (readdir(list) != NULL)
        count++;
    closedir(list);
    return count;
}
