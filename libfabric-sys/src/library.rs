//! A loaded libfabric: six functions, and everything reached through them.
//!
//! ```text
//!   Library::get()              the process's library, loaded on first use
//!   Library::load(path)         a given file
//!   Library::from_functions     a fake provider in tests
//!        |
//!        |-- hints, query -> Hints, InfoList
//!        |-- fabric ------> fid_fabric, and from there on through `calls`
//!        `-- version, strerror
//! ```
//!
//! Owns: the functions, and the rule that the first query runs with signal dispositions saved. `load` finds the file.
//!
//! A `Library` is cheap to clone, and stays valid forever: it is never unloaded.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use libc::c_int;

use crate::abi::{
    FI_EINVAL, FI_EOTHER, fi_fabric_attr, fi_info, fi_major, fi_minor, fi_version, fid_fabric,
};
use crate::hints::Hints;
use crate::info::{Info, InfoList};
use crate::load::{self, LoadError};
use crate::signals::SignalDispositions;

/// Type of `fi_getinfo`.
pub type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int;
/// Type of `fi_freeinfo`.
pub type FreeInfo = unsafe extern "C" fn(info: *mut fi_info);
/// Type of `fi_dupinfo`.
pub type DupInfo = unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info;
/// Type of `fi_fabric`.
pub type OpenFabric = unsafe extern "C" fn(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int;
/// Type of `fi_version`.
pub type Version = unsafe extern "C" fn() -> u32;
/// Type of `fi_strerror`.
pub type StrError = unsafe extern "C" fn(errnum: c_int) -> *const c_char;

/// Functions that are symbols of the library; all others are entries of operation tables.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Lists the providers' offers.
    pub getinfo: GetInfo,
    /// Frees a list, with every string and address in it, by `free`.
    pub freeinfo: FreeInfo,
    /// Copies one entry; for null, allocates an empty one with all its attributes.
    pub dupinfo: DupInfo,
    /// Opens a fabric.
    pub fabric: OpenFabric,
    /// Returns the version of the library.
    pub version: Version,
    /// Returns the text for an error.
    pub strerror: StrError,
}

/// Loaded libfabric.
#[derive(Clone)]
pub struct Library {
    functions: Functions,
    version: (u32, u32),
    /// Loaded file; empty for [`Library::from_functions`].
    path: Arc<Path>,
    /// Done once the first query has initialised the providers, with all their side effects.
    first_query: Arc<Once>,
}

impl Library {
    /// Version of the interface that queries request; an older library is asked for its own.
    ///
    /// Deliberately the oldest version whose headers the layouts were compared with: at this request, every later
    /// library writes completions, errors and infos as 1.17 did, however much its own have grown.
    pub const API_VERSION: (u32, u32) = (1, 17);

