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

/* The version of this header and of the library it came with. */
#define BMI_MX_VERSION "0.1.0"


/** An operation that sends, in `memalloc` and `memfree`. */
#define BMI_SEND 1

/** An operation that receives. */
#define BMI_RECV 2

/** A buffer that came from `memalloc`. */
#define BMI_PRE_ALLOC 1

/** Any other buffer. */
#define BMI_EXT_ALLOC 2

/** `initialize`: listen for clients. Needs a listen address. */
#define BMI_INIT_SERVER 1

/** `initialize`: bind to the listen address only. Another method's; accepted. */
#define BMI_TCP_BIND_SPECIFIC 2

/** `initialize`: the host counts references of unexpected senders. Accepted. */
#define BMI_AUTO_REF_COUNT 4

/** Table flag: the host's poll plan leaves the idle time alone. */
#define BMI_METHOD_FLAG_NO_POLLING 1

/** Contexts are numbered from 0 to one less than this. */
#define BMI_MAX_CONTEXTS 16

/** `set_info`: an address is no longer used (`struct bmi_method_addr *`). */
#define BMI_DROP_ADDR 1

/** Answered by the host. */
#define BMI_CHECK_INIT 2

/** `get_info`: the largest message (`int *`). */
#define BMI_CHECK_MAXSIZE 3

/** Answered by the host. */
#define BMI_GET_METH_ADDR 4

/** Answered by the host. */
#define BMI_INC_ADDR_REF 5

/** Answered by the host. */
#define BMI_DEC_ADDR_REF 6

/** `get_info`: may an address be dropped? (`struct method_drop_addr_query *`) */
#define BMI_DROP_ADDR_QUERY 7

/** `set_info`: accepted and ignored. */
#define BMI_FORCEFUL_CANCEL_MODE 8

/** `set_info`: accepted and ignored. */
#define BMI_TRUSTED_CONNECTION 9

/** `get_info`: the size of unexpected messages to count on (`int *`). */
#define BMI_GET_UNEXP_SIZE 10

/** `set_info`: accepted and ignored. */
#define BMI_TCP_BUFFER_SEND_SIZE 11

/** `set_info`: accepted and ignored. */
#define BMI_TCP_BUFFER_RECEIVE_SIZE 12

/** Answered by the host. */
#define BMI_TCP_CLOSE_SOCKET 13

/** `set_info`: accepted and ignored. */
#define BMI_OPTIMISTIC_BUFFER_REG 14

/** `set_info`: accepted and ignored. */
#define BMI_TCP_CHECK_UNEXPECTED 15

/** `get_info`, the stand-alone BMI only: the number of the endpoint that this process has open (`int *`). */
#define BMI_TCP_GET_PORT 18

/**
 * `get_info`, this method's own: all credits, queues and memory (`struct bmi_mx_credits *`). Far
 * from the host's numbers.
 */
#define BMI_MX_GET_CREDITS 1297612801

/** `get_info`, this method's own: the credits of one peer (`struct bmi_mx_peer_credits *`). */
#define BMI_MX_GET_PEER_CREDITS 1297612802

/** `bmi_mx_peer_credits.state`: not connected; what is posted connects. */
#define BMI_MX_PEER_INIT 0

/** `bmi_mx_peer_credits.state`: the handshake is under way. */
#define BMI_MX_PEER_WAIT 1

/** `bmi_mx_peer_credits.state`: connected. */
#define BMI_MX_PEER_READY 2

/** As the C library's `EPERM`. */
#define BMI_EPERM (1 | 1073741952)

/** As the C library's `ENOENT`. */
#define BMI_ENOENT (2 | 1073741952)

/** As the C library's `EINTR`. */
#define BMI_EINTR (3 | 1073741952)

/** Anything that has no better code. */
#define BMI_EIO (4 | 1073741952)

/** As the C library's `ENXIO`. */
#define BMI_ENXIO (5 | 1073741952)

/** As the C library's `EBADF`. */
#define BMI_EBADF (6 | 1073741952)

/** As the C library's `EAGAIN`. */
#define BMI_EAGAIN (7 | 1073741952)

/** No memory, or no room at the peer. */
#define BMI_ENOMEM (8 | 1073741952)

/** As the C library's `EFAULT`. */
#define BMI_EFAULT (9 | 1073741952)

/** As the C library's `EBUSY`. */
#define BMI_EBUSY (10 | 1073741952)

/** As the C library's `EEXIST`. */
#define BMI_EEXIST (11 | 1073741952)

