//! A fragment that arrives in parts.
//!
//! ```text
//!   0      32         contiguous                                            len
//!   | header |  body ... |    hole    [ piece ]   hole   [ piece ]        |
//!              placed, dropped        with bytes of its own, or already
//!              or in `bytes`          placed or dropped
//!
//!   Unknown --- front, and it has no destination: small -> Kept     large -> Dropped
//!      `------- asked, the front also whether it begins: read -> Placed -- skipped ---^
//! ```
//!
//! A message that comes with its data is begun when it is the front, so that matching keeps the order. Until
//! its end nothing behind it asks for a place: the question is taken for one about that message.
//!
//! Owns: the bytes of the fragment that have no destination yet.
//! Out of scope: other fragments.

use super::reassembly::{ALLOC_COST, BadFragment, BodyLimits, Chunk, SLOT_COST, Step};
use crate::memory::Memory;
use crate::port::{HEADER_LEN, HeaderBytes, Place};
use std::ops::Range;

/// A packet of which not everything is here.
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// Once `contiguous` is not 0.
    header: HeaderBytes,
    len: u32,
    /// Bytes that are here.
    got: u32,
    /// Everything before this is here, and where it belongs.
    contiguous: u32,
    way: Placement,
    /// The fragment is a message that has been begun.
    begun: bool,
    /// Bytes in `pieces`.
    kept: u32,
    /// The body up to `contiguous`, if it is kept. Grows only in the front fragment.
    bytes: Vec<u8>,
    /// The pieces beyond `contiguous`, in order.
    pieces: Vec<Piece>,
}

/// The destination of the body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Placement {
    /// The destination will be known when everything before the fragment has been delivered.
    #[default]
    Unknown,
    /// The layer above has a place for it, as long as it reads.
    Placed,
    /// Given out whole.
    Kept,
    Dropped,
}

#[derive(Debug)]
struct Piece {
    at: u32,
    end: u32,
    /// Empty if they are where they belong.
    bytes: Box<[u8]>,
}

/// The place of a fragment in the order of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Everything before this fragment has been delivered.
    Front,
    /// Chunks before the fragment are missing.
    Early,
    /// Nor is the message finished that has been begun.
    Behind,
}

/// Messages up to this size are delivered whole: a place for less is not worth asking for.
const BEGUN_MIN: usize = 16 << 10;

/// The cost of a piece, without its bytes.
pub(super) const PIECE_COST: usize = SLOT_COST * size_of::<Piece>();

impl Partial {
    /// The cost of an empty fragment: there is space for one piece more than there are.
    pub(super) const COST: usize = size_of::<Self>() + ALLOC_COST + PIECE_COST;

    /// Starts anew, with a fragment of `len` bytes; the memory is used again.
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

    /// Everything is here.
    pub(super) fn is_complete(&self) -> bool {
        self.got == self.len
    }

    /// The fragment is a message that has been begun.
    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Everything before this is here, and in the front fragment nothing at it.
    pub(super) fn contiguous(&self) -> u32 {
        self.contiguous
    }

    /// The cost of the pieces beyond `contiguous`, beside [`Self::COST`].
    pub(super) fn charge(&self) -> usize {
        self.kept as usize + self.pieces.len() * self.piece_cost()
    }

    /// The maximum cost of another chunk.
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

    /// The maximum cost of the first chunk of a fragment.
    pub(super) fn cost_of_first(chunk: &Chunk<'_>) -> usize {
        Self::COST + PIECE_COST + ALLOC_COST + chunk.payload.len()
    }

    /// Bytes of it that have no place yet are kept here.
    fn keeps(&self) -> bool {
        matches!(self.way, Placement::Unknown | Placement::Kept)
    }

    fn piece_cost(&self) -> usize {
        PIECE_COST + if self.keeps() { ALLOC_COST } else { 0 }
    }
}

impl Partial {
    /// The packet's header, once it is here.
    pub(super) fn header(&self) -> HeaderBytes {
        self.header
    }

    /// Adds a part that is sound by itself, but for the bytes of its body. Returns their range in the fragment,
    /// for [`Self::record`].
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

    /// The destination of the body is not known and can be asked for.
    pub(super) fn is_undecided(&self, turn: Order) -> bool {
        self.way == Placement::Unknown && self.contiguous != 0 && turn != Order::Behind
    }

    /// The body has a place, which is asked for with every part.
    pub(super) fn is_placed(&self) -> bool {
        self.way == Placement::Placed
    }

    /// The body may be that of a message to be begun, and is asked for again as such.
    pub(super) fn may_begin(&self, turn: Order) -> bool {
        self.way == Placement::Unknown && turn == Order::Front && self.body_len() > BEGUN_MIN
    }

    /// All of the body fits there.
    pub(super) fn fits<M: Memory>(&self, place: &Place<'_, M>) -> bool {
        let room = place.memory.len().checked_sub(place.offset);
        room.is_some_and(|room| self.body_len() <= room)
    }

    /// Copies what is kept of the body to its place, and what lies at `range` of the fragment.
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

    /// The body has no place. For the front fragment, and for one that had a place, that is final: once a
    /// part of a body went to one destination, the rest cannot go to another.
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

    /// All is here, and it is this fragment's turn. `None`: the body has been dropped.
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

    /// The memory of a delivered body, for the next fragment.
    pub(super) fn reuse(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// The pieces have no bytes of their own any more.
    fn release_bytes(&mut self) {
        self.kept = 0;
        for piece in &mut self.pieces {
            piece.bytes = Box::default();
        }
    }

    fn body_len(&self) -> usize {
        (self.len as usize).saturating_sub(HEADER_LEN)
    }

    /// Before which piece the bytes from `at` to `end` belong. `None`: some of them are here.
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

    /// The bytes in this range of the fragment have come; they are kept unless they are where they belong.
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

    /// Takes in the pieces that have no hole before them any more.
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
            // Doubles, but not beyond the body's final length.
            let want = (2 * need).min(self.body_len()).max(need);
            self.bytes.reserve_exact(want - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
    }
}

/// Copies bytes that lie at offset `at` of a fragment to the place of its body.
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

    /// Adds these chunks of a front fragment that is cut into chunks of 100 bytes.
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
        // A piece far behind costs only itself.
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
        // Asked once: the answer is final.
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
