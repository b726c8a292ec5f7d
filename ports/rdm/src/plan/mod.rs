//! From what a provider offers to how each class of message goes over it.
//!
//! ```text
//!   Offer (what fi_info says)                Plan
//!     caps, mode, mr_mode   --Plan::of-->      small    fi_inject up to `inject_max`
//!     sizes, order, counts       |             medium   copied into a slot of `slot_bytes`
//!                                |             large    Rma | Lanes | Copied
//!                                `-> Unfit: the first thing that cannot be lived with
//!
//!   large:  registration means something, RMA reads     -> Rma      (the card reads)
//!           software, tagged, room for many endpoints   -> Lanes    (an endpoint per peer)
//!           anything else                               -> Copied   (through slots)
//! ```
//!
//! Owns: the sizes and the choice of paths.
//! Knows nothing of: libfabric's objects, which of several providers is best.

use libfabric_sys::abi::{
    FI_CONTEXT, FI_CONTEXT2, FI_EP_RDM, FI_LOCAL_MR, FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_HMEM,
    FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MSG, FI_MSG_PREFIX, FI_MULTI_RECV,
    FI_ORDER_SAS, FI_READ, FI_REMOTE_READ, FI_RM_DISABLED, FI_RMA, FI_RX_CQ_DATA, FI_TAGGED,
};
use mx_port_fabric::{Entries, Terms, Wait, modern_mr_mode};
use std::ffi::c_int;
use std::fmt;

/// What one `fi_info` says, as far as a plan depends on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    /// The version of the library.
    pub release: (u32, u32),
    /// The provider, layers joined by `;`.
    pub provider: String,
    /// `FI_EP_*`.
    pub ep_type: u32,
    /// Capabilities.
    pub caps: u64,
    /// What the provider wants of its user.
    pub mode: u64,
    /// What the provider wants of registrations.
    pub mr_mode: c_int,
    /// Bytes of a remote key.
    pub mr_key_bytes: usize,
    /// The shape of addresses.
    pub address_format: u32,
    /// Bytes of the endpoint's address, 0 where it is not known yet.
    pub address_len: usize,
    /// Order that sends keep.
    pub tx_order: u64,
    /// Order that receives keep.
    pub rx_order: u64,
    /// The longest message `fi_inject` takes.
    pub inject_size: usize,
    /// Segments of one send.
    pub iov_limit: usize,
    /// Sends that can be outstanding.
    pub tx_size: usize,
    /// Receives that can be outstanding.
    pub rx_size: usize,
    /// The longest message.
    pub max_msg_size: usize,
    /// Bytes before each buffer, with `FI_MSG_PREFIX`.
    pub prefix_size: usize,
    /// Which bits of a tag are carried; 0 is all of them.
    pub mem_tag_format: u64,
    /// `FI_RM_*`.
    pub resource_mgmt: u32,
    /// How many endpoints a domain is meant to have.
    pub ep_cnt: usize,
}

/// How messages go over one provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    /// The provider, layers joined by `;`.
    pub provider: String,
    /// The shape of addresses: `FI_SOCKADDR_IN` and the like.
    pub address_format: u32,
    /// The longest frame `Ep::inject` takes, the prefix not counted; 0 when nothing can be
    /// injected.
    pub inject_max: usize,
    /// Bytes that stand before the frame in every buffer sent or received, tagged ones too. Who
    /// posts the buffer keeps them free and counts them in its length; the length of a completed
    /// receive counts them as well. RMA has none.
    pub prefix: usize,
    /// The longest frame, prefix not counted.
    pub slot_bytes: usize,
    /// One posted buffer takes many messages.
    pub multi_recv: bool,
    /// Contexts must point to an `fi_context2` of their own.
    pub context_bytes: bool,
    /// Buffers of sends and receives must be registered, and their `desc` given.
    pub mr_local: bool,
    /// Registrations belong to an endpoint.
    pub mr_endpoint: bool,
    /// The provider chooses the keys of registrations.
    pub mr_prov_key: bool,
    /// Bytes of a key that we choose.
    pub mr_key_bytes: usize,
    /// How large messages go.
    pub large: Large,
    /// Segments of one send.
    pub iov_limit: usize,
    /// Low bits of a tag that arrive; the others must be 0.
    pub tag_bits: u32,
    /// Sends that can be outstanding on an endpoint.
    pub tx_depth: usize,
    /// Receives that can be outstanding on an endpoint.
    pub rx_depth: usize,
    /// Lanes there may be, whatever is asked for.
    pub lanes_max: usize,
    /// The queue of a lane is woken by its own descriptor; otherwise the shared endpoint's is
    /// readable for every socket of the domain.
    pub lanes_wake: bool,
    /// What has arrived must be handled before a lane is closed.
    pub lanes_calm: bool,
    /// How to wait for completions, if the queue can.
    pub wait: Wait,
    /// The longest message the provider takes.
    pub max_msg: usize,
}

