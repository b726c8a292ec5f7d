//! Partial: a fragment that arrives in parts.
//!
//! ```text
//!   0      32         contiguous                                            len
//!   | header |  body ... |    hole    [ piece ]   hole   [ piece ]        |
//!              placed, dropped        with bytes of its own, or already
//!              or in `bytes`          placed or dropped
//!
//!   Unknown --- front, without a destination: small -> Kept        large -> Dropped
//!      `------- asked, at the front also to begin: read -> Placed -- skipped ---^
//! ```
//!
//! A message that carries its data is begun only when it is the front fragment, so that matching keeps the order. Until
//! it is complete, no later fragment asks for a destination, because the question would be taken for one about that
//! message.
//!
//! Owns: the bytes of the fragment that have no destination yet.
//! Out of scope: other fragments.

use super::reassembly::{ALLOC_COST, BadFragment, BodyLimits, Chunk, SLOT_COST, Step};
use crate::memory::Memory;
use crate::port::{HEADER_LEN, HeaderBytes, Place};
use std::ops::Range;

/// Fragment of which some bytes have not arrived.
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// Header of the packet, valid once `contiguous` is not 0.
    header: HeaderBytes,
    len: u32,
    got: u32,
    /// Offset up to which everything has arrived and been placed.
    contiguous: u32,
    way: Placement,
    /// Whether the fragment is a message that has been begun.
    begun: bool,
    /// Number of bytes in `pieces`.
    kept: u32,
    /// Body up to `contiguous`, if it is kept. Grows only in the front fragment.
    bytes: Vec<u8>,
    /// Pieces beyond `contiguous`, in order.
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Placement {
    /// The destination will be known when everything before the fragment has been delivered.
    #[default]
    Unknown,
    /// The layer above has a destination for the body, as long as it reads.
    Placed,
    /// The body is delivered whole.
    Kept,
    Dropped,
}

#[derive(Debug)]
struct Piece {
    at: u32,
    end: u32,
    /// Bytes of the piece; empty if they have been placed or dropped.
    bytes: Box<[u8]>,
}

/// Position of a fragment in the order of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Everything before this fragment has been delivered.
    Front,
    /// Chunks before this fragment are missing.
    Early,
    /// Chunks before this fragment are missing, and so is part of a message that has been begun.
    Behind,
}

/// Size in bytes up to which messages are always delivered whole: asking for a destination does not pay for less.
const BEGUN_MIN: usize = 16 << 10;

/// Memory cost of a piece in bytes, without its contents.
pub(super) const PIECE_COST: usize = SLOT_COST * size_of::<Piece>();

impl Partial {
    /// Memory cost of an empty fragment in bytes; there is space for one piece more than there are.
    pub(super) const COST: usize = size_of::<Self>() + ALLOC_COST + PIECE_COST;

    /// Begins a new fragment of `len` bytes, reusing the memory.
    pub(super) fn begin(&mut self, len: u32) {
        let (mut bytes, mut pieces) = (
            std::mem::take(&mut self.bytes),
            std::mem::take(&mut self.pieces),
        );
        bytes.clear();
        pieces.clear();
        *self = Self {
            len,
            bytes,
            pieces,
            ..Self::default()
        };
    }

    pub(super) fn is_complete(&self) -> bool {
        self.got == self.len
    }

    /// Returns whether the fragment is a message that has been begun.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Returns the offset up to which everything has arrived; in the front fragment the byte at it is missing.
    pub(super) fn contiguous(&self) -> u32 {
        self.contiguous
    }

    /// Returns the memory cost of the pieces beyond `contiguous`, beside [`Self::COST`].
    pub(super) fn charge(&self) -> usize {
        self.kept as usize + self.pieces.len() * self.piece_cost()
    }

    /// Returns the maximum memory cost of another chunk.
    pub(super) fn cost_of(&self, chunk: &Chunk<'_>) -> usize {
        if self.keeps() {
            return self.piece_cost() + chunk.payload.len();
        }
        let (at, end) = (chunk.offset, chunk.offset + chunk.payload.len() as u32);
        let before = self.gap_for(at, end).and_then(|index| index.checked_sub(1));
        let before = before.and_then(|index| self.pieces.get(index));
        let grows = at == self.contiguous || before.is_some_and(|before| before.end == at);
        if grows { 0 } else { self.piece_cost() }
    }

    /// Returns the maximum memory cost of the first chunk of a fragment.
    pub(super) fn cost_of_first(chunk: &Chunk<'_>) -> usize {
        Self::COST + PIECE_COST + ALLOC_COST + chunk.payload.len()
    }

    /// Returns whether bytes of the body are kept here, because they have no destination yet.
    fn keeps(&self) -> bool {
        matches!(self.way, Placement::Unknown | Placement::Kept)
    }

    fn piece_cost(&self) -> usize {
        PIECE_COST + if self.keeps() { ALLOC_COST } else { 0 }
    }
}

impl Partial {
    pub(super) fn header(&self) -> HeaderBytes {
        self.header
    }

