/* See cable.h. */
#include "cable.h"

#include "net.h"

#include <sys/prctl.h>
#include <sys/wait.h>

enum {
    FRAME = 1514,           /* largest without offloads */
    NETEM_PACKETS = 100000, /* length of netem's delay line without a rate; the default is 1000 */
    ARGUMENTS = 700,
};

struct cable {
    char ends[2][16];
    char bridge[16]; /* with netem */
    /* mx_shaper's process, which ends when its standard input does; 0 with netem. */
    pid_t pid;
    int input, output;
};

/* ---- the choice ---- */

static bool kernel_has_netem(void)
{
    static int answer = -1;

    if (answer < 0) {
        answer = tried("tc qdisc add dev lo root netem delay 1ms 2>/dev/null");
        if (answer)
            run("tc qdisc del dev lo root");
        printf("    links by %s\n", answer ? "the kernel's netem" : "mx_shaper: no netem here");
        fflush(stdout);
    }
    return answer;
}

/* ---- arguments ---- */

struct words {
    char *text;
    size_t size, used;
};

static void put(struct words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(struct words *words, const char *format, ...)
{
    va_list arguments;
    int more;

    va_start(arguments, format);
    more = vsnprintf(words->text + words->used, words->size - words->used, format, arguments);
    va_end(arguments);
    CHECK(more >= 0 && (size_t)more < words->size - words->used);
    words->used += (size_t)more;
}

/* Both programs accept shares as "0.1%". */
static void put_share(struct words *words, const char *name, int thousandths)
{
    if (thousandths > 0)
        put(words, "%s%d.%d%% ", name, thousandths / 10, thousandths % 10);
}

static void put_shaper_options(struct words *words, const struct way *way)
{
    put(words, "--delay %dus --jitter %dus ", way->delay_us, way->jitter_us);
    put_share(words, "--loss ", way->loss);
    put_share(words, "--duplicate ", way->duplicate);
    put_share(words, "--reorder ", way->reorder);
    put_share(words, "--corrupt ", way->corrupt);
    put_share(words, "--garble ", way->garble);
    if (way->rate_mbit > 0)
        put(words, "--rate %dmbit --queue %dK ", way->rate_mbit, way->queue_kib);
    if (way->black_hole > 0)
        put(words, "--mtu-black-hole %d ", way->black_hole);
}

/* netem's limit counts delayed frames in addition to waiting ones. */
static int netem_limit(const struct way *way)
{
    int64_t delayed = (int64_t)way->rate_mbit * (way->delay_us + way->jitter_us) / 8;

    if (way->rate_mbit == 0)
        return NETEM_PACKETS;
    return (int)((way->queue_kib * 1024 + delayed) / FRAME) + 1;
}

static void put_netem_options(struct words *words, const struct way *way)
{
    int delay_us = way->delay_us + way->jitter_us / 2;

    put(words, "limit %d ", netem_limit(way));
    if (way->jitter_us > 0)
        put(words, "delay %dus %dus ", delay_us, way->jitter_us / 2);
    else if (delay_us > 0 || way->reorder > 0)
        put(words, "delay %dus ", delay_us > 0 ? delay_us : 100);
    put_share(words, "loss ", way->loss);
    put_share(words, "duplicate ", way->duplicate);
    put_share(words, "corrupt ", way->corrupt);
    put_share(words, "reorder ", way->reorder);
    if (way->rate_mbit > 0)
        put(words, "rate %dmbit ", way->rate_mbit);
}

static void say_share(struct words *words, int thousandths, const char *what)
{
    if (thousandths % 10 != 0)
        put(words, ", %d.%d %% %s", thousandths / 10, thousandths % 10, what);
    else if (thousandths > 0)
        put(words, ", %d %% %s", thousandths / 10, what);
}

const char *way_text(const struct way *way, char *text, size_t size)
{
    struct words words = {text, size, 0};

    put(&words, "%g ms", way->delay_us / 1000.0);
    if (way->jitter_us > 0)
        put(&words, " to %g ms", (way->delay_us + way->jitter_us) / 1000.0);
    say_share(&words, way->loss, "lost");
    say_share(&words, way->duplicate, "twice");
    say_share(&words, way->reorder, "late");
    say_share(&words, way->corrupt, "corrupt");
    say_share(&words, way->garble, "garbled");
    if (way->rate_mbit > 0)
        put(&words, ", %d Mbit/s, queue %d KiB", way->rate_mbit, way->queue_kib);
    if (way->black_hole > 0)
        put(&words, ", over %d bytes vanish", way->black_hole);
    return text;
}

/* ---- netem ---- */

/* Frames that leave by an end have crossed the cable to it. */
static void netem_end(const char *end, const char *bridge, const struct way *way)
{
    char options[ARGUMENTS];
    struct words words = {options, sizeof options, 0};

    put_netem_options(&words, way);
    run("ip link set %s master %s", end, bridge);
    run("tc qdisc add dev %s root netem %s", end, options);
    /* A bridge drops frames that are larger than the outgoing port's MTU. */
    if (way->black_hole > 0)
        run("ip link set %s mtu %d", end, way->black_hole);
}

static void lay_netem(struct cable *cable, const struct way *forth, const struct way *back)
{
    static int laid;

    snprintf(cable->bridge, sizeof cable->bridge, "cable%d", laid++);
    run("ip link add %s type bridge", cable->bridge);
    /* Set before the MTU is too small for IPv6, which the ends' may be. */
    run("ip link set %s addrgenmode none", cable->bridge);
    netem_end(cable->ends[1], cable->bridge, forth);
    netem_end(cable->ends[0], cable->bridge, back);
    run("ip link set %s up", cable->bridge);
}

/* ---- mx_shaper ---- */

/* Reads the shaper's next bytes; 0 if it has ended. */
static size_t hear_shaper(const struct cable *cable, char *text, size_t size)
{
    ssize_t got = read(cable->output, text, size - 1);

    text[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

static void lay_shaper(struct cable *cable, const struct way *forth, const struct way *back)
{
    char options[ARGUMENTS * 2], command[sizeof options + 300], said[64];
    struct words words = {options, sizeof options, 0};
    int input[2], output[2];
    pid_t director = getpid();

    put(&words, "--seed 7 --forth ");
    put_shaper_options(&words, forth);
    put(&words, "--back ");
    put_shaper_options(&words, back);
    /* Runs at high priority: its own delays would look like the cable's. */
    snprintf(command, sizeof command, "exec nice -n -19 %s %s %s %s", shaper(), cable->ends[0],
             cable->ends[1], options);
    CHECK(pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0);
    fflush(NULL);
    cable->pid = fork();
    CHECK(cable->pid >= 0);
    if (cable->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != director)
            _exit(1);
        dup2(input[0], STDIN_FILENO);
        dup2(output[1], STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(1);
    }
    close(input[0]);
    close(output[1]);
    cable->input = input[1];
    cable->output = output[0];
    if (hear_shaper(cable, said, sizeof said) == 0)
        FAIL("mx_shaper ended at once: %s", command);
}

static void remove_shaper(struct cable *cable)
{
    char said[4000];
    size_t used = 0, got;
    int status = 0;

    close(cable->input);
    while ((got = hear_shaper(cable, said + used, sizeof said - used)) > 0)
        used += got;
    close(cable->output);
    waitpid(cable->pid, &status, 0);
    for (char *line = strtok(said, "\n"); line != NULL; line = strtok(NULL, "\n"))
        printf("        %s\n", line);
    fflush(stdout);
    CHECK_THAT(status, ==, 0);
    /* Otherwise the figures would be those of this machine, not of the cable. */
    CHECK(strstr(said, "larger than a cable carries") == NULL);
}

/* ---- either ---- */

struct cable *cable_lay(const char *a, const char *b, const struct way *forth,
                        const struct way *back)
{
    struct cable *cable = calloc(1, sizeof *cable);

    CHECK(cable != NULL);
    snprintf(cable->ends[0], sizeof cable->ends[0], "%s", a);
    snprintf(cable->ends[1], sizeof cable->ends[1], "%s", b);
    run("%s --plain %s %s", shaper(), a, b);
    if (kernel_has_netem())
        lay_netem(cable, forth, back);
    else
        lay_shaper(cable, forth, back);
    return cable;
}

void cable_remove(struct cable *cable)
{
    if (cable->pid != 0)
        remove_shaper(cable);
    else
        /* Its ends may have disappeared with their hosts. */
        run("ip link del %s", cable->bridge);
    free(cable);
}
