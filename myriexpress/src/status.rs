//! How a request ended: `mx_status_t` and `mx_status_code_t`.
//!
//! Knows nothing of: return codes of calls (see `error`).

use crate::handles::Address;

/// `mx_status_code_t`, with MX's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[expect(
    missing_docs,
    reason = "the names are MX's own; their texts are in `strings`"
)]
pub enum StatusCode {
    Success = 0,
    Pending = 1,
    Buffered = 2,
    Rejected = 3,
    Timeout = 4,
    Truncated = 5,
    Cancelled = 6,
    EndpointUnknown = 7,
    EndpointClosed = 8,
    EndpointUnreachable = 9,
    BadSession = 10,
    BadKey = 11,
    BadEndpoint = 12,
    BadRdmawin = 13,
    Aborted = 14,
    EventqFull = 15,
    NoResources = 16,
}

/// `mx_status_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Status {
    /// `mx_status_code_t`. A plain number, because an error handler may put any into it.
    pub code: u32,
    /// Source of a receive, destination of a send, the address a connect gave.
    pub source: Address,
    /// The message's match bits; a connect's as given.
    pub match_info: u64,
    /// Bytes of the message.
    pub msg_length: u32,
    /// Bytes that were transferred.
    pub xfer_length: u32,
    /// The pointer given when it was posted. Only handed through, so a number here.
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
            // MX's word for who may not come in.
            Status::BadSecret => Self::Rejected,
        }
    }
}
