//! The calls that post, as C makes them.
//!
//! ```text
//!   fi_send(ep, buf, len, ...)     \
//!   fi_sendv(ep, iov, desc, n, ..)  }--> SendCall, ReceiveCall, RemoteCall --> posting, remote
//!   fi_sendmsg(ep, msg, flags)     /
//! ```
//!
//! Owns: turning argument lists into one form each.
//! Knows nothing of: the rules of posting.

use std::ffi::c_void;

use libc::iovec;
use libfabric_sys::abi::*;

use crate::checker::Span;
use crate::objects::{Id, code, enter};
use crate::posting::{ReceiveCall, SendCall};
use crate::remote::RemoteCall;
use crate::state::State;

/// Flags a send may have; they ask for more than is ever withheld here, or for nothing.
const SEND_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_MORE
    | FI_FENCE
    | FI_REMOTE_CQ_DATA
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;

/// Flags a receive may have.
const RECEIVE_FLAGS: u64 =
    FI_COMPLETION | FI_MORE | FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD;

/// Segments and their descriptors, in numbers.
struct Segments {
    spans: Vec<Span>,
    descs: Vec<usize>,
}

impl Segments {
    fn one(buf: *const c_void, len: usize, desc: *mut c_void) -> Self {
        Self {
            spans: vec![Span::new(buf as usize, len)],
            descs: vec![desc as usize],
        }
    }

    /// # Safety
    ///
    /// `count` segments at `iov`, and as many descriptors at `desc` unless it is null.
    unsafe fn several(iov: *const iovec, desc: *mut *mut c_void, count: usize) -> Self {
        let mut segments = Self {
            spans: Vec::new(),
            descs: Vec::new(),
        };
        // More than any provider takes is refused later, without being read here.
        let most = if iov.is_null() { 0 } else { count.min(64) };
        for index in 0..most {
            // SAFETY: the caller's word.
            let one = unsafe { iov.wrapping_add(index).read() };
            segments
                .spans
                .push(Span::new(one.iov_base as usize, one.iov_len));
            if !desc.is_null() {
                // SAFETY: the caller's word.
                segments
                    .descs
                    .push(unsafe { desc.wrapping_add(index).read() } as usize);
            }
        }
        segments
    }
}

fn answer(result: Result<(), isize>) -> isize {
    result.err().unwrap_or(0)
}

/// # Safety
///
/// An endpoint of a fake.
unsafe fn send(ep: *mut fid_ep, call: SendCall) -> isize {
    let name = call.name;
    let post = |state: &mut State, id: Id| {
        if call.flags.is_some_and(|flags| flags & !SEND_FLAGS != 0) {
            return state.wrong(name, id, "flags that mean nothing here", FI_EBADFLAGS);
        }
        answer(state.post_send(id, call))
    };
    // SAFETY: the caller's word.
    unsafe { enter(ep.cast(), FI_CLASS_EP, name, post) }
}

/// # Safety
///
/// An endpoint of a fake.
unsafe fn receive(ep: *mut fid_ep, call: ReceiveCall) -> isize {
    let name = call.name;
    let post = |state: &mut State, id: Id| {
        if call.flags.is_some_and(|flags| flags & !RECEIVE_FLAGS != 0) {
            return state.wrong(name, id, "flags that mean nothing here", FI_EBADFLAGS);
        }
        answer(state.post_receive(id, call))
    };
    // SAFETY: the caller's word.
    unsafe { enter(ep.cast(), FI_CLASS_EP, name, post) }
}

/// # Safety
///
/// An endpoint of a fake.
unsafe fn remote(ep: *mut fid_ep, call: RemoteCall) -> isize {
    let name = call.name;
    let post = |state: &mut State, id: Id| answer(state.post_remote(id, call));
    // SAFETY: the caller's word.
    unsafe { enter(ep.cast(), FI_CLASS_EP, name, post) }
}

pub(crate) unsafe extern "C" fn mrecv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    src_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, desc);
    let call = ReceiveCall {
        name: "fi_recv",
        spans,
        descs,
        from: src_addr,
        tag: None,
        context: context as usize,
        flags: None,
    };
    // SAFETY: an object of a fake.
    unsafe { receive(ep, call) }
}

pub(crate) unsafe extern "C" fn mrecvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    src_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(iov, desc, count) }
    };
    let call = ReceiveCall {
        name: "fi_recvv",
        spans,
        descs,
        from: src_addr,
        tag: None,
        context: context as usize,
        flags: None,
    };
    // SAFETY: an object of a fake.
    unsafe { receive(ep, call) }
}

pub(crate) unsafe extern "C" fn mrecvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: a message or null, by the call's contract.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(FI_EINVAL);
    };
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(msg.msg_iov, msg.desc, msg.iov_count) }
    };
    let call = ReceiveCall {
        name: "fi_recvmsg",
        spans,
        descs,
        from: msg.addr,
        tag: None,
        context: msg.context as usize,
        flags: Some(flags),
    };
    // SAFETY: an object of a fake.
    unsafe { receive(ep, call) }
}

pub(crate) unsafe extern "C" fn msend(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, desc);
    let call = SendCall {
        name: "fi_send",
        spans,
        descs,
        to: dest_addr,
        tag: None,
        data: None,
        context: context as usize,
        flags: None,
        silent: false,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn msendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(iov, desc, count) }
    };
    let call = SendCall {
        name: "fi_sendv",
        spans,
        descs,
        to: dest_addr,
        tag: None,
        data: None,
        context: context as usize,
        flags: None,
        silent: false,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn msendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: a message or null, by the call's contract.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(FI_EINVAL);
    };
    let Segments { spans, descs } = {
        // SAFETY: segments and descriptors, by the call's contract.
        unsafe { Segments::several(msg.msg_iov, msg.desc, msg.iov_count) }
    };
    let call = SendCall {
        name: "fi_sendmsg",
        spans,
        descs,
        to: msg.addr,
        tag: None,
        data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data),
        context: msg.context as usize,
        flags: Some(flags),
        silent: false,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn minject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, std::ptr::null_mut());
    let call = SendCall {
        name: "fi_inject",
        spans,
        descs,
        to: dest_addr,
        tag: None,
        data: None,
        context: 0,
        flags: None,
        silent: true,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn msenddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    data: u64,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, desc);
    let call = SendCall {
        name: "fi_senddata",
        spans,
        descs,
        to: dest_addr,
        tag: None,
        data: Some(data),
        context: context as usize,
        flags: None,
        silent: false,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

pub(crate) unsafe extern "C" fn minjectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, std::ptr::null_mut());
    let call = SendCall {
        name: "fi_injectdata",
        spans,
        descs,
        to: dest_addr,
        tag: None,
        data: Some(data),
        context: 0,
        flags: None,
        silent: true,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}

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
            len: crate::checker::total(&spans),
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
            len: crate::checker::total(&spans),
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
