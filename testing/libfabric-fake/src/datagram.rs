//! Endpoints of type `FI_EP_DGRAM`: unreliable messages.
//!
//! ```text
//!   post, FI_MORE --> held --.
//!   post ---------------------+--> posted: in flight or lost --> the send completes
//!                                      |
//!                    receive posted: landed; none: lost without a report
//! ```
//!
//! Owns: the differences from sending reliable messages, and the losses.
//! Out of scope: landing, completions.

use libfabric_sys::abi::*;

use crate::objects::Id;
use crate::state::{Message, MessageBody, State};

/// A posted datagram that waits for a post without `FI_MORE`.
pub(crate) struct Held {
    /// Endpoint at the destination address, if there is one.
    to: Option<Id>,
    message: Message,
}

impl State {
    pub(crate) fn is_datagram(&self, ep: Id) -> bool {
        let endpoint = self.endpoints.get(&ep);
        endpoint.is_some_and(|endpoint| endpoint.shape.ep_type == FI_EP_DGRAM)
    }

    /// Accepts a datagram, whose bytes have been copied, with the operation that it completes.
    pub(crate) fn send_datagram(&mut self, ep: Id, to: Option<Id>, message: Message, flags: u64) {
        let endpoint = self.ep(ep);
        endpoint.outstanding += usize::from(message.sender.is_some());
        endpoint.held.push(Held { to, message });
        if flags & FI_MORE != 0 {
            return;
        }
        for Held { to, mut message } in std::mem::take(&mut endpoint.held) {
            if let Some(serial) = message.sender.take() {
                self.send_done(serial);
            }
            let lost = self.rng.chance(self.faults.lose);
            match to.filter(|to| !lost && !self.is_cut(ep, *to)) {
                Some(to) => {
                    let channel = self.channels.entry((to, ep)).or_default();
                    channel.push_back(message);
                    self.nudge(to);
                }
                None => self.stats.lost += 1,
            }
        }
    }

    /// Delivers arrived datagrams into receives, or drops them.
    pub(crate) fn arrive_datagrams(&mut self, ep: Id, from: Id) {
        while !self.rng.chance(self.faults.hold) {
            let queue = self.channels.get_mut(&(ep, from));
            let Some(message) = queue.and_then(|queue| queue.pop_front()) else {
                break;
            };
            debug_assert!(matches!(message.body, MessageBody::Copied(_)));
            match self.find_receive(ep) {
                Some(serial) => self.begin_landing(ep, serial, message),
                None => self.stats.lost += 1,
            }
        }
    }
}
