//! Structs that contain their own size, so that later versions can append members.
//!
//! ```text
//!   C's struct   | size | member | member | mem|        ends where its version ends
//!   ours         | size | member | member | member | member |
//!                `---- whole_members ----´              members in both
//! ```
//!
//! Owns: which sizes are legal.
//! Out of scope: the members.

use crate::Error;
use mx_boundary::in_range;
use std::ptr::NonNull;

/// Upper bound of any version of a struct here, in bytes; a larger size means an uninitialized member.
const SIZE_MAX: i64 = 4096;

/// Returns the number of bytes of a `T` that fit into a caller's version of `size` bytes, in whole members of `member`
/// bytes each. `least`: the minimum, up to the end of the first member that matters.
pub(crate) fn whole_members<T>(
    size: usize,
    least: usize,
    member: usize,
) -> Result<usize, Box<Error>> {
    let shown = i64::try_from(size).unwrap_or(i64::MAX);
    in_range("size", shown, least as i64, SIZE_MAX)?;
    Ok(size.min(size_of::<T>()) / member * member)
}

/// Copies the first `len` bytes of a struct.
///
/// # Safety
///
/// Both have `len` bytes, writable at `to`, and do not overlap.
pub(crate) unsafe fn copy<T: Copy>(from: NonNull<T>, to: NonNull<T>, len: usize) {
    let (from, to) = (from.cast::<u8>(), to.cast::<u8>());
    // SAFETY: the caller's promise.
    unsafe { from.copy_to_nonoverlapping(to, len) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use bmi_method::abi::constants::BMI_EINVAL;

    #[test]
    fn sizes_are_those_of_whole_members_and_within_bounds() {
        type Five = [u64; 5];
        let members = |size| whole_members::<Five>(size, 16, 8);
        for (size, both) in [(16, 16), (23, 16), (24, 24), (40, 40), (4096, 40)] {
            assert_eq!(members(size).unwrap(), both, "{size}");
        }
        for size in [0, 8, 15, 4097, usize::MAX] {
            let error = members(size).unwrap_err();
            assert_eq!(error.code(), -BMI_EINVAL, "{size}");
        }
    }

    #[test]
    fn nothing_is_written_behind_what_both_have() {
        const BEHIND: u64 = 0x5a5a_5a5a_5a5a_5a5a;
        let mut room = [BEHIND; 5];
        let mut answer = [1_u64, 2, 3, 4, 5];
        // SAFETY: as many bytes are in both.
        unsafe { copy(NonNull::from(&mut answer), NonNull::from(&mut room), 24) };
        assert_eq!(room, [1, 2, 3, BEHIND, BEHIND]);
    }
}
