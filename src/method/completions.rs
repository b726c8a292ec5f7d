//! Completed operations of one context that the host has not tested, in the order in which it gets them.
//!
//! ```text
//!   pop <-- ok   send failed   recv failed   recv failed   ok   recv failed <-- append
//!                            ^
//!                            '-- a send that fails now, if nothing has been popped meanwhile
//! ```
//!
//! Sends are reported before receives that fail with them: OrangeFS posts the receive of an answer before the request,
//! and its client hangs if it gets the failed receive first (docs/hosts.md, Calls). Every completion passes here,
//! whichever queue an operation was in and whatever ended it.
//!
//! Once the host has popped a completion, later failed sends no longer overtake the failed receives before them:
//! otherwise sends that fail one after the other could delay a receive for ever.
//!
//! A send that is posted while the failed receive of its exchange waits here fails, too: the peer may reject between
//! the two posts, and the host would get the receive while the send is in progress.
//!
//! Owns: the list of one context.
//! Cost: O(1), and nothing for a success; but a send posted while failed receives wait scans all completions.

use super::{Host, PostKind};
use crate::op::blocks::Blocks;
use crate::op::data::OpData;
use libc::c_void;
use mx_proto::RequestId;
use mx_proto::ops::{List, OpStorage, Ops};

/// Completion of one operation, as a test call reports it to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Id of the operation, stale from now on.
    pub id: i64,
    /// 0, or a negative BMI code.
    pub error: i32,
    /// Bytes transferred.
    pub size: i64,
    /// The host's pointer.
    pub user_ptr: *mut c_void,
}

/// Completed operations of one context; see the module.
#[derive(Debug, Default)]
pub(super) struct Completions {
    list: List,
    overtaken: Option<Overtaken>,
}

/// Failed receives that the host has not got, which a failed send may overtake.
#[derive(Debug)]
struct Overtaken {
    /// Oldest of these receives.
    oldest: RequestId,
    /// First completion of the list: if it has changed, something has been popped.
    first: Option<RequestId>,
}

impl Completions {
    /// Returns the number of completions.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Removes and returns the first completion.
    #[inline]
    pub(super) fn pop(&mut self, ops: &mut Ops<Host>) -> Option<Done> {
        ops.pop(&mut self.list, done_at)
    }

    /// Removes and returns the completion of `op`, which is in the list.
    #[inline]
    pub(super) fn take(&mut self, ops: &mut Ops<Host>, op: RequestId) -> Done {
        let done = done_at(ops.places(), op.index());
        ops.remove(&mut self.list, op);
        ops.free(op);
        done
    }

    /// Appends a successful operation.
    #[inline(always)]
    pub(super) fn append(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        ops.append_completed(&mut self.list, op);
    }

    /// Returns the code of a failed receive for which `is_of` is true, if a send that fails now would overtake it.
    #[cold]
    pub(super) fn failed_receive(
        &self,
        ops: &Ops<Host>,
        is_of: impl Fn(&OpData) -> bool,
    ) -> Option<i32> {
        let overtaken = self.overtaken.as_ref()?;
        if overtaken.first != ops.first(&self.list) {
            return None;
        }
        let mut words = ops.all(&self.list).filter_map(|op| ops.data(op));
        let failed = words
            .find(|word| word.kind() == Some(PostKind::Recv) && word.error != 0 && is_of(word));
        failed.map(|word| word.error)
    }

    /// Returns whether a failed receive may be waiting.
    #[inline(always)]
    pub(super) fn has_failed_receives(&self) -> bool {
        self.overtaken.is_some() && !self.list.is_empty()
    }

    /// Adds a failed operation. `receives`: whether it is a receive.
    pub(super) fn append_failed(&mut self, ops: &mut Ops<Host>, op: RequestId, receives: bool) {
        let first = ops.first(&self.list);
        let overtaken = self.overtaken.take();
        let overtaken = overtaken.filter(|of| of.first == first && ops.is_done(of.oldest));
        let oldest = overtaken.map(|of| of.oldest);
        match oldest {
            Some(oldest) if !receives => ops.insert_completed(&mut self.list, op, oldest),
            _ => ops.append_completed(&mut self.list, op),
        }
        let first = ops.first(&self.list);
        let oldest = oldest.or_else(|| receives.then_some(op));
        self.overtaken = oldest.map(|oldest| Overtaken { oldest, first });
    }
}

