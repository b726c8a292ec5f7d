//! An endpoint of libfabric, without a layer between it and the measurement.
//!
//! ```text
//!   fabric -> domain -> endpoint (RDM, tagged) -> one queue, one address vector
//!
//!   contexts  [ receive 0 .. RING | send 0 .. RING ]    a completion names its context
//!   buffers   allocated before a measurement, registered where the provider wants it
//! ```
//!
//! Owns: the objects, closed in the required order, and the buffers that they may still write to.
//!
//! Used as cheaply as the library allows: one thread a domain, completions without details, several
//! taken at a time, nothing copied or allocated while messages move.

use super::{offer, stream};
use crate::reference::sides::{Tagged, Timeout};
use libc::c_void;
use libfabric_sys::abi::*;
use libfabric_sys::{InfoList, Library, calls};
use std::ptr::{NonNull, null_mut};

/// Contexts of each kind: more than can be under way at a time, two windows of receives and a few.
const RING: usize = 256;
/// Completions taken at a time.
const BATCH: usize = 16;
/// Tag of all messages.
const TAG: u64 = 7;

/// An open object; all objects of libfabric begin with a `fid`.
struct Object<T>(NonNull<T>);

impl<T> Object<T> {
    /// Returns the object that `open` stores in its output, if it succeeds.
    fn open(what: &str, open: impl FnOnce(*mut *mut T) -> libc::c_int) -> Result<Self, String> {
        let mut object = null_mut();
        match (open(&raw mut object), NonNull::new(object)) {
            (0, Some(object)) => Ok(Self(object)),
            (0, None) => Err(format!("{what}: no object")),
            (code, _) => Err(format!("{what}: {}", words(code as isize))),
        }
    }

    fn get(&self) -> *mut T {
        self.0.as_ptr()
    }

    fn fid(&self) -> *mut fid {
        self.0.as_ptr().cast()
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: open, and closed once; what was opened from it is closed already, by the order of
        // the members of `Endpoint`.
        unsafe { calls::fi_close(self.fid()) };
    }
}

struct Buffer {
    registration: Option<Object<fid_mr>>,
    bytes: Vec<u8>,
}

impl Buffer {
    fn desc(&self) -> *mut c_void {
        match &self.registration {
            // SAFETY: an open registration.
            Some(registration) => unsafe { calls::fi_mr_desc(registration.get()) },
            None => null_mut(),
        }
    }
}

/// An endpoint with one peer. Members are closed from first to last.
pub(super) struct Endpoint {
    ep: Object<fid_ep>,
    buffers: Vec<Buffer>,
    av: Object<fid_av>,
    cq: Object<fid_cq>,
    domain: Object<fid_domain>,
    _fabric: Object<fid_fabric>,
    contexts: Box<[fi_context2]>,
    provider: String,
    peer: fi_addr_t,
    inject: usize,
    register: bool,
    next_recv: usize,
    next_send: usize,
    /// Completions that have not been waited for.
    received: usize,
    sent: usize,
}

