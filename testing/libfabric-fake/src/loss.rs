//! Effects of an ended endpoint on its peers.
//!
//! ```text
//!   closed or killed --> on_gone --> messages to it:   their sends end
//!                               |--> messages from it: dropped, unless they were copied
//!                               `--> reads of it:      end
//!   Death: hang | fail | seem to succeed
//! ```
//!
//! Out of scope: the cause of the [`Death`].

use libfabric_sys::abi::*;

use crate::faults::Death;
use crate::objects::Id;
use crate::queue::Entry;
use crate::state::{Message, MessageBody, State, What};

impl State {
    /// Applies the consequences of an endpoint's end to all others.
    pub(crate) fn on_gone(&mut self, ep: Id, death: Death) {
        if self.ep(ep).enabled {
            let address = self.ep(ep).address.clone();
            self.graves.insert(address, death);
        }
        self.links.retain(|(a, b), _| *a != ep && *b != ep);
        self.connecting.retain(|(a, b)| *a != ep && *b != ep);
        self.lose_messages_to(ep, death);
        self.lose_messages_from(ep, death);
    }

    /// Ends messages to the endpoint.
    pub(crate) fn lose_messages_to(&mut self, ep: Id, death: Death) {
        let keys: Vec<(Id, Id)> = self
            .channels
            .range((ep, 0)..=(ep, Id::MAX))
            .map(|(key, _)| *key)
            .collect();
        let mut lost: Vec<Message> = Vec::new();
        for key in keys {
            let queue = self.channels.remove(&key).unwrap_or_default();
            for message in queue {
                if message.sender.is_none() && !self.is_datagram(message.from) {
                    self.one_less(message.from);
                }
                lost.push(message);
            }
        }
        let endpoint = self.ep(ep);
        let eager = endpoint.shape.eager;
        lost.extend(std::mem::take(&mut endpoint.arrived));
        endpoint.arrived_from.clear();
        lost.extend(
            std::mem::take(&mut endpoint.landing)
                .into_iter()
                .map(|t| t.message),
        );
        for message in lost {
            if let Some(serial) = message.sender {
                self.end_with_peer(serial, death, message.len <= eager);
            }
        }
        self.lose_reads_of(ep, death);
    }

    /// Ends messages from the endpoint that were not handed over.
    pub(crate) fn lose_messages_from(&mut self, ep: Id, death: Death) {
        let copied = |message: &Message| {
            message.from != ep || matches!(message.body, MessageBody::Copied(_))
        };
        for queue in self.channels.values_mut() {
            queue.retain(copied);
        }
        self.channels.retain(|_, queue| !queue.is_empty());
        let others: Vec<Id> = self.endpoints.keys().copied().collect();
        for other in others {
            let endpoint = self.ep(other);
            let before = endpoint.arrived.len();
            endpoint.arrived.retain(copied);
            let gone = before - endpoint.arrived.len();
            if let Some(count) = endpoint.arrived_from.get_mut(&ep) {
                *count = count.saturating_sub(gone);
            }
            if matches!(death, Death::Fail(_)) {
                // Lands as a failure: its sender has ended.
                for transfer in &mut endpoint.landing {
                    if !copied(&transfer.message) {
                        transfer.message.sender = None;
                    }
                }
                continue;
            }
            // A receive that was being filled no longer completes; closing returns it.
            let (stay, stuck): (Vec<_>, Vec<_>) = std::mem::take(&mut endpoint.landing)
                .into_iter()
                .partition(|transfer| copied(&transfer.message));
            endpoint.landing = stay;
            for transfer in stuck {
                self.strand(other, transfer.serial);
            }
        }
    }

    /// Stops a multi-receive buffer's wait for a message that will not arrive.
    pub(crate) fn strand(&mut self, ep: Id, serial: u64) {
        if let Some(operation) = self.operations.get_mut(&serial)
            && let What::Receive(Some(multi)) = &mut operation.what
        {
            multi.landing -= 1;
            if multi.landing == 0 && multi.full {
                operation.done = true;
                let context = operation.context;
                self.push_release(ep, serial, context);
            }
        }
    }

    /// Completes a send that was accepted although it is never delivered.
    pub(crate) fn send_to_gone(&mut self, ep: Id, death: Death, sender: Option<u64>, small: bool) {
        match (sender, death) {
            (Some(serial), _) => {
                self.ep(ep).outstanding += 1;
                self.end_with_peer(serial, death, small);
            }
            // Errors of injects are reported as well, without a context.
            (None, Death::Fail(error)) => {
                let queue = self.ep(ep).transmit;
                let entry = Entry {
                    ep,
                    flags: FI_SEND | FI_MSG,
                    failure: Some((error, 0)),
                    ..Entry::default()
                };
                self.push_entry(queue, entry);
            }
            (None, _) => {}
        }
    }

    /// Ends an operation whose peer has ended.
    pub(crate) fn end_with_peer(&mut self, serial: u64, death: Death, small: bool) {
        let failure = match death {
            Death::Fail(error) => Some(error),
            Death::Swallow if small => None,
            // The operation keeps its memory until its endpoint is closed.
            _ => return,
        };
        self.over(serial, 0, failure);
    }
}
