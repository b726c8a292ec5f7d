//! The method's table of functions, as any C program sees it.

use crate::library::Library;
use libc::{c_char, c_int, c_void};
use std::ffi::OsStr;

/// `struct bmi_method_ops` of OrangeFS 2.10; members this program does not call are left opaque.
#[repr(C)]
pub(crate) struct Ops {
    method_name: *const c_char,
    flags: c_int,
    pub(crate) initialize: unsafe extern "C" fn(*mut c_void, c_int, c_int, *const c_char) -> c_int,
    pub(crate) finalize: unsafe extern "C" fn() -> c_int,
    pub(crate) set_info: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
    get_info: *const c_void,
    memalloc: *const c_void,
    memfree: *const c_void,
    pub(crate) unexpected_free: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(crate) post_send: PostSend,
    pub(crate) post_sendunexpected: PostSend,
    pub(crate) post_recv: unsafe extern "C" fn(
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
    test: *const c_void,
    testsome: *const c_void,
    pub(crate) testcontext: unsafe extern "C" fn(
        c_int,
        *mut i64,
        *mut c_int,
        *mut i32,
        *mut i64,
        *mut *mut c_void,
        c_int,
        i64,
    ) -> c_int,
    pub(crate) testunexpected:
        unsafe extern "C" fn(c_int, *mut c_int, *mut Unexpected, c_int) -> c_int,
    pub(crate) method_addr_lookup: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    post_send_list: *const c_void,
    post_recv_list: *const c_void,
    post_sendunexpected_list: *const c_void,
    pub(crate) open_context: unsafe extern "C" fn(i64) -> c_int,
    pub(crate) close_context: unsafe extern "C" fn(i64),
    cancel: *const c_void,
    rev_lookup_unexpected: *const c_void,
    query_addr_range: *const c_void,
}

type PostSend = unsafe extern "C" fn(
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

const _: () = assert!(size_of::<Ops>() == 200);

/// `struct bmi_method_unexpected_info`.
#[repr(C)]
pub(crate) struct Unexpected {
    pub(crate) error_code: i32,
    pub(crate) addr: *mut c_void,
    pub(crate) buffer: *mut c_void,
    pub(crate) size: i64,
    pub(crate) tag: i32,
}

pub(crate) const INIT_SERVER: c_int = 1;
pub(crate) const EXT_ALLOC: c_int = 2;
pub(crate) const DROP_ADDR: c_int = 1;

/// Loads the library and finds its table. It stays loaded.
pub(crate) fn load(library: &OsStr) -> Result<&'static Ops, String> {
    let table = Library::open(library)?.symbol(c"bmi_mx_ops")?;
    // SAFETY: `bmi_mx_ops` is a constant table with the layout above, none of whose entries is
    // NULL, and the library is never unloaded.
    Ok(unsafe { table.cast::<Ops>().as_ref() })
}
