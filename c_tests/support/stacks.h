/*
 * Calls of either library on stacks of their own, as user-level threads make them.
 *
 *     test ──► wrapper ──► swapcontext ──► library
 *              one stack for each thread of the test: | guard pages | painted bytes ... | top
 *
 * A call that needs more stack ends the process (SIGSEGV). C_TESTS_STACKS has the sizes in KiB, of most calls and
 * of large ones such as initialize: "16 64". C_TESTS_STACKS_LOG names a file that gets a line for each call that
 * went deeper than all before: its name, bytes, the test.
 *
 * Owns: the stacks. Knows nothing of: the called functions.
 */
#ifndef C_TESTS_STACKS_H
#define C_TESTS_STACKS_H

#include <stdbool.h>

enum { ARGUMENTS = 12 };
/* All arguments and results are integers or pointers; a struct of two integers is passed as two. */
typedef long word;

/* Returns whether the environment asks for stacks. Called before any on_stack(). */
bool are_stacks_wanted(void);
/* Calls `function` on the thread's small or large stack. `name` has a static address. */
word on_stack(const char *name, bool is_large, void (*function)(void), const word *arguments);

/* Returns the same table, with calls on such stacks if they are wanted (stacks_table.c). */
struct bmi_method_ops;
const struct bmi_method_ops *on_stacks(const struct bmi_method_ops *table);

#endif
