/*
 * The one place where the tests include the library's header.
 *
 * Feature test macros must come before any system header, so every C file of the
 * harness includes this file (or check.h, which includes it) first.
 */
#ifndef C_TESTS_BMI_H
#define C_TESTS_BMI_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bmi_mx.h"

/* How this program came by the table: ops_linked.c or ops_dlopen.c says. */
const struct bmi_method_ops *the_ops(void);
/* The library's own symbol of that name, or NULL. */
void *library_symbol(const char *name);

#endif
