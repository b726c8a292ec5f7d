/*
 * A crowd of servers: all call all at the same instant, also themselves, and begin anew in each round.
 *
 *     director: crowd_meets()          role "server": one_of_crowd(), sixteen times
 *
 * A server asks each of them, over the session that it calls for that, and is asked by each over another one. Each request
 * comes once, in its order, and is answered once.
 *
 * Owns: what a server has under way. Knows nothing of: the network between them.
 */
#ifndef C_TESTS_CROWD_H
#define C_TESTS_CROWD_H

#include "world.h"

void one_of_crowd(struct side *side);
void crowd_meets(struct world *world);

#endif
