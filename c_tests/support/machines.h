/*
 * Machines of their own for a test's sides: namespaces with names, interfaces and a hosts file of their own, on
 * networks that the director creates (root).
 *
 *      the director's namespace: networks, each a bridge       a machine: one process, or several
 *      ┌───── storage ─────┐   ┌── management ──┐              ┌──────────────────────────────┐
 *      │   port1   port2   │   │     port3      │              │ lo, then what was plugged in │
 *      └─────┼───────┼─────┘   └───────┼────────┘              │ /etc/hosts and /mnt its own  │
 *          eth0    eth1              eth0                      └──────────────────────────────┘
 *         server   client            client
 *
 * A machine, its mounts and its interfaces live as long as the processes in it; the harness kills sides whose
 * director dies: however the program ends, nothing is left.
 *
 * Owns nothing. Knows nothing of: the sides' tasks.
 */
#ifndef C_TESTS_MACHINES_H
#define C_TESTS_MACHINES_H

#include "world.h"

/* Directory of a machine's own files; its hosts file is "hosts". */
#define MACHINE_FILES "/mnt"

/* ---- for sides ---- */

/* Makes this process a machine with that number, without any network yet; returns when the director has called
 * machine_on(). */
void become_machine(struct side *side);
/* Role of a machine without a task of its own, for sides that enter it. */
void be_a_machine(struct side *side);
/* Moves this process to that machine; returns when the director has called machine_shared(). */
void enter_machine(struct side *side);

/* ---- for directors ---- */

/* Moves this process to a namespace of its own, without networks; those of the test before disappear with its last
 * process. Skips this test where machines cannot be made, and prints what is missing. `needs` is another program
 * that is needed, or NULL. */
void machines_begin(const char *needs);
/* Spawns a side that becomes a machine, with lo up. */
struct child *machine(struct world *world, const char *role);
/* Spawns a side that enters a machine. */
struct child *machine_shared(struct world *world, const char *role, struct child *machine);
void machine_on(struct child *machine);
/* Runs a command on a machine; it must succeed. */
void at(struct child *machine, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Plugs an interface of the machine into a network; without an address it stays down. */
void plug(struct child *machine, const char *interface, const char *network, const char *address);
/* Lets the name stand for this address, and for no other, in the file of that name. */
void name_machine(struct child *machine, const char *file, const char *address, const char *name);

#endif
