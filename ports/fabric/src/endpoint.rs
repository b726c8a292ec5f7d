//! Endpoints: the one shared by all links, and those with a queue of their own.
//!
//! ```text
//!   receive  ---------.                          fi_cq: done or not, with the context
//!   send ------------- > outstanding  ---------> one for each, unless the endpoint
//!   read -------------'                          is closed first
//!   inject                                       none
//! ```
//!
//! A post returns 0, `FI_EAGAIN` (read the queue, try again), or a permanent error. Closing an endpoint releases all
//! memory outstanding on it. Events of its own queue are lost with it; events of the shared endpoint may still come out
//! of the domain's queue.
//!
//! Owns: one `fid_ep` each, and its address.

use super::queue::Queue;
use super::{CqEvent, Desc, Domain, FabricError, Handle, Parts, check, opened};
use libc::{c_int, c_void, iovec};
use libfabric_sys::abi::{
    FI_ADDR_UNSPEC, FI_COMPLETION, FI_EBUSY, FI_EINVAL, FI_EMSGSIZE, FI_ENOCQ, FI_ENOSYS,
    FI_EOTHER, FI_ETOOSMALL, FI_MORE, FI_MULTI_RECV, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
    FI_RECV, FI_RMA, FI_TRANSMIT, fi_msg, fid, fid_ep,
};
use libfabric_sys::calls::{
    fi_enable, fi_endpoint, fi_ep_bind, fi_getname, fi_getopt, fi_inject, fi_read, fi_recv,
    fi_recvmsg, fi_send, fi_sendmsg, fi_setopt,
};
use libfabric_sys::{Info, InfoList};
use std::fmt;
use std::os::fd::RawFd;
use std::rc::Rc;

/// Kind of endpoint to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Endpoint that all links share. Its completions come out of the domain's queue, which must exist.
    Main,
    /// Endpoint with a completion queue of its own.
    Own {
        /// Port, for providers with IP addresses; 0: any.
        port: u16,
        /// Maximum number of outstanding operations, both directions together.
        entries: usize,
    },
}

/// Enabled endpoint. Dropping it closes it, unless registrations are bound to it: then dropping the last of them does.
/// Operations name a peer by its handle from [`Domain::insert`].
pub struct Ep {
    pub(super) parts: Rc<EpParts>,
}

/// Parts of an endpoint.
pub(super) struct EpParts {
    /// `None` once closed.
    handle: Option<Handle<fid_ep>>,
    /// Copy of the pointer in `handle`.
    raw: *mut fid_ep,
    /// The endpoint's own queue, closed after it; `None` for the shared endpoint, which uses the domain's.
    queue: Option<Queue>,
    address: Vec<u8>,
    /// Capabilities it was opened with: the provider may have allocated nothing for others.
    caps: u64,
    /// Maximum bytes of an injection, prefix included.
    inject_limit: usize,
    domain: Rc<Parts>,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Ep {}

impl Domain {
    /// Opens and enables an endpoint, which uses the domain's address vector. Fails with `FI_ENOCQ` for [`Role::Main`]
    /// if the domain has no queue.
    pub fn endpoint(&self, role: Role) -> Result<Ep, FabricError> {
        let parts = &self.parts;
        let original = parts.info.first();
        let original = original.ok_or_else(|| self.error("fi_endpoint", FI_EINVAL))?;
        let copy: InfoList;
        let info = match role {
            Role::Main => original,
            Role::Own { port, .. } => {
                let copied = parts.info.keep(original);
                copy = copied.map_err(|code| self.error("fi_dupinfo", code))?;
                let info = copy.first();
                let info = info.ok_or_else(|| self.error("fi_dupinfo", FI_EOTHER))?;
                set_port(info, port);
                info
            }
        };
        let queue = match role {
            Role::Main => None,
            Role::Own { entries, .. } => Some(entries),
        };
        let queue = queue.map(|entries| {
            let queue = Queue::open(&parts.fabric, &parts.domain, entries, &self.terms);
            queue.map_err(|code| self.error("fi_cq_open", code))
        });
        let queue = queue.transpose()?;
        let cq = queue.as_ref().or(parts.queue.as_ref());
        let cq = cq.ok_or_else(|| self.error("fi_ep_bind", FI_ENOCQ))?.fid();
        // Declared after its queue, so that the endpoint closes first if a step below fails.
        let handle = opened("endpoint", |out| {
            // SAFETY: an open domain, an info of the same library, an output.
            unsafe {
                fi_endpoint(
                    parts.domain.as_ptr(),
                    info.as_ptr(),
                    out,
                    std::ptr::null_mut(),
                )
            }
        });
        let handle = handle.map_err(|code| self.error("fi_endpoint", code))?;
        let ep = handle.as_ptr();
        let step = |what, result| check(result as isize).map_err(|code| self.error(what, code));
        // SAFETY: an open endpoint, and a queue of its domain.
        let result = unsafe { fi_ep_bind(ep, cq, FI_TRANSMIT | FI_RECV) };
        step("fi_ep_bind", result)?;
        // SAFETY: an open endpoint, and an address vector of its domain.
        let result = unsafe { fi_ep_bind(ep, parts.av.fid(), 0) };
        step("fi_ep_bind", result)?;
        if role == Role::Main && self.terms.multi_recv {
            self.set_least_room(&handle)?;
        }
        // SAFETY: an open endpoint with all it needs.
        step("fi_enable", unsafe { fi_enable(ep) })?;
        if let Some(queue) = &queue {
            queue.bound(&parts.fabric);
        }
        let address = name(&handle).map_err(|code| self.error("fi_getname", code))?;
        Ok(Ep {
            parts: Rc::new(EpParts {
                raw: ep,
                queue,
                handle: Some(handle),
                address,
                caps: info.caps(),
                inject_limit: self.terms.prefix.send + self.terms.inject_max,
                domain: Rc::clone(parts),
            }),
        })
    }

