//! A UCX worker with one endpoint, without a layer between them and the measurement.
//!
//! ```text
//!   context -> worker -> endpoint (tagged messages)
//!
//!   receives, sends   requests in the order of posting, which is the order of completion: one
//!                     tag, one peer
//! ```
//!
//! Owns: the objects, closed in the required order, and the buffers that they may still write to.

use super::abi::*;
use super::stream;
use crate::library::Library;
use crate::reference::sides::{Tagged, Timeout};
use libc::c_void;
use std::collections::VecDeque;
use std::ffi::{CStr, OsStr};
use std::ptr::{null, null_mut};

/// Name for the system's loader.
const LIBRARY: &str = "libucp.so.0";
/// Tag of all messages.
const TAG: u64 = 7;
const EXACT: u64 = u64::MAX;
/// Parameters of every operation: the defaults.
const PLAIN: RequestParam = RequestParam {
    op_attr_mask: 0,
    flags: 0,
    unused: [0; 14],
};

/// An endpoint with one peer.
pub(crate) struct Endpoint {
    functions: Functions,
    context: Handle,
    worker: Handle,
    ep: Handle,
    name: String,
    buffers: Vec<Vec<u8>>,
    receives: VecDeque<Handle>,
    sends: VecDeque<Handle>,
    /// Completions that have not been waited for.
    received: usize,
    sent: usize,
}

impl Endpoint {
    /// Checks that the library can be loaded; an error tells why not.
    pub(crate) fn installed() -> Result<(), String> {
        Library::open(OsStr::new(LIBRARY)).map(drop)
    }

    /// Loads the library and opens a worker on the transports that `UCX_TLS` names.
    pub(crate) fn open() -> Result<Self, String> {
        let functions = Functions::load(Library::open(OsStr::new(LIBRARY))?)?;
        // SAFETY: takes nothing, and gives out a constant.
        let version = unsafe { CStr::from_ptr((functions.version)()) };
        let version = version.to_string_lossy();
        let transport = std::env::var(super::TRANSPORT).unwrap_or_default();
        let mut endpoint = Self {
            name: format!("{transport} {version}"),
            functions,
            context: null_mut(),
            worker: null_mut(),
            ep: null_mut(),
            buffers: Vec::new(),
            receives: VecDeque::new(),
            sends: VecDeque::new(),
            received: 0,
            sent: 0,
        };
        let params = Params {
            field_mask: PARAM_FEATURES,
            features: FEATURE_TAG,
            unused: [0; 30],
        };
        let Functions {
            init,
            worker_create,
            ..
        } = endpoint.functions;
        // SAFETY: parameters with their mask, no configuration but the environment's, an output.
        let status = unsafe { init(API.0, API.1, &params, null(), &mut endpoint.context) };
        endpoint.check("ucp_init", status)?;
        let params = WorkerParams {
            field_mask: 0,
            unused: [0; 63],
        };
        // SAFETY: an open context, parameters with their mask, an output.
        let status = unsafe { worker_create(endpoint.context, &params, &mut endpoint.worker) };
        endpoint.check("ucp_worker_create", status)?;
        Ok(endpoint)
    }

    /// Lets the library make progress once, and counts completions.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<(), String> {
        // SAFETY: an open worker.
        unsafe { (self.functions.progress)(self.worker) };
        self.collect()
    }

    /// Returns the receives that have ended since the last call.
    #[inline]
    pub(crate) fn take_received(&mut self) -> usize {
        std::mem::take(&mut self.received)
    }

    /// Returns the sends that have ended since the last call.
    #[inline]
    pub(crate) fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.sent)
    }

    #[inline]
    fn collect(&mut self) -> Result<(), String> {
        while let Some(&request) = self.receives.front()
            && self.ended(request)?
        {
            self.receives.pop_front();
            self.received += 1;
        }
        while let Some(&request) = self.sends.front()
            && self.ended(request)?
        {
            self.sends.pop_front();
            self.sent += 1;
        }
        Ok(())
    }

    /// Returns whether a request has ended; it is freed then.
    #[inline]
    fn ended(&self, request: Handle) -> Result<bool, String> {
        // SAFETY: a request of this worker that has not been freed.
        let status = unsafe { (self.functions.check)(request) };
        if status == IN_PROGRESS {
            return Ok(false);
        }
        // SAFETY: the same, and it is not used again.
        unsafe { (self.functions.free)(request) };
        self.check("an operation", status).map(|()| true)
    }

    /// Returns the result of a posting call: a request, `None` if it has ended already, or an
    /// error.
    #[inline]
    fn posted(&self, what: &str, request: Handle) -> Result<Option<Handle>, String> {
        match request as isize {
            0 => Ok(None),
            code if code as usize >= LAST_ERROR as isize as usize => {
                self.check(what, code as Status).map(|()| None)
            }
            _ => Ok(Some(request)),
        }
    }

    #[inline]
    fn check(&self, what: &str, status: Status) -> Result<(), String> {
        match status {
            OK => Ok(()),
            status => Err(self.words(what, status)),
        }
    }

    #[cold]
    fn words(&self, what: &str, status: Status) -> String {
        // SAFETY: takes a number.
        let text = unsafe { (self.functions.status_string)(status.into()) };
        // SAFETY: a text of the library's that stays until this is asked again.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{what}: {}", text.to_string_lossy())
    }
}

