/*
 * myriexpress.h - the MX C API of libmyriexpress.
 *
 *     mx_init                      mx_open_endpoint            mx_connect
 *        |                            |                           |
 *        v                            v                           v
 *     environment read,    your endpoint (board, id, key)   an address to send to
 *     once per process                |
 *                      mx_isend, mx_issend, mx_irecv  -->  requests
 *                      mx_test, mx_wait, mx_test_any, mx_wait_any  -->  mx_status_t
 *
 * Every function may be called from any thread at any time. No argument can end the process, except
 * through the default error handler: a call that fails calls the error handler of its endpoint, or
 * else of the process, and returns that handler's result. The default is MX_ERRORS_ARE_FATAL; with
 * MX_ERRORS_RETURN every call returns its code. A call that fails writes no output and changes
 * nothing.
 *
 * Endpoints, requests and addresses are words that the library checks, not pointers that it
 * dereferences: for a stale, closed or invalid one it returns MX_BAD_ENDPOINT or MX_BAD_REQUEST.
 * Times are milliseconds; MX_INFINITE waits for ever.
 *
 * The rest of MX, such as mx_iconnect and mx_register_unexp_handler, is in mx_extensions.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MYRIEXPRESS_H
#define MYRIEXPRESS_H

#include <inttypes.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header and of the library it came with. */
#define MYRIEXPRESS_VERSION "0.1.0"

/* Version of this interface. The upper byte must be the library's own. */
#define MX_API 0x301

/* Longest string of mx_get_info, its NUL included. */
#define MX_MAX_STR_LEN 128

/* Size of an mx_endpoint_addr_t in bytes. */
#define MX_SIZEOF_ADDR 16

/* mx_open_endpoint: the first board. */
#define MX_ANY_NIC 0xffffffffU

/* mx_open_endpoint: the lowest free endpoint id. */
#define MX_ANY_ENDPOINT 0xffffffffU

/* A time-out that never expires. */
#define MX_INFINITE 0

/* Maximum number of bits of a context id. */
#define MX_CONTEXT_ID_BITS_MAX 16

/* Maximum number of segments of a message. */
#define MX_MAX_SEGMENTS 256

/* A mask that compares every bit. */
#define MX_MATCH_MASK_NONE UINT64_C(0xffffffffffffffff)

/* Longest host name, its NUL included. */
#define MX_MAX_HOSTNAME_LEN 80

/* The upper and the lower half of a 64-bit number, such as a NIC id. */
#define MX_U32(x) ((uint32_t)((uint64_t)(x) >> 32))
#define MX_L32(x) ((uint32_t)(x))

/* mx_get_info knows MX_NET_TYPE. */
#define MX_HAS_NET_TYPE 1

/* An invalid board handle, which mx_open_board (mx_io.h) never returns. */
#define MX__INVALID_HANDLE (-1)

/* Return codes. */
enum mx_return_code {
    MX_SUCCESS = 0,
    MX_BAD_BAD_BAD = 1,
    MX_FAILURE = 2,
    MX_ALREADY_INITIALIZED = 3,
    MX_NOT_INITIALIZED = 4,
    MX_NO_DEV = 5,
    MX_NO_DRIVER = 6,
    MX_NO_PERM = 7,
    MX_BOARD_UNKNOWN = 8,
    MX_BAD_ENDPOINT = 9,
    MX_BAD_SEG_LIST = 10,
    MX_BAD_SEG_MEM = 11,
    MX_BAD_SEG_CNT = 12,
    MX_BAD_REQUEST = 13,
    MX_BAD_MATCH_MASK = 14,
    MX_NO_RESOURCES = 15,
    MX_BAD_ADDR_LIST = 16,
    MX_BAD_ADDR_COUNT = 17,
    MX_BAD_ROOT = 18,
    MX_NOT_COMPLETED = 19,
    MX_BUSY = 20,
    MX_BAD_INFO_KEY = 21,
    MX_BAD_INFO_VAL = 22,
    MX_BAD_NIC = 23,
    MX_BAD_PARAM_LIST = 24,
    MX_BAD_PARAM_NAME = 25,
    MX_BAD_PARAM_VAL = 26,
    MX_BAD_HOSTNAME_ARGS = 27,
    MX_HOST_NOT_FOUND = 28,
    MX_REQUEST_PENDING = 29,
    MX_TIMEOUT = 30,
    MX_NO_MATCH = 31,
    MX_BAD_ENDPOINT_ID = 32,
    MX_CONNECTION_FAILED = 33,
    MX_BAD_CONNECTION_KEY = 34,
    MX_BAD_INFO_LENGTH = 35,
    MX_NIC_NOT_FOUND = 36,
    MX_BAD_KERNEL_VERSION = 37,
    MX_BAD_LIB_VERSION = 38,
    MX_NIC_DEAD = 39,
    MX_CANCEL_NOT_SUPPORTED = 40,
    MX_CLOSE_IN_HANDLER = 41,
    MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK = 42,
    MX_NOT_SUPPORTED_WITH_CONTEXT_ID = 43
};
typedef enum mx_return_code mx_return_t;

