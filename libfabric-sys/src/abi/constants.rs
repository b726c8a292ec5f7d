//! libfabric's numbers: capabilities, flags, modes, enumerations, options, errors.
//!
//! ```text
//!   u64 masks     caps  | op flags | mode | msg order        flags of single calls reuse bits,
//!                 one number space, so FI_CLAIM and          so a bit may have several names
//!                 FI_DIRECTED_RECV are one bit
//!   u32 enums     ep type, progress, threading, wait object, address format, protocol ...
//!   c_int         control commands, options, mr_mode bits, errno values (positive)
//! ```
//!
//! Owns: the values, compared with the installed headers by `tests/layout.rs`.
//!
//! Names are libfabric's own and are described in its manual (`fi_getinfo`, `fi_endpoint`, `fi_domain`, `fi_cq`, `fi_mr`);
//! comments here add only what a reader of those would miss. Enumerations are plain numbers, so that a value from a newer
//! library is not undefined behaviour.

#![allow(missing_docs)]

use libc::c_int;

/// Handle of a peer in an address vector, which operations name it by.
pub type fi_addr_t = u64;

// C's enumerations, all unsigned.
pub type fi_av_type = u32;
pub type fi_progress = u32;
pub type fi_threading = u32;
pub type fi_resource_mgmt = u32;
pub type fi_ep_type = u32;
pub type fi_cq_format = u32;
pub type fi_wait_obj = u32;
pub type fi_cq_wait_cond = u32;

/// Encodes a version as libfabric passes and reports it (`FI_VERSION(major, minor)`).
pub const fn fi_version(major: u32, minor: u32) -> u32 {
    (major << 16) | (minor & 0xffff)
}

/// Returns the major part of an encoded version.
pub const fn fi_major(version: u32) -> u32 {
    version >> 16
}

/// Returns the minor part of an encoded version.
pub const fn fi_minor(version: u32) -> u32 {
    version & 0xffff
}

