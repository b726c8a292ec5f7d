//! Progress of messages. A poll of one side moves only what that side moves.
//!
//! ```text
//!   sender's poll:    connect half | finish sends (late) --> its completion queue
//!   receiver's poll:  connect half | channel --arrive--> unexpected, or a receive
//!                                    receive --land----> memory written, completion queued;
//!                                    the sender's memory is read at this point
//! ```
//!
//! Owns: the order of events, connecting, arriving, waiting for a receive.
//! Out of scope: C, posting, completion.
//!
//! Everything happens as late as allowed: a buffer reused too early shows as changed or overwritten
//! memory.

use libfabric_sys::abi::FI_EP_DGRAM;

use crate::landing::Transfer;
use crate::objects::Id;
use crate::remote::Remote;
use crate::state::{Message, MessageBody, State};

impl State {
    /// Progress made by reading a completion queue.
    pub(crate) fn poll_queue(&mut self, queue: Id) {
        for ep in self.endpoints_of(queue) {
            self.progress(ep);
        }
    }

    /// Polls every endpoint once.
    pub(crate) fn step(&mut self) {
        let all: Vec<Id> = self.endpoints.keys().copied().collect();
        for ep in all {
            self.progress(ep);
        }
    }

    fn moves(&self, ep: Id) -> bool {
        let alive = |ep: &crate::endpoint::Endpoint| ep.enabled && !ep.dead;
        self.endpoints.get(&ep).is_some_and(alive) && !self.is_dead(ep)
    }

    fn progress(&mut self, ep: Id) {
        if !self.moves(ep) {
            return;
        }
        self.connect(ep);
        self.make_up_packet(ep);
        self.match_unexpected(ep);
        self.arrive(ep);
        self.land(ep);
        self.run_remote(ep);
        self.finish(ep);
    }

    /// Returns true if this endpoint's own polls would change anything.
    pub(crate) fn pending(&self, ep: Id) -> bool {
        if !self.moves(ep) {
            return false;
        }
        let endpoint = &self.endpoints[&ep];
        let polls = endpoint.shape.connect_polls;
        let lands = |transfer: &Transfer| !self.waits_for_sender(ep, transfer);
        let reads = |remote: &Remote| !self.is_cut(ep, remote.target);
        let busy = endpoint.landing.iter().any(lands)
            || endpoint.remote.iter().any(reads)
            || !endpoint.finishing.is_empty()
            || (endpoint.look_again && !endpoint.arrived.is_empty());
        let connects = self
            .connecting
            .iter()
            .filter(|(a, b)| (*a == ep || *b == ep) && !self.is_cut(*a, *b))
            .any(|pair| {
                let side = usize::from(pair.1 == ep);
                self.links
                    .get(pair)
                    .is_some_and(|link| link.polls[side] < polls)
            });
        let mut channels = self.channels.range((ep, 0)..=(ep, Id::MAX));
        let arrives = channels.any(|((_, from), queue)| {
            !queue.is_empty()
                && self.is_up(ep, *from)
                && (endpoint.shape.ep_type == FI_EP_DGRAM
                    || self.room_for(ep, *from)
                    || self.find_receive(ep).is_some())
        });
        busy || connects || arrives
    }

    fn is_up(&self, a: Id, b: Id) -> bool {
        // The link of a closed endpoint no longer exists; its messages were in flight already.
        self.links
            .get(&(a.min(b), a.max(b)))
            .is_none_or(|link| link.up)
            && !self.is_cut(a, b)
    }

    fn room_for(&self, ep: Id, from: Id) -> bool {
        let endpoint = &self.endpoints[&ep];
        let waiting = endpoint.arrived_from.get(&from).copied().unwrap_or(0);
        waiting < endpoint.shape.unexpected_depth
    }

