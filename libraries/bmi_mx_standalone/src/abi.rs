//! Differences of this BMI from OrangeFS's, beside the method table.
//!
//! Owns: these constants, and the part of an address object that this host knows.

#![allow(non_camel_case_types, reason = "C's names")]

use bmi_method::abi::types::bmi_method_addr as shared;
use libc::{c_int, c_void};
use mx_sys::layout;
use std::mem::offset_of;

/// Longest address string that the host passes, its NUL included.
pub const BMI_MAX_ADDR_LEN: c_int = 256;
/// `set_info`: for another method; accepted and ignored.
pub const BMI_ZOID_POST_TIMEOUT: c_int = 16;
/// `get_info`: the names of the host's network methods. Answered by the host itself.
pub const BMI_TRANSPORT_METHODS_STRING: c_int = 17;

/// A peer, shared by host and method. The method allocates it; the host passes its address in every call and writes
/// `method_type` (listen address only) and `parent`.
#[repr(C)]
#[derive(Debug)]
pub struct bmi_method_addr {
    /// The `method_id` passed to `initialize`: the host's index of this method.
    pub method_type: c_int,
    /// Number of the host's references: 1. The host itself does not read it.
    pub ref_count: c_int,
    /// Belongs to the method.
    pub method_data: *mut c_void,
    /// Belongs to the host.
    pub parent: *mut c_void,
    /// Belongs to the host, for lists of addresses.
    pub primary: *mut Self,
    /// Belongs to the host, for lists of addresses.
    pub secondary: *mut Self,
}

const _: () = {
    layout!(bmi_method_addr: 40 align 8,
        method_type at 0, ref_count at 4, method_data at 8, parent at 16, primary at 24,
        secondary at 32);
    // The members that this host has are where the method has them.
    assert!(offset_of!(bmi_method_addr, method_data) == offset_of!(shared, method_data));
    assert!(offset_of!(bmi_method_addr, parent) == offset_of!(shared, parent));
    assert!(size_of::<bmi_method_addr>() <= size_of::<shared>());
};
