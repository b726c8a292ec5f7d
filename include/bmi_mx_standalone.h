/*
 * bmi_mx_standalone.h - the C interface of libbmi_mx_standalone: a BMI network method over mx:// addresses.
 *
 * Generated from the sources by `make header`; do not edit. The table is laid out for
 * the stand-alone BMI 2.8 on 64-bit Linux; the reference is docs/c-api.md. Every function may be called from
 * any thread at any time. Codes are negative BMI codes (-BMI_EINVAL, ...); a call that fails
 * writes no output.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef BMI_MX_STANDALONE_H
#define BMI_MX_STANDALONE_H

#include <stddef.h>
#include <stdint.h>

/* Version of this header and of the library it came with. */
#define BMI_MX_VERSION "0.1.0"


/** Direction that the host passes to `memalloc` and `memfree`: a buffer to send from. Ignored. */
#define BMI_SEND 1

/** Direction that the host passes to `memalloc` and `memfree`: a buffer to receive into. Ignored. */
#define BMI_RECV 2

/** Buffer type that the host passes to a post: memory from `memalloc`. Ignored. */
#define BMI_PRE_ALLOC 1

/** Buffer type that the host passes to a post: any other memory. Ignored. */
#define BMI_EXT_ALLOC 2

/** `initialize`: listen for clients. Needs a listen address. */
#define BMI_INIT_SERVER 1

/**
 * `initialize`: a server listens on the address of the host in its listen address only, not on all addresses of this
 * machine.
 */
#define BMI_TCP_BIND_SPECIFIC 2

/** `initialize`: the host counts references of unexpected senders itself. Accepted, without effect on the method. */
#define BMI_AUTO_REF_COUNT 4

/**
 * Flag of the method's table: the host passes the full idle time to test calls. Without this flag, it passes 0 for the
 * first 10 000 calls in a row that find nothing.
 */
#define BMI_METHOD_FLAG_NO_POLLING 1

/** Number of contexts, which are numbered from 0. */
#define BMI_MAX_CONTEXTS 16

/** `set_info`: an address is no longer used (`struct bmi_method_addr *`). */
#define BMI_DROP_ADDR 1

/** `get_info`: whether BMI is initialized. The host answers this key itself and does not pass it to a method. */
#define BMI_CHECK_INIT 2

/** `get_info`: the largest message (`int *`). */
#define BMI_CHECK_MAXSIZE 3

/**
 * `get_info`: the method's address object for one of the host's peer ids. The host answers this key itself and does
 * not pass it to a method.
 */
#define BMI_GET_METH_ADDR 4

/**
 * `set_info`: adds one to the host's reference count of a peer. The host handles this key itself and does not pass it
 * to a method.
 */
#define BMI_INC_ADDR_REF 5

/**
 * `set_info`: takes one from the host's reference count of a peer. The host handles this key itself; when the count
 * reaches 0, it may ask the method `BMI_DROP_ADDR_QUERY`.
 */
#define BMI_DEC_ADDR_REF 6

/** `get_info`: whether an address may be dropped (`struct method_drop_addr_query *`). */
#define BMI_DROP_ADDR_QUERY 7

/** `set_info`: accepted and ignored. */
#define BMI_FORCEFUL_CANCEL_MODE 8

/** `set_info`: accepted and ignored. */
#define BMI_TRUSTED_CONNECTION 9

/** `get_info`: the maximum size of unexpected messages (`int *`). */
#define BMI_GET_UNEXP_SIZE 10

/** `set_info`: accepted and ignored. */
#define BMI_TCP_BUFFER_SEND_SIZE 11

/** `set_info`: accepted and ignored. */
#define BMI_TCP_BUFFER_RECEIVE_SIZE 12

/** `set_info`: closes the connection to a peer. The host handles this key itself and does not pass it to a method. */
#define BMI_TCP_CLOSE_SOCKET 13

/** `set_info`: accepted and ignored. */
#define BMI_OPTIMISTIC_BUFFER_REG 14

/** `set_info`: accepted and ignored. */
#define BMI_TCP_CHECK_UNEXPECTED 15

/** `get_info`, the stand-alone BMI only: the number of this process's open endpoint (`int *`). */
#define BMI_TCP_GET_PORT 18

/**
 * `get_info`, this method only: all credits, queues and memory (`struct bmi_mx_credits *`). Chosen far from the host's
 * numbers.
 */
#define BMI_MX_GET_CREDITS 1297612801

/** `get_info`, this method only: the credits of one peer (`struct bmi_mx_peer_credits *`). */
#define BMI_MX_GET_PEER_CREDITS 1297612802

