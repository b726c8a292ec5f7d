/*
 * mx_extensions.h - the part of the MX C API that programs have to ask for.
 *
 *     mx_iconnect ......................... connecting without waiting
 *     mx_register_unexp_handler ........... handler for messages without a receive
 *     mx_set_endpoint_addr_context ........ your own pointer on a peer
 *     mx_forget, mx_progress .............. forgetting a request, making progress
 *     mx_set_request_timeout .............. the time-out of sends and connects
 *
 * The rules of myriexpress.h hold.
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

/* The decision of an unexpected handler about the message. */
typedef enum mx_unexp_handler_action {
    /* It goes to a receive that matches by now, or else stays unexpected. */
    MX_RECV_CONTINUE = 0,
    /* It has been dealt with and is dropped. */
    MX_RECV_FINISHED = 1
} mx_unexp_handler_action_t;

/*
 * Called for a message that no posted receive has matched. `data_if_available` is all of it, or NULL
 * when it has not been transferred yet (or has no bytes). Up to 4096 bytes it is there, unless there is
 * no memory for it.
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
 * MX_NIC_NOT_FOUND: nothing is known of that NIC id.
 */
mx_return_t mx_iconnect(mx_endpoint_t ep, uint64_t nic_id, uint32_t eid, uint32_t key,
                        uint64_t match_info, void *context, mx_request_t *request);

/*
 * Ends the connection. What is under way with that peer completes with
 * MX_STATUS_ENDPOINT_UNREACHABLE, its unexpected messages are dropped, and the address with its
 * context is used up. A later connect starts afresh.
 */
mx_return_t mx_disconnect(mx_endpoint_t ep, mx_endpoint_addr_t addr);

/*
 * Calls `handler` for messages that no posted receive matches, in each peer's order; NULL for none. One
 * runs at a time. It may post, test, cancel and disconnect, but not close the endpoint; while it runs
 * nothing else arrives. Waits for a handler that runs, unless called from it.
 */
mx_return_t mx_register_unexp_handler(mx_endpoint_t ep, mx_unexp_handler_t handler, void *context);

/* Forgets a request: its end is not reported. *request is NULL afterwards. */
mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t *request);

/* Sends, receives and completes what can be, once. */
mx_return_t mx_progress(mx_endpoint_t ep);

/*
 * Puts a pointer on a peer. It belongs to the peer, not to this copy of its address: every status and
 * handler call that names the peer leads to it, until mx_disconnect. MX_BAD_ENDPOINT: no such peer.
 */
mx_return_t mx_set_endpoint_addr_context(mx_endpoint_addr_t endpoint_addr, void *context);

/* The pointer last put there, or NULL. */
mx_return_t mx_get_endpoint_addr_context(mx_endpoint_addr_t endpoint_addr, void **context);

/*
 * How long sends and connects may go without any progress: those posted from now on (`request`
 * NULL), or this one from now on. They then complete with MX_STATUS_TIMEOUT or
 * MX_STATUS_ENDPOINT_UNREACHABLE. Receives are not concerned before they are matched.
 */
mx_return_t mx_set_request_timeout(mx_endpoint_t endpoint, mx_request_t request,
                                   uint32_t milli_seconds);

/*
 * As mx_decompose_endpoint_addr, with the number of the session: another one each time the peer's
 * endpoint was opened.
 */
mx_return_t mx_decompose_endpoint_addr2(mx_endpoint_addr_t endpoint_addr, uint64_t *nic_id,
                                        uint32_t *endpoint_id, uint32_t *session_id);

#ifdef __cplusplus
}
#endif

#endif /* MX_EXTENSIONS_H */
