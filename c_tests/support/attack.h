/*
 * Assaults of an intruder on an endpoint: it claims everything that is known of one of that endpoint's peers.
 *
 *     learn()      who is behind a door, as every caller is told
 *     attack()     as that peer: asks, answers in its place, sends what only it could mean, floods
 *
 * Each introduction makes a peer of its own at most, and what is sent on it is that peer's.
 *
 * Owns: its links. Knows nothing of: those who are attacked, but for the receives of service.h that it tries to match.
 */
#ifndef C_TESTS_ASSAULT_H
#define C_TESTS_ASSAULT_H

#include "intruder.h"

enum { STRANGERS_MAX = 64 }; /* peers of its own that an attack may leave with a server */

/* Asks a server, with that id of the intruder's. */
void ask_as(struct intruder *intruder, uint64_t id, int64_t number);
struct identity learn(const struct door *door);
/* A server answers questions; other hosts only keep them. */
void attack(const struct door *door, const struct identity *as, bool is_server);
/* Datagrams that say they come from there. */
void forge(const struct door *door, uint32_t from, int from_port);

#endif
