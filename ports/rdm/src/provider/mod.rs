//! Choice of a provider and of one of its offers.
//!
//! ```text
//!   MX_PROVIDER, or each preferred provider (rank)
//!        |  hints: exact name, RDM, ordered messages, one profile of capabilities
//!        v
//!   fi_getinfo --> offers --> Plan::of, source address --> best --> Choice
//!        ENODATA: plainer profile, next provider                      |
//!        ^                                                          open: access, Fabric
//!        `----------------------- it does not open -------------------'
//!   survey: likewise for every provider, with the results
//! ```
//!
//! Two sides with different choices find out when they exchange endpoint addresses, which contain the provider's name.
//!
//! Owns: hints, and the choice among offers. Providers that fail to open are not chosen.
//! Out of scope: peers.

mod rank;
mod survey;

pub use survey::survey;

use super::access;
use super::fabric::Fabric;
use super::plan::{MR_MODES, Plan, is_software};
use super::{Device, RdmOptions};
use libfabric_sys::abi::{
    FI_ENODATA, FI_EP_RDM, FI_MSG, FI_MULTI_RECV, FI_ORDER_SAS, FI_READ, FI_RECV, FI_REMOTE_READ,
    FI_RM_ENABLED, FI_RMA, FI_SEND,
};
use libfabric_sys::{Info, InfoList, Library};
use mx_port_base::interfaces::is_of_this_host;
use mx_port_fabric::RdmError;
use mx_port_fabric::{AddressPlace, Offer, offers, place, source};
use rank::{ProviderRank, has_ip_addresses, preference};
use std::net::IpAddr;
use std::sync::Arc;

/// Chosen provider, its offer, and the plan for it.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Single entry of `fi_getinfo`.
    pub info: InfoList,
    /// Paths of messages.
    pub plan: Plan,
}

