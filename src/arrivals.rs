//! Decides about messages without a posted receive, as they arrive.
//!
//! ```text
//!   UNEXPECTED           the endpoint's inbox, in the turn of its peer  ---> testunexpected
//!   CONN_REQ, CONN_ACK   recorded for the method, with the body if that has arrived
//!   EXPECTED             stays in the endpoint until its receive is posted
//!   anything else        dropped and counted: unknown peer, another peer's id, too large
//! ```
//!
//! The endpoint keeps limits and credits of waiting messages.
//!
//! Owns: cancelled receives whose messages may still arrive.
//! Out of scope: peers except their keys, the host.

use crate::cancelled_receives::CancelledReceives;
use crate::match_layout::{Fields, MessageType};
use crate::method::{DeferredTask, Host};
use crate::peer::handshake::REQUEST_MAX;
use crate::peer::table::PeerKey;
use mx_proto::{Arrival, Event, Events, RemoteId, Source, Verdict};

/// Received message of the handshake (CONN_REQ or CONN_ACK).
#[derive(Debug)]
pub struct HandshakeMessage {
    /// Remote that sent the message.
    pub remote: RemoteId,
    /// Fields of its match bits.
    pub fields: Fields,
    /// Body of the message; longer than [`REQUEST_MAX`] if it was too long or had not arrived.
    pub body: Vec<u8>,
}

/// Decides about messages without a posted receive, and counts rejected ones.
#[derive(Debug)]
pub(crate) struct ArrivalPolicy {
    /// Size limit of unexpected messages, in bytes.
    largest: usize,
    /// Largest message class that the host knows.
    class_max: u8,
    /// Whether an unexpected message has become available since the last [`Self::take_events`].
    updated: bool,
    /// Whether an unexpected message has become available since the last [`Self::take_produced`].
    produced: bool,
    /// Number of invalid messages.
    dropped: u64,
    /// Cancelled receives whose messages may still arrive.
    pub(crate) cancelled: CancelledReceives,
}

impl ArrivalPolicy {
    /// Accepts unexpected messages of up to `largest` bytes, of classes up to `class_max`.
    pub(crate) fn new(largest: usize, class_max: u8) -> Self {
        Self {
            largest,
            class_max,
            updated: false,
            produced: false,
            dropped: 0,
            cancelled: CancelledReceives::default(),
        }
    }

    /// Implements [`mx_proto::Owner::arrived`].
    #[inline]
    pub(crate) fn arrived<B: Source + ?Sized>(
        &mut self,
        events: &mut Events<Host>,
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
            // Under another peer's id the message would match that peer's receives.
            Some(MessageType::Expected) if !own => {
                self.refuse(arrival, "a message with an id that is not its own")
            }
            Some(MessageType::Expected) => {
                if self.cancelled.any_of(peer.id()) {
                    events.push_back(Event::Owner(DeferredTask::OverQuota(peer)));
                }
                Verdict::Continue
            }
            Some(MessageType::ConnReq | MessageType::ConnAck) => {
                let message = handshake(arrival, fields, body);
                events.push_back(Event::Owner(DeferredTask::Handshake(message)));
                Verdict::Finished
            }
            Some(MessageType::IconReq | MessageType::IconAck) | None => {
                self.refuse(arrival, "a message of an unknown type")
            }
        }
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

    /// Implements [`mx_proto::Owner::ready`].
    #[inline]
    pub(crate) fn ready(&mut self) {
        self.set_events();
    }

    /// Clears the events: no messages are left.
    pub(crate) fn forget(&mut self) {
        (self.updated, self.produced) = (false, false);
    }

    /// Returns whether [`Self::take_events`] would return true.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        self.updated
    }

    /// Returns whether an unexpected message has become available since the last call.
    #[inline]
    pub(crate) fn take_events(&mut self) -> bool {
        std::mem::take(&mut self.updated)
    }

    /// Returns whether one has become available since the last call, on behalf of sleeping threads.
    #[inline]
    pub(crate) fn take_produced(&mut self) -> bool {
        std::mem::take(&mut self.produced)
    }

    /// Makes callers check for messages (again).
    #[inline]
    pub(crate) fn set_events(&mut self) {
        (self.updated, self.produced) = (true, true);
    }

    /// Returns the number of invalid messages dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn handshake<B: Source + ?Sized>(
    arrival: &Arrival,
    fields: Fields,
    body: Option<&B>,
) -> HandshakeMessage {
    let body = match body {
        Some(body) if body.len() <= REQUEST_MAX => body.to_vec(),
        // Too long, or not here: a placeholder whose length is invalid, too.
        _ => vec![b'?'; REQUEST_MAX + 1],
    };
    HandshakeMessage {
        remote: arrival.source,
        fields,
        body,
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

    fn of(
        unmatched: &mut ArrivalPolicy,
        events: &mut Events<Host>,
        arrival: &Arrival,
        body: Option<&[u8]>,
    ) -> &'static str {
        match unmatched.arrived(events, arrival, body) {
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
        let (unmatched, events) = (&mut ArrivalPolicy::new(100, 0), &mut Events::<Host>::new());
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
            assert_eq!(of(unmatched, events, &arrival, body), what, "{arrival:?}");
        }
        assert_eq!(unmatched.dropped(), 7);
        assert!(events.is_empty());
    }

    #[test]
    fn a_note_is_kept_whole_or_only_as_too_long() {
        let (unmatched, events) = (&mut ArrivalPolicy::new(100, 0), &mut Events::<Host>::new());
        let bits = bits(MessageType::ConnReq, 4, VERSION);
        let long = vec![b'a'; REQUEST_MAX + 1];
        let too_long = arrival(0, bits, long.len() as u32);
        assert_eq!(
            of(unmatched, events, &arrival(0, bits, 3), Some(b"a\0b")),
            "gone"
        );
        assert_eq!(of(unmatched, events, &too_long, Some(&long)), "gone");
        assert_eq!(of(unmatched, events, &too_long, None), "gone");
        assert_eq!(of(unmatched, events, &arrival(0, bits, 9), None), "gone");
        let bodies = events.drain(..).map(|event| match event {
            Event::Owner(DeferredTask::Handshake(message)) => message.body.len(),
            event => panic!("{event:?}"),
        });
        assert_eq!(
            bodies.collect::<Vec<_>>(),
            [3, REQUEST_MAX + 1, REQUEST_MAX + 1, REQUEST_MAX + 1]
        );
        assert!(!unmatched.take_events());
        unmatched.ready();
        assert!(unmatched.take_events() && unmatched.take_produced() && !unmatched.take_produced());
    }
}
