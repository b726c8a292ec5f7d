//! Names the limit behind a kernel error, its value, and how to raise it, as text to append to the error.
//!
//! ```text
//!   EMFILE --> RLIMIT_NOFILE        EAGAIN of a thread --> is a mapping like its stack refused, too?
//!   ENFILE --> fs.file-max                                   yes: a memory limit
//!   ENOMEM --> a memory limit                                no:  pids.max, RLIMIT_NPROC, kernel.threads-max
//! ```
//!
//! Cost: system calls and reads of `/proc`, only after a failure.

use crate::descriptors;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::geteuid;
use std::fs;
use std::io;
use std::num::NonZero;
use std::path::Path;

/// Returns the limit that refused a descriptor, and how to raise it, as text to append to the error, beginning with a
/// semicolon; empty for errors that no limit causes.
pub fn of_descriptors(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE) => format!("; {}", descriptor_limit()),
        Some(libc::ENFILE) => format!(
            "; {}",
            sysctl("fs.file-max", "the machine's limit of open files")
        ),
        Some(libc::ENOMEM) => of_memory(Errno::ENOMEM),
        _ => String::new(),
    }
}

/// Returns this process's descriptor limit and how to raise it, as text.
pub fn descriptor_limit() -> String {
    format!(
        "RLIMIT_NOFILE is {}: raise it with ulimit -n or LimitNOFILE=",
        descriptors::most()
    )
}

/// Returns the limit that refused a thread with `stack` bytes of stack, and how to raise it, as text to append to the
/// error, beginning with a semicolon; empty for errors that no limit causes.
pub fn of_threads(error: &io::Error, stack: usize) -> String {
    match error.raw_os_error() {
        // glibc also returns EAGAIN if there is no memory for the stack.
        Some(libc::EAGAIN) => match NonZero::new(stack).and_then(refusal_of_mapping) {
            Some(errno) => of_memory(errno),
            None => of_tasks(),
        },
        Some(libc::ENOMEM) => of_memory(Errno::ENOMEM),
        Some(libc::EPERM | libc::ENOSYS) => "; clone is not allowed here".to_owned(),
        _ => String::new(),
    }
}

/// Returns the limit that refused a mapping with this error, and how to raise it, as text to append to the error,
/// beginning with a semicolon; empty if none is known.
pub fn of_memory(errno: Errno) -> String {
    if errno == Errno::EAGAIN {
        return match limit(Resource::RLIMIT_MEMLOCK) {
            Some(bytes) => format!(
                "; RLIMIT_MEMLOCK is {} KiB, and this process locks all memory that it maps (mlockall): raise it \
                 with ulimit -l or LimitMEMLOCK=",
                bytes / 1024
            ),
            None => String::new(),
        };
    }
    let limits = [
        (Resource::RLIMIT_AS, "RLIMIT_AS", "ulimit -v or LimitAS="),
        (
            Resource::RLIMIT_DATA,
            "RLIMIT_DATA",
            "ulimit -d or LimitDATA=",
        ),
    ];
    let set = limits.into_iter().find_map(|(resource, name, raise)| {
        let kib = limit(resource)? / 1024;
        Some(format!("; {name} is {kib} KiB: raise it with {raise}"))
    });
    set.unwrap_or_else(|| {
        "; no limit of this process: the machine's memory, or its container's (memory.max)"
            .to_owned()
    })
}

/// Returns the task limit that has been reached, as far as can be seen.
fn of_tasks() -> String {
    if let Some(most) = full_group() {
        return format!("; pids.max of the control group is {most}: raise it, or TasksMax=");
    }
    match limit(Resource::RLIMIT_NPROC) {
        // RLIMIT_NPROC does not apply to root.
        Some(most) if !geteuid().is_root() => {
            format!("; RLIMIT_NPROC is {most}: raise it with ulimit -u or LimitNPROC=")
        }
        _ => format!(
            "; {}",
            sysctl("kernel.threads-max", "the machine's limit of threads")
        ),
    }
}

/// Returns `pids.max` of this process's control group (version 2), or of an ancestor of it, if that is reached.
fn full_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let around = Path::new(own).ancestors().map(|group| root.join(group));
    around.filter_map(|group| full(&group)).next()
}

fn full(group: &Path) -> Option<u64> {
    let number = |file| -> Option<u64> {
        let text = fs::read_to_string(group.join(file)).ok()?;
        text.trim().parse().ok()
    };
    let most = number("pids.max")?;
    (number("pids.current")? >= most).then_some(most)
}

fn sysctl(name: &str, what: &str) -> String {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    match fs::read_to_string(path) {
        Ok(value) => format!("{what} ({name}) is {}: raise it with sysctl", value.trim()),
        Err(_) => format!("{what} is {name}"),
    }
}

