//! The writing side: a page that is updated from time to time.
//!
//! ```text
//!   progress, progress, ... every 1024th ---.
//!   a thread goes to sleep -----------------+--> publish: sequence odd, words, sequence even
//! ```
//!
//! Owns: the page and its descriptor; dropping it closes both.
//! Cost: nine stores per update and one for each counter; no allocation or system call.

use super::counters::{COUNT, MethodGauges, Sample, all_counters, values};
use super::layout::{self, COUNTERS_MAX, word};
use super::peers::Rows;
use crate::clock::MonotonicClock;
use crate::progress::WaitStats;
use crate::route::host::{HostPorts, LONE_ROUND};
use crate::user_memory::UserMemory;
use mx_port_base::close_on_fork::CloseOnForkFd;
use mx_port_base::limits;
use mx_port_base::sealed::Region;
use mx_proto::{Clock, Endpoint, Identity, Owner};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writer of the shared page in which tools find one endpoint's counters and peers; does nothing if the page could not
/// be created.
#[derive(Debug)]
pub struct Publisher {
    page: Option<Published>,
    waits: WaitStats,
    rows: Rows,
}

/// Polls between two updates: an update costs about as much as one poll.
const EVERY: u32 = 1024;

const _: () = assert!(EVERY % LONE_ROUND == 0, "such a poll checks every port");

impl Publisher {
    /// Creates the page of the endpoint `identity` on board number `board`, opened by the library named `library`.
    /// `method`: whether the page also has the counters of a BMI method. A failure is only logged: tools then do not
    /// see the endpoint.
    pub fn new(library: &str, identity: &Identity, board: u32, method: bool) -> Self {
        let page = Published::new(library, identity, board, method);
        let page = page.map_err(|error| match error.raw_os_error() {
            Some(libc::EFBIG) => log::warn!(
                "tools will not see the endpoint: RLIMIT_FSIZE is below {} bytes",
                layout::LEN_WITH_PEERS
            ),
            _ => log::warn!(
                "tools will not see the endpoint: {error}{}",
                limits::of_descriptors(&error)
            ),
        });
        Self {
            page: page.ok(),
            ..Self::silent()
        }
    }

    /// Returns a publisher without a page, whose calls do nothing.
    pub fn silent() -> Self {
        Self {
            page: None,
            waits: WaitStats::default(),
            rows: Rows::default(),
        }
    }

    /// Returns whether [`Publisher::publish`] is due after poll number `turn`
    /// ([`HostPorts::turn`](crate::route::host::HostPorts::turn)), which has checked every port.
    pub fn is_due(turn: u32) -> bool {
        turn % EVERY == 0
    }

    /// Writes these counters to the page.
    pub fn publish(&mut self, sample: &Sample<'_>) {
        if let Some(page) = &mut self.page {
            page.update(sample);
        }
    }

    /// Writes the next rows of this endpoint's peers to the page; several calls are needed for all peers.
    pub fn publish_peers<C: Clock, O: Owner<Memory = UserMemory>>(
        &mut self,
        endpoint: &Endpoint<HostPorts, C, O>,
    ) {
        if let Some(page) = &mut self.page {
            self.rows
                .write(endpoint, page.peers(), MonotonicClock.now());
            page.word(layout::PEERS_AT)
                .store(self.rows.len() as u64, Ordering::Relaxed);
        }
    }

    /// Stores the counters of waiting threads for the next samples.
    pub fn note_waits(&mut self, waits: &WaitStats) {
        self.waits = *waits;
    }

    /// Returns the counters of waiting threads stored last.
    pub fn waits(&self) -> WaitStats {
        self.waits
    }
}

/// The page of an endpoint.
#[derive(Debug)]
pub(super) struct Published {
    region: Region,
    /// Descriptor by which tools find the page.
    _fd: CloseOnForkFd,
    endpoint: u32,
    /// Whether a method's counters follow the endpoint's.
    method: bool,
    /// Sequence number, even between updates. The page's copy is only written, never read.
    sequence: u64,
}

