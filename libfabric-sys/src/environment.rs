//! Environment variables of the providers, set before they are read.
//!
//! ```text
//!   MX_LIBFABRIC=/path/libfabric.so.1    read here: the library to load
//!
//!   DEFAULTS  --unless set already-->  environ  --constructors, first fi_getinfo-->  providers
//! ```
//!
//! Owns: the list, and the time at which it is applied: just before the first `dlopen`.
//!
//! Changing the environment of a process with threads is a race in C: `setenv` may move the table that another thread's
//! `getenv` is reading. There is no other way to pass these settings (libfabric reads nothing else), and libfabric and
//! its providers call `setenv` themselves while they load. So it is done once per process, only for unset variables,
//! and not at all if all are set: a user that cannot accept the race sets all of [`DEFAULTS`] before starting the
//! program. `std::env::set_var` is used instead of C's `setenv` because it also takes the lock of Rust's own readers.
//!
//! An elevated process ([`is_elevated`]) never loads libfabric, so none of this happens there.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Once;

/// Name of the environment variable with the path of the libfabric to load instead of `libfabric.so.1`.
pub const LIBRARY_VARIABLE: &str = "MX_LIBFABRIC";

/// Environment variable with the largest message in bytes that `ofi_rxm` 1.13 to 1.18 sends over `tcp` in one piece.
pub const RXM_EAGER_VARIABLE: &str = "FI_OFI_RXM_EAGER_LIMIT";

/// Environment variable with the largest message in bytes that `ofi_rxm` sends in one piece in all cases but that of
/// [`RXM_EAGER_VARIABLE`]: other versions of it, and other providers than `tcp`.
pub const RXM_BUFFER_VARIABLE: &str = "FI_OFI_RXM_BUFFER_SIZE";

/// Environment variables of providers, with the values that they get when libfabric is loaded, unless they are already
/// set. The source has the reason for each.
pub const DEFAULTS: [(&str, &str); 14] = [
    // Otherwise `tcp` stops reading a peer's connection after 64 unmatched messages, and with it everything else that
    // the peer sends. Never reached at this value: our own credits limit a peer's outstanding messages.
    ("FI_TCP_MAX_SAVED", "100000"),
    // `ofi_rxm` fills a receive queue of this depth for every endpoint when it is enabled: 240 ms with its default, 9
    // ms with this.
    ("FI_OFI_RXM_MSG_RX_SIZE", "64"),
    ("FI_OFI_RXM_MSG_TX_SIZE", "64"),
    // The default buffers have 16 KiB, so that a message of that length with its headers needs two. Older releases
    // include 64 bytes of their own. Peers must agree.
    (RXM_BUFFER_VARIABLE, "16512"),
    // Over `tcp`, releases 1.13 to 1.18 send up to this much without splitting it, straight from the sender's buffer;
    // with the value above a message of 1 MiB takes twice the time. Peers must agree.
    (RXM_EAGER_VARIABLE, "65700"),
    // PSM's constructor takes over SIGSEGV, SIGINT, SIGTERM and others to print a backtrace. Dispositions are restored
    // as well, but a signal might arrive before that.
    ("IPATH_NO_BACKTRACE", "1"),
    // PSM, PSM2 and PSM3 bind the thread that opens an endpoint to one processor; it is the application's thread, and
    // threads that it starts inherit that.
    ("IPATH_NO_CPUAFFINITY", "1"),
    ("HFI_NO_CPUAFFINITY", "1"),
    ("PSM3_NO_CPUAFFINITY", "1"),
    // The next four end a peer's access when a registration is closed. Otherwise `verbs`, `cxi` and `efa` only cache
    // the registration: its key stays valid, and a later registration of these addresses may find old pages. See
    // `CLOSING`.
    ("FI_MR_CACHE_MAX_COUNT", "0"),
    // `efa` fails to open with its cache enabled and the cache's size 0.
    ("FI_EFA_MR_CACHE_ENABLE", "0"),
    // For clients and servers, by the manual; all peers must agree.
    ("FI_CXI_MR_MATCH_EVENTS", "1"),
    ("FI_CXI_OPTIMIZED_MRS", "0"),
    // Otherwise `efa` may abort the process when it forks.
    ("FI_EFA_FORK_SAFE", "1"),
];

/// Variables that, with other values, may keep access to memory alive after its registration is closed.
const CLOSING: [&str; 4] = [
    "FI_MR_CACHE_MAX_COUNT",
    "FI_EFA_MR_CACHE_ENABLE",
    "FI_CXI_MR_MATCH_EVENTS",
    "FI_CXI_OPTIMIZED_MRS",
];

/// Set like [`DEFAULTS`] if there is RDMA in software. `ofi_rxm` opens a queue of 128 completions (64 for each of the
/// two queues above) for each peer in this number; soft-RoCE has at most 32767.
const WITH_SOFTWARE_RDMA: (&str, &str) = ("FI_UNIVERSE_SIZE", "255");

/// Applies [`DEFAULTS`] at the first call.
pub(crate) fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        let devices = std::fs::read_dir("/sys/class/infiniband");
        let mut devices = devices.into_iter().flatten().flatten();
        let software = devices.any(|device| is_software_rdma(&device.path()));
        for (name, value) in DEFAULTS
            .into_iter()
            .chain(software.then_some(WITH_SOFTWARE_RDMA))
        {
            if let Some(own) = std::env::var_os(name) {
                if CLOSING.contains(&name) && own != value {
                    log::warn!(
                        "libfabric: {name} is {own:?} instead of {value}: a provider that keeps \
                         closed registrations does not get messages' memory, and large ones are \
                         copied"
                    );
                }
                continue;
            }
            log::debug!("libfabric: {name}={value} for the providers");
            // SAFETY: sound unless another thread uses C's environment functions at this moment; see the module for why
            // that is accepted, and how to avoid it.
            unsafe { std::env::set_var(name, value) };
        }
    });
}

/// Returns whether an RDMA device, given by its directory in `/sys/class/infiniband`, is software on top of another
/// interface, such as soft-RoCE: it is on no bus.
pub fn is_software_rdma(device: &Path) -> bool {
    !device.join("device").exists()
}

/// Returns whether this process is elevated: it has more rights than its caller, who chose its environment. The kernel
/// reports this (`AT_SECURE`) for programs with set-user-id, set-group-id or capabilities, and for those to which a
/// security module gives more rights.
pub fn is_elevated() -> bool {
    // nix lacks `getauxval`.
    // SAFETY: reads the process's auxiliary vector; always sound.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns the value of [`LIBRARY_VARIABLE`]; `None` if it is empty, or if the process is elevated, which loads no
/// library and names only the default one.
pub(crate) fn chosen_library() -> Option<OsString> {
    if is_elevated() {
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
        let names = DEFAULTS.map(|(name, _)| name);
        assert!(CLOSING.iter().all(|name| names.contains(name)));
        assert!(!names.contains(&WITH_SOFTWARE_RDMA.0));
    }
}