impl Endpoint {
    /// Opens an endpoint of `provider`, or of the best available one.
    pub(super) fn open(library: &Library, provider: Option<&str>) -> Result<Self, String> {
        let offers = offer::find(library, provider)?;
        let info = offers.first().ok_or("no offer")?;
        let raw = info.as_ptr();
        let fabric = library.fabric(info).map(Object).map_err(|code| {
            let text = words(code as isize);
            format!("fi_fabric: {text}")
        })?;
        let domain = Object::open("fi_domain", |out| {
            // SAFETY: an open fabric, a live info, an output.
            unsafe { calls::fi_domain(fabric.get(), raw, out, null_mut()) }
        })?;
        let mut attr = fi_cq_attr {
            // Room for everything that can be under way.
            size: 4 * RING,
            format: FI_CQ_FORMAT_CONTEXT,
            wait_obj: FI_WAIT_NONE,
            ..fi_cq_attr::EMPTY
        };
        let cq = Object::open("fi_cq_open", |out| {
            // SAFETY: an open domain, attributes, an output.
            unsafe { calls::fi_cq_open(domain.get(), &raw mut attr, out, null_mut()) }
        })?;
        let mut attr = fi_av_attr {
            r#type: info.av_type(),
            count: 1,
            ..fi_av_attr::EMPTY
        };
        let av = Object::open("fi_av_open", |out| {
            // SAFETY: an open domain, attributes, an output.
            unsafe { calls::fi_av_open(domain.get(), &raw mut attr, out, null_mut()) }
        })?;
        let ep = Object::open("fi_endpoint", |out| {
            // SAFETY: an open domain, the info it was opened with, an output.
            unsafe { calls::fi_endpoint(domain.get(), raw, out, null_mut()) }
        })?;
        // SAFETY: both open, of one domain.
        let code = unsafe { calls::fi_ep_bind(ep.get(), av.fid(), 0) };
        check("fi_ep_bind(av)", code as isize)?;
        // SAFETY: as above.
        let code = unsafe { calls::fi_ep_bind(ep.get(), cq.fid(), FI_TRANSMIT | FI_RECV) };
        check("fi_ep_bind(cq)", code as isize)?;
        // SAFETY: an endpoint with all it needs.
        let code = unsafe { calls::fi_enable(ep.get()) };
        check("fi_enable", code as isize)?;
        Ok(Self {
            ep,
            buffers: Vec::new(),
            av,
            cq,
            domain,
            _fabric: fabric,
            contexts: vec![fi_context2::EMPTY; 2 * RING].into(),
            provider: described(library, &offers),
            peer: FI_ADDR_UNSPEC,
            inject: info.inject_size(),
            register: info.mr_mode() & FI_MR_LOCAL != 0,
            next_recv: 0,
            next_send: 0,
            received: 0,
            sent: 0,
        })
    }

    /// Adds a buffer for empty messages.
    pub(super) fn add_empty_buffer(&mut self) {
        self.buffers.push(Buffer {
            registration: None,
            bytes: Vec::new(),
        });
    }

    fn register(&self, bytes: &[u8], key: u64) -> Result<Object<fid_mr>, String> {
        let (start, len) = (bytes.as_ptr().cast(), bytes.len());
        Object::open("fi_mr_reg", |out| {
            // SAFETY: an open domain, and memory that lives as long as the registration.
            unsafe {
                calls::fi_mr_reg(
                    self.domain.get(),
                    start,
                    len,
                    FI_SEND | FI_RECV,
                    0,
                    key,
                    0,
                    out,
                    null_mut(),
                )
            }
        })
    }

    /// Takes completions; returns whether there were any.
    #[inline]
    fn poll(&mut self) -> Result<bool, String> {
        let mut entries = [fi_cq_entry {
            op_context: null_mut(),
        }; BATCH];
        // SAFETY: an open queue, and room for BATCH entries of its format.
        let count = unsafe { calls::fi_cq_read(self.cq.get(), entries.as_mut_ptr().cast(), BATCH) };
        if count == -(FI_EAGAIN as isize) {
            return Ok(false);
        }
        if count < 0 {
            return Err(self.failure(count));
        }
        let sends = self.context(RING) as usize;
        for entry in entries.iter().take(count as usize) {
            if (entry.op_context as usize) < sends {
                self.received += 1;
            } else {
                self.sent += 1;
            }
        }
        Ok(count > 0)
    }

    #[inline]
    fn context(&mut self, index: usize) -> *mut c_void {
        (&raw mut self.contexts[index]).cast()
    }

    /// Returns whether an operation was accepted; if not, lets the provider make progress.
    #[inline]
    fn posted(&mut self, what: &str, code: isize, timeout: &mut Timeout) -> Result<bool, String> {
        if code == -(FI_EAGAIN as isize) {
            self.poll()?;
            timeout.try_again(&self.provider)?;
            return Ok(false);
        }
        check(what, code).map(|()| true)
    }

    fn failure(&self, code: isize) -> String {
        if code != -(FI_EAVAIL as isize) {
            return format!("fi_cq_read: {}", words(code));
        }
        let mut entry = fi_cq_err_entry::EMPTY;
        // SAFETY: an open queue and a whole entry.
        let count = unsafe { calls::fi_cq_readerr(self.cq.get(), &raw mut entry, 0) };
        match count {
            1 => format!("an operation failed: {}", words(entry.err as isize)),
            code => format!("fi_cq_readerr: {}", words(code)),
        }
    }
}

