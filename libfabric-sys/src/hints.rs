//! Hints for the providers.
//!
//! ```text
//!   Library::hints()      fi_dupinfo(NULL): all attributes there, all zero = "anything will do"
//!        |  set_caps, set_provider, ...
//!        v
//!   Library::query(.., Some(&hints))  ->  InfoList
//!        |
//!   drop: fi_freeinfo     frees the strings and the address as well, so they come from malloc
//! ```
//!
//! Owns: one `fi_info`, and that every pointer in it is null or `malloc`ed.

use std::error::Error;
use std::ffi::{CString, c_char};
use std::fmt;
use std::ptr::NonNull;

use libc::c_int;

use crate::abi::{FI_ENOMEM, fi_ep_type, fi_info, fi_progress, fi_threading};
use crate::library::Library;

/// Hints for [`Library::query`].
pub struct Hints {
    library: Library,
    /// All five attribute pointers are valid.
    raw: NonNull<fi_info>,
}

// SAFETY: plain memory that only this has; the library's functions may be called anywhere.
unsafe impl Send for Hints {}
// SAFETY: through a shared reference it is only read. `as_ptr` allows more, but unsafely.
unsafe impl Sync for Hints {}

/// A name that cannot be a C string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName(pub String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name with a zero byte or too long: {:?}", self.0)
    }
}

impl Error for BadName {}

/// Setters of members behind an attribute pointer.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident = $($attr:ident . $member:ident),+ : $ty:ty;)+) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, value: $ty) -> &mut Self {
            $(
                // SAFETY: `new` saw that the attribute is there, and it is not shared.
                unsafe { (*(*self.raw.as_ptr()).$attr).$member = value };
            )+
            self
        }
    )+};
}

impl Hints {
    pub(crate) fn new(library: &Library) -> Result<Self, i32> {
        // SAFETY: null asks for an empty info.
        let raw = unsafe { (library.functions().dupinfo)(std::ptr::null()) };
        let Some(raw) = NonNull::new(raw) else {
            return Err(FI_ENOMEM);
        };
        // From here on it is freed whatever happens.
        let hints = Self {
            library: library.clone(),
            raw,
        };
        // SAFETY: just made by the library.
        let info = unsafe { raw.as_ref() };
        let whole = !info.tx_attr.is_null()
            && !info.rx_attr.is_null()
            && !info.ep_attr.is_null()
            && !info.domain_attr.is_null()
            && !info.fabric_attr.is_null();
        if whole { Ok(hints) } else { Err(FI_ENOMEM) }
    }

    setters! {
        /// `FI_EP_*`
        set_ep_type = ep_attr.r#type: fi_ep_type;
        /// `FI_THREAD_*`
        set_threading = domain_attr.threading: fi_threading;
        /// `FI_PROGRESS_*` of messages.
        set_data_progress = domain_attr.data_progress: fi_progress;
        /// `FI_RM_*`
        set_resource_mgmt = domain_attr.resource_mgmt: u32;
        /// The `FI_MR_*` bits the user can honour.
        set_mr_mode = domain_attr.mr_mode: c_int;
        /// The order wanted, of sends and receives.
        set_msg_order = tx_attr.msg_order, rx_attr.msg_order: u64;
    }

    /// Capabilities.
    pub fn set_caps(&mut self, caps: u64) -> &mut Self {
        // SAFETY: a live info that only this has.
        unsafe { (*self.raw.as_ptr()).caps = caps };
        self
    }

    /// The mode bits that the user can give the provider.
    pub fn set_mode(&mut self, mode: u64) -> &mut Self {
        // SAFETY: a live info that only this has.
        unsafe { (*self.raw.as_ptr()).mode = mode };
        self
    }

    /// The provider: `tcp` and `tcp;ofi_rxm` do not understand each other, so say which.
    ///
    /// The name of one layer also brings offers in which it is below another: 1.17 answers `tcp`
    /// with `tcp;ofi_rxm`. Compare [`crate::Info::provider`] where it matters.
    ///
    /// # Errors
    ///
    /// [`BadName`] if the name cannot be a C string; the hints are as before.
    pub fn set_provider(&mut self, name: &str) -> Result<&mut Self, BadName> {
        // SAFETY: `new` saw that the attribute is there.
        let slot = unsafe { &raw mut (*(*self.raw.as_ptr()).fabric_attr).prov_name };
        // SAFETY: a string of our info's, or null.
        unsafe { replace(slot, name) }?;
        Ok(self)
    }

    /// The library these are for.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The info itself, to be handed to the library, or for what has no setter. Pointers put
    /// there must come from `malloc`.
    pub fn as_ptr(&self) -> *mut fi_info {
        self.raw.as_ptr()
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        // SAFETY: this library's own, freed once.
        unsafe { (self.library.functions().freeinfo)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: alive, and only read.
        let info = unsafe { self.raw.as_ref() };
        f.debug_struct("Hints")
            .field("caps", &format_args!("{:#x}", info.caps))
            .field("mode", &format_args!("{:#x}", info.mode))
            .field("addr_format", &info.addr_format)
            .finish_non_exhaustive()
    }
}

/// Puts a copy of `name` in the place of a string.
///
/// # Safety
///
/// `slot` holds null or a string from `malloc`, and is not shared.
unsafe fn replace(slot: *mut *mut c_char, name: &str) -> Result<(), BadName> {
    let text = CString::new(name).map_err(|_| BadName(name.to_owned()))?;
    let copy = allocate(text.as_bytes_with_nul()).ok_or_else(|| BadName(name.to_owned()))?;
    // SAFETY: the caller's word.
    let old = unsafe { slot.replace(copy.as_ptr().cast()) };
    // SAFETY: null or from `malloc`, and no longer reachable.
    unsafe { libc::free(old.cast()) };
    Ok(())
}

/// A copy from `malloc`, as `fi_freeinfo` frees it; `None` without memory.
fn allocate(bytes: &[u8]) -> Option<NonNull<u8>> {
    // SAFETY: any size is allowed.
    let copy = NonNull::new(unsafe { libc::malloc(bytes.len()) }.cast::<u8>())?;
    // SAFETY: as many bytes as were just allocated, which cannot overlap.
    unsafe {
        copy.as_ptr()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
    };
    Some(copy)
}
