//! Checks of the results that the endpoint reports for operations.

use super::{KEY, Node, What};
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
                if completion.status == Status::Success {
                    assert_eq!(key, KEY, "a wrong key was accepted");
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
        let mut book = self.endpoint.owner().book.borrow_mut();
        let from = identity.and_then(|peer| book.life_of(peer.session));
        let posted = (context, self.endpoint.owner().next_context + 1, selector);
        book.received_by(self.life, posted, from, completion.bits, len, &bytes[..got]);
    }

    fn on_connected(&mut self, to: NodeId, remote: RemoteId) {
        // It may have gone again before the completion was fetched.
        let Some(identity) = self.endpoint.remote_identity(remote) else {
            return;
        };
        let honest = self.honest(&identity);
        assert_eq!(honest, Some(to), "another than n{to}: {identity:?}");
        self.get_to(remote, &identity);
    }

    /// It is connected to the present life of that node.
    pub fn knows(&self, node: NodeId) -> bool {
        let known = |remote: &RemoteId| {
            let identity = self.endpoint.remote_identity(*remote);
            identity.is_some_and(|of| self.honest(&of) == Some(node))
        };
        self.peers.iter().any(known)
    }

    /// The node that has that session, if the name is one of its own.
    fn honest(&self, identity: &Identity) -> Option<NodeId> {
        let book = self.endpoint.owner().book.borrow();
        let node = book.lives()[book.life_of(identity.session)?].node;
        let named = self.world.number(node) == identity.endpoint;
        (named && self.world.proves(node, identity.nic)).then_some(node)
    }

    /// It may send to that remote from now on.
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
            // Messages keep their order on one way.
            return book.count("two associations with one peer");
        }
        drop(book);
        assert!(self.endpoint.set_remote_context(remote, life as u64 + 1));
        self.peers.push(remote);
    }

    /// Those that have sent something become peers.
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
