//! libfabric's numbers: capabilities, flags, modes, enumerations, options, errors.
//!
//! ```text
//!   u64 masks     caps  | op flags | mode | msg order        bit 59 and down: one call's own,
//!                 one number space, so FI_CLAIM and          so a bit there has several names
//!                 FI_DIRECTED_RECV are the same bit
//!   u32 enums     ep type, progress, threading, wait object, address format, protocol ...
//!   c_int         control commands, options, mr_mode bits, errno values (positive)
//! ```
//!
//! Owns: the values, compared with the installed headers by `tests/layout.rs`.
//!
//! Names are libfabric's own and are described in its manual (`fi_getinfo`, `fi_endpoint`,
//! `fi_domain`, `fi_cq`, `fi_mr`); a comment here says only what a reader of those would miss.
//! Enumerations are plain numbers, so that a value from a newer library is not undefined.

#![allow(missing_docs)]

use libc::c_int;

/// An index or handle an address vector gave for a peer.
pub type fi_addr_t = u64;

// C's enumerations, all of them unsigned.
pub type fi_av_type = u32;
pub type fi_progress = u32;
pub type fi_threading = u32;
pub type fi_resource_mgmt = u32;
pub type fi_ep_type = u32;
pub type fi_cq_format = u32;
pub type fi_wait_obj = u32;
pub type fi_cq_wait_cond = u32;
pub type fi_hmem_iface = u32;
pub type fi_datatype = u32;
pub type fi_op = u32;
pub type fi_collective_op = u32;

/// `FI_VERSION(major, minor)`: how a version is passed and reported.
pub const fn fi_version(major: u32, minor: u32) -> u32 {
    (major << 16) | (minor & 0xffff)
}

/// The major half of a version.
pub const fn fi_major(version: u32) -> u32 {
    version >> 16
}

