/* See guard.h. */
#include "guard.h"

#include <sys/mman.h>

struct room room_for(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), length = (size + page - 1) / page * page;
    struct room room = {.length = length > 0 ? length : page};
    char *all = mmap(NULL, room.length + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(all != MAP_FAILED);
    room.pages = all + page;
    room.bytes = room.pages + room.length - size;
    return room;
}

void room_lend(const struct room *room)
{
    CHECK(mprotect(room->pages, room->length, PROT_READ | PROT_WRITE) == 0);
}

void room_take_away(const struct room *room)
{
    CHECK(mprotect(room->pages, room->length, PROT_NONE) == 0);
}
