/* See method.h. */
#define _GNU_SOURCE
#include "method.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef METHOD_LINKED
#include <dlfcn.h>

/* Prints where the loader looks for a name, in one line. */
static void say_directories(void)
{
    Dl_serinfo head, *info;
    void *self = dlopen(NULL, RTLD_LAZY);
    if (dlinfo(self, RTLD_DI_SERINFOSIZE, &head) != 0 || (info = malloc(head.dls_size)) == NULL)
        return;
    *info = head;
    dlinfo(self, RTLD_DI_SERINFO, info);
    fprintf(stderr, " (looked for in ");
    for (unsigned int i = 0; i < info->dls_cnt; i++)
        fprintf(stderr, "%s%s", i > 0 ? ", " : "", info->dls_serpath[i].dls_name);
    fprintf(stderr, " and ldconfig's)");
    free(info);
}
#endif

const struct bmi_method_ops *method_open(const char *program)
{
#ifdef METHOD_LINKED
    (void)program;
    return &bmi_mx_ops;
#else
    /* A caller with fewer rights than this process must not choose its code. */
    const char *library = secure_getenv("BMI_MX_LIBRARY");
    if (library == NULL)
        library = METHOD_LIBRARY;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "%s: cannot load the method: %s", program, dlerror());
        if (strchr(library, '/') == NULL)
            say_directories();
        fputc('\n', stderr);
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
    case BMI_EACCES:
        return "refused: the log of both sides says why";
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
