/*
 * A client that moves bulk data beside small requests, and the director's orders to it and to a relay on its way.
 *
 *     director ── do, size ──► client ◄────► relay ◄────► server
 *              ── order, value ────────────►   │
 *              ◄── is ──────────────────────── ┘
 *
 * Small requests are answered meanwhile, contents are checked, and the session goes on: a receive posted from the
 * beginning, which no message matches, would fail if it ended (service.h). Knows nothing of: what a relay does.
 */
#ifndef C_TESTS_BULK_H
#define C_TESTS_BULK_H

#include "world.h"

#define KIB 1024
#define MIB (1024 * KIB)

enum {
    SMALL = 40 * KIB,      /* travels with its request */
    LARGE = 300 * KIB,     /* announced and pulled */
    BULK = 16 * MIB,
    MIDDLE = 4 * MIB,      /* position in a bulk transfer where something happens */
    BULK_MS = 5000,        /* limit for bulk data beside small requests */
    STALLED_MS = 15000,    /* limit when its data link stalls */
    SMALL_MS = 2000,       /* limit for a small request meanwhile */
};

/* Orders to a client, and to a relay. */
enum bulk_order { DO_GET, DO_PUT, DO_CANCEL, DO_END };
enum order { TREAT, DETAIL, TELL_CONNECTIONS, TELL_BYTES, TELL_BUSY, REPLAY, END };

struct scene {
    struct child *server, *relay, *client;
};

/* Role of a client: receives its server's "endpoint", and carries out orders. At the end it reports the number of
 * warnings in its log. */
void bulk_client(struct side *side);

/* For directors: gives a relay an order; returns its answer. */
int64_t order(struct child *relay, enum order what, int64_t value);
/* For directors: has the client do this, beside small requests, within that time. */
void have_done(const struct scene *scene, enum bulk_order what, int64_t size, int ms);
/* For directors: starts the role "relay" in front of a running server; returns the number at which it listens. */
int64_t spawn_relay(struct world *world, struct scene *scene);
/* For directors: return the links of all sessions so far, and the bytes over data links. */
int64_t connections_of(const struct scene *scene);
int64_t bytes_of(const struct scene *scene);
/* For directors: waits until large messages use a data link. */
void await_data_link(const struct scene *scene);
/* For directors: ends client and relay. The client must have logged that many warnings. */
void end_client(const struct scene *scene, int warnings);
/* For directors: ends client, relay and server. The client has logged no warning, and no operation of the server
 * has failed. */
void end_scene(const struct scene *scene);

#endif
