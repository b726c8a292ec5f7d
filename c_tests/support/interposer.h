/*
 * C library functions on descriptors, replaced by the program's own, as tools do that log or redirect files.
 *
 *     program, libraries ──► read, socket, ... of the program ──► the C library's
 *                             │ counts calls by the calling object
 *
 * A program that is linked with interposer.o contains them (and exports them, because of -rdynamic).
 */
#ifndef C_TESTS_INTERPOSER_H
#define C_TESTS_INTERPOSER_H

/* Returns the number of calls by the object whose file name contains `object`; `*name` is the function called
 * last. */
int interposer_calls(const char *object, const char **name);

#endif
