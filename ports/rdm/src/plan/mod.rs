//! The plan: the path of each class of message, from a provider's offer.
//!
//! ```text
//!   Offer (what fi_info says)                Plan
//!     caps, mode, mr_mode   --Plan::of-->      small    fi_inject up to `inject_max`
//!     sizes, order, counts       |             medium   copied into a slot of `frame_max`
//!                                |             large    RMA reads where registration is real,
//!                                |                      else copied, slot by slot
//!                                `-> why not: the first requirement that is not met
//! ```
//!
//! Owns: the sizes and the choice of paths.
//! Out of scope: libfabric's objects.

use crate::frame::FRAME_LEN;
use libfabric_sys::abi::{
    FI_CONTEXT, FI_CONTEXT2, FI_EP_RDM, FI_LOCAL_MR, FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_LOCAL,
    FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MSG, FI_MSG_PREFIX, FI_MULTI_RECV, FI_ORDER_SAS,
    FI_PROTO_RXM, FI_PROTO_RXM_TCP, FI_READ, FI_REMOTE_READ, FI_RM_DISABLED, FI_RMA,
};
use libfabric_sys::{RXM_BUFFER_VARIABLE, RXM_EAGER_VARIABLE};
use mx_port_fabric::{Entries, Offer, OpenParams, Prefix, Wait, modern_mr_mode, offers};
use mx_proto::port::HEADER_LEN;
use std::ffi::c_int;
use std::fmt;
use std::ops::RangeInclusive;

/// The paths of messages over one provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// The parameters for opening the provider's objects. [`OpenParams::prefix`] is the same both ways: who posts a
    /// buffer keeps those bytes free and counts them in its length, and the length of a completed receive counts
    /// them as well. RMA has none.
    pub terms: OpenParams,
    /// Contexts must point to an `fi_context2` of their own.
    pub context_bytes: bool,
    /// Buffers of sends and receives must be registered, and their `desc` given.
    pub mr_local: bool,
    /// The way in which a receiver reads large messages; `None`: they are copied as many medium
    /// ones.
    pub rma: Option<Reads>,
    /// Why there is none, though the provider has reads.
    pub unread: Option<String>,
}

/// `fi_read` of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reads {
    /// Remote addresses are the peer's virtual ones; otherwise they count from 0 at the beginning of
    /// the registration.
    pub virt_addr: bool,
    /// The longest single read.
    pub max_read: usize,
    /// A read that fails ends the connection to that peer, and what is sent over it afterwards may vanish.
    pub connected: bool,
}

impl Plan {
    /// The plan for `offer`, or the reason why there is none.
    pub(crate) fn of(offer: &Offer) -> Result<Self, String> {
        let mr_mode = modern_mr_mode(offer.mr_mode);
        check(offer)?;
        let prefix = if offer.mode & FI_MSG_PREFIX != 0 {
            offer.prefix_size
        } else {
            0
        };
        let frame_max = frame_max(offer).min(offer.max_msg_size);
        let rma = reads(offer, mr_mode);
        Ok(Self {
            context_bytes: offer.mode & (FI_CONTEXT | FI_CONTEXT2) != 0,
            mr_local: mr_mode & FI_MR_LOCAL != 0 || offer.mode & FI_LOCAL_MR != 0,
            rma,
            unread: None,
            terms: OpenParams {
                provider: offer.provider.clone(),
                address_format: offer.address_format,
                shared_queue: true,
                entries: Entries::Tagged,
                wait: Wait::Fd,
                prefix: Prefix {
                    send: prefix,
                    receive: prefix,
                },
                // The manual counts no prefix in this limit (fi_getinfo, FI_MSG_PREFIX).
                inject_max: offer.inject_size.min(frame_max),
                frame_max,
                multi_recv: offer.caps & FI_MULTI_RECV != 0 && !loses_multi_receives(offer),
                mr_endpoint: mr_mode & FI_MR_ENDPOINT != 0,
                mr_prov_key: mr_mode & FI_MR_PROV_KEY != 0,
                mr_key_bytes: match offer.mr_key_bytes {
                    0 => KEY_BYTES_MAX,
                    bytes => bytes,
                },
                virt_addr: rma.is_some_and(|reads| reads.virt_addr),
                tx_depth: offer.tx_size.max(1),
                rx_depth: offer.rx_size.max(1),
            },
        })
    }

