//! Attributes for opening queues and address vectors.
//!
//! ```text
//!   ours (2.x):     [ members of 1.17 ........ | appended since, zero ]
//!   1.17 reads:     [ all it knows            )
//!   2.x reads:      [ all                                             )
//! ```
//!
//! Owns: `fi_cq_attr` and `fi_av_attr` at the size of 2.x.
//! Out of scope: sensible values.
//!
//! The library reads as much as it was compiled with and takes zero in an appended member as
//! "not used".

use libc::{c_char, c_int, c_void};

use super::constants::{fi_av_type, fi_cq_format, fi_cq_wait_cond, fi_wait_obj};
use super::objects::{fid_wait, fid_xpu_ctx};

c_structs! {
    /// Attributes for opening a completion queue.
    [whole] pub struct fi_cq_attr {
        /// The least entries, or 0 for the provider's default.
        size: usize,
        /// `FI_AFFINITY`, or 0.
        flags: u64,
        /// `FI_CQ_FORMAT_*`.
        format: fi_cq_format,
        /// `FI_WAIT_*`.
        wait_obj: fi_wait_obj,
        /// The processor to be interrupted, with `FI_AFFINITY`.
        signaling_vector: c_int,
        /// `FI_CQ_COND_*`.
        wait_cond: fi_cq_wait_cond,
        /// The wait set for `FI_WAIT_SET`; null otherwise.
        wait_set: *mut fid_wait,
        /// Null.
        [later] xpu_ctx: *mut fid_xpu_ctx,
    }

    /// Attributes for opening an address vector.
    [whole] pub struct fi_av_attr {
        /// `FI_AV_*`.
        r#type: fi_av_type,
        /// Bits of an address that select a receive context.
        rx_ctx_bits: c_int,
        /// About how many addresses there will be, or 0.
        count: usize,
        /// About how many endpoints a node has, or 0.
        ep_per_node: usize,
        /// Name of a vector shared by processes, or null.
        name: *const c_char,
        /// Where a shared vector is to be mapped, or null.
        map_addr: *mut c_void,
        /// Flags.
        flags: u64,
    }
}
