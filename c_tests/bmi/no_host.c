/*
 * A program that is no BMI host: it exports no host function, links no library of this project, and takes the
 * table with dlopen (section 1: a library with undefined host symbols could not be loaded here). The library
 * numbers its peers itself, and logs by the function set with bmi_mx_set_host; set_host.c tests the other members.
 */
#include "../support/hostless.h"

static char lines[65536];
static int levels[8];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take_line(int level, const char *line)
{
    pthread_mutex_lock(&lock);
    CHECK(level >= 1 && level <= 5);
    CHECK(strchr(line, '\n') == NULL);
    levels[level]++;
    if (strlen(lines) + strlen(line) + 2 < sizeof lines) {
        strcat(lines, line);
        strcat(lines, "\n");
    }
    pthread_mutex_unlock(&lock);
}

static void use_host(void)
{
    int (*set_host)(const struct bmi_mx_host *);
    struct bmi_mx_host host = {.size = sizeof host};
    void *symbol = library_symbol("bmi_mx_set_host");

    CHECK(symbol != NULL);
    memcpy(&set_host, &symbol, sizeof set_host);
    host.log = take_line;
    CHECK_THAT(set_host(&host), ==, 0);
}

static void hostless_server(struct side *side)
{
    struct bmi_method_addr *client;

    table = the_ops();
    hostless_serve(side);
    client = hostless_take("good morning");
    CHECK(client != NULL);
    CHECK(table->rev_lookup_unexpected(client) != NULL);
    tell(side, "thanks", 0);
    hear(side, "bye");
    hostless_stop(client);
}

static void hostless_client(struct side *side)
{
    struct bmi_method_addr *server;

    table = the_ops();
    server = hostless_join(side);
    hostless_say(server, "good morning");
    hear(side, "thanks");
    hostless_stop(server);
    tell(side, "bye", 0);
}

/* ---- a logged line names the value, and each kind of mistake has a line of its own ---- */

static void logs_mistakes(struct side *side)
{
    static const struct {
        const char *address, *names;
    } mistakes[] = {
        {"mx://:3", "no host"},
        {"mx://localhost", "localhost"},
        {"mx://localhost:", "digits"},
        {"mx://localhost:x7", "x7"},
        {"mx://localhost:70000", "70000"},
        {"mx://localhost:999:3", "999"},
        {"mx://loc*lhost:3", "*"},
        {"mx://[::1:3", "]"},
        {"mx://[what]:3", "what"},
        {"mx://localhost:1:2:3", "two numbers"},
    };
    char seen[sizeof mistakes / sizeof mistakes[0]][512];
    int64_t unaligned = 0;

    table = the_ops();
    use_host();
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const char *quoted;

        lines[0] = '\0';
        CHECK(table->method_addr_lookup(mistakes[i].address) == NULL);
        if (strstr(lines, mistakes[i].address) == NULL ||
            strstr(lines, mistakes[i].names) == NULL)
            FAIL("%s: the log says \"%s\"", mistakes[i].address, lines);
        /* No two messages are alike behind the quoted address. */
        quoted = strstr(lines, mistakes[i].address) + strlen(mistakes[i].address);
        snprintf(seen[i], sizeof seen[i], "%.500s", quoted);
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(seen[k], seen[i]) != 0);
    }
    CHECK_THAT(levels[1] + levels[2], >=, 10); /* warnings or errors */
    /* Addresses of other methods are no mistake. */
    lines[0] = '\0';
    levels[1] = levels[2] = 0;
    CHECK(table->method_addr_lookup("tcp://localhost:3334") == NULL);
    CHECK_THAT(levels[1] + levels[2], ==, 0);
    /* The line about a wrong call names the value. */
    CHECK_THAT(table->initialize(NULL, HOSTLESS_ID, 0, NULL), ==, 0);
    lines[0] = '\0';
    CHECK_THAT(table->open_context(4711), ==, -BMI_EINVAL);
    CHECK(strstr(lines, "4711") != NULL);
    CHECK_THAT(table->cancel((bmi_op_id_t)(intptr_t)&unaligned, 0), ==, -BMI_EINVAL);
    CHECK_THAT(table->memalloc(-815, BMI_SEND) == NULL, ==, 1);
    CHECK(strstr(lines, "-815") != NULL);
    CHECK_THAT(table->finalize(), ==, 0);
}

TESTS(
    PAIR(a_program_without_a_host_serves_and_is_served, hostless_server, hostless_client),
    SOLO(the_log_names_what_is_wrong, logs_mistakes))
