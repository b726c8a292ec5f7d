//! Decides about messages without a posted receive, as they arrive.
//!
//! ```text
//!   UNEXPECTED           the endpoint's inbox, in the turn of its peer  ---> testunexpected
//!   CONN_REQ, CONN_ACK   a note for the method, if its data has come with it
//!   EXPECTED             waits at the endpoint until its receive is posted
//!   anything else        dropped and counted: unknown peer, another peer's id, too large
//! ```
//!
//! Limits and credits of waiting messages are the endpoint's task.
//!
//! Owns: notes for the method; cancelled receives whose messages may still come.
//! Not here: peers but their keys, the host.

use crate::abandoned::Abandoned;
use crate::match_layout::{Fields, MessageType};
use crate::peer::handshake::REQUEST_MAX;
use crate::peer::table::PeerKey;
use mx_proto::{Arrival, RemoteId, Source, Verdict};
use std::collections::VecDeque;

/// A message of the handshake.
#[derive(Debug)]
pub(crate) struct Note {
    /// The sender.
    pub remote: RemoteId,
    /// Its match bits taken apart.
    pub fields: Fields,
    /// Its contents.
    pub body: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Unmatched {
    notes: VecDeque<Note>,
    /// The largest unexpected message.
    largest: usize,
    /// The largest class that the host knows.
    class_max: u8,
    /// An unexpected message can be had since a test call returned because of one.
    updated: bool,
    /// The same since waiting threads were told.
    produced: bool,
    /// Messages that made no sense.
    dropped: u64,
    /// Receives that were given up, whose messages may still come.
    pub(crate) abandoned: Abandoned,
    /// Peers of which some were, and which have left another message at the endpoint.
    over_quota: Vec<PeerKey>,
}

impl Unmatched {
    /// Takes unexpected messages of up to `largest` bytes, of classes up to `class_max`.
    pub(crate) fn new(largest: usize, class_max: u8) -> Self {
        Self {
            notes: VecDeque::new(),
            largest,
            class_max,
            updated: false,
            produced: false,
            dropped: 0,
            abandoned: Abandoned::default(),
            over_quota: Vec::new(),
        }
    }

    /// See [`mx_proto::Owner::arrived`].
    #[inline]
    pub(crate) fn arrived<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict {
        let fields = Fields::of(arrival.bits);
        let peer = PeerKey::from_word(arrival.source_context);
        let own = peer != PeerKey::NONE && peer.id() == fields.id;
        match fields.kind {
            Some(MessageType::Unexpected) if !own => {
                self.refuse(arrival, "an unexpected message without being a peer")
            }
            Some(MessageType::Unexpected) if arrival.length as usize > self.largest => {
                self.refuse(arrival, "an unexpected message that is too large")
            }
            Some(MessageType::Unexpected) => Verdict::Inbox {
                turn: fields.turn(self.class_max),
            },
            // With another peer's id it would wait for that peer's receive.
            Some(MessageType::Expected) if !own => {
                self.refuse(arrival, "a message with an id that is not its own")
            }
            Some(MessageType::Expected) => {
                if !self.abandoned.is_empty() {
                    self.note_over_quota(peer);
                }
                Verdict::Continue
            }
            Some(MessageType::ConnReq | MessageType::ConnAck) => {
                self.handshake(arrival, fields, body)
            }
            Some(MessageType::IconReq | MessageType::IconAck) | None => {
                self.refuse(arrival, "a message of an unknown type")
            }
        }
    }

    fn handshake<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        fields: Fields,
        body: Option<&B>,
    ) -> Verdict {
        let body = match body {
            Some(body) if body.len() <= REQUEST_MAX => body.to_vec(),
            // Too long for one: what is kept says so.
            _ => vec![b'?'; REQUEST_MAX + 1],
        };
        self.notes.push_back(Note {
            remote: arrival.source,
            fields,
            body,
        });
        Verdict::Finished
    }

    #[cold]
    fn refuse(&mut self, arrival: &Arrival, what: &str) -> Verdict {
        self.dropped += 1;
        log::debug!(
            "{:?} sent {what}: {:#018x}, {} bytes; dropped",
            arrival.identity,
            arrival.bits.0,
            arrival.length
        );
        Verdict::Finished
    }

    #[cold]
    fn note_over_quota(&mut self, peer: PeerKey) {
        if self.abandoned.any_of(peer.id()) && !self.over_quota.contains(&peer) {
            self.over_quota.push(peer);
        }
    }

    /// See [`mx_proto::Owner::ready`].
    #[inline]
    pub(crate) fn ready(&mut self) {
        self.set_events();
    }