    /// Returns the process's libfabric: the one that `MX_LIBFABRIC` names, or else `libfabric.so.1`. Loads it at the
    /// first call, which takes hundreds of milliseconds where PSM is installed.
    ///
    /// # Errors
    ///
    /// Fails if it is absent or unusable. An absent one is looked for again at the next call; an unusable file is
    /// remembered.
    pub fn get() -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Library> = OnceLock::new();
        static FAILED: Mutex<Option<LoadError>> = Mutex::new(None);

        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        // Held while loading: one thread loads, the others wait for it.
        let mut failed: MutexGuard<'_, Option<LoadError>> =
            FAILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let path = load::wanted();
        if let Some(error) = failed.as_ref().filter(|error| error.asked() == path) {
            return Err(error.clone());
        }
        match Self::load(&path) {
            Ok(library) => Ok(LOADED.get_or_init(|| library)),
            Err(error) => {
                let remember = !matches!(error, LoadError::NotFound { .. });
                *failed = remember.then(|| error.clone());
                Err(error)
            }
        }
    }

    /// Loads a certain file. Its constructors run: it is trusted like the system's own libraries. A name without a
    /// slash is searched for where the system searches.
    ///
    /// # Errors
    ///
    /// Fails if the file is absent or unusable.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let (functions, version) = load::load(path)?;
        Ok(Self::new(functions, version, path))
    }

    /// Creates a library from given functions; they define its version.
    ///
    /// # Safety
    ///
    /// The functions must behave like libfabric's, with the layouts of [`crate::abi`], as long as the process lives;
    /// memory that `fi_freeinfo` frees must come from `malloc`.
    pub unsafe fn from_functions(functions: Functions) -> Self {
        // SAFETY: guaranteed by the caller.
        let number = unsafe { (functions.version)() };
        Self::new(
            functions,
            (fi_major(number), fi_minor(number)),
            Path::new(""),
        )
    }

    fn new(functions: Functions, version: (u32, u32), path: &Path) -> Self {
        Self {
            functions,
            version,
            path: path.into(),
            first_query: Arc::new(Once::new()),
        }
    }

    /// Returns the major and minor version of the library.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Returns the version of the interface that queries request, encoded for `fi_getinfo`: [`Self::API_VERSION`], or
    /// the library's own if that is older.
    pub fn api_version(&self) -> u32 {
        let (major, minor) = self.version.min(Self::API_VERSION);
        fi_version(major, minor)
    }

    /// Returns the name or path of the file as requested; `None` for [`Library::from_functions`].
    pub fn path(&self) -> Option<&Path> {
        (!self.path.as_os_str().is_empty()).then_some(&*self.path)
    }

    /// Returns the functions of the library.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Returns the text for an error, which may be positive or negated.
    pub fn strerror(&self, code: i32) -> String {
        // `i32::MIN` has no absolute value; no error has that code.
        let errnum = code.checked_abs().unwrap_or(FI_EOTHER);
        // SAFETY: any number is allowed.
        let text = unsafe { (self.functions.strerror)(errnum) };
        if text.is_null() {
            return format!("error {errnum}");
        }
        // SAFETY: not null, and a C string: constant for libfabric's own numbers. For the system's it is `strerror`'s,
        // constant as well for every number that libfabric uses.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// Returns empty hints, to fill in.
    ///
    /// # Errors
    ///
    /// `FI_ENOMEM` without memory.
    pub fn hints(&self) -> Result<Hints, i32> {
        Hints::new(self)
    }

    /// Returns the providers' offers for these hints, best first (`fi_getinfo`).
    ///
    /// # Errors
    ///
    /// The error, positive; `FI_ENODATA` if no offer matches, `FI_EINVAL` for another library's hints.
    pub fn query(
        &self,
        node: Option<&CStr>,
        service: Option<&CStr>,
        flags: u64,
        hints: Option<&Hints>,
    ) -> Result<InfoList, i32> {
        if hints.is_some_and(|hints| !self.is(hints.library())) {
            return Err(FI_EINVAL);
        }
        let mut list = std::ptr::null_mut();
        let mut code = 0;
        let mut ask = || {
            // SAFETY: C strings or null, an info of this library or null, and an output.
            code = unsafe {
                (self.functions.getinfo)(
                    self.api_version(),
                    node.map_or(std::ptr::null(), CStr::as_ptr),
                    service.map_or(std::ptr::null(), CStr::as_ptr),
                    flags,
                    hints.map_or(std::ptr::null(), |hints| hints.as_ptr().cast_const()),
                    &raw mut list,
                )
            };
        };
        let mut asked = false;
        self.first_query.call_once(|| {
            let _signals = SignalDispositions::save();
            asked = true;
            ask();
        });
        if !asked {
            ask();
        }
        if code != 0 {
            return Err(code.checked_abs().unwrap_or(FI_EOTHER));
        }
        // SAFETY: the list that `fi_getinfo` returned on success, not shared.
        Ok(unsafe { InfoList::from_raw(self.clone(), list) })
    }

    /// Opens the fabric of an offer (`fi_fabric`). Close it with `fi_close`, after everything that was opened from it.
    ///
    /// # Errors
    ///
    /// The error, positive; `FI_EINVAL` for another library's offer.
    pub fn fabric(&self, info: Info<'_>) -> Result<NonNull<fid_fabric>, i32> {
        let attr = info.entry().fabric_attr;
        if attr.is_null() || !self.is(info.library()) {
            return Err(FI_EINVAL);
        }
        let mut fabric = std::ptr::null_mut();
        // SAFETY: the attributes of a live info; an output; no context.
        let code = unsafe { (self.functions.fabric)(attr, &raw mut fabric, std::ptr::null_mut()) };
        if code != 0 {
            return Err(code.checked_abs().unwrap_or(FI_EOTHER));
        }
        NonNull::new(fabric).ok_or(FI_EOTHER)
    }
}

impl Library {
    /// Returns whether both are clones of one loaded library.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.first_query, &other.first_query)
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("version", &self.version)
            .field("path", &PathBuf::from(&*self.path))
            .finish_non_exhaustive()
    }
}
