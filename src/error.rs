//! Everything a call can answer with besides success, and its BMI code.
//!
//! ```text
//!   peer_name::ParseError   resolver   mx_proto::Status   the boundary's checks
//!            \                 |             |              /
//!             +------------> Error <---------+-------------+
//!                            /    \
//!              Display: thing and  code(): one exhaustive match,
//!              value, for the log  always negative
//! ```
//!
//! Owns: the one map from causes to the numbers C sees.
//! Knows nothing of: who asked.

use crate::abi::constants as bmi;
use crate::peer_name::ParseError;
use libc::c_int;
use mx_proto::Status;
use mx_proto::port::ConnectError;
use mx_sys::arguments::BadArgument;
use mx_sys::nic::ResolveError;
use mx_sys::{OpenError, SegmentError};
use std::fmt;
use std::io;

/// Why a call failed or an operation ended badly. Calls answer with a `Box` of it: a word that is null on
/// success, and nothing to drop.
#[derive(Debug)]
pub enum Error {
    /// An argument cannot be used.
    Argument(BadArgument),
    /// A number is outside its range.
    OutOfRange {
        /// Which argument.
        what: &'static str,
        /// Its value.
        value: i64,
        /// The least it may be.
        min: i64,
        /// The most it may be.
        max: i64,
    },
    /// A message is larger than any may be.
    MessageTooLarge {
        /// Its size.
        size: i64,
        /// The limit.
        limit: i64,
    },
    /// The sizes of a list do not add up to the total.
    TotalMismatch {
        /// What the caller says.
        total: i64,
        /// What the list says.
        sum: i64,
    },
    /// One piece of a list has a negative size.
    SegmentSize {
        /// Which piece, from 0.
        index: usize,
        /// Its size.
        size: i64,
    },
    /// One piece of a list is no memory.
    Segment(SegmentError),
    /// An info key this method does not have.
    UnknownInfo(c_int),
    /// `initialize` wants a listen address exactly when the server flag is set.
    ListenMismatch {
        /// The flags.
        flags: c_int,
        /// Whether there was an address.
        listen: bool,
    },
    /// A limit in the configuration cannot be kept; why, with the variable, its value and its range.
    Limit(String),
    /// The method is not initialized.
    NotInitialized,
    /// The method is initialized already.
    AlreadyInitialized,
    /// This process is a fork of the one that initialized the method.
    Forked,
    /// The address does not parse.
    Address(ParseError),
    /// The string holds no address of ours.
    ForeignAddress(String),
    /// The pointer is no address object of ours.
    UnknownAddress(usize),
    /// A host or board was not found.
    Host(ResolveError),
    /// The endpoint could not be opened.
    Open {
        /// Its name.
        name: String,
        /// Why.
        reason: OpenError,
    },
    /// No connection could be started.
    Connect {
        /// The peer's name.
        peer: String,
        /// Why.
        reason: ConnectError,
    },
    /// The peer went away, restarted or was dropped while the operation was under way.
    PeerReset(String),
    /// The peer speaks another version of the handshake.
    Version {
        /// The peer's name.
        peer: String,
        /// Its version.
        theirs: i64,
        /// This library's.
        ours: i64,
    },
    /// The peer refused the connection with a negative id.
    Refused {
        /// The peer's name.
        peer: String,
        /// The number it answered with.
        answer: i64,
    },
    /// All peer numbers are in use.
    NoPeerId {
        /// How many there are.
        limit: u32,
    },
    /// The operation id names no operation of this context.
    UnknownOperation {
        /// The id.
        id: i64,
        /// The context.
        context: i64,
    },
    /// Called off.
    Cancelled,
    /// No memory for something of this size.
    NoMemory {
        /// What for.
        what: &'static str,
        /// How many bytes.
        size: usize,
    },
    /// The buffer at this address has been given back already.
    FreedTwice(usize),
    /// The system refused something else.
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        reason: io::Error,
    },
    /// The transfer ended with this (never `Success`).
    Transfer(Status),
    /// A network mask or wildcard makes no sense.
    BadRange {
        /// The wildcard.
        wildcard: String,
        /// The mask.
        netmask: i32,
    },
    /// A bug of ours was caught at the boundary.
    Panicked(String),
}

