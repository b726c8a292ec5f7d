//! What becomes of a message that no receive is posted for, decided as it arrives.
//!
//! ```text
//!   credits used (match bits)    cost of its bytes    its price
//!   = cost, or 15 and more       cost                 cost, of those lent to its sender
//!   = 1                          more                 1, and the rest of the bank's: a draw
//!   anything else                                     it lies: cost, and a strike
//!   none: the peer knows none    <= its allotment     cost, of the allotment
//!                                more                 held; then 1, and a draw of the rest
//! ```

use super::{Behind, Inbox, Message, Note, Price};
use crate::match_layout::{Fields, MessageType, TYPE, bits};
use crate::method::Alarm;
use crate::peer::handshake::REQUEST_MAX;
use crate::peer::table::PeerKey;
use mx_proto::ledger::{self, Arrived, Control, ControlWord, CreditByte};
use mx_proto::{Arrival, MatchBits, MatchMask, Source, Verdict};
use mx_sys::{MallocBuffer, UserMemory};

/// What a peer says about the credits it lends us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tiding {
    /// With a message of its own.
    Ride(CreditByte),
    /// With a message for it: Grant or Revoke.
    Control(ControlWord),
}

/// What is to be done about a message that was left at the endpoint.
#[derive(Debug)]
pub enum Pick {
    /// It is to be received into this memory, with this word.
    Receive(UserMemory, u64),
    /// It is to be thrown away.
    Drop,
    /// Its sender's turn is over.
    Next,
    /// Nobody can have what the first one waits for.
    Wait,
}

impl Inbox {
    /// Are messages left at the endpoint for which there may be room now?
    #[inline]
    pub fn wants_more(&self) -> bool {
        (self.room || self.hungry) && !self.held.is_empty()
    }

    /// Is there anything for the method to look at?
    #[inline]
    pub fn has_todo(&self) -> bool {
        !self.notes.is_empty()
            || !self.tidings.is_empty()
            || self.lender.has_errands()
            || self.wants_more()
    }

    /// Is something left there because this process had no memory for it? Nobody tells when it has.
    #[inline]
    pub fn is_hungry(&self) -> bool {
        self.hungry && !self.held.is_empty()
    }

    /// Whose messages at the endpoint are to be tried, and what to ask it for.
    pub fn wanted(&mut self) -> Option<(PeerKey, MatchBits, MatchMask)> {
        let peer = self.held.first()?;
        let mask = MatchMask(TYPE.0 | 0xf_ffff << 32);
        Some((peer, bits(MessageType::Unexpected, peer.id(), 0), mask))
    }

    /// The endpoint has no more messages of this peer's.
    pub fn has_all(&mut self, peer: PeerKey) {
        self.settle(peer);
    }

    /// What there is has been tried.
    pub fn tried(&mut self) {
        self.room = false;
    }

    /// The oldest message of the first peer whose messages were left at the endpoint.
    pub fn pick_up(&mut self, arrival: &Arrival) -> Pick {
        if !self.is_welcome(arrival) {
            self.dropped += 1;
            return Pick::Drop;
        }
        let peer = PeerKey::from_word(arrival.source_context);
        let knows = self.lender.knows(peer.id());
        let price = if knows {
            if self.unsure.contains(&peer) {
                self.held.rotate(0);
                return Pick::Next;
            }
            let Some(price) = price(arrival) else {
                self.dropped += 1;
                return Pick::Drop;
            };
            if price.paid > self.held.paid(peer) {
                // That was in a life before this one.
                Price {
                    paid: 0,
                    drawn: price.paid.max(price.drawn),
                }
            } else {
                // Its own part was paid when it came.
                price
            }
        } else {
            Price {
                paid: 1,
                drawn: ledger::cost(arrival.length) - 1,
            }
        };
        // What counts for the allotment of who knows no credits is the bank's, too.
        let allotted = if knows { 0 } else { price.paid };
        self.short = !self.draw(price.drawn + allotted);
        if self.short {
            return Pick::Wait;
        }
        if !knows {
            self.lender.undraw(allotted);
            let arrived = self
                .lender
                .arrived(peer.id(), CreditByte::NONE, price.paid, self.now);
            if arrived != Arrived::Paid {
                if price.drawn > 0 {
                    self.lender.undraw(price.drawn);
                }
                self.held.rotate(0);
                return Pick::Next;
            }
        }
        match self.start(arrival, price) {
            Some((memory, context)) => {
                self.hungry = false;
                self.held.rotate(if knows { price.paid } else { 0 });
                Pick::Receive(memory, context)
            }
            None => {
                self.hungry = true;
                // The part that is paid at arrival stays paid.
                if price.drawn > 0 {
                    self.lender.undraw(price.drawn);
                }
                if !knows {
                    self.lender.taken(peer.id(), price.paid);
                }
                Pick::Wait
            }
        }
    }

