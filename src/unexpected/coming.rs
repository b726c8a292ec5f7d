//! Messages that were only offered, on their way into buffers of ours.

use super::{Behind, Inbox, Message, Note, Price};
use crate::match_layout::Fields;
use crate::peer::table::PeerKey;
use mx_proto::{Arrival, Outcome, PartnerId, Status, Verdict};
use mx_sys::{Lent, MallocBuffer, UserMemory};

/// An unexpected message on its way.
#[derive(Debug)]
pub(super) struct Coming {
    peer: PeerKey,
    tag: i32,
    len: usize,
    price: Price,
    lent: Lent,
}

/// A message of the handshake on its way: one whose sender may not send us its bytes unasked, as
/// all that may be sent so has been promised to others.
#[derive(Debug)]
pub(super) struct Asked {
    partner: PartnerId,
    fields: Fields,
    len: usize,
    lent: Lent,
}

/// Set in the number of a receive that is for a message of the handshake.
const HANDSHAKE: u64 = 1 << 62;

impl Inbox {
    /// Makes room for a message that has to be received, and has been paid for. `None`: there is no
    /// memory.
    pub(super) fn start(&mut self, arrival: &Arrival, price: Price) -> Option<(UserMemory, u64)> {
        let len = arrival.length as usize;
        let buffer = MallocBuffer::new(len)?;
        let (memory, lent) = UserMemory::owned(buffer);
        let peer = PeerKey::from_word(arrival.source_context);
        let slot = self.coming.insert(Coming {
            peer,
            tag: Fields::of(arrival.bits).tag as i32,
            len,
            price,
            lent,
        });
        self.take_up(len, price);
        let behind = self.behind.entry(peer).or_default();
        behind.push_back(Behind::Coming(slot));
        Some((memory, slot as u64))
    }

    /// The same for one of the handshake, which has been counted.
    pub(super) fn ask(&mut self, arrival: &Arrival, fields: Fields) -> Verdict<UserMemory> {
        let len = arrival.length as usize;
        let Some(buffer) = MallocBuffer::new(len) else {
            self.uncount_note(arrival.source);
            return self.refuse(arrival, "a request there is no memory for");
        };
        let (memory, lent) = UserMemory::owned(buffer);
        let slot = self.asked.insert(Asked {
            partner: arrival.source,
            fields,
            len,
            lent,
        });
        Verdict::Receive {
            memory,
            context: HANDSHAKE | slot as u64,
        }
    }

    /// The receive of a message that was only offered has ended.
    pub fn on_received(&mut self, context: u64, how: &Outcome) {
        let slot = (context & !HANDSHAKE) as usize;
        if context & HANDSHAKE != 0 {
            return self.on_asked(slot, how);
        }
        let Some(coming) = self.coming.try_remove(slot) else {
            return;
        };
        let Coming {
            peer,
            tag,
            len,
            price,
            lent,
        } = coming;
        let complete = how.status == Status::Success && how.length as usize == len;
        let arrived = match lent.take() {
            Ok(buffer) if complete => Some(Message {
                peer,
                partner: how.partner,
                payer: peer,
                buffer,
                tag,
                price,
            }),
            _ => None,
        };
        if arrived.is_none() {
            log::debug!(
                "an unexpected message of {len} bytes was lost: {:?}",
                how.status
            );
        }
        // Without it the peer has been forgotten meanwhile.
        let behind = self.behind.get_mut(&peer);
        let place = behind.as_ref().and_then(|behind| {
            behind
                .iter()
                .position(|entry| matches!(entry, Behind::Coming(n) if *n == slot))
        });
        match (behind, place, arrived) {
            (Some(behind), Some(place), Some(message)) => behind[place] = Behind::Here(message),
            (behind, place, _) => {
                if let (Some(behind), Some(place)) = (behind, place) {
                    behind.remove(place);
                }
                self.give_back(peer, len, price);
            }
        }
        self.hand_on(peer);
    }

    /// What waits behind nothing any more is ready.
    fn hand_on(&mut self, peer: PeerKey) {
        let Some(behind) = self.behind.get_mut(&peer) else {
            return;
        };
        while let Some(Behind::Here(_)) = behind.front() {
            if let Some(Behind::Here(message)) = behind.pop_front() {
                self.ready.push_back(message);
                (self.news, self.produced) = (true, true);
            }
        }
        if behind.is_empty() {
            self.behind.remove(&peer);
        }
    }

    fn on_asked(&mut self, slot: usize, how: &Outcome) {
        let Some(asked) = self.asked.try_remove(slot) else {
            return;
        };
        let complete = how.status == Status::Success && how.length as usize == asked.len;
        if let Ok(mut buffer) = asked.lent.take()
            && complete
        {
            self.notes.push_back(Note {
                partner: asked.partner,
                fields: asked.fields,
                body: buffer.bytes_mut().to_vec(),
            });
        } else {
            self.uncount_note(asked.partner);
        }
    }
}
