//! Errors of calls: a BMI code, and a line for the log.
//!
//! ```text
//!   resolver   OpenError   ConnectError   the boundary's checks
//!        \          |           |          /
//!         +-------> Error <-----+---------+         mx_proto::Status --> code_of
//!                  /    \
//!    Display: thing and  code():
//!    value, for the log  always negative
//! ```
//!
//! Owns: the codes of calls. The codes of operations that lose their peer are in [`crate::peer::state::Cause`].

use crate::abi::constants as bmi;
use libc::c_int;
use log::Level;
use mx_boundary::BadArgument;
use mx_proto::Status;
use mx_proto::port::ConnectError;
use mx_sys::nic::ResolveError;
use mx_sys::{OpenError, SegmentError};
use std::fmt;
use std::io;

/// Error of a call: a BMI code, a text and a level for the log. Calls return a `Box` of it: one word that is null on
/// success.
#[derive(Debug)]
pub struct Error {
    code: c_int,
    level: Level,
    what: String,
}

impl Error {
    /// Makes an error, without logging it. `code`: a BMI code, positive; `what`: the wrong value and the reason, for
    /// the log.
    #[cold]
    pub fn new(code: c_int, what: impl Into<String>) -> Box<Self> {
        // Network faults have been logged where they were noticed.
        let level = match code {
            bmi::BMI_EINVAL | bmi::BMI_EMSGSIZE | bmi::BMI_ENODEV | bmi::BMI_EALREADY => {
                Level::Warn
            }
            _ => Level::Debug,
        };
        let what = what.into();
        Box::new(Self { code, level, what })
    }

    /// Makes the error for an invalid argument (-BMI_EINVAL).
    #[cold]
    pub fn invalid(what: impl Into<String>) -> Box<Self> {
        Self::new(bmi::BMI_EINVAL, what)
    }

    /// Makes the error for a pointer that is no address object of this method (-BMI_EINVAL).
    #[cold]
    pub fn unknown_address<T>(pointer: *mut T) -> Box<Self> {
        Self::invalid(format!("{pointer:p} is no address of this method"))
    }

    /// Makes the error for a message of `size` bytes, more than `limit` (-BMI_EMSGSIZE).
    #[cold]
    pub fn too_large(size: i64, limit: i64) -> Box<Self> {
        let what = format!("message of {size} bytes is larger than {limit}");
        Self::new(bmi::BMI_EMSGSIZE, what)
    }

    /// Makes the error for `what`, of `size` bytes, for which there is no memory (-BMI_ENOMEM).
    #[cold]
    pub fn no_memory(what: &str, size: usize) -> Box<Self> {
        let what = format!("no memory for {what} of {size} bytes");
        Self::new(bmi::BMI_ENOMEM, what)
    }

    /// Makes the error of a call after the host has closed the library's descriptors (-BMI_EBADF), which was logged
    /// once.
    #[cold]
    pub fn descriptors_closed() -> Box<Self> {
        let what = "the host has closed descriptors of this library";
        Self::new(bmi::BMI_EBADF, what)
    }

    /// Makes the error for a failed system call without which the method cannot run, with the code of `reason`.
    /// `limit`: a suffix that names the resource limit that may be the cause.
    #[cold]
    pub fn system(what: &str, reason: &io::Error, limit: &str) -> Box<Self> {
        let mut error = Self::new(system_code(reason), format!("{what}: {reason}{limit}"));
        error.level = Level::Error;
        error
    }

    /// Makes the error for the endpoint `name`, without which the method cannot run and which could not be opened.
    #[cold]
    pub fn open(name: &str, reason: &OpenError) -> Box<Self> {
        let code = match reason {
            OpenError::Board(reason) => host_code(reason),
            OpenError::Endpoint(_) | OpenError::Secret(_) => bmi::BMI_EINVAL,
            OpenError::InUse { .. } => bmi::BMI_EADDRINUSE,
            OpenError::NoneFree => bmi::BMI_EADDRNOTAVAIL,
            OpenError::Port(..) => bmi::BMI_EDEVINIT,
            OpenError::Descriptors(_) => bmi::BMI_EMFILE,
            OpenError::Listen { error, .. } | OpenError::System(error) => system_code(error),
        };
        let mut error = Self::new(code, format!("cannot open {name}: {reason}"));
        error.level = Level::Error;
        error
    }

    /// Makes the error for a connection to `peer` that could not be started.
    #[cold]
    pub fn connect(peer: &str, reason: ConnectError) -> Box<Self> {
        let code = match reason {
            ConnectError::UnknownNic | ConnectError::NoRoute => bmi::BMI_EHOSTUNREACH,
            ConnectError::Refused => bmi::BMI_ECONNREFUSED,
            ConnectError::BadEndpoint => bmi::BMI_EINVAL,
            ConnectError::NoResources => bmi::BMI_ENOMEM,
        };
        Self::new(code, format!("cannot connect to {peer}: {reason}"))
    }

    /// Returns the negative BMI code, for the host.
    pub fn code(&self) -> c_int {
        -self.code
    }

    /// Returns the level at which the failed call is to be logged.
    pub fn level(&self) -> Level {
        self.level
    }
}

