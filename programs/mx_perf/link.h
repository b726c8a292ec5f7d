/*
 * An open endpoint, and waiting for its requests with a time-out.
 *
 *   link_open --> link_post_recv, link_post_send --> link_finish   (polls, or sleeps with -w)
 *                                            `-----> link_give_up  (the peer is gone)
 *
 * Errors are returned as a text, NULL for none: a measuring program ends with it, the other side prints it and
 * serves the next client.
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
    /* Silence, in milliseconds, after which a peer is given up in the middle of a measurement. */
    uint32_t timeout_ms;
    /* True once a peer has been given up. */
    int timed_out;
};

/* Time-outs of the measuring side, of that side while others may be served before it, and of the other side. */
#define WAIT_MS 10000u
#define WAIT_IN_LINE_MS 60000u
#define WAIT_SERVING_MS 5000u

/* Returns the library's own text for a call that has just failed. */
const char *link_reason(mx_return_t code);

/* Starts the library and opens the endpoint that the options name. */
const char *link_open(struct link *link, const struct options *options);

void link_close(struct link *link);

/* Connects to an endpoint that is open. */
const char *link_connect(struct link *link, uint64_t nic_id, uint32_t id, uint32_t key,
                         mx_endpoint_addr_t *peer);

const char *link_post_recv(struct link *link, void *data, uint32_t size, uint64_t bits,
                           mx_request_t *request);

const char *link_post_send(struct link *link, const void *data, uint32_t size,
                           mx_endpoint_addr_t peer, uint64_t bits, mx_request_t *request);

/* Posts a send that completes when it has been received, and so fails if the peer ends before. */
const char *link_post_ssend(struct link *link, const void *data, uint32_t size,
                            mx_endpoint_addr_t peer, uint64_t bits, mx_request_t *request);

/* Waits for the request; a message must have exactly `size` bytes. Returns at once for NULL. */
const char *link_finish(struct link *link, mx_request_t *request, uint32_t size);

/* Cancels a request with a peer that is disconnected already. Returns 0 if it has not ended: the buffer must stay. */
int link_give_up(struct link *link, mx_request_t *request);

/* Returns seconds of a monotonic clock. */
double link_now(void);

#endif
