//! Return codes and status codes in words.
//!
//! ```text
//!   mx_strerror(10)  -->  RETURNS[10]  -->  "bad segment list"
//!   mx_strstatus(99) -->                    "unknown status code"
//! ```
//!
//! Knows nothing of: why a call failed (see `error`).

use crate::error::Code;
use crate::status::StatusCode;
use std::ffi::CStr;

/// A return code in words; any number will do.
pub fn return_text(code: u32) -> &'static CStr {
    match RETURNS.get(code as usize) {
        Some((_, text)) => text,
        None => c"unknown return code",
    }
}

/// A status code in words; any number will do.
pub fn status_text(code: u32) -> &'static CStr {
    match STATUSES.get(code as usize) {
        Some((_, text)) => text,
        None => c"unknown status code",
    }
}

/// Every return code, each at the place of its number.
pub static RETURNS: [(Code, &CStr); 44] = [
    (Code::Success, c"success"),
    (Code::BadBadBad, c"internal error of the library"),
    (Code::Failure, c"failure"),
    (
        Code::AlreadyInitialized,
        c"the library is already initialized",
    ),
    (Code::NotInitialized, c"the library is not initialized"),
    (Code::NoDev, c"no device"),
    (Code::NoDriver, c"no driver"),
    (Code::NoPerm, c"permission denied"),
    (Code::BoardUnknown, c"unknown board"),
    (Code::BadEndpoint, c"bad endpoint"),
    (Code::BadSegList, c"bad segment list"),
    (Code::BadSegMem, c"bad memory in a segment"),
    (Code::BadSegCnt, c"bad number of segments"),
    (Code::BadRequest, c"bad request"),
    (Code::BadMatchMask, c"match bits outside the match mask"),
    (Code::NoResources, c"out of resources"),
    (Code::BadAddrList, c"bad list of addresses"),
    (Code::BadAddrCount, c"bad number of addresses"),
    (Code::BadRoot, c"bad root"),
    (Code::NotCompleted, c"not completed"),
    (Code::Busy, c"busy"),
    (Code::BadInfoKey, c"bad info key"),
    (Code::BadInfoVal, c"bad info value"),
    (Code::BadNic, c"bad NIC"),
    (Code::BadParamList, c"bad list of parameters"),
    (Code::BadParamName, c"bad parameter name"),
    (Code::BadParamVal, c"bad parameter value"),
    (Code::BadHostnameArgs, c"bad arguments for a host name"),
    (Code::HostNotFound, c"host not found"),
    (Code::RequestPending, c"the request is pending"),
    (Code::Timeout, c"timed out"),
    (Code::NoMatch, c"no match"),
    (Code::BadEndpointId, c"bad endpoint id"),
    (Code::ConnectionFailed, c"connection failed"),
    (Code::BadConnectionKey, c"bad connection key"),
    (Code::BadInfoLength, c"bad length for info"),
    (Code::NicNotFound, c"NIC not found"),
    (Code::BadKernelVersion, c"unsuitable version of the kernel"),
    (Code::BadLibVersion, c"unsuitable version of the library"),
    (Code::NicDead, c"the NIC is dead"),
    (Code::CancelNotSupported, c"the request cannot be cancelled"),
    (
        Code::CloseInHandler,
        c"an endpoint cannot be closed from its handler",
    ),
    (
        Code::BadMatchingForContextIdMask,
        c"the match mask does not cover the context id",
    ),
    (
        Code::NotSupportedWithContextId,
        c"not supported with context ids",
    ),
];

/// Every status code, each at the place of its number.
pub static STATUSES: [(StatusCode, &CStr); 17] = [
    (StatusCode::Success, c"success"),
    (StatusCode::Pending, c"pending"),
    (StatusCode::Buffered, c"buffered"),
    (StatusCode::Rejected, c"rejected"),
    (StatusCode::Timeout, c"timed out"),
    (StatusCode::Truncated, c"truncated"),
    (StatusCode::Cancelled, c"cancelled"),
    (
        StatusCode::EndpointUnknown,
        c"the remote endpoint is unknown",
    ),
    (StatusCode::EndpointClosed, c"the remote endpoint is closed"),
    (
        StatusCode::EndpointUnreachable,
        c"the remote endpoint is unreachable",
    ),
    (
        StatusCode::BadSession,
        c"the remote endpoint was opened again",
    ),
    (
        StatusCode::BadKey,
        c"the remote endpoint was opened with another key",
    ),
    (
        StatusCode::BadEndpoint,
        c"there can be no such remote endpoint",
    ),
    (StatusCode::BadRdmawin, c"bad RDMA window"),
    (StatusCode::Aborted, c"aborted"),
    (StatusCode::EventqFull, c"the event queue is full"),
    (StatusCode::NoResources, c"out of resources"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_code_stands_at_its_number_and_has_a_text_of_its_own() {
        for (number, (code, _)) in RETURNS.iter().enumerate() {
            assert_eq!(*code as usize, number);
        }
        for (number, (code, _)) in STATUSES.iter().enumerate() {
            assert_eq!(*code as usize, number);
        }
        let texts: HashSet<_> = RETURNS.iter().map(|(_, text)| text).collect();
        assert_eq!(texts.len(), RETURNS.len());
        let texts: HashSet<_> = STATUSES.iter().map(|(_, text)| text).collect();
        assert_eq!(texts.len(), STATUSES.len());
    }

    #[test]
    fn numbers_that_are_no_code_have_a_text_too() {
        assert_eq!(return_text(43), RETURNS[43].1);
        assert_eq!(return_text(44), c"unknown return code");
        assert_eq!(return_text(u32::MAX), c"unknown return code");
        assert_eq!(status_text(16), STATUSES[16].1);
        assert_eq!(status_text(17), c"unknown status code");
    }
}
