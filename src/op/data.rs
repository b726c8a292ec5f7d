//! The method's part of an operation, beside the endpoint's record.

use crate::abi::types::bmi_method_addr;
use crate::method::{CONTEXTS, Post, PostKind};
use crate::peer::state::Cause;
use crate::peer::table::PeerKey;
use libc::c_void;
use mx_proto::Memory;
use std::ptr::{self, NonNull};

/// The owner of an operation of the endpoint's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The host's.
    Posted(PostKind),
    /// A message of the handshake with its peer.
    Handshake,
    /// The transport connect to its peer.
    Connect,
    /// None: a message that is all match bits, or one of the endpoint's own.
    None,
}

/// The method's part of an operation.
#[derive(Debug)]
pub struct OpData {
    /// Its owner.
    pub role: Role,
    /// The context in which it is reported.
    pub context: u8,
    /// Its class, if it is an unexpected message.
    pub class: u8,
    /// A receive posted while the conversation with its peer was cut.
    pub provisional: bool,
    /// The operation waits for its peer to become ready, in the peer's queue.
    pub pending: bool,
    /// The code it completes or has completed with, if it is not 0. Before it is over the method has
    /// set it, and nothing that the endpoint says changes it.
    pub error: i32,
    /// Its tag.
    pub tag: u32,
    /// The peer.
    pub peer: PeerKey,
    /// Its length when posted; what was transferred when done.
    pub size: i64,
    /// The host's word, given back as it is.
    pub user_ptr: *mut c_void,
    /// The address it was posted with; null for what is none of the host's.
    pub addr: *mut bmi_method_addr,
}

// SAFETY: the pointers are only compared and handed back to the host.
unsafe impl Send for OpData {}

const _: () = assert!(size_of::<OpData>() <= 64);

impl OpData {
    /// The word of an operation that the host posts.
    #[inline]
    pub fn new(post: &Post, peer: PeerKey) -> Self {
        let what = (post.kind, post.addr, post.tag as u32, post.class);
        let len = post.memory.len();
        Self::of(what, len, (post.user_ptr, post.context), peer)
    }

    /// The word of an operation of a kind, with an address, a tag and a class, that the host posts.
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

    /// The word of an operation that the host has not posted.
    pub fn own(role: Role, peer: PeerKey) -> Self {
        Self {
            role,
            peer,
            ..Self::default()
        }
    }

    /// Sets its result, whatever the endpoint reports.
    pub fn set_end(&mut self, error: i32, size: i64) {
        (self.error, self.size) = (error, size);
    }

    /// Ends an operation, with that code if none is set. Returns the context in which it is reported.
    #[inline]
    pub(crate) fn end(&mut self, error: i32, transferred: u32) -> usize {
        if self.error == 0 {
            (self.error, self.size) = (error, i64::from(transferred));
        }
        usize::from(self.context) % CONTEXTS
    }

    /// Whether it is an operation of the host's that the endpoint has.
    #[inline]
    pub fn is_posted(&self) -> bool {
        matches!(self.role, Role::Posted(_)) && !self.pending
    }

    /// The kind posted by the host; `None`: it is an internal operation.
    #[inline]
    pub fn kind(&self) -> Option<PostKind> {
        match self.role {
            Role::Posted(kind) => Some(kind),
            _ => None,
        }
    }

    /// The code of an operation whose time is over.
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
