//! Layout of the memory that two processes share for one link.
//!
//! ```text
//!   0      | head of ring 0 | head of ring 1 | ...            one page
//!          |  +0   tails      written by the consumer, in batches
//!          |  +128 sleeping   written by the consumer when it goes to sleep
//!          |  +256 waiting    written by the producer when it waits for room
//!          |  +260 leaving    written by the producer before it sends Suspend
//!          |  +264 until      written with waiting: the packet that has to be released first
//!   4096   | cells of ring 0 | cells of ring 1 |              cells x 128 bytes each
//!          | data of ring 0  | data of ring 1  |              data bytes each
//!          | far of ring 0   | far of ring 1   |              far bytes each, perhaps 0
//!
//!   a cell:  0        8                 40          64                128
//!            | flag   | packet header   | body ---- | ---- body up to 88 bytes |
//!              low half: lap tag, high half: length of the body, highest bit: body is in the far area
//! ```
//!
//! The data area is small, so that it stays in a cache while both sides copy at once. The far area takes bodies that do
//! not fit while the consumer is busy elsewhere, so that the sender need not wait.
//!
//! Ring 0 carries packets of the link's initiator, ring 1 those of the acceptor. Words written by different sides are
//! on different pairs of cache lines (the processor fetches lines in pairs). A packet with a body of at most 24 bytes
//! takes one cache line.
//!
//! Owns: the offsets, and the limits for a peer's proposal.
//! Out of scope: mapping.

use mx_proto::port::HEADER_LEN;

/// Bytes of a cell: a pair of cache lines.
pub(super) const CELL: usize = 128;

/// Offset of the packet's header in a cell, after the flag word.
pub(super) const HEADER_AT: usize = 8;

/// Offset of a short body in a cell.
pub(super) const INLINE_AT: usize = HEADER_AT + HEADER_LEN;

/// Longest body stored in its cell, in bytes; longer ones are in the data area.
pub(super) const INLINE_MAX: usize = CELL - INLINE_AT;

/// Alignment of bodies in the data area, in bytes: a cache line.
pub(super) const DATA_ALIGN: u64 = 64;

/// Longest body of any packet, in bytes: 32 KiB, the eager limit, plus room for the endpoint's additions. A peer that
/// announces more is disconnected.
pub(super) const BODY_MAX: usize = 36 * 1024;

/// Offsets in a ring's head.
pub(super) const CELL_TAIL_AT: usize = 0;
pub(super) const DATA_TAIL_AT: usize = 8;
pub(super) const FAR_TAIL_AT: usize = 16;
pub(super) const SLEEPING_AT: usize = 128;
pub(super) const WAITING_AT: usize = 256;
pub(super) const LEAVING_AT: usize = 260;
pub(super) const UNTIL_AT: usize = 264;

/// Bytes of a ring's head.
pub(super) const RING_HEAD: usize = 512;
const HEADS: usize = 4096;

/// Sizes of the rings of one link, equal in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    /// Cells per ring, a power of two.
    pub(super) cells: u32,
    /// Bytes of a ring's data area, a power of two.
    pub(super) data: u32,
    /// Bytes of a ring's far area, a power of two or 0.
    pub(super) far: u32,
}

impl Geometry {
    /// Proposal for links that this side initiates.
    ///
    /// 128 cells are 16 KiB, so that both rings of cells stay in a first-level cache; 1024 made a
    /// stream of tiny messages only a tenth faster. Data areas of 256 KiB keep both sides copying
    /// at once and stay in a second-level cache beside the application's buffers: with 128 KiB
    /// streams of 1 KiB messages stalled, with 1 MiB large messages were a tenth slower.
    pub(super) const STANDARD: Self = Self {
        cells: 128,
        data: 256 * 1024,
        far: 0,
    };

    /// Proposal for a stream of large messages. With 1 MiB there were a third more sleeps, with 4 MiB hardly fewer.
    pub(super) const STREAMING: Self = Self {
        far: 2 * 1024 * 1024,
        ..Self::STANDARD
    };

    /// Proposal while more than half of the memory for all links is in use.
    pub(super) const SMALLER: Self = Self {
        cells: 64,
        data: 128 * 1024,
        far: 0,
    };

