/*
 * Endpoint ids of a test program, which no other test program of this machine uses.
 *
 *     1024 ... 6143 │ 6144 ... 28671 │ 28672 ... 29695 │ 29696 ... 32767        │ outgoing connections
 *     other tests   │ mx/, blocks of │ the library's   │ bmi/, net/; mx-sys     │
 *     try at random │ 1024           │ own block       │ (Rust): blocks of 64   │
 *
 * A block is claimed by the name of an abstract Unix socket, which the program's director keeps open: so a number
 * that a killed or finalized server gives up for a moment stays free for its successor.
 *
 * Knows nothing of: the library.
 */
#ifndef C_TESTS_IDS_H
#define C_TESTS_IDS_H

#include "check.h"

enum { IDS = 64 }; /* number in a program's block */

/* Claims the first free block of `size` ids between `first` and `last`, and returns its first id. Waits while all
 * are claimed, and ends the program after WAIT_MS. */
int claim_block(int first, int last, int size);

/* For the director: claims the program's own block. */
void ids_claim(void);
/* For the director: makes the next side try ids from the block's next one on, so that it does not take one that
 * another side is about to open again. */
void ids_turn(void);
/* For sides: returns the id to try at this attempt, below IDS. */
int ids_try(int attempt);

#endif
