/*
 * Both hosts in one process, each with its own library: neither may disturb the other.
 *
 *     this process ─┬─ a host ── libbmi_mx.so.0 ────────────── messages ─┐
 *                   └─ a host ── libbmi_mx_standalone.so.0 ─── messages ─┴─ the same in another process
 *
 * The libraries are opened with RTLD_LOCAL, as Mercury does, or with RTLD_GLOBAL, where symbols of the first
 * library come before those of the second.
 */
#include "../support/world.h"

#include "hosts_second.h"

#include <dlfcn.h>

enum { ORANGEFS, STANDALONE, HALVES };
enum { TURNS = 40 };

static const struct half *halves[HALVES];

static void *open_library(const char *name, int mode)
{
    void *handle = dlopen(name, RTLD_NOW | mode);

    if (handle == NULL)
        FAIL("%s", dlerror());
    return handle;
}

static void load(int which, int mode)
{
    static const char *const libraries[] = {"libbmi_mx.so.0", "libbmi_mx_standalone.so.0"};
    static const char *const names[] = {"half_orangefs.so", "half_standalone.so"};
    const void *table = dlsym(open_library(libraries[which], mode), "bmi_mx_ops");

    CHECK(table != NULL);
    halves[which] = dlsym(open_library(names[which], mode), "half");
    CHECK(halves[which] != NULL);
    halves[which]->use(table);
}

/* Loads both libraries, `first` before the other. */
static void load_both(int first, int mode)
{
    load(first, mode);
    load(1 - first, mode);
    CHECK(halves[ORANGEFS] != halves[STANDALONE]);
}

/* ---- side by side ---- */

struct work {
    void (*run)(int turns);
};

static void *working(void *argument)
{
    const struct work *work = argument;

    work->run(TURNS);
    return NULL;
}

static void at_once(void (*one)(int turns), void (*other)(int turns))
{
    struct work work[HALVES] = {{one}, {other}};
    pthread_t threads[HALVES];

    for (int i = 0; i < HALVES; i++)
        CHECK_THAT(pthread_create(&threads[i], NULL, working, &work[i]), ==, 0);
    for (int i = 0; i < HALVES; i++)
        CHECK_THAT(pthread_join(threads[i], NULL), ==, 0);
}

/* One library ends, and the other goes on. */
static void servers(struct side *side, int first, int mode)
{
    load_both(first, mode);
    for (int i = 0; i < HALVES; i++)
        tell(side, "endpoint", halves[i]->serve());
    at_once(halves[ORANGEFS]->answer, halves[STANDALONE]->answer);
    halves[first]->stop();
    halves[1 - first]->answer(TURNS);
    halves[1 - first]->stop();
}

static void clients(struct side *side, int first, int mode)
{
    load_both(first, mode);
    for (int i = 0; i < HALVES; i++)
        halves[i]->join((int)hear(side, "endpoint"));
    at_once(halves[ORANGEFS]->ask, halves[STANDALONE]->ask);
    halves[first]->stop();
    halves[1 - first]->ask(TURNS);
    halves[1 - first]->stop();
}

/* ---- with each other: one is the server, the other its client, all in this process ---- */

static void each_other(int server, int mode)
{
    load_both(server, mode);
    for (int life = 0; life < 2; life++) {
        int endpoint = halves[server]->serve();

        halves[1 - server]->join(endpoint);
        at_once(halves[server]->answer, halves[1 - server]->ask);
        /* The client ends first in one life, last in the other. */
        halves[life == 0 ? 1 - server : server]->stop();
        halves[life == 0 ? server : 1 - server]->stop();
    }
}

#define SIDES(first, mode)                                            \
    static void servers_##first##_##mode(struct side *side)           \
    {                                                                 \
        servers(side, first, mode);                                   \
    }                                                                 \
    static void clients_##first##_##mode(struct side *side)           \
    {                                                                 \
        clients(side, first, mode);                                   \
    }                                                                 \
    static void each_other_##first##_##mode(struct side *side)        \
    {                                                                 \
        (void)side;                                                   \
        each_other(first, mode);                                      \
    }

SIDES(ORANGEFS, RTLD_LOCAL)
SIDES(STANDALONE, RTLD_LOCAL)
SIDES(ORANGEFS, RTLD_GLOBAL)
SIDES(STANDALONE, RTLD_GLOBAL)

TESTS(
    PAIR(side_by_side_orangefs_ends_first, servers_ORANGEFS_RTLD_LOCAL, clients_ORANGEFS_RTLD_LOCAL),
    PAIR(side_by_side_standalone_ends_first, servers_STANDALONE_RTLD_LOCAL, clients_STANDALONE_RTLD_LOCAL),
    PAIR(in_the_global_scope_orangefs_ends_first, servers_ORANGEFS_RTLD_GLOBAL, clients_ORANGEFS_RTLD_GLOBAL),
    PAIR(in_the_global_scope_standalone_ends_first, servers_STANDALONE_RTLD_GLOBAL,
         clients_STANDALONE_RTLD_GLOBAL),
    SOLO(a_client_of_standalone_and_a_server_of_orangefs, each_other_ORANGEFS_RTLD_LOCAL),
    SOLO(a_client_of_orangefs_and_a_server_of_standalone, each_other_STANDALONE_RTLD_LOCAL),
    SOLO(in_the_global_scope_a_server_of_orangefs, each_other_ORANGEFS_RTLD_GLOBAL),
    SOLO(in_the_global_scope_a_server_of_standalone, each_other_STANDALONE_RTLD_GLOBAL))
