//! The layout of the ops table of OrangeFS 2.8.2 to 2.10.
//!
//! ```text
//!     0   method_name, 8 flags             72   post_send, post_sendunexpected, post_recv
//!    16   initialize, finalize             96   test, testsome, testcontext, testunexpected
//!    32   set_info, get_info              128   method_addr_lookup
//!    48   memalloc, memfree               136   post_send_list, post_recv_list, post_sendunexpected_list
//!    64   unexpected_free                 160   open_context, close_context, cancel
//!                                         184   rev_lookup_unexpected, query_addr_range      200 bytes
//! ```
//!
//! Owns: the order, the offsets and the signatures. The functions of the entries are in `lib.rs`.

#![allow(non_camel_case_types, reason = "C's names")]
#![allow(
    clippy::type_complexity,
    reason = "cbindgen wants C's argument lists spelled out in the table"
)]

use bmi_method::abi::types::{
    bmi_buffer_type, bmi_context_id, bmi_error_code_t, bmi_hint, bmi_method_addr,
    bmi_method_unexpected_info, bmi_msg_tag_t, bmi_op_id_t, bmi_op_type, bmi_size_t,
};
use libc::{c_char, c_int, c_void};
use mx_sys::layout;

/// The table of a BMI method. Every entry of `bmi_mx_ops` is set.
#[repr(C)]
pub struct bmi_method_ops {
    /// "bmi_mx".
    pub method_name: *const c_char,
    /// `BMI_METHOD_FLAG_*`.
    pub flags: c_int,
    /// See `BMI_mx_initialize`.
    pub initialize: Option<
        unsafe extern "C" fn(
            listen_addr: *mut bmi_method_addr,
            method_id: c_int,
            flags: c_int,
            options: *mut c_char,
        ) -> c_int,
    >,
    /// See `BMI_mx_finalize`.
    pub finalize: Option<unsafe extern "C" fn() -> c_int>,
    /// See `BMI_mx_set_info`.
    pub set_info: Option<unsafe extern "C" fn(option: c_int, parameter: *mut c_void) -> c_int>,
    /// See `BMI_mx_get_info`.
    pub get_info: Option<unsafe extern "C" fn(option: c_int, parameter: *mut c_void) -> c_int>,
    /// See `BMI_mx_memalloc`.
    pub memalloc:
        Option<unsafe extern "C" fn(size: bmi_size_t, send_recv: bmi_op_type) -> *mut c_void>,
    /// See `BMI_mx_memfree`.
    pub memfree: Option<
        unsafe extern "C" fn(
            buffer: *mut c_void,
            size: bmi_size_t,
            send_recv: bmi_op_type,
        ) -> c_int,
    >,
    /// See `BMI_mx_unexpected_free`.
    pub unexpected_free: Option<unsafe extern "C" fn(buffer: *mut c_void) -> c_int>,
    /// See `BMI_mx_post_send`.
    pub post_send: Option<
        unsafe extern "C" fn(
            id: *mut bmi_op_id_t,
            dest: *mut bmi_method_addr,
            buffer: *const c_void,
            size: bmi_size_t,
            buffer_type: bmi_buffer_type,
            tag: bmi_msg_tag_t,
            user_ptr: *mut c_void,
            context_id: bmi_context_id,
            hints: bmi_hint,
        ) -> c_int,
    >,
    /// See `BMI_mx_post_sendunexpected`.
    pub post_sendunexpected: Option<
        unsafe extern "C" fn(
            id: *mut bmi_op_id_t,
            dest: *mut bmi_method_addr,
            buffer: *const c_void,
            size: bmi_size_t,
            buffer_type: bmi_buffer_type,
            tag: bmi_msg_tag_t,
            user_ptr: *mut c_void,
            context_id: bmi_context_id,
            hints: bmi_hint,
        ) -> c_int,
    >,
    /// See `BMI_mx_post_recv`.
    pub post_recv: Option<
        unsafe extern "C" fn(
            id: *mut bmi_op_id_t,
            src: *mut bmi_method_addr,
            buffer: *mut c_void,
            expected_size: bmi_size_t,
            actual_size: *mut bmi_size_t,
            buffer_type: bmi_buffer_type,
            tag: bmi_msg_tag_t,
            user_ptr: *mut c_void,
            context_id: bmi_context_id,
            hints: bmi_hint,
        ) -> c_int,
    >,
    /// See `BMI_mx_test`.
    pub test: Option<
        unsafe extern "C" fn(
            id: bmi_op_id_t,
            outcount: *mut c_int,
            error_code: *mut bmi_error_code_t,
            actual_size: *mut bmi_size_t,
            user_ptr: *mut *mut c_void,
            max_idle_time_ms: c_int,
            context_id: bmi_context_id,
        ) -> c_int,
    >,
    /// See `BMI_mx_testsome`.
    pub testsome: Option<
        unsafe extern "C" fn(
            incount: c_int,
            id_array: *mut bmi_op_id_t,
            outcount: *mut c_int,
            index_array: *mut c_int,
            error_code_array: *mut bmi_error_code_t,
            actual_size_array: *mut bmi_size_t,
            user_ptr_array: *mut *mut c_void,
            max_idle_time_ms: c_int,
            context_id: bmi_context_id,
        ) -> c_int,
    >,
    /// See `BMI_mx_testcontext`.
    pub testcontext: Option<
        unsafe extern "C" fn(
            incount: c_int,
            out_id_array: *mut bmi_op_id_t,
            outcount: *mut c_int,
            error_code_array: *mut bmi_error_code_t,
            actual_size_array: *mut bmi_size_t,
            user_ptr_array: *mut *mut c_void,
            max_idle_time_ms: c_int,
            context_id: bmi_context_id,
        ) -> c_int,
    >,
    /// See `BMI_mx_testunexpected`.
    pub testunexpected: Option<
        unsafe extern "C" fn(
            incount: c_int,
            outcount: *mut c_int,
            info: *mut bmi_method_unexpected_info,
            max_idle_time_ms: c_int,
        ) -> c_int,
    >,
    /// See `BMI_mx_method_addr_lookup`.
    pub method_addr_lookup:
        Option<unsafe extern "C" fn(id_string: *const c_char) -> *mut bmi_method_addr>,
    /// See `BMI_mx_post_send_list`.
    pub post_send_list: Option<
        unsafe extern "C" fn(
            id: *mut bmi_op_id_t,
            dest: *mut bmi_method_addr,
            buffer_list: *const *const c_void,
            size_list: *const bmi_size_t,
            list_count: c_int,
            total_size: bmi_size_t,
            buffer_type: bmi_buffer_type,
            tag: bmi_msg_tag_t,
            user_ptr: *mut c_void,
            context_id: bmi_context_id,
            hints: bmi_hint,
        ) -> c_int,
    >,
    /// See `BMI_mx_post_recv_list`.
    pub post_recv_list: Option<
        unsafe extern "C" fn(
            id: *mut bmi_op_id_t,
            src: *mut bmi_method_addr,
            buffer_list: *const *mut c_void,
            size_list: *const bmi_size_t,
            list_count: c_int,
            total_expected_size: bmi_size_t,
            total_actual_size: *mut bmi_size_t,
            buffer_type: bmi_buffer_type,
            tag: bmi_msg_tag_t,
            user_ptr: *mut c_void,
            context_id: bmi_context_id,
            hints: bmi_hint,
        ) -> c_int,
    >,
    /// See `BMI_mx_post_sendunexpected_list`.
    pub post_sendunexpected_list: Option<
        unsafe extern "C" fn(
            id: *mut bmi_op_id_t,
            dest: *mut bmi_method_addr,
            buffer_list: *const *const c_void,
            size_list: *const bmi_size_t,
            list_count: c_int,
            total_size: bmi_size_t,
            buffer_type: bmi_buffer_type,
            tag: bmi_msg_tag_t,
            user_ptr: *mut c_void,
            context_id: bmi_context_id,
            hints: bmi_hint,
        ) -> c_int,
    >,
    /// See `BMI_mx_open_context`.
    pub open_context: Option<unsafe extern "C" fn(context_id: bmi_context_id) -> c_int>,
    /// See `BMI_mx_close_context`.
    pub close_context: Option<unsafe extern "C" fn(context_id: bmi_context_id)>,
    /// See `BMI_mx_cancel`.
    pub cancel: Option<unsafe extern "C" fn(id: bmi_op_id_t, context_id: bmi_context_id) -> c_int>,
    /// See `BMI_mx_rev_lookup_unexpected`.
    pub rev_lookup_unexpected:
        Option<unsafe extern "C" fn(addr: *mut bmi_method_addr) -> *const c_char>,
    /// See `BMI_mx_query_addr_range`.
    pub query_addr_range: Option<
        unsafe extern "C" fn(
            addr: *mut bmi_method_addr,
            wildcard: *const c_char,
            netmask: c_int,
        ) -> c_int,
    >,
}

// SAFETY: the only pointer is the method's name, a constant; nothing is written after link time.
unsafe impl Sync for bmi_method_ops {}

const _: () = {
    layout!(bmi_method_ops: 200 align 8,
        method_name at 0, flags at 8, initialize at 16, finalize at 24, set_info at 32,
        get_info at 40, memalloc at 48, memfree at 56, unexpected_free at 64, post_send at 72,
        post_sendunexpected at 80, post_recv at 88, test at 96, testsome at 104,
        testcontext at 112, testunexpected at 120, method_addr_lookup at 128,
        post_send_list at 136, post_recv_list at 144, post_sendunexpected_list at 152,
        open_context at 160, close_context at 168, cancel at 176, rev_lookup_unexpected at 184,
        query_addr_range at 192);
};
