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
    FI_CONTEXT, FI_CONTEXT2, FI_EP_RDM, FI_LOCAL_MR, FI_MR_ALLOCATED, FI_MR_BASIC, FI_MR_ENDPOINT,
    FI_MR_HMEM, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_SCALABLE, FI_MR_VIRT_ADDR, FI_MSG,
    FI_MSG_PREFIX, FI_MULTI_RECV, FI_ORDER_SAS, FI_READ, FI_REMOTE_READ, FI_RM_DISABLED, FI_RMA,
    FI_RX_CQ_DATA, FI_TAGGED,
};
use std::ffi::c_int;
use std::fmt;

/// What one `fi_info` says, as far as a plan depends on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Offer {
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
pub(super) struct Plan {
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
    /// How many endpoints the domain is meant to have, the shared one among them.
    pub endpoints: usize,
    /// How to wait for completions. Known when the queue is open: `Poll` until then.
    pub wait: Wait,
    /// The longest message the provider takes.
    pub max_msg: usize,
}

/// How large messages go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Large {
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

/// How to wait for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// The completion queue has a descriptor.
    Fd,
    /// It has none: look again after a while.
    Poll,
}

/// Why an offer cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unfit {
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
    pub(super) fn of(offer: &Offer) -> Result<Self, Unfit> {
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
            multi_recv: offer.caps & FI_MULTI_RECV != 0,
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
            endpoints: offer.ep_cnt.max(1),
            wait: Wait::Poll,
            max_msg: offer.max_msg_size,
        };
        plan.large = plan.large_path(offer, mr_mode);
        Ok(plan)
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
            && self.endpoints >= LANE_ENDPOINTS
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

/// `mr_mode` in the bits that replaced `FI_MR_BASIC` and `FI_MR_SCALABLE` with version 1.5.
fn modern_mr_mode(mr_mode: c_int) -> c_int {
    let mut modern = mr_mode & !(FI_MR_BASIC | FI_MR_SCALABLE);
    // With both, the provider leaves the choice to its user: the one that asks for less.
    if mr_mode & FI_MR_BASIC != 0 && mr_mode & FI_MR_SCALABLE == 0 {
        modern |= FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    }
    modern
}

/// Whether `provider` moves bytes with this host's processor and kernel only.
pub(super) fn is_software(provider: &str) -> bool {
    let core = provider.split(';').next().unwrap_or(provider);
    SOFTWARE.contains(&core)
}

