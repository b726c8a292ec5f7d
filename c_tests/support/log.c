/* See log.h. */
#include "log.h"

#include "bmi.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[1 << 18]; /* each line begins with its level */
static size_t used;
static int count, last_level;

static void take_line(int level, const char *line)
{
    CHECK(level >= LOG_ERROR && level <= 5);
    pthread_mutex_lock(&lock);
    if (used + strlen(line) + 3 < sizeof lines)
        used += (size_t)snprintf(lines + used, sizeof lines - used, "%d%s\n", level, line);
    if (level <= LOG_WARNING) {
        count++;
        last_level = level;
    }
    pthread_mutex_unlock(&lock);
}

void log_by(void (*take)(int level, const char *line))
{
    int (*set_host)(const struct bmi_mx_host *);
    struct bmi_mx_host host = {.size = sizeof host, .log = take};
    void *symbol = library_symbol("bmi_mx_set_host");

    CHECK(symbol != NULL);
    memcpy(&set_host, &symbol, sizeof set_host);
    CHECK_THAT(set_host(take != NULL ? &host : NULL), ==, 0);
}

void log_take(void)
{
    log_forget();
    log_by(take_line);
}

void log_forget(void)
{
    pthread_mutex_lock(&lock);
    used = 0;
    lines[0] = '\0';
    count = 0;
    pthread_mutex_unlock(&lock);
}

int log_count(void)
{
    int now;

    pthread_mutex_lock(&lock);
    now = count;
    pthread_mutex_unlock(&lock);
    return now;
}

int log_said(const char *text)
{
    int said = 0;

    pthread_mutex_lock(&lock);
    for (const char *at = lines; (at = strstr(at, text)) != NULL; at += strcspn(at, "\n"))
        said++;
    pthread_mutex_unlock(&lock);
    return said;
}

void log_is_one(const char *file, int line, int level, const char *const *texts)
{
    pthread_mutex_lock(&lock);
    if (count != 1 || (level != 0 && last_level != level))
        check_failed(file, line, "%d warnings or errors, the last of level %d: \"%.800s\"", count, last_level, lines);
    for (; *texts != NULL; texts++)
        if (strstr(lines, *texts) == NULL)
            check_failed(file, line, "\"%s\" is not in \"%.800s\"", *texts, lines);
    pthread_mutex_unlock(&lock);
    log_forget();
}