/* Status codes of requests. */
enum mx_status_code {
    MX_STATUS_SUCCESS = 0,
    MX_STATUS_PENDING = 1,
    MX_STATUS_BUFFERED = 2,
    MX_STATUS_REJECTED = 3,
    MX_STATUS_TIMEOUT = 4,
    MX_STATUS_TRUNCATED = 5,
    MX_STATUS_CANCELLED = 6,
    MX_STATUS_ENDPOINT_UNKNOWN = 7,
    MX_STATUS_ENDPOINT_CLOSED = 8,
    MX_STATUS_ENDPOINT_UNREACHABLE = 9,
    MX_STATUS_BAD_SESSION = 10,
    MX_STATUS_BAD_KEY = 11,
    MX_STATUS_BAD_ENDPOINT = 12,
    MX_STATUS_BAD_RDMAWIN = 13,
    MX_STATUS_ABORTED = 14,
    MX_STATUS_EVENTQ_FULL = 15,
    MX_STATUS_NO_RESOURCES = 16
};
typedef enum mx_status_code mx_status_code_t;

/* An open endpoint. */
typedef struct mx_endpoint *mx_endpoint_t;

/* A request that has not been tested to its end. */
typedef union mx_request *mx_request_t;

/* A peer of one endpoint of this process; invalid for other endpoints. Copied by value. */
typedef struct {
    uint64_t stuff[2];
} mx_endpoint_addr_t;

typedef void *mx_segment_ptr_t;

/* A piece of a message. A length of 0 is legal, with any pointer. */
typedef struct {
    mx_segment_ptr_t segment_ptr;
    uint32_t segment_length;
} mx_segment_t;

/* Result of a request. */
typedef struct mx_status {
    /* Status code; an error handler may have changed it. */
    mx_status_code_t code;
    /* Source of a receive, destination of a send, the address from a connect. */
    mx_endpoint_addr_t source;
    /* Match bits of the message as sent. */
    uint64_t match_info;
    /* Bytes of the message, and bytes transferred: fewer if it was truncated. */
    uint32_t msg_length;
    uint32_t xfer_length;
    /* Pointer given to the post. */
    void *context;
} mx_status_t;

/*
 * Called with a text that describes the failure, and the code. The result becomes the call's return
 * value, or the code of the request's status. No lock is held: the handler may call MX functions. A
 * C++ exception that leaves this function, or any other function called by this library, aborts the
 * process.
 */
typedef mx_return_t (*mx_error_handler_t)(char *str, mx_return_t ret);

/* The default handler: prints the text on stderr and ends the process with exit(1). */
extern const mx_error_handler_t MX_ERRORS_ARE_FATAL;

/* The handler that returns its code. */
extern const mx_error_handler_t MX_ERRORS_RETURN;

/* Parameters of mx_open_endpoint. */
typedef enum mx_param_key {
    /* val.error_handler: the endpoint's own handler; NULL for the process's. */
    MX_PARAM_ERROR_HANDLER = 0,
    /* val.unexp_queue_max: maximum bytes of unexpected messages; 0 for the default. */
    MX_PARAM_UNEXP_QUEUE_MAX = 1,
    /* val.context_id: a field of the match bits that divides messages into classes. */
    MX_PARAM_CONTEXT_ID = 2
} mx_param_key_t;

