//! The interface of the measurements to a library that moves messages.
//!
//! ```text
//!   latency, matching, the peer  --->  Messages  <---  Bmi   the method's table      (bmi)
//!                                                <---  Mx    libmyriexpress          (mx)
//! ```
//!
//! Owns: the interface, so that both are driven by the same loops.
//! Out of scope: either library.

use crate::buffer::Buffer;
use crate::peer::Request;

/// Posting and testing, polled by one thread.
pub(crate) trait Messages {
    /// Another process.
    type Remote: Copy;

    /// Sends a request that the other side does not expect.
    fn request(&self, to: Self::Remote, words: &[u64]) -> Result<(), String>;

    /// Waits for a request.
    fn next_request(&self) -> Result<(Self::Remote, Vec<u64>), String>;

    /// Posts a send; true when it is complete already.
    ///
    /// # Safety
    /// `data` stays valid and unchanged until the operation has been waited for.
    unsafe fn send(&self, to: Self::Remote, data: &[u8], tag: i32) -> Result<bool, String>;

    /// Posts a receive; true when it is complete already.
    ///
    /// # Safety
    /// `data` stays valid and is not looked at until the operation has been waited for.
    unsafe fn recv(&self, from: Self::Remote, data: &mut [u8], tag: i32) -> Result<bool, String>;

    /// Posts a send of a message, as a list if it is one; true when it is complete already.
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

    /// Posts a receive into a message's memory, as a list if it is one; true when it is complete already.
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

    /// Hands out completions; how many there were. Sleeps up to `idle_ms` when there is none.
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

/// Libraries that are measured with one buffer a message.
const NO_LISTS: &str = "lists are sent through the method only";

/// A library and the peer at the other end of it.
pub(crate) struct Side<'a, M: Messages> {
    pub(crate) messages: &'a M,
    pub(crate) peer: M::Remote,
}

impl<M: Messages> Side<'_, M> {
    /// Asks the peer for something.
    pub(crate) fn ask(&self, request: Request) -> Result<(), String> {
        self.messages.request(self.peer, &request.words())
    }
}
