//! The service over a fake provider: requirements of hardware, and failures.

use super::*;
use libfabric_fake::{Call, Fake, Faults, Shape, Wait as Waiting};
use libfabric_sys::abi::{
    FI_ADDR_EFA, FI_CONTEXT2, FI_EHOSTUNREACH, FI_EIO, FI_MSG_PREFIX, FI_RM_DISABLED,
};
use mx_proto::port::ConnectError;
use mx_proto::reliability::{DatagramError, DatagramPort, GsoBatch, Incoming, Received};
use mx_proto::{EndpointId, NicId, Route, Target};

/// Two services on one fabric.
struct Pair {
    fake: Fake,
    a: FabricDatagrams,
    b: FabricDatagrams,
}

fn open(fake: &Fake) -> Result<FabricDatagrams, RdmError> {
    FabricDatagrams::open(DgramOptions {
        library: Some(fake.library()),
        ..DgramOptions::default()
    })
}

impl Pair {
    fn new(shape: Shape, seed: u64) -> Self {
        let fake = Fake::new(shape, seed);
        let [a, b] = [(); 2].map(|()| open(&fake).unwrap());
        Self { fake, a, b }
    }

    /// Sends from `a` to `b`.
    fn send(
        &mut self,
        channel: Channel,
        bytes: &[u8],
        segment: usize,
    ) -> Result<(), DatagramError> {
        let to = self.b.address(channel);
        let batch = GsoBatch {
            bytes,
            segment,
            may_fragment: false,
            express: false,
        };
        self.a.send(channel, to, batch)
    }

    /// Sends once there is room; appends arrivals meanwhile to `got`.
    fn push(&mut self, channel: Channel, bytes: &[u8], segment: usize, got: &mut Vec<Vec<u8>>) {
        for _ in 0..100_000 {
            match self.send(channel, bytes, segment) {
                Ok(()) => return,
                Err(error) => assert_eq!(error, DatagramError::WouldBlock),
            }
            poll_idle(&mut self.a);
            got.extend(self.take());
        }
        panic!("no room in 100000 polls");
    }

    /// Returns all datagrams that `b` has.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        let expected = [Channel::Command, Channel::Data].map(|channel| self.a.address(channel));
        self.b.begin(64);
        while let Received::Incoming(incoming) = self.b.next() {
            match incoming {
                Incoming::Datagrams { from, segment, .. } => {
                    assert!(expected.contains(&from));
                    let all = self.b.bytes().chunks(segment);
                    got.extend(all.map(<[u8]>::to_vec));
                }
                other => panic!("{other:?}"),
            }
        }
        got
    }

    /// Polls until everything in flight has arrived or is lost.
    fn poll_until_idle(&mut self, got: &mut Vec<Vec<u8>>) {
        let mut quiet = 0;
        while quiet < 200 {
            poll_idle(&mut self.a);
            let now = self.take();
            quiet = if now.is_empty() { quiet + 1 } else { 0 };
            got.extend(now);
        }
    }

    /// Closes both and checks that nothing is left and no rule was broken.
    fn end(self) {
        let Self { fake, a, b } = self;
        fake.faults(|faults| *faults = Faults::none());
        drop((a, b));
        fake.assert_clean();
        assert_eq!(fake.open_objects(), Vec::<String>::new());
        assert_eq!((fake.lent(), fake.registered()), (0, (0, 0)));
    }
}

/// Shape of EFA's datagrams: opaque addresses, a prefix, all buffers registered, no injection.
pub(super) fn efa() -> Shape {
    Shape {
        provider: "efa".into(),
        prefix_of_receives: false,
        address_format: FI_ADDR_EFA,
        inject: 0,
        wait: Waiting::Refused,
        ..Shape::verbs_ud()
    }
}