typedef struct {
    mx_param_key_t key;
    union {
        mx_error_handler_t error_handler;
        uint32_t unexp_queue_max;
        struct {
            /* At most MX_CONTEXT_ID_BITS_MAX, and bits + shift at most 64. */
            uint8_t bits;
            uint8_t shift;
        } context_id;
    } val;
} mx_param_t;

/* Keys of mx_get_info, whose in_val names a board. */
typedef enum mx_get_info_key {
    /* uint32_t: number of boards of this machine. */
    MX_NIC_COUNT = 1,
    /* uint64_t[boards]: their NIC ids, followed by a 0 if there is room. */
    MX_NIC_IDS = 2,
    /* uint32_t: maximum number of open endpoints of this process. */
    MX_MAX_NATIVE_ENDPOINTS = 3,
    /* uint32_t: maximum number of requests of an endpoint at the same time. */
    MX_NATIVE_REQUESTS = 4,
    /* uint32_t: number of counters of an endpoint. */
    MX_COUNTERS_COUNT = 5,
    /* char[counters][MX_MAX_STR_LEN]: their names. */
    MX_COUNTERS_LABELS = 6,
    /* uint32_t[counters]: the endpoint's; without one, the sums of the board's open endpoints. */
    MX_COUNTERS_VALUES = 7,
    /* char[MX_MAX_STR_LEN]: the driver of the board, or "virtual". */
    MX_PRODUCT_CODE = 8,
    /* char[MX_MAX_STR_LEN]: the name of its interface. */
    MX_PART_NUMBER = 9,
    /* uint32_t: the lower half of its NIC id. */
    MX_SERIAL_NUMBER = 10,
    /* uint32_t: number of network ports of the board. */
    MX_PORT_COUNT = 11,
    /* uint32_t: the largest message that the call itself transfers; equals MX_COPY_SEND_MAX. */
    MX_PIO_SEND_MAX = 12,
    /*
     * uint32_t: the largest message that is sent eagerly, 32768 unless the endpoint's ports allow
     * less; the receiver pulls larger ones.
     */
    MX_COPY_SEND_MAX = 13,
    /* uint32_t: the NUMA node of the board, 0xffffffff if there is none or it is unknown. */
    MX_NUMA_NODE = 14,
    /* uint32_t: an mx_net_type. */
    MX_NET_TYPE = 15,
    /* uint32_t: an mx_line_speed_t. */
    MX_LINE_SPEED = 16
} mx_get_info_key_t;

/* The network behind a board. */
enum mx_net_type {
    MX_NET_MYRI = 0,
    MX_NET_ETHER = 1
};

/* The speed of a board. MX_SPEED_OPEN_MX: that of the underlying Ethernet device. */
typedef enum mx_line_speed {
    MX_SPEED_2G = 0,
    MX_SPEED_10G = 1,
    MX_SPEED_OPEN_MX = 2
} mx_line_speed_t;

/* Called for unexpected messages. See mx_register_unexp_callback. */
typedef void (*mx_matching_callback_t)(void *context, uint64_t match_value, int length);

/* ---- the library ------------------------------------------------------------------------------ */

/*
 * Starts the library and reads the MX_* environment. Inits are counted: each one after the first
 * returns MX_ALREADY_INITIALIZED through the error handler (which by default ends the process), and
 * needs an mx_finalize of its own. The child of a fork may call it once more without that error.
 *
 * MX_BAD_LIB_VERSION: the program was compiled for another interface.
 */
#define mx_init() mx__init_api(MX_API)
mx_return_t mx__init_api(int api);

/*
 * Undoes one mx_init. The last call closes every endpoint and ends the library; mx_init then works
 * again. MX_CLOSE_IN_HANDLER: inside an unexpected handler.
 */
mx_return_t mx_finalize(void);

