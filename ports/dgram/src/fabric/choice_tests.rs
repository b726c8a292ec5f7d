//! Plans for offers that no test machine makes.

use super::*;
use libfabric_fake::{Fake, Shape};
use libfabric_sys::abi::{FI_ADDR_EFA, FI_ADDR_IB_UD, FI_ADDR_PSMX, FI_ASYNC_IOV, FI_MR_ENDPOINT};
use std::net::Ipv4Addr;

fn make(shape: Shape) -> Result<Plan, String> {
    let fake = Fake::new(shape, 1);
    let made = Choice::make(&fake.library(), None, None);
    made.map(|choice| choice.plan)
        .map_err(|error| error.to_string())
}

fn plan(shape: Shape) -> Plan {
    make(shape).unwrap()
}

/// Returns `usnic`'s shape with a change to it.
fn with(change: impl FnOnce(&mut Shape)) -> Shape {
    let mut shape = Shape::usnic();
    change(&mut shape);
    shape
}

#[test]
fn prefix_gets_room_and_does_not_count_as_frame() {
    for (prefix, max_msg) in [(64, 8972 + 64), (PREFIX_MAX, 9000), (8, 4096)] {
        let plan = plan(with(|shape| {
            (shape.prefix, shape.max_msg) = (prefix, max_msg);
        }));
        let both = Prefix {
            send: prefix,
            receive: prefix,
        };
        assert_eq!(plan.terms.prefix, both);
        assert_eq!(plan.terms.frame_max, max_msg - prefix);
    }
    // A provider without `FI_MSG_PREFIX` gets no prefix.
    let terms = plan(with(|shape| shape.mode = 0)).terms;
    let (send, receive) = (0, 0);
    assert_eq!(terms.prefix, Prefix { send, receive });
    assert_eq!(terms.frame_max, 8972 + 64);
    // A provider that wants a prefix only on receive gets none on sends.
    let terms = plan(Shape::verbs_ud()).terms;
    let (send, receive) = (0, 40);
    assert_eq!(terms.prefix, Prefix { send, receive });
    assert_eq!(terms.frame_max, 4096);
    let refused = make(with(|shape| shape.prefix = PREFIX_MAX + 8));
    assert!(refused.unwrap_err().contains("prefix has 1032 bytes"));
}

#[test]
fn frame_fits_a_message_and_a_udp_datagram() {
    let of = |max_msg| {
        make(with(|shape| {
            (shape.mode, shape.prefix, shape.max_msg) = (0, 0, max_msg);
        }))
    };
    for (max_msg, frame_max) in [
        (1472, 1472),
        (FRAME_MAX - 1, FRAME_MAX - 1),
        (FRAME_MAX, FRAME_MAX),
        (FRAME_MAX + 1, FRAME_MAX),
        (usize::MAX, FRAME_MAX),
    ] {
        assert_eq!(of(max_msg).unwrap().terms.frame_max, frame_max);
    }
    let least = DATAGRAM_MIN + frame::HEADER_MAX;
    let name = FabricAddress::new(&[1; NAME_MAX]).unwrap();
    assert_eq!(of(least).unwrap().datagram_max(&name), DATAGRAM_MIN);
    let refused = of(least - 1).unwrap_err();
    assert!(refused.contains("too few for a datagram"), "{refused}");
}

#[test]
fn depths_segments_and_registrations_are_what_the_offer_says() {
    let verbs = plan(Shape::verbs_ud());
    assert!(verbs.register && verbs.terms.mr_prov_key && verbs.terms.virt_addr && verbs.checked);
    assert!(!verbs.software && verbs.batch_max == GSO_BATCH);
    assert_eq!((verbs.terms.tx_depth, verbs.terms.rx_depth), (384, 384));
    assert_eq!(verbs.terms.mr_key_bytes, 4);
    let usnic = plan(Shape::usnic());
    assert_eq!(usnic.terms.tx_depth, 32);
    assert!(usnic.register && !usnic.terms.mr_prov_key && !usnic.checked);
    let udp = plan(Shape::udp());
    assert!(udp.software && !udp.register && udp.batch_max == 1);
    assert_eq!(udp.terms.entries, Entries::Plain);
}

#[test]
fn addresses_may_have_any_binary_form_and_bounded_length() {
    for (format, of_ip) in [
        (FI_SOCKADDR_IN, true),
        (FI_ADDR_IB_UD, false),
        (FI_ADDR_EFA, false),
        (FI_ADDR_PSMX, false),
    ] {
        assert_eq!(is_of_ip(format), of_ip);
        let shape = if of_ip {
            Shape::udp()
        } else {
            Shape {
                address_format: format,
                ..Shape::verbs_ud()
            }
        };
        assert_eq!(plan(shape).terms.address_format, format);
    }
    let text = make(Shape {
        address_format: FI_ADDR_STR,
        ..Shape::verbs_ud()
    });
    assert!(text.unwrap_err().contains("text"));
}

#[test]
fn listen_address_selects_the_card_if_cards_have_any() {
    let devices = vec![Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)];
    let with = |shape| Shape {
        devices: devices.clone(),
        ..shape
    };
    let shapes = vec![with(Shape::verbs_ud()), with(Shape::verbs_msg())];
    let fake = Fake::offering(shapes, 1);
    let at = |bind: Option<[u8; 4]>| {
        let bind = bind.map(|address| Ipv4Addr::from(address).into());
        let made = Choice::make(&fake.library(), Some("verbs"), bind);
        made.map(|choice| {
            let info = choice.info.first().unwrap();
            info.domain_name().into_owned()
        })
        .map_err(|error| error.to_string())
    };
    assert_eq!(at(None), Ok("fake0-dgram".into()));
    assert_eq!(at(Some([127, 0, 0, 1])), Ok("fake0-dgram".into()));
    assert_eq!(at(Some([127, 0, 0, 2])), Ok("fake1-dgram".into()));
    let error = at(Some([127, 0, 0, 3])).unwrap_err();
    assert!(error.contains("nothing at 127.0.0.3"), "{error}");
}

#[test]
fn what_is_wanted_and_not_known_is_refused() {
    // Answers of a provider that requires more than the hints offer.
    let fake = Fake::new(Shape::verbs_ud(), 1);
    let library = fake.library();
    let all = library.query(None, None, 0, None).unwrap();
    let info = all.iter().next().unwrap();
    assert!(Plan::of(info).is_ok());
    for mode in [FI_ASYNC_IOV, 1 << 40] {
        let odd = Fake::new(Shape::verbs_ud().with_mode(mode, 0), 1);
        let all = odd.library().query(None, None, 0, None).unwrap();
        let refused = Plan::of(all.iter().next().unwrap()).unwrap_err();
        assert!(refused.contains("wants mode"), "{refused}");
    }
    let odd = Fake::new(
        Shape {
            mr_mode: FI_MR_ENDPOINT | FI_MR_LOCAL,
            ..Shape::verbs_ud()
        },
        1,
    );
    let all = odd.library().query(None, None, 0, None).unwrap();
    let refused = Plan::of(all.iter().next().unwrap()).unwrap_err();
    assert!(refused.contains("registration mode"), "{refused}");
}
