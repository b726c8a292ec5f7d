//! Fork detection without a system call, and locks that a child can use.
//!
//! ```text
//!   parent:  page [ 1 ]  --fork-->  child:  page [ 0 ]  --claim-->  [ 1 ]     MADV_WIPEONFORK
//!
//!   another thread holds a lock ...releases it
//!   fork() takes it --------------------------> forks --+--> parent: releases it
//!                                                       `--> child: resets the value for itself,
//!                                                                   releases it
//! ```
//!
//! A child has copies of the parent's sockets and maps the parent's memory, but has none of its other threads: a lock
//! held by one of them would never be released. So all locks are taken before a fork, engine locks first, because other
//! locks are taken under them.
//!
//! Owns: one page per mark, unmapped on drop; the lists of locks.

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::cell::RefCell;
use std::fmt;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Process-wide lock that `fork` waits for, so that the child finds it free and its value consistent. Hold it only
/// briefly, and not while taking another one.
///
/// Cost: a mutex of the standard library, and one atomic load.
pub struct ForkLock<T: 'static> {
    value: Mutex<T>,
    listed: AtomicBool,
    in_child: fn(&mut T),
}

/// Lock that the forking thread takes before `fork` and releases after it, in the parent and in the child.
pub trait ForkHold: Sync {
    /// Takes the lock until the returned value is dropped.
    fn hold(&'static self) -> Box<dyn Held>;
}

/// Lock held by the forking thread; dropping it releases the lock.
pub trait Held {
    /// Resets the value in the child. May use only memory that already exists, and system calls that are allowed in a
    /// signal handler.
    fn in_child(&mut self);
}

/// Locks under which [`ForkLock`]s may be taken; none of them is taken under another.
static OUTER: Mutex<Vec<&'static dyn ForkHold>> = Mutex::new(Vec::new());

/// [`ForkLock`]s that have been used.
static LISTED: Mutex<Vec<&'static dyn ForkHold>> = Mutex::new(Vec::new());

thread_local! {
    /// Locks that this thread holds while it forks.
    static HELD: RefCell<Vec<Box<dyn Held>>> = const { RefCell::new(Vec::new()) };
}

impl<T: Send> ForkLock<T> {
    /// Creates a lock on `value`; a child keeps its copy unchanged.
    pub const fn new(value: T) -> Self {
        Self::inherited(value, |_| {})
    }

    /// Creates a lock on `value`; after a fork the child calls `in_child` on its copy before the lock is released
    /// ([`Held::in_child`]).
    pub const fn inherited(value: T, in_child: fn(&mut T)) -> Self {
        Self {
            value: Mutex::new(value),
            listed: AtomicBool::new(false),
            in_child,
        }
    }

    /// Acquires the lock, waiting for it if necessary; the first call also lists it as one that `fork` takes. A holder
    /// that panicked does not poison it.
    pub fn lock(&'static self) -> MutexGuard<'static, T> {
        if !self.listed.load(Ordering::Acquire) {
            self.list();
        }
        unpoisoned(&self.value)
    }

    #[cold]
    fn list(&'static self) {
        let mut listed = unpoisoned(&LISTED);
        if !self.listed.load(Ordering::Acquire) {
            register();
            listed.push(self);
            self.listed.store(true, Ordering::Release);
        }
    }
}

impl<T> fmt::Debug for ForkLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkLock").finish_non_exhaustive()
    }
}

impl<T: Send> ForkHold for ForkLock<T> {
    fn hold(&'static self) -> Box<dyn Held> {
        Box::new(Taken {
            value: unpoisoned(&self.value),
            in_child: self.in_child,
        })
    }
}

struct Taken<T: 'static> {
    value: MutexGuard<'static, T>,
    in_child: fn(&mut T),
}

impl<T> Held for Taken<T> {
    fn in_child(&mut self) {
        (self.in_child)(&mut self.value);
    }
}

/// The lists themselves, which a child keeps unchanged.
impl Held for MutexGuard<'static, Vec<&'static dyn ForkHold>> {
    fn in_child(&mut self) {}
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes `fork` take this lock, too, before any [`ForkLock`], because its holder may take such locks. Call it without
/// holding a lock.
pub fn hold_outer(lock: &'static dyn ForkHold) {
    let mut outer = unpoisoned(&OUTER);
    register();
    outer.push(lock);
}

/// Installs the `fork` handlers. Called with one of the lists locked.
fn register() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if REGISTERED.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the functions are never unloaded; they take and release locks and do not unwind.
    let code = unsafe { libc::pthread_atfork(Some(hold), Some(let_go), Some(inherit)) };
    if code != 0 {
        log::debug!("pthread_atfork: error {code}: a fork may leave locks held in the child");
    }
}

