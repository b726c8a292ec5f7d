/*
 * A program that is no BMI host at all: it exports nothing, links nothing of the library, and
 * takes the table with dlopen (section 1: a library with undefined host symbols would not
 * load here). Without a host the library numbers its peers itself; with bmi_mx_set_host it
 * asks the functions it was given, and logs where it was told to.
 *
 * This file does not use support/host.c, whose functions the library would find.
 */
#include "support/bmi.h"
#include "support/world.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct bmi_method_ops *table;
static char lines[65536];
static int levels[8];
static int registered, forgotten;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static BMI_addr_t register_address(struct bmi_method_addr *address)
{
    CHECK(address != NULL);
    CHECK_THAT(address->method_type, ==, 9);
    address->parent = &registered;
    return ++registered;
}

static int forget_address(BMI_addr_t name)
{
    CHECK_THAT(name, >=, 1);
    CHECK_THAT(name, <=, registered);
    forgotten++;
    return 0;
}

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

static void use_host(bool full)
{
    int (*set_host)(const struct bmi_mx_host *);
    struct bmi_mx_host host = {.size = sizeof host};
    void *symbol = library_symbol("bmi_mx_set_host");

    CHECK(symbol != NULL);
    memcpy(&set_host, &symbol, sizeof set_host);
    host.log = take_line;
    if (full) {
        host.reg_addr = register_address;
        host.forget_addr = forget_address;
    }
    CHECK_THAT(set_host(&host), ==, 0);
    memset(&host, 0x5a, sizeof host); /* it has been copied */
    host.size = 1;
    CHECK_THAT(set_host(&host), ==, -BMI_EINVAL);
}

/* Serves one message of one client; without and with a host of its own. */
static int serve(struct side *side)
{
    struct bmi_method_addr *listen = NULL;
    int endpoint = 0;

    table = the_ops();
    CHECK(table != NULL);
    for (int attempt = 0; attempt < 50 && listen == NULL; attempt++) {
        char text[64];

        endpoint = 1024 + (int)(((unsigned)now_ms() * 7919u + (unsigned)getpid() * 31u +
                                 (unsigned)attempt * 104729u) % 31000u);
        snprintf(text, sizeof text, "mx://localhost:0:%d", endpoint);
        listen = table->method_addr_lookup(text);
        CHECK(listen != NULL);
        listen->method_type = 9;
        if (table->initialize(listen, 9, BMI_INIT_SERVER, NULL) != 0) {
            CHECK_THAT(table->set_info(BMI_DROP_ADDR, listen), ==, 0);
            listen = NULL;
        }
    }
    CHECK(listen != NULL);
    CHECK_THAT(table->open_context(0), ==, 0);
    tell(side, "endpoint", endpoint);
    return endpoint;
}

static struct bmi_method_addr *take_one(const char *wanted)
{
    struct bmi_method_unexpected_info info;
    int outcount = 0;

    for (deadline_t deadline = deadline_in(WAIT_MS); outcount == 0;) {
        bmi_op_id_t id;
        bmi_error_code_t error;
        bmi_size_t size;
        int completed = 0;

        CHECK(!deadline_over(deadline));
        CHECK_THAT(table->testunexpected(1, &outcount, &info, 0), >=, 0);
        if (outcount == 0)
            CHECK_THAT(table->testcontext(1, &id, &completed, &error, &size, NULL, 5, 0), >=, 0);
        CHECK_THAT(completed, ==, 0);
    }
    CHECK_THAT(info.error_code, ==, 0);
    CHECK_THAT(info.size, ==, strlen(wanted));
    CHECK(memcmp(info.buffer, wanted, strlen(wanted)) == 0);
    CHECK_THAT(table->unexpected_free(info.buffer), ==, 0);
    return info.addr;
}

static void stop(struct bmi_method_addr *address)
{
    table->close_context(0);
    CHECK_THAT(table->finalize(), ==, 0);
    if (address != NULL)
        CHECK_THAT(table->set_info(BMI_DROP_ADDR, address), ==, 0);
}

static void hostless_server(struct side *side)
{
    struct bmi_method_addr *client;

    serve(side);
    client = take_one("good morning");
    CHECK(client != NULL);
    CHECK(table->rev_lookup_unexpected(client) != NULL);
    tell(side, "thanks", 0);
    hear(side, "bye");
    stop(client);
}