    /// Bytes before a frame in every buffer.
    pub(crate) fn prefix(&self) -> usize {
        self.terms.prefix.send
    }

    /// No reads: memory of messages would not be safe from them.
    pub(crate) fn copy_all(&mut self, why: String) {
        self.rma = None;
        self.unread = Some(why);
    }

    /// The path of large messages, as text.
    pub(crate) fn large(&self) -> String {
        match (self.rma, &self.unread) {
            (Some(Reads { virt_addr, .. }), _) if virt_addr => {
                "by RMA read (virtual addresses)".into()
            }
            (Some(_), _) => "by RMA read (offsets)".into(),
            (None, Some(why)) => format!("copied: {why}"),
            (None, None) => "copied".into(),
        }
    }
}

/// Without required registrations, a read is done by the peer's processor, which closing the
/// registration does not stop. That is so with software.
fn reads(offer: &Offer, mr_mode: c_int) -> Option<Reads> {
    let caps = FI_RMA | FI_READ | FI_REMOTE_READ;
    let real = mr_mode & (FI_MR_ALLOCATED | FI_MR_PROV_KEY) != 0 && !is_software(&offer.provider);
    (real && offer.caps & caps == caps).then(|| Reads {
        virt_addr: mr_mode & FI_MR_VIRT_ADDR != 0,
        max_read: offer.max_msg_size.min(READ_MAX),
        // It makes a connection to each peer.
        connected: matches!(offer.protocol, FI_PROTO_RXM | FI_PROTO_RXM_TCP),
    })
}

/// The first thing about `offer` that cannot be lived with.
fn check(offer: &Offer) -> Result<(), String> {
    let address = offer.address_len;
    Err(if offer.ep_type != FI_EP_RDM {
        format!("endpoint type {} is not reliable datagram", offer.ep_type)
    } else if offer.caps & FI_MSG == 0 {
        "it offers no messages".to_owned()
    } else if offer.tx_order & offer.rx_order & FI_ORDER_SAS == 0 {
        "its messages may overtake each other".to_owned()
    } else if offer.resource_mgmt == FI_RM_DISABLED {
        "it may overrun its queues".to_owned()
    } else if let Err(why) = offers::check_modes(offer.mode, offer.mr_mode, MR_MODES) {
        why
    } else if offer.mr_key_bytes > KEY_BYTES_MAX {
        format!("its keys have {} bytes, more than 8", offer.mr_key_bytes)
    } else if offer.max_msg_size < FRAME_MIN {
        let bytes = offer.max_msg_size;
        format!("its messages have {bytes} bytes, fewer than {FRAME_MIN}")
    } else if address > ADDRESS_MAX {
        format!("its addresses have {address} bytes, more than {ADDRESS_MAX}")
    } else if offer.mode & FI_MSG_PREFIX != 0 && offer.prefix_size > PREFIX_MAX {
        let bytes = offer.prefix_size;
        format!("its prefix has {bytes} bytes, more than {PREFIX_MAX}")
    } else {
        return Ok(());
    })
}

/// Whether `provider` moves bytes with this host's processor and kernel only.
pub(crate) fn is_software(provider: &str) -> bool {
    let core = provider.split(';').next().unwrap_or(provider);
    SOFTWARE.contains(&core)
}

/// The multi-receives of 1.17's rxm lose messages when more arrive than the posted buffers hold:
/// of twelve clients that sent at once, three to nine lost one, in every run; with a receive for
/// each message none did, nor with 2.x. When it was mended is not known.
fn loses_multi_receives(offer: &Offer) -> bool {
    is_rxm(&offer.provider) && offer.release < (2, 0)
}

