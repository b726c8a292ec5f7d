//! Memory shared between processes: a sealed `memfd`, mapped.
//!
//! ```text
//!   maker: create --> memfd, sized, sealed --descriptor--> other process: adopt
//!              `--> Region (mapped)                           `--> checks, Region
//! ```
//!
//! The seals make the size final, so that neither side can make the other touch memory that is
//! not there (which would end the process with `SIGBUS`). Who adopts it checks them, the size and
//! the kind of file before it maps anything. The memory has no place in any directory: when the
//! last process that has it is gone, it is gone.
//!
//! Owns: one mapping, unmapped on drop.
//! Knows nothing of: what is in it.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Memory shared with other processes, mapped readable and writable.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to the thread that made it, and `Region` only
// gives out raw pointers.
unsafe impl Send for Region {}

/// Why memory that a peer offered is not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// Its size could still change.
    Unsealed,
    /// Not as long as the peer says, by its own account.
    WrongSize(u64),
    /// Not ordinary memory (huge pages can run out while one uses them).
    WrongKind,
    /// The kernel does not map it; the error number.
    Map(i32),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsealed => f.write_str("shared memory is not sealed"),
            Self::WrongSize(size) => write!(f, "shared memory has unexpected size {size}"),
            Self::WrongKind => f.write_str("shared memory is of the wrong kind"),
            Self::Map(errno) => write!(f, "shared memory cannot be mapped: error {errno}"),
        }
    }
}

impl Region {
    /// Makes `len` bytes of zeroed shared memory, whose size can never change. `name` is what
    /// people see in `/proc`.
    pub fn create(name: &CStr, len: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string; the call touches no other memory.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain system call on a descriptor we own.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: plain system call on a descriptor we own.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let region = Self::map(&fd, len)?;
        Ok((region, fd))
    }

    /// Maps memory that a peer made with [`Region::create`] and says to be `len` bytes long.
    pub fn adopt(fd: &OwnedFd, len: usize) -> Result<Self, Unfit> {
        check(fd, len)?;
        Self::map(fd, len).map_err(|error| Unfit::Map(error.raw_os_error().unwrap_or(0)))
    }

    /// First byte. Valid for [`Region::len`] bytes while the region lives; another process may
    /// change what is there at any moment, so nobody makes a reference into it.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    fn map(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made. Whoever has pointers into it from `base`
        // keeps them in fields beside it and does not use them again.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Finds out whether this is memory that somebody made with [`Region::create`], `len` bytes long.
pub fn check(fd: &OwnedFd, len: usize) -> Result<(), Unfit> {
    // Only files that are memory have seals at all, so this refuses everything else.
    // SAFETY: plain system call on a descriptor we own.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS {
        return Err(Unfit::Unsealed);
    }
    // SAFETY: both structures are plain integers, for which all zeroes is a value.
    let (mut stat, mut fs): (libc::stat, libc::statfs) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: `stat` is valid for writing for the time of the call.
    if unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) } < 0 {
        return Err(Unfit::WrongKind);
    }
    // SAFETY: `fs` is valid for writing for the time of the call.
    if unsafe { libc::fstatfs(fd.as_raw_fd(), &raw mut fs) } < 0 {
        return Err(Unfit::WrongKind);
    }
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || fs.f_type != libc::TMPFS_MAGIC {
        return Err(Unfit::WrongKind);
    }
    if stat.st_size != len as libc::off_t {
        return Err(Unfit::WrongSize(stat.st_size as u64));
    }
    Ok(())
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd(flags: u32, len: i64, seals: i32) -> OwnedFd {
        // SAFETY: literal name; fresh descriptor; plain calls on it.
        unsafe {
            let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | flags);
            assert!(fd >= 0);
            let fd = OwnedFd::from_raw_fd(fd);
            assert_eq!(libc::ftruncate(fd.as_raw_fd(), len), 0);
            if seals != 0 {
                assert_eq!(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
            }
            fd
        }
    }

    #[test]
    fn both_sides_see_the_same_bytes() {
        let (ours, fd) = Region::create(c"test", 8192).unwrap();
        let theirs = Region::adopt(&fd, 8192).unwrap();
        assert_eq!((ours.len(), theirs.len()), (8192, 8192));
        // SAFETY: offset 8191 is inside both mappings.
        unsafe {
            ours.base().add(8191).write_volatile(42);
            assert_eq!(theirs.base().add(8191).read_volatile(), 42);
        }
    }

    #[test]
    fn memory_whose_size_can_change_is_refused() {
        let allow = libc::MFD_ALLOW_SEALING;
        let grow = libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        let shrink = libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        let not_final = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        for seals in [0, grow, shrink, not_final] {
            let fd = memfd(allow, 4096, seals);
            assert_eq!(
                Region::adopt(&fd, 4096).unwrap_err(),
                Unfit::Unsealed,
                "{seals}"
            );
        }
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let fd = memfd(libc::MFD_ALLOW_SEALING, 4096, SEALS);
        assert_eq!(
            Region::adopt(&fd, 8192).unwrap_err(),
            Unfit::WrongSize(4096)
        );
        assert_eq!(
            Region::adopt(&fd, 2048).unwrap_err(),
            Unfit::WrongSize(4096)
        );
    }

    #[test]
    fn what_is_not_memory_is_refused() {
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert_eq!(Region::adopt(&file, 4096).unwrap_err(), Unfit::Unsealed);
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert_eq!(Region::adopt(&null, 0).unwrap_err(), Unfit::Unsealed);
    }

    #[test]
    fn memory_that_is_sealed_against_writing_is_refused_not_mapped() {
        let fd = memfd(libc::MFD_ALLOW_SEALING, 4096, libc::F_SEAL_WRITE | SEALS);
        assert_eq!(
            Region::adopt(&fd, 4096).unwrap_err(),
            Unfit::Map(libc::EPERM)
        );
    }
}
