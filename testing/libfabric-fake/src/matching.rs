//! Assigns messages to receives.
//!
//! ```text
//!   message --> the oldest posted receive
//!   multi-receive buffer:  [ used | next message, aligned | ... ]  full when less than its minimum is left
//! ```
//!
//! Owns: the choice, and dividing a multi-receive buffer.
//! Out of scope: the arrival of messages.

use crate::checker::{Span, total};
use crate::objects::Id;
use crate::state::{Multi, State, What};

impl Multi {
    /// Reserves `need` bytes; returns their start and the space.
    pub(crate) fn cut(&mut self, len: usize, need: usize, align: usize) -> (usize, usize) {
        let start = self.used.next_multiple_of(align.max(1)).min(len);
        let got = need.min(len - start);
        self.used = start + got;
        let rest = len - self.used.next_multiple_of(align.max(1)).min(len);
        self.full |= rest < self.least;
        (start, got)
    }
}

impl State {
    /// Returns the receive for the next message, if there is one.
    pub(crate) fn find_receive(&self, ep: Id) -> Option<u64> {
        self.endpoints[&ep].posted.front().copied()
    }

    /// Returns the memory for a message, including the prefix; removes a receive without further
    /// space from the list.
    pub(crate) fn claim(&mut self, ep: Id, serial: u64, len: usize) -> Vec<Span> {
        let endpoint = self.endpoints.get_mut(&ep).expect("an open endpoint");
        let need = len.saturating_add(endpoint.shape.prefix);
        let align = endpoint.shape.multi_recv_align;
        let Some(operation) = self.operations.get_mut(&serial) else {
            return Vec::new();
        };
        let room = total(&operation.spans);
        let (spans, gone) = match &mut operation.what {
            What::Receive(Some(multi)) => {
                let (start, got) = multi.cut(room, need, align);
                multi.landing += 1;
                // Posting has checked that there is one segment; even an empty message has an
                // address.
                let base = operation.spans.first().map_or(0, |span| span.start);
                (vec![Span::new(base + start, got)], multi.full)
            }
            _ => (operation.spans.clone(), true),
        };
        if gone {
            endpoint.posted.retain(|other| *other != serial);
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multi_receive_buffer_is_full_below_its_minimum() {
        let mut multi = Multi {
            used: 0,
            least: 100,
            landing: 0,
            full: false,
        };
        assert_eq!(multi.cut(1000, 300, 64), (0, 300));
        assert_eq!(multi.cut(1000, 300, 64), (320, 300));
        assert!(!multi.full);
        assert_eq!(multi.cut(1000, 270, 64), (640, 270));
        assert!(multi.full);
        assert_eq!(multi.cut(1000, 70, 64), (960, 40));
    }
}
