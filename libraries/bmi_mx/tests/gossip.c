/*
 * A program that exports the host's logger, as a file system server does, and loads the library. Prints each call:
 * "err LINE" and "debug MASK PREFIX LINE".
 *
 *   gossip LIBRARY
 */
#define _GNU_SOURCE
#include "bmi_mx.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

uint64_t gossip_debug_mask;
int gossip_debug_on;
int gossip_facility;

int gossip_err(const char *format, ...);
int __gossip_debug(uint64_t mask, char prefix, const char *format, ...);

int gossip_err(const char *format, ...)
{
    va_list arguments;

    fputs("err ", stdout);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    return 0;
}

int __gossip_debug(uint64_t mask, char prefix, const char *format, ...)
{
    va_list arguments;

    printf("debug %d %c ", __builtin_ctzll(mask), prefix);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    return 0;
}

int main(int count, char **arguments)
{
    const struct bmi_method_ops *ops;
    int answer = 0;
    void *library = dlopen(count > 1 ? arguments[1] : "", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    ops = dlsym(library, "bmi_mx_ops");
    puts("== off");
    ops->method_addr_lookup("mx://host:70000");
    ops->get_info(99, &answer);
    puts("== no format");
    ops->method_addr_lookup("mx://%s%n%s%n:3");
    puts("== no mistake");
    ops->method_addr_lookup("tcp://localhost:3334");
    puts("== mask without the switch");
    gossip_debug_mask = (uint64_t)1 << 50;
    ops->get_info(99, &answer);
    puts("== without the facility");
    gossip_debug_on = 1;
    ops->get_info(99, &answer);
    puts("== on");
    gossip_facility = 1;
    ops->get_info(99, &answer);
    puts("== another bit");
    gossip_debug_mask = (uint64_t)1 << 49;
    ops->get_info(99, &answer);
    return 0;
}
