//! Returns the operations posted to an endpoint that is closed: with `FI_ECANCELED`, or silently.
//!
//! Out of scope: the operations themselves.

use libfabric_sys::abi::*;

use crate::objects::Id;
use crate::queue::Entry;
use crate::state::{Operation, State, What};

impl State {
    /// Returns everything lent to an endpoint, as if it had never been posted.
    pub(crate) fn take_back(&mut self, ep: Id, events: bool) {
        let mine =
            |(serial, operation): (&u64, &Operation)| (operation.ep == ep).then_some(*serial);
        let mine: Vec<u64> = self.operations.iter().filter_map(mine).collect();
        for serial in mine {
            if events {
                self.push_cancelled(serial);
            }
            self.end_operation(serial);
        }
        self.release_entries(ep);
    }

    /// Queues an `FI_ECANCELED` for an operation that has no completion yet.
    pub(crate) fn push_cancelled(&mut self, serial: u64) {
        let Some(operation) = self.operations.get(&serial) else {
            return;
        };
        if operation.done {
            return;
        }
        let ep = operation.ep;
        let endpoint = &self.endpoints[&ep];
        let (bound, flags) = match &operation.what {
            What::Receive(multi) => {
                let multi = if multi.is_some() { FI_MULTI_RECV } else { 0 };
                (endpoint.receive, FI_RECV | FI_MSG | multi)
            }
            What::Send => (endpoint.transmit, FI_SEND | FI_MSG),
            What::Read => (endpoint.transmit, FI_RMA | FI_READ),
        };
        let entry = Entry {
            ep,
            operation: Some((serial, true)),
            context: operation.context,
            flags,
            failure: Some((FI_ECANCELED, 0)),
            ..Entry::default()
        };
        if let Some(operation) = self.operations.get_mut(&serial) {
            operation.done = true;
        }
        self.push_entry(bound, entry);
    }
}
