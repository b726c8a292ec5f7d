//! Why a call did not do what it was asked, with MX's number for it.
//!
//! ```text
//!   Error --code()--> mx_return_t       --Display--> the line an error handler gets
//! ```
//!
//! Knows nothing of: handlers.

use crate::status::StatusCode;
use mx_sys::arguments::BadArgument;
use std::fmt;

/// `mx_return_t`, with MX's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[expect(
    missing_docs,
    reason = "the names are MX's own; their texts are in `strings`"
)]
pub enum Code {
    Success = 0,
    BadBadBad = 1,
    Failure = 2,
    AlreadyInitialized = 3,
    NotInitialized = 4,
    NoDev = 5,
    NoDriver = 6,
    NoPerm = 7,
    BoardUnknown = 8,
    BadEndpoint = 9,
    BadSegList = 10,
    BadSegMem = 11,
    BadSegCnt = 12,
    BadRequest = 13,
    BadMatchMask = 14,
    NoResources = 15,
    BadAddrList = 16,
    BadAddrCount = 17,
    BadRoot = 18,
    NotCompleted = 19,
    Busy = 20,
    BadInfoKey = 21,
    BadInfoVal = 22,
    BadNic = 23,
    BadParamList = 24,
    BadParamName = 25,
    BadParamVal = 26,
    BadHostnameArgs = 27,
    HostNotFound = 28,
    RequestPending = 29,
    Timeout = 30,
    NoMatch = 31,
    BadEndpointId = 32,
    ConnectionFailed = 33,
    BadConnectionKey = 34,
    BadInfoLength = 35,
    NicNotFound = 36,
    BadKernelVersion = 37,
    BadLibVersion = 38,
    NicDead = 39,
    CancelNotSupported = 40,
    CloseInHandler = 41,
    BadMatchingForContextIdMask = 42,
    NotSupportedWithContextId = 43,
}

/// A refused call: which number C gets, and what people are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    code: Code,
    what: String,
}

impl Error {
    /// `what` names the value that was wrong and says why.
    #[cold]
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
        }
    }

    /// The number.
    pub fn code(&self) -> Code {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

/// The return code that tells an error handler of a request that failed.
impl From<BadArgument> for Error {
    #[cold]
    fn from(reason: BadArgument) -> Self {
        Self::new(Code::Failure, reason.to_string())
    }
}

impl From<StatusCode> for Code {
    fn from(status: StatusCode) -> Self {
        match status {
            StatusCode::Success | StatusCode::Truncated => Self::Success,
            StatusCode::Timeout => Self::Timeout,
            StatusCode::EndpointClosed | StatusCode::EndpointUnreachable => Self::ConnectionFailed,
            StatusCode::BadKey => Self::BadConnectionKey,
            StatusCode::Rejected => Self::NoPerm,
            StatusCode::BadEndpoint | StatusCode::EndpointUnknown => Self::BadEndpointId,
            StatusCode::NoResources | StatusCode::EventqFull => Self::NoResources,
            _ => Self::Failure,
        }
    }
}
