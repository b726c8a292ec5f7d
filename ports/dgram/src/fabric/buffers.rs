//! Memory that the provider sends from and receives into.
//!
//! ```text
//!   memory     [ prefix | frame ][ prefix | frame ] ...     one registration for all, if the
//!   contexts   [ 64 bytes ][ 64 bytes ] ...                 provider wants one
//!                ^ identifies an operation; the provider may write into it
//! ```
//!
//! Owns: the memory and its registration. Both outlive the endpoint's operations.
//! Not here: which buffers the provider has.

use libc::c_void;
use libfabric_sys::abi::{FI_RECV, FI_SEND, fi_context2};
use mx_port_fabric::{Domain, Ep, FabricError, Mr};
use std::cell::UnsafeCell;
use std::ptr;

/// A row of buffers of one size.
pub(super) struct Buffers {
    /// Closed before the memory is freed.
    registration: Option<Mr>,
    memory: Box<[u8]>,
    contexts: Box<[ContextSpace]>,
    size: usize,
}

/// A context: the provider may write into it.
#[repr(C)]
struct ContextSpace(UnsafeCell<fi_context2>);

/// Alignment of buffers: a cache line, so that no two share one.
const ALIGN: usize = 64;

// SAFETY: contexts and memory are touched by the provider and by the thread that has the endpoint,
// one at a time.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `count` buffers of `size` bytes, registered for use with `ep` if the provider wants that.
    pub(super) fn new(
        (domain, ep): (&Domain, &Ep),
        count: usize,
        size: usize,
        register: bool,
    ) -> Result<Self, FabricError> {
        let size = size.next_multiple_of(ALIGN);
        let mut memory = vec![0_u8; size * count].into_boxed_slice();
        let registration = if register {
            // SAFETY: the registration goes before the memory, by the order of the fields.
            Some(unsafe {
                let (start, len) = (memory.as_mut_ptr(), memory.len());
                domain.register(start, len, FI_SEND | FI_RECV, Some(ep))
            }?)
        } else {
            None
        };
        let contexts = (0..count).map(|_| ContextSpace(UnsafeCell::new(fi_context2::EMPTY)));
        Ok(Self {
            registration,
            memory,
            contexts: contexts.collect(),
            size,
        })
    }

    /// Closes the registration; the memory stays.
    pub(super) fn close_registration(&mut self) {
        self.registration = None;
    }

    /// Bytes of one buffer.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The buffer with this number.
    #[inline]
    pub(super) fn bytes(&mut self, number: u32) -> &mut [u8] {
        let at = number as usize * self.size;
        self.memory.get_mut(at..at + self.size).unwrap_or(&mut [])
    }

    /// The descriptor (`desc`) that operations on the memory pass.
    pub(super) fn desc(&self) -> *mut c_void {
        self.registration.as_ref().map_or(ptr::null_mut(), Mr::desc)
    }

    /// The context of an operation on the buffer.
    #[inline]
    pub(super) fn context(&self, number: u32) -> *mut c_void {
        let context = self.contexts.get(number as usize);
        context.map_or(ptr::null_mut(), |context| context.0.get().cast())
    }

    /// The number of the buffer that a context belongs to; `None`: it is not one of these.
    #[inline]
    pub(super) fn number(&self, context: *mut c_void) -> Option<u32> {
        let offset = context.addr().checked_sub(self.contexts.as_ptr().addr())?;
        let index = offset / size_of::<ContextSpace>();
        let ours = offset % size_of::<ContextSpace>() == 0 && index < self.contexts.len();
        ours.then_some(index as u32)
    }
}
