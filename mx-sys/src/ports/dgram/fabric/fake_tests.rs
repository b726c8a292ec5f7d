//! The service over a provider made up in memory: what hardware asks for, and what goes wrong.

use super::*;
use libfabric_fake::{Call, Fake, Faults, Shape, Wait as Waiting};
use libfabric_sys::abi::{FI_CONTEXT2, FI_EHOSTUNREACH, FI_EIO, FI_MSG_PREFIX};
use mx_proto::reliability::{DatagramError, DatagramPort, Incoming, Train};

/// Two services on one fabric.
struct Pair {
    fake: Fake,
    a: FabricDatagrams,
    b: FabricDatagrams,
}

fn open(fake: &Fake) -> Result<FabricDatagrams, RdmError> {
    FabricDatagrams::open(FabricOptions {
        library: Some(fake.library()),
        ..FabricOptions::default()
    })
}

impl Pair {
    fn new(shape: Shape, seed: u64) -> Self {
        let fake = Fake::new(shape, seed);
        let [a, b] = [(); 2].map(|()| open(&fake).unwrap());
        Self { fake, a, b }
    }

    /// From `a` to `b`.
    fn send(
        &mut self,
        channel: Channel,
        bytes: &[u8],
        segment: usize,
    ) -> Result<(), DatagramError> {
        let to = self.b.address(channel);
        let train = Train {
            bytes,
            segment,
            may_fragment: false,
            express: false,
        };
        self.a.send(channel, to, train)
    }

    /// The same, as soon as there is room. What arrives meanwhile is added to `got`.
    fn push(&mut self, channel: Channel, bytes: &[u8], segment: usize, got: &mut Vec<Vec<u8>>) {
        for _ in 0..100_000 {
            match self.send(channel, bytes, segment) {
                Ok(()) => return,
                Err(error) => assert_eq!(error, DatagramError::WouldBlock),
            }
            self.a.poll(64, |incoming| panic!("{incoming:?}"));
            got.extend(self.take());
        }
        panic!("no room in 100000 polls");
    }

    /// What `b` has.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        let expected = [Channel::Command, Channel::Data].map(|channel| self.a.address(channel));
        self.b.poll(64, |incoming| match incoming {
            Incoming::Datagrams {
                from,
                bytes,
                segment,
                ..
            } => {
                assert!(expected.contains(&from));
                got.extend(bytes.chunks(segment).map(<[u8]>::to_vec));
            }
            other => panic!("{other:?}"),
        });
        got
    }

    /// Everything that is on its way has arrived, or never will.
    fn settle(&mut self, got: &mut Vec<Vec<u8>>) {
        let mut quiet = 0;
        while quiet < 200 {
            self.a.poll(64, |incoming| panic!("{incoming:?}"));
            let now = self.take();
            quiet = if now.is_empty() { quiet + 1 } else { 0 };
            got.extend(now);
        }
    }

    /// Closes both, after which nothing is left, and no rule was broken.
    fn end(self) {
        let Self { fake, a, b } = self;
        fake.faults(|faults| *faults = Faults::none());
        drop((a, b));
        fake.assert_clean();
        assert_eq!(fake.open_objects(), Vec::<String>::new());
        assert_eq!((fake.lent(), fake.registered()), (0, (0, 0)));
    }
}

