//! A simulated application's decisions about unexpected messages.

use super::{FOR_HANDLER, Mood, Siege};
use crate::buffer::Buffer;
use crate::check::{Book, LifeId};
use crate::owner::Verdicts;
use crate::rng::Rng;
use crate::world::World;
use mx_proto::flow::Lane;
use mx_proto::{Arrival, MatchBits, RemoteId, Source, Verdict};
use std::cell::RefCell;
use std::rc::Rc;

/// Decides about unexpected messages.
pub struct Judge {
    pub(super) rng: Rng,
    pub(super) book: Rc<RefCell<Book>>,
    pub(super) life: LifeId,
    pub(super) mood: Mood,
    pub(super) defers: bool,
    pub(super) next_context: u64,
    /// Number of messages that could be taken from the inbox so far.
    pub(super) ready: u64,
    /// Remotes that have sent something, if they are recorded.
    pub(super) heard_of: Option<Vec<RemoteId>>,
    /// Pairs of remotes of one process.
    pub(super) joined: Vec<(RemoteId, RemoteId)>,
    /// Remotes from which a message or a connect's answer has come, with the number of joins at
    /// that time.
    pub(super) seen: Vec<(RemoteId, usize)>,
    pub(super) siege: Option<Siege>,
    pub(super) world: World,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}

impl Judge {
    pub(super) fn next_context(&mut self) -> u64 {
        self.next_context += 1;
        self.next_context
    }
}

impl Verdicts<Buffer> for Judge {
    fn joins(_: &[u8]) -> bool {
        true
    }

    fn lane(bits: MatchBits) -> Lane {
        Lane::ALL[usize::from(bits.0 & FOR_HANDLER != 0)]
    }

    fn arrived<B: Source + ?Sized>(&mut self, arrival: &Arrival, body: Option<&B>) -> Verdict {
        if let Some(siege) = self
            .siege
            .as_ref()
            .filter(|_| Siege::is_hostile(arrival.bits))
        {
            siege.judge(&arrival.identity);
            self.book.borrow_mut().count("hostile");
            return Verdict::Finished;
        }
        if let Some(heard_of) = &mut self.heard_of {
            heard_of.push(arrival.source);
        }
        if self.defers && self.rng.chance(0.3) {
            return Verdict::Defer;
        }
        let mut book = self.book.borrow_mut();
        let Some(from) = book.life_of(arrival.identity.session) else {
            panic!("a message from a session that never was")
        };
        let node = book.lives()[from].node;
        assert!(
            self.world.proves(node, arrival.identity.nic),
            "a name that is not the sender's: {:?}",
            arrival.identity
        );
        let context = arrival.source_context;
        assert!(
            context == 0 || context == from as u64 + 1,
            "another remote's context"
        );
        let shown = body.map(|body| {
            assert_eq!(body.len(), arrival.length as usize);
            book.shown(
                self.life,
                (from, arrival.source),
                arrival.bits,
                &body.to_vec(),
            )
        });
        if arrival.bits.0 & FOR_HANDLER == 0 {
            return Verdict::Continue;
        }
        match shown {
            Some(serial) if self.rng.chance(0.5) => {
                book.arrived(serial);
                Verdict::Finished
            }
            _ if self.mood == Mood::Busy && self.rng.chance(0.2) => Verdict::Continue,
            // From each life in turn.
            _ => Verdict::Inbox {
                turn: from as u32 + 1,
            },
        }
    }

    fn memory(&mut self, len: usize) -> Option<Buffer> {
        let there = self.mood != Mood::Busy || self.rng.chance(0.9);
        if !there {
            self.book.borrow_mut().count("no memory for the inbox");
        }
        there.then(|| Buffer::new(vec![0x5a; len]))
    }

    fn ready(&mut self, _: u32) {
        self.ready += 1;
    }

    fn joined(&mut self, one: RemoteId, other: RemoteId) {
        self.joined.push((one, other));
    }

    fn seen(&mut self, remote: RemoteId, bits: MatchBits) {
        let is_hostile = self.siege.is_some() && Siege::is_hostile(bits);
        if !is_hostile && self.seen.iter().all(|(known, _)| *known != remote) {
            self.seen.push((remote, self.joined.len()));
        }
    }
}
