//! UCX's C interface as far as it is used: declarations of version 1.13's `ucp/api/ucp.h`.
//!
//! Structures have a mask of the members that are set, so that later libraries with more members
//! accept these; each ends with padding for what such a library may read.

use crate::functions::functions;
use libc::{c_char, c_int, c_uint, c_void, size_t};

/// Version of these declarations.
pub(super) const API: (c_uint, c_uint) = (1, 13);

/// `ucs_status_t`, a packed enum; some functions return a pointer that holds one.
pub(super) type Status = i8;
pub(super) const OK: Status = 0;
pub(super) const IN_PROGRESS: Status = 1;
/// `UCS_ERR_LAST`: a pointer from here on is an error.
pub(super) const LAST_ERROR: Status = -100;

/// `ucp_context_h`, `ucp_worker_h`, `ucp_ep_h`, and requests.
pub(super) type Handle = *mut c_void;

/// `ucp_params_t`.
#[repr(C)]
pub(super) struct Params {
    pub(super) field_mask: u64,
    pub(super) features: u64,
    pub(super) unused: [u64; 30],
}
/// `UCP_PARAM_FIELD_FEATURES`.
pub(super) const PARAM_FEATURES: u64 = 1;
/// `UCP_FEATURE_TAG`.
pub(super) const FEATURE_TAG: u64 = 1;

/// `ucp_worker_params_t`; all members unset: one thread, no wake-ups.
#[repr(C)]
pub(super) struct WorkerParams {
    pub(super) field_mask: u64,
    pub(super) unused: [u64; 63],
}

/// `ucp_ep_params_t`.
#[repr(C)]
pub(super) struct EndpointParams {
    pub(super) field_mask: u64,
    pub(super) address: *const c_void,
    pub(super) unused: [u64; 30],
}
/// `UCP_EP_PARAM_FIELD_REMOTE_ADDRESS`.
pub(super) const ENDPOINT_ADDRESS: u64 = 1;

/// `ucp_request_param_t`; all members unset: bytes, no callback, completion is polled.
#[repr(C)]
pub(super) struct RequestParam {
    pub(super) op_attr_mask: u32,
    pub(super) flags: u32,
    pub(super) unused: [u64; 14],
}

functions! {
    pub(super) struct Functions;

    version = c"ucp_get_version_string": fn() -> *const c_char;
    init = c"ucp_init_version":
        fn(c_uint, c_uint, *const Params, *const c_void, *mut Handle) -> Status;
    cleanup = c"ucp_cleanup": fn(Handle) -> ();
    worker_create = c"ucp_worker_create": fn(Handle, *const WorkerParams, *mut Handle) -> Status;
    worker_destroy = c"ucp_worker_destroy": fn(Handle) -> ();
    get_address = c"ucp_worker_get_address":
        fn(Handle, *mut *mut c_void, *mut size_t) -> Status;
    release_address = c"ucp_worker_release_address": fn(Handle, *mut c_void) -> ();
    ep_create = c"ucp_ep_create": fn(Handle, *const EndpointParams, *mut Handle) -> Status;
    tag_send = c"ucp_tag_send_nbx":
        fn(Handle, *const c_void, size_t, u64, *const RequestParam) -> Handle;
    tag_recv = c"ucp_tag_recv_nbx":
        fn(Handle, *mut c_void, size_t, u64, u64, *const RequestParam) -> Handle;
    progress = c"ucp_worker_progress": fn(Handle) -> c_uint;
    check = c"ucp_request_check_status": fn(Handle) -> Status;
    free = c"ucp_request_free": fn(Handle) -> ();
    status_string = c"ucs_status_string": fn(c_int) -> *const c_char;
}
