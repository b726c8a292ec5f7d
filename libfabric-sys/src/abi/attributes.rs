//! Attributes for opening queues, address vectors and registrations.
//!
//! ```text
//!   ours (2.x):     [ members of 1.17 ........ | appended since, zero ]
//!   1.17 reads:     [ all it knows            )
//!   2.x reads:      [ all                                             )
//! ```
//!
//! Owns: `fi_cq_attr`, `fi_av_attr`, `fi_mr_attr` and `fi_mr_modify` at the size of 2.x.
//! Not here: sensible values.
//!
//! The library reads as much as it was compiled with and takes zero in an appended member as
//! "not used".

use libc::{c_char, c_int, c_void, iovec};

use super::constants::{fi_av_type, fi_cq_format, fi_cq_wait_cond, fi_hmem_iface, fi_wait_obj};
use super::objects::{fid_mr, fid_wait, fid_xpu_ctx};

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
        /// With `FI_WAIT_SET`; null otherwise.
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
        /// Of a vector shared by processes, or null.
        name: *const c_char,
        /// Where a shared vector is to be mapped, or null.
        map_addr: *mut c_void,
        /// Flags.
        flags: u64,
    }

    /// The memory to register, for `fi_mr_regattr`.
    [whole] pub struct fi_mr_attr {
        /// The segments; a union with `dmabuf` in 2.x.
        mr_iov: *const iovec,
        /// Their number.
        iov_count: usize,
        /// `FI_SEND | FI_RECV | FI_READ | ...`.
        access: u64,
        /// The remote address of the first byte, without `FI_MR_VIRT_ADDR`.
        offset: u64,
        /// The key wanted, without `FI_MR_PROV_KEY`.
        requested_key: u64,
        /// Of the registration object.
        context: *mut c_void,
        /// Bytes of `auth_key`.
        auth_key_size: usize,
        /// Key of the job, or null.
        auth_key: *mut u8,
        /// `FI_HMEM_SYSTEM`, unless it is a device's memory.
        iface: fi_hmem_iface,
        /// The device's number: a union, of which this is the widest member.
        device: u64,
        /// Null.
        [later] hmem_data: *mut c_void,
        /// 0, for the provider to choose.
        [later] page_size: usize,
        /// Null, unless part of an existing registration.
        [later] base_mr: *const fid_mr,
        /// 0.
        [later] sub_mr_cnt: usize,
    }

    /// The argument of `FI_REFRESH`.
    [whole] pub struct fi_mr_modify {
        /// Flags.
        flags: u64,
        /// The registration to bring up to date.
        attr: fi_mr_attr,
    }
}

impl fi_cq_attr {
    /// The provider's defaults, no waiting.
    pub const EMPTY: Self = Self {
        size: 0,
        flags: 0,
        format: 0,
        wait_obj: 0,
        signaling_vector: 0,
        wait_cond: 0,
        wait_set: std::ptr::null_mut(),
        xpu_ctx: std::ptr::null_mut(),
    };
}

impl fi_av_attr {
    /// The provider's defaults.
    pub const EMPTY: Self = Self {
        r#type: 0,
        rx_ctx_bits: 0,
        count: 0,
        ep_per_node: 0,
        name: std::ptr::null(),
        map_addr: std::ptr::null_mut(),
        flags: 0,
    };
}

impl fi_mr_attr {
    /// Nothing, of ordinary memory.
    pub const EMPTY: Self = Self {
        mr_iov: std::ptr::null(),
        iov_count: 0,
        access: 0,
        offset: 0,
        requested_key: 0,
        context: std::ptr::null_mut(),
        auth_key_size: 0,
        auth_key: std::ptr::null_mut(),
        iface: 0,
        device: 0,
        hmem_data: std::ptr::null_mut(),
        page_size: 0,
        base_mr: std::ptr::null(),
        sub_mr_cnt: 0,
    };
}
