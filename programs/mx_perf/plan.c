#define _DEFAULT_SOURCE
#include "plan.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define CACHED_BYTES (4u << 20)
#define BUFFERS_LEAST 4u

struct plan plan_wire(struct plan plan)
{
    plan.magic = htole32(plan.magic);
    plan.kind = htole32(plan.kind);
    plan.id = htole32(plan.id);
    plan.size = htole32(plan.size);
    plan.count = htole32(plan.count);
    plan.window = htole32(plan.window);
    plan.sleep = htole32(plan.sleep);
    plan.verify = htole32(plan.verify);
    return plan;
}

struct answer answer_wire(struct answer answer)
{
    answer.magic = htole32(answer.magic);
    answer.refused = htole32(answer.refused);
    answer.bad = htole32(answer.bad);
    return answer;
}

uint32_t plan_buffers(uint32_t size, uint32_t window)
{
    uint32_t buffers = CACHED_BYTES / (size + 1);

    if (buffers < BUFFERS_LEAST)
        buffers = BUFFERS_LEAST;
    return buffers < window ? buffers : window;
}

static unsigned char pattern(uint32_t n, uint32_t at)
{
    return (unsigned char)(n * 131 + at + at / 251);
}

void plan_fill(unsigned char *data, uint32_t size, uint32_t n)
{
    uint32_t at;

    for (at = 0; at < size; at++)
        data[at] = pattern(n, at);
}

int plan_intact(const unsigned char *data, uint32_t size, uint32_t n)
{
    uint32_t at;

    for (at = 0; at < size; at++)
        if (data[at] != pattern(n, at))
            return 0;
    return 1;
}

int ring_make(struct ring *ring, uint32_t slots, uint32_t size)
{
    size_t bytes = (size_t)slots * (size ? size : 1);

    ring->slots = slots;
    ring->size = size;
    ring->requests = calloc(slots, sizeof(*ring->requests));
    ring->data = malloc(bytes);
    if (ring->requests == NULL || ring->data == NULL) {
        ring_free(ring);
        ring->slots = 0;
        return 0;
    }
    /* Touches every page before anything is timed. */
    memset(ring->data, 1, bytes);
    return 1;
}

unsigned char *ring_data(const struct ring *ring, uint32_t n)
{
    return ring->data + (size_t)(n % ring->slots) * ring->size;
}

mx_request_t *ring_request(const struct ring *ring, uint32_t n)
{
    return &ring->requests[n % ring->slots];
}

void ring_free(struct ring *ring)
{
    free(ring->requests);
    free(ring->data);
    ring->requests = NULL;
    ring->data = NULL;
}
