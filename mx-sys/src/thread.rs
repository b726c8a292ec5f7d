//! Threads of the library, in processes whose other threads belong to the application.
//!
//! ```text
//!   mx-progress            lives with the endpoint      PROGRESS_STACK
//!   mx-names               lives while there are names  RESOLVER_STACK      + thread-local data
//!   mx-lookup, mx-open     live within a call           RESOLVER_STACK
//! ```
//!
//! Owns: blocking signals, which are the application's, and sizes of stacks.

use libc::{c_int, c_void, dl_phdr_info, size_t};
use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder, JoinHandle};

/// Stack of a thread that makes progress, in bytes. Polling takes at most 28 KiB, over rdm with `tcp;ofi_rxm` of
/// libfabric 1.17 (12 to 24 over the other ports); the rest is for other providers and the host's logger. All of it
/// counts against `RLIMIT_AS`, and after `mlockall(MCL_FUTURE)` as locked memory.
pub const PROGRESS_STACK: usize = 256 << 10;

/// Stack of a thread that resolves names or opens ports, in bytes. glibc's resolver takes 24 KiB, opening ports 64; NSS
/// modules (nsswitch.conf(5)) that take 1 MiB exist. Such a thread ends when it has a result.
pub const RESOLVER_STACK: usize = 2 << 20;

/// Starts a thread called `name` that calls `run`, with all signals blocked and `stack` bytes of stack.
pub fn start<T: Send + 'static>(
    name: &str,
    stack: usize,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = SignalsBlocked::new();
    builder(name, stack).spawn(run)
}

/// Calls `run` in a new thread with [`RESOLVER_STACK`] bytes of stack, for work that may need more than the caller has,
/// and waits for its result. Calls `run` on the caller's stack if no thread can be started.
pub fn apart<T: Send>(name: &str, run: impl FnOnce() -> T + Send) -> T {
    // Kept here until called: a failed spawn drops its closure.
    let mut run = Some(run);
    let done = thread::scope(|scope| {
        let call = || run.take().map(|run| run());
        let blocked = SignalsBlocked::new();
        let started = builder(name, RESOLVER_STACK).spawn_scoped(scope, call);
        drop(blocked);
        started
            .ok()
            .and_then(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    // Still here: no thread was started.
    done.or_else(|| run.map(|run| run()))
        .unwrap_or_else(|| unreachable!("it is called once"))
}

/// Configures a thread. The explicit stack size keeps the standard library from using `RUST_MIN_STACK`.
fn builder(name: &str, stack: usize) -> Builder {
    Builder::new()
        .name(name.to_owned())
        .stack_size(stack + thread_local_bytes())
}

/// Returns the bytes of thread-local data of all loaded files. The C library puts the static TLS into every thread's
/// stack.
fn thread_local_bytes() -> usize {
    /// Number of bytes, counted once: a child of `fork` may not wait for the loader's lock.
    static COUNTED: AtomicUsize = AtomicUsize::new(UNKNOWN);
    const UNKNOWN: usize = usize::MAX;

    let counted = COUNTED.load(Ordering::Relaxed);
    if counted != UNKNOWN {
        return counted;
    }
    let mut bytes: usize = 0;
    // SAFETY: `add_thread_local` is called before this returns, with `bytes`, which nothing else uses meanwhile. nix
    // has no wrapper of the call.
    unsafe { libc::dl_iterate_phdr(Some(add_thread_local), (&raw mut bytes).cast()) };
    COUNTED.store(bytes, Ordering::Relaxed);
    bytes
}

/// Adds a loaded file's thread-local data to the number at `bytes`.
unsafe extern "C" fn add_thread_local(
    file: *mut dl_phdr_info,
    _size: size_t,
    bytes: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a file's description.
    let file = unsafe { &*file };
    // SAFETY: passed by `thread_local_bytes`, which does not use it meanwhile.
    let bytes = unsafe { &mut *bytes.cast::<usize>() };
    let count = usize::from(file.dlpi_phnum);
    if file.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the file has `count` headers, as long as it is loaded.
    let headers = unsafe { std::slice::from_raw_parts(file.dlpi_phdr, count) };
    let data = headers.iter().filter(|it| it.p_type == libc::PT_TLS);
    *bytes += data
        .map(|it| (it.p_memsz + it.p_align) as usize)
        .sum::<usize>();
    0
}

/// Blocks all signals in this thread until dropped.
pub(crate) struct SignalsBlocked {
    before: SigSet,
}

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        Self {
            before: before.unwrap_or_else(|_| SigSet::empty()),
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}