/// Returns the host's completion of the operation at a place.
#[inline]
fn done_at(places: &Blocks, place: u32) -> Done {
    let word = places.data(place);
    Done {
        id: places.id(place),
        error: word.error,
        size: word.size,
        user_ptr: word.user_ptr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::ptr;

    /// An operation with that number ends, or the host takes completions.
    #[derive(Clone, Copy)]
    enum Step {
        Ok(usize),
        Send(usize),
        Recv(usize),
        /// The host tests the context for that many.
        Pop(usize),
        /// The host tests one operation.
        Take(usize),
    }
    use Step::{Ok, Pop, Recv, Send, Take};

    /// Returns the order in which the host gets the operations, popping all that are left at the end.
    fn order(steps: &[Step]) -> Vec<usize> {
        let mut ops = Ops::<Host>::default();
        let mut list = Completions::default();
        let mut known = HashMap::new();
        let mut got = Vec::new();
        for step in steps.iter().copied().chain([Pop(usize::MAX)]) {
            match step {
                Ok(number) | Send(number) | Recv(number) => {
                    let word = OpData {
                        user_ptr: ptr::without_provenance_mut(number),
                        ..OpData::default()
                    };
                    let op = ops.add_done(word).unwrap();
                    known.insert(number, op);
                    match step {
                        Ok(_) => list.append(&mut ops, op),
                        _ => list.append_failed(&mut ops, op, matches!(step, Recv(_))),
                    }
                }
                Pop(most) => {
                    let all = std::iter::from_fn(|| list.pop(&mut ops));
                    got.extend(all.take(most).map(|done| done.user_ptr.addr()));
                }
                Take(number) => {
                    let op = known[&number];
                    got.push(list.take(&mut ops, op).user_ptr.addr());
                }
            }
        }
        assert_eq!((list.len(), ops.in_use()), (0, 0));
        got
    }

    #[test]
    fn failed_sends_come_before_the_receives_that_fail_with_them() {
        assert_eq!(order(&[Recv(1), Send(2)]), [2, 1]);
        assert_eq!(order(&[Send(1), Recv(2)]), [1, 2]);
        let mixed = [Recv(1), Send(2), Recv(3), Recv(4), Send(5), Send(6)];
        assert_eq!(order(&mixed), [2, 5, 6, 1, 3, 4]);
    }

    #[test]
    fn successes_stay_where_they_are() {
        assert_eq!(order(&[Ok(1), Recv(2), Ok(3), Send(4)]), [1, 4, 2, 3]);
        assert_eq!(order(&[Ok(1), Ok(2), Send(3), Ok(4)]), [1, 2, 3, 4]);
    }

    #[test]
    fn taking_some_of_them_does_not_change_the_order_of_the_others() {
        let failed = [Recv(1), Send(2), Recv(3), Send(4)];
        for most in 1..4 {
            let steps = [&failed[..], &[Pop(most), Pop(most)]].concat();
            assert_eq!(order(&steps), [2, 4, 1, 3]);
        }
        let steps = [&failed[..], &[Take(1)]].concat();
        assert_eq!(order(&steps), [1, 2, 4, 3]);
    }

    #[test]
    fn a_receive_that_could_have_been_taken_is_not_overtaken() {
        let popped = [Recv(1), Send(2), Pop(1), Send(3), Recv(4), Send(5)];
        assert_eq!(order(&popped), [2, 1, 3, 5, 4]);
        let all_popped = [Recv(1), Pop(1), Send(2), Recv(3), Send(4)];
        assert_eq!(order(&all_popped), [1, 2, 4, 3]);
        // The oldest receive was tested by itself.
        assert_eq!(
            order(&[Ok(1), Recv(2), Recv(3), Take(2), Send(4)]),
            [2, 1, 3, 4]
        );
    }

    #[test]
    fn no_receive_waits_for_ever_behind_sends_that_fail() {
        let again = (2..100).flat_map(|number| [Send(number), Pop(1)]);
        let steps: Vec<_> = [Recv(1)].into_iter().chain(again).collect();
        assert_eq!(order(&steps)[..3], [2, 1, 3]);
    }
}
