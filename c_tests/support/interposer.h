/*
 * C library functions on descriptors, replaced by the program's own, as tools that log or redirect files do.
 *
 *     program, libraries ──► read, socket, ... of the program ──► the C library's
 *                             │ counts calls by the object that called
 *
 * A program that is linked with interposer.o has them (and exports them, because of -rdynamic).
 */
#ifndef C_TESTS_INTERPOSER_H
#define C_TESTS_INTERPOSER_H

/* Calls made so far by the object whose file name contains `object`; the last function called goes to `*name`. */
int interposer_calls(const char *object, const char **name);

#endif
