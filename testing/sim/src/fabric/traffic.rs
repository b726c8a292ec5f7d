//! Pieces that travel between two ports, and their times of arrival.
//!
//! ```text
//!   ship --> pieces, each after the one before it --> put: inbox of the other side --> take
//!   taken: the receiver has read it, the sender has room again --> Writable
//! ```
//!
//! All pieces in one direction of a link keep their order, including "down".

use super::by_hand::NEVER;
use super::{HostId, Inner, Read, Timed, What};
use crate::profile::Profile;
use crate::trace::Entry;
use crate::world::NodeId;
use mx_proto::port::{ConnectError, HEADER_LEN, HeaderBytes, LinkDown, RemoteKey};
use mx_proto::{Instant, LinkId, Memory, NicId, Route, Target};
use std::time::Duration;

impl<M: Memory> Inner<M> {
    /// Starts a link.
    pub(crate) fn connect(&mut self, host: HostId, to: Target) -> Result<LinkId, ConnectError> {
        let now = self.world.now();
        let link = self.add_end(host, false, now);
        let (there, back) = (self.travel(host), self.travel(host));
        let round = there + back;
        let Some(&peer) = self.names.get(&(to.nic, to.endpoint)) else {
            self.put(now.after(round), host, link, What::Down(LinkDown::Refused));
            return Ok(link);
        };
        if !self.by_hand && to.route == Route::AUTO && link.index() % FALLBACKS == 1 {
            // Not drawn, so that seeds that once failed still run the same.
            self.put(
                now.after(round),
                host,
                link,
                What::Down(LinkDown::Elsewhere(FALLBACK)),
            );
            return Ok(link);
        }
        self.join(host, link, (peer, to.nic), (there, round));
        Ok(link)
    }

    /// Starts another link to the host at the other end of a link.
    pub(crate) fn connect_beside(
        &mut self,
        host: HostId,
        link: LinkId,
    ) -> Result<LinkId, ConnectError> {
        let end = self.end(host, link).ok_or(ConnectError::NoRoute)?;
        let (peer, _) = end.peer.ok_or(ConnectError::NoRoute)?;
        if !self.hosts[peer].open {
            return Err(ConnectError::Refused);
        }
        let now = self.world.now();
        let nic = self.hosts[peer].nic;
        let beside = self.add_end(host, false, now);
        let (there, back) = (self.travel(host), self.travel(host));
        self.join(host, beside, (peer, nic), (there, there + back));
        let other = self.end(host, beside).and_then(|end| end.peer);
        for (host, link) in other.into_iter().chain([(host, beside)]) {
            if let Some(end) = self.end_mut(host, link) {
                end.beside = true;
            }
        }
        Ok(beside)
    }

    /// Makes the other end of a link, which is up after a round trip, unless the two nodes cannot
    /// reach each other.
    pub(super) fn join(
        &mut self,
        host: HostId,
        link: LinkId,
        (peer, nic): (HostId, NicId),
        (there, round): (Duration, Duration),
    ) {
        let now = self.world.now();
        let (a, b) = (self.hosts[host].node, self.hosts[peer].node);
        if self.cuts.contains(&(a.min(b), a.max(b))) {
            let reason = self.rng.pick(&[LinkDown::TimedOut, LinkDown::Unreachable]);
            let keepalive = self.hosts[host].profile.keepalive;
            return self.put(now.after(keepalive), host, link, What::Down(reason));
        }
        let other = self.add_end(peer, true, now.after(there));
        for (end, with) in [((host, link), (peer, other)), ((peer, other), (host, link))] {
            if let Some(end) = self.end_mut(end.0, end.1) {
                end.peer = Some(with);
                end.last_arrival = now.after(round);
            }
        }
        let from = self.leaves_from(host, nic);
        if let Some(end) = self.end_mut(peer, other) {
            end.from = from;
        }
        if let Some(span) = self.hosts[peer].profile.unbound {
            self.put(now.after(there).after(span), peer, other, What::Unbound);
        }
        self.put(now.after(round), host, link, What::Up);
    }

