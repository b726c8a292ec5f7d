//! Telling a forked child from its parent without a system call.
//!
//! ```text
//!   parent:  page [ 1 ]  --fork-->  child:  page [ 0 ]      MADV_WIPEONFORK
//! ```
//!
//! A child has copies of the parent's sockets and maps the parent's shared memory, but none of its
//! threads: it must leave the parent's instances alone and open its own.
//!
//! Owns: one page, unmapped when it is dropped.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Remembers which process made it.
#[derive(Debug)]
pub struct ForkMark {
    /// 1 in the process that made it and 0 in its children; `None` where the kernel cannot do it.
    page: Option<NonNull<AtomicU32>>,
    pid: libc::pid_t,
}

// SAFETY: the page is only ever read after it has been set up.
unsafe impl Send for ForkMark {}
// SAFETY: as above; the word is atomic.
unsafe impl Sync for ForkMark {}

/// The smallest a page can be; the kernel rounds up.
const PAGE: usize = 4096;

impl ForkMark {
    /// Marks this process.
    pub fn new() -> Self {
        // SAFETY: no pointers.
        let pid = unsafe { libc::getpid() };
        Self {
            page: wiped_page(),
            pid,
        }
    }

    /// True in the process that made the mark, false in its children.
    #[inline]
    pub fn is_mine(&self) -> bool {
        match self.page {
            // SAFETY: mapped until `drop`, and aligned as a page is.
            Some(page) => unsafe { page.as_ref() }.load(Ordering::Relaxed) == 1,
            // SAFETY: no pointers.
            None => unsafe { libc::getpid() == self.pid },
        }
    }
}

impl Default for ForkMark {
    fn default() -> Self {
        Self::new()
    }
}

/// A page that holds 1 here and 0 in children.
fn wiped_page() -> Option<NonNull<AtomicU32>> {
    // SAFETY: a fresh private mapping wherever the kernel likes.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping made above, all of it.
    if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above; nobody has a pointer into it.
        unsafe { libc::munmap(page, PAGE) };
        return None;
    }
    let word = NonNull::new(page.cast::<AtomicU32>())?;
    // SAFETY: mapped, writable, and aligned as a page is.
    unsafe { word.as_ref() }.store(1, Ordering::Relaxed);
    Some(word)
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // SAFETY: the mapping `wiped_page` made; `self` was its only user.
            unsafe { libc::munmap(page.as_ptr().cast(), PAGE) };
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
    fn a_child_sees_that_the_mark_is_its_parents() {
        let mut mark = ForkMark::new();
        assert!(mark.page.is_some(), "this kernel wipes pages on fork");
        assert!(mark.is_mine());
        assert!(!in_child(&mark));
        assert!(mark.is_mine());
        // The way without the page gives the same answers.
        let page = mark.page.take();
        assert!(mark.is_mine());
        assert!(!in_child(&mark));
        mark.page = page;
    }
}
