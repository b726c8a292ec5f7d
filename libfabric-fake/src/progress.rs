//! How messages move. Nothing moves by itself: a poll of one side moves what that side moves.
//!
//! ```text
//!   sender's poll:    connect half | finish sends (late) --> its completion queue
//!   receiver's poll:  connect half | channel --arrive--> unexpected, or a receive
//!                                    receive --land----> memory written, completion queued;
//!                                                        the sender's memory is read only now
//! ```
//!
//! Owns: the order of events, and every fault that happens to a message.
//! Knows nothing of: C, or how operations got here.
//!
//! Everything happens as late as it may: a buffer taken back too early shows as changed or
//! overwritten memory.

use std::collections::BTreeSet;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::bytes;
use crate::checker::{first, skip, total};
use crate::faults::Death;
use crate::objects::Id;
use crate::queue::Entry;
use crate::shape::{Delivery, Release, Shape};
use crate::state::{Message, MessageBody, State, What};

/// A message that has its receive.
pub(crate) struct Transfer {
    pub(crate) serial: u64,
    pub(crate) message: Message,
    /// Where it goes, prefix included.
    spans: Vec<crate::checker::Span>,
    wait: u32,
}

/// An operation that is over.
pub(crate) struct Finish {
    pub(crate) serial: u64,
    pub(crate) wait: u32,
    pub(crate) failure: Option<c_int>,
}

impl State {
    /// What reading a completion queue moves.
    pub(crate) fn poll_queue(&mut self, queue: Id) {
        let polls = |shape: &Shape| shape.delivery == Delivery::OnPoll;
        if self.shape_of(queue).is_some_and(|shape| polls(&shape)) {
            for ep in self.endpoints_of(queue) {
                self.progress(ep);
            }
        }
    }

    /// Everybody once.
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

    /// Whether this endpoint's own polls would change anything.
    pub(crate) fn pending(&self, ep: Id) -> bool {
        let Some(endpoint) = self.endpoints.get(&ep).filter(|_| self.moves(ep)) else {
            return false;
        };
        if endpoint.shape.delivery == Delivery::OnStep {
            return false;
        }
        let polls = endpoint.shape.connect_polls;
        let busy = !endpoint.landing.is_empty()
            || !endpoint.remote.is_empty()
            || !endpoint.finishing.is_empty()
            || (endpoint.look_again && !endpoint.arrived.is_empty());
        let connects = self
            .connecting
            .iter()
            .filter(|(a, b)| *a == ep || *b == ep)
            .any(|pair| {
                let side = usize::from(pair.1 == ep);
                self.links
                    .get(pair)
                    .is_some_and(|link| link.polls[side] < polls)
            });
        let mut channels = self.channels.range((ep, 0)..=(ep, Id::MAX));
        let arrives = channels.any(|((_, from), queue)| {
            queue.front().is_some_and(|message| {
                self.is_up(ep, *from)
                    && (self.room_for(ep, *from) || self.find_receive(ep, message).is_some())
            })
        });
        busy || connects || arrives
    }

    fn is_up(&self, a: Id, b: Id) -> bool {
        // The link of a closed endpoint is gone; what it had sent was on its way already.
        self.links
            .get(&(a.min(b), a.max(b)))
            .is_none_or(|link| link.up)
    }

    fn room_for(&self, ep: Id, from: Id) -> bool {
        self.endpoints.get(&ep).is_some_and(|endpoint| {
            let waiting = endpoint.arrived_from.get(&from).copied().unwrap_or(0);
            waiting < endpoint.shape.unexpected_depth
        })
    }