/** `bmi_mx_peer_credits.state`: not connected; a posted operation connects. */
#define BMI_MX_PEER_INIT 0

/** `bmi_mx_peer_credits.state`: handshake in progress. */
#define BMI_MX_PEER_WAIT 1

/** `bmi_mx_peer_credits.state`: connected. */
#define BMI_MX_PEER_READY 2

/** BMI's number for the C library's error `EPERM`. */
#define BMI_EPERM (1 | 1073741952)

/** BMI's number for the C library's error `ENOENT`. */
#define BMI_ENOENT (2 | 1073741952)

/** BMI's number for the C library's error `EINTR`. */
#define BMI_EINTR (3 | 1073741952)

/** No other code applies. */
#define BMI_EIO (4 | 1073741952)

/** BMI's number for the C library's error `ENXIO`. */
#define BMI_ENXIO (5 | 1073741952)

/** BMI's number for the C library's error `EBADF`. */
#define BMI_EBADF (6 | 1073741952)

/** BMI's number for the C library's error `EAGAIN`. */
#define BMI_EAGAIN (7 | 1073741952)

/** No memory, or no room at the peer. */
#define BMI_ENOMEM (8 | 1073741952)

/** BMI's number for the C library's error `EFAULT`. */
#define BMI_EFAULT (9 | 1073741952)

/** BMI's number for the C library's error `EBUSY`. */
#define BMI_EBUSY (10 | 1073741952)

/** BMI's number for the C library's error `EEXIST`. */
#define BMI_EEXIST (11 | 1073741952)

/** BMI's number for the C library's error `ENODEV`. */
#define BMI_ENODEV (12 | 1073741952)

/** BMI's number for the C library's error `ENOTDIR`. */
#define BMI_ENOTDIR (13 | 1073741952)

/** BMI's number for the C library's error `EISDIR`. */
#define BMI_EISDIR (14 | 1073741952)

/** A wrong argument. */
#define BMI_EINVAL (15 | 1073741952)

/** BMI's number for the C library's error `EMFILE`. */
#define BMI_EMFILE (16 | 1073741952)

/** BMI's number for the C library's error `EFBIG`. */
#define BMI_EFBIG (17 | 1073741952)

/** BMI's number for the C library's error `ENOSPC`. */
#define BMI_ENOSPC (18 | 1073741952)

/** BMI's number for the C library's error `EROFS`. */
#define BMI_EROFS (19 | 1073741952)

/** BMI's number for the C library's error `EMLINK`. */
#define BMI_EMLINK (20 | 1073741952)

/** BMI's number for the C library's error `EPIPE`. */
#define BMI_EPIPE (21 | 1073741952)

/** BMI's number for the C library's error `EDEADLK`. */
#define BMI_EDEADLK (22 | 1073741952)

/** BMI's number for the C library's error `ENAMETOOLONG`. */
#define BMI_ENAMETOOLONG (23 | 1073741952)

/** BMI's number for the C library's error `ENOLCK`. */
#define BMI_ENOLCK (24 | 1073741952)

/** The method does not have this info key. */
#define BMI_ENOSYS (25 | 1073741952)

/** BMI's number for the C library's error `ENOTEMPTY`. */
#define BMI_ENOTEMPTY (26 | 1073741952)

/** BMI's number for the C library's error `ELOOP`. */
#define BMI_ELOOP (27 | 1073741952)

/** BMI's number for the C library's error `EWOULDBLOCK`. */
#define BMI_EWOULDBLOCK (28 | 1073741952)

/** BMI's number for the C library's error `ENOMSG`. */
#define BMI_ENOMSG (29 | 1073741952)

/** BMI's number for the C library's error `EUNATCH`. */
#define BMI_EUNATCH (30 | 1073741952)

/** BMI's number for the C library's error `EBADR`. */
#define BMI_EBADR (31 | 1073741952)

/** BMI's number for the C library's error `EDEADLOCK`. */
#define BMI_EDEADLOCK (32 | 1073741952)

/** BMI's number for the C library's error `ENODATA`. */
#define BMI_ENODATA (33 | 1073741952)

/** BMI's number for the C library's error `ETIME`. */
#define BMI_ETIME (34 | 1073741952)

/** BMI's number for the C library's error `ENONET`. */
#define BMI_ENONET (35 | 1073741952)

/** BMI's number for the C library's error `EREMOTE`. */
#define BMI_EREMOTE (36 | 1073741952)

/** BMI's number for the C library's error `ECOMM`. */
#define BMI_ECOMM (37 | 1073741952)

/** BMI's number for the C library's error `EPROTO`. */
#define BMI_EPROTO (38 | 1073741952)

