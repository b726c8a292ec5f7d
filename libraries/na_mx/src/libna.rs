//! The libna that has loaded this plugin: its version, and the functions that the plugin calls.
//!
//! ```text
//!   loaded --> NA_Version_get --> 4.0, 5.0, 6.0: the table of that version
//!                         `-----> another, or none: one line in the log, and no protocol is supported
//! ```
//!
//! The functions are looked up, not linked: an unusable plugin must not prevent Mercury from loading others.

use crate::abi::{NA_Version_get, na_cb_completion_add, na_protocol_info_alloc};
use libc::{RTLD_DEFAULT, RTLD_LAZY, RTLD_NOLOAD, c_int, c_void, dl_phdr_info, size_t};
use std::ffi::{CStr, CString};
use std::fmt;
use std::mem;
use std::ptr;
use std::sync::OnceLock;

/// Layouts of the table of operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Layout {
    /// Layout of NA 4.0.
    A,
    /// Layout of NA 5.0.
    B,
    /// Layout of NA 6.0.
    C,
}

/// The functions of libna.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Libna {
    /// Layout of libna's table.
    pub(crate) layout: Layout,
    /// Queues a completion.
    pub(crate) completion_add: na_cb_completion_add,
    /// Allocates an entry of protocol information.
    pub(crate) protocol_info_alloc: na_protocol_info_alloc,
}

static FOUND: OnceLock<Result<Libna, Unusable>> = OnceLock::new();

/// Returns the libna of this process, if it is usable.
pub(crate) fn libna() -> Option<&'static Libna> {
    FOUND.get_or_init(find).as_ref().ok()
}

/// Looks for libna, and logs why the plugin cannot be used with it.
pub(crate) fn look() -> Option<Layout> {
    match FOUND.get_or_init(find) {
        Ok(libna) => Some(libna.layout),
        Err(why) => {
            log::error!("{why}: the plugin mx is not available");
            None
        }
    }
}

/// Reasons why the plugin cannot be used.
#[derive(Debug)]
enum Unusable {
    /// libna has another version.
    Version(u32, u32),
    /// libna has no such function.
    Missing(&'static CStr),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(major, minor) => write!(
                f,
                "libna has version {major}.{minor}, and this plugin knows 4.0 (Mercury 2.3), 5.0 and 6.0 (Mercury 2.4)"
            ),
            Self::Missing(name) => write!(f, "libna has no {}", name.to_string_lossy()),
        }
    }
}

fn find() -> Result<Libna, Unusable> {
    let handle = if symbol(RTLD_DEFAULT, c"NA_Version_get").is_none() {
        loaded_libna()
    } else {
        RTLD_DEFAULT
    };
    let of = |name: &'static CStr| symbol(handle, name).ok_or(Unusable::Missing(name));
    let version = of(c"NA_Version_get")?;
    let add = of(c"na_cb_completion_add")?;
    let alloc = of(c"na_protocol_info_alloc")?;
    // SAFETY: the functions of these names have these types in every version.
    let (version, completion_add, protocol_info_alloc) = unsafe {
        (
            mem::transmute::<*mut c_void, NA_Version_get>(version),
            mem::transmute::<*mut c_void, na_cb_completion_add>(add),
            mem::transmute::<*mut c_void, na_protocol_info_alloc>(alloc),
        )
    };
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three numbers to write to.
    unsafe { version(&raw mut major, &raw mut minor, &raw mut patch) };
    let layout = match (major, minor) {
        (4, 0) => Layout::A,
        (5, 0) => Layout::B,
        (6, 0) => Layout::C,
        _ => return Err(Unusable::Version(major, minor)),
    };
    Ok(Libna {
        layout,
        completion_add,
        protocol_info_alloc,
    })
}

fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle from the loader, and a name that ends with NUL.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Returns a handle of libna if a library loaded it with local symbols.
fn loaded_libna() -> *mut c_void {
    unsafe extern "C" fn look(info: *mut dl_phdr_info, _: size_t, into: *mut c_void) -> c_int {
        // SAFETY: the loader passes a description whose name is a string or NULL, and our own pointer.
        let (name, path) = unsafe { ((*info).dlpi_name, &mut *into.cast::<Option<CString>>()) };
        if name.is_null() {
            return 0;
        }
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(name) };
        let file = name.to_bytes().rsplit(|byte| *byte == b'/').next();
        let is_libna = file.is_some_and(|file| file.starts_with(b"libna.so"));
        if is_libna {
            *path = Some(name.to_owned());
        }
        c_int::from(is_libna)
    }
    let mut path: Option<CString> = None;
    // SAFETY: the function gets a pointer to `path`, and keeps no reference.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut path).cast()) };
    path.map_or(ptr::null_mut(), |path| {
        // SAFETY: a string; RTLD_NOLOAD loads nothing.
        unsafe { libc::dlopen(path.as_ptr(), RTLD_LAZY | RTLD_NOLOAD) }
    })
}
