//! Attributes for opening queues and address vectors.
//!
//! ```text
//!   ours (2.x):     [ members of 1.17 ........ | appended since, zero ]
//!   1.17 reads:     [ all members of 1.17     )
//!   2.x reads:      [ all members                                    )
//! ```
//!
//! Owns: `fi_cq_attr` and `fi_av_attr` at the size of 2.x.
//! Out of scope: sensible values.
//!
//! The library reads as many bytes as it was compiled with, and takes zero in an appended member for "not used".

use libc::{c_char, c_int, c_void};

use super::constants::{fi_av_type, fi_cq_format, fi_cq_wait_cond, fi_wait_obj};
use super::objects::{fid_wait, fid_xpu_ctx};

c_structs! {
    /// Attributes for opening a completion queue.
    [whole] pub struct fi_cq_attr {
        /// Minimum number of entries; 0: the provider's default.
        size: usize,
        /// `FI_AFFINITY`, or 0.
        flags: u64,
        /// Format of entries, `FI_CQ_FORMAT_*`.
        format: fi_cq_format,
        /// Wait object, `FI_WAIT_*`.
        wait_obj: fi_wait_obj,
        /// Processor to interrupt, with `FI_AFFINITY`.
        signaling_vector: c_int,
        /// Condition for waking, `FI_CQ_COND_*`.
        wait_cond: fi_cq_wait_cond,
        /// Wait set for `FI_WAIT_SET`; null otherwise.
        wait_set: *mut fid_wait,
        /// Always null here.
        [later] xpu_ctx: *mut fid_xpu_ctx,
    }

    /// Attributes for opening an address vector.
    [whole] pub struct fi_av_attr {
        /// Type of the vector, `FI_AV_*`.
        r#type: fi_av_type,
        /// Number of address bits that select a receive context.
        rx_ctx_bits: c_int,
        /// Expected number of addresses; 0: unknown.
        count: usize,
        /// Expected number of endpoints per node; 0: unknown.
        ep_per_node: usize,
        /// Name of a vector shared by processes, or null.
        name: *const c_char,
        /// Address at which to map a shared vector, or null.
        map_addr: *mut c_void,
        /// Flags of `fi_av_open`.
        flags: u64,
    }
}
