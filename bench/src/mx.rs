//! libmyriexpress as any C program uses it.
//!
//! ```text
//!   Mx::start    mx_init, mx_open_endpoint (the lowest free id)
//!   send, recv   mx_isend, mx_irecv           bits: kind | tag
//!   test         mx_test_any, mx_wait_any     any completion, as the method's testcontext
//!   request      mx_isend --> mx_irecv        with bits of their own
//! ```
//!
//! Owns: the signatures, and the endpoint.

use crate::functions::functions;
use crate::library::Library;
use crate::messages::Messages;
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, OsStr};
use std::ptr::null_mut;

const API: c_int = 0x301;
const ANY: u32 = u32::MAX;
const EXACT: u64 = u64::MAX;
/// Kind of a message, above its tag in the match bits.
const DATA: u64 = 1 << 48;
const REQUEST: u64 = 2 << 48;
/// Maximum number of words in a request.
const WORDS: usize = 8;
const CONNECT_MS: u32 = 10_000;

/// `mx_endpoint_addr_t`: the address of another process.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Address([u64; 2]);

/// `mx_segment_t`.
#[repr(C)]
struct Segment {
    pointer: *mut c_void,
    length: u32,
}

/// `mx_status_t`.
#[repr(C)]
#[derive(Default)]
struct Status {
    code: c_int,
    source: Address,
    match_info: u64,
    msg_length: u32,
    xfer_length: u32,
    context: usize,
}

const _: () = assert!(size_of::<Status>() == 48);

/// `mx_return_t`.
type Code = c_int;
/// `mx_endpoint_t` and `mx_request_t`.
type Handle = *mut c_void;

functions! {
    struct Functions;

    init = c"mx__init_api": fn(c_int) -> Code;
    finalize = c"mx_finalize": fn() -> Code;
    set_error_handler = c"mx_set_error_handler": fn(*const c_void) -> *const c_void;
    open_endpoint = c"mx_open_endpoint": fn(u32, u32, u32, *mut c_void, u32, *mut Handle) -> Code;
    close_endpoint = c"mx_close_endpoint": fn(Handle) -> Code;
    own_address = c"mx_get_endpoint_addr": fn(Handle, *mut Address) -> Code;
    decompose = c"mx_decompose_endpoint_addr": fn(Address, *mut u64, *mut u32) -> Code;
    connect = c"mx_connect": fn(Handle, u64, u32, u32, u32, *mut Address) -> Code;
    isend = c"mx_isend":
        fn(Handle, *mut Segment, u32, Address, u64, *mut c_void, *mut Handle) -> Code;
    irecv = c"mx_irecv":
        fn(Handle, *mut Segment, u32, u64, u64, *mut c_void, *mut Handle) -> Code;
    wait = c"mx_wait": fn(Handle, *mut Handle, u32, *mut Status, *mut u32) -> Code;
    test_any = c"mx_test_any": fn(Handle, u64, u64, *mut Status, *mut u32) -> Code;
    wait_any = c"mx_wait_any": fn(Handle, u32, u64, u64, *mut Status, *mut u32) -> Code;
    strerror = c"mx_strerror": fn(Code) -> *const c_char;
    strstatus = c"mx_strstatus": fn(c_int) -> *const c_char;
}

/// The library with one endpoint open.
pub(crate) struct Mx {
    functions: Functions,
    endpoint: Handle,
}

impl Mx {
    /// Loads and starts the library and opens the lowest free endpoint.
    pub(crate) fn start(library: &OsStr) -> Result<Self, String> {
        let library = Library::open(library)?;
        let returning = library.symbol(c"MX_ERRORS_RETURN")?.cast::<*const c_void>();
        let mut mx = Self {
            functions: Functions::load(library)?,
            endpoint: null_mut(),
        };
        // SAFETY: the symbol is a constant that holds a handler.
        let handler = unsafe { returning.read() };
        // SAFETY: `handler` is one of the library's own.
        unsafe { (mx.functions.set_error_handler)(handler) };
        // SAFETY: takes a number.
        let code = unsafe { (mx.functions.init)(API) };
        mx.check("mx_init", code)?;
        let mut endpoint = null_mut();
        // SAFETY: no parameters, and room for the endpoint.
        let code =
            unsafe { (mx.functions.open_endpoint)(ANY, ANY, 0, null_mut(), 0, &mut endpoint) };
        mx.check("mx_open_endpoint", code)?;
        mx.endpoint = endpoint;
        Ok(mx)
    }

    /// Returns the endpoint's id.
    pub(crate) fn place(&self) -> Result<u32, String> {
        Ok(self.own()?.1)
    }

    /// Connects to an endpoint of this host.
    pub(crate) fn connect(&self, endpoint: u32) -> Result<Address, String> {
        let (nic, _) = self.own()?;
        let mut address = Address::default();
        // SAFETY: the endpoint is open, and there is room for the address.
        let code = unsafe {
            (self.functions.connect)(self.endpoint, nic, endpoint, 0, CONNECT_MS, &mut address)
        };
        self.check("mx_connect", code)?;
        Ok(address)
    }

    fn own(&self) -> Result<(u64, u32), String> {
        let (mut address, mut nic, mut endpoint) = (Address::default(), 0, 0);
        // SAFETY: the endpoint is open, and there is room for its address.
        let code = unsafe { (self.functions.own_address)(self.endpoint, &mut address) };
        self.check("mx_get_endpoint_addr", code)?;
        // SAFETY: both outputs have room.
        let code = unsafe { (self.functions.decompose)(address, &mut nic, &mut endpoint) };
        self.check("mx_decompose_endpoint_addr", code)?;
        Ok((nic, endpoint))
    }