    fn connect(&mut self, ep: Id) {
        let mine: Vec<(Id, Id)> = self
            .connecting
            .iter()
            .filter(|(a, b)| *a == ep || *b == ep)
            .copied()
            .collect();
        for pair in mine {
            let Some(polls) = self.endpoints.get(&ep).map(|ep| ep.shape.connect_polls) else {
                return;
            };
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
                // Who was told to try again may now.
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

    /// A packet that says nothing to the user, as providers with prefixes may send.
    fn make_up_packet(&mut self, ep: Id) {
        let Some(endpoint) = self.endpoints.get(&ep) else {
            return;
        };
        if endpoint.shape.prefix == 0 || !self.rng.chance(self.faults.empty_packet) {
            return;
        }
        let message = Message {
            from: ep,
            source: Vec::new(),
            tag: None,
            data: None,
            len: 0,
            body: MessageBody::Copied(Vec::new()),
            sender: None,
        };
        if let Some(serial) = self.find_receive(ep, &message) {
            self.stats.empty += 1;
            self.begin_landing(ep, serial, message);
        }
    }

    /// Holds waiting messages against receives posted since.
    fn match_unexpected(&mut self, ep: Id) {
        let Some(endpoint) = self.endpoints.get_mut(&ep) else {
            return;
        };
        if !std::mem::take(&mut endpoint.look_again) {
            return;
        }
        let waiting = std::mem::take(&mut endpoint.arrived);
        for message in waiting {
            let receive = self.find_receive(ep, &message);
            let Some(endpoint) = self.endpoints.get_mut(&ep) else {
                return;
            };
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
            while self.is_up(ep, from) && !self.rng.chance(self.faults.hold) {
                let Some(message) = self.channels.get(&key).and_then(|queue| queue.front()) else {
                    break;
                };
                let receive = self.find_receive(ep, message);
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

    fn one_less(&mut self, ep: Id) {
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            endpoint.outstanding = endpoint.outstanding.saturating_sub(1);
        }
    }

    fn keep_unexpected(&mut self, ep: Id, message: Message) {
        self.stats.unexpected += 1;
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            *endpoint.arrived_from.entry(message.from).or_default() += 1;
            endpoint.arrived.push_back(message);
        }
    }

    /// An eager message leaves its sender when it arrives.
    fn copy_if_small(&mut self, ep: Id, message: &mut Message) {
        let eager = self.endpoints.get(&ep).map_or(0, |ep| ep.shape.eager);
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

    /// The bytes of a message; `None` when its sender has taken them back.
    fn read_sender(&mut self, message: &Message) -> Option<Vec<u8>> {
        if let MessageBody::Copied(bytes) = &message.body {
            return Some(bytes.clone());
        }
        let operation = self.operations.get(&message.sender?)?;
        let (ep, sum) = (operation.ep, operation.sum);
        let (spans, descs) = (operation.spans.clone(), operation.descs.clone());
        self.still_registered(ep, &spans, &descs, FI_SEND);
        let bytes = bytes::gather(&spans);
        if crate::checker::Sum::of(&bytes) != sum {
            self.violation(format!(
                "a send's memory changed before it was delivered (from {ep})"
            ));
        }
        Some(bytes)
    }

    /// Notes memory whose registration has gone since it was posted.
    pub(crate) fn still_registered(
        &mut self,
        ep: Id,
        spans: &[crate::checker::Span],
        descs: &[usize],
        access: u64,
    ) {
        for (span, desc) in spans.iter().zip(descs) {
            if let Err(text) = self.local_access(ep, *span, *desc, access) {
                self.violation(format!(
                    "operation of endpoint {ep}, when carried out: {text}"
                ));
            }
        }
    }

    fn begin_landing(&mut self, ep: Id, serial: u64, message: Message) {
        let spans = self.claim(ep, serial, message.len);
        let wait = self.rng.upto(self.faults.landing_polls);
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            endpoint.landing.push(Transfer {
                serial,
                message,
                spans,
                wait,
            });
        }
    }

    fn land(&mut self, ep: Id) {
        let Some(endpoint) = self.endpoints.get_mut(&ep) else {
            return;
        };
        let in_order = endpoint.shape.receives_in_order;
        let mut waiting = Vec::new();
        let mut blocked = BTreeSet::new();
        for mut transfer in std::mem::take(&mut endpoint.landing) {
            let from = transfer.message.from;
            let held = (in_order && blocked.contains(&from))
                || transfer.wait > 0
                || self.rng.chance(self.faults.hold);
            if held {
                transfer.wait = transfer.wait.saturating_sub(1);
                blocked.insert(from);
                waiting.push(transfer);
            } else {
                self.land_one(ep, transfer);
            }
        }
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            // Landing begins nothing new, but it might one day.
            waiting.append(&mut endpoint.landing);
            endpoint.landing = waiting;
        }
    }

    /// Writes a message into its receive, and tells both sides.
    fn land_one(&mut self, ep: Id, transfer: Transfer) {
        let Transfer {
            serial,
            message,
            spans,
            ..
        } = transfer;
        let Some(shape) = self.endpoints.get(&ep).map(|ep| ep.shape.clone()) else {
            return;
        };
        let Some(operation) = self.operations.get_mut(&serial) else {
            return;
        };
        let canary = operation.canary.take();
        let (all, descs) = (operation.spans.clone(), operation.descs.clone());
        let tagged = matches!(&operation.what, What::Receive(r) if r.tagged.is_some());
        if canary.is_some_and(|canary| !bytes::is_filled(canary, serial)) {
            self.violation(format!(
                "a posted receive's memory was written to (endpoint {ep})"
            ));
        }
        self.still_registered(ep, &all, &descs, FI_RECV);

        let data = self.read_sender(&message);
        let room = total(&spans).saturating_sub(shape.prefix);
        let multi = self.is_multi(serial);
        let (mut len, mut failure) = (message.len.min(room), None);
        if message.len > room {
            self.stats.truncated += 1;
            failure = Some((FI_ETRUNC, message.len - room));
        }
        if data.is_none() {
            failure = Some((FI_ENOTCONN, 0));
            len = 0;
        } else if !multi && failure.is_none() {
            // A failed message takes no other of its buffer with it, so multi-receives are spared.
            failure = self.made_up().map(|error| (error, 0));
        }
        if failure.is_none() && len > 0 && self.rng.chance(self.faults.short) {
            self.stats.short += 1;
            len -= 1 + (self.rng.bits() % len as u64) as usize;
        }
        let head = first(&spans, shape.prefix);
        let body = first(&skip(&spans, shape.prefix), len);
        for span in &head {
            bytes::fill(*span, 0x22);
        }
        let data = data.unwrap_or_default();
        bytes::scatter(&body, &data[..len.min(data.len())]);
        if failure.is_none() {
            self.stats.delivered += 1;
            self.stats.bytes += len as u64;
        }

        let full = if failure.is_some() { 0 } else { shape.prefix };
        let start = spans.first().map_or(0, |span| span.start);
        let (operation, release) = self.after_landing(&shape, serial);
        let kind = if tagged { FI_TAGGED } else { FI_MSG };
        let cq_data = if message.data.is_some() {
            FI_REMOTE_CQ_DATA
        } else {
            0
        };
        let with = if release == Some(Release::WithLast) {
            FI_MULTI_RECV
        } else {
            0
        };
        let rubbish = u64::from(shape.rubbish).wrapping_mul(0xbad0_bad0_bad0_bad0);
        let intact = failure.is_none().then(|| {
            let sum = bytes::sum(&body);
            (body, sum)
        });
        let entry = Entry {
            ep,
            operation: Some((serial, !multi || with != 0)),
            context: operation.0,
            flags: FI_RECV | kind | cq_data | with,
            len: len + full,
            buf: if multi { start } else { rubbish as usize },
            data: message.data.unwrap_or(rubbish),
            tag: message.tag.unwrap_or(rubbish),
            failure,
            source: Some(message.source.clone()),
            intact,
        };
        let always = failure.is_some() || with != 0;
        self.tell_receiver(ep, entry, operation.1 || always);
        if release == Some(Release::Separate) {
            self.push_release(ep, serial, operation.0);
        }
        if let Some(sender) = message.sender {
            self.send_done(sender);
        }
    }

    fn is_multi(&self, serial: u64) -> bool {
        let what = self
            .operations
            .get(&serial)
            .map(|operation| &operation.what);
        matches!(what, Some(What::Receive(receive)) if receive.multi.is_some())
    }

    /// Context and wish for completions of a receive, and how it comes back, if it does now.
    fn after_landing(&mut self, shape: &Shape, serial: u64) -> ((usize, bool), Option<Release>) {
        let either = self.rng.bits() & 1 == 0;
        let Some(operation) = self.operations.get_mut(&serial) else {
            return ((0, false), None);
        };
        let told = (operation.context, operation.report);
        let What::Receive(receive) = &mut operation.what else {
            return (told, None);
        };
        let Some(multi) = &mut receive.multi else {
            operation.done = true;
            return (told, None);
        };
        multi.landing -= 1;
        if multi.landing > 0 || !multi.full {
            return (told, None);
        }
        operation.done = true;
        let release = match shape.multi_recv_release {
            Release::Either if either => Release::WithLast,
            Release::Either => Release::Separate,
            given => given,
        };
        (told, Some(release))
    }

    fn tell_receiver(&mut self, ep: Id, entry: Entry, report: bool) {
        let bound = self
            .endpoints
            .get(&ep)
            .and_then(|endpoint| endpoint.receive);
        match (bound, entry.operation) {
            (Some(bound), _) if report => self.push_entry(bound.queue, entry),
            (_, Some((serial, true))) => self.end_operation(serial),
            _ => {}
        }
    }

    /// The end of a multi-receive buffer, by itself.
    fn push_release(&mut self, ep: Id, serial: u64, context: usize) {
        let entry = Entry {
            ep,
            operation: Some((serial, true)),
            context,
            flags: FI_MULTI_RECV,
            len: 0,
            buf: 0,
            data: 0,
            tag: 0,
            failure: None,
            source: None,
            intact: None,
        };
        self.tell_receiver(ep, entry, true);
    }

    /// An error out of nowhere, perhaps.
    pub(crate) fn made_up(&mut self) -> Option<c_int> {
        if !self.rng.chance(self.faults.error) || self.faults.errors.is_empty() {
            return None;
        }
        let index = self.rng.upto(self.faults.errors.len() as u32 - 1) as usize;
        self.faults.errors.get(index).copied()
    }

    /// A send's memory is no longer needed; its completion may take its time.
    pub(crate) fn send_done(&mut self, serial: u64) {
        let late = self.rng.chance(self.faults.late_send);
        let wait = if late {
            1 + self.rng.upto(self.faults.late_send_polls)
        } else {
            0
        };
        self.stats.late += u64::from(late);
        let failure = self.made_up();
        let Some(ep) = self.operations.get(&serial).map(|operation| operation.ep) else {
            return;
        };
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            endpoint.finishing.push(Finish {
                serial,
                wait,
                failure,
            });
        }
        self.nudge(ep);
    }

    fn finish(&mut self, ep: Id) {
        let Some(endpoint) = self.endpoints.get_mut(&ep) else {
            return;
        };
        let mut waiting = Vec::new();
        for mut finish in std::mem::take(&mut endpoint.finishing) {
            if finish.wait > 0 {
                finish.wait -= 1;
                waiting.push(finish);
            } else {
                self.finish_one(ep, finish);
            }
        }
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            waiting.append(&mut endpoint.finishing);
            endpoint.finishing = waiting;
        }
    }

