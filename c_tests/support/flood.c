/* See flood.h. */
#include "flood.h"

#include <stdlib.h>

#include "limit.h"
#include "port.h"

struct flood flood_begin(struct world *world, const char *role, int mib)
{
    struct flood flood = {.server = spawn(world, role)};

    flood.endpoint = child_hear(flood.server, "endpoint");
    child_tell(flood.server, "mib", mib);
    child_hear(flood.server, "limited");
    return flood;
}

void flood_join(struct world *world, struct flood *flood, const char *role, int count)
{
    CHECK(flood->count + count <= FLOOD_MAX);
    for (int i = 0; i < count; i++) {
        struct child *member = spawn(world, role);

        child_tell(member, "endpoint", flood->endpoint);
        flood->members[flood->count++] = member;
    }
}

void flood_over(struct flood *flood, int ms)
{
    pause_ms(ms);
    for (int i = 0; i < flood->count; i++)
        child_kill(flood->members[i]);
    child_tell(flood->server, "over", 0);
}

struct child *flood_survive(struct world *world, const struct flood *flood, const char *role)
{
    struct child *honest;

    /* The C library's heap keeps what it has grown to, so that there may be no place to map the
    * memory of a link over shared memory. Then peers come over TCP, if they may. */
    if (port_is("local"))
        unsetenv("MX_PORT");
    honest = spawn(world, role);
    child_tell(honest, "endpoint", flood->endpoint);
    return honest;
}

void flood_limit(struct side *side, int64_t endpoint, bool starved)
{
    tell(side, "endpoint", endpoint);
    leave_only((size_t)hear(side, "mib"));
    if (starved)
        take_all();
    tell(side, "limited", 0);
}

void flood_ended(struct side *side)
{
    hear(side, "over");
    give_all();
}
