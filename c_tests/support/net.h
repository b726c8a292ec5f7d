/*
 * Hosts of their own for a test's sides: network namespaces around a hub (make check-net, root).
 *
 *      hub, the director's namespace
 *      ┌────────── bridge ──────────┐
 *      │ port0      port1     ...   │         198.51.100.1, .2, ...: hosts 0, 1, ...
 *      └───┼──────────┼─────────────┘
 *        side0      side0
 *        host 0     host 1
 *
 * A namespace lives as long as the processes in it, the harness kills sides whose director dies, and the director
 * has a namespace of its own: however the program ends, nothing is left.
 *
 * Owns nothing. Knows nothing of: what is between the ports (cable.h), the sides' tasks.
 */
#ifndef C_TESTS_NET_H
#define C_TESTS_NET_H

#include "host.h"
#include "world.h"

/* `run` runs a command, which must succeed; `tried` returns whether it did. */
void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool tried(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- for sides ---- */

/* Makes this process the host that the director plugs in next; returns its number. */
int become_host(struct side *side);
/* Moves this process to a namespace of another process; "net" is that of a host. */
void enter_namespace(pid_t other, const char *kind);
/* Like pair_join(), with a server on that host. */
struct bmi_method_addr *net_join(struct side *side, int host);
/* Polls until the director tells it to end. */
void net_part(struct side *side);

/* ---- for directors ---- */

/* Makes a new hub; that of the test before disappears with its last process. */
void make_hub(void);
/* Connects this child as that host, by a port on the bridge. */
void plug_in(struct child *child, int host);
/* Likewise, with the host's offloads off, so that it sends the frames of a cable. With `loose` its port stays off
 * the bridge, to be the end of a cable. */
void plug_in_plain(struct child *child, int host, bool loose);
/* Path of mx_shaper, which C_TESTS_SHAPER names. */
const char *shaper(void);

#endif
