/*
 * bmi_mx_set_host with each set of members and each size, by a program that exports the host's functions under
 * their usual names (set_host), and by one that does not (set_host_bare).
 *
 *     given               who names peers, and who is told that one died
 *     neither             what dlsym finds: both exported functions, or the library itself and none
 *     reg_addr            the given function, and none
 *     forget_addr         the library itself, and the given function
 *     both                the given functions
 *
 *     log                 the given function, or else gossip, or else stderr
 */
#include "../support/hostless.h"
#include "../support/port.h"

#include <dlfcn.h>
#include <stdarg.h>

enum {
    REG = 1,
    FORGET = 2,
    LOG = 4,
    ALL = 7,
    WHOLE = sizeof(struct bmi_mx_host),
    FILLED_MAX = 4096, /* largest size that is accepted */
    GIVEN_NAME = 1000,
    EXPORTED_NAME = 2000,
};

/* Calls of the functions since the last look. */
struct calls {
    int registered, forgotten, lines;
    BMI_addr_t name; /* last one given or forgotten */
};

static struct calls given, exported;
static int (*set_host)(const struct bmi_mx_host *host);

static BMI_addr_t given_reg(struct bmi_method_addr *address)
{
    CHECK(address != NULL);
    CHECK_THAT(address->method_type, ==, HOSTLESS_ID);
    address->parent = &given;
    return GIVEN_NAME + ++given.registered;
}

static int given_forget(BMI_addr_t name)
{
    given.name = name;
    given.forgotten++;
    return 0;
}

static void given_log(int level, const char *line)
{
    CHECK(level >= 1 && level <= 5);
    if (strstr(line, "70000") != NULL)
        given.lines++;
}

/* ---- the usual names, which the library finds if this program is linked with -rdynamic ---- */

BMI_addr_t bmi_method_addr_reg_callback(struct bmi_method_addr *address);
int bmi_method_addr_forget_callback(BMI_addr_t name);
extern uint64_t gossip_debug_mask;
extern int gossip_debug_on, gossip_facility;
int gossip_err(const char *format, ...);
int __gossip_debug(uint64_t mask, char prefix, const char *format, ...);

uint64_t gossip_debug_mask;
int gossip_debug_on, gossip_facility;

BMI_addr_t bmi_method_addr_reg_callback(struct bmi_method_addr *address)
{
    CHECK(address != NULL);
    return EXPORTED_NAME + ++exported.registered;
}

int bmi_method_addr_forget_callback(BMI_addr_t name)
{
    exported.name = name;
    exported.forgotten++;
    return 0;
}

int gossip_err(const char *format, ...)
{
    (void)format;
    return 0;
}

int __gossip_debug(uint64_t mask, char prefix, const char *format, ...)
{
    va_list arguments;

    (void)mask;
    (void)prefix;
    va_start(arguments, format);
    if (strstr(va_arg(arguments, const char *), "70000") != NULL)
        exported.lines++;
    va_end(arguments);
    return 0;
}

static bool names_are_exported(void)
{
    return dlsym(RTLD_DEFAULT, "bmi_method_addr_reg_callback") != NULL;
}

/* ---- one life of a server with a host ---- */

static void begin(void)
{
    void *symbol;

    unsetenv("BMI_MX_LOG");
    unsetenv("MX_LOG");
    table = the_ops();
    symbol = library_symbol("bmi_mx_set_host");
    CHECK(symbol != NULL);
    memcpy(&set_host, &symbol, sizeof set_host);
}

/* Passes a struct of `size` bytes with these members, as far as they fit, followed by bytes without meaning. */
static int give(size_t size, unsigned members)
{
    static union {
        struct bmi_mx_host host;
        unsigned char bytes[FILLED_MAX + 1];
    } room;
    int result;

    memset(&room, 0x5a, sizeof room);
    room.host.size = size;
    room.host.reg_addr = members & REG ? given_reg : NULL;
    room.host.forget_addr = members & FORGET ? given_forget : NULL;
    room.host.log = members & LOG ? given_log : NULL;
    if (size < WHOLE)
        memset(room.bytes + size, 0x5a, sizeof room - size);
    result = set_host(&room.host);
    memset(&room, 0x5a, sizeof room); /* the library has copied it */
    return result;
}

