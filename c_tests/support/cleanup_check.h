/*
 * Resources of a process, and those that are left later.
 *
 *     holdings_take(&before)   ... library ...   holdings_compare(&before, &after): names what
 *                                                is new
 *     doors_take(&doors)  while it is open       doors_gone(&doors)  afterwards
 *
 * Descriptors are compared by what they refer to (/proc/self/fd), not by number or count; doors, which are
 * listening TCP sockets and abstract Unix sockets, by their inodes in /proc/net.
 *
 * Over rdm connected TCP sockets are not counted: when it is closed, libfabric's tcp provider (1.17) leaks those
 * whose connection request it has accepted and not answered yet, one for each peer that was about to connect.
 * Listening sockets are counted.
 *
 * Owns: nothing of the system. Knows nothing of: the library, except for its mappings (memfd).
 */
#ifndef C_TESTS_LEFTOVERS_H
#define C_TESTS_LEFTOVERS_H

#include "check.h"

enum { HELD_MAX = 256, HELD_TEXT = 96 };

/* Sorted texts, without the numbers in which two of a kind differ. */
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
/* Takes `after`, and fails the test with a message if it has something that `before` has not. */
void holdings_compare(const struct holdings *before, struct holdings *after);

/* Sockets of this process that others can connect to. */
struct doors {
    int tcp, unix_;
    unsigned long inodes[HELD_MAX];
    int count;
};

void doors_take(struct doors *doors);
/* Fails the test if one of them is still open anywhere on this machine. */
void doors_gone(const struct doors *doors);

#endif
