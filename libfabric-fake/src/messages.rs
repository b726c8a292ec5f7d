//! The calls that post messages, as C makes them. Those of remote memory are in `reads`.
//!
//! ```text
//!   fi_send(ep, buf, len, ...)    \
//!   fi_sendmsg(ep, msg, flags)     }--> SendCall, ReceiveCall --> posting
//!   fi_inject(ep, buf, len, ...)  /
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
use crate::state::State;

/// Flags a send may have; they ask for more than is ever withheld here, or for nothing.
const SEND_FLAGS: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_MORE
    | FI_FENCE
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE;

/// Flags a receive may have.
const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;

/// Segments and their descriptors, in numbers.
pub(crate) struct Segments {
    pub(crate) spans: Vec<Span>,
    pub(crate) descs: Vec<usize>,
}

impl Segments {
    pub(crate) fn one(buf: *const c_void, len: usize, desc: *mut c_void) -> Self {
        Self {
            spans: vec![Span::new(buf as usize, len)],
            descs: vec![desc as usize],
        }
    }

    /// # Safety
    ///
    /// `count` segments at `iov`, and as many descriptors at `desc` unless it is null.
    pub(crate) unsafe fn several(iov: *const iovec, desc: *mut *mut c_void, count: usize) -> Self {
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

pub(crate) fn answer(result: Result<(), isize>) -> isize {
    result.err().unwrap_or(0)
}

/// # Safety
///
/// An endpoint of a fake.
pub(crate) unsafe fn send(ep: *mut fid_ep, call: SendCall) -> isize {
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
pub(crate) unsafe fn receive(ep: *mut fid_ep, call: ReceiveCall) -> isize {
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

pub(crate) unsafe extern "C" fn mrecv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    _src_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let Segments { spans, descs } = Segments::one(buf, len, desc);
    let call = ReceiveCall {
        name: "fi_recv",
        spans,
        descs,
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
        context: 0,
        flags: None,
        silent: true,
    };
    // SAFETY: an object of a fake.
    unsafe { send(ep, call) }
}
