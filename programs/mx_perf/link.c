#define _GNU_SOURCE
#include "link.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Tests of a request between two readings of the clock. */
#define POLLS 10000

/* The last formatted text. One thread uses it, and only the last text counts. */
static char text[4096];

/* The library's message about the last failed call. */
static char said[4000];

static mx_return_t keep_words(char *str, mx_return_t code)
{
    snprintf(said, sizeof(said), "%s", str);
    return code;
}

static const char *failed(const char *what, mx_return_t code)
{
    if (code == MX_SUCCESS)
        return NULL;
    snprintf(text, sizeof(text), "%s: %s", what, link_reason(code));
    return text;
}

const char *link_reason(mx_return_t code)
{
    /* The message begins with the function's name, which means nothing to a user of the program. */
    const char *reason = strncmp(said, "mx_", 3) == 0 ? strstr(said, ": ") : NULL;

    return reason == NULL ? mx_strerror(code) : reason + 2;
}

double link_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *link_open(struct link *link, const struct options *options)
{
    mx_endpoint_addr_t own;
    const char *error;
    char what[64];

    mx_set_error_handler(keep_words);
    link->sleep = options->sleep;
    link->timeout_ms = WAIT_MS;
    if ((error = failed("mx_init", mx_init())) != NULL)
        return error;
    if (options->endpoint == MX_ANY_ENDPOINT)
        snprintf(what, sizeof(what), "opening an endpoint");
    else
        snprintf(what, sizeof(what), "opening endpoint %u", options->endpoint);
    error = failed(what, mx_open_endpoint(options->board, options->endpoint, options->key, NULL, 0,
                                          &link->endpoint));
    if (error == NULL)
        error = failed("own address", mx_get_endpoint_addr(link->endpoint, &own));
    if (error == NULL)
        error = failed("own address", mx_decompose_endpoint_addr(own, &link->nic_id, &link->id));
    return error;
}

void link_close(struct link *link)
{
    mx_close_endpoint(link->endpoint);
    mx_finalize();
}

const char *link_connect(struct link *link, uint64_t nic_id, uint32_t id, uint32_t key,
                         mx_endpoint_addr_t *peer)
{
    char what[64];

    snprintf(what, sizeof(what), "connecting to endpoint %u", id);
    return failed(what, mx_connect(link->endpoint, nic_id, id, key, WAIT_MS, peer));
}

const char *link_post_recv(struct link *link, void *data, uint32_t size, uint64_t bits,
                           mx_request_t *request)
{
    mx_segment_t segment = {data, size};

    return failed("mx_irecv", mx_irecv(link->endpoint, &segment, 1, bits, MX_MATCH_MASK_NONE, NULL,
                                       request));
}

const char *link_post_send(struct link *link, const void *data, uint32_t size,
                           mx_endpoint_addr_t peer, uint64_t bits, mx_request_t *request)
{
    mx_segment_t segment = {(void *)data, size};

    return failed("mx_isend", mx_isend(link->endpoint, &segment, 1, peer, bits, NULL, request));
}

const char *link_post_ssend(struct link *link, const void *data, uint32_t size,
                            mx_endpoint_addr_t peer, uint64_t bits, mx_request_t *request)
{
    mx_segment_t segment = {(void *)data, size};

    return failed("mx_issend", mx_issend(link->endpoint, &segment, 1, peer, bits, NULL, request));
}

/* Polls, or sleeps, until the request is done or the time-out has passed. */
static mx_return_t await(struct link *link, mx_request_t *request, mx_status_t *status,
                         uint32_t *done)
{
    double deadline = 0;
    int n;

    if (link->sleep)
        return mx_wait(link->endpoint, request, link->timeout_ms, status, done);
    do {
        for (n = 0; n < POLLS; n++) {
            mx_return_t code = mx_test(link->endpoint, request, status, done);
            if (code != MX_SUCCESS || *done)
                return code;
        }
        if (deadline == 0)
            deadline = link_now() + link->timeout_ms * 1e-3;
        /* The peer may be waiting for this processor. */
        sched_yield();
    } while (link_now() < deadline);
    return MX_SUCCESS;
}

const char *link_finish(struct link *link, mx_request_t *request, uint32_t size)
{
    mx_status_t status;
    uint32_t done = 0;
    mx_return_t code;

    if (*request == NULL)
        return NULL;
    code = await(link, request, &status, &done);
    if (code != MX_SUCCESS)
        return failed("waiting", code);
    if (!done) {
        link->timed_out = 1;
        snprintf(text, sizeof(text), "the other side has said nothing for %u s",
                 link->timeout_ms / 1000);
        return text;
    }
    if (status.code != MX_STATUS_SUCCESS)
        return mx_strstatus(status.code);
    if (status.xfer_length != size) {
        snprintf(text, sizeof(text), "a message of %u bytes instead of %u", status.xfer_length,
                 size);
        return text;
    }
    return NULL;
}

int link_give_up(struct link *link, mx_request_t *request)
{
    mx_status_t status;
    uint32_t gone = 0;

    if (*request == NULL)
        return 1;
    if (mx_cancel(link->endpoint, request, &gone) == MX_SUCCESS && gone)
        return 1;
    /* A send, or a receive that had a message: the disconnect has ended it. */
    mx_wait(link->endpoint, request, WAIT_MS, &status, &gone);
    return *request == NULL;
}