static void pump(struct method_drop_addr_query *query)
{
    struct bmi_method_unexpected_info info;
    bmi_error_code_t error;
    bmi_size_t size;
    bmi_op_id_t id;
    int count;

    CHECK_THAT(table->testunexpected(1, &count, &info, 0), >=, 0);
    CHECK_THAT(count, ==, 0);
    CHECK_THAT(table->testcontext(1, &id, &count, &error, &size, NULL, 5, 0), >=, 0);
    CHECK_THAT(count, ==, 0);
    CHECK_THAT(table->get_info(BMI_DROP_ADDR_QUERY, query), ==, 0);
}

/* Serves a client until it has been killed; the host has these members. */
static void one_life(struct side *side, unsigned members)
{
    bool found = names_are_exported();
    bool pair_found = (members & (REG | FORGET)) == 0 && found;
    struct calls want_given = {0}, want_exported = {0};
    struct method_drop_addr_query query = {0};

    memset(&given, 0, sizeof given);
    memset(&exported, 0, sizeof exported);
    want_given.registered = members & REG ? 1 : 0;
    want_given.forgotten = members & FORGET ? 1 : 0;
    want_given.lines = members & LOG ? 1 : 0;
    want_exported.registered = want_exported.forgotten = pair_found ? 1 : 0;
    want_exported.lines = (members & LOG) == 0 && found ? 1 : 0;

    CHECK(table->method_addr_lookup("mx://localhost:70000") == NULL);
    CHECK_THAT(given.lines, ==, want_given.lines);
    CHECK_THAT(exported.lines, ==, want_exported.lines);

    hostless_serve(side);
    query.addr = hostless_take("good morning");
    CHECK_THAT(given.registered, ==, want_given.registered);
    CHECK_THAT(exported.registered, ==, want_exported.registered);
    if (want_given.registered)
        CHECK(query.addr->parent == &given);
    CHECK_THAT(query.addr->method_type, ==, HOSTLESS_ID);
    CHECK(table->rev_lookup_unexpected(query.addr) != NULL);
    CHECK_THAT(given.forgotten + exported.forgotten, ==, 0);
    tell(side, "served", 0);
    UNTIL (query.response == 1 && given.forgotten == want_given.forgotten &&
           exported.forgotten == want_exported.forgotten)
        pump(&query);
    for (int i = 0; i < 3; i++) /* no second call comes */
        pump(&query);
    CHECK_THAT(given.registered, ==, want_given.registered);
    CHECK_THAT(exported.registered, ==, want_exported.registered);
    CHECK_THAT(given.forgotten, ==, want_given.forgotten);
    CHECK_THAT(exported.forgotten, ==, want_exported.forgotten);
    /* Called with the name that the peer was given. */
    if (want_exported.forgotten)
        CHECK_THAT(exported.name, ==, EXPORTED_NAME + 1);
    if (want_given.forgotten && want_given.registered)
        CHECK_THAT(given.name, ==, GIVEN_NAME + 1);
    if (want_given.forgotten && !want_given.registered) {
        CHECK_THAT(given.name, !=, 0);
        CHECK_THAT(given.name, !=, EXPORTED_NAME + 1);
    }
    hostless_stop(query.addr);
}

/* The host of one life: set_host with this many bytes and these members, or NULL. */
struct life {
    size_t size;
    unsigned given;
    unsigned seen; /* the members within those bytes */
};

