//! Calling an operation off.
//!
//! ```text
//!   Queued   taken out of its queue                            -BMI_ECANCEL
//!   Posted   withdrawn from the endpoint, matched or not:      -BMI_ECANCEL
//!            nobody touches its memory afterwards
//!            it had completed meanwhile                         as it did
//!   Done     nothing to do                                      as it did
//! ```
//!
//! In every case it is reported once. The draft disconnects the peer to get a send back, because
//! MX could not do it otherwise; the endpoint below can, so the peer and its other operations stay.
//!
//! A receive that is called off before its message has come leaves that message with nobody; see
//! [`crate::abandoned`].

use crate::abi::constants::BMI_ECANCEL;
use crate::error::Error;
use crate::match_layout::{Fields, MATCH, MessageType, bits};
use crate::method::{Method, PostKind};
use crate::op::table::{Op, OpIndex, Stage};
use crate::peer::table::PeerKey;
use mx_proto::port::Port;
use mx_proto::{Cancelled, Clock, Status};
use mx_sys::UserMemory;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Calls operation `id` off. Its completion can be had at once.
    pub fn cancel(&mut self, id: i64, context: i64) -> Result<(), Box<Error>> {
        let index = self.find(id, context)?;
        if self.take_back(index) {
            self.finish_op(index, -BMI_ECANCEL, 0);
        }
        self.drain();
        Ok(())
    }

    /// Takes an operation out of its peer's lists, and back from the endpoint. False when it has
    /// completed.
    pub(crate) fn take_back(&mut self, index: OpIndex) -> bool {
        let op = *self.ops.get(index);
        match op.stage {
            Stage::Done | Stage::Free => return false,
            Stage::Queued => {
                self.unqueue(index);
                self.give_up(&op);
            }
            Stage::Posted(request) => {
                let announced = !self.endpoint.is_queued(request);
                match self.endpoint.cancel(request) {
                    Cancelled::Unknown => return false,
                    Cancelled::Withdrawn => self.give_up(&op),
                    Cancelled::Aborted => {}
                }
                if op.kind != PostKind::Recv {
                    if !announced {
                        self.unstamp(&op);
                    }
                } else if let Some(peer) = self.peers.get_mut(op.peer) {
                    self.ops.unlink(&mut peer.receives, index);
                }
            }
        }
        true
    }

    /// Takes an operation out of its peer's queue, and gives up its memory.
    pub(crate) fn unqueue(&mut self, index: OpIndex) {
        let op = self.ops.get(index);
        let (key, kind) = (op.peer, op.kind);
        if let Some(peer) = self.peers.get_mut(key) {
            self.ops.unlink(peer.queue_of(kind), index);
            self.stalls.settle(peer);
        }
        self.ops.take_memory(index);
    }

    /// Nobody waits any more for the message that a receive was for.
    pub(crate) fn give_up(&mut self, op: &Op) {
        if op.kind == PostKind::Recv {
            let fields = Fields::of(op.bits);
            self.inbox.abandoned.add(op.peer.id(), fields.tag);
        }
    }

    /// Throws away what has come for receives that were given up, if its peer's messages take up most
    /// of what it may leave here: in the end it could send nothing any more.
    #[cold]
    pub(crate) fn relieve(&mut self, key: PeerKey) {
        let Some(partner) = self.peers.get(key).and_then(|peer| peer.state.partner()) else {
            return;
        };
        if !self.endpoint.is_crowded_by(partner) {
            return;
        }
        let mut thrown = 0;
        let bits = |tag| bits(MessageType::Expected, key.id(), tag);
        loop {
            let endpoint = &mut self.endpoint;
            let is_here = |tag| endpoint.probe(bits(tag), MATCH).is_some();
            let Some(tag) = self.inbox.abandoned.take_oldest(key.id(), is_here) else {
                break;
            };
            // The send of one that was only offered ends as one whose receive was called off later.
            thrown += u32::from(endpoint.discard(bits(tag), MATCH, Status::Aborted));
        }
        if thrown > 0 {
            let id = key.id();
            log::info!("{thrown} messages of peer {id} for receives that were given up are gone");
        }
    }
}
