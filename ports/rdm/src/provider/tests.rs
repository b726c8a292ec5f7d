//! Choice of a provider, from made-up offers and from the installed library.

use super::*;
use libfabric_fake::{Call, Fake, Shape};
use libfabric_sys::abi::{FI_ADDR_CXI, FI_EINVAL, FI_EP_DGRAM, FI_TAGGED};
use mx_port_fabric::{Finding, Verdict};
use std::net::Ipv4Addr;
use std::slice;

fn make(shapes: &[Shape], options: &RdmOptions) -> Result<Choice, RdmError> {
    Choice::make(&Fake::offering(shapes.to_vec(), 1).library(), options, Ok)
}

fn refused(shapes: &[Shape], options: &RdmOptions) -> String {
    make(shapes, options).unwrap_err().to_string()
}

/// `tcp` at these addresses.
fn tcp<const N: usize>(at: [[u8; 4]; N]) -> Shape {
    Shape {
        devices: at.map(Ipv4Addr::from).to_vec(),
        ..Shape::tcp()
    }
}

/// Does not require registrations, so its reads are not real.
fn psm3() -> Shape {
    Shape {
        mr_mode: 0,
        ..Shape::psm3()
    }
}

fn called(provider: &str, shape: Shape) -> Shape {
    Shape {
        provider: provider.into(),
        ..shape
    }
}

fn named(provider: &str) -> RdmOptions {
    RdmOptions {
        provider: Some(provider.into()),
        ..RdmOptions::default()
    }
}

fn at_address(bind: &str) -> RdmOptions {
    RdmOptions {
        device: Device::only(bind.parse().unwrap()),
        ..RdmOptions::default()
    }
}

/// Address that the chosen endpoint will have.
fn source_of(choice: &Choice) -> String {
    let first = choice.info.first().unwrap();
    source(first.src_addr()).unwrap().to_string()
}

#[test]
fn hardware_is_chosen_before_tcp_whatever_the_order_of_offers() {
    let mut shapes = vec![Shape::tcp_rxm(), Shape::tcp(), psm3(), Shape::cxi()];
    for expected in ["cxi", "psm3", "tcp", "tcp;ofi_rxm"] {
        let choice = make(&shapes, &RdmOptions::default()).unwrap();
        assert_eq!(choice.provider(), expected);
        shapes.retain(|shape| shape.provider != expected);
    }
}

#[test]
fn only_what_will_be_used_is_asked_for() {
    // Where reads are not real, or are copies themselves, only messages are requested.
    for (shape, reads) in [
        (Shape::cxi(), FI_RMA),
        (psm3(), 0),
        (tcp([[10, 0, 0, 1]]), 0),
    ] {
        let choice = make(&[shape], &RdmOptions::default()).unwrap();
        let caps = choice.info.first().unwrap().caps();
        assert_eq!(caps & (FI_RMA | FI_TAGGED), reads);
    }
}

#[test]
fn what_a_provider_lacks_is_done_without() {
    let mut shape = Shape::tcp();
    shape.caps &= !FI_MULTI_RECV;
    let plan = make(slice::from_ref(&shape), &RdmOptions::default());
    let plan = plan.unwrap().plan;
    assert_eq!((plan.rma, plan.terms.multi_recv), (None, false));
    shape.caps &= !FI_MSG;
    assert!(make(&[shape], &RdmOptions::default()).is_err());
}

#[test]
fn the_address_that_most_peers_can_reach_comes_first() {
    // Among equals, and only there, the provider's order counts.
    let mut shape = tcp([
        [169, 254, 0, 1],
        [127, 0, 0, 1],
        [10, 0, 0, 2],
        [10, 0, 0, 1],
    ]);
    for expected in ["10.0.0.2", "10.0.0.1", "127.0.0.1", "169.254.0.1"] {
        let choice = make(slice::from_ref(&shape), &RdmOptions::default()).unwrap();
        assert_eq!(source_of(&choice), expected);
        shape.devices.retain(|at| at.to_string() != expected);
    }
    let v6 = ["fd00::2", "::1", "fe80::1"].map(|address| place(address.parse().unwrap()));
    let after_v4 = AddressPlace::NetworkV6;
    assert_eq!(
        v6,
        [after_v4, AddressPlace::Loopback, AddressPlace::LinkLocal]
    );
    let mut bytes = [0; 28];
    bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    bytes[23] = 1;
    assert_eq!(source(&bytes), "::1".parse().ok());
    assert_eq!(source(&bytes[..23]), None);
}

