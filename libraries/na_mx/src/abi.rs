//! Mercury's interface for NA plugins: layouts and codes, of every supported version.
//!
//! ```text
//!   Mercury 2.3.x          NA 4.0   table A: context_create(class, where, id), progress(class, context, timeout)
//!   Mercury 2.4.0          NA 5.0   table B: poll and poll_wait instead of progress
//!   Mercury 2.4.1, later   NA 6.0   table C: context_create(class, context, where, id), flags for addr_deserialize
//! ```
//!
//! Written from the headers' layouts. Types that Mercury only passes through are plain pointers here.

// C's names, which describe the fields.
#![allow(non_camel_case_types, missing_docs)]

use libc::{c_char, c_int, c_uint, c_void};

/// A `na_return_t`.
pub(crate) type na_return = c_int;

pub(crate) const NA_SUCCESS: na_return = 0;
pub(crate) const NA_PERMISSION: na_return = 1;
pub(crate) const NA_NOMEM: na_return = 5;
pub(crate) const NA_ACCESS: na_return = 6;
pub(crate) const NA_FAULT: na_return = 7;
pub(crate) const NA_BUSY: na_return = 8;
pub(crate) const NA_NODEV: na_return = 10;
pub(crate) const NA_INVALID_ARG: na_return = 11;
pub(crate) const NA_PROTOCOL_ERROR: na_return = 12;
pub(crate) const NA_OVERFLOW: na_return = 13;
pub(crate) const NA_MSGSIZE: na_return = 14;
pub(crate) const NA_PROTONOSUPPORT: na_return = 15;
pub(crate) const NA_OPNOTSUPPORTED: na_return = 16;
pub(crate) const NA_ADDRINUSE: na_return = 17;
pub(crate) const NA_ADDRNOTAVAIL: na_return = 18;
pub(crate) const NA_HOSTUNREACH: na_return = 19;
pub(crate) const NA_TIMEOUT: na_return = 20;
pub(crate) const NA_CANCELED: na_return = 21;

/// Types of callbacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum na_cb_type {
    SendUnexpected,
    RecvUnexpected,
    MultiRecvUnexpected,
    SendExpected,
    RecvExpected,
    Put,
    Get,
}

pub(crate) const NA_OPT_MULTI_RECV: libc::c_ulong = 1;
pub(crate) const NA_OP_MULTI: libc::c_ulong = 1;
pub(crate) const NA_MEM_READ_ONLY: libc::c_ulong = 1;
pub(crate) const NA_MEM_WRITE_ONLY: libc::c_ulong = 2;
pub(crate) const NA_MEM_TYPE_HOST: c_int = 0;

#[repr(C)]
pub(crate) struct na_class {
    pub(crate) ops: *const c_void,
    pub(crate) plugin_class: *mut c_void,
    pub(crate) protocol_name: *mut c_char,
    pub(crate) progress_mode: u8,
    pub(crate) listen: bool,
}

#[repr(C)]
pub(crate) struct na_context {
    pub(crate) plugin_context: *mut c_void,
}

/// Beginning of `na_init_info`, equal in all versions.
#[repr(C)]
pub(crate) struct na_init_info {
    pub(crate) ip_subnet: *const c_char,
    pub(crate) auth_key: *const c_char,
    pub(crate) max_unexpected_size: usize,
    pub(crate) max_expected_size: usize,
}

/// A `na_info`. Its last field is a pointer in table A, and the structure itself from table B on.
#[repr(C)]
pub(crate) struct na_info {
    pub(crate) protocol_name: *const c_char,
    pub(crate) host_name: *const c_char,
    pub(crate) init_info: *const c_void,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct na_segment {
    pub(crate) base: *mut c_void,
    pub(crate) len: usize,
}

/// Union of callback information: that of multi-receives, of which those of other operations are the beginning.
#[repr(C)]
pub(crate) struct na_cb_details {
    pub(crate) actual_buf_size: usize,
    pub(crate) source: *mut c_void,
    pub(crate) tag: u32,
    pub(crate) actual_buf: *mut c_void,
    pub(crate) last: bool,
}

#[repr(C)]
pub(crate) struct na_cb_info {
    pub(crate) info: na_cb_details,
    pub(crate) arg: *mut c_void,
    pub(crate) kind: na_cb_type,
    pub(crate) ret: na_return,
}

pub(crate) type na_cb = Option<unsafe extern "C" fn(*const na_cb_info)>;

/// Entry of a completion queue, from which Mercury calls the program back.
#[repr(C)]
pub(crate) struct na_cb_completion_data {
    pub(crate) callback_info: na_cb_info,
    pub(crate) callback: na_cb,
    pub(crate) plugin_callback: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) plugin_callback_args: *mut c_void,
    pub(crate) entry: *mut c_void,
}

pub(crate) type NA_Version_get = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);
pub(crate) type na_cb_completion_add =
    unsafe extern "C" fn(*mut na_context, *mut na_cb_completion_data);
pub(crate) type na_protocol_info_alloc =
    unsafe extern "C" fn(*const c_char, *const c_char, *const c_char) -> *mut na_protocol_info;

#[repr(C)]
pub(crate) struct na_protocol_info {
    pub(crate) next: *mut Self,
    pub(crate) class_name: *mut c_char,
    pub(crate) protocol_name: *mut c_char,
    pub(crate) device_name: *mut c_char,
}