impl Error {
    /// The negative BMI code.
    pub fn code(&self) -> c_int {
        let code = match self {
            Self::Argument(_)
            | Self::OutOfRange { .. }
            | Self::TotalMismatch { .. }
            | Self::SegmentSize { .. }
            | Self::Segment(_)
            | Self::ListenMismatch { .. }
            | Self::Limit(_)
            | Self::Address(_)
            | Self::ForeignAddress(_)
            | Self::UnknownAddress(_)
            | Self::UnknownOperation { .. }
            | Self::FreedTwice(_)
            | Self::BadRange { .. } => bmi::BMI_EINVAL,
            Self::MessageTooLarge { .. } => bmi::BMI_EMSGSIZE,
            Self::UnknownInfo(_) => bmi::BMI_ENOSYS,
            Self::NotInitialized | Self::Forked => bmi::BMI_ENODEV,
            Self::AlreadyInitialized => bmi::BMI_EALREADY,
            Self::Host(reason) => host_code(reason),
            Self::Open { reason, .. } => match reason {
                OpenError::Board(reason) => host_code(reason),
                OpenError::Endpoint(_) | OpenError::Secret(_) => bmi::BMI_EINVAL,
                OpenError::InUse { .. } => bmi::BMI_EADDRINUSE,
                OpenError::NoneFree => bmi::BMI_EADDRNOTAVAIL,
                OpenError::Rdm(_) | OpenError::Dgram(_) => bmi::BMI_EDEVINIT,
                OpenError::Listen { error, .. } | OpenError::System(error) => system_code(error),
            },
            Self::System { reason, .. } => system_code(reason),
            Self::Connect { reason, .. } => match reason {
                ConnectError::UnknownNic | ConnectError::NoRoute => bmi::BMI_EHOSTUNREACH,
                ConnectError::Refused => bmi::BMI_ECONNREFUSED,
                ConnectError::BadEndpoint => bmi::BMI_EINVAL,
                ConnectError::NoResources => bmi::BMI_ENOMEM,
            },
            Self::PeerReset(_) => bmi::BMI_ENETRESET,
            Self::Version { .. } | Self::Refused { .. } => bmi::BMI_EPROTO,
            Self::NoPeerId { .. } | Self::NoMemory { .. } => bmi::BMI_ENOMEM,
            Self::Cancelled => bmi::BMI_ECANCEL,
            Self::Transfer(status) => status_code(*status),
            Self::Panicked(_) => bmi::BMI_EIO,
        };
        -code
    }

    /// How loudly it is logged that a call failed with it. What went wrong in the network has been
    /// logged where it was noticed.
    pub fn level(&self) -> log::Level {
        match (self, -self.code()) {
            // Without an endpoint there is no method: somebody has to look.
            (Self::Open { .. }, _) => log::Level::Error,
            (_, bmi::BMI_EINVAL | bmi::BMI_EMSGSIZE | bmi::BMI_ENODEV | bmi::BMI_EALREADY) => {
                log::Level::Warn
            }
            _ => log::Level::Debug,
        }
    }
}

/// What became of a transfer, as the C method answered (BMI-HOST-ABI.md section 8.4).
fn status_code(status: Status) -> c_int {
    match status {
        // Not an error; whoever asks gets a number that is none either.
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
        Status::BadSecret => bmi::BMI_EACCES,
    }
}

