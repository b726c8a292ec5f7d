//! Offers of the providers: a list of infos that frees itself.
//!
//! ```text
//!   InfoList ----> fi_info --next--> fi_info --next--> null      freed together, by fi_freeinfo
//!                    ^                 ^
//!   iter():        Info              Info                        borrowed, checked accessors
//! ```
//!
//! Owns: the list, and checked access to its members.
//!
//! An attribute that a provider left out reads as zero, a name as empty.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::NonNull;

use libc::c_int;

use crate::abi::{FI_ENOMEM, fi_ep_type, fi_info};
use crate::library::Library;

/// List of providers' offers (`fi_info`), best first; freed on drop.
pub struct InfoList {
    library: Library,
    first: *mut fi_info,
}

// SAFETY: plain memory with one owner; the library's functions may be called on any thread.
unsafe impl Send for InfoList {}
// SAFETY: through a shared list it is only read. `Info::as_ptr` allows more, but only with unsafe code.
unsafe impl Sync for InfoList {}

impl InfoList {
    /// # Safety
    ///
    /// `first` must be null, or a list of this library that is not freed elsewhere.
    pub(crate) unsafe fn from_raw(library: Library, first: *mut fi_info) -> Self {
        Self { library, first }
    }

    /// Iterates over the offers.
    pub fn iter(&self) -> Offers<'_> {
        Offers {
            next: NonNull::new(self.first),
            list: self,
        }
    }

    /// Returns the best offer, if there is one.
    pub fn first(&self) -> Option<Info<'_>> {
        self.iter().next()
    }

    /// Returns true if there are no offers.
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Copies one offer to a list of its own, which outlives this one.
    ///
    /// # Errors
    ///
    /// `FI_ENOMEM` without memory.
    pub fn keep(&self, info: Info<'_>) -> Result<Self, i32> {
        // The offer's library, in case the offer is of another list.
        let library = info.library();
        // SAFETY: a live info of this library.
        let copy = unsafe { (library.functions().dupinfo)(info.as_ptr()) };
        if copy.is_null() {
            return Err(FI_ENOMEM);
        }
        // SAFETY: new, and not shared.
        Ok(unsafe { Self::from_raw(library.clone(), copy) })
    }
}

impl Drop for InfoList {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: allocated by this library, freed once.
            unsafe { (self.library.functions().freeinfo)(self.first) };
        }
    }
}

impl<'a> IntoIterator for &'a InfoList {
    type Item = Info<'a>;
    type IntoIter = Offers<'a>;

    fn into_iter(self) -> Offers<'a> {
        self.iter()
    }
}

impl fmt::Debug for InfoList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// Iterator over the offers of a list, in order.
#[derive(Clone)]
pub struct Offers<'a> {
    next: Option<NonNull<fi_info>>,
    list: &'a InfoList,
}

impl<'a> Iterator for Offers<'a> {
    type Item = Info<'a>;

    fn next(&mut self) -> Option<Info<'a>> {
        let raw = self.next?;
        // SAFETY: an entry of a live list.
        let next = unsafe { (*raw.as_ptr()).next };
        self.next = NonNull::new(next);
        Some(Info {
            raw,
            list: self.list,
        })
    }
}

/// Offer of a provider (`fi_info`), borrowed from a list. Numbers that the provider has left out read as 0, names as
/// empty.
#[derive(Clone, Copy)]
pub struct Info<'a> {
    raw: NonNull<fi_info>,
    list: &'a InfoList,
}

/// Defines accessors of members behind an attribute pointer, zero if that is null.
macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident = $attr:ident . $member:ident : $ty:ty;)+) => {$(
        $(#[$doc])*
        pub fn $name(self) -> $ty {
            let attr = self.entry().$attr;
            if attr.is_null() {
                return 0;
            }
            // SAFETY: not null, so allocated by the library with at least the members of `abi`, and alive as long as
            // the list.
            unsafe { (*attr).$member }
        }
    )+};
}

/// Defines accessors of names, empty if absent.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $attr:ident . $member:ident;)+) => {$(
        $(#[$doc])*
        pub fn $name(self) -> Cow<'a, str> {
            let attr = self.entry().$attr;
            if attr.is_null() {
                return Cow::Borrowed("");
            }
            // SAFETY: as above.
            let name = unsafe { (*attr).$member };
            // SAFETY: a string of the library, alive as long as the list.
            unsafe { text(name) }
        }
    )+};
}

