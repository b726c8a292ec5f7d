//! Devices and their providers: their handling of closed registrations, their limits, the choice
//! among them, and the loss of one.

use crate::direct::made_up::{nodes, nodes_with};
use crate::direct::nodes::pattern;
use libfabric_fake::{Death, Fake, Shape};
use mx_port_base::clock::MonotonicClock;
use mx_port_fabric::Verdict;
use mx_port_rdm::{Device, RdmOptions, RdmPort, survey};
use mx_proto::{Clock, Status};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Length of a message that cards read if they may.
const LARGE: usize = 1 << 20;

fn options(fake: &Fake) -> RdmOptions {
    RdmOptions {
        library: Some(fake.library()),
        ..RdmOptions::default()
    }
}

/// Returns the column "large" of the table of fabrics.
fn large(fake: &Fake) -> String {
    survey(&fake.library())[0]
        .paths
        .as_ref()
        .unwrap()
        .large
        .clone()
}

#[test]
fn provider_that_keeps_registrations_gets_no_user_memory() {
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

/// Returns a shape like soft-RoCE without any setting.
fn few_completions() -> Shape {
    Shape {
        cq_limit: 32_767,
        ..Shape::verbs_rxm()
    }
}

#[test]
fn unopenable_provider_is_skipped_with_a_helpful_error() {
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

/// Returns a shape with two devices, of which the first is the usual one.
fn two_devices() -> Shape {
    Shape {
        devices: DEVICES.to_vec(),
        ..Shape::verbs_rxm()
    }
}

const DEVICES: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)];

#[test]
fn the_address_to_be_at_chooses_the_device() {
    let fake = Fake::new(two_devices(), 1);
    let at = |device| {
        let options = RdmOptions {
            device,
            ..options(&fake)
        };
        RdmPort::open(options).map(|port| port.device_address().unwrap())
    };
    assert_eq!(at(Device::default()).unwrap(), DEVICES[0]);
    for address in DEVICES {
        assert_eq!(at(Device::only(address.into())).unwrap(), address);
    }
    // An address of this host without a device.
    let error = at(Device::only([127, 0, 0, 3].into())).unwrap_err();
    assert!(
        error.to_string().contains("it has nothing at 127.0.0.3"),
        "{error}"
    );
    let order = DEVICES.iter().rev().map(|it| (*it).into()).collect();
    assert_eq!(at(Device { bind: None, order }).unwrap(), DEVICES[1]);
    // If one device is lost, the other is used.
    fake.first().remove(0, Death::Again);
    assert_eq!(at(Device::default()).unwrap(), DEVICES[1]);
    assert!(at(Device::only(DEVICES[0].into())).is_err());
}

#[test]
fn a_device_that_is_gone_to_later_is_tried_as_well() {
    let fake = Fake::new(
        Shape {
            mr_cache: true,
            ..two_devices()
        },
        1,
    );
    let mut port = RdmPort::open(options(&fake)).unwrap();
    let tried = fake.stats().remotes;
    port.follow(Device::only(DEVICES[1].into()), true);
    assert_eq!(port.device_address(), Some(DEVICES[1].into()));
    assert!(fake.stats().remotes > tried, "it reads from itself");
}

#[test]
fn lost_device_ends_operations_and_is_reused_when_back() {
    let keepalive = Duration::from_secs(1);
    for (shape, death) in [
        (Shape::verbs_rxm(), Death::Fail(libc::EIO)),
        (Shape::cxi(), Death::Vanish),
        (Shape::efa(), Death::Vanish),
        (Shape::tcp_rxm(), Death::Again),
    ] {
        let fake = Fake::new(shape, 1);
        let options = RdmOptions {
            keepalive,
            ..RdmOptions::default()
        };
        let mut nodes = nodes_with(&fake, 1, options.clone());
        // The other node is on a machine of its own.
        let machine = fake.machine(&[]);
        nodes.add_with(RdmOptions {
            library: Some(machine.library()),
            ..options
        });
        let to = nodes.connect(0, 1);
        let sent = pattern(LARGE, 1);
        let mut got = vec![0; LARGE];
        fake.faults(|faults| (faults.hold, faults.revocable) = (0.95, true));
        nodes.post(1, 1, &mut got, 7);
        nodes.send(0, to, 1, &sent, 8);
        nodes.until(|nodes| (nodes.end(1).stats().matched > 0).then_some(()));
        machine.remove(0, death);
        fake.faults(|faults| faults.hold = 0.0);
        for (node, context) in [(0, 8), (1, 7)] {
            assert_ne!(nodes.wait(node, context).status, Status::Success);
        }
        for buffer in [&sent, &got] {
            assert_eq!(fake.holds(buffer.as_ptr(), LARGE), [""; 0]);
        }
        let port = nodes.end(1).port();
        assert!(
            port.rdm_mut().offer(MonotonicClock.now()).is_err(),
            "others take over"
        );
        machine.put_back(0);
        let until = Instant::now() + Duration::from_secs(10);
        while port.rdm_mut().offer(MonotonicClock.now()).is_err() {
            assert!(Instant::now() < until, "it is back");
            std::thread::sleep(Duration::from_millis(100));
        }
        let to = nodes.connect(0, 1);
        nodes.post(1, 1, &mut got, 7);
        nodes.send_all(0, to, 1, &sent);
        assert_eq!(nodes.wait(1, 7).status, Status::Success);
        assert!(got == sent);
        drop(nodes);
        fake.assert_clean();
    }
}
