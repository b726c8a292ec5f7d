//! The interface of the measurements to a library that moves messages.
//!
//! ```text
//!   latency, matching, the peer  --->  Messages  <---  Bmi   the method's table      (bmi)
//!                                                <---  Mx    libmyriexpress          (mx)
//! ```
//!
//! Owns: the interface, so that both are driven by the same loops.
//! Not here: either library.

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
