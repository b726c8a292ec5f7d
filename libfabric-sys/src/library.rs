//! A loaded libfabric: six functions, and everything reached from them.
//!
//! ```text
//!   Library::get()              the process's one, loaded on first use
//!   Library::load(path)         a given file
//!   Library::from_functions     a fake provider in tests
//!        |
//!        |-- hints, query -> Hints, InfoList
//!        |-- fabric ------> fid_fabric, and from there on through `calls`
//!        `-- version, strerror
//! ```
//!
//! Owns: the functions, and the rule that the first query runs with signals kept. The file is found
//! by `load`.
//!
//! A `Library` is cheap to clone. It stays valid for ever: nothing is ever unloaded.

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

/// `fi_getinfo`
pub type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int;
/// `fi_freeinfo`
pub type FreeInfo = unsafe extern "C" fn(info: *mut fi_info);
/// `fi_dupinfo`
pub type DupInfo = unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info;
/// `fi_fabric`
pub type OpenFabric = unsafe extern "C" fn(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int;
/// `fi_version`
pub type Version = unsafe extern "C" fn() -> u32;
/// `fi_strerror`
pub type StrError = unsafe extern "C" fn(errnum: c_int) -> *const c_char;

/// The functions that are symbols of the library; all others are entries of operation tables.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Lists what the providers offer.
    pub getinfo: GetInfo,
    /// Frees a list, and with it every string and address in it, by `free`.
    pub freeinfo: FreeInfo,
    /// Copies one entry; of null, makes an empty one with all its attributes.
    pub dupinfo: DupInfo,
    /// Opens a fabric.
    pub fabric: OpenFabric,
    /// The version of the library.
    pub version: Version,
    /// The words for an error.
    pub strerror: StrError,
}

/// A libfabric that can be called.
#[derive(Clone)]
pub struct Library {
    functions: Functions,
    version: (u32, u32),
    /// The loaded file; empty for functions that came from elsewhere.
    path: Arc<Path>,
    /// The first query initialises the providers, with all their side effects.
    first_query: Arc<Once>,
}

impl Library {
    /// The version of the interface that queries ask for; an older library is asked for its own.
    ///
    /// The oldest version of those whose headers the layouts were compared with, on purpose: asked
    /// for this, every later library writes completions, errors and infos as 1.17 did, whatever
    /// its own have grown to.
    pub const API_VERSION: (u32, u32) = (1, 17);

    /// The process's libfabric: what `MX_LIBFABRIC` names, or else `libfabric.so.1`. Loads it
    /// the first time. Takes hundreds of milliseconds then where PSM is installed.
    ///
    /// # Errors
    ///
    /// There is none, or none of use. An absent one is looked for again at the next call; that a
    /// file is of no use is remembered.
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

    /// Loads a certain file. Its constructors run: it is trusted as the system's own libraries
    /// are. A name without a slash is looked for where the system looks.
    ///
    /// # Errors
    ///
    /// The file is absent, or of no use.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let (functions, version) = load::load(path)?;
        Ok(Self::new(functions, version, path))
    }

    /// A library made of functions from elsewhere. Its version is what they say.
    ///
    /// # Safety
    ///
    /// The functions do what libfabric's do, with the layouts of [`crate::abi`], for as long as
    /// the process lives; what they hand out comes from `malloc` where `fi_freeinfo` frees it.
    pub unsafe fn from_functions(functions: Functions) -> Self {
        // SAFETY: the caller vouches for it.
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

    /// Major and minor version of the library.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The version of the interface queries ask for, as `fi_getinfo` takes it.
    pub fn api_version(&self) -> u32 {
        let (major, minor) = self.version.min(Self::API_VERSION);
        fi_version(major, minor)
    }

    /// The file as it was asked for; `None` for [`Library::from_functions`].
    pub fn path(&self) -> Option<&Path> {
        (!self.path.as_os_str().is_empty()).then_some(&*self.path)
    }

    /// The functions themselves.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The words for an error, which may be positive or negated.
    pub fn strerror(&self, code: i32) -> String {
        // `i32::MIN` has no absolute value; no error has that code.
        let errnum = code.checked_abs().unwrap_or(FI_EOTHER);
        // SAFETY: any number is allowed.
        let text = unsafe { (self.functions.strerror)(errnum) };
        if text.is_null() {
            return format!("error {errnum}");
        }
        // SAFETY: not null, and a C string: constant for libfabric's own numbers. For the
        // system's it is `strerror`'s, constant as well for every number libfabric uses.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// Empty hints, to fill in.
    ///
    /// # Errors
    ///
    /// There is no memory: `FI_ENOMEM`.
    pub fn hints(&self) -> Result<Hints, i32> {
        Hints::new(self)
    }

    /// `fi_getinfo`: what the providers offer for these hints, best first.
    ///
    /// # Errors
    ///
    /// The error, positive; `FI_ENODATA` when nothing fits, `FI_EINVAL` for another library's
    /// hints.
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
            // SAFETY: C strings or null, an info of this library's or null, and an output.
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
        // SAFETY: the list that `fi_getinfo` gave on success, not shared.
        Ok(unsafe { InfoList::from_raw(self.clone(), list) })
    }

    /// `fi_fabric`: opens the fabric of an offer. Close it with `fi_close`, after everything that
    /// was opened from it.
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
    /// Whether the two are one library, loaded once.
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
