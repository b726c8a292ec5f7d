/*
 * Threads that are cancelled (pthread_cancel) while they are in a call.
 *
 *     worker 1..n ── call, call, call ... ◄── pthread_cancel ── workers_cancel(): joins them
 *
 * The call is finished first: the thread ends after it, and holds nothing that other threads need.
 *
 * Owns the threads. Knows nothing of: the library.
 */
#ifndef C_TESTS_WORKERS_H
#define C_TESTS_WORKERS_H

#include "check.h"

#include <stdatomic.h>

enum { WORKERS = 3, CANCEL_ROUNDS = 40 };

/* Works as the thread with that number, below WORKERS. */
typedef void (*work_fn)(int number);

/* Starts one to WORKERS threads, and cancels them at another moment each round; returns their number. */
int workers_cancel(work_fn work, int round);

#endif
