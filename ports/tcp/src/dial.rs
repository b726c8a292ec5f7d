//! Setup of connections: listening, accepting, dialling.
//!
//! ```text
//!   listeners --accept--> Greeting --preamble--> Open        strangers: 5 s, then dropped
//!   resolver --addresses--> Dialling --connected--> Open     one address after the other
//! ```
//!
//! Owns: the setup of sockets.
//! Out of scope: packets. Options are set on listeners, from which accepted sockets inherit them without a system call.
//! All sockets start with `reno`, which on one machine is twice as fast as a pacing algorithm; those to other machines
//! switch to the system's default once their peer is known. (The reverse does not work: a socket that once paced
//! continues to.)

use super::alarms::Alarm;
use super::link::{Dial, Link, Phase};
use super::options::is_worth_a_line;
use super::poll_set::Activation;
use super::{TcpPort, frame, poll_set, reason, sys};
use mx_port_base::epoll::{READABLE, WRITABLE};
use mx_port_base::limits;
use mx_port_base::origin::Origin;
use mx_port_base::ports;
use mx_proto::origin::Source;
use mx_proto::port::{ConnectError, LinkControl, LinkDown};
use mx_proto::round::PortEvent;
use mx_proto::time::PeerDeadline;
use mx_proto::{Instant, LinkId};
use smallvec::SmallVec;
use socket2::{Socket, TcpKeepalive};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Connections that the kernel queues until they are accepted: as many as it allows (`somaxconn`), so that none of
/// thousands that arrive at once has to retry.
const BACKLOG: i32 = 1 << 16;

/// Maximum number of connections accepted per poll and listener, so that packets are not delayed.
const ACCEPTS: usize = 32;

/// Maximum number of strangers, unless the link limit is lower. Each takes some hundred bytes.
const STRANGERS_MAX: usize = 8192;

/// Pause of accepting when descriptors or memory have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Attempts to find a port number that is free at all addresses.
const DRAWS: usize = 16;

/// Index of the ids under which listeners are watched; no link has it.
const LISTENER_INDEX: u32 = (1 << 29) - 1;

/// Congestion control for connections within a machine.
const SAME_HOST: &[u8] = b"reno\0";

/// Returns the token under which listener number `at` is watched.
pub(super) fn listener_word(at: usize) -> u64 {
    LinkId::new(LISTENER_INDEX, at as u32).to_word()
}

/// Listens on all `addresses` with one port number. Returns the listeners, the port number, and the congestion control
/// for connections to other machines if it differs.
pub(super) fn listen(
    addresses: &[SocketAddr],
    dead_after: Duration,
) -> io::Result<(Vec<sys::TcpSocket>, u16, Option<Vec<u8>>)> {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let elsewhere = sys::socket(addresses.first().unwrap_or(&any))
        .and_then(|probe| probe.tcp_congestion())
        .ok()
        .filter(|name| !name.starts_with(SAME_HOST));
    let mut tries = DRAWS;
    loop {
        tries -= 1;
        match listen_once(addresses, dead_after) {
            // The number chosen for the first address is taken on another one.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && tries > 0
                    && addresses.len() > 1
                    && addresses.iter().all(|address| address.port() == 0) => {}
            other => return other.map(|(fds, port)| (fds, port, elsewhere)),
        }
    }
}

