//! Buffers between inaccessible pages, which become inaccessible themselves once they are returned.
//!
//! ```text
//!   while posted     | none | . . . . data | none |     or     | none | data . . . . | none |
//!   returned         | none   none   none   none  |     kept so for a while, then unmapped
//! ```
//!
//! A buffer that is being sent can only be read. A forbidden access gets SIGSEGV, or EFAULT inside
//! the kernel.
//!
//! Owns: the mappings, and the operations for which the latest were used.
//! Out of scope: BMI.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A buffer for one operation.
#[derive(Debug)]
pub(crate) struct Guarded {
    map: NonNull<u8>,
    mapped: usize,
    /// Bytes from `map` to the data.
    start: usize,
    len: usize,
}

impl Guarded {
    /// Makes a buffer of zeros, which ends or begins at an inaccessible page. `label` is for
    /// [`owner`].
    pub(crate) fn new(len: usize, at_end: bool, label: u64) -> Self {
        let inner = len.div_ceil(PAGE).max(1) * PAGE;
        let mapped = inner + 2 * PAGE;
        let map = map(None, mapped, libc::PROT_NONE);
        let start = if at_end { PAGE + inner - len } else { PAGE };
        let buffer = Self {
            map,
            mapped,
            start,
            len,
        };
        buffer.protect(libc::PROT_READ | libc::PROT_WRITE);
        remember(map, mapped, label);
        buffer
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.map.as_ptr().wrapping_add(self.start)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes the bytes at the beginning.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: `len` bytes from there are mapped and writable, and have not been passed on yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr(), bytes.len()) };
    }

    /// Returns the first bytes.
    pub(crate) fn read(&self, len: usize) -> &[u8] {
        // SAFETY: so many bytes are mapped and readable until the buffer is sealed, which consumes
        // it. The library no longer uses them, or the check that it does not fails.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), len.min(self.len)) }
    }

    /// Forbids writes from now on.
    pub(crate) fn read_only(&self) {
        self.protect(libc::PROT_READ);
    }

    /// Forbids every access from now on. Frees the pages immediately but keeps the address range.
    fn seal(&self) {
        map(Some(self.map), self.mapped, libc::PROT_NONE);
    }

    fn protect(&self, how: libc::c_int) {
        let inner = self.map.as_ptr().wrapping_add(PAGE);
        // SAFETY: pages of this mapping, which are this value's alone.
        let rc = unsafe { libc::mprotect(inner.cast(), self.mapped - 2 * PAGE, how) };
        assert_eq!(rc, 0, "mprotect: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, all of it.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.mapped) };
    }
}

/// Maps anonymous pages, at any address or in place of those at `at`.
fn map(at: Option<NonNull<u8>>, len: usize, how: libc::c_int) -> NonNull<u8> {
    let (place, fixed) = match at {
        Some(place) => (place.as_ptr(), libc::MAP_FIXED),
        None => (std::ptr::null_mut(), 0),
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: new pages, or pages instead of a mapping the caller owns.
    let map = unsafe { libc::mmap(place.cast(), len, how, flags, -1, 0) };
    assert_ne!(
        map,
        libc::MAP_FAILED,
        "mmap: {}",
        std::io::Error::last_os_error()
    );
    NonNull::new(map.cast()).expect("the kernel maps nothing at 0")
}

/// Returned buffers, inaccessible for a long time.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    buffers: VecDeque<Guarded>,
    bytes: usize,
}

impl Quarantine {
    /// Makes a buffer inaccessible.
    pub(crate) fn take(&mut self, buffer: Guarded) {
        buffer.seal();
        self.bytes += buffer.mapped;
        self.buffers.push_back(buffer);
        while self.buffers.len() > MOST || self.bytes > MOST_BYTES {
            let Some(oldest) = self.buffers.pop_front() else {
                break;
            };
            self.bytes -= oldest.mapped;
        }
    }
}

/// Entry of a recent buffer: its address, and its label.
struct Entry {
    at: AtomicUsize,
    len: AtomicUsize,
    label: AtomicU64,
}

static LAST: [Entry; REMEMBERED] = [const {
    Entry {
        at: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        label: AtomicU64::new(0),
    }
}; REMEMBERED];
static NEXT: AtomicUsize = AtomicUsize::new(0);

fn remember(map: NonNull<u8>, len: usize, label: u64) {
    let entry = &LAST[NEXT.fetch_add(1, Ordering::Relaxed) % REMEMBERED];
    entry.len.store(len, Ordering::Relaxed);
    entry.label.store(label, Ordering::Relaxed);
    entry.at.store(map.as_ptr() as usize, Ordering::Relaxed);
}

/// Returns the operation whose buffer, or the pages around it, contain an address. For a signal
/// handler: takes no lock, allocates nothing.
pub(crate) fn owner(address: usize) -> Option<u64> {
    let newest = NEXT.load(Ordering::Relaxed);
    // The newest first: the range may have been used before.
    (0..REMEMBERED).find_map(|back| {
        let entry = &LAST[newest.wrapping_sub(back + 1) % REMEMBERED];
        let at = entry.at.load(Ordering::Relaxed);
        let inside = address.wrapping_sub(at) < entry.len.load(Ordering::Relaxed);
        (at != 0 && inside).then(|| entry.label.load(Ordering::Relaxed))
    })
}

const PAGE: usize = 4096;
/// Maximum number of buffers in quarantine, far below a process's limit of 65530 mappings.
const MOST: usize = 4096;
/// Maximum of their address ranges, which use no memory.
const MOST_BYTES: usize = 4 << 30;
const REMEMBERED: usize = 8192;

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn data_lies_against_the_guard_and_belongs_to_its_operation() {
        for len in [0, 1, 4095, 4096, 4097, 100_000] {
            for at_end in [false, true] {
                let mut buffer = Guarded::new(len, at_end, 77 + len as u64);
                buffer.write(&vec![7; len]);
                buffer.read_only();
                assert!(buffer.read(len).iter().all(|byte| *byte == 7));
                let edge = buffer.as_ptr() as usize + if at_end { len } else { 0 };
                assert_eq!(edge % PAGE, 0);
                assert_eq!(owner(edge), Some(77 + len as u64));
                assert_eq!(owner(edge - 1), Some(77 + len as u64));
            }
        }
    }

    #[test]
    fn what_is_in_quarantine_cannot_be_read_by_the_kernel_either() {
        let buffer = Guarded::new(100, true, 1);
        let at = buffer.as_ptr();
        let mut quarantine = Quarantine::default();
        quarantine.take(buffer);
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        let rc = unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) };
        assert_eq!(rc, 0);
        // SAFETY: the kernel checks the address and fails.
        let got = unsafe { libc::write(pipe[1], at.cast(), 100) };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((got, error), (-1, Some(libc::EFAULT)));
        for fd in pipe {
            // SAFETY: this test's own.
            unsafe { libc::close(fd) };
        }
    }

    #[test]
    fn a_quarantine_has_an_end() {
        let mut quarantine = Quarantine::default();
        for label in 0..MOST as u64 + 10 {
            quarantine.take(Guarded::new(1, false, label));
        }
        assert_eq!(quarantine.buffers.len(), MOST);
    }
}