    /// Takes credits of the bank's, unless there are too few.
    #[inline]
    fn draw(&mut self, credits: u32) -> bool {
        let drawn = credits == 0 || self.lender.draw(credits);
        if !drawn {
            self.alarms.raise(Alarm::Bank);
        }
        drawn
    }

    /// Does the message come from a peer that may send it, and is it not too large?
    fn is_welcome(&self, arrival: &Arrival) -> bool {
        is_of_peer(arrival) && arrival.length as usize <= self.largest
    }

    fn unexpected<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict<UserMemory> {
        let peer = PeerKey::from_word(arrival.source_context);
        let id = peer.id();
        let knows = self.lender.knows(id);
        let is_welcome = self.is_welcome(arrival);
        if !(is_welcome || knows && is_of_peer(arrival)) {
            return self.refuse(arrival, "an unexpected message we cannot take");
        }
        if self.held.contains(peer) && !knows {
            return Verdict::Continue;
        }
        if !self.unsure.is_empty()
            && self.unsure.contains(&peer)
            && CreditByte::of(arrival.bits).count == 0
        {
            // It knows no credits, as its answer to our call is about to say.
            return self.hold(peer, 0);
        }
        let full = ledger::cost(arrival.length);
        let price = match price(arrival) {
            Some(price) if knows => price,
            // What it says makes no sense: the ledger counts that.
            _ => Price {
                paid: full,
                drawn: 0,
            },
        };
        match self
            .lender
            .arrived(id, CreditByte::of(arrival.bits), price.paid, self.now)
        {
            Arrived::Paid if !is_welcome => {
                // Its sender takes larger ones itself, and has used these up.
                self.lender.taken(id, price.paid);
                return self.refuse(arrival, "an unexpected message that is too large");
            }
            Arrived::Paid => {}
            Arrived::Hold => {
                self.alarms.raise(Alarm::Held);
                return self.hold(peer, 0);
            }
            Arrived::Unpaid | Arrived::Fail => {
                self.alarms.raise(Alarm::Unpaid);
                return self.refuse(arrival, "an unexpected message it has no credits for");
            }
        }
        if self.held.contains(peer) {
            return self.hold(peer, price.paid);
        }
        // Who is first in line may need more than there ever is while others pass.
        let waits = price.drawn > 0 && self.short && !self.held.is_empty();
        if waits || !self.draw(price.drawn) {
            self.short = true;
            return self.hold(peer, price.paid);
        }
        self.take_in(arrival, body, price)
    }

