//! The method's table of functions, as C programs see it.
//!
//! ```text
//!   Ops                      200 bytes: a name, flags and 23 functions
//!   set_host(path, &Host)    the host's own functions, for a program that exports none
//! ```
//!
//! Owns: the layouts of OrangeFS 2.10's method interface.

use crate::library::Library;
use libc::{c_char, c_int, c_void};
use std::ffi::OsStr;
use std::ptr::NonNull;

/// `struct bmi_method_ops` of OrangeFS 2.10; members that no tool calls are opaque.
#[repr(C)]
pub struct Ops {
    method_name: *const c_char,
    flags: c_int,
    /// `initialize(listen_addr, method_id, flags, options)`.
    pub initialize: unsafe extern "C" fn(*mut c_void, c_int, c_int, *const c_char) -> c_int,
    /// `finalize()`.
    pub finalize: unsafe extern "C" fn() -> c_int,
    /// `set_info(option, parameter)`.
    pub set_info: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
    /// `get_info(option, parameter)`.
    pub get_info: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
    /// `memalloc(size, send_recv)`.
    pub memalloc: unsafe extern "C" fn(i64, c_int) -> *mut c_void,
    /// `memfree(buffer, size, send_recv)`.
    pub memfree: unsafe extern "C" fn(*mut c_void, i64, c_int) -> c_int,
    /// `unexpected_free(buffer)`.
    pub unexpected_free: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// `post_send(..)`.
    pub post_send: PostSend,
    /// `post_sendunexpected(..)`.
    pub post_sendunexpected: PostSend,
    /// `post_recv(id, src, buffer, expected_size, actual_size, type, tag, user, context, hints)`.
    pub post_recv: unsafe extern "C" fn(
        *mut i64,
        *mut c_void,
        *mut c_void,
        i64,
        *mut i64,
        c_int,
        i32,
        *mut c_void,
        i64,
        *mut c_void,
    ) -> c_int,
    /// `test(id, outcount, error, size, user, idle_ms, context)`.
    pub test: unsafe extern "C" fn(
        i64,
        *mut c_int,
        *mut i32,
        *mut i64,
        *mut *mut c_void,
        c_int,
        i64,
    ) -> c_int,
    testsome: *const c_void,
    /// `testcontext(incount, ids, outcount, errors, sizes, users, idle_ms, context)`.
    pub testcontext: unsafe extern "C" fn(
        c_int,
        *mut i64,
        *mut c_int,
        *mut i32,
        *mut i64,
        *mut *mut c_void,
        c_int,
        i64,
    ) -> c_int,
    /// `testunexpected(incount, outcount, info, idle_ms)`.
    pub testunexpected: unsafe extern "C" fn(c_int, *mut c_int, *mut Unexpected, c_int) -> c_int,
    /// `method_addr_lookup(text)`.
    pub method_addr_lookup: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    /// `post_send_list(..)`.
    pub post_send_list: PostSendList,
    /// Like `post_recv`, with lists of buffers and sizes, and their number, before the total.
    pub post_recv_list: unsafe extern "C" fn(
        *mut i64,
        *mut c_void,
        *const *mut c_void,
        *const i64,
        c_int,
        i64,
        *mut i64,
        c_int,
        i32,
        *mut c_void,
        i64,
        *mut c_void,
    ) -> c_int,
    /// `post_sendunexpected_list(..)`.
    pub post_sendunexpected_list: PostSendList,
    /// `open_context(context)`.
    pub open_context: unsafe extern "C" fn(i64) -> c_int,
    /// `close_context(context)`.
    pub close_context: unsafe extern "C" fn(i64),
    /// `cancel(id, context)`.
    pub cancel: unsafe extern "C" fn(i64, i64) -> c_int,
    /// `rev_lookup_unexpected(addr)`.
    pub rev_lookup_unexpected: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    query_addr_range: *const c_void,
}

/// `post(id, dest, buffer, size, type, tag, user, context, hints)`.
pub type PostSend = unsafe extern "C" fn(
    *mut i64,
    *mut c_void,
    *const c_void,
    i64,
    c_int,
    i32,
    *mut c_void,
    i64,
    *mut c_void,
) -> c_int;

/// Post of lists of buffers and sizes, with their number before the total.
pub type PostSendList = unsafe extern "C" fn(
    *mut i64,
    *mut c_void,
    *const *const c_void,
    *const i64,
    c_int,
    i64,
    c_int,
    i32,
    *mut c_void,
    i64,
    *mut c_void,
) -> c_int;

const _: () = assert!(size_of::<Ops>() == 200);

// SAFETY: a constant table of the library's; its functions may be called from any thread.
unsafe impl Sync for Ops {}

/// `struct bmi_method_unexpected_info`.
#[repr(C)]
pub struct Unexpected {
    /// Error of the message; 0 if there is none.
    pub error_code: i32,
    /// Sender of the message.
    pub addr: *mut c_void,
    /// Bytes of the message, freed by `unexpected_free`.
    pub buffer: *mut c_void,
    /// Length in bytes.
    pub size: i64,
    /// Tag of the message.
    pub tag: i32,
}

/// `struct method_drop_addr_query`.
#[repr(C)]
pub struct DropQuery {
    /// Address that the query is about.
    pub addr: *mut c_void,
    /// 1 if the address may be dropped.
    pub response: c_int,
}

/// `struct bmi_mx_host`.
#[repr(C)]
pub struct Host {
    /// Size of the struct, as the program was compiled.
    pub size: usize,
    /// Registers a peer that has connected; returns the host's name for it.
    pub reg_addr: Option<unsafe extern "C" fn(*mut c_void) -> i64>,
    /// Reports the death of the peer with that name.
    pub forget_addr: Option<unsafe extern "C" fn(i64) -> c_int>,
    /// Logs a line: level and text.
    pub log: Option<unsafe extern "C" fn(c_int, *const c_char)>,
}

/// `initialize`: listen for connections.
pub const INIT_SERVER: c_int = 1;
/// Buffer type: from `memalloc`.
pub const PRE_ALLOC: c_int = 1;
/// Buffer type: any other.
pub const EXT_ALLOC: c_int = 2;
/// `memalloc`, `memfree`: a buffer that is sent.
pub const SEND: c_int = 1;
/// `memalloc`, `memfree`: a buffer that is received into.
pub const RECV: c_int = 2;
/// `set_info`: an address is no longer used.
pub const DROP_ADDR: c_int = 1;
/// `get_info`: asks whether an address may be dropped.
pub const DROP_ADDR_QUERY: c_int = 7;

/// Loads the library and passes it the host's functions.
pub fn set_host(library: &OsStr, host: &Host) -> Result<(), String> {
    type SetHost = unsafe extern "C" fn(*const Host) -> c_int;
    let symbol: NonNull<c_void> = Library::open(library)?.symbol(c"bmi_mx_set_host")?;
    // SAFETY: the symbol of this name is a function of this type.
    let set_host = unsafe { std::mem::transmute::<*mut c_void, SetHost>(symbol.as_ptr()) };
    // SAFETY: `host` is of the size it says; the library copies it.
    match unsafe { set_host(host) } {
        0 => Ok(()),
        code => Err(format!("bmi_mx_set_host: {}", crate::codes::name(code))),
    }
}
