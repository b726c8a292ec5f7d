/*
 * A crowd of servers: each calls all at the same instant, itself included, and begins a new life in each round.
 *
 *     director: crowd_meets()          role "server": one_of_crowd(), sixteen times
 *
 * A server sends requests to each of them over the session of its call, and gets requests from each over another
 * one. Each request arrives once, in order, and is answered once.
 *
 * Owns: a server's operations. Knows nothing of: the network between the servers.
 * Owns: what a server has under way. Knows nothing of: the network between them.
 */
#ifndef C_TESTS_CROWD_H
#define C_TESTS_CROWD_H

#include "world.h"

void one_of_crowd(struct side *side);
void crowd_meets(struct world *world);

#endif
