/*
 * Machines of their own for a test's sides: namespaces with names, interfaces and a hosts file of
 * their own, on networks that the director lays (root).
 *
 *      the director's namespace: networks, each a bridge       a machine: one process, or some
 *      ┌───── storage ─────┐   ┌── management ──┐              ┌──────────────────────────────┐
 *      │   port1   port2   │   │     port3      │              │ lo, then what was plugged in │
 *      └─────┼───────┼─────┘   └───────┼────────┘              │ /etc/hosts and /mnt its own  │
 *          eth0    eth1              eth0                      └──────────────────────────────┘
 *         server   client            client
 *
 * A machine lives as long as the processes in it, and so do its mounts and what is plugged in; the
 * harness kills sides whose director dies: whatever ends the program, nothing is left.
 *
 * Owns nothing. Knows nothing of: what the sides do.
 */
#ifndef C_TESTS_MACHINES_H
#define C_TESTS_MACHINES_H

#include "world.h"

/* Where the files of a machine's own can be; its hosts file is hosts. */
#define MACHINE_FILES "/mnt"

/* ---- for sides ---- */

/* This process becomes a machine with that number, without any network yet; it goes on when the director
 * has called machine_on(). */
void become_machine(struct side *side);
/* A machine with nothing of its own, for the sides that enter it. */
void be_a_machine(struct side *side);
/* This process goes to that machine, when the director has called machine_shared(). */
void enter_machine(struct side *side);

/* ---- for directors ---- */

/* This process goes to a namespace of its own, without networks; those of the test before go with its last
 * process. Skips this test where machines cannot be made, and says what is missing. `needs` is another program
 * that is needed, or NULL. */
void machines_begin(const char *needs);
/* A machine, made by a side that becomes one. It has lo, which is up. */
struct child *machine(struct world *world, const char *role);
/* A side that enters a machine. */
struct child *machine_shared(struct world *world, const char *role, struct child *machine);
void machine_on(struct child *machine);
/* Runs a command on a machine; it must succeed. */
void at(struct child *machine, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Plugs an interface of the machine into a network; without an address it stays down. */
void plug(struct child *machine, const char *interface, const char *network, const char *address);
/* The name stands for this address now, and for no other; in the file of that name. */
void name_machine(struct child *machine, const char *file, const char *address, const char *name);

#endif
