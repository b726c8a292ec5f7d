//! Network partitions between two machines.
//!
//! ```text
//!   cut:   messages, reads, connecting: all of it waits without an error        until heal
//!   sever: what is in flight is lost; reported operations fail with ECONNRESET
//! ```
//!
//! Owns: the pairs that are cut off.
//! Out of scope: closed or killed endpoints.

use std::collections::BTreeSet;

use libfabric_sys::abi::FI_ECONNRESET;

use crate::faults::Death;
use crate::objects::Id;
use crate::state::{Message, MessageBody, State};

/// Pairs of machines that are cut off from each other.
#[derive(Debug, Default)]
pub(crate) struct Cuts(BTreeSet<(usize, usize)>);

impl State {
    pub(crate) fn cut(&mut self, a: usize, b: usize) {
        self.cuts.0.insert((a.min(b), a.max(b)));
    }

    pub(crate) fn heal(&mut self, a: usize, b: usize) {
        self.cuts.0.remove(&(a.min(b), a.max(b)));
        self.nudge_all();
    }

    /// Returns true if these endpoints cannot reach each other now.
    pub(crate) fn is_cut(&self, a: Id, b: Id) -> bool {
        if self.cuts.0.is_empty() {
            return false;
        }
        let machine = |ep: Id| self.endpoints.get(&ep).map(|ep| ep.machine);
        match (machine(a), machine(b)) {
            (Some(a), Some(b)) => self.cuts.0.contains(&(a.min(b), a.max(b))),
            _ => false,
        }
    }

    /// Breaks every connection between two machines, once.
    pub(crate) fn sever(&mut self, a: usize, b: usize) {
        let on = |state: &Self, machine: usize| -> Vec<Id> {
            let all = state.endpoints.iter();
            all.filter(|(_, ep)| ep.machine == machine && ep.enabled)
                .map(|(id, _)| *id)
                .collect()
        };
        let (here, there) = (on(self, a), on(self, b));
        for a in here {
            for b in &there {
                self.disconnect(a, *b);
                if a != *b {
                    self.disconnect(*b, a);
                }
            }
        }
        self.nudge_all();
    }

    /// Drops everything in flight from one endpoint to another.
    pub(crate) fn disconnect(&mut self, from: Id, to: Id) {
        let pair = (from.min(to), from.max(to));
        self.links.remove(&pair);
        self.connecting.retain(|other| *other != pair);
        let mut lost: Vec<Message> = Vec::new();
        lost.extend(self.channels.remove(&(to, from)).unwrap_or_default());
        let mut half_read = Vec::new();
        {
            let endpoint = self.ep(to);
            let gone = |m: &Message| m.from == from && matches!(m.body, MessageBody::Lent);
            let (out, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut endpoint.arrived)
                .into_iter()
                .partition(gone);
            endpoint.arrived = stay.into();
            if let Some(count) = endpoint.arrived_from.get_mut(&from) {
                *count = count.saturating_sub(out.len());
            }
            lost.extend(out);
            for transfer in &mut endpoint.landing {
                if gone(&transfer.message) {
                    // Lands as a failure: its bytes are no longer available.
                    half_read.extend(transfer.message.sender.take());
                }
            }
        }
        let death = Death::Fail(FI_ECONNRESET);
        for message in lost {
            match message.sender {
                Some(serial) => self.end_with_peer(serial, death, false),
                None if self.is_datagram(from) => self.stats.lost += 1,
                None => {
                    self.one_less(from);
                    self.send_to_gone(from, death, None, true);
                }
            }
        }
        for serial in half_read {
            self.end_with_peer(serial, death, false);
        }
        self.lose_reads(from, to, death);
    }

    fn nudge_all(&mut self) {
        let all: Vec<Id> = self.endpoints.keys().copied().collect();
        for ep in all {
            self.nudge(ep);
        }
    }
}
