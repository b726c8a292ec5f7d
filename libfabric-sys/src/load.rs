//! Finding the library: a file, six symbols, a version.
//!
//! ```text
//!   MX_LIBFABRIC or libfabric.so.1
//!        |                an elevated process .. Elevated
//!        | dlopen         no such file ......... NotFound
//!        |                any other failure .... Unusable
//!        | dlvsym         fi_version ........... MissingSymbol
//!        |                   < 1.9 ............. TooOld
//!        |                the other five ....... MissingSymbol
//!        v
//!   Functions, version
//! ```
//!
//! Owns: the six symbols and their versions, the oldest library accepted, the errors.
//! Out of scope: keeping the loaded library.
//!
//! An opened file is never closed: its constructors, and those of the provider libraries that it loads, may have left
//! threads and handlers that run its code.

use std::error::Error;
use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libc::c_void;

use crate::abi::{fi_major, fi_minor};
use crate::environment::{self, LIBRARY_VARIABLE};
use crate::library::{DupInfo, FreeInfo, Functions, GetInfo, OpenFabric, StrError, Version};
use crate::signals::SignalDispositions;

/// Errors of loading libfabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The file does not exist, or the system does not find it.
    NotFound {
        /// Requested name or path.
        asked: PathBuf,
        /// System's error text.
        reason: String,
    },
    /// The file exists, but cannot be loaded.
    Unusable {
        /// Requested name or path.
        asked: PathBuf,
        /// System's error text.
        reason: String,
    },
    /// The process is elevated. libfabric and its providers read dozens of variables, some of which name code to load,
    /// and do not distinguish their user's environment from another's.
    Elevated {
        /// Requested name or path.
        asked: PathBuf,
    },
    /// The file is a library, but not libfabric.
    MissingSymbol {
        /// Requested name or path.
        asked: PathBuf,
        /// Missing symbol.
        symbol: &'static str,
    },
    /// The library is a libfabric older than required.
    TooOld {
        /// Requested name or path.
        asked: PathBuf,
        /// Version of the library.
        found: (u32, u32),
        /// Oldest acceptable version.
        needed: (u32, u32),
    },
}

impl LoadError {
    /// Returns the requested name or path.
    pub fn asked(&self) -> &Path {
        match self {
            Self::NotFound { asked, .. }
            | Self::Unusable { asked, .. }
            | Self::Elevated { asked }
            | Self::MissingSymbol { asked, .. }
            | Self::TooOld { asked, .. } => asked,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.asked().display();
        match self {
            Self::NotFound { reason, .. } => {
                write!(
                    f,
                    "libfabric is not available: {asked} was not found ({reason})"
                )?;
            }
            Self::Unusable { reason, .. } => {
                write!(f, "no libfabric: {asked} cannot be loaded ({reason})")?;
            }
            Self::Elevated { .. } => {
                return write!(
                    f,
                    "no libfabric: {asked} is not loaded by a process with more rights than its \
                     caller, whose environment would choose the code of its providers"
                );
            }
            Self::MissingSymbol { symbol, .. } => {
                write!(f, "no libfabric: {asked} has no {symbol}")?;
            }
            Self::TooOld { found, needed, .. } => write!(
                f,
                "libfabric too old: {asked} is version {}.{}, {}.{} or later is needed",
                found.0, found.1, needed.0, needed.1
            )?,
        }
        write!(
            f,
            "; install libfabric1, or set {LIBRARY_VARIABLE} to the path of a libfabric.so.1"
        )
    }
}

impl Error for LoadError {}

/// Oldest version accepted: it introduced version 1.3 of the binary interface, the first in which `fi_tx_attr` and
/// `fi_domain_attr` have their `tclass`, and so all members of [`crate::abi::info`]. Later members of the operation
/// tables are at their ends, beyond `size`.
pub(crate) const OLDEST: (u32, u32) = (1, 9);

/// Default file name.
pub(crate) const USUAL_NAME: &str = "libfabric.so.1";

/// Loads `path`. A name without a slash is searched for where the system searches for libraries.
pub(crate) fn load(path: &Path) -> Result<(Functions, (u32, u32)), LoadError> {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        let reason = "the path has a zero byte in it".to_owned();
        return Err(LoadError::Unusable {
            asked: path.to_owned(),
            reason,
        });
    };
    if environment::is_elevated() {
        return Err(LoadError::Elevated {
            asked: path.to_owned(),
        });
    }
    environment::prepare();
    let signals = SignalDispositions::save();
    let handle = open(path, &name);
    drop(signals);
    let handle = handle?;
    let symbol = |name: &'static CStr, version: &CStr| {
        find(handle, name, version).ok_or_else(|| LoadError::MissingSymbol {
            asked: path.to_owned(),
            // Infallible: all names below are ASCII.
            symbol: name.to_str().unwrap_or_default(),
        })
    };
    let version = symbol(c"fi_version", c"FABRIC_1.0")?;
    // SAFETY: libfabric's declaration of the symbol; the file is trusted to match its symbols, like every library on
    // the system's path.
    let version = unsafe { std::mem::transmute::<*mut c_void, Version>(version) };
    // SAFETY: takes no argument and only returns a number.
    let number = unsafe { version() };
    let found = (fi_major(number), fi_minor(number));
    if found < OLDEST {
        return Err(LoadError::TooOld {
            asked: path.to_owned(),
            found,
            needed: OLDEST,
        });
    }
    let getinfo = symbol(c"fi_getinfo", c"FABRIC_1.3")?;
    let freeinfo = symbol(c"fi_freeinfo", c"FABRIC_1.3")?;
    let dupinfo = symbol(c"fi_dupinfo", c"FABRIC_1.3")?;
    let fabric = symbol(c"fi_fabric", c"FABRIC_1.1")?;
    let strerror = symbol(c"fi_strerror", c"FABRIC_1.0")?;
    let functions = Functions {
        // SAFETY: libfabric's declaration of the symbol, as above; so for each below.
        getinfo: unsafe { std::mem::transmute::<*mut c_void, GetInfo>(getinfo) },
        // SAFETY: as above.
        freeinfo: unsafe { std::mem::transmute::<*mut c_void, FreeInfo>(freeinfo) },
        // SAFETY: as above.
        dupinfo: unsafe { std::mem::transmute::<*mut c_void, DupInfo>(dupinfo) },
        // SAFETY: as above.
        fabric: unsafe { std::mem::transmute::<*mut c_void, OpenFabric>(fabric) },
        version,
        // SAFETY: as above.
        strerror: unsafe { std::mem::transmute::<*mut c_void, StrError>(strerror) },
    };
    log::info!(
        "libfabric {}.{} loaded ({})",
        found.0,
        found.1,
        path.display()
    );
    Ok((functions, found))
}