extern "C" fn hold() {
    // A thread that is ending has no thread-local storage left for the guards, and forks without them.
    let _ = HELD.try_with(|held| {
        if let Ok(mut held) = held.try_borrow_mut() {
            let outer = unpoisoned(&OUTER);
            held.extend(outer.iter().map(|lock| lock.hold()));
            // After the outer ones: the holder of an outer lock may be about to list a lock.
            let listed = unpoisoned(&LISTED);
            held.extend(listed.iter().map(|lock| lock.hold()));
            held.push(Box::new(listed));
            held.push(Box::new(outer));
        }
    });
}

extern "C" fn let_go() {
    let held = HELD.try_with(|held| {
        held.try_borrow_mut()
            .map(|mut held| std::mem::take(&mut *held))
    });
    drop(held);
}

extern "C" fn inherit() {
    let _ = HELD.try_with(|held| {
        if let Ok(mut held) = held.try_borrow_mut() {
            held.iter_mut().for_each(|lock| lock.in_child());
        }
    });
    let_go();
}

/// Mark that tells the process that created it from its children.
#[derive(Debug)]
pub struct ForkMark {
    /// Page whose word is 1 in the creating process and 0 in its children; `None` where the kernel lacks
    /// `MADV_WIPEONFORK`.
    page: Option<NonNull<AtomicU32>>,
    pid: AtomicI32,
}

// SAFETY: the page stays mapped, and its word is atomic.
unsafe impl Send for ForkMark {}
// SAFETY: as above; the word is atomic.
unsafe impl Sync for ForkMark {}

/// Smallest page size; the kernel rounds up.
const PAGE: NonZero<usize> = NonZero::new(4096).unwrap();

impl ForkMark {
    /// Creates the mark of this process.
    pub fn new() -> Self {
        // SAFETY: no pointers.
        let pid = unsafe { libc::getpid() };
        Self {
            page: wiped_page(),
            pid: AtomicI32::new(pid),
        }
    }

    /// Returns true in the process that created or claimed the mark, false in its children. No system call, except on
    /// kernels without `MADV_WIPEONFORK`.
    #[inline]
    pub fn is_mine(&self) -> bool {
        match self.page {
            // SAFETY: mapped until `drop`, and aligned as a page is.
            Some(page) => unsafe { page.as_ref() }.load(Ordering::Acquire) == 1,
            // SAFETY: no pointers.
            None => unsafe { libc::getpid() == self.pid.load(Ordering::Acquire) },
        }
    }

    /// Makes the mark this process's, once a child has taken over what it inherited: [`Self::is_mine`] returns true in
    /// it from now on.
    pub fn claim(&self) {
        match self.page {
            // SAFETY: as in `is_mine`; writable in this process, whose page it is.
            Some(page) => unsafe { page.as_ref() }.store(1, Ordering::Release),
            // SAFETY: no pointers.
            None => self.pid.store(unsafe { libc::getpid() }, Ordering::Release),
        }
    }
}

impl Default for ForkMark {
    fn default() -> Self {
        Self::new()
    }
}

