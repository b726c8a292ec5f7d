//! Plans for offers as measured, or as the manual describes hardware.

use super::*;
use libfabric_sys::abi::FI_MR_HMEM;
use libfabric_sys::abi::{
    FI_ADDR_CXI, FI_ADDR_EFA, FI_ADDR_OPX, FI_ADDR_PSMX3, FI_ASYNC_IOV, FI_BUFFERED_RECV,
    FI_EP_MSG, FI_MR_BASIC, FI_MR_MMU_NOTIFY, FI_MR_RAW, FI_MR_SCALABLE, FI_PROTO_CXI,
    FI_PROTO_EFA, FI_PROTO_OPX, FI_PROTO_PSMX3, FI_PROTO_XNET, FI_RM_ENABLED, FI_SOCKADDR_IB,
    FI_SOCKADDR_IN,
};

const MSG: u64 = FI_MSG | FI_MULTI_RECV;
const READS: u64 = FI_RMA | FI_READ | FI_REMOTE_READ;

/// `tcp` of 2.x, as measured.
fn tcp() -> Offer {
    Offer {
        release: (2, 5),
        provider: "tcp".into(),
        ep_type: FI_EP_RDM,
        protocol: FI_PROTO_XNET,
        caps: MSG,
        mode: 0,
        mr_mode: 0,
        mr_key_bytes: 8,
        address_format: FI_SOCKADDR_IN,
        address_len: 16,
        tx_order: FI_ORDER_SAS,
        rx_order: FI_ORDER_SAS,
        inject_size: 128,
        tx_size: 256,
        rx_size: 256,
        max_msg_size: usize::MAX,
        prefix_size: 0,
        resource_mgmt: FI_RM_ENABLED,
    }
}

/// `tcp;ofi_rxm` of 1.17 and 2.x, as measured: they are equal.
fn tcp_rxm() -> Offer {
    Offer {
        provider: "tcp;ofi_rxm".into(),
        protocol: FI_PROTO_RXM,
        inject_size: 64,
        tx_size: 2048,
        rx_size: 2048,
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
        protocol: FI_PROTO_CXI,
        caps: MSG | READS,
        mr_mode: FI_MR_PROV_KEY | FI_MR_ALLOCATED | FI_MR_ENDPOINT,
        address_format: FI_ADDR_CXI,
        address_len: 4,
        inject_size: 192,
        tx_size: 1024,
        rx_size: 1024,
        max_msg_size: (1 << 32) - 1,
        ..tcp()
    }
}

/// AWS, by fi_efa(7).
fn efa() -> Offer {
    Offer {
        provider: "efa".into(),
        protocol: FI_PROTO_EFA,
        caps: MSG | READS,
        mr_mode: FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_HMEM,
        address_format: FI_ADDR_EFA,
        address_len: 32,
        inject_size: 0,
        ..tcp()
    }
}

/// Intel Ethernet and Omni-Path, by fi_psm3(7).
fn psm3() -> Offer {
    Offer {
        provider: "psm3".into(),
        protocol: FI_PROTO_PSMX3,
        caps: MSG | READS,
        mode: FI_CONTEXT,
        mr_mode: FI_MR_SCALABLE,
        address_format: FI_ADDR_PSMX3,
        address_len: 32,
        inject_size: 64,
        ..tcp()
    }
}

/// Omni-Path, by fi_opx(7).
fn opx() -> Offer {
    Offer {
        provider: "opx".into(),
        protocol: FI_PROTO_OPX,
        caps: MSG | READS,
        mode: FI_CONTEXT2,
        mr_mode: FI_MR_SCALABLE,
        address_format: FI_ADDR_OPX,
        address_len: 8,
        ..tcp()
    }
}

fn plan(offer: &Offer) -> Plan {
    Plan::of(offer).unwrap()
}

/// Returns an offer with a change.
fn with(mut offer: Offer, change: impl FnOnce(&mut Offer)) -> Offer {
    change(&mut offer);
    offer
}

/// Path of a plan: whether it reads by virtual address (if it reads), `inject_max`, `frame_max`, whether it needs local
/// registrations, and context bytes.
type Path = (Option<bool>, usize, usize, bool, bool);

