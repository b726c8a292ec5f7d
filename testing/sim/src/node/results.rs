//! Checks of the results that the endpoint reports for operations.

use super::{KEY, Node, Siege, What};
use crate::buffer::Buffer;
use crate::check::Selector;
use crate::owner::Completion;
use crate::world::NodeId;
use mx_proto::port::Port;
use mx_proto::{Down, DownReason, Identity, MatchBits, OpKind, RemoteId, Status};

impl<P: Port<Buffer>> Node<P> {
    pub(super) fn on_completion(&mut self, completion: Completion) {
        let context = completion.context;
        self.note(format!("completion of {context}: {:?}", completion.status));
        let ended = format!("{:?} {:?}", completion.kind, completion.status);
        self.endpoint.owner().book.borrow_mut().count(ended);
        let Some(op) = self.ops.remove(&context) else {
            panic!("a completion for what has completed or never was: {completion:?}");
        };
        op.buffer.give_back();
        match op.what {
            What::Send {
                serial,
                acknowledged,
                ..
            } => {
                assert_eq!(completion.kind, OpKind::Send);
                let len = op.buffer.bytes().len();
                if let Some(siege) = &self.endpoint.owner().siege {
                    siege.check_send(completion.status);
                }
                let mut book = self.endpoint.owner().book.borrow_mut();
                match completion.status {
                    Status::Success => {
                        assert_eq!(completion.transferred as usize, len);
                        book.send_done(serial, acknowledged);
                    }
                    Status::Truncated => {
                        assert!((completion.transferred as usize) < len);
                        book.send_done(serial, false);
                    }
                    Status::Timeout
                    | Status::Cancelled
                    | Status::Unreachable
                    | Status::Aborted
                    | Status::EndpointClosed => book.send_given(serial),
                    other => panic!("a send cannot end as {other:?}"),
                }
            }
            What::Recv { selector } => {
                assert_eq!(completion.kind, OpKind::Recv);
                self.on_received(context, selector, &op.buffer, completion);
            }
            What::Connect { to, key } => {
                assert_eq!(completion.kind, OpKind::Connect);
                assert_eq!(completion.bits, MatchBits(context));
                // Some ports cannot connect to themselves.
                let judged = key == KEY && to != self.id;
                if let Some(siege) = self.endpoint.owner().siege.as_ref().filter(|_| judged) {
                    let took = self.world.now().since(op.posted_at);
                    siege.check_connect((self.id, to), completion.status, took);
                }
                if completion.status == Status::Success {
                    let siege = self.endpoint.owner().siege.as_ref();
                    let any = siege.is_some_and(|siege| siege.doubts(to));
                    assert!(any || key == KEY, "a wrong key was accepted");
                    self.on_connected(to, completion.remote);
                }
            }
        }
    }

    fn on_received(
        &mut self,
        context: u64,
        selector: Selector,
        buffer: &Buffer,
        completion: Completion,
    ) {
        let (len, got) = (completion.length as usize, completion.transferred as usize);
        let bytes = buffer.bytes();
        match completion.status {
            Status::Success => assert_eq!((got, got <= bytes.len()), (len, true)),
            Status::Truncated => assert_eq!((got, got < len), (bytes.len(), true)),
            Status::Timeout | Status::Unreachable | Status::Cancelled | Status::EndpointClosed => {
                if completion.matched {
                    let mut book = self.endpoint.owner().book.borrow_mut();
                    book.lost_midway(self.life, selector);
                }
                return;
            }
            other => panic!("a receive cannot end as {other:?}"),
        }
        let identity = self.endpoint.remote_identity(completion.remote);
        if let Some(siege) = &self.endpoint.owner().siege
            && Siege::is_hostile(completion.bits)
        {
            self.endpoint.owner().book.borrow_mut().count("hostile");
            // It may have ended since.
            return identity.iter().for_each(|name| siege.judge(name));
        }
        let mut book = self.endpoint.owner().book.borrow_mut();
        let from = identity.and_then(|peer| book.life_of(peer.session));
        let posted = (context, self.endpoint.owner().next_context + 1, selector);
        book.received_by(self.life, posted, from, completion.bits, len, &bytes[..got]);
    }

    fn on_connected(&mut self, to: NodeId, remote: RemoteId) {
        // It may have ended before the completion was fetched.
        let Some(identity) = self.endpoint.remote_identity(remote) else {
            return;
        };
        let honest = self.honest(&identity);
        if let Some(siege) = self
            .endpoint
            .owner()
            .siege
            .as_ref()
            .filter(|siege| siege.doubts(to))
        {
            // It may have relayed the call to an honest node under that node's own name.
            if honest.is_none() {
                siege.judge(&identity);
            }
            return;
        }
        assert_eq!(honest, Some(to), "another than n{to}: {identity:?}");
        self.get_to(remote, &identity);
    }