    fn connect(&mut self, ep: Id) {
        let mine: Vec<(Id, Id)> = self
            .connecting
            .iter()
            .filter(|(a, b)| (*a == ep || *b == ep) && !self.is_cut(*a, *b))
            .copied()
            .collect();
        for pair in mine {
            let polls = self.ep(ep).shape.connect_polls;
            let Some(link) = self.links.get_mut(&pair) else {
                continue;
            };
            let side = usize::from(pair.1 == ep && pair.0 != ep);
            link.polls[side] += 1;
            if pair.0 == pair.1 {
                link.polls[1] += 1;
            }
            if link.polls.iter().all(|count| *count >= polls) {
                link.up = true;
                self.connecting.retain(|other| *other != pair);
                // Posts that got `-FI_EAGAIN` may be retried now.
                for end in [pair.0, pair.1] {
                    self.wake_queues(end);
                }
            }
        }
    }

    fn wake_queues(&mut self, ep: Id) {
        for queue in self.queues_of(ep) {
            if let Some(queue) = self.queues.get(&queue) {
                queue.wake();
            }
        }
    }

    /// Makes a packet without content for the user, as providers with prefixes may send.
    fn make_up_packet(&mut self, ep: Id) {
        if self.ep(ep).shape.prefix == 0 || !self.rng.chance(self.faults.empty_packet) {
            return;
        }
        let message = Message {
            from: ep,
            source: Vec::new(),
            len: 0,
            body: MessageBody::Copied(Vec::new()),
            sender: None,
        };
        if let Some(serial) = self.find_receive(ep) {
            self.begin_landing(ep, serial, message);
        }
    }

    /// Matches waiting messages with receives posted since.
    fn match_unexpected(&mut self, ep: Id) {
        if !std::mem::take(&mut self.ep(ep).look_again) {
            return;
        }
        let waiting = std::mem::take(&mut self.ep(ep).arrived);
        for message in waiting {
            let receive = self.find_receive(ep);
            let endpoint = self.ep(ep);
            match receive {
                Some(serial) => {
                    if let Some(count) = endpoint.arrived_from.get_mut(&message.from) {
                        *count = count.saturating_sub(1);
                    }
                    self.begin_landing(ep, serial, message);
                }
                None => endpoint.arrived.push_back(message),
            }
        }
    }

    fn arrive(&mut self, ep: Id) {
        let keys: Vec<(Id, Id)> = self
            .channels
            .range((ep, 0)..=(ep, Id::MAX))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            let from = key.1;
            let reliable = !self.is_datagram(ep);
            if !reliable {
                self.arrive_datagrams(ep, from);
            }
            while reliable && self.is_up(ep, from) && !self.rng.chance(self.faults.hold) {
                if self.channels.get(&key).is_none_or(|queue| queue.is_empty()) {
                    break;
                }
                let receive = self.find_receive(ep);
                if receive.is_none() && !self.room_for(ep, from) {
                    self.stats.stalls += 1;
                    break;
                }
                let queue = self.channels.get_mut(&key);
                let Some(mut message) = queue.and_then(|queue| queue.pop_front()) else {
                    break;
                };
                if message.sender.is_none() {
                    self.one_less(from);
                }
                self.copy_if_small(ep, &mut message);
                match receive {
                    Some(serial) => self.begin_landing(ep, serial, message),
                    None => self.keep_unexpected(ep, message),
                }
            }
            if self
                .channels
                .get(&key)
                .is_some_and(|queue| queue.is_empty())
            {
                self.channels.remove(&key);
            }
        }
    }

    fn keep_unexpected(&mut self, ep: Id, message: Message) {
        self.stats.unexpected += 1;
        let endpoint = self.ep(ep);
        *endpoint.arrived_from.entry(message.from).or_default() += 1;
        endpoint.arrived.push_back(message);
    }

    /// An eager message leaves its sender when it arrives.
    fn copy_if_small(&mut self, ep: Id, message: &mut Message) {
        let eager = self.ep(ep).shape.eager;
        if message.len > eager || matches!(message.body, MessageBody::Copied(_)) {
            return;
        }
        if let Some(bytes) = self.read_sender(message) {
            message.body = MessageBody::Copied(bytes);
            if let Some(serial) = message.sender.take() {
                self.send_done(serial);
            }
        }
    }
}
