//! The C calls that post operations.
//!
//! ```text
//!   fi_send(ep, buf, len, ...)    \
//!   fi_sendmsg(ep, msg, flags)     }--> Post --> posting
//!   fi_inject(ep, buf, len, ...)  /
//! ```
//!
//! Owns: the conversion of argument lists into one form.
//! Out of scope: the rules of posting.

use std::ffi::c_void;

use libfabric_sys::abi::*;

use crate::checker::Span;
use crate::objects::{Id, code, enter};
use crate::posting::{Kind, Post};
use crate::state::State;

/// Send flags that ports of this project use.
const SEND_FLAGS: u64 = FI_COMPLETION | FI_MORE;

/// Valid flags of a receive.
const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;

impl Post {
    fn one(
        kind: Kind,
        name: &'static str,
        (buf, len): (*const c_void, usize),
        desc: *mut c_void,
        peer: u64,
        context: *mut c_void,
    ) -> Self {
        Self {
            kind,
            name,
            spans: vec![Span::new(buf as usize, len)],
            descs: vec![desc as usize],
            peer,
            context: context as usize,
            flags: 0,
        }
    }

    /// # Safety
    ///
    /// Null, or a message with its segments, and as many descriptors unless those are null.
    unsafe fn several(
        kind: Kind,
        name: &'static str,
        msg: *const fi_msg,
        flags: u64,
    ) -> Option<Self> {
        // SAFETY: the caller guarantees it.
        let msg = unsafe { msg.as_ref() }?;
        let mut post = Self {
            kind,
            name,
            spans: Vec::new(),
            descs: Vec::new(),
            peer: msg.addr,
            context: msg.context as usize,
            flags,
        };
        // A larger count is rejected later, without being read here.
        let most = if msg.msg_iov.is_null() { 0 } else { 64 };
        for index in 0..msg.iov_count.min(most) {
            // SAFETY: the caller guarantees it.
            let one = unsafe { msg.msg_iov.wrapping_add(index).read() };
            post.spans
                .push(Span::new(one.iov_base as usize, one.iov_len));
            if !msg.desc.is_null() {
                // SAFETY: the caller guarantees it.
                let desc = unsafe { msg.desc.wrapping_add(index).read() };
                post.descs.push(desc as usize);
            }
        }
        Some(post)
    }
}

/// # Safety
///
/// An endpoint of a fake.
unsafe fn run(ep: *mut fid_ep, post: Option<Post>) -> isize {
    let Some(post) = post else {
        return code(FI_EINVAL);
    };
    let name = post.name;
    let run = |state: &mut State, id: Id| {
        let known = match post.kind {
            Kind::Receive => RECEIVE_FLAGS,
            _ => SEND_FLAGS,
        };
        if post.flags & !known != 0 {
            return state.wrong(name, id, "flags that mean nothing here", FI_EBADFLAGS);
        }
        state.post(id, post).err().unwrap_or(0)
    };
    // SAFETY: the caller guarantees it.
    unsafe { enter(ep.cast(), FI_CLASS_EP, name, run) }
}

pub(crate) unsafe extern "C" fn mrecv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let post = Post::one(Kind::Receive, "fi_recv", (buf, len), desc, from, context);
    // SAFETY: an object of a fake.
    unsafe { run(ep, Some(post)) }
}

pub(crate) unsafe extern "C" fn mrecvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: a message or null, by the call's contract.
    let post = unsafe { Post::several(Kind::Receive, "fi_recvmsg", msg, flags) };
    // SAFETY: an object of a fake.
    unsafe { run(ep, post) }
}

pub(crate) unsafe extern "C" fn msend(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let post = Post::one(Kind::Send, "fi_send", (buf, len), desc, to, context);
    // SAFETY: an object of a fake.
    unsafe { run(ep, Some(post)) }
}

pub(crate) unsafe extern "C" fn msendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: a message or null, by the call's contract.
    let post = unsafe { Post::several(Kind::Send, "fi_sendmsg", msg, flags) };
    // SAFETY: an object of a fake.
    unsafe { run(ep, post) }
}

pub(crate) unsafe extern "C" fn minject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
) -> isize {
    let (desc, context) = (std::ptr::null_mut(), std::ptr::null_mut());
    let post = Post::one(Kind::Inject, "fi_inject", (buf, len), desc, to, context);
    // SAFETY: an object of a fake.
    unsafe { run(ep, Some(post)) }
}

pub(crate) unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    from: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let kind = Kind::Read { addr, key };
    let post = Post::one(kind, "fi_read", (buf, len), desc, from, context);
    // SAFETY: an object of a fake.
    unsafe { run(ep, Some(post)) }
}
