//! Offering a link's rings when it is used, and freeing them when it is idle.
//!
//! ```text
//!     A, the initiator                                    B
//!     a packet goes or comes over the socket
//!     Offer + memfd; sends nothing      ---------------->  checks, maps; sends through the rings
//!     sends through the rings            <------- Taken
//!     Offer of less, or none for a while  <------ Later    memory for less, or none
//!
//!     either side, idle for long                          its peer
//!     Suspend: packets sent in the ring;    ------------>  reads those, frees its rings
//!     sends nothing
//!     reads those, frees its rings       <----- Suspend
//! ```
//!
//! Each direction is one stream of packets, in the ring or over the socket; control messages say where it switches.
//! After Offer or Suspend a side sends nothing until the answer, which never waits for memory: a link without memory is
//! only slower.
//!
//! Links with rings are checked several times during the idle time. Those without cost no checks, only an [`Entry`] and
//! the kernel's socket.
//!
//! Owns: the times at which rings are offered and freed.
//! Out of scope: packets.

use super::handshake::ControlMessage;
use super::layout::Geometry;
use super::link::{Entry, Link, Memory, State};
use super::queue::Reason;
use super::receive::{ReadOutcome, Violation};
use super::round::Current;
use super::socket::is_exhaustion;
use super::{LocalPort, barrier};
use mx_port_base::limits;
use mx_port_base::sealed::{Region, SealError};
use mx_proto::origin::Source;
use mx_proto::{Instant, LinkId};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

impl LocalPort {
    /// Offers memory on a link that has none and that this side initiated, if memory is left.
    pub(super) fn offer(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if entry.side != 0 || entry.unsaid.is_some() || !matches!(entry.state, State::Plain) {
            return;
        }
        if entry.pause != 0 {
            entry.pause -= 1;
            return;
        }
        entry.pause = PAUSE;
        let (source, streaming) = (entry.source, entry.streaming);
        if let Some(geometry) = self.choose(source, streaming)
            && let Some(memory) = self.hand_over(id, geometry)
        {
            self.turn(id, |_| State::Offered(memory));
        }
    }

    /// Creates memory and sends it to the peer; `None` if either fails.
    pub(super) fn hand_over(&mut self, id: LinkId, geometry: Geometry) -> Option<Memory> {
        let socket = self.links.get(id)?.socket.as_ref()?;
        let given = Memory::make(geometry).and_then(|(memory, fd)| {
            socket.send(&ControlMessage::Offer(geometry).encode(), Some(&fd))?;
            Ok(memory)
        });
        if let Err(error) = &given {
            self.note_no_memory(error, geometry);
        }
        given.ok()
    }

    fn note_no_memory(&mut self, error: &io::Error, geometry: Geometry) {
        if is_exhaustion(error) {
            let limit = limits::of_descriptors(error);
            self.warn_of_starving(&format_args!(
                "no memory can be handed over: {error}{limit}"
            ));
        } else if error.raw_os_error() == Some(libc::EFBIG)
            && !std::mem::replace(&mut self.warned, true)
        {
            log::warn!(
                "{:?}: RLIMIT_FSIZE is below the {} bytes of a link's shared memory: links use \
                 sockets, which is slower",
                self.name,
                geometry.total()
            );
        }
    }

    /// Handles the peer's memory; `fd` is `None` if this process had no descriptor left for it.
    pub(super) fn take_memory(
        &mut self,
        id: LinkId,
        geometry: Geometry,
        fd: Option<&OwnedFd>,
    ) -> Result<(), Violation> {
        let entry = self.links.get(id).ok_or(Violation)?;
        let source = entry.source;
        let own = self.choose(source, geometry.far != 0);
        if own.is_none() && self.budget.has_any() {
            self.stats.over_share += 1;
        }
        let fits = own.is_some_and(|own| geometry.total() <= own.total());
        let fd = fd.filter(|_| fits);
        match fd.map(|fd| Region::adopt(fd, geometry.total())) {
            Some(Ok(region)) => {
                self.put_up(id, Some(Memory { region, geometry }));
                self.say(id, ControlMessage::Taken);
            }
            Some(Err(SealError::Map(_))) | None => {
                self.stats.turned_away += 1;
                let less = own.filter(|own| own.total() < geometry.total());
                self.say(id, ControlMessage::Later(less));
            }
            Some(Err(unfit)) => {
                log::debug!("{:?}: {id:?} offers: {unfit}", self.name);
                return Err(Violation);
            }
        }
        Ok(())
    }