/// Maps a page whose word is 1 here and becomes 0 in children.
fn wiped_page() -> Option<NonNull<AtomicU32>> {
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a fresh private mapping wherever the kernel likes.
    let page = unsafe { mmap_anonymous(None, PAGE, access, MapFlags::MAP_PRIVATE) }.ok()?;
    // SAFETY: the mapping made above, all of it.
    if unsafe { madvise(page, PAGE.get(), MmapAdvise::MADV_WIPEONFORK) }.is_err() {
        // SAFETY: as above; there is no pointer into it.
        let _ = unsafe { munmap(page, PAGE.get()) };
        return None;
    }
    let word = page.cast::<AtomicU32>();
    // SAFETY: mapped, writable, and aligned as a page is.
    unsafe { word.as_ref() }.store(1, Ordering::Relaxed);
    Some(word)
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // SAFETY: the mapping `wiped_page` made; `self` was its only user.
            let _ = unsafe { munmap(page.cast(), PAGE.get()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_child(mark: &ForkMark) -> bool {
        // SAFETY: the child only reads a word and calls `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let code = i32::from(mark.is_mine());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status) == 1
    }

    #[test]
    fn child_finds_a_contended_lock_free() {
        static LOCK: ForkLock<(u64, u64)> = ForkLock::new((0, 0));
        // A lock is listed at its first use.
        drop(LOCK.lock());
        let over = AtomicBool::new(false);
        let ends: Vec<_> = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let mut pair = LOCK.lock();
                        pair.0 += 1;
                        std::thread::yield_now();
                        pair.1 += 1;
                        drop(pair);
                        std::thread::yield_now();
                    }
                });
            }
            let ends = (0..20).map(|_| end_of_child(|| consistent(&LOCK)));
            let ends = ends.collect();
            over.store(true, Ordering::Relaxed);
            ends
        });
        assert_eq!(ends, [Some(0); 20]);
    }

    fn consistent(lock: &'static ForkLock<(u64, u64)>) -> bool {
        let pair = lock.lock();
        pair.0 == pair.1
    }

    /// Returns the exit status of a child that exits with 0 if `holds`; it has 20 seconds.
    fn end_of_child(holds: impl FnOnce() -> bool) -> Option<i32> {
        // SAFETY: the child sets an alarm, calls `holds`, and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: no pointers; it ends a child that hangs.
            unsafe { libc::alarm(20) };
            let code = i32::from(!holds());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        (pid > 0 && ended == pid).then_some(status)
    }

    #[test]
    fn a_child_does_at_once_with_its_copy_what_it_is_told() {
        static LOCK: ForkLock<u32> = ForkLock::inherited(1, |value| *value = 7);
        *LOCK.lock() = 2;
        assert_eq!(end_of_child(|| *LOCK.lock() == 7), Some(0));
        assert_eq!(*LOCK.lock(), 2);
    }

    #[test]
    fn outer_locks_are_taken_before_those_listed_under_them() {
        struct Outer(Mutex<u64>);
        impl ForkHold for Outer {
            fn hold(&'static self) -> Box<dyn Held> {
                Box::new(OuterHeld {
                    value: unpoisoned(&self.0),
                })
            }
        }
        struct OuterHeld {
            value: MutexGuard<'static, u64>,
        }
        impl Held for OuterHeld {
            fn in_child(&mut self) {
                *self.value = 0;
            }
        }
        static OUTER: Outer = Outer(Mutex::new(1));
        static INNER: ForkLock<u64> = ForkLock::new(0);
        hold_outer(&OUTER);
        let over = AtomicBool::new(false);
        let ends: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut outer = unpoisoned(&OUTER.0);
                    std::thread::yield_now();
                    *INNER.lock() += 1;
                    *outer += 1;
                    drop(outer);
                    std::thread::yield_now();
                }
            });
            let whole = || *unpoisoned(&OUTER.0) == 0 && *INNER.lock() < u64::MAX;
            let ends = (0..20).map(|_| end_of_child(whole)).collect();
            over.store(true, Ordering::Relaxed);
            ends
        });
        assert_eq!(ends, [Some(0); 20]);
        assert!(*unpoisoned(&OUTER.0) > 0);
    }

    #[test]
    fn child_claims_the_mark_and_its_own_child_sees_that() {
        for paged in [true, false] {
            let mut mark = ForkMark::new();
            let page = if paged { None } else { mark.page.take() };
            let claimed = end_of_child(|| {
                let before = mark.is_mine();
                mark.claim();
                !before && mark.is_mine() && !in_child(&mark)
            });
            assert_eq!(claimed, Some(0));
            assert!(mark.is_mine());
            mark.page = mark.page.take().or(page);
        }
    }

    #[test]
    fn a_child_sees_that_the_mark_is_its_parents() {
        let mut mark = ForkMark::new();
        assert!(mark.page.is_some(), "this kernel wipes pages on fork");
        assert!(mark.is_mine());
        assert!(!in_child(&mark));
        assert!(mark.is_mine());
        // The fallback without the page gives the same answers.
        let page = mark.page.take();
        assert!(mark.is_mine());
        assert!(!in_child(&mark));
        mark.page = page;
    }
}
