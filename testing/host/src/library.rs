//! Libraries loaded by name, and their symbols.

use libc::{c_char, c_void};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{NonNull, null};

/// A library that stays loaded.
#[derive(Clone, Copy)]
pub struct Library(NonNull<c_void>);

impl Library {
    /// Loads a library by its path, or by a name that the system's loader finds.
    pub fn open(name: &OsStr) -> Result<Self, String> {
        let path = CString::new(name.as_bytes()).map_err(|_| "a NUL in the library's name")?;
        // SAFETY: `path` is a C string; loading runs no code but the library's constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        let handle = NonNull::new(handle).map(Self);
        handle.ok_or_else(|| {
            let error = last_error();
            if path.as_bytes().contains(&b'/') {
                return error;
            }
            format!("{error} (looked for in {} and ldconfig's)", directories())
        })
    }

    /// Returns the address of a symbol, never null.
    pub fn symbol(self, name: &CStr) -> Result<NonNull<c_void>, String> {
        let name: *const c_char = name.as_ptr();
        // SAFETY: the handle is open and the name is a C string.
        let symbol = unsafe { libc::dlsym(self.0.as_ptr(), name) };
        NonNull::new(symbol).ok_or_else(last_error)
    }
}

/// Returns the directories that the loader searches for a name.
fn directories() -> String {
    // `Dl_serinfo`: its size, the number of names, and then each with its flags; the texts follow.
    let mut head = [null::<c_char>(); 2];
    // SAFETY: takes a constant; this is the program itself.
    let program = unsafe { libc::dlopen(null(), libc::RTLD_LAZY) };
    // SAFETY: the program's handle, and room for the head.
    unsafe { libc::dlinfo(program, libc::RTLD_DI_SERINFOSIZE, head.as_mut_ptr().cast()) };
    let mut info = vec![null(); head[0].addr().div_ceil(size_of::<*const c_char>()).max(2)];
    info[..2].copy_from_slice(&head);
    // SAFETY: as much room as was asked for.
    unsafe { libc::dlinfo(program, libc::RTLD_DI_SERINFO, info.as_mut_ptr().cast()) };
    let count = head[1].addr() as u32 as usize;
    let entries = info[2..].chunks_exact(2).take(count);
    // SAFETY: C strings of the loader's in the same memory.
    let names = entries.map(|entry| unsafe { CStr::from_ptr(entry[0]) }.to_string_lossy());
    names.collect::<Vec<_>>().join(", ")
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