/** As the C library's `ENODEV`. */
#define BMI_ENODEV (12 | 1073741952)

/** As the C library's `ENOTDIR`. */
#define BMI_ENOTDIR (13 | 1073741952)

/** As the C library's `EISDIR`. */
#define BMI_EISDIR (14 | 1073741952)

/** A wrong argument. */
#define BMI_EINVAL (15 | 1073741952)

/** As the C library's `EMFILE`. */
#define BMI_EMFILE (16 | 1073741952)

/** As the C library's `EFBIG`. */
#define BMI_EFBIG (17 | 1073741952)

/** As the C library's `ENOSPC`. */
#define BMI_ENOSPC (18 | 1073741952)

/** As the C library's `EROFS`. */
#define BMI_EROFS (19 | 1073741952)

/** As the C library's `EMLINK`. */
#define BMI_EMLINK (20 | 1073741952)

/** As the C library's `EPIPE`. */
#define BMI_EPIPE (21 | 1073741952)

/** As the C library's `EDEADLK`. */
#define BMI_EDEADLK (22 | 1073741952)

/** As the C library's `ENAMETOOLONG`. */
#define BMI_ENAMETOOLONG (23 | 1073741952)

/** As the C library's `ENOLCK`. */
#define BMI_ENOLCK (24 | 1073741952)

/** An info key this method does not have. */
#define BMI_ENOSYS (25 | 1073741952)

/** As the C library's `ENOTEMPTY`. */
#define BMI_ENOTEMPTY (26 | 1073741952)

/** As the C library's `ELOOP`. */
#define BMI_ELOOP (27 | 1073741952)

/** As the C library's `EWOULDBLOCK`. */
#define BMI_EWOULDBLOCK (28 | 1073741952)

/** As the C library's `ENOMSG`. */
#define BMI_ENOMSG (29 | 1073741952)

/** As the C library's `EUNATCH`. */
#define BMI_EUNATCH (30 | 1073741952)

/** As the C library's `EBADR`. */
#define BMI_EBADR (31 | 1073741952)

/** As the C library's `EDEADLOCK`. */
#define BMI_EDEADLOCK (32 | 1073741952)

/** As the C library's `ENODATA`. */
#define BMI_ENODATA (33 | 1073741952)

/** As the C library's `ETIME`. */
#define BMI_ETIME (34 | 1073741952)

/** As the C library's `ENONET`. */
#define BMI_ENONET (35 | 1073741952)

/** As the C library's `EREMOTE`. */
#define BMI_EREMOTE (36 | 1073741952)

/** As the C library's `ECOMM`. */
#define BMI_ECOMM (37 | 1073741952)

/** As the C library's `EPROTO`. */
#define BMI_EPROTO (38 | 1073741952)

/** As the C library's `EBADMSG`. */
#define BMI_EBADMSG (39 | 1073741952)

/** As the C library's `EOVERFLOW`. */
#define BMI_EOVERFLOW (40 | 1073741952)

/** As the C library's `ERESTART`. */
#define BMI_ERESTART (41 | 1073741952)

/** As the C library's `EMSGSIZE`. */
#define BMI_EMSGSIZE (42 | 1073741952)

/** As the C library's `EPROTOTYPE`. */
#define BMI_EPROTOTYPE (43 | 1073741952)

/** As the C library's `ENOPROTOOPT`. */
#define BMI_ENOPROTOOPT (44 | 1073741952)

/** As the C library's `EPROTONOSUPPORT`. */
#define BMI_EPROTONOSUPPORT (45 | 1073741952)

/** As the C library's `EOPNOTSUPP`. */
#define BMI_EOPNOTSUPP (46 | 1073741952)

/** As the C library's `EADDRINUSE`. */
#define BMI_EADDRINUSE (47 | 1073741952)

/** As the C library's `EADDRNOTAVAIL`. */
#define BMI_EADDRNOTAVAIL (48 | 1073741952)

/** As the C library's `ENETDOWN`. */
#define BMI_ENETDOWN (49 | 1073741952)

/** As the C library's `ENETUNREACH`. */
#define BMI_ENETUNREACH (50 | 1073741952)

/** As the C library's `ENETRESET`. */
#define BMI_ENETRESET (51 | 1073741952)

/** As the C library's `ENOBUFS`. */
#define BMI_ENOBUFS (52 | 1073741952)

/** No progress within the request time-out. */
#define BMI_ETIMEDOUT (53 | 1073741952)

