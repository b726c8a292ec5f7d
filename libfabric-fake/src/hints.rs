//! What hints ask for, and whether a provider can and will.
//!
//! ```text
//!   fi_info (hints) --> Hints --> suits(shape): the mr_mode of the offer, or none
//!                           `--> granted, source: the rest of it
//! ```
//!
//! Owns: the comparison.
//! Knows nothing of: making offers.

use std::net::Ipv4Addr;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::info::text;
use crate::shape::Shape;

/// An address to be bound to, if one was asked for.
pub(crate) type Source = Option<Vec<u8>>;

/// What hints ask for; zeros where they say nothing.
#[derive(Default)]
pub(crate) struct Hints {
    pub(crate) given: bool,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) source: Source,
    pub(crate) provider: Option<String>,
    pub(crate) domain: Option<String>,
    pub(crate) ep_type: u32,
    pub(crate) protocol: u32,
    pub(crate) max_msg: usize,
    pub(crate) threading: u32,
    pub(crate) progress: u32,
    pub(crate) av_type: u32,
    pub(crate) mr_mode: c_int,
    pub(crate) order: u64,
    pub(crate) inject: usize,
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    pub(crate) iov_limit: usize,
}

impl Hints {
    /// # Safety
    ///
    /// An info or null.
    pub(crate) unsafe fn read(hints: *const fi_info) -> Self {
        // SAFETY: the caller's word.
        let Some(hints) = (unsafe { hints.as_ref() }) else {
            return Self::default();
        };
        let mut asked = Self {
            given: true,
            caps: hints.caps,
            mode: hints.mode,
            addr_format: hints.addr_format,
            ..Self::default()
        };
        if !hints.src_addr.is_null() {
            // SAFETY: an info's address has the length it says.
            let bytes = unsafe {
                std::slice::from_raw_parts(hints.src_addr.cast::<u8>(), hints.src_addrlen)
            };
            asked.source = Some(bytes.to_vec());
        }
        // SAFETY: an info's attributes are null or valid; so below.
        if let Some(tx) = unsafe { hints.tx_attr.as_ref() } {
            (asked.order, asked.inject) = (tx.msg_order, tx.inject_size);
            (asked.tx_size, asked.iov_limit) = (tx.size, tx.iov_limit);
        }
        // SAFETY: as above.
        if let Some(rx) = unsafe { hints.rx_attr.as_ref() } {
            asked.order |= rx.msg_order;
            asked.rx_size = rx.size;
        }
        // SAFETY: as above.
        if let Some(ep) = unsafe { hints.ep_attr.as_ref() } {
            (asked.ep_type, asked.protocol, asked.max_msg) =
                (ep.r#type, ep.protocol, ep.max_msg_size);
        }
        // SAFETY: as above.
        if let Some(domain) = unsafe { hints.domain_attr.as_ref() } {
            (asked.threading, asked.progress) = (domain.threading, domain.data_progress);
            (asked.av_type, asked.mr_mode) = (domain.av_type, domain.mr_mode);
            // SAFETY: a C string or null.
            asked.domain = unsafe { text(domain.name) };
        }
        // SAFETY: as above.
        if let Some(fabric) = unsafe { hints.fabric_attr.as_ref() } {
            // SAFETY: a C string or null.
            asked.provider = unsafe { text(fabric.prov_name) };
        }
        asked
    }

    fn remote(&self) -> bool {
        !self.given || self.caps == 0 || self.caps & FI_RMA != 0
    }

    /// The `mr_mode` of an offer, or none when the shape cannot do what is wanted, or wants what
    /// cannot be done.
    pub(crate) fn suits(&self, shape: &Shape) -> Option<c_int> {
        let named = self
            .provider
            .as_ref()
            .is_none_or(|name| *name == shape.provider)
            && self
                .domain
                .as_ref()
                .is_none_or(|name| *name == shape.domain);
        let format = self.addr_format == FI_FORMAT_UNSPEC
            || self.addr_format == shape.address_format
            || (self.addr_format == FI_SOCKADDR && shape.address_format == FI_SOCKADDR_IN);
        let strict = matches!(self.threading, FI_THREAD_SAFE | FI_THREAD_FID);
        let kind = (self.ep_type == FI_EP_UNSPEC || self.ep_type == shape.ep_type)
            && (self.protocol == FI_PROTO_UNSPEC || self.protocol == shape.protocol)
            && matches!(self.av_type, FI_AV_UNSPEC | FI_AV_TABLE | FI_AV_MAP)
            && !(strict && shape.threading != FI_THREAD_SAFE)
            && !(self.progress == FI_PROGRESS_AUTO && shape.progress == FI_PROGRESS_MANUAL);
        let able = self.caps & !shape.caps == 0
            && self.order & !shape.order == 0
            && self.max_msg <= shape.max_msg
            && self.inject <= shape.inject
            && self.tx_size <= shape.tx_depth
            && self.rx_size <= shape.rx_depth
            && self.iov_limit <= shape.iov_limit;
        // Without remote access and without local registration nothing is ever registered.
        let needed = if self.remote() || shape.mr_mode & FI_MR_LOCAL != 0 {
            shape.mr_mode
        } else {
            0
        };
        let willing = !self.given || (shape.mode & !self.mode == 0 && needed & !self.mr_mode == 0);
        (named && format && kind && able && willing).then_some(needed)
    }
}

/// Where an endpoint would be; `None` when the node means nothing to the provider.
pub(crate) fn source(
    shape: &Shape,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    asked: &Hints,
) -> Option<Source> {
    if let Some(address) = &asked.source {
        return (address.len() == shape.address_len).then(|| Some(address.clone()));
    }
    if node.is_some() && !shape.takes_node {
        return None;
    }
    if shape.address_format != FI_SOCKADDR_IN {
        return Some(None);
    }
    let (ip, port) = if flags & FI_SOURCE != 0 {
        let ip = node.map_or(Ok(Ipv4Addr::LOCALHOST), str::parse).ok()?;
        (ip, service.map_or(Ok(0), str::parse).ok()?)
    } else {
        (Ipv4Addr::LOCALHOST, 0)
    };
    Some(Some(sockaddr_in(ip, port)))
}

/// The bytes of a `sockaddr_in`.
pub(crate) fn sockaddr_in(ip: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<libc::sockaddr_in>()];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&ip.octets());
    bytes
}

/// What the caller gets for what it asked: with modifiers as asked, or all of them.
pub(crate) fn granted(asked: &Hints, shape: &Shape) -> u64 {
    if asked.caps == 0 {
        return shape.caps;
    }
    let mut caps = asked.caps | (shape.caps & (FI_LOCAL_COMM | FI_REMOTE_COMM));
    if caps & FI_MSG != 0 && caps & (FI_SEND | FI_RECV) == 0 {
        caps |= FI_SEND | FI_RECV;
    }
    let remote = FI_READ | FI_REMOTE_READ;
    if caps & FI_RMA != 0 && caps & remote == 0 {
        caps |= remote;
    }
    caps
}
