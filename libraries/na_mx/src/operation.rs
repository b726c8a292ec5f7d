//! Mercury's operation ids, and completions.
//!
//! ```text
//!   create --> FREE --post--> POSTED --the engine completes it--> QUEUED --Mercury's trigger--> FREE --> destroy
//! ```
//!
//! Every field but the callback's data changes under the lock of the engine. An operation is queued once for each post,
//! and a multi-receive once for each message, each time with separate data.

use crate::abi::{
    na_cb, na_cb_completion_data, na_cb_details, na_cb_info, na_cb_type, na_context, na_return,
};
use libc::c_void;
use mx_proto::{RegionKey, RemoteId, RequestId};
use mx_sys::UserMemory;
use std::ptr;

/// An operation id.
pub(crate) struct Operation {
    /// The endpoint's operation while pending, else `None`.
    pub(crate) request: Option<RequestId>,
    /// Context in which it was posted.
    pub(crate) context: *mut na_context,
    /// Match bits of the post.
    pub(crate) bits: u64,
    /// Unused part of the buffer of a receive for unexpected messages.
    pub(crate) room: Room,
    /// Bytes of a get or put behind the piece that is under way; `None`: that piece is the last.
    pub(crate) rest: Option<Box<Rest>>,
    /// Whether the operation is posted, or its callback is queued.
    pub(crate) busy: bool,
    /// Whether the program has cancelled the operation.
    pub(crate) cancelled: bool,
    callback: na_cb,
    arg: *mut c_void,
    pub(crate) kind: na_cb_type,
    completion: na_cb_completion_data,
}

/// Memory for unexpected messages.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// First free byte.
    pub(crate) start: *mut u8,
    /// Number of free bytes.
    pub(crate) len: usize,
}

impl Room {
    /// No memory.
    pub(crate) const NONE: Self = Self {
        start: ptr::null_mut(),
        len: 0,
    };
}

/// Bytes of a get or put that are not requested yet.
pub(crate) struct Rest {
    /// Session with the peer.
    pub(crate) remote: RemoteId,
    /// Key of the peer's region, and the offset of the first byte in it.
    pub(crate) region: (RegionKey, u64),
    /// Memory of the program.
    pub(crate) memory: UserMemory,
}

impl Operation {
    /// Makes a free operation.
    pub(crate) fn new() -> Self {
        Self {
            request: None,
            context: ptr::null_mut(),
            bits: 0,
            room: Room::NONE,
            rest: None,
            busy: false,
            cancelled: false,
            callback: None,
            arg: ptr::null_mut(),
            kind: na_cb_type::SendUnexpected,
            completion: completion(),
        }
    }

    /// Begins a post.
    pub(crate) fn begin(
        &mut self,
        kind: na_cb_type,
        context: *mut na_context,
        (callback, arg): (na_cb, *mut c_void),
    ) {
        (self.kind, self.context) = (kind, context);
        (self.callback, self.arg) = (callback, arg);
        (self.busy, self.cancelled) = (true, false);
        (self.request, self.rest) = (None, None);
    }

    /// Fills in the data of the operation's last completion. [`busy`](Self::busy) ends when Mercury takes it.
    pub(crate) fn end(
        &mut self,
        ret: na_return,
        info: na_cb_details,
    ) -> *mut na_cb_completion_data {
        unsafe extern "C" fn taken(op: *mut c_void) {
            // SAFETY: the operation that was queued; Mercury destroys it after its callback.
            unsafe { (*op.cast::<Operation>()).busy = false };
        }
        (self.request, self.rest) = (None, None);
        self.completion.callback_info = self.callback_info(ret, info);
        self.completion.callback = self.callback;
        self.completion.plugin_callback = Some(taken);
        self.completion.plugin_callback_args = ptr::from_mut(self).cast();
        &raw mut self.completion
    }

    /// Makes the data of a multi-receive's earlier completion, freed when Mercury takes it.
    pub(crate) fn one_of_several(
        &self,
        ret: na_return,
        info: na_cb_details,
    ) -> *mut na_cb_completion_data {
        unsafe extern "C" fn taken(data: *mut c_void) {
            // SAFETY: made below; Mercury has copied it.
            drop(unsafe { Box::from_raw(data.cast::<na_cb_completion_data>()) });
        }
        let data = Box::into_raw(Box::new(na_cb_completion_data {
            callback_info: self.callback_info(ret, info),
            callback: self.callback,
            plugin_callback: Some(taken),
            ..completion()
        }));
        // SAFETY: it has just been made.
        unsafe { (*data).plugin_callback_args = data.cast() };
        data
    }

    fn callback_info(&self, ret: na_return, info: na_cb_details) -> na_cb_info {
        na_cb_info {
            info,
            arg: self.arg,
            kind: self.kind,
            ret,
        }
    }
}

/// Details of a completion without any.
pub(crate) const NO_DETAILS: na_cb_details = na_cb_details {
    actual_buf_size: 0,
    source: ptr::null_mut(),
    tag: 0,
    actual_buf: ptr::null_mut(),
    last: true,
};

fn completion() -> na_cb_completion_data {
    na_cb_completion_data {
        callback_info: na_cb_info {
            info: NO_DETAILS,
            arg: ptr::null_mut(),
            kind: na_cb_type::SendUnexpected,
            ret: 0,
        },
        callback: None,
        plugin_callback: None,
        plugin_callback_args: ptr::null_mut(),
        entry: ptr::null_mut(),
    }
}
