//! The few things the measurements do with the method: safe where they can be, and `unsafe` where a
//! buffer has to outlive the call.

use crate::abi::{self, Ops};
use crate::messages::Messages;
use libc::c_void;
use std::cell::RefCell;
use std::ffi::{CString, OsStr};
use std::ptr::null_mut;

pub(crate) const CONTEXT: i64 = 0;

/// The method, initialised.
pub(crate) struct Bmi {
    pub(crate) ops: &'static Ops,
    listen: *mut c_void,
    pub(crate) results: RefCell<Box<Results>>,
}

/// What a test call fills in. Kept between calls, as a C program's arrays are: clearing them each
/// time would take as long as some of what is measured.
pub(crate) struct Results {
    pub(crate) ids: [i64; BATCH],
    pub(crate) errors: [i32; BATCH],
    pub(crate) sizes: [i64; BATCH],
    pub(crate) users: [*mut c_void; BATCH],
}

/// A remote process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remote(pub(crate) *mut c_void);

impl Bmi {
    /// Starts the method; `listen` makes it a server.
    pub(crate) fn start(library: &OsStr, listen: Option<&str>) -> Result<Self, String> {
        Self::start_with(library, listen, "")
    }

    /// The same, with settings that override the environment.
    pub(crate) fn start_with(
        library: &OsStr,
        listen: Option<&str>,
        settings: &str,
    ) -> Result<Self, String> {
        let ops = abi::load(library)?;
        let settings = CString::new(settings).map_err(|_| "a NUL in the settings")?;
        let (addr, flags) = match listen {
            Some(name) => (lookup(ops, name)?, abi::INIT_SERVER),
            None => (null_mut(), 0),
        };
        // SAFETY: `addr` is NULL or an address of this method; the settings are only read.
        let rc = unsafe { (ops.initialize)(addr, 0, flags, settings.as_ptr()) };
        if rc < 0 {
            return Err(format!(
                "initialize({}): error {rc}",
                listen.unwrap_or("client")
            ));
        }
        // SAFETY: the method is initialised.
        unsafe { (ops.open_context)(CONTEXT) };
        let results = Results {
            ids: [0; BATCH],
            errors: [0; BATCH],
            sizes: [0; BATCH],
            users: [null_mut(); BATCH],
        };
        Ok(Self {
            ops,
            listen: addr,
            results: RefCell::new(Box::new(results)),
        })
    }

    pub(crate) fn lookup(&self, name: &str) -> Result<Remote, String> {
        lookup(self.ops, name).map(Remote)
    }

    /// How many operations have ended; the first so many of `results` are theirs. Sleeps up to
    /// `idle_ms` when none has, or until an unexpected message arrives.
    #[inline]
    pub(crate) fn ended(&self, results: &mut Results, idle_ms: i32) -> Result<usize, String> {
        let mut count = 0;
        // SAFETY: every output has room for BATCH.
        let rc = unsafe {
            (self.ops.testcontext)(
                BATCH as i32,
                results.ids.as_mut_ptr(),
                &mut count,
                results.errors.as_mut_ptr(),
                results.sizes.as_mut_ptr(),
                results.users.as_mut_ptr(),
                idle_ms,
                CONTEXT,
            )
        };
        if rc < 0 {
            return Err(format!("testcontext: {}", bmi_host::codes::name(rc)));
        }
        Ok(count as usize)
    }
}

impl Messages for Bmi {
    type Remote = Remote;

    fn request(&self, to: Remote, words: &[u64]) -> Result<(), String> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut id = 0;
        // SAFETY: `bytes` lives until the operation is complete, which is waited for below.
        let rc = unsafe {
            (self.ops.post_sendunexpected)(
                &mut id,
                to.0,
                bytes.as_ptr().cast(),
                bytes.len() as i64,
                abi::EXT_ALLOC,
                1,
                null_mut(),
                CONTEXT,
                null_mut(),
            )
        };
        match rc {
            1 => Ok(()),
            0 => self.wait(1, 10),
            _ => Err(format!("sending a request: error {rc}")),
        }
    }

    fn next_request(&self) -> Result<(Remote, Vec<u64>), String> {
        let mut info = abi::Unexpected {
            error_code: 0,
            addr: null_mut(),
            buffer: null_mut(),
            size: 0,
            tag: 0,
        };
        loop {
            let mut count = 0;
            // SAFETY: both outputs have room for one.
            let rc = unsafe { (self.ops.testunexpected)(1, &mut count, &mut info, 1000) };
            if rc < 0 {
                return Err(format!("testunexpected: error {rc}"));
            }
            if count == 1 {
                break;
            }
        }
        // SAFETY: the method gives out `size` bytes at `buffer`, which are this program's now.
        let bytes =
            unsafe { std::slice::from_raw_parts(info.buffer.cast::<u8>(), info.size as usize) };
        let words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        // SAFETY: `buffer` came from testunexpected and is not used again.
        unsafe { (self.ops.unexpected_free)(info.buffer) };
        Ok((Remote(info.addr), words))
    }

    #[inline]
    unsafe fn send(&self, to: Remote, data: &[u8], tag: i32) -> Result<bool, String> {
        let mut id = 0;
        // SAFETY: the caller's promise.
        let rc = unsafe {
            (self.ops.post_send)(
                &mut id,
                to.0,
                data.as_ptr().cast(),
                data.len() as i64,
                abi::EXT_ALLOC,
                tag,
                null_mut(),
                CONTEXT,
                null_mut(),
            )
        };
        if rc < 0 {
            Err(format!("post_send: error {rc}"))
        } else {
            Ok(rc == 1)
        }
    }

    #[inline]
    unsafe fn recv(&self, from: Remote, data: &mut [u8], tag: i32) -> Result<bool, String> {
        let (mut id, mut actual) = (0, 0);
        // SAFETY: the caller's promise.
        let rc = unsafe {
            (self.ops.post_recv)(
                &mut id,
                from.0,
                data.as_mut_ptr().cast(),
                data.len() as i64,
                &mut actual,
                abi::EXT_ALLOC,
                tag,
                null_mut(),
                CONTEXT,
                null_mut(),
            )
        };
        if rc < 0 {
            Err(format!("post_recv: error {rc}"))
        } else {
            Ok(rc == 1)
        }
    }

    #[inline]
    fn test(&self, idle_ms: i32) -> Result<usize, String> {
        let results = &mut **self.results.borrow_mut();
        let count = self.ended(results, idle_ms)?;
        let mut errors = results.errors.iter().take(count);
        match errors.find(|error| **error != 0) {
            Some(error) => Err(format!("an operation ended with error {error}")),
            None => Ok(count),
        }
    }
}

impl Drop for Bmi {
    fn drop(&mut self) {
        // SAFETY: the method is initialised; nothing of it is used afterwards.
        unsafe {
            (self.ops.close_context)(CONTEXT);
            (self.ops.finalize)();
        }
        if !self.listen.is_null() {
            // SAFETY: addresses may be dropped after finalize, as OrangeFS does.
            unsafe { (self.ops.set_info)(abi::DROP_ADDR, self.listen) };
        }
    }
}

fn lookup(ops: &Ops, name: &str) -> Result<*mut c_void, String> {
    let text = CString::new(name).map_err(|_| "a NUL in the address")?;
    // SAFETY: `text` is a C string.
    let addr = unsafe { (ops.method_addr_lookup)(text.as_ptr()) };
    if addr.is_null() {
        Err(format!("'{name}' is no mx:// address"))
    } else {
        Ok(addr)
    }
}

const BATCH: usize = 64;
