//! Memory reserved for work in progress when the process has no more.
//!
//! ```text
//!   alloc ---> System has some ----------------------------------------> fine
//!                `- none: release a piece to System, retry, ... -------> fine, and the level falls
//!
//!   reserved:   [ FLOOR ][ what tables may grow to: claims ]      pieces, mapped, not touched
//!   level:      Critical while more than half a floor is missing, Short until three quarters of one are there again
//! ```
//!
//! The libraries reject new work while part of the reserve is missing (`mx_proto::supply`), and each check of the level
//! first tries to refill it. The reserve therefore only has to last for work in progress, whose allocations then need
//! not fail.
//!
//! [`Reserve`] is the allocator of the libraries that programs load ([`library_allocator`]): Rust programs and tests
//! have their own, for which the level is always ample.
//!
//! Owns: the pieces.
//! Cost: only address space, while there is memory; the pages are never written.

use mx_port_base::clock::MonotonicClock;
use mx_proto::supply::{MemoryLevel, Supply};
use mx_proto::{Clock, Instant};
use parking_lot::{Condvar, Mutex};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Functions by which endpoints ask for the level of memory and claim parts of this library's reserve.
pub const SUPPLY: Supply = Supply {
    level,
    claim,
    release,
};

/// Size of a piece, in bytes.
const PIECE: usize = 64 << 10;
/// Minimum reserve, in bytes: for the packets of one poll, and for the tables without a claim.
const FLOOR: usize = 8 << 20;
/// Maximum number of pieces. Claims beyond a GiB are granted but not reserved.
const PIECES: usize = (1 << 30) / PIECE;

/// The pieces; null for none. The lowest bit is set if the piece was mapped, else it came from `System`.
static KEPT: [AtomicPtr<u8>; PIECES] = [const { AtomicPtr::new(ptr::null_mut()) }; PIECES];
/// Number of pieces.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Bytes claimed.
static CLAIMED: AtomicUsize = AtomicUsize::new(0);
/// Whether [`Reserve`] is the allocator.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// Whether the reserve is in use, between [`fill`] and [`empty`].
static ON: AtomicBool = AtomicBool::new(false);
/// Whether part of the reserve is missing.
static SPENT: AtomicBool = AtomicBool::new(false);
/// Whether a thread is refilling the reserve.
static RECOVERING: AtomicBool = AtomicBool::new(false);
/// Time of the last warning, in nanoseconds; 0: none.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Global allocator over `System` that uses up the reserve when the process has no other memory.
#[derive(Debug)]
pub struct Reserve;

/// Makes [`Reserve`] the allocator of a library.
#[macro_export]
macro_rules! library_allocator {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::Reserve = $crate::Reserve;

        $crate::on_load!($crate::install());
    };
}

/// Evaluates an expression when its library is loaded, before the first call.
#[macro_export]
macro_rules! on_load {
    ($what:expr) => {
        const _: () = {
            extern "C" fn install() {
                $what;
            }

            // SAFETY: the loader calls functions without arguments from there.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static INSTALL: extern "C" fn() = install;
        };
    };
}

/// Records that [`Reserve`] is this library's global allocator; without this call [`fill`] does nothing.
pub fn install() {
    INSTALLED.store(true, Ordering::Relaxed);
}