    /// Adds a valid chunk, except for the bytes of its body. Returns their range in the fragment, for [`Self::record`].
    pub(super) fn add(&mut self, chunk: &Chunk<'_>) -> Result<Range<u32>, BadFragment> {
        let end = chunk.offset + chunk.payload.len() as u32;
        if chunk.len != self.len {
            return Err(BadFragment);
        }
        self.gap_for(chunk.offset, end).ok_or(BadFragment)?;
        self.got += chunk.payload.len() as u32;
        if chunk.offset == 0
            && let Some(header) = chunk.payload.first_chunk()
        {
            self.header = *header;
            self.contiguous = HEADER_LEN as u32;
        }
        Ok(chunk.offset.max(HEADER_LEN as u32)..end)
    }

    /// Returns whether the destination of the body is unknown and can be asked for.
    pub(super) fn is_undecided(&self, turn: Order) -> bool {
        self.way == Placement::Unknown && self.contiguous != 0 && turn != Order::Behind
    }

    /// Returns whether the body has a destination, which is asked for with every chunk.
    pub(super) fn is_placed(&self) -> bool {
        self.way == Placement::Placed
    }

    /// Returns whether the body may be that of a message to be begun, for which the layer above is asked again.
    pub(super) fn may_begin(&self, turn: Order) -> bool {
        self.way == Placement::Unknown && turn == Order::Front && self.body_len() > BEGUN_MIN
    }

    /// Returns whether the whole body fits at its destination.
    pub(super) fn fits<M: Memory>(&self, place: &Place<'_, M>) -> bool {
        let room = place.memory.len().checked_sub(place.offset);
        room.is_some_and(|room| self.body_len() <= room)
    }

    /// Copies the kept bytes of the body to its destination, and the `body` bytes at `range` of the fragment.
    pub(super) fn place<M: Memory>(
        &mut self,
        mut place: Place<'_, M>,
        begun: bool,
        (range, body): (Range<u32>, &[u8]),
    ) {
        if self.way == Placement::Unknown {
            for piece in &self.pieces {
                fill(&mut place, piece.at, &piece.bytes);
            }
            (self.way, self.begun) = (Placement::Placed, begun);
            self.release_bytes();
            self.append_contiguous();
        }
        fill(&mut place, range.start, body);
        self.record(range, body);
    }

    /// Notes that the layer above has no destination for the body. For the front fragment, and for one that had a
    /// destination, the decision is final: once a part of a body went to one destination, the rest cannot go to
    /// another.
    pub(super) fn refuse(&mut self, turn: Order, limits: BodyLimits) {
        match self.way {
            Placement::Placed => self.way = Placement::Dropped,
            Placement::Unknown if turn == Order::Front => {
                if self.body_len() <= limits.kept {
                    self.way = Placement::Kept;
                } else {
                    self.way = Placement::Dropped;
                    self.release_bytes();
                }
                self.append_contiguous();
            }
            Placement::Unknown | Placement::Kept | Placement::Dropped => {}
        }
    }

    /// Delivers a complete fragment in its turn. `None`: its body has been dropped.
    pub(super) fn deliver(&mut self) -> Option<Step> {
        debug_assert!(self.way != Placement::Unknown, "delivered before its turn");
        match self.way {
            Placement::Placed => Some(Step::Placed(self.header)),
            Placement::Kept => Some(Step::Packet {
                header: self.header,
                bytes: std::mem::take(&mut self.bytes),
                at: 0,
            }),
            Placement::Dropped | Placement::Unknown => None,
        }
    }

