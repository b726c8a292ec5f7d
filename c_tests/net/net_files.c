/*
 * The file server and its client, as installed, over a cable with losses (make check-net, root).
 *
 *      bmi_cp, three at a time ── side0 ══ port0 ──[ cable ]── port1 ══ side0 ── bmi_fileserver
 *
 * Files are copied there and back, and compared byte by byte; then the server ends in order.
 */
#include "../support/cable.h"
#include "../support/net.h"
#include "../support/port.h"

enum {
    CLIENT = 0,
    SERVER = 1,
    COPIES = 3,
    FILE_MIB = 12,
    WITHIN_MS = 60000,
};

/* Path of a program or a file. */
static const char *path(const char *variable)
{
    const char *value = getenv(variable);

    if (value == NULL)
        FAIL("%s is not set (make check-net does)", variable);
    return value;
}

/* Any endpoint is free: the host belongs to this test. */
static void address(char *text, size_t size)
{
    snprintf(text, size, "mx://198.51.100.%d:2000", SERVER + 1);
}

static void server(struct side *side)
{
    char at[100], served[300], program[300];

    become_host(side);
    address(at, sizeof at);
    snprintf(served, sizeof served, "%s/served", path("C_TESTS_FILES"));
    snprintf(program, sizeof program, "%s/bmi_fileserver", path("C_TESTS_BIN"));
    tell(side, "serves", 0);
    execl(program, program, at, served, (char *)NULL);
    FAIL("cannot run %s", program);
}

static void client(struct side *side)
{
    const char *bin = path("C_TESTS_BIN"), *files = path("C_TESTS_FILES");
    char at[100];
    int64_t begin;

    become_host(side);
    address(at, sizeof at);
    hear(side, "go");
    for (deadline_t deadline = deadline_in(WAIT_MS);
         !tried("%s/bmi_cp --list %s >/dev/null 2>&1", bin, at);)
        if (deadline_over(deadline))
            FAIL("the file server does not answer");
    begin = now_ms();
    /* A shell script: the copies run at the same time, and each must succeed. */
    run("set -e; p=; for n in $(seq %d); do ("
        " %s/bmi_cp %s/file %s/copy$n >/dev/null;"
        " %s/bmi_cp %s/copy$n %s/back$n >/dev/null;"
        " cmp %s/file %s/back$n ) & p=\"$p $!\"; done; for p in $p; do wait $p; done",
        COPIES, bin, files, at, bin, at, files, files, files);
    tell(side, "copied", now_ms() - begin);
}

static void copies(struct world *world)
{
    static const struct way way = {.delay_us = 1000, .loss = 10, .duplicate = 5, .reorder = 10};
    char files[] = "/tmp/net_files.XXXXXX", text[200];
    struct child *sides[2];
    struct cable *cable;
    int64_t ms;

    CHECK(mkdtemp(files) != NULL);
    setenv("C_TESTS_FILES", files, 1);
    run("mkdir %s/served && head -c %d /dev/urandom > %s/file", files, FILE_MIB << 20, files);
    make_hub();
    sides[CLIENT] = spawn(world, "client");
    sides[SERVER] = spawn(world, "server");
    for (int i = 0; i < 2; i++)
        plug_in_plain(sides[i], i, true);
    cable = cable_lay("port0", "port1", &way, &way);
    child_hear(sides[SERVER], "serves");
    child_tell(sides[CLIENT], "go", 0);
    ms = child_hear_within(sides[CLIENT], "copied", WITHIN_MS);
    printf("    %s, %d copies of %d MiB there and back at once, %s: %d ms, %.1f MB/s each way\n",
           port_name(), COPIES, FILE_MIB, way_text(&way, text, sizeof text), (int)ms,
           COPIES * FILE_MIB * 1.048576 * 2e3 / (double)ms);
    fflush(stdout);
    child_end(sides[CLIENT]);
    CHECK(kill(child_pid(sides[SERVER]), SIGTERM) == 0);
    child_end(sides[SERVER]);
    cable_remove(cable);
    run("rm -rf %s", files);
}

TESTS(
    DIRECTED(files_are_copied_intact_over_a_cable_that_loses, copies, {"server", server},
             {"client", client}))
