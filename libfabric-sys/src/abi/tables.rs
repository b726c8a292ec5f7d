//! Tables of operations, up to the last one that is called, and the calls.
//!
//! ```text
//!   every table:   size | operation | operation | ...  | operation | ...
//!                   |                                  ^ ours ends
//!                   `- gives the end of this provider's table; later members do not exist
//! ```
//!
//! Owns: the position of these operations, and the signature of each called one, under the name of libfabric's headers.
//! Tables have only ever grown at the end.

use libc::{c_char, c_int, c_void};

use super::attributes::{fi_av_attr, fi_cq_attr};
use super::constants::fi_addr_t;
use super::info::fi_info;
use super::messages::{fi_cq_err_entry, fi_msg};
use super::objects::{fid, fid_av, fid_cq, fid_domain, fid_ep, fid_fabric, fid_mr};

c_tables! {
    /// Operations of every object.
    pub struct fi_ops at fid.ops {
        /// Closes the object, after all that was opened from it.
        close: (*mut fid;) -> c_int => fi_close,
        /// Binds the object to another.
        bind: (*mut fid; bfid: *mut fid, flags: u64) -> c_int => fi_bind,
        /// Executes a command: `FI_ENABLE`, `FI_GETWAIT`.
        control: (*mut fid; command: c_int, arg: *mut c_void) -> c_int => fi_control,
    }

    /// Operations of a fabric.
    pub struct fi_ops_fabric at fid_fabric.ops {
        /// Opens a domain.
        domain: (
            *mut fid_fabric; info: *mut fi_info, dom: *mut *mut fid_domain, context: *mut c_void,
        ) -> c_int => fi_domain,
        /// Opens a passive endpoint.
        passive_ep,
        /// Opens an event queue.
        eq_open,
        /// Opens a wait set.
        wait_open,
        /// Returns 0 if a thread may sleep on these objects' descriptors, or `-FI_EAGAIN` if there are events to read
        /// first.
        trywait: (*mut fid_fabric; fids: *mut *mut fid, count: c_int) -> c_int => fi_trywait,
    }

    /// Operations of a domain.
    pub struct fi_ops_domain at fid_domain.ops {
        /// Opens an address vector.
        av_open: (
            *mut fid_domain; attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void,
        ) -> c_int => fi_av_open,
        /// Opens a completion queue.
        cq_open: (
            *mut fid_domain; attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void,
        ) -> c_int => fi_cq_open,
        /// Opens an endpoint.
        endpoint: (
            *mut fid_domain; info: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void,
        ) -> c_int => fi_endpoint,
    }

    /// Operations that register memory with a domain, declared up to `reg`, the only one called. The first argument is
    /// the domain's `fid`.
    pub struct fi_ops_mr at fid_domain.mr {
        /// Registers one segment.
        reg: (
            *mut fid; buf: *const c_void, len: usize, access: u64, offset: u64, requested_key: u64,
            flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
        ) -> c_int => fi_mr_reg,
    }

    /// Operations of an endpoint.
    pub struct fi_ops_ep at fid_ep.ops {
        /// Requests the cancellation of the operation with this context. The completion queue shows whether it was
        /// cancelled; a send usually is not.
        cancel: (*mut fid; context: *mut c_void) -> isize => fi_cancel,
        /// Reads an option.
        getopt: (
            *mut fid; level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut usize,
        ) -> c_int => fi_getopt,
        /// Sets an option.
        setopt: (
            *mut fid; level: c_int, optname: c_int, optval: *const c_void, optlen: usize,
        ) -> c_int => fi_setopt,
    }

    /// Operations on an endpoint's own address.
    pub struct fi_ops_cm at fid_ep.cm {
        /// Sets the endpoint's address.
        setname,
        /// Returns the endpoint's address; `-FI_ETOOSMALL` and the required length if the buffer is too small.
        getname: (*mut fid; addr: *mut c_void, addrlen: *mut usize) -> c_int => fi_getname,
    }

    /// Operations that receive and send messages without tags.
    pub struct fi_ops_msg at fid_ep.msg {
        /// Posts one buffer.
        recv: (
            *mut fid_ep; buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
            context: *mut c_void,
        ) -> isize => fi_recv,
        /// Posts several segments.
        recvv,
        /// Posts a receive with flags.
        recvmsg: (*mut fid_ep; msg: *const fi_msg, flags: u64) -> isize => fi_recvmsg,
        /// Sends one buffer.
        send: (
            *mut fid_ep; buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t,
            context: *mut c_void,
        ) -> isize => fi_send,
        /// Sends several segments.
        sendv,
        /// Sends with flags.
        sendmsg: (*mut fid_ep; msg: *const fi_msg, flags: u64) -> isize => fi_sendmsg,
        /// Sends a copy; the buffer can be reused at once, and there is no completion.
        inject: (
            *mut fid_ep; buf: *const c_void, len: usize, dest_addr: fi_addr_t,
        ) -> isize => fi_inject,
    }

    /// Operations that receive and send messages with tags.
    pub struct fi_ops_tagged at fid_ep.tagged {
        /// Posts one buffer.
        recv: (
            *mut fid_ep; buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
            tag: u64, ignore: u64, context: *mut c_void,
        ) -> isize => fi_trecv,
        /// Posts several segments.
        recvv,
        /// Posts a receive with flags; also peeks, claims and discards.
        recvmsg,
        /// Sends one buffer.
        send: (
            *mut fid_ep; buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t,
            tag: u64, context: *mut c_void,
        ) -> isize => fi_tsend,
        /// Sends several segments.
        sendv,
        /// Sends with flags.
        sendmsg,
        /// Sends a copy; the buffer can be reused at once, and there is no completion.
        inject: (
            *mut fid_ep; buf: *const c_void, len: usize, dest_addr: fi_addr_t, tag: u64,
        ) -> isize => fi_tinject,
    }

    /// Operations on remote memory.
    pub struct fi_ops_rma at fid_ep.rma {
        /// Reads remote memory into one buffer.
        read: (
            *mut fid_ep; buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize => fi_read,
    }

    /// Operations of a completion queue.
    pub struct fi_ops_cq at fid_cq.ops {
        /// Reads and removes up to `count` completions.
        read: (*mut fid_cq; buf: *mut c_void, count: usize) -> isize => fi_cq_read,
        /// Reads and removes completions, with their senders.
        readfrom,
        /// Reads and removes the failed completion after `-FI_EAVAIL`.
        readerr: (*mut fid_cq; buf: *mut fi_cq_err_entry, flags: u64) -> isize,
        /// Waits for completions, and reads and removes them.
        sread,
        /// Waits for completions, and reads and removes them, with their senders.
        sreadfrom,
        /// Wakes the waiters.
        signal,
        /// Returns the provider's text for its error.
        strerror: (
            *mut fid_cq; prov_errno: c_int, err_data: *const c_void, buf: *mut c_char, len: usize,
        ) -> *const c_char,
    }

    /// Operations of an address vector.
    pub struct fi_ops_av at fid_av.ops {
        /// Adds `count` addresses; returns the number added, and each one's `fi_addr_t`, `FI_ADDR_NOTAVAIL` for failed
        /// ones.
        insert: (
            *mut fid_av; addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t, flags: u64,
            context: *mut c_void,
        ) -> c_int => fi_av_insert,
        /// Adds an address by name.
        insertsvc,
        /// Adds a range of addresses by name.
        insertsym,
        /// Removes addresses.
        remove: (
            *mut fid_av; fi_addr: *mut fi_addr_t, count: usize, flags: u64,
        ) -> c_int => fi_av_remove,
    }
}
