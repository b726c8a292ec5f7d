/*
 * A client that moves bulk data beside small requests, and the director's orders to it and to a relay on its way.
 *
 *     director ── do, size ──► client ◄────► relay ◄────► server
 *              ── order, value ────────────►   │
 *              ◄── is ──────────────────────── ┘
 *
 * Small requests are answered meanwhile, contents are right, and the session goes on: a receive posted from the beginning,
 * which no message matches, tells of its end (service.h). Knows nothing of: what a relay does.
 */
#ifndef C_TESTS_BULK_H
#define C_TESTS_BULK_H

#include "world.h"

#define KIB 1024
#define MIB (1024 * KIB)

enum {
    SMALL = 40 * KIB,      /* goes with its request */
    LARGE = 300 * KIB,     /* is asked for */
    BULK = 16 * MIB,
    MIDDLE = 4 * MIB,      /* of a bulk, where something happens */
    BULK_MS = 5000,        /* for a bulk beside small requests */
    STALLED_MS = 15000,    /* likewise, when its data link stands still */
    SMALL_MS = 2000,       /* for a small request meanwhile */
};

/* Orders to a client, and to a relay. */
enum bulk_order { DO_GET, DO_PUT, DO_CANCEL, DO_END };
enum order { TREAT, DETAIL, TELL_CONNECTIONS, TELL_BYTES, TELL_BUSY, REPLAY, END };

struct scene {
    struct child *server, *relay, *client;
};

/* The client: hears its server's "endpoint", and does what it is told. At its end it tells the number of its log's warnings. */
void bulk_client(struct side *side);

/* For directors: has a relay obey; its answer. */
int64_t order(struct child *relay, enum order what, int64_t value);
/* For directors: the client does it, beside small requests, within that time. */
void have_done(const struct scene *scene, enum bulk_order what, int64_t size, int ms);
/* For directors: begins the role "relay" of a server that serves; returns the number at which it listens. */
int64_t spawn_relay(struct world *world, struct scene *scene);
/* For directors: the links of all sessions so far, and the bytes of the data links. */
int64_t connections_of(const struct scene *scene);
int64_t bytes_of(const struct scene *scene);
/* For directors: until large messages go over a data link. */
void await_data_link(const struct scene *scene);
/* For directors: ends client and relay. The client has logged so many warnings. */
void end_client(const struct scene *scene, int warnings);
/* For directors: ends all three. The client has logged no warning, and no operation of the server has failed. */
void end_scene(const struct scene *scene);

#endif
