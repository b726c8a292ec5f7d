/* See syscalls.h. */
#include "syscalls.h"

#include <dlfcn.h>
#include <stdarg.h>

bool (*syscall_guard)(long number, long arguments[6], long *answer);

/* Replaces the C library's function of this name. */
long guarded_syscall(long number, ...) __asm__("syscall");

long guarded_syscall(long number, ...)
{
    static long (*real)(long, ...);
    long arguments[6], answer;
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(list, long);
    va_end(list);
    if (syscall_guard != NULL && syscall_guard(number, arguments, &answer))
        return answer;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