impl Tagged for Endpoint {
    fn name(&self) -> &str {
        &self.name
    }

    fn address(&self) -> Result<Vec<u8>, String> {
        let (mut address, mut len) = (null_mut(), 0);
        // SAFETY: an open worker, and both outputs.
        let status = unsafe { (self.functions.get_address)(self.worker, &mut address, &mut len) };
        self.check("ucp_worker_get_address", status)?;
        // SAFETY: the call gave out `len` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) }.to_vec();
        // SAFETY: not used again.
        unsafe { (self.functions.release_address)(self.worker, address) };
        Ok(bytes)
    }

    fn connect(&mut self, address: &[u8]) -> Result<(), String> {
        let params = EndpointParams {
            field_mask: ENDPOINT_ADDRESS,
            address: address.as_ptr().cast::<c_void>(),
            unused: [0; 30],
        };
        // SAFETY: an open worker, an address of another, an output.
        let status = unsafe { (self.functions.ep_create)(self.worker, &params, &mut self.ep) };
        self.check("ucp_ep_create", status)
    }

    fn make_buffers(&mut self, count: usize, size: usize) -> Result<(), String> {
        self.buffers = vec![vec![1u8; size]; count];
        Ok(())
    }

    #[inline]
    fn recv(&mut self, buffer: usize) -> Result<(), String> {
        let into = &mut self.buffers[buffer];
        let (start, len) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: an open worker; the buffer lives until it is closed, or nothing is under way.
        let request =
            unsafe { (self.functions.tag_recv)(self.worker, start, len, TAG, EXACT, &PLAIN) };
        match self.posted("ucp_tag_recv_nbx", request)? {
            Some(request) => self.receives.push_back(request),
            None => self.received += 1,
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, buffer: usize) -> Result<usize, String> {
        let from = &self.buffers[buffer];
        let (start, len) = (from.as_ptr().cast(), from.len());
        // SAFETY: a connected endpoint; the buffer lives until it is closed, or nothing is under way.
        let request = unsafe { (self.functions.tag_send)(self.ep, start, len, TAG, &PLAIN) };
        match self.posted("ucp_tag_send_nbx", request)? {
            Some(request) => {
                self.sends.push_back(request);
                Ok(1)
            }
            None => Ok(0),
        }
    }

    #[inline]
    fn wait(&mut self, receives: usize, sends: usize) -> Result<(), String> {
        let mut timeout = Timeout::default();
        while self.received < receives || self.sent < sends {
            self.poll()?;
            timeout.try_again(super::NAME)?;
        }
        self.received -= receives;
        self.sent -= sends;
        Ok(())
    }

    fn source(&mut self, size: usize, count: usize) -> Result<f64, String> {
        stream::source(self, size, count)
    }

    fn sink(&mut self, size: usize, count: usize) -> Result<(), String> {
        stream::sink(self, size, count)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.worker.is_null() {
            // SAFETY: open, not used again; its endpoint goes with it.
            unsafe { (self.functions.worker_destroy)(self.worker) };
        }
        if !self.context.is_null() {
            // SAFETY: open, without workers, not used again.
            unsafe { (self.functions.cleanup)(self.context) };
        }
    }
}
