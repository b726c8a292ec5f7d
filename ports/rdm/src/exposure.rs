//! Memory that peers may have sent to them over lanes.
//!
//! ```text
//!   RemoteKey.address   63..56     55..32        31..0        RemoteKey.key
//!                       span log2  generation    slot         a secret of this exposure
//!                          |
//!                          `-- any `span` bytes of it lie in at most as many segments as one
//!                              send of the provider gathers, so the peer asks for no more at once
//! ```
//!
//! A slot's generation grows with every use, so that a key that is no more names nothing.
//!
//! Owns: the segments of each exposure, and how many sends of it the provider has.
//! Knows nothing of: lanes.
//! Cost: exposing costs a look at each segment; about 100 bytes each.

use super::remote::{PIECE_MIN, Segments};
use libc::iovec;
use mx_proto::LinkId;
use mx_proto::port::RemoteKey;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// All exposures of a port.
pub(super) struct Exposures {
    slots: Slab<Exposure>,
    /// How many each link has.
    counts: HashMap<LinkId, usize>,
    /// Makes secrets and generations.
    made: u64,
    secrets: RandomState,
    iov_limit: usize,
}

struct Exposure {
    link: LinkId,
    id: u64,
    key: u64,
    token: u64,
    segments: Segments,
    len: usize,
    /// Sends from it that the provider has.
    sending: usize,
}

/// The segments of one send.
pub(super) type Gather = SmallVec<[iovec; 4]>;

impl Exposures {
    pub(super) fn new(iov_limit: usize) -> Self {
        Self {
            slots: Slab::new(),
            counts: HashMap::new(),
            made: 0,
            secrets: RandomState::new(),
            iov_limit: iov_limit.clamp(1, GATHER_MAX),
        }
    }

    /// `None` when there are too many, or pieces would be too short to be worth it.
    pub(super) fn add(
        &mut self,
        link: LinkId,
        segments: Segments,
        token: u64,
    ) -> Option<RemoteKey> {
        let span = span_log2(&segments, self.iov_limit)?;
        let count = self.counts.entry(link).or_default();
        if *count >= PER_LINK_MAX {
            return None;
        }
        *count += 1;
        self.made += 1;
        let slot = self.slots.vacant_key() as u64 & SLOT_MASK;
        let generation = self.made & GENERATION_MASK;
        let id = generation << SLOT_BITS | slot;
        let key = self.secrets.hash_one(self.made);
        self.slots.insert(Exposure {
            link,
            id,
            key,
            token,
            len: segments.iter().map(|(_, len)| len).sum(),
            segments,
            sending: 0,
        });
        let address = u64::from(span) << SPAN_AT | id;
        Some(RemoteKey { address, key })
    }

    /// The number by which an exposure is known here, if the key is right.
    pub(super) fn find(&self, link: LinkId, key: RemoteKey) -> Option<u64> {
        let id = key.address & ID_MASK;
        let exposure = self.of(id)?;
        (exposure.link == link && exposure.key == key.key).then_some(id)
    }

    /// What to send for `len` bytes from `from` on: `None` when they are not all there, or lie in
    /// too many segments.
    pub(super) fn gather(&self, id: u64, from: u64, len: usize) -> Option<Gather> {
        let exposure = self.of(id)?;
        let from = usize::try_from(from).ok()?;
        let end = from.checked_add(len)?;
        if len == 0 || end > exposure.len {
            return None;
        }
        let mut gather = Gather::new();
        let mut begin = 0;
        for &(start, bytes) in &exposure.segments {
            let (first, last) = (from.max(begin), end.min(begin + bytes));
            if first < last {
                if gather.len() == self.iov_limit {
                    return None;
                }
                gather.push(iovec {
                    iov_base: start.wrapping_add(first - begin).cast(),
                    iov_len: last - first,
                });
            }
            begin += bytes;
        }
        Some(gather)
    }

    pub(super) fn token(&self, id: u64) -> Option<u64> {
        Some(self.of(id)?.token)
    }

    /// The provider has a send from it.
    pub(super) fn begin_send(&mut self, id: u64) {
        if let Some(exposure) = self.of_mut(id) {
            exposure.sending += 1;
        }
    }

