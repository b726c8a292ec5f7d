//! Memory of our own that a provider uses: buffers, and contexts of operations.
//!
//! ```text
//!   Buffers    [ prefix | frame ][ prefix | frame ] ...     one registration for all, if the
//!   Contexts   [ 64 bytes ][ 64 bytes ] ...                 provider wants one
//!                ^ identifies an operation; the provider may write into it
//! ```
//!
//! Contexts are addresses of memory that does not move, because some providers (`FI_CONTEXT`,
//! `FI_CONTEXT2`) keep their own state there until the operation has completed.
//!
//! Owns: the memory and its registration. Both must outlive the operations on it.
//! Out of scope: which parts of it the provider has.

use super::{Desc, Domain, Ep, FabricError, Mr};
use libc::c_void;
use libfabric_sys::abi::fi_context2;
use std::cell::UnsafeCell;
use std::ptr;

/// Memory that the provider sends from or receives into.
pub struct Buffers {
    /// Closed before the memory is freed.
    registration: Option<Mr>,
    memory: Box<[u8]>,
}

impl Buffers {
    /// `len` bytes, registered for that access by `ep` if there is one.
    pub fn new(
        (domain, ep): (&Domain, &Ep),
        len: usize,
        access: Option<u64>,
    ) -> Result<Self, FabricError> {
        let mut memory = vec![0; len].into_boxed_slice();
        let register = |access| {
            // SAFETY: the registration goes before the memory, by the order of the fields.
            unsafe { domain.register(memory.as_mut_ptr(), len, access, Some(ep)) }
        };
        Ok(Self {
            registration: access.map(register).transpose()?,
            memory,
        })
    }

    /// Memory that no provider has to know.
    pub fn unregistered(len: usize) -> Self {
        Self {
            registration: None,
            memory: vec![0; len].into_boxed_slice(),
        }
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// The bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// The descriptor that operations on the memory pass.
    pub fn desc(&self) -> Desc {
        self.registration.as_ref().map_or(ptr::null_mut(), Mr::desc)
    }

    /// Closes the registration; the memory stays.
    pub fn close_registration(&mut self) {
        self.registration = None;
    }
}

/// Contexts of operations, by number.
pub struct Contexts(Box<[ContextSpace]>);

/// The provider may write into it.
#[repr(C)]
struct ContextSpace(UnsafeCell<fi_context2>);

// SAFETY: contexts are touched by the provider only, which is used by one thread at a time.
unsafe impl Send for Contexts {}

impl Contexts {
    /// So many.
    pub fn new(count: usize) -> Self {
        let empty = |_| ContextSpace(UnsafeCell::new(fi_context2::EMPTY));
        Self((0..count).map(empty).collect())
    }

    /// The context with that number; null for one there is not.
    #[inline]
    pub fn at(&self, number: usize) -> *mut c_void {
        let context = self.0.get(number);
        context.map_or(ptr::null_mut(), |context| context.0.get().cast())
    }

    /// The number of a context; `None`: it is not one of these.
    #[inline]
    pub fn number(&self, context: *const c_void) -> Option<usize> {
        let offset = context.addr().checked_sub(self.0.as_ptr().addr())?;
        let index = offset / size_of::<ContextSpace>();
        let ours = offset % size_of::<ContextSpace>() == 0 && index < self.0.len();
        ours.then_some(index)
    }
}
