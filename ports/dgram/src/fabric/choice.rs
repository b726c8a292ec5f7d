//! Choice of the provider, and the plan for using its datagrams.
//!
//! ```text
//!   the provider asked for, or each preferred one
//!        |  hints: exact name, FI_EP_DGRAM, FI_MSG
//!        v
//!   fi_getinfo --> offers --> Plan::of, source address --> the one that most peers can reach
//!        ENODATA: next provider                                 |
//!                                                     OpenParams for the objects
//! ```
//!
//! Owns: hints, preferences, the choice among offers, limits.
//! Out of scope: opening, peers.

use super::frame;
use super::name::{FabricAddress, NAME_MAX};
use libfabric_sys::abi::{
    FI_ADDR_STR, FI_ENODATA, FI_EP_DGRAM, FI_LOCAL_MR, FI_MR_ALLOCATED, FI_MR_LOCAL,
    FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MSG, FI_MSG_PREFIX, FI_RECV, FI_RM_DISABLED, FI_SEND,
    FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, fi_major, fi_minor,
};
use libfabric_sys::{Hints, Info, InfoList, Library};
use mx_port_base::interfaces::is_of_this_host;
use mx_port_fabric::{
    AddressPlace, Entries, OpenParams, Prefix, Wait, modern_mr_mode, offers, place, source,
};
use mx_port_fabric::{Devices, Finding, RdmError, Verdict};
use std::ffi::c_int;
use std::net::IpAddr;

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;

/// Chosen provider.
#[derive(Debug)]
pub(super) struct Choice {
    /// Single entry of the chosen offer.
    pub info: InfoList,
    /// Plan made from that entry.
    pub plan: Plan,
}

/// Ways in which datagrams are sent and received over a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// Parameters for opening the objects.
    pub terms: OpenParams,
    /// True if buffers must be registered, and their `desc` passed.
    pub register: bool,
    /// Maximum number of datagrams per call; more than 1 where `FI_MORE` saves a doorbell.
    pub batch_max: usize,
    /// True if this machine's kernel carries the datagrams.
    pub software: bool,
    /// True if the fabric has an end-to-end checksum.
    pub checked: bool,
}

/// Providers tried by default, best first. `udp` sends one datagram at a time over kernel sockets, so it comes last.
const PREFERENCE: [&str; 4] = ["usnic", "efa", "verbs", "udp"];

/// Providers that are never used, with the reason.
const NEVER: &[(&str, &str)] = &[
    ("sockets", "it is deprecated and only there for development"),
    ("ofi_rxd", "it has reliability of its own underneath"),
];

/// Supported registration modes. Most are free, because no peer accesses this memory remotely. `FI_MR_ENDPOINT` is not
/// supported: a registration bound to an endpoint that uses it until closed could be closed neither before nor after
/// the endpoint; no known provider requires it for buffers.
const MR_MODES: c_int = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

/// Smallest usable maximum datagram in bytes, as [`mx_proto::reliability::Capacity`] promises.
pub(super) const DATAGRAM_MIN: usize = 548;

/// Longest frame in bytes, whatever the provider's limit: UDP's maximum over IPv4.
const FRAME_MAX: usize = 65_507;

/// Longest accepted prefix in bytes; providers ask for one or two headers, far less than this.
const PREFIX_MAX: usize = 1024;

/// Datagrams in a batch over hardware: a doorbell costs about as much as ten work requests.
const GSO_BATCH: usize = 16;

/// Reason why a provider with datagrams cannot be used.
type Unfit = String;