    /// A send from it has ended, in whatever way.
    pub(super) fn end_send(&mut self, id: u64) {
        if let Some(exposure) = self.of_mut(id) {
            exposure.sending = exposure.sending.saturating_sub(1);
        }
    }

    /// All sends from a link's exposures have ended.
    pub(super) fn end_sends(&mut self, link: LinkId) {
        for (_, exposure) in &mut self.slots {
            if exposure.link == link {
                exposure.sending = 0;
            }
        }
    }

    /// Does the provider have sends from it?
    pub(super) fn is_sending(&self, id: u64) -> bool {
        self.of(id).is_some_and(|exposure| exposure.sending > 0)
    }

    pub(super) fn remove(&mut self, id: u64) {
        if self.of(id).is_none() {
            return;
        }
        let exposure = self.slots.remove((id & SLOT_MASK) as usize);
        debug_assert_eq!(exposure.sending, 0, "the provider still has it");
        if let Some(count) = self.counts.get_mut(&exposure.link) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&exposure.link);
            }
        }
    }

    /// All of a link's.
    pub(super) fn remove_link(&mut self, link: LinkId) {
        self.counts.remove(&link);
        self.slots.retain(|_, exposure| exposure.link != link);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    fn of(&self, id: u64) -> Option<&Exposure> {
        let exposure = self.slots.get((id & SLOT_MASK) as usize)?;
        (exposure.id == id).then_some(exposure)
    }

    fn of_mut(&mut self, id: u64) -> Option<&mut Exposure> {
        let exposure = self.slots.get_mut((id & SLOT_MASK) as usize)?;
        (exposure.id == id).then_some(exposure)
    }
}

/// How many bytes one may ask for at once, given what the peer's key says. `None` when no key of
/// ours says that.
pub(super) fn span_of(key: RemoteKey) -> Option<usize> {
    let log2 = (key.address >> SPAN_AT) as u32;
    (PIECE_MIN.ilog2()..=PIECE_MAX.ilog2())
        .contains(&log2)
        .then(|| 1 << log2)
}

/// The largest power of two so that any that many bytes lie in at most `limit` segments; `None`
/// when it is not worth reading like that.
fn span_log2(segments: &[(*mut u8, usize)], limit: usize) -> Option<u32> {
    if segments.len() <= limit {
        return Some(PIECE_MAX.ilog2());
    }
    // A run that touches `limit` + 1 segments has all of those between the first and the last.
    let inner = limit - 1;
    let mut shortest = usize::MAX;
    for between in segments[1..segments.len() - 1].windows(inner.max(1)) {
        let sum = between.iter().map(|(_, len)| len).sum();
        shortest = shortest.min(sum);
    }
    if inner == 0 {
        shortest = 0;
    }
    let span = shortest.saturating_add(1).min(PIECE_MAX);
    (span >= PIECE_MIN).then(|| span.ilog2())
}

/// The longest piece: several are in flight at a time, so that a longer one would gain nothing,
/// and one that waits at a provider's door keeps others waiting for no longer than this takes.
pub(super) const PIECE_MAX: usize = 1 << 20;

/// Exposures of one link. More large sends at a time than this go the copied way.
const PER_LINK_MAX: usize = 4096;

/// No provider gathers more than this from one send of ours; they offer 1 to 8.
const GATHER_MAX: usize = 16;

