/*
 * mx_extensions.h - the part of the MX C API that programs have to include separately.
 *
 *     mx_iconnect ......................... connecting without waiting
 *     mx_register_unexp_handler ........... handler for messages without a receive
 *     mx_set_endpoint_addr_context ........ your own pointer on a peer
 *     mx_forget, mx_progress .............. forgetting a request, making progress
 *     mx_set_request_timeout .............. the time-out of sends and connects
 *
 * The rules of myriexpress.h apply.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MX_EXTENSIONS_H
#define MX_EXTENSIONS_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

/* mx_iconnect takes match bits. */
#define MX_HAS_ICONNECT_V2 1

/* Decisions of an unexpected handler about a message. */
typedef enum mx_unexp_handler_action {
    /* The message goes to a receive that matches now, or else stays unexpected. */
    MX_RECV_CONTINUE = 0,
    /* The message has been consumed and is dropped. */
    MX_RECV_FINISHED = 1
} mx_unexp_handler_action_t;

/*
 * Called for a message that no posted receive has matched. `data_if_available` is the whole
 * message, or NULL if it has not been transferred yet (or is empty). Data of up to 4096 bytes is
 * available, unless memory is short.
 */
typedef mx_unexp_handler_action_t (*mx_unexp_handler_t)(void *context, mx_endpoint_addr_t source,
                                                        uint64_t match_value, uint32_t length,
                                                        void *data_if_available);

/*
 * Connects without waiting. The request completes with the address as status.source and with
 * `match_info`, by which mx_test_any finds it. Its code is MX_STATUS_SUCCESS,
 * MX_STATUS_ENDPOINT_CLOSED (there is no such endpoint), MX_STATUS_BAD_KEY, MX_STATUS_BAD_ENDPOINT,
 * MX_STATUS_TIMEOUT or MX_STATUS_ENDPOINT_UNREACHABLE. With a NULL `request` it is forgotten.
 *
 * MX_NIC_NOT_FOUND: the NIC id is unknown.
 */
mx_return_t mx_iconnect(mx_endpoint_t ep, uint64_t nic_id, uint32_t eid, uint32_t key,
                        uint64_t match_info, void *context, mx_request_t *request);

/*
 * Disconnects a peer. Its operations complete with MX_STATUS_ENDPOINT_UNREACHABLE, its unexpected
 * messages are dropped, and the address with its context becomes invalid. A later connect starts
 * afresh.
 */
mx_return_t mx_disconnect(mx_endpoint_t ep, mx_endpoint_addr_t addr);

/*
 * Calls `handler` for messages that no posted receive matches, in each peer's order; NULL removes
 * it. One call runs at a time. The handler may post, test, cancel and disconnect, but not close the
 * endpoint; while it runs no other message arrives. Waits for a running handler, unless called from
 * it.
 */
mx_return_t mx_register_unexp_handler(mx_endpoint_t ep, mx_unexp_handler_t handler, void *context);

/* Forgets a request: its end is not reported. *request is NULL afterwards. */
mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t *request);

/* Polls the endpoint once: receives, sends and completes operations. */
mx_return_t mx_progress(mx_endpoint_t ep);

/*
 * Attaches a pointer to a peer. It belongs to the peer, not to this copy of the address: every
 * status and handler call that names the peer leads to it, until mx_disconnect. MX_BAD_ENDPOINT: no
 * such peer.
 */
mx_return_t mx_set_endpoint_addr_context(mx_endpoint_addr_t endpoint_addr, void *context);

/* Returns the attached pointer, or NULL. */
mx_return_t mx_get_endpoint_addr_context(mx_endpoint_addr_t endpoint_addr, void **context);

/*
 * Sets the time that sends and connects may take without any progress: those posted from now on
 * (`request` NULL), or this one from now on. They then complete with MX_STATUS_TIMEOUT or
 * MX_STATUS_ENDPOINT_UNREACHABLE. Receives have no limit until they are matched.
 */
mx_return_t mx_set_request_timeout(mx_endpoint_t endpoint, mx_request_t request,
                                   uint32_t milli_seconds);

/*
 * Does what mx_decompose_endpoint_addr does, and returns the session number, which differs for each
 * opening of the peer's endpoint.
 */
mx_return_t mx_decompose_endpoint_addr2(mx_endpoint_addr_t endpoint_addr, uint64_t *nic_id,
                                        uint32_t *endpoint_id, uint32_t *session_id);

#ifdef __cplusplus
}
#endif

#endif /* MX_EXTENSIONS_H */
