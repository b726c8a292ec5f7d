//! Which provider's datagrams, and what of them can be used.
//!
//! ```text
//!   asked for by name, or each of the preferred ones
//!        |  hints: exact name, FI_EP_DGRAM, FI_MSG
//!        v
//!   fi_getinfo --> offers --> Plan::of, source address --> the one most peers can reach
//!        ENODATA: next provider                                 |
//!                                                     Terms for the objects
//! ```
//!
//! Owns: hints, preference, the choice among offers, all limits.
//! Knows nothing of: opening; peers.

use super::frame;
use super::name::{FabricAddress, NAME_MAX};
use libfabric_sys::abi::{
    FI_ADDR_STR, FI_CONTEXT, FI_CONTEXT2, FI_ENODATA, FI_EP_DGRAM, FI_LOCAL_MR, FI_MR_ALLOCATED,
    FI_MR_HMEM, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MSG, FI_MSG_PREFIX,
    FI_PROGRESS_MANUAL, FI_RECV, FI_RM_DISABLED, FI_RX_CQ_DATA, FI_SEND, FI_SOCKADDR,
    FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_SOURCE, FI_THREAD_DOMAIN, fi_major, fi_minor,
};
use libfabric_sys::{Hints, Info, InfoList, Library};
use mx_port_fabric::{Entries, Place, Terms, Wait, is_of_this_host, modern_mr_mode, place, source};
use mx_port_fabric::{Finding, RdmError, Verdict};
use std::ffi::{CString, c_int};
use std::net::IpAddr;

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;

/// A provider that was chosen.
#[derive(Debug)]
pub(super) struct Choice {
    /// One entry.
    pub info: InfoList,
    /// What is made of it.
    pub plan: Plan,
}

/// How datagrams go over one provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// What the objects are opened on.
    pub terms: Terms,
    /// Buffers must be registered, and their `desc` given.
    pub register: bool,
    /// Datagrams given in one call: more than one where `FI_MORE` spares a doorbell.
    pub batch_max: usize,
    /// The kernel of this host carries it.
    pub software: bool,
    /// The fabric checks what it carries, from one end to the other.
    pub checked: bool,
}

/// Chosen without being asked for, the best first. `udp` is the kernel's sockets one datagram at a
/// time, and there for want of anything else.
const PREFERENCE: [&str; 4] = ["usnic", "efa", "verbs", "udp"];

/// What is not used, and why.
const NEVER: [(&str, &str); 2] = [
    ("sockets", "it is deprecated and only there for development"),
    ("ofi_rxd", "it has reliability of its own underneath"),
];

/// What a provider that wants it is given. `FI_RX_CQ_DATA` costs nothing: we send no such data.
const MODES: u64 = FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX | FI_RX_CQ_DATA | FI_LOCAL_MR;

/// What is done for a provider's registrations; nobody reads our memory, so most of it is nothing.
/// Not `FI_MR_ENDPOINT`: buffers that belong to an endpoint and are in use until it closes could
/// not be closed before it, nor it before them; no provider known wants that of buffers.
const MR_MODES: c_int = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

/// Shortest longest datagram, as [`mx_proto::reliability::Capacity`] promises.
pub(super) const DATAGRAM_MIN: usize = 548;

/// Longest frame, whatever a provider can: that of UDP.
const FRAME_MAX: usize = 65_507;

/// The longest prefix: what providers ask for is a header or two, far below this.
const PREFIX_MAX: usize = 1024;

/// Datagrams in a GSO batch over hardware: a doorbell costs about as much as ten descriptors.
const GSO_BATCH: usize = 16;

/// A provider that has datagrams and cannot be used.
type Unfit = String;

impl Choice {
    /// Chooses. Without an address to bind to, a provider with IP addresses gets the first that
    /// other hosts can reach, loopback only when there is nothing else.
    pub(super) fn make(
        library: &Library,
        provider: Option<&str>,
        bind: Option<IpAddr>,
    ) -> Result<Self, RdmError> {
        if let Some(name) = provider {
            let provider = name.to_owned();
            if let Some(why) = refused(name) {
                let why = why.to_owned();
                return Err(RdmError::Refused { provider, why });
            }
            return match find(library, name, bind) {
                Ok(Some(choice)) => Ok(choice),
                Ok(None) => Err(missing(library, name, bind)),
                Err(why) => Err(RdmError::Unfit { provider, why }),
            };
        }
        for name in PREFERENCE {
            match find(library, name, bind) {
                Ok(Some(choice)) => return Ok(choice),
                Ok(None) => (),
                Err(why) => log::info!("dgram: provider {name} is not used: {why}"),
            }
        }
        Err(missing(library, "any provider with datagrams", bind))
    }
}

