/*
 * The ops table by dlopen and dlsym: nothing of the library is named at link time.
 * BMI_MX_LIBRARY (set by the runner) says which file; without it the soname is used.
 */
#include "bmi.h"

#include <dlfcn.h>

static void *handle;

static void *library(void)
{
    if (handle == NULL) {
        const char *path = getenv("BMI_MX_LIBRARY");

        handle = dlopen(path != NULL ? path : "libbmi_mx.so.0", RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) {
            fprintf(stderr, "dlopen: %s\n", dlerror());
            exit(99);
        }
    }
    return handle;
}

const struct bmi_method_ops *the_ops(void)
{
    return dlsym(library(), "bmi_mx_ops");
}

void *library_symbol(const char *name)
{
    return dlsym(library(), name);
}

void library_close(void)
{
    if (dlclose(library()) != 0) {
        fprintf(stderr, "dlclose: %s\n", dlerror());
        exit(99);
    }
    handle = NULL;
}
