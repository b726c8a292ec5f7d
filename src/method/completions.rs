//! Completed operations of one context that the host has not tested, in the order in which it gets them.
//!
//! ```text
//!   pop <-- ok   send failed   recv failed   recv failed   ok   recv failed <-- append
//!                            ^
//!                            '-- a send that fails now, if nothing has been popped meanwhile
//! ```
//!
//! Sends are reported before receives that fail with them:
//! OrangeFS posts the receive of an answer before the request, and its client waits for ever if it hears of
//! the failed receive first (docs/hosts.md, Calls). Every completion passes here, so it does not matter
//! which queue an operation was in, or why it ended.
//!
//! A receive that the host can have had, because it has popped something since, is not overtaken any more:
//! none waits for ever behind sends that fail one after the other.
//!
//! A send that is posted for an exchange whose receive waits here, failed, fails with it: the peer may refuse
//! between the two posts, and the host would hear of the receive while the send is under way.
//!
//! Owns: the list of one context.
//! Cost: O(1), and nothing for a success; but a send that is posted while failed receives wait looks at all
//! completions.

use super::{Host, PostKind};
use crate::op::blocks::Blocks;
use crate::op::data::OpData;
use libc::c_void;
use mx_proto::RequestId;
use mx_proto::ops::{List, OpStorage, Ops};

/// The end of one operation, as the host hears of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Its id, stale from now on.
    pub id: i64,
    /// 0, or a negative BMI code.
    pub error: i32,
    /// Bytes transferred.
    pub size: i64,
    /// The host's word.
    pub user_ptr: *mut c_void,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Completions {
    list: List,
    overtaken: Option<Overtaken>,
}

/// Failed receives that wait, and that a failed send is put before.
#[derive(Debug)]
struct Overtaken {
    /// The oldest of them.
    oldest: RequestId,
    /// The first of the list: if it is another one, something has been popped since.
    first: Option<RequestId>,
}

impl Completions {
    /// The number of completions.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes the first one out.
    #[inline]
    pub(super) fn pop(&mut self, ops: &mut Ops<Host>) -> Option<Done> {
        ops.pop(&mut self.list, done_at)
    }

    /// Takes that one out, which is in the list.
    #[inline]
    pub(super) fn take(&mut self, ops: &mut Ops<Host>, op: RequestId) -> Done {
        let done = done_at(ops.places(), op.index());
        ops.remove(&mut self.list, op);
        ops.free(op);
        done
    }

    /// An operation has succeeded.
    #[inline(always)]
    pub(super) fn append(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        ops.append_completed(&mut self.list, op);
    }

    /// The code of a failed receive that waits, and of which `is_of` says that it is wanted; if a send that
    /// fails now would be put before it.
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

    /// Whether a failed receive may wait.
    #[inline(always)]
    pub(super) fn has_failed_receives(&self) -> bool {
        self.overtaken.is_some() && !self.list.is_empty()
    }

    /// A receive, or else a send, has failed.
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

/// The completion for the host of the operation at a place.
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
        /// So many of the context.
        Pop(usize),
        /// The host tests one operation.
        Take(usize),
    }
    use Step::{Ok, Pop, Recv, Send, Take};

    /// The order in which the host gets them: at the end, all that are left.
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
        // The oldest one was tested by itself.
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