    /// Sets the least free space of a multi-receive buffer to a whole slot, so that a frame never meets a shorter rest.
    fn set_least_room(&self, handle: &Handle<fid_ep>) -> Result<(), FabricError> {
        let least: usize = self.terms.prefix.receive + self.terms.frame_max;
        // SAFETY: an open endpoint, and a value of this option's type.
        let result = unsafe {
            fi_setopt(
                handle.as_ptr(),
                FI_OPT_ENDPOINT,
                FI_OPT_MIN_MULTI_RECV,
                (&raw const least).cast(),
                size_of_val(&least),
            )
        };
        check(result as isize).map_err(|code| self.error("fi_setopt", code))
    }
}

impl Ep {
    /// Returns the endpoint's own address (`fi_getname`) in the parameters' format, at which peers reach it.
    pub fn address(&self) -> &[u8] {
        &self.parts.address
    }

    /// Appends up to `max` completion events, failed operations included, to `out` and returns their number. An error
    /// means that the queue and this endpoint are broken.
    ///
    /// For the shared endpoint this equals [`Domain::read`]; likewise the next two methods.
    pub fn events(&self, out: &mut Vec<CqEvent>, max: usize) -> Result<usize, FabricError> {
        match self.queue() {
            Some(queue) => queue.read(&self.parts.domain.library, out, max),
            None => Ok(0),
        }
    }

    /// Returns the descriptor that becomes readable when there may be events; `None` if there is none or it has failed.
    /// Closed with the endpoint.
    pub fn wait_fd(&self) -> Option<RawFd> {
        self.queue()?.wait_fd()
    }

    /// Returns whether a thread may sleep on [`Ep::wait_fd`] now. If not, there are events or no descriptor.
    pub fn may_sleep(&self) -> bool {
        let domain = &self.parts.domain;
        let queue = self.queue();
        queue.is_some_and(|queue| queue.may_sleep(&domain.fabric, &domain.library))
    }

    /// Returns the endpoint's own queue, or the domain's.
    fn queue(&self) -> Option<&Queue> {
        let parts = &self.parts;
        parts.queue.as_ref().or(parts.domain.queue.as_ref())
    }

    /// Closes the endpoint, after which all memory outstanding on it is the caller's again. Fails with `FI_EBUSY` if
    /// registrations are bound to it, the last of which will close it, or with the provider's error, positive: then
    /// closing is retried before the domain closes. After a failure the memory stays the provider's.
    pub fn close(self) -> Result<(), i32> {
        let mut parts = Rc::try_unwrap(self.parts).map_err(|_| FI_EBUSY)?;
        parts.close()
    }