const SLOT_BITS: u32 = 32;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const GENERATION_MASK: u64 = (1 << 24) - 1;
const SPAN_AT: u32 = 56;
const ID_MASK: u64 = (1 << SPAN_AT) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut as at;

    const LINK: LinkId = LinkId::new(1, 1);

    fn segments(lens: &[usize]) -> Segments {
        let mut start = 0;
        let mut list = Segments::new();
        for len in lens {
            start += 1 << 32;
            list.push((at(start), *len));
        }
        list
    }

    fn shape(gather: &Gather) -> Vec<(usize, usize)> {
        let place = |p: *mut libc::c_void| (p.addr() >> 32) * 1000 + (p.addr() & 0xffff_ffff);
        gather
            .iter()
            .map(|iov| (place(iov.iov_base), iov.iov_len))
            .collect()
    }

    #[test]
    fn any_span_lies_in_no_more_segments_than_one_send_takes() {
        let lens: &[&[usize]] = &[
            &[1 << 16; 12],
            &[20_000, 70_000, 20_000, 50_000, 16_384, 90_000, 30_000],
            &[1, 40_000, 1, 40_000, 1, 40_000, 1, 40_000],
        ];
        for lens in lens {
            for limit in 2..=4 {
                let mut table = Exposures::new(limit);
                let Some(key) = table.add(LINK, segments(lens), 7) else {
                    assert!(limit < 4 || lens.len() > 8, "{lens:?} {limit}");
                    continue;
                };
                let span = span_of(key).unwrap();
                let id = table.find(LINK, key).unwrap();
                let whole: usize = lens.iter().sum();
                for from in (0..whole).step_by(97) {
                    let len = span.min(whole - from);
                    let gather = table.gather(id, from as u64, len);
                    let bytes: usize = gather.unwrap().iter().map(|iov| iov.iov_len).sum();
                    assert_eq!(bytes, len, "{lens:?} {limit} {from}");
                }
            }
        }
        let mut one = Exposures::new(1);
        assert!(one.add(LINK, segments(&[1 << 20, 1 << 20]), 0).is_none());
        assert!(one.add(LINK, segments(&[1 << 20]), 0).is_some());
    }

    #[test]
    fn what_is_gathered_is_exactly_what_was_asked_for() {
        let mut table = Exposures::new(2);
        let key = table.add(LINK, segments(&[100_000, 50_000, 70_000]), 3);
        let id = table.find(LINK, key.unwrap()).unwrap();
        assert_eq!(table.token(id), Some(3));
        let gather = |from, len| table.gather(id, from, len).as_ref().map(shape);
        assert_eq!(gather(0, 100_000), Some(vec![(1000, 100_000)]));
        assert_eq!(gather(99_999, 2), Some(vec![(100_999, 1), (2000, 1)]));
        assert_eq!(
            gather(99_999, 50_001),
            Some(vec![(100_999, 1), (2000, 50_000)])
        );
        assert_eq!(gather(99_999, 50_002), None);
        assert_eq!(gather(219_999, 1), Some(vec![(72_999, 1)]));
        assert_eq!(gather(219_999, 2), None);
        assert_eq!(gather(0, 0), None);
        assert_eq!(gather(u64::MAX, 2), None);
        assert_eq!(gather(5, usize::MAX), None);
    }

    #[test]
    fn a_key_opens_only_its_own_exposure_for_its_own_link_while_it_lasts() {
        let mut table = Exposures::new(4);
        let key = table.add(LINK, segments(&[1 << 20]), 1).unwrap();
        let id = table.find(LINK, key).unwrap();
        let other = LinkId::new(1, 2);
        assert_eq!(table.find(other, key), None);
        for bit in 0..64 {
            let key = RemoteKey {
                key: key.key ^ 1 << bit,
                ..key
            };
            assert_eq!(table.find(LINK, key), None);
        }
        for bit in 0..SPAN_AT {
            let address = key.address ^ 1 << bit;
            assert_eq!(table.find(LINK, RemoteKey { address, ..key }), None);
        }
        table.remove(id);
        assert_eq!(table.find(LINK, key), None);
        let again = table.add(LINK, segments(&[1 << 20]), 1).unwrap();
        assert_ne!(again, key);
        assert_eq!(table.find(LINK, key), None);
        table.remove_link(LINK);
        assert_eq!(table.find(LINK, again), None);
        assert_eq!((table.len(), table.counts.len()), (0, 0));
    }

    #[test]
    fn a_link_has_at_most_so_many_exposures() {
        let mut table = Exposures::new(4);
        for token in 0..PER_LINK_MAX as u64 {
            assert!(table.add(LINK, segments(&[1 << 20]), token).is_some());
        }
        assert!(table.add(LINK, segments(&[1 << 20]), 0).is_none());
        let other = LinkId::new(2, 1);
        assert!(table.add(other, segments(&[1 << 20]), 0).is_some());
        table.remove_link(LINK);
        assert!(table.add(LINK, segments(&[1 << 20]), 0).is_some());
    }

    #[test]
    fn only_a_span_of_ours_is_believed() {
        for log2 in 0..=255u64 {
            let key = RemoteKey {
                address: log2 << SPAN_AT | 5,
                key: 0,
            };
            assert_eq!(span_of(key).is_some(), (14..=20).contains(&log2), "{log2}");
        }
    }
}
