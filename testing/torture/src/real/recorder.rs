//! Latest actions of a node, in memory that survives it.
//!
//! ```text
//!   node: line ---> | ... newest|oldest ... |  <--- read after a fault: director
//!                   `---- one memfd --------'
//! ```
//!
//! Owns: the memory that both processes have mapped.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Recorder of a node, in either process.
#[derive(Debug)]
pub(crate) struct Recorder {
    map: NonNull<Page>,
}

/// The mapped memory.
struct Page {
    /// Bytes written so far.
    end: AtomicU64,
    bytes: [AtomicU8; ROOM],
}

// SAFETY: all of it is atomic.
unsafe impl Send for Recorder {}
// SAFETY: as above.
unsafe impl Sync for Recorder {}

/// Makes memory for a recorder, which a child can inherit.
pub(crate) fn memory() -> io::Result<OwnedFd> {
    // SAFETY: a C string and a flag.
    let fd = unsafe { libc::memfd_create(c"torture-recorder".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let file = File::from(fd.try_clone()?);
    file.set_len(size_of::<Page>() as u64)?;
    Ok(fd)
}

impl Recorder {
    /// Maps the memory of [`memory`]. It stays mapped as long as this value lives.
    pub(crate) fn open(fd: &impl AsRawFd) -> io::Result<Self> {
        let how = libc::PROT_READ | libc::PROT_WRITE;
        let len = size_of::<Page>();
        // SAFETY: new pages, backed by the file.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                how,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(map.cast::<Page>()) {
            Some(page) if map != libc::MAP_FAILED => Ok(Self { map: page }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped as long as this value lives, and every bit pattern is a page.
        unsafe { self.map.as_ref() }
    }

    /// Adds a line. Any thread may call it; lines of two threads do not mix.
    pub(crate) fn line(&self, text: &[u8]) {
        let text = &text[..text.len().min(LONGEST)];
        let page = self.page();
        let len = text.len() as u64 + 1;
        let from = page.end.fetch_add(len, Ordering::Relaxed);
        for (at, byte) in text.iter().chain(b"\n").enumerate() {
            let at = (from as usize).wrapping_add(at) % ROOM;
            page.bytes[at].store(*byte, Ordering::Relaxed);
        }
    }

    /// Returns the lines that are still there, oldest first.
    pub(crate) fn text(&self) -> String {
        let page = self.page();
        let end = page.end.load(Ordering::Relaxed) as usize;
        let begin = end.saturating_sub(ROOM);
        let byte = |at: usize| page.bytes[at % ROOM].load(Ordering::Relaxed);
        let bytes: Vec<u8> = (begin..end).map(byte).collect();
        let text = String::from_utf8_lossy(&bytes);
        match text.split_once('\n') {
            // The first line has lost its beginning.
            Some((_, rest)) if begin > 0 => rest.to_owned(),
            _ => text.into_owned(),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, all of it.
        unsafe { libc::munmap(self.map.as_ptr().cast(), size_of::<Page>()) };
    }
}

const ROOM: usize = 1 << 18;
const LONGEST: usize = 400;

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_last_lines_are_read_by_another_who_has_it() {
        let fd = memory().unwrap();
        let (writer, reader) = (Recorder::open(&fd).unwrap(), Recorder::open(&fd).unwrap());
        writer.line(b"first");
        writer.line(b"second");
        assert_eq!(reader.text(), "first\nsecond\n");
        for n in 0..100_000 {
            writer.line(format!("line {n}").as_bytes());
        }
        let text = reader.text();
        assert!(text.starts_with("line ") && text.ends_with("line 99999\n"));
        assert!(text.len() <= ROOM && text.len() > ROOM - 20);
    }
}
