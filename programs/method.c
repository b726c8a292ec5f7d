/* See method.h. */
#include "method.h"

#include <stdio.h>
#include <stdlib.h>
#ifndef METHOD_LINKED
#include <dlfcn.h>
#endif

const struct bmi_method_ops *method_open(const char *program)
{
#ifdef METHOD_LINKED
    (void)program;
    return &bmi_mx_ops;
#else
    const char *library = getenv("BMI_MX_LIBRARY");
    if (library == NULL)
        library = METHOD_LIBRARY;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "%s: cannot load the method: %s\n", program, dlerror());
        return NULL;
    }
    const struct bmi_method_ops *ops = dlsym(handle, "bmi_mx_ops");
    if (ops == NULL)
        fprintf(stderr, "%s: %s has no bmi_mx_ops: %s\n", program, library, dlerror());
    return ops;
#endif
}

const char *method_error(int code)
{
    static char unknown[48];
    switch (-code) {
    case BMI_ECANCEL:
        return "operation cancelled";
    case BMI_ECONNREFUSED:
        return "connection refused: no server at that address";
    case BMI_EHOSTUNREACH:
        return "host unknown or unreachable";
    case BMI_ETIMEDOUT:
        return "timed out";
    case BMI_ENETRESET:
        return "connection lost";
    case BMI_EDEVINIT:
        return "the network asked for cannot be had";
    case BMI_EPROTO:
        return "protocol version mismatch";
    case BMI_EADDRINUSE:
        return "address already in use";
    case BMI_EINVAL:
        return "invalid argument";
    case BMI_ENOMEM:
        return "out of memory";
    default:
        snprintf(unknown, sizeof unknown, "BMI error %d", code);
        return unknown;
    }
}
