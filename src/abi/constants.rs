//! The host's constants.
//!
//! ```text
//!   error code n (1..59)      n | 0x4000_0080
//!   BMI's own    n (1..7)     n | 0x6000_0080     returned and reported negated
//! ```
//!
//! Owns: values only; they never change. `error` chooses the codes.

use libc::c_int;

/// Direction that the host passes to `memalloc` and `memfree`: a buffer to send from. Ignored.
pub const BMI_SEND: c_int = 1;
/// Direction that the host passes to `memalloc` and `memfree`: a buffer to receive into. Ignored.
pub const BMI_RECV: c_int = 2;

/// Buffer type that the host passes to a post: memory from `memalloc`. Ignored.
pub const BMI_PRE_ALLOC: c_int = 1;
/// Buffer type that the host passes to a post: any other memory. Ignored.
pub const BMI_EXT_ALLOC: c_int = 2;

/// `initialize`: listen for clients. Needs a listen address.
pub const BMI_INIT_SERVER: c_int = 1;
/// `initialize`: a server listens on the address of the host in its listen address only, not on all addresses of this
/// machine.
pub const BMI_TCP_BIND_SPECIFIC: c_int = 2;
/// `initialize`: the host counts references of unexpected senders itself. Accepted, without effect on the method.
pub const BMI_AUTO_REF_COUNT: c_int = 4;

/// Flag of the method's table: the host passes the full idle time to test calls. Without this flag, it passes 0 for the
/// first 10 000 calls in a row that find nothing.
pub const BMI_METHOD_FLAG_NO_POLLING: c_int = 1;

/// Number of contexts, which are numbered from 0.
pub const BMI_MAX_CONTEXTS: c_int = 16;

/// `set_info`: an address is no longer used (`struct bmi_method_addr *`).
pub const BMI_DROP_ADDR: c_int = 1;
/// `get_info`: whether BMI is initialized. The host answers this key itself and does not pass it to a method.
pub const BMI_CHECK_INIT: c_int = 2;
/// `get_info`: the largest message (`int *`).
pub const BMI_CHECK_MAXSIZE: c_int = 3;
/// `get_info`: the method's address object for one of the host's peer ids. The host answers this key itself and does
/// not pass it to a method.
pub const BMI_GET_METH_ADDR: c_int = 4;
/// `set_info`: adds one to the host's reference count of a peer. The host handles this key itself and does not pass it
/// to a method.
pub const BMI_INC_ADDR_REF: c_int = 5;
/// `set_info`: takes one from the host's reference count of a peer. The host handles this key itself; when the count
/// reaches 0, it may ask the method `BMI_DROP_ADDR_QUERY`.
pub const BMI_DEC_ADDR_REF: c_int = 6;
/// `get_info`: whether an address may be dropped (`struct method_drop_addr_query *`).
pub const BMI_DROP_ADDR_QUERY: c_int = 7;
/// `set_info`: accepted and ignored.
pub const BMI_FORCEFUL_CANCEL_MODE: c_int = 8;
/// `set_info`: accepted and ignored.
pub const BMI_TRUSTED_CONNECTION: c_int = 9;
/// `get_info`: the maximum size of unexpected messages (`int *`).
pub const BMI_GET_UNEXP_SIZE: c_int = 10;
/// `set_info`: accepted and ignored.
pub const BMI_TCP_BUFFER_SEND_SIZE: c_int = 11;
/// `set_info`: accepted and ignored.
pub const BMI_TCP_BUFFER_RECEIVE_SIZE: c_int = 12;
/// `set_info`: closes the connection to a peer. The host handles this key itself and does not pass it to a method.
pub const BMI_TCP_CLOSE_SOCKET: c_int = 13;
/// `set_info`: accepted and ignored.
pub const BMI_OPTIMISTIC_BUFFER_REG: c_int = 14;
/// `set_info`: accepted and ignored.
pub const BMI_TCP_CHECK_UNEXPECTED: c_int = 15;
/// `get_info`, the stand-alone BMI only: the number of this process's open endpoint (`int *`).
pub const BMI_TCP_GET_PORT: c_int = 18;

/// `get_info`, this method only: all credits, queues and memory (`struct bmi_mx_credits *`). Chosen far from the host's
/// numbers.
pub const BMI_MX_GET_CREDITS: c_int = 0x4d58_0001;
/// `get_info`, this method only: the credits of one peer (`struct bmi_mx_peer_credits *`).
pub const BMI_MX_GET_PEER_CREDITS: c_int = 0x4d58_0002;

/// `bmi_mx_peer_credits.state`: not connected; a posted operation connects.
pub const BMI_MX_PEER_INIT: c_int = 0;
/// `bmi_mx_peer_credits.state`: handshake in progress.
pub const BMI_MX_PEER_WAIT: c_int = 1;
/// `bmi_mx_peer_credits.state`: connected.
pub const BMI_MX_PEER_READY: c_int = 2;