/// Returns the soft limit; `None` if unlimited or unreadable.
fn limit(resource: Resource) -> Option<u64> {
    let (soft, _) = getrlimit(resource).ok()?;
    (soft != RLIM_INFINITY).then_some(soft)
}

/// Maps `len` bytes like a stack and unmaps them. Returns the error if the mapping is refused.
fn refusal_of_mapping(len: NonZero<usize>) -> Option<Errno> {
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_STACK;
    // SAFETY: a fresh private mapping wherever the kernel likes.
    match unsafe { mmap_anonymous(None, len, access, flags) } {
        Ok(at) => {
            // SAFETY: the mapping made above, all of it; there is no pointer into it.
            let _ = unsafe { munmap(at, len.get()) };
            None
        }
        Err(errno) => Some(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::setrlimit;

    /// Returns the text of `say` in a child of this process that has first called `change`.
    fn said(change: impl FnOnce(), say: impl FnOnce() -> String) -> String {
        let (mut read, mut write) = io::pipe().unwrap();
        // SAFETY: the child changes its limits, writes to the pipe, and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            change();
            let _ = io::Write::write_all(&mut write, say().as_bytes());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(0) };
        }
        drop(write);
        let mut text = String::new();
        io::Read::read_to_string(&mut read, &mut text).unwrap();
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        text
    }

    fn set(resource: Resource, soft: u64) {
        let (_, hard) = getrlimit(resource).unwrap();
        setrlimit(resource, soft.min(hard), hard).unwrap();
    }

    fn of(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn refused_descriptors_name_their_limit_and_its_value() {
        let say = || of_descriptors(&of(libc::EMFILE));
        let text = said(|| set(Resource::RLIMIT_NOFILE, 40), say);
        assert_eq!(
            text,
            "; RLIMIT_NOFILE is 40: raise it with ulimit -n or LimitNOFILE="
        );
        let machine = of_descriptors(&of(libc::ENFILE));
        let most = fs::read_to_string("/proc/sys/fs/file-max").unwrap();
        assert!(
            machine.contains(&format!("(fs.file-max) is {}", most.trim())),
            "{machine}"
        );
        assert_eq!(of_descriptors(&of(libc::EACCES)), "");
    }

    #[test]
    fn refused_thread_names_the_memory_limit_of_its_stack() {
        let say = || of_threads(&of(libc::EAGAIN), 2 << 20);
        // Below the memory that is already mapped.
        let text = said(|| set(Resource::RLIMIT_AS, 1 << 20), say);
        assert_eq!(
            text,
            "; RLIMIT_AS is 1024 KiB: raise it with ulimit -v or LimitAS="
        );
        assert!(!said(|| (), say).contains("RLIMIT_AS"));
    }

    #[test]
    fn a_refused_thread_names_the_lock_limit_under_mlockall() {
        // Root may lock without limit, until it becomes another user.
        if geteuid().is_root() {
            let change = || {
                set(Resource::RLIMIT_MEMLOCK, 1 << 20);
                nix::unistd::setuid(65_534.into()).unwrap();
                // SAFETY: no pointers.
                assert_eq!(unsafe { libc::mlockall(libc::MCL_FUTURE) }, 0);
            };
            let text = said(change, || of_threads(&of(libc::EAGAIN), 2 << 20));
            assert!(text.starts_with("; RLIMIT_MEMLOCK is 1024 KiB"), "{text}");
        }
        assert!(
            of_memory(Errno::EAGAIN).is_empty() || of_memory(Errno::EAGAIN).contains("ulimit -l")
        );
    }

    #[test]
    fn a_refused_thread_names_the_limit_of_processes() {
        let change = || {
            set(Resource::RLIMIT_NPROC, 1);
            if geteuid().is_root() {
                nix::unistd::setuid(65_534.into()).unwrap();
            }
        };
        let text = said(change, of_tasks);
        assert!(
            text == "; RLIMIT_NPROC is 1: raise it with ulimit -u or LimitNPROC="
                || text.contains("pids.max"),
            "{text}"
        );
    }

    #[test]
    fn a_control_group_is_full_at_its_limit_only() {
        let group = std::env::temp_dir().join(format!("limits-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        fs::write(group.join("pids.max"), "7\n").unwrap();
        fs::write(group.join("pids.current"), "6\n").unwrap();
        let below = full(&group);
        fs::write(group.join("pids.current"), "7\n").unwrap();
        let at = full(&group);
        fs::write(group.join("pids.max"), "max\n").unwrap();
        let none = full(&group);
        fs::remove_dir_all(&group).unwrap();
        assert_eq!((below, at, none), (None, Some(7), None));
    }
}
