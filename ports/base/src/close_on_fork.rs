//! Descriptors that a child of `fork` does not inherit: `FD_CLOFORK` of POSIX.1-2024, which Linux lacks.
//!
//! ```text
//!   open ---> number and file listed, both under one lock     fork: takes the lock
//!   drop ---> unlisted and closed, likewise                   child: closes all listed descriptors
//!              `--- if the number still refers to that file ---'
//! ```
//!
//! Otherwise a living child would keep what others can see: a name in use, or a connection whose end no peer would
//! notice. In the child, the owner of such a descriptor must not use it.
//!
//! A host may close descriptors that it does not own (`for (fd = 3; fd < 1024; fd++) close(fd)`) and reuse the numbers
//! for its own files. A socket or regular file is recognised by its inode. Anonymous files (`eventfd`, `epoll`,
//! `timerfd`) share one inode; they are closed only while all recognisable descriptors are intact.
//!
//! Owns: the list of numbers and files.
//! Out of scope: descriptors that are closed again by the call that opens them.
//! Cost: a lock and an `fstat` to open and to close, 16 bytes a number; a fork with n descriptors costs the child up to
//! 3n system calls.

use crate::fork::ForkLock;
use nix::errno::Errno;
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::MutexGuard;

/// Descriptor that is closed on drop, and in a child of `fork`.
pub struct CloseOnFork<F: AsFd>(ManuallyDrop<F>);

/// Owned descriptor that is closed in a child of `fork`.
pub type CloseOnForkFd = CloseOnFork<OwnedFd>;

/// Listed files, indexed by descriptor number.
struct Numbers(Vec<Entry>);

/// File listed for a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// The number is not ours.
    Free,
    /// A file of unknown identity: a seccomp filter refuses `fstat`.
    Unknown,
    /// A file without an inode of its own, such as an `eventfd`.
    Anonymous,
    /// A file with this device, whose number Linux tells in 32 bits, and inode number.
    File(u32, u64),
}

static OPEN: ForkLock<Numbers> = ForkLock::inherited(Numbers(Vec::new()), Numbers::close_all);

/// Unlists descriptors that the host program has closed, and, if there are any, all anonymous files (`eventfd`,
/// `epoll`), whose numbers may be the host's by now. Dropping their owners closes nothing. Returns the number of
/// unlisted descriptors.
pub fn forget_lost() -> usize {
    OPEN.lock().forget_lost()
}

/// Guard that delays forks, for descriptors that do not arrive as the result of a call, such as those received over a
/// socket (`SCM_RIGHTS`). Hold it for one system call.
pub struct NoFork(MutexGuard<'static, Numbers>);

/// Delays forks of all threads while the returned guard exists.
pub fn no_fork() -> NoFork {
    NoFork(OPEN.lock())
}

impl NoFork {
    /// Lists a descriptor that was created under this guard, so that a child of `fork` closes it. Closes it and fails
    /// if there is no memory for the entry.
    pub fn keep<F: AsFd>(&mut self, fd: F) -> io::Result<CloseOnFork<F>> {
        let number = fd.as_fd().as_raw_fd();
        self.0.insert(number, Entry::of(number))?;
        Ok(CloseOnFork(ManuallyDrop::new(fd)))
    }
}

impl fmt::Debug for NoFork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoFork")
    }
}

impl<F: AsFd> CloseOnFork<F> {
    /// Opens a descriptor with `open` and lists it, with forks delayed, so that no child inherits it unlisted.
    pub fn open<E: Into<io::Error>>(open: impl FnOnce() -> Result<F, E>) -> io::Result<Self> {
        let mut no_fork = no_fork();
        let fd = open().map_err(E::into)?;
        no_fork.keep(fd)
    }
}

impl<F: AsFd> CloseOnFork<F> {
    /// Returns false if the host has closed the descriptor. For an anonymous file, another one with the same number
    /// also counts as intact.
    pub fn is_intact(&self) -> bool {
        OPEN.lock().is_intact(self.as_raw_fd())
    }
}

