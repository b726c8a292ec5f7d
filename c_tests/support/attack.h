/*
 * Attacks of an intruder on an endpoint: it claims everything that is known about one of that endpoint's peers.
 *
 *     learn()      asks who is behind a door, as every caller may
 *     attack()     as that peer: asks, answers in its place, sends packets that only the peer may send, floods
 *
 * Each introduction makes at most a peer of its own, and what is sent on it belongs to that peer.
 *
 * Owns: its links. Knows nothing of: those it attacks, except for the receives of service.h that it tries to
 * match.
 */
#ifndef C_TESTS_ASSAULT_H
#define C_TESTS_ASSAULT_H

#include "intruder.h"

enum { STRANGERS_MAX = 64 }; /* peers of its own that an attack may leave with a server */

/* Sends a question to a server with that id of the intruder. */
void ask_as(struct intruder *intruder, uint64_t id, int64_t number);
struct identity learn(const struct door *door);
/* `is_server`: the endpoint answers questions; other hosts only keep them. */
void attack(const struct door *door, const struct identity *as, bool is_server);
/* Sends datagrams with that source address. */
void forge(const struct door *door, uint32_t from, int from_port);

#endif
