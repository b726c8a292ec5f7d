//! Offers as measured, or as the manual describes hardware, and what becomes of them.

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

/// `tcp` of 2.x, measured.
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

/// `tcp;ofi_rxm` of 1.17 and 2.x, measured: they say the same.
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

fn unfit(offer: &Offer) -> String {
    Plan::of(offer).unwrap_err().to_string()
}

#[test]
fn tcp_copies_large_messages() {
    let plan = plan(&tcp());
    assert_eq!(plan.rma, None);
    assert_eq!(
        (plan.terms.inject_max, plan.terms.frame_max),
        (128, 48 + 64 * 1024)
    );
    assert!(plan.terms.multi_recv && !plan.context_bytes && !plan.mr_local);
    assert_eq!(plan.prefix(), 0);
}

#[test]
fn rxm_has_slots_of_its_own_buffers() {
    let plan = plan(&tcp_rxm());
    assert_eq!(plan.rma, None);
    assert_eq!(
        (plan.terms.inject_max, plan.terms.frame_max),
        (64, HEADERS + 16 * 1024)
    );
}

#[test]
fn verbs_reads_by_virtual_address_and_registers_everything() {
    let plan = plan(&verbs_rxm());
    let (virt_addr, max_read) = (true, 1 << 30);
    assert_eq!(
        plan.rma,
        Some(Reads {
            virt_addr,
            max_read,
            connected: true,
        })
    );
    assert!(plan.mr_local && plan.terms.mr_prov_key && !plan.terms.mr_endpoint);
    assert_eq!(plan.terms.frame_max, HEADERS + 16 * 1024);
}

#[test]
fn a_refused_read_ends_a_connection_where_there_is_one_to_each_peer() {
    let of = |provider: &str, protocol| {
        let provider = provider.to_owned();
        let offer = Offer {
            provider,
            protocol,
            ..verbs_rxm()
        };
        plan(&offer).rma.is_some_and(|reads| reads.connected)
    };
    assert!(of("another;ofi_rxm", FI_PROTO_RXM));
    assert!(!of("verbs", FI_PROTO_EFA));
}

#[test]
fn cxi_reads_by_offset_with_registrations_of_the_endpoint() {
    let plan = plan(&cxi());
    let (virt_addr, max_read) = (false, 1 << 30);
    assert_eq!(
        plan.rma,
        Some(Reads {
            virt_addr,
            max_read,
            connected: false,
        })
    );
    assert!(plan.terms.mr_endpoint && plan.terms.mr_prov_key && !plan.mr_local);
}

#[test]
fn cxi_with_keys_of_ours_knows_how_long_they_are() {
    let plan = plan(&Offer {
        mr_mode: FI_MR_ALLOCATED | FI_MR_ENDPOINT,
        mr_key_bytes: 4,
        ..cxi()
    });
    assert_eq!(plan.rma.map(|reads| reads.virt_addr), Some(false));
    assert!(!plan.terms.mr_prov_key);
    assert_eq!(plan.terms.mr_key_bytes, 4);
}

#[test]
fn efa_injects_nothing_and_reads() {
    let plan = plan(&efa());
    assert_eq!(plan.rma.map(|reads| reads.virt_addr), Some(true));
    assert_eq!(plan.terms.inject_max, 0);
    assert!(plan.mr_local);
}

#[test]
fn psm3_and_opx_copy_because_their_registrations_hold_nothing() {
    for offer in [psm3(), opx()] {
        let plan = plan(&offer);
        assert_eq!(plan.rma, None, "{}", offer.provider);
        assert!(plan.context_bytes);
    }
}

#[test]
fn software_never_reads_whatever_it_says_of_registrations() {
    let plan = plan(&Offer {
        caps: MSG | READS,
        mr_mode: FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
        ..tcp_rxm()
    });
    assert_eq!(plan.rma, None);
}

#[test]
fn reads_need_every_one_of_their_capabilities() {
    for missing in [FI_RMA, FI_READ, FI_REMOTE_READ] {
        let mut offer = verbs_rxm();
        offer.caps &= !missing;
        assert_eq!(plan(&offer).rma, None);
    }
}

#[test]
fn the_old_registration_modes_mean_what_they_meant() {
    let basic = plan(&Offer {
        mr_mode: FI_MR_BASIC,
        ..verbs_rxm()
    });
    assert_eq!(basic.rma.map(|reads| reads.virt_addr), Some(true));
    let either = plan(&Offer {
        mr_mode: FI_MR_BASIC | FI_MR_SCALABLE,
        ..verbs_rxm()
    });
    assert_eq!(either.rma, None);
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
    assert_eq!(plan(&wanted).prefix(), 64);
    assert_eq!(plan(&wanted).terms.inject_max, 128);
    assert_eq!(
        plan(&Offer {
            prefix_size,
            ..tcp()
        })
        .prefix(),
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
                assert_eq!(plan.terms.frame_max, max_msg_size);
                assert_eq!(plan.terms.inject_max, max_msg_size);
            }
            Err(unfit) => {
                assert!(!fits);
                assert!(unfit.contains(&max_msg_size.to_string()), "{unfit}");
            }
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
        // What is not set yet will be.
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
            caps: READS,
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
        tx_size: 0,
        rx_size: 0,
        mr_key_bytes: 0,
        ..tcp()
    });
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
