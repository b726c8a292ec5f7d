//! The choice, from a catalogue of offers that is put together here, and from what is installed.

pub(crate) mod catalogue;

use super::*;
use catalogue::{ANSWER, Line};
use libfabric_fake::{Fake, Shape};
use libfabric_sys::abi::{FI_EINVAL, FI_EP_DGRAM, FI_TAGGED, fi_fabric_attr, fid_fabric};
use mx_port_fabric::{Finding, Verdict};
use std::ffi::{c_int, c_void};
use std::net::Ipv4Addr;
use std::slice;

unsafe extern "C" fn fabric(
    _: *mut fi_fabric_attr,
    _: *mut *mut fid_fabric,
    _: *mut c_void,
) -> c_int {
    unreachable!("nothing is opened here")
}

fn library(lines: &[Line]) -> Library {
    // SAFETY: nothing is opened.
    unsafe { catalogue::library(lines, fabric) }
}

fn make(lines: &[Line], options: &RdmOptions) -> Result<Choice, RdmError> {
    Choice::make(&library(lines), options, Ok)
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

/// Where the chosen endpoint will be.
fn source_of(choice: &Choice) -> String {
    let first = choice.info.first().unwrap();
    source(first.src_addr()).unwrap().to_string()
}

#[test]
fn hardware_is_chosen_before_tcp_whatever_the_order_of_offers() {
    let rxm = Line {
        provider: "tcp;ofi_rxm",
        ..Line::tcp("10.0.0.1")
    };
    let lines = [
        rxm.clone(),
        Line::tcp("10.0.0.1"),
        Line::psm3(),
        Line::cxi(),
    ];
    let order = ["cxi", "psm3", "tcp", "tcp;ofi_rxm"];
    for (skip, expected) in order.iter().enumerate() {
        let lines: Vec<_> = lines
            .iter()
            .filter(|line| !order[..skip].contains(&line.provider))
            .cloned()
            .collect();
        let choice = make(&lines, &RdmOptions::default()).unwrap();
        assert_eq!(choice.provider(), *expected);
    }
}

#[test]
fn only_what_will_be_used_is_asked_for() {
    let options = RdmOptions::default();
    let caps = |line| {
        make(&[line], &options)
            .unwrap()
            .info
            .first()
            .unwrap()
            .caps()
    };
    assert_eq!(caps(Line::cxi()) & (FI_RMA | FI_TAGGED), FI_RMA);
    // Its reads are not real, so messages are all there is to ask for.
    assert_eq!(caps(Line::psm3()) & (FI_RMA | FI_TAGGED), 0);
    assert_eq!(caps(Line::tcp("10.0.0.1")) & (FI_RMA | FI_TAGGED), 0);
}

#[test]
fn what_a_provider_lacks_is_done_without() {
    let mut line = Line::tcp("10.0.0.1");
    line.caps &= !FI_MULTI_RECV;
    let plan = make(&[line.clone()], &RdmOptions::default()).unwrap().plan;
    assert_eq!((plan.rma, plan.terms.multi_recv), (None, false));
    line.caps &= !FI_MSG;
    assert!(make(&[line], &RdmOptions::default()).is_err());
}

#[test]
fn the_address_that_most_peers_can_reach_comes_first() {
    let order = [
        "10.0.0.2",
        "10.0.0.1",
        "fd00::2",
        "127.0.0.1",
        "::1",
        "fe80::1",
        "169.254.0.1",
    ];
    let mut lines: Vec<_> = order.iter().map(|source| Line::tcp(source)).collect();
    // Among equals the provider's order counts, otherwise it does not.
    lines.swap(0, 6);
    let expected = ["10.0.0.1", "10.0.0.2", "fd00::2", "127.0.0.1", "::1"];
    for source in expected {
        let choice = make(&lines, &RdmOptions::default()).unwrap();
        assert_eq!(source_of(&choice), source);
        lines.retain(|line| line.source != source.parse().ok());
    }
}

#[test]
fn an_address_to_bind_to_is_kept_to() {
    let lines = [Line::tcp("10.0.0.1"), Line::tcp("127.0.0.1")];
    let choice = make(&lines, &at_address("127.0.0.1")).unwrap();
    assert_eq!(source_of(&choice), "127.0.0.1");
    let error = make(&lines[..1], &at_address("127.0.0.1")).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "no libfabric provider as asked for (any provider at 127.0.0.1); found tcp: refused, \
             it has nothing at 127.0.0.1, but elsewhere on this host; install"
        ),
        "{error}"
    );
    // An address of documentation, so no machine has it.
    let options = RdmOptions {
        provider: Some("tcp".into()),
        ..at_address("203.0.113.1")
    };
    assert!(make(&lines, &options).unwrap_err().to_string().starts_with(
        "provider tcp cannot be used: 203.0.113.1 is not an address of this host; set"
    ));
    // Without IP addresses there is nothing to bind to.
    let choice = make(&[Line::cxi()], &at_address("203.0.113.1")).unwrap();
    assert_eq!(choice.provider(), "cxi");
}

