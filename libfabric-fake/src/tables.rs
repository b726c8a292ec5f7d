//! The tables of operations.
//!
//! ```text
//!   EP, MSG, ...: [ size | ours | -FI_ENOSYS | ... ]  what came after 1.17: not there, by `size`
//! ```
//!
//! Owns: the constants all objects point to, and the functions of operations nobody uses.
//! Knows nothing of: what any of them does.
//!
//! No entry within `size` is null: a provider fills what it has not with a refusal.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::{
    cancel, completions, endpoint, fabric, memory, messages, queue, reads, tagged, vector,
};

/// Functions that refuse, one for each argument list.
macro_rules! refusals {
    ($($name:ident($($ty:ty),* $(,)?) -> $ret:ty;)+) => {$(
        unsafe extern "C" fn $name($(_: $ty),*) -> $ret {
            -FI_ENOSYS as $ret
        }
    )+};
}

refusals! {
    no_fabric_passive_ep(*mut fid_fabric, *mut fi_info, *mut *mut fid_pep, *mut c_void) -> c_int;
    no_fabric_eq_open(*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void) -> c_int;
    no_fabric_wait_open(*mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait) -> c_int;
    no_domain_scalable_ep(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_domain_cntr_open(*mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void) -> c_int;
    no_domain_poll_open(*mut fid_domain, *mut fi_poll_attr, *mut *mut fid_poll) -> c_int;
    no_domain_stx_ctx(*mut fid_domain, *mut fi_tx_attr, *mut *mut fid_stx, *mut c_void) -> c_int;
    no_domain_srx_ctx(*mut fid_domain, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_domain_query_atomic(*mut fid_domain, fi_datatype, fi_op, *mut fi_atomic_attr, u64) -> c_int;
    no_domain_query_collective(*mut fid_domain, fi_collective_op, *mut fi_collective_attr, u64) -> c_int;
    no_ep_tx_ctx(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_ep_rx_ctx(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_ep_rx_size_left(*mut fid_ep) -> isize;
    no_ep_tx_size_left(*mut fid_ep) -> isize;
    no_cm_setname(*mut fid, *mut c_void, usize) -> c_int;
    no_cm_getpeer(*mut fid_ep, *mut c_void, *mut usize) -> c_int;
    no_cm_connect(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int;
    no_cm_listen(*mut fid_pep) -> c_int;
    no_cm_accept(*mut fid_ep, *const c_void, usize) -> c_int;
    no_cm_reject(*mut fid_pep, *mut fid, *const c_void, usize) -> c_int;
    no_cm_shutdown(*mut fid_ep, u64) -> c_int;
    no_cm_join(*mut fid_ep, *const c_void, u64, *mut *mut fid_mc, *mut c_void) -> c_int;
    no_rma_inject(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64) -> isize;
    no_rma_writedata(*mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, u64, *mut c_void) -> isize;
    no_rma_injectdata(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64) -> isize;
    no_av_insertsvc(*mut fid_av, *const c_char, *const c_char, *mut fi_addr_t, u64, *mut c_void) -> c_int;
    no_av_insertsym(*mut fid_av, *const c_char, usize, *const c_char, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int;
    no_av_av_set(*mut fid_av, *mut fi_av_set_attr, *mut *mut fid_av_set, *mut c_void) -> c_int;
    no_bind(*mut fid, *mut fid, u64) -> c_int;
    no_control(*mut fid, c_int, *mut c_void) -> c_int;
    no_ops_open(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int;
    no_tostr(*const fid, *mut c_char, usize) -> c_int;
    no_ops_set(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int;
}

type Close = unsafe extern "C" fn(*mut fid) -> c_int;
type Bind = unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int;
type Control = unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int;

const fn ops(close: Close, bind: Bind, control: Control) -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close: Some(close),
        bind: Some(bind),
        control: Some(control),
        ops_open: Some(no_ops_open),
        tostr: Some(no_tostr),
        ops_set: Some(no_ops_set),
    }
}

static FABRIC_FID: fi_ops = ops(fabric::close, no_bind, no_control);
static DOMAIN_FID: fi_ops = ops(fabric::close_domain, no_bind, no_control);
static EP_FID: fi_ops = ops(endpoint::close, endpoint::bind, endpoint::control);
static CQ_FID: fi_ops = ops(queue::close, no_bind, completions::control);
static AV_FID: fi_ops = ops(vector::close, no_bind, no_control);
static MR_FID: fi_ops = ops(memory::close, memory::bind, memory::control);

/// What every object of a class can do.
pub(crate) fn common(class: usize) -> *mut fi_ops {
    let table: &'static fi_ops = match class {
        FI_CLASS_FABRIC => &FABRIC_FID,
        FI_CLASS_DOMAIN => &DOMAIN_FID,
        FI_CLASS_EP => &EP_FID,
        FI_CLASS_CQ => &CQ_FID,
        FI_CLASS_AV => &AV_FID,
        _ => &MR_FID,
    };
    std::ptr::from_ref(table).cast_mut()
}

/// A fabric.
pub(crate) static FABRIC: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(fabric::open_domain),
    passive_ep: Some(no_fabric_passive_ep),
    eq_open: Some(no_fabric_eq_open),
    wait_open: Some(no_fabric_wait_open),
    trywait: Some(fabric::trywait),
    domain2: Some(fabric::open_domain2),
};

/// A domain.
pub(crate) static DOMAIN: fi_ops_domain = fi_ops_domain {
    size: offset_of!(fi_ops_domain, xpu_ctx),
    av_open: Some(vector::open),
    cq_open: Some(queue::open),
    endpoint: Some(endpoint::open),
    scalable_ep: Some(no_domain_scalable_ep),
    cntr_open: Some(no_domain_cntr_open),
    poll_open: Some(no_domain_poll_open),
    stx_ctx: Some(no_domain_stx_ctx),
    srx_ctx: Some(no_domain_srx_ctx),
    query_atomic: Some(no_domain_query_atomic),
    query_collective: Some(no_domain_query_collective),
    endpoint2: Some(endpoint::open2),
    ..fi_ops_domain::EMPTY
};

/// A domain's registrations.
pub(crate) static MR: fi_ops_mr = fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: Some(memory::reg),
    regv: Some(memory::regv),
    regattr: Some(memory::regattr),
};

/// An endpoint.
pub(crate) static EP: fi_ops_ep = fi_ops_ep {
    size: offset_of!(fi_ops_ep, export_xpu),
    cancel: Some(cancel::cancel),
    getopt: Some(endpoint::getopt),
    setopt: Some(endpoint::setopt),
    tx_ctx: Some(no_ep_tx_ctx),
    rx_ctx: Some(no_ep_rx_ctx),
    rx_size_left: Some(no_ep_rx_size_left),
    tx_size_left: Some(no_ep_tx_size_left),
    ..fi_ops_ep::EMPTY
};

/// Names.
pub(crate) static CM: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: Some(no_cm_setname),
    getname: Some(endpoint::getname),
    getpeer: Some(no_cm_getpeer),
    connect: Some(no_cm_connect),
    listen: Some(no_cm_listen),
    accept: Some(no_cm_accept),
    reject: Some(no_cm_reject),
    shutdown: Some(no_cm_shutdown),
    join: Some(no_cm_join),
};

/// Messages.
pub(crate) static MSG: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(messages::mrecv),
    recvv: Some(messages::mrecvv),
    recvmsg: Some(messages::mrecvmsg),
    send: Some(messages::msend),
    sendv: Some(messages::msendv),
    sendmsg: Some(messages::msendmsg),
    inject: Some(messages::minject),
    senddata: Some(messages::msenddata),
    injectdata: Some(messages::minjectdata),
};

/// Tagged messages.
pub(crate) static TAGGED: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: Some(tagged::trecv),
    recvv: Some(tagged::trecvv),
    recvmsg: Some(tagged::trecvmsg),
    send: Some(tagged::tsend),
    sendv: Some(tagged::tsendv),
    sendmsg: Some(tagged::tsendmsg),
    inject: Some(tagged::tinject),
    senddata: Some(tagged::tsenddata),
    injectdata: Some(tagged::tinjectdata),
};

