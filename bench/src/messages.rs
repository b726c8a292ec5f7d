//! The interface of the measurements to a library that moves messages.
//!
//! ```text
//!   latency, matching, the peer  --->  Messages  <---  Bmi   the method's table      (bmi)
//!                                                <---  Mx    libmyriexpress          (mx)
//! ```
//!
//! Owns: the interface, so that the same loops drive both.
//! Out of scope: either library.

use crate::buffer::Buffer;
use crate::peer::Request;

/// Posting and testing, polled by one thread.
pub(crate) trait Messages {
    /// Address of another process.
    type Remote: Copy;

    /// Sends an unexpected message.
    fn request(&self, to: Self::Remote, words: &[u64]) -> Result<(), String>;

    /// Waits for an unexpected message.
    fn next_request(&self) -> Result<(Self::Remote, Vec<u64>), String>;

    /// Posts a send; returns true if it is complete already.
    ///
    /// # Safety
    /// `data` stays valid and unchanged until the operation has been waited for.
    unsafe fn send(&self, to: Self::Remote, data: &[u8], tag: i32) -> Result<bool, String>;

    /// Posts a receive; returns true if it is complete already.
    ///
    /// # Safety
    /// `data` stays valid and is not read until the operation has been waited for.
    unsafe fn recv(&self, from: Self::Remote, data: &mut [u8], tag: i32) -> Result<bool, String>;

    /// Posts a send of a message, as a list if it is one; returns true if it is complete already.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    unsafe fn send_buffer(
        &self,
        to: Self::Remote,
        data: &Buffer,
        tag: i32,
    ) -> Result<bool, String> {
        let bytes = data.whole().ok_or(NO_LISTS)?;
        // SAFETY: the caller's promise.
        unsafe { self.send(to, bytes, tag) }
    }

    /// Posts a receive into a message's memory, as a list if it is one; returns true if it is
    /// complete already.
    ///
    /// # Safety
    /// As for [`recv`](Self::recv).
    #[inline]
    unsafe fn recv_buffer(
        &self,
        from: Self::Remote,
        data: &mut Buffer,
        tag: i32,
    ) -> Result<bool, String> {
        let bytes = data.whole_mut().ok_or(NO_LISTS)?;
        // SAFETY: the caller's promise.
        unsafe { self.recv(from, bytes, tag) }
    }

    /// Reports completions; returns their number. Without any it sleeps up to `idle_ms`.
    fn test(&self, idle_ms: i32) -> Result<usize, String>;

    /// Waits until `count` operations have completed.
    #[inline]
    fn wait(&self, count: usize, idle_ms: i32) -> Result<(), String> {
        let mut done = 0;
        while done < count {
            done += self.test(idle_ms)?;
        }
        Ok(())
    }
}

/// Error for libraries that are measured with one buffer per message.
const NO_LISTS: &str = "lists are sent through the method only";

/// A library and its peer.
pub(crate) struct Side<'a, M: Messages> {
    pub(crate) messages: &'a M,
    pub(crate) peer: M::Remote,
}

impl<M: Messages> Side<'_, M> {
    /// Sends a request to the peer.
    pub(crate) fn ask(&self, request: Request) -> Result<(), String> {
        self.messages.request(self.peer, &request.words())
    }
}
