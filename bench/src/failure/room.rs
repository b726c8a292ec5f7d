//! Memory for messages, which the library may write while this program looks at it.

use std::ptr::null_mut;

/// Pages of its own. Everything goes through pointers: no reference to them ever exists.
pub(crate) struct Room {
    base: *mut u8,
    len: usize,
}

impl Room {
    /// At least `len` bytes of zeros.
    pub(crate) fn new(len: usize) -> Result<Self, String> {
        let len = len.max(1);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages, wherever the kernel likes.
        let base = unsafe { libc::mmap(null_mut(), len, access, how, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(format!("no memory for {len} bytes"));
        }
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes all of it. Nothing may be posted here.
    pub(crate) fn fill(&mut self, byte: u8) {
        // SAFETY: the pages are `len` bytes long and ours.
        unsafe { self.base.write_bytes(byte, self.len) };
    }

    /// Before something is received here.
    pub(crate) fn clear_first(&mut self) {
        // SAFETY: at least one byte, and ours.
        unsafe { self.base.write_volatile(0) };
    }

    /// Whether a message has begun to arrive, which must not begin with 0.
    pub(crate) fn begun(&self) -> bool {
        // SAFETY: at least one byte. The library may write it meanwhile, on this thread or on its
        // helper's; either value will do.
        unsafe { self.base.read_volatile() != 0 }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once; nothing is posted here any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