fn open(path: &Path, name: &CStr) -> Result<*mut c_void, LoadError> {
    // SAFETY: a C string; the constructors that run are the library's and its providers'. Loaded locally, so that two
    // versions in one process do not share symbols.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(handle);
    }
    let reason = last_error();
    if is_absent(path, &reason) {
        Err(LoadError::NotFound {
            asked: path.to_owned(),
            reason,
        })
    } else {
        Err(LoadError::Unusable {
            asked: path.to_owned(),
            reason,
        })
    }
}

/// Returns the symbol in its declared version, or else in the library's default, for builds without symbol versions.
fn find(handle: *mut c_void, name: &CStr, version: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle from `dlopen` that is never closed, and two C strings.
    let versioned = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    if !versioned.is_null() {
        return Some(versioned);
    }
    // SAFETY: as above.
    let default = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!default.is_null()).then_some(default)
}

/// Returns whether `dlopen` failed because `path` itself is absent, and not a dependency of it.
fn is_absent(path: &Path, reason: &str) -> bool {
    if path.as_os_str().as_bytes().contains(&b'/') {
        return !path.exists();
    }
    // The C library's text begins with the absent file.
    reason.starts_with(&*path.to_string_lossy())
        && reason.contains("cannot open shared object file")
}

fn last_error() -> String {
    // SAFETY: called on the thread whose `dlopen` failed; the text belongs to that thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null, and a C string until the thread's next such call.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Returns the file to load: the variable's value, or the default.
pub(crate) fn wanted() -> PathBuf {
    environment::chosen_library().map_or_else(|| OsStr::new(USUAL_NAME).into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_what_was_asked_what_was_found_and_what_to_do() {
        let asked = PathBuf::from("/opt/libfabric.so.1");
        let error = LoadError::TooOld {
            asked,
            found: (1, 8),
            needed: OLDEST,
        };
        assert_eq!(
            error.to_string(),
            "libfabric too old: /opt/libfabric.so.1 is version 1.8, 1.9 or later is needed; \
             install libfabric1, or set MX_LIBFABRIC to the path of a libfabric.so.1"
        );
    }

    #[test]
    fn missing_dependency_does_not_make_the_library_absent() {
        let name = Path::new(USUAL_NAME);
        let absent = "libfabric.so.1: cannot open shared object file: No such file or directory";
        let dependency = "libpsm2.so.2: cannot open shared object file: No such file or directory";
        assert!(is_absent(name, absent));
        assert!(!is_absent(name, dependency));
    }

    #[test]
    fn a_path_with_a_zero_byte_is_refused() {
        let path = Path::new(OsStr::from_bytes(b"a\0b"));
        assert!(matches!(load(path), Err(LoadError::Unusable { .. })));
    }
}
