//! Links waking up.
//!
//! ```text
//!     A                                                   B
//!     send: WouldBlock
//!     new memory: Wake + memfd ------------------------>  checks, maps; may send at once
//!     writable                             <--- Woken
//!
//!     both at once: the memory of whoever started the link counts, the other's is dropped
//!     no room at A: A waits in a queue
//!     no room at B:                        <--- Later     B waits in its queue, then wakes A
//!                                                         who comes first in A's
//!     no descriptor: as if there were no room
//! ```
//!
//! What comes over the socket is a stranger's: a word out of place fails its link and no other.
//!
//! Owns: who gets memory next.
//! Knows nothing of: handshakes of new links, when links sleep.

use super::epoll::Interest;
use super::handshake::{MESSAGE_LEN, Wake, Word};
use super::layout::Geometry;
use super::link::{Link, Memory, State};
use super::socket::{Received, is_exhaustion, is_transient};
use super::{LocalPort, barrier};
use mx_port_base::sealed::{Region, Unfit};
use mx_proto::origin::Source;
use mx_proto::port::{Body, HeaderBytes, SendError, Sent};
use mx_proto::{LinkId, Memory as Bytes};
use std::io;
use std::os::fd::OwnedFd;

/// The peer said what is not in place.
struct Violation;

/// What came with a message.
enum Given {
    Nothing,
    Memory(OwnedFd),
    /// Memory, but there was no descriptor left for it.
    CutOff,
}

impl LocalPort {
    /// A send on a link that is not up.
    #[cold]
    #[inline(never)]
    pub(super) fn send_resting<M: Bytes>(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        body: &Body<'_, M>,
    ) -> Result<Sent, SendError> {
        self.stay_up(id);
        let Some(entry) = self.links.get_mut(id) else {
            return Err(SendError::Down);
        };
        if let State::Up(link) = &mut entry.state {
            let outcome = link.producer.push(header, body);
            return self.after_push(id, outcome);
        }
        if entry.socket.is_none() || entry.doomed {
            return Err(SendError::Down);
        }
        entry.blocked = true;
        if matches!(entry.state, State::Asleep) {
            self.want(id);
        }
        Err(SendError::WouldBlock)
    }

    /// A sleeping link is to wake up: now if there is memory, otherwise in its turn.
    pub(super) fn want(&mut self, id: LinkId) {
        if self.has_turn(id) && self.wake(id) {
            return;
        }
        self.turn(id, |_| State::Wanted);
        match self.links.get(id) {
            Some(entry) if entry.first => self.wanting.push_front(id),
            _ => self.wanting.push_back(id),
        }
        self.control_wanted = true;
    }

    /// Nobody is to get memory before this link.
    fn has_turn(&self, id: LinkId) -> bool {
        let next = self.wanting.front().and_then(|next| self.links.get(*next));
        self.wanting.front().is_none_or(|next| *next == id)
            // One that has its share waits for others of its own.
            || next.is_some_and(|next| {
                self.budget.has_any() && self.budget.choose(next.source).is_none()
            })
            || self.links.get(id).is_some_and(|entry| entry.first)
    }

    /// Gives memory to those that want some, as far as it goes. False: there is some, and it could not
    /// be handed over.
    pub(super) fn serve(&mut self) -> bool {
        let mut all = true;
        for _ in 0..self.wanting.len() {
            let Some(id) = self.wanting.pop_front() else {
                return all;
            };
            let wants = self
                .links
                .get(id)
                .is_some_and(|entry| matches!(entry.state, State::Wanted) && !entry.doomed);
            if wants && !self.wake(id) {
                // The others are not kept waiting by one that cannot be told.
                self.wanting.push_back(id);
                if !self.budget.has_any() {
                    self.wanting.rotate_right(1);
                    return all;
                }
                let source = self.links.get(id).map_or(Source::TRUSTED, |it| it.source);
                // Else it has its share.
                all &= self.budget.choose(source).is_none();
            }
        }
        all
    }