/*
 * Sets the handler for calls and requests whose endpoint has none of its own; NULL for the default.
 * May be called before mx_init. Returns the previous one.
 */
mx_error_handler_t mx_set_error_handler(mx_error_handler_t handler);

/* Returns the text of a return code; never NULL. */
const char *mx_strerror(mx_return_t return_code);

/* Returns the text of a status code; never NULL. */
const char *mx_strstatus(mx_status_code_t status);

/* ---- endpoints -------------------------------------------------------------------------------- */

/*
 * Opens endpoint `endpoint_id` of board `board_number`, or the lowest free one (MX_ANY_ENDPOINT),
 * or one of the first board (MX_ANY_NIC). Peers have to connect with the same `endpoint_key`.
 *
 * MX_BOARD_UNKNOWN; MX_BAD_ENDPOINT: no such id; MX_BUSY: the id is in use; MX_BAD_PARAM_LIST,
 * MX_BAD_PARAM_NAME, MX_BAD_PARAM_VAL; MX_NO_RESOURCES; MX_NO_PERM; MX_NO_DEV: the requested port
 * over libfabric is not available. Errors go to the process's error handler, not to the new one.
 */
mx_return_t mx_open_endpoint(uint32_t board_number, uint32_t endpoint_id, uint32_t endpoint_key,
                             mx_param_t *params_array, uint32_t params_count,
                             mx_endpoint_t *endpoint);

/*
 * Closes an endpoint. Its requests end without a completion, and their buffers are no longer
 * accessed. Threads that wait on it return MX_BAD_ENDPOINT. MX_CLOSE_IN_HANDLER: inside its
 * unexpected handler.
 */
mx_return_t mx_close_endpoint(mx_endpoint_t endpoint);

/*
 * Wakes every thread that waits on the endpoint now: mx_wait, mx_wait_any, mx_peek, mx_probe and
 * mx_buffered succeed with *result 0, mx_connect returns MX_TIMEOUT. Has no effect without such
 * threads.
 */
mx_return_t mx_wakeup(mx_endpoint_t endpoint);

/*
 * Disables progress: no message is received, answered or passed to the unexpected handler until
 * mx_reenable_progression. A posted message that can be sent at once is sent. Waits for a running
 * handler. May be called twice.
 */
mx_return_t mx_disable_progression(mx_endpoint_t ep);

/* Enables progress again, and handles the messages that have arrived meanwhile. */
mx_return_t mx_reenable_progression(mx_endpoint_t ep);

/* ---- messages --------------------------------------------------------------------------------- */

/*
 * Sends the segments as one message. Messages to one endpoint arrive in order. The list is copied;
 * the buffers must not change until the request completes. Messages of up to MX_COPY_SEND_MAX bytes
 * complete before they are received while the receiver lends credits for them, larger ones when the
 * receiver has their data. A message sent after a send has completed is not received before that
 * send's data is in place. With a NULL `request` the send is forgotten (mx_forget).
 *
 * MX_BAD_SEG_CNT: more than MX_MAX_SEGMENTS; MX_BAD_SEG_LIST: NULL with a count above 0, or a
 * message of more than 2^32 - 1 bytes; MX_BAD_SEG_MEM: NULL with a length above 0; MX_BAD_ENDPOINT:
 * also an address of another endpoint, or an invalid one; MX_NO_RESOURCES: too many requests, or no
 * memory. For a disconnected address the request completes with MX_STATUS_ENDPOINT_UNREACHABLE.
 */
mx_return_t mx_isend(mx_endpoint_t endpoint, mx_segment_t *segments_list, uint32_t segments_count,
                     mx_endpoint_addr_t dest_endpoint, uint64_t match_info, void *context,
                     mx_request_t *request);

/*
 * Sends as mx_isend does, but never completes before a receive has taken the message. If an
 * unexpected handler has consumed the message, the status is MX_STATUS_TRUNCATED, except for an
 * empty one.
 */
mx_return_t mx_issend(mx_endpoint_t endpoint, mx_segment_t *segments_list, uint32_t segments_count,
                      mx_endpoint_addr_t dest_endpoint, uint64_t match_info, void *context,
                      mx_request_t *request);