impl Choice {
    /// Chooses a provider. Without `bind`, a provider with IP addresses gets the first one that other machines can
    /// reach, and loopback only if there is nothing else.
    pub(super) fn make(
        library: &Library,
        provider: Option<&str>,
        bind: Option<IpAddr>,
    ) -> Result<Self, RdmError> {
        if let Some(name) = provider {
            let provider = name.to_owned();
            if let Some(why) = offers::refused(name, NEVER) {
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

/// Returns the error for a missing provider, which lists the existing ones.
fn missing(library: &Library, asked: &str, bind: Option<IpAddr>) -> RdmError {
    let asked = offers::request(asked, bind);
    let mut found: Vec<Finding> = Vec::new();
    let all = hints(library, None).and_then(|hints| offers::query(library, &hints, None));
    for info in all.iter().flatten() {
        let provider = info.provider().into_owned();
        if found.iter().any(|finding| finding.provider == provider) {
            continue;
        }
        let verdict = match offers::refused(&provider, NEVER) {
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

/// Returns the best offer of one provider; `None` if it offers nothing here.
fn find(library: &Library, name: &str, bind: Option<IpAddr>) -> Result<Option<Choice>, Unfit> {
    let failed = |code| Err(format!("fi_getinfo: {} ({code})", library.strerror(code)));
    let hints = match hints(library, Some(name)) {
        Ok(hints) => hints,
        Err(code) => return failed(code),
    };
    let list = match offers::query(library, &hints, bind) {
        Ok(offers) => offers,
        // The provider may not accept an IP address.
        Err(FI_ENODATA) => match offers::query(library, &hints, None) {
            Ok(offers) => offers,
            Err(FI_ENODATA) => return Ok(None),
            Err(code) => return failed(code),
        },
        Err(code) => return failed(code),
    };
    let devices = match bind {
        Some(_) => devices(library, name),
        None => Devices::default(),
    };
    // A request by name may also return providers layered over the named one.
    let its = |info: &Info<'_>| info.provider() == name && info.ep_type() == FI_EP_DGRAM;
    match offers::best(list.iter().filter(its), |info| judge(info, bind, &devices)) {
        Ok((info, plan)) => {
            let info = list.keep(info).map_err(|code| library.strerror(code))?;
            Ok(Some(Choice { info, plan }))
        }
        Err(Some(why)) => Err(why),
        Err(None) => Ok(None),
    }
}

fn hints(library: &Library, name: Option<&str>) -> Result<Hints, i32> {
    offers::endpoint_hints(
        library,
        name,
        (FI_EP_DGRAM, FI_MSG | FI_SEND | FI_RECV, MR_MODES),
    )
}

/// Returns the provider's devices with IP addresses. Endpoints of other kinds are on the same devices.
fn devices(library: &Library, name: &str) -> Devices {
    let hints = offers::hints(library, Some(name), MR_MODES);
    hints.map_or_else(|_| Devices::default(), |hints| Devices::of(library, &hints))
}

fn judge(
    info: Info<'_>,
    bind: Option<IpAddr>,
    devices: &Devices,
) -> Result<(AddressPlace, Plan), Unfit> {
    let plan = Plan::of(info)?;
    if !is_of_ip(info.addr_format()) {
        // A card's address, known only to its driver. A device without an IP address cannot be checked against `bind`.
        if let Some(wanted) = bind.filter(|_| !devices.is_empty())
            && !devices
                .addresses(&info.domain_name())
                .any(|address| address == wanted)
        {
            return Err(format!(
                "it has nothing at {wanted}, but elsewhere on this host"
            ));
        }
        return Ok((AddressPlace::Network, plan));
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
        // Datagrams carry the sender's name, so an unspecified address is useless.
        Some(address) if address.is_unspecified() => {
            Err("it does not say at which address it is".to_owned())
        }
        Some(address) => Ok((place(address), plan)),
        None => Err("it does not say at which address it is".to_owned()),
    }
}

/// Returns true for address formats of an IP address and a port, which follow from the endpoint number; for others
/// peers must be asked.
pub(super) fn is_of_ip(format: u32) -> bool {
    matches!(format, FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6)
}

impl Plan {
    /// Builds the plan for an offer, or returns the first reason why it cannot be used.
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
        offers::check_modes(mode, mr_mode, MR_MODES)?;
        let of_mode = |mode: u64| match mode & FI_MSG_PREFIX {
            0 => 0,
            _ => info.msg_prefix_size(),
        };
        let prefix = Prefix {
            send: of_mode(info.tx_mode()),
            receive: of_mode(info.rx_mode()),
        };
        let longest = prefix.send.max(prefix.receive);
        if longest > PREFIX_MAX {
            return Err(format!(
                "its prefix has {longest} bytes, more than {PREFIX_MAX}"
            ));
        }
        let name = info.src_addr().len();
        if name > NAME_MAX {
            return Err(format!(
                "its addresses have {name} bytes, more than {NAME_MAX}"
            ));
        }
        // usnic counts the prefix in the message size, efa does not. Subtracting it for both wastes some bytes of a
        // jumbo frame on efa.
        let frame_max = info
            .max_msg_size()
            .saturating_sub(prefix.send)
            .min(FRAME_MAX);
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
            // InfiniBand and RoCE have an invariant CRC.
            checked: provider == "verbs",
            terms: OpenParams {
                provider,
                address_format: format,
                shared_queue: false,
                entries: Entries::Plain,
                wait: Wait::Fd,
                prefix,
                // Injections have no completion to wait for, so they would overrun the queues of a provider that does
                // not guard them.
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

    /// Bytes of a buffer, prefix included.
    pub(super) fn buffer_len(&self) -> usize {
        let Prefix { send, receive } = self.terms.prefix;
        send.max(receive) + self.terms.frame_max
    }

    /// Bytes of the longest datagram that an endpoint of this name sends.
    pub(super) fn datagram_max(&self, name: &FabricAddress) -> usize {
        self.terms.frame_max.saturating_sub(frame::header_len(name))
    }
}