/// BMI's number for the C library's error `EPERM`.
pub const BMI_EPERM: c_int = 1 | 0x4000_0080;
/// BMI's number for the C library's error `ENOENT`.
pub const BMI_ENOENT: c_int = 2 | 0x4000_0080;
/// BMI's number for the C library's error `EINTR`.
pub const BMI_EINTR: c_int = 3 | 0x4000_0080;
/// No other code applies.
pub const BMI_EIO: c_int = 4 | 0x4000_0080;
/// BMI's number for the C library's error `ENXIO`.
pub const BMI_ENXIO: c_int = 5 | 0x4000_0080;
/// BMI's number for the C library's error `EBADF`.
pub const BMI_EBADF: c_int = 6 | 0x4000_0080;
/// BMI's number for the C library's error `EAGAIN`.
pub const BMI_EAGAIN: c_int = 7 | 0x4000_0080;
/// No memory, or no room at the peer.
pub const BMI_ENOMEM: c_int = 8 | 0x4000_0080;
/// BMI's number for the C library's error `EFAULT`.
pub const BMI_EFAULT: c_int = 9 | 0x4000_0080;
/// BMI's number for the C library's error `EBUSY`.
pub const BMI_EBUSY: c_int = 10 | 0x4000_0080;
/// BMI's number for the C library's error `EEXIST`.
pub const BMI_EEXIST: c_int = 11 | 0x4000_0080;
/// BMI's number for the C library's error `ENODEV`.
pub const BMI_ENODEV: c_int = 12 | 0x4000_0080;
/// BMI's number for the C library's error `ENOTDIR`.
pub const BMI_ENOTDIR: c_int = 13 | 0x4000_0080;
/// BMI's number for the C library's error `EISDIR`.
pub const BMI_EISDIR: c_int = 14 | 0x4000_0080;
/// A wrong argument.
pub const BMI_EINVAL: c_int = 15 | 0x4000_0080;
/// BMI's number for the C library's error `EMFILE`.
pub const BMI_EMFILE: c_int = 16 | 0x4000_0080;
/// BMI's number for the C library's error `EFBIG`.
pub const BMI_EFBIG: c_int = 17 | 0x4000_0080;
/// BMI's number for the C library's error `ENOSPC`.
pub const BMI_ENOSPC: c_int = 18 | 0x4000_0080;
/// BMI's number for the C library's error `EROFS`.
pub const BMI_EROFS: c_int = 19 | 0x4000_0080;
/// BMI's number for the C library's error `EMLINK`.
pub const BMI_EMLINK: c_int = 20 | 0x4000_0080;
/// BMI's number for the C library's error `EPIPE`.
pub const BMI_EPIPE: c_int = 21 | 0x4000_0080;
/// BMI's number for the C library's error `EDEADLK`.
pub const BMI_EDEADLK: c_int = 22 | 0x4000_0080;
/// BMI's number for the C library's error `ENAMETOOLONG`.
pub const BMI_ENAMETOOLONG: c_int = 23 | 0x4000_0080;
/// BMI's number for the C library's error `ENOLCK`.
pub const BMI_ENOLCK: c_int = 24 | 0x4000_0080;
/// The method does not have this info key.
pub const BMI_ENOSYS: c_int = 25 | 0x4000_0080;
/// BMI's number for the C library's error `ENOTEMPTY`.
pub const BMI_ENOTEMPTY: c_int = 26 | 0x4000_0080;
/// BMI's number for the C library's error `ELOOP`.
pub const BMI_ELOOP: c_int = 27 | 0x4000_0080;
/// BMI's number for the C library's error `EWOULDBLOCK`.
pub const BMI_EWOULDBLOCK: c_int = 28 | 0x4000_0080;
/// BMI's number for the C library's error `ENOMSG`.
pub const BMI_ENOMSG: c_int = 29 | 0x4000_0080;
/// BMI's number for the C library's error `EUNATCH`.
pub const BMI_EUNATCH: c_int = 30 | 0x4000_0080;
/// BMI's number for the C library's error `EBADR`.
pub const BMI_EBADR: c_int = 31 | 0x4000_0080;
/// BMI's number for the C library's error `EDEADLOCK`.
pub const BMI_EDEADLOCK: c_int = 32 | 0x4000_0080;
/// BMI's number for the C library's error `ENODATA`.
pub const BMI_ENODATA: c_int = 33 | 0x4000_0080;
/// BMI's number for the C library's error `ETIME`.
pub const BMI_ETIME: c_int = 34 | 0x4000_0080;
/// BMI's number for the C library's error `ENONET`.
pub const BMI_ENONET: c_int = 35 | 0x4000_0080;
/// BMI's number for the C library's error `EREMOTE`.
pub const BMI_EREMOTE: c_int = 36 | 0x4000_0080;
/// BMI's number for the C library's error `ECOMM`.
pub const BMI_ECOMM: c_int = 37 | 0x4000_0080;
/// BMI's number for the C library's error `EPROTO`.
pub const BMI_EPROTO: c_int = 38 | 0x4000_0080;
/// BMI's number for the C library's error `EBADMSG`.
pub const BMI_EBADMSG: c_int = 39 | 0x4000_0080;
/// BMI's number for the C library's error `EOVERFLOW`.
pub const BMI_EOVERFLOW: c_int = 40 | 0x4000_0080;
/// BMI's number for the C library's error `ERESTART`.
pub const BMI_ERESTART: c_int = 41 | 0x4000_0080;
/// BMI's number for the C library's error `EMSGSIZE`.
pub const BMI_EMSGSIZE: c_int = 42 | 0x4000_0080;
/// BMI's number for the C library's error `EPROTOTYPE`.
pub const BMI_EPROTOTYPE: c_int = 43 | 0x4000_0080;
/// BMI's number for the C library's error `ENOPROTOOPT`.
pub const BMI_ENOPROTOOPT: c_int = 44 | 0x4000_0080;
/// BMI's number for the C library's error `EPROTONOSUPPORT`.
pub const BMI_EPROTONOSUPPORT: c_int = 45 | 0x4000_0080;
/// BMI's number for the C library's error `EOPNOTSUPP`.
pub const BMI_EOPNOTSUPP: c_int = 46 | 0x4000_0080;
/// BMI's number for the C library's error `EADDRINUSE`.
pub const BMI_EADDRINUSE: c_int = 47 | 0x4000_0080;
/// BMI's number for the C library's error `EADDRNOTAVAIL`.
pub const BMI_EADDRNOTAVAIL: c_int = 48 | 0x4000_0080;
/// BMI's number for the C library's error `ENETDOWN`.
pub const BMI_ENETDOWN: c_int = 49 | 0x4000_0080;
/// BMI's number for the C library's error `ENETUNREACH`.
pub const BMI_ENETUNREACH: c_int = 50 | 0x4000_0080;
/// BMI's number for the C library's error `ENETRESET`.
pub const BMI_ENETRESET: c_int = 51 | 0x4000_0080;
/// BMI's number for the C library's error `ENOBUFS`.
pub const BMI_ENOBUFS: c_int = 52 | 0x4000_0080;
/// No progress within the request time-out.
pub const BMI_ETIMEDOUT: c_int = 53 | 0x4000_0080;
/// BMI's number for the C library's error `ECONNREFUSED`.
pub const BMI_ECONNREFUSED: c_int = 54 | 0x4000_0080;
/// BMI's number for the C library's error `EHOSTDOWN`.
pub const BMI_EHOSTDOWN: c_int = 55 | 0x4000_0080;
/// BMI's number for the C library's error `EHOSTUNREACH`.
pub const BMI_EHOSTUNREACH: c_int = 56 | 0x4000_0080;
/// BMI's number for the C library's error `EALREADY`.
pub const BMI_EALREADY: c_int = 57 | 0x4000_0080;
/// BMI's number for the C library's error `EACCES`.
pub const BMI_EACCES: c_int = 58 | 0x4000_0080;
/// BMI's number for the C library's error `ECONNRESET`.
pub const BMI_ECONNRESET: c_int = 59 | 0x4000_0080;
/// Cancelled by `cancel`.
pub const BMI_ECANCEL: c_int = 1 | 0x6000_0080;
/// A device could not be started.
pub const BMI_EDEVINIT: c_int = 2 | 0x6000_0080;
/// Details are elsewhere.
pub const BMI_EDETAIL: c_int = 3 | 0x6000_0080;
/// Host not found.
pub const BMI_EHOSTNTFD: c_int = 4 | 0x6000_0080;
/// Address not found.
pub const BMI_EADDRNTFD: c_int = 5 | 0x6000_0080;
/// No receiver.
pub const BMI_ENORECVR: c_int = 6 | 0x6000_0080;
/// Try again.
pub const BMI_ETRYAGAIN: c_int = 7 | 0x6000_0080;

const _: () = {
    assert!(BMI_ENOMEM == 1_073_741_960 && BMI_EINVAL == 1_073_741_967);
    assert!(BMI_ETIMEDOUT == 1_073_742_005 && BMI_ENETRESET == 1_073_742_003);
    assert!(BMI_EHOSTUNREACH == 1_073_742_008 && BMI_ECANCEL == 1_610_612_865);
};
