//! Our last messages about credits to a peer, one of each kind.
//!
//! ```text
//!   its Want    answers a message of ours, or comes first;  our Grant  answers its Want
//!   its Return  answers our Revoke;                         our Return answers its Revoke
//! ```
//!
//! So an honest peer makes us send none of a kind before it has had the last one of that kind, and
//! at most one of each waits at the endpoint.

use mx_proto::RequestId;
use mx_proto::ledger::Control;

/// The requests that they were, as far as they had to wait.
#[derive(Clone, Copy, Default, Debug)]
pub struct Words([Option<RequestId>; 4]);

impl Words {
    /// The last one of this kind.
    pub fn last(&self, kind: Control) -> Option<RequestId> {
        self.0[place(kind)]
    }

    /// One is sent; it waits as `request`.
    pub fn on_sent(&mut self, kind: Control, request: Option<RequestId>) {
        self.0[place(kind)] = request;
    }
}

fn place(kind: Control) -> usize {
    match kind {
        Control::Want(_) => 0,
        Control::Grant { .. } => 1,
        Control::Revoke(_) => 2,
        Control::Return(_) => 3,
    }
}