    /// Takes back the memory of a delivered body, for the next fragment.
    pub(super) fn reuse(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// Frees the bytes of the pieces, which have been placed or dropped.
    fn release_bytes(&mut self) {
        self.kept = 0;
        for piece in &mut self.pieces {
            piece.bytes = Box::default();
        }
    }

    fn body_len(&self) -> usize {
        (self.len as usize).saturating_sub(HEADER_LEN)
    }

    /// Returns the index of the piece before which the bytes from `at` to `end` belong. `None`: some of them have
    /// arrived already.
    fn gap_for(&self, at: u32, end: u32) -> Option<usize> {
        if at < self.contiguous {
            return None;
        }
        let index = match self.pieces.last() {
            Some(last) if last.at >= at => self.pieces.partition_point(|piece| piece.at < at),
            _ => self.pieces.len(),
        };
        let before = index
            .checked_sub(1)
            .and_then(|index| self.pieces.get(index));
        let fits = before.is_none_or(|before| before.end <= at)
            && self.pieces.get(index).is_none_or(|after| end <= after.at);
        fits.then_some(index)
    }

    /// Records that the bytes in this range of the fragment have arrived, and keeps them unless they have been placed
    /// or dropped.
    pub(super) fn record(&mut self, range: Range<u32>, body: &[u8]) {
        if body.is_empty() {
            return;
        }
        let Range { start: at, end } = range;
        let is_kept = self.keeps();
        if at == self.contiguous && self.way != Placement::Unknown {
            if is_kept {
                self.append(body);
            }
            self.contiguous = end;
            self.append_contiguous();
            return;
        }
        let Some(index) = self.gap_for(at, end) else {
            return;
        };
        if is_kept {
            self.kept += body.len() as u32;
            let bytes = body.into();
            self.pieces.insert(index, Piece { at, end, bytes });
            return;
        }
        let before = index
            .checked_sub(1)
            .and_then(|index| self.pieces.get_mut(index));
        match before {
            Some(before) if before.end == at => before.end = end,
            _ => self.pieces.insert(
                index,
                Piece {
                    at,
                    end,
                    bytes: Box::default(),
                },
            ),
        }
    }

    /// Joins the pieces that have no hole before them any more.
    fn append_contiguous(&mut self) {
        let mut count = 0;
        while let Some(piece) = self.pieces.get_mut(count)
            && piece.at == self.contiguous
        {
            self.contiguous = piece.end;
            let bytes = std::mem::take(&mut piece.bytes);
            self.kept -= bytes.len() as u32;
            self.append(&bytes);
            count += 1;
        }
        if count > 0 {
            self.pieces.drain(..count);
            let used = 1 + self.pieces.len();
            if self.pieces.capacity() > SLOT_COST * used {
                self.pieces.shrink_to(2 * used);
            }
        }
    }

    fn append(&mut self, more: &[u8]) {
        let need = self.bytes.len() + more.len();
        if need > self.bytes.capacity() {
            // Double the capacity, but not beyond the body's final length.
            let want = (2 * need).min(self.body_len()).max(need);
            self.bytes.reserve_exact(want - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
    }
}

/// Copies bytes at offset `at` of a fragment to the destination of its body.
fn fill<M: Memory>(place: &mut Place<'_, M>, at: u32, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let offset = place.offset + at as usize - HEADER_LEN;
    place.memory.fill(offset, bytes.len(), bytes, 0);
}

#[cfg(test)]
mod tests {
    use super::super::reassembly::tests::{Above, LIMITS, body, chunks, packet};
    use super::*;

    /// Adds these chunks of a front fragment, cut into chunks of 100 bytes.
    fn add(partial: &mut Partial, packet: &[u8], order: &[usize], above: &mut Above) {
        let all = chunks(0, packet, 100);
        for &at in order {
            let range = partial.add(&all[at]).expect("sound");
            let body = &all[at].payload[all[at].payload.len() - range.len()..];
            if partial.is_undecided(Order::Front) || partial.is_placed() {
                let place = above.place(&partial.header(), false);
                if let Some(place) = place.filter(|place| partial.fits(place)) {
                    partial.place(place, false, (range, body));
                    continue;
                }
                partial.refuse(Order::Front, LIMITS);
            }
            partial.record(range, body);
        }
    }

    #[test]
    fn kept_body_grows_with_arrivals_up_to_its_length() {
        let packet = packet(1, 950);
        let (mut partial, mut above) = (Partial::default(), Above::default());
        partial.begin(packet.len() as u32);
        assert_eq!(partial.bytes.capacity(), 0);
        // A piece far beyond the front costs only itself.
        add(&mut partial, &packet, &[9, 0], &mut above);
        assert!(
            partial.bytes.capacity() <= 2 * 100,
            "{}",
            partial.bytes.capacity()
        );
        // Bytes in order cost no more than the packet itself.
        assert_eq!(partial.charge(), 82 + PIECE_COST + ALLOC_COST);
        let another = &chunks(0, &packet, 100)[5];
        assert_eq!(partial.cost_of(another), 100 + PIECE_COST + ALLOC_COST);
        add(&mut partial, &packet, &[1, 2, 3, 4, 5, 6, 7, 8], &mut above);
        assert!(partial.is_complete() && partial.pieces.is_empty());
        assert!(
            partial.bytes.capacity() <= 950,
            "{}",
            partial.bytes.capacity()
        );
        let delivered = Step::Packet {
            header: *packet.first_chunk().expect("a header"),
            bytes: body(1, 950),
            at: 0,
        };
        assert_eq!(partial.deliver(), Some(delivered));
        // The layer above was asked once, because the answer is final.
        assert_eq!(above.asked, 1);
    }

    #[test]
    fn the_memory_of_many_pieces_is_given_back_when_they_are_one() {
        let packet = packet(1, 5000);
        let (mut partial, mut above) = (Partial::default(), Above::default());
        partial.begin(packet.len() as u32);
        let even: Vec<usize> = (0..50).step_by(2).collect();
        add(&mut partial, &packet, &even, &mut above);
        assert_eq!(partial.pieces.len(), 24);
        let odd: Vec<usize> = (1..50).step_by(2).rev().collect();
        add(&mut partial, &packet, &odd, &mut above);
        let left = (partial.pieces.len(), partial.pieces.capacity());
        assert!(left.0 == 0 && left.1 <= SLOT_COST, "{left:?}");
    }

    #[test]
    fn a_place_too_small_is_none() {
        let packet = packet(1, 5000);
        let (mut partial, mut above) = (Partial::default(), Above::default());
        partial.begin(packet.len() as u32);
        above.places.push((1, vec![0; 5004]));
        add(&mut partial, &packet, &[0, 1], &mut above);
        assert_eq!(partial.way, Placement::Dropped);
        assert!(above.places[0].1.iter().all(|&byte| byte == 0));
    }
}
