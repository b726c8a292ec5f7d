/*
 * Two sides that chose different providers: they learn it from each other's endpoint addresses, say so once,
 * and talk over TCP.
 *
 *     C_TESTS_PROVIDERS=tcp,tcp;ofi_rxm     the one of side a, the one of side b
 *
 * For `make check-fabric`, where there are two providers that can be used.
 */
#include "../support/pair.h"
#include "../support/pattern.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 300000, WARNING = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[16384];
static int warnings;

static void take_line(int level, const char *line)
{
    pthread_mutex_lock(&lock);
    if (level <= WARNING) {
        warnings++;
        if (strlen(lines) + strlen(line) + 2 < sizeof lines) {
            strcat(lines, line);
            strcat(lines, "\n");
        }
    }
    pthread_mutex_unlock(&lock);
}

static void take_log(void)
{
    int (*set_host)(const struct bmi_mx_host *);
    struct bmi_mx_host host = {.size = sizeof host, .log = take_line};
    void *symbol = library_symbol("bmi_mx_set_host");

    CHECK(symbol != NULL);
    memcpy(&set_host, &symbol, sizeof set_host);
    CHECK_THAT(set_host(&host), ==, 0);
}

/* Makes one of the two this process's, and gives the other. */
static const char *choose(bool first)
{
    static char both[256];
    const char *given = getenv("C_TESTS_PROVIDERS");
    char *comma;

    CHECK(given != NULL);
    snprintf(both, sizeof both, "%s", given);
    comma = strchr(both, ',');
    CHECK(comma != NULL);
    *comma = '\0';
    setenv("MX_PROVIDER", first ? both : comma + 1, 1);
    return first ? comma + 1 : both;
}

static void exchange(struct bmi_method_addr *peer)
{
    char *out = fenced(SIZE), *in = fenced(SIZE);
    struct op send = {0}, receive = {0};

    fill(out, SIZE, 4);
    CHECK_THAT(op_recv(&receive, peer, in, SIZE, 1), >=, 0);
    CHECK_THAT(op_send(&send, peer, out, SIZE, 1), >=, 0);
    op_sent(&send);
    op_received(&receive, SIZE);
    check_filled(in, SIZE, 4);
    fenced_free(out);
    fenced_free(in);
}

static void serves(struct side *side)
{
    take_log();
    choose(true);
    exchange(pair_server(side));
    pair_part(side);
}

static void is_served(struct side *side)
{
    const char *other;

    take_log();
    other = choose(false);
    exchange(pair_client(side));
    /* It names what they have and what it has. */
    pthread_mutex_lock(&lock);
    if (warnings != 1 || strstr(lines, other) == NULL ||
        strstr(lines, getenv("MX_PROVIDER")) == NULL || strstr(lines, "falling back") == NULL)
        FAIL("%d warnings: \"%s\"", warnings, lines);
    pthread_mutex_unlock(&lock);
    pair_part(side);
}

static const struct scenario scenarios[] = {
    PAIR(peers_that_chose_different_providers_talk_over_tcp, serves, is_served),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
