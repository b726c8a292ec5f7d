/*
 * Assertions and deadlines, usable on both sides of a two-process test.
 *
 *   role (child process)      a failed CHECK prints where and exits with 99
 *   director (cmocka test)    a failed CHECK ends the children and fails the test
 *
 * Owns: the clock, deadlines, and the factor by which everything is slower under a memory checker
 * (C_TESTS_SLOWER). Knows nothing of: the library.
 */
#ifndef C_TESTS_CHECK_H
#define C_TESTS_CHECK_H

/* Feature test macros must come before any system header, so every C file of the harness
 * includes this file, or one that does, first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

/* Headers that most programs use. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                 \
    ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, "%s", #condition))

/* CHECK_THAT(size, ==, 8): prints both values. */
#define CHECK_THAT(left, relation, right)                                                \
    do {                                                                                 \
        long long left_ = (long long)(left), right_ = (long long)(right);                \
        if (!(left_ relation right_))                                                    \
            check_failed(__FILE__, __LINE__, "%s %s %s: %s %s %lld",                     \
                         #left, #relation, #right, code_text(left_), #relation, right_); \
    } while (0)

#define FAIL(...) check_failed(__FILE__, __LINE__, __VA_ARGS__)

_Noreturn void check_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the name of a code of the library under test, or its number. Every suite has its own (codes.c). */
const char *code_text(long long code);

/* Milliseconds of the monotonic clock. */
int64_t now_ms(void);
/* Milliseconds of processor time that this process has used. */
int64_t cpu_ms(void);
/* Sleeps that long, however slow the machine is. */
void pause_ms(int ms);
/* 1 normally, more under a memory checker. */
int slower(void);

/* Rounds of a test that `make nightly` repeats for longer: C_TESTS_ROUNDS, or else `few`. */
int rounds(int few);

/* A point in time `ms` (times slower()) from now. */
typedef int64_t deadline_t;
deadline_t deadline_in(int ms);
bool deadline_over(deadline_t deadline);
/* Milliseconds left for poll(), never negative. */
int deadline_left(deadline_t deadline);

/* Milliseconds of one wait before a test gives up. */
#define WAIT_MS 20000

/* UNTIL(op_done(&op)) host_pump(5): repeats a step until the condition holds, and fails the test after WAIT_MS. */
#define UNTIL(condition) UNTIL_WITHIN(WAIT_MS, condition)
#define UNTIL_WITHIN(ms, condition)                                                      \
    for (deadline_t until_ = deadline_in(ms); !(condition);                              \
         deadline_over(until_) ? FAIL("not in time: %s", #condition) : (void)0)

#endif