/// A datagram that differs from all others.
fn datagram(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![(number % 251) as u8; len.max(8)];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

#[test]
fn prefixes_registrations_and_short_queues_lose_nothing() {
    let contexts = Shape::usnic().with_mode(FI_CONTEXT2 | FI_MSG_PREFIX, 64);
    let short = Shape {
        tx_depth: 4,
        rx_depth: 4,
        ..Shape::usnic()
    };
    let shapes = [
        Shape::usnic(),
        contexts,
        short,
        Shape::udp(),
        Shape::verbs_ud(),
        efa(),
    ];
    for (seed, shape) in shapes.into_iter().enumerate() {
        let guarded = shape.resource_mgmt != FI_RM_DISABLED && shape.inject > 0;
        let mut pair = Pair::new(shape, seed as u64);
        pair.fake.faults(|faults| *faults = Faults::rough());
        let mut got = Vec::new();
        let sent = 600;
        for number in 0..sent {
            let channel = match number % 3 {
                0 => Channel::Command,
                _ => Channel::Data,
            };
            let most = pair.a.capacity(channel).datagram_max;
            let bytes = datagram(number, [8, 100, most][number / 3 % 3]);
            pair.push(channel, &bytes, bytes.len(), &mut got);
        }
        pair.poll_until_idle(&mut got);
        let lost = pair.fake.stats().lost as usize;
        assert_eq!(got.len() + lost, sent);
        for bytes in &got {
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(*bytes, datagram(number as usize, bytes.len()));
        }
        assert!(got.len() > sent / 2, "{} of {sent}", got.len());
        let injected = pair.fake.stats().injects > 0;
        assert_eq!(
            injected, guarded,
            "who looks after no queue is not injected into"
        );
        assert_eq!(pair.b.stats().strays, 0);
        pair.end();
    }
}

#[test]
fn a_batch_goes_out_behind_one_doorbell_and_arrives_in_order() {
    for knows_more in [true, false] {
        let shape = Shape {
            knows_more,
            ..Shape::usnic()
        };
        let mut pair = Pair::new(shape, 1);
        let capacity = pair.a.capacity(Channel::Data);
        assert_eq!(capacity.datagram_max, 8972 - 24);
        assert_eq!(capacity.batch_max, 16);
        for len in [1, 2, 16] {
            let segment = 1000;
            let bytes: Vec<u8> = (0..len * segment - 300).map(|at| (at / 7) as u8).collect();
            pair.send(Channel::Data, &bytes, segment).unwrap();
            let mut got = Vec::new();
            pair.poll_until_idle(&mut got);
            let expected: Vec<_> = bytes.chunks(segment).map(<[u8]>::to_vec).collect();
            assert_eq!(got, expected, "{len}");
        }
        assert_eq!(pair.a.stats().send_errors, 0);
        pair.end();
    }
}

#[test]
fn failed_completions_are_counted_and_the_service_goes_on() {
    let mut pair = Pair::new(Shape::usnic(), 3);
    pair.fake.faults(|faults| {
        faults.error = 0.2;
        faults.errors = vec![FI_EIO, FI_EHOSTUNREACH];
        faults.negative = 0.5;
        faults.short = 0.05;
        faults.lose = 0.1;
    });
    let mut got = Vec::new();
    for number in 0..500 {
        let bytes = datagram(number, 500);
        pair.push(Channel::Data, &bytes, bytes.len(), &mut got);
        got.extend(pair.take());
    }
    pair.poll_until_idle(&mut got);
    let (a, b) = (pair.a.stats(), pair.b.stats());
    assert!(a.send_errors > 50 && b.receive_errors > 50, "{a:?} {b:?}");
    assert!(got.len() > 200);
    // No buffer was lost.
    pair.fake.faults(|faults| *faults = Faults::none());
    got.clear();
    for number in 0..100 {
        pair.push(Channel::Data, &datagram(number, 500), 500, &mut got);
        got.extend(pair.take());
    }
    pair.poll_until_idle(&mut got);
    assert_eq!(got.len(), 100);
    pair.end();
}

#[test]
fn posts_that_fail_are_losses() {
    let mut pair = Pair::new(Shape::usnic(), 3);
    pair.fake.faults(|faults| {
        faults.refuse.insert(Call::Post, FI_EIO);
    });
    let bytes = [1; 64];
    let refused = pair.send(Channel::Data, &bytes, 64);
    assert_eq!(refused, Err(DatagramError::Unreachable));
    let batch = [1; 640];
    assert_eq!(pair.send(Channel::Data, &batch, 64), Ok(()));
    assert_eq!(pair.a.stats().send_errors, 11);
    pair.fake.faults(|faults| faults.refuse.clear());
    let mut got = Vec::new();
    pair.push(Channel::Data, &bytes, 64, &mut got);
    pair.poll_until_idle(&mut got);
    assert_eq!(got.len(), 1);
    pair.end();
}

#[test]
fn service_with_a_broken_queue_reopens_under_its_names() {
    let mut pair = Pair::new(Shape::usnic(), 3);
    let names = pair.b.names;
    pair.fake.overrun();
    // Both services notice.
    poll_idle(&mut pair.a);
    assert!(pair.take().is_empty());
    assert_eq!(
        pair.send(Channel::Data, b"x", 1),
        Err(DatagramError::Unreachable)
    );
    assert!(pair.a.arm(), "there is a timer to sleep on");
    pair.a.disarm();
    let until = std::time::Instant::now() + Duration::from_secs(20);
    let mut got = Vec::new();
    while got.is_empty() {
        assert!(std::time::Instant::now() < until, "still broken");
        let _ = pair.send(Channel::Data, b"back", 4);
        pair.poll_until_idle(&mut got);
    }
    assert_eq!(got[0], b"back");
    assert_eq!((pair.b.names, pair.b.stats().reopened), (names, 1));
    pair.end();
}

#[test]
fn a_failing_step_of_opening_is_named_and_leaves_nothing_open() {
    for (call, name) in [
        (Call::Domain, "fi_domain"),
        (Call::CqOpen, "fi_cq_open"),
        (Call::AvOpen, "fi_av_open"),
        (Call::Endpoint, "fi_endpoint"),
        (Call::Bind, "fi_ep_bind"),
        (Call::Enable, "fi_enable"),
        (Call::GetName, "fi_getname"),
        (Call::MrReg, "fi_mr_reg"),
        (Call::Post, "fi_recv"),
    ] {
        let fake = Fake::new(Shape::usnic(), 1);
        fake.faults(|faults| {
            faults.refuse.insert(call, FI_EIO);
        });
        let error = open(&fake).unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
        fake.assert_clean();
        assert_eq!(fake.open_objects(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn data_channel_is_empty_after_a_short_read() {
    let mut pair = Pair::new(Shape::usnic(), 1);
    let mut got = Vec::new();
    for channel in [Channel::Command, Channel::Data] {
        (0..10).for_each(|_| pair.push(channel, b"x", 1, &mut got));
    }
    assert!(got.is_empty(), "there was room");
    let mut came = 0;
    for _ in 0..1000 {
        let before = came;
        pair.b.begin_data(4);
        let empty = loop {
            match pair.b.next() {
                Received::Incoming(Incoming::Datagrams {
                    channel: Channel::Data,
                    ..
                }) => came += 1,
                Received::End { drained, .. } => break drained,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(empty, came - before < 4);
        poll_idle(&mut pair.a);
    }
    assert_eq!(came, 10);
    pair.poll_until_idle(&mut got);
    assert_eq!(got.len(), 10);
    pair.end();
}

/// Polls a service that receives nothing.
fn poll_idle(service: &mut FabricDatagrams) {
    service.begin(64);
    if let Received::Incoming(incoming) = service.next() {
        panic!("{incoming:?}");
    }
}

fn target(endpoint: u32) -> Target {
    Target {
        nic: NicId(7),
        endpoint: EndpointId(endpoint),
        route: Route::AUTO,
    }
}

#[test]
fn peer_is_reached_at_the_name_that_it_announces() {
    for shape in [Shape::udp(), Shape::verbs_ud(), efa()] {
        let mut pair = Pair::new(shape, 1);
        assert_eq!(pair.a.resolve(target(2000)), Err(ConnectError::NoRoute));
        let name = pair.b.command_name().to_vec();
        let command = pair.b.address(Channel::Command);
        assert_eq!(pair.a.whole(&name), Some(command));
        assert!(pair.a.arm());
        pair.a.disarm();
        let mut got = Vec::new();
        pair.push(Channel::Command, b"there", 5, &mut got);
        pair.poll_until_idle(&mut got);
        assert_eq!(got, [b"there"]);
        pair.end();
    }
}

#[test]
fn what_cannot_be_a_name_on_our_fabric_leads_nowhere() {
    let [fake, card] = [Shape::udp(), Shape::verbs_ud()].map(|shape| Fake::new(shape, 1));
    let ip = open(&fake).unwrap();
    let mut own = ip.command_name().to_vec();
    own[3] ^= 1;
    let mut unspecified = own.clone();
    unspecified[4..8].fill(0);
    let mut no_port = own.clone();
    no_port[2..4].fill(0);
    let mut family = own.clone();
    family[0] = libc::AF_INET6 as u8;
    let bad: [&[u8]; 8] = [
        b"",
        &own[..15],
        &[&own[..], &[0]].concat(),
        &[0xff; 16],
        &unspecified,
        &no_port,
        &family,
        &[7; 300],
    ];
    for name in bad {
        assert_eq!(ip.whole(name), None, "{name:?}");
    }
    assert!(ip.whole(&own).is_some());
    let card = open(&card).unwrap();
    for len in [0, 16, 31, 33] {
        assert_eq!(card.whole(&vec![1; len]), None, "{len} bytes");
    }
    assert!(card.whole(&[1; 32]).is_some());
}

#[test]
fn a_data_channel_is_on_the_card_of_its_command_channel() {
    let mut pair = Pair::new(Shape::verbs_ud(), 1);
    let command = pair.b.address(Channel::Command);
    let told = pair.b.data_name().to_vec();
    let data = pair.a.data_address(command, &told);
    assert_eq!(data, Some(pair.b.address(Channel::Data)));
    let mut elsewhere = told.clone();
    elsewhere[7] ^= 1;
    assert_eq!(pair.a.data_address(command, &elsewhere), None);
    // The fabric has an end-to-end checksum.
    assert!(pair.a.is_safe(command));
    pair.end();
}

#[test]
fn sleepers_are_woken_whatever_the_provider_has_to_sleep_on() {
    for wait in [
        Waiting::Fd,
        Waiting::WhenBound,
        Waiting::Refused,
        Waiting::NoDescriptor,
    ] {
        let shape = Shape {
            wait,
            ..Shape::usnic()
        };
        let mut pair = Pair::new(shape, 1);
        let mut got = Vec::new();
        pair.poll_until_idle(&mut got);
        assert!(pair.b.arm(), "{wait:?}");
        let mut poll = libc::pollfd {
            fd: pair.b.descriptors().data.unwrap(),
            events: libc::POLLIN,
            revents: 0,
        };
        pair.send(Channel::Data, b"wake", 4).unwrap();
        // SAFETY: one entry.
        let woken = unsafe { libc::poll(&raw mut poll, 1, 10_000) };
        assert_eq!(woken, 1, "{wait:?}");
        pair.b.disarm();
        pair.poll_until_idle(&mut got);
        assert_eq!(got, [b"wake"]);
        pair.end();
    }
}
