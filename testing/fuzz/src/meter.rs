//! Bytes of heap, by owner.
//!
//! ```text
//!   within(1, || port.poll(..))      allocations of the port
//!       |- within(0, || ...)         allocations of the sink meanwhile: not counted
//!       `- mx_sim::aside(|| ...)     allocations of the datagram service: not counted
//! ```
//!
//! The allocator of every program that links this crate. An owner must not free another one's
//! memory, or hand its own over, or the accounts would be wrong.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Maximum number of owners; 0 stands for none.
const OWNERS: usize = 4;

thread_local! {
    static OWNER: Cell<usize> = const { Cell::new(0) };
    static ACCOUNTS: [Cell<isize>; OWNERS] = const { [const { Cell::new(0) }; OWNERS] };
}

/// Runs `what` for the account of `owner`.
pub(crate) fn within<T>(owner: usize, what: impl FnOnce() -> T) -> T {
    struct Back(usize);
    impl Drop for Back {
        fn drop(&mut self) {
            OWNER.set(self.0);
        }
    }
    let _back = Back(OWNER.replace(owner));
    what()
}

/// Resets all accounts.
pub(crate) fn clear() {
    ACCOUNTS.with(|accounts| accounts.iter().for_each(|account| account.set(0)));
}

/// Returns the bytes that `owner` has allocated and not freed.
pub(crate) fn held(owner: usize) -> isize {
    ACCOUNTS.with(|accounts| accounts[owner].get())
}

fn note(bytes: isize) {
    // An ending thread no longer has accounts.
    let owner = OWNER.try_with(Cell::get).unwrap_or(0);
    if owner != 0 && !mx_sim::is_aside() {
        let _ = ACCOUNTS.try_with(|accounts| {
            if let Some(account) = accounts.get(owner) {
                account.set(account.get() + bytes);
            }
        });
    }
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every method passes its arguments on to `System` and returns what that returns; counting
// allocates nothing and does not unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as isize - layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_taken_for_an_owner_is_on_its_account() {
        clear();
        let mut kept = within(1, || Vec::<u8>::with_capacity(1000));
        let other = within(0, || vec![0u8; 500]);
        assert_eq!((held(0), held(1), other.len()), (0, 1000, 500));
        within(1, || kept.reserve_exact(3000));
        assert_eq!(held(1), 3000);
        within(1, || drop(kept));
        assert_eq!(held(1), 0);
    }
}
