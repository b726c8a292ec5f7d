//! Which receive a message goes to.
//!
//! ```text
//!   message (source, tag?) --> the oldest posted receive of its kind that fits
//!                                same bits where `ignore` has none, and the source if directed
//!   multi-receive buffer:  [ used | next message, aligned | ... ]  full below its minimum
//! ```
//!
//! Owns: the choice, and cutting a piece out of a multi-receive buffer.
//! Knows nothing of: when messages arrive.

use crate::checker::{Span, total};
use crate::objects::Id;
use crate::state::{Message, Multi, Receive, State, What};

impl Receive {
    /// Whether a message may go here.
    pub(crate) fn fits(&self, message: &Message) -> bool {
        let tag = match (self.tagged, message.tag) {
            (Some((tag, ignore)), Some(got)) => (tag ^ got) & !ignore == 0,
            (None, None) => true,
            _ => false,
        };
        tag && self
            .from
            .as_ref()
            .is_none_or(|from| *from == message.source)
    }
}

impl Multi {
    /// Takes room for `need` bytes: where it begins, and how much there is.
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
    /// The receive for a message, or none yet.
    pub(crate) fn find_receive(&self, ep: Id, message: &Message) -> Option<u64> {
        let endpoint = self.endpoints.get(&ep)?;
        let posted = if message.tag.is_some() {
            &endpoint.posted_tagged
        } else {
            &endpoint.posted
        };
        let fits = |serial: &&u64| {
            let what = self.operations.get(serial).map(|operation| &operation.what);
            matches!(what, Some(What::Receive(receive)) if receive.fits(message))
        };
        posted.iter().find(fits).copied()
    }

    /// The memory a message goes to, prefix included; takes the receive off the list when it has
    /// room for no more.
    pub(crate) fn claim(&mut self, ep: Id, serial: u64, len: usize) -> Vec<Span> {
        let Some(endpoint) = self.endpoints.get_mut(&ep) else {
            return Vec::new();
        };
        let need = len.saturating_add(endpoint.shape.prefix);
        let align = endpoint.shape.multi_recv_align;
        let Some(operation) = self.operations.get_mut(&serial) else {
            return Vec::new();
        };
        let room = total(&operation.spans);
        let (spans, gone) = match &mut operation.what {
            What::Receive(Receive {
                multi: Some(multi), ..
            }) => {
                let (start, got) = multi.cut(room, need, align);
                multi.landing += 1;
                // One segment, as posting saw to; and an address even for a message of no bytes.
                let base = operation.spans.first().map_or(0, |span| span.start);
                (vec![Span::new(base + start, got)], multi.full)
            }
            _ => (operation.spans.clone(), true),
        };
        if gone {
            endpoint.posted.retain(|other| *other != serial);
            endpoint.posted_tagged.retain(|other| *other != serial);
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::MessageBody;

    fn message(tag: Option<u64>, source: u8) -> Message {
        Message {
            from: 1,
            source: vec![source],
            tag,
            data: None,
            len: 0,
            body: MessageBody::Copied(Vec::new()),
            sender: None,
        }
    }

    fn receive(tagged: Option<(u64, u64)>, from: Option<u8>) -> Receive {
        Receive {
            tagged,
            from: from.map(|byte| vec![byte]),
            multi: None,
        }
    }

    #[test]
    fn ignored_bits_need_not_match() {
        let receive = receive(Some((0xab00, 0xff)), None);
        assert!(receive.fits(&message(Some(0xab42), 1)));
        assert!(!receive.fits(&message(Some(0xac42), 1)));
        assert!(!receive.fits(&message(None, 1)));
    }

    #[test]
    fn a_directed_receive_takes_from_its_peer_only() {
        let receive = receive(None, Some(1));
        assert!(receive.fits(&message(None, 1)));
        assert!(!receive.fits(&message(None, 2)));
        assert!(!receive.fits(&message(Some(0), 1)));
    }

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
