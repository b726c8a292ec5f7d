//! Arguments of operations, and entries of completion queues.
//!
//! ```text
//!   post:      fi_msg    with iovec[], desc[]
//!                 context ---+
//!   complete:  fi_cq_entry  <  fi_cq_msg_entry  <  fi_cq_tagged_entry
//!              op_context <--- each the beginning of the next, by the queue's format
//!              fi_cq_err_entry: all of it, and what went wrong
//! ```
//!
//! Owns: their layouts. `fi_cq_err_entry` is the one that grew.

use libc::{c_int, c_void, iovec};

use super::constants::fi_addr_t;

c_structs! {
    /// A message, for `fi_sendmsg` and `fi_recvmsg`.
    [whole] pub struct fi_msg {
        /// Its segments.
        msg_iov: *const iovec,
        /// Descriptors from `fi_mr_desc`, one for each segment, or null.
        desc: *mut *mut c_void,
        /// The number of segments.
        iov_count: usize,
        /// The peer.
        addr: fi_addr_t,
        /// Comes back with the completion.
        context: *mut c_void,
        /// Immediate data, with `FI_REMOTE_CQ_DATA`.
        data: u64,
    }

    /// Room the provider uses while an operation is outstanding, with `FI_CONTEXT`.
    [whole] pub struct fi_context {
        /// The provider's.
        internal: [*mut c_void; 4],
    }

    /// Room the provider uses while an operation is outstanding, with `FI_CONTEXT2`.
    [whole] pub struct fi_context2 {
        /// The provider's.
        internal: [*mut c_void; 8],
    }

    /// A completion, `FI_CQ_FORMAT_CONTEXT`.
    [whole] pub struct fi_cq_entry {
        /// The operation's context.
        op_context: *mut c_void,
    }

    /// A completion, `FI_CQ_FORMAT_MSG`.
    [whole] pub struct fi_cq_msg_entry {
        /// The operation's context.
        op_context: *mut c_void,
        /// Flags: the kind of operation, and more.
        flags: u64,
        /// Bytes received; undefined for sends.
        len: usize,
    }

    /// A completion, `FI_CQ_FORMAT_TAGGED`.
    [whole] pub struct fi_cq_tagged_entry {
        /// The operation's context.
        op_context: *mut c_void,
        /// Flags: the kind of operation, and more.
        flags: u64,
        /// Bytes received; undefined for sends.
        len: usize,
        /// The address of the message in a multi-receive buffer; undefined otherwise.
        buf: *mut c_void,
        /// Immediate data, with `FI_REMOTE_CQ_DATA` in `flags`.
        data: u64,
        /// The tag of a received tagged message.
        tag: u64,
    }

    /// A failed operation, from `fi_cq_readerr`. Versions before 1.20 write all but `src_addr`.
    ///
    /// `err_data` and `err_data_size` are read by the library too: where the size is not zero it
    /// copies there, where it is zero it points to memory of its own, valid until the next read
    /// of the queue. Start from [`fi_cq_err_entry::EMPTY`].
    [whole] pub struct fi_cq_err_entry {
        /// The operation's context.
        op_context: *mut c_void,
        /// Flags: the kind of operation, and more.
        flags: u64,
        /// Bytes received.
        len: usize,
        /// The address of the message in a multi-receive buffer.
        buf: *mut c_void,
        /// Immediate data.
        data: u64,
        /// The tag.
        tag: u64,
        /// Bytes that did not fit.
        olen: usize,
        /// The error: `FI_E*`, positive by the manual; `shm` of 1.17 gives it negated.
        err: c_int,
        /// The provider's code for it.
        prov_errno: c_int,
        /// More about it.
        err_data: *mut c_void,
        /// Bytes at `err_data`.
        err_data_size: usize,
        /// The sender, with `FI_SOURCE_ERR`.
        [later] src_addr: fi_addr_t,
    }
}
