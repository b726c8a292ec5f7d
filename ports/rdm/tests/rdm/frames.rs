//! Messages that are sent at once, in several frames.
//!
//! ```text
//!   Packet | Rest | Rest ...     blocked in the middle, cancelled there by either side, cut by a death
//! ```

use crate::direct::made_up::shapes;
use crate::direct::nodes::{Nodes, pattern};
use libfabric_fake::{Fake, Faults, Shape};
use mx_port_rdm::RdmOptions;
use mx_proto::port::{Limits, LinkControl};
use mx_proto::{Config, LinkId, RemoteId, Status};
use mx_sim::Cancelled;

/// Returns a shape on which all data is copied, and a message takes more frames than elsewhere.
const COPIED: fn() -> Shape = || Shape {
    max_msg: 16 << 10,
    ..Shape::tcp_rxm()
};

/// Length of a message of ten frames there.
const LEN: usize = 150_000;

/// Makes two nodes, of which the second accepts all messages of this test unasked. Returns the
/// first one's name for the second.
fn pair(shape: &Shape, seed: u64) -> (Fake, Nodes, RemoteId) {
    let fake = Fake::new(shape.clone(), seed);
    let config = Config {
        first_credits: 8192,
        ..Config::default()
    };
    let options = RdmOptions {
        library: Some(fake.library()),
        ..RdmOptions::default()
    };
    let mut nodes = Nodes::over(2, config, options).expect("the fake is always there");
    let to = nodes.connect(0, 1);
    (fake, nodes, to)
}

fn limits(nodes: &mut Nodes) -> Limits {
    nodes.end(0).port().limits(LinkId::new(0, 0))
}

/// Makes most frames find no room, so that the frames of a message are sent one by one.
fn narrow(fake: &Fake) {
    fake.faults(|faults| {
        *faults = Faults {
            again: 0.8,
            again_run: 3,
            hold: 0.3,
            late_send: 0.5,
            late_send_polls: 8,
            ..Faults::none()
        };
    });
}

/// Makes a pair with little room, a message of ten frames, and the memory for its receive.
fn narrow_pair(seed: u64) -> (Fake, Nodes, RemoteId, Vec<u8>, Vec<u8>) {
    let (fake, nodes, to) = pair(&COPIED(), seed);
    narrow(&fake);
    (fake, nodes, to, pattern(LEN, 3), vec![0; LEN])
}

/// Asserts that the peer works as before, because the last message arrives, and that no rule was
/// broken.
fn passes(fake: &Fake, mut nodes: Nodes, message: &[u8], seed: u64) {
    let mut next = vec![0; LEN];
    assert_eq!(nodes.receive(1, 6, &mut next).status, Status::Success);
    assert!(next == message, "seed {seed}");
    drop(nodes);
    fake.assert_clean();
}

#[test]
fn sizes_around_every_limit_go_at_once_and_arrive_whole() {
    for shape in shapes() {
        let (fake, mut nodes, to) = pair(&shape, 1);
        let Limits {
            packet_max: frame,
            streamed_max: most,
            ..
        } = limits(&mut nodes);
        let sizes = [frame, 2 * frame, 2 * frame + 17, 16 << 10, 64 << 10, most];
        let sizes = sizes.map(|size| [size - 1, size, size + 1]);
        for wanted in [true, false] {
            for (n, &size) in (0..).zip(sizes.as_flattened()) {
                let sent = pattern(size, n);
                let mut got = vec![0xee; size + 1];
                let before = nodes.end(0).stats().eager_out;
                if wanted {
                    nodes.post(1, n, &mut got, 7);
                }
                let pending = nodes.send(0, to, n, &sent, 8);
                if !wanted {
                    (0..50).for_each(|_| nodes.turn());
                    nodes.post(1, n, &mut got, 7);
                }
                let done = nodes.wait(1, 7);
                let what = format!("{}, {size} bytes, wanted: {wanted}", shape.provider);
                let all = (Status::Success, size as u32);
                assert_eq!((done.status, done.transferred), all, "{what}");
                if pending.is_some() {
                    assert_eq!(nodes.wait(0, 8).status, Status::Success, "{what}");
                }
                assert!(got[..size] == sent[..] && got[size] == 0xee, "{what}");
                let at_once = nodes.end(0).stats().eager_out > before;
                assert_eq!(at_once, size <= most, "{what}");
            }
        }
        let (sent, mut short) = (pattern(most, 5), [0xee; 101]);
        nodes.send(0, to, 1_000, &sent, 8);
        let done = nodes.receive(1, 1_000, &mut short[..100]);
        assert_eq!((done.status, done.transferred), (Status::Truncated, 100));
        assert!(short[..100] == sent[..100] && short[100] == 0xee);
        drop(nodes);
        fake.assert_clean();
    }
}