#[test]
fn an_address_to_bind_to_is_kept_to() {
    let both = [tcp([[10, 0, 0, 1], [127, 0, 0, 1]])];
    let choice = make(&both, &at_address("127.0.0.1")).unwrap();
    assert_eq!(source_of(&choice), "127.0.0.1");
    let error = refused(&[tcp([[10, 0, 0, 1]])], &at_address("127.0.0.1"));
    let expected = "no matching libfabric provider (any provider at 127.0.0.1); found tcp: \
                    refused, it has nothing at 127.0.0.1, but elsewhere on this host; install";
    assert!(error.starts_with(expected), "{error}");
    // A documentation address, which no machine has.
    let options = RdmOptions {
        provider: Some("tcp".into()),
        ..at_address("203.0.113.1")
    };
    let error = refused(&both, &options);
    let expected = "provider tcp cannot be used: 203.0.113.1 is not an address of this host; set";
    assert!(error.starts_with(expected), "{error}");
    // Without IP addresses, binding does not apply.
    let choice = make(&[Shape::cxi()], &at_address("203.0.113.1")).unwrap();
    assert_eq!(choice.provider(), "cxi");
}

#[test]
fn an_offer_that_does_not_say_where_it_is_cannot_be_used() {
    let nowhere = Shape {
        address_format: FI_ADDR_CXI,
        ..Shape::tcp()
    };
    for shape in [tcp([[0; 4]]), nowhere] {
        assert_eq!(
            refused(slice::from_ref(&shape), &named("tcp")),
            "provider tcp cannot be used: it does not say at which IP address it is; set MX_PROVIDER \
             to another or unset it"
        );
        let choice = make(&[shape, Shape::tcp()], &named("tcp")).unwrap();
        assert_eq!(source_of(&choice), "127.0.0.1");
    }
}

#[test]
fn an_address_of_infiniband_is_not_taken_for_one_of_ip() {
    let (first, second) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
    let devices = Shape {
        devices: vec![first, second],
        ..Shape::verbs_rxm()
    };
    let fake = Fake::offering(vec![Shape::verbs_rxm_ib(), devices], 1);
    // The second device is the first board.
    for order in [[first, second], [second, first]] {
        let options = RdmOptions {
            device: Device {
                order: order.map(IpAddr::V4).to_vec(),
                ..Device::default()
            },
            ..RdmOptions::default()
        };
        let choice = Choice::make(&fake.library(), &options, Ok).unwrap();
        assert_eq!(choice.address(), Some(order[0].into()));
    }
    let only = Fake::new(Shape::verbs_rxm_ib(), 1);
    let error = Choice::make(&only.library(), &named("verbs;ofi_rxm"), Ok).unwrap_err();
    assert!(error.to_string().contains("at which IP address"), "{error}");
}

#[test]
fn a_forced_name_is_exact() {
    let rxm = Shape::tcp_rxm();
    let error = refused(slice::from_ref(&rxm), &named("tcp"));
    let found = "no matching libfabric provider (tcp); found tcp;ofi_rxm: chosen, inject up to 64";
    assert!(error.starts_with(found), "{error}");
    assert!(
        error.ends_with("; MX_PROVIDER can be tcp;ofi_rxm"),
        "{error}"
    );
    // The library also returns providers layered over `tcp`.
    let fake = Fake::new(rxm.clone(), 1);
    let all = fake.library().query(None, None, 0, None).unwrap();
    assert!(!has(&all, "tcp"));
    let choice = make(&[Shape::cxi(), rxm], &named("tcp;ofi_rxm")).unwrap();
    assert_eq!(choice.provider(), "tcp;ofi_rxm");
    for name in ["c\0xi", ""] {
        assert!(make(&[Shape::cxi()], &named(name)).is_err());
    }
    // A provider outside of our list can be requested.
    let ucx = [called("ucx", psm3())];
    assert!(make(&ucx, &RdmOptions::default()).is_err());
    assert_eq!(make(&ucx, &named("ucx")).unwrap().provider(), "ucx");
}