static void hosted_server(struct side *side)
{
    struct bmi_method_addr *client;
    struct method_drop_addr_query query = {0};

    table = the_ops();
    use_host(true);
    serve(side);
    client = take_one("good morning");
    CHECK_THAT(registered, ==, 1);
    CHECK(client->parent == &registered);
    CHECK_THAT(client->method_type, ==, 9);
    tell(side, "thanks", 0);
    hear(side, "bye");
    /* It is gone: the forget function hears of it. */
    query.addr = client;
    for (deadline_t deadline = deadline_in(WAIT_MS); forgotten == 0 || query.response != 1;) {
        struct bmi_method_unexpected_info info;
        int outcount;

        CHECK(!deadline_over(deadline));
        CHECK_THAT(table->testunexpected(1, &outcount, &info, 5), >=, 0);
        CHECK_THAT(outcount, ==, 0);
        CHECK_THAT(table->get_info(BMI_DROP_ADDR_QUERY, &query), ==, 0);
    }
    CHECK_THAT(forgotten, ==, 1);
    stop(client);
}

static void hostless_client(struct side *side)
{
    char text[64];
    struct bmi_method_addr *server;
    bmi_op_id_t id;
    int posted;

    table = the_ops();
    CHECK_THAT(table->initialize(NULL, 9, 0, NULL), ==, 0);
    CHECK_THAT(table->open_context(0), ==, 0);
    snprintf(text, sizeof text, "mx://localhost:0:%d", (int)hear(side, "endpoint"));
    server = table->method_addr_lookup(text);
    CHECK(server != NULL);
    posted = table->post_sendunexpected(&id, server, "good morning", 12, BMI_EXT_ALLOC, 1, NULL,
                                        0, NULL);
    CHECK(posted == 0 || posted == 1);
    for (deadline_t deadline = deadline_in(WAIT_MS); posted == 0;) {
        int outcount;
        bmi_error_code_t error;
        bmi_size_t size;

        CHECK(!deadline_over(deadline));
        CHECK_THAT(table->test(id, &outcount, &error, &size, NULL, 10, 0), >=, 0);
        if (outcount == 1) {
            CHECK_THAT(error, ==, 0);
            posted = 1;
        }
    }
    hear(side, "thanks");
    stop(server);
    tell(side, "bye", 0);
}

/* ---- what is logged names the value, and each kind of mistake has its own line ---- */

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

    (void)side;
    table = the_ops();
    use_host(false);
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const char *quoted;

        lines[0] = '\0';
        CHECK(table->method_addr_lookup(mistakes[i].address) == NULL);
        if (strstr(lines, mistakes[i].address) == NULL ||
            strstr(lines, mistakes[i].names) == NULL)
            FAIL("%s: the log says \"%s\"", mistakes[i].address, lines);
        /* Without the address itself, no two messages are alike. */
        quoted = strstr(lines, mistakes[i].address) + strlen(mistakes[i].address);
        snprintf(seen[i], sizeof seen[i], "%.500s", quoted);
        for (size_t k = 0; k < i; k++)
            CHECK(strcmp(seen[k], seen[i]) != 0);
    }
    CHECK_THAT(levels[1] + levels[2], >=, 10); /* a person should look */
    /* Foreign addresses are not a mistake. */
    lines[0] = '\0';
    levels[1] = levels[2] = 0;
    CHECK(table->method_addr_lookup("tcp://localhost:3334") == NULL);
    CHECK_THAT(levels[1] + levels[2], ==, 0);
    /* Wrong calls name the value. */
    CHECK_THAT(table->initialize(NULL, 9, 0, NULL), ==, 0);
    lines[0] = '\0';
    CHECK_THAT(table->open_context(4711), ==, -BMI_EINVAL);
    CHECK(strstr(lines, "4711") != NULL);
    CHECK_THAT(table->cancel((bmi_op_id_t)(intptr_t)&unaligned, 0), ==, -BMI_EINVAL);
    CHECK_THAT(table->memalloc(-815, BMI_SEND) == NULL, ==, 1);
    CHECK(strstr(lines, "-815") != NULL);
    CHECK_THAT(table->finalize(), ==, 0);
}

static const struct scenario scenarios[] = {
    PAIR(a_program_without_a_host_serves_and_is_served, hostless_server, hostless_client),
    PAIR(bmi_mx_set_host_takes_the_place_of_the_host, hosted_server, hostless_client),
    SOLO(the_log_names_what_is_wrong, logs_mistakes),
    {0},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, scenarios);
}
