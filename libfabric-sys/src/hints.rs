//! Hints for queries of providers.
//!
//! ```text
//!   Library::hints()      fi_dupinfo(NULL): all attributes allocated, all zero = no constraint
//!        |  set_caps, set_provider, ...
//!        v
//!   Library::query(.., Some(&hints))  ->  InfoList
//!        |
//!   drop: fi_freeinfo     frees the strings and the address as well, so they come from malloc
//! ```
//!
//! Owns: one `fi_info`, in which every pointer is null or `malloc`ed.

use std::error::Error;
use std::ffi::{CString, c_char};
use std::fmt;
use std::ptr::NonNull;

use libc::c_int;

use crate::abi::{FI_ENOMEM, fi_ep_type, fi_info, fi_progress, fi_threading};
use crate::library::Library;

/// Constraints on the offers that [`Library::query`] returns; members that are zero or null constrain nothing.
pub struct Hints {
    library: Library,
    /// Info whose five attribute pointers are valid.
    raw: NonNull<fi_info>,
}

// SAFETY: plain memory with one owner; the library's functions may be called on any thread.
unsafe impl Send for Hints {}
// SAFETY: through a shared reference it is only read. `as_ptr` allows more, but only with unsafe code.
unsafe impl Sync for Hints {}

/// Error for a name that cannot be a C string: it contains a zero byte, or there is no memory for the copy. Has the
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadName(pub String);

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name with a zero byte or too long: {:?}", self.0)
    }
}

impl Error for BadName {}

/// Defines setters of members behind an attribute pointer.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident = $($attr:ident . $member:ident),+ : $ty:ty;)+) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, value: $ty) -> &mut Self {
            $(
                // SAFETY: `new` checked that the attribute exists, and it is not shared.
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
        // From here on it is freed in all cases.
        let hints = Self {
            library: library.clone(),
            raw,
        };
        // SAFETY: just allocated by the library.
        let info = unsafe { raw.as_ref() };
        let whole = !info.tx_attr.is_null()
            && !info.rx_attr.is_null()
            && !info.ep_attr.is_null()
            && !info.domain_attr.is_null()
            && !info.fabric_attr.is_null();
        if whole { Ok(hints) } else { Err(FI_ENOMEM) }
    }

    setters! {
        /// Sets the endpoint type, `FI_EP_*`.
        set_ep_type = ep_attr.r#type: fi_ep_type;
        /// Sets the threading model, `FI_THREAD_*`.
        set_threading = domain_attr.threading: fi_threading;
        /// Sets the progress model of messages, `FI_PROGRESS_*`.
        set_data_progress = domain_attr.data_progress: fi_progress;
        /// Sets the resource management, `FI_RM_*`.
        set_resource_mgmt = domain_attr.resource_mgmt: u32;
        /// Sets the registration modes that the user supports, `FI_MR_*` bits.
        set_mr_mode = domain_attr.mr_mode: c_int;
        /// Sets the required order of sends and receives, `FI_ORDER_*`.
        set_msg_order = tx_attr.msg_order, rx_attr.msg_order: u64;
    }

    /// Sets the capabilities that offers must have, `FI_*` bits.
    pub fn set_caps(&mut self, caps: u64) -> &mut Self {
        // SAFETY: a live info with one owner.
        unsafe { (*self.raw.as_ptr()).caps = caps };
        self
    }

    /// Sets the mode bits that the user supports, such as `FI_CONTEXT`; offers that require others do not match.
    pub fn set_mode(&mut self, mode: u64) -> &mut Self {
        // SAFETY: a live info with one owner.
        unsafe { (*self.raw.as_ptr()).mode = mode };
        self
    }

    /// Sets the provider. Name it exactly: `tcp` and `tcp;ofi_rxm` cannot communicate.
    ///
    /// The name of one layer also matches offers in which it is below another: 1.17 answers `tcp` with `tcp;ofi_rxm`.
    /// Check [`crate::Info::provider`] where that matters.
    ///
    /// # Errors
    ///
    /// [`BadName`] if the name cannot be a C string; the hints are unchanged.
    pub fn set_provider(&mut self, name: &str) -> Result<&mut Self, BadName> {
        // SAFETY: `new` checked that the attribute exists.
        let slot = unsafe { &raw mut (*(*self.raw.as_ptr()).fabric_attr).prov_name };
        // SAFETY: a string of our info, or null.
        unsafe { replace(slot, name) }?;
        Ok(self)
    }

    /// Returns the library that allocated the hints, the only one that they may be passed to.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Returns the info itself, to pass to the library, or to set members without a setter. Pointers set there must
    /// come from `malloc`.
    pub fn as_ptr(&self) -> *mut fi_info {
        self.raw.as_ptr()
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        // SAFETY: allocated by this library, freed once.
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

/// Replaces a string by a copy of `name`.
///
/// # Safety
///
/// `slot` must hold null or a string from `malloc`, and must not be shared.
unsafe fn replace(slot: *mut *mut c_char, name: &str) -> Result<(), BadName> {
    let text = CString::new(name).map_err(|_| BadName(name.to_owned()))?;
    let copy = allocate(text.as_bytes_with_nul()).ok_or_else(|| BadName(name.to_owned()))?;
    // SAFETY: guaranteed by the caller.
    let old = unsafe { slot.replace(copy.as_ptr().cast()) };
    // SAFETY: null or from `malloc`, and no longer reachable.
    unsafe { libc::free(old.cast()) };
    Ok(())
}

/// Returns a copy in memory from `malloc`, which `fi_freeinfo` frees; `None` without memory.
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
