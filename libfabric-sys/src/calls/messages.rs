//! Messages, tagged messages, remote memory, and cancelling.
//!
//! ```text
//!             one buffer            with flags                copied, no completion
//!   msg       fi_send, fi_recv      fi_sendmsg, fi_recvmsg    fi_inject
//!   tagged    fi_tsend, fi_trecv                              fi_tinject
//!   rma       fi_read
//! ```
//!
//! Owns: calls through `fi_ops_msg`, `fi_ops_tagged`, `fi_ops_rma`, and `cancel`.
//! Not here: buffers, retries. `-FI_EAGAIN` means: read the completion queue, try again.

use libc::c_void;

use crate::abi::*;

/// Asks for the operation with this context to be given up. Whether it was shows in the
/// completion queue; that of a send usually is not.
#[inline]
pub unsafe fn fi_cancel(ep: *mut fid_ep, context: *mut c_void) -> isize {
    // SAFETY: an open endpoint.
    let ops = unsafe { (*ep).ops };
    through!(ops, fi_ops_ep, cancel, (ep.cast(), context))
}

/// Posts one buffer.
#[inline]
pub unsafe fn fi_recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    src_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).msg };
    through!(
        table,
        fi_ops_msg,
        recv,
        (ep, buf, len, desc, src_addr, context)
    )
}

/// Posts, with flags.
#[inline]
pub unsafe fn fi_recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).msg };
    through!(table, fi_ops_msg, recvmsg, (ep, msg, flags))
}

/// Sends one buffer.
#[inline]
pub unsafe fn fi_send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).msg };
    through!(
        table,
        fi_ops_msg,
        send,
        (ep, buf, len, desc, dest_addr, context)
    )
}

/// Sends, with flags.
#[inline]
pub unsafe fn fi_sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).msg };
    through!(table, fi_ops_msg, sendmsg, (ep, msg, flags))
}

/// Sends a copy; the buffer is free again, there is no completion.
#[inline]
pub unsafe fn fi_inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).msg };
    through!(table, fi_ops_msg, inject, (ep, buf, len, dest_addr))
}

/// Posts one buffer for a tag.
#[inline]
pub unsafe fn fi_trecv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    src_addr: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).tagged };
    through!(
        table,
        fi_ops_tagged,
        recv,
        (ep, buf, len, desc, src_addr, tag, ignore, context)
    )
}

/// Sends one buffer with a tag.
#[inline]
pub unsafe fn fi_tsend(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    dest_addr: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).tagged };
    through!(
        table,
        fi_ops_tagged,
        send,
        (ep, buf, len, desc, dest_addr, tag, context)
    )
}

/// Sends a copy with a tag; the buffer is free again, there is no completion.
#[inline]
pub unsafe fn fi_tinject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).tagged };
    through!(table, fi_ops_tagged, inject, (ep, buf, len, dest_addr, tag))
}

/// Reads remote memory into one buffer.
#[inline]
pub unsafe fn fi_read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    src_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).rma };
    through!(
        table,
        fi_ops_rma,
        read,
        (ep, buf, len, desc, src_addr, addr, key, context)
    )
}
