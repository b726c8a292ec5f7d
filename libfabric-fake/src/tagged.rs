//! The calls that post tagged messages, as C makes them.
//!
//! ```text
//!   fi_tsend, fi_tsendv, ... --> SendCall, ReceiveCall --> posting
//! ```
//!
//! Owns: turning argument lists into one form.
//! Knows nothing of: the rules of posting.

use std::ffi::c_void;

use libc::iovec;
use libfabric_sys::abi::*;

use crate::messages::{Segments, receive, send};
use crate::objects::code;
use crate::posting::{ReceiveCall, SendCall};

pub(crate) unsafe extern "C" fn trecv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    src_addr: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, desc);
    let call = ReceiveCall {
        name: "fi_trecv",
        spans,
        descs,
        from: src_addr,
        tag: Some((tag, ignore)),
        context: context as usize,
        flags: None,
    };
    // SAFETY: an object of a fake.
    unsafe { receive(ep, call) }
}

pub(crate) unsafe extern "C" fn trecvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    src_addr: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(iov, desc, count) }
    };
    let call = ReceiveCall {
        name: "fi_trecvv",
        spans,
        descs,
        from: src_addr,
        tag: Some((tag, ignore)),
        context: context as usize,
        flags: None,
    };
    // SAFETY: an object of a fake.
    unsafe { receive(ep, call) }
}

pub(crate) unsafe extern "C" fn trecvmsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: a message or null, by the call's contract.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(FI_EINVAL);
    };
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(msg.msg_iov, msg.desc, msg.iov_count) }
    };
    let call = ReceiveCall {
        name: "fi_trecvmsg",
        spans,
        descs,
        from: msg.addr,
        tag: Some((msg.tag, msg.ignore)),
        context: msg.context as usize,
        flags: Some(flags),
    };
    // SAFETY: an object of a fake.
    unsafe { receive(ep, call) }
}

pub(crate) unsafe extern "C" fn tsend(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    dest_addr: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, desc);
    let call = SendCall {
        name: "fi_tsend",
        spans,
        descs,
        to: dest_addr,
        tag: Some(tag),
        data: None,
        context: context as usize,
        flags: None,
        silent: false,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn tsendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(iov, desc, count) }
    };
    let call = SendCall {
        name: "fi_tsendv",
        spans,
        descs,
        to: dest_addr,
        tag: Some(tag),
        data: None,
        context: context as usize,
        flags: None,
        silent: false,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn tsendmsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: a message or null, by the call's contract.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(FI_EINVAL);
    };
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(msg.msg_iov, msg.desc, msg.iov_count) }
    };
    let call = SendCall {
        name: "fi_tsendmsg",
        spans,
        descs,
        to: msg.addr,
        tag: Some(msg.tag),
        data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data),
        context: msg.context as usize,
        flags: Some(flags),
        silent: false,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn tinject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
    tag: u64,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, std::ptr::null_mut());
    let call = SendCall {
        name: "fi_tinject",
        spans,
        descs,
        to: dest_addr,
        tag: Some(tag),
        data: None,
        context: 0,
        flags: None,
        silent: true,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn tsenddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    data: u64,
    dest_addr: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, desc);
    let call = SendCall {
        name: "fi_tsenddata",
        spans,
        descs,
        to: dest_addr,
        tag: Some(tag),
        data: Some(data),
        context: context as usize,
        flags: None,
        silent: false,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn tinjectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
    tag: u64,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, std::ptr::null_mut());
    let call = SendCall {
        name: "fi_tinjectdata",
        spans,
        descs,
        to: dest_addr,
        tag: Some(tag),
        data: Some(data),
        context: 0,
        flags: None,
        silent: true,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}