impl<F: AsFd> Drop for CloseOnFork<F> {
    fn drop(&mut self) {
        let number = self.as_raw_fd();
        let mut open = OPEN.lock();
        let ours = open.may_close(number);
        // Unlisted descriptors are already closed, or the host's.
        if open.remove(number) && ours {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl<F: AsFd> Deref for CloseOnFork<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

impl<F: AsFd> AsRawFd for CloseOnFork<F> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<F: AsFd> AsFd for CloseOnFork<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<F: AsFd + fmt::Debug> fmt::Debug for CloseOnFork<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Entry {
    /// Returns the entry of a descriptor; `Free` if it is not open.
    fn of(fd: RawFd) -> Self {
        match stat(fd) {
            Ok(file) if file.st_mode & libc::S_IFMT != 0 => {
                Self::File(file.st_dev as u32, file.st_ino)
            }
            Ok(_) => Self::Anonymous,
            Err(Errno::EBADF) => Self::Free,
            Err(_) => Self::Unknown,
        }
    }
}

impl Numbers {
    fn insert(&mut self, fd: RawFd, entry: Entry) -> io::Result<()> {
        let Ok(number) = usize::try_from(fd) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if number >= self.0.len() {
            let more = number + 1 - self.0.len();
            let room = self.0.try_reserve(more);
            room.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            self.0.resize(number + 1, Entry::Free);
        }
        self.0[number] = entry;
        Ok(())
    }

    fn entry(&self, fd: RawFd) -> Entry {
        let number = usize::try_from(fd).ok();
        let entry = number.and_then(|number| self.0.get(number));
        entry.copied().unwrap_or(Entry::Free)
    }

    /// Unlists a number. Returns false if it was not listed.
    fn remove(&mut self, fd: RawFd) -> bool {
        let there = self.entry(fd) != Entry::Free;
        if there {
            self.0[fd as usize] = Entry::Free;
        }
        there
    }

    /// Returns whether a number still refers to the file listed for it.
    fn is_intact(&self, fd: RawFd) -> bool {
        match self.entry(fd) {
            Entry::Free => false,
            Entry::Unknown => true,
            listed => [listed, Entry::Unknown].contains(&Entry::of(fd)),
        }
    }

    /// Returns whether closing the number would close the file listed for it, as far as can be known.
    fn may_close(&self, fd: RawFd) -> bool {
        let recognised = matches!(self.entry(fd), Entry::File(..));
        self.is_intact(fd) && (recognised || self.all_are_intact())
    }

    fn all_are_intact(&self) -> bool {
        self.listed().all(|fd| self.is_intact(fd))
    }

    fn listed(&self) -> impl Iterator<Item = RawFd> {
        let numbers = (0..).zip(&self.0);
        numbers.filter_map(|(fd, entry)| (*entry != Entry::Free).then_some(fd))
    }

    fn forget_lost(&mut self) -> usize {
        if self.all_are_intact() {
            return 0;
        }
        let mut forgotten = 0;
        for fd in 0..self.0.len() as RawFd {
            let recognised = matches!(self.entry(fd), Entry::File(..));
            if !recognised || !self.is_intact(fd) {
                forgotten += usize::from(self.remove(fd));
            }
        }
        forgotten
    }

    fn close_all(&mut self) {
        self.forget_lost();
        for fd in 0..self.0.len() as RawFd {
            if self.remove(fd) {
                // SAFETY: a descriptor of the parent's that nothing in this process uses.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// Returns the file behind a number. Calls libc because nix takes only descriptors that are certainly open.
fn stat(fd: RawFd) -> Result<libc::stat, Errno> {
    let mut file = MaybeUninit::uninit();
    // SAFETY: writes to `file`; the kernel checks the descriptor.
    Errno::result(unsafe { libc::fstat(fd, file.as_mut_ptr()) })?;
    // SAFETY: filled in by the call.
    Ok(unsafe { file.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::FromRawFd;
    use std::os::unix::net::UnixStream;

    /// Runs `holds` in a child and returns its result.
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
            // The child opens a file with the same number.
            let own = File::open("/dev/null").unwrap();
            // SAFETY: no pointers.
            let fd = unsafe { libc::dup2(own.as_raw_fd(), kept.as_raw_fd()) };
            drop(kept);
            is_open(fd)
        }));
    }

    /// Opens an anonymous file.
    fn anonymous() -> CloseOnForkFd {
        CloseOnFork::open(|| {
            // SAFETY: no pointers; a fresh descriptor comes back.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
            assert!(fd >= 0);
            // SAFETY: fresh, not owned elsewhere.
            Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
        })
        .unwrap()
    }

    fn socket() -> CloseOnFork<UnixStream> {
        CloseOnFork::open(|| UnixStream::pair().map(|(end, _)| end)).unwrap()
    }

    /// Gives the number to a file of the host, which closes the library's file.
    fn take_number(fd: RawFd, file: &impl AsRawFd) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), fd) }, fd);
    }

