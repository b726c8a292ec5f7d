//! Staging buffers for bytes read from a socket.
//!
//! ```text
//!   Pool: spare buffers        link with bytes it cannot use yet
//!   [ ][ ][ ]  --- take --->   [ ....|bytes staged|free ........ ]
//!              <-- give back --      start        end
//! ```
//!
//! An active link (there are few) has a buffer while bytes are staged in it. Other links keep staged bytes in a box of
//! their size, so that a peer that stops in the middle of a packet costs only its bytes.
//!
//! Owns: the spare buffers.
//! Out of scope: packets, sockets.

use super::PACKET_MAX;
use super::receive::STRANGER_MAX;
use mx_proto::port::HEADER_LEN;

/// Bytes of a staging buffer: holds the largest packet that is delivered whole, and enough after it to be worth a
/// system call.
pub(super) const STAGING: usize = 64 * 1024;
const _: () = assert!(STAGING > PACKET_MAX + HEADER_LEN);

/// Maximum number of spare buffers: more links rarely hold one at the same time.
const SPARES: usize = 8;

/// Buffer with staged bytes in the middle; the default has no room.
#[derive(Debug, Default)]
pub(super) struct Staging {
    bytes: Box<[u8]>,
    start: u32,
    end: u32,
}

impl Staging {
    fn allocate() -> Self {
        Self {
            bytes: vec![0; STAGING].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    /// Bytes in a box of their size.
    fn carried(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.into(),
            start: 0,
            end: bytes.len() as u32,
        }
    }

    /// Whether this is a whole buffer, and not only bytes that a link carries.
    fn is_buffer(&self) -> bool {
        self.bytes.len() == STAGING
    }

    /// Bytes that count against the limit.
    fn counted(&self) -> usize {
        let len = self.len();
        if len > UNCOUNTED { len } else { 0 }
    }

    /// Staged bytes.
    #[inline]
    pub(super) fn staged(&self) -> &[u8] {
        &self.bytes[self.start as usize..self.end as usize]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Consumes the first `n` staged bytes, at most [`Self::len`].
    #[inline]
    pub(super) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.len());
        self.start += n as u32;
        if self.start >= self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Drops the last `n` staged bytes, at most [`Self::len`].
    pub(super) fn leave(&mut self, n: usize) {
        debug_assert!(n <= self.len());
        self.end -= n as u32;
        self.consume(0);
    }

    /// Returns the last `n` consumed bytes of the buffer, as scratch memory.
    pub(super) fn spent(&mut self, n: usize) -> &mut [u8] {
        let from = (self.start as usize).saturating_sub(n);
        &mut self.bytes[from..from + n]
    }

    /// Returns the space for the next bytes, at most `want`, so that at least `whole` bytes counted from the first
    /// staged one fit. `whole` is at most [`STAGING`].
    #[inline]
    pub(super) fn room(&mut self, whole: usize, want: usize) -> &mut [u8] {
        let (start, mut from) = (self.start as usize, self.end as usize);
        if self.bytes.len() - start < whole || from == self.bytes.len() {
            self.bytes.copy_within(start..from, 0);
            from -= start;
            (self.start, self.end) = (0, from as u32);
        }
        let end = (from + want).min(self.bytes.len());
        &mut self.bytes[from..end]
    }

    /// Stages `n` bytes that have been written to [`Self::room`].
    #[inline]
    pub(super) fn filled(&mut self, n: usize) {
        self.end += n as u32;
        debug_assert!(self.end as usize <= self.bytes.len());
    }
}

/// Bytes that each link may keep uncounted: as much as a stranger can leave, so that strangers, which have no share, do
/// not make other links wait.
const UNCOUNTED: usize = STRANGER_MAX + HEADER_LEN;

/// Spare buffers of a port, and the number of bytes that its links keep.
#[derive(Debug)]
pub(super) struct Pool {
    spares: Vec<Staging>,
    kept: usize,
    limit: usize,
}

impl Pool {
    /// Creates a pool for links that keep `limit` bytes together, and the rest of one more visit.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            spares: Vec::new(),
            kept: 0,
            limit,
        }
    }

    /// Bytes that links keep.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Returns true if links keep as much as they may: further incomplete packets stay in the kernel.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.kept >= self.limit
    }

    /// Returns a buffer with the bytes of `kept`.
    #[inline]
    pub(super) fn take(&mut self, kept: &mut Staging) -> Staging {
        self.kept -= kept.counted();
        let kept = std::mem::take(kept);
        if kept.is_buffer() {
            return kept;
        }
        let mut staging = self.spares.pop().unwrap_or_else(Staging::allocate);
        if kept.len() > 0 {
            staging.bytes[..kept.len()].copy_from_slice(kept.staged());
            staging.end = kept.end;
        }
        staging
    }

    /// Takes back a buffer; bytes still staged are kept for its link. A `busy` link keeps the buffer itself, because
    /// more bytes are on their way.
    #[inline]
    pub(super) fn give_back(&mut self, mut staging: Staging, busy: bool) -> Staging {
        let kept = match staging.len() {
            0 => Staging::default(),
            _ if busy => return self.keep(staging),
            _ => Staging::carried(staging.staged()),
        };
        staging.start = 0;
        staging.end = 0;
        if self.spares.len() < SPARES {
            self.spares.push(staging);
        }
        self.keep(kept)
    }

    #[inline]
    fn keep(&mut self, kept: Staging) -> Staging {
        self.kept += kept.counted();
        kept
    }

    /// Moves the bytes of a link that is no longer busy out of their buffer.
    pub(super) fn retire(&mut self, kept: &mut Staging) {
        if kept.is_buffer() {
            let staging = self.take(kept);
            *kept = self.give_back(staging, false);
        }
    }

    /// Subtracts the bytes of a removed link.
    pub(super) fn forget(&mut self, kept: &Staging) {
        self.kept -= kept.counted();
    }

    /// Frees spare buffers.
    pub(super) fn shrink(&mut self) {
        self.spares.truncate(1);
        self.spares.shrink_to_fit();
    }

    /// Number of spare buffers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.spares.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        Pool::new(100_000)
    }

    fn stage(pool: &mut Pool, n: usize) -> Staging {
        let mut staging = pool.take(&mut Staging::default());
        staging.room(n, n)[..n].fill(7);
        staging.filled(n);
        staging
    }

    #[test]
    fn an_empty_buffer_goes_back_to_the_pool() {
        let mut pool = pool();
        let mut staging = stage(&mut pool, 10);
        staging.consume(10);
        let kept = pool.give_back(staging, true);
        assert_eq!((kept.len(), kept.bytes.len()), (0, 0));
        assert_eq!(pool.len(), 1);
    }

    #[test]
    fn what_is_left_over_is_carried_in_as_many_bytes_as_it_has() {
        let mut pool = pool();
        for n in [1, 4096, PACKET_MAX + HEADER_LEN - 1] {
            let staging = stage(&mut pool, n);
            let mut kept = pool.give_back(staging, false);
            assert_eq!((kept.len(), kept.bytes.len()), (n, n));
            assert_eq!(pool.take(&mut kept).staged(), vec![7; n]);
        }
    }

    #[test]
    fn a_busy_link_keeps_its_buffer_until_it_cools() {
        let mut pool = pool();
        let few = stage(&mut pool, 3);
        let mut kept = pool.give_back(few, true);
        assert!(kept.is_buffer());
        for _ in 0..2 {
            pool.retire(&mut kept);
            assert_eq!(*kept.bytes, [7; 3], "cooling twice loses nothing");
            assert_eq!(kept.staged(), [7; 3]);
        }
    }

    #[test]
    fn kept_bytes_are_counted_except_for_strangers_rest() {
        let mut pool = pool();
        let mut kept: Vec<Staging> = [(40_000, false), (58_000, true)]
            .into_iter()
            .map(|(n, busy)| {
                let staging = stage(&mut pool, n);
                pool.give_back(staging, busy)
            })
            .collect();
        let little = stage(&mut pool, UNCOUNTED);
        kept.push(pool.give_back(little, false));
        assert_eq!((pool.kept(), pool.is_short()), (98_000, false));
        let more = stage(&mut pool, 2_000);
        kept.push(pool.give_back(more, false));
        assert!(pool.is_short());
        pool.retire(&mut kept[1]);
        assert_eq!(pool.kept(), 100_000);
        for kept in &kept {
            pool.forget(kept);
        }
        assert_eq!(pool.kept(), 0);
    }

    #[test]
    fn consumed_staging_moves_behind_the_rest() {
        let mut pool = pool();
        let mut staging = stage(&mut pool, 10);
        staging.consume(4);
        assert_eq!(staging.spent(4), [7; 4]);
        staging.leave(2);
        assert_eq!(staging.staged(), [7; 4]);
        staging.leave(4);
        assert_eq!((staging.len(), staging.start), (0, 0));
        assert_eq!(staging.spent(STAGING).len(), STAGING);
    }

    #[test]
    fn making_room_keeps_the_staged_bytes() {
        let mut pool = pool();
        let mut staging = stage(&mut pool, STAGING);
        staging.consume(STAGING - 3);
        assert_eq!(staging.room(100, 50).len(), 50);
        assert_eq!(staging.staged(), [7; 3]);
        assert_eq!(staging.room(STAGING, STAGING).len(), STAGING - 3);
    }
}
