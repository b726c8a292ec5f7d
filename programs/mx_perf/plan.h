/*
 * The measuring side's plan, and the messages between the two sides.
 *
 *   measuring side                          other side
 *     PLAN    kind, size, count ...   -->     posts its first receives
 *             ready, or rejected      <--   ANSWER
 *     DATA    ping                    -->
 *             pong                    <--   DATA        (count times)
 *   or
 *     DATA    count messages          -->
 *             number of bad messages  <--   ANSWER
 *
 * The id in the match bits separates the messages of a client that died from its successor's.
 */
#ifndef MX_PERF_PLAN_H
#define MX_PERF_PLAN_H

#include "link.h"

#define MATCH_PLAN (UINT64_C(1) << 48)
#define MATCH_ANSWER (UINT64_C(2) << 48)
#define MATCH_DATA (UINT64_C(3) << 48)

enum plan_kind { PLAN_PING = 1, PLAN_STREAM, PLAN_QUIT };

/* 32-bit words, little endian on the wire. */
struct plan {
    uint32_t magic;
    uint32_t kind;
    uint32_t id;
    uint32_t size;
    uint32_t count;
    uint32_t window;
    uint32_t sleep;
    uint32_t verify;
};

struct answer {
    uint32_t magic;
    uint32_t refused;
    uint32_t bad;
};

#define PLAN_MAGIC 0x4d58504cu

/* Converts between host order and the wire's; the same in both directions. */
struct plan plan_wire(struct plan plan);
struct answer answer_wire(struct answer answer);

/* Returns the number of buffers of `size` bytes that a stream uses in turn: few enough to stay in the caches. */
uint32_t plan_buffers(uint32_t size, uint32_t window);

/* Fill in the bytes of message `n`, and check them. */
void plan_fill(unsigned char *data, uint32_t size, uint32_t n);
int plan_intact(const unsigned char *data, uint32_t size, uint32_t n);

/* A ring of requests, each with a buffer, in a single allocation. */
struct ring {
    uint32_t slots;
    uint32_t size;
    mx_request_t *requests;
    unsigned char *data;
};

int ring_make(struct ring *ring, uint32_t slots, uint32_t size);
unsigned char *ring_data(const struct ring *ring, uint32_t n);
mx_request_t *ring_request(const struct ring *ring, uint32_t n);
void ring_free(struct ring *ring);

#endif
