//! The rules for accepting an operation.
//!
//! ```text
//!   INIT             WAIT      READY       INIT, of a peer that had connected to us
//!   connect, hold    hold      endpoint    ends at once
//! ```
//!
//! Pending operations are posted first when the peer becomes ready, so nothing overtakes them. An operation that
//! completes at once takes no block. A rejected one leaves no state.
//!
//! Out of scope: waiting, threads, C's pointers.

use super::blocks::BLOCK_SIZE;
use super::data::OpData;
use crate::error::{Error, code_of};
use crate::match_layout::{MATCH, MessageType, bits, with_class};
use crate::method::{Host, Method, OPERATION_COST, Post, PostKind, PostOutcome};
use crate::peer::conversation::Conversation;
use crate::peer::state::{Cause, Ready, State};
use crate::peer::table::{Peer, PeerKey};
use mx_proto::port::Port;
use mx_proto::{self as mx, Clock, Memory, ReceivePosted, RemoteId, RequestId};
use mx_sys::UserMemory;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Posts an operation with a peer. `id` is written before the operation can complete; on failure nothing has
    /// happened.
    pub fn post(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        id: &mut i64,
    ) -> Result<PostOutcome, Box<Error>> {
        match post.kind {
            PostKind::Recv => self.post_recv(key, post, id),
            PostKind::Send | PostKind::SendUnexpected => self.post_send(key, post, id),
        }
    }

    /// Rejects an operation for which there is no memory.
    #[inline(always)]
    fn admit(&mut self, key: PeerKey, post: &Post) -> Result<(), Box<Error>> {
        if !self.room.admits(self.endpoint.ops().in_use()) && !self.frees_memory(key, post) {
            return Err(Error::no_memory("one more operation", OPERATION_COST));
        }
        Ok(())
    }

    /// Returns whether the operation is a receive for a message that has already arrived.
    #[cold]
    fn frees_memory(&mut self, key: PeerKey, post: &Post) -> bool {
        let bits = bits(MessageType::Expected, key.id(), post.tag as u32);
        post.kind == PostKind::Recv && self.endpoint.probe(bits, MATCH).is_some()
    }

    /// Sends a small expected message at once if the peer is connected and nothing else waits: the fast path of
    /// [`Self::post_send`]. True: the send is complete, and is not reported. False: nothing was sent, and `post_send`
    /// is to be called.
    #[inline(always)]
    pub fn send_at_once(&mut self, key: PeerKey, tag: u32, context: i64, body: &[u8]) -> bool {
        let Some((remote, tx_id)) = self.ready_peer(key) else {
            return false;
        };
        let bits = bits(MessageType::Expected, tx_id, tag);
        !self.endpoint.owner().has_failed_receives(context)
            && self.endpoint.send_at_once(remote, bits, body)
    }

    /// Posts a receive into one buffer from a connected peer while no message waits for a receive: the fast path of
    /// [`Self::post_recv`]. `what` supplies the buffer and the operation's data. Returns the operation's id, or `None`
    /// if nothing was posted, and `post_recv` is to be called.
    #[inline(always)]
    pub fn recv_at_once(
        &mut self,
        key: PeerKey,
        tag: u32,
        what: impl FnOnce() -> (UserMemory, OpData),
    ) -> Option<i64> {
        let (remote, _) = self.ready_peer(key)?;
        let unusual = self.settings.recv_timeout.is_some() | !self.unmatched().cancelled.is_empty();
        if unusual || !self.room.admits(self.endpoint.ops().in_use()) {
            return None;
        }
        let bits = bits(MessageType::Expected, key.id(), tag);
        let op = (self.endpoint).recv_at_once(remote, bits, MATCH, AtOnce(what))?;
        Some(self.id(op))
    }

    /// Returns the remote of a READY peer whose conversation is not cut, and the id that the peer gave this process.
    #[inline(always)]
    fn ready_peer(&self, key: PeerKey) -> Option<(RemoteId, u32)> {
        let peer = self.peers().get(key)?;
        match peer.state {
            State::Ready(Ready { remote, tx_id, .. }) if peer.conversation != Conversation::Cut => {
                Some((remote, tx_id))
            }
            _ => None,
        }
    }

    /// Implements [`Self::post`] for a send.
    #[inline(always)]
    pub fn post_send(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        id: &mut i64,
    ) -> Result<PostOutcome, Box<Error>> {
        self.admit(key, post)?;
        let (host, ops) = self.endpoint.split();
        let failed = host.failed_receive(ops, key, post.tag as u32, post.context);
        if let Some(code) = failed {
            return self.end_at_once(key, post, (code, 0), id);
        }
        if post.kind != PostKind::SendUnexpected {
            return self.send(key, post, id);
        }
        let posted = self.send_unexpected(key, post, id)?;
        self.open_conversation(key);
        Ok(posted)
    }

    #[inline(never)]
    fn send_unexpected(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        id: &mut i64,
    ) -> Result<PostOutcome, Box<Error>> {
        let size = post.memory.len() as i64;
        let limit = self.settings.unexpected_max as i64;
        if size > limit {
            return Err(Error::too_large(size, limit));
        }
        self.send(key, post, id)
    }

    #[inline(always)]
    fn send(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        id: &mut i64,
    ) -> Result<PostOutcome, Box<Error>> {
        let size = post.memory.len() as i64;
        let Some(peer) = self.endpoint.owner_mut().peers.get_mut(key) else {
            return Err(unknown(post));
        };
        if peer.conversation == Conversation::Cut && post.kind == PostKind::Send {
            return self.fail_cut(key, post, id);
        }
        let State::Ready(Ready { remote, tx_id, .. }) = peer.state else {
            return self.queue(key, post, id);
        };
        let bits = bits(post.kind.message_type(), tx_id, post.tag as u32);
        let bits = with_class(bits, post.class);
        let (kind, mode) = (post.kind, post.kind.send_mode());
        let what = NewOperation { post, key };
        match self.endpoint.send_new(remote, bits, what, mode) {
            Ok(mx::SendPosted::Complete) => Ok(PostOutcome::Complete { size }),
            Ok(mx::SendPosted::Pending(op)) => {
                *id = self.id(op);
                self.limit_posted(kind, op);
                Ok(PostOutcome::Pending)
            }
            Err(mx::PostError::UnknownRemote) => self.send_after_loss(key, remote, post, id),
            Err(mx::PostError::TooMany) => Err(Error::no_memory("an operation", BLOCK_SIZE)),
            Err(_) => Err(Error::too_large(size, i64::from(u32::MAX))),
        }
    }

    /// Sends to a remote whose loss the method has not handled yet. A lost peer never makes a post fail: OrangeFS's
    /// client hangs if the first send of a flow is rejected.
    #[cold]
    #[inline(never)]
    fn send_after_loss(
        &mut self,
        key: PeerKey,
        gone: RemoteId,
        post: &mut Post,
        id: &mut i64,
    ) -> Result<PostOutcome, Box<Error>> {
        self.handle_events();
        let peer = self.peers().get(key);
        if peer.is_some_and(|peer| peer.state.remote() == Some(gone)) {
            self.disconnect(key, Cause::Reset);
            self.handle_events();
        }
        self.send(key, post, id)
    }

    /// Implements [`Self::post`] for a receive.
    #[inline(always)]
    pub fn post_recv(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        id: &mut i64,
    ) -> Result<PostOutcome, Box<Error>> {
        self.admit(key, post)?;
        let Host {
            peers, arrivals, ..
        } = self.endpoint.owner_mut();
        let Some(peer) = peers.get_mut(key) else {
            return Err(unknown(post));
        };
        let bits = bits(MessageType::Expected, key.id(), post.tag as u32);
        if !arrivals.cancelled.is_empty() {
            (arrivals.cancelled).take_back(key.id(), post.tag as u32);
        }
        let State::Ready(Ready { remote, .. }) = peer.state else {
            return self.queue(key, post, id);
        };
        let cut = peer.conversation == Conversation::Cut;
        let what = NewOperation { post, key };
        match self.endpoint.recv_from(remote, bits, MATCH, what) {
            Ok(ReceivePosted::Pending(op)) => {
                *id = self.id(op);
                self.limit_posted(PostKind::Recv, op);
                if cut {
                    self.on_provisional(op);
                }
                Ok(PostOutcome::Pending)
            }
            Ok(ReceivePosted::Complete(how)) => {
                let size = i64::from(how.transferred);
                match code_of(how.status) {
                    0 => Ok(PostOutcome::Complete { size }),
                    // A failed operation, not a failed post: it is reported like any other.
                    code => self.end_at_once(key, post, (code, size), id),
                }
            }
            Err(mx::PostError::UnknownRemote) => {
                // The remote is lost, and the method has not handled that yet.
                let down = self.endpoint.loss_of(remote);
                let cause = down.map_or(Cause::Reset, |down| Cause::of_down(down.reason));
                self.end_at_once(key, post, (cause.code(), 0), id)
            }
            Err(error) => {
                // `MATCH` covers the bits, so this is the only error left.
                debug_assert_eq!(error, mx::PostError::TooMany);
                Err(Error::no_memory("an operation", BLOCK_SIZE))
            }
        }
    }

    /// Posts an operation that completes at once, with that code and size.
    #[cold]
    fn end_at_once(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        (code, size): (i32, i64),
        id: &mut i64,
    ) -> Result<PostOutcome, Box<Error>> {
        let op = self.hold(key, post, id)?;
        if let Some(word) = self.op_data_mut(op) {
            word.set_end(code, size);
        }
        self.endpoint.end(op, mx::Status::Unreachable);
        Ok(PostOutcome::Pending)
    }

    /// Fails an expected send at once because the conversation with the peer is cut.
    #[cold]
    fn fail_cut(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        id: &mut i64,
    ) -> Result<PostOutcome, Box<Error>> {
        let op = self.hold(key, post, id)?;
        self.end_cut(key, op);
        Ok(PostOutcome::Pending)
    }

    /// Queues an operation because the peer is not ready.
    #[cold]
    fn queue(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        id: &mut i64,
    ) -> Result<PostOutcome, Box<Error>> {
        let peer = self.peers().get(key);
        let is_gone = |peer: &Peer| peer.state == State::Init && peer.has_called;
        if peer.is_some_and(is_gone) {
            return self.end_at_once(key, post, (Cause::Reset.code(), 0), id);
        }
        if peer.is_some_and(|peer| peer.state == State::Init) {
            self.begin_connect(key, None)?;
        }
        let kind = post.kind;
        let op = self.hold(key, post, id)?;
        let mut cut = false;
        let (host, ops) = self.endpoint.split();
        if let Some(peer) = host.peers.get_mut(key) {
            peer.enqueue(ops, op);
            cut = peer.conversation == Conversation::Cut;
        }
        self.limit_posted(kind, op);
        if cut && kind == PostKind::Recv {
            self.on_provisional(op);
        }
        self.handle_events();
        Ok(PostOutcome::Pending)
    }

    /// Makes an operation on which the endpoint does not act until told.
    fn hold(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        id: &mut i64,
    ) -> Result<RequestId, Box<Error>> {
        let receives = post.kind == PostKind::Recv;
        let word = OpData::new(post, key);
        let Some(op) = self
            .endpoint
            .post_pending(post.memory.take(), receives, word)
        else {
            return Err(Error::no_memory("an operation", BLOCK_SIZE));
        };
        *id = self.id(op);
        Ok(op)
    }

    /// Returns the host's id of an operation.
    #[inline]
    fn id(&self, op: RequestId) -> i64 {
        self.endpoint.ops().places().id(op.index())
    }
}

/// An operation of the host's being posted.
struct NewOperation<'a> {
    post: &'a mut Post,
    key: PeerKey,
}

impl mx::Posting<Host> for NewOperation<'_> {
    #[inline(always)]
    fn memory(&mut self) -> &mut UserMemory {
        &mut self.post.memory
    }

    #[inline(always)]
    fn begin(self) -> (UserMemory, OpData) {
        (self.post.memory.take(), OpData::new(self.post, self.key))
    }
}

/// A receive whose buffer and data are made directly in its record.
struct AtOnce<F>(F);

impl<F: FnOnce() -> (UserMemory, OpData)> mx::Posting<Host> for AtOnce<F> {
    /// Never called: only operations that may complete without a record are asked for their memory.
    fn memory(&mut self) -> &mut UserMemory {
        unreachable!("the memory of a receive that is posted at once")
    }

    #[inline(always)]
    fn begin(self) -> (UserMemory, OpData) {
        (self.0)()
    }
}

#[cold]
fn unknown(post: &Post) -> Box<Error> {
    Error::unknown_address(post.addr.as_ptr())
}
