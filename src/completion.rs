//! Completed operations, waiting for whoever tests for them.
//!
//! ```text
//!   context  0: oldest .. youngest     testcontext takes from the front,
//!   ...                                test and testsome from anywhere
//!   context 15: oldest .. youngest
//! ```
//!
//! Owns: the order in each context, and which contexts have got something since somebody looked.
//! Knows nothing of: why an operation completed. Cost: O(1) each, no allocation.

use crate::abi::constants::BMI_MAX_CONTEXTS;
use crate::op::table::{OpIndex, OpList, Ops, Stage};
use libc::c_void;

/// Contexts there are.
pub const CONTEXTS: usize = BMI_MAX_CONTEXTS as usize;

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

/// The queues of all contexts.
#[derive(Debug, Default)]
pub struct Completions {
    queues: [OpList; CONTEXTS],
    produced: u64,
}

impl Completions {
    /// An operation, in no list, is complete.
    #[inline]
    pub fn push(&mut self, ops: &mut Ops, index: OpIndex, error: i32, size: i64) {
        let op = ops.get_mut(index);
        debug_assert!(op.stage != Stage::Done && op.stage != Stage::Free);
        op.stage = Stage::Done;
        op.error = error;
        op.size = size;
        let context = usize::from(op.context) % CONTEXTS;
        ops.push_back(&mut self.queues[context], index);
        self.produced |= 1 << context;
    }

    /// Takes out a completed operation.
    #[inline]
    pub fn take(&mut self, ops: &mut Ops, index: OpIndex) -> Done {
        let op = *ops.get(index);
        debug_assert_eq!(op.stage, Stage::Done);
        ops.unlink(&mut self.queues[usize::from(op.context) % CONTEXTS], index);
        let done = Done {
            id: ops.id(index),
            error: op.error,
            size: op.size,
            user_ptr: op.user_ptr(),
        };
        ops.free(index);
        done
    }

    /// Takes out a context's oldest.
    #[inline]
    pub fn pop(&mut self, ops: &mut Ops, context: u8) -> Option<Done> {
        let first = self.queues[usize::from(context) % CONTEXTS].first()?;
        Some(self.take(ops, first))
    }

    /// Operations that wait in a context.
    pub fn waiting(&self, context: u8) -> usize {
        self.queues[usize::from(context) % CONTEXTS].len()
    }

    /// The contexts, one bit each, that have got something since the last call.
    #[inline]
    pub fn take_produced(&mut self) -> u64 {
        std::mem::take(&mut self.produced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::PostKind;
    use crate::op::table::Op;
    use crate::peer::table::PeerKey;
    use mx_proto::MatchBits;
    use std::ptr;

    fn complete(ops: &mut Ops, done: &mut Completions, context: u8, error: i32) -> i64 {
        let bits = MatchBits(0);
        let op = Op::new(
            PostKind::Send,
            context,
            5,
            bits,
            PeerKey::NOBODY,
            ptr::null_mut(),
        );
        let index = ops.alloc(op, ptr::null_mut()).unwrap();
        done.push(ops, index, error, 5);
        ops.id(index)
    }

    #[test]
    fn each_context_hands_out_its_own_in_order_and_once() {
        let (mut ops, mut done) = (Ops::default(), Completions::default());
        let ids: Vec<_> = [0, 15, 0, 15, 0]
            .iter()
            .map(|context| complete(&mut ops, &mut done, *context, 0))
            .collect();
        assert_eq!(done.take_produced(), 1 | 1 << 15);
        assert_eq!(done.take_produced(), 0);
        // From the middle, as `test` does.
        let middle = ops.find(ids[2]).unwrap();
        assert_eq!(done.take(&mut ops, middle).id, ids[2]);
        let rest: Vec<_> = std::iter::from_fn(|| done.pop(&mut ops, 0)).collect();
        assert_eq!(
            rest.iter().map(|d| d.id).collect::<Vec<_>>(),
            [ids[0], ids[4]]
        );
        assert_eq!(done.pop(&mut ops, 15).unwrap().id, ids[1]);
        assert_eq!(done.waiting(15), 1);
        assert_eq!(done.pop(&mut ops, 3), None);
    }

    #[test]
    fn an_operation_never_inherits_the_error_of_the_one_before_it() {
        let (mut ops, mut done) = (Ops::default(), Completions::default());
        // More than rest among the free ones, so that blocks are used again.
        for round in 0..500 {
            let error = if round % 2 == 0 { -7 } else { 0 };
            complete(&mut ops, &mut done, 1, error);
            assert_eq!(done.pop(&mut ops, 1).unwrap().error, error);
        }
        assert!(ops.is_empty());
    }
}