impl<'a> Info<'a> {
    attributes! {
        /// Longest message that can be injected, in bytes.
        inject_size = tx_attr.inject_size: usize;
        /// Maximum number of outstanding sends.
        tx_size = tx_attr.size: usize;
        /// Ordering guarantees of sends, `FI_ORDER_*`.
        tx_msg_order = tx_attr.msg_order: u64;
        /// Maximum number of outstanding receives.
        rx_size = rx_attr.size: usize;
        /// Ordering guarantees of receives, `FI_ORDER_*`.
        rx_msg_order = rx_attr.msg_order: u64;
        /// Mode bits that sends require.
        tx_mode = tx_attr.mode: u64;
        /// Mode bits that receives require.
        rx_mode = rx_attr.mode: u64;
        /// Endpoint type, `FI_EP_*`.
        ep_type = ep_attr.r#type: fi_ep_type;
        /// Wire protocol, `FI_PROTO_*`.
        protocol = ep_attr.protocol: u32;
        /// Longest message, in bytes.
        max_msg_size = ep_attr.max_msg_size: usize;
        /// Bytes required before each buffer.
        msg_prefix_size = ep_attr.msg_prefix_size: usize;
        /// Resource management, `FI_RM_*`.
        resource_mgmt = domain_attr.resource_mgmt: u32;
        /// Type of address vectors, `FI_AV_*`.
        av_type = domain_attr.av_type: u32;
        /// Registration modes, `FI_MR_*` bits.
        mr_mode = domain_attr.mr_mode: c_int;
        /// Size of a remote key, in bytes.
        mr_key_size = domain_attr.mr_key_size: usize;
        /// Version of the provider.
        provider_version = fabric_attr.prov_version: u32;
        /// Version of the interface that the offer is for.
        api_version = fabric_attr.api_version: u32;
    }

    /// Returns the library that the offer comes from.
    pub fn library(self) -> &'a Library {
        &self.list.library
    }

    /// Returns the capabilities of the offer, `FI_*` bits.
    pub fn caps(self) -> u64 {
        self.entry().caps
    }

    /// Returns the mode bits that the provider requires of its user, such as `FI_CONTEXT`.
    pub fn mode(self) -> u64 {
        self.entry().mode
    }

    /// Returns libfabric's number for the format of addresses, such as `FI_SOCKADDR_IN`.
    pub fn addr_format(self) -> u32 {
        self.entry().addr_format
    }

    names! {
        /// Name of the provider, layers joined by `;`.
        provider = fabric_attr.prov_name;
        /// Name of the fabric, usually a subnet.
        fabric_name = fabric_attr.name;
        /// Name of the domain, usually a device.
        domain_name = domain_attr.name;
    }

    /// Returns the local address that an endpoint of this offer would have, in the offer's format; empty if the offer
    /// has none.
    pub fn src_addr(self) -> &'a [u8] {
        let fi_info {
            src_addr,
            src_addrlen,
            ..
        } = self.entry();
        // SAFETY: bytes of the library, alive as long as the list.
        unsafe { bytes(src_addr.cast(), src_addrlen) }
    }

    /// Returns the info itself, to pass to the library. A caller that writes to it must ensure that it is not read
    /// meanwhile, and must not change pointers.
    pub fn as_ptr(self) -> *mut fi_info {
        self.raw.as_ptr()
    }

    /// Returns a copy of the members, whose pointers are valid as long as the list.
    pub(crate) fn entry(self) -> fi_info {
        // SAFETY: an entry of a live list.
        unsafe { *self.as_ptr() }
    }
}

impl fmt::Debug for Info<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Info")
            .field("provider", &self.provider())
            .field("fabric", &self.fabric_name())
            .field("domain", &self.domain_name())
            .field("ep_type", &self.ep_type())
            .field("protocol", &self.protocol())
            .finish_non_exhaustive()
    }
}

/// # Safety
///
/// `start` must be null, or a C string that lives for `'a`.
unsafe fn text<'a>(start: *const c_char) -> Cow<'a, str> {
    if start.is_null() {
        return Cow::Borrowed("");
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(start) }.to_string_lossy()
}

/// # Safety
///
/// `start` must be null, or point to `len` bytes that live for `'a`.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    if start.is_null() || len > MAX_ADDRESS {
        return &[];
    }
    // SAFETY: guaranteed by the caller, with a sane length.
    unsafe { std::slice::from_raw_parts(start, len) }
}

