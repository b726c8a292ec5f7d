/*
 * The table's calls on stacks of their own, as user-level threads make them.
 *
 *     test ──► wrapper ──► swapcontext ──► library
 *              one stack for each thread of the test: | guard pages | painted bytes ... | top
 *
 * A call that needs more than there is ends the process (SIGSEGV). C_TESTS_STACKS has the sizes in KiB, of most
 * calls and of initialize and finalize: "16 64". C_TESTS_STACKS_LOG is a file that gets a line for each call that
 * went deeper than all before: its name, bytes, the test.
 *
 * Owns: the stacks. Knows nothing of: what is called.
 */
#ifndef C_TESTS_STACKS_H
#define C_TESTS_STACKS_H

#include "bmi.h"

/* The same table, by way of such stacks, if the environment asks for them. */
const struct bmi_method_ops *on_stacks(const struct bmi_method_ops *table);

#endif
