//! Completes sends and reads.
//!
//! ```text
//!   send_done, read carried out --> Finish --(perhaps late)--> completion queued
//! ```
//!
//! Out of scope: carrying the operations out.

use libc::c_int;
use libfabric_sys::abi::*;

use crate::bytes;
use crate::checker::total;
use crate::completions::RUBBISH;
use crate::objects::Id;
use crate::queue::Entry;
use crate::state::{State, What};

/// A finished operation.
pub(crate) struct Finish {
    pub(crate) serial: u64,
    pub(crate) wait: u32,
    pub(crate) failure: Option<c_int>,
}

impl State {
    /// Ends a send's use of its memory; the completion may be delayed.
    pub(crate) fn send_done(&mut self, serial: u64) {
        let late = self.rng.chance(self.faults.late_send);
        let wait = if late {
            1 + self.rng.upto(self.faults.late_send_polls)
        } else {
            0
        };
        let failure = self.made_up();
        self.over(serial, wait, failure);
    }

    /// Queues the completion of an operation after `wait` polls.
    pub(crate) fn over(&mut self, serial: u64, wait: u32, failure: Option<c_int>) {
        if let Some(ep) = self.operations.get(&serial).map(|operation| operation.ep) {
            self.ep(ep).finishing.push(Finish {
                serial,
                wait,
                failure,
            });
            self.nudge(ep);
        }
    }

    pub(crate) fn finish(&mut self, ep: Id) {
        let mut waiting = Vec::new();
        for mut finish in std::mem::take(&mut self.ep(ep).finishing) {
            if finish.wait > 0 {
                finish.wait -= 1;
                waiting.push(finish);
            } else {
                self.finish_one(ep, finish);
            }
        }
        let finishing = &mut self.ep(ep).finishing;
        waiting.append(finishing);
        *finishing = waiting;
    }

    pub(crate) fn finish_one(&mut self, ep: Id, finish: Finish) {
        let Finish {
            serial, failure, ..
        } = finish;
        self.one_less(ep);
        let bound = self.ep(ep).transmit;
        let Some(operation) = self.operations.get_mut(&serial) else {
            return;
        };
        operation.done = true;
        let flags = match operation.what {
            What::Read => FI_RMA | FI_READ,
            What::Send | What::Receive(_) => FI_SEND | FI_MSG,
        };
        let whole = failure.is_none() && total(&operation.spans) > 0;
        let intact = whole.then(|| {
            // A read's memory is final from here on, a send's since posting.
            let read = matches!(operation.what, What::Read);
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
            len: RUBBISH as usize,
            buf: RUBBISH as usize,
            failure: failure.map(|error| (error, 0)),
            intact,
            ..Entry::default()
        };
        self.push_entry(bound, entry);
    }

    pub(crate) fn one_less(&mut self, ep: Id) {
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            endpoint.outstanding = endpoint.outstanding.saturating_sub(1);
        }
    }
}
