/*
 * An endpoint, its peer, and requests that are waited for, as most MX tests need them.
 *
 *     side "a"                          side "b"
 *       pair_open() ── both open any endpoint, send its number, connect to the other's
 *       send_to() receive() finish()      ...
 *       pair_close() ── both say "bye" and close
 *
 * Every program of the suite has a block of endpoint ids (MX_PORT_BASE) to itself: no other running program uses
 * them, and tests can rely on ids.
 *
 * Owns: the claim to the block. Knows nothing of: buffers' contents.
 */
#ifndef MX_TESTS_PARTY_H
#define MX_TESTS_PARTY_H

#include "../../support/pattern.h"
#include "../../support/port.h"
#include "../../support/world.h"
#include "mx.h"

/* The key of all endpoints, unless a test is about keys. */
#define KEY UINT32_C(0x12345678)
/* A mask that compares all bits. */
#define EXACTLY MX_MATCH_MASK_NONE
#define ANYTHING UINT64_C(0)

/* Claims ids in the director, and shortens the detection of deaths. */
void party_prepare(int argc, char **argv);
/* Defines main() of every program. */
#define PARTY_TESTS(...) TESTS_AFTER(party_prepare(argc, argv), __VA_ARGS__)

/* ---- life ---- */

/* Calls mx_init with note_error() as handler. */
void party_start(void);
/* Calls mx_finalize, which must be the last one. */
void party_stop(void);
/* Opens an endpoint with any board, any id, KEY, and no parameters. */
mx_endpoint_t open_any(void);
/* Calls party_start and open_any. */
mx_endpoint_t party_open(void);
/* Closes the endpoint and calls party_stop. */
void party_close(mx_endpoint_t ep);

/* ---- addresses ---- */

uint64_t local_nic(void);
uint32_t id_of(mx_endpoint_t ep);
mx_endpoint_addr_t address_of(mx_endpoint_t ep);
/* Calls mx_connect to an endpoint of this host with KEY and a time-out. */
mx_endpoint_addr_t connect_to(mx_endpoint_t ep, uint32_t id);
bool same_address(mx_endpoint_addr_t a, mx_endpoint_addr_t b);

/* ---- requests ---- */

/* Sends one segment. The request's context is the buffer. */
mx_request_t send_to(mx_endpoint_t ep, mx_endpoint_addr_t to, const void *buffer, size_t size,
                     uint64_t bits);
mx_request_t ssend_to(mx_endpoint_t ep, mx_endpoint_addr_t to, const void *buffer, size_t size,
                      uint64_t bits);
mx_request_t receive(mx_endpoint_t ep, void *buffer, size_t size, uint64_t bits, uint64_t mask);

/* Calls mx_test. */
bool is_done(mx_endpoint_t ep, mx_request_t *request, mx_status_t *status);
/* Calls mx_wait with a time-out; the request is no longer valid. */
mx_status_t finish(mx_endpoint_t ep, mx_request_t request);
/* Likewise, and checks for success and `size` bytes. */
mx_status_t succeed(mx_endpoint_t ep, mx_request_t request, size_t size);
/* Calls mx_progress and mx_test for `ms`, and fails if the request completes. */
void stays_pending(mx_endpoint_t ep, mx_request_t *request, int ms);
/* Calls mx_iprobe until there is a message. */
mx_status_t probe_for(mx_endpoint_t ep, uint64_t bits, uint64_t mask);

/* Sends and receives one message between two endpoints of this process. */
void exchange(mx_endpoint_t from, mx_endpoint_addr_t to, mx_endpoint_t at, size_t size,
              uint64_t bits);

/* ---- two endpoints of this process: one thread drives both ---- */

extern mx_endpoint_t a, b;
/* The address of b at endpoint a. */
extern mx_endpoint_addr_t to_b;
void open_two(void);
void close_two(void);

/* ---- pairs ---- */

struct pair {
    struct side *side;
    mx_endpoint_t ep;
    mx_endpoint_addr_t peer;
    uint32_t id, peer_id;
};

struct pair pair_open(struct side *side);
/* Waits for the note, and makes progress meanwhile. */
int64_t pair_hear(struct pair *pair, const char *word);
/* Both sides wait here until the other has come. */
void pair_sync(struct pair *pair);
void pair_close(struct pair *pair);

#endif
