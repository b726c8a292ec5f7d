//! All operations of one method: found by id, strung together in lists.
//!
//! ```text
//!   free list (oldest first) --alloc--> Queued / Posted --complete--> Done --free--> free list
//!                                        in its peer's list           in its context's queue
//! ```
//!
//! An operation stands in at most one list at a time, so one pair of links is enough and nothing
//! is ever allocated for a list. Blocks are used again oldest first, and never while fewer than
//! [`RESTING`] are free: a stale id stays recognisable for a while.
//!
//! Owns: which ids are live. Knows nothing of: peers, the endpoint.

use super::block::Arena;
use crate::abi::types::bmi_method_addr;
use crate::method::{FOR_EVER, PostKind};
use crate::peer::table::PeerKey;
use libc::c_void;
use mx_proto::{Instant, MatchBits, RequestId};
use mx_sys::UserMemory;

/// Names an operation within its table. Only valid while the operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpIndex(u32);

impl OpIndex {
    /// As a number, for the endpoint's context words.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The inverse. The number must have come from [`OpIndex::number`] of a live operation.
    #[inline]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// Where an operation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It is none.
    Free,
    /// It waits for its peer, with its memory in the table.
    Queued,
    /// The endpoint has it.
    Posted(RequestId),
    /// It is complete and waits to be handed out.
    Done,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Where it stands.
    pub stage: Stage,
    /// What it does.
    pub kind: PostKind,
    /// Where it is reported.
    pub context: u8,
    /// 0, or the negative code it completed with.
    pub error: i32,
    /// Its length when posted; what was transferred when done.
    pub size: i64,
    /// Its match bits. The id of a queued send's is filled in when it is sent.
    pub bits: MatchBits,
    /// A receive posted while the conversation with its peer was cut.
    pub provisional: bool,
    /// With whom.
    pub peer: PeerKey,
    /// How long it may wait in its peer's queue.
    pub until: Instant,
    /// The host's word, given back as it is.
    user_ptr: usize,
    prev: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

/// Free blocks that are left alone so that stale ids stay stale.
const RESTING: u32 = 32;

impl Op {
    /// What a free block holds.
    pub(super) const FREE: Self = Self {
        stage: Stage::Free,
        kind: PostKind::Send,
        context: 0,
        provisional: false,
        error: 0,
        size: 0,
        bits: MatchBits(0),
        peer: PeerKey::NOBODY,
        until: FOR_EVER,
        user_ptr: 0,
        prev: NONE,
        next: NONE,
    };

    /// A new operation.
    #[inline]
    pub fn new(
        kind: PostKind,
        context: u8,
        size: i64,
        bits: MatchBits,
        peer: PeerKey,
        user_ptr: *mut c_void,
    ) -> Self {
        Self {
            stage: Stage::Queued,
            kind,
            context,
            provisional: false,
            error: 0,
            size,
            bits,
            peer,
            until: FOR_EVER,
            user_ptr: user_ptr as usize,
            prev: NONE,
            next: NONE,
        }
    }

