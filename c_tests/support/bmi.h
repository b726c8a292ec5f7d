/*
 * The one place where the tests include the BMI library's header. Like check.h, it may come first in a C file.
 */
#ifndef C_TESTS_BMI_H
#define C_TESTS_BMI_H

#include "check.h"

#ifdef BMI_MX_STANDALONE
#include "standalone.h"
/* Offset from an operation's id to the address object that the host reads. */
enum { ADDRESS_AT = 80 };
#else
#include "bmi_mx.h"
enum { ADDRESS_AT = 72 };
#endif

/* Returns the table of this program: from ops_linked.c or ops_dlopen.c, which for the stand-alone BMI are compiled
 * as the_table(). */
const struct bmi_method_ops *the_ops(void);
/* Returns the library's own symbol of that name, or NULL. */
void *library_symbol(const char *name);
/* dlclose; the next call of the functions above opens the library again. In ops_dlopen.c only. */
void library_close(void);

#endif
