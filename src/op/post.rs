//! The rules for accepting an operation.
//!
//! ```text
//!                INIT            WAIT                       READY              DISCONNECT
//!   send         connect, queue  queue                      endpoint, or queue queue
//!                                                           for credits or a
//!                                                           ticket
//!   receive      connect, queue  queue while connecting,    endpoint           queue
//!                                then endpoint
//! ```
//!
//! A send goes past the queue of its kind only when that is empty, so nothing overtakes; a receive
//! likewise. What completes at once takes no block. What is refused leaves nothing behind.
//!
//! Knows nothing of: waiting, threads, C's pointers.

use super::table::{Op, OpIndex, Stage};
use crate::abi::types::bmi_method_addr;
use crate::error::Error;
use crate::match_layout::{MATCH, MessageType, bits};
use crate::method::{Method, OPERATION_COST, Post, PostKind, Posted, code_of};
use crate::peer::conversation::Conversation;
use crate::peer::state::{Cause, Ready, State};
use crate::peer::table::PeerKey;
use mx_proto::port::Port;
use mx_proto::{self as mx, Clock, Memory, Received};
use mx_sys::UserMemory;
use std::ptr::NonNull;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Posts an operation with the peer that its address object stands for. `id` is written before
    /// the operation can complete; on failure nothing has happened.
    #[inline]
    pub fn post(&mut self, key: PeerKey, post: Post, id: &mut i64) -> Result<Posted, Box<Error>> {
        let waiting = self.ops.len().max(self.endpoint.requests());
        if !self.room.admits(waiting) && !self.frees_memory(key, &post) {
            return Err(no_memory("one more operation", OPERATION_COST));
        }
        match post.kind {
            PostKind::Recv => self.post_recv(key, post, id),
            PostKind::Send => self.post_send(key, post, id),
            PostKind::SendUnexpected => {
                let posted = self.post_send(key, post, id)?;
                self.open_conversation(key);
                Ok(posted)
            }
        }
    }

    /// Is it a receive for a message that lies here already?
    #[cold]
    fn frees_memory(&mut self, key: PeerKey, post: &Post) -> bool {
        let bits = bits(MessageType::Expected, key.id(), post.tag as u32);
        post.kind == PostKind::Recv && self.endpoint.probe(bits, MATCH).is_some()
    }

    #[inline]
    fn post_send(&mut self, key: PeerKey, post: Post, id: &mut i64) -> Result<Posted, Box<Error>> {
        let size = post.memory.len() as i64;
        let kind = match post.kind {
            PostKind::SendUnexpected => {
                let limit = self.settings.unexpected_max as i64;
                if size > limit {
                    return Err(Error::MessageTooLarge { size, limit }.into());
                }
                MessageType::Unexpected
            }
            _ => MessageType::Expected,
        };
        let Some(peer) = self.peers.get_mut(key) else {
            return Err(unknown(&post));
        };
        if peer.conversation == Conversation::Cut && post.kind == PostKind::Send {
            return self.fail_cut(key, &post, id);
        }
        let State::Ready(Ready { partner, tx_id }) = peer.state else {
            return self.queue(key, post, bits(kind, 0, 0), id);
        };
        let queue_is_empty = peer.queue_of(post.kind).is_empty();
        let has_ticket = self.tickets.allow(peer.sends);
        if !queue_is_empty || (!has_ticket && !self.has_ticket(key)) {
            return self.queue(key, post, bits(kind, 0, 0), id);
        }
        let len = u32::try_from(size).unwrap_or(u32::MAX);
        let Some((byte, mode)) = self.stamp(key, post.kind, len) else {
            return self.queue(key, post, bits(kind, 0, 0), id);
        };
        let bits = byte.put(bits(kind, tx_id, post.tag as u32));
        let op = new_op(&post, size, bits, key);
        let Some(index) = self.ops.reserve() else {
            self.unstamp(&op);
            return Err(no_memory("an operation", 192));
        };
        let context = index.number().into();
        match self
            .endpoint
            .send(partner, bits, post.memory, context, mode)
        {
            Ok(mx::Posted::Complete) => Ok(Posted::Complete { size }),
            Ok(mx::Posted::Pending(request)) => {
                self.take_ticket(key, request);
                if op.kind == PostKind::Send && self.bounce(key, request, size as usize) {
                    return Ok(Posted::Complete { size });
                }
                if let Some(peer) = self.peers.get_mut(key) {
                    peer.refs += 1;
                }
                self.ops.commit(index, op, post.addr.as_ptr());
                self.ops.get_mut(index).stage = Stage::Posted(request);
                *id = self.ops.id(index);
                self.limit_posted(op.kind, request);
                Ok(Posted::Pending)
            }
            Err(mx::PostError::UnknownPartner) => {
                let peer = self.peers.get(key);
                let name = peer.map_or_else(String::new, |peer| peer.name.clone());
                self.disconnect(key, Cause::Reset, false);
                self.drain();
                Err(Error::PeerReset(name).into())
            }
            Err(mx::PostError::TooMany) => Err(no_memory("an operation", 192)),
            Err(_) => Err(Error::MessageTooLarge {
                size,
                limit: i64::from(u32::MAX),
            }
            .into()),
        }
    }

    #[inline]
    fn post_recv(&mut self, key: PeerKey, post: Post, id: &mut i64) -> Result<Posted, Box<Error>> {
        let Some(peer) = self.peers.get_mut(key) else {
            return Err(unknown(&post));
        };
        let bits = bits(MessageType::Expected, key.id(), post.tag as u32);
        let abandoned = &mut self.endpoint.owner_mut().inbox.abandoned;
        if !abandoned.is_empty() {
            abandoned.take_back(key.id(), post.tag as u32);
        }
        let State::Ready(Ready { partner, .. }) = peer.state else {
            return self.queue(key, post, bits, id);
        };
        let op = new_op(&post, post.memory.len() as i64, bits, key);
        let Some(index) = self.ops.reserve() else {
            return Err(no_memory("an operation", 192));
        };
        let context = index.number().into();
        match (self.endpoint).recv_from(partner, bits, MATCH, post.memory, context) {
            Ok(Received::Pending(request)) => {
                peer.refs += 1;
                self.ops.commit(index, op, post.addr.as_ptr());
                self.ops.get_mut(index).stage = Stage::Posted(request);
                *id = self.ops.id(index);
                let cut = peer.conversation == Conversation::Cut;
                self.limit_posted(op.kind, request);
                if cut {
                    self.on_provisional(index);
                }
                Ok(Posted::Pending)
            }
            Ok(Received::Complete(outcome)) => {
                let size = i64::from(outcome.transferred);
                let error = code_of(outcome.status);
                if error == 0 {
                    return Ok(Posted::Complete { size });
                }
                self.fail_recv((index, op), post.addr, (error, size), id)
            }
            Err(mx::PostError::UnknownPartner) => {
                // It has gone, and the method has not looked at that yet.
                let why = self.endpoint.owner().ends.lost(partner);
                let cause = why.map_or(Cause::Reset, Cause::of_down);
                self.fail_recv((index, op), post.addr, (cause.code(), 0), id)
            }
            Err(mx::PostError::TooMany) => Err(no_memory("an operation", 192)),
            Err(_) => {
                debug_assert!(false, "our mask covers our bits");
                Err(Error::Transfer(mx::Status::Aborted).into())
            }
        }
    }

    /// A receive has failed in its own post, but as an operation: it is reported like any other.
    #[cold]
    fn fail_recv(
        &mut self,
        (index, op): (OpIndex, Op),
        addr: NonNull<bmi_method_addr>,
        (error, size): (i32, i64),
        id: &mut i64,
    ) -> Result<Posted, Box<Error>> {
        self.ops.commit(index, op, addr.as_ptr());
        *id = self.ops.id(index);
        self.done.push(&mut self.ops, index, error, size);
        Ok(Posted::Pending)
    }

    /// The conversation with the peer is cut: an expected send ends at once.
    #[cold]
    fn fail_cut(&mut self, key: PeerKey, post: &Post, id: &mut i64) -> Result<Posted, Box<Error>> {
        let op = new_op(post, 0, bits(MessageType::Expected, 0, 0), key);
        let Some(index) = self.ops.alloc(op, post.addr.as_ptr()) else {
            return Err(no_memory("an operation", 192));
        };
        *id = self.ops.id(index);
        self.end_cut(key, index);
        Ok(Posted::Pending)
    }

    /// The peer is not ready: the operation waits for it.
    #[cold]
    fn queue(
        &mut self,
        key: PeerKey,
        post: Post,
        bits: mx::MatchBits,
        id: &mut i64,
    ) -> Result<Posted, Box<Error>> {
        let state = self.peers.get(key).map(|peer| peer.state);
        if state == Some(State::Init) {
            self.begin_connect(key)?;
        }
        let bits = mx::MatchBits(bits.0 | u64::from(post.tag as u32));
        let op = new_op(&post, post.memory.len() as i64, bits, key);
        let Some(index) = self.ops.alloc(op, post.addr.as_ptr()) else {
            return Err(no_memory("an operation", 192));
        };
        self.ops.store_memory(index, post.memory);
        *id = self.ops.id(index);
        let mut cut = false;
        if let Some(peer) = self.peers.get_mut(key) {
            peer.refs += 1;
            self.ops.push_back(peer.queue_of(op.kind), index);
            cut = peer.conversation == Conversation::Cut;
        }
        self.limit_queued(index);
        if cut && post.kind == PostKind::Recv {
            self.on_provisional(index);
        }
        if post.kind != PostKind::Recv && matches!(state, Some(State::Ready(_))) {
            self.wait_for_turn(key);
        }
        self.drain();
        Ok(Posted::Pending)
    }
}

#[inline]
fn new_op(post: &Post, size: i64, bits: mx::MatchBits, key: PeerKey) -> Op {
    // The boundary has checked that the context is one of 16.
    Op::new(
        post.kind,
        post.context as u8,
        size,
        bits,
        key,
        post.user_ptr,
    )
}

/// Memory has run out, or may before all that has been posted is over; or there are as many operations
/// as there can be.
#[cold]
fn no_memory(what: &'static str, size: usize) -> Box<Error> {
    Box::new(Error::NoMemory { what, size })
}

#[cold]
fn unknown(post: &Post) -> Box<Error> {
    Box::new(Error::UnknownAddress(post.addr.as_ptr() as usize))
}