fn host_code(reason: &ResolveError) -> c_int {
    match reason {
        ResolveError::EmptyHost
        | ResolveError::BadBrackets { .. }
        | ResolveError::NoHost { .. } => bmi::BMI_EINVAL,
        ResolveError::Unknown { .. } => bmi::BMI_EHOSTUNREACH,
        ResolveError::BadBoard { .. } => bmi::BMI_ENODEV,
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
        match self {
            Self::Argument(error) => error.fmt(f),
            Self::OutOfRange {
                what,
                value,
                min,
                max,
            } => write!(f, "{what} {value} is out of range ({min} to {max})"),
            Self::MessageTooLarge { size, limit } => {
                write!(f, "message of {size} bytes is larger than {limit}")
            }
            Self::TotalMismatch { total, sum } => {
                write!(f, "total size {total} but the list has {sum} bytes")
            }
            Self::SegmentSize { index, size } => {
                write!(f, "segment {index} has size {size}")
            }
            Self::Segment(reason) => reason.fmt(f),
            Self::UnknownInfo(key) => write!(f, "unknown info key {key}"),
            Self::ListenMismatch { flags, listen } => match listen {
                true => write!(f, "listen address without the server flag in {flags:#x}"),
                false => write!(f, "server flag in {flags:#x} without a listen address"),
            },
            Self::Limit(why) => f.write_str(why),
            Self::NotInitialized => f.write_str("not initialized"),
            Self::AlreadyInitialized => f.write_str("initialized already"),
            Self::Forked => f.write_str("initialized by the process this one was forked from"),
            Self::Address(reason) => reason.fmt(f),
            Self::ForeignAddress(text) => write!(f, "no mx:// address in {text:?}"),
            Self::UnknownAddress(pointer) => {
                write!(f, "{pointer:#x} is no address of this method")
            }
            Self::Host(reason) => reason.fmt(f),
            Self::Open { name, reason } => write!(f, "cannot open {name}: {reason}"),
            Self::Connect { peer, reason } => write!(f, "cannot connect to {peer}: {reason}"),
            Self::PeerReset(peer) => write!(f, "{peer} went away"),
            Self::Version { peer, theirs, ours } => {
                write!(f, "{peer} speaks version {theirs:#x}, this is {ours:#x}")
            }
            Self::Refused { peer, answer } => {
                write!(f, "{peer} refused the connection with {answer}")
            }
            Self::NoPeerId { limit } => write!(f, "all {limit} peer ids are in use"),
            Self::UnknownOperation { id, context } => {
                write!(f, "{id:#x} is no operation of context {context}")
            }
            Self::Cancelled => f.write_str("cancelled"),
            Self::NoMemory { what, size } => write!(f, "no memory for {what} of {size} bytes"),
            Self::FreedTwice(address) => {
                write!(f, "buffer {address:#x} was given back before")
            }
            Self::System { what, reason } => write!(f, "{what}: {reason}"),
            Self::Transfer(status) => f.write_str(match status {
                Status::Success => "success",
                Status::Truncated => "message longer than the receive",
                Status::Timeout => "timed out",
                Status::Cancelled => "cancelled",
                Status::EndpointUnknown => "unknown endpoint",
                Status::EndpointClosed => "endpoint closed",
                Status::Unreachable => "peer unreachable",
                Status::BadSession => "another session",
                Status::BadKey => "wrong connection key",
                Status::BadEndpoint => "bad endpoint",
                Status::Aborted => "called off by the receiver",
                Status::NoResources => "no room at the peer",
                Status::BadSecret => "not the same secret at both (MX_SECRET_FILE)",
            }),
            Self::BadRange { wildcard, netmask } => {
                write!(
                    f,
                    "{wildcard:?} with {netmask} mask bits is no range of addresses"
                )
            }
            Self::Panicked(what) => write!(f, "internal error: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        match status {
            Status::Cancelled => Self::Cancelled,
            other => Self::Transfer(other),
        }
    }
}

impl From<BadArgument> for Box<Error> {
    #[cold]
    fn from(reason: BadArgument) -> Self {
        Self::new(Error::Argument(reason))
    }
}

impl From<SegmentError> for Box<Error> {
    #[cold]
    fn from(reason: SegmentError) -> Self {
        Self::new(Error::Segment(reason))
    }
}

impl From<ParseError> for Error {
    fn from(reason: ParseError) -> Self {
        Self::Address(reason)
    }
}

impl From<ResolveError> for Box<Error> {
    fn from(reason: ResolveError) -> Self {
        Self::new(Error::Host(reason))
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
            assert_eq!(Error::from(status).code(), code, "{status:?}");
            assert_eq!(Error::Transfer(status).code(), code, "{status:?}");
        }
    }

    #[test]
    fn a_used_up_address_is_named_in_text_and_code() {
        let error = Error::Open {
            name: "mx://localhost:3".to_owned(),
            reason: OpenError::InUse {
                endpoint: mx_proto::EndpointId(3),
                port: 28675,
            },
        };
        assert_eq!(error.code(), -bmi::BMI_EADDRINUSE);
        assert!(
            error
                .to_string()
                .starts_with("cannot open mx://localhost:3: ")
        );
    }

    #[test]
    fn a_fabric_that_cannot_be_had_is_no_matter_of_addresses() {
        let why = "it loses messages".to_owned();
        let error = Error::Open {
            name: "mx://localhost:3/rdm".to_owned(),
            reason: OpenError::Rdm(RdmError::Refused {
                provider: "sockets".to_owned(),
                why,
            }),
        };
        assert_eq!(error.code(), -bmi::BMI_EDEVINIT);
        assert_eq!(
            error.to_string(),
            "cannot open mx://localhost:3/rdm: no rdm port: provider sockets is not used: it loses \
             messages; unset MX_PROVIDER"
        );
        assert_eq!(error.level(), log::Level::Error);
    }

    #[test]
    fn the_thing_and_the_value_are_in_the_text() {
        let error = Error::OutOfRange {
            what: "context_id",
            value: 16,
            min: 0,
            max: 15,
        };
        assert_eq!(error.to_string(), "context_id 16 is out of range (0 to 15)");
        assert_eq!(error.code(), -bmi::BMI_EINVAL);
        let error = Error::TotalMismatch { total: 7, sum: 9 };
        assert_eq!(error.to_string(), "total size 7 but the list has 9 bytes");
    }
}
