/*
 * Buffers with recognisable contents and with fences around them.
 *
 *      fence | bytes the library may touch | fence
 *
 * Owns: the memory. Knows nothing of: messages.
 */
#ifndef C_TESTS_PATTERN_H
#define C_TESTS_PATTERN_H

#include "check.h"

/* Allocates a fenced buffer of `size` bytes, filled with a byte that no pattern starts with. */
void *fenced(size_t size);
/* Checks both fences and frees the buffer. */
void fenced_free(void *buffer);

/* Byte `i` of the pattern `seed` depends on both: shifted or mixed-up data shows. */
void fill(void *buffer, size_t size, uint64_t seed);
/* Compares `size` bytes with the pattern, beginning with the pattern's byte `from`. */
void check_filled_from(const void *buffer, size_t from, size_t size, uint64_t seed);
void check_filled(const void *buffer, size_t size, uint64_t seed);
/* Checks that the bytes from `from` to `size` are as fenced() left them. */
void check_untouched(const void *buffer, size_t from, size_t size);

#endif