    /// # Safety
    /// `data` stays valid and unchanged until the request has been waited for.
    #[inline]
    unsafe fn post_send(&self, to: Address, data: &[u8], bits: u64) -> Result<Handle, String> {
        let mut segment = Segment {
            pointer: data.as_ptr().cast_mut().cast(),
            length: data.len() as u32,
        };
        let mut request = null_mut();
        // SAFETY: the segment is copied, what it names is the caller's promise; a send only reads.
        let code = unsafe {
            (self.functions.isend)(
                self.endpoint,
                &mut segment,
                1,
                to,
                bits,
                null_mut(),
                &mut request,
            )
        };
        self.check("mx_isend", code)?;
        Ok(request)
    }

    /// # Safety
    /// `data` stays valid and is not read until the request has been waited for.
    #[inline]
    unsafe fn post_recv(&self, data: &mut [u8], bits: u64) -> Result<Handle, String> {
        let mut segment = Segment {
            pointer: data.as_mut_ptr().cast(),
            length: data.len() as u32,
        };
        let mut request = null_mut();
        // SAFETY: the segment is copied, what it names is the caller's promise.
        let code = unsafe {
            (self.functions.irecv)(
                self.endpoint,
                &mut segment,
                1,
                bits,
                EXACT,
                null_mut(),
                &mut request,
            )
        };
        self.check("mx_irecv", code)?;
        Ok(request)
    }

    /// Waits, asleep, until the request is done.
    fn finish(&self, mut request: Handle) -> Result<Status, String> {
        let (mut status, mut done) = (Status::default(), 0);
        while done == 0 {
            // SAFETY: the request is one of this endpoint, and the outputs have room.
            let code = unsafe {
                (self.functions.wait)(self.endpoint, &mut request, 0, &mut status, &mut done)
            };
            self.check("mx_wait", code)?;
        }
        self.check_status(&status)?;
        Ok(status)
    }

    #[inline]
    fn check(&self, what: &str, code: Code) -> Result<(), String> {
        match code {
            0 => Ok(()),
            // SAFETY: takes a number.
            _ => Err(self.text(what, unsafe { (self.functions.strerror)(code) })),
        }
    }

    #[inline]
    fn check_status(&self, status: &Status) -> Result<(), String> {
        match status.code {
            0 => Ok(()),
            code => {
                // SAFETY: takes a number.
                let text = unsafe { (self.functions.strstatus)(code) };
                Err(self.text("a request ended with", text))
            }
        }
    }

    #[cold]
    fn text(&self, what: &str, text: *const c_char) -> String {
        // SAFETY: the library's texts are C strings that stay.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{what}: {}", text.to_string_lossy())
    }
}

impl Messages for Mx {
    type Remote = Address;

    fn request(&self, to: Address, words: &[u64]) -> Result<(), String> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // SAFETY: waited for right below; an error ends the process.
        let request = unsafe { self.post_send(to, &bytes, REQUEST)? };
        self.finish(request).map(drop)
    }

    fn next_request(&self) -> Result<(Address, Vec<u64>), String> {
        let mut bytes = [0u8; WORDS * 8];
        // SAFETY: waited for right below; an error ends the process.
        let request = unsafe { self.post_recv(&mut bytes, REQUEST)? };
        let status = self.finish(request)?;
        let words = bytes
            .chunks_exact(8)
            .take(status.xfer_length as usize / 8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        Ok((status.source, words))
    }

    #[inline]
    unsafe fn send(&self, to: Address, data: &[u8], tag: i32) -> Result<bool, String> {
        // SAFETY: the caller's promise.
        unsafe { self.post_send(to, data, DATA | u64::from(tag as u32)) }?;
        Ok(false)
    }

    #[inline]
    unsafe fn recv(&self, _: Address, data: &mut [u8], tag: i32) -> Result<bool, String> {
        // SAFETY: the caller's promise.
        unsafe { self.post_recv(data, DATA | u64::from(tag as u32)) }?;
        Ok(false)
    }

    #[inline]
    fn test(&self, idle_ms: i32) -> Result<usize, String> {
        let (mut status, mut done) = (Status::default(), 0);
        let Functions {
            test_any, wait_any, ..
        } = &self.functions;
        // SAFETY: the endpoint is open, and both outputs have room.
        let code = unsafe { test_any(self.endpoint, 0, 0, &mut status, &mut done) };
        self.check("mx_test_any", code)?;
        if let (0, Ok(idle_ms @ 1..)) = (done, u32::try_from(idle_ms)) {
            // SAFETY: as above.
            let code = unsafe { wait_any(self.endpoint, idle_ms, 0, 0, &mut status, &mut done) };
            self.check("mx_wait_any", code)?;
        }
        if done == 0 {
            return Ok(0);
        }
        self.check_status(&status)?;
        Ok(1)
    }
}

impl Drop for Mx {
    fn drop(&mut self) {
        if !self.endpoint.is_null() {
            // SAFETY: the endpoint is open and not used again.
            unsafe { (self.functions.close_endpoint)(self.endpoint) };
        }
        // SAFETY: takes nothing; where mx_init failed it says so and does nothing.
        unsafe { (self.functions.finalize)() };
    }
}
