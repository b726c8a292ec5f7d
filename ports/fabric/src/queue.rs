//! Completion queues.
//!
//! ```text
//!   fi_cq_read    n           n x Ok
//!                 -EAGAIN     nothing
//!                 -EAVAIL --> fi_cq_readerr --> Err; repeated until none is left
//!                 other       the queue is broken
//! ```
//!
//! The shared endpoint uses the domain's queue; others have their own.
//!
//! Owns: telling completions, failed operations and a broken queue apart.

use super::{Entries, FabricError, Handle, OpenParams, Wait, check, opened, positive};
use libc::c_void;
use libfabric_sys::Library;
use libfabric_sys::abi::{
    FI_EAGAIN, FI_EAVAIL, FI_EINTR, FI_EINVAL, FI_ENOMEM, FI_EOPBADSTATE, FI_EOTHER, FI_EOVERRUN,
    FI_WAIT_FD, FI_WAIT_NONE, FI_WAIT_UNSPEC, fi_cq_attr, fi_cq_err_entry, fi_cq_msg_entry,
    fi_cq_tagged_entry, fi_wait_obj, fid, fid_cq, fid_domain, fid_fabric,
};
use libfabric_sys::calls::{
    fi_cq_open, fi_cq_read, fi_cq_readerr, fi_cq_strerror, fi_getwait, fi_trywait,
};
use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// Completion of an operation, successful or failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqEvent {
    /// Context pointer that was passed to the operation.
    pub context: *mut c_void,
    /// Kind of operation (`FI_SEND`, `FI_RECV`, `FI_READ` ...), and `FI_MULTI_RECV` if a multi-receive buffer belongs
    /// to the caller again.
    pub flags: u64,
    /// Result of the operation, or its error `FI_E*`, positive.
    pub outcome: Result<Done, i32>,
}

/// Result of a successful operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Address of the message in a multi-receive buffer; null with [`Entries::Plain`].
    pub buf: *mut c_void,
    /// Bytes received, prefix included; meaningless for sends.
    pub len: usize,
}

// SAFETY: the pointers are only identifiers, of an operation and of a location in a buffer. The port looks them up in
// tables that one thread at a time uses.
unsafe impl Send for CqEvent {}

impl CqEvent {
    fn tagged(entry: &fi_cq_tagged_entry) -> Self {
        let (buf, len) = (entry.buf, entry.len);
        Self {
            context: entry.op_context,
            flags: entry.flags,
            outcome: Ok(Done { buf, len }),
        }
    }

    fn plain(entry: &fi_cq_msg_entry) -> Self {
        let (buf, len) = (std::ptr::null_mut(), entry.len);
        Self {
            context: entry.op_context,
            flags: entry.flags,
            outcome: Ok(Done { buf, len }),
        }
    }
}

/// An open queue.
pub(super) struct Queue {
    handle: Handle<fid_cq>,
    format: Entries,
    /// `None` without a descriptor.
    wait_fd: Cell<Option<RawFd>>,
    /// Consecutive reads that announced a failed operation and had none.
    empty_errors: Cell<u32>,
}

impl Queue {
    /// Opens a queue, with a descriptor if `terms` request one and the provider has one that works.
    pub(super) fn open(
        fabric: &Handle<fid_fabric>,
        domain: &Handle<fid_domain>,
        entries: usize,
        terms: &OpenParams,
    ) -> Result<Self, i32> {
        let format = terms.entries;
        let new = |handle, wait_fd| Self {
            handle,
            format,
            wait_fd: Cell::new(wait_fd),
            empty_errors: Cell::new(0),
        };
        // Some providers open such a queue and report only later that it has no descriptor.
        if terms.wait == Wait::Fd
            && let Ok(handle) = open_with(domain, FI_WAIT_FD, entries, format)
        {
            match wait_fd(&handle) {
                Ok(fd) if try_wait(fabric, &handle).is_ok() => return Ok(new(handle, Some(fd))),
                // `usnic` has a descriptor only once an endpoint is bound.
                Err(FI_EOPBADSTATE) => return Ok(new(handle, None)),
                _ => (),
            }
        }
        open_with(domain, FI_WAIT_NONE, entries, format)
            .or_else(|_| open_with(domain, FI_WAIT_UNSPEC, entries, format))
            .map(|handle| new(handle, None))
    }

