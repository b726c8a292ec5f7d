//! Buffers that frames arrive in.
//!
//! ```text
//!   multi-receive:  [ frame | frame | frame | ...... free ]   the provider fills one after the
//!                                                             other and reports when it is full
//!   otherwise:      [ frame ]  [ frame ]  [ frame ]  ...      one receive each
//! ```
//!
//! Frames are copied out or handled before the buffer is posted again, in the same poll. So
//! credits, not this memory, bound the messages of peers.
//!
//! Owns: the memory and its registrations. The memory must outlive the endpoint.
//! Not here: frames.

use super::ops::{Op, Ops};
use super::plan::Plan;
use libc::c_void;
use mx_port_fabric::{Buffers, Domain, Ep, FabricError};

/// Multi-receive buffers: while one is being used up, the next is there already.
const MULTI: usize = 4;
/// Bytes of each at least: eight frames of hardware, or four thousand small messages.
const MULTI_BYTES: usize = 256 << 10;
/// Frames a multi-receive buffer holds at least, however large they are.
const MULTI_FRAMES: usize = 4;

/// Buffers of one frame each, where the provider knows nothing better.
const SINGLE: usize = 128;

/// The receive buffers of one port.
pub(super) struct Receive {
    buffers: Buffers,
    size: usize,
    multi: bool,
    /// Buffers the provider would not take back; tried again at every poll.
    owed: Vec<u32>,
}

impl Receive {
    /// Allocates the buffers; nothing is posted yet.
    pub(super) fn new(domain: &Domain, main: &Ep, plan: &Plan) -> Result<Self, FabricError> {
        let frame = plan.prefix() + plan.terms.frame_max;
        let (size, count) = if plan.terms.multi_recv {
            (MULTI_BYTES.max(frame * MULTI_FRAMES), MULTI)
        } else {
            (frame, SINGLE)
        };
        let access = plan.mr_local.then_some(libfabric_sys::abi::FI_RECV);
        Ok(Self {
            buffers: Buffers::new((domain, main), size * count, access)?,
            size,
            multi: plan.terms.multi_recv,
            owed: (0..count as u32).collect(),
        })
    }

    /// Gives the provider every buffer it does not have, as far as it takes them now.
    pub(super) fn post(&mut self, main: &Ep, ops: &mut Ops) -> Result<(), i32> {
        let desc = self.buffers.desc();
        while let Some(&number) = self.owed.last() {
            let start = self.buffers.bytes_mut()[number as usize * self.size..].as_mut_ptr();
            let context = ops.begin(Op::Receive(number));
            // SAFETY: the buffer is not looked at while the provider has it but where it has
            // reported data, and outlives the endpoint.
            let posted = unsafe { main.receive(start, self.size, desc, self.multi, context) };
            if let Err(error) = posted {
                ops.end(context);
                return match error {
                    libc::EAGAIN => Ok(()),
                    error => Err(error),
                };
            }
            self.owed.pop();
        }
        Ok(())
    }

    /// The provider has done with a buffer, which is to be posted again.
    pub(super) fn returned(&mut self, number: u32) {
        if !self.owed.contains(&number) {
            self.owed.push(number);
        }
    }

    /// A provider's buffer has to be posted.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// The bytes that have arrived in a buffer. `start` is the provider's address for them, used
    /// only for multi-receives. `None` when that is outside.
    pub(super) fn arrived(&self, number: u32, start: *const c_void, len: usize) -> Option<&[u8]> {
        let base = number as usize * self.size;
        let offset = if self.multi {
            let first = self.buffers.bytes().as_ptr().addr() + base;
            start.addr().checked_sub(first)?
        } else {
            0
        };
        let end = offset.checked_add(len)?;
        if end > self.size {
            return None;
        }
        self.buffers.bytes().get(base + offset..base + end)
    }

    /// Gives up the registration; the memory stays.
    pub(super) fn close_registrations(&mut self) {
        self.buffers.close_registration();
    }
}