/// The longest frame for `provider`.
fn slot_bytes(provider: &str) -> usize {
    if provider.split(';').any(|layer| layer == "ofi_rxm") {
        SLOT_RXM
    } else {
        SLOT
    }
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
pub(super) const MODES: u64 =
    FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX | FI_RX_CQ_DATA | FI_LOCAL_MR;

/// What we do for a provider's registrations. Not `FI_MR_RAW` (keys longer than 8 bytes), not
/// `FI_MR_MMU_NOTIFY` (we do not watch page tables), not `FI_MR_RMA_EVENT` (we count nothing).
/// `FI_MR_HMEM` is only about the memory of devices, which we are never given: not asked for, and
/// not minded.
pub(super) const MR_MODES: c_int =
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
mod tests {
    use super::*;
    use libfabric_sys::abi::{
        FI_ADDR_CXI, FI_ADDR_EFA, FI_ADDR_OPX, FI_ADDR_PSMX3, FI_ASYNC_IOV, FI_BUFFERED_RECV,
        FI_EP_MSG, FI_MR_MMU_NOTIFY, FI_MR_RAW, FI_RM_ENABLED, FI_SOCKADDR_IB, FI_SOCKADDR_IN,
    };

    const MSG: u64 = FI_MSG | FI_MULTI_RECV;
    const READS: u64 = FI_RMA | FI_READ | FI_REMOTE_READ;
    const ALL_TAG_BITS: u64 = 0xaaaa_aaaa_aaaa_aaaa;

    /// `tcp` of 2.x, measured.
    fn tcp() -> Offer {
        Offer {
            provider: "tcp".into(),
            ep_type: FI_EP_RDM,
            caps: MSG | FI_TAGGED,
            mode: 0,
            mr_mode: 0,
            mr_key_bytes: 8,
            address_format: FI_SOCKADDR_IN,
            address_len: 16,
            tx_order: FI_ORDER_SAS,
            rx_order: FI_ORDER_SAS,
            inject_size: 128,
            iov_limit: 4,
            tx_size: 256,
            rx_size: 256,
            max_msg_size: usize::MAX,
            prefix_size: 0,
            mem_tag_format: ALL_TAG_BITS,
            resource_mgmt: FI_RM_ENABLED,
            ep_cnt: 256,
        }
    }

    /// `tcp;ofi_rxm` of 1.17 and 2.x, measured: they say the same.
    fn tcp_rxm() -> Offer {
        Offer {
            provider: "tcp;ofi_rxm".into(),
            inject_size: 64,
            tx_size: 2048,
            rx_size: 2048,
            ep_cnt: 32768,
            ..tcp()
        }
    }

    /// InfiniBand, by fi_verbs(7) and fi_rxm(7).
    fn verbs_rxm() -> Offer {
        Offer {
            provider: "verbs;ofi_rxm".into(),
            caps: MSG | READS,
            mr_mode: FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
            mr_key_bytes: 4,
            address_format: FI_SOCKADDR_IB,
            address_len: 48,
            max_msg_size: 1 << 30,
            ..tcp_rxm()
        }
    }

    /// Slingshot, by fi_cxi(7).
    fn cxi() -> Offer {
        Offer {
            provider: "cxi".into(),
            caps: MSG | READS,
            mr_mode: FI_MR_PROV_KEY | FI_MR_ALLOCATED | FI_MR_ENDPOINT,
            address_format: FI_ADDR_CXI,
            address_len: 4,
            inject_size: 192,
            iov_limit: 1,
            tx_size: 1024,
            rx_size: 1024,
            max_msg_size: (1 << 32) - 1,
            mem_tag_format: ALL_TAG_BITS >> 16,
            ep_cnt: 128,
            ..tcp()
        }
    }

    /// AWS, by fi_efa(7).
    fn efa() -> Offer {
        Offer {
            provider: "efa".into(),
            caps: MSG | READS,
            mr_mode: FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM,
            address_format: FI_ADDR_EFA,
            address_len: 32,
            inject_size: 0,
            mem_tag_format: 0,
            ..tcp()
        }
    }

    /// Intel Ethernet and Omni-Path, by fi_psm3(7).
    fn psm3() -> Offer {
        Offer {
            provider: "psm3".into(),
            caps: MSG | READS,
            mode: FI_CONTEXT,
            mr_mode: FI_MR_SCALABLE,
            address_format: FI_ADDR_PSMX3,
            address_len: 32,
            inject_size: 64,
            mem_tag_format: ALL_TAG_BITS >> 4,
            ep_cnt: 65535,
            ..tcp()
        }
    }

    /// Omni-Path, by fi_opx(7).
    fn opx() -> Offer {
        Offer {
            provider: "opx".into(),
            caps: MSG | READS,
            mode: FI_CONTEXT2,
            mr_mode: FI_MR_SCALABLE,
            address_format: FI_ADDR_OPX,
            address_len: 8,
            ep_cnt: 160,
            ..tcp()
        }
    }

    fn plan(offer: &Offer) -> Plan {
        Plan::of(offer).unwrap()
    }

    fn unfit(offer: &Offer) -> String {
        Plan::of(offer).unwrap_err().to_string()
    }

    #[test]
    fn tcp_sends_large_messages_over_lanes() {
        let plan = plan(&tcp());
        assert_eq!(plan.large, Large::Lanes);
        assert_eq!((plan.inject_max, plan.slot_bytes), (128, 32 * 1024));
        assert!(plan.multi_recv && !plan.context_bytes && !plan.mr_local);
        assert_eq!((plan.prefix, plan.tag_bits, plan.iov_limit), (0, 64, 4));
    }

    #[test]
    fn rxm_keeps_its_slots_below_its_own_rendezvous() {
        let plan = plan(&tcp_rxm());
        assert_eq!(plan.large, Large::Lanes);
        assert_eq!((plan.inject_max, plan.slot_bytes), (64, 16 * 1024));
    }

    #[test]
    fn verbs_reads_by_virtual_address_and_registers_everything() {
        let plan = plan(&verbs_rxm());
        let (virt_addr, max_read) = (true, 1 << 30);
        assert_eq!(
            plan.large,
            Large::Rma {
                virt_addr,
                max_read
            }
        );
        assert!(plan.mr_local && plan.mr_prov_key && !plan.mr_endpoint);
        assert_eq!(plan.slot_bytes, 16 * 1024);
    }

    #[test]
    fn cxi_reads_by_offset_with_registrations_of_the_endpoint() {
        let plan = plan(&cxi());
        let (virt_addr, max_read) = (false, 1 << 30);
        assert_eq!(
            plan.large,
            Large::Rma {
                virt_addr,
                max_read
            }
        );
        assert!(plan.mr_endpoint && plan.mr_prov_key && !plan.mr_local);
        assert_eq!((plan.iov_limit, plan.tag_bits), (1, 48));
    }

    #[test]
    fn cxi_with_keys_of_ours_knows_how_long_they_are() {
        let plan = plan(&Offer {
            mr_mode: FI_MR_ALLOCATED | FI_MR_ENDPOINT,
            mr_key_bytes: 4,
            ..cxi()
        });
        assert!(matches!(
            plan.large,
            Large::Rma {
                virt_addr: false,
                ..
            }
        ));
        assert!(!plan.mr_prov_key);
        assert_eq!(plan.mr_key_bytes, 4);
    }

    #[test]
    fn efa_injects_nothing_and_reads() {
        let plan = plan(&efa());
        assert!(matches!(
            plan.large,
            Large::Rma {
                virt_addr: true,
                ..
            }
        ));
        assert_eq!((plan.inject_max, plan.tag_bits), (0, 64));
        assert!(plan.mr_local);
    }

    #[test]
    fn psm3_and_opx_copy_because_their_registrations_hold_nothing() {
        for offer in [psm3(), opx()] {
            let plan = plan(&offer);
            assert_eq!(plan.large, Large::Copied, "{}", offer.provider);
            assert!(plan.context_bytes);
        }
    }

    #[test]
    fn software_never_reads_whatever_it_says_of_registrations() {
        let plan = plan(&Offer {
            caps: MSG | READS | FI_TAGGED,
            mr_mode: FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
            ..tcp_rxm()
        });
        assert_eq!(plan.large, Large::Lanes);
    }

    #[test]
    fn reads_need_every_one_of_their_capabilities() {
        for missing in [FI_RMA, FI_READ, FI_REMOTE_READ] {
            let mut offer = verbs_rxm();
            offer.caps &= !missing;
            assert_eq!(plan(&offer).large, Large::Copied);
        }
    }

    #[test]
    fn lanes_need_tags_and_endpoints() {
        for (ep_cnt, expected) in [(63, Large::Copied), (64, Large::Lanes), (65, Large::Lanes)] {
            assert_eq!(plan(&Offer { ep_cnt, ..tcp() }).large, expected);
        }
        for (bits, expected) in [(47, Large::Copied), (48, Large::Lanes), (63, Large::Lanes)] {
            let mem_tag_format = u64::MAX >> (64 - bits);
            let plan = plan(&Offer {
                mem_tag_format,
                ..tcp()
            });
            assert_eq!((plan.large, plan.tag_bits), (expected, bits));
        }
        let caps = MSG;
        assert_eq!(plan(&Offer { caps, ..tcp() }).large, Large::Copied);
    }

    #[test]
    fn the_old_registration_modes_mean_what_they_meant() {
        let basic = plan(&Offer {
            mr_mode: FI_MR_BASIC,
            ..verbs_rxm()
        });
        assert!(matches!(
            basic.large,
            Large::Rma {
                virt_addr: true,
                ..
            }
        ));
        let either = plan(&Offer {
            mr_mode: FI_MR_BASIC | FI_MR_SCALABLE,
            ..verbs_rxm()
        });
        assert_eq!(either.large, Large::Copied);
        let local = plan(&Offer {
            mode: FI_LOCAL_MR,
            ..tcp()
        });
        assert!(local.mr_local);
    }

    #[test]
    fn a_prefix_counts_only_when_it_is_wanted() {
        let prefix_size = 64;
        let wanted = Offer {
            mode: FI_MSG_PREFIX,
            prefix_size,
            ..tcp()
        };
        assert_eq!(plan(&wanted).prefix, 64);
        assert_eq!(plan(&wanted).inject_max, 128);
        assert_eq!(
            plan(&Offer {
                prefix_size,
                ..tcp()
            })
            .prefix,
            0
        );
        for (prefix_size, fits) in [(1024, true), (1025, false)] {
            let offer = Offer {
                prefix_size,
                ..wanted.clone()
            };
            assert_eq!(Plan::of(&offer).is_ok(), fits);
        }
    }

    #[test]
    fn slots_are_no_longer_than_the_provider_s_messages() {
        for (max_msg_size, fits) in [(4143, false), (4144, true), (8192, true)] {
            let offer = Offer {
                max_msg_size,
                inject_size: usize::MAX,
                ..tcp()
            };
            match Plan::of(&offer) {
                Ok(plan) => {
                    assert!(fits);
                    assert_eq!(plan.slot_bytes, max_msg_size);
                    assert_eq!(plan.inject_max, max_msg_size);
                }
                Err(unfit) => {
                    assert!(!fits);
                    assert_eq!(unfit, Unfit::TooShort(max_msg_size));
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_lived_with_is_named() {
        let mode = FI_ASYNC_IOV | FI_CONTEXT;
        assert_eq!(
            unfit(&Offer { mode, ..opx() }),
            "it wants mode 0x200000000000000, which is not supported"
        );
        let mode = FI_BUFFERED_RECV;
        assert!(unfit(&Offer { mode, ..tcp_rxm() }).contains("mode 0x8000000000000"));
        for mr_mode in [FI_MR_RAW, FI_MR_MMU_NOTIFY] {
            assert_eq!(
                unfit(&Offer { mr_mode, ..tcp() }),
                format!("it wants registration mode {mr_mode:#x}, which is not supported")
            );
        }
        let ep_type = FI_EP_MSG;
        assert_eq!(
            unfit(&Offer { ep_type, ..tcp() }),
            "endpoint type 1 is not reliable datagram"
        );
        assert_eq!(
            unfit(&Offer {
                caps: FI_TAGGED,
                ..tcp()
            }),
            "it offers no messages"
        );
        for (tx_order, rx_order) in [(0, FI_ORDER_SAS), (FI_ORDER_SAS, 0)] {
            let offer = Offer {
                tx_order,
                rx_order,
                ..tcp()
            };
            assert_eq!(unfit(&offer), "its messages may overtake each other");
        }
        let resource_mgmt = FI_RM_DISABLED;
        assert_eq!(
            unfit(&Offer {
                resource_mgmt,
                ..opx()
            }),
            "it may overrun its queues"
        );
        let mr_key_bytes = 9;
        assert_eq!(
            unfit(&Offer {
                mr_key_bytes,
                ..tcp()
            }),
            "its keys have 9 bytes, more than 8"
        );
        let address_len = 257;
        assert_eq!(
            unfit(&Offer {
                address_len,
                ..tcp()
            }),
            "its addresses have 257 bytes, more than 256"
        );
    }

    #[test]
    fn zeroes_of_a_provider_become_something_to_work_with() {
        let plan = plan(&Offer {
            iov_limit: 0,
            tx_size: 0,
            rx_size: 0,
            ep_cnt: 0,
            mr_key_bytes: 0,
            ..tcp()
        });
        assert_eq!((plan.iov_limit, plan.tx_depth, plan.rx_depth), (1, 1, 1));
        assert_eq!((plan.endpoints, plan.mr_key_bytes), (1, 8));
    }

    #[test]
    fn a_plan_tells_which_path_each_class_takes() {
        assert_eq!(
            plan(&tcp_rxm()).to_string(),
            "inject up to 64, slots of 16384, multi receive, large messages over lanes"
        );
        assert_eq!(
            plan(&cxi()).to_string(),
            "inject up to 192, slots of 32768, multi receive, large messages by RMA read \
             (offsets), registration by endpoint"
        );
    }
}