/*
 * Receives the first message whose match bits, masked with `match_mask`, equal `match_info`: the
 * oldest that has arrived, or else the next. A message longer than the segments completes with
 * MX_STATUS_TRUNCATED.
 *
 * MX_BAD_MATCH_MASK: `match_info` has bits outside the mask; MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK:
 * the mask does not cover the context id; and the codes of mx_isend for segments.
 */
mx_return_t mx_irecv(mx_endpoint_t endpoint, mx_segment_t *segments_list, uint32_t segments_count,
                     uint64_t match_info, uint64_t match_mask, void *context,
                     mx_request_t *request);

/*
 * Cancels a receive that no message has matched, or a connect that has not been answered. *result
 * 1: cancelled; the request never completes, and *request is NULL. *result 0: too late; the request
 * has to be tested. MX_CANCEL_NOT_SUPPORTED: a send.
 */
mx_return_t mx_cancel(mx_endpoint_t endpoint, mx_request_t *request, uint32_t *result);

/* ---- completion ------------------------------------------------------------------------------- */

/*
 * Tests a request. *result 1: completed; `status` is the result, and *request is NULL from now on.
 * *result 0: not yet; `status` is unchanged.
 *
 * A failed request goes through the error handler, which may change status->code.
 */
mx_return_t mx_test(mx_endpoint_t ep, mx_request_t *request, mx_status_t *status,
                    uint32_t *result);

/* Waits for a request, at most `timeout`; else as mx_test. *result 0: time-out, or mx_wakeup. */
mx_return_t mx_wait(mx_endpoint_t endpoint, mx_request_t *request, uint32_t timeout,
                    mx_status_t *status, uint32_t *result);

/*
 * Tests for the oldest completed request whose match bits, masked with `match_mask`, equal
 * `match_info`: sends, receives and connects alike. Its handle becomes invalid. The mask need not
 * cover a context id. MX_BAD_MATCH_MASK.
 */
mx_return_t mx_test_any(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask,
                        mx_status_t *status, uint32_t *result);

/*
 * Waits for such a request; else as mx_test_any. Of several waiting threads one gets each request.
 */
mx_return_t mx_wait_any(mx_endpoint_t endpoint, uint32_t timeout, uint64_t match_info,
                        uint64_t match_mask, mx_status_t *status, uint32_t *result);

/*
 * Returns the oldest completed request, which stays to be tested. MX_NOT_SUPPORTED_WITH_CONTEXT_ID:
 * the endpoint has context ids.
 */
mx_return_t mx_ipeek(mx_endpoint_t endpoint, mx_request_t *request, uint32_t *result);

/* Waits for such a request; else as mx_ipeek. */
mx_return_t mx_peek(mx_endpoint_t endpoint, uint32_t timeout, mx_request_t *request,
                    uint32_t *result);

/*
 * Returns source, match bits and length (in both lengths) of the oldest unexpected message that
 * would match. The message stays. The mask need not cover a context id. `status` may be NULL.
 * MX_BAD_MATCH_MASK.
 */
mx_return_t mx_iprobe(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask,
                      mx_status_t *status, uint32_t *result);

/* Waits for such a message; else as mx_iprobe. */
mx_return_t mx_probe(mx_endpoint_t endpoint, uint32_t timeout, uint64_t match_info,
                     uint64_t match_mask, mx_status_t *status, uint32_t *result);

/*
 * Tests a send's buffer. *result 1: it may be reused, though the request has not been tested.
 * MX_BAD_REQUEST: not a send.
 */
mx_return_t mx_ibuffered(mx_endpoint_t endpoint, mx_request_t *request, uint32_t *result);

/* Waits until the buffer may be reused; else as mx_ibuffered. */
mx_return_t mx_buffered(mx_endpoint_t endpoint, mx_request_t *request, uint32_t timeout,
                        uint32_t *result);

/* Returns the pointer given to the post. */
mx_return_t mx_context(mx_request_t *request, void **context);

/* ---- names ------------------------------------------------------------------------------------ */