#[test]
fn each_provider_has_the_path_that_it_can() {
    let (long, rxm) = (HEADERS + 64 * 1024, HEADERS + 16 * 1024);
    let hardware = HEADERS + 32 * 1024;
    let table: [(Offer, Path); 7] = [
        (tcp(), (None, 128, long, false, false)),
        (tcp_rxm(), (None, 64, rxm, false, false)),
        (verbs_rxm(), (Some(true), 64, rxm, true, false)),
        (cxi(), (Some(false), 192, hardware, false, false)),
        (efa(), (Some(true), 0, hardware, true, false)),
        // psm3 and opx do not require real registrations.
        (psm3(), (None, 64, hardware, false, true)),
        (opx(), (None, 128, hardware, false, true)),
    ];
    for (offer, expected) in table {
        let plan = plan(&offer);
        let virt_addr = plan.rma.map(|reads| reads.virt_addr);
        let OpenParams {
            inject_max,
            frame_max,
            ..
        } = plan.terms;
        let local = (plan.mr_local, plan.context_bytes);
        let path = (virt_addr, inject_max, frame_max, local.0, local.1);
        assert_eq!(path, expected, "{}", offer.provider);
        assert!(plan.terms.multi_recv && plan.prefix() == 0);
        assert!(plan.rma.is_none_or(|reads| reads.max_read == 1 << 30));
    }
    let keys = |offer: &Offer| {
        let terms = plan(offer).terms;
        (terms.mr_prov_key, terms.mr_endpoint, terms.mr_key_bytes)
    };
    assert_eq!(keys(&verbs_rxm()), (true, false, 4));
    assert_eq!(keys(&cxi()), (true, true, 8));
    let ours = with(cxi(), |offer| {
        offer.mr_mode = FI_MR_ALLOCATED | FI_MR_ENDPOINT;
        offer.mr_key_bytes = 4;
    });
    assert_eq!(keys(&ours), (false, true, 4));
    assert_eq!(plan(&ours).rma.map(|reads| reads.virt_addr), Some(false));
}

#[test]
fn refused_read_ends_a_per_peer_connection() {
    for (provider, protocol, connected) in [
        ("another;ofi_rxm", FI_PROTO_RXM, true),
        ("verbs", FI_PROTO_EFA, false),
    ] {
        let offer = with(verbs_rxm(), |offer| {
            (offer.provider, offer.protocol) = (provider.to_owned(), protocol);
        });
        assert_eq!(plan(&offer).rma.unwrap().connected, connected);
    }
    assert!(!plan(&cxi()).rma.unwrap().connected);
}

#[test]
fn reads_need_all_capabilities_and_never_use_software() {
    for missing in [FI_RMA, FI_READ, FI_REMOTE_READ] {
        let offer = with(verbs_rxm(), |offer| offer.caps &= !missing);
        assert_eq!(plan(&offer).rma, None);
    }
    let software = with(tcp_rxm(), |offer| {
        offer.caps = MSG | READS;
        offer.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    });
    assert_eq!(plan(&software).rma, None);
}

#[test]
fn the_old_registration_modes_mean_what_they_meant() {
    for (mr_mode, virt_addr) in [
        (FI_MR_BASIC, Some(true)),
        (FI_MR_BASIC | FI_MR_SCALABLE, None),
    ] {
        let plan = plan(&with(verbs_rxm(), |offer| offer.mr_mode = mr_mode));
        assert_eq!(plan.rma.map(|reads| reads.virt_addr), virt_addr);
    }
    assert!(plan(&with(tcp(), |offer| offer.mode = FI_LOCAL_MR)).mr_local);
}

#[test]
fn a_prefix_counts_only_when_it_is_wanted() {
    let of = |mode, prefix_size| {
        Plan::of(&with(tcp(), |offer| {
            (offer.mode, offer.prefix_size) = (mode, prefix_size);
        }))
    };
    let wanted = of(FI_MSG_PREFIX, 64).unwrap();
    assert_eq!((wanted.prefix(), wanted.terms.inject_max), (64, 128));
    assert_eq!(of(0, 64).unwrap().prefix(), 0);
    assert!(of(FI_MSG_PREFIX, 1024).is_ok() && of(FI_MSG_PREFIX, 1025).is_err());
}

