//! Signal dispositions, restored after the constructors of other libraries have run.
//!
//! ```text
//!   save()            dlopen, fi_getinfo                drop
//!   1..64 ---------->  SIGSEGV: PSM's handler ------->  SIGSEGV: restored
//!   sigaction          SIGTERM: PSM's handler           others: not touched
//! ```
//!
//! Owns: reading all dispositions, and restoring changed ones.
//!
//! A change that another thread of the program makes between `save` and `drop` is undone as well; the two cannot be
//! told apart. Dispositions are rarely set while other threads run.

use std::mem::MaybeUninit;

use libc::{c_int, sigaction, sigset_t};

/// Saved dispositions of all signals. Dropping it restores those that have changed since.
#[must_use]
pub struct SignalDispositions {
    /// Disposition of signal `n` at `n - 1`; `None` for the two that the C library reserves. A vector, because the
    /// stack should not hold 10 KiB.
    saved: Vec<Option<sigaction>>,
}

impl SignalDispositions {
    /// Reads the dispositions of all signals, to be restored on drop.
    pub fn save() -> Self {
        Self {
            saved: (1..=SIGNALS).map(disposition).collect(),
        }
    }
}

impl Drop for SignalDispositions {
    fn drop(&mut self) {
        for (index, before) in self.saved.iter().enumerate() {
            let signal = index as c_int + 1;
            let (Some(before), Some(now)) = (before, disposition(signal)) else {
                continue;
            };
            if same(before, &now) {
                continue;
            }
            log::debug!("libfabric: restored the disposition of signal {signal}");
            // SAFETY: `before` is the result of `sigaction` for this signal.
            let result = unsafe { sigaction(signal, before, std::ptr::null_mut()) };
            // Cannot fail for a signal that `sigaction` could read and change.
            debug_assert_eq!(result, 0);
        }
    }
}

fn disposition(signal: c_int) -> Option<sigaction> {
    let mut action = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: reads only; the output is one whole `struct sigaction`.
    let result = unsafe { sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    // SAFETY: zeroed, then written by a call that succeeded.
    Some(unsafe { action.assume_init() })
}

fn same(a: &sigaction, b: &sigaction) -> bool {
    a.sa_sigaction == b.sa_sigaction
        && (a.sa_flags ^ b.sa_flags) & !SA_RESTORER == 0
        && (1..=SIGNALS).all(|signal| blocked(&a.sa_mask, signal) == blocked(&b.sa_mask, signal))
}

fn blocked(mask: &sigset_t, signal: c_int) -> bool {
    // SAFETY: a whole set, and a number that the call checks.
    unsafe { libc::sigismember(mask, signal) == 1 }
}

/// Flag that the C library sets in everything it passes to the kernel, and shows when read: a disposition that was
/// never set by it lacks the flag.
const SA_RESTORER: c_int = 0x0400_0000;

/// Linux has 64 signals, numbered from 1.
const SIGNALS: c_int = 64;

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn nothing(_: c_int) {}

    #[test]
    fn a_changed_disposition_comes_back_and_an_unchanged_one_stays() {
        let before = disposition(libc::SIGURG).expect("SIGURG can be read");
        let saved = SignalDispositions::save();
        // SAFETY: a handler that does nothing, for a signal that nothing here sends.
        unsafe { libc::signal(libc::SIGURG, nothing as *const () as libc::sighandler_t) };
        let during = disposition(libc::SIGURG).expect("SIGURG can be read");
        assert!(!same(&before, &during));
        drop(saved);
        let after = disposition(libc::SIGURG).expect("SIGURG can be read");
        assert!(same(&before, &after));
    }

    #[test]
    fn a_disposition_differs_by_its_mask_alone() {
        let a = disposition(libc::SIGWINCH).expect("SIGWINCH can be read");
        let mut b = a;
        // SAFETY: a whole set.
        unsafe { libc::sigaddset(&mut b.sa_mask, libc::SIGUSR2) };
        assert!(!same(&a, &b));
        assert!(same(&a, &a));
    }
}