impl Published {
    pub(super) fn new(
        library: &str,
        identity: &Identity,
        board: u32,
        method: bool,
    ) -> io::Result<Self> {
        let (region, fd) = Region::create(layout::NAME, layout::LEN_WITH_PEERS)?;
        let mut page = Self {
            region,
            _fd: fd,
            endpoint: identity.endpoint.0,
            method,
            sequence: 0,
        };
        let opened = SystemTime::now().duration_since(UNIX_EPOCH);
        let opened = opened.map_or(0, |since| since.as_nanos() as u64);
        page.store(
            layout::VERSION_AT,
            &[word(layout::VERSION, page.labels().count() as u32), 0],
        );
        page.store(layout::PROCESS_AT, &[word(std::process::id(), board)]);
        page.store(
            layout::NIC_AT,
            &[identity.nic.0, identity.session.0, opened],
        );
        let library: [u64; layout::LIBRARY_WORDS] = layout::text(library);
        page.store(layout::LIBRARY_AT, &library);
        for (place, label) in page.labels().enumerate() {
            let label: [u64; layout::LABEL_WORDS] = layout::text(label);
            page.store(layout::LABELS_AT + place * layout::LABEL_WORDS, &label);
        }
        page.update(&Sample::default());
        // A reader that sees the magic sees everything stored before it.
        page.word(layout::MAGIC_AT)
            .store(layout::MAGIC, Ordering::Release);
        Ok(page)
    }

    fn labels(&self) -> impl Iterator<Item = &'static str> + use<> {
        let most = if self.method { usize::MAX } else { COUNT };
        all_counters().take(most).map(|counter| counter.label)
    }

    pub(super) fn update(&mut self, sample: &Sample<'_>) {
        let values = values(sample);
        let ports = &sample.ports;
        let provider: [u64; layout::PROVIDER_WORDS] = layout::text(ports.provider);
        self.store(layout::SEQUENCE_AT, &[self.sequence.wrapping_add(1)]);
        // No later store is seen with the old even sequence.
        fence(Ordering::Release);
        self.store(layout::ENDPOINT_AT, &[word(self.endpoint, ports.open)]);
        self.store(layout::PROVIDER_AT, &provider);
        self.store(layout::VALUES_AT, &values);
        if self.method {
            let gauges = sample.method.unwrap_or_default();
            self.store(layout::VALUES_AT + COUNT, &gauges.values());
        }
        self.sequence = self.sequence.wrapping_add(2);
        self.word(layout::SEQUENCE_AT)
            .store(self.sequence, Ordering::Release);
    }

    fn store(&self, at: usize, words: &[u64]) {
        for (offset, value) in words.iter().enumerate() {
            self.word(at + offset).store(*value, Ordering::Relaxed);
        }
    }

    /// Returns the words of the peers' rows.
    fn peers(&self) -> &[AtomicU64] {
        let first: *const AtomicU64 = self.word(layout::LEN / 8);
        // SAFETY: the region has these words (`layout::LEN_WITH_PEERS`), as long as `self` lives; every process uses
        // them as atomics.
        unsafe { std::slice::from_raw_parts(first, layout::PEERS_MAX * layout::PEER_WORDS) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!((at + 1) * 8 <= self.region.size());
        let base = self.region.base().cast::<u64>();
        // SAFETY: `at` is a place of `layout`, which asserts that all of them lie in the page.
        let word = unsafe { base.add(at) };
        // SAFETY: mapped and aligned as long as `self` lives; every process uses it as an atomic.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

const _: () = assert!(COUNT + MethodGauges::COUNTERS.len() <= COUNTERS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_of_waiting_threads_is_kept() {
        let mut publisher = Publisher::silent();
        let waits = WaitStats {
            progress_thread_sleeps: 3,
            ..WaitStats::default()
        };
        publisher.note_waits(&waits);
        assert_eq!(publisher.waits(), waits);
    }
}