/// How large messages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Large {
    /// `fi_read` of registered memory.
    Rma {
        /// Remote addresses are the peer's virtual ones; otherwise they count from 0 at the
        /// beginning of the registration.
        virt_addr: bool,
        /// The longest single read.
        max_read: usize,
    },
    /// Tagged messages into the posted buffer, over an endpoint for this peer alone, which can be
    /// closed at any time.
    Lanes,
    /// As many medium ones.
    Copied,
}

/// Why an offer cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unfit {
    /// Not a reliable connectionless endpoint.
    NotRdm(u32),
    /// No plain messages.
    NoMessages,
    /// Messages may overtake each other.
    Unordered,
    /// It may overrun its queues.
    Overruns,
    /// It wants something of its user that is not given: these mode bits.
    Mode(u64),
    /// It wants something of registrations that is not done: these mode bits.
    Registration(c_int),
    /// Its keys are too long.
    KeyBytes(usize),
    /// Its messages are too short for a frame.
    TooShort(usize),
    /// Its addresses do not fit into a card.
    AddressBytes(usize),
    /// Its prefix would be most of a slot.
    PrefixBytes(usize),
}

impl Plan {
    /// The plan for `offer`, or the reason why there is none.
    pub(crate) fn of(offer: &Offer) -> Result<Self, Unfit> {
        let mr_mode = modern_mr_mode(offer.mr_mode);
        check(offer, mr_mode)?;
        let prefix = if offer.mode & FI_MSG_PREFIX != 0 {
            offer.prefix_size
        } else {
            0
        };
        let slot_bytes = slot_bytes(&offer.provider).min(offer.max_msg_size);
        let mut plan = Self {
            provider: offer.provider.clone(),
            address_format: offer.address_format,
            // The manual counts no prefix in this limit (fi_getinfo, FI_MSG_PREFIX).
            inject_max: offer.inject_size.min(slot_bytes),
            prefix,
            slot_bytes,
            multi_recv: offer.caps & FI_MULTI_RECV != 0 && !loses_multi_receives(offer),
            context_bytes: offer.mode & (FI_CONTEXT | FI_CONTEXT2) != 0,
            mr_local: mr_mode & FI_MR_LOCAL != 0 || offer.mode & FI_LOCAL_MR != 0,
            mr_endpoint: mr_mode & FI_MR_ENDPOINT != 0,
            mr_prov_key: mr_mode & FI_MR_PROV_KEY != 0,
            mr_key_bytes: match offer.mr_key_bytes {
                0 => KEY_BYTES_MAX,
                bytes => bytes,
            },
            large: Large::Copied,
            iov_limit: offer.iov_limit.max(1),
            tag_bits: match offer.mem_tag_format {
                0 => u64::BITS,
                format => u64::BITS - format.leading_zeros(),
            },
            tx_depth: offer.tx_size.max(1),
            rx_depth: offer.rx_size.max(1),
            lanes_max: match is_rxm(&offer.provider) {
                true => LANES_RXM,
                false => offer.ep_cnt.saturating_sub(1),
            },
            // 2.x's tcp keeps all sockets of a domain in one epoll instance, which stands behind
            // the queue of each endpoint. All of them in one more would be more paths from one
            // socket than the kernel allows: 50 lanes, or 10 with two levels above.
            lanes_wake: is_rxm(&offer.provider),
            // 1.17's rxm handles messages over connections it has just closed, and crashes.
            lanes_calm: is_rxm(&offer.provider),
            wait: Wait::Fd,
            max_msg: offer.max_msg_size,
        };
        plan.large = plan.large_path(offer, mr_mode);
        Ok(plan)
    }

