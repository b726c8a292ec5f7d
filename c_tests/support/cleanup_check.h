/*
 * The system's resources of a process, and those that are left later.
 *
 *     holdings_take(&before)   ... library ...   holdings_compare(&before, &after): names what
 *                                                is new
 *     doors_take(&doors)  while it is open       doors_gone(&doors)  afterwards
 *
 * Descriptors are compared by what they lead to (/proc/self/fd), not by number or count; doors,
 * which are listening sockets of TCP and abstract ones of Unix, by their inodes in /proc/net.
 *
 * Over rdm connected TCP sockets are not counted: libfabric's tcp provider (1.17) forgets those
 * whose connection request it has accepted and not answered yet when it is closed, one for each
 * peer that was just about to connect. Listening ones are.
 *
 * Owns: nothing of the system.
 * Knows nothing of: the library, but for the mappings it makes (memfd).
 */
#ifndef C_TESTS_LEFTOVERS_H
#define C_TESTS_LEFTOVERS_H

#include "check.h"

enum { HELD_MAX = 256, HELD_TEXT = 96 };

/* Texts, sorted, without the numbers in which two of a kind differ. */
struct held {
    int count;
    char text[HELD_MAX][HELD_TEXT];
};

struct holdings {
    struct held descriptors; /* "TCP socket, state 10", "anon_inode:[eventfd]", a path, ... */
    struct held threads;     /* their names */
    struct held mappings;    /* of memfds and of files in /dev/shm */
    struct held shared;      /* names of files in /dev/shm that this user made */
    long resident;           /* KiB */
};

void holdings_take(struct holdings *holdings);
/* Takes `after`, and fails the test when it has something that `before` has not; says what. */
void holdings_compare(const struct holdings *before, struct holdings *after);

/* Doors of this process: where others can knock. */
struct doors {
    int tcp, unix_;
    unsigned long inodes[HELD_MAX];
    int count;
};

void doors_take(struct doors *doors);
/* Fails the test when one of them is still open anywhere on this machine. */
void doors_gone(const struct doors *doors);

#endif