    /// Posts a receive buffer of `len` bytes, prefix included, for one message or, with `multi`, for as many as fit.
    /// Fails with `FI_EAGAIN`, without taking the buffer, if the queue has to be read first.
    ///
    /// # Safety
    ///
    /// The memory, and what `context` points to if the provider needs context bytes, is exclusively the provider's
    /// until the completion that releases it has been read or the endpoint has closed.
    pub unsafe fn receive(
        &self,
        start: *mut u8,
        len: usize,
        desc: Desc,
        multi: bool,
        context: *mut c_void,
    ) -> Result<(), i32> {
        let ep = self.parts.raw;
        if !multi {
            // SAFETY: an open endpoint; the caller guarantees the rest.
            let result = unsafe { fi_recv(ep, start.cast(), len, desc, FI_ADDR_UNSPEC, context) };
            return check(result);
        }
        let (segment, mut desc) = (segment(start, len), desc);
        let msg = message(&segment, &mut desc, FI_ADDR_UNSPEC, context);
        // SAFETY: an open endpoint, a message whose arrays live until the call returns.
        check(unsafe { fi_recvmsg(ep, &raw const msg, FI_MULTI_RECV) })
    }

    /// Sends a copy of `bytes`, prefix first, to a peer; `bytes` can be reused at once, and no completion follows.
    /// Fails with `FI_EMSGSIZE` if the frame is longer than the parameters' `inject_max`, and with `FI_EAGAIN` if the
    /// queue has to be read first.
    pub fn inject(&self, bytes: &[u8], to: u64) -> Result<(), i32> {
        // Some providers check the length only by an assertion.
        if bytes.len() > self.parts.inject_limit {
            return Err(FI_EMSGSIZE);
        }
        let ep = self.parts.raw;
        // SAFETY: an open endpoint, and bytes that are read before the call returns.
        check(unsafe { fi_inject(ep, bytes.as_ptr().cast(), bytes.len(), to) })
    }

    /// Sends a buffer, prefix first, to a peer; a completion follows. Fails with `FI_EAGAIN`, without taking the
    /// buffer, if the queue has to be read first. `more`: another send follows at once, so the provider may delay the
    /// doorbell until then.
    ///
    /// # Safety
    ///
    /// As for [`Ep::receive`], but the memory may be read meanwhile.
    pub unsafe fn send(
        &self,
        (start, len): (*const u8, usize),
        desc: Desc,
        to: u64,
        context: *mut c_void,
        more: bool,
    ) -> Result<(), i32> {
        let ep = self.parts.raw;
        if !more {
            // SAFETY: an open endpoint; the caller guarantees the rest.
            return check(unsafe { fi_send(ep, start.cast(), len, desc, to, context) });
        }
        let (segment, mut desc) = (segment(start, len), desc);
        let msg = message(&segment, &mut desc, to, context);
        // SAFETY: an open endpoint, a message whose arrays live until the call returns; the caller guarantees the rest.
        check(unsafe { fi_sendmsg(ep, &raw const msg, FI_COMPLETION | FI_MORE) })
    }

    /// Reads `len` bytes of the memory of the peer `from` to `start`; a completion follows. `remote` and `key` are the
    /// peer's [`Mr::remote_base`](super::Mr::remote_base) and [`Mr::key`](super::Mr::key). Fails with `FI_ENOSYS` if
    /// the endpoint was opened without `FI_RMA`, and with `FI_EAGAIN` if the queue has to be read first.
    ///
    /// # Safety
    ///
    /// As for [`Ep::receive`].
    #[expect(clippy::too_many_arguments, reason = "as many as fi_read has")]
    pub unsafe fn read(
        &self,
        start: *mut u8,
        len: usize,
        desc: Desc,
        from: u64,
        remote: u64,
        key: u64,
        context: *mut c_void,
    ) -> Result<(), i32> {
        self.needs(FI_RMA)?;
        let ep = self.parts.raw;
        // SAFETY: an open endpoint with `FI_RMA`; the caller guarantees the rest.
        check(unsafe { fi_read(ep, start.cast(), len, desc, from, remote, key, context) })
    }

    /// Returns true if `efa` emulates reads in software, or does not say. For `efa` only.
    pub fn emulates_reads(&self) -> bool {
        let (mut emulated, mut len) = (1u8, 1);
        // SAFETY: an open endpoint, and a value of this option's type.
        let result = unsafe {
            fi_getopt(
                self.parts.raw,
                FI_OPT_ENDPOINT,
                FI_OPT_EFA_EMULATED_READ,
                (&raw mut emulated).cast(),
                &raw mut len,
            )
        };
        result != 0 || emulated != 0
    }

