//! An endpoint's peers in its page, one row each.
//!
//! ```text
//!   row  0        1    2                            3                    4                5           6         7
//!        written  nic  endpoint, phase|port|links   operations, queued   credits, resent  round trip  heard at  oldest since
//!        8     9         10         11             12            13
//!        sent  received  bulk sent  bulk received  longest wait  written
//!
//!   publish, publish, ...:  eight rows each, round robin
//!   a link's figures:       at most every 100 ms, because the kernel is asked for them
//! ```
//!
//! Times are nanoseconds of CLOCK_MONOTONIC, which all processes share: ages grow in the tool even while the process is
//! stuck. A row whose first and last word differ is being written; 0 marks an empty row. The waiting time of an
//! operation counts from the first update that sees it.
//!
//! Owns: the writer's state of each row.
//! Cost: a dozen stores a row, no allocation after the last new row; `getsockopt` for a link over TCP.

use super::layout::{self, halves, word};
use crate::route::host::HostPorts;
use mx_port_base::ports;
use mx_proto::port::LinkFigures;
use mx_proto::{Clock, Endpoint, EndpointId, Instant, LinkId, NicId, Owner, Phase, RemoteView};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// Words of a row.
pub(super) type Row = [u64; layout::PEER_WORDS];

/// A peer of an endpoint, as its process last wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Time at which the endpoint's process wrote this entry.
    pub written: Instant,
    /// NIC id of the peer.
    pub nic: NicId,
    /// Endpoint number of the peer.
    pub endpoint: EndpointId,
    /// State of the association.
    pub phase: Phase,
    /// Name of the link's port; `None` without a link.
    pub port: Option<&'static str>,
    /// Number of incomplete operations with the peer.
    pub operations: u32,
    /// Number of sends of which nothing has been sent yet.
    pub queued: u32,
    /// Time at which the oldest such send was first seen as the oldest; `None` without one.
    pub oldest_since: Option<Instant>,
    /// Unused credits lent by the peer.
    pub credits: u32,
    /// Transport statistics of the link that carries messages.
    pub figures: LinkFigures,
    /// Number of links: that one, and those for bulk data.
    pub links: u8,
    /// Bytes on the bulk links that the peer has acknowledged; `None` if 0.
    pub bulk_sent: Option<u64>,
    /// Bytes received on the bulk links; `None` if 0.
    pub bulk_received: Option<u64>,
    /// Longest time that an eager message has waited for its link or for credits.
    pub longest_wait: Duration,
}

/// Port number in a row of a peer without a link.
const NO_PORT: u8 = u8::MAX;

impl Peer {
    /// Returns `None` if the row is empty, is being written, or is invalid.
    pub(super) fn parse(row: &Row) -> Option<Self> {
        let [
            written,
            nic,
            name,
            sends,
            link,
            round_trip,
            heard_at,
            since,
            sent,
            received,
            bulk_sent,
            bulk_received,
            longest_wait,
            again,
        ] = *row;
        if written == 0 || again != written {
            return None;
        }
        let some = |nanos: u64| (nanos != 0).then_some(nanos);
        let (endpoint, state) = halves(name);
        let [phase, port, links, _] = state.to_ne_bytes();
        let (operations, queued) = halves(sends);
        let (credits, resent) = halves(link);
        Some(Self {
            written: Instant(written),
            nic: NicId::new(nic)?,
            endpoint: EndpointId(endpoint),
            phase: Phase::from_word(phase)?,
            port: ports::name(port),
            operations,
            queued,
            oldest_since: some(since).map(Instant),
            credits,
            figures: LinkFigures {
                round_trip: some(round_trip).map(Duration::from_nanos),
                resent,
                heard_at: some(heard_at).map(Instant),
                sent: some(sent),
                received: some(received),
            },
            links,
            bulk_sent: some(bulk_sent),
            bulk_received: some(bulk_received),
            longest_wait: Duration::from_nanos(longest_wait),
        })
    }
}

/// State of the writer.
#[derive(Debug, Default)]
pub(super) struct Rows {
    shown: Vec<Shown>,
    /// Next row to write.
    next: u32,
}

/// State of one row, beside what it shows.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    oldest: u64,
    asked_at: Instant,
}

/// Rows written per update.
const ROWS: u32 = 8;

/// Interval between two readings of a link's figures.
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Rows {
    /// Writes the next rows of this endpoint's peers. `words`: the words of all rows.
    pub(super) fn write<C: Clock, O: Owner>(
        &mut self,
        endpoint: &Endpoint<HostPorts, C, O>,
        words: &[AtomicU64],
        now: Instant,
    ) where
        HostPorts: mx_proto::port::Port<O::Memory>,
    {
        let places = endpoint.view_places().min(layout::PEERS_MAX as u32);
        let more = (places as usize).saturating_sub(self.shown.len());
        if more > 0 {
            if self.shown.try_reserve(more).is_err() {
                return;
            }
            self.shown.resize(places as usize, Shown::default());
        }
        let all = self.shown.len() as u32;
        for _ in 0..ROWS.min(all) {
            let place = if self.next < all { self.next } else { 0 };
            self.next = place + 1;
            let (Some(shown), Some(to)) = (
                self.shown.get_mut(place as usize),
                words.chunks_exact(layout::PEER_WORDS).nth(place as usize),
            ) else {
                return;
            };
            match endpoint.view_at(place) {
                Some(view) => {
                    let data_links = endpoint.data_links_at(place);
                    let row = shown.row(load(to), &view, data_links, endpoint.port(), now);
                    store(to, &row);
                }
                None if shown.asked_at != Instant(0) => {
                    *shown = Shown::default();
                    store(to, &Row::default());
                }
                None => {}
            }
        }
    }

    /// Returns the number of rows that may contain a peer.
    pub(super) fn len(&self) -> usize {
        self.shown.len()
    }
}

