/*
 * The measuring side, and the main function of both programs.
 *
 *   options --> (--self: the other side, in a process of its own) --> connect
 *     each size:  one repeat to warm up, then all that count  -->  median, smallest, largest
 */
#ifndef MX_PERF_MEASURE_H
#define MX_PERF_MEASURE_H

#include "plan.h"

/* The measuring side of a connection. */
struct session {
    const struct options *options;
    struct link link;
    mx_endpoint_addr_t peer;
    struct plan plan;
};

/* Seconds per repeat. */
struct times {
    double median;
    double least;
    double most;
};

struct measurement {
    struct program program;
    enum plan_kind kind;
    /* Round trips or messages in one repeat, unless -N gives the number. */
    uint32_t (*count)(uint32_t size);
    /* Runs one repeat according to session->plan; stores the seconds that it took. */
    const char *(*repeat)(struct session *session, double *seconds);
    void (*heading)(void);
    void (*row)(const struct session *session, const struct times *times);
};

int measure_main(const struct measurement *measurement, int argc, char **argv);

/* Receives an answer. Returns NULL unless the other side rejected the plan or found wrong bytes. */
const char *measure_answer(struct session *session);

#endif
