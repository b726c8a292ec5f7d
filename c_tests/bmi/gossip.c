/*
 * Inside a file system the log goes to its logger, gossip: found by dlsym, never linked.
 *
 *     error          ──► gossip_err              always
 *     warning        ──► __gossip_debug, 'W'     always: the function does not look at the mask
 *     the rest       ──► __gossip_debug, 'D'     while bit 50 of the mask, the switch and the
 *                                                facility are on
 *
 * This program exports the five symbols OrangeFS has (docs/hosts.md, Layouts).
 */
#include "../support/bmi.h"
#include "../support/world.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

extern uint64_t gossip_debug_mask;
extern int gossip_debug_on, gossip_facility;
int gossip_err(const char *format, ...);
int __gossip_debug(uint64_t mask, char prefix, const char *format, ...);

uint64_t gossip_debug_mask;
int gossip_debug_on, gossip_facility;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char warnings[16384];
static int error_count, warning_count, debug_count;

int gossip_err(const char *format, ...)
{
    (void)format;
    pthread_mutex_lock(&lock);
    error_count++;
    pthread_mutex_unlock(&lock);
    return 0;
}

int __gossip_debug(uint64_t mask, char prefix, const char *format, ...)
{
    size_t used;
    va_list arguments;

    pthread_mutex_lock(&lock);
    CHECK(mask == UINT64_C(1) << 50);
    CHECK(format != NULL);
    if (prefix == 'W') {
        used = strlen(warnings);
        va_start(arguments, format);
        vsnprintf(warnings + used, sizeof warnings - used, format, arguments);
        va_end(arguments);
        warning_count++;
    } else {
        CHECK_THAT(prefix, ==, 'D');
        debug_count++;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static void warnings_go_to_gossip(struct side *side)
{
    const struct bmi_method_ops *table = the_ops();

    (void)side;
    CHECK(table->method_addr_lookup("mx://localhost:70000") == NULL);
    CHECK_THAT(warning_count, ==, 1);
    CHECK(strstr(warnings, "70000") != NULL);
    CHECK(warnings[strlen(warnings) - 1] == '\n');
    /* A percent sign in a value is not a format. */
    CHECK(table->method_addr_lookup("mx://%s%n%s%n:3") == NULL);
    CHECK_THAT(warning_count, ==, 2);
    CHECK(strstr(warnings, "%s%n%s%n") != NULL);
    CHECK_THAT(error_count, ==, 0);
    CHECK(table->method_addr_lookup("tcp://localhost:3334") == NULL);
    CHECK_THAT(warning_count, ==, 2);
}

static void start_and_stop(const struct bmi_method_ops *table)
{
    CHECK_THAT(table->initialize(NULL, 2, 0, NULL), ==, 0);
    CHECK_THAT(table->open_context(0), ==, 0);
    table->close_context(0);
    CHECK_THAT(table->finalize(), ==, 0);
}

static void debug_lines_obey_the_mask(struct side *side)
{
    const struct bmi_method_ops *table = the_ops();

    (void)side;
    start_and_stop(table);
    CHECK_THAT(debug_count, ==, 0);
    gossip_debug_on = 1;
    gossip_facility = 1;
    gossip_debug_mask = ~(UINT64_C(1) << 50);
    start_and_stop(table);
    CHECK_THAT(debug_count, ==, 0);
    /* Switched on while it runs, as pvfs2-set-debugmask does. */
    gossip_debug_mask = UINT64_C(1) << 50;
    start_and_stop(table);
    CHECK_THAT(debug_count, >, 0);
    debug_count = 0;
    gossip_facility = 0;
    start_and_stop(table);
    CHECK_THAT(debug_count, ==, 0);
    CHECK_THAT(error_count + warning_count, ==, 0);
}

static const struct scenario scenarios[] = {
    SOLO(warnings_go_to_gossip_as_warnings, warnings_go_to_gossip),
    SOLO(debug_lines_go_to_gossip_debug_while_its_mask_says_so, debug_lines_obey_the_mask),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
