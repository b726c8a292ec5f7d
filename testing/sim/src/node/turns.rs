//! Turns of the application.
//!
//! ```text
//!   Busy: connect, send, recv, cancel, disconnect, probe, nonsense      Draining: recv anything
//! ```
//!
//! Every operation is recorded before it is posted, because it may end at once.

use super::judge::Judge;
use super::{FOR_HANDLER, KEY, NIC, Node, TAG_MASK, WRONG_KEY, What};
use crate::buffer::Buffer;
use crate::calling_off::{CallOff, Cancelled};
use crate::check::Selector;
use crate::clock::VirtualClock;
use crate::owner::Queue;
use crate::world::NodeId;
use mx_proto::port::Port;
use mx_proto::{
    Endpoint, MatchBits, MatchMask, NicId, PostError, ReceivePosted, RemoteId, RequestId, SendMode,
    SendPosted, Target,
};

impl<P: Port<Buffer>> Node<P> {
    pub(super) fn take_turn(&mut self) {
        if self.ops.len() >= self.habits.outstanding {
            if self.rng().chance(0.2) {
                self.random_cancel();
            }
            return;
        }
        match self.rng().below(100) {
            0..8 => self.random_connect(),
            8..45 => self.random_send(),
            45..90 => self.random_recv(),
            90..96 => self.random_cancel(),
            96 => self.random_disconnect(),
            97 => self.post_to_a_stranger(),
            _ => self.random_probe(),
        }
    }

    fn random_connect(&mut self) {
        let to = self.endpoint.owner_mut().rng.index(self.nodes);
        let home = self.world.home(to);
        let myself = to == self.id && self.rng().chance(0.8);
        if myself || home.translator.is_some() {
            return;
        }
        // A call with a wrong key may end another call of this node on the same link.
        let wrong =
            self.endpoint.owner_mut().rng.chance(0.05) && self.endpoint.owner().siege.is_none();
        let key = if wrong { WRONG_KEY } else { KEY };
        self.connect(to, key);
    }

    /// Posts a connect to a node.
    pub fn connect(&mut self, to: NodeId, key: u32) {
        let addresses = self.world.addresses(to);
        let nic = match addresses.len() {
            0 => NIC,
            1 => addresses[0],
            _ => self.rng().pick(&addresses),
        };
        self.connect_at(to, nic, key);
    }

    /// Posts a connect to a node at that address.
    pub fn connect_at(&mut self, to: NodeId, nic: NicId, key: u32) {
        let context = self.post(What::Connect { to, key }, &Buffer::new(Vec::new()));
        self.note(format!("connect {context} to n{to} at {:x}", nic.0));
        let target = Target::auto(nic, self.world.number(to));
        match self
            .endpoint
            .connect(target, key, MatchBits(context), context)
        {
            Ok(request) => self.pending(context, request),
            Err(error) => {
                self.note(format!("refused: {error}"));
                self.ops.remove(&context);
            }
        }
    }

    fn random_len(&mut self) -> usize {
        let most = self.habits.message_max;
        let rng = self.rng();
        let len = match rng.below(10) {
            0 => 0,
            1 => rng.within(0..=16),
            2..6 => rng.within(8..=1_000),
            6..8 => rng.within(1_000..=33_000),
            _ => rng.within(0..=most),
        };
        len.min(most)
    }

    fn random_bits(&mut self) -> u64 {
        let rng = self.rng();
        let tag = rng.below(4);
        match rng.below(4) {
            0 => FOR_HANDLER | tag,
            // Bits outside every mask, like the credit byte of the BMI method.
            1 => tag | rng.below(3) << 40,
            _ => tag,
        }
    }

    fn random_send(&mut self) {
        if self.peers.is_empty() {
            return self.random_connect();
        }
        let index = self.endpoint.owner_mut().rng.index(self.peers.len());
        let (remote, len) = (self.peers[index], self.random_len());
        let bits = self.random_bits();
        let parks = self.rng().chance(0.1);
        self.post_send(remote, bits, len, parks);
    }

    /// Posts a send.
    pub fn send(&mut self, remote: RemoteId, bits: u64, len: usize) {
        self.post_send(remote, bits, len, false);
    }