#[test]
fn an_offer_that_does_not_say_where_it_is_cannot_be_used() {
    let nowhere = Line {
        source: None,
        ..Line::tcp("::1")
    };
    for line in [Line::tcp("0.0.0.0"), Line::tcp("::"), nowhere] {
        assert_eq!(
            make(slice::from_ref(&line), &named("tcp"))
                .unwrap_err()
                .to_string(),
            "provider tcp cannot be used: it does not say at which IP address it is; set MX_PROVIDER \
             to another or unset it"
        );
        let choice = make(&[line, Line::tcp("::1")], &named("tcp")).unwrap();
        assert_eq!(source_of(&choice), "::1");
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
    let rxm = Line {
        provider: "tcp;ofi_rxm",
        ..Line::tcp("10.0.0.1")
    };
    // The library brings what is layered over `tcp` too.
    let error = make(slice::from_ref(&rxm), &named("tcp")).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "no libfabric provider as asked for (tcp); found tcp;ofi_rxm: chosen, inject up to 100"
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("; MX_PROVIDER can be tcp;ofi_rxm")
    );
    let choice = make(&[Line::cxi(), rxm], &named("tcp;ofi_rxm")).unwrap();
    assert_eq!(choice.provider(), "tcp;ofi_rxm");
    assert!(make(&[Line::cxi()], &named("c\0xi")).is_err());
    assert!(make(&[Line::cxi()], &named("")).is_err());
}

#[test]
fn a_name_that_is_never_used_is_not_even_asked_for() {
    ANSWER.set(-FI_EINVAL);
    assert_eq!(
        make(&[], &named("net;ofi_rxm")).unwrap_err().to_string(),
        "provider net;ofi_rxm is not used: it stops after the first unmatched message, and 1.18 \
         removed it; use tcp; unset MX_PROVIDER"
    );
}

#[test]
fn only_hardware_means_only_hardware() {
    let lines = [Line::tcp("10.0.0.1")];
    let mut options = RdmOptions {
        hardware_only: true,
        ..RdmOptions::default()
    };
    let error = make(&lines, &options).unwrap_err().to_string();
    assert!(
        error.starts_with("no libfabric provider as asked for (fabric hardware)"),
        "{error}"
    );
    options.provider = Some("tcp".into());
    assert_eq!(
        make(&lines, &options).unwrap_err().to_string(),
        "provider tcp is not used: it is software, and only hardware is wanted; unset MX_PROVIDER"
    );
    options.provider = None;
    assert_eq!(make(&[Line::cxi()], &options).unwrap().provider(), "cxi");
}

#[test]
fn a_provider_without_a_name_in_our_list_can_be_asked_for() {
    let other = Line {
        provider: "ucx",
        ..Line::psm3()
    };
    assert!(make(slice::from_ref(&other), &RdmOptions::default()).is_err());
    assert_eq!(make(&[other], &named("ucx")).unwrap().provider(), "ucx");
}

#[test]
fn a_query_that_fails_is_the_reason() {
    ANSWER.set(-FI_EINVAL);
    assert_eq!(
        make(&[], &named("tcp")).unwrap_err().to_string(),
        "provider tcp cannot be used: fi_getinfo: Invalid argument (22); set MX_PROVIDER to \
         another or unset it"
    );
    let error = make(&[], &RdmOptions::default()).unwrap_err().to_string();
    assert!(error.contains("found none at all"), "{error}");
}

#[test]
fn the_survey_has_every_provider_once_with_its_verdict() {
    let datagrams = Line {
        provider: "psm2",
        ep_type: FI_EP_DGRAM,
        ..Line::psm3()
    };
    let shm = Line {
        provider: "shm",
        ..Line::psm3()
    };
    let lines = [
        Line::tcp("10.0.0.1"),
        Line::tcp("10.0.0.2"),
        shm,
        Line::cxi(),
        datagrams,
    ];
    let findings = survey::unopened(&library(&lines), &Device::default());
    let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 4, "{texts:#?}");
    assert_eq!(
        texts[0],
        "tcp: usable, inject up to 100, slots of 65584, multi receive, large messages copied"
    );
    assert!(texts[1].starts_with("shm: refused, a message longer than its receive hangs it"));
    assert!(texts[2].starts_with("cxi: chosen, "));
    assert_eq!(
        texts[3],
        "psm2: refused, it has no reliable datagram endpoints with ordered messages"
    );
    assert!(findings.iter().all(|finding| finding.version == (117, 3)));
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
    // Of this host's hardware nothing is known.
    if is_software(choice.provider()) {
        assert!(paths.descriptor);
    }
    // Debian's has these too, and neither is ever used.
    for name in ["shm", "sockets"] {
        let refused = found(name).is_none_or(|it| matches!(it.verdict, Verdict::Refused(_)));
        assert!(refused, "{name}");
        let error = Choice::make(library, &named(name), Ok).unwrap_err();
        assert!(matches!(error, RdmError::Refused { .. }), "{error}");
    }
    let error = Choice::make(library, &named("no such provider"), Ok).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("(no such provider); found ") && text.contains("MX_PROVIDER can be"));
    // Of the documentation, so not this host's.
    let error = Choice::make(library, &at_address("203.0.113.1"), Ok);
    if let Ok(choice) = &error {
        assert!(
            !has_ip_addresses(choice.provider()),
            "{}",
            choice.provider()
        );
    }
}
