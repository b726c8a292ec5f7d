//! Bounce buffers: memory for reads whose access to application memory could not be ended.
//!
//! ```text
//!   peer's memory --fi_read--> bounce buffer --copied--> the receive, unless it was cancelled
//!                               |
//!                               `-- cancelled: the bounce buffer waits for the completion
//! ```
//!
//! A provider that requires no local registration (`FI_MR_LOCAL`) has none to close: it uses the memory until the
//! operation completes, which with a dead peer may be never.
//!
//! Owns: the memory. It must outlive the endpoint.
//! Out of scope: reads.
//! Cost: one copy; memory grows with the concurrent reads, up to [`MOST`] buffers.

/// Bytes of a buffer: the longest piece of a read through one. A card transfers it in some microseconds, and it is
/// still in a cache when copied.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// Maximum number of bounce buffers: 128 MiB, reached only by reads from many peers at once.
pub(super) const MOST: usize = 512;

/// Bounce buffers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct BounceBuffers {
    memory: Vec<Box<[u8]>>,
    free: Vec<u32>,
}

impl BounceBuffers {
    /// Takes a buffer; returns its number and address, or `None` if all are taken.
    pub(super) fn take(&mut self) -> Option<(u32, *mut u8)> {
        if self.free.is_empty() {
            if self.memory.len() >= MOST {
                return None;
            }
            self.free.push(self.memory.len() as u32);
            self.memory.push(vec![0; BUFFER_BYTES].into_boxed_slice());
        }
        let buffer = self.free.pop()?;
        let memory = self.memory.get_mut(buffer as usize)?;
        Some((buffer, memory.as_mut_ptr()))
    }

    /// Returns the bytes that have arrived in a buffer. The card must no longer write to it.
    pub(super) fn bytes(&self, buffer: u32, len: usize) -> &[u8] {
        self.memory
            .get(buffer as usize)
            .and_then(|memory| memory.get(..len))
            .unwrap_or(&[])
    }

    /// Releases a buffer that is no longer written to.
    pub(super) fn give(&mut self, buffer: u32) {
        debug_assert!(!self.free.contains(&buffer), "buffer {buffer} twice");
        self.free.push(buffer);
    }

    /// Number of bounce buffers that are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.memory.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_buffers_and_each_has_one_tenant() {
        let mut buffers = BounceBuffers::default();
        let mut taken: Vec<_> = (0..MOST).map(|_| buffers.take().unwrap()).collect();
        assert!(buffers.take().is_none());
        assert_eq!(buffers.taken(), MOST);
        taken.sort();
        taken.dedup_by_key(|(_, start)| *start);
        assert_eq!(taken.len(), MOST);
        let (last, start) = taken[MOST - 1];
        assert_eq!(buffers.bytes(last, 9).as_ptr(), start.cast_const());
        assert_eq!(buffers.bytes(last, BUFFER_BYTES + 1), []);
        buffers.give(last);
        assert_eq!(buffers.take(), Some((last, start)));
    }
}
