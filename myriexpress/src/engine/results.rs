//! What comes out of an endpoint: completions, and a look at what waits.
//!
//! ```text
//!   completion --> its request: forgotten --> gone
//!                               otherwise --> done, oldest first --- test, test_any --> gone
//!                                                                `-- peek: stays
//! ```
//!
//! A completion is handed out once, to whoever takes its request first.

use super::post::{COPIED, TO_SELF};
use super::requests::{Owner, Stage, from_word};
use super::{COMPLETIONS, Engine, check_mask, posted};
use crate::error::{Code, Error};
use crate::handles::{RequestHandle, RequestKey};
use crate::status::{Status, StatusCode};
use mx_proto::port::Port;
use mx_proto::{Clock, Completion, Kind, MatchBits, MatchMask};
use mx_sys::{Interest, UserMemory};

impl<P: Port<UserMemory>, C: Clock> Engine<P, C> {
    /// The protocol endpoint has finished with an operation.
    #[inline]
    pub(super) fn on_completion(&mut self, completion: &Completion) {
        let code = StatusCode::from(completion.status);
        if completion.context == TO_SELF {
            return self.on_connected_to_self(completion.partner, code);
        }
        if completion.context == COPIED {
            return self.on_copy_sent(completion.length, code);
        }
        let key = from_word(completion.context);
        match completion.kind {
            Kind::Send if code == StatusCode::Truncated => {
                return self.on_cut_short(key, completion);
            }
            Kind::Send => {}
            Kind::Recv => {
                let source = self.source(completion.partner);
                if let Some(request) = self.requests.get_mut(key) {
                    request.status.source = source;
                    request.status.match_info = completion.bits.0;
                    request.status.msg_length = completion.length;
                }
            }
            Kind::Connect if code == StatusCode::Success => {
                let source = self.source(completion.partner);
                if let Some(request) = self.requests.get_mut(key) {
                    request.status.source = source;
                }
            }
            Kind::Connect => {}
        }
        self.finish(key, code, completion.transferred);
    }

    /// The receiver has not taken all of a message. That is no business of who sent a small one,
    /// even if it was offered, for want of credit.
    #[cold]
    fn on_cut_short(&mut self, key: RequestKey, completion: &Completion) {
        match self.requests.get(key) {
            Some(request) if request.eager => {
                let length = request.status.msg_length;
                self.finish(key, StatusCode::Success, length);
            }
            _ => self.finish(key, StatusCode::Truncated, completion.transferred),
        }
    }

    /// A request has ended: whoever wants to know of it can.
    #[inline]
    pub(super) fn finish(&mut self, key: RequestKey, code: StatusCode, transferred: u32) {
        let Some(request) = self.requests.get_mut(key) else {
            debug_assert!(false, "{key:?} is no request");
            return;
        };
        request.status.code = code as u32;
        request.status.xfer_length = transferred;
        let match_info = request.status.match_info;
        match request.owner {
            Owner::Program => {
                let entry = self.done.add(MatchBits(match_info), key);
                request.stage = Stage::Done(Some(entry));
            }
            Owner::Hidden => request.stage = Stage::Done(None),
            Owner::Nobody => {
                self.requests.remove(key);
                return;
            }
        }
        self.produced |= self.class(match_info);
    }

    /// How a request ended, if it has. It is gone then.
    #[inline]
    pub(crate) fn test(&mut self, handle: RequestHandle) -> Result<Option<Status>, Error> {
        let (key, request) = self.find(handle)?;
        match request.stage {
            Stage::Done(_) => Ok(self.take(key)),
            _ => Ok(None),
        }
    }

    /// The end of the oldest request that has ended with match bits that agree with `bits` where
    /// `mask` has ones.
    #[inline]
    pub(crate) fn test_any(&mut self, bits: u64, mask: u64) -> Result<Option<Status>, Error> {
        check_mask(bits, mask)?;
        let Some(key) = self.done.take(MatchBits(bits), MatchMask(mask)) else {
            return Ok(None);
        };
        Ok(self.requests.remove(key).map(|request| request.status))
    }

    /// The oldest request that has ended. It stays.
    pub(crate) fn peek(&self) -> Result<Option<RequestHandle>, Error> {
        if self.options.context_ids.is_some() {
            return Err(Error::new(
                Code::NotSupportedWithContextId,
                "peeking is not possible with context ids",
            ));
        }
        let oldest = self.done.oldest().and_then(|entry| self.done.get(entry));
        Ok(oldest.map(|key| self.name(*key)))
    }

    /// The oldest unexpected message a receive with these bits and mask would take. It stays.
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

    /// Whether the memory of a send is the program's again, tested or not.
    pub(crate) fn is_buffered(&self, handle: RequestHandle) -> Result<bool, Error> {
        let (_, request) = self.find(handle)?;
        match request.kind {
            Kind::Send => Ok(matches!(request.stage, Stage::Done(_))),
            _ => Err(Error::new(Code::BadRequest, "the request is no send")),
        }
    }

    /// The pointer a request was posted with.
    pub(crate) fn context_of(&self, handle: RequestHandle) -> Result<usize, Error> {
        let (_, request) = self.find(handle)?;
        Ok(request.status.context)
    }

    /// What somebody who waits for this request is interested in.
    pub(crate) fn interest_of(&self, handle: RequestHandle) -> Interest {
        match self.find(handle) {
            Ok((_, request)) => self.class(request.status.match_info),
            Err(_) => COMPLETIONS,
        }
    }

    /// Takes a request that has ended out of everything.
    #[inline]
    pub(super) fn take(&mut self, key: RequestKey) -> Option<Status> {
        let request = self.requests.remove(key)?;
        if let Stage::Done(Some(entry)) = request.stage {
            self.done.remove(entry);
        }
        Some(request.status)
    }
}
