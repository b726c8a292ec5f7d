//! The calls that read and write remote memory, as C makes them.
//!
//! ```text
//!   fi_read, fi_writemsg, ... --> RemoteCall --> remote
//! ```
//!
//! Owns: turning argument lists into one form.
//! Knows nothing of: the rules of posting.

use std::ffi::c_void;

use libc::iovec;
use libfabric_sys::abi::*;

use crate::checker::total;
use crate::messages::{Segments, answer};
use crate::objects::{Id, code, enter};
use crate::remote::RemoteCall;
use crate::state::State;

/// # Safety
///
/// An endpoint of a fake.
unsafe fn remote(ep: *mut fid_ep, call: RemoteCall) -> isize {
    let name = call.name;
    let post = |state: &mut State, id: Id| answer(state.post_remote(id, call));
    // SAFETY: the caller's word.
    unsafe { enter(ep.cast(), FI_CLASS_EP, name, post) }
}

pub(crate) unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    src_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, desc);
    let call = RemoteCall {
        name: "fi_read",
        pieces: vec![fi_rma_iov { addr, len, key }],
        spans,
        descs,
        peer: src_addr,
        context: context as usize,
        write: false,
    };
    // SAFETY: an object of a fake.
    unsafe { remote(ep, call) }
}

pub(crate) unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    src_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(iov, desc, count) }
    };
    let call = RemoteCall {
        name: "fi_readv",
        pieces: vec![fi_rma_iov {
            addr,
            len: total(&spans),
            key,
        }],
        spans,
        descs,
        peer: src_addr,
        context: context as usize,
        write: false,
    };
    // SAFETY: an object of a fake.
    unsafe { remote(ep, call) }
}

pub(crate) unsafe extern "C" fn readmsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_rma,
    _flags: u64,
) -> isize {
    // SAFETY: a message or null, by the call's contract.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(FI_EINVAL);
    };
    let count = if msg.rma_iov.is_null() {
        0
    } else {
        msg.rma_iov_count.min(64)
    };
    // SAFETY: as many pieces, by the call's contract.
    let piece = |index: usize| unsafe { msg.rma_iov.wrapping_add(index).read() };
    let pieces: Vec<fi_rma_iov> = (0..count).map(piece).collect();
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(msg.msg_iov, msg.desc, msg.iov_count) }
    };
    let call = RemoteCall {
        name: "fi_readmsg",
        pieces,
        spans,
        descs,
        peer: msg.addr,
        context: msg.context as usize,
        write: false,
    };
    // SAFETY: an object of a fake.
    unsafe { remote(ep, call) }
}

pub(crate) unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, desc);
    let call = RemoteCall {
        name: "fi_write",
        pieces: vec![fi_rma_iov { addr, len, key }],
        spans,
        descs,
        peer: dest_addr,
        context: context as usize,
        write: true,
    };
    // SAFETY: an object of a fake.
    unsafe { remote(ep, call) }
}

pub(crate) unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(iov, desc, count) }
    };
    let call = RemoteCall {
        name: "fi_writev",
        pieces: vec![fi_rma_iov {
            addr,
            len: total(&spans),
            key,
        }],
        spans,
        descs,
        peer: dest_addr,
        context: context as usize,
        write: true,
    };
    // SAFETY: an object of a fake.
    unsafe { remote(ep, call) }
}

pub(crate) unsafe extern "C" fn writemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_rma,
    _flags: u64,
) -> isize {
    // SAFETY: a message or null, by the call's contract.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(FI_EINVAL);
    };
    let count = if msg.rma_iov.is_null() {
        0
    } else {
        msg.rma_iov_count.min(64)
    };
    // SAFETY: as many pieces, by the call's contract.
    let piece = |index: usize| unsafe { msg.rma_iov.wrapping_add(index).read() };
    let pieces: Vec<fi_rma_iov> = (0..count).map(piece).collect();
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(msg.msg_iov, msg.desc, msg.iov_count) }
    };
    let call = RemoteCall {
        name: "fi_writemsg",
        pieces,
        spans,
        descs,
        peer: msg.addr,
        context: msg.context as usize,
        write: true,
    };
    // SAFETY: an object of a fake.
    unsafe { remote(ep, call) }
}
