//! Devices and their providers: what they do with closed registrations, what they have too little of, which one
//! is used, and what happens when one is lost.

use crate::direct::made_up::nodes;
use crate::direct::nodes::pattern;
use libfabric_fake::{Fake, Shape};
use mx_port_fabric::Verdict;
use mx_port_rdm::{RdmOptions, RdmPort, survey};
use mx_proto::Status;

/// Bytes that cards read where they may.
const LARGE: usize = 1 << 20;

fn options(fake: &Fake) -> RdmOptions {
    RdmOptions {
        library: Some(fake.library()),
        ..RdmOptions::default()
    }
}

/// How large messages go over it, as the table of fabrics says.
fn large(fake: &Fake) -> String {
    survey(&fake.library())[0]
        .paths
        .as_ref()
        .unwrap()
        .large
        .clone()
}

#[test]
fn a_provider_that_keeps_closed_registrations_is_given_no_memory_of_messages() {
    for (shape, mr_cache) in [
        (Shape::verbs_rxm(), true),
        (Shape::verbs_rxm(), false),
        (Shape::cxi(), true),
        (Shape::cxi(), false),
    ] {
        let fake = Fake::new(Shape { mr_cache, ..shape }, 1);
        let mut nodes = nodes(&fake, 2);
        let reads = fake.stats().remotes;
        let to = nodes.connect(0, 1);
        let sent = pattern(LARGE, 1);
        let mut got = vec![0; LARGE];
        nodes.post(1, 1, &mut got, 7);
        nodes.send_all(0, to, 1, &sent);
        assert_eq!(nodes.wait(1, 7).status, Status::Success);
        assert!(got == sent);
        for buffer in [&sent, &got] {
            assert_eq!(fake.holds(buffer.as_ptr(), LARGE), [""; 0]);
        }
        assert_eq!(fake.stats().remotes > reads, !mr_cache, "it is read");
        let large = large(&fake);
        assert_eq!(
            large.starts_with("copied: memory can be read after its registration was closed"),
            mr_cache,
            "{large}"
        );
        drop(nodes);
        fake.assert_clean();
    }
}

#[test]
fn efa_is_asked_whether_its_cards_read_before_they_are_made_to() {
    for emulates_reads in [true, false] {
        let fake = Fake::new(
            Shape {
                emulates_reads,
                ..Shape::efa()
            },
            1,
        );
        assert_eq!(
            large(&fake).starts_with("copied: its reads"),
            emulates_reads
        );
        assert_eq!(fake.stats().remotes > 0, !emulates_reads);
    }
}

/// As soft-RoCE, without any setting.
fn few_completions() -> Shape {
    Shape {
        cq_limit: 32_767,
        ..Shape::verbs_rxm()
    }
}

#[test]
fn what_cannot_be_opened_is_not_chosen_and_the_error_says_what_to_set() {
    let fake = Fake::offering(vec![few_completions(), Shape::tcp()], 1);
    let port = RdmPort::open(options(&fake)).unwrap();
    assert_eq!(port.provider(), "tcp");
    let found = survey(&fake.library());
    assert!(matches!(&found[0].verdict, Verdict::Refused(why) if why.contains("fi_enable")));
    assert_eq!(found[1].verdict, Verdict::Chosen);
    let error = RdmPort::open(RdmOptions {
        provider: Some("verbs;ofi_rxm".into()),
        ..options(&fake)
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("set FI_UNIVERSE_SIZE"), "{error}");
    let error = RdmPort::open(RdmOptions {
        hardware_only: true,
        ..options(&fake)
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("set FI_UNIVERSE_SIZE"), "{error}");
}

#[test]
fn a_queue_has_no_more_completions_than_the_device() {
    for cq_limit in [300, 5_000] {
        let shape = Shape {
            cq_limit,
            cq_size: cq_limit + 1,
            ..Shape::cxi()
        };
        let fake = Fake::new(shape, 1);
        RdmPort::open(options(&fake)).unwrap();
        fake.assert_clean();
    }
}