/// Why a provider is never used.
fn refused(name: &str) -> Option<&'static str> {
    // The outermost layer is what is talked to, so its reason comes first.
    name.rsplit(';').find_map(|layer| {
        if layer.starts_with("ofi_hook") {
            return Some("it only watches other providers");
        }
        let known = NEVER.iter().find(|(refused, _)| *refused == layer);
        known.map(|(_, why)| *why)
    })
}

/// The error that lists what there is.
fn missing(library: &Library, asked: &str, bind: Option<IpAddr>) -> RdmError {
    let asked = match bind {
        Some(address) => format!("{asked} at {address}"),
        None => asked.to_owned(),
    };
    let mut found: Vec<Finding> = Vec::new();
    let all = hints(library, None).and_then(|hints| library.query(None, None, 0, Some(&hints)));
    for info in all.iter().flatten() {
        let provider = info.provider().into_owned();
        if found.iter().any(|finding| finding.provider == provider) {
            continue;
        }
        let verdict = match refused(&provider) {
            Some(why) => Verdict::Refused(why.to_owned()),
            None => match find(library, &provider, bind) {
                Ok(Some(_)) => Verdict::Usable,
                Ok(None) => Verdict::Refused("it has nothing there".to_owned()),
                Err(why) => Verdict::Refused(why),
            },
        };
        let version = info.provider_version();
        found.push(Finding {
            provider,
            version: (fi_major(version), fi_minor(version)),
            verdict,
            plan: "datagrams".to_owned(),
            offer: Default::default(),
            paths: None,
        });
    }
    RdmError::NoProvider { asked, found }
}

