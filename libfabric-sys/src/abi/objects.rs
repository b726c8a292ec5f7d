//! Open objects: their header and their tables of operations.
//!
//! ```text
//!   fid_ep                                     fi_ops_msg
//!   +---------------------+                    +-----------+
//!   | fid: class, context |                    | size      |  bytes of the provider's table
//!   |      ops -> fi_ops  |  close, bind,      | recv      |
//!   | ops -> fi_ops_ep    |  control           | recvv     |
//!   | cm, msg, rma,       |------------------->| ...       |
//!   | tagged, ...         |                    | injectdata|
//!   +---------------------+                    +-----------+  a member at or past `size`
//!                                                             must not be read
//! ```
//!
//! Owns: the objects, and opaque types that are only passed on. None of the objects has grown. The tables' contents are
//! in `tables.rs`.
//!
//! A provider may allocate an object no larger than requested: an endpoint opened without `FI_RMA` may lack a `rma`
//! table, and the pointer is then null or not even allocated.

use libc::c_void;

use super::tables::{
    fi_ops, fi_ops_av, fi_ops_cm, fi_ops_cq, fi_ops_domain, fi_ops_ep, fi_ops_fabric, fi_ops_mr,
    fi_ops_msg, fi_ops_rma, fi_ops_tagged,
};

/// Defines types of which only the address is passed on.
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
    /// Wait set, no longer in use.
    fid_wait
    /// Description of a card.
    fid_nic
    /// Context on an accelerator.
    fid_xpu_ctx
}

c_structs! {
    /// Header of every object.
    [whole] pub struct fid {
        /// Class of the object, `FI_CLASS_*`.
        fclass: usize,
        /// Context of the user.
        context: *mut c_void,
        /// Operations of every object.
        ops: *mut fi_ops,
    }

    /// Open fabric.
    [whole] pub struct fid_fabric {
        /// Common header.
        fid: fid,
        /// Operations of a fabric.
        ops: *mut fi_ops_fabric,
        /// Version of the interface with which it was opened.
        api_version: u32,
    }

    /// Open domain.
    [whole] pub struct fid_domain {
        /// Common header.
        fid: fid,
        /// Operations of a domain.
        ops: *mut fi_ops_domain,
        /// Operations that register memory.
        mr: *mut fi_ops_mr,
    }

    /// Open endpoint. Tables of operations that are never called follow.
    [prefix] pub struct fid_ep {
        /// Common header.
        fid: fid,
        /// Operations of an endpoint.
        ops: *mut fi_ops_ep,
        /// Operations on names and connections.
        cm: *mut fi_ops_cm,
        /// Operations on messages.
        msg: *mut fi_ops_msg,
        /// Operations on remote memory.
        rma: *mut fi_ops_rma,
        /// Operations on tagged messages.
        tagged: *mut fi_ops_tagged,
    }

    /// Open completion queue.
    [whole] pub struct fid_cq {
        /// Common header.
        fid: fid,
        /// Operations of a completion queue.
        ops: *mut fi_ops_cq,
    }

    /// Open address vector.
    [whole] pub struct fid_av {
        /// Common header.
        fid: fid,
        /// Operations of an address vector.
        ops: *mut fi_ops_av,
    }

    /// Memory registration.
    [whole] pub struct fid_mr {
        /// Common header.
        fid: fid,
        /// Descriptor for local operations on the memory.
        mem_desc: *mut c_void,
        /// Key for the peer's operations on the memory.
        key: u64,
    }
}