static const struct life lives[] = {
    {WHOLE, 0, 0},
    {WHOLE, REG, REG},
    {WHOLE, FORGET, FORGET},
    {WHOLE, REG | FORGET, REG | FORGET},
    {WHOLE, LOG, LOG},
    {WHOLE, LOG | REG, LOG | REG},
    {WHOLE, LOG | FORGET, LOG | FORGET},
    {WHOLE, ALL, ALL},
    {0, 0, 0}, /* NULL after all members: they are forgotten */
    /* Older and newer hosts. */
    {16, ALL, REG},
    {16, FORGET | LOG, 0},
    {23, ALL, REG},
    {24, ALL, REG | FORGET},
    {31, ALL, REG | FORGET},
    {WHOLE + 1, ALL, ALL},
    {FILLED_MAX, ALL, ALL},
};

enum { LIVES = sizeof lives / sizeof lives[0] };

static void server(struct side *side)
{
    const struct life *life = &lives[hear(side, "life")];

    begin();
    if (life->size == 0) {
        CHECK_THAT(give(WHOLE, ALL), ==, 0);
        CHECK_THAT(set_host(NULL), ==, 0);
    } else {
        CHECK_THAT(give(life->size, life->given), ==, 0);
    }
    one_life(side, life->seen);
}

static void client(struct side *side)
{
    table = the_ops();
    hostless_say(hostless_join(side), "good morning");
    for (;;) { /* until it is killed */
        bmi_error_code_t error;
        bmi_size_t size;
        bmi_op_id_t id;
        int count;

        CHECK_THAT(table->testcontext(1, &id, &count, &error, &size, NULL, 100, 0), >=, 0);
    }
}

/* Runs all lives at the same time: where deaths are silent, each takes a while to be noticed. */
static void members_and_sizes(struct world *world)
{
    struct child *serves[LIVES], *asks[LIVES];

    for (int i = 0; i < LIVES; i++) {
        serves[i] = spawn(world, "server");
        child_tell(serves[i], "life", i);
    }
    for (int i = 0; i < LIVES; i++) {
        asks[i] = spawn(world, "client");
        child_tell(asks[i], "endpoint", child_hear(serves[i], "endpoint"));
    }
    for (int i = 0; i < LIVES; i++) {
        child_hear(serves[i], "served");
        child_kill(asks[i]);
    }
    for (int i = 0; i < LIVES; i++)
        child_end(serves[i]);
}

/* ---- rejected sizes: the earlier setting stays ---- */

static void wrong_sizes(struct side *side)
{
    const struct bmi_mx_host *odd = (const void *)((const char *)&lives + 1);

    begin();
    CHECK_THAT(give(WHOLE, LOG), ==, 0);
    for (size_t size = 0; size < 16; size++)
        CHECK_THAT(give(size, ALL), ==, -BMI_EINVAL);
    CHECK_THAT(give(FILLED_MAX + 1, ALL), ==, -BMI_EINVAL);
    CHECK_THAT(give(SIZE_MAX, ALL), ==, -BMI_EINVAL);
    CHECK_THAT(set_host(odd), ==, -BMI_EINVAL);
    CHECK(table->method_addr_lookup("mx://localhost:70000") == NULL);
    CHECK_THAT(given.lines, ==, 1);
    for (size_t size = 16; size <= FILLED_MAX; size++) {
        CHECK_THAT(give(size, ALL), ==, 0);
        given.lines = 0;
        (void)table->method_addr_lookup("mx://localhost:70000");
        CHECK_THAT(given.lines, ==, size >= WHOLE);
        if (size == WHOLE + 9) /* the rest is alike; the log is limited to 100 lines a second */
            size = FILLED_MAX - 1;
    }
}

TESTS_AFTER(port_notices_deaths_soon(),
    DIRECTED(each_peer_is_named_and_forgotten_by_the_same_host, members_and_sizes,
             {"server", server}, {"client", client}),
    SOLO(sizes_without_a_member_are_refused, wrong_sizes))
