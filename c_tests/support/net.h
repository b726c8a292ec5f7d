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
 * A namespace lives as long as the processes in it, the harness kills sides whose director dies,
 * and the director has a namespace of its own: whatever ends the program, nothing is left.
 *
 * Owns nothing. Knows nothing of: what is between the ports (cable.h), what the sides do.
 */
#ifndef C_TESTS_NET_H
#define C_TESTS_NET_H

#include "host.h"
#include "world.h"

/* Runs a command, which must succeed; `tried` says whether it did. */
void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool tried(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- for sides ---- */

/* This process becomes the host that the director plugs in next; its number. */
int become_host(struct side *side);
/* Moves this process to a namespace of another one; "net" is that of a host. */
void enter_namespace(pid_t other, const char *kind);
/* As pair_join(), with a server on that host. */
struct bmi_method_addr *net_join(struct side *side, int host);
/* Keeps the library moving until the director says that this is the end. */
void net_part(struct side *side);

/* ---- for directors ---- */

/* A fresh hub; that of the test before goes with its last process. */
void make_hub(void);
/* Connects this child as that host, by a port on the bridge. */
void plug_in(struct child *child, int host);
/* The same with the host's offloads switched off, so that what it sends are the frames of a cable;
 * its port stays off the bridge if it is loose, for the end of a cable. */
void plug_in_plain(struct child *child, int host, bool loose);
/* mx_shaper, which C_TESTS_SHAPER names. */
const char *shaper(void);

#endif
