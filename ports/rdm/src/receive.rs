//! Receive buffers for frames.
//!
//! ```text
//!   multi-receive:  [ frame | frame | frame | ...... free ]   the provider fills one after the
//!                                                             other and reports when it is full
//!   otherwise:      [ frame ]  [ frame ]  [ frame ]  ...      one receive each
//! ```
//!
//! Frames are copied out or handled before their buffer is posted again, at the end of the round. So credits, not this
//! memory, bound the messages of peers.
//!
//! Owns: the memory and its registrations, and the range of the current frame. The memory must outlive the endpoint.
//! Out of scope: the meaning of frames.

use super::ops::{Op, Ops};
use super::plan::Plan;
use libc::c_void;
use mx_port_fabric::{Buffers, Domain, Ep, FabricError};
use std::ops::Range;

/// Number of multi-receive buffers: while one fills up, the next is already posted.
const MULTI: usize = 4;
/// Minimum size of a multi-receive buffer in bytes: eight frames of hardware, or four thousand small messages.
const MULTI_BYTES: usize = 256 << 10;
/// Minimum number of frames, of any size, that a multi-receive buffer holds.
const MULTI_FRAMES: usize = 4;

/// Number of buffers for one frame each, without multi-receive.
const SINGLE: usize = 128;

/// Receive buffers of a port.
pub(super) struct Receive {
    buffers: Buffers,
    size: usize,
    multi: bool,
    /// Buffers that the provider does not hold; posting is tried every round.
    owed: Vec<u32>,
    /// Range of the rest of the current frame, in the buffers or in `early`.
    frame: Range<usize>,
    /// Current frame, if it arrived early and was held.
    early: Option<Box<[u8]>>,
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
            frame: 0..0,
            early: None,
        })
    }

    /// Posts the buffers that the provider does not hold, as many as it accepts now. Ends the current frame.
    pub(super) fn post(&mut self, main: &Ep, ops: &mut Ops) -> Result<(), i32> {
        (self.frame, self.early) = (0..0, None);
        let desc = self.buffers.desc();
        while let Some(&number) = self.owed.last() {
            let start = self.buffers.bytes_mut()[number as usize * self.size..].as_mut_ptr();
            let context = ops.begin(Op::Receive(number));
            // SAFETY: while the provider holds the buffer, only reported data are read from it; it outlives the
            // endpoint.
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

    /// Records that the provider has returned a buffer. Its bytes stay until [`Self::post`].
    pub(super) fn returned(&mut self, number: u32) {
        if !self.owed.contains(&number) {
            self.owed.push(number);
        }
    }

    /// Makes bytes that have arrived in a buffer the current frame. `start` is their address as reported by the
    /// provider, used only for multi-receives. Bytes outside the buffer give an empty frame.
    #[inline]
    pub(super) fn arrived(&mut self, number: u32, start: *const c_void, len: usize) {
        self.early = None;
        self.frame = self.range_of(number, start, len).unwrap_or(0..0);
    }

    fn range_of(&self, number: u32, start: *const c_void, len: usize) -> Option<Range<usize>> {
        let base = number as usize * self.size;
        let offset = if self.multi {
            let first = self.buffers.bytes().as_ptr().addr() + base;
            start.addr().checked_sub(first)?
        } else {
            0
        };
        let end = offset.checked_add(len)?;
        (end <= self.size).then_some(base + offset..base + end)
    }

    /// Makes a held frame the current one.
    pub(super) fn take_early(&mut self, frame: Box<[u8]>) {
        self.frame = 0..frame.len();
        self.early = Some(frame);
    }

    /// Returns the rest of the current frame.
    #[inline]
    pub(super) fn frame(&self) -> &[u8] {
        let bytes = self
            .early
            .as_deref()
            .unwrap_or_else(|| self.buffers.bytes());
        bytes.get(self.frame.clone()).unwrap_or(&[])
    }

    /// Removes the first `len` bytes of the current frame.
    #[inline]
    pub(super) fn cut(&mut self, len: usize) {
        self.frame.start = self.frame.end.min(self.frame.start + len);
    }

    /// Closes the registration; the memory stays.
    pub(super) fn close_registrations(&mut self) {
        self.buffers.close_registration();
    }
}