    /// Hands over memory for a link that sleeps. False: there is none, or it cannot be handed over
    /// now.
    fn wake(&mut self, id: LinkId) -> bool {
        let source = self.links.get(id).map_or(Source::TRUSTED, |it| it.source);
        let Some(geometry) = self.choose(source) else {
            return false;
        };
        let Some(socket) = self.links.get(id).and_then(|entry| entry.socket.as_ref()) else {
            return false;
        };
        let given = Memory::make(geometry).and_then(|(memory, fd)| {
            socket.send(&Word::Wake(Wake { geometry }).encode(), Some(&fd))?;
            Ok(memory)
        });
        match given {
            Ok(memory) => {
                self.starved = false;
                self.turn(id, |_| State::Waking(memory));
                self.list(id);
                true
            }
            Err(error) => {
                if is_exhaustion(&error) {
                    self.warn_of_starving(&"no memory can be handed over");
                }
                log::debug!("{:?}: {id:?} cannot be woken now: {error}", self.name);
                false
            }
        }
    }

    /// The rings of one more link of `source`, if there is memory.
    pub(super) fn choose(&mut self, source: Source) -> Option<Geometry> {
        let geometry = self.budget.choose(source);
        if !self.budget.has_any() && !std::mem::replace(&mut self.warned, true) {
            log::warn!(
                "{:?}: the shared memory of all links has come to its limit (MX_LOCAL_BYTES): new \
                 peers come over tcp, waking ones wait",
                self.name
            );
        }
        geometry
    }

    /// The same for a link that is new: those that have one come first.
    pub(super) fn choose_for_new(&mut self, source: Source) -> Option<Geometry> {
        let may_have = |id: &LinkId| {
            let entry = self.links.get(*id);
            entry.is_some_and(|entry| self.budget.choose(entry.source).is_some())
        };
        if self.wanting.iter().any(may_have) {
            return None;
        }
        self.choose(source)
    }

    /// Takes in what the peer of a link that is past the handshake has said.
    pub(super) fn hear(&mut self, id: LinkId) {
        if let Some(entry) = self.links.get_mut(id) {
            (entry.unread, entry.told) = (0, 0);
        }
        // Bounded: a peer that writes as fast as we read must not hold us here.
        for _ in 0..HEARD_AT_ONCE {
            let Some(socket) = self.links.get(id).and_then(|entry| entry.socket.as_ref()) else {
                return;
            };
            let mut message = [0; MESSAGE_LEN];
            let heard = match socket.receive(&mut message) {
                Ok(Received::Nothing) => return,
                Ok(Received::HangUp) => return self.hang_up(id),
                // A doorbell.
                Ok(Received::Message(1, None)) => continue,
                // The peer has gone without reading everything; what it said before comes now.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => continue,
                Ok(Received::Message(len, fd)) => {
                    let given = fd.map_or(Given::Nothing, Given::Memory);
                    self.heed(id, message.get(..len).unwrap_or(&[]), given)
                }
                Ok(Received::CutOff(len)) => {
                    self.warn_of_starving(&"a peer's memory cannot be taken");
                    self.heed(id, message.get(..len).unwrap_or(&[]), Given::CutOff)
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Violation),
                Err(_) => return self.hang_up(id),
            };
            if let Err(Violation) = heard {
                return self.fail(id);
            }
        }
        // What is left is new again.
        if let Some(socket) = self.links.get(id).and_then(|entry| entry.socket.as_ref()) {
            let _ = self
                .data
                .modify(socket.raw(), id.to_word(), Interest::Doorbell);
        }
    }