/** As the C library's `ECONNREFUSED`. */
#define BMI_ECONNREFUSED (54 | 1073741952)

/** As the C library's `EHOSTDOWN`. */
#define BMI_EHOSTDOWN (55 | 1073741952)

/** As the C library's `EHOSTUNREACH`. */
#define BMI_EHOSTUNREACH (56 | 1073741952)

/** As the C library's `EALREADY`. */
#define BMI_EALREADY (57 | 1073741952)

/** As the C library's `EACCES`. */
#define BMI_EACCES (58 | 1073741952)

/** As the C library's `ECONNRESET`. */
#define BMI_ECONNRESET (59 | 1073741952)

/** Called off with `cancel`. */
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

/** Longest address string the host passes, its NUL included. */
#define BMI_MAX_ADDR_LEN 256

/** `set_info`: another method's; accepted and ignored. */
#define BMI_ZOID_POST_TIMEOUT 16

/** Answered by the host. */
#define BMI_TRANSPORT_METHODS_STRING 17

/**
 * A peer, as host and method share it. The method allocates it; the host hands its address back
 * in every call and writes `method_type` (listen address only) and `parent`.
 */
struct bmi_method_addr {
    /** The `method_id` that `initialize` was given: the host's index of this method. */
    int method_type;
    /** References of the host's: one. The host itself does not look at it. */
    int ref_count;
    /** The method's. */
    void *method_data;
    /** The host's. */
    void *parent;
    /** The host's, for lists of addresses. */
    struct bmi_method_addr *primary;
    /** The host's, for lists of addresses. */
    struct bmi_method_addr *secondary;
};

/** A posted operation. */
typedef int64_t bmi_op_id_t;

/** The size of a data region, in bytes. */
typedef int64_t bmi_size_t;

/** `BMI_PRE_ALLOC` or `BMI_EXT_ALLOC`. */
typedef int bmi_buffer_type;

/** The application's tag of a message. */
typedef int32_t bmi_msg_tag_t;

/** Number of a context in which operations complete, 0 to 15. */
typedef int64_t bmi_context_id;

/** The host's hint list. Never looked at. */
typedef void *bmi_hint;

/** 0, or an error code: always negative when it comes out of this library. */
typedef int32_t bmi_error_code_t;

/** An unexpected message, as `testunexpected` gives it out. */
struct bmi_method_unexpected_info {
    /** 0, or what went wrong with this message (negative). */
    bmi_error_code_t error_code;
    /** The sender. */
    struct bmi_method_addr *addr;
    /** Its bytes; to be given back with `unexpected_free`. */
    void *buffer;
    /** Its length. */
    bmi_size_t size;
    /** The tag it was sent with. */
    bmi_msg_tag_t tag;
};

/** The host's own name for a peer. */
typedef int64_t BMI_addr_t;

/**
 * The host's functions. Found with `dlsym` in a host that exports these functions under their
 * usual names; any other program may pass them to `bmi_mx_set_host`.
 *
 * A member that is NULL is looked up with `dlsym`, but of `reg_addr` and `forget_addr` either both or, where
 * one is given, neither. `size` is `sizeof(struct bmi_mx_host)` as the caller compiled it, so that later
 * versions can append members.
 */
struct bmi_mx_host {
    /** `sizeof(struct bmi_mx_host)`. */
    size_t size;
    /**
     * Makes a peer that connected to us known: returns the name the host gives it, or 0 when it
     * has no memory. Called from inside `testunexpected`, `testcontext`, `testsome` and `test`
     * only, at most once per address, with none of the library's locks held.
     */
    BMI_addr_t (*reg_addr)(struct bmi_method_addr *addr);
    /** The peer with that name died; the host may ask `BMI_DROP_ADDR_QUERY` about it. Returns 0. */
    int (*forget_addr)(BMI_addr_t addr);
    /**
     * Takes one line of the log, without a newline. `level` is 1 error, 2 warning, 3 information,
     * 4 debug, 5 trace. Called from any thread that calls this library, and from its own, with none
     * of its locks held. The thread goes on when it returns.
     */
    void (*log)(int level,
                const char *line);
};

/** `BMI_SEND` or `BMI_RECV`. A plain number here, so that a wrong value is not undefined. */
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

/** The argument of `get_info(BMI_DROP_ADDR_QUERY)`. */
struct method_drop_addr_query {
    /** The address asked about. */
    struct bmi_method_addr *addr;
    /** The answer: 1 when the method has no more use for it, 0 otherwise. */
    int response;
};