    /// Looks for a descriptor after an endpoint has been bound and enabled; some providers have none before.
    pub(super) fn bound(&self, fabric: &Handle<fid_fabric>) {
        if self.wait_fd.get().is_none()
            && let Ok(fd) = wait_fd(&self.handle)
            && try_wait(fabric, &self.handle).is_ok()
        {
            self.wait_fd.set(Some(fd));
        }
    }

    /// Returns the queue as libfabric's base type.
    pub(super) fn fid(&self) -> *mut fid {
        self.handle.fid()
    }

    /// Returns the handle, to be closed.
    pub(super) fn into_handle(self) -> Handle<fid_cq> {
        self.handle
    }

    /// Returns the descriptor that becomes readable when there may be events.
    pub(super) fn wait_fd(&self) -> Option<RawFd> {
        self.wait_fd.get()
    }

    /// Returns whether a thread may sleep on the descriptor now.
    pub(super) fn may_sleep(&self, fabric: &Handle<fid_fabric>, library: &Library) -> bool {
        if self.wait_fd.get().is_none() {
            return false;
        }
        match try_wait(fabric, &self.handle) {
            Ok(may) => may,
            Err(code) => {
                // The descriptor worked when the queue was opened. A sleep now might never end.
                let text = library.strerror(code);
                log::warn!("fabric: fi_trywait fails ({text}): polling from now on");
                self.wait_fd.set(None);
                false
            }
        }
    }

    /// Appends up to `max` events to `out` and returns their number. An error means that the queue and its users are
    /// broken.
    pub(super) fn read(
        &self,
        library: &Library,
        out: &mut impl Extend<CqEvent>,
        max: usize,
    ) -> Result<usize, FabricError> {
        // The buffer suits the longer of the two formats.
        let mut entries = [const { MaybeUninit::<fi_cq_tagged_entry>::uninit() }; BATCH];
        let mut taken = 0;
        while taken < max {
            let asked = BATCH.min(max - taken);
            let buffer = entries.as_mut_ptr().cast();
            // SAFETY: an open queue of this format, and room for as many entries.
            let result = unsafe { fi_cq_read(self.handle.as_ptr(), buffer, asked) };
            let count = match usize::try_from(result) {
                Ok(count) if count <= asked => count,
                // The provider wrote past the end of the buffer: memory is corrupted.
                Ok(_) => return Err(FabricError::new(library, "fi_cq_read", FI_EOVERRUN)),
                Err(_) => match positive(result) {
                    FI_EAGAIN | FI_EINTR => 0,
                    FI_EAVAIL => {
                        if self.read_failed(library, out)? {
                            taken += 1;
                            continue;
                        } else {
                            0
                        }
                    }
                    // Keep earlier completions; the error recurs at the next read.
                    _ if taken > 0 => 0,
                    code => return Err(FabricError::new(library, "fi_cq_read", code)),
                },
            };
            match self.format {
                Entries::Tagged => out.extend(entries[..count].iter().map(|entry| {
                    // SAFETY: the queue has written this many.
                    CqEvent::tagged(unsafe { entry.assume_init_ref() })
                })),
                Entries::Plain => {
                    let start = entries.as_ptr().cast::<fi_cq_msg_entry>();
                    // SAFETY: the queue has written this many entries of this format, which is a prefix of the longer
                    // one and equally aligned.
                    let plain = unsafe { std::slice::from_raw_parts(start, count) };
                    out.extend(plain.iter().map(CqEvent::plain));
                }
            }
            taken += count;
            if count < asked {
                break;
            }
        }
        Ok(taken)
    }

    /// Appends the announced failed operation. Returns false if there is none after all.
    fn read_failed(
        &self,
        library: &Library,
        out: &mut impl Extend<CqEvent>,
    ) -> Result<bool, FabricError> {
        let cq = self.handle.as_ptr();
        // `err_data` gets no buffer: the provider points it to its own, valid until the next call.
        let mut entry = fi_cq_err_entry::EMPTY;
        // SAFETY: an open queue, and an entry as long as the newest version's.
        let result = unsafe { fi_cq_readerr(cq, &raw mut entry, 0) };
        if result != 1 {
            let missed = self.empty_errors.get() + 1;
            self.empty_errors.set(missed);
            return match positive(result) {
                // No other thread reads this queue. A few misses are a race inside the provider; many mean a broken
                // queue.
                0 | FI_EAGAIN | FI_EINTR if missed < EMPTY_ERRORS => Ok(false),
                0 | FI_EAGAIN | FI_EINTR => {
                    Err(FabricError::new(library, "fi_cq_readerr", FI_EAVAIL))
                }
                code => Err(FabricError::new(library, "fi_cq_readerr", code)),
            };
        }
        self.empty_errors.set(0);
        // The manual says positive; some providers negate the code, or report 0.
        let errno = match entry.err.checked_abs() {
            None | Some(0) => FI_EOTHER,
            Some(errno) => errno,
        };
        if log::log_enabled!(log::Level::Debug) {
            let text = library.strerror(errno);
            let more = self.provider_words(&entry);
            log::debug!(
                "fabric: operation {:?} failed: {text} ({more})",
                entry.op_context
            );
        }
        out.extend([CqEvent {
            context: entry.op_context,
            flags: entry.flags,
            outcome: Err(errno),
        }]);
        Ok(true)
    }

