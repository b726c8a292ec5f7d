//! Messages, tagged messages, remote memory; and asking for an operation back.
//!
//! ```text
//!             one buffer   segments    with flags    copied, no completion   immediate data
//!   msg       fi_send      fi_sendv    fi_sendmsg    fi_inject               fi_senddata
//!             fi_recv      fi_recvv    fi_recvmsg
//!   tagged    fi_tsend     fi_tsendv   fi_tsendmsg   fi_tinject              fi_tsenddata
//!             fi_trecv     fi_trecvv   fi_trecvmsg
//!   rma       fi_read      fi_readv    fi_readmsg
//!             fi_write     fi_writev   fi_writemsg   fi_inject_write
//! ```
//!
//! Owns: calls through `fi_ops_msg`, `fi_ops_tagged`, `fi_ops_rma`, and `cancel`.
//! Knows nothing of: buffers, retries. `-FI_EAGAIN` means: read the completion queue, try again.

use libc::{c_void, iovec};

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

/// Posts several segments.
#[inline]
pub unsafe fn fi_recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    src_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).msg };
    through!(
        table,
        fi_ops_msg,
        recvv,
        (ep, iov, desc, count, src_addr, context)
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

/// Sends several segments.
#[inline]
pub unsafe fn fi_sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).msg };
    through!(
        table,
        fi_ops_msg,
        sendv,
        (ep, iov, desc, count, dest_addr, context)
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

/// Sends one buffer and immediate data.
#[inline]
pub unsafe fn fi_senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    data: u64,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).msg };
    through!(
        table,
        fi_ops_msg,
        senddata,
        (ep, buf, len, desc, data, dest_addr, context)
    )
}

/// Sends a copy and immediate data; there is no completion.
#[inline]
pub unsafe fn fi_injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).msg };
    through!(
        table,
        fi_ops_msg,
        injectdata,
        (ep, buf, len, data, dest_addr)
    )
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

/// Posts several segments for a tag.
#[inline]
pub unsafe fn fi_trecvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
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
        recvv,
        (ep, iov, desc, count, src_addr, tag, ignore, context)
    )
}

/// Posts for a tag, with flags; also looks, claims and discards.
#[inline]
pub unsafe fn fi_trecvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).tagged };
    through!(table, fi_ops_tagged, recvmsg, (ep, msg, flags))
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

/// Sends several segments with a tag.
#[inline]
pub unsafe fn fi_tsendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).tagged };
    through!(
        table,
        fi_ops_tagged,
        sendv,
        (ep, iov, desc, count, dest_addr, tag, context)
    )
}

/// Sends with a tag, with flags.
#[inline]
pub unsafe fn fi_tsendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).tagged };
    through!(table, fi_ops_tagged, sendmsg, (ep, msg, flags))
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

/// Sends one buffer with a tag and immediate data.
#[inline]
pub unsafe fn fi_tsenddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    data: u64,
    dest_addr: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).tagged };
    through!(
        table,
        fi_ops_tagged,
        senddata,
        (ep, buf, len, desc, data, dest_addr, tag, context)
    )
}

/// Sends a copy with a tag and immediate data; there is no completion.
#[inline]
pub unsafe fn fi_tinjectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).tagged };
    through!(
        table,
        fi_ops_tagged,
        injectdata,
        (ep, buf, len, data, dest_addr, tag)
    )
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

/// Reads remote memory into several segments.
#[inline]
pub unsafe fn fi_readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
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
        readv,
        (ep, iov, desc, count, src_addr, addr, key, context)
    )
}

/// Reads remote memory, with flags.
#[inline]
pub unsafe fn fi_readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).rma };
    through!(table, fi_ops_rma, readmsg, (ep, msg, flags))
}

/// Writes one buffer to remote memory.
#[inline]
pub unsafe fn fi_write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).rma };
    through!(
        table,
        fi_ops_rma,
        write,
        (ep, buf, len, desc, dest_addr, addr, key, context)
    )
}

/// Writes several segments to remote memory.
#[inline]
pub unsafe fn fi_writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).rma };
    through!(
        table,
        fi_ops_rma,
        writev,
        (ep, iov, desc, count, dest_addr, addr, key, context)
    )
}

/// Writes to remote memory, with flags.
#[inline]
pub unsafe fn fi_writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).rma };
    through!(table, fi_ops_rma, writemsg, (ep, msg, flags))
}

/// Writes a copy to remote memory; the buffer is free again, there is no completion.
#[inline]
pub unsafe fn fi_inject_write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: an open endpoint.
    let table = unsafe { (*ep).rma };
    through!(
        table,
        fi_ops_rma,
        inject,
        (ep, buf, len, dest_addr, addr, key)
    )
}