#[test]
fn blocked_frame_keeps_its_position() {
    for seed in 0..10 {
        let (fake, mut nodes, to) = pair(&COPIED(), seed);
        narrow(&fake);
        let length = |n: u64| if n % 3 == 0 { 40 } else { LEN };
        let sent: Vec<_> = (0..12).map(|n| pattern(length(n), n)).collect();
        for (message, n) in sent.iter().zip(1_000..) {
            nodes.send(0, to, 5, message, n);
        }
        for (n, message) in sent.iter().enumerate() {
            let mut got = vec![0xee; LEN];
            let done = nodes.receive(1, 5, &mut got);
            let len = done.transferred as usize;
            assert_eq!((done.status, len), (Status::Success, message.len()));
            assert!(got[..len] == message[..], "seed {seed}, message {n}");
        }
        drop(nodes);
        fake.assert_clean();
    }
}

/// The message arrives whole, even if the send ends after its beginning.
#[test]
fn send_cancelled_halfway_completes_without_its_buffer() {
    let mut midway = 0;
    for seed in 0..40 {
        let (fake, mut nodes, to, message, mut got) = narrow_pair(seed);
        let mut buffer = message.clone();
        nodes.post(1, 5, &mut got, 7);
        let Some(request) = nodes.send(0, to, 5, &buffer, 8) else {
            continue;
        };
        (0..seed / 4).for_each(|_| nodes.turn());
        let begun = nodes.end(0).stats().eager_out > 0;
        let cancelled = nodes.cancel(0, request);
        assert!(fake.holds(buffer.as_ptr(), LEN).is_empty());
        buffer.fill(0x5a);
        if begun {
            midway += u64::from(cancelled != Cancelled::Unknown);
            assert_eq!(nodes.wait(1, 7).status, Status::Success, "seed {seed}");
            assert!(got == message, "seed {seed}");
        }
        nodes.send(0, to, 6, &message, 9);
        passes(&fake, nodes, &message, seed);
    }
    assert!(midway > 5, "{midway} were called off in the middle");
}

#[test]
fn receive_cancelled_halfway_returns_its_buffer() {
    let mut midway = 0;
    for seed in 0..40 {
        let (fake, mut nodes, to, message, mut got) = narrow_pair(seed);
        let request = nodes.post(1, 5, &mut got, 7).unwrap();
        nodes.send(0, to, 5, &message, 8);
        (0..seed).for_each(|_| nodes.turn());
        let begun = got[0] != 0 || got[1] != 0;
        if nodes.cancel(1, request) != Cancelled::Unknown && begun {
            midway += 1;
        }
        got.fill(0x5a);
        nodes.send(0, to, 6, &message, 9);
        passes(&fake, nodes, &message, seed);
        assert!(got.iter().all(|byte| *byte == 0x5a), "seed {seed}: written");
    }
    assert!(midway > 5, "{midway} were called off in the middle");
}

#[test]
fn a_death_in_the_middle_ends_the_receive_with_an_error() {
    let mut midway = 0;
    for seed in 0..40 {
        let (fake, mut nodes, to, message, mut got) = narrow_pair(seed);
        nodes.post(1, 5, &mut got, 7);
        nodes.send(0, to, 5, &message, 8);
        (0..seed).for_each(|_| nodes.turn());
        if midway == 8 {
            // A second life of a node is accepted after a second.
            break;
        }
        if nodes.done[1].iter().any(|done| done.context == 7) || got[..2] == [0, 0] {
            continue;
        }
        midway += 1;
        nodes.kill(0);
        fake.faults(|faults| *faults = Faults::none());
        // The successor under the same name shows that the node has ended.
        nodes.restart(0);
        let to = nodes.connect(0, 1);
        let done = nodes.wait(1, 7);
        assert_ne!(done.status, Status::Success, "seed {seed}");
        got.fill(0x5a);
        nodes.send_all(0, to, 6, &message);
        passes(&fake, nodes, &message, seed);
        assert!(got.iter().all(|byte| *byte == 0x5a), "seed {seed}: written");
    }
    assert!(midway > 5, "{midway} died in the middle");
}