fn listen_once(
    addresses: &[SocketAddr],
    dead_after: Duration,
) -> io::Result<(Vec<sys::TcpSocket>, u16)> {
    let mut listeners = Vec::new();
    let mut port = 0;
    let mut missing = None;
    for address in addresses {
        let mut address = *address;
        if address.port() == 0 {
            address.set_port(port);
        }
        let fd = match listener(&address, dead_after) {
            Ok(fd) => fd,
            // A machine without IPv6 still has IPv4, and vice versa.
            Err(error)
                if error.raw_os_error() == Some(libc::EAFNOSUPPORT)
                    || (address.ip().is_unspecified()
                        && error.raw_os_error() == Some(libc::EADDRNOTAVAIL)) =>
            {
                log::debug!("tcp: not listening on {address}: {error}");
                missing = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        port = sys::local_address(&fd)?.port();
        listeners.push(fd);
    }
    match missing {
        Some(error) if listeners.is_empty() => Err(error),
        _ => Ok((listeners, port)),
    }
}

fn listener(address: &SocketAddr, dead_after: Duration) -> io::Result<sys::TcpSocket> {
    let fd = sys::socket(address)?;
    prepare(&fd, dead_after)?;
    if address.is_ipv6() {
        fd.set_only_v6(true)?;
    }
    fd.bind(&(*address).into())?;
    fd.listen(BACKLOG)?;
    Ok(fd)
}

/// Returns the kernel's keep-alive settings, in its unit of whole seconds: the last probe has gone unanswered when
/// `dead_after` is over; at least two seconds.
fn questions(dead_after: Duration) -> TcpKeepalive {
    let (first, every, count) = within(dead_after);
    TcpKeepalive::new()
        .with_time(Duration::from_secs(first))
        .with_interval(Duration::from_secs(every))
        .with_retries(count)
}

/// Returns the time to the first probe and between probes, in seconds, and the number of probes.
fn within(dead_after: Duration) -> (u64, u64, u32) {
    // Limited by the kernel.
    let seconds = dead_after.as_secs().clamp(2, 32_767);
    let count = (seconds - 1).min(4);
    let every = (seconds / 8).max(1);
    (seconds - count * every, every, count as u32)
}

/// Sets the options of every socket of this port.
fn prepare(fd: &Socket, dead_after: Duration) -> io::Result<()> {
    // For dialled sockets, too: otherwise one that was given a listener's port number would keep that listener from
    // opening.
    fd.set_reuse_address(true)?;
    fd.set_tcp_nodelay(true)?;
    fd.set_tcp_keepalive(&questions(dead_after))?;
    // Otherwise probes to a peer with a closed window become so rare that its death goes unnoticed for minutes.
    let _ = sys::set_longest_rto(fd, dead_after / 4);
    // The default is used if the kernel lacks `reno` or does not allow it.
    let _ = fd.set_tcp_congestion(SAME_HOST);
    Ok(())
}

impl TcpPort {
    /// Starts a link to the first of these addresses that answers.
    pub(super) fn start_dialling(
        &mut self,
        mut rest: SmallVec<[SocketAddr; 2]>,
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        if self.links.len() >= self.links_max {
            log::warn!(
                "tcp: not connecting to {rest:?}: the limit of {} links is reached",
                self.links.len()
            );
            self.report_shortage();
            return Err(ConnectError::NoResources);
        }
        rest.reverse();
        let mut dial = Dial {
            rest,
            attempt: 0,
            until: PeerDeadline::new(now.after(self.options.dial_for)),
            worst: None,
        };
        // The link gets the first socket, even if connecting failed at once.
        let mut spare = None;
        let begun = self.try_next(&mut dial, &mut spare);
        let begun = begun.inspect_err(|_| self.report_shortage())?;
        let (fd, peer, failed) = match (begun, spare) {
            (Some((fd, peer)), _) => (fd, peer, false),
            (None, Some((fd, peer))) => (fd, peer, true),
            (None, None) => return Err(ConnectError::NoRoute),
        };
        let (attempt, until, worst) = (dial.attempt, dial.until.at(), dial.worst);
        self.places.take(Source::TRUSTED, 1);
        let link = Link::new(fd, peer, Phase::Dialling(Box::new(dial)));
        let id = self.links.insert(Box::new(link)).at_port(ports::TCP);
        self.poll_set.pending += 1;
        self.poll_set.control_due = true;
        if !self.has_places_beside(id) {
            self.report_shortage();
        }
        if failed {
            self.announce_down(id, worst.unwrap_or(LinkDown::Unreachable));
        } else {
            self.watch_dialling(id);
            self.alarms.set(until, Alarm::Dial { link: id, attempt });
        }
        Ok(id)
    }

    /// Starts to connect to the next address for which that does not fail at once. Leaves the last socket that failed
    /// at once in `spare`.
    fn try_next(
        &self,
        dial: &mut Dial,
        spare: &mut Option<(sys::TcpSocket, SocketAddr)>,
    ) -> Result<Option<(sys::TcpSocket, SocketAddr)>, ConnectError> {
        while let Some(address) = dial.rest.pop() {
            dial.attempt += 1;
            let fd = match sys::socket(&address) {
                Ok(fd) => fd,
                Err(error) if is_shortage(&error) => {
                    log::warn!("tcp: no socket to connect to {address}: {error}");
                    return Err(ConnectError::NoResources);
                }
                Err(error) => {
                    dial.worst = worse(dial.worst, reason(&error));
                    continue;
                }
            };
            let begun =
                prepare(&fd, self.options.dead_after).and_then(|()| sys::connect(&fd, address));
            match begun {
                Ok(()) => return Ok(Some((fd, address))),
                Err(error) => {
                    log::debug!("tcp: {address}: {error}");
                    dial.worst = worse(dial.worst, reason(&error));
                    *spare = Some((fd, address));
                }
            }
        }
        Ok(None)
    }

    fn watch_dialling(&mut self, id: LinkId) {
        let Some(link) = self.links.get(id) else {
            return;
        };
        let control = &self.poll_set.control;
        if let Err(error) = control.add(&link.fd, id.to_word(), WRITABLE) {
            log::warn!("tcp: cannot watch the connection to {}: {error}", link.peer);
            self.announce_down(id, LinkDown::Unreachable);
        }
    }

    /// Handles the end of an attempt to connect; `outcome`: the reason if it has timed out.
    pub(super) fn dialled(&mut self, id: LinkId, outcome: Option<LinkDown>, now: Instant) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        let Phase::Dialling(dial) = &mut link.phase else {
            return;
        };
        let failed = outcome.or_else(|| {
            let error = link.fd.take_error().unwrap_or_else(Some)?;
            log::debug!("tcp: {}: {error}", link.peer);
            Some(reason(&error))
        });
        // Within one machine the kernel may connect a socket to itself if nothing listens.
        let local = sys::local_address(&link.fd).ok();
        let failed = failed.or_else(|| (local == Some(link.peer)).then_some(LinkDown::Refused));
        let Some(failed) = failed else {
            self.connected(id);
            return;
        };
        dial.worst = worse(dial.worst, failed);
        let mut dial = Dial {
            rest: std::mem::take(&mut dial.rest),
            attempt: dial.attempt,
            until: PeerDeadline::new(now.after(self.options.dial_for)),
            worst: dial.worst,
        };
        let worst = dial.worst.unwrap_or(failed);
        match self.try_next(&mut dial, &mut None) {
            Ok(Some((fd, peer))) => {
                let (attempt, until) = (dial.attempt, dial.until.at());
                if let Some(link) = self.links.get_mut(id) {
                    self.poll_set.control.remove(&link.fd);
                    link.fd = fd;
                    link.peer = peer;
                    link.phase = Phase::Dialling(Box::new(dial));
                }
                self.watch_dialling(id);
                self.alarms.set(until, Alarm::Dial { link: id, attempt });
            }
            Ok(None) => self.announce_down(id, dial.worst.unwrap_or(worst)),
            Err(_) => self.announce_down(id, worst),
        }
    }

    fn connected(&mut self, id: LinkId) {
        self.stats.connected += 1;
        if !self.establish(id) {
            self.announce_down(id, LinkDown::Unreachable);
            return;
        }
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        log::debug!("tcp: connected to {}", link.peer);
        let waiting = std::mem::take(&mut link.waiting);
        let greeted = link.tx.greet(&link.fd, &frame::preamble());
        if link.tx.has_backlog() {
            self.poll_set.block(id, link);
        }
        self.poll_set
            .activate(id, &mut self.links, &mut self.pool, Activation::Expected);
        self.events.push_back(PortEvent::Up(id));
        if waiting {
            self.events.push_back(PortEvent::Writable(id));
        }
        if let Err(error) = greeted {
            self.sending_failed(id, &error);
        }
    }

    /// Moves a link from connecting to carrying packets.
    pub(super) fn establish(&mut self, id: LinkId) -> bool {
        let Some(link) = self.links.get_mut(id) else {
            return false;
        };
        self.poll_set.control.remove(&link.fd);
        self.poll_set.pending -= 1;
        link.phase = Phase::Open;
        if let Some(elsewhere) = &self.elsewhere {
            let local = sys::local_address(&link.fd).map(|address| address.ip());
            if !is_same_host(link.peer.ip(), local.ok()) {
                let _ = link.fd.set_tcp_congestion(elsewhere);
            }
        }
        let interest = poll_set::interest(link);
        match self.poll_set.data.add(&link.fd, id.to_word(), interest) {
            Ok(()) => true,
            Err(error) => {
                log::warn!("tcp: cannot watch the connection to {}: {error}", link.peer);
                false
            }
        }
    }

    /// Accepts the connections that wait at listener number `at`.
    pub(super) fn accept_some(&mut self, at: usize, now: Instant) {
        for _ in 0..ACCEPTS {
            if !mx_reserve::SUPPLY.is_ample() {
                let error = io::Error::from_raw_os_error(libc::ENOMEM);
                return self.rest_from_accepting(&error, now);
            }
            let Some(listener) = self.listeners.get(at) else {
                return;
            };
            let (fd, peer) = match sys::accept(listener) {
                Ok(accepted) => accepted,
                Err(error) if sys::would_block(&error) => return,
                Err(error) if is_shortage(&error) && self.evict() => continue,
                Err(error) if is_shortage(&error) => {
                    self.report_shortage();
                    if !self.strangers.is_empty() {
                        // The strangers arrived in this poll, and are read first.
                        self.poll_set.control_due = true;
                        return;
                    }
                    self.rest_from_accepting(&error, now);
                    return;
                }
                // The connection was closed before it was accepted.
                Err(error) => {
                    log::debug!("tcp: accept: {error}");
                    continue;
                }
            };
            let source = Origin::Address(peer).source();
            let full = self.links.len() >= self.links_max;
            let crowded = full || self.strangers.len() >= self.strangers_max();
            let has_share = self.places.may_take(source, 1);
            let room = has_share && (!crowded || self.evict());
            if !room {
                self.stats.turned_away += 1;
                if is_worth_a_line(self.stats.turned_away) {
                    let (why, count) = (self.full_because(full, has_share), self.stats.turned_away);
                    log::warn!("tcp: rejected {peer}: {why} ({count} so far)");
                }
                continue;
            }
            self.stats.accepted += 1;
            let mut link = Link::new(fd, peer, Phase::Greeting);
            (link.stranger, link.source) = (true, source);
            if let Err(error) = link.tx.greet(&link.fd, &frame::preamble()) {
                // The peer has closed; its earlier packets are still delivered.
                link.failed = Some(reason(&error));
            }
            let id = self.links.insert(Box::new(link)).at_port(ports::TCP);
            self.poll_set.pending += 1;
            self.strangers.add(id, source, now);
            if !self.has_places_beside(id) {
                self.report_shortage();
            }
            let Some(link) = self.links.get_mut(id) else {
                return;
            };
            let control = &self.poll_set.control;
            if let Err(error) = control.add(&link.fd, id.to_word(), READABLE) {
                log::warn!("tcp: cannot watch the connection from {peer}: {error}");
                self.drop_link(id);
                continue;
            }
            if link.tx.has_backlog() {
                self.poll_set.block(id, link);
            }
            // The preamble, and often the first packet, have already arrived.
            self.poll_set.queue(id, link);
        }
        self.poll_set.control_due = true;
    }

    /// Asks the endpoint, once per round, to give up links that it can do without.
    fn report_shortage(&mut self) {
        if self.events.back() != Some(&PortEvent::PlacesShort) {
            self.events.push_back(PortEvent::PlacesShort);
        }
    }

    /// Maximum number of strangers; further ones are rejected until the older have been read.
    fn strangers_max(&self) -> usize {
        (self.links_max / 2).clamp(1, STRANGERS_MAX)
    }

    /// Returns the limit for which a caller is rejected, and how to raise it.
    fn full_because(&self, full: bool, has_share: bool) -> String {
        let (have, most, asked) = (self.links.len(), self.links_max, self.options.max_links);
        let limit = if most < asked {
            limits::descriptor_limit()
        } else {
            format!("MX_MAX_REMOTES is {asked}: raise it")
        };
        let share = self.options.source_share;
        let strangers = self.strangers.len();
        if full {
            format!("{have} links are all there may be; {limit}")
        } else if !has_share {
            format!("its source has its share (MX_SOURCE_SHARE={share}) of {most} links; {limit}")
        } else {
            format!("{strangers} links are not introduced yet, as many as may be; {limit}")
        }
    }

    fn rest_from_accepting(&mut self, error: &io::Error, now: Instant) {
        self.stats.starved += 1;
        if is_worth_a_line(self.stats.starved) {
            log::warn!(
                "tcp: cannot accept: {error}{} ({} so far)",
                limits::of_descriptors(error),
                self.stats.starved
            );
        }
        // Listeners stay readable, which would end every sleep at once.
        for listener in &self.listeners {
            self.poll_set.control.remove(listener);
        }
        if self.accepting {
            self.accepting = false;
            self.alarms.set(now.after(ACCEPT_PAUSE), Alarm::Accept);
        }
    }

    /// Resumes accepting after the pause.
    pub(super) fn accept_again(&mut self) {
        self.accepting = true;
        for (at, listener) in self.listeners.iter().enumerate() {
            let control = &self.poll_set.control;
            let _ = control.add(listener, listener_word(at), READABLE);
        }
        self.poll_set.control_due = true;
    }
}

/// Returns the listener's number if `id` belongs to one.
pub(super) fn as_listener(id: LinkId) -> Option<usize> {
    (id.index() == LISTENER_INDEX).then_some(id.generation() as usize)
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

fn is_same_host(peer: IpAddr, local: Option<IpAddr>) -> bool {
    peer.is_loopback() || local == Some(peer)
}

/// Returns the more specific reason: refused, then timed out, then unreachable.
fn worse(known: Option<LinkDown>, new: LinkDown) -> Option<LinkDown> {
    let weight = |reason: LinkDown| match reason {
        LinkDown::Refused => 3,
        LinkDown::TimedOut => 2,
        LinkDown::Unreachable | LinkDown::Elsewhere(_) => 1,
        LinkDown::Closed | LinkDown::Reset | LinkDown::Protocol | LinkDown::Denied => 4,
    };
    match known {
        Some(known) if weight(known) >= weight(new) => Some(known),
        _ => Some(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_more_than_no_answer() {
        assert_eq!(
            worse(None, LinkDown::Unreachable),
            Some(LinkDown::Unreachable)
        );
        assert_eq!(
            worse(Some(LinkDown::TimedOut), LinkDown::Refused),
            Some(LinkDown::Refused)
        );
        assert_eq!(
            worse(Some(LinkDown::Refused), LinkDown::TimedOut),
            Some(LinkDown::Refused)
        );
    }

    #[test]
    fn the_last_question_has_gone_unanswered_when_the_time_is_over() {
        for seconds in [2, 3, 4, 5, 8, 9, 20, 60, 32_767] {
            let (first, every, count) = within(Duration::from_secs(seconds));
            assert_eq!(first + every * u64::from(count), seconds);
            assert!(first >= 1 && every >= 1 && count >= 1);
        }
        let shortest = within(Duration::from_secs(2));
        assert_eq!(within(Duration::ZERO), shortest);
        let longest = within(Duration::from_secs(32_767));
        assert_eq!(within(Duration::from_secs(86_400)), longest);
    }

    #[test]
    fn listeners_are_told_from_links() {
        assert_eq!(as_listener(LinkId::from_word(listener_word(3))), Some(3));
        assert_eq!(as_listener(LinkId::new(0, 3)), None);
    }

    #[test]
    fn only_an_address_of_our_own_is_on_this_host() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(is_same_host(ip("127.0.0.9"), Some(ip("127.0.0.1"))));
        assert!(is_same_host(ip("192.0.2.2"), Some(ip("192.0.2.2"))));
        assert!(!is_same_host(ip("192.0.2.3"), Some(ip("192.0.2.2"))));
        assert!(!is_same_host(ip("192.0.2.3"), None));
    }
}
