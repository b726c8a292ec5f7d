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
//!
//! None of this happens in an elevated process ([`is_elevated`]), which does not load libfabric.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Once;

/// The variable that names the library to load, in place of the usual one.
pub const LIBRARY_VARIABLE: &str = "MX_LIBFABRIC";

/// Bytes that `ofi_rxm` of 1.13 to 1.18 sends over `tcp` without cutting them.
pub const RXM_EAGER_VARIABLE: &str = "FI_OFI_RXM_EAGER_LIMIT";

/// Bytes that `ofi_rxm` of other versions, or over other providers, sends without cutting them.
pub const RXM_BUFFER_VARIABLE: &str = "FI_OFI_RXM_BUFFER_SIZE";

/// Variables that are set unless they are set already, and why.
pub const DEFAULTS: [(&str, &str); 14] = [
    // Without this, `tcp` stops reading a peer's connection after 64 unmatched messages, and
    // with it everything else that peer sends. Large enough never to be met: what a peer may
    // have outstanding is limited by our own credits.
    ("FI_TCP_MAX_SAVED", "100000"),
    // `ofi_rxm` fills a receive queue of this depth for every endpoint when it is enabled: 240 ms
    // with its default, 9 ms with this.
    ("FI_OFI_RXM_MSG_RX_SIZE", "64"),
    ("FI_OFI_RXM_MSG_TX_SIZE", "64"),
    // Its buffers are of 16 KiB, so that a message of that length with its headers needs two. Older releases
    // count 64 bytes of their own. Peers must agree.
    (RXM_BUFFER_VARIABLE, "16512"),
    // Over `tcp` its releases 1.13 to 1.18 send up to this without cutting it, straight from the sender's
    // buffer; with as much as above a message of 1 MiB takes twice the time. Peers must agree.
    (RXM_EAGER_VARIABLE, "65700"),
    // PSM's constructor takes over SIGSEGV, SIGINT, SIGTERM and others to print a backtrace.
    // Dispositions are restored as well, but a signal might arrive before that.
    ("IPATH_NO_BACKTRACE", "1"),
    // PSM, PSM2 and PSM3 bind the thread that opens an endpoint to one processor; it is the
    // application's thread, and whatever it starts inherits that.
    ("IPATH_NO_CPUAFFINITY", "1"),
    ("HFI_NO_CPUAFFINITY", "1"),
    ("PSM3_NO_CPUAFFINITY", "1"),
    // The next four end a peer's access when a registration is closed. Otherwise `verbs`, `cxi` and
    // `efa` only put it on a list: its key stays valid, and a later registration of the same
    // addresses may find old pages. See `CLOSING`.
    ("FI_MR_CACHE_MAX_COUNT", "0"),
    // `efa` does not open with its cache on and none of the above.
    ("FI_EFA_MR_CACHE_ENABLE", "0"),
    // By its manual, for clients and servers; all that talk to each other must agree.
    ("FI_CXI_MR_MATCH_EVENTS", "1"),
    ("FI_CXI_OPTIMIZED_MRS", "0"),
    // Otherwise `efa` may end the process when it forks.
    ("FI_EFA_FORK_SAFE", "1"),
];

/// Variables with which closing a registration may not end the access to its memory, if they have other values.
const CLOSING: [&str; 4] = [
    "FI_MR_CACHE_MAX_COUNT",
    "FI_EFA_MR_CACHE_ENABLE",
    "FI_CXI_MR_MATCH_EVENTS",
    "FI_CXI_OPTIMIZED_MRS",
];

/// Set as [`DEFAULTS`] where there is RDMA in software. `ofi_rxm` opens a queue of 128 completions (64
/// of each of the above) for each peer in this number; soft-RoCE has 32767 at most.
const WITH_SOFTWARE_RDMA: (&str, &str) = ("FI_UNIVERSE_SIZE", "255");

/// Applies [`DEFAULTS`], the first time it is called.
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
            // SAFETY: sound unless another thread uses C's environment functions at this moment;
            // see the module's documentation for why that is accepted, and how to avoid it.
            unsafe { std::env::set_var(name, value) };
        }
    });
}

/// An RDMA device in `/sys/class/infiniband` is software on top of another interface: no bus has it.
pub fn is_software_rdma(device: &Path) -> bool {
    !device.join("device").exists()
}

/// Returns whether this process is elevated: whether it has more rights than its caller, who chose its environment. The
/// kernel says so (`AT_SECURE`) of programs with set-user-id, set-group-id or capabilities, and of those that a
/// security module gives more rights.
pub fn is_elevated() -> bool {
    // nix has no name for it.
    // SAFETY: reads the process's auxiliary vector; always sound.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The value of [`LIBRARY_VARIABLE`]; `None` when it is empty, and in an elevated process, which loads no library and
/// names only the default one.
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