    fn post_send(&mut self, remote: RemoteId, bits: u64, len: usize, parks: bool) {
        let identity = self.endpoint.remote_identity(remote);
        let to =
            identity.and_then(|peer| self.endpoint.owner().book.borrow().life_of(peer.session));
        let Some(to) = to else {
            assert!(identity.is_none(), "a remote with a session that never was");
            self.peers.retain(|peer| *peer != remote);
            return;
        };
        let bits = MatchBits(bits);
        let (serial, bytes) = self
            .endpoint
            .owner()
            .book
            .borrow_mut()
            .compose(self.life, to, bits, len);
        let seams = if self.habits.pieces && len > 2 {
            vec![1, len / 2]
        } else {
            Vec::new()
        };
        let buffer = Buffer::in_pieces(bytes, seams);
        let synchronous = self.rng().chance(0.1);
        let mode = if synchronous {
            SendMode::Synchronous
        } else if self.habits.copies && self.rng().chance(0.5) {
            SendMode::Buffered
        } else {
            SendMode::Standard
        };
        let what = What::Send {
            serial,
            // The endpoint may have other nodes' bytes before the application has the message.
            acknowledged: synchronous && bits.0 & FOR_HANDLER == 0,
            to,
        };
        let context = self.post(what, &buffer);
        self.note(format!(
            "send {context}: message {serial}, bits {:x}, {len} bytes",
            bits.0
        ));
        if parks {
            return self.hold(context, &buffer, false, |endpoint, op| {
                endpoint.send_pending(op, remote, bits, mode)
            });
        }
        let queued = self.endpoint.stats().queued;
        match self
            .endpoint
            .send(remote, bits, buffer.share(), context, mode)
        {
            Ok(SendPosted::Complete) => {
                let kind = if self.endpoint.stats().queued > queued {
                    "Send from a copy"
                } else {
                    "Send at once"
                };
                self.endpoint.owner().book.borrow_mut().count(kind);
                assert!(!synchronous, "a synchronous send completed at once");
                buffer.give_back();
                self.ops.remove(&context);
                self.endpoint
                    .owner()
                    .book
                    .borrow_mut()
                    .send_done(serial, false);
            }
            Ok(SendPosted::Pending(request)) => self.pending(context, request),
            Err(error) => {
                assert_eq!(error, PostError::UnknownRemote);
                self.ops.remove(&context);
                self.endpoint.owner().book.borrow_mut().unposted(serial);
                self.peers.retain(|peer| *peer != remote);
            }
        }
    }

    fn random_recv(&mut self) {
        let len = self.random_len();
        let bits = self.random_bits() & !FOR_HANDLER;
        let selector = match self.rng().below(6) {
            0 => Selector {
                bits: bits & TAG_MASK,
                mask: TAG_MASK,
            },
            1 => Selector {
                bits: 0,
                mask: FOR_HANDLER,
            },
            _ => Selector::exact(bits),
        };
        let parks = self.rng().chance(0.1);
        self.post_recv(selector, len, parks);
    }

    /// Posts a receive into a buffer of `len` bytes.
    pub fn recv(&mut self, selector: Selector, len: usize) {
        self.post_recv(selector, len, false);
    }

    fn post_recv(&mut self, selector: Selector, len: usize, parks: bool) {
        let seams = if self.habits.pieces && len > 3 {
            vec![2, len / 3]
        } else {
            Vec::new()
        };
        let buffer = Buffer::in_pieces(vec![0xa5; len], seams);
        let context = self.post(What::Recv { selector }, &buffer);
        let (bits, mask) = (MatchBits(selector.bits), MatchMask(selector.mask));
        self.note(format!(
            "recv {context}: {:x}/{:x}, room for {len}",
            bits.0, mask.0
        ));
        if parks {
            return self.hold(context, &buffer, true, |endpoint, op| {
                endpoint.recv_pending(op, None, bits, mask)
            });
        }
        match self.endpoint.recv(bits, mask, buffer.share(), context) {
            Ok(ReceivePosted::Complete(outcome)) => {
                self.on_completion(crate::Completion::at_once(outcome, context))
            }
            Ok(ReceivePosted::Pending(request)) => self.pending(context, request),
            Err(error) => panic!("a receive with good bits was refused: {error}"),
        }
    }

