/*
 * The one place where the tests include the BMI library's header.
 *
 * As check.h, it may stand first in a C file.
 */
#ifndef C_TESTS_BMI_H
#define C_TESTS_BMI_H

#include "check.h"

#ifdef BMI_MX_STANDALONE
#include "standalone.h"
/* Where the host reads an operation's address, behind its id. */
enum { ADDRESS_AT = 80 };
#else
#include "bmi_mx.h"
enum { ADDRESS_AT = 72 };
#endif

/* The table of this program, from ops_linked.c or ops_dlopen.c, which for the stand-alone BMI are
* compiled as the_table(). */
const struct bmi_method_ops *the_ops(void);
/* The library's own symbol of that name, or NULL. */
void *library_symbol(const char *name);
/* dlclose; the next of these opens it again. Only of ops_dlopen.c. */
void library_close(void);

#endif