    /// What the provider's objects are opened and used on.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            provider: self.provider.clone(),
            address_format: self.address_format,
            shared_queue: true,
            entries: Entries::Tagged,
            wait: self.wait,
            prefix: self.prefix,
            inject_max: self.inject_max,
            frame_max: self.slot_bytes,
            multi_recv: self.multi_recv,
            mr_endpoint: self.mr_endpoint,
            mr_prov_key: self.mr_prov_key,
            mr_key_bytes: self.mr_key_bytes,
            virt_addr: matches!(
                self.large,
                Large::Rma {
                    virt_addr: true,
                    ..
                }
            ),
            iov_limit: self.iov_limit,
            tx_depth: self.tx_depth,
            rx_depth: self.rx_depth,
        }
    }

    fn large_path(&self, offer: &Offer, mr_mode: c_int) -> Large {
        let software = is_software(&self.provider);
        let reads = FI_RMA | FI_READ | FI_REMOTE_READ;
        // Where nothing has to be registered, a read is the peer's processor sending messages out
        // of memory that closing the registration does not give back.
        let real = mr_mode & (FI_MR_ALLOCATED | FI_MR_PROV_KEY) != 0 && !software;
        if real && offer.caps & reads == reads {
            return Large::Rma {
                virt_addr: mr_mode & FI_MR_VIRT_ADDR != 0,
                max_read: offer.max_msg_size.min(READ_MAX),
            };
        }
        // Endpoints of hardware are contexts of the card: few, and slow to open.
        let lanes = software
            && offer.caps & FI_TAGGED != 0
            && offer.ep_cnt >= LANE_ENDPOINTS
            && self.tag_bits >= LANE_TAG_BITS;
        if lanes { Large::Lanes } else { Large::Copied }
    }
}

/// The first thing about `offer` that cannot be lived with.
fn check(offer: &Offer, mr_mode: c_int) -> Result<(), Unfit> {
    if offer.ep_type != FI_EP_RDM {
        return Err(Unfit::NotRdm(offer.ep_type));
    }
    if offer.caps & FI_MSG == 0 {
        return Err(Unfit::NoMessages);
    }
    if offer.tx_order & offer.rx_order & FI_ORDER_SAS == 0 {
        return Err(Unfit::Unordered);
    }
    if offer.resource_mgmt == FI_RM_DISABLED {
        return Err(Unfit::Overruns);
    }
    // `FI_LOCAL_MR` is what `FI_MR_LOCAL` was before version 1.5.
    let mode = offer.mode & !MODES & !FI_LOCAL_MR;
    if mode != 0 {
        return Err(Unfit::Mode(mode));
    }
    let registration = mr_mode & !MR_MODES & !FI_MR_HMEM;
    if registration != 0 {
        return Err(Unfit::Registration(registration));
    }
    if offer.mr_key_bytes > KEY_BYTES_MAX {
        return Err(Unfit::KeyBytes(offer.mr_key_bytes));
    }
    if offer.max_msg_size < FRAME_MIN {
        return Err(Unfit::TooShort(offer.max_msg_size));
    }
    if offer.address_len > ADDRESS_MAX {
        return Err(Unfit::AddressBytes(offer.address_len));
    }
    if offer.mode & FI_MSG_PREFIX != 0 && offer.prefix_size > PREFIX_MAX {
        return Err(Unfit::PrefixBytes(offer.prefix_size));
    }
    Ok(())
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

/// An endpoint of 1.17's rxm takes 18 MB of buffers when it is opened, and 44 MB after a while; the
/// allocator keeps them.
const LANES_RXM: usize = 8;

/// The longest frame for `provider`.
fn slot_bytes(provider: &str) -> usize {
    if is_rxm(provider) { SLOT_RXM } else { SLOT }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "inject up to {}, slots of {}, {} receive, large messages {}",
            self.inject_max,
            self.slot_bytes,
            if self.multi_recv { "multi" } else { "single" },
            self.large
        )?;
        if self.prefix != 0 {
            write!(f, ", prefix of {}", self.prefix)?;
        }
        let traits = [
            (self.mr_local, "local registration"),
            (self.mr_endpoint, "registration by endpoint"),
            (self.context_bytes, "context bytes"),
        ];
        for (_, name) in traits.into_iter().filter(|(has, _)| *has) {
            write!(f, ", {name}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rma {
                virt_addr: true, ..
            } => "by RMA read (virtual addresses)",
            Self::Rma { .. } => "by RMA read (offsets)",
            Self::Lanes => "over lanes",
            Self::Copied => "copied",
        })
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRdm(ep_type) => write!(f, "endpoint type {ep_type} is not reliable datagram"),
            Self::NoMessages => f.write_str("it offers no messages"),
            Self::Unordered => f.write_str("its messages may overtake each other"),
            Self::Overruns => f.write_str("it may overrun its queues"),
            Self::Mode(bits) => write!(f, "it wants mode {bits:#x}, which is not supported"),
            Self::Registration(bits) => {
                write!(
                    f,
                    "it wants registration mode {bits:#x}, which is not supported"
                )
            }
            Self::KeyBytes(bytes) => write!(f, "its keys have {bytes} bytes, more than 8"),
            Self::TooShort(bytes) => {
                write!(f, "its messages have {bytes} bytes, fewer than {FRAME_MIN}")
            }
            Self::AddressBytes(bytes) => {
                write!(
                    f,
                    "its addresses have {bytes} bytes, more than {ADDRESS_MAX}"
                )
            }
            Self::PrefixBytes(bytes) => {
                write!(f, "its prefix has {bytes} bytes, more than {PREFIX_MAX}")
            }
        }
    }
}