    pub(super) fn travel(&mut self, host: HostId) -> Duration {
        let profile = &self.hosts[host].profile;
        profile.latency + self.rng.span(profile.jitter)
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Puts an event into the inbox of `host`, for the time `at`.
    pub(crate) fn put(&mut self, at: Instant, host: HostId, link: LinkId, what: What) {
        if !self.hosts[host].open {
            return;
        }
        let order = self.serial();
        let at = if self.by_hand { NEVER } else { at };
        self.hosts[host].inbox.push(Timed {
            at,
            order,
            link,
            what,
        });
        if !self.by_hand {
            self.world.wake(at, self.hosts[host].node);
        }
    }

    /// Takes the oldest event that has reached `host` by now.
    pub(crate) fn take(&mut self, host: HostId) -> Option<Timed> {
        let now = self.world.now();
        let inbox = &mut self.hosts[host].inbox;
        if inbox.peek()?.at > now {
            None
        } else {
            inbox.pop()
        }
    }

    pub(crate) fn anything_due(&self, host: HostId) -> bool {
        let now = self.world.now();
        self.hosts[host]
            .inbox
            .peek()
            .is_some_and(|next| next.at <= now)
    }

    /// Sends bytes in pieces. The caller has checked that there is room.
    pub(crate) fn ship(
        &mut self,
        host: HostId,
        link: LinkId,
        mut header: Option<HeaderBytes>,
        bytes: Vec<u8>,
    ) {
        if let (Some(tap), Some(header)) = (&mut self.tap, &header) {
            tap(header, &bytes);
        }
        let piece = self.hosts[host].profile.piece.max(1);
        let pieces = match bytes {
            bytes if bytes.len() <= piece => vec![bytes],
            bytes => bytes.chunks(piece).map(<[u8]>::to_vec).collect(),
        };
        for bytes in pieces {
            let len = bytes.len() + if header.is_some() { HEADER_LEN } else { 0 };
            let Some(at) = self.schedule(host, link, len) else {
                return;
            };
            let peer = self.end(host, link).and_then(|end| end.peer);
            let Some((peer, peer_link)) = peer else {
                return;
            };
            if let Some(end) = self.end_mut(host, link) {
                end.under_way += len;
            }
            self.put(
                at,
                peer,
                peer_link,
                What::Piece {
                    header: header.take(),
                    bytes,
                },
            );
        }
        self.may_die(host, link);
    }

    /// Returns the arrival time of `len` more bytes; `None` if they never arrive.
    fn schedule(&mut self, host: HostId, link: LinkId, len: usize) -> Option<Instant> {
        let now = self.world.now();
        let travel = self.travel(host);
        let bandwidth = self.hosts[host].profile.bandwidth;
        let end = self.end_mut(host, link)?;
        if end.dark {
            return None;
        }
        let mut left = now;
        if let Some(bandwidth) = bandwidth {
            let nanos = (len as u64).saturating_mul(1_000_000_000) / bandwidth.max(1);
            end.busy_until = end.busy_until.max(now).after(Duration::from_nanos(nanos));
            left = end.busy_until;
        }
        end.last_arrival = end.last_arrival.max(left.after(travel));
        Some(end.last_arrival)
    }

    /// Records that `host` has read `len` bytes of `link`: the sender has room again.
    pub(crate) fn taken(&mut self, host: HostId, link: LinkId, len: usize) {
        let now = self.world.now();
        let back = self.travel(host);
        let Some(end) = self.end(host, link) else {
            return;
        };
        if end.dark {
            return;
        }
        let Some((peer, peer_link)) = end.peer else {
            return;
        };
        let room = self.hosts[peer].profile.room;
        let Some(sender) = self.end_mut(peer, peer_link) else {
            return;
        };
        sender.under_way = sender.under_way.saturating_sub(len);
        if sender.blocked && sender.under_way < room {
            sender.blocked = false;
            self.put(now.after(back), peer, peer_link, What::Writable);
        }
    }

    /// Reports to the other side that the link has ended; with `flush`, behind everything in
    /// flight.
    pub(crate) fn tell_peer_down(
        &mut self,
        host: HostId,
        link: LinkId,
        reason: LinkDown,
        flush: bool,
    ) {
        let now = self.world.now();
        let travel = self.travel(host);
        let Some(end) = self.end(host, link) else {
            return;
        };
        if end.dark {
            return;
        }
        let Some((peer, peer_link)) = end.peer else {
            return;
        };
        let mut at = now.after(travel);
        if flush {
            at = at.max(end.last_arrival);
        }
        self.put(at, peer, peer_link, What::Down(reason));
    }

    /// Breaks the link for both sides; each gets an event from its own port.
    pub(crate) fn break_link(&mut self, host: HostId, link: LinkId, reason: LinkDown) {
        self.tell_peer_down(host, link, reason, false);
        let now = self.world.now();
        self.put(now, host, link, What::Down(reason));
        if let Some(end) = self.end_mut(host, link) {
            end.dark = true;
        }
    }

    /// Silences all links between nodes for which `wanted` returns true.
    pub(super) fn darken(&mut self, wanted: impl Fn(NodeId, NodeId) -> bool) {
        let now = self.world.now();
        for (host, link) in self.links_between(wanted) {
            self.darken_end(host, link, now);
        }
    }

    /// Silences one end of a link.
    fn darken_end(&mut self, host: HostId, link: LinkId, now: Instant) {
        let keepalive = self.hosts[host].profile.keepalive;
        let Some(end) = self.end_mut(host, link) else {
            return;
        };
        if std::mem::replace(&mut end.dark, true) {
            return;
        }
        // Pieces in flight in this direction are lost as well, except "down" itself.
        let inbox = std::mem::take(&mut self.hosts[host].inbox);
        let keep = |timed: &Timed| {
            timed.link != link || timed.at <= now || matches!(timed.what, What::Down(_))
        };
        self.hosts[host].inbox = inbox.into_iter().filter(keep).collect();
        self.put(
            now.after(keepalive),
            host,
            link,
            What::Down(LinkDown::TimedOut),
        );
    }

    /// Delays everything in flight on a link, in both directions; later packets come behind it.
    pub(super) fn delay(&mut self, (host, link): (HostId, LinkId), span: Duration) {
        let now = self.world.now();
        let peer = self.end(host, link).and_then(|end| end.peer);
        for (host, link) in peer.into_iter().chain([(host, link)]) {
            let inbox = std::mem::take(&mut self.hosts[host].inbox);
            let later = |mut timed: Timed| {
                if timed.link == link && timed.at > now {
                    timed.at = timed.at.after(span);
                }
                timed
            };
            self.hosts[host].inbox = inbox.into_iter().map(later).collect();
            if let Some(end) = self.end_mut(host, link) {
                end.last_arrival = end.last_arrival.max(now).after(span);
            }
        }
    }

    /// Breaks or silences a link beside another one from time to time.
    fn may_die(&mut self, host: HostId, link: LinkId) {
        let dies = self.hosts[host].profile.beside_dies;
        let end = self.end(host, link).filter(|end| end.beside && !end.dark);
        let Some(other) = end.and_then(|end| end.peer).filter(|_| !self.by_hand) else {
            return;
        };
        if !self.rng.chance(dies) {
            return;
        }
        if self.rng.chance(0.7) {
            return self.break_link(host, link, LinkDown::Reset);
        }
        let now = self.world.now();
        for (host, link) in [(host, link), other] {
            self.darken_end(host, link, now);
        }
    }

    pub(crate) fn register(&mut self, host: HostId, memory: &M) -> Option<RemoteKey> {
        let share = self.share?;
        let Profile {
            remote_read,
            fabric,
            ..
        } = self.hosts[host].profile;
        let reads = remote_read || fabric.is_some_and(|fabric| fabric.remote_read);
        if !reads || self.rng.chance(0.1) {
            return None;
        }
        let key = self.serial();
        self.registered.insert(key, (host, share(memory)));
        Some(RemoteKey {
            address: host as u64,
            key,
        })
    }

    pub(crate) fn deregister(&mut self, host: HostId, key: RemoteKey) {
        if self
            .registered
            .get(&key.key)
            .is_some_and(|(owner, _)| *owner == host)
        {
            self.registered.remove(&key.key);
        }
    }

    /// Carries out a read, as late as possible. Returns `None` if it was recalled.
    pub(crate) fn finish_read(&mut self, host: HostId, link: LinkId, token: u64) -> Option<bool> {
        let Read {
            key,
            from,
            mut into,
            at,
            len,
            stopped,
        } = self.reads.remove(&(host, link, token))?;
        let connected = self.hosts[host].profile.refusal_ends_link;
        // Reads may fail for other reasons, too.
        let stopped = stopped || connected && self.rng.chance(0.2);
        let end = self.end(host, link)?;
        if stopped {
            return Some(false);
        }
        let Some((owner, memory)) = self.registered.get(&key.key) else {
            if connected {
                self.break_link(host, link, LinkDown::Reset);
            }
            return Some(false);
        };
        if end.dark || end.peer.map(|(peer, _)| peer) != Some(*owner) {
            return Some(false);
        }
        let mut copy = Vec::with_capacity(len);
        memory.visit(from, len, |part| copy.extend_from_slice(part));
        Some(copy.len() == len && into.fill(at, len, &copy[..], 0) == len)
    }

    pub(crate) fn log_sent(
        &self,
        host: HostId,
        link: LinkId,
        header: &HeaderBytes,
        taken: usize,
        how: &'static str,
    ) {
        let peer = self.end(host, link).and_then(|end| end.peer);
        let from = self.hosts[host].node;
        let to = peer.map_or(from, |(peer, _)| self.hosts[peer].node);
        self.world.log(Entry::Sent {
            from,
            to,
            header: *header,
            taken,
            how,
        });
    }
}

/// Each such number of links without a requested route, one gets a fallback as its route.
const FALLBACKS: u32 = 7;
const FALLBACK: Route = Route(1);
