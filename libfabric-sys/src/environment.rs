//! The providers' environment variables, set before they are read.
//!
//! ```text
//!   MX_LIBFABRIC=/path/libfabric.so.1    read by us: which library
//!
//!   DEFAULTS  --unless set already-->  environ  --constructors, first fi_getinfo-->  providers
//! ```
//!
//! Owns: the list, and the one moment at which it is applied: just before the first `dlopen`.
//!
//! Changing the environment of a process with threads is a race in C: `setenv` may move the
//! table that another thread's `getenv` is walking. There is no other way to pass these
//! settings (libfabric reads nothing else), and libfabric and its providers call `setenv`
//! themselves while they load. So it is done once in a process, only for variables that are not
//! there, and not at all when nothing is missing: a user that cannot accept the race sets all of
//! [`DEFAULTS`] before starting the program. `std::env::set_var` is used rather than C's `setenv`
//! because it does the same under the lock that Rust's own readers take.

use std::ffi::OsString;
use std::sync::Once;

/// The variable that names the library to load, in place of the usual one.
pub const LIBRARY_VARIABLE: &str = "MX_LIBFABRIC";

/// Variables that are set unless they are set already, and why.
pub const DEFAULTS: [(&str, &str); 7] = [
    // Without this, `tcp` stops reading a peer's connection after 64 unmatched messages, and
    // with it everything else that peer sends. Large enough never to be met: what a peer may
    // have outstanding is limited by our own credits.
    ("FI_TCP_MAX_SAVED", "100000"),
    // `ofi_rxm` fills a receive queue of this depth for every endpoint when it is enabled: 240 ms
    // with its default, 9 ms with this.
    ("FI_OFI_RXM_MSG_RX_SIZE", "64"),
    ("FI_OFI_RXM_MSG_TX_SIZE", "64"),
    // PSM's constructor takes over SIGSEGV, SIGINT, SIGTERM and others to print a backtrace.
    // Dispositions are restored as well, but a signal might arrive before that.
    ("IPATH_NO_BACKTRACE", "1"),
    // PSM, PSM2 and PSM3 bind the thread that opens an endpoint to one processor; it is the
    // application's thread, and whatever it starts inherits that.
    ("IPATH_NO_CPUAFFINITY", "1"),
    ("HFI_NO_CPUAFFINITY", "1"),
    ("PSM3_NO_CPUAFFINITY", "1"),
];

/// Applies [`DEFAULTS`], the first time it is called.
pub(crate) fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        for (name, value) in DEFAULTS {
            if std::env::var_os(name).is_some() {
                continue;
            }
            log::debug!("libfabric: {name}={value} for the providers");
            // SAFETY: sound unless another thread uses C's environment functions at this moment;
            // see the module's documentation for why that is accepted, and how to avoid it.
            unsafe { std::env::set_var(name, value) };
        }
    });
}

/// The value of [`LIBRARY_VARIABLE`]; `None` when it is empty, or when the program runs with more
/// rights than its user, who must not choose its code then.
pub(crate) fn chosen_library() -> Option<OsString> {
    // SAFETY: reads the process's auxiliary vector; always sound.
    let elevated = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if elevated {
        return None;
    }
    std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_listed_once() {
        for (index, (name, value)) in DEFAULTS.iter().enumerate() {
            assert!(!value.is_empty());
            assert!(
                DEFAULTS[..index].iter().all(|(other, _)| other != name),
                "{name}"
            );
        }
    }
}