/** BMI's number for the C library's error `EBADMSG`. */
#define BMI_EBADMSG (39 | 1073741952)

/** BMI's number for the C library's error `EOVERFLOW`. */
#define BMI_EOVERFLOW (40 | 1073741952)

/** BMI's number for the C library's error `ERESTART`. */
#define BMI_ERESTART (41 | 1073741952)

/** BMI's number for the C library's error `EMSGSIZE`. */
#define BMI_EMSGSIZE (42 | 1073741952)

/** BMI's number for the C library's error `EPROTOTYPE`. */
#define BMI_EPROTOTYPE (43 | 1073741952)

/** BMI's number for the C library's error `ENOPROTOOPT`. */
#define BMI_ENOPROTOOPT (44 | 1073741952)

/** BMI's number for the C library's error `EPROTONOSUPPORT`. */
#define BMI_EPROTONOSUPPORT (45 | 1073741952)

/** BMI's number for the C library's error `EOPNOTSUPP`. */
#define BMI_EOPNOTSUPP (46 | 1073741952)

/** BMI's number for the C library's error `EADDRINUSE`. */
#define BMI_EADDRINUSE (47 | 1073741952)

/** BMI's number for the C library's error `EADDRNOTAVAIL`. */
#define BMI_EADDRNOTAVAIL (48 | 1073741952)

/** BMI's number for the C library's error `ENETDOWN`. */
#define BMI_ENETDOWN (49 | 1073741952)

/** BMI's number for the C library's error `ENETUNREACH`. */
#define BMI_ENETUNREACH (50 | 1073741952)

/** BMI's number for the C library's error `ENETRESET`. */
#define BMI_ENETRESET (51 | 1073741952)

/** BMI's number for the C library's error `ENOBUFS`. */
#define BMI_ENOBUFS (52 | 1073741952)

/** No progress within the request time-out. */
#define BMI_ETIMEDOUT (53 | 1073741952)

/** BMI's number for the C library's error `ECONNREFUSED`. */
#define BMI_ECONNREFUSED (54 | 1073741952)

/** BMI's number for the C library's error `EHOSTDOWN`. */
#define BMI_EHOSTDOWN (55 | 1073741952)

/** BMI's number for the C library's error `EHOSTUNREACH`. */
#define BMI_EHOSTUNREACH (56 | 1073741952)

/** BMI's number for the C library's error `EALREADY`. */
#define BMI_EALREADY (57 | 1073741952)

/** BMI's number for the C library's error `EACCES`. */
#define BMI_EACCES (58 | 1073741952)

/** BMI's number for the C library's error `ECONNRESET`. */
#define BMI_ECONNRESET (59 | 1073741952)

/** Cancelled by `cancel`. */
#define BMI_ECANCEL (1 | 1610612864)

/** A device could not be started. */
#define BMI_EDEVINIT (2 | 1610612864)

/** Details are elsewhere. */
#define BMI_EDETAIL (3 | 1610612864)

/** Host not found. */
#define BMI_EHOSTNTFD (4 | 1610612864)

/** Address not found. */
#define BMI_EADDRNTFD (5 | 1610612864)

/** No receiver. */
#define BMI_ENORECVR (6 | 1610612864)

/** Try again. */
#define BMI_ETRYAGAIN (7 | 1610612864)

/** Longest address string that the host passes, its NUL included. */
#define BMI_MAX_ADDR_LEN 256

/** `set_info`: for another method; accepted and ignored. */
#define BMI_ZOID_POST_TIMEOUT 16

/** `get_info`: the names of the host's network methods. Answered by the host itself. */
#define BMI_TRANSPORT_METHODS_STRING 17

/**
 * A peer, shared by host and method. The method allocates it; the host passes its address in every call and writes
 * `method_type` (listen address only) and `parent`.
 */
struct bmi_method_addr {
    /** The `method_id` passed to `initialize`: the host's index of this method. */
    int method_type;
    /** Number of the host's references: 1. The host itself does not read it. */
    int ref_count;
    /** Belongs to the method. */
    void *method_data;
    /** Belongs to the host. */
    void *parent;
    /** Belongs to the host, for lists of addresses. */
    struct bmi_method_addr *primary;
    /** Belongs to the host, for lists of addresses. */
    struct bmi_method_addr *secondary;
};

/** Id of a posted operation. */
typedef int64_t bmi_op_id_t;

/** Size of a data region, in bytes. */
typedef int64_t bmi_size_t;

/** `BMI_PRE_ALLOC` or `BMI_EXT_ALLOC`. */
typedef int bmi_buffer_type;