/// Converts an operation's result to the host's code: 0, or the negative BMI code that the C method reported in that
/// case.
#[inline]
pub fn code_of(status: Status) -> c_int {
    -match status {
        Status::Success => 0,
        Status::Truncated => bmi::BMI_EMSGSIZE,
        Status::Timeout => bmi::BMI_ETIMEDOUT,
        Status::Cancelled => bmi::BMI_ECANCEL,
        Status::EndpointUnknown
        | Status::EndpointClosed
        | Status::BadSession
        | Status::BadKey
        | Status::BadEndpoint => bmi::BMI_ECONNREFUSED,
        Status::Unreachable => bmi::BMI_ENETRESET,
        Status::Aborted => bmi::BMI_ENORECVR,
        Status::NoResources => bmi::BMI_ENOMEM,
        Status::BadSecret | Status::NotAllowed => bmi::BMI_EACCES,
        Status::Refused => bmi::BMI_EPERM,
        Status::NoRegion | Status::OutOfRange => bmi::BMI_EINVAL,
        Status::Unsupported => bmi::BMI_EPROTO,
    }
}

fn host_code(reason: &ResolveError) -> c_int {
    match reason {
        ResolveError::EmptyHost
        | ResolveError::BadBrackets { .. }
        | ResolveError::NoHost { .. } => bmi::BMI_EINVAL,
        ResolveError::Unknown { .. } => bmi::BMI_EHOSTUNREACH,
        ResolveError::BadBoard { .. } => bmi::BMI_ENODEV,
        ResolveError::Elsewhere { .. } => bmi::BMI_EADDRNOTAVAIL,
    }
}

fn system_code(error: &io::Error) -> c_int {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => bmi::BMI_EADDRINUSE,
        Some(libc::EADDRNOTAVAIL) => bmi::BMI_EADDRNOTAVAIL,
        Some(libc::EACCES) => bmi::BMI_EACCES,
        Some(libc::EPERM) => bmi::BMI_EPERM,
        Some(libc::EMFILE | libc::ENFILE) => bmi::BMI_EMFILE,
        Some(libc::ENOMEM) => bmi::BMI_ENOMEM,
        Some(libc::ENOBUFS) => bmi::BMI_ENOBUFS,
        Some(libc::EAGAIN) => bmi::BMI_EAGAIN,
        Some(libc::EINVAL) => bmi::BMI_EINVAL,
        Some(_) => bmi::BMI_EIO,
        None => match error.kind() {
            io::ErrorKind::AddrInUse => bmi::BMI_EADDRINUSE,
            io::ErrorKind::AddrNotAvailable => bmi::BMI_EADDRNOTAVAIL,
            io::ErrorKind::PermissionDenied => bmi::BMI_EACCES,
            io::ErrorKind::OutOfMemory => bmi::BMI_ENOMEM,
            io::ErrorKind::InvalidInput => bmi::BMI_EINVAL,
            _ => bmi::BMI_EIO,
        },
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

impl From<BadArgument> for Box<Error> {
    #[cold]
    fn from(reason: BadArgument) -> Self {
        Error::invalid(reason.to_string())
    }
}

impl From<SegmentError> for Box<Error> {
    #[cold]
    fn from(reason: SegmentError) -> Self {
        Error::invalid(reason.to_string())
    }
}

impl From<ResolveError> for Box<Error> {
    fn from(reason: ResolveError) -> Self {
        Error::new(host_code(&reason), reason.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_sys::RdmError;

    #[test]
    fn transfer_codes_are_those_of_the_c_method() {
        for (status, code) in [
            (Status::Timeout, -1_073_742_005),
            (Status::Unreachable, -1_073_742_003),
            (Status::NoResources, -1_073_741_960),
            (Status::BadKey, -1_073_742_006),
            (Status::EndpointClosed, -1_073_742_006),
            (Status::Aborted, -1_610_612_870),
            (Status::Cancelled, -1_610_612_865),
        ] {
            assert_eq!(code_of(status), code, "{status:?}");
        }
    }

    #[test]
    fn a_used_up_address_is_named_in_text_and_code() {
        let reason = OpenError::InUse {
            endpoint: mx_proto::EndpointId(3),
            port: 28675,
        };
        let error = Error::open("mx://localhost:3", &reason);
        assert_eq!(error.code(), -bmi::BMI_EADDRINUSE);
        assert!(
            error
                .to_string()
                .starts_with("cannot open mx://localhost:3: ")
        );
    }

    #[test]
    fn a_fabric_that_cannot_be_had_is_no_matter_of_addresses() {
        let refused = RdmError::Refused {
            provider: "sockets".to_owned(),
            why: "it loses messages".to_owned(),
        };
        let reason = OpenError::Port("rdm", refused.into());
        let error = Error::open("mx://rdm@localhost:3", &reason);
        assert_eq!(error.code(), -bmi::BMI_EDEVINIT);
        assert_eq!(
            error.to_string(),
            "cannot open mx://rdm@localhost:3: no rdm port: provider sockets is not used: it loses \
             messages; unset MX_PROVIDER"
        );
        assert_eq!(error.level(), Level::Error);
    }

    #[test]
    fn wrong_argument_warns_and_a_lost_peer_does_not() {
        assert_eq!(Error::too_large(7, 6).level(), Level::Warn);
        assert_eq!(
            Error::unknown_address(std::ptr::null_mut::<u8>()).level(),
            Level::Warn
        );
        assert_eq!(Error::no_memory("a buffer", 7).level(), Level::Debug);
    }
}