/// A datagram that can be told from all others.
fn datagram(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![(number % 251) as u8; len.max(8)];
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

#[test]
fn prefixes_registrations_and_short_queues_carry_everything_that_is_not_lost() {
    let contexts = Shape::usnic().with_mode(FI_CONTEXT2 | FI_MSG_PREFIX, 64);
    let short = Shape {
        tx_depth: 4,
        rx_depth: 4,
        ..Shape::usnic()
    };
    for (seed, shape) in [Shape::usnic(), contexts, short, Shape::udp()]
        .into_iter()
        .enumerate()
    {
        let guarded = shape.inject > 1000;
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
        pair.settle(&mut got);
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
fn a_train_goes_out_behind_one_doorbell_and_arrives_in_order() {
    for knows_more in [true, false] {
        let shape = Shape {
            knows_more,
            ..Shape::usnic()
        };
        let mut pair = Pair::new(shape, 1);
        let capacity = pair.a.capacity(Channel::Data);
        assert_eq!(capacity.datagram_max, 8972 - 24);
        assert_eq!(capacity.train_max, 16);
        for len in [1, 2, 16] {
            let segment = 1000;
            let bytes: Vec<u8> = (0..len * segment - 300).map(|at| (at / 7) as u8).collect();
            pair.send(Channel::Data, &bytes, segment).unwrap();
            let mut got = Vec::new();
            pair.settle(&mut got);
            let expected: Vec<_> = bytes.chunks(segment).map(<[u8]>::to_vec).collect();
            assert_eq!(got, expected, "{len}");
        }
        assert_eq!(pair.a.stats().send_errors, 0);
        pair.end();
    }
}

#[test]
fn a_train_is_taken_whole_or_not_at_all() {
    let mut pair = Pair::new(Shape::usnic(), 1);
    let bytes = vec![7; 16 * 100];
    // 32 sends at a time: two trains, of which nothing has been told to be over.
    pair.send(Channel::Data, &bytes, 100).unwrap();
    pair.send(Channel::Data, &bytes, 100).unwrap();
    pair.fake.faults(|faults| faults.late_send = 1.0);
    pair.fake.faults(|faults| faults.late_send_polls = 5);
    let mut refused = 0;
    let mut got = Vec::new();
    for _ in 0..50 {
        match pair.send(Channel::Data, &bytes, 100) {
            Ok(()) => break,
            Err(error) => assert_eq!(error, DatagramError::WouldBlock),
        }
        refused += 1;
    }
    pair.settle(&mut got);
    assert_eq!(got.len() % 16, 0);
    // A provider that says "again" has taken nothing, and the whole train can be tried again.
    pair.fake.faults(|faults| faults.again = 1.0);
    let sent = pair.a.stats().sent;
    for _ in 0..10 {
        let refused = pair.send(Channel::Data, &bytes, 100);
        assert_eq!(refused, Err(DatagramError::WouldBlock));
    }
    assert_eq!(pair.a.stats().sent, sent);
    pair.fake.faults(|faults| *faults = Faults::none());
    got.clear();
    pair.push(Channel::Data, &bytes, 100, &mut got);
    pair.settle(&mut got);
    assert_eq!(got.len(), 16, "refused {refused} times before");
    pair.end();
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
    pair.settle(&mut got);
    let (a, b) = (pair.a.stats(), pair.b.stats());
    assert!(a.send_errors > 50 && b.receive_errors > 50, "{a:?} {b:?}");
    assert!(got.len() > 200);
    // No buffer was lost over it.
    pair.fake.faults(|faults| *faults = Faults::none());
    got.clear();
    for number in 0..100 {
        pair.push(Channel::Data, &datagram(number, 500), 500, &mut got);
        got.extend(pair.take());
    }
    pair.settle(&mut got);
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
    let train = [1; 640];
    assert_eq!(pair.send(Channel::Data, &train, 64), Ok(()));
    assert_eq!(pair.a.stats().send_errors, 11);
    pair.fake.faults(|faults| faults.refuse.clear());
    let mut got = Vec::new();
    pair.push(Channel::Data, &bytes, 64, &mut got);
    pair.settle(&mut got);
    assert_eq!(got.len(), 1);
    pair.end();
}

#[test]
fn addresses_that_the_provider_refuses_are_unreachable() {
    let mut pair = Pair::new(Shape::usnic(), 3);
    pair.fake.faults(|faults| {
        faults.refuse.insert(Call::AvInsert, FI_EIO);
    });
    let refused = pair.send(Channel::Command, b"x", 1);
    assert_eq!(refused, Err(DatagramError::Unreachable));
    pair.fake.faults(|faults| faults.refuse.clear());
    let mut got = Vec::new();
    pair.push(Channel::Command, b"x", 1, &mut got);
    pair.settle(&mut got);
    assert_eq!(got, [b"x"]);
    pair.end();
}

#[test]
fn a_service_whose_queue_breaks_is_opened_again_under_its_names() {
    let mut pair = Pair::new(Shape::usnic(), 3);
    let names = pair.b.names;
    pair.fake.overrun();
    // Both find out.
    pair.a.poll(64, |incoming| panic!("{incoming:?}"));
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
        pair.settle(&mut got);
    }
    assert_eq!(got[0], b"back");
    assert_eq!((pair.b.names, pair.b.stats().reopened), (names, 1));
    pair.end();
}

#[test]
fn what_does_not_close_keeps_its_memory() {
    let mut pair = Pair::new(Shape::usnic(), 5);
    pair.send(Channel::Data, &[1; 3200], 200).unwrap();
    let Pair { fake, a, b } = pair;
    fake.faults(|faults| faults.close_busy = 0.7);
    drop(a);
    drop(b);
    fake.assert_clean();
    assert_eq!((fake.lent(), fake.registered()), (0, (0, 0)));
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
fn a_provider_with_addresses_of_its_own_is_refused_with_the_reason() {
    let fake = Fake::new(Shape::verbs_ud(), 1);
    let opened = FabricDatagrams::open(FabricOptions {
        library: Some(fake.library()),
        provider: Some("verbs".into()),
        ..FabricOptions::default()
    });
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("peers could not be found"), "{error}");
    // Whatever else there is, is used.
    let fake = Fake::offering(vec![Shape::tcp(), Shape::verbs_ud(), Shape::udp()], 1);
    assert_eq!(open(&fake).unwrap().provider(), "udp");
    let nothing = Fake::new(Shape::tcp(), 1);
    let error = open(&nothing).unwrap_err().to_string();
    assert!(error.contains("any provider with datagrams"), "{error}");
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
        pair.settle(&mut got);
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
        pair.settle(&mut got);
        assert_eq!(got, [b"wake"]);
        pair.end();
    }
}
