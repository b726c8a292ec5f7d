//! Memory shared between processes: a sealed `memfd`, mapped.
//!
//! ```text
//!   maker: create --> memfd, sized, sealed --descriptor--> other process: adopt
//!              `--> Region (mapped)                           `--> checks, Region
//! ```
//!
//! The seals make the size final, so that neither side can make the other access memory beyond the end of the file
//! (which would raise `SIGBUS`). The adopting side checks the seals, the size and the kind of file before it maps
//! anything. The memory has no name in any directory: it is freed when the last process that has it ends.
//!
//! Owns: one mapping, unmapped on drop. A child of `fork` does not inherit it.

use crate::close_on_fork::{CloseOnFork, CloseOnForkFd};
use crate::file_size::grow;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
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

/// Reasons why a peer's memory is not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealError {
    /// The file's size can still change.
    Unsealed,
    /// The file's actual size in bytes, which is not the size announced by the peer.
    WrongSize(u64),
    /// The file is not on tmpfs (huge pages can run out while in use).
    WrongKind,
    /// Mapping failed with this error number.
    Map(i32),
}

impl fmt::Display for SealError {
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
    /// Creates `len` bytes of zeroed shared memory, whose size can never change, and returns its mapping and the
    /// descriptor to pass to a peer. `/proc` shows it under `name`.
    pub fn create(name: &CStr, len: usize) -> io::Result<(Self, CloseOnForkFd)> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = CloseOnFork::open(|| memfd_create(name, flags))?;
        grow(fd.as_fd(), len)?;
        fcntl(fd.as_fd(), FcntlArg::F_ADD_SEALS(SEALS))?;
        let region = Self::map(&fd, len)?;
        Ok((region, fd))
    }

    /// Maps memory that a peer made with [`Region::create`] and announced as `len` bytes long, after [`check`]. The
    /// mapping does not need the descriptor any more.
    pub fn adopt(fd: &OwnedFd, len: usize) -> Result<Self, SealError> {
        check(fd, len)?;
        Self::map(fd, len).map_err(|error| SealError::Map(error.raw_os_error().unwrap_or(0)))
    }

    /// Returns the address of the first byte. Valid for [`Region::size`] bytes while the region lives; another process
    /// may change the contents at any moment, so no reference may point into it.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the number of bytes mapped.
    pub fn size(&self) -> usize {
        self.len
    }

    fn map(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        let bytes = NonZero::new(len).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, fd, 0) }?;
        // Without kernel support, a child keeps the memory until it ends.
        // SAFETY: the mapping made above, all of it; nothing of it changes in this process.
        let _ = unsafe { madvise(base, len, MmapAdvise::MADV_DONTFORK) };
        let base = base.cast();
        Ok(Self { base, len })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made. Pointers into it from `base` are in fields
        // beside it and are not used again.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

/// Checks that a descriptor is of memory made with [`Region::create`], `len` bytes long, so that no peer can shrink it
/// and make an access fail with SIGBUS.
pub fn check(fd: &OwnedFd, len: usize) -> Result<(), SealError> {
    // Only memory files have seals, so this rejects every other kind of file.
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_retain);
    if !seals.is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(SealError::Unsealed);
    }
    let (Ok(stat), Ok(fs)) = (fstat(fd), fstatfs(fd)) else {
        return Err(SealError::WrongKind);
    };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || fs.filesystem_type() != TMPFS_MAGIC {
        return Err(SealError::WrongKind);
    }
    if stat.st_size != len as libc::off_t {
        return Err(SealError::WrongSize(stat.st_size as u64));
    }
    Ok(())
}

const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::ftruncate;

    fn memfd(flags: MFdFlags, len: i64, seals: SealFlag) -> OwnedFd {
        let fd = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | flags).unwrap();
        ftruncate(fd.as_fd(), len).unwrap();
        if !seals.is_empty() {
            fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        }
        fd
    }

    #[test]
    fn both_sides_see_the_same_bytes() {
        let (ours, fd) = Region::create(c"test", 8192).unwrap();
        let theirs = Region::adopt(&fd, 8192).unwrap();
        assert_eq!((ours.size(), theirs.size()), (8192, 8192));
        // SAFETY: offset 8191 is inside both mappings.
        unsafe {
            ours.base().add(8191).write_volatile(42);
            assert_eq!(theirs.base().add(8191).read_volatile(), 42);
        }
    }

    #[test]
    fn memory_whose_size_can_change_is_refused() {
        let allow = MFdFlags::MFD_ALLOW_SEALING;
        let grow = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        let shrink = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        let not_final = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        for seals in [SealFlag::empty(), grow, shrink, not_final] {
            let fd = memfd(allow, 4096, seals);
            assert_eq!(
                Region::adopt(&fd, 4096).unwrap_err(),
                SealError::Unsealed,
                "{seals:?}"
            );
        }
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let fd = memfd(MFdFlags::MFD_ALLOW_SEALING, 4096, SEALS);
        assert_eq!(
            Region::adopt(&fd, 8192).unwrap_err(),
            SealError::WrongSize(4096)
        );
        assert_eq!(
            Region::adopt(&fd, 2048).unwrap_err(),
            SealError::WrongSize(4096)
        );
    }

    #[test]
    fn what_is_not_memory_is_refused() {
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert_eq!(Region::adopt(&file, 4096).unwrap_err(), SealError::Unsealed);
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert_eq!(Region::adopt(&null, 0).unwrap_err(), SealError::Unsealed);
    }

    #[test]
    fn memory_that_is_sealed_against_writing_is_refused_not_mapped() {
        let fd = memfd(
            MFdFlags::MFD_ALLOW_SEALING,
            4096,
            SealFlag::F_SEAL_WRITE | SEALS,
        );
        assert_eq!(
            Region::adopt(&fd, 4096).unwrap_err(),
            SealError::Map(libc::EPERM)
        );
    }
}
