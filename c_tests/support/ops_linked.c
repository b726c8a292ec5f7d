/*
 * The ops table by the link editor: the program names the library on its link line.
 *
 * Compiled as Debian compiles an executable by default (PIE, not PIC), the reference
 * below becomes a COPY relocation, as in OrangeFS's server
 * (docs/hosts.md, Linking).
 */
#include "bmi.h"

#include <dlfcn.h>

const struct bmi_method_ops *the_ops(void)
{
    return &bmi_mx_ops;
}

void *library_symbol(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}
