//! Operations of every object, and opening domains, endpoints and queues.
//!
//! ```text
//!   fi_domain -> fi_cq_open, fi_av_open, fi_endpoint -> fi_setopt, fi_ep_bind -> fi_enable
//!                                                                     fi_getname, fi_close
//! ```
//!
//! Owns: calls through `fi_ops`, `fi_ops_fabric`, `fi_ops_domain`, `fi_ops_ep` and `fi_ops_cm`. The
//! order of calls is described in `fi_endpoint(3)`.

use libc::{c_int, c_void};

use crate::abi::*;

/// Ends an object, after all that was opened from it.
#[inline]
pub unsafe fn fi_close(fid: *mut fid) -> c_int {
    // SAFETY: an open object.
    let ops = unsafe { (*fid).ops };
    through!(ops, fi_ops, close, (fid))
}

/// Gives an object a command.
#[inline]
pub unsafe fn fi_control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: an open object.
    let ops = unsafe { (*fid).ops };
    through!(ops, fi_ops, control, (fid, command, arg))
}

/// The descriptor that becomes readable when there may be something: `FI_GETWAIT` of an object
/// opened with `FI_WAIT_FD`. Sleep on it only after [`fi_trywait`].
#[inline]
pub unsafe fn fi_getwait(fid: *mut fid, fd: *mut c_int) -> c_int {
    // SAFETY: the caller's word.
    unsafe { fi_control(fid, FI_GETWAIT, fd.cast()) }
}

#[inline]
pub(super) unsafe fn bind(fid: *mut fid, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: an open object.
    let ops = unsafe { (*fid).ops };
    through!(ops, fi_ops, bind, (fid, to, flags))
}

/// Opens a domain.
#[inline]
pub unsafe fn fi_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open fabric.
    let ops = unsafe { (*fabric).ops };
    through!(ops, fi_ops_fabric, domain, (fabric, info, domain, context))
}

/// Whether one may sleep on these objects' descriptors: 0, or `-FI_EAGAIN` when there is
/// something to be read first.
#[inline]
pub unsafe fn fi_trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    // SAFETY: an open fabric.
    let ops = unsafe { (*fabric).ops };
    through!(ops, fi_ops_fabric, trywait, (fabric, fids, count))
}

/// Opens an endpoint.
#[inline]
pub unsafe fn fi_endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open domain.
    let ops = unsafe { (*domain).ops };
    through!(ops, fi_ops_domain, endpoint, (domain, info, ep, context))
}

/// Opens a completion queue.
#[inline]
pub unsafe fn fi_cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open domain.
    let ops = unsafe { (*domain).ops };
    through!(ops, fi_ops_domain, cq_open, (domain, attr, cq, context))
}

/// Opens an address vector.
#[inline]
pub unsafe fn fi_av_open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open domain.
    let ops = unsafe { (*domain).ops };
    through!(ops, fi_ops_domain, av_open, (domain, attr, av, context))
}

/// Joins an endpoint to a queue or an address vector, before it is enabled.
#[inline]
pub unsafe fn fi_ep_bind(ep: *mut fid_ep, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: an endpoint begins with its `fid`.
    unsafe { bind(ep.cast(), to, flags) }
}

/// Makes an endpoint ready.
#[inline]
pub unsafe fn fi_enable(ep: *mut fid_ep) -> c_int {
    // SAFETY: an endpoint begins with its `fid`.
    unsafe { fi_control(ep.cast(), FI_ENABLE, std::ptr::null_mut()) }
}

/// Sets an option of an endpoint.
#[inline]
pub unsafe fn fi_setopt(
    ep: *mut fid_ep,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: an open endpoint.
    let ops = unsafe { (*ep).ops };
    through!(ops, fi_ops_ep, setopt, (ep.cast(), level, name, value, len))
}

/// Reads an option of an endpoint.
#[inline]
pub unsafe fn fi_getopt(
    ep: *mut fid_ep,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: an open endpoint.
    let ops = unsafe { (*ep).ops };
    through!(ops, fi_ops_ep, getopt, (ep.cast(), level, name, value, len))
}

/// The address of an endpoint. `-FI_ETOOSMALL` with the length it takes when there is too
/// little room.
#[inline]
pub unsafe fn fi_getname(ep: *mut fid_ep, addr: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: an open endpoint.
    let cm = unsafe { (*ep).cm };
    through!(cm, fi_ops_cm, getname, (ep.cast(), addr, len))
}