    /// Returns the provider's text for a failed operation; call it right after the read.
    fn provider_words(&self, entry: &fi_cq_err_entry) -> String {
        let mut buffer = [0 as c_char; 256];
        // SAFETY: an open queue, the entry's `err_data`, and a buffer of this length.
        let words = unsafe {
            fi_cq_strerror(
                self.handle.as_ptr(),
                entry.prov_errno,
                entry.err_data,
                buffer.as_mut_ptr(),
                buffer.len() - 1,
            )
        };
        if words.is_null() {
            return format!("provider's error {}", entry.prov_errno);
        }
        // SAFETY: a C string: in `buffer`, whose last byte stays 0, or the provider's own.
        unsafe { CStr::from_ptr(words) }
            .to_string_lossy()
            .into_owned()
    }
}

fn open_with(
    domain: &Handle<fid_domain>,
    wait: fi_wait_obj,
    size: usize,
    format: Entries,
) -> Result<Handle<fid_cq>, i32> {
    let open = |size| {
        let mut attr = fi_cq_attr {
            size,
            format: format.number(),
            wait_obj: wait,
            ..fi_cq_attr::EMPTY
        };
        opened("completion queue", |out| {
            // SAFETY: an open domain, attributes for the time of the call, an output.
            unsafe { fi_cq_open(domain.as_ptr(), &raw mut attr, out, std::ptr::null_mut()) }
        })
    };
    // Halve the size down to the card's limit, else take the provider's default.
    let mut fewer = size;
    loop {
        match open(fewer) {
            Err(FI_EINVAL | FI_ENOMEM) if fewer / 2 >= ENTRIES_LEAST => fewer /= 2,
            Err(_) => return open(0),
            opened => return opened,
        }
    }
}

fn wait_fd(cq: &Handle<fid_cq>) -> Result<RawFd, i32> {
    let mut fd: RawFd = -1;
    // SAFETY: an open queue, and an output of the type for `FI_WAIT_FD`.
    let result = unsafe { fi_getwait(cq.fid(), &raw mut fd) };
    check(result as isize)?;
    if fd < 0 { Err(FI_EOTHER) } else { Ok(fd) }
}

/// Returns whether a thread may sleep on the queue's descriptor.
fn try_wait(fabric: &Handle<fid_fabric>, cq: &Handle<fid_cq>) -> Result<bool, i32> {
    let mut fids = [cq.fid()];
    // SAFETY: an open fabric, and an array of one object of it.
    let result = unsafe { fi_trywait(fabric.as_ptr(), fids.as_mut_ptr(), 1) };
    match check(result as isize) {
        Ok(()) => Ok(true),
        Err(FI_EAGAIN) => Ok(false),
        Err(code) => Err(code),
    }
}

/// Entries of the shared endpoint's queue: twice its maximum of outstanding operations.
pub(super) fn entries(terms: &OpenParams) -> usize {
    (terms.tx_depth.saturating_add(terms.rx_depth))
        .saturating_mul(2)
        .clamp(ENTRIES_MIN, ENTRIES_MAX)
}

/// Maximum number of events per call: 3 KiB of stack.
const BATCH: usize = 64;

/// Minimum size of the shared endpoint's queue, in entries; queues that grow need no more.
const ENTRIES_MIN: usize = 4096;

/// Entries below which the provider's default is better.
const ENTRIES_LEAST: usize = 256;

/// Maximum size of a queue in entries (3 MiB), whatever depth the provider claims.
const ENTRIES_MAX: usize = 65536;

/// Consecutive announced failures without a failed operation after which the queue counts as broken.
const EMPTY_ERRORS: u32 = 1000;