/** The application's tag of a message. */
typedef int32_t bmi_msg_tag_t;

/** Number of a context in which operations complete, 0 to 15. */
typedef int64_t bmi_context_id;

/** The host's hint list, which this library ignores. */
typedef void *bmi_hint;

/** 0, or an error code; always negative when returned by this library. */
typedef int32_t bmi_error_code_t;

/** An unexpected message as `testunexpected` returns it. */
struct bmi_method_unexpected_info {
    /** 0, or the error of this message (negative). */
    bmi_error_code_t error_code;
    /** Address object of the sender. */
    struct bmi_method_addr *addr;
    /** Contents, to be freed with `unexpected_free`. */
    void *buffer;
    /** Length in bytes. */
    bmi_size_t size;
    /** Tag of the message. */
    bmi_msg_tag_t tag;
};

/** The host's id of a peer. */
typedef int64_t BMI_addr_t;

/**
 * The host's functions. Found with `dlsym` in a host that exports them under their usual names; any other program may
 * pass them to `bmi_mx_set_host`.
 *
 * A NULL member is looked up with `dlsym`, except that `reg_addr` and `forget_addr` are looked up only if both are
 * NULL. `size` is `sizeof(struct bmi_mx_host)` as the caller compiled it, so that later versions can append members.
 */
struct bmi_mx_host {
    /** `sizeof(struct bmi_mx_host)`. */
    size_t size;
    /**
     * Registers a peer that connected to this process: returns the host's id for the peer, or 0 if the host is out of
     * memory. Called from inside `testunexpected`, `testcontext`, `testsome` and `test` only, at most once per
     * address, with none of the library's locks held.
     */
    BMI_addr_t (*reg_addr)(struct bmi_method_addr *addr);
    /** Reports that the peer with this id died; the host may ask `BMI_DROP_ADDR_QUERY` about it. Returns 0. */
    int (*forget_addr)(BMI_addr_t addr);
    /**
     * Writes one line of the log, without a newline. `level` is 1 error, 2 warning, 3 information, 4 debug, 5 trace.
     * Called from any thread that calls this library, and from the library's own, with none of its locks held. The
     * thread continues when it returns.
     */
    void (*log)(int level,
                const char *line);
};

/** `BMI_SEND` or `BMI_RECV`. A plain number here, so that an invalid value is not undefined behaviour. */
typedef int bmi_op_type;

