//! Finds the library or program that called this one.
//!
//! ```text
//!   stack:  ours, ours, ... | libbmi.so | libna_plugin_bmi.so, ...
//!                             `- the first frame outside of this object: dladdr --> dlopen(NOLOAD)
//! ```

use libc::{Dl_info, c_int, c_void};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;

/// A loaded library, or the program.
#[derive(Clone, Copy)]
pub(super) struct Library(*mut c_void);

impl Library {
    /// Looks up a symbol in the library and those that it needs, then in the global scope.
    pub(super) fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        let found = [self.0, libc::RTLD_DEFAULT].map(|handle| {
            // SAFETY: `name` is a C string; the handle came from dlopen and is never closed, or is RTLD_DEFAULT.
            unsafe { libc::dlsym(handle, name.as_ptr()) }
        });
        found.into_iter().find(|address| !address.is_null())
    }
}

/// Returns the library that called this one.
pub(super) fn library() -> Library {
    let mut search = Search {
        own: object(library as *const c_void).map(|info| info.dli_fbase),
        caller: None,
    };
    // SAFETY: the function has the signature that the unwinder wants, and `search` outlives the call.
    unsafe { _Unwind_Backtrace(on_frame, (&raw mut search).cast()) };
    let Some(caller) = search.caller else {
        return Library(libc::RTLD_DEFAULT);
    };
    // SAFETY: the name belongs to the loader and stays valid while the object is loaded, which its frame on this stack
    // ensures. Nothing is loaded. The program itself has no such name.
    let handle = unsafe {
        let known = libc::dlopen(caller.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if known.is_null() {
            libc::dlopen(ptr::null(), libc::RTLD_NOLOAD | libc::RTLD_LAZY)
        } else {
            known
        }
    };
    // Null is RTLD_DEFAULT.
    Library(handle)
}

/// State of the walk up the stack.
struct Search {
    own: Option<*mut c_void>,
    caller: Option<Dl_info>,
}

/// Returns the loaded object that contains an address.
fn object(address: *const c_void) -> Option<Dl_info> {
    let mut info = MaybeUninit::<Dl_info>::zeroed();
    // SAFETY: dladdr takes any address; all bits zero is a value of the struct.
    unsafe { (libc::dladdr(address, info.as_mut_ptr()) != 0).then(|| info.assume_init()) }
}

extern "C" fn on_frame(frame: *mut c_void, search: *mut c_void) -> c_int {
    // SAFETY: passed by `library`, which does not use it meanwhile.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: the frame that the unwinder is at.
    let address = unsafe { _Unwind_GetIP(frame) };
    match object(ptr::with_exposed_provenance(address)) {
        Some(info) if Some(info.dli_fbase) == search.own => GO_ON,
        found => {
            search.caller = found;
            STOP
        }
    }
}

/// `_URC_NO_REASON`.
const GO_ON: c_int = 0;
/// `_URC_NORMAL_STOP`.
const STOP: c_int = 4;

// The unwinder that the standard library is linked with (Itanium C++ ABI: Exception Handling, 1.6).
unsafe extern "C" {
    fn _Unwind_Backtrace(
        on_frame: extern "C" fn(frame: *mut c_void, search: *mut c_void) -> c_int,
        search: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_the_first_object_on_the_stack_that_is_not_ours() {
        // A thread of this program begins in the C library.
        let begun = std::thread::spawn(|| library().0.expose_provenance());
        let caller = ptr::with_exposed_provenance_mut(begun.join().unwrap());
        assert_ne!(caller, libc::RTLD_DEFAULT);
        // SAFETY: no name, so the program itself; it is loaded.
        let program = unsafe { libc::dlopen(ptr::null(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        assert_ne!(caller, program);
    }
}
