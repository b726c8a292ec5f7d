//! The method as the measurements use it: one context, and the arrays of a test call.

use crate::buffer::Buffer;
use crate::messages::Messages;
use bmi_host::abi::EXT_ALLOC;
use bmi_host::codes;
use bmi_host::method::{Address, Done, Memory, Method, Post, Posted, Results, Verb};
use std::cell::RefCell;
use std::ffi::OsStr;

pub(crate) const CONTEXT: i64 = 0;

/// The method, initialised.
pub(crate) struct Bmi {
    pub(crate) method: Method,
    listen: Option<Address>,
    results: RefCell<Box<Results>>,
}

impl Bmi {
    /// Starts the method; `listen` makes it a server.
    pub(crate) fn start(library: &OsStr, listen: Option<&str>) -> Result<Self, String> {
        Self::start_with(library, listen, "")
    }

    /// Starts the method with settings that override the environment.
    pub(crate) fn start_with(
        library: &OsStr,
        listen: Option<&str>,
        settings: &str,
    ) -> Result<Self, String> {
        let method = Method::load(library)?;
        Ok(Self {
            method,
            listen: method.start(listen, settings, CONTEXT + 1)?,
            results: RefCell::new(Results::new()),
        })
    }

    pub(crate) fn lookup(&self, name: &str) -> Result<Address, String> {
        Ok(self.method.lookup(name)?)
    }

    /// Posts an operation.
    ///
    /// # Safety
    /// As for [`Method::post_with`].
    #[inline]
    pub(crate) unsafe fn post(
        &self,
        verb: Verb,
        with: Address,
        tag: i32,
        memory: Memory,
        user: usize,
    ) -> Posted {
        let post = Post {
            verb,
            with,
            tag,
            memory,
            kind: EXT_ALLOC,
            user,
            context: CONTEXT,
        };
        // SAFETY: the caller's promise.
        unsafe { self.method.post(&post) }
    }

    /// Appends operations that have ended. Without any it sleeps up to `idle_ms`, or until an
    /// unexpected message arrives.
    pub(crate) fn completions(&self, idle_ms: i32, out: &mut Vec<Done>) -> Result<(), String> {
        let results = &mut self.results.borrow_mut();
        out.extend(self.method.test(CONTEXT, idle_ms, results)?);
        Ok(())
    }
}

/// Returns whether the operation is complete already.
#[inline]
fn complete(posted: Posted) -> Result<bool, String> {
    match posted {
        Posted::Pending(_) => Ok(false),
        Posted::Complete(_) => Ok(true),
        Posted::Refused(code) => Err(format!("a post: {}", codes::name(code))),
    }
}

/// Returns a message's memory as the calls take it.
#[inline]
fn memory(data: &Buffer) -> Memory {
    let (starts, sizes) = data.list();
    if data.is_list() {
        Memory::List {
            starts: starts.as_ptr(),
            sizes: sizes.as_ptr(),
            count: starts.len(),
            total: data.size() as i64,
        }
    } else {
        Memory::One(starts[0].cast(), data.size())
    }
}

impl Messages for Bmi {
    type Remote = Address;

    fn request(&self, to: Address, words: &[u64]) -> Result<(), String> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let memory = Memory::One(bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: `bytes` lives until the operation is complete, which is waited for below.
        let posted = unsafe { self.post(Verb::SendUnexpected, to, 1, memory, 0) };
        if !complete(posted)? {
            self.wait(1, 10)?;
        }
        Ok(())
    }

    fn next_request(&self) -> Result<(Address, Vec<u64>), String> {
        loop {
            if let Some(message) = self.method.unexpected(1, 1000)?.pop() {
                return Ok((message.from(), message.words()));
            }
        }
    }

    #[inline]
    unsafe fn send(&self, to: Address, data: &[u8], tag: i32) -> Result<bool, String> {
        let memory = Memory::One(data.as_ptr().cast_mut(), data.len());
        // SAFETY: the caller's promise; what is sent is not written.
        complete(unsafe { self.post(Verb::Send, to, tag, memory, 0) })
    }

    #[inline]
    unsafe fn recv(&self, from: Address, data: &mut [u8], tag: i32) -> Result<bool, String> {
        let memory = Memory::One(data.as_mut_ptr(), data.len());
        // SAFETY: the caller's promise.
        complete(unsafe { self.post(Verb::Recv, from, tag, memory, 0) })
    }

    #[inline]
    unsafe fn send_buffer(&self, to: Address, data: &Buffer, tag: i32) -> Result<bool, String> {
        // SAFETY: the caller's promise; what is sent is not written.
        complete(unsafe { self.post(Verb::Send, to, tag, memory(data), 0) })
    }

    #[inline]
    unsafe fn recv_buffer(
        &self,
        from: Address,
        data: &mut Buffer,
        tag: i32,
    ) -> Result<bool, String> {
        // SAFETY: the caller's promise.
        complete(unsafe { self.post(Verb::Recv, from, tag, memory(data), 0) })
    }

    #[inline]
    fn test(&self, idle_ms: i32) -> Result<usize, String> {
        let results = &mut self.results.borrow_mut();
        let mut ended = self.method.test(CONTEXT, idle_ms, results)?;
        let count = ended.len();
        match ended.find(|done| done.error != 0) {
            Some(done) => Err(format!(
                "an operation ended with {}",
                codes::name(done.error)
            )),
            None => Ok(count),
        }
    }
}

impl Drop for Bmi {
    fn drop(&mut self) {
        self.method.finalize(CONTEXT + 1);
        if let Some(listen) = self.listen {
            self.method.drop_address(listen);
        }
    }
}
