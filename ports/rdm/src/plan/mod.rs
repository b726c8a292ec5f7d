//! Plan: the path of each class of message, derived from a provider's offer.
//!
//! ```text
//!   Offer (from fi_info)                     Plan
//!     caps, mode, mr_mode   --Plan::of-->      small    fi_inject up to `inject_max`
//!     sizes, order, counts       |             medium   copied into a slot of `frame_max`
//!                                |             large    RMA reads where registration is real,
//!                                |                      else copied, slot by slot
//!                                `-> error: the first requirement that is not met
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

/// Paths of messages over a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// Parameters for opening the provider's objects. [`OpenParams::prefix`] is equal for both directions: a posted
    /// buffer has those bytes free and counts them in its length, and so does the length of a completed receive. RMA
    /// has no prefix.
    pub terms: OpenParams,
    /// True if each context must point to its own `fi_context2`.
    pub context_bytes: bool,
    /// True if buffers of sends and receives must be registered, and their `desc` passed.
    pub mr_local: bool,
    /// Properties of a receiver's reads of large messages; `None`: they are copied like many medium ones.
    pub rma: Option<Reads>,
    /// Reason why `rma` is `None` although the provider has reads.
    pub unread: Option<String>,
}

/// Properties of `fi_read` of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reads {
    /// True if remote addresses are the peer's virtual addresses; otherwise offsets into the registration.
    pub virt_addr: bool,
    /// Longest single read, in bytes.
    pub max_read: usize,
    /// True if a failed read breaks the connection to its peer, so that later sends over it may be lost.
    pub connected: bool,
}

impl Plan {
    /// Builds the plan for `offer`, or returns the reason why there is none.
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
                // The manual does not count the prefix in this limit (fi_getinfo, FI_MSG_PREFIX).
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

    /// Gives up reads, because memory of messages would not be safe from them.
    pub(crate) fn copy_all(&mut self, why: String) {
        self.rma = None;
        self.unread = Some(why);
    }

    /// Returns the path of large messages, as text.
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

/// Returns the reads of an offer. If registration is not required, as for software, the peer's processor does the read,
/// which closing the registration does not stop.
fn reads(offer: &Offer, mr_mode: c_int) -> Option<Reads> {
    let caps = FI_RMA | FI_READ | FI_REMOTE_READ;
    let real = mr_mode & (FI_MR_ALLOCATED | FI_MR_PROV_KEY) != 0 && !is_software(&offer.provider);
    (real && offer.caps & caps == caps).then(|| Reads {
        virt_addr: mr_mode & FI_MR_VIRT_ADDR != 0,
        max_read: offer.max_msg_size.min(READ_MAX),
        // rxm makes a connection to each peer.
        connected: matches!(offer.protocol, FI_PROTO_RXM | FI_PROTO_RXM_TCP),
    })
}

/// Returns the first property of `offer` that cannot be used.
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

/// Returns whether `provider` moves bytes only with this machine's processor and kernel.
pub(crate) fn is_software(provider: &str) -> bool {
    let core = provider.split(';').next().unwrap_or(provider);
    SOFTWARE.contains(&core)
}

/// Returns true for releases of rxm that lose multi-receives. With 1.17, messages are lost if more arrive than the
/// posted buffers hold: of twelve clients that sent at once, three to nine lost one, in every run; with a receive per
/// message none did, nor with 2.x. Which release fixed it is unknown.
fn loses_multi_receives(offer: &Offer) -> bool {
    is_rxm(&offer.provider) && offer.release < (2, 0)
}

fn is_rxm(provider: &str) -> bool {
    provider.split(';').any(|layer| layer == "ofi_rxm")
}

/// Returns the frame length of `ofi_rxm` for a body of up to `most` bytes. rxm sends as many bytes at once as its
/// variable says, including 64 of its own header in older releases. It splits longer frames; with 1.17, after a peer
/// has died within one, later ones from other peers are lost.
fn rxm_frame(most: usize, set: Option<&str>) -> usize {
    let set = set.and_then(|text| text.parse::<usize>().ok());
    let most = HEADERS + most;
    set.map_or(most, |bytes| bytes.saturating_sub(RXM_HEADER).min(most))
}

/// Returns the longest frame for an offer, in bytes.
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

/// Supported registration modes. Not supported: `FI_MR_RAW` (keys longer than 8 bytes), `FI_MR_MMU_NOTIFY` (page tables
/// are not watched), `FI_MR_RMA_EVENT` (no counters).
pub(crate) const MR_MODES: c_int =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// Core providers that are software.
const SOFTWARE: [&str; 6] = ["tcp", "net", "udp", "sockets", "shm", "sm2"];

/// Bytes before the body in a frame: the frame's header and the packet's.
pub(crate) const HEADERS: usize = FRAME_LEN + HEADER_LEN;

/// Longest body over `ofi_rxm`, in bytes.
const SLOT_RXM: usize = 16 * 1024;

/// Releases that have [`RXM_EAGER_VARIABLE`].
const RXM_EAGER: RangeInclusive<(u32, u32)> = (1, 13)..=(1, 18);

/// Bytes of rxm's header in older releases.
const RXM_HEADER: usize = 64;

/// Longest body over other software, in bytes.
const SLOT_SOFTWARE: usize = 64 * 1024;

/// Longest body over other hardware, in bytes: below the rendezvous thresholds of psm3 and efa (64 000 bytes), while
/// cxi continues in hardware above its own. Longer bodies save little, and each multi-receive buffer loses up to this
/// much at its end.
const SLOT: usize = 32 * 1024;

/// Minimum message length of a provider in bytes: fits the 4 KiB body that [`mx_proto::port::Limits::packet_max`]
/// promises.
const FRAME_MIN: usize = HEADERS + mx_proto::port::PACKET_LEAST;

/// Longest single read, in bytes; efa and verbs take at most 1 GiB.
const READ_MAX: usize = 1 << 30;

/// Size of a key on the wire, in bytes; longer ones are `FI_MR_RAW`.
const KEY_BYTES_MAX: usize = 8;

/// Longest address in an endpoint address, in bytes.
const ADDRESS_MAX: usize = 256;

/// Longest accepted prefix in bytes; providers ask for one or two headers, far less than this.
const PREFIX_MAX: usize = 1024;

#[cfg(test)]
mod tests;
