//! Receives for one remote's messages, and another remote that sends with the same bits: three
//! endpoints on the simulated network.
//!
//! ```text
//!   HONEST  --- message ---.
//!                           >--- receiver: recv_from(HONEST)
//!   FORGER  --- the same ---'
//! ```

use crate::rig::{NIC, Rig};
use mx_proto::{
    DownReason, EndpointId, MatchBits, MatchMask, PostError, ReceivePosted, RemoteId, RequestId,
    SendMode, SendPosted, Status,
};
use mx_sim::Buffer;
use mx_sim::world::NodeId;
use std::time::Duration;

const RECEIVER: NodeId = 0;
const HONEST: NodeId = 1;
const FORGER: NodeId = 2;
const BITS: MatchBits = MatchBits(9);
/// Lengths of a message sent with its data, and of an offered one.
const LENGTHS: [usize; 2] = [10, 300_000];

/// The receiver and the two senders.
struct Stage {
    rig: Rig,
    /// The receiver's names for the senders.
    honest: RemoteId,
    forger: RemoteId,
}

impl std::ops::Deref for Stage {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

impl std::ops::DerefMut for Stage {
    fn deref_mut(&mut self) -> &mut Rig {
        &mut self.rig
    }
}

impl Stage {
    fn new(seed: u64) -> Self {
        let mut rig = Rig::reliable(seed, 3, Duration::from_millis(400));
        let [honest, forger] = [HONEST, FORGER].map(|node| rig.connect(node));
        Self {
            rig,
            honest,
            forger,
        }
    }

    /// Sends a message to the receiver, each byte of which is the sender's number.
    fn send(&mut self, from: NodeId, len: usize) {
        let endpoint = &mut self.side(from).endpoint;
        let to = endpoint.remotes_of(NIC, EndpointId(RECEIVER as u32)).next();
        let memory = Buffer::new(vec![from as u8; len]);
        let to = to.expect("a remote");
        let sent = endpoint.send(to, BITS, memory, 5, SendMode::Standard);
        sent.expect("it can be sent");
        self.run(Duration::from_millis(20));
    }

    fn recv(&mut self, memory: &Buffer) -> Result<ReceivePosted, PostError> {
        let (from, memory) = (self.honest, memory.clone());
        let endpoint = &mut self.side(RECEIVER).endpoint;
        endpoint.recv_from(from, BITS, MatchMask::EXACT, (memory, 6))
    }

