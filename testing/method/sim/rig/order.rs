//! Order in which a host is told of operations that fail together (docs/c-api.md).
//!
//! ```text
//!   one context, from empty to empty:   send failed ...   receive failed ...      successes anywhere
//!                                       of each peer in the order posted
//! ```

use bmi_method::abi::constants::{BMI_ECANCEL, BMI_ENORECVR, BMI_ETIMEDOUT};
use bmi_method::method::PostKind;
use std::collections::HashMap;

/// Codes of operations that end one by one: cancelled, at one side or the other, or timed out.
const ALONE: [i32; 3] = [-BMI_ECANCEL, -BMI_ENORECVR, -BMI_ETIMEDOUT];

/// Failures reported in a row, while nothing else ends. Labels grow in the order of posting.
#[derive(Default)]
pub struct Order {
    /// A failed receive.
    receive: Option<u64>,
    /// Last label of each peer's sends and receives that ended with a code.
    last: HashMap<(usize, bool, i32), u64>,
}

impl Order {
    /// Checks the next completion. `peer`: its address. `at_once`: it may have ended when it was
    /// posted, before others that were posted earlier.
    ///
    /// # Panics
    /// If it should have been reported before.
    pub fn note(&mut self, label: u64, kind: PostKind, peer: usize, error: i32, at_once: bool) {
        if error == 0 {
            return;
        }
        let receives = kind == PostKind::Recv;
        if receives {
            self.receive.get_or_insert(label);
        } else if let Some(receive) = self.receive {
            panic!(
                "send {label} failed with {error}, and is told after receive {receive}, which failed too"
            );
        }
        if !ALONE.contains(&error) && !at_once {
            let before = self.last.insert((peer, receives, error), label);
            assert!(
                before < Some(label),
                "operation {label} was posted before {before:?}, and is told after it: {error}"
            );
        }
    }
}
