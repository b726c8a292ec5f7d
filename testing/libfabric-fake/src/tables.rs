//! The operation tables.
//!
//! ```text
//!   EP, MSG, ...: [ size | the fake's | null | ... ]  operations that are never called are omitted, by `size`
//! ```
//!
//! Owns: the constants that all objects point to.
//! Out of scope: the implementations.

use libfabric_sys::abi::*;

use crate::{completions, endpoint, fabric, memory, messages, objects, queue, vector};

const FID: fi_ops = fi_ops {
    close: Some(objects::close),
    ..fi_ops::EMPTY
};
static PLAIN_FID: fi_ops = FID;
static EP_FID: fi_ops = fi_ops {
    bind: Some(endpoint::bind),
    control: Some(endpoint::control),
    ..FID
};
static CQ_FID: fi_ops = fi_ops {
    control: Some(completions::control),
    ..FID
};
static MR_FID: fi_ops = fi_ops {
    bind: Some(memory::bind),
    control: Some(memory::control),
    ..FID
};

/// Returns the operations of every object.
pub(crate) fn common(class: usize) -> *mut fi_ops {
    let table: &'static fi_ops = match class {
        FI_CLASS_EP => &EP_FID,
        FI_CLASS_CQ => &CQ_FID,
        FI_CLASS_MR => &MR_FID,
        _ => &PLAIN_FID,
    };
    std::ptr::from_ref(table).cast_mut()
}

/// Operations of a fabric.
pub(crate) static FABRIC: fi_ops_fabric = fi_ops_fabric {
    domain: Some(fabric::open_domain),
    trywait: Some(fabric::trywait),
    ..fi_ops_fabric::EMPTY
};

/// Operations of a domain.
pub(crate) static DOMAIN: fi_ops_domain = fi_ops_domain {
    av_open: Some(vector::open),
    cq_open: Some(queue::open),
    endpoint: Some(endpoint::open),
    ..fi_ops_domain::EMPTY
};

/// Registration operations of a domain.
pub(crate) static MR: fi_ops_mr = fi_ops_mr {
    reg: Some(memory::reg),
    ..fi_ops_mr::EMPTY
};

/// Operations of an endpoint.
pub(crate) static EP: fi_ops_ep = fi_ops_ep {
    getopt: Some(endpoint::getopt),
    setopt: Some(endpoint::setopt),
    ..fi_ops_ep::EMPTY
};

/// Name operations.
pub(crate) static CM: fi_ops_cm = fi_ops_cm {
    getname: Some(endpoint::getname),
    ..fi_ops_cm::EMPTY
};

/// Message operations.
pub(crate) static MSG: fi_ops_msg = fi_ops_msg {
    recv: Some(messages::mrecv),
    recvmsg: Some(messages::mrecvmsg),
    send: Some(messages::msend),
    sendmsg: Some(messages::msendmsg),
    inject: Some(messages::minject),
    ..fi_ops_msg::EMPTY
};

/// Operations on remote memory.
pub(crate) static RMA: fi_ops_rma = fi_ops_rma {
    read: Some(messages::read),
    ..fi_ops_rma::EMPTY
};

/// Operations of a completion queue.
pub(crate) static CQ: fi_ops_cq = fi_ops_cq {
    read: Some(completions::read),
    readerr: Some(completions::readerr),
    strerror: Some(completions::strerror),
    ..fi_ops_cq::EMPTY
};

/// Operations of an address vector.
pub(crate) static AV: fi_ops_av = fi_ops_av {
    insert: Some(vector::insert),
    remove: Some(vector::remove),
    ..fi_ops_av::EMPTY
};