/** The table of a BMI method. Every entry of `bmi_mx_ops` is set. */
struct bmi_method_ops {
    /** "bmi_mx". */
    const char *method_name;
    /** `BMI_METHOD_FLAG_*`. */
    int flags;
    /** See `BMI_mx_initialize`. */
    int (*initialize)(struct bmi_method_addr *listen_addr,
                      int method_id,
                      int flags);
    /** See `BMI_mx_finalize`. */
    int (*finalize)(void);
    /** See `BMI_mx_set_info`. */
    int (*set_info)(int option,
                    void *inout_parameter);
    /** See `BMI_mx_get_info`. */
    int (*get_info)(int option,
                    void *inout_parameter);
    /** See `BMI_mx_memalloc`. */
    void *(*memalloc)(bmi_size_t size,
                      bmi_op_type send_recv);
    /** See `BMI_mx_memfree`. */
    int (*memfree)(void *buffer,
                   bmi_size_t size,
                   bmi_op_type send_recv);
    /** See `BMI_mx_unexpected_free`. */
    int (*unexpected_free)(void *buffer);
    /** See `BMI_mx_test`. */
    int (*test)(bmi_op_id_t id,
                int *outcount,
                bmi_error_code_t *error_code,
                bmi_size_t *actual_size,
                void **user_ptr,
                int max_idle_time_ms,
                bmi_context_id context_id);
    /** See `BMI_mx_testsome`. */
    int (*testsome)(int incount,
                    bmi_op_id_t *id_array,
                    int *outcount,
                    int *index_array,
                    bmi_error_code_t *error_code_array,
                    bmi_size_t *actual_size_array,
                    void **user_ptr_array,
                    int max_idle_time_ms,
                    bmi_context_id context_id);
    /** See `BMI_mx_testcontext`. */
    int (*testcontext)(int incount,
                       bmi_op_id_t *out_id_array,
                       int *outcount,
                       bmi_error_code_t *error_code_array,
                       bmi_size_t *actual_size_array,
                       void **user_ptr_array,
                       int max_idle_time_ms,
                       bmi_context_id context_id);
    /** See `BMI_mx_testunexpected`. */
    int (*testunexpected)(int incount,
                          int *outcount,
                          struct bmi_method_unexpected_info *info,
                          uint8_t class_,
                          int max_idle_time_ms);
    /** See `BMI_mx_method_addr_lookup`. */
    struct bmi_method_addr *(*method_addr_lookup)(const char *id_string);
    /** See `BMI_mx_post_send_list`. */
    int (*post_send_list)(bmi_op_id_t *id,
                          struct bmi_method_addr *dest,
                          const void *const *buffer_list,
                          const bmi_size_t *size_list,
                          int list_count,
                          bmi_size_t total_size,
                          bmi_buffer_type buffer_type,
                          bmi_msg_tag_t tag,
                          void *user_ptr,
                          bmi_context_id context_id,
                          bmi_hint hints);
    /** See `BMI_mx_post_recv_list`. */
    int (*post_recv_list)(bmi_op_id_t *id,
                          struct bmi_method_addr *src,
                          void *const *buffer_list,
                          const bmi_size_t *size_list,
                          int list_count,
                          bmi_size_t total_expected_size,
                          bmi_size_t *total_actual_size,
                          bmi_buffer_type buffer_type,
                          bmi_msg_tag_t tag,
                          void *user_ptr,
                          bmi_context_id context_id,
                          bmi_hint hints);
    /** See `BMI_mx_post_sendunexpected_list`. */
    int (*post_sendunexpected_list)(bmi_op_id_t *id,
                                    struct bmi_method_addr *dest,
                                    const void *const *buffer_list,
                                    const bmi_size_t *size_list,
                                    int list_count,
                                    bmi_size_t total_size,
                                    bmi_buffer_type buffer_type,
                                    bmi_msg_tag_t tag,
                                    uint8_t class_,
                                    void *user_ptr,
                                    bmi_context_id context_id,
                                    bmi_hint hints);
    /** See `BMI_mx_open_context`. */
    int (*open_context)(bmi_context_id context_id);
    /** See `BMI_mx_close_context`. */
    void (*close_context)(bmi_context_id context_id);
    /** See `BMI_mx_cancel`. */
    int (*cancel)(bmi_op_id_t id,
                  bmi_context_id context_id);
    /** See `BMI_mx_rev_lookup_unexpected`. */
    const char *(*rev_lookup_unexpected)(struct bmi_method_addr *addr);
    /** See `BMI_mx_query_addr_range`. */
    int (*query_addr_range)(struct bmi_method_addr *addr,
                            const char *wildcard,
                            int netmask);
};

/** Argument of `get_info(BMI_DROP_ADDR_QUERY)`. */
struct method_drop_addr_query {
    /** Address in question. */
    struct bmi_method_addr *addr;
    /** Answer: 1 if the method no longer needs the address, else 0. */
    int response;
};

/**
 * Argument of `get_info(BMI_MX_GET_CREDITS)`: the method's current levels, and its counters since `initialize`. A
 * credit is 512 bytes for messages without a receive; a message's bookkeeping takes 320 bytes.
 *
 * `total` = `free` + `lent` + `drawn` + `copies` + `tombstones`. Later versions append members.
 */
struct bmi_mx_credits {
    /** In: `sizeof(struct bmi_mx_credits)`. Out: number of bytes written. */
    size_t size;
    /** All credits: `MX_UNEXPECTED_BYTES`. */
    uint64_t total;
    /** Free credits. */
    uint64_t free;
    /** Credits lent to peers. */
    uint64_t lent;
    /** Credits held by messages that were fetched, or are being fetched. */
    uint64_t drawn;
    /** Credits held by copies of this process's sends. */
    uint64_t copies;
    /** Credits held by messages of lost peers. */
    uint64_t tombstones;
    /** Connected peers. */
    uint64_t peers;
    /** Peers that wait for more credits. */
    uint64_t waiting_peers;
    /** Peers that have been asked to return credits and have not answered. */
    uint64_t asked_peers;
    /** Messages received. */
    uint64_t messages;
    /** Violations of the credit rules; each has ended a connection. */
    uint64_t violations;
    /** Times that a message could not be fetched for lack of credits. */
    uint64_t draws_refused;
    /** Requests of peers for more credits. */
    uint64_t wants;
    /** Credits lent to peers since they connected. */
    uint64_t granted;
    /** Credits that peers were asked to return. */
    uint64_t revoked;
    /** Credits that peers returned. */
    uint64_t returned;
    /** Credits taken back without asking. */
    uint64_t narrowed;
    /** Times that earlier use of credits was given less weight. */
    uint64_t epochs;
    /** Times that sends to a peer had to wait for credits. */
    uint64_t credit_stalls;
    /** Peers to which sends wait for credits now. */
    uint64_t peers_without_credits;
    /** Operations posted and not reported. */
    uint64_t operations;
    /** Unexpected messages that `testunexpected` can return. */
    uint64_t ready;
    /** Unexpected messages being fetched. */
    uint64_t coming;
    /** Peers with unexpected messages that wait until there is room to fetch them. */
    uint64_t held;
    /** Bytes of unexpected messages received or being fetched. */
    uint64_t unexpected_bytes;
    /** Bytes of messages that arrived before their receives. */
    uint64_t early_bytes;
    /** Bytes lent to peers or used by messages, bookkeeping included. */
    uint64_t used_bytes;
    /** Limit of `used_bytes` (`MX_UNEXPECTED_BYTES`), which two messages of each peer may exceed. */
    uint64_t limit_bytes;
};