fn is_rxm(provider: &str) -> bool {
    provider.split(';').any(|layer| layer == "ofi_rxm")
}

/// A frame of `ofi_rxm` with a body of up to `most` bytes, of which it sends as many at once as its variable
/// says, 64 of them its own header's in older releases. It cuts longer ones into several messages; with
/// 1.17, once a peer has died in the middle of one, later ones from others are lost.
fn rxm_frame(most: usize, set: Option<&str>) -> usize {
    let set = set.and_then(|text| text.parse::<usize>().ok());
    let most = HEADERS + most;
    set.map_or(most, |bytes| bytes.saturating_sub(RXM_HEADER).min(most))
}

/// The longest frame for what is offered.
fn frame_max(
    Offer {
        provider, release, ..
    }: &Offer,
) -> usize {
    let set = |name| std::env::var(name).ok();
    if is_rxm(provider) && is_software(provider) && RXM_EAGER.contains(release) {
        rxm_frame(SLOT_SOFTWARE, set(RXM_EAGER_VARIABLE).as_deref())
    } else if is_rxm(provider) {
        rxm_frame(SLOT_RXM, set(RXM_BUFFER_VARIABLE).as_deref())
    } else if is_software(provider) {
        HEADERS + SLOT_SOFTWARE
    } else {
        HEADERS + SLOT
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "inject up to {}, slots of {}, {} receive, large messages {}",
            self.terms.inject_max,
            self.terms.frame_max,
            if self.terms.multi_recv {
                "multi"
            } else {
                "single"
            },
            self.large()
        )?;
        if self.prefix() != 0 {
            write!(f, ", prefix of {}", self.prefix())?;
        }
        let traits = [
            (self.mr_local, "local registration"),
            (self.terms.mr_endpoint, "registration by endpoint"),
            (self.context_bytes, "context bytes"),
        ];
        for (_, name) in traits.into_iter().filter(|(has, _)| *has) {
            write!(f, ", {name}")?;
        }
        Ok(())
    }
}

/// Registration modes that we support. Not `FI_MR_RAW` (keys longer than 8 bytes), not
/// `FI_MR_MMU_NOTIFY` (page tables are not watched), not `FI_MR_RMA_EVENT` (no counters).
pub(crate) const MR_MODES: c_int =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// Core providers that are software.
const SOFTWARE: [&str; 6] = ["tcp", "net", "udp", "sockets", "shm", "sm2"];

/// Bytes before the body in a frame: its own header, and the packet's.
pub(crate) const HEADERS: usize = FRAME_LEN + HEADER_LEN;

/// The longest body over `ofi_rxm`.
const SLOT_RXM: usize = 16 * 1024;

/// Releases that have [`RXM_EAGER_VARIABLE`].
const RXM_EAGER: RangeInclusive<(u32, u32)> = (1, 13)..=(1, 18);

/// Bytes of its header in older releases.
const RXM_HEADER: usize = 64;

/// The longest body over other software.
const SLOT_SOFTWARE: usize = 64 * 1024;

/// The longest body over other hardware: below the rendezvous thresholds of psm3 and efa (64 000 bytes),
/// while cxi goes on in hardware above its own. Longer ones save little, and each multi-receive
/// buffer loses up to this much at its end.
const SLOT: usize = 32 * 1024;

/// The shortest longest message: with the 4 KiB body that [`mx_proto::port::Limits::packet_max`]
/// promises.
const FRAME_MIN: usize = HEADERS + mx_proto::port::PACKET_LEAST;

/// The longest read asked for at once; efa and verbs take at most 1 GiB.
const READ_MAX: usize = 1 << 30;

/// A key travels in 8 bytes; longer ones are `FI_MR_RAW`.
const KEY_BYTES_MAX: usize = 8;

/// The longest address an endpoint address carries.
const ADDRESS_MAX: usize = 256;

/// The longest prefix: what providers ask for is a header or two, far below this.
const PREFIX_MAX: usize = 1024;

#[cfg(test)]
mod tests;
