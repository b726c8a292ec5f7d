//! Memory that a provider uses: buffers, and contexts of operations.
//!
//! ```text
//!   Buffers    [ prefix | frame ][ prefix | frame ] ...     one registration for all, if the
//!   Contexts   [ 64 bytes ][ 64 bytes ] ...                 provider wants one
//!                ^ identifies an operation; the provider may write into it
//! ```
//!
//! Contexts are addresses of memory that does not move, because some providers (`FI_CONTEXT`, `FI_CONTEXT2`) keep their
//! own state there until the operation has completed.
//!
//! Owns: the memory and its registration. Both must outlive the operations on it.
//! Out of scope: which parts of it the provider holds.

use super::{Desc, Domain, Ep, FabricError, Mr};
use libc::c_void;
use libfabric_sys::abi::fi_context2;
use std::cell::UnsafeCell;
use std::ptr;

/// Memory of ours for a provider's sends and receives, registered if the provider wants that. Must outlive the
/// operations on it.
pub struct Buffers {
    /// Declared first, so that it closes before the memory is freed.
    registration: Option<Mr>,
    memory: Box<[u8]>,
}

impl Buffers {
    /// Allocates `len` zero bytes and, with `access` (such as `FI_SEND | FI_RECV`), registers them for use with `ep`.
    pub fn new(
        (domain, ep): (&Domain, &Ep),
        len: usize,
        access: Option<u64>,
    ) -> Result<Self, FabricError> {
        let mut memory = vec![0; len].into_boxed_slice();
        let register = |access| {
            // SAFETY: the registration closes before the memory is freed, by the order of the fields.
            unsafe { domain.register(memory.as_mut_ptr(), len, access, Some(ep)) }
        };
        Ok(Self {
            registration: access.map(register).transpose()?,
            memory,
        })
    }

    /// Allocates `len` zero bytes without a registration.
    pub fn unregistered(len: usize) -> Self {
        Self {
            registration: None,
            memory: vec![0; len].into_boxed_slice(),
        }
    }

    /// Returns the whole memory; which parts of it the provider is using, the caller has to know.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// Returns the whole memory for writing; which parts of it the provider is using, the caller has to know.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Returns the descriptor for operations on the memory; null if unregistered.
    pub fn desc(&self) -> Desc {
        self.registration.as_ref().map_or(ptr::null_mut(), Mr::desc)
    }

    /// Ends the registration, if there is one, which may be bound to an endpoint that is to close; the memory stays.
    pub fn close_registration(&mut self) {
        self.registration = None;
    }
}

/// Contexts of operations, numbered from 0: fixed addresses that identify operations in completions, with space that
/// the provider may write to. Must outlive the operations.
pub struct Contexts(Box<[ContextSpace]>);

/// Space that the provider may write into.
#[repr(C)]
struct ContextSpace(UnsafeCell<fi_context2>);

// SAFETY: only the provider accesses contexts, and one thread at a time uses it.
unsafe impl Send for Contexts {}

impl Contexts {
    /// Creates `count` contexts.
    pub fn new(count: usize) -> Self {
        let empty = |_| ContextSpace(UnsafeCell::new(fi_context2::EMPTY));
        Self((0..count).map(empty).collect())
    }

    /// Returns the address of the context with this number, to be passed to an operation; null if there is none.
    #[inline]
    pub fn at(&self, number: usize) -> *mut c_void {
        let context = self.0.get(number);
        context.map_or(ptr::null_mut(), |context| context.0.get().cast())
    }

    /// Returns the number of the context at an address that a completion names; `None` if it is none of these.
    #[inline]
    pub fn number(&self, context: *const c_void) -> Option<usize> {
        let offset = context.addr().checked_sub(self.0.as_ptr().addr())?;
        let index = offset / size_of::<ContextSpace>();
        let ours = offset % size_of::<ContextSpace>() == 0 && index < self.0.len();
        ours.then_some(index)
    }
}