    #[test]
    fn files_of_the_host_survive_the_drop() {
        assert!(child_says(|| {
            let (ours, doorbell) = (socket(), anonymous());
            let numbers = [ours.as_raw_fd(), doorbell.as_raw_fd()];
            let (theirs, counter) = (socket(), anonymous());
            assert!(ours.is_intact() && doorbell.is_intact());
            take_number(numbers[0], &theirs);
            take_number(numbers[1], &counter);
            let seen = !ours.is_intact();
            // The anonymous file first: the lost socket shows that numbers have been reused.
            drop(doorbell);
            drop(ours);
            seen && numbers.iter().all(|fd| is_open(*fd))
        }));
    }

    #[test]
    fn lost_and_anonymous_files_are_forgotten_together() {
        assert!(child_says(|| {
            let (lost, kept, doorbell) = (socket(), socket(), anonymous());
            let before = forget_lost();
            // SAFETY: no pointers.
            unsafe { libc::close(lost.as_raw_fd()) };
            let forgotten = forget_lost();
            let numbers = [kept.as_raw_fd(), doorbell.as_raw_fd()];
            drop((lost, kept, doorbell));
            let open = numbers.map(is_open);
            (before, forgotten, open) == (0, 2, [false, true])
        }));
    }

    /// Installs a seccomp filter that makes these system calls fail with EPERM in this thread.
    fn refuse<const N: usize>(calls: [libc::c_long; N]) -> bool {
        let load_number = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        let (equal, end) = (
            (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            (libc::BPF_RET | libc::BPF_K) as u16,
        );
        let line = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
        let mut filter = vec![line(load_number, 0, 0)];
        for call in calls {
            filter.push(line(equal, 1, call as u32));
            filter.push(line(end, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
        }
        filter.push(line(end, 0, libc::SECCOMP_RET_ALLOW));
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the program and its lines live until the calls return.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) == 0
        }
    }

    #[test]
    fn files_are_intact_where_a_filter_refuses_to_look() {
        assert!(child_says(|| {
            let (ours, doorbell) = (socket(), anonymous());
            let numbers = [ours.as_raw_fd(), doorbell.as_raw_fd()];
            let refused = refuse([libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx]);
            let intact = ours.is_intact() && doorbell.is_intact() && forget_lost() == 0;
            drop((ours, doorbell));
            refused && intact && !numbers.iter().any(|fd| is_open(*fd))
        }));
    }

    #[test]
    fn a_child_closes_no_file_that_took_a_number() {
        assert!(child_says(|| {
            let (ours, doorbell, theirs) = (socket(), anonymous(), anonymous());
            let numbers = [ours.as_raw_fd(), doorbell.as_raw_fd()];
            numbers.iter().for_each(|fd| take_number(*fd, &theirs));
            child_says(|| numbers.iter().all(|fd| is_open(*fd)))
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