    /// Posts an operation whose remote is named later; then names it, or cancels the operation.
    fn hold(
        &mut self,
        context: u64,
        buffer: &Buffer,
        receives: bool,
        activate: impl FnOnce(
            &mut Endpoint<P, VirtualClock, Queue<Buffer, Judge>>,
            RequestId,
        ) -> Result<(), PostError>,
    ) {
        let pending = self
            .endpoint
            .post_pending(buffer.share(), receives, context);
        let op = pending.expect("there is no limit");
        self.pending(context, op);
        let called_off = self.rng().chance(0.1);
        if called_off || activate(&mut self.endpoint, op).is_err() {
            self.cancel(context);
        }
    }

    fn random_cancel(&mut self) {
        if !self.habits.cancels || self.ops.is_empty() {
            return;
        }
        let index = self.endpoint.owner_mut().rng.index(self.ops.len());
        let context = self.ops.keys().copied().nth(index);
        if let Some(context) = context {
            self.cancel(context);
        }
    }

    pub(super) fn cancel(&mut self, context: u64) {
        let op = self.ops.get(&context);
        let Some(request) = op.and_then(|op| op.request) else {
            return;
        };
        let outcome = self.endpoint.cancel(request);
        self.note(format!("cancel {context}: {outcome:?}"));
        let cancelled = format!("cancel {outcome:?}");
        self.endpoint.owner().book.borrow_mut().count(cancelled);
        if outcome == Cancelled::Unknown {
            // Its completion waits to be fetched, or never comes, which the end of the run detects.
            let mut book = self.endpoint.owner().book.borrow_mut();
            return book.called_off(self.life, context);
        }
        if outcome == Cancelled::Later {
            let sends = op.is_some_and(|op| matches!(op.what, What::Send { .. }));
            assert!(sends, "it is no send");
            return;
        }
        let Some(op) = self.ops.remove(&context) else {
            return;
        };
        op.buffer.give_back();
        match op.what {
            What::Send { serial, .. } => self.endpoint.owner().book.borrow_mut().send_given(serial),
            What::Recv { selector } if outcome == Cancelled::Aborted => {
                let mut book = self.endpoint.owner().book.borrow_mut();
                book.lost_midway(self.life, selector);
            }
            What::Recv { .. } | What::Connect { .. } => {}
        }
        let again = self.endpoint.cancel(request);
        assert_eq!(again, Cancelled::Unknown, "a request can be cancelled once");
    }

    fn random_disconnect(&mut self) {
        if !self.habits.disconnects || self.peers.is_empty() {
            return;
        }
        let index = self.endpoint.owner_mut().rng.index(self.peers.len());
        self.disconnect(self.peers[index]);
    }

    /// Ends the session with a remote.
    pub fn disconnect(&mut self, remote: RemoteId) {
        self.note(format!("disconnect {remote:?}"));
        if let Some(identity) = self.endpoint.remote_identity(remote) {
            let life = self
                .endpoint
                .owner()
                .book
                .borrow()
                .life_of(identity.session);
            if let Some(life) = life {
                self.endpoint
                    .owner()
                    .book
                    .borrow_mut()
                    .parted(self.life, life);
            }
        }
        self.endpoint.disconnect(remote);
        assert_eq!(self.endpoint.remote_identity(remote), None, "still known");
        self.peers.retain(|peer| *peer != remote);
    }

    fn post_to_a_stranger(&mut self) {
        let unknown = RemoteId::from_word(self.rng().bits());
        let sent = self.endpoint.send(
            unknown,
            MatchBits(0),
            Buffer::new(vec![1]),
            0,
            SendMode::Standard,
        );
        assert_eq!(sent, Err(PostError::UnknownRemote));
        assert_eq!(
            self.endpoint.cancel(RequestId::from_word(u64::MAX)),
            Cancelled::Unknown
        );
        let bad = self
            .endpoint
            .recv(MatchBits(2), MatchMask(1), Buffer::new(vec![1]), 0);
        assert_eq!(bad, Err(PostError::BadMask));
    }

    fn random_probe(&mut self) {
        let bits = self.random_bits() & TAG_MASK;
        if let Some(arrival) = self.endpoint.probe(MatchBits(bits), MatchMask(TAG_MASK)) {
            assert_eq!(arrival.bits.0 & TAG_MASK, bits);
            assert_eq!(
                self.endpoint.remote_identity(arrival.source),
                Some(arrival.identity)
            );
        }
    }

    /// Receives everything that has arrived or arrives.
    pub(super) fn drain(&mut self) {
        let recvs = self.ops.len() - self.outstanding();
        if recvs < 4 {
            self.recv(Selector { bits: 0, mask: 0 }, self.habits.message_max);
        }
    }
}
