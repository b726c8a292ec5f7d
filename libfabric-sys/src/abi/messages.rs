//! Arguments of operations, and entries of completion queues.
//!
//! ```text
//!   post:      fi_msg    with iovec[], desc[]
//!                 context ---+
//!   complete:  fi_cq_entry  <  fi_cq_msg_entry  <  fi_cq_tagged_entry
//!              op_context <--- each is a prefix of the next; the queue's format decides
//!              fi_cq_err_entry: all members, and the error
//! ```
//!
//! Owns: their layouts. Only `fi_cq_err_entry` has grown.

use libc::{c_int, c_void, iovec};

use super::constants::fi_addr_t;

c_structs! {
    /// Message for `fi_sendmsg` and `fi_recvmsg`.
    [whole] pub struct fi_msg {
        /// Segments of the message.
        msg_iov: *const iovec,
        /// Descriptors from `fi_mr_desc`, one per segment, or null.
        desc: *mut *mut c_void,
        /// Number of segments.
        iov_count: usize,
        /// Handle of the peer.
        addr: fi_addr_t,
        /// Context that the completion returns.
        context: *mut c_void,
        /// Immediate data, with `FI_REMOTE_CQ_DATA`.
        data: u64,
    }

    /// Memory that the provider uses while an operation is outstanding, with `FI_CONTEXT`.
    [whole] pub struct fi_context {
        /// Private to the provider.
        internal: [*mut c_void; 4],
    }

    /// Memory that the provider uses while an operation is outstanding, with `FI_CONTEXT2`.
    [whole] pub struct fi_context2 {
        /// Private to the provider.
        internal: [*mut c_void; 8],
    }

    /// Completion in `FI_CQ_FORMAT_CONTEXT`.
    [whole] pub struct fi_cq_entry {
        /// Context of the operation.
        op_context: *mut c_void,
    }

    /// Completion in `FI_CQ_FORMAT_MSG`.
    [whole] pub struct fi_cq_msg_entry {
        /// Context of the operation.
        op_context: *mut c_void,
        /// Kind of operation, and other flags.
        flags: u64,
        /// Bytes received; undefined for sends.
        len: usize,
    }

    /// Completion in `FI_CQ_FORMAT_TAGGED`.
    [whole] pub struct fi_cq_tagged_entry {
        /// Context of the operation.
        op_context: *mut c_void,
        /// Kind of operation, and other flags.
        flags: u64,
        /// Bytes received; undefined for sends.
        len: usize,
        /// Address of the message in a multi-receive buffer; undefined otherwise.
        buf: *mut c_void,
        /// Immediate data, with `FI_REMOTE_CQ_DATA` in `flags`.
        data: u64,
        /// Tag of a received tagged message.
        tag: u64,
    }

    /// Failed operation, from `fi_cq_readerr`. Versions before 1.20 write all members but `src_addr`.
    ///
    /// The library also reads `err_data` and `err_data_size`: if the size is not zero, it copies data there; if it is
    /// zero, it sets `err_data` to memory of its own, valid until the next read of the queue. Start from
    /// [`fi_cq_err_entry::EMPTY`].
    [whole] pub struct fi_cq_err_entry {
        /// Context of the operation.
        op_context: *mut c_void,
        /// Kind of operation, and other flags.
        flags: u64,
        /// Bytes received.
        len: usize,
        /// Address of the message in a multi-receive buffer.
        buf: *mut c_void,
        /// Immediate data.
        data: u64,
        /// Tag of the message.
        tag: u64,
        /// Bytes that did not fit.
        olen: usize,
        /// Error `FI_E*`, positive by the manual; `shm` of 1.17 negates it.
        err: c_int,
        /// Provider's code for the error.
        prov_errno: c_int,
        /// Provider-specific data about the error.
        err_data: *mut c_void,
        /// Size of `err_data`, in bytes.
        err_data_size: usize,
        /// Address of the sender, with `FI_SOURCE_ERR`.
        [later] src_addr: fi_addr_t,
    }
}