    fn finish_one(&mut self, ep: Id, finish: Finish) {
        let Finish {
            serial, failure, ..
        } = finish;
        self.one_less(ep);
        let Some(endpoint) = self.endpoints.get(&ep) else {
            return;
        };
        let (bound, shape) = (endpoint.transmit, endpoint.shape.clone());
        let Some(operation) = self.operations.get_mut(&serial) else {
            return;
        };
        operation.done = true;
        let flags = match operation.what {
            What::Send { tagged: true } => FI_SEND | FI_TAGGED,
            What::Remote { write: false } => FI_RMA | FI_READ,
            What::Remote { write: true } => FI_RMA | FI_WRITE,
            What::Send { tagged: false } | What::Receive(_) => FI_SEND | FI_MSG,
        };
        let rubbish = u64::from(shape.rubbish).wrapping_mul(0xbad1_bad1_bad1_bad1);
        let whole = failure.is_none() && total(&operation.spans) > 0;
        let intact = whole.then(|| {
            // A read's memory is final from here on, a send's has been since it was posted.
            let read = matches!(operation.what, What::Remote { write: false });
            let sum = if read {
                bytes::sum(&operation.spans)
            } else {
                operation.sum
            };
            (operation.spans.clone(), sum)
        });
        let entry = Entry {
            ep,
            operation: Some((serial, true)),
            context: operation.context,
            flags,
            len: rubbish as usize,
            buf: rubbish as usize,
            data: rubbish,
            tag: rubbish,
            failure: failure.map(|error| (error, 0)),
            source: None,
            intact,
        };
        let report = operation.report || failure.is_some();
        match bound {
            Some(bound) if report => self.push_entry(bound.queue, entry),
            _ => self.end_operation(serial),
        }
    }

