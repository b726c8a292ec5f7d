/*
 * A party of MX, as most tests need it: an endpoint, its peer, requests waited for.
 *
 *     side "a"                          side "b"
 *       pair_open() ── both open any endpoint, tell its number, connect to the other's
 *       send_to() receive() finish()      ...
 *       pair_close() ── both say "bye" and close
 *
 * Every program of the suite has a block of endpoint ids (MX_PORT_BASE) to itself, so that it
 * meets no other program that runs at the same time, and ids can be counted on.
 *
 * Owns: the claim to the block. Knows nothing of: buffers' contents.
 */
#ifndef MX_TESTS_PARTY_H
#define MX_TESTS_PARTY_H

#include "../../support/pattern.h"
#include "../../support/port.h"
#include "../../support/world.h"
#include "mx.h"

/* The key of all endpoints whose test is not about keys. */
#define KEY UINT32_C(0x12345678)
/* No bits are left out. */
#define EXACTLY MX_MATCH_MASK_NONE
#define ANYTHING UINT64_C(0)

/* Claims ids in the director, and has deaths noticed soon. */
void party_prepare(int argc, char **argv);
/* main() of every program. */
#define PARTY_TESTS(...) TESTS_AFTER(party_prepare(argc, argv), __VA_ARGS__)

/* ---- life ---- */

/* mx_init with note_error() as handler. */
void party_start(void);
/* mx_finalize; it was the last. */
void party_stop(void);
/* Any board, any id, KEY, no parameters. */
mx_endpoint_t open_any(void);
/* Party_start and open_any. */
mx_endpoint_t party_open(void);
/* Close and stop. */
void party_close(mx_endpoint_t ep);

/* ---- addresses ---- */

uint64_t local_nic(void);
uint32_t id_of(mx_endpoint_t ep);
mx_endpoint_addr_t address_of(mx_endpoint_t ep);
/* mx_connect to an endpoint of this host with KEY and timeout. */
mx_endpoint_addr_t connect_to(mx_endpoint_t ep, uint32_t id);
bool same_address(mx_endpoint_addr_t a, mx_endpoint_addr_t b);

/* ---- requests ---- */

/* One segment. The request's context is the buffer. */
mx_request_t send_to(mx_endpoint_t ep, mx_endpoint_addr_t to, const void *buffer, size_t size,
                     uint64_t bits);
mx_request_t ssend_to(mx_endpoint_t ep, mx_endpoint_addr_t to, const void *buffer, size_t size,
                      uint64_t bits);
mx_request_t receive(mx_endpoint_t ep, void *buffer, size_t size, uint64_t bits, uint64_t mask);

/* mx_test. */
bool is_done(mx_endpoint_t ep, mx_request_t *request, mx_status_t *status);
/* mx_wait with timeout; the request is used up. */
mx_status_t finish(mx_endpoint_t ep, mx_request_t request);
/* Likewise, with a status of success and `size` bytes. */
mx_status_t succeed(mx_endpoint_t ep, mx_request_t request, size_t size);
/* Calls mx_progress and mx_test for so long, and fails when the request completes. */
void stays_pending(mx_endpoint_t ep, mx_request_t *request, int ms);
/* mx_iprobe until there is a message. */
mx_status_t probe_for(mx_endpoint_t ep, uint64_t bits, uint64_t mask);

/* Sends and receives one message between two endpoints of this process. */
void exchange(mx_endpoint_t from, mx_endpoint_addr_t to, mx_endpoint_t at, size_t size,
              uint64_t bits);

/* ---- two endpoints of this process: one thread plays both sides ---- */

extern mx_endpoint_t a, b;
/* The address of b at a. */
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
/* Waits for the note while the library is kept moving. */
int64_t pair_hear(struct pair *pair, const char *word);
/* Both sides meet here; neither goes on before the other has come. */
void pair_sync(struct pair *pair);
void pair_close(struct pair *pair);

#endif