impl Choice {
    /// Chooses by the options: the first provider for which `open` succeeds. Without an address to bind to, a provider
    /// with IP addresses gets the first one that other machines can reach, in the order of the interfaces, and loopback
    /// only if there is nothing else.
    pub(crate) fn make<T>(
        library: &Library,
        options: &RdmOptions,
        open: impl Fn(Self) -> Result<T, RdmError>,
    ) -> Result<T, RdmError> {
        let open = |mut choice: Self| {
            choice.plan.terms.wait = options.wait;
            open(choice)
        };
        if let Some(name) = &options.provider {
            return open(Self::forced(library, options, name)?);
        }
        let mut failed = None;
        for name in preference(options.hardware_only) {
            match find(library, name, &options.device) {
                Ok(choice) => match open(choice) {
                    Ok(opened) => return Ok(opened),
                    Err(error) => {
                        log::warn!("rdm: provider {name} is not used: {error}");
                        failed.get_or_insert(error);
                    }
                },
                Err(Missing::Absent) => (),
                Err(Missing::Unfit(why)) => log::info!("rdm: provider {name} is not used: {why}"),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let asked = if options.hardware_only {
            "fabric hardware"
        } else {
            "any provider"
        };
        Err(RdmError::NoProvider {
            asked: offers::request(asked, options.device.bind),
            found: survey::unopened(library, &options.device),
        })
    }

    /// Gives up reads unless a test shows that closing a registration ends access. Call it before opening.
    pub(crate) fn tried(mut self, library: &Arc<Library>) -> Self {
        if self.plan.rma.is_some()
            && let Err(why) = access::ends_with_registration(library, &self)
        {
            let place = self.place();
            log::warn!("{place}: large messages are copied: {why}");
            self.plan.copy_all(why);
        }
        self
    }

    /// Tests and opens the provider.
    pub(crate) fn open(self, library: &Arc<Library>) -> Result<(Self, Fabric), RdmError> {
        let choice = self.tried(library);
        let fabric = Fabric::open(library, &choice)?;
        Ok((choice, fabric))
    }

    /// IP address of the interface, if there is one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.info.first().and_then(|info| source(info.src_addr()))
    }

    /// Name of the device.
    pub(crate) fn domain(&self) -> String {
        let first = self.info.first();
        first.map_or_else(String::new, |info| info.domain_name().into_owned())
    }

    /// Returns provider and device, for logs.
    pub(crate) fn place(&self) -> String {
        let at = self.address().map(|address| format!(" at {address}"));
        let at = at.unwrap_or_default();
        format!("provider {}, device {}{at}", self.provider(), self.domain())
    }

    /// Name of the provider, layers joined by `;`.
    pub(crate) fn provider(&self) -> &str {
        &self.plan.terms.provider
    }

    fn forced(library: &Library, options: &RdmOptions, name: &str) -> Result<Self, RdmError> {
        let provider = name.to_owned();
        if let ProviderRank::Never(why) = ProviderRank::of(name) {
            let why = why.to_owned();
            return Err(RdmError::Refused { provider, why });
        }
        if options.hardware_only && is_software(name) {
            let why = "it is software, and only hardware is wanted".to_owned();
            return Err(RdmError::Refused { provider, why });
        }
        find(library, name, &options.device).map_err(|missing| match missing {
            Missing::Unfit(why) => RdmError::Unfit { provider, why },
            Missing::Absent => RdmError::NoProvider {
                asked: offers::request(&provider, options.device.bind),
                found: survey::unopened(library, &options.device),
            },
        })
    }
}

/// Reasons why a provider cannot be used.
#[derive(PartialEq, Eq, Debug)]
enum Missing {
    /// The provider offers nothing here.
    Absent,
    /// The provider offers nothing usable, for this reason.
    Unfit(String),
}

/// Returns the best offer of one provider.
fn find(library: &Library, name: &str, device: &Device) -> Result<Choice, Missing> {
    let bind = device.bind.filter(|_| has_ip_addresses(name));
    let device = &Device {
        bind,
        ..device.clone()
    };
    // Providers accept any address here, and fail when an endpoint is enabled.
    if let Some(address) = bind
        && !is_of_this_host(address)
    {
        let why = format!("{address} is not an address of this host");
        return Err(Missing::Unfit(why));
    }
    let mut missing = Missing::Absent;
    for profile in profiles(name) {
        let list = match query(library, name, profile.caps, bind) {
            Ok(list) => list,
            Err(FI_ENODATA) => continue,
            Err(code) => {
                let text = library.strerror(code);
                missing = Missing::Unfit(format!("fi_getinfo: {text} ({code})"));
                continue;
            }
        };
        // A request by name may also return providers layered over the named one.
        let its = list.iter().filter(|info| info.provider() == name);
        match offers::best(its, |info| judge(info, device)) {
            // Capabilities without a benefit are not requested.
            Ok((info, plan)) if plan.rma.is_some() || profile.plain => {
                return match list.keep(info) {
                    Ok(info) => Ok(Choice { info, plan }),
                    Err(code) => Err(Missing::Unfit(library.strerror(code))),
                };
            }
            Ok(_) => (),
            Err(Some(why)) => missing = Missing::Unfit(why),
            Err(None) => (),
        }
    }
    if let (Missing::Absent, Some(address)) = (&missing, bind)
        && query(library, name, FI_MSG, None).is_ok_and(|list| has(&list, name))
    {
        let why = format!("it has nothing at {address}, but elsewhere on this host");
        return Err(Missing::Unfit(why));
    }
    Err(missing)
}

fn has(offers: &InfoList, name: &str) -> bool {
    offers.iter().any(|info| info.provider() == name)
}

/// Rank of an offer; lower is better.
type Rank = (Copied, AddressPlace, usize);

/// True if large messages would be copied.
type Copied = bool;

fn judge(info: Info<'_>, device: &Device) -> Result<(Rank, Plan), String> {
    let plan = Plan::of(&Offer::of(info))?;
    let source = source(info.src_addr());
    if let (Some(wanted), Some(source)) = (device.bind, source)
        && wanted != source
    {
        return Err(format!("it offers {source} instead of {wanted}"));
    }
    let nowhere = || "it does not say at which IP address it is".to_owned();
    let place = match source {
        // Peers need the address; and `verbs` offers each device also at an InfiniBand address.
        Some(address) if address.is_unspecified() => return Err(nowhere()),
        None if has_ip_addresses(&plan.terms.provider) => return Err(nowhere()),
        Some(address) => place(address),
        None => AddressPlace::Network,
    };
    let nth = source.map_or(0, |address| device.place_of(address));
    Ok(((plan.rma.is_none(), place, nth), plan))
}

/// Set of capabilities to request.
#[derive(Clone, Copy)]
struct Profile {
    caps: u64,
    /// True if the profile is acceptable without reads.
    plain: bool,
}

/// Returns the capabilities to request, best first. Only those in use: providers may lack the tables of others.
fn profiles(name: &str) -> impl Iterator<Item = Profile> {
    let reads = FI_RMA | FI_READ | FI_REMOTE_READ;
    let messages = FI_MSG | FI_SEND | FI_RECV;
    [
        (messages | FI_MULTI_RECV | reads, false),
        (messages | FI_MULTI_RECV, true),
        (messages, true),
    ]
    .map(|(caps, plain)| Profile { caps, plain })
    .into_iter()
    // Reads of software are never used.
    .skip(usize::from(is_software(name)))
}

fn query(library: &Library, name: &str, caps: u64, bind: Option<IpAddr>) -> Result<InfoList, i32> {
    let mut hints = offers::endpoint_hints(library, Some(name), (FI_EP_RDM, caps, MR_MODES))?;
    hints
        .set_msg_order(FI_ORDER_SAS)
        .set_resource_mgmt(FI_RM_ENABLED);
    offers::query(library, &hints, bind)
}

#[cfg(test)]
pub(crate) mod tests;
