/*
 * The command line of mx_pingpong and mx_stream.
 *
 *   mx_pingpong [-e ID]                  be the other side, until its client is done
 *   mx_pingpong -d HOST [-r ID] ...      measure against it
 *   mx_pingpong --self ...               both, in two processes
 */
#ifndef MX_PERF_OPTIONS_H
#define MX_PERF_OPTIONS_H

#include <stdint.h>

/* A program's name, and its additions to the common options. */
struct program {
    const char *name;
    const char *summary;
    /* Unit counted in a repeat: "round trips" or "messages". */
    const char *counted;
    uint32_t first_size;
    uint32_t last_size;
    /* Whether the program has -W. */
    int has_window;
};

struct options {
    const struct program *program;
    /* Host of the other side; NULL if this process is the other side. */
    char *host;
    /* Whether to start the other side, too. */
    int self;
    /* Whether the other side continues when its client is done. */
    int keep;
    int pin;
    uint32_t board;
    uint32_t endpoint;
    uint32_t remote;
    uint32_t key;
    uint32_t first_size;
    uint32_t last_size;
    /* 0: chosen by size. */
    uint32_t iterations;
    uint32_t repeats;
    uint32_t window;
    int sleep;
    int verify;
    int json;
};

/* Parses the command line. Exits with 2 and the usage if it is wrong, with 0 for --help. */
struct options options_parse(const struct program *program, int argc, char **argv);

/* Returns the size after `size`: 0, 1, 2, 4 and so on. */
uint64_t options_next_size(uint64_t size);

#endif
