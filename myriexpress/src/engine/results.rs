//! Completions of an endpoint, and peeking at them.
//!
//! ```text
//!   completed --> done, oldest first --- test, test_any --> freed
//!                                    `-- peek: stays
//! ```
//!
//! A completion is handed out once, to the first call for its request.

use super::program::RequestKind;
use super::{COMPLETIONS, Engine, check_mask, posted};
use crate::error::{Code, Error};
use crate::handles::RequestHandle;
use crate::status::Status;
use mx_proto::port::Port;
use mx_proto::{Clock, MatchBits, MatchMask, RequestId};
use mx_sys::{Interest, UserMemory};

impl<P: Port<UserMemory>, C: Clock> Engine<P, C> {
    /// Returns the result of a request that has ended, and makes its handle stale; else `None`.
    #[inline]
    pub(crate) fn test(&mut self, handle: RequestHandle) -> Result<Option<Status>, Error> {
        let (op, _) = self.find(handle)?;
        if self.endpoint.ops().is_done(op) {
            Ok(self.take(op))
        } else {
            Ok(None)
        }
    }

    /// Returns the result of the oldest completed request whose match bits agree with `bits` where `mask` has ones.
    #[inline]
    pub(crate) fn test_any(&mut self, bits: u64, mask: u64) -> Result<Option<Status>, Error> {
        check_mask(bits, mask)?;
        let (program, ops) = self.endpoint.split();
        let oldest = program.done.take(MatchBits(bits), MatchMask(mask));
        Ok(oldest.and_then(|op| program.hand_out(ops, op)))
    }

    /// Returns the oldest completed request, which stays.
    pub(crate) fn peek(&self) -> Result<Option<RequestHandle>, Error> {
        if self.options().context_ids.is_some() {
            return Err(Error::new(
                Code::NotSupportedWithContextId,
                "peeking is not possible with context ids",
            ));
        }
        let done = &self.endpoint.owner().done;
        let oldest = done.oldest().and_then(|entry| done.get(entry));
        Ok(oldest.map(|op| self.name(*op)))
    }

    /// Returns the oldest unexpected message that a receive with these bits and mask would take. The message stays.
    pub(crate) fn probe(&mut self, bits: u64, mask: u64) -> Result<Option<Status>, Error> {
        check_mask(bits, mask)?;
        let Some(arrival) = self.endpoint.probe(MatchBits(bits), MatchMask(mask)) else {
            return Ok(None);
        };
        let source = self.source(arrival.source);
        let mut status = posted(source, arrival.bits.0, arrival.length, 0);
        status.xfer_length = arrival.length;
        Ok(Some(status))
    }

    /// Returns whether the program may reuse the memory of a send, tested or not.
    pub(crate) fn is_buffered(&self, handle: RequestHandle) -> Result<bool, Error> {
        let (op, word) = self.find(handle)?;
        match word.kind {
            RequestKind::Other => Err(Error::new(Code::BadRequest, "the request is no send")),
            _ => Ok(self.endpoint.ops().is_done(op)),
        }
    }

    /// Returns the pointer with which a request was posted.
    pub(crate) fn context_of(&self, handle: RequestHandle) -> Result<usize, Error> {
        let (_, word) = self.find(handle)?;
        Ok(word.status.context)
    }

    /// Returns the interest of a thread that waits for this request.
    pub(crate) fn interest_of(&self, handle: RequestHandle) -> Interest {
        match self.find(handle) {
            Ok((_, word)) => self.endpoint.owner().class(word.status.match_info),
            Err(_) => COMPLETIONS,
        }
    }

    /// Returns the result of an ended request and frees it.
    #[inline]
    pub(super) fn take(&mut self, op: RequestId) -> Option<Status> {
        let (program, ops) = self.endpoint.split();
        program.hand_out(ops, op)
    }
}