    /// Takes a message that has been paid for.
    #[inline]
    fn take_in<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        body: Option<&B>,
        price: Price,
    ) -> Verdict<UserMemory> {
        let peer = PeerKey::from_word(arrival.source_context);
        let taken = match body {
            None => self
                .start(arrival, price)
                .map(|(memory, context)| Verdict::Receive { memory, context }),
            Some(body) => MallocBuffer::copy_of(body).map(|buffer| {
                self.add(Message {
                    peer,
                    partner: arrival.source,
                    payer: peer,
                    buffer,
                    tag: Fields::of(arrival.bits).tag as i32,
                    price,
                });
                Verdict::Finished
            }),
        };
        taken.unwrap_or_else(|| {
            self.hungry = true;
            if price.drawn > 0 {
                self.lender.undraw(price.drawn);
            }
            self.hold(peer, price.paid)
        })
    }

    #[cold]
    fn hold(&mut self, peer: PeerKey, paid: u32) -> Verdict<UserMemory> {
        self.held.add(peer, paid);
        Verdict::Continue
    }

    fn add(&mut self, message: Message) {
        self.take_up(message.buffer.len(), message.price);
        if !self.behind.is_empty()
            && let Some(behind) = self.behind.get_mut(&message.peer)
        {
            return behind.push_back(Behind::Here(message));
        }
        self.ready.push_back(message);
        self.set_news();
    }

    fn handshake<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        fields: Fields,
        body: Option<&B>,
    ) -> Verdict<UserMemory> {
        if !self.count_note(arrival.source) {
            return self.refuse(arrival, "too many messages of the handshake");
        }
        let body = match body {
            Some(body) if body.len() <= REQUEST_MAX => body.to_vec(),
            None if arrival.length as usize <= REQUEST_MAX => return self.ask(arrival, fields),
            // Too long for one: what is kept says so.
            _ => vec![b'?'; REQUEST_MAX + 1],
        };
        self.notes.push_back(Note {
            partner: arrival.source,
            fields,
            body,
        });
        Verdict::Finished
    }

    /// A message about credits alone.
    fn control(&mut self, arrival: &Arrival, fields: Fields) -> Verdict<UserMemory> {
        let peer = PeerKey::from_word(arrival.source_context);
        let Some(word) = ControlWord::of_tag(fields.tag).filter(|_| peer.id() == fields.id) else {
            return self.refuse(arrival, "nonsense about credits");
        };
        match word.control {
            Control::Want(_) | Control::Return(_) => {
                self.lender.on_control(peer.id(), word.control, self.now);
                // What could be lent is lent by now.
                if !self.alarms.is_raised(Alarm::Bank) && self.lender.stats().waiting > 0 {
                    self.alarms.raise(Alarm::Bank);
                }
                self.room = true;
            }
            Control::Grant { .. } | Control::Revoke(_) => {
                self.tidings.push_back((peer, Tiding::Control(word)));
            }
        }
        Verdict::Finished
    }

    #[cold]
    pub(super) fn refuse(&mut self, arrival: &Arrival, what: &str) -> Verdict<UserMemory> {
        self.dropped += 1;
        log::debug!(
            "{:?} sent {what}: {:#018x}, {} bytes; dropped",
            arrival.identity,
            arrival.bits.0,
            arrival.length
        );
        Verdict::Finished
    }
}

/// Does the message come from a peer, and under its own id?
fn is_of_peer(arrival: &Arrival) -> bool {
    let peer = PeerKey::from_word(arrival.source_context);
    peer != PeerKey::NOBODY && peer.id() == Fields::of(arrival.bits).id
}

/// What a message of a peer that knows credits costs; `None` when what it says makes no sense.
fn price(arrival: &Arrival) -> Option<Price> {
    let full = ledger::cost(arrival.length);
    match u32::from(CreditByte::of(arrival.bits).count) {
        said if said == full.min(CreditByte::COUNT_MAX.into()) => Some(Price {
            paid: full,
            drawn: 0,
        }),
        1 => Some(Price {
            paid: 1,
            drawn: full,
        }),
        _ => None,
    }
}

impl Inbox {
    /// See [`mx_proto::Owner::arriving`].
    #[inline]
    pub(crate) fn arriving(&mut self, source_context: u64, bits: MatchBits) {
        if bits.0 & CreditByte::MASK != 0 && Fields::of(bits).kind == Some(MessageType::Expected) {
            let ride = Tiding::Ride(CreditByte::of(bits));
            let peer = PeerKey::from_word(source_context);
            self.tidings.push_back((peer, ride));
        }
    }

    /// See [`mx_proto::Owner::arrived`].
    #[inline]
    pub(crate) fn arrived<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict<UserMemory> {
        let fields = Fields::of(arrival.bits);
        match fields.kind {
            Some(MessageType::Unexpected) => self.unexpected(arrival, body),
            Some(MessageType::Expected) => {
                let peer = PeerKey::from_word(arrival.source_context);
                // With another peer's id it would wait for that peer's receive.
                if peer.id() != fields.id {
                    return self.refuse(arrival, "a message with an id that is not its own");
                }
                if !self.abandoned.is_empty() {
                    self.note_crowd(peer);
                }
                Verdict::Continue
            }
            Some(MessageType::ConnReq | MessageType::ConnAck) => {
                self.handshake(arrival, fields, body)
            }
            Some(MessageType::Credit) => self.control(arrival, fields),
            Some(MessageType::IconReq | MessageType::IconAck) | None => {
                self.refuse(arrival, "a message of an unknown type")
            }
        }
    }
}
