//! A range of address space for memory that is never unmapped.
//!
//! ```text
//!   start                open                                           len
//!     | readable, zero at first | reserved: only ours, not readable     |
//!                               '--grow-->
//! ```
//!
//! Whether an address lies in the range is one comparison, however large it has grown, and its contents never move.
//! Reserving costs only address space; where that is limited, at most a sixteenth of the limit is taken. In a process
//! that locks all it maps (`mlockall`), only the readable part is locked.
//!
//! Owns: the address space, for as long as the process lives.
//! Cost: one system call each time it grows.

use mx_port_base::fork::ForkMark;
use mx_port_base::limits::of_memory;
use mx_port_base::page::page_size;
use nix::errno::Errno;
use nix::sys::mman::{
    MapFlags, MmapAdvise, ProtFlags, madvise, mlock, mmap_anonymous, mprotect, munlock,
};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::ptr::NonNull;

/// A range of addresses that is kept until the process ends, even after this value is dropped.
#[derive(Debug)]
pub struct Reservation {
    start: NonNull<u8>,
    len: usize,
    open: usize,
    /// Marks the process that locked all memory when it made this reservation, as its children lock none; `None` if it
    /// did not.
    locked: Option<ForkMark>,
}

// SAFETY: the value stands for its range alone, as a `Box` of bytes would.
unsafe impl Send for Reservation {}

/// Smallest useful size, in bytes.
const LEAST: usize = 1 << 20;

/// Divisor of limited address space: the share of one range.
const SHARE: usize = 16;

impl Reservation {
    /// Reserves address space for `most` bytes, or for as many as are available; nothing can be read or written there
    /// before [`grow`](Self::grow). `None`, with a warning in the log, if less than a MiB is available.
    pub fn new(most: usize) -> Option<Self> {
        let limit = address_space_limit().map_or(most, |limit| limit / SHARE);
        let mut len = most.min(limit).next_multiple_of(page_size());
        let mut refusal = Errno::ENOMEM;
        while len >= LEAST {
            match map(len) {
                Ok(start) => {
                    return Some(Self {
                        start,
                        len,
                        open: 0,
                        locked: unlock(start, len).then(ForkMark::new),
                    });
                }
                Err(error) => refusal = error,
            }
            len = (len / 2).next_multiple_of(page_size());
        }
        let limit = of_memory(refusal);
        log::warn!("no address space for {LEAST} bytes: {refusal}{limit}");
        None
    }

    /// Returns the beginning, at a page boundary.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the number of bytes from the beginning that can be read and written.
    #[inline]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Makes `by` more bytes, rounded up to pages, readable and writable; they are zero. Returns false without a change
    /// if the range or the memory is used up.
    pub fn grow(&mut self, by: usize) -> bool {
        let by = by.next_multiple_of(page_size());
        if by > self.len - self.open {
            return false;
        }
        // An emulated kernel may reject an empty `mprotect`.
        if by == 0 {
            return true;
        }
        // SAFETY: within this range, from the beginning of a page on.
        let start = unsafe { self.start.add(self.open) }.cast();
        // SAFETY: as above; not accessed yet.
        let done = unsafe { mprotect(start, by, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE) };
        if done.is_err() {
            return false;
        }
        let locks = self.locked.as_ref().is_some_and(ForkMark::is_mine);
        // SAFETY: as above.
        if locks && unsafe { mlock(start, by) }.is_err() {
            // SAFETY: as above; nothing has been written there.
            let _ = unsafe { mprotect(start, by, ProtFlags::PROT_NONE) };
            unlock(start.cast(), by);
            return false;
        }
        self.open += by;
        true
    }
}

fn map(len: usize) -> Result<NonNull<u8>, Errno> {
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    let len = len.try_into().map_err(|_| Errno::EINVAL)?;
    // SAFETY: a fresh private mapping at an address that the kernel chooses.
    let start = unsafe { mmap_anonymous(None, len, ProtFlags::PROT_NONE, flags) };
    start.map(NonNull::cast)
}

/// Unlocks an unreadable range that `mlockall(MCL_FUTURE)` has counted as locked memory. Returns whether the range was
/// locked, in which case the kernel refuses to drop its pages.
fn unlock(start: NonNull<u8>, len: usize) -> bool {
    let start = start.cast();
    // SAFETY: our own range, in which nothing has been written.
    let dropped = unsafe { madvise(start, len, MmapAdvise::MADV_DONTNEED) };
    let locked = dropped == Err(Errno::EINVAL);
    if locked {
        // SAFETY: as above.
        let _ = unsafe { munlock(start, len) };
    }
    locked
}

