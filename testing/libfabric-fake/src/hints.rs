//! Matches hints against a provider.
//!
//! ```text
//!   fi_info (hints) --> Whole --> suits(shape): the mr_mode of the offer, or none
//!                           `--> granted, source: the rest of the offer
//! ```
//!
//! Owns: the comparison. Hints that no port of this project gives are ignored.
//! Out of scope: making offers.

use std::net::Ipv4Addr;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::info::Whole;
use crate::shape::Shape;

/// Returns the `mr_mode` of an offer, or `None` if the shape cannot meet the hints, or requires
/// what they do not allow.
pub(crate) fn suits(asked: &Whole, shape: &Shape) -> Option<c_int> {
    let Whole {
        info, ep, domain, ..
    } = asked;
    let strict = matches!(domain.threading, FI_THREAD_SAFE | FI_THREAD_FID);
    let order = asked.tx.msg_order | asked.rx.msg_order;
    let able = (ep.r#type == FI_EP_UNSPEC || ep.r#type == shape.ep_type)
        && !(strict && shape.threading != FI_THREAD_SAFE)
        && !(domain.data_progress == FI_PROGRESS_AUTO && shape.progress == FI_PROGRESS_MANUAL)
        && info.caps & !shape.caps == 0
        && order & !shape.order == 0;
    // Without remote access and local registration nothing is ever registered.
    let remote = info.caps == 0 || info.caps & FI_RMA != 0;
    let needed = if remote || shape.mr_mode & FI_MR_LOCAL != 0 {
        shape.mr_mode
    } else {
        0
    };
    let willing = shape.mode & !info.mode == 0 && needed & !domain.mr_mode == 0;
    (able && willing).then_some(needed)
}

/// Returns the numbers of the matching devices, with their source addresses if those are known
/// before opening; none if the provider does not use the node.
pub(crate) fn sources(
    shape: &Shape,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
) -> Vec<(usize, Option<Vec<u8>>)> {
    if node.is_some() && !shape.takes_node {
        return Vec::new();
    }
    let count = shape.devices.len().max(1);
    if shape.address_format != FI_SOCKADDR_IN {
        // Addresses of sockets are known, in any family.
        let known = shape.address_format == FI_SOCKADDR_IB;
        let source = known.then(|| vec![AF_IB; shape.address_len]);
        return (0..count).map(|device| (device, source.clone())).collect();
    }
    let source = flags & FI_SOURCE != 0;
    let (node, service) = (node.filter(|_| source), service.filter(|_| source));
    let asked = node.map(str::parse::<Ipv4Addr>).transpose();
    let (Ok(asked), Ok(port)) = (asked, service.map_or(Ok(0), str::parse)) else {
        return Vec::new();
    };
    let devices = match &shape.devices[..] {
        [] => vec![asked.unwrap_or(Ipv4Addr::LOCALHOST)],
        devices => devices.to_vec(),
    };
    let meant = devices.into_iter().enumerate();
    let meant = meant.filter(|(_, ip)| asked.is_none_or(|asked| asked == *ip));
    meant
        .map(|(device, ip)| (device, Some(sockaddr_in(ip, port))))
        .collect()
}

/// Both bytes of an address family other than IP.
const AF_IB: u8 = 27;

/// Returns the bytes of a `sockaddr_in`.
pub(crate) fn sockaddr_in(ip: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<libc::sockaddr_in>()];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&ip.octets());
    bytes
}

/// Returns the capabilities for a request: all, or modifiers as requested.
pub(crate) fn granted(asked: u64, shape: &Shape) -> u64 {
    if asked == 0 {
        return shape.caps;
    }
    let mut caps = asked | (shape.caps & (FI_LOCAL_COMM | FI_REMOTE_COMM));
    if caps & FI_MSG != 0 && caps & (FI_SEND | FI_RECV) == 0 {
        caps |= FI_SEND | FI_RECV;
    }
    let remote = FI_READ | FI_REMOTE_READ;
    if caps & FI_RMA != 0 && caps & remote == 0 {
        caps |= remote;
    }
    caps
}