#[test]
fn failed_query_is_the_reason_and_banned_names_are_skipped() {
    let fake = Fake::new(Shape::tcp(), 1);
    fake.faults(|faults| {
        faults.refuse.insert(Call::GetInfo, FI_EINVAL);
    });
    let refused = |options| {
        let made = Choice::make(&fake.library(), &options, Ok);
        made.unwrap_err().to_string()
    };
    assert_eq!(
        refused(named("net;ofi_rxm")),
        "provider net;ofi_rxm is not used: it stops after the first unmatched message, and 1.18 \
         removed it; use tcp; unset MX_PROVIDER"
    );
    assert_eq!(
        refused(named("tcp")),
        "provider tcp cannot be used: fi_getinfo: Invalid argument (22); set MX_PROVIDER to \
         another or unset it"
    );
    let error = refused(RdmOptions::default());
    assert!(error.contains("found none;"), "{error}");
}

#[test]
fn only_hardware_means_only_hardware() {
    let mut options = RdmOptions {
        hardware_only: true,
        ..RdmOptions::default()
    };
    let error = refused(&[Shape::tcp()], &options);
    let expected = "no matching libfabric provider (fabric hardware)";
    assert!(error.starts_with(expected), "{error}");
    options.provider = Some("tcp".into());
    assert_eq!(
        refused(&[Shape::tcp()], &options),
        "provider tcp is not used: it is software, and only hardware is wanted; unset MX_PROVIDER"
    );
    options.provider = None;
    let choice = make(&[Shape::cxi()], &options).unwrap();
    assert_eq!(choice.provider(), "cxi");
}

#[test]
fn the_survey_has_every_provider_once_with_its_verdict() {
    let datagrams = Shape {
        ep_type: FI_EP_DGRAM,
        ..called("psm2", psm3())
    };
    let shapes = vec![
        tcp([[10, 0, 0, 1], [10, 0, 0, 2]]),
        called("shm", psm3()),
        Shape::cxi(),
        datagrams,
    ];
    let fake = Fake::offering(shapes, 1);
    let findings = survey::unopened(&fake.library(), &Device::default());
    let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
    let expected = [
        "tcp: usable, inject up to 128, slots of 65584, multi receive, large messages copied",
        "shm: refused, a message longer than its receive hangs it",
        "cxi: chosen, ",
        "psm2: refused, it has no reliable datagram endpoints with ordered messages",
    ];
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, begins) in texts.iter().zip(expected) {
        assert!(text.starts_with(begins), "{text}");
    }
    assert!(findings.iter().all(|finding| finding.version == (117, 0)));
}

#[test]
fn the_installed_library_has_a_provider_for_this_host() {
    let library = match Library::get() {
        Ok(library) => library,
        Err(error) => panic!("this test needs a libfabric: {error}"),
    };
    let choice = Choice::make(library, &at_address("127.0.0.1"), Ok).unwrap();
    let findings = survey(library);
    println!("{library:?}");
    findings.iter().for_each(|finding| println!("  {finding}"));
    let found = |name: &str| findings.iter().find(|finding| finding.provider == name);
    assert!(found(choice.provider()).is_some());
    let chosen = |finding: &&Finding| finding.verdict == Verdict::Chosen;
    assert_eq!(findings.iter().filter(chosen).count(), 1);
    let finding = found(choice.provider()).expect("it is there");
    let paths = finding.paths.as_ref().expect("it can be used");
    assert_eq!(paths.inject_max, choice.plan.terms.inject_max);
    // Nothing is known of this machine's hardware.
    if is_software(choice.provider()) {
        assert!(paths.descriptor);
    }
    // Debian's library has these too, and neither is ever used.
    for name in ["shm", "sockets"] {
        let refused = found(name).is_none_or(|it| matches!(it.verdict, Verdict::Refused(_)));
        assert!(refused, "{name}");
        let error = Choice::make(library, &named(name), Ok).unwrap_err();
        assert!(matches!(error, RdmError::Refused { .. }), "{error}");
    }
    let error = Choice::make(library, &named("no such provider"), Ok).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("(no such provider); found ") && text.contains("MX_PROVIDER can be"));
    // A documentation address, which is not this machine's.
    let error = Choice::make(library, &at_address("203.0.113.1"), Ok);
    if let Ok(choice) = &error {
        assert!(
            !has_ip_addresses(choice.provider()),
            "{}",
            choice.provider()
        );
    }
}
