/*
 * Sizes and offsets at compile time: a wrong one does not build.
 */
#ifndef C_TESTS_LAYOUT_H
#define C_TESTS_LAYOUT_H

#include <stddef.h>

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size")
#define AT(type, member, offset) \
    _Static_assert(offsetof(type, member) == (offset), #type "." #member " is elsewhere")

#endif
