//! The limit of this process's descriptors.
//!
//! Owns: nothing; raises the process's own limit as far as the kernel allows.

use std::fs;
use std::mem::MaybeUninit;

/// Raises the limit of descriptors to `wanted`, or as near as possible: beyond the hard limit only
/// with the privilege for it, and never beyond the kernel's `fs.nr_open`. Returns the new limit.
pub fn raise_descriptors(wanted: u64) -> u64 {
    let (soft, hard) = descriptors();
    if soft >= wanted {
        return soft;
    }
    let most = fs::read_to_string("/proc/sys/fs/nr_open")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(hard);
    // Without the privilege the first attempt fails and changes nothing.
    let beyond = wanted.min(most);
    for (soft, hard) in [(beyond, beyond.max(hard)), (wanted.min(hard), hard)] {
        let limit = libc::rlimit {
            rlim_cur: soft,
            rlim_max: hard,
        };
        // SAFETY: `limit` outlives the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0 {
            break;
        }
    }
    descriptors().0
}

/// Returns the soft and the hard limit.
fn descriptors() -> (u64, u64) {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: `limit` has room for what the kernel writes.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) } {
        // SAFETY: written by the successful call.
        0 => unsafe { (limit.assume_init().rlim_cur, limit.assume_init().rlim_max) },
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_never_lowers() {
        let (soft, _) = descriptors();
        assert_eq!(raise_descriptors(1), soft);
        assert!(raise_descriptors(soft + 1) >= soft);
    }
}