/*
 * Returns the NIC id of "host" or "host:board"; an IPv6 address needs brackets. Uses the peers
 * file, and then the resolver. MX_HOST_NOT_FOUND, MX_BAD_HOSTNAME_ARGS.
 */
mx_return_t mx_hostname_to_nic_id(char *hostname, uint64_t *nic_id);

/* Returns the NIC id of a board of this machine. MX_BOARD_UNKNOWN. */
mx_return_t mx_board_number_to_nic_id(uint32_t board_number, uint64_t *nic_id);

/* Returns the board of this machine that has the NIC id. MX_NIC_NOT_FOUND. */
mx_return_t mx_nic_id_to_board_number(uint64_t nic_id, uint32_t *board_number);

/*
 * Returns "host:board", which mx_hostname_to_nic_id accepts. `hostname` has MX_MAX_HOSTNAME_LEN
 * bytes. MX_HOST_NOT_FOUND.
 */
mx_return_t mx_nic_id_to_hostname(uint64_t nic_id, char *hostname);

/*
 * Writes the answer to a query to `out_val`, which has `out_len` bytes. `in_val` names the board: a
 * uint8_t (in_len 1) or uint32_t (in_len 4) is its number, a uint64_t (in_len 8) its NIC id. NULL
 * (or in_len 0) means the endpoint's, and without an endpoint (NULL) the first. A string needs room
 * for its NUL; MX_MAX_STR_LEN is always enough.
 *
 * MX_BAD_INFO_KEY; MX_BAD_INFO_VAL: no `out_val`, or no such board; MX_BAD_INFO_LENGTH: too little
 * room, or another `in_len`.
 */
mx_return_t mx_get_info(mx_endpoint_t ep, mx_get_info_key_t key, void *in_val, uint32_t in_len,
                        void *out_val, uint32_t out_len);

/* ---- peers ------------------------------------------------------------------------------------ */

/*
 * Connects to an endpoint and waits for its answer. Returns its address, which is the same for
 * every connect to the peer.
 *
 * MX_TIMEOUT: no answer, no route, or mx_wakeup; MX_CONNECTION_FAILED: no process has the endpoint
 * open; MX_BAD_CONNECTION_KEY: it was opened with another key; MX_BAD_ENDPOINT_ID: there can be no
 * such endpoint; MX_NO_PERM: the two sides have different secrets; MX_NO_RESOURCES: one of them has
 * no room for another peer; MX_NIC_NOT_FOUND.
 */
mx_return_t mx_connect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id, uint32_t key,
                       uint32_t timeout, mx_endpoint_addr_t *addr);

/* Returns the endpoint of an address; outputs may be NULL. MX_BAD_ENDPOINT: an invalid address. */
mx_return_t mx_decompose_endpoint_addr(mx_endpoint_addr_t endpoint_addr, uint64_t *nic_id,
                                       uint32_t *endpoint_id);

/* Returns the endpoint's own address, to which it may send. */
mx_return_t mx_get_endpoint_addr(mx_endpoint_t endpoint, mx_endpoint_addr_t *endpoint_addr);

/* ---- kept for programs that link them --------------------------------------------------------- */

/* MX_FAILURE: replaced by mx_register_unexp_handler. */
mx_return_t mx_register_unexp_callback(mx_endpoint_t ep, mx_matching_callback_t cb, void *ctxt);

/* MX_FAILURE: peers cannot write to addresses of this process. Use messages. */
mx_return_t mx_iput(mx_endpoint_t endpoint, void *local_addr, uint32_t length,
                    mx_endpoint_addr_t dest_endpoint, uint64_t remote_addr, void *context,
                    mx_request_t *request);

/* MX_FAILURE: peers cannot read at addresses of this process. Use messages. */
mx_return_t mx_iget(mx_endpoint_t endpoint, void *local_addr, uint32_t length,
                    mx_endpoint_addr_t dest_endpoint, uint64_t remote_addr, void *context,
                    mx_request_t *request);

#ifdef __cplusplus
}
#endif

#endif /* MYRIEXPRESS_H */
