//! Results of requests: `mx_status_t` and `mx_status_code_t`.
//!
//! Out of scope: return codes of calls (see `error`).

use crate::handles::Address;
use crate::numbers::numbers;

numbers! {
    /// `mx_status_code_t`, with MX's numbers.
    StatusCode or c"unknown status code" {
        Success = 0 c"success",
        Pending = 1 c"pending",
        Buffered = 2 c"buffered",
        Rejected = 3 c"rejected",
        Timeout = 4 c"timed out",
        Truncated = 5 c"truncated",
        Cancelled = 6 c"cancelled",
        EndpointUnknown = 7 c"the remote endpoint is unknown",
        EndpointClosed = 8 c"the remote endpoint is closed",
        EndpointUnreachable = 9 c"the remote endpoint is unreachable",
        BadSession = 10 c"the remote endpoint was opened again",
        BadKey = 11 c"the remote endpoint was opened with another key",
        BadEndpoint = 12 c"there can be no such remote endpoint",
        BadRdmawin = 13 c"bad RDMA window",
        Aborted = 14 c"aborted",
        EventqFull = 15 c"the event queue is full",
        NoResources = 16 c"out of resources",
    }
}

/// Result of a request: `mx_status_t` of C.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Status {
    /// `mx_status_code_t`. A plain number, because an error handler may return any.
    pub code: u32,
    /// Source of a receive, destination of a send, the address from a connect.
    pub source: Address,
    /// Match bits of the message; for a connect as given.
    pub match_info: u64,
    /// Length of the message in bytes.
    pub msg_length: u32,
    /// Number of bytes transferred.
    pub xfer_length: u32,
    /// Pointer given to the post. Not dereferenced, so a number here.
    pub context: usize,
}

impl From<mx_proto::Status> for StatusCode {
    fn from(status: mx_proto::Status) -> Self {
        use mx_proto::Status;
        match status {
            Status::Success => Self::Success,
            Status::Truncated => Self::Truncated,
            Status::Timeout => Self::Timeout,
            Status::Cancelled => Self::Cancelled,
            Status::EndpointUnknown => Self::EndpointUnknown,
            Status::EndpointClosed => Self::EndpointClosed,
            Status::Unreachable => Self::EndpointUnreachable,
            Status::BadSession => Self::BadSession,
            Status::BadKey => Self::BadKey,
            Status::BadEndpoint => Self::BadEndpoint,
            Status::Aborted => Self::Aborted,
            Status::NoResources => Self::NoResources,
            // MX's code for a process that may not connect.
            Status::BadSecret | Status::Refused => Self::Rejected,
            // MX has no registered memory, and the engine offers none to peers.
            Status::NoRegion | Status::OutOfRange | Status::NotAllowed | Status::Unsupported => {
                Self::Aborted
            }
        }
    }
}
