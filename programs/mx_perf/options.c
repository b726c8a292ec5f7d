#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <myriexpress.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Largest message: the limit of what a peer allocates for an unknown client. */
#define SIZE_LIMIT (1024u << 20)
#define WINDOW_LIMIT 1024u
#define REPEATS_LIMIT 1000u
/* Options without a letter. */
enum { OPTION_SELF = 256, OPTION_JSON, OPTION_NO_PIN, OPTION_KEEP };

static void usage(const struct program *program, FILE *out)
{
    fprintf(out,
            "usage: %s [OPTIONS]              serve as the other side, for one client\n"
            "       %s -d HOST [OPTIONS]      measure against it\n"
            "       %s --self [OPTIONS]       both, in two processes of this host\n"
            "\n"
            "%s\n"
            "\n"
            "  -d HOST   host of the other side: host or host:board\n"
            "  -e ID     endpoint to open, or 'any' for the lowest free one (default: 0 for the other\n"
            "            side, otherwise any)\n"
            "  -r ID     endpoint of the other side (default 0)\n"
            "  -b BOARD  board to open (default: any)\n"
            "  -f KEY    connection key of both sides (default 0)\n"
            "  -s SIZE   size of the first messages, e.g. 8, 64K or 4M (default %u)\n"
            "  -S SIZE   size of the last ones; sizes double (default: that of -s if given, or %uM)\n"
            "  -N COUNT  %s in one repeat (default: depends on the size)\n"
            "  -R COUNT  repeats, whose median is the result (default 7)\n",
            program->name, program->name, program->name, program->summary, program->first_size,
            program->last_size >> 20, program->counted);
    if (program->has_window)
        fprintf(out, "  -W COUNT  messages under way at a time (default 64)\n");
    fprintf(out,
            "  -w        sleep while waiting, instead of polling\n"
            "  -v        verify every byte\n"
            "  --keep    serve one client after another, until killed\n"
            "  --json    print one JSON object a line instead of a table\n"
            "  --no-pin  with --self: do not pin the processes to processors\n");
}

/* Prints what is wrong with the command line, and the usage; exits. */
static void refuse(const struct program *program, const char *what, const char *value)
{
    fprintf(stderr, "%s: %s%s%s%s\n", program->name, what, *value ? " '" : "", value,
            *value ? "'" : "");
    usage(program, stderr);
    exit(2);
}

/* Parses a number from `least` to `most`, with K and M if `units`. */
static uint32_t number(const struct program *program, int option, const char *text, uint32_t least,
                       uint32_t most, int units)
{
    char what[64];
    char *end;
    unsigned long long value, unit = 1;

    errno = 0;
    value = strtoull(text, &end, 0);
    if (units && (*end == 'K' || *end == 'k'))
        unit = 1u << 10;
    else if (units && (*end == 'M' || *end == 'm'))
        unit = 1u << 20;
    end += unit > 1;
    /* strtoull takes a sign and leading blanks too. */
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > UINT32_MAX ||
        value * unit < least || value * unit > most) {
        snprintf(what, sizeof(what), "-%c wants a number from %u to %u, not", option, least, most);
        refuse(program, what, text);
    }
    return (uint32_t)(value * unit);
}

struct options options_parse(const struct program *program, int argc, char **argv)
{
    static const struct option LONG[] = {
        {"self", no_argument, NULL, OPTION_SELF},     {"json", no_argument, NULL, OPTION_JSON},
        {"no-pin", no_argument, NULL, OPTION_NO_PIN}, {"keep", no_argument, NULL, OPTION_KEEP},
        {"help", no_argument, NULL, 'h'},             {NULL, 0, NULL, 0},
    };
    const uint32_t ids = UINT32_MAX - 1;
    int first_given = 0, last_given = 0, endpoint_given = 0, option;
    struct options options = {
        .program = program,
        .pin = 1,
        .board = MX_ANY_NIC,
        .first_size = program->first_size,
        .last_size = program->last_size,
        .repeats = 7,
        .window = 64,
    };

    opterr = 0;
    while ((option = getopt_long(argc, argv, program->has_window ? ":d:e:r:b:f:s:S:N:R:W:wvh"
                                                                 : ":d:e:r:b:f:s:S:N:R:wvh",
                                 LONG, NULL)) != -1) {
        switch (option) {
        case 'd': options.host = optarg; break;
        case 'e':
            options.endpoint = strcmp(optarg, "any") == 0
                                   ? MX_ANY_ENDPOINT
                                   : number(program, option, optarg, 0, ids, 0);
            endpoint_given = 1;
            break;
        case 'r': options.remote = number(program, option, optarg, 0, ids, 0); break;
        case 'b': options.board = number(program, option, optarg, 0, ids, 0); break;
        case 'f': options.key = number(program, option, optarg, 0, UINT32_MAX, 0); break;
        case 's':
            options.first_size = number(program, option, optarg, 0, SIZE_LIMIT, 1);
            first_given = 1;
            break;
        case 'S':
            options.last_size = number(program, option, optarg, 0, SIZE_LIMIT, 1);
            last_given = 1;
            break;
        case 'N': options.iterations = number(program, option, optarg, 1, 1000000000, 0); break;
        case 'R': options.repeats = number(program, option, optarg, 1, REPEATS_LIMIT, 0); break;
        case 'W': options.window = number(program, option, optarg, 1, WINDOW_LIMIT, 0); break;
        case 'w': options.sleep = 1; break;
        case 'v': options.verify = 1; break;
        case OPTION_SELF: options.self = 1; break;
        case OPTION_JSON: options.json = 1; break;
        case OPTION_NO_PIN: options.pin = 0; break;
        case OPTION_KEEP: options.keep = 1; break;
        case 'h': usage(program, stdout); exit(0);
        case ':': refuse(program, "a value is missing after", argv[optind - 1]); break;
        default: refuse(program, "no such option:", argv[optind - 1]);
        }
    }
    if (optind < argc)
        refuse(program, "what is", argv[optind]);
    if (options.self && options.host != NULL)
        refuse(program, "--self measures on this host: no -d", "");
    if (options.keep && (options.self || options.host != NULL))
        refuse(program, "--keep is for the other side: no -d, no --self", "");
    if (first_given && !last_given)
        options.last_size = options.first_size;
    if (options.first_size > options.last_size)
        refuse(program, "the first size is larger than the last", "");
    if (!endpoint_given && (options.host != NULL || options.self))
        options.endpoint = MX_ANY_ENDPOINT;
    return options;
}

uint64_t options_next_size(uint64_t size)
{
    return size == 0 ? 1 : size * 2;
}
