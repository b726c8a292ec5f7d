//! Errors of calls, with their MX codes.
//!
//! ```text
//!   Error --code()--> mx_return_t       --Display--> the line that an error handler gets
//! ```
//!
//! Out of scope: handlers.

use crate::numbers::numbers;
use crate::status::StatusCode;
use mx_boundary::BadArgument;
use std::fmt;

numbers! {
    /// `mx_return_t`, with MX's numbers.
    Code or c"unknown return code" {
        Success = 0 c"success",
        BadBadBad = 1 c"internal error of the library",
        Failure = 2 c"failure",
        AlreadyInitialized = 3 c"the library is already initialized",
        NotInitialized = 4 c"the library is not initialized",
        NoDev = 5 c"no device",
        NoDriver = 6 c"no driver",
        NoPerm = 7 c"permission denied",
        BoardUnknown = 8 c"unknown board",
        BadEndpoint = 9 c"bad endpoint",
        BadSegList = 10 c"bad segment list",
        BadSegMem = 11 c"bad memory in a segment",
        BadSegCnt = 12 c"bad number of segments",
        BadRequest = 13 c"bad request",
        BadMatchMask = 14 c"match bits outside the match mask",
        NoResources = 15 c"out of resources",
        BadAddrList = 16 c"bad list of addresses",
        BadAddrCount = 17 c"bad number of addresses",
        BadRoot = 18 c"bad root",
        NotCompleted = 19 c"not completed",
        Busy = 20 c"busy",
        BadInfoKey = 21 c"bad info key",
        BadInfoVal = 22 c"bad info value",
        BadNic = 23 c"bad NIC",
        BadParamList = 24 c"bad list of parameters",
        BadParamName = 25 c"bad parameter name",
        BadParamVal = 26 c"bad parameter value",
        BadHostnameArgs = 27 c"bad arguments for a host name",
        HostNotFound = 28 c"host not found",
        RequestPending = 29 c"the request is pending",
        Timeout = 30 c"timed out",
        NoMatch = 31 c"no match",
        BadEndpointId = 32 c"bad endpoint id",
        ConnectionFailed = 33 c"connection failed",
        BadConnectionKey = 34 c"bad connection key",
        BadInfoLength = 35 c"bad length for info",
        NicNotFound = 36 c"NIC not found",
        BadKernelVersion = 37 c"unsuitable version of the kernel",
        BadLibVersion = 38 c"unsuitable version of the library",
        NicDead = 39 c"the NIC is dead",
        CancelNotSupported = 40 c"the request cannot be cancelled",
        CloseInHandler = 41 c"an endpoint cannot be closed from its handler",
        BadMatchingForContextIdMask = 42 c"the match mask does not cover the context id",
        NotSupportedWithContextId = 43 c"not supported with context ids",
    }
}

/// Error of a call: the code for C, and a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    code: Code,
    what: String,
}

impl Error {
    /// Makes an error. `what` names the wrong value and the reason.
    #[cold]
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Self {
            code,
            what: what.into(),
        }
    }

    /// Returns the code.
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

/// Converts to the code with which an error handler is told of a failed request.
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