    /// Posts a receive for which no message is there.
    fn post(&mut self, memory: &Buffer) -> RequestId {
        match self.recv(memory) {
            Ok(ReceivePosted::Pending(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn check_forger_is_lost(&mut self) {
        let forger = self.forger;
        let side = self.side(RECEIVER);
        let (_, down) = side.down.pop().expect("the forger is lost");
        assert_eq!(down.remote, forger);
        assert!(matches!(down.reason, DownReason::Protocol(_)), "{down:?}");
        assert!(side.down.is_empty());
        assert_eq!(side.endpoint.stats().malformed, 1);
        assert_eq!(self.side(FORGER).down.len(), 1);
        assert_eq!(self.side(HONEST).down, []);
    }
}

#[test]
fn forged_message_ends_its_senders_link_not_the_receive() {
    for (seed, forged) in LENGTHS.into_iter().enumerate() {
        for len in LENGTHS {
            let mut rig = Stage::new(seed as u64);
            let memory = Buffer::new(vec![0; len]);
            let receive = rig.post(&memory);
            rig.send(FORGER, forged);
            rig.check_forger_is_lost();
            assert!(memory.bytes().iter().all(|byte| *byte == 0));
            assert_eq!(rig.side(RECEIVER).completions, []);
            rig.send(HONEST, len);
            let (_, done) = rig.side(RECEIVER).completions.pop().expect("it has come");
            assert_eq!((done.request, done.status), (receive, Status::Success));
            assert_eq!(done.remote, rig.honest);
            assert!(memory.bytes().iter().all(|byte| *byte == HONEST as u8));
        }
    }
}

#[test]
fn forged_earlier_message_is_dropped_by_the_receive() {
    for (seed, forged) in LENGTHS.into_iter().enumerate() {
        let mut rig = Stage::new(seed as u64);
        let memory = Buffer::new(vec![0; 10]);
        rig.send(FORGER, forged);
        assert_eq!(rig.side(RECEIVER).down, []);
        rig.send(HONEST, 10);
        // The honest message waits behind the forged one.
        let received = rig.recv(&memory).expect("good bits");
        let ReceivePosted::Complete(outcome) = received else {
            panic!("{received:?}");
        };
        assert_eq!(outcome.remote, rig.honest);
        assert!(memory.bytes().iter().all(|byte| *byte == HONEST as u8));
        rig.run(Duration::from_millis(20));
        rig.check_forger_is_lost();
        assert_eq!(rig.side(RECEIVER).endpoint.unexpected_bytes(), 0);
    }
}

#[test]
fn receives_end_with_their_remote_and_those_of_others_go_on() {
    for matched in [false, true] {
        let mut rig = Stage::new(3);
        let memory = Buffer::new(vec![0; 300_000]);
        let receive = rig.post(&memory);
        let any = Buffer::new(vec![0; 10]);
        let endpoint = &mut rig.side(RECEIVER).endpoint;
        let other = endpoint.recv(MatchBits(8), MatchMask::EXACT, any, 7);
        other.expect("good bits");
        assert_eq!(endpoint.posted_receives(), 2);
        let honest = rig.honest;
        let words = |rig: &mut Stage| -> Vec<u64> {
            let endpoint = &rig.side(RECEIVER).endpoint;
            let receives = endpoint.receives_from(honest);
            receives
                .filter_map(|op| endpoint.ops().data(op).copied())
                .collect()
        };
        assert_eq!(words(&mut rig), [6]);
        if matched {
            // The data of its message never comes, or not completely.
            let endpoint = &mut rig.side(HONEST).endpoint;
            let to = endpoint.remotes_of(NIC, EndpointId(RECEIVER as u32)).next();
            let memory = Buffer::new(vec![1; 300_000]);
            let to = to.expect("a remote");
            endpoint
                .send(to, BITS, memory, 5, SendMode::Standard)
                .expect("it can be sent");
            while rig.look(RECEIVER).endpoint.posted_receives() > 1 {
                rig.cluster.step();
            }
            assert_eq!(words(&mut rig), [6]);
        }
        drop(rig.cluster.kill(HONEST));
        rig.run(Duration::from_millis(1_000));
        let side = rig.side(RECEIVER);
        assert_eq!(side.down.pop().expect("it is lost").1.remote, honest);
        let (_, done) = side.completions.pop().expect("it ends");
        assert!(side.completions.is_empty());
        assert_eq!((done.request, done.remote), (receive, honest));
        assert_eq!(done.matched, matched);
        assert_ne!(done.status, Status::Success);
        assert_eq!(side.endpoint.posted_receives(), 1);
        assert_eq!(words(&mut rig), []);
        assert!(matches!(rig.recv(&memory), Err(PostError::UnknownRemote)));
    }
}

#[test]
fn a_receive_whose_message_is_withdrawn_is_still_for_no_other() {
    let mut again = 0;
    // Cancelled at every moment on its way.
    for steps in 0..30 {
        let mut rig = Stage::new(4);
        let memory = Buffer::new(vec![0; 300_000]);
        let receive = rig.post(&memory);
        let endpoint = &mut rig.side(HONEST).endpoint;
        let to = endpoint.remotes_of(NIC, EndpointId(RECEIVER as u32)).next();
        let (to, data) = (to.expect("a remote"), Buffer::new(vec![1; 300_000]));
        let sent = endpoint.send(to, BITS, data, 5, SendMode::Standard);
        let Ok(SendPosted::Pending(send)) = sent else {
            panic!("{sent:?}");
        };
        for _ in 0..steps {
            rig.cluster.step();
        }
        let matched = rig.look(RECEIVER).endpoint.posted_receives() == 0;
        rig.side(HONEST).endpoint.end(send, Status::Cancelled);
        rig.run(Duration::from_millis(20));
        if !rig.side(RECEIVER).completions.is_empty() {
            continue;
        }
        again += u32::from(matched);
        rig.send(FORGER, 10);
        rig.check_forger_is_lost();
        rig.send(HONEST, 10);
        let (_, done) = rig.side(RECEIVER).completions.pop().expect("it has come");
        assert_eq!((done.request, done.remote), (receive, rig.honest));
        let honest = rig.honest;
        let endpoint = &rig.side(RECEIVER).endpoint;
        assert_eq!(endpoint.receives_from(honest).count(), 0);
    }
    assert!(again > 0, "none had matched");
}
