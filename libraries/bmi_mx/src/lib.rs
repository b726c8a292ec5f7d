//! `libbmi_mx.so`: the method for OrangeFS.
//!
//! ```text
//!   the host ---> initialize, posts of one buffer,
//!                 post_sendunexpected_list, testunexpected     here: this host's own argument lists
//!            ---> all other entries of the table               bmi_exports
//! ```
//!
//! `bmi_mx_ops` and its old name `method_interface` are data objects of 200 bytes, complete when the linker is done and
//! never written: a host that is not position-independent code copies them into itself when it starts.
//!
//! The flag `BMI_METHOD_FLAG_NO_POLLING` is set. Without it the host's poll plan sets every idle time to 0 for the
//! first 10 000 calls and after each one that reports something, so waiting is a busy loop through the whole BMI layer.
//! If the flag is set, the host passes the idle time on, and a test call here polls for `MX_SPIN_US` and then sleeps in
//! the kernel: as fast while a peer is active, idle when none is.
//!
//! Owns: this host's table, and its own signatures.

// C's names. Each function's documentation says what a C caller must keep to.
#![allow(non_snake_case, clippy::missing_safety_doc)]

pub mod abi;
mod options;
pub mod table;

use crate::abi::BMI_MAX_ADDR_LEN;
use crate::table::bmi_method_ops;
use bmi_exports::post::PostArgs;
use bmi_exports::{address, export, lifecycle, memory, post, test};
use bmi_method::abi::constants::BMI_METHOD_FLAG_NO_POLLING;
use bmi_method::abi::types::{
    bmi_buffer_type, bmi_context_id, bmi_hint, bmi_method_addr, bmi_method_unexpected_info,
    bmi_msg_tag_t, bmi_op_id_t, bmi_size_t,
};
use bmi_method::host::Facts;
use bmi_method::instance::PostKind;
use libc::{c_char, c_int, c_void};

// Linked for its hidden functions.
use mx_system_calls as _;

mx_sys::library_allocator!();
mx_sys::on_load!(mx_sys::stderr::take_panics());
mx_sys::on_load!(bmi_method::host::is(&FACTS));

/// Facts about this host's BMI.
static FACTS: Facts = Facts {
    addr_at: 72,
    reuse_delay: 32,
    class_max: 0,
    max_addr_len: BMI_MAX_ADDR_LEN as usize,
    listens_anywhere: false,
    drops_addresses: true,
};

