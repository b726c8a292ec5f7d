//! Operations that the provider has not completed.
//!
//! ```text
//!   begin(op) --> context --> fi_send, fi_recv, ...       the provider may write into it
//!                                  |
//!   end(context) <-- completion ---'      None: unknown or stale
//!
//!   chunk  [ context | context | ... ]          context: 64 bytes for the provider
//!   ops    [ op | vacant | ... ]          the same numbers
//! ```
//!
//! Owns: the contexts' memory. It must outlive the provider's endpoints.
//! Cost: a few comparisons an operation; memory grows with the number outstanding at once.

use libc::c_void;
use mx_port_fabric::Contexts;
use slab::Slab;

/// Purpose of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    /// A receive buffer, by number.
    Receive(u32),
    /// A send slot, by number.
    Send(u32),
    /// A piece of an RMA read, by number.
    Read(u32),
}

/// Contexts per chunk.
const CHUNK: usize = 256;

/// Outstanding operations of a domain.
#[derive(Default)]
pub(super) struct Ops {
    chunks: Vec<Contexts>,
    ops: Slab<Op>,
}

impl Ops {
    /// Number of outstanding operations.
    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Records an operation that is about to be posted. If the provider rejects it, [`Ops::end`] undoes this.
    pub(super) fn begin(&mut self, op: Op) -> *mut c_void {
        let number = self.ops.insert(op);
        if number / CHUNK == self.chunks.len() {
            self.chunks.push(Contexts::new(CHUNK));
        }
        self.chunks[number / CHUNK].at(number % CHUNK)
    }

    /// Ends the operation of a returned context, and frees the context.
    pub(super) fn end(&mut self, context: *mut c_void) -> Option<Op> {
        self.ops.try_remove(self.number(context)?)
    }

    /// Returns the operation of a context that the provider still holds.
    pub(super) fn of(&self, context: *mut c_void) -> Option<Op> {
        self.ops.get(self.number(context)?).copied()
    }

    fn number(&self, context: *mut c_void) -> Option<usize> {
        let mut chunks = self.chunks.iter().enumerate();
        chunks.find_map(|(chunk, contexts)| Some(chunk * CHUNK + contexts.number(context)?))
    }
}

impl std::fmt::Debug for Ops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ops({} outstanding)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_leads_back_to_its_operation_once() {
        let mut ops = Ops::default();
        let contexts: Vec<_> = (0..600).map(|n| ops.begin(Op::Send(n))).collect();
        assert_eq!(ops.len(), 600);
        for (n, context) in contexts.iter().enumerate() {
            assert_eq!(ops.of(*context), Some(Op::Send(n as u32)));
            assert_eq!(ops.end(*context), Some(Op::Send(n as u32)));
            assert_eq!(ops.end(*context), None);
        }
        assert_eq!(ops.len(), 0);
    }

    #[test]
    fn foreign_contexts_are_refused() {
        let mut ops = Ops::default();
        let context = ops.begin(Op::Receive(0));
        assert_eq!(ops.end(std::ptr::null_mut()), None);
        assert_eq!(ops.end(context.wrapping_byte_add(1)), None);
        assert_eq!(ops.end(context.wrapping_byte_sub(4096 * 64)), None);
        assert_eq!(ops.end(context), Some(Op::Receive(0)));
    }
}