    /// Is there something for the method to look at?
    #[inline]
    pub(crate) fn has_todo(&self) -> bool {
        !(self.notes.is_empty() && self.over_quota.is_empty())
    }

    /// There are no messages any more.
    pub(crate) fn forget(&mut self) {
        self.notes.clear();
        self.over_quota.clear();
        (self.updated, self.produced) = (false, false);
    }

    /// The oldest note.
    #[inline]
    pub(crate) fn pop_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// Their number.
    pub(crate) fn notes(&self) -> usize {
        self.notes.len()
    }

    /// A peer that may have left too many messages at the endpoint.
    #[inline]
    pub(crate) fn pop_over_quota(&mut self) -> Option<PeerKey> {
        self.over_quota.pop()
    }

    /// Has an unexpected message come up since the last call?
    #[inline]
    pub(crate) fn take_events(&mut self) -> bool {
        std::mem::take(&mut self.updated)
    }

    /// Has one since the last call? Asked on behalf of threads that sleep.
    #[inline]
    pub(crate) fn take_produced(&mut self) -> bool {
        std::mem::take(&mut self.produced)
    }

    /// Callers should look (again).
    #[inline]
    pub(crate) fn set_events(&mut self) {
        (self.updated, self.produced) = (true, true);
    }

    /// Messages dropped because they made no sense.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::match_layout::{VERSION, bits};
    use mx_proto::{EndpointId, Identity, MatchBits, NicId, SessionId};

    fn arrival(peer: u64, bits: MatchBits, length: u32) -> Arrival {
        Arrival {
            source: RemoteId::new(3, 1),
            source_context: peer,
            identity: Identity {
                nic: NicId(1),
                endpoint: EndpointId(2),
                session: SessionId(3),
            },
            bits,
            length,
        }
    }

    fn of(unmatched: &mut Unmatched, arrival: &Arrival, body: Option<&[u8]>) -> &'static str {
        match unmatched.arrived(arrival, body) {
            Verdict::Continue => "waits",
            Verdict::Defer => "deferred",
            Verdict::Finished => "gone",
            Verdict::Inbox { turn: 7 } => "inbox",
            Verdict::Inbox { .. } => "inbox of another",
        }
    }

    const PEER: u64 = 5 << 32 | 7;

    #[test]
    fn only_what_a_peer_sends_under_its_own_id_is_taken() {
        let unmatched = &mut Unmatched::new(100, 0);
        let unexpected = |id| bits(MessageType::Unexpected, id, 9);
        let expected = |id| bits(MessageType::Expected, id, 9);
        let body = Some(&b"x"[..]);
        for (arrival, what) in [
            (arrival(PEER, unexpected(7), 1), "inbox"),
            (arrival(PEER, unexpected(7), 100), "inbox"),
            (arrival(PEER, unexpected(7), 101), "gone"),
            (arrival(PEER, unexpected(8), 1), "gone"),
            (arrival(0, unexpected(0), 1), "gone"),
            (arrival(PEER, expected(7), 1000), "waits"),
            (arrival(PEER, expected(8), 1), "gone"),
            (arrival(0, expected(8), 1), "gone"),
            (arrival(PEER, bits(MessageType::IconReq, 7, 0), 1), "gone"),
            (arrival(PEER, MatchBits(0x8 << 60 | 7 << 32), 0), "gone"),
        ] {
            assert_eq!(of(unmatched, &arrival, body), what, "{arrival:?}");
        }
        assert_eq!(unmatched.dropped(), 7);
        assert!(!unmatched.has_todo());
    }

    #[test]
    fn a_note_is_kept_whole_or_only_as_too_long() {
        let unmatched = &mut Unmatched::new(100, 0);
        let bits = bits(MessageType::ConnReq, 4, VERSION);
        let long = vec![b'a'; REQUEST_MAX + 1];
        let too_long = arrival(0, bits, long.len() as u32);
        assert_eq!(of(unmatched, &arrival(0, bits, 3), Some(b"a\0b")), "gone");
        assert_eq!(of(unmatched, &too_long, Some(&long)), "gone");
        assert_eq!(of(unmatched, &too_long, None), "gone");
        assert_eq!(of(unmatched, &arrival(0, bits, 9), None), "gone");
        let bodies: Vec<_> = std::iter::from_fn(|| unmatched.pop_note())
            .map(|note| note.body.len())
            .collect();
        assert_eq!(
            bodies,
            [3, REQUEST_MAX + 1, REQUEST_MAX + 1, REQUEST_MAX + 1]
        );
        assert!(!unmatched.has_todo() && !unmatched.take_events());
        unmatched.ready();
        assert!(unmatched.take_events() && unmatched.take_produced() && !unmatched.take_produced());
    }
}