c_constants! {
    // Capabilities and operation flags.
    u64 {
        FI_MSG = 1 << 1;
        FI_RMA = 1 << 2;
        FI_TAGGED = 1 << 3;
        FI_ATOMIC = 1 << 4;
        FI_READ = 1 << 8;
        FI_WRITE = 1 << 9;
        FI_RECV = 1 << 10;
        FI_SEND = 1 << 11;
        FI_TRANSMIT = FI_SEND;
        FI_REMOTE_READ = 1 << 12;
        FI_REMOTE_WRITE = 1 << 13;
        FI_MULTI_RECV = 1 << 16;
        FI_REMOTE_CQ_DATA = 1 << 17;
        FI_MORE = 1 << 18;
        FI_COMPLETION = 1 << 24;
        FI_AFFINITY = 1 << 29;
        FI_HMEM_HOST_ALLOC = 1 << 45;
        FI_SOURCE_ERR = 1 << 50;
        FI_LOCAL_COMM = 1 << 51;
        FI_REMOTE_COMM = 1 << 52;
        FI_NUMERICHOST = 1 << 55;
        FI_SOURCE = 1 << 57;
        FI_DIRECTED_RECV = 1 << 59;

        // Flags of one call each, sharing bits with the above.
        FI_CLAIM = 1 << 59;

        // Mode bits: requirements of the provider.
        FI_CONTEXT = 1 << 59;
        FI_MSG_PREFIX = 1 << 58;
        FI_ASYNC_IOV = 1 << 57;
        FI_RX_CQ_DATA = 1 << 56;
        FI_LOCAL_MR = 1 << 55;
        FI_CONTEXT2 = 1 << 52;
        /// Removed in 2.x, still offered by `ofi_rxm` of 1.17.
        [earlier] FI_BUFFERED_RECV = 1 << 51;

        // Message order.
        FI_ORDER_SAS = 1 << 8;

        // Values for "no address" and "no key".
        FI_ADDR_UNSPEC = u64::MAX;
        FI_ADDR_NOTAVAIL = u64::MAX;
        FI_KEY_NOTAVAIL = u64::MAX;
    }

    u32 {
        // Address formats.
        FI_FORMAT_UNSPEC = 0;
        FI_SOCKADDR = 1;
        FI_SOCKADDR_IN = 2;
        FI_SOCKADDR_IN6 = 3;
        FI_SOCKADDR_IB = 4;
        FI_ADDR_PSMX = 5;
        FI_ADDR_STR = 9;
        FI_ADDR_PSMX2 = 10;
        FI_ADDR_IB_UD = 11;
        FI_ADDR_EFA = 12;
        FI_ADDR_PSMX3 = 13;
        FI_ADDR_OPX = 14;
        FI_ADDR_CXI = 15;

        // enum fi_av_type
        FI_AV_UNSPEC = 0;
        FI_AV_MAP = 1;
        FI_AV_TABLE = 2;

        // enum fi_progress
        FI_PROGRESS_AUTO = 1;
        FI_PROGRESS_MANUAL = 2;

        // enum fi_threading
        FI_THREAD_SAFE = 1;
        FI_THREAD_FID = 2;
        FI_THREAD_DOMAIN = 3;

        // enum fi_resource_mgmt
        FI_RM_DISABLED = 1;
        FI_RM_ENABLED = 2;

        // enum fi_ep_type
        FI_EP_UNSPEC = 0;
        FI_EP_MSG = 1;
        FI_EP_DGRAM = 2;
        FI_EP_RDM = 3;

        // Protocols: two endpoints can communicate if theirs are equal.
        FI_PROTO_UNSPEC = 0;
        FI_PROTO_RDMA_CM_IB_RC = 1;
        FI_PROTO_RXM = 11;
        FI_PROTO_EFA = 20;
        FI_PROTO_PSMX3 = 21;
        FI_PROTO_RXM_TCP = 22;
        FI_PROTO_OPX = 23;
        FI_PROTO_CXI = 24;
        FI_PROTO_XNET = 25;

        // Traffic classes.
        FI_TC_LABEL = 0x200;

        // enum fi_wait_obj
        FI_WAIT_NONE = 0;
        FI_WAIT_UNSPEC = 1;
        FI_WAIT_SET = 2;
        FI_WAIT_FD = 3;

        // enum fi_cq_format
        FI_CQ_FORMAT_CONTEXT = 1;
        FI_CQ_FORMAT_MSG = 2;
        FI_CQ_FORMAT_DATA = 3;
        FI_CQ_FORMAT_TAGGED = 4;
    }

    usize {
        // Object classes in `fid.fclass`.
        FI_CLASS_FABRIC = 1;
        FI_CLASS_DOMAIN = 2;
        FI_CLASS_EP = 3;
        FI_CLASS_AV = 11;
        FI_CLASS_MR = 12;
        FI_CLASS_CQ = 14;
    }

    c_int {
        // mr_mode bits of a domain.
        FI_MR_BASIC = 1 << 0;
        FI_MR_SCALABLE = 1 << 1;
        FI_MR_LOCAL = 1 << 2;
        FI_MR_RAW = 1 << 3;
        FI_MR_VIRT_ADDR = 1 << 4;
        FI_MR_ALLOCATED = 1 << 5;
        FI_MR_PROV_KEY = 1 << 6;
        FI_MR_MMU_NOTIFY = 1 << 7;
        FI_MR_RMA_EVENT = 1 << 8;
        FI_MR_ENDPOINT = 1 << 9;
        FI_MR_HMEM = 1 << 10;

        // Commands of `fi_control`.
        FI_GETWAIT = 5;
        FI_ENABLE = 6;

        // Options of `fi_setopt` and `fi_getopt`: the level, then the names.
        FI_OPT_ENDPOINT = 0;
        FI_OPT_MIN_MULTI_RECV = 0;

        // Errors, positive; calls return them negated. Below 256 they equal the system's.
        FI_EINTR = libc::EINTR;
        FI_EIO = libc::EIO;
        FI_EBADF = libc::EBADF;
        FI_EAGAIN = libc::EAGAIN;
        FI_ENOMEM = libc::ENOMEM;
        FI_EACCES = libc::EACCES;
        FI_EFAULT = libc::EFAULT;
        FI_EBUSY = libc::EBUSY;
        FI_ENODEV = libc::ENODEV;
        FI_EINVAL = libc::EINVAL;
        FI_EMFILE = libc::EMFILE;
        FI_ENOSYS = libc::ENOSYS;
        FI_ENODATA = libc::ENODATA;
        FI_EMSGSIZE = libc::EMSGSIZE;
        FI_ENOPROTOOPT = libc::ENOPROTOOPT;
        FI_EOPNOTSUPP = libc::EOPNOTSUPP;
        FI_EADDRINUSE = libc::EADDRINUSE;
        FI_EADDRNOTAVAIL = libc::EADDRNOTAVAIL;
        FI_ECONNRESET = libc::ECONNRESET;
        FI_ENOTCONN = libc::ENOTCONN;
        FI_ECONNREFUSED = libc::ECONNREFUSED;
        FI_EHOSTDOWN = libc::EHOSTDOWN;
        FI_EHOSTUNREACH = libc::EHOSTUNREACH;
        FI_ECANCELED = libc::ECANCELED;
        FI_EKEYREJECTED = libc::EKEYREJECTED;
        FI_EOTHER = 256;
        FI_ETOOSMALL = 257;
        FI_EOPBADSTATE = 258;
        FI_EAVAIL = 259;
        FI_EBADFLAGS = 260;
        FI_ENOCQ = 263;
        FI_ETRUNC = 265;
        FI_ENOKEY = 266;
        FI_ENOAV = 267;
        FI_EOVERRUN = 268;
    }
}
