//! Endpoints: the one that all links share, and those with a queue of their own.
//!
//! ```text
//!   receive  ---------.                          fi_cq: done or not, with the context
//!   send ------------- > outstanding  ---------> one for each, unless the endpoint
//!   read -------------'                          is closed first
//!   inject                                       none
//! ```
//!
//! A post returns 0, `FI_EAGAIN` (read the queue, try again), or a permanent error. Closing an
//! endpoint gives back all memory outstanding on it. The events of its own queue go with it; events
//! of the shared endpoint may still come out of the domain's queue.
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

/// The use of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// All links share it.
    Main,
    /// As good as the shared one, with a queue of its own.
    Own {
        /// Its port, for providers with IP addresses; 0: any.
        port: u16,
        /// Operations that can be outstanding, in both directions together.
        entries: usize,
    },
}

/// An enabled endpoint. Dropping it closes it, unless registrations are bound to it: then the last
/// of them does.
pub struct Ep {
    pub(super) parts: Rc<EpParts>,
}

/// The parts of an endpoint.
pub(super) struct EpParts {
    /// `None` once it was closed, which is when all of this goes.
    handle: Option<Handle<fid_ep>>,
    /// The endpoint, as libfabric's type.
    raw: *mut fid_ep,
    /// Its own, closed after it; `None` for the shared endpoint, whose the domain has.
    queue: Option<Queue>,
    address: Vec<u8>,
    /// The capabilities it was opened for: the provider may have no tables for others.
    caps: u64,
    /// Bytes that can be injected, the prefix counted.
    inject_limit: usize,
    domain: Rc<Parts>,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Ep {}

impl Domain {
    /// Opens an endpoint that knows this domain's addresses, ready for use. Only the shared one
    /// has no queue of its own.
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
        // Opened after its queue, so that it is closed first when something fails below.
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

    /// A multi-receive buffer is given back when less than a whole slot is left of it: a frame
    /// never meets one that is too short.
    fn set_least_room(&self, handle: &Handle<fid_ep>) -> Result<(), FabricError> {
        let least: usize = self.terms.prefix.receive + self.terms.frame_max;
        // SAFETY: an open endpoint, and a value of the type that this option has.
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
    /// Its address, in the address format of the terms.
    pub fn address(&self) -> &[u8] {
        &self.parts.address
    }

    /// Appends up to `max` events to `out`, and says how many. An error means that the queue is
    /// broken, and with it this endpoint.
    ///
    /// For the shared endpoint this is [`Domain::read`], and so with the next two.
    pub fn events(&self, out: &mut Vec<CqEvent>, max: usize) -> Result<usize, FabricError> {
        match self.queue() {
            Some(queue) => queue.read(&self.parts.domain.library, out, max),
            None => Ok(0),
        }
    }

    /// The descriptor that becomes readable when there may be events; `None` when there is none, or
    /// when it has stopped working. Closed with the endpoint.
    pub fn wait_fd(&self) -> Option<RawFd> {
        self.queue()?.wait_fd()
    }

    /// Whether one may sleep on [`Ep::wait_fd`] now. If not, there is something to read, or no
    /// descriptor.
    pub fn may_sleep(&self) -> bool {
        let domain = &self.parts.domain;
        let queue = self.queue();
        queue.is_some_and(|queue| queue.may_sleep(&domain.fabric, &domain.library))
    }

    /// Its own, or the one it was bound to for want of one.
    fn queue(&self) -> Option<&Queue> {
        let parts = &self.parts;
        parts.queue.as_ref().or(parts.domain.queue.as_ref())
    }

    /// Closes it now and gives back all memory outstanding on it; the error, positive, when the
    /// provider will not, or `FI_EBUSY` when registrations are bound to it.
    pub fn close(self) -> Result<(), i32> {
        let mut parts = Rc::try_unwrap(self.parts).map_err(|_| FI_EBUSY)?;
        parts.close()
    }

    /// Posts a receive buffer, for one message or for as many as fit. The prefix is counted in
    /// `len`.
    ///
    /// # Safety
    ///
    /// The memory is ours alone until the completion that gives it back was read, or the endpoint
    /// closed. So is what `context` points to, where the provider wants context bytes.
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
            // SAFETY: an open endpoint; the rest is the caller's word.
            let result = unsafe { fi_recv(ep, start.cast(), len, desc, FI_ADDR_UNSPEC, context) };
            return check(result);
        }
        let (segment, mut desc) = (segment(start, len), desc);
        let msg = message(&segment, &mut desc, FI_ADDR_UNSPEC, context);
        // SAFETY: an open endpoint, a message whose arrays live until the call returns.
        check(unsafe { fi_recvmsg(ep, &raw const msg, FI_MULTI_RECV) })
    }