/// The best offer of one provider; `None` when it has nothing here.
fn find(library: &Library, name: &str, bind: Option<IpAddr>) -> Result<Option<Choice>, Unfit> {
    let failed = |code| Err(format!("fi_getinfo: {} ({code})", library.strerror(code)));
    let hints = match hints(library, Some(name)) {
        Ok(hints) => hints,
        Err(code) => return failed(code),
    };
    let query = |bind: Option<IpAddr>| match bind.map(|at| CString::new(at.to_string())) {
        Some(Ok(node)) => library.query(Some(&node), None, FI_SOURCE, Some(&hints)),
        // An address has no zero byte in it.
        Some(Err(_)) | None => library.query(None, None, 0, Some(&hints)),
    };
    let mut offers = match query(bind) {
        Ok(offers) => offers,
        // It may not know what to do with an IP address.
        Err(FI_ENODATA) => match query(None) {
            Ok(offers) => offers,
            Err(FI_ENODATA) => return Ok(None),
            Err(code) => return failed(code),
        },
        Err(code) => return failed(code),
    };
    let mut why = None;
    let mut best: Option<(Place, Info<'_>, Plan)> = None;
    for info in offers.iter() {
        // A provider asked for by name may bring others that are layered over it.
        if info.provider() != name || info.ep_type() != FI_EP_DGRAM {
            continue;
        }
        match judge(info, bind) {
            // The provider's own order decides between equals.
            Ok((place, plan)) => {
                if best.as_ref().is_none_or(|(other, ..)| place < *other) {
                    best = Some((place, info, plan));
                }
            }
            Err(reason) => {
                why.get_or_insert(reason);
            }
        }
    }
    match (best, why) {
        (Some((_, info, plan)), _) => {
            let kept = offers.keep(info).map_err(|code| library.strerror(code))?;
            offers = kept;
            Ok(Some(Choice { info: offers, plan }))
        }
        (None, Some(why)) => Err(why),
        (None, None) => Ok(None),
    }
}

fn hints(library: &Library, name: Option<&str>) -> Result<Hints, i32> {
    let mut hints = library.hints()?;
    hints
        .set_caps(FI_MSG | FI_SEND | FI_RECV)
        .set_mode(MODES)
        .set_ep_type(FI_EP_DGRAM)
        // All calls are made under one lock.
        .set_threading(FI_THREAD_DOMAIN)
        // Progress of our own making is enough; a provider with threads may keep them.
        .set_data_progress(FI_PROGRESS_MANUAL)
        .set_mr_mode(MR_MODES);
    if let Some(name) = name {
        // No provider has a name that cannot be one.
        hints.set_provider(name).map_err(|_| FI_ENODATA)?;
    }
    Ok(hints)
}

fn judge(info: Info<'_>, bind: Option<IpAddr>) -> Result<(Place, Plan), Unfit> {
    let plan = Plan::of(info)?;
    if !is_of_ip(info.addr_format()) {
        // The address of a card, which only its driver knows.
        return Ok((Place::Network, plan));
    }
    let source = source(info.src_addr());
    if let Some(wanted) = bind {
        if !is_of_this_host(wanted) {
            return Err(format!("{wanted} is not an address of this host"));
        }
        if source != Some(wanted) {
            return Err(match source {
                Some(source) => format!("it offers {source} instead of {wanted}"),
                None => "it does not say at which address it is".to_owned(),
            });
        }
    }
    match source {
        // Its name would be nobody's, and datagrams carry it.
        Some(address) if address.is_unspecified() => {
            Err("it does not say at which address it is".to_owned())
        }
        Some(address) => Ok((place(address), plan)),
        None => Err("it does not say at which address it is".to_owned()),
    }
}

/// Addresses of this format are made of a host's address and a port, which the endpoint's number
/// says; of any other, the peer has to be asked.
pub(super) fn is_of_ip(format: u32) -> bool {
    matches!(format, FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6)
}

impl Plan {
    /// The plan for an offer, or the first thing about it that cannot be lived with.
    fn of(info: Info<'_>) -> Result<Self, Unfit> {
        let provider = info.provider().into_owned();
        let (mode, mr_mode) = (info.mode(), modern_mr_mode(info.mr_mode()));
        if info.caps() & FI_MSG == 0 {
            return Err("it offers no messages".to_owned());
        }
        let format = info.addr_format();
        if format == FI_ADDR_STR {
            return Err("its addresses are text, of any length".to_owned());
        }
        let unknown = mode & !MODES;
        if unknown != 0 {
            return Err(format!(
                "it wants mode {unknown:#x}, which is not supported"
            ));
        }
        let unknown = mr_mode & !MR_MODES & !FI_MR_HMEM;
        if unknown != 0 {
            return Err(format!(
                "it wants registration mode {unknown:#x}, which is not supported"
            ));
        }
        let prefix = match mode & FI_MSG_PREFIX {
            0 => 0,
            _ => info.msg_prefix_size(),
        };
        if prefix > PREFIX_MAX {
            return Err(format!(
                "its prefix has {prefix} bytes, more than {PREFIX_MAX}"
            ));
        }
        let name = info.src_addr().len();
        if name > NAME_MAX {
            return Err(format!(
                "its addresses have {name} bytes, more than {NAME_MAX}"
            ));
        }
        // usnic counts the prefix in this, efa does not. What is lost where it is not counted is
        // some bytes of a jumbo frame.
        let frame_max = info.max_msg_size().saturating_sub(prefix).min(FRAME_MAX);
        if frame_max < DATAGRAM_MIN + frame::HEADER_MAX {
            return Err(format!(
                "its messages have {frame_max} bytes, too few for a datagram of {DATAGRAM_MIN}"
            ));
        }
        let software = provider == "udp";
        Ok(Self {
            register: mr_mode & FI_MR_LOCAL != 0 || mode & FI_LOCAL_MR != 0,
            batch_max: if software { 1 } else { GSO_BATCH },
            software,
            // The invariant CRC of InfiniBand and RoCE.
            checked: provider == "verbs",
            terms: Terms {
                provider,
                address_format: format,
                shared_queue: false,
                entries: Entries::Plain,
                wait: Wait::Fd,
                prefix,
                // Injections have no completion that could be waited for: a provider that does not
                // look after its queues would be overrun.
                inject_max: match info.resource_mgmt() {
                    FI_RM_DISABLED => 0,
                    _ => info.inject_size().min(frame_max),
                },
                frame_max,
                multi_recv: false,
                mr_endpoint: false,
                mr_prov_key: mr_mode & FI_MR_PROV_KEY != 0,
                mr_key_bytes: match info.mr_key_size() {
                    0 => 8,
                    bytes => bytes.min(8),
                },
                virt_addr: mr_mode & FI_MR_VIRT_ADDR != 0,
                tx_depth: info.tx_size().max(1),
                rx_depth: info.rx_size().max(1),
            },
        })
    }

    /// The longest datagram an endpoint of this name sends.
    pub(super) fn datagram_max(&self, name: &FabricAddress) -> usize {
        self.terms.frame_max.saturating_sub(frame::header_len(name))
    }
}