export! {
    /// Starts the method.
    ///
    /// `listen_addr` is the address to listen on, from `BMI_mx_method_addr_lookup`, if `flags` has `BMI_INIT_SERVER`,
    /// else NULL. A server listens on all addresses of this machine, with a warning if the host in `listen_addr` is
    /// another machine; if `flags` also has `BMI_TCP_BIND_SPECIFIC`, only on that host's address. `method_id` is the
    /// host's number for this method and becomes the `method_type` of every address. `options` is NULL or `NAME=value`
    /// pairs that override the environment (docs/tuning.md). Any other value of `options` is ignored, even an invalid
    /// pointer: OrangeFS before 2.9.8 passes three arguments.
    ///
    /// Returns 0; -BMI_EINVAL if address and flags disagree; -BMI_EALREADY if the method is initialized;
    /// -BMI_EADDRINUSE if another process has the endpoint; -BMI_EADDRNOTAVAIL or -BMI_EHOSTUNREACH if the only address
    /// to listen on belongs to another machine, or is unknown; another code if a system call fails. After a failure it
    /// may be called again.
    pub unsafe extern "C" fn BMI_mx_initialize(
        listen_addr: *mut bmi_method_addr,
        method_id: c_int,
        flags: c_int,
        options: *mut c_char,
    ) -> c_int {
        lifecycle::initialize(listen_addr, method_id, flags, options::given(options).as_deref())
    }

    /// Posts a send that the receiver expects. The buffer must not change until the operation completes. A send of 0
    /// bytes is legal, with any buffer, also NULL.
    ///
    /// Returns 0 if the operation is pending: `*id` identifies it, and a test call reports it. Returns 1 if it is
    /// complete: no test call reports it. Returns a negative code if it was rejected: nothing is reported for it.
    /// `buffer_type` and `hints` are ignored.
    pub unsafe extern "C" fn BMI_mx_post_send(
        id: *mut bmi_op_id_t,
        dest: *mut bmi_method_addr,
        buffer: *const c_void,
        size: bmi_size_t,
        buffer_type: bmi_buffer_type,
        tag: bmi_msg_tag_t,
        user_ptr: *mut c_void,
        context_id: bmi_context_id,
        hints: bmi_hint,
    ) -> c_int {
        let _ = (buffer_type, hints);
        let call = PostArgs { id, addr: dest, tag, class: 0, user_ptr, context_id };
        // SAFETY: C keeps the buffer readable until the operation completes.
        unsafe { call.send_one(PostKind::Send, buffer, size) }
    }

    /// Posts a send that the receiver does not expect, and takes with `BMI_mx_testunexpected`. Otherwise as
    /// `BMI_mx_post_send`. Messages larger than `BMI_MX_UNEXPECTED_MAX` (docs/tuning.md) get -BMI_EMSGSIZE.
    pub unsafe extern "C" fn BMI_mx_post_sendunexpected(
        id: *mut bmi_op_id_t,
        dest: *mut bmi_method_addr,
        buffer: *const c_void,
        size: bmi_size_t,
        buffer_type: bmi_buffer_type,
        tag: bmi_msg_tag_t,
        user_ptr: *mut c_void,
        context_id: bmi_context_id,
        hints: bmi_hint,
    ) -> c_int {
        let _ = (buffer_type, hints);
        let call = PostArgs { id, addr: dest, tag, class: 0, user_ptr, context_id };
        // SAFETY: C keeps the buffer readable until the operation completes.
        unsafe { call.send_one(PostKind::SendUnexpected, buffer, size) }
    }

    /// Posts a receive for the next message from `src` with `tag`. The buffer belongs to the method until the operation
    /// completes. The peer need not be connected yet.
    ///
    /// Returns as `BMI_mx_post_send` does; with 1, `*actual_size`, unless `actual_size` is NULL, is the size of the
    /// message. A message longer than `expected_size` fills the buffer and completes with -BMI_EMSGSIZE. The buffer may
    /// be larger than any message.
    pub unsafe extern "C" fn BMI_mx_post_recv(
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
    ) -> c_int {
        let _ = (buffer_type, hints);
        let call = PostArgs { id, addr: src, tag, class: 0, user_ptr, context_id };
        // SAFETY: C keeps the buffer writable, and does not access it, until the operation completes; it passes a size
        // to write to, if any.
        unsafe { call.receive_one(buffer, expected_size, actual_size) }
    }

    /// Posts `BMI_mx_post_sendunexpected` with `list_count` buffers (0 to 65536), sent as one message.
    ///
    /// Also returns -BMI_EINVAL if the sizes do not add up to `total_size`.
    pub unsafe extern "C" fn BMI_mx_post_sendunexpected_list(
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
    ) -> c_int {
        let _ = (buffer_type, hints);
        let call = PostArgs { id, addr: dest, tag, class: 0, user_ptr, context_id };
        let kind = PostKind::SendUnexpected;
        // SAFETY: C passes arrays of `list_count`, and keeps the buffers readable until the
        // operation completes.
        unsafe { call.send_list(kind, buffer_list, size_list, list_count, total_size) }
    }

    /// Takes up to `incount` unexpected messages: one of each peer in turn, the oldest first. Waits at most
    /// `max_idle_time_ms` milliseconds for the first one, and stores the messages in `info` and their number in
    /// `*outcount`. The caller owns each buffer until it calls `BMI_mx_unexpected_free`.
    ///
    /// Returns 0.
    pub unsafe extern "C" fn BMI_mx_testunexpected(
        incount: c_int,
        outcount: *mut c_int,
        info: *mut bmi_method_unexpected_info,
        max_idle_time_ms: c_int,
    ) -> c_int {
        // SAFETY: C passes a count to write to, and `incount` places.
        unsafe { test::unexpected(incount, outcount, info, 0, max_idle_time_ms) }
    }
}

/// The method's table, for hosts that name the library on their link line and for `dlsym`.
// SAFETY: a name of the method's own, which its hosts expect.
#[unsafe(no_mangle)]
pub static bmi_mx_ops: bmi_method_ops = TABLE;

/// [`bmi_mx_ops`] under the name that hosts before OrangeFS took with `dlsym`.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub static method_interface: bmi_method_ops = TABLE;

const TABLE: bmi_method_ops = bmi_method_ops {
    method_name: c"bmi_mx".as_ptr(),
    flags: BMI_METHOD_FLAG_NO_POLLING,
    initialize: Some(BMI_mx_initialize),
    finalize: Some(lifecycle::BMI_mx_finalize),
    set_info: Some(lifecycle::BMI_mx_set_info),
    get_info: Some(lifecycle::BMI_mx_get_info),
    memalloc: Some(memory::BMI_mx_memalloc),
    memfree: Some(memory::BMI_mx_memfree),
    unexpected_free: Some(memory::BMI_mx_unexpected_free),
    post_send: Some(BMI_mx_post_send),
    post_sendunexpected: Some(BMI_mx_post_sendunexpected),
    post_recv: Some(BMI_mx_post_recv),
    test: Some(test::BMI_mx_test),
    testsome: Some(test::BMI_mx_testsome),
    testcontext: Some(test::BMI_mx_testcontext),
    testunexpected: Some(BMI_mx_testunexpected),
    method_addr_lookup: Some(address::BMI_mx_method_addr_lookup),
    post_send_list: Some(post::BMI_mx_post_send_list),
    post_recv_list: Some(post::BMI_mx_post_recv_list),
    post_sendunexpected_list: Some(BMI_mx_post_sendunexpected_list),
    open_context: Some(lifecycle::BMI_mx_open_context),
    close_context: Some(lifecycle::BMI_mx_close_context),
    cancel: Some(post::BMI_mx_cancel),
    rev_lookup_unexpected: Some(address::BMI_mx_rev_lookup_unexpected),
    query_addr_range: Some(address::BMI_mx_query_addr_range),
};
