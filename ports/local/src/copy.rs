//! Copies to and from rings: least work for small bodies, best throughput for long ones.
//!
//! glibc copies more than 2112 bytes with `rep movsb` where the processor claims that it is fast (FSRM). AMD's family
//! 0x19 (Zen 3 and 4) does, but takes about ten times as long if source and destination are at different offsets within
//! a page (glibc bug 30994): the usual case, since a large block of `malloc` begins 16 bytes after a page boundary and
//! a piece of a ring on one. There a long body is copied in pieces that glibc copies with vector registers. On family
//! 0x1a (Zen 5) `rep movsb` is fastest at every offset, and pieces cost 1.5 to 4.5 times as much.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Longest copy, in bytes, for which every version of glibc uses vector registers.
const VECTORS_MAX: usize = 2048;

/// Copies like `copy_nonoverlapping`, without a call for the lengths of small messages.
///
/// # Safety
/// As `copy_nonoverlapping`.
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: every access lies within the first `len` bytes on both sides; unaligned accesses
    // are used throughout. Loads come before stores, and the ranges do not overlap.
    unsafe {
        match len {
            8..=16 => {
                let a = from.cast::<u64>().read_unaligned();
                let b = from.add(len - 8).cast::<u64>().read_unaligned();
                to.cast::<u64>().write_unaligned(a);
                to.add(len - 8).cast::<u64>().write_unaligned(b);
            }
            _ if len > VECTORS_MAX => copy_long(from, to, len, longest_copy()),
            _ if len > 16 => std::ptr::copy_nonoverlapping(from, to, len),
            4..=7 => {
                let a = from.cast::<u32>().read_unaligned();
                let b = from.add(len - 4).cast::<u32>().read_unaligned();
                to.cast::<u32>().write_unaligned(a);
                to.add(len - 4).cast::<u32>().write_unaligned(b);
            }
            0 => {}
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// Copies `len` bytes in pieces of at most `longest`.
///
/// # Safety
/// As `copy_nonoverlapping`.
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize, longest: usize) {
    let mut done = 0;
    while done < len {
        let n = longest.min(len - done);
        // SAFETY: `done + n <= len`.
        unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), n) };
        done += n;
    }
}

/// Returns the longest copy, in bytes, that the C library does well on this processor.
fn longest_copy() -> usize {
    /// 0 until known.
    static LONGEST: AtomicUsize = AtomicUsize::new(0);
    match LONGEST.load(Ordering::Relaxed) {
        0 => {
            let longest = if suffers_from_rep_movsb() {
                VECTORS_MAX
            } else {
                usize::MAX
            };
            LONGEST.store(longest, Ordering::Relaxed);
            longest
        }
        longest => longest,
    }
}

#[cfg(target_arch = "x86_64")]
#[cold]
fn suffers_from_rep_movsb() -> bool {
    use std::arch::x86_64::__cpuid;

    #[allow(
        unused_unsafe,
        reason = "`__cpuid` is safe in later Rust than the oldest supported"
    )]
    // SAFETY: every x86-64 processor has the instruction and leaves 0 and 1.
    let (vendor, version) = unsafe { (__cpuid(0), __cpuid(1).eax) };
    let amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes)
        == [*b"Auth", *b"enti", *b"cAMD"];
    amd && family(version) == 0x19
}

#[cfg(not(target_arch = "x86_64"))]
fn suffers_from_rep_movsb() -> bool {
    false
}

/// Returns the processor's family from `version`, the word of leaf 1.
#[cfg(any(target_arch = "x86_64", test))]
fn family(version: u32) -> u32 {
    match version >> 8 & 0xf {
        0xf => 0xf + (version >> 20 & 0xff),
        family => family,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_is_the_sum_of_both_fields() {
        assert_eq!(family(0x00A2_0F10), 0x19, "Zen 3");
        assert_eq!(family(0x00B0_0F21), 0x1a, "Zen 5");
        assert_eq!(family(0x000C_06F2), 6, "Intel");
    }

    #[test]
    fn every_way_copies_every_byte_and_no_other() {
        let from: Vec<u8> = (0..3 * VECTORS_MAX).map(|i| (i * 7 % 251) as u8).collect();
        for longest in [VECTORS_MAX, usize::MAX] {
            for len in [1, 17, VECTORS_MAX, VECTORS_MAX + 1, 2 * VECTORS_MAX + 3] {
                for (at, to) in [(0, 0), (16, 0), (0, 16), (63, 1)] {
                    let mut into = vec![0xff; 3 * VECTORS_MAX];
                    // SAFETY: both vectors hold more than 64 + len bytes.
                    unsafe {
                        copy_long(from[at..].as_ptr(), into[to..].as_mut_ptr(), len, longest);
                    }
                    assert_eq!(into[to..to + len], from[at..at + len]);
                    assert!(
                        into[..to]
                            .iter()
                            .chain(&into[to + len..])
                            .all(|&b| b == 0xff)
                    );
                }
            }
        }
    }
}
