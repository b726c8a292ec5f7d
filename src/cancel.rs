//! Calling an operation off.
//!
//! ```text
//!   Queued   taken out of its queue                            -BMI_ECANCEL
//!   Posted   ended by the endpoint, matched or not:            -BMI_ECANCEL
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
use mx_proto::{Clock, Status};
use mx_sys::UserMemory;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Calls operation `id` off. Its completion can be had at once.
    pub fn cancel(&mut self, id: i64, context: i64) -> Result<(), Box<Error>> {
        let index = self.find(id, context)?;
        self.call_off(index, -BMI_ECANCEL, Status::Cancelled);
        self.drain();
        Ok(())
    }

    /// Ends an operation, unless it is over: with `code` if it is in a queue of ours. The endpoint says
    /// so of what it has, as `status`.
    pub(crate) fn call_off(&mut self, index: OpIndex, code: i32, status: Status) {
        let op = *self.ops.get(index);
        match op.stage {
            Stage::Queued => {
                self.unqueue(index);
                self.give_up(&op);
                self.finish_op(index, code, 0);
            }
            Stage::Posted(request) => {
                self.endpoint.end(request, status);
            }
            Stage::Done | Stage::Free => {}
        }
    }

    /// Takes an operation out of its peer's queue, and gives up its memory.
    pub(crate) fn unqueue(&mut self, index: OpIndex) {
        let op = self.ops.get(index);
        let (key, kind) = (op.peer, op.kind);
        if let Some(peer) = self.endpoint.owner_mut().peers.get_mut(key) {
            self.ops.unlink(peer.queue_of(kind), index);
            self.stalls.settle(peer);
        }
        self.ops.take_memory(index);
    }

    /// Nobody waits any more for the message that a receive was for.
    pub(crate) fn give_up(&mut self, op: &Op) {
        if op.kind == PostKind::Recv {
            let fields = Fields::of(op.bits);
            self.inbox_mut().abandoned.add(op.peer.id(), fields.tag);
        }
    }

    /// Throws away what has come for receives that were given up, if its peer's messages take up most
    /// of what it may leave here: in the end it could send nothing any more.
    #[cold]
    pub(crate) fn relieve(&mut self, key: PeerKey) {
        let Some(partner) = self.peers().get(key).and_then(|peer| peer.state.partner()) else {
            return;
        };
        if !self.endpoint.is_crowded_by(partner) {
            return;
        }
        let mut thrown = 0;
        let bits = |tag| bits(MessageType::Expected, key.id(), tag);
        let mut abandoned = std::mem::take(&mut self.inbox_mut().abandoned);
        while let Some(tag) = abandoned.take_oldest(key.id(), |tag| {
            self.endpoint.probe(bits(tag), MATCH).is_some()
        }) {
            // The send of one that was only offered ends as one whose receive was called off later.
            let told = Status::Aborted;
            thrown += u32::from(self.endpoint.discard(bits(tag), MATCH, told));
        }
        self.inbox_mut().abandoned = abandoned;
        if thrown > 0 {
            let id = key.id();
            log::info!("{thrown} messages of peer {id} for receives that were given up are gone");
        }
    }
}