    fn heed(&mut self, id: LinkId, message: &[u8], given: Given) -> Result<(), Violation> {
        let word = Word::decode(message).map_err(|bad| {
            log::debug!("{:?}: {id:?} says: {bad}", self.name);
            Violation
        })?;
        // What the peer has agreed to comes before what it says now.
        if let Some(State::Asking(_)) = self.links.get(id).map(|entry| &entry.state) {
            self.attend(id);
        }
        let entry = self.links.get_mut(id).ok_or(Violation)?;
        match (word, &entry.state, given) {
            (Word::Bye, _, Given::Nothing) => entry.bye = true,
            (Word::Wake(wake), State::Asleep | State::Wanted | State::Waking(_), given) => {
                let fd = match given {
                    Given::Memory(fd) => Some(fd),
                    Given::CutOff => None,
                    Given::Nothing => return Err(Violation),
                };
                self.take_memory(id, wake, fd.as_ref())?;
            }
            (Word::Woken, State::Waking(_), Given::Nothing) => self.put_up(id, None),
            (Word::Later, State::Waking(_), Given::Nothing) => {
                entry.first = true;
                self.turn(id, |_| State::Asleep);
            }
            _ => return Err(Violation),
        }
        Ok(())
    }

    /// The peer hands over memory for a link that sleeps; `None`: it was cut off.
    fn take_memory(
        &mut self,
        id: LinkId,
        wake: Wake,
        fd: Option<&OwnedFd>,
    ) -> Result<(), Violation> {
        let Some(entry) = self.links.get(id) else {
            return Ok(());
        };
        if !entry.peer.sleeps || !self.budget.sleeps() {
            return Err(Violation);
        }
        let source = entry.source;
        if let State::Waking(_) = entry.state {
            if entry.side == 0 {
                // Ours counts, and the peer knows.
                return Ok(());
            }
            self.turn(id, |_| State::Asleep);
        }
        let geometry = wake.geometry;
        let own = self.budget.choose(source).filter(|_| self.has_turn(id));
        let fits = own.is_some_and(|own| geometry.total() <= own.total());
        let fd = fd.filter(|_| fits);
        let region = match fd.map(|fd| Region::adopt(fd, geometry.total())) {
            Some(Ok(region)) => Some(region),
            Some(Err(Unfit::Map(_))) | None => None,
            Some(Err(unfit)) => {
                log::debug!("{:?}: {id:?} offers: {unfit}", self.name);
                return Err(Violation);
            }
        };
        let answer = if region.is_some() {
            Word::Woken
        } else {
            Word::Later
        };
        let said = match self.links.get(id).and_then(|entry| entry.socket.as_ref()) {
            Some(socket) => socket.send(&answer.encode(), None),
            None => return Ok(()),
        };
        if let Some(region) = region {
            self.wanting.retain(|other| *other != id);
            let memory = Memory { region, geometry };
            self.put_up(id, Some(memory));
        } else if let Some(State::Asleep) = self.links.get(id).map(|entry| &entry.state) {
            self.want(id);
        }
        if said.is_err_and(|error| is_transient(&error)) {
            // A peer of ours does not leave so much unread.
            self.hang_up(id);
        }
        Ok(())
    }

    /// A link that slept carries packets again, over this memory or what we have handed over.
    fn put_up(&mut self, id: LinkId, given: Option<Memory>) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        entry.first = false;
        let (side, asymmetric) = (entry.side, entry.peer.asymmetric);
        self.turn(id, |state| match (state, given) {
            (_, Some(memory)) | (State::Waking(memory), None) => {
                State::Up(Link::new(memory, side, asymmetric))
            }
            (other, None) => other,
        });
        self.stats.woken += 1;
        self.activate(id);
    }

    /// A link is up, and traffic is to be expected.
    pub(super) fn activate(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if std::mem::take(&mut entry.idle) {
            self.idle -= 1;
        }
        if self.armed {
            entry.set_asleep(true);
            barrier::heavy();
        }
        self.make_active(id);
        self.list(id);
    }
}

/// Messages taken in from one link in one go.
const HEARD_AT_ONCE: usize = 16;
