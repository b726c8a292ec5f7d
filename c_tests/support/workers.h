/*
 * Threads that are cancelled (pthread_cancel) while they are in a call.
 *
 *     worker 1..n ── call, call, call ... ◄── pthread_cancel ── workers_cancel(): joins them
 *
 * A call is finished first: the thread ends after it, and holds nothing that the others need.
 *
 * Owns the threads. Knows nothing of: the library.
 */
#ifndef C_TESTS_WORKERS_H
#define C_TESTS_WORKERS_H

#include "check.h"

#include <stdatomic.h>

enum { WORKERS = 3, CANCEL_ROUNDS = 40 };

/* `work` with the number of the thread, below WORKERS. */
typedef void (*work_fn)(int number);

/* Has one to WORKERS threads work, and cancels them at another moment each round; returns how many there were. */
int workers_cancel(work_fn work, int round);

#endif