/// Longest plausible address in bytes: no fabric's is nearly as long (the longest, `shm`'s, are file names), so a
/// greater length is taken for an error.
const MAX_ADDRESS: usize = 4096;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::abi::{FI_ENOSYS, fi_fabric_attr, fi_version, fid_fabric};
    use crate::library::Functions;
    use libc::c_void;

    /// Number of infos. Only the test that reads it uses this library.
    static ALIVE: AtomicUsize = AtomicUsize::new(0);

    fn info() -> *mut fi_info {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        // SAFETY: memory for one, for which all zeroes is valid.
        unsafe { libc::calloc(1, size_of::<fi_info>()).cast() }
    }

    unsafe extern "C" fn getinfo(
        _: u32,
        _: *const c_char,
        _: *const c_char,
        flags: u64,
        _: *const fi_info,
        list: *mut *mut fi_info,
    ) -> c_int {
        if flags != 0 {
            return -FI_ENOMEM;
        }
        let (first, second) = (info(), info());
        static SOURCE: [u8; 3] = [1, 2, 3];
        // SAFETY: new, and an output.
        unsafe {
            (*first).next = second;
            (*first).caps = 9;
            (*first).src_addr = SOURCE.as_ptr().cast_mut().cast();
            (*first).src_addrlen = 3;
            (*second).src_addr = SOURCE.as_ptr().cast_mut().cast();
            (*second).src_addrlen = usize::MAX;
            *list = first;
        }
        0
    }

    unsafe extern "C" fn freeinfo(info: *mut fi_info) {
        let mut next = info;
        while !next.is_null() {
            let this = next;
            // SAFETY: an entry of a list made above.
            next = unsafe { (*this).next };
            // SAFETY: from `calloc`, and out of the list.
            unsafe { libc::free(this.cast()) };
            ALIVE.fetch_sub(1, Ordering::Relaxed);
        }
    }

    unsafe extern "C" fn dupinfo(_: *const fi_info) -> *mut fi_info {
        info()
    }

    unsafe extern "C" fn fabric(
        _: *mut fi_fabric_attr,
        _: *mut *mut fid_fabric,
        _: *mut c_void,
    ) -> c_int {
        -FI_ENOSYS
    }

    unsafe extern "C" fn version() -> u32 {
        fi_version(1, 12)
    }

    unsafe extern "C" fn strerror(_: c_int) -> *const c_char {
        std::ptr::null()
    }

    #[test]
    fn omitted_provider_fields_read_as_empty_and_free_once() {
        let functions = Functions {
            getinfo,
            freeinfo,
            dupinfo,
            fabric,
            version,
            strerror,
        };
        // SAFETY: they behave like libfabric's, as far as they are called here.
        let library = unsafe { Library::from_functions(functions) };
        assert_eq!(library.version(), (1, 12));
        assert_eq!(library.api_version(), fi_version(1, 12));
        assert_eq!(library.path(), None);
        assert_eq!(library.strerror(-5), "error 5");

        let list = library.query(None, None, 0, None).expect("two offers");
        assert_eq!(list.iter().count(), 2);
        let first = list.first().expect("an offer");
        assert_eq!(first.caps(), 9);
        assert_eq!(first.provider(), "");
        assert_eq!(first.fabric_name(), "");
        assert_eq!(first.domain_name(), "");
        assert_eq!(first.max_msg_size(), 0);
        assert_eq!(first.mr_mode(), 0);
        assert_eq!(first.src_addr(), [1, 2, 3]);
        let second = list.iter().nth(1).expect("another");
        assert_eq!(second.src_addr(), [0_u8; 0], "that length is not believed");
        assert_eq!(
            library.fabric(first),
            Err(crate::abi::FI_EINVAL),
            "it has no attributes"
        );

        let kept = list.keep(first).expect("there is memory");
        drop(list);
        assert_eq!(ALIVE.load(Ordering::Relaxed), 1);
        drop(kept);
        // Hints without attributes could not be filled in.
        assert_eq!(library.hints().expect_err("no attributes"), FI_ENOMEM);
        let error = library
            .query(None, None, 1, None)
            .expect_err("the flag asks for it");
        assert_eq!(error, FI_ENOMEM);
        assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    }
}