/// What we give a provider that wants it. `FI_RX_CQ_DATA` costs nothing: we send no such data.
pub(crate) const MODES: u64 =
    FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX | FI_RX_CQ_DATA | FI_LOCAL_MR;

/// What we do for a provider's registrations. Not `FI_MR_RAW` (keys longer than 8 bytes), not
/// `FI_MR_MMU_NOTIFY` (we do not watch page tables), not `FI_MR_RMA_EVENT` (we count nothing).
/// `FI_MR_HMEM` is only about the memory of devices, which we are never given: not asked for, and
/// not minded.
pub(crate) const MR_MODES: c_int =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// Core providers that are software.
const SOFTWARE: [&str; 6] = ["tcp", "net", "udp", "sockets", "shm", "sm2"];

/// The longest frame over `ofi_rxm`: its own buffers (`FI_OFI_RXM_BUFFER_SIZE`) have 16 KiB, and
/// what is longer goes by rendezvous, with a registration for every message.
const SLOT_RXM: usize = 16 * 1024;

/// The longest frame elsewhere: below the rendezvous thresholds of psm3 and efa (64 000 bytes),
/// while cxi goes on in hardware above its own. Longer ones save little, and each multi-receive
/// buffer loses up to this much at its end.
const SLOT: usize = 32 * 1024;

/// The shortest longest message: frame header, MX header and the 4 KiB body that
/// [`mx_proto::port::Limits::packet_max`] promises.
const FRAME_MIN: usize = 16 + 32 + 4096;

/// The longest read asked for at once; efa and verbs take at most 1 GiB.
const READ_MAX: usize = 1 << 30;

/// A key travels in 8 bytes; longer ones are `FI_MR_RAW`.
const KEY_BYTES_MAX: usize = 8;

/// The longest address a card carries.
const ADDRESS_MAX: usize = 256;

/// The longest prefix: what providers ask for is a header or two, far below this.
const PREFIX_MAX: usize = 1024;

/// A domain meant for fewer endpoints than this has none to spare for single peers.
const LANE_ENDPOINTS: usize = 64;

/// Tag bits a lane needs.
const LANE_TAG_BITS: u32 = 48;

#[cfg(test)]
mod tests;