    /// Messages towards an endpoint that is gone.
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
                if message.sender.is_none() {
                    self.one_less(message.from);
                }
                lost.push(message);
            }
        }
        let Some(endpoint) = self.endpoints.get_mut(&ep) else {
            return;
        };
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
                self.bereave(serial, death, message.len <= eager);
            }
        }
        self.lose_reads_of(ep, death);
    }

    /// What an endpoint that is gone had sent and not handed over.
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
            let Some(endpoint) = self.endpoints.get_mut(&other) else {
                continue;
            };
            let before = endpoint.arrived.len();
            endpoint.arrived.retain(copied);
            let gone = before - endpoint.arrived.len();
            if let Some(count) = endpoint.arrived_from.get_mut(&ep) {
                *count = count.saturating_sub(gone);
            }
            if matches!(death, Death::Fail(_)) {
                // Lands as a failure: nobody is left to read from.
                for transfer in &mut endpoint.landing {
                    if !copied(&transfer.message) {
                        transfer.message.sender = None;
                    }
                }
                continue;
            }
            // A receive that was being filled hears nothing more; closing gives it back.
            let (stay, stuck): (Vec<_>, Vec<_>) = std::mem::take(&mut endpoint.landing)
                .into_iter()
                .partition(|transfer| copied(&transfer.message));
            endpoint.landing = stay;
            for transfer in stuck {
                self.strand(other, transfer.serial);
            }
        }
    }

    /// A multi-receive buffer does not wait for a message that will not come.
    fn strand(&mut self, ep: Id, serial: u64) {
        if let Some(operation) = self.operations.get_mut(&serial)
            && let What::Receive(receive) = &mut operation.what
            && let Some(multi) = &mut receive.multi
        {
            multi.landing -= 1;
            if multi.landing == 0 && multi.full {
                operation.done = true;
                let context = operation.context;
                self.push_release(ep, serial, context);
            }
        }
    }
}