/**
 * Argument of `get_info(BMI_MX_GET_PEER_CREDITS)`: the credits between one peer and this process. For a peer that is
 * not connected all members but `send_waiting` are 0. Later versions append members.
 */
struct bmi_mx_peer_credits {
    /** In: `sizeof(struct bmi_mx_peer_credits)`. Out: number of bytes written. */
    size_t size;
    /** In: any address of the peer. */
    struct bmi_method_addr *addr;
    /** `BMI_MX_PEER_INIT`, `_WAIT` or `_READY`. */
    int state;
    /** Credits lent to the peer, used or not. */
    uint32_t credit_limit;
    /** Lent credits that the peer can use now, as far as is known here. */
    uint32_t free;
    /** Credits used by the peer's messages that have not been received. */
    uint32_t waiting;
    /** Credits of received messages that have not been returned to the peer yet. */
    uint32_t owed;
    /** Further credits that the peer requests. */
    uint32_t wanted;
    /** 1 if the peer has been asked to return credits and has not answered. */
    uint32_t asked;
    /** Free credits lent by the peer. */
    uint32_t send_free;
    /** Operations that wait for the connection, and sends that wait for the link or for credits. */
    uint32_t send_waiting;
    /** 1 if such a send waits for credits. */
    uint32_t send_stalled;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/** The method's table, for hosts that name the library on their link line and for `dlsym`. */
extern const struct bmi_method_ops bmi_mx_ops;

/** [`bmi_mx_ops`] under the name that hosts before OrangeFS took with `dlsym`. */
extern const struct bmi_method_ops method_interface;

/**
 * Makes an address object for a peer, from `mx://host:board:endpoint`, `mx://host:endpoint` or a list of addresses
 * that contains one of these. May be called before `BMI_mx_initialize` (a server does, with its own name). Does
 * not wait for the network. Each call returns a new object, to be dropped with `BMI_mx_set_info(BMI_DROP_ADDR)`.
 *
 * Returns NULL for other methods' addresses, and for malformed ones, which are logged.
 */
struct bmi_method_addr *BMI_mx_method_addr_lookup(const char *id_string);

/**
 * Returns the name of a peer that sent an unexpected message, valid until the address is dropped; "(unknown)" for
 * NULL and any other pointer that is no address.
 */
const char *BMI_mx_rev_lookup_unexpected(struct bmi_method_addr *addr);

/**
 * Tests whether a peer's host is in a range. With a `netmask` of 0 or more, `wildcard` is `mx://` and an address
 * whose first `netmask` bits count; 32 also stands for all bits of an IPv6 address that has non-zero bits after
 * the first 32. With -1, or if `wildcard` is no address and the mask is 0 or 32, it is text with `*` in places,
 * for the peer's address or host name. A peer on this machine has all its addresses.
 *
 * Returns 1 if so, 0 if not; -BMI_EINVAL for NULL or an invalid range.
 */
int BMI_mx_query_addr_range(struct bmi_method_addr *addr,
                            const char *wildcard,
                            int netmask);

/**
 * Starts the method.
 *
 * `listen_addr` is the address to listen on, from `BMI_mx_method_addr_lookup`, if `flags` has `BMI_INIT_SERVER`,
 * else NULL. A server listens on all addresses of this machine, with a warning if the host in `listen_addr` is
 * another machine; if `flags` also has `BMI_TCP_BIND_SPECIFIC`, only on that host's address. `method_id` is the
 * host's number for this method and becomes the `method_type` of every address.
 *
 * Returns 0; -BMI_EINVAL if address and flags disagree; -BMI_EALREADY if the method is initialized;
 * -BMI_EADDRINUSE if another process has the endpoint; -BMI_EADDRNOTAVAIL or -BMI_EHOSTUNREACH if the only address
 * to listen on belongs to another machine, or is unknown; another code if a system call fails. After a failure it
 * may be called again.
 */
int BMI_mx_initialize(struct bmi_method_addr *listen_addr,
                      int method_id,
                      int flags);

/**
 * Posts an unexpected send of `list_count` buffers (0 to 65536) as one message. Only a `BMI_mx_testunexpected` for
 * the same `class` returns it.
 *
 * Also returns -BMI_EINVAL if the sizes do not add up to `total_size`.
 */
int BMI_mx_post_sendunexpected_list(bmi_op_id_t *id,
                                    struct bmi_method_addr *dest,
                                    const void *const *buffer_list,
                                    const bmi_size_t *size_list,
                                    int list_count,
                                    bmi_size_t total_size,
                                    bmi_buffer_type buffer_type,
                                    bmi_msg_tag_t tag,
                                    uint8_t class_,
                                    void *user_ptr,
                                    bmi_context_id context_id,
                                    bmi_hint hints);

/**
 * Takes up to `incount` unexpected messages sent with `class`: one of each peer in turn, the oldest first.
 * Messages of other classes stay. Waits at most `max_idle_time_ms` milliseconds for the first one, and stores the
 * messages in `info` and their number in `*outcount`. The caller owns each buffer until it calls
 * `BMI_mx_unexpected_free`.
 *
 * Returns 0.
 */
int BMI_mx_testunexpected(int incount,
                          int *outcount,
                          struct bmi_method_unexpected_info *info,
                          uint8_t class_,
                          int max_idle_time_ms);

/**
 * Stops the method: operations end without a completion, and peers are told. Addresses stay valid for
 * `BMI_mx_set_info(BMI_DROP_ADDR)`. Afterwards `BMI_mx_initialize` may be called again.
 *
 * Returns 0, or -BMI_ENODEV if the method was not initialized.
 */
int BMI_mx_finalize(void);

/**
 * Sets an option of the method. `BMI_DROP_ADDR` with a `struct bmi_method_addr *` drops the address, also after
 * `BMI_mx_finalize`. Every other key is accepted and ignored.
 *
 * Returns 0, or -BMI_EINVAL for `BMI_DROP_ADDR` with NULL.
 */
int BMI_mx_set_info(int option,
                    void *inout_parameter);

/**
 * Queries the method.
 *
 * `BMI_CHECK_MAXSIZE` (`int *`): the largest message, 2147483647. `BMI_GET_UNEXP_SIZE` (`int *`): 16384; larger
 * unexpected messages are carried, too. `BMI_DROP_ADDR_QUERY` (`struct method_drop_addr_query *`): `response`
 * becomes 1 if the peer is lost and has no messages left, else 0. `BMI_TCP_GET_PORT` (`int *`; the stand-alone BMI
 * only): the number of the open endpoint.
 *
 * Two keys are this method's own, and require an initialized method. `BMI_MX_GET_CREDITS` (`struct bmi_mx_credits
 * *`): credits, queues and memory. `BMI_MX_GET_PEER_CREDITS` (`struct bmi_mx_peer_credits *`): those of the peer
 * `addr`. The caller sets `size` to the size of its struct; the method writes as many whole members as fit, and
 * sets `size` to their bytes.
 *
 * Returns 0; -BMI_EINVAL for NULL, a `size` that is too small, or an invalid address; -BMI_ENODEV for this
 * method's own keys if it is not initialized; -BMI_ENOSYS for any other key.
 */
int BMI_mx_get_info(int option,
                    void *inout_parameter);

/**
 * Opens a context, 0 to 15, in which operations complete. Opening it twice does no harm.
 *
 * Returns 0, or -BMI_EINVAL for another number.
 */
int BMI_mx_open_context(bmi_context_id context_id);

/** Closes a context. Untested completions are dropped. */
void BMI_mx_close_context(bmi_context_id context_id);

/**
 * Sets the host's functions, for a host that does not export them under their usual names, or for a program
 * without a host. The struct is copied. A NULL member is looked up with `dlsym`, except that `reg_addr` and
 * `forget_addr` are looked up only if both are NULL. If they are not found, the library numbers peers itself, and
 * logs to stderr. NULL removes earlier functions. Best called before any other function.
 *
 * Returns 0, or -BMI_EINVAL if `size` is smaller than two pointers.
 */
int bmi_mx_set_host(const struct bmi_mx_host *host);

/**
 * Allocates a buffer of `size` bytes for messages, aligned to a page if it is a page or more; for 0 bytes a unique
 * address, as from malloc. Its contents are undefined. `send_recv` is ignored. Any other memory may be posted,
 * too.
 *
 * Returns NULL if `size` is negative or memory is short.
 */
void *BMI_mx_memalloc(bmi_size_t size,
                      bmi_op_type send_recv);

/**
 * Frees a buffer of `BMI_mx_memalloc`. NULL is legal. `size` and `send_recv` are ignored.
 *
 * Returns 0, or -BMI_EINVAL if the buffer was freed before and the library can tell.
 */
int BMI_mx_memfree(void *buffer,
                   bmi_size_t size,
                   bmi_op_type send_recv);

/**
 * Frees the buffer of an unexpected message from `BMI_mx_testunexpected`. NULL is legal.
 *
 * Returns 0.
 */
int BMI_mx_unexpected_free(void *buffer);

/**
 * Posts `BMI_mx_post_send` with `list_count` buffers (0 to 65536), sent as one message. The arrays are not used
 * after the call, the buffers are. A buffer of 0 bytes may be NULL, and so may the arrays of no buffers.
 *
 * Also returns -BMI_EINVAL if the sizes do not add up to `total_size`.
 */
int BMI_mx_post_send_list(bmi_op_id_t *id,
                          struct bmi_method_addr *dest,
                          const void *const *buffer_list,
                          const bmi_size_t *size_list,
                          int list_count,
                          bmi_size_t total_size,
                          bmi_buffer_type buffer_type,
                          bmi_msg_tag_t tag,
                          void *user_ptr,
                          bmi_context_id context_id,
                          bmi_hint hints);

/**
 * Posts `BMI_mx_post_recv` with `list_count` buffers (0 to 65536), filled one after the other.
 *
 * Also returns -BMI_EINVAL if the sizes do not add up to `total_expected_size`.
 */
int BMI_mx_post_recv_list(bmi_op_id_t *id,
                          struct bmi_method_addr *src,
                          void *const *buffer_list,
                          const bmi_size_t *size_list,
                          int list_count,
                          bmi_size_t total_expected_size,
                          bmi_size_t *total_actual_size,
                          bmi_buffer_type buffer_type,
                          bmi_msg_tag_t tag,
                          void *user_ptr,
                          bmi_context_id context_id,
                          bmi_hint hints);

/**
 * Cancels an operation, which still completes exactly once and must be tested for, at once (a large send over
 * InfiniBand or RoCE: within milliseconds, at most two seconds): with -BMI_ECANCEL, or with its own result if it
 * had completed. Its buffer is not accessed after completion. The peer and its other operations stay, even if the
 * message was partly transferred.
 *
 * Does nothing for an operation that was reported: its id may be passed until a post returns it again, for an
 * operation that would then be cancelled instead.
 *
 * Returns 0, or -BMI_EINVAL for a number that never was an operation's id.
 */
int BMI_mx_cancel(bmi_op_id_t id,
                  bmi_context_id context_id);

/**
 * Tests one operation. `actual_size` and `user_ptr` may be NULL.
 *
 * Returns 0: if the operation is complete, with `*outcount` 1 and the other outputs written (the id becomes
 * invalid), else with `*outcount` 0. Returns -BMI_EINVAL for an id that is no operation of that context.
 */
int BMI_mx_test(bmi_op_id_t id,
                int *outcount,
                bmi_error_code_t *error_code,
                bmi_size_t *actual_size,
                void **user_ptr,
                int max_idle_time_ms,
                bmi_context_id context_id);

/**
 * Tests `incount` operations. Ids that are 0 are skipped. Output number *n* is about `id_array[index_array[n]]`.
 * `actual_size_array` and `user_ptr_array` may be NULL.
 *
 * Returns 0, or -BMI_EINVAL if one of the ids is no operation of that context.
 */
int BMI_mx_testsome(int incount,
                    bmi_op_id_t *id_array,
                    int *outcount,
                    int *index_array,
                    bmi_error_code_t *error_code_array,
                    bmi_size_t *actual_size_array,
                    void **user_ptr_array,
                    int max_idle_time_ms,
                    bmi_context_id context_id);

/**
 * Takes up to `incount` completions of a context, oldest first, but failed sends before the receives that fail
 * with them. `actual_size_array` and `user_ptr_array` may be NULL. A waiting call ends early if an unexpected
 * message arrives.
 *
 * Returns 0. The loss of a peer never makes this call fail: it appears in the error codes of the peer's
 * operations.
 */
int BMI_mx_testcontext(int incount,
                       bmi_op_id_t *out_id_array,
                       int *outcount,
                       bmi_error_code_t *error_code_array,
                       bmi_size_t *actual_size_array,
                       void **user_ptr_array,
                       int max_idle_time_ms,
                       bmi_context_id context_id);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BMI_MX_STANDALONE_H */
