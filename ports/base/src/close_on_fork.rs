//! Descriptors that a child of `fork` does not have: what POSIX.1-2024 calls `FD_CLOFORK`, which Linux
//! lacks.
//!
//! ```text
//!   open ---> number listed, both under one lock        fork: takes the lock
//!   drop ---> taken off and closed, likewise            child: closes all that are listed
//! ```
//!
//! A child that merely lives would otherwise keep what others can see: a name that is listened at, a
//! connection whose end no peer would notice. What has such a descriptor in the child must not be used
//! or dropped there.
//!
//! Owns: the list of numbers.
//! Not here: descriptors that are closed again in the call that opens them.
//! Cost: a lock to open and to close; a fork with n descriptors costs the child n system calls.

use crate::fork::ForkLock;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::MutexGuard;

/// A descriptor that is closed in a child of `fork`, and when it is dropped.
pub struct CloseOnFork<F> {
    number: RawFd,
    fd: ManuallyDrop<F>,
}

/// The usual kind.
pub type CloseOnForkFd = CloseOnFork<OwnedFd>;

/// Numbers of descriptors, one bit each.
struct Numbers(Vec<u64>);

static OPEN: ForkLock<Numbers> = ForkLock::inherited(Numbers(Vec::new()), Numbers::close_all);

/// No fork happens while this exists: for descriptors that come in another way than by a call which
/// returns one. To be held for a system call.
pub struct NoFork(MutexGuard<'static, Numbers>);

/// See [`NoFork`].
pub fn no_fork() -> NoFork {
    NoFork(OPEN.lock())
}

impl NoFork {
    /// Lists a descriptor that has been made since. Fails when there is no memory for that.
    pub fn keep<F: AsFd>(&mut self, fd: F) -> io::Result<CloseOnFork<F>> {
        let number = fd.as_fd().as_raw_fd();
        self.0.insert(number)?;
        let fd = ManuallyDrop::new(fd);
        Ok(CloseOnFork { number, fd })
    }
}

impl fmt::Debug for NoFork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoFork")
    }
}

impl<F: AsFd> CloseOnFork<F> {
    /// The descriptor that `open` makes.
    pub fn open<E: Into<io::Error>>(open: impl FnOnce() -> Result<F, E>) -> io::Result<Self> {
        let mut no_fork = no_fork();
        let fd = open().map_err(E::into)?;
        no_fork.keep(fd)
    }
}

impl<F> Drop for CloseOnFork<F> {
    fn drop(&mut self) {
        let mut open = OPEN.lock();
        if open.remove(self.number) {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

impl<F> Deref for CloseOnFork<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fd
    }
}

impl<F> AsRawFd for CloseOnFork<F> {
    fn as_raw_fd(&self) -> RawFd {
        self.number
    }
}

impl<F: AsFd> AsFd for CloseOnFork<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<F: fmt::Debug> fmt::Debug for CloseOnFork<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fd.fmt(f)
    }
}

impl Numbers {
    fn insert(&mut self, fd: RawFd) -> io::Result<()> {
        let Some((word, bit)) = place(fd) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if word >= self.0.len() {
            let more = word + 1 - self.0.len();
            let room = self.0.try_reserve(more);
            room.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
        Ok(())
    }

    /// False when it was not there: it is the parent's, and closed.
    fn remove(&mut self, fd: RawFd) -> bool {
        let Some((word, bit)) = place(fd) else {
            return false;
        };
        let Some(word) = self.0.get_mut(word) else {
            return false;
        };
        let there = *word & bit != 0;
        *word &= !bit;
        there
    }

    fn close_all(&mut self) {
        for (index, word) in self.0.iter_mut().enumerate() {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                let fd = index as RawFd * 64 + bits.trailing_zeros() as RawFd;
                bits &= bits - 1;
                // SAFETY: a descriptor of the parent's that nothing in this process uses.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// The word and the bit of a descriptor.
fn place(fd: RawFd) -> Option<(usize, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((number / 64, 1 << (number % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::FromRawFd;
    use std::os::unix::net::UnixStream;

    /// The word of a child that says whether `holds`.
    fn child_says(holds: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls `holds` and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let code = i32::from(!holds());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        pid > 0 && ended == pid && status == 0
    }

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: no pointers.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn a_child_has_what_is_not_listed_and_nothing_else() {
        let plain = File::open("/dev/null").unwrap();
        // Numbers far apart.
        let listed: Vec<_> = [0, 200, 130]
            .map(|least| {
                CloseOnFork::open(|| {
                    let null = File::open("/dev/null")?;
                    // SAFETY: no pointers; a fresh descriptor comes back.
                    let fd = unsafe { libc::fcntl(null.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
                    assert!(fd >= least);
                    // SAFETY: fresh, not owned elsewhere.
                    Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
                })
                .unwrap()
            })
            .into();
        let numbers: Vec<_> = listed.iter().map(AsRawFd::as_raw_fd).collect();
        assert!(child_says(|| {
            is_open(plain.as_raw_fd()) && numbers.iter().all(|fd| !is_open(*fd))
        }));
        assert!(numbers.iter().all(|fd| is_open(*fd)));
        drop(listed);
        assert!(numbers.iter().all(|fd| !is_open(*fd)));
    }

    #[test]
    fn a_child_that_drops_what_is_closed_closes_nothing() {
        let kept = CloseOnFork::open(|| File::open("/dev/null")).unwrap();
        assert!(child_says(|| {
            // A file of the child's own, at the same number.
            let own = File::open("/dev/null").unwrap();
            // SAFETY: no pointers.
            let fd = unsafe { libc::dup2(own.as_raw_fd(), kept.as_raw_fd()) };
            drop(kept);
            is_open(fd)
        }));
    }

    #[test]
    fn a_peer_sees_the_end_although_a_child_lives() {
        let (a, b) = UnixStream::pair().unwrap();
        let a = CloseOnFork::open(|| Ok::<_, io::Error>(a)).unwrap();
        // SAFETY: the child only sleeps and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: no pointers.
            unsafe {
                libc::sleep(30);
                libc::_exit(0)
            };
        }
        drop(a);
        b.set_read_timeout(Some(std::time::Duration::from_secs(10)))
            .unwrap();
        assert_eq!((&b).read(&mut [0; 1]).unwrap(), 0);
        // SAFETY: a child of ours.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}
