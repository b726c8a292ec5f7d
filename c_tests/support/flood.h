/*
 * A server of little memory, a flood of those who want all of it, and an honest peer afterwards.
 *
 *     flood_begin()    server, limited to so many MiB more     flood_limit()  the server's part
 *     flood_join()     members, who are told its endpoint
 *     flood_over()     after a while they are killed           "over"
 *     flood_survive()  an honest peer
 *
 * The words on the lines are "endpoint", "mib", "limited" and "over".
 *
 * Owns: the members. Knows nothing of: the library, what they do.
 */
#ifndef C_TESTS_FLOOD_H
#define C_TESTS_FLOOD_H

#include "world.h"

enum { FLOOD_MAX = 32, FLOOD_MS = 2500 };

struct flood {
    struct child *server, *members[FLOOD_MAX];
    int64_t endpoint;
    int count;
};

/* ---- for directors ---- */

/* A server of that role. */
struct flood flood_begin(struct world *world, const char *role, int mib);
/* So many more members of that role. */
void flood_join(struct world *world, struct flood *flood, const char *role, int count);
/* Lets them go on for so long, kills them, and tells the server. */
void flood_over(struct flood *flood, int ms);
/* A peer of that role, told the endpoint; over any port if it was the local one. */
struct child *flood_survive(struct world *world, const struct flood *flood, const char *role);

/* ---- for the server ---- */

/* Tells its endpoint, and has so much memory from then on as it is told; `starved`: none of that. */
void flood_limit(struct side *side, int64_t endpoint, bool starved);
/* When it has heard anything: that the flood is over. Gives back what `starved` took. */
void flood_ended(struct side *side);

#endif
