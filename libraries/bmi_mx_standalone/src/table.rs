//! The layout of the ops table of the stand-alone BMI 2.8.
//!
//! ```text
//!     0   method_name, 8 flags             72   test, testsome, testcontext, testunexpected (with a class)
//!    16   initialize (without options)    104   method_addr_lookup
//!    24   finalize                        112   post_send_list, post_recv_list
//!    32   set_info, get_info              128   post_sendunexpected_list (with a class)
//!    48   memalloc, memfree               136   open_context, close_context, cancel
//!    64   unexpected_free                 160   rev_lookup_unexpected, query_addr_range      176 bytes
//! ```
//!
//! Owns: the order and the offsets. The functions and their types are in `lib.rs` and `bmi_exports`.

#![allow(non_camel_case_types, reason = "C's names")]

use crate::{BMI_mx_initialize, BMI_mx_post_sendunexpected_list, BMI_mx_testunexpected};
use bmi_exports::address::{
    BMI_mx_method_addr_lookup, BMI_mx_query_addr_range, BMI_mx_rev_lookup_unexpected,
};
use bmi_exports::lifecycle::{
    BMI_mx_close_context, BMI_mx_finalize, BMI_mx_get_info, BMI_mx_open_context, BMI_mx_set_info,
};
use bmi_exports::memory::{BMI_mx_memalloc, BMI_mx_memfree, BMI_mx_unexpected_free};
use bmi_exports::post::{BMI_mx_cancel, BMI_mx_post_recv_list, BMI_mx_post_send_list};
use bmi_exports::test::{BMI_mx_test, BMI_mx_testcontext, BMI_mx_testsome};
use libc::{c_char, c_int};
use mx_sys::layout;

/// The table of a BMI method. Every entry of `bmi_mx_ops` is set.
#[repr(C)]
pub struct bmi_method_ops {
    /// "bmi_mx".
    pub method_name: *const c_char,
    /// `BMI_METHOD_FLAG_*`.
    pub flags: c_int,
    /// See `BMI_mx_initialize`.
    pub initialize: Option<BMI_mx_initialize>,
    /// See `BMI_mx_finalize`.
    pub finalize: Option<BMI_mx_finalize>,
    /// See `BMI_mx_set_info`.
    pub set_info: Option<BMI_mx_set_info>,
    /// See `BMI_mx_get_info`.
    pub get_info: Option<BMI_mx_get_info>,
    /// See `BMI_mx_memalloc`.
    pub memalloc: Option<BMI_mx_memalloc>,
    /// See `BMI_mx_memfree`.
    pub memfree: Option<BMI_mx_memfree>,
    /// See `BMI_mx_unexpected_free`.
    pub unexpected_free: Option<BMI_mx_unexpected_free>,
    /// See `BMI_mx_test`.
    pub test: Option<BMI_mx_test>,
    /// See `BMI_mx_testsome`.
    pub testsome: Option<BMI_mx_testsome>,
    /// See `BMI_mx_testcontext`.
    pub testcontext: Option<BMI_mx_testcontext>,
    /// See `BMI_mx_testunexpected`.
    pub testunexpected: Option<BMI_mx_testunexpected>,
    /// See `BMI_mx_method_addr_lookup`.
    pub method_addr_lookup: Option<BMI_mx_method_addr_lookup>,
    /// See `BMI_mx_post_send_list`.
    pub post_send_list: Option<BMI_mx_post_send_list>,
    /// See `BMI_mx_post_recv_list`.
    pub post_recv_list: Option<BMI_mx_post_recv_list>,
    /// See `BMI_mx_post_sendunexpected_list`.
    pub post_sendunexpected_list: Option<BMI_mx_post_sendunexpected_list>,
    /// See `BMI_mx_open_context`.
    pub open_context: Option<BMI_mx_open_context>,
    /// See `BMI_mx_close_context`.
    pub close_context: Option<BMI_mx_close_context>,
    /// See `BMI_mx_cancel`.
    pub cancel: Option<BMI_mx_cancel>,
    /// See `BMI_mx_rev_lookup_unexpected`.
    pub rev_lookup_unexpected: Option<BMI_mx_rev_lookup_unexpected>,
    /// See `BMI_mx_query_addr_range`.
    pub query_addr_range: Option<BMI_mx_query_addr_range>,
}

// SAFETY: the only pointer is the method's name, a constant; nothing is written after link time.
unsafe impl Sync for bmi_method_ops {}

const _: () = {
    layout!(bmi_method_ops: 176 align 8,
        method_name at 0, flags at 8, initialize at 16, finalize at 24, set_info at 32,
        get_info at 40, memalloc at 48, memfree at 56, unexpected_free at 64, test at 72,
        testsome at 80, testcontext at 88, testunexpected at 96, method_addr_lookup at 104,
        post_send_list at 112, post_recv_list at 120, post_sendunexpected_list at 128,
        open_context at 136, close_context at 144, cancel at 152, rev_lookup_unexpected at 160,
        query_addr_range at 168);
};
