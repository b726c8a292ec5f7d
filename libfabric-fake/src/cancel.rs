//! Taking back what was posted.
//!
//! ```text
//!   fi_cancel:         a receive nobody has sent for --> FI_ECANCELED; a send: nothing, ever
//!   closing:           everything, with FI_ECANCELED or without a word
//! ```
//!
//! Owns: both ways.
//! Knows nothing of: what was posted.

use std::ffi::c_void;

use libfabric_sys::abi::*;

use crate::objects::{Id, code, enter};
use crate::queue::Entry;
use crate::state::{State, What};

pub(crate) unsafe extern "C" fn cancel(object: *mut fid, context: *mut c_void) -> isize {
    let cancel = |state: &mut State, id: Id| {
        let Some(ep) = state.endpoints.get(&id) else {
            return code(FI_EINVAL);
        };
        let shape = ep.shape.clone();
        let is_it = |serial: &u64| {
            state
                .operations
                .get(serial)
                .is_some_and(|op| op.context == context as usize)
        };
        // A multi-receive buffer into which something is being written cannot go yet; it will
        // come back when that is done.
        let receive = ep
            .posted
            .iter()
            .chain(&ep.posted_tagged)
            .copied()
            .find(is_it);
        if let Some(serial) = receive {
            state.cancel_receive(id, serial);
            return 0;
        }
        let send = shape
            .cancel_sends
            .then(|| state.cancel_send(id, context as usize));
        if send != Some(true) {
            return code(shape.cancel_unknown);
        }
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_EP, "fi_cancel", cancel) }
}

impl State {
    /// Gives back everything lent to an endpoint, as if it had never been posted.
    pub(crate) fn take_back(&mut self, ep: Id, events: bool) {
        let mut serials: Vec<u64> = Vec::new();
        for (serial, operation) in &self.operations {
            if operation.ep == ep {
                serials.push(*serial);
            }
        }
        for serial in serials {
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
        let Some(endpoint) = self.endpoints.get(&ep) else {
            return;
        };
        let (bound, flags) = match &operation.what {
            What::Receive(receive) => {
                let kind = if receive.tagged.is_some() {
                    FI_TAGGED
                } else {
                    FI_MSG
                };
                let multi = if receive.multi.is_some() {
                    FI_MULTI_RECV
                } else {
                    0
                };
                (endpoint.receive, FI_RECV | kind | multi)
            }
            What::Send { tagged: true } => (endpoint.transmit, FI_SEND | FI_TAGGED),
            What::Send { tagged: false } => (endpoint.transmit, FI_SEND | FI_MSG),
            What::Remote { write: false } => (endpoint.transmit, FI_RMA | FI_READ),
            What::Remote { write: true } => (endpoint.transmit, FI_RMA | FI_WRITE),
        };
        let entry = Entry {
            ep,
            operation: Some((serial, true)),
            context: operation.context,
            flags,
            len: 0,
            buf: 0,
            data: 0,
            tag: 0,
            failure: Some((FI_ECANCELED, 0)),
            source: None,
            intact: None,
        };
        if let Some(operation) = self.operations.get_mut(&serial) {
            operation.done = true;
        }
        if let Some(bound) = bound {
            self.push_entry(bound.queue, entry);
        }
    }

    fn cancel_receive(&mut self, ep: Id, serial: u64) {
        if let Some(ep) = self.endpoints.get_mut(&ep) {
            ep.posted.retain(|other| *other != serial);
            ep.posted_tagged.retain(|other| *other != serial);
        }
        if let Some(operation) = self.operations.get_mut(&serial)
            && let What::Receive(receive) = &mut operation.what
            && let Some(multi) = &mut receive.multi
            && multi.landing > 0
        {
            multi.full = true;
            return;
        }
        self.push_cancelled(serial);
    }

    fn cancel_send(&mut self, ep: Id, context: usize) -> bool {
        let serial = self.operations.iter().find(|(_, op)| {
            op.ep == ep && op.context == context && !op.done && matches!(op.what, What::Send { .. })
        });
        let Some(serial) = serial.map(|(serial, _)| *serial) else {
            return false;
        };
        let mut found = false;
        for queue in self.channels.values_mut() {
            let before = queue.len();
            queue.retain(|message| message.sender != Some(serial));
            found |= queue.len() < before;
        }
        if found {
            self.push_cancelled(serial);
            if let Some(ep) = self.endpoints.get_mut(&ep) {
                ep.outstanding = ep.outstanding.saturating_sub(1);
            }
        }
        found
    }
}
