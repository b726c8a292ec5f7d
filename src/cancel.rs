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

use crate::abi::constants::BMI_ECANCEL;
use crate::error::Error;
use crate::method::{Method, PostKind};
use crate::op::table::Stage;
use mx_proto::port::Port;
use mx_proto::{Cancelled, Clock};
use mx_sys::UserMemory;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Calls operation `id` off. Its completion can be had at once.
    pub fn cancel(&mut self, id: i64, context: i64) -> Result<(), Error> {
        let index = self.find(id, context)?;
        let op = *self.ops.get(index);
        match op.stage {
            Stage::Done | Stage::Free => return Ok(()),
            Stage::Queued => {
                if let Some(peer) = self.peers.get_mut(op.peer) {
                    self.ops.unlink(peer.queue_of(op.kind), index);
                }
                self.ops.take_memory(index);
            }
            Stage::Posted(request) => {
                if self.endpoint.cancel(request) == Cancelled::Unknown {
                    self.drain();
                    return Ok(());
                }
                if op.kind == PostKind::Recv
                    && let Some(peer) = self.peers.get_mut(op.peer)
                {
                    self.ops.unlink(&mut peer.receives, index);
                }
            }
        }
        self.finish_op(index, -BMI_ECANCEL, 0);
        self.drain();
        Ok(())
    }
}