#[test]
fn slots_are_no_longer_than_the_provider_s_messages() {
    for max_msg_size in [4143, 4144, 8192] {
        let offer = with(tcp(), |offer| {
            (offer.max_msg_size, offer.inject_size) = (max_msg_size, usize::MAX);
        });
        let made = Plan::of(&offer).map(|plan| (plan.terms.frame_max, plan.terms.inject_max));
        match made {
            Ok(made) => assert_eq!(made, (max_msg_size, max_msg_size)),
            Err(unfit) => assert!(max_msg_size == 4143 && unfit.contains("4143"), "{unfit}"),
        }
    }
}

#[test]
fn no_frame_is_cut_by_ofi_rxm_and_16_kib_are_one() {
    for (name, body) in [
        (RXM_BUFFER_VARIABLE, SLOT_RXM),
        (RXM_EAGER_VARIABLE, SLOT_SOFTWARE),
    ] {
        let mut defaults = libfabric_sys::ENVIRONMENT.into_iter();
        let (_, ours) = defaults.find(|(of, _)| *of == name).unwrap();
        // A variable that is not set yet will be.
        for set in [Some(ours), Some("1000000"), None] {
            assert_eq!(rxm_frame(body, set), HEADERS + body);
        }
        for set in ["8192", "16384", ours] {
            assert!(
                rxm_frame(body, Some(set)) + 64 <= set.parse().unwrap(),
                "{set}"
            );
        }
    }
}

#[test]
fn what_cannot_be_lived_with_is_named() {
    let table: [(Offer, &str); 11] = [
        (
            with(opx(), |offer| offer.mode = FI_ASYNC_IOV | FI_CONTEXT),
            "it wants mode 0x200000000000000, which is not supported",
        ),
        (
            with(tcp_rxm(), |offer| offer.mode = FI_BUFFERED_RECV),
            "it wants mode 0x8000000000000, which is not supported",
        ),
        (
            with(tcp(), |offer| offer.mr_mode = FI_MR_RAW),
            "it wants registration mode 0x8, which is not supported",
        ),
        (
            with(tcp(), |offer| offer.mr_mode = FI_MR_MMU_NOTIFY),
            "it wants registration mode 0x80, which is not supported",
        ),
        (
            with(tcp(), |offer| offer.ep_type = FI_EP_MSG),
            "endpoint type 1 is not reliable datagram",
        ),
        (
            with(tcp(), |offer| offer.caps = READS),
            "it offers no messages",
        ),
        (
            with(tcp(), |offer| offer.tx_order = 0),
            "its messages may overtake each other",
        ),
        (
            with(tcp(), |offer| offer.rx_order = 0),
            "its messages may overtake each other",
        ),
        (
            with(opx(), |offer| offer.resource_mgmt = FI_RM_DISABLED),
            "it may overrun its queues",
        ),
        (
            with(tcp(), |offer| offer.mr_key_bytes = 9),
            "its keys have 9 bytes, more than 8",
        ),
        (
            with(tcp(), |offer| offer.address_len = 257),
            "its addresses have 257 bytes, more than 256",
        ),
    ];
    for (offer, why) in table {
        assert_eq!(Plan::of(&offer).unwrap_err().to_string(), why);
    }
}

#[test]
fn zeroes_of_a_provider_become_something_to_work_with() {
    let plan = plan(&with(tcp(), |offer| {
        (offer.tx_size, offer.rx_size, offer.mr_key_bytes) = (0, 0, 0);
    }));
    assert_eq!((plan.terms.tx_depth, plan.terms.rx_depth), (1, 1));
    assert_eq!(plan.terms.mr_key_bytes, 8);
}

#[test]
fn a_plan_tells_which_path_each_class_takes() {
    assert_eq!(
        plan(&tcp_rxm()).to_string(),
        "inject up to 64, slots of 16432, multi receive, large messages copied"
    );
    assert_eq!(
        plan(&cxi()).to_string(),
        "inject up to 192, slots of 32816, multi receive, large messages by RMA read \
         (offsets), registration by endpoint"
    );
}

#[test]
fn old_rxm_gets_a_receive_for_each_message() {
    let multi = |release, offer: Offer| plan(&Offer { release, ..offer }).terms.multi_recv;
    assert!(!multi((1, 17), tcp_rxm()));
    assert!(!multi((1, 99), tcp_rxm()));
    assert!(multi((2, 0), tcp_rxm()));
    assert!(multi((1, 17), tcp()));
}
