//! Calling operations off where their completions are not wanted.

use crate::owner::{Completion, Queue, Reports, Verdicts};
use mx_proto::port::Port;
use mx_proto::{Clock, Endpoint, Memory, RequestId, Status};
use std::fmt;

/// The effect of calling an operation off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    /// The peer will not notice: no message was lost.
    Withdrawn,
    /// A message had matched; its sender learns that it was not wanted.
    Aborted,
    /// A send that completes when its receiver does not read it any more.
    Later,
    /// There is no such request: it has completed, or never was; or it is a receive whose message is there, and completes as that.
    Unknown,
}

/// An endpoint whose owner is a [`Queue`].
pub trait CallOff {
    /// Calls an operation off, and takes its completion.
    ///
    /// # Panics
    /// When there is none although it is over, or more than one.
    fn cancel(&mut self, request: RequestId) -> Cancelled;
}

impl<P, C, M, V> CallOff for Endpoint<P, C, Queue<M, V>>
where
    P: Port<M>,
    C: Clock,
    M: Memory + fmt::Debug,
    V: Verdicts<M>,
{
    fn cancel(&mut self, request: RequestId) -> Cancelled {
        if !self.end(request, Status::Cancelled) {
            return Cancelled::Unknown;
        }
        let whole = |completion: &Completion| completion.status != Status::Cancelled;
        self.take_events();
        if self.owner().peek(request).is_some_and(whole) {
            return Cancelled::Unknown;
        }
        let Some(completion) = self.take_completion(request) else {
            assert!(
                self.ops().data(request).is_some(),
                "what is called off completes"
            );
            return Cancelled::Later;
        };
        assert_eq!(self.take_completion(request), None, "it completes once");
        if completion.matched {
            Cancelled::Aborted
        } else {
            Cancelled::Withdrawn
        }
    }
}
