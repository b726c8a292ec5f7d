/*
 * Releases of OrangeFS whose initialize has three arguments, and those with a fourth.
 *
 *     2.8.2 to 2.9.7    initialize(listen, id, flags)             fourth register: any value
 *     from 2.9.8 on     initialize(listen, id, flags, options)    NULL or a string
 *
 * The table is the same and both export the same names. An old host is simulated by passing a number as the fourth
 * argument: for a method the call is the same, and the test knows the register's value.
 */
#include "../support/log.h"
#include "../support/pair.h"

#include <sys/mman.h>

/* Stands for an object of the host: the method does not read it, but a stray value may point to it. */
static uint64_t word_of_the_host = UINT64_C(0xfedcba9876543210);

static int initialize_with(struct bmi_method_addr *listen, int flags, uintptr_t held)
{
    int (*initialize)(struct bmi_method_addr *, int, int, uintptr_t);

    memcpy(&initialize, &ops->initialize, sizeof initialize);
    return initialize(listen, METHOD_ID, flags, held);
}

/* Returns the address of these bytes at the end of a page that is followed by an unmapped one. Without bytes, that
 * address is unmapped, too. */
static uintptr_t at_the_edge(const void *bytes, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), length = (size + page - 1) / page * page;
    char *all = mmap(NULL, length + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(all != MAP_FAILED);
    if (bytes != NULL) {
        CHECK(mprotect(all, length, PROT_READ | PROT_WRITE) == 0);
        memcpy(all + length - size, bytes, size);
    }
    return (uintptr_t)(all + length - size);
}

/* Collects values that earlier calls may have left in the register. */
static size_t leftovers(uintptr_t *held)
{
    static char endless[200000];
    size_t count = 0;

    memset(endless, 'x', sizeof endless - 1);
    held[count++] = 1; /* seen with OrangeFS 2.9.7 */
    held[count++] = 0xdeadbeef;
    held[count++] = UINTPTR_MAX;
    held[count++] = UINTPTR_MAX / 2;
    held[count++] = (uintptr_t)1 << 46;
    held[count++] = at_the_edge(NULL, 64);
    held[count++] = (uintptr_t)leftovers;
    held[count++] = (uintptr_t)&count;
    held[count++] = (uintptr_t)&word_of_the_host;
    held[count++] = at_the_edge("no end", 6);
    held[count++] = at_the_edge("MX_PORT=nonsense", 16); /* without a NUL */
    held[count++] = (uintptr_t) "mx://localhost:0:3";
    held[count++] = (uintptr_t) "/etc/orangefs.conf";
    held[count++] = (uintptr_t) "";
    held[count++] = (uintptr_t)endless;
    return count;
}

static void old_host(struct side *side)
{
    uintptr_t held[16];
    size_t count = leftovers(held);

    host_load();
    for (size_t i = 0; i < count; i++) {
        CHECK_THAT(initialize_with(NULL, 0, held[i]), ==, 0);
        CHECK_THAT(ops->open_context(0), ==, 0);
        ops->close_context(0);
        CHECK_THAT(ops->finalize(), ==, 0);
    }
}

/* ---- options are read wherever they are in memory ---- */

/* An option that initialize rejects, which shows that it was read. */
static const char refused[] = "MX_UNEXPECTED_BYTES=1";

static void new_host(struct side *side)
{
    static char long_one[20000];
    size_t pad = sizeof long_one - sizeof refused;

    host_load();
    CHECK_THAT(initialize_with(NULL, 0, (uintptr_t)refused), ==, -BMI_EINVAL);
    CHECK_THAT(initialize_with(NULL, 0, at_the_edge(refused, sizeof refused)), ==, -BMI_EINVAL);
    /* A string over several pages, to the end of the last one. */
    memset(long_one, ',', pad);
    memcpy(long_one + pad, refused, sizeof refused);
    CHECK_THAT(initialize_with(NULL, 0, at_the_edge(long_one, sizeof long_one)), ==, -BMI_EINVAL);
    CHECK_THAT(initialize_with(NULL, 0, (uintptr_t) "MX_SPIN_US=7"), ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
    CHECK_THAT(initialize_with(NULL, 0, 0), ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
}

/* ---- what the log says ---- */

static char lines[65536];
static int worst = 5;

static void take_line(int level, const char *line)
{
    if (strstr(line, "options") == NULL)
        return;
    if (level < worst)
        worst = level;
    strncat(lines, line, sizeof lines - strlen(lines) - 1);
}

static void says(uintptr_t held, int level, const char *words)
{
    lines[0] = '\0';
    worst = 5;
    CHECK_THAT(initialize_with(NULL, 0, held), ==, 0);
    CHECK_THAT(ops->finalize(), ==, 0);
    if (strstr(lines, words) == NULL)
        FAIL("the log says \"%s\"", lines);
    CHECK_THAT(worst, ==, level);
}

static void logged(struct side *side)
{
    host_load();
    log_by(take_line);
    /* An old host causes no warning; an option without a name does. */
    says(1, 3, "0x1 is not a string");
    says((uintptr_t) "tcp", 2, "\"tcp\"");
    says(0, 5, "");
}

/* ---- old and new hosts talk ---- */

static void old_server(struct side *side)
{
    int endpoint = host_start_server();
    struct bmi_method_addr *listen = host_listen_address();
    struct arrival arrival;

    /* Initializes again, as an old host calls. */
    ops->close_context(0);
    CHECK_THAT(ops->finalize(), ==, 0);
    CHECK_THAT(initialize_with(listen, BMI_INIT_SERVER, 1), ==, 0);
    CHECK_THAT(ops->open_context(0), ==, 0);
    tell(side, "endpoint", endpoint);
    arrival = host_next();
    CHECK_THAT(arrival.size, ==, 12);
    CHECK(memcmp(arrival.buffer, "good morning", 12) == 0);
    arrival_free(&arrival);
    tell(side, "thanks", 0);
    hear(side, "bye");
    host_stop();
}

static void new_client(struct side *side)
{
    send_request(pair_join(side), "good morning", 12, 1);
    hear(side, "thanks");
    host_stop();
    tell(side, "bye", 0);
}

TESTS(
    SOLO(three_arguments_whatever_the_fourth_register_holds, old_host),
    SOLO(options_are_taken_up_to_the_end_of_memory, new_host),
    SOLO(the_log_tells_a_mistake_from_an_old_host, logged),
    PAIR(an_old_server_serves_a_new_client, old_server, new_client))
