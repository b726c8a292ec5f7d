//! Open objects: their header and their tables of operations.
//!
//! ```text
//!   fid_ep                                     fi_ops_msg
//!   +---------------------+                    +-----------+
//!   | fid: class, context |                    | size      |  bytes the provider has
//!   |      ops -> fi_ops  |  close, bind,      | recv      |
//!   | ops -> fi_ops_ep    |  control           | recvv     |
//!   | cm, msg, rma,       |------------------->| ...       |
//!   | tagged, ...         |                    | injectdata|
//!   +---------------------+                    +-----------+  a member at or past `size`
//!                                                             must not be looked at
//! ```
//!
//! Owns: the objects, and the names of what is only ever passed on. None of them has grown. The
//! tables' contents are in `tables.rs`.
//!
//! A provider may allocate an object no longer than what its user asked for: an endpoint opened
//! without `FI_RMA` need not have a `rma` table, and the pointer then is null or not there.

use libc::c_void;

use super::tables::{
    fi_ops, fi_ops_av, fi_ops_cm, fi_ops_cq, fi_ops_domain, fi_ops_ep, fi_ops_fabric, fi_ops_mr,
    fi_ops_msg, fi_ops_rma, fi_ops_tagged,
};

/// Types of which only the address is ever passed on.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            _private: [u8; 0],
        }
    )+};
}

opaque! {
    /// A wait set, no longer in use.
    fid_wait
    /// A card.
    fid_nic
    /// A context on an accelerator.
    fid_xpu_ctx
}

c_structs! {
    /// The beginning of every object.
    [whole] pub struct fid {
        /// `FI_CLASS_*`.
        fclass: usize,
        /// The user's.
        context: *mut c_void,
        /// Operations of every object.
        ops: *mut fi_ops,
    }

    /// An open fabric.
    [whole] pub struct fid_fabric {
        /// The common beginning.
        fid: fid,
        /// Operations of a fabric.
        ops: *mut fi_ops_fabric,
        /// The version of the interface it was opened with.
        api_version: u32,
    }

    /// An open domain.
    [whole] pub struct fid_domain {
        /// The common beginning.
        fid: fid,
        /// Operations of a domain.
        ops: *mut fi_ops_domain,
        /// Registrations.
        mr: *mut fi_ops_mr,
    }

    /// An open endpoint. Tables of operations that are not called follow.
    [prefix] pub struct fid_ep {
        /// The common beginning.
        fid: fid,
        /// Operations of an endpoint.
        ops: *mut fi_ops_ep,
        /// Names and connections.
        cm: *mut fi_ops_cm,
        /// Messages.
        msg: *mut fi_ops_msg,
        /// Remote memory.
        rma: *mut fi_ops_rma,
        /// Tagged messages.
        tagged: *mut fi_ops_tagged,
    }

    /// An open completion queue.
    [whole] pub struct fid_cq {
        /// The common beginning.
        fid: fid,
        /// Operations of a completion queue.
        ops: *mut fi_ops_cq,
    }

    /// An open address vector.
    [whole] pub struct fid_av {
        /// The common beginning.
        fid: fid,
        /// Operations of an address vector.
        ops: *mut fi_ops_av,
    }

    /// A registration of memory.
    [whole] pub struct fid_mr {
        /// The common beginning.
        fid: fid,
        /// Goes with the memory into local operations.
        mem_desc: *mut c_void,
        /// Goes with the memory into the peer's operations.
        key: u64,
    }
}
