//! The C types that cross the boundary, laid out as the host lays them out.
//!
//! ```text
//!   bmi_method_addr (24)              bmi_method_unexpected_info (40)
//!    0 method_type  int                0 error_code  i32
//!    8 method_data  void*              8 addr        bmi_method_addr*
//!   16 parent       void* (host's)    16 buffer      void*
//!                                     24 size        i64
//!   method_drop_addr_query (16)       32 tag         i32
//!    0 addr   8 response
//! ```
//!
//! Owns: sizes and offsets, checked below when this file is compiled.
//! Knows nothing of: who fills the structs in.

use libc::{c_char, c_int, c_void};

/// The size of a data region, in bytes.
pub type bmi_size_t = i64;
/// The application's tag of a message.
pub type bmi_msg_tag_t = i32;
/// Which of the 16 contexts an operation completes in.
pub type bmi_context_id = i64;
/// A posted operation.
pub type bmi_op_id_t = i64;
/// 0, or an error code: always negative when it comes out of this library.
pub type bmi_error_code_t = i32;
/// The host's own name for a peer.
pub type BMI_addr_t = i64;
/// `BMI_SEND` or `BMI_RECV`. A plain number here, so that a wrong value is not undefined.
pub type bmi_op_type = c_int;
/// `BMI_PRE_ALLOC` or `BMI_EXT_ALLOC`.
pub type bmi_buffer_type = c_int;
/// The host's hint list. Never looked at.
pub type bmi_hint = *mut c_void;

/// A peer, as host and method share it. The method allocates it; the host hands its address back
/// in every call and writes `method_type` (listen address only) and `parent`.
#[repr(C)]
#[derive(Debug)]
pub struct bmi_method_addr {
    /// The `method_id` that `initialize` was given: the host's index of this method.
    pub method_type: c_int,
    /// The method's.
    pub method_data: *mut c_void,
    /// The host's.
    pub parent: *mut c_void,
}

/// One unexpected message, as `testunexpected` gives it out.
#[repr(C)]
#[derive(Debug)]
pub struct bmi_method_unexpected_info {
    /// 0, or what went wrong with this message (negative).
    pub error_code: bmi_error_code_t,
    /// Who sent it.
    pub addr: *mut bmi_method_addr,
    /// Its bytes; to be given back with `unexpected_free`.
    pub buffer: *mut c_void,
    /// How many.
    pub size: bmi_size_t,
    /// The tag it was sent with.
    pub tag: bmi_msg_tag_t,
}

/// The argument of `get_info(BMI_DROP_ADDR_QUERY)`.
#[repr(C)]
#[derive(Debug)]
pub struct method_drop_addr_query {
    /// The address asked about.
    pub addr: *mut bmi_method_addr,
    /// The answer: 1 when the method has no more use for it, 0 otherwise.
    pub response: c_int,
}

/// What the library needs of its host. Found with `dlsym` in a host that exports these functions
/// under their usual names; any other program may pass them to `bmi_mx_set_host`.
///
/// A null entry means "not there". `size` is `sizeof(struct bmi_mx_host)` as the caller compiled
/// it, so that later versions can append entries.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bmi_mx_host {
    /// `sizeof(struct bmi_mx_host)`.
    pub size: usize,
    /// Makes a peer that connected to us known: returns the name the host gives it, or 0 when it
    /// has no memory. Called from inside `testunexpected`, `testcontext`, `testsome` and `test`
    /// only, at most once per address, with none of the library's locks held.
    pub reg_addr: Option<unsafe extern "C" fn(addr: *mut bmi_method_addr) -> BMI_addr_t>,
    /// The peer with that name died; the host may ask `BMI_DROP_ADDR_QUERY` about it. Returns 0.
    pub forget_addr: Option<unsafe extern "C" fn(addr: BMI_addr_t) -> c_int>,
    /// Takes one line of the log, without a newline. `level` is 1 error, 2 warning, 3 information,
    /// 4 debug, 5 trace. May be called from any thread, also with the library's lock held: it must
    /// not call into this library, and should not block.
    pub log: Option<unsafe extern "C" fn(level: c_int, line: *const c_char)>,
}

const _: () = {
    use std::mem::{align_of, offset_of, size_of};

    assert!(size_of::<bmi_method_addr>() == 24 && align_of::<bmi_method_addr>() == 8);
    assert!(offset_of!(bmi_method_addr, method_type) == 0);
    assert!(offset_of!(bmi_method_addr, method_data) == 8);
    assert!(offset_of!(bmi_method_addr, parent) == 16);

    assert!(size_of::<bmi_method_unexpected_info>() == 40);
    assert!(offset_of!(bmi_method_unexpected_info, error_code) == 0);
    assert!(offset_of!(bmi_method_unexpected_info, addr) == 8);
    assert!(offset_of!(bmi_method_unexpected_info, buffer) == 16);
    assert!(offset_of!(bmi_method_unexpected_info, size) == 24);
    assert!(offset_of!(bmi_method_unexpected_info, tag) == 32);

    assert!(size_of::<method_drop_addr_query>() == 16);
    assert!(offset_of!(method_drop_addr_query, addr) == 0);
    assert!(offset_of!(method_drop_addr_query, response) == 8);

    assert!(size_of::<bmi_mx_host>() == 32);
    assert!(offset_of!(bmi_mx_host, reg_addr) == 8);
    assert!(offset_of!(bmi_mx_host, forget_addr) == 16);
    assert!(offset_of!(bmi_mx_host, log) == 24);
};