    /// Sends a copy of `bytes`, prefix first, if the frame is no longer than the
    /// terms' `inject_max`. There is no completion.
    pub fn inject(&self, bytes: &[u8], to: u64) -> Result<(), i32> {
        // Some providers only assert it.
        if bytes.len() > self.parts.inject_limit {
            return Err(FI_EMSGSIZE);
        }
        let ep = self.parts.raw;
        // SAFETY: an open endpoint, and bytes that are read before the call returns.
        check(unsafe { fi_inject(ep, bytes.as_ptr().cast(), bytes.len(), to) })
    }

    /// Sends a buffer, prefix first. `more`: another one follows at once, and the provider may wait for that
    /// before it tells the card.
    ///
    /// # Safety
    ///
    /// As for [`Ep::receive`]; the memory may be read, not written, meanwhile.
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
            // SAFETY: an open endpoint; the rest is the caller's word.
            return check(unsafe { fi_send(ep, start.cast(), len, desc, to, context) });
        }
        let (segment, mut desc) = (segment(start, len), desc);
        let msg = message(&segment, &mut desc, to, context);
        // SAFETY: an open endpoint, a message whose arrays live until the call returns; the rest is
        // the caller's word.
        check(unsafe { fi_sendmsg(ep, &raw const msg, FI_COMPLETION | FI_MORE) })
    }

    /// Reads from the peer's registered memory.
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
        // SAFETY: an open endpoint with remote memory; the rest is the caller's word.
        check(unsafe { fi_read(ep, start.cast(), len, desc, from, remote, key, context) })
    }

    /// `efa` only: reads are not the card's, or it does not say.
    pub fn emulates_reads(&self) -> bool {
        let (mut emulated, mut len) = (1u8, 1);
        // SAFETY: an open endpoint, and a value of the type that this option has.
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

    /// A provider may have allocated no more of an endpoint than it was asked for.
    fn needs(&self, capability: u64) -> Result<(), i32> {
        if self.parts.caps & capability == 0 {
            return Err(FI_ENOSYS);
        }
        Ok(())
    }
}

impl EpParts {
    /// The endpoint as every object.
    pub(super) fn fid(&self) -> *mut fid {
        self.raw.cast()
    }

    fn close(&mut self) -> Result<(), i32> {
        let Some(handle) = self.handle.take() else {
            return Ok(());
        };
        // Registrations that would not be closed may be bound to it.
        self.domain.retry_stuck();
        self.calm();
        let result = self.domain.close(handle);
        if let Some(queue) = self.queue.take() {
            // If the endpoint fails to close, so does this; it is retried after the endpoint.
            let closed = self.domain.close(queue.into_handle());
            return result.and(closed);
        }
        result
    }

    /// Takes out what its queue holds: 1.17's `ofi_rxm` handles messages that it finds there, its own of a
    /// connection just made among them, with connections that closing the endpoint has just freed.
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

/// Chooses the port in the socket address of an info of our own; other addresses have none.
fn set_port(info: Info<'_>, port: u16) {
    let family = info.src_addr().first_chunk().copied();
    let family = family.map(u16::from_ne_bytes).map(i32::from);
    if !matches!(family, Some(libc::AF_INET | libc::AF_INET6)) || info.src_addr().len() < 4 {
        return;
    }
    // SAFETY: an entry of a list of ours.
    let start = unsafe { (*info.as_ptr()).src_addr }.cast::<u8>();
    // SAFETY: an address of at least four bytes, whose third and fourth these are.
    unsafe { start.add(2).cast::<[u8; 2]>().write(port.to_be_bytes()) };
}

/// Bytes as one segment; the caller knows whether it may be written to.
pub(super) fn segment(start: *const u8, len: usize) -> iovec {
    iovec {
        iov_base: start.cast_mut().cast(),
        iov_len: len,
    }
}

/// A message of one segment. It points to both, and is good as long as they are.
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

/// The address of an endpoint.
fn name(handle: &Handle<fid_ep>) -> Result<Vec<u8>, i32> {
    let mut address = vec![0; ADDRESS_USUAL];
    for _ in 0..2 {
        let mut len = address.len();
        // SAFETY: an open endpoint, and room for `len` bytes.
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

/// Reads of the queue before its endpoint is closed, and events of each.
const CALM_READS: usize = 64;

/// `FI_OPT_EFA_EMULATED_READ` of later releases' `fi_ext.h`.
const FI_OPT_EFA_EMULATED_READ: c_int = -(0xefa << 16) + 1;

/// Enough for every fabric's addresses but the file names of `shm`.
const ADDRESS_USUAL: usize = 256;

/// No fabric's addresses are longer by far.
const ADDRESS_MOST: usize = 4096;