// SAFETY: all memory comes from `System`, and returns there.
unsafe impl GlobalAlloc for Reserve {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        ask(layout.size(), || unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        ask(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise; a failure leaves `memory` unchanged.
        let realloc = || unsafe { System.realloc(memory, layout, size) };
        ask(size.saturating_sub(layout.size()), realloc)
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Allocates `size` more bytes from `System`, or from the reserve if that fails. Null if both fail.
#[inline]
fn ask(size: usize, system: impl Fn() -> *mut u8) -> *mut u8 {
    let memory = system();
    if memory.is_null() {
        spend(size, system)
    } else {
        memory
    }
}

/// Releases pieces until `System` has `size` more bytes. Null if that fails.
#[cold]
fn spend(size: usize, again: impl Fn() -> *mut u8) -> *mut u8 {
    SPENT.store(ON.load(Ordering::Relaxed), Ordering::Relaxed);
    // A request that cannot be met must not use up the reserve.
    if size > COUNT.load(Ordering::Relaxed) * PIECE {
        return ptr::null_mut();
    }
    for slot in KEPT.iter().rev() {
        if give_back(slot) {
            let memory = again();
            if !memory.is_null() {
                return memory;
            }
        }
    }
    ptr::null_mut()
}

/// Makes the C library allocate the calling thread's per-thread state, which it would otherwise do when the thread
/// first blocks on a lock, and abort without memory.
pub fn prepare_thread() {
    let lock = Mutex::new(());
    Condvar::new().wait_for(&mut lock.lock(), Duration::ZERO);
}

/// Begins to reserve memory. Does nothing unless [`Reserve`] is the allocator.
pub fn fill() {
    if !INSTALLED.load(Ordering::Relaxed) {
        return;
    }
    ON.store(true, Ordering::Relaxed);
    // After a fork, the child may lack the thread that was recovering.
    RECOVERING.store(false, Ordering::Relaxed);
    if !top_up() {
        SPENT.store(true, Ordering::Relaxed);
    }
}

/// Returns the reserved memory to the system, when the library ends; [`fill`] reserves it again.
pub fn empty() {
    ON.store(false, Ordering::Relaxed);
    SPENT.store(false, Ordering::Relaxed);
    for slot in &KEPT {
        give_back(slot);
    }
}

/// Returns how much memory is left for new work: always ample while no part of the reserve has been used. Otherwise
/// first tries to refill the reserve.
pub fn level() -> MemoryLevel {
    if SPENT.load(Ordering::Relaxed) {
        recover()
    } else {
        MemoryLevel::Ample
    }
}

#[cold]
fn recover() -> MemoryLevel {
    // One thread at a time: others must not take the memory left to the C library.
    if RECOVERING.swap(true, Ordering::Acquire) {
        return by_missing();
    }
    let level = recover_alone();
    RECOVERING.store(false, Ordering::Release);
    level
}

fn recover_alone() -> MemoryLevel {
    if top_up() {
        if SPENT.swap(false, Ordering::Relaxed) {
            tell("there is memory again");
        }
        return MemoryLevel::Ample;
    }
    tell("memory has run out: nothing new is taken on");
    by_missing()
}

/// Returns the level while part of the reserve is missing.
fn by_missing() -> MemoryLevel {
    if missing() > FLOOR / 2 {
        MemoryLevel::Critical
    } else {
        MemoryLevel::Short
    }
}

/// Logs a change, but not often: at the limit the level changes all the time.
fn tell(what: &str) {
    let now = MonotonicClock.now().0.max(1);
    let told = TOLD.load(Ordering::Relaxed);
    let often = told != 0 && Instant(now).since(Instant(told)) < TELL_EVERY;
    if often || TOLD.swap(now, Ordering::Relaxed) != told {
        return;
    }
    // Leave a piece to the C library, since this thread may not be prepared. Not at each call, which would use up the
    // reserve. SAFETY: the size is not 0.
    let some = unsafe { Reserve.alloc(SOME) };
    if !some.is_null() {
        // SAFETY: allocated above.
        unsafe { Reserve.dealloc(some, SOME) };
        log::warn!("{what}");
    }
}

const TELL_EVERY: Duration = Duration::from_secs(10);

/// Reserves `bytes` more. Grants them only if as much memory as all claims is available besides: tables that have grown
/// keep their memory, and the claims must be reserved again after that.
fn claim(bytes: usize) -> bool {
    let all = CLAIMED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    let granted = !ON.load(Ordering::Relaxed) || (alone() && top_up() && can_map(all));
    if !granted {
        release(bytes);
    }
    granted
}

/// Returns whether no other thread is refilling the reserve.
fn alone() -> bool {
    !SPENT.load(Ordering::Relaxed) || !RECOVERING.load(Ordering::Acquire)
}

fn release(bytes: usize) {
    CLAIMED.fetch_sub(bytes, Ordering::Relaxed);
    for slot in KEPT.iter().rev() {
        if COUNT.load(Ordering::Relaxed) <= wanted() {
            break;
        }
        give_back(slot);
    }
}

/// Returns the number of pieces to reserve.
fn wanted() -> usize {
    let bytes = FLOOR.saturating_add(CLAIMED.load(Ordering::Relaxed));
    bytes.div_ceil(PIECE).min(PIECES)
}

/// Returns the number of bytes missing.
fn missing() -> usize {
    wanted().saturating_sub(COUNT.load(Ordering::Relaxed)) * PIECE
}

/// Refills the reserve. Returns false if too much is missing still. (If memory has become free in small pieces, the
/// last pieces may never be available.)
fn top_up() -> bool {
    // SAFETY: the size is not 0.
    let some = unsafe { System.alloc(SOME) };
    if some.is_null() {
        return false;
    }
    for slot in &KEPT[..wanted()] {
        if missing() == 0 || (slot.load(Ordering::Relaxed).is_null() && !keep(slot)) {
            break;
        }
    }
    // SAFETY: allocated above.
    unsafe { System.dealloc(some, SOME) };
    missing() <= FLOOR / 4
}

/// Puts a piece into an empty slot. Returns false without memory.
fn keep(slot: &AtomicPtr<u8>) -> bool {
    let mapped = map(PIECE);
    let piece = if mapped.is_null() {
        // Freed memory need not have returned to the kernel, so try the C library. SAFETY: the size is not 0.
        unsafe { System.alloc(LAYOUT) }
    } else {
        mapped.map_addr(|address| address | MAPPED)
    };
    if piece.is_null() {
        return false;
    }
    let nothing = ptr::null_mut();
    // Counted first, because taking a piece out decrements the count.
    COUNT.fetch_add(1, Ordering::Relaxed);
    let kept = slot.compare_exchange(nothing, piece, Ordering::AcqRel, Ordering::Relaxed);
    if kept.is_err() {
        // Another thread has filled the slot.
        COUNT.fetch_sub(1, Ordering::Relaxed);
        free(piece);
    }
    true
}

/// Releases the piece of a slot. Returns false if there is none.
fn give_back(slot: &AtomicPtr<u8>) -> bool {
    if slot.load(Ordering::Relaxed).is_null() {
        return false;
    }
    let piece = slot.swap(ptr::null_mut(), Ordering::AcqRel);
    if piece.is_null() {
        return false;
    }
    COUNT.fetch_sub(1, Ordering::Relaxed);
    free(piece);
    true
}

fn free(piece: *mut u8) {
    if piece.addr() & MAPPED == 0 {
        // SAFETY: it came from `System`, with this layout.
        unsafe { System.dealloc(piece, LAYOUT) };
    } else {
        unmap(piece.map_addr(|address| address & !MAPPED), PIECE);
    }
}

/// Returns whether `bytes` bytes could be mapped.
fn can_map(bytes: usize) -> bool {
    let memory = map(bytes);
    if !memory.is_null() {
        unmap(memory, bytes);
    }
    !memory.is_null()
}

/// Maps memory directly, because the C library's allocator adapts to frees. Null without memory.
fn map(bytes: usize) -> *mut u8 {
    // SAFETY: new memory at an address that the kernel chooses.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        ptr::null_mut()
    } else {
        memory.cast()
    }
}

fn unmap(memory: *mut u8, bytes: usize) {
    // SAFETY: it was mapped with this size, and is not in use.
    unsafe { libc::munmap(memory.cast(), bytes) };
}

/// Memory left to the C library, which may abort if an allocation fails.
const SOME: Layout = Layout::new::<[u64; 2 << 10]>();

/// Set in the address of a piece that was mapped.
const MAPPED: usize = 1;
const LAYOUT: Layout = Layout::new::<[u64; PIECE / 8]>();
