//! The C types, laid out as in `include/myriexpress.h`.
//!
//! ```text
//!   in   segments, parameters, handlers           out   mx_status_t (`status`), mapper state
//!   both mx_endpoint_t, mx_request_t: pointers that are never dereferenced, words of `handles`
//!        mx_endpoint_addr_t: two words, in two registers
//! ```
//!
//! Enums are plain numbers here, because C may pass any number. `handles` and `status` interpret them;
//! `tests/header.rs` compares the types and constants here with the headers.

// C's names, documented in the headers.
#![allow(non_camel_case_types, missing_docs)]

use crate::handles::{Address, EndpointHandle, RequestHandle};
use crate::status::Status;
use libc::{c_char, c_int, c_void};
use std::ptr::without_provenance_mut;

/// A handle's 64 bits have to fit into a pointer.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// Opaque type that the handle `mx_endpoint_t` points to; never dereferenced.
#[repr(C)]
pub struct mx_endpoint {
    _opaque: [u8; 0],
}

/// Opaque type that the handle `mx_request_t` points to; never dereferenced.
#[repr(C)]
pub struct mx_request {
    _opaque: [u8; 0],
}

pub type mx_endpoint_t = *mut mx_endpoint;
pub type mx_request_t = *mut mx_request;
pub type mx_endpoint_addr_t = Address;
pub type mx_status_t = Status;
pub type mx_return_t = u32;
pub type mx_status_code_t = u32;
pub type mx_get_info_key_t = u32;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct mx_segment_t {
    pub segment_ptr: *mut c_void,
    pub segment_length: u32,
}

pub type mx_error_handler_t = Option<Handler>;

/// A non-null error handler.
pub(crate) type Handler = unsafe extern "C" fn(str: *mut c_char, ret: mx_return_t) -> mx_return_t;

pub type mx_matching_callback_t =
    Option<unsafe extern "C" fn(context: *mut c_void, match_value: u64, length: c_int)>;

pub type mx_unexp_handler_t = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        source: mx_endpoint_addr_t,
        match_value: u64,
        length: u32,
        data_if_available: *mut c_void,
    ) -> u32,
>;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct mx_context_id {
    pub bits: u8,
    pub shift: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union mx_param_val {
    pub error_handler: mx_error_handler_t,
    pub unexp_queue_max: u32,
    pub context_id: mx_context_id,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct mx_param_t {
    pub key: u32,
    pub val: mx_param_val,
}

pub const MX_PARAM_ERROR_HANDLER: u32 = 0;
pub const MX_PARAM_UNEXP_QUEUE_MAX: u32 = 1;
pub const MX_PARAM_CONTEXT_ID: u32 = 2;

pub type mx_endpt_handle_t = c_int;

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct mx_mapper_state_t {
    pub board_number: u32,
    pub mapper_mac: [u8; 6],
    pub iport: u16,
    pub map_version: u32,
    pub num_hosts: u32,
    pub network_configured: u32,
    pub routes_valid: u32,
    pub level: u32,
    pub flags: u32,
}

pub const MX_API: c_int = 0x301;
pub const MX_MAX_STR_LEN: usize = 128;
pub const MX_ANY_NIC: u32 = u32::MAX;
pub const MX_ANY_ENDPOINT: u32 = u32::MAX;
pub const MX_INFINITE: u32 = 0;
pub const MX_CONTEXT_ID_BITS_MAX: u8 = 16;
pub const MX_MAX_SEGMENTS: u32 = 256;
pub const MX_MAX_HOSTNAME_LEN: usize = 80;

impl From<mx_endpoint_t> for EndpointHandle {
    #[inline]
    fn from(endpoint: mx_endpoint_t) -> Self {
        Self(endpoint.addr() as u64)
    }
}

impl From<mx_endpoint_addr_t> for EndpointHandle {
    #[inline]
    fn from(address: mx_endpoint_addr_t) -> Self {
        address.endpoint()
    }
}

impl From<EndpointHandle> for mx_endpoint_t {
    #[inline]
    fn from(endpoint: EndpointHandle) -> Self {
        without_provenance_mut(endpoint.0 as usize)
    }
}

impl From<mx_request_t> for RequestHandle {
    #[inline]
    fn from(request: mx_request_t) -> Self {
        Self(request.addr() as u64)
    }
}

impl From<RequestHandle> for mx_request_t {
    #[inline]
    fn from(request: RequestHandle) -> Self {
        without_provenance_mut(request.0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_sys::layout;

    #[test]
    fn everything_is_laid_out_as_programs_for_mx_expect_it() {
        layout!(mx_endpoint_t: 8 align 8);
        layout!(mx_request_t: 8 align 8);
        layout!(mx_endpoint_addr_t: 16 align 8);
        layout!(mx_segment_t: 16 align 8, segment_ptr at 0, segment_length at 8);
        layout!(mx_return_t: 4 align 4);
        layout!(mx_status_code_t: 4 align 4);
        layout!(mx_get_info_key_t: 4 align 4);
        layout!(mx_status_t: 48 align 8, code at 0, source at 8, match_info at 24,
            msg_length at 32, xfer_length at 36, context at 40);
        layout!(mx_param_t: 16 align 8, key at 0, val at 8);
        layout!(mx_param_val: 8 align 8, error_handler at 0, unexp_queue_max at 0, context_id at 0);
        layout!(mx_context_id: 2 align 1, bits at 0, shift at 1);
        layout!(mx_error_handler_t: 8 align 8);
        layout!(mx_matching_callback_t: 8 align 8);
        layout!(mx_unexp_handler_t: 8 align 8);
        layout!(mx_endpt_handle_t: 4 align 4);
        layout!(mx_mapper_state_t: 36 align 4, board_number at 0, mapper_mac at 4, iport at 10,
            map_version at 12, num_hosts at 16, network_configured at 20, routes_valid at 24,
            level at 28, flags at 32);
    }

    #[test]
    fn a_handle_goes_through_c_unchanged() {
        let endpoint = EndpointHandle::new(3, u32::MAX);
        assert_eq!(
            EndpointHandle::from(mx_endpoint_t::from(endpoint)),
            endpoint
        );
        let request = RequestHandle(u64::MAX);
        assert_eq!(RequestHandle::from(mx_request_t::from(request)), request);
    }
}