/**
 * The argument of `get_info(BMI_MX_GET_CREDITS)`: the method's current figures, and its counters
 * since `initialize`. A credit is 512 bytes for messages without a receive; a message's
 * bookkeeping takes 320 bytes.
 *
 * `total` = `free` + `lent` + `drawn` + `copies` + `tombstones`. Later versions append members.
 */
struct bmi_mx_credits {
    /** In: `sizeof(struct bmi_mx_credits)`. Out: how many bytes have been written. */
    size_t size;
    /** Credits there are: `MX_UNEXPECTED_BYTES`. */
    uint64_t total;
    /** Free credits. */
    uint64_t free;
    /** Credits lent to peers. */
    uint64_t lent;
    /** Credits held by messages that were fetched, or are being fetched. */
    uint64_t drawn;
    /** Credits held by copies of our own sends. */
    uint64_t copies;
    /** Credits held by messages of peers that are gone. */
    uint64_t tombstones;
    /** Connected peers. */
    uint64_t peers;
    /** Peers that want more than they have and wait for it. */
    uint64_t waiting_peers;
    /** Peers that have been asked for credits and have not answered. */
    uint64_t asked_peers;
    /** Messages that came. */
    uint64_t messages;
    /** Breaches of the rules about credits; each has ended a connection. */
    uint64_t violations;
    /** Times that a message could not be fetched for want of credits. */
    uint64_t draws_refused;
    /** Times that peers said they wanted more. */
    uint64_t wants;
    /** Credits lent to them since they connected. */
    uint64_t granted;
    /** Credits that peers were asked for. */
    uint64_t revoked;
    /** Credits that they gave back. */
    uint64_t returned;
    /** Credits that were taken back without asking. */
    uint64_t narrowed;
    /** Times that what was used before was made to count less. */
    uint64_t epochs;
    /** Times that sends to a peer had to wait for credits. */
    uint64_t credit_stalls;
    /** Peers to which sends wait for credits now. */
    uint64_t peers_without_credits;
    /** Operations that have been posted and not reported. */
    uint64_t operations;
    /** Unexpected messages that `testunexpected` can have. */
    uint64_t ready;
    /** Unexpected messages that are being fetched. */
    uint64_t coming;
    /** Peers with unexpected messages that wait until there is room to fetch them. */
    uint64_t held;
    /** Bytes of unexpected messages that are here or being fetched. */
    uint64_t unexpected_bytes;
    /** Bytes of messages that came before their receives. */
    uint64_t early_bytes;
    /** Bytes that are lent to peers or taken by messages, bookkeeping included. */
    uint64_t used_bytes;
    /** The most that can be (`MX_UNEXPECTED_BYTES`), but for two messages of each peer. */
    uint64_t limit_bytes;
};

/**
 * The argument of `get_info(BMI_MX_GET_PEER_CREDITS)`: the credits between one peer and us. Of a peer
 * that is not connected everything is 0 but what waits for it. Later versions append members.
 */