    /// Smallest proposal, used when memory is nearly exhausted: one chunk of a large message can be written while the
    /// previous one is read.
    pub(super) const SMALLEST: Self = Self {
        cells: 32,
        data: 64 * 1024,
        far: 0,
    };

    /// Returns true if rings of these sizes work and are no larger than a peer may make us map.
    pub(super) fn is_acceptable(self) -> bool {
        self.cells.is_power_of_two()
            && (Self::SMALLEST.cells..=4096).contains(&self.cells)
            && self.data.is_power_of_two()
            && (Self::SMALLEST.data..=4 * 1024 * 1024).contains(&self.data)
            && (self.far == 0
                || self.far.is_power_of_two()
                    && (Self::SMALLEST.data..=4 * 1024 * 1024).contains(&self.far))
    }

    /// Returns the bytes of the whole shared memory.
    pub(super) const fn total(self) -> usize {
        HEADS + 2 * self.cells as usize * CELL + 2 * self.data as usize + 2 * self.far as usize
    }

    /// Returns the offset of the head of ring `ring` (0 or 1).
    pub(super) fn head_at(self, ring: usize) -> usize {
        ring * RING_HEAD
    }

    /// Returns the offset of the cells of ring `ring`.
    pub(super) fn cells_at(self, ring: usize) -> usize {
        HEADS + ring * self.cells as usize * CELL
    }

    /// Returns the offset of the data area of ring `ring`.
    pub(super) fn data_at(self, ring: usize) -> usize {
        HEADS + 2 * self.cells as usize * CELL + ring * self.data as usize
    }

    /// Returns the offset of the far area of ring `ring`.
    pub(super) fn far_at(self, ring: usize) -> usize {
        self.data_at(0) + 2 * self.data as usize + ring * self.far as usize
    }
}

/// Consumed bytes of long bodies after which the producer is told: less than a chunk of a large message, so that both
/// sides keep copying at once.
pub(super) const DATA_BATCH: u64 = 16 * 1024;

// A batch may be consumed and not yet returned; the rest must hold any packet, or a producer could wait forever.
const _: () = assert!(
    BODY_MAX.next_multiple_of(64) + DATA_BATCH as usize <= Geometry::SMALLEST.data as usize
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_do_not_overlap_and_end_at_the_total() {
        for geometry in [
            Geometry::STANDARD,
            Geometry::STREAMING,
            Geometry::SMALLER,
            Geometry::SMALLEST,
            Geometry {
                cells: 4096,
                data: 4 * 1024 * 1024,
                far: 64 * 1024,
            },
        ] {
            assert!(geometry.is_acceptable());
            let (cells, data) = (geometry.cells as usize * CELL, geometry.data as usize);
            assert!(geometry.head_at(1) + RING_HEAD <= geometry.cells_at(0));
            assert_eq!(geometry.cells_at(0) + cells, geometry.cells_at(1));
            assert_eq!(geometry.cells_at(1) + cells, geometry.data_at(0));
            assert_eq!(geometry.data_at(0) + data, geometry.data_at(1));
            assert_eq!(geometry.data_at(1) + data, geometry.far_at(0));
            assert_eq!(
                geometry.far_at(0) + geometry.far as usize,
                geometry.far_at(1)
            );
            assert_eq!(geometry.far_at(1) + geometry.far as usize, geometry.total());
            assert_eq!(geometry.data_at(0) % DATA_ALIGN as usize, 0);
        }
    }

    #[test]
    fn odd_tiny_and_huge_proposals_are_not_acceptable() {
        let good = Geometry::STANDARD;
        for cells in [0, 1, 16, 100, 8192, u32::MAX] {
            assert!(!Geometry { cells, ..good }.is_acceptable(), "{cells} cells");
        }
        for data in [0, 4096, 32 * 1024, 1_000_000, 8 << 20, u32::MAX] {
            assert!(!Geometry { data, ..good }.is_acceptable(), "{data} bytes");
            let far = Geometry { far: data, ..good };
            assert_eq!(far.is_acceptable(), data == 0, "{data} bytes far");
        }
    }
}