    /// Moves a link to rings in `given`, or in the memory that it has offered.
    pub(super) fn put_up(&mut self, id: LinkId, given: Option<Memory>) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let (side, asymmetric) = (entry.side, entry.asymmetric);
        self.listen_for_room(id, false);
        self.turn(id, |state| match (state, given) {
            (_, Some(memory)) | (State::Offered(memory), None) => {
                State::Up(Link::new(memory, side, asymmetric))
            }
            (other, None) => other,
        });
        if let Some(entry) = self.links.get_mut(id)
            && entry.midway
            && let State::Up(link) = &mut entry.state
        {
            link.producer.set_midway(true);
        }
        self.activate(id);
    }

    /// Handles the rejection of offered memory; perhaps `less` fits.
    pub(super) fn take_back(&mut self, id: LinkId, less: Option<Geometry>) {
        let Some(entry) = self.links.get(id) else {
            return;
        };
        let (source, streaming, had) = (entry.source, entry.streaming, entry.state.bytes());
        self.turn(id, |_| State::Plain);
        self.stats.turned_away += 1;
        if let Some(less) = less.filter(|less| less.total() < had)
            && self
                .choose(source, streaming)
                .is_some_and(|own| less.total() <= own.total())
            && let Some(memory) = self.hand_over(id, less)
        {
            self.turn(id, |_| State::Offered(memory));
        }
    }

    /// Takes a packet that a suspending peer left in its ring, through which it has sent `sent`. After the last, frees
    /// the rings: the link continues over the socket.
    pub(super) fn take_left(&mut self, id: LinkId, sent: u64) -> Result<ReadOutcome, Violation> {
        let link = self.links.get_mut(id).and_then(Entry::up);
        let link = link.ok_or(Violation)?;
        let (own, taken) = link.counts();
        let left = sent.wrapping_sub(taken);
        if left > link.consumer.most() {
            return Err(Violation);
        }
        if left != 0 {
            let packet = link.consumer.peek().map_err(|_| Violation)?;
            let packet = packet.ok_or(Violation)?;
            self.round.body = packet.body;
            return self.lend(id, Current::Ring(id), &packet.header);
        }
        let retired = link.producer.is_retired();
        self.turn(id, |_| State::Plain);
        self.stats.slept += 1;
        if let Some(entry) = self.links.get_mut(id) {
            entry.pause = 0;
            entry.streaming &= retired;
        }
        if !retired {
            self.say(id, ControlMessage::Suspend(own));
        } else if self.links.get(id).is_some_and(|entry| entry.streaming) {
            self.offer(id);
        }
        Ok(ReadOutcome::More)
    }

    /// Replaces the rings of a link with large messages by memory with far areas. Only its initiator does so.
    #[cold]
    pub(super) fn grow(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if entry.side != 0
            || entry.unsaid.is_some()
            || std::mem::replace(&mut entry.streaming, true)
        {
            return;
        }
        let source = entry.source;
        let Some(geometry) = self.choose(source, true).filter(|it| it.far != 0) else {
            return;
        };
        // A link does not give up its rings for memory that is unavailable.
        if let Err(error) = Memory::make(geometry) {
            return self.note_no_memory(&error, geometry);
        }
        if let Some(entry) = self.links.get_mut(id)
            && entry.suspend()
        {
            self.note(id, Reason::Socket);
        }
    }

    /// Returns the rings for one more link of `source`, if memory is left; warns once when it is used up.
    pub(super) fn choose(&mut self, source: Source, streaming: bool) -> Option<Geometry> {
        let geometry = self.budget.choose(source, streaming);
        if !self.budget.has_any() && !std::mem::replace(&mut self.warned, true) {
            log::warn!(
                "{:?}: shared memory has reached its limit, MX_LOCAL_BYTES={}: raise it; further \
                 links use sockets, which is slower",
                self.name,
                self.budget.limit()
            );
        }
        geometry
    }

    /// Suspends idle links when their check is due, and schedules the next one.
    pub(super) fn tend(&mut self, now: Instant) {
        let Some(idle_timeout) = self.budget.idle_timeout() else {
            return;
        };
        if self.awake.is_empty() {
            self.next_look = None;
            return;
        }
        if self.next_look.is_some_and(|at| at <= now) {
            self.look_for_idle(now, idle_timeout);
            self.next_look = None;
        }
        let latest = now.after((idle_timeout / 4).max(LEAST_PAUSE));
        self.next_look = Some(self.next_look.map_or(latest, |at| at.min(latest)));
    }

    /// Suspends links that have been idle for `idle_timeout`.
    fn look_for_idle(&mut self, now: Instant, idle_timeout: Duration) {
        let mut awake = std::mem::take(&mut self.awake);
        awake.retain(|id| {
            let Some(entry) = self.links.get_mut(*id) else {
                return false;
            };
            let blocked = entry.blocked;
            let State::Up(link) = &mut entry.state else {
                entry.listed = false;
                return false;
            };
            let counts = link.counts();
            match link.seen {
                Some((seen, since)) if seen == counts && !blocked => {
                    if now.since(since) >= idle_timeout && entry.suspend() {
                        entry.streaming = false;
                        // The peer's Suspend may have arrived with an unread wake-up.
                        self.note(*id, Reason::Socket);
                    }
                }
                _ => link.seen = Some((counts, now)),
            }
            true
        });
        self.awake = awake;
    }

    /// Activates a link that has just got rings.
    fn activate(&mut self, id: LinkId) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if self.armed {
            entry.set_asleep(true);
            barrier::heavy();
        }
        if !std::mem::replace(&mut entry.listed, true) {
            self.awake.push(id);
        }
        // The next poll schedules the check.
        self.control_wanted |= self.next_look.is_none() && self.budget.idle_timeout().is_some();
        self.make_active(id);
    }
}

/// Packets over the socket between two offers of memory.
const PAUSE: u8 = 64;

/// Minimum time between two checks for idle links.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
