//! Libraries that are loaded by name, and what is found in them.

use libc::{c_char, c_void};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;

/// A library that stays loaded.
#[derive(Clone, Copy)]
pub struct Library(NonNull<c_void>);

impl Library {
    /// Loads it: a path, or a name the system's loader finds.
    pub fn open(name: &OsStr) -> Result<Self, String> {
        let path = CString::new(name.as_bytes()).map_err(|_| "a NUL in the library's name")?;
        // SAFETY: `path` is a C string; loading runs no code but the library's constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        NonNull::new(handle).map(Self).ok_or_else(last_error)
    }

    /// The address of a symbol, never null.
    pub fn symbol(self, name: &CStr) -> Result<NonNull<c_void>, String> {
        let name: *const c_char = name.as_ptr();
        // SAFETY: the handle is open and the name is a C string.
        let symbol = unsafe { libc::dlsym(self.0.as_ptr(), name) };
        NonNull::new(symbol).ok_or_else(last_error)
    }
}

fn last_error() -> String {
    // SAFETY: takes nothing; the text is copied before anything else can call `dlerror`.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error".into();
    }
    // SAFETY: a non-null result is a C string.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
