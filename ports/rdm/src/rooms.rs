//! Memory that cards read into where they cannot be kept from writing.
//!
//! ```text
//!   peer's memory --fi_read--> room --copied--> the receiver's buffer, if it still wants it
//!                               |
//!                               `-- the buffer was given back: the room waits for the card alone
//! ```
//!
//! A provider that asks for no local registration (`FI_MR_LOCAL`) has none that could be closed: what
//! it was given is its own until the operation completes, which with a dead peer may be never. So it
//! is given this.
//!
//! Owns: the memory. It must outlive the endpoint.
//! Knows nothing of: reads.
//! Cost: one copy; memory grows to what is under way at once, and to [`MOST`] rooms.

/// Bytes of a room: the longest piece of a read through one. A card carries it in some
/// microseconds, and it is still in a cache when it is copied.
pub(super) const ROOM: usize = 256 << 10;

/// Rooms there may be: 128 MiB, reached only when many peers are read from at once.
pub(super) const MOST: usize = 512;

/// All rooms of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    memory: Vec<Box<[u8]>>,
    free: Vec<u32>,
}

impl Rooms {
    /// A room and where it is; `None` when all are taken.
    pub(super) fn take(&mut self) -> Option<(u32, *mut u8)> {
        if self.free.is_empty() {
            if self.memory.len() >= MOST {
                return None;
            }
            self.free.push(self.memory.len() as u32);
            self.memory.push(vec![0; ROOM].into_boxed_slice());
        }
        let room = self.free.pop()?;
        let memory = self.memory.get_mut(room as usize)?;
        Some((room, memory.as_mut_ptr()))
    }

    /// What has arrived in a room. Nobody may be writing there.
    pub(super) fn bytes(&self, room: u32, len: usize) -> &[u8] {
        self.memory
            .get(room as usize)
            .and_then(|memory| memory.get(..len))
            .unwrap_or(&[])
    }

    /// Nobody writes there any more.
    pub(super) fn give(&mut self, room: u32) {
        debug_assert!(!self.free.contains(&room), "room {room} twice");
        self.free.push(room);
    }

    /// Rooms that are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.memory.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_rooms_and_each_has_one_tenant() {
        let mut rooms = Rooms::default();
        let mut taken: Vec<_> = (0..MOST).map(|_| rooms.take().unwrap()).collect();
        assert!(rooms.take().is_none());
        assert_eq!(rooms.taken(), MOST);
        taken.sort();
        taken.dedup_by_key(|(_, start)| *start);
        assert_eq!(taken.len(), MOST);
        let (last, start) = taken[MOST - 1];
        assert_eq!(rooms.bytes(last, 9).as_ptr(), start.cast_const());
        assert_eq!(rooms.bytes(last, ROOM + 1), []);
        rooms.give(last);
        assert_eq!(rooms.take(), Some((last, start)));
    }
}