    /// Records that the node may send to that remote from now on.
    fn get_to(&mut self, remote: RemoteId, identity: &Identity) {
        if self.peers.contains(&remote) {
            return;
        }
        let mut book = self.endpoint.owner().book.borrow_mut();
        let Some(life) = book.life_of(identity.session) else {
            panic!("a remote with a session that never was")
        };
        let same = |other: &RemoteId| {
            let other = self.endpoint.remote_identity(*other);
            other.is_some_and(|other| other.session == identity.session)
        };
        if self.peers.iter().any(same) {
            // Messages keep their order within one session.
            return book.count("two sessions with one peer");
        }
        drop(book);
        assert!(self.endpoint.set_remote_context(remote, life as u64 + 1));
        self.peers.push(remote);
    }

    /// Checks that joined sessions are of one process.
    pub(super) fn check_joins(&mut self) {
        let new = &self.endpoint.owner().joined[self.joins..];
        let identity = |remote: &RemoteId| self.endpoint.remote_identity(*remote);
        for (one, other) in new {
            self.endpoint.owner().book.borrow_mut().count("joined");
            if let (Some(one), Some(other)) = (identity(one), identity(other)) {
                assert_eq!(one.session, other.session, "two lives are joined");
                let of = [self.honest(&one), self.honest(&other)];
                assert!(
                    of[0].is_some() && of[0] == of[1],
                    "joined: {one:?} {other:?}"
                );
            }
        }
        self.joins += new.len();
    }

    /// Returns the first session of a process that was seen before it was joined with an earlier
    /// one.
    pub fn seen_too_early(&self) -> Option<RemoteId> {
        let judge = self.endpoint.owner();
        let life = |remote| Some(self.endpoint.remote_identity(remote)?.session);
        let early = |at: &usize| {
            let (remote, told) = judge.seen[*at];
            let before = judge.seen[..*at].iter().map(|(seen, _)| *seen);
            let of_one: Vec<_> = before
                .filter(|other| life(*other) == life(remote))
                .collect();
            let is_joined = |other: &RemoteId| are_joined(&judge.joined[..told], remote, *other);
            life(remote).is_some() && !of_one.is_empty() && !of_one.iter().any(is_joined)
        };
        let at = (0..judge.seen.len()).find(early)?;
        Some(judge.seen[at].0)
    }

    /// Makes peers of remotes that have sent something.
    pub(super) fn get_to_know(&mut self) {
        let heard_of = self.endpoint.owner_mut().heard_of.as_mut();
        for remote in heard_of.map(std::mem::take).unwrap_or_default() {
            if let Some(identity) = self.endpoint.remote_identity(remote) {
                self.get_to(remote, &identity);
            }
        }
    }

    pub(super) fn on_down(&mut self, down: Down) {
        let Down {
            remote,
            context,
            identity,
            reason,
            ..
        } = down;
        self.note(format!("remote {remote:?} is down: {reason}"));
        assert_eq!(
            self.endpoint.remote_identity(remote),
            None,
            "down, but still known"
        );
        let knew = context > 0 || self.peers.contains(&remote);
        if self.endpoint.owner().siege.is_some() {
            let honest = knew && self.honest(&identity).is_some();
            assert!(!honest, "honest {identity:?} is down: {reason}");
            return;
        }
        assert!(
            self.honest(&identity).is_some(),
            "a name that is not the peer's: {identity:?}"
        );
        assert!(
            !matches!(reason, DownReason::Protocol(_)),
            "an endpoint of ours was taken for none of ours: {reason}"
        );
        let mut book = self.endpoint.owner().book.borrow_mut();
        book.count(if knew {
            format!("down: {reason}")
        } else {
            format!("unknown and down: {reason}")
        });
        let Some(life) = book.life_of(identity.session) else {
            panic!("a session that never was is down")
        };
        assert!(
            context == 0 || context == life as u64 + 1,
            "another remote's context"
        );
        book.parted(self.life, life);
        drop(book);
        self.peers.retain(|peer| *peer != remote);
    }
}

/// Returns whether two remotes are joined, perhaps by way of others.
pub fn are_joined(joined: &[(RemoteId, RemoteId)], one: RemoteId, other: RemoteId) -> bool {
    let mut all = vec![one];
    let mut at = 0;
    while let Some(of) = all.get(at).copied() {
        for (one, other) in joined {
            for (from, to) in [(*one, *other), (*other, *one)] {
                if from == of && !all.contains(&to) {
                    all.push(to);
                }
            }
        }
        at += 1;
    }
    all.contains(&other)
}