/// Returns `RLIMIT_AS` in bytes; `None` if unlimited.
fn address_space_limit() -> Option<usize> {
    let (soft, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    (soft != RLIM_INFINITY).then(|| usize::try_from(soft).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::setrlimit;
    use nix::unistd::{geteuid, setuid};

    #[test]
    fn it_grows_in_place_up_to_its_end_and_is_zero() {
        let mut reservation = Reservation::new(LEAST).unwrap();
        let start = reservation.start();
        assert_eq!(reservation.open(), 0);
        assert!(reservation.grow(1));
        assert_eq!(reservation.open(), page_size());
        assert!(!reservation.grow(LEAST) && reservation.open() == page_size());
        assert!(reservation.grow(LEAST - page_size()));
        assert!(!reservation.grow(1));
        assert_eq!((reservation.start(), reservation.open()), (start, LEAST));
        // SAFETY: all of it can be read and written, and only this test does.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), LEAST) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(1);
    }

    #[test]
    fn a_dropped_reservation_stays_readable_and_is_not_reused() {
        let mut first = Reservation::new(LEAST).unwrap();
        assert!(first.grow(1));
        let (start, end) = (
            first.start().addr().get(),
            first.start().addr().get() + first.len,
        );
        // SAFETY: the first byte is open.
        unsafe { first.start().write(7) };
        let pointer = first.start();
        let _ = first;
        // SAFETY: never unmapped.
        assert_eq!(unsafe { pointer.read() }, 7);
        for _ in 0..10 {
            let other = Reservation::new(LEAST).unwrap().start().addr().get();
            assert!(other + LEAST <= start || other >= end);
        }
    }

    /// Returns whether `holds` in a child of this process.
    fn child_says(holds: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child asks for address space and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let code = i32::from(!holds());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status == 0
    }

    /// Returns the KiB that this process has locked.
    fn locked_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    #[test]
    fn under_mlockall_only_what_is_open_is_locked() {
        assert!(child_says(|| {
            let mut before = Reservation::new(LEAST).unwrap();
            // SAFETY: no pointers.
            if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
                // The limit is 0 here, so no host locks memory either.
                return getrlimit(Resource::RLIMIT_MEMLOCK) == Ok((0, 0));
            }
            let start = locked_kib();
            let mut reservation = Reservation::new(16 << 30).unwrap();
            let reserved = locked_kib() - start;
            let grown = reservation.grow(256 << 10) && before.grow(LEAST);
            let opened = locked_kib() - start;
            // Reading the file takes memory, too.
            reservation.locked.is_some()
                && before.locked.is_none()
                && grown
                && reserved < 128
                && (256..512).contains(&opened)
        }));
    }

    #[test]
    fn a_child_of_a_process_that_locks_its_memory_locks_none() {
        assert!(child_says(|| {
            // SAFETY: no pointers.
            if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
                return getrlimit(Resource::RLIMIT_MEMLOCK) == Ok((0, 0));
            }
            let mut reservation = Reservation::new(16 << 30).unwrap();
            child_says(|| {
                setrlimit(Resource::RLIMIT_MEMLOCK, 0, 0).unwrap();
                // Root may lock without limit.
                let is_user = !geteuid().is_root() || setuid(65_534.into()).is_ok();
                is_user && reservation.grow(1 << 20) && locked_kib() == 0
            })
        }));
    }

    #[test]
    fn a_small_lock_limit_is_left_to_the_program() {
        assert!(child_says(|| {
            let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
            let small = libc::rlimit {
                rlim_cur: limit.min(4 << 20),
                rlim_max: limit.min(4 << 20),
            };
            // SAFETY: `small` is readable; no other pointers.
            unsafe {
                libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const small);
                // Root may lock without limit.
                if libc::geteuid() == 0 && libc::setuid(65_534) != 0 {
                    return false;
                }
                libc::mlockall(libc::MCL_FUTURE);
            }
            let start = locked_kib();
            let mut reservation = Reservation::new(16 << 30).unwrap();
            let reserved = locked_kib() - start;
            let (some, all) = (
                reservation.grow(64 << 10),
                reservation.grow(reservation.len),
            );
            some && !all && reserved < 256 && reservation.open() == 64 << 10
        }));
    }

    #[test]
    fn address_space_limit_leaves_most_to_the_program() {
        assert!(child_says(|| {
            let limit = libc::rlimit {
                rlim_cur: 1 << 30,
                rlim_max: 1 << 30,
            };
            // SAFETY: `limit` is readable.
            unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
            let mut reservation = Reservation::new(16 << 30).unwrap();
            reservation.len == 64 << 20 && reservation.grow(64 << 20)
        }));
    }
}