    /// Fails unless the endpoint was opened with this capability: the provider may have allocated nothing for it.
    fn needs(&self, capability: u64) -> Result<(), i32> {
        if self.parts.caps & capability == 0 {
            return Err(FI_ENOSYS);
        }
        Ok(())
    }
}

impl EpParts {
    /// Returns the endpoint as libfabric's base type.
    pub(super) fn fid(&self) -> *mut fid {
        self.raw.cast()
    }

    fn close(&mut self) -> Result<(), i32> {
        let Some(handle) = self.handle.take() else {
            return Ok(());
        };
        // Registrations that failed to close may be bound to this endpoint.
        self.domain.retry_stuck();
        self.calm();
        let result = self.domain.close(handle);
        if let Some(queue) = self.queue.take() {
            // If the endpoint fails to close, so does the queue, which is retried after it.
            let closed = self.domain.close(queue.into_handle());
            return result.and(closed);
        }
        result
    }

    /// Empties the endpoint's queue. `ofi_rxm` 1.17 would handle messages left in it, such as its own of a new
    /// connection, with connections that closing the endpoint has already freed.
    fn calm(&self) {
        let mut events = Vec::new();
        for _ in 0..CALM_READS {
            events.clear();
            let queue = self.queue.as_ref().or(self.domain.queue.as_ref());
            let read = queue.map(|queue| queue.read(&self.domain.library, &mut events, CALM_READS));
            if !matches!(read, Some(Ok(1..))) {
                break;
            }
        }
    }
}

impl Drop for EpParts {
    fn drop(&mut self) {
        if let Err(code) = self.close() {
            log::warn!("fabric: the endpoint cannot be closed (error {code})");
        }
    }
}

impl fmt::Debug for Ep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ep({:?})", self.parts.raw)
    }
}

/// Sets the port in the socket address of an info that we own; other address formats have no port.
fn set_port(info: Info<'_>, port: u16) {
    let family = info.src_addr().first_chunk().copied();
    let family = family.map(u16::from_ne_bytes).map(i32::from);
    if !matches!(family, Some(libc::AF_INET | libc::AF_INET6)) || info.src_addr().len() < 4 {
        return;
    }
    // SAFETY: an entry of a list that we own.
    let start = unsafe { (*info.as_ptr()).src_addr }.cast::<u8>();
    // SAFETY: an address of at least four bytes, whose third and fourth are the port.
    unsafe { start.add(2).cast::<[u8; 2]>().write(port.to_be_bytes()) };
}

/// Builds a segment; the caller knows whether the memory is writable.
pub(super) fn segment(start: *const u8, len: usize) -> iovec {
    iovec {
        iov_base: start.cast_mut().cast(),
        iov_len: len,
    }
}

/// Builds a message of one segment. The message points to both arguments and must not outlive them.
fn message(segment: &iovec, desc: &mut Desc, addr: u64, context: *mut c_void) -> fi_msg {
    fi_msg {
        msg_iov: segment,
        desc,
        iov_count: 1,
        addr,
        context,
        data: 0,
    }
}

/// Returns the address of an endpoint.
fn name(handle: &Handle<fid_ep>) -> Result<Vec<u8>, i32> {
    let mut address = vec![0; ADDRESS_USUAL];
    for _ in 0..2 {
        let mut len = address.len();
        // SAFETY: an open endpoint, and a buffer of `len` bytes.
        let result =
            unsafe { fi_getname(handle.as_ptr(), address.as_mut_ptr().cast(), &raw mut len) };
        match check(result as isize) {
            Ok(()) if len > 0 && len <= address.len() => {
                address.truncate(len);
                return Ok(address);
            }
            Err(FI_ETOOSMALL) if len > address.len() && len <= ADDRESS_MOST => {
                address.resize(len, 0);
            }
            Ok(()) => return Err(FI_EOTHER),
            Err(code) => return Err(code),
        }
    }
    Err(FI_ETOOSMALL)
}

/// Maximum number of reads to empty a queue before its endpoint closes, and of events per read.
const CALM_READS: usize = 64;

/// `FI_OPT_EFA_EMULATED_READ` of later releases' `fi_ext.h`.
const FI_OPT_EFA_EMULATED_READ: c_int = -(0xefa << 16) + 1;

/// Bytes that hold every fabric's address, except for the file names of `shm`.
const ADDRESS_USUAL: usize = 256;

/// Longest accepted address in bytes, far longer than any fabric's.
const ADDRESS_MOST: usize = 4096;
