//! The method's part of an operation, beside the endpoint's record.

use crate::abi::types::bmi_method_addr;
use crate::method::{CONTEXTS, Post, PostKind};
use crate::peer::state::Cause;
use crate::peer::table::PeerKey;
use libc::c_void;
use mx_proto::Memory;
use std::ptr::{self, NonNull};

/// The purpose of an operation of the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Posted by the host.
    Posted(PostKind),
    /// A handshake message to its peer.
    Handshake,
    /// The transport connect to its peer.
    Connect,
    /// A message without a body, or the endpoint's own operation.
    None,
}

/// Data that the method keeps with each operation of the endpoint.
#[derive(Debug)]
pub struct OpData {
    /// Purpose of the operation.
    pub role: Role,
    /// Context in which the operation is reported.
    pub context: u8,
    /// Class of an unexpected message, else 0.
    pub class: u8,
    /// Whether this is a receive posted while the conversation with its peer was cut: it ends with -BMI_ENETRESET if no
    /// unexpected send follows.
    pub provisional: bool,
    /// Whether the operation waits in its peer's queue for the peer to become ready.
    pub pending: bool,
    /// Completion code, if not 0. A code that the method sets before completion takes precedence over the endpoint's.
    pub error: i32,
    /// Tag of the message.
    pub tag: u32,
    /// Peer of the operation.
    pub peer: PeerKey,
    /// Length in bytes when posted; bytes transferred when completed.
    pub size: i64,
    /// The host's pointer, returned unchanged.
    pub user_ptr: *mut c_void,
    /// Address object given to the post; null for internal operations.
    pub addr: *mut bmi_method_addr,
}

// SAFETY: the pointers are only compared and passed back to the host.
unsafe impl Send for OpData {}

const _: () = assert!(size_of::<OpData>() <= 64);

impl OpData {
    /// Makes the data of an operation posted by the host.
    #[inline]
    pub fn new(post: &Post, peer: PeerKey) -> Self {
        let what = (post.kind, post.addr, post.tag as u32, post.class);
        let len = post.memory.len();
        Self::of(what, len, (post.user_ptr, post.context), peer)
    }

    /// Makes the data of an operation posted by the host, from a kind, an address, a tag and a class.
    #[inline(always)]
    pub(crate) fn of(
        (kind, addr, tag, class): (PostKind, NonNull<bmi_method_addr>, u32, u8),
        len: usize,
        (user_ptr, context): (*mut c_void, i64),
        peer: PeerKey,
    ) -> Self {
        Self {
            role: Role::Posted(kind),
            // The boundary has checked that it is one of 16.
            context: context as u8,
            class,
            provisional: false,
            pending: false,
            error: 0,
            tag,
            peer,
            size: len as i64,
            user_ptr,
            addr: addr.as_ptr(),
        }
    }

    /// Makes the data of an internal operation.
    pub fn own(role: Role, peer: PeerKey) -> Self {
        Self {
            role,
            peer,
            ..Self::default()
        }
    }

    /// Sets the completion in advance: `error`, a negative code that takes precedence over the endpoint's result, and
    /// `size`, the bytes transferred.
    pub fn set_end(&mut self, error: i32, size: i64) {
        (self.error, self.size) = (error, size);
    }

    /// Completes an operation, with `error` unless a code is set. Returns its context.
    #[inline]
    pub(crate) fn end(&mut self, error: i32, transferred: u32) -> usize {
        if self.error == 0 {
            (self.error, self.size) = (error, i64::from(transferred));
        }
        usize::from(self.context) % CONTEXTS
    }

    /// Returns whether the operation was posted by the host and passed on to the endpoint.
    #[inline]
    pub fn is_posted(&self) -> bool {
        matches!(self.role, Role::Posted(_)) && !self.pending
    }

    /// Returns the kind posted by the host; `None` for an internal operation.
    #[inline]
    pub fn kind(&self) -> Option<PostKind> {
        match self.role {
            Role::Posted(kind) => Some(kind),
            _ => None,
        }
    }

    /// Returns the negative BMI code with which the operation ends if it times out: -BMI_ENETRESET for a provisional
    /// receive, else -BMI_ETIMEDOUT.
    pub fn timeout_code(&self) -> i32 {
        if self.provisional {
            Cause::Reset.code()
        } else {
            Cause::TimedOut.code()
        }
    }
}

impl Default for OpData {
    fn default() -> Self {
        Self {
            role: Role::None,
            context: 0,
            class: 0,
            provisional: false,
            pending: false,
            error: 0,
            tag: 0,
            peer: PeerKey::NONE,
            size: 0,
            user_ptr: ptr::null_mut(),
            addr: ptr::null_mut(),
        }
    }
}