struct bmi_mx_peer_credits {
    /** In: `sizeof(struct bmi_mx_peer_credits)`. Out: how many bytes have been written. */
    size_t size;
    /** In: the peer, by any of its addresses. */
    struct bmi_method_addr *addr;
    /** `BMI_MX_PEER_INIT`, `_WAIT` or `_READY`. */
    int state;
    /** Credits lent to it, wherever they are. */
    uint32_t credit_limit;
    /** Credits of the limit that the peer can use now, as far as is known here. */
    uint32_t free;
    /** Credits that messages of the peer use which have not been taken. */
    uint32_t waiting;
    /** Credits of messages that have been taken, of which the peer has not been told yet. */
    uint32_t owed;
    /** The credits it requests besides. */
    uint32_t wanted;
    /** 1 when it has been asked for credits and has not answered. */
    uint32_t asked;
    /** Credits that it lends us and that are free. */
    uint32_t send_free;
    /** Operations that wait for the connection, and sends that wait for the link or for credits. */
    uint32_t send_waiting;
    /** 1 when such a send waits for credits. */
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
 * The address of a peer, from `mx://host:board:endpoint`, `mx://host:endpoint` or a list of
 * addresses that has one of these. May be called before `BMI_mx_initialize` (a server does,
 * with its own name). Does not wait for the network. Each call gives an object of its own, to
 * be given back with `BMI_mx_set_info(BMI_DROP_ADDR)`.
 *
 * Returns NULL for other methods' addresses, and for malformed ones, which are logged.
 */
struct bmi_method_addr *BMI_mx_method_addr_lookup(const char *id_string);

/**
 * The name of a peer that sent an unexpected message. It stays valid until the address is
 * dropped.
 *
 * Returns "(unknown)" for a pointer that is no address, also NULL.
 */
const char *BMI_mx_rev_lookup_unexpected(struct bmi_method_addr *addr);

/**
 * Whether a peer's host lies in a range. With a `netmask` of 0 or more, `wildcard` is `mx://` and
 * an address whose first `netmask` bits count; 32 also stands for all bits of an IPv6 address that has
 * some behind these. With -1, or if it is no address and the mask is 0 or 32, it is text with `*` in places,
 * for the peer's address or host name. A peer on this machine has all its addresses.
 *
 * Returns 1 when it does, 0 when not; -BMI_EINVAL for NULL or a range that makes no sense.
 */
int BMI_mx_query_addr_range(struct bmi_method_addr *addr,
                            const char *wildcard,
                            int netmask);

/**
 * Starts the method.
 *
 * With `BMI_INIT_SERVER` in `flags`, `listen_addr` is the address to listen on, from
 * `BMI_mx_method_addr_lookup`; otherwise it is NULL. With `BMI_TCP_BIND_SPECIFIC` besides, the server
 * listens on the address that its host part stands for; without, on all of this machine, and a host
 * part that is not this machine's is a warning. `method_id` is the host's number for
 * this method and becomes the `method_type` of every address.
 *
 * Returns 0; -BMI_EINVAL when address and flags disagree; -BMI_EALREADY when it is
 * initialized; -BMI_EADDRINUSE when another process has the endpoint; -BMI_EADDRNOTAVAIL or
 * -BMI_EHOSTUNREACH when the only address to listen on is another machine's, or unknown; another code
 * when the system refuses something. After a failure it may be called again.
 */
int BMI_mx_initialize(struct bmi_method_addr *listen_addr,
                      int method_id,
                      int flags);

/**
 * `BMI_mx_post_sendunexpected` from `list_count` buffers (0 to 65536), sent as one message. Only
 * a `BMI_mx_testunexpected` for the same `class` hands it out.
 *
 * Also returns -BMI_EINVAL when the sizes do not add up to `total_size`.
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
 * Takes up to `incount` unexpected messages: one of each peer in turn, of each its oldest. Each
 * buffer is the caller's until it is given back with `BMI_mx_unexpected_free`. Only
 * those that were sent with `class`; others wait until they are asked for.
 *
 * Returns 0.
 */
int BMI_mx_testunexpected(int incount,
                          int *outcount,
                          struct bmi_method_unexpected_info *info,
                          uint8_t class_,
                          int max_idle_time_ms);

/**
 * Stops the method: every operation is gone, every peer is told. Addresses stay valid for
 * `BMI_mx_set_info(BMI_DROP_ADDR)`. Afterwards `BMI_mx_initialize` may be called again.
 *
 * Returns 0, or -BMI_ENODEV when it was not initialized.
 */
int BMI_mx_finalize(void);

/**
 * Tells the method something. `BMI_DROP_ADDR` with a `struct bmi_method_addr *` gives the
 * address back, also after `BMI_mx_finalize`. Every other key is accepted and ignored.
 *
 * Returns 0, or -BMI_EINVAL for `BMI_DROP_ADDR` with NULL.
 */
int BMI_mx_set_info(int option,
                    void *inout_parameter);

/**
 * Asks the method something.
 *
 * `BMI_CHECK_MAXSIZE` (`int *`): the largest message, 2147483647. `BMI_GET_UNEXP_SIZE`
 * (`int *`): 16384; larger unexpected messages are carried too. `BMI_DROP_ADDR_QUERY`
 * (`struct method_drop_addr_query *`): `response` becomes 1 when the peer is dead and has no
 * operations left, 0 otherwise. `BMI_TCP_GET_PORT` (`int *`; the stand-alone BMI only): the number of
 * the endpoint that is open.
 *
 * Two keys are this method's own, for a running one. `BMI_MX_GET_CREDITS` (`struct
 * bmi_mx_credits *`): credits, queues and memory. `BMI_MX_GET_PEER_CREDITS` (`struct
 * bmi_mx_peer_credits *`): one peer's, which `addr` names. The caller sets `size` to the size
 * of its struct; it gets as many whole members as it has room for, and `size` is set to their
 * bytes.
 *
 * Returns 0; -BMI_EINVAL for NULL, a `size` that is too small, or an address that is none;
 * -BMI_ENODEV for this method's own keys when it is not initialized; -BMI_ENOSYS for any other
 * key.
 */
int BMI_mx_get_info(int option,
                    void *inout_parameter);

/**
 * A context from 0 to 15 that operations may complete in. Opening it twice does no harm.
 *
 * Returns 0, or -BMI_EINVAL for another number.
 */
int BMI_mx_open_context(bmi_context_id context_id);

/** Closes a context. Untested completions are dropped. */
void BMI_mx_close_context(bmi_context_id context_id);

/**
 * Sets the host's functions, for a host that does not export them under their usual names, or
 * for a program without a host. The struct is copied. Members that are NULL are looked up with
 * `dlsym`, but of `reg_addr` and `forget_addr` either both or, where one is given, neither. Without
 * any, peers get numbers of the library's own and the log goes to stderr. NULL forgets what was set
 * before. Best called before anything else.
 *
 * Returns 0, or -BMI_EINVAL when `size` is smaller than two pointers.
 */
int bmi_mx_set_host(const struct bmi_mx_host *host);

/**
 * A buffer of `size` bytes for messages, aligned to a page when it is a page or more; one of 0 bytes
 * has an address of its own, as from malloc. Its contents are undefined. `send_recv` is not looked at.
 * Any other memory may be posted too.
 *
 * Returns NULL when `size` is negative or there is no memory.
 */
void *BMI_mx_memalloc(bmi_size_t size,
                      bmi_op_type send_recv);

/**
 * Gives back a buffer of `BMI_mx_memalloc`. NULL is legal. `size` and `send_recv` are not
 * looked at.
 *
 * Returns 0, or -BMI_EINVAL when the buffer was given back before and that can be told.
 */
int BMI_mx_memfree(void *buffer,
                   bmi_size_t size,
                   bmi_op_type send_recv);

/**
 * Gives back the buffer of an unexpected message from `BMI_mx_testunexpected`. NULL is legal.
 *
 * Returns 0.
 */
int BMI_mx_unexpected_free(void *buffer);

/**
 * `BMI_mx_post_send` from `list_count` buffers (0 to 65536), sent as one message. The arrays
 * may go when the call returns, the buffers may not. A buffer of 0 bytes may be NULL, and so may the
 * arrays of no buffers.
 *
 * Also returns -BMI_EINVAL when the sizes do not add up to `total_size`.
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
 * `BMI_mx_post_recv` into `list_count` buffers (0 to 65536), filled one after the other.
 *
 * Also returns -BMI_EINVAL when the sizes do not add up to `total_expected_size`.
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
 * Calls an operation off. It still completes exactly once and must be tested for, at once (a large
 * send over InfiniBand or RoCE: within milliseconds, two seconds at most): with -BMI_ECANCEL, or as it did when it was
 * complete already. Its buffer is not touched any more once it is complete. The peer and its other operations stay, also when the message was partly
 * transferred.
 *
 * Nothing happens to one that was reported: its id may be passed until a post gives it out again, for
 * an operation that would be called off instead.
 *
 * Returns 0, or -BMI_EINVAL for a number that never was an operation's id.
 */
int BMI_mx_cancel(bmi_op_id_t id,
                  bmi_context_id context_id);

/**
 * Whether one operation is complete. `actual_size` and `user_ptr` may be NULL.
 *
 * Returns 0, with `*outcount` 1 and the other outputs when it is (the id is used up), or
 * `*outcount` 0. Returns -BMI_EINVAL for an id that names no operation of that context.
 */
int BMI_mx_test(bmi_op_id_t id,
                int *outcount,
                bmi_error_code_t *error_code,
                bmi_size_t *actual_size,
                void **user_ptr,
                int max_idle_time_ms,
                bmi_context_id context_id);

/**
 * Tests `incount` operations. Ids that are 0 are skipped. Output number *n* is about
 * `id_array[index_array[n]]`. `actual_size_array` and `user_ptr_array` may be NULL.
 *
 * Returns 0, or -BMI_EINVAL when one of the ids names no operation of that context.
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
 * Takes up to `incount` completions of a context, oldest first, but failed sends before the
 * receives that fail with them. `actual_size_array` and `user_ptr_array` may be NULL. While it
 * waits, the arrival of an unexpected message or a completion in another context ends the call
 * early.
 *
 * Returns 0. Trouble with a peer is never a failure of this call: it is in the error codes of
 * its operations.
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