impl Shown {
    /// The row that follows this one.
    fn row(
        &mut self,
        mut row: Row,
        view: &RemoteView,
        data_links: impl Iterator<Item = LinkId>,
        ports: &HostPorts,
        now: Instant,
    ) -> Row {
        let [
            written,
            nic,
            name,
            sends,
            link,
            round_trip,
            heard_at,
            since,
            sent,
            received,
            bulk_sent,
            bulk_received,
            longest_wait,
            again,
        ] = &mut row;
        let (_, mut resent) = halves(*link);
        let [.., mut links, _] = halves(*name).1.to_ne_bytes();
        if now.since(self.asked_at) >= ASK_EVERY {
            self.asked_at = now;
            let figures = |link| ports.figures(link, now).unwrap_or_default();
            let of_link = view.link.map(figures).unwrap_or_default();
            resent = of_link.resent;
            *round_trip = of_link.round_trip.unwrap_or_default().as_nanos() as u64;
            *heard_at = of_link.heard_at.map_or(0, |at| at.0);
            (*sent, *received) = (of_link.sent.unwrap_or(0), of_link.received.unwrap_or(0));
            links = u8::from(view.link.is_some());
            (*bulk_sent, *bulk_received) = (0, 0);
            for of in data_links.map(figures) {
                links += 1;
                *bulk_sent += of.sent.unwrap_or(0);
                *bulk_received += of.received.unwrap_or(0);
            }
        }
        if view.oldest != self.oldest {
            self.oldest = view.oldest;
            *since = if view.oldest == 0 { 0 } else { now.0 };
        }
        let port = view.link.map_or(NO_PORT, |link| link.port());
        let state = u32::from_ne_bytes([view.phase as u8, port, links, 0]);
        (*written, *again) = (now.0, now.0);
        *nic = view.nic.0;
        *name = word(view.endpoint.0, state);
        *sends = word(view.operations, view.queued);
        *link = word(view.credits, resent);
        *longest_wait = view.longest_wait.as_nanos() as u64;
        row
    }
}

/// Returns the row that was stored last.
fn load(from: &[AtomicU64]) -> Row {
    std::array::from_fn(|at| from.get(at).map_or(0, |word| word.load(Ordering::Relaxed)))
}

/// Stores a row so that a reader sees the old one, the new one, or that it is being written.
fn store(to: &[AtomicU64], row: &Row) {
    let [first, rest @ ..] = to else {
        return;
    };
    let [value, values @ ..] = row;
    first.store(u64::MAX, Ordering::Relaxed);
    // No later store is seen with the old first word.
    fence(Ordering::Release);
    for (to, value) in rest.iter().zip(values) {
        to.store(*value, Ordering::Relaxed);
    }
    first.store(*value, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let state = u32::from_ne_bytes([Phase::NoCredits as u8, ports::TCP, 2, 0]);
        [
            5_000,
            0x4d58_c000_0201,
            word(7, state),
            word(3, 2),
            word(80, 9),
            120_000,
            4_000,
            1_000,
            70,
            80,
            90,
            0,
            2_000_000,
            5_000,
        ]
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let words: Vec<AtomicU64> = (0..layout::PEER_WORDS).map(|_| AtomicU64::new(0)).collect();
        let read = || load(&words);
        assert_eq!(Peer::parse(&read()), None);
        store(&words, &row());
        let peer = Peer::parse(&read()).unwrap();
        assert_eq!(
            (peer.endpoint, peer.phase),
            (EndpointId(7), Phase::NoCredits)
        );
        assert_eq!(
            (peer.port, peer.operations, peer.queued),
            (Some("tcp"), 3, 2)
        );
        assert_eq!((peer.credits, peer.figures.resent), (80, 9));
        assert_eq!(peer.figures.round_trip, Some(Duration::from_micros(120)));
        assert_eq!(peer.figures.heard_at, Some(Instant(4_000)));
        assert_eq!(peer.oldest_since, Some(Instant(1_000)));
        assert_eq!(
            (peer.figures.sent, peer.figures.received),
            (Some(70), Some(80))
        );
        assert_eq!(
            (peer.links, peer.bulk_sent, peer.bulk_received),
            (2, Some(90), None)
        );
        assert_eq!(peer.longest_wait, Duration::from_millis(2));
        store(&words, &Row::default());
        assert_eq!(Peer::parse(&read()), None);
    }

    #[test]
    fn rows_being_written_or_foreign_are_not_peers() {
        let with = |at: usize, word: u64| {
            let mut row = row();
            row[at] = word;
            Peer::parse(&row)
        };
        assert!(with(0, u64::MAX).is_none(), "being written");
        assert!(with(13, 4_000).is_none(), "half of the row before");
        assert!(with(1, u64::MAX).is_none(), "no interface");
        assert!(with(2, word(7, 9)).is_none(), "no phase");
        let unknown = u32::from_ne_bytes([Phase::Connected as u8, 77, 0, 0]);
        assert_eq!(with(2, word(7, unknown)).unwrap().port, None);
        assert_eq!(with(7, 0).unwrap().oldest_since, None);
    }
}
