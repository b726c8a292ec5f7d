//! The call that reads remote memory, as C makes it.
//!
//! Owns: turning its argument list into a [`RemoteCall`].
//! Knows nothing of: the rules of posting.

use std::ffi::c_void;

use libfabric_sys::abi::*;

use crate::messages::{Segments, answer};
use crate::objects::{Id, enter};
use crate::remote::RemoteCall;
use crate::state::State;

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
        remote: (addr, key),
        spans,
        descs,
        peer: src_addr,
        context: context as usize,
    };
    let name = call.name;
    let post = |state: &mut State, id: Id| answer(state.post_remote(id, call));
    // SAFETY: an object of a fake.
    unsafe { enter(ep.cast(), FI_CLASS_EP, name, post) }
}
