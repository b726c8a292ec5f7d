//! Calling operations off where their completions are not wanted.

use crate::owner::Queue;
use mx_proto::port::Port;
use mx_proto::{Clock, Endpoint, Memory, Owner, RequestId, Status};
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
    /// There is no such request: it has completed, or never was.
    Unknown,
}

/// An owner that keeps completions in a [`Queue`].
pub trait Queued: Owner {
    /// Where.
    fn queue(&mut self) -> &mut Queue<Self::Memory>;
}

impl<M: Memory + fmt::Debug> Queued for Queue<M> {
    fn queue(&mut self) -> &mut Self {
        self
    }
}

/// An endpoint with such an owner.
pub trait CallOff {
    /// Calls an operation off, and takes its completion.
    ///
    /// # Panics
    /// When there is none although it is over, or more than one.
    fn cancel(&mut self, request: RequestId) -> Cancelled;
}

impl<P, C, O> CallOff for Endpoint<P, C, O>
where
    P: Port<O::Memory>,
    C: Clock,
    O: Queued,
{
    fn cancel(&mut self, request: RequestId) -> Cancelled {
        if !self.end(request, Status::Cancelled) {
            return Cancelled::Unknown;
        }
        let queue = self.owner_mut().queue();
        let Some(completion) = queue.take(request) else {
            assert!(
                self.ops().word(request).is_some(),
                "what is called off completes"
            );
            return Cancelled::Later;
        };
        assert_eq!(queue.take(request), None, "it completes once");
        assert_eq!(completion.status, Status::Cancelled);
        if completion.matched {
            Cancelled::Aborted
        } else {
            Cancelled::Withdrawn
        }
    }
}