/// Remote memory.
pub(crate) static RMA: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(reads::read),
    readv: Some(reads::readv),
    readmsg: Some(reads::readmsg),
    write: Some(reads::write),
    writev: Some(reads::writev),
    writemsg: Some(reads::writemsg),
    inject: Some(no_rma_inject),
    writedata: Some(no_rma_writedata),
    injectdata: Some(no_rma_injectdata),
};

/// A completion queue.
pub(crate) static CQ: fi_ops_cq = fi_ops_cq {
    size: offset_of!(fi_ops_cq, export_xpu),
    read: Some(completions::read),
    readfrom: Some(completions::readfrom),
    readerr: Some(completions::readerr),
    sread: Some(completions::sread),
    sreadfrom: Some(completions::sreadfrom),
    signal: Some(completions::signal),
    strerror: Some(completions::strerror),
    ..fi_ops_cq::EMPTY
};

/// An address vector.
pub(crate) static AV: fi_ops_av = fi_ops_av {
    size: offset_of!(fi_ops_av, insert_auth_key),
    insert: Some(vector::insert),
    insertsvc: Some(no_av_insertsvc),
    insertsym: Some(no_av_insertsym),
    remove: Some(vector::remove),
    lookup: Some(vector::lookup),
    straddr: Some(vector::straddr),
    av_set: Some(no_av_av_set),
    ..fi_ops_av::EMPTY
};
