//! Cancelling an operation.
//!
//! ```text
//!   in progress  removed from its queue, if it waits in one,    -BMI_ECANCEL
//!                and ended by the endpoint, matched or not:
//!                its memory is not accessed afterwards
//!   completed    nothing to do                                  its own result
//!   reported     nothing to do                                  was reported
//! ```
//!
//! In every case the operation is reported once. The draft disconnects the peer to cancel a send, because MX had no
//! other way; here the peer and its other operations stay.
//!
//! Cancelling a reported operation is not an error: a host with several threads cannot know, and Mercury does not
//! check. An id is the address of a block ([`crate::op::blocks`]), so an operation of another context that has since
//! got the block is not cancelled by mistake, but one of the same context is.
//!
//! A receive that is cancelled before its message arrives leaves that message without a receive; see
//! [`crate::cancelled_receives`].

use crate::error::Error;
use crate::match_layout::{MATCH, MessageType, bits};
use crate::method::Method;
use crate::peer::table::PeerKey;
use mx_proto::port::Port;
use mx_proto::{Clock, Status};
use mx_sys::UserMemory;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Cancels operation `id`, which completes at once, with -BMI_ECANCEL unless it had completed already, and is still
    /// reported once. Does nothing if the operation was reported; fails for a number that never was an operation's id.
    pub fn cancel(&mut self, id: i64, context: i64) -> Result<(), Box<Error>> {
        let op = match self.find(id, context) {
            Ok(op) => op,
            Err(_) if self.endpoint.ops().places().was_given_out(id) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.endpoint.end(op, Status::Cancelled);
        self.handle_events();
        Ok(())
    }

    /// Drops messages that arrived for cancelled receives, if the peer's messages use up most of its quota here:
    /// otherwise the peer could in the end send nothing more.
    #[cold]
    pub(crate) fn shed(&mut self, key: PeerKey) {
        let Some(remote) = self.peers().get(key).and_then(|peer| peer.state.remote()) else {
            return;
        };
        if !self.endpoint.is_over_quota(remote) {
            return;
        }
        let mut thrown = 0;
        let bits = |tag| bits(MessageType::Expected, key.id(), tag);
        let mut abandoned = std::mem::take(&mut self.arrivals_mut().cancelled);
        while let Some(tag) = abandoned.take_oldest(key.id(), |tag| {
            self.endpoint.probe(bits(tag), MATCH).is_some()
        }) {
            // The sender of an offered message gets the status it would get if the receive were cancelled later.
            let told = Status::Aborted;
            thrown += u32::from(self.endpoint.discard(bits(tag), MATCH, told));
        }
        self.arrivals_mut().cancelled = abandoned;
        if thrown > 0 {
            let id = key.id();
            log::info!("dropped {thrown} messages of peer {id} whose receives were cancelled");
        }
    }
}