    /// The host's word.
    #[inline]
    pub fn user_ptr(&self) -> *mut c_void {
        self.user_ptr as *mut c_void
    }
}

/// A list of operations, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct OpList {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for OpList {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

impl OpList {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest.
    #[inline]
    pub fn first(&self) -> Option<OpIndex> {
        (self.head != NONE).then_some(OpIndex(self.head))
    }
}

/// All operations of one method.
#[derive(Debug, Default)]
pub struct Ops {
    arena: Arena,
    free: OpList,
    live: usize,
}

impl Ops {
    /// Operations that have been posted and not been handed out.
    pub fn len(&self) -> usize {
        self.live
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The block that the next operation will have. `None` when there are too many.
    #[inline]
    pub fn reserve(&mut self) -> Option<OpIndex> {
        if self.free.len <= RESTING {
            self.refill();
        }
        self.free.first()
    }

    /// Puts an operation into the block that was reserved last.
    #[inline]
    pub fn commit(&mut self, index: OpIndex, op: Op, addr: *mut bmi_method_addr) {
        debug_assert_eq!(self.free.first(), Some(index));
        let mut free = self.free;
        self.unlink(&mut free, index);
        self.free = free;
        *self.arena.op_mut(index.0) = op;
        self.arena.show(index.0, addr);
        self.live += 1;
    }

    /// Takes a block for an operation. `None` when there are too many.
    #[inline]
    pub fn alloc(&mut self, op: Op, addr: *mut bmi_method_addr) -> Option<OpIndex> {
        let index = self.reserve()?;
        self.commit(index, op, addr);
        Some(index)
    }

    #[cold]
    fn refill(&mut self) {
        let first = self.arena.len();
        if self.arena.grow() {
            let mut free = self.free;
            for index in first..self.arena.len() {
                self.push_back(&mut free, OpIndex(index));
            }
            self.free = free;
        }
    }

    /// Gives a block back; the operation must be in no list. Its id is stale from now on.
    #[inline]
    pub fn free(&mut self, index: OpIndex) {
        debug_assert!(self.get(index).stage != Stage::Free);
        self.arena.hide(index.0);
        self.arena.op_mut(index.0).stage = Stage::Free;
        self.arena.memory_mut(index.0).take();
        let mut free = self.free;
        self.push_back(&mut free, index);
        self.free = free;
        self.live -= 1;
    }

    /// The operation the host calls `id`; `None` when there is no such operation any more.
    #[inline]
    pub fn find(&self, id: i64) -> Option<OpIndex> {
        let index = self.arena.index_of(id)?;
        (self.arena.op_id(index) == id).then_some(OpIndex(index))
    }

    /// What the host calls it.
    #[inline]
    pub fn id(&self, index: OpIndex) -> i64 {
        self.arena.id_of(index.0)
    }

    /// The address it was posted with.
    #[inline]
    pub fn addr(&self, index: OpIndex) -> *mut bmi_method_addr {
        self.arena.addr(index.0)
    }

    /// Looks at an operation.
    #[inline]
    pub fn get(&self, index: OpIndex) -> &Op {
        self.arena.op(index.0)
    }

    /// Changes an operation.
    #[inline]
    pub fn get_mut(&mut self, index: OpIndex) -> &mut Op {
        self.arena.op_mut(index.0)
    }

    /// Keeps the memory of an operation that has to wait.
    pub fn store_memory(&mut self, index: OpIndex, memory: UserMemory) {
        *self.arena.memory_mut(index.0) = Some(memory);
    }

    /// Takes that memory out again.
    pub fn take_memory(&mut self, index: OpIndex) -> Option<UserMemory> {
        self.arena.memory_mut(index.0).take()
    }

    /// Appends an operation that is in no list.
    #[inline]
    pub fn push_back(&mut self, list: &mut OpList, index: OpIndex) {
        let OpIndex(number) = index;
        let op = self.arena.op_mut(number);
        (op.prev, op.next) = (list.tail, NONE);
        match list.tail {
            NONE => list.head = number,
            tail => self.arena.op_mut(tail).next = number,
        }
        list.tail = number;
        list.len += 1;
    }

    /// Takes an operation out of the list it is in.
    #[inline]
    pub fn unlink(&mut self, list: &mut OpList, index: OpIndex) {
        let (prev, next) = {
            let op = self.arena.op_mut(index.0);
            let links = (op.prev, op.next);
            (op.prev, op.next) = (NONE, NONE);
            links
        };
        match prev {
            NONE => list.head = next,
            prev => self.arena.op_mut(prev).next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.arena.op_mut(next).prev = prev,
        }
        list.len -= 1;
    }

    /// All operations of a list, oldest first.
    pub fn list(&self, list: &OpList) -> Vec<OpIndex> {
        let mut all = Vec::with_capacity(list.len());
        let mut next = list.head;
        while next != NONE {
            all.push(OpIndex(next));
            next = self.arena.op(next).next;
        }
        all
    }

    /// Takes out the oldest.
    #[inline]
    pub fn pop_front(&mut self, list: &mut OpList) -> Option<OpIndex> {
        let first = list.first()?;
        self.unlink(list, first);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn op() -> Op {
        Op::new(
            PostKind::Recv,
            3,
            10,
            MatchBits(7),
            PeerKey::NOBODY,
            ptr::null_mut(),
        )
    }

    fn alloc(ops: &mut Ops) -> OpIndex {
        ops.alloc(op(), ptr::null_mut()).unwrap()
    }

    #[test]
    fn a_stale_id_names_nothing_until_its_block_has_rested() {
        let mut ops = Ops::default();
        let first = alloc(&mut ops);
        let id = ops.id(first);
        assert_eq!(ops.find(id), Some(first));
        ops.free(first);
        assert_eq!(ops.find(id), None);
        for _ in 0..RESTING {
            let index = alloc(&mut ops);
            assert_ne!(ops.id(index), id);
            ops.free(index);
        }
        assert!(ops.is_empty());
    }

    #[test]
    fn lists_keep_their_order_whatever_is_taken_out() {
        let mut ops = Ops::default();
        let mut list = OpList::default();
        let all: Vec<_> = (0..5).map(|_| alloc(&mut ops)).collect();
        for index in &all {
            ops.push_back(&mut list, *index);
        }
        ops.unlink(&mut list, all[2]);
        ops.unlink(&mut list, all[4]);
        ops.push_back(&mut list, all[2]);
        let mut order = Vec::new();
        while let Some(index) = ops.pop_front(&mut list) {
            order.push(index);
        }
        assert_eq!(order, [all[0], all[1], all[3], all[2]]);
        assert!(list.is_empty() && list.first().is_none());
    }

    #[test]
    fn thousands_of_operations_at_once_have_different_ids() {
        let mut ops = Ops::default();
        let all: Vec<_> = (0..5000).map(|_| alloc(&mut ops)).collect();
        let mut ids: Vec<_> = all.iter().map(|index| ops.id(*index)).collect();
        for (index, id) in all.iter().zip(&ids) {
            assert_eq!(ops.find(*id), Some(*index));
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), ops.len()), (5000, 5000));
    }
}