impl Tagged for Endpoint {
    fn name(&self) -> &str {
        &self.provider
    }

    fn address(&self) -> Result<Vec<u8>, String> {
        let mut address = vec![0u8; 256];
        let mut len = address.len();
        // SAFETY: an enabled endpoint, and room for `len` bytes.
        let code =
            unsafe { calls::fi_getname(self.ep.get(), address.as_mut_ptr().cast(), &raw mut len) };
        check("fi_getname", code as isize)?;
        address.truncate(len);
        Ok(address)
    }

    fn connect(&mut self, address: &[u8]) -> Result<(), String> {
        // SAFETY: an open vector, one address of the provider's own shape from the other side.
        let count = unsafe {
            calls::fi_av_insert(
                self.av.get(),
                address.as_ptr().cast(),
                1,
                &raw mut self.peer,
                0,
                null_mut(),
            )
        };
        match count {
            1 => Ok(()),
            code => Err(format!("fi_av_insert: {}", words(code as isize))),
        }
    }

    fn make_buffers(&mut self, count: usize, size: usize) -> Result<(), String> {
        self.buffers.clear();
        for key in 0..count {
            let bytes = vec![1u8; size];
            let registration = if self.register && size > 0 {
                Some(self.register(&bytes, key as u64)?)
            } else {
                None
            };
            self.buffers.push(Buffer {
                registration,
                bytes,
            });
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, buffer: usize) -> Result<(), String> {
        let context = self.context(self.next_recv % RING);
        self.next_recv += 1;
        let into = &mut self.buffers[buffer];
        let (desc, len) = (into.desc(), into.bytes.len());
        let start = into.bytes.as_mut_ptr().cast();
        let mut timeout = Timeout::default();
        loop {
            // SAFETY: an enabled endpoint; the buffer and the context live until it is closed.
            let code = unsafe {
                calls::fi_trecv(
                    self.ep.get(),
                    start,
                    len,
                    desc,
                    FI_ADDR_UNSPEC,
                    TAG,
                    0,
                    context,
                )
            };
            if self.posted("fi_trecv", code, &mut timeout)? {
                return Ok(());
            }
        }
    }

    /// Sends a buffer; without a completion if it could be injected.
    #[inline]
    fn send(&mut self, buffer: usize) -> Result<usize, String> {
        let from = &self.buffers[buffer];
        let (start, len) = (from.bytes.as_ptr().cast(), from.bytes.len());
        let mut timeout = Timeout::default();
        if len <= self.inject {
            loop {
                // SAFETY: an enabled endpoint, and bytes that are copied by the call.
                let code = unsafe { calls::fi_tinject(self.ep.get(), start, len, self.peer, TAG) };
                if self.posted("fi_tinject", code, &mut timeout)? {
                    return Ok(0);
                }
            }
        }
        let desc = from.desc();
        let context = self.context(RING + self.next_send % RING);
        self.next_send += 1;
        loop {
            // SAFETY: an enabled endpoint; the buffer and the context live until it is closed.
            let code = unsafe {
                calls::fi_tsend(self.ep.get(), start, len, desc, self.peer, TAG, context)
            };
            if self.posted("fi_tsend", code, &mut timeout)? {
                return Ok(1);
            }
        }
    }

    #[inline]
    fn wait(&mut self, receives: usize, sends: usize) -> Result<(), String> {
        let mut timeout = Timeout::default();
        while self.received < receives || self.sent < sends {
            if self.poll()? {
                timeout = Timeout::default()
            } else {
                timeout.try_again(&self.provider)?
            }
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

fn described(library: &Library, offers: &InfoList) -> String {
    let (major, minor) = library.version();
    let name = offers.first().map(|info| info.provider().into_owned());
    format!("{} {major}.{minor}", name.unwrap_or_default())
}

fn check(what: &str, code: isize) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("{what}: {}", words(code))),
    }
}

/// Returns the text of a libfabric error. Endpoints exist only with a library.
fn words(code: isize) -> String {
    let code = code as i32;
    Library::get().map_or_else(
        |_| format!("error {code}"),
        |library| library.strerror(code),
    )
}
