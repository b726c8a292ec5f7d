//! The ops table.
//!
//! `bmi_mx_ops` and its old name `method_interface` are data objects of 200 bytes (176), complete when
//! the linker is done and never written: a host that is not compiled as position-independent code
//! copies them into itself when it starts (BMI-HOST-ABI.md section 1).
//!
//! The flag `BMI_METHOD_FLAG_NO_POLLING` is set. Without it the host's poll plan turns every idle
//! time into 0 for the first 10 000 calls and after each one that reports something, so waiting is
//! a busy loop through the whole BMI layer. With it the host passes the idle time on, and a test
//! call here polls for `MX_SPIN_US` and then sleeps in the kernel: as fast while a peer is active,
//! idle when none is.
//!
//! Owns: the mapping of entries to functions.

use super::{address, lifecycle, memory, post, test};
use crate::abi::constants::BMI_METHOD_FLAG_NO_POLLING;
use crate::abi::ops::bmi_method_ops;

/// The method's table, for hosts that name the library on their link line and for `dlsym`.
// SAFETY: a name of the method's own, which its hosts expect.
#[unsafe(no_mangle)]
pub static bmi_mx_ops: bmi_method_ops = TABLE;

/// The same under the name that hosts before OrangeFS took with `dlsym`.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub static method_interface: bmi_method_ops = TABLE;

const TABLE: bmi_method_ops = bmi_method_ops {
    method_name: c"bmi_mx".as_ptr(),
    flags: BMI_METHOD_FLAG_NO_POLLING,
    initialize: Some(lifecycle::BMI_mx_initialize),
    finalize: Some(lifecycle::BMI_mx_finalize),
    set_info: Some(lifecycle::BMI_mx_set_info),
    get_info: Some(lifecycle::BMI_mx_get_info),
    memalloc: Some(memory::BMI_mx_memalloc),
    memfree: Some(memory::BMI_mx_memfree),
    unexpected_free: Some(memory::BMI_mx_unexpected_free),
    #[cfg(not(feature = "standalone"))]
    post_send: Some(post::BMI_mx_post_send),
    #[cfg(not(feature = "standalone"))]
    post_sendunexpected: Some(post::BMI_mx_post_sendunexpected),
    #[cfg(not(feature = "standalone"))]
    post_recv: Some(post::BMI_mx_post_recv),
    test: Some(test::BMI_mx_test),
    testsome: Some(test::BMI_mx_testsome),
    testcontext: Some(test::BMI_mx_testcontext),
    testunexpected: Some(test::BMI_mx_testunexpected),
    method_addr_lookup: Some(address::BMI_mx_method_addr_lookup),
    post_send_list: Some(post::BMI_mx_post_send_list),
    post_recv_list: Some(post::BMI_mx_post_recv_list),
    post_sendunexpected_list: Some(post::BMI_mx_post_sendunexpected_list),
    open_context: Some(lifecycle::BMI_mx_open_context),
    close_context: Some(lifecycle::BMI_mx_close_context),
    cancel: Some(post::BMI_mx_cancel),
    rev_lookup_unexpected: Some(address::BMI_mx_rev_lookup_unexpected),
    query_addr_range: Some(address::BMI_mx_query_addr_range),
};
