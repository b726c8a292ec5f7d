/* See check.h. */
#include "check.h"

#include "world.h"

void check_failed(const char *file, int line, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    world_give_up(file, line, text);
}

static int64_t clock_ms(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

int64_t cpu_ms(void)
{
    return clock_ms(CLOCK_PROCESS_CPUTIME_ID);
}

void pause_ms(int ms)
{
    const struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&span, NULL);
}

int slower(void)
{
    static int factor;

    if (factor == 0) {
        const char *text = getenv("C_TESTS_SLOWER");
        int value = text != NULL ? atoi(text) : 1;

        factor = value < 1 ? 1 : value;
    }
    return factor;
}

int rounds(int few)
{
    const char *text = getenv("C_TESTS_ROUNDS");

    return text != NULL ? atoi(text) : few;
}

deadline_t deadline_in(int ms)
{
    return now_ms() + (int64_t)ms * slower();
}

bool deadline_over(deadline_t deadline)
{
    return now_ms() >= deadline;
}

int deadline_left(deadline_t deadline)
{
    int64_t left = deadline - now_ms();

    return left > 0 ? (int)left : 0;
}
