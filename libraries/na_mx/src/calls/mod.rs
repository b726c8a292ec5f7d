//! The functions of the table: convert C's pointers, catch panics, and turn errors into codes.
//!
//! ```text
//!   Mercury --> function --> class_of, peer_of, begin --> Class, Engine --> code
//! ```
//!
//! Out of scope: the implementation, the order of the table.

use crate::abi::{
    NA_BUSY, NA_FAULT, NA_INVALID_ARG, NA_MSGSIZE, NA_PROTOCOL_ERROR, NA_SUCCESS, na_cb,
    na_cb_type, na_class, na_context, na_return,
};
use crate::address::Peer;
use crate::class::Class;
use crate::context::Context;
use crate::engine::Engine;
use crate::operation::Operation;
use libc::{c_char, c_int, c_void};
use mx_sys::UserMemory;
use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;

/// Declares functions of the table. [`Answer`] converts an error or a panic to the return type. Thread cancellation is
/// disabled in them, except in modules that are `OF_MESSAGES`: those make system calls only in ports or asleep, where
/// cancellation is disabled anyway.
macro_rules! entries {
    ($(
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty $body:block
    )*) => {$(
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            let _off = (!OF_MESSAGES).then(mx_sys::cancellation::CancellationDisabled::new);
            <$answer as $crate::calls::Answer>::of(mx_boundary::caught(stringify!($name), move || $body))
        }
    )*};
}

/// Conversion of the result of a body, `None` after a panic, to a function's return value.
trait Answer: Sized {
    /// Type of bodies.
    type Body;

    fn of(body: Option<Self::Body>) -> Self;
}

impl Answer for na_return {
    type Body = Result<(), Self>;

    fn of(body: Option<Self::Body>) -> Self {
        match body {
            Some(Ok(())) => NA_SUCCESS,
            Some(Err(code)) => code,
            None => NA_PROTOCOL_ERROR,
        }
    }
}

macro_rules! plain_answers {
    ($($type:ty: $none:expr),*) => {$(
        impl Answer for $type {
            type Body = Self;

            fn of(body: Option<Self>) -> Self {
                body.unwrap_or($none)
            }
        }
    )*};
}

pub(crate) mod address;
pub(crate) mod class;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod polling;

plain_answers!(bool: false, usize: 0, u32: 0, (): (), *mut Operation: ptr::null_mut());

/// Descriptor of a context, or -1.
#[repr(transparent)]
pub(crate) struct Descriptor(c_int);

impl Answer for Descriptor {
    type Body = Self;

    fn of(body: Option<Self>) -> Self {
        body.unwrap_or(Self(-1))
    }
}

/// Returns this plugin's class behind Mercury's.
///
/// # Safety
///
/// A class that `initialize` has accepted, until `finalize`.
unsafe fn class_of<'a>(class: *const na_class) -> Result<&'a Class, na_return> {
    // SAFETY: the caller's promise.
    let class = unsafe {
        class
            .as_ref()
            .and_then(|class| class.plugin_class.cast::<Class>().as_ref())
    };
    class.ok_or(NA_INVALID_ARG)
}

/// Returns the string at a pointer; `None` for NULL.
///
/// # Safety
///
/// NULL, or a string.
unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, na_return> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map(Some).map_err(|_| NA_INVALID_ARG)
}

/// Returns the peer behind an address; Mercury keeps its reference.
///
/// # Safety
///
/// An address returned by this plugin and not freed yet.
unsafe fn peer_of(addr: *mut c_void) -> Result<Arc<Peer>, na_return> {
    let peer = addr.cast::<Peer>().cast_const();
    if peer.is_null() {
        return Err(NA_INVALID_ARG);
    }
    // SAFETY: the caller's promise: there is a reference, and this adds one.
    unsafe {
        Arc::increment_strong_count(peer);
        Ok(Arc::from_raw(peer))
    }
}

/// Passes a reference of a peer to Mercury.
///
/// # Safety
///
/// A pointer to write to.
unsafe fn give(peer: Arc<Peer>, into: *mut *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { *into = Arc::into_raw(peer).cast_mut().cast() };
}

/// Returns the number of a context; 0 if it is not this plugin's.
///
/// # Safety
///
/// A context of Mercury's.
unsafe fn number_of(context: *mut na_context) -> u8 {
    // SAFETY: the caller's promise; the number never changes.
    unsafe {
        (*context)
            .plugin_context
            .cast::<Context>()
            .as_ref()
            .map_or(0, |own| own.id)
    }
}

/// Begins an operation, which `post` posts to the endpoint.
///
/// # Safety
///
/// A class, a context and an operation of Mercury's, valid until the operation has completed.
unsafe fn begin(
    (class, context, op): (*mut na_class, *mut na_context, *mut Operation),
    kind: na_cb_type,
    callback: (na_cb, *mut c_void),
    post: impl FnOnce(&Class, &mut Engine, &mut Operation) -> Result<(), na_return>,
) -> Result<(), na_return> {
    // SAFETY: the caller's promise.
    let class = unsafe { class_of(class) }?;
    if op.is_null() || context.is_null() {
        return Err(NA_INVALID_ARG);
    }
    class.with(|engine| {
        // SAFETY: the caller's promise; the engine is locked.
        let op = unsafe { &mut *op };
        if op.busy {
            return Err(NA_BUSY);
        }
        op.begin(kind, context, callback);
        post(class, engine, op).inspect_err(|_| op.busy = false)
    })
}

/// Makes the memory of a message.
///
/// # Safety
///
/// A buffer that is valid until the operation has completed.
unsafe fn message(buf: *const c_void, len: usize, max: usize) -> Result<UserMemory, na_return> {
    if len > max {
        return Err(NA_MSGSIZE);
    }
    // SAFETY: the caller's promise.
    unsafe { UserMemory::new(buf.cast_mut(), len) }.map_err(|_| NA_FAULT)
}