/// The minor half of a version.
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
        FI_MULTICAST = 1 << 5;
        FI_COLLECTIVE = 1 << 6;
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
        FI_PEEK = 1 << 19;
        FI_TRIGGER = 1 << 20;
        FI_FENCE = 1 << 21;
        FI_COMPLETION = 1 << 24;
        FI_EVENT = FI_COMPLETION;
        FI_INJECT = 1 << 25;
        FI_INJECT_COMPLETE = 1 << 26;
        FI_TRANSMIT_COMPLETE = 1 << 27;
        FI_DELIVERY_COMPLETE = 1 << 28;
        FI_AFFINITY = 1 << 29;
        FI_COMMIT_COMPLETE = 1 << 30;
        FI_MATCH_COMPLETE = 1 << 31;
        [later] FI_RESCAN = 1 << 35;
        FI_PEER_TRANSFER = 1 << 36;
        [later] FI_MR_DMABUF = 1 << 40;
        FI_AV_USER_ID = 1 << 41;
        [later] FI_MR_SINGLE_USE = 1 << 41;
        [later] FI_FIREWALL_ADDR = 1 << 42;
        FI_PEER = 1 << 43;
        FI_HMEM_HOST_ALLOC = 1 << 45;
        FI_HMEM_DEVICE_ONLY = 1 << 46;
        /// In 1.17 this bit means `FI_HMEM_HOST_ALLOC`: ask only a library that has it.
        [later] FI_TAGGED_DIRECTED_RECV = 1 << 45;
        [later] FI_TAGGED_MULTI_RECV = 1 << 46;
        FI_HMEM = 1 << 47;
        [later] FI_EXACT_DIRECTED_RECV = 1 << 48;
        FI_RMA_PMEM = 1 << 49;
        FI_SOURCE_ERR = 1 << 50;
        FI_LOCAL_COMM = 1 << 51;
        FI_REMOTE_COMM = 1 << 52;
        FI_SHARED_AV = 1 << 53;
        FI_PROV_ATTR_ONLY = 1 << 54;
        FI_NUMERICHOST = 1 << 55;
        FI_RMA_EVENT = 1 << 56;
        FI_SOURCE = 1 << 57;
        FI_NAMED_RX_CTX = 1 << 58;
        FI_DIRECTED_RECV = 1 << 59;

        // Flags of one call each, sharing bits with the above.
        FI_CLAIM = 1 << 59;
        FI_DISCARD = 1 << 58;
        [later] FI_AUTH_KEY = 1 << 57;
        FI_SELECTIVE_COMPLETION = 1 << 59;
        FI_SYMMETRIC = 1 << 59;
        FI_SYNC_ERR = 1 << 58;
        FI_UNIVERSE = 1 << 57;

        // Mode: what the provider wants of its user.
        FI_CONTEXT = 1 << 59;
        FI_MSG_PREFIX = 1 << 58;
        FI_ASYNC_IOV = 1 << 57;
        FI_RX_CQ_DATA = 1 << 56;
        FI_LOCAL_MR = 1 << 55;
        FI_CONTEXT2 = 1 << 52;
        /// Taken back by 2.x, still offered by `ofi_rxm` of 1.17.
        [earlier] FI_BUFFERED_RECV = 1 << 51;

        // Message order.
        FI_ORDER_NONE = 0;
        FI_ORDER_RAR = 1 << 0;
        FI_ORDER_RAW = 1 << 1;
        FI_ORDER_RAS = 1 << 2;
        FI_ORDER_WAR = 1 << 3;
        FI_ORDER_WAW = 1 << 4;
        FI_ORDER_WAS = 1 << 5;
        FI_ORDER_SAR = 1 << 6;
        FI_ORDER_SAW = 1 << 7;
        FI_ORDER_SAS = 1 << 8;
        FI_ORDER_STRICT = 0x1ff;
        FI_ORDER_DATA = 1 << 16;
        FI_ORDER_RMA_RAR = 1 << 32;
        FI_ORDER_RMA_RAW = 1 << 33;
        FI_ORDER_RMA_WAR = 1 << 34;
        FI_ORDER_RMA_WAW = 1 << 35;
        FI_ORDER_ATOMIC_RAR = 1 << 36;
        FI_ORDER_ATOMIC_RAW = 1 << 37;
        FI_ORDER_ATOMIC_WAR = 1 << 38;
        FI_ORDER_ATOMIC_WAW = 1 << 39;

        // Addresses and keys that are none.
        FI_ADDR_UNSPEC = u64::MAX;
        FI_ADDR_NOTAVAIL = u64::MAX;
        FI_KEY_NOTAVAIL = u64::MAX;
    }

    usize {
        FI_SHARED_CONTEXT = usize::MAX;
    }

    u32 {
        // Address formats.
        FI_FORMAT_UNSPEC = 0;
        FI_SOCKADDR = 1;
        FI_SOCKADDR_IN = 2;
        FI_SOCKADDR_IN6 = 3;
        FI_SOCKADDR_IB = 4;
        FI_ADDR_PSMX = 5;
        FI_ADDR_GNI = 6;
        FI_ADDR_BGQ = 7;
        FI_ADDR_MLX = 8;
        FI_ADDR_STR = 9;
        FI_ADDR_PSMX2 = 10;
        FI_ADDR_IB_UD = 11;
        FI_ADDR_EFA = 12;
        FI_ADDR_PSMX3 = 13;
        FI_ADDR_OPX = 14;
        FI_ADDR_CXI = 15;
        [later] FI_ADDR_UCX = 16;
        [later] FI_SOCKADDR_IP = 17;

        // enum fi_av_type
        FI_AV_UNSPEC = 0;
        FI_AV_MAP = 1;
        FI_AV_TABLE = 2;

        // enum fi_progress
        FI_PROGRESS_UNSPEC = 0;
        FI_PROGRESS_AUTO = 1;
        FI_PROGRESS_MANUAL = 2;
        [later] FI_PROGRESS_CONTROL_UNIFIED = 3;

        // enum fi_threading
        FI_THREAD_UNSPEC = 0;
        FI_THREAD_SAFE = 1;
        FI_THREAD_FID = 2;
        FI_THREAD_DOMAIN = 3;
        FI_THREAD_COMPLETION = 4;
        FI_THREAD_ENDPOINT = 5;

        // enum fi_resource_mgmt
        FI_RM_UNSPEC = 0;
        FI_RM_DISABLED = 1;
        FI_RM_ENABLED = 2;

        // enum fi_ep_type
        FI_EP_UNSPEC = 0;
        FI_EP_MSG = 1;
        FI_EP_DGRAM = 2;
        FI_EP_RDM = 3;

        // Protocols: two endpoints understand each other when theirs is the same.
        FI_PROTO_UNSPEC = 0;
        FI_PROTO_RDMA_CM_IB_RC = 1;
        FI_PROTO_IWARP = 2;
        FI_PROTO_IB_UD = 3;
        FI_PROTO_PSMX = 4;
        FI_PROTO_UDP = 5;
        FI_PROTO_SOCK_TCP = 6;
        FI_PROTO_MXM = 7;
        FI_PROTO_IWARP_RDM = 8;
        FI_PROTO_IB_RDM = 9;
        FI_PROTO_GNI = 10;
        FI_PROTO_RXM = 11;
        FI_PROTO_RXD = 12;
        FI_PROTO_MLX = 13;
        FI_PROTO_NETWORKDIRECT = 14;
        FI_PROTO_PSMX2 = 15;
        FI_PROTO_SHM = 16;
        FI_PROTO_MRAIL = 17;
        FI_PROTO_RSTREAM = 18;
        FI_PROTO_RDMA_CM_IB_XRC = 19;
        FI_PROTO_EFA = 20;
        FI_PROTO_PSMX3 = 21;
        FI_PROTO_RXM_TCP = 22;
        FI_PROTO_OPX = 23;
        FI_PROTO_CXI = 24;
        FI_PROTO_XNET = 25;
        [later] FI_PROTO_COLL = 26;
        [later] FI_PROTO_UCX = 27;
        [later] FI_PROTO_SM2 = 28;
        [later] FI_PROTO_CXI_RNR = 29;
        [later] FI_PROTO_LPP = 30;
        [later] FI_PROTO_LNX = 31;

        // Traffic classes.
        FI_TC_UNSPEC = 0;
        FI_TC_DSCP = 0x100;
        FI_TC_LABEL = 0x200;
        FI_TC_BEST_EFFORT = FI_TC_LABEL;
        FI_TC_LOW_LATENCY = 0x201;
        FI_TC_DEDICATED_ACCESS = 0x202;
        FI_TC_BULK_DATA = 0x203;
        FI_TC_SCAVENGER = 0x204;
        FI_TC_NETWORK_CTRL = 0x205;

        // enum fi_wait_obj
        FI_WAIT_NONE = 0;
        FI_WAIT_UNSPEC = 1;
        FI_WAIT_SET = 2;
        FI_WAIT_FD = 3;
        FI_WAIT_MUTEX_COND = 4;
        FI_WAIT_YIELD = 5;
        FI_WAIT_POLLFD = 6;

        // enum fi_cq_format
        FI_CQ_FORMAT_UNSPEC = 0;
        FI_CQ_FORMAT_CONTEXT = 1;
        FI_CQ_FORMAT_MSG = 2;
        FI_CQ_FORMAT_DATA = 3;
        FI_CQ_FORMAT_TAGGED = 4;

        // enum fi_cq_wait_cond
        FI_CQ_COND_NONE = 0;
        FI_CQ_COND_THRESHOLD = 1;

        // enum fi_hmem_iface
        FI_HMEM_SYSTEM = 0;
        FI_HMEM_CUDA = 1;
        FI_HMEM_ROCR = 2;
        FI_HMEM_ZE = 3;
        FI_HMEM_NEURON = 4;
        FI_HMEM_SYNAPSEAI = 5;
    }

    usize {
        // Classes, as `fid.fclass` holds them.
        FI_CLASS_UNSPEC = 0;
        FI_CLASS_FABRIC = 1;
        FI_CLASS_DOMAIN = 2;
        FI_CLASS_EP = 3;
        FI_CLASS_SEP = 4;
        FI_CLASS_RX_CTX = 5;
        FI_CLASS_SRX_CTX = 6;
        FI_CLASS_TX_CTX = 7;
        FI_CLASS_STX_CTX = 8;
        FI_CLASS_PEP = 9;
        FI_CLASS_INTERFACE = 10;
        FI_CLASS_AV = 11;
        FI_CLASS_MR = 12;
        FI_CLASS_EQ = 13;
        FI_CLASS_CQ = 14;
        FI_CLASS_CNTR = 15;
        FI_CLASS_WAIT = 16;
        FI_CLASS_POLL = 17;
        FI_CLASS_CONNREQ = 18;
        FI_CLASS_MC = 19;
        FI_CLASS_NIC = 20;
    }

    c_int {
        // mr_mode bits of a domain.
        FI_MR_UNSPEC = 0;
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
        FI_MR_COLLECTIVE = 1 << 11;
        [later] FI_MR_XPU_DESC = 1 << 12;

        // Commands of `fi_control`.
        FI_GETFIDFLAG = 0;
        FI_SETFIDFLAG = 1;
        FI_GETOPSFLAG = 2;
        FI_SETOPSFLAG = 3;
        FI_ALIAS = 4;
        FI_GETWAIT = 5;
        FI_ENABLE = 6;
        FI_BACKLOG = 7;
        FI_GET_RAW_MR = 8;
        FI_MAP_RAW_MR = 9;
        FI_UNMAP_KEY = 10;
        FI_QUEUE_WORK = 11;
        FI_CANCEL_WORK = 12;
        FI_FLUSH_WORK = 13;
        FI_REFRESH = 14;
        FI_DUP = 15;
        FI_GETWAITOBJ = 16;
        FI_GET_VAL = 17;
        FI_SET_VAL = 18;
        FI_EXPORT_FID = 19;
        [later] FI_GET_FD = 20;

        // Options of `fi_setopt` and `fi_getopt`: the level, then the names.
        FI_OPT_ENDPOINT = 0;
        FI_OPT_MIN_MULTI_RECV = 0;
        FI_OPT_CM_DATA_SIZE = 1;
        FI_OPT_BUFFERED_MIN = 2;
        FI_OPT_BUFFERED_LIMIT = 3;
        FI_OPT_SEND_BUF_SIZE = 4;
        FI_OPT_RECV_BUF_SIZE = 5;
        FI_OPT_TX_SIZE = 6;
        FI_OPT_RX_SIZE = 7;
        FI_OPT_FI_HMEM_P2P = 8;
        FI_OPT_XPU_TRIGGER = 9;
        [later] FI_OPT_CUDA_API_PERMITTED = 10;
        [later] FI_OPT_SHARED_MEMORY_PERMITTED = 11;
        [later] FI_OPT_MAX_MSG_SIZE = 12;
        [later] FI_OPT_MAX_TAGGED_SIZE = 13;
        [later] FI_OPT_MAX_RMA_SIZE = 14;
        [later] FI_OPT_MAX_ATOMIC_SIZE = 15;
        [later] FI_OPT_INJECT_MSG_SIZE = 16;
        [later] FI_OPT_INJECT_TAGGED_SIZE = 17;
        [later] FI_OPT_INJECT_RMA_SIZE = 18;
        [later] FI_OPT_INJECT_ATOMIC_SIZE = 19;
        [later] FI_OPT_FIREWALL_ADDR = 20;

        // Errors, positive; calls return them negated. Below 256 they are the system's.
        FI_SUCCESS = 0;
        FI_EPERM = libc::EPERM;
        FI_ENOENT = libc::ENOENT;
        FI_EINTR = libc::EINTR;
        FI_EIO = libc::EIO;
        FI_E2BIG = libc::E2BIG;
        FI_EBADF = libc::EBADF;
        FI_EAGAIN = libc::EAGAIN;
        FI_ENOMEM = libc::ENOMEM;
        FI_EACCES = libc::EACCES;
        FI_EFAULT = libc::EFAULT;
        FI_EBUSY = libc::EBUSY;
        FI_ENODEV = libc::ENODEV;
        FI_EINVAL = libc::EINVAL;
        FI_EMFILE = libc::EMFILE;
        FI_ENOSPC = libc::ENOSPC;
        FI_ENOSYS = libc::ENOSYS;
        FI_EWOULDBLOCK = libc::EWOULDBLOCK;
        FI_ENOMSG = libc::ENOMSG;
        FI_ENODATA = libc::ENODATA;
        FI_EOVERFLOW = libc::EOVERFLOW;
        FI_EMSGSIZE = libc::EMSGSIZE;
        FI_ENOPROTOOPT = libc::ENOPROTOOPT;
        FI_EOPNOTSUPP = libc::EOPNOTSUPP;
        FI_EADDRINUSE = libc::EADDRINUSE;
        FI_EADDRNOTAVAIL = libc::EADDRNOTAVAIL;
        FI_ENETDOWN = libc::ENETDOWN;
        FI_ENETUNREACH = libc::ENETUNREACH;
        FI_ECONNABORTED = libc::ECONNABORTED;
        FI_ECONNRESET = libc::ECONNRESET;
        FI_ENOBUFS = libc::ENOBUFS;
        FI_EISCONN = libc::EISCONN;
        FI_ENOTCONN = libc::ENOTCONN;
        FI_ESHUTDOWN = libc::ESHUTDOWN;
        FI_ETIMEDOUT = libc::ETIMEDOUT;
        FI_ECONNREFUSED = libc::ECONNREFUSED;
        FI_EHOSTDOWN = libc::EHOSTDOWN;
        FI_EHOSTUNREACH = libc::EHOSTUNREACH;
        FI_EALREADY = libc::EALREADY;
        FI_EINPROGRESS = libc::EINPROGRESS;
        FI_EREMOTEIO = libc::EREMOTEIO;
        FI_ECANCELED = libc::ECANCELED;
        FI_EKEYREJECTED = libc::EKEYREJECTED;
        FI_EOTHER = 256;
        FI_ETOOSMALL = 257;
        FI_EOPBADSTATE = 258;
        FI_EAVAIL = 259;
        FI_EBADFLAGS = 260;
        FI_ENOEQ = 261;
        FI_EDOMAIN = 262;
        FI_ENOCQ = 263;
        FI_ECRC = 264;
        FI_ETRUNC = 265;
        FI_ENOKEY = 266;
        FI_ENOAV = 267;
        FI_EOVERRUN = 268;
        FI_ENORX = 269;
        [later] FI_ENOMR = 270;
        [later] FI_EFIREWALLADDR = 271;
    }
}
