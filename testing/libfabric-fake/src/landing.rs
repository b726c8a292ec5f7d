//! Writes messages into receive buffers.
//!
//! ```text
//!   message + receive --> Transfer --(polls)--> sender's memory read, receiver's written
//!                                                   |                    |
//!                                             send_done            completion queued
//! ```
//!
//! Owns: the writing of memory, truncation, faults in flight.
//! Out of scope: matching messages to receives.

use std::collections::BTreeSet;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::bytes;
use crate::checker::{Span, first, skip, total};
use crate::completions::RUBBISH;
use crate::objects::Id;
use crate::queue::Entry;
use crate::shape::{Release, Shape};
use crate::state::{Message, MessageBody, State, What};

/// A message that is matched with a receive.
pub(crate) struct Transfer {
    pub(crate) serial: u64,
    pub(crate) message: Message,
    /// Destination, including the prefix.
    spans: Vec<Span>,
    wait: u32,
}

impl State {
    /// Returns the bytes of a message; `None` if its sender has taken them back.
    pub(crate) fn read_sender(&mut self, message: &Message) -> Option<Vec<u8>> {
        if let MessageBody::Copied(bytes) = &message.body {
            return Some(bytes.clone());
        }
        let operation = self.operations.get(&message.sender?)?;
        let (ep, sum) = (operation.ep, operation.sum);
        let (spans, descs) = (operation.spans.clone(), operation.descs.clone());
        self.still_registered(ep, &spans, &descs, FI_SEND);
        let bytes = bytes::gather(&spans);
        if crate::checker::sum(&bytes) != sum {
            self.violation(format!(
                "a send's memory changed before it was delivered (from {ep})"
            ));
        }
        Some(bytes)
    }

    /// Records a violation if the registration of the memory was closed after posting.
    pub(crate) fn still_registered(
        &mut self,
        ep: Id,
        spans: &[Span],
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

    pub(crate) fn begin_landing(&mut self, ep: Id, serial: u64, message: Message) {
        let spans = self.claim(ep, serial, message.len);
        let wait = self.rng.upto(self.faults.landing_polls);
        self.ep(ep).landing.push(Transfer {
            serial,
            message,
            spans,
            wait,
        });
    }

    pub(crate) fn land(&mut self, ep: Id) {
        let endpoint = self.ep(ep);
        let shape = endpoint.shape.clone();
        let mut waiting = Vec::new();
        let mut blocked = BTreeSet::new();
        for mut transfer in std::mem::take(&mut endpoint.landing) {
            let from = transfer.message.from;
            let held = blocked.contains(&from)
                || transfer.wait > 0
                || self.waits_for_sender(ep, &transfer)
                || self.rng.chance(self.faults.hold);
            if held {
                transfer.wait = transfer.wait.saturating_sub(1);
                // Only messages read from the sender's memory can be reordered.
                if shape.receives_in_order || transfer.message.len <= shape.eager {
                    blocked.insert(from);
                }
                waiting.push(transfer);
            } else {
                self.land_one(ep, transfer);
            }
        }
        self.ep(ep).landing = waiting;
    }

    /// Returns true if the message's bytes are on the other side of a cut.
    pub(crate) fn waits_for_sender(&self, ep: Id, transfer: &Transfer) -> bool {
        let there = matches!(transfer.message.body, MessageBody::Lent);
        there && self.is_cut(ep, transfer.message.from)
    }

    /// Writes a message into its receive, and completes both sides.
    pub(crate) fn land_one(&mut self, ep: Id, transfer: Transfer) {
        let Transfer {
            serial,
            message,
            spans,
            ..
        } = transfer;
        let shape = self.ep(ep).shape.clone();
        let Some(operation) = self.operations.get_mut(&serial) else {
            return;
        };
        let canary = operation.canary.take();
        let (all, descs) = (operation.spans.clone(), operation.descs.clone());
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
            failure = Some((FI_ETRUNC, message.len - room));
        }
        if data.is_none() {
            failure = Some((FI_ENOTCONN, 0));
            len = 0;
        } else if !multi && failure.is_none() {
            // A failed message ends no others in its buffer, so multi-receives are spared.
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

        let full = if failure.is_some() { 0 } else { shape.prefix };
        let start = spans.first().map_or(0, |span| span.start);
        let (context, release) = self.after_landing(&shape, serial);
        let with = if release == Some(Release::WithLast) {
            FI_MULTI_RECV
        } else {
            0
        };
        let intact = failure.is_none().then(|| {
            let sum = bytes::sum(&body);
            (body, sum)
        });
        let entry = Entry {
            ep,
            operation: Some((serial, !multi || with != 0)),
            context,
            flags: FI_RECV | FI_MSG | with,
            len: len + full,
            buf: if multi { start } else { RUBBISH as usize },
            failure,
            source: Some(message.source.clone()),
            intact,
        };
        self.tell_receiver(ep, entry);
        if release == Some(Release::Separate) {
            self.push_release(ep, serial, context);
        }
        if let Some(sender) = message.sender {
            self.send_done(sender);
        }
    }

    pub(crate) fn is_multi(&self, serial: u64) -> bool {
        let what = self
            .operations
            .get(&serial)
            .map(|operation| &operation.what);
        matches!(what, Some(What::Receive(Some(_))))
    }

    /// Returns the context of a receive, and whether and how its buffer is returned now.
    pub(crate) fn after_landing(&mut self, shape: &Shape, serial: u64) -> (usize, Option<Release>) {
        let either = self.rng.bits() & 1 == 0;
        let Some(operation) = self.operations.get_mut(&serial) else {
            return (0, None);
        };
        let told = operation.context;
        let What::Receive(multi) = &mut operation.what else {
            return (told, None);
        };
        let Some(multi) = multi else {
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

    pub(crate) fn tell_receiver(&mut self, ep: Id, entry: Entry) {
        let queue = self.ep(ep).receive;
        self.push_entry(queue, entry);
    }

    /// Queues the completion that returns a multi-receive buffer without a message.
    pub(crate) fn push_release(&mut self, ep: Id, serial: u64, context: usize) {
        let entry = Entry {
            ep,
            operation: Some((serial, true)),
            context,
            flags: FI_MULTI_RECV,
            ..Entry::default()
        };
        self.tell_receiver(ep, entry);
    }

    /// Draws a random error, or none.
    pub(crate) fn made_up(&mut self) -> Option<c_int> {
        if !self.rng.chance(self.faults.error) {
            return None;
        }
        let errors: &[c_int] = match &self.faults.errors[..] {
            [] => &[FI_EIO, FI_ECONNRESET],
            errors => errors,
        };
        Some(errors[self.rng.upto(errors.len() as u32 - 1) as usize])
    }
}
