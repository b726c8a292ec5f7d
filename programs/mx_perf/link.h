/*
 * An open endpoint, and waiting on it with the time-out that ends.
 *
 *   link_open --> link_post_recv, link_post_send --> link_finish   (polls, or sleeps with -w)
 *                                            `-----> link_give_up  (the peer is gone)
 *
 * An error comes back as a text, NULL for none: a measuring program ends with it, the other side
 * notes it and serves the next.
 */
#ifndef MX_PERF_LINK_H
#define MX_PERF_LINK_H

#include "options.h"

#include <myriexpress.h>

struct link {
    mx_endpoint_t endpoint;
    uint64_t nic_id;
    uint32_t id;
    /* Sleep in mx_wait instead of polling. */
    int sleep;
    /* A peer that says nothing for so long, in the middle of a measurement, is gone. */
    uint32_t timeout_ms;
    /* That has happened. */
    int timed_out;
};

/* The measuring side's, that side's while others may be served before it, and the other side's. */
#define WAIT_MS 10000u
#define WAIT_IN_LINE_MS 60000u
#define WAIT_SERVING_MS 5000u

/* The library's own words for a call that has just failed. */
const char *link_reason(mx_return_t code);

/* Starts the library and opens the endpoint that the options name. */
const char *link_open(struct link *link, const struct options *options);

void link_close(struct link *link);

/* Connects to an endpoint that is there already. */
const char *link_connect(struct link *link, uint64_t nic_id, uint32_t id, uint32_t key,
                         mx_endpoint_addr_t *peer);

const char *link_post_recv(struct link *link, void *data, uint32_t size, uint64_t bits,
                           mx_request_t *request);

const char *link_post_send(struct link *link, const void *data, uint32_t size,
                           mx_endpoint_addr_t peer, uint64_t bits, mx_request_t *request);

/* Under way until it is received, so it fails when the peer is gone before that. */
const char *link_post_ssend(struct link *link, const void *data, uint32_t size,
                            mx_endpoint_addr_t peer, uint64_t bits, mx_request_t *request);

/* Waits for the request; a message must have exactly `size` bytes. Nothing to do for NULL. */
const char *link_finish(struct link *link, mx_request_t *request, uint32_t size);

/*
 * Takes back what is under way with a peer that is disconnected already. 0 when that cannot be had:
 * the buffer must stay.
 */
int link_give_up(struct link *link, mx_request_t *request);

/* Seconds on a clock that only goes forward. */
double link_now(void);

#endif
