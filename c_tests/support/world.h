/*
 * Processes of a test: every side runs in a process of its own, started afresh.
 *
 *      cmocka test = director                       (never touches the library)
 *        │ spawn: fork + exec of this program with --role
 *        ├──────────────► side "a" ──┐
 *        │                           │ line: a socket pair carrying notes
 *        └──────────────► side "b" ──┘
 *
 * A pair's two sides share one line. In a directed scenario each side's line goes to the director, which can kill
 * the side by its pid, spawn another, and pass notes on. Every wait has a deadline; a side that outlives it is
 * killed by its pid and fails the test; a side whose director dies is killed by the kernel.
 *
 * Owns: pids, lines, the exit statuses. Knows nothing of: the library, messages, addresses.
 */
#ifndef C_TESTS_WORLD_H
#define C_TESTS_WORLD_H

#include "check.h"

#include <sys/types.h>

/* A note on a line. */
struct note {
    char word[24];
    int64_t value;
};

/* One process of a test, seen from inside. */
struct side {
    int line;
    int64_t variant; /* number of this role in the scenario */
};

struct world;
struct child;

typedef void (*side_fn)(struct side *side);
typedef void (*director_fn)(struct world *world);

struct role {
    const char *name;
    side_fn run;
};

enum { ROLES = 5 };

/* One test, in exactly one of the three forms below. */
struct scenario {
    const char *name;
    int64_t variants[ROLES]; /* of the roles; the first is the director's, too */
    director_fn direct; /* NULL: run role 0 alone, or roles 0 and 1 as a pair */
    struct role roles[ROLES];
};

#define SOLO(sentence, only) SOLO_OF(sentence, 0, only)
#define PAIR(sentence, first, second) PAIR_OF(sentence, 0, first, 0, second)
#define DIRECTED(sentence, director, ...) DIRECTED_OF(sentence, 0, director, __VA_ARGS__)

/* Likewise, for tests that differ in one thing and share functions: each has a number, `side->variant`. */
#define SOLO_OF(sentence, variant, only) {#sentence, {variant}, NULL, {{"only", only}}}
#define PAIR_OF(sentence, variant_a, first, variant_b, second)                           \
    {#sentence, {variant_a, variant_b}, NULL, {{"a", first}, {"b", second}}}
/* The director reads the variant by variant_of(); all roles have it, too. */
#define DIRECTED_OF(sentence, variant, director, ...)                                    \
    {#sentence, {variant, variant, variant, variant, variant}, director, {__VA_ARGS__}}

/* Before harness_main(): every test of this program is skipped, for this reason. */
void skip_tests(const char *why);
/* Runs the tests, or one side of one. The last entry of `scenarios` has a NULL name. */
int harness_main(int argc, char **argv, const struct scenario *scenarios);

/* main() of a program with these tests. */
#define TESTS(...) TESTS_AFTER((void)0, __VA_ARGS__)
/* Likewise; the director and every side run `preparation` first. */
#define TESTS_AFTER(preparation, ...)                                    \
    int main(int argc, char **argv)                                      \
    {                                                                    \
        static const struct scenario scenarios[] = {__VA_ARGS__, {0}};   \
                                                                         \
        preparation;                                                     \
        return harness_main(argc, argv, scenarios);                      \
    }

/* ---- for sides ---- */

/* Sends a note to the other end of the line. */
void tell(struct side *side, const char *word, int64_t value);
/* Waits for this note, which must be the next, and returns its value. Makes no call of the library. */
int64_t hear(struct side *side, const char *word);
/* Returns whether a note has come (or the line was closed). */
bool heard_anything(struct side *side);

/* ---- for directors ---- */

int64_t variant_of(const struct world *world);
struct child *spawn(struct world *world, const char *role);
void child_tell(struct child *child, const char *word, int64_t value);
int64_t child_hear(struct child *child, const char *word);
/* Likewise, for a child that may take that long. */
int64_t child_hear_within(struct child *child, const char *word, int ms);
/* Kills a child by SIGKILL and its pid, and reaps it. */
void child_kill(struct child *child);
/* Stops a child by SIGSTOP and its pid; returns when all of its threads have stopped. */
void child_stop(struct child *child);
void child_continue(struct child *child);
/* Counts the running test as skipped, for this reason. Before it has spawned a side. */
_Noreturn void skip_test(const char *why);
/* Waits until the child has exited with 0. */
void child_end(struct child *child);
pid_t child_pid(const struct child *child);

/* Ends this process (side) or this test (director); see check.h. */
_Noreturn void world_give_up(const char *file, int line, const char *text);

#endif
