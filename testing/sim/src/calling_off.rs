//! Cancels operations whose completions are not needed.

use crate::owner::{Completion, Queue, Reports, Verdicts};
use mx_proto::port::Port;
use mx_proto::{Clock, Endpoint, Memory, RequestId, Status};
use std::fmt;

/// Effect of a cancel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    /// The peer does not notice: no message was lost.
    Withdrawn,
    /// A message had matched; its sender gets an error.
    Aborted,
    /// A send, which completes when its receiver no longer reads it.
    Later,
    /// There is no such request: it has completed, or never existed; or it is a receive whose
    /// message has arrived, and completes with it.
    Unknown,
}

/// An endpoint whose owner is a [`Queue`].
pub trait CallOff {
    /// Cancels an operation, and takes its completion.
    ///
    /// # Panics
    /// If there is no completion although the operation has ended, or more than one.
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
