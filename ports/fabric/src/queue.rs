//! Completion queues.
//!
//! ```text
//!   fi_cq_read    n           n x Ok  
//!                 -EAGAIN     nothing
//!                 -EAVAIL --> fi_cq_readerr --> Err,    until there is none
//!                 other       the queue is broken
//! ```
//!
//! The shared endpoint uses the domain's queue; others have one of their own.
//!
//! Owns: the distinction of completions, errors and a broken queue.

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

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqEvent {
    /// The operation's context.
    pub context: *mut c_void,
    /// Flags: the kind, and `FI_MULTI_RECV` when the buffer is given back.
    pub flags: u64,
    /// The result, or an error: `FI_E*`, positive.
    pub outcome: Result<Done, i32>,
}

/// An operation that was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// The address of the message in a multi-receive buffer; null with [`Entries::Plain`].
    pub buf: *mut c_void,
    /// Bytes received, the prefix counted; means nothing for sends.
    pub len: usize,
}

// SAFETY: the pointers are names here: of an operation, and of a place in a buffer. What they name
// is looked up in tables of the port, which only one thread at a time has.
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
    /// `None` where it has no descriptor.
    wait_fd: Cell<Option<RawFd>>,
    /// Calls in a row that announced a failed operation and then had none.
    empty_errors: Cell<u32>,
}

impl Queue {
    /// Opens a queue, with a descriptor if that is wished for and the provider has one that works.
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
        // Some providers open such a queue and report only afterwards that it has no descriptor.
        if terms.wait == Wait::Fd
            && let Ok(handle) = open_with(domain, FI_WAIT_FD, entries, format)
        {
            match wait_fd(&handle) {
                Ok(fd) if try_wait(fabric, &handle).is_ok() => return Ok(new(handle, Some(fd))),
                // `usnic` has a descriptor once an endpoint is bound.
                Err(FI_EOPBADSTATE) => return Ok(new(handle, None)),
                _ => (),
            }
        }
        open_with(domain, FI_WAIT_NONE, entries, format)
            .or_else(|_| open_with(domain, FI_WAIT_UNSPEC, entries, format))
            .map(|handle| new(handle, None))
    }

    /// An endpoint has been bound and enabled: only now some providers know the descriptor.
    pub(super) fn bound(&self, fabric: &Handle<fid_fabric>) {
        if self.wait_fd.get().is_none()
            && let Ok(fd) = wait_fd(&self.handle)
            && try_wait(fabric, &self.handle).is_ok()
        {
            self.wait_fd.set(Some(fd));
        }
    }

    /// The queue as every object.
    pub(super) fn fid(&self) -> *mut fid {
        self.handle.fid()
    }

    /// To be closed.
    pub(super) fn into_handle(self) -> Handle<fid_cq> {
        self.handle
    }

    /// The descriptor that becomes readable when there may be events.
    pub(super) fn wait_fd(&self) -> Option<RawFd> {
        self.wait_fd.get()
    }

    /// Whether one may sleep on the descriptor now.
    pub(super) fn may_sleep(&self, fabric: &Handle<fid_fabric>, library: &Library) -> bool {
        if self.wait_fd.get().is_none() {
            return false;
        }
        match try_wait(fabric, &self.handle) {
            Ok(may) => may,
            Err(code) => {
                // It worked when the queue was opened. A sleep now might never end.
                let text = library.strerror(code);
                log::warn!("fabric: fi_trywait fails ({text}): polling from now on");
                self.wait_fd.set(None);
                false
            }
        }
    }

    /// Appends up to `max` events to `out`, and says how many. An error means that the queue is
    /// broken, and with it what uses it.
    pub(super) fn read(
        &self,
        library: &Library,
        out: &mut impl Extend<CqEvent>,
        max: usize,
    ) -> Result<usize, FabricError> {
        // Entries of a shorter format lie closer together in it.
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
                    // Earlier completions are kept; the error recurs at the next read.
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
                    // SAFETY: the queue has written this many of this format, which is a part of
                    // the one there is room for, and as aligned.
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

    /// Appends the failed operation that was announced, if there is one after all.
    fn read_failed(
        &self,
        library: &Library,
        out: &mut impl Extend<CqEvent>,
    ) -> Result<bool, FabricError> {
        let cq = self.handle.as_ptr();
        // No room for `err_data`: the provider then points to its own, valid until the next call.
        let mut entry = fi_cq_err_entry::EMPTY;
        // SAFETY: an open queue, and an entry as long as the newest.
        let result = unsafe { fi_cq_readerr(cq, &raw mut entry, 0) };
        if result != 1 {
            let missed = self.empty_errors.get() + 1;
            self.empty_errors.set(missed);
            return match positive(result) {
                // Another reader cannot have taken it: there is none. A few of these are a race
                // inside the provider, many are a queue that does not work.
                0 | FI_EAGAIN | FI_EINTR if missed < EMPTY_ERRORS => Ok(false),
                0 | FI_EAGAIN | FI_EINTR => {
                    Err(FabricError::new(library, "fi_cq_readerr", FI_EAVAIL))
                }
                code => Err(FabricError::new(library, "fi_cq_readerr", code)),
            };
        }
        self.empty_errors.set(0);
        // The manual says positive; some providers negate it, or report 0.
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

    /// The provider's words for a failed operation, right after it was read.
    fn provider_words(&self, entry: &fi_cq_err_entry) -> String {
        let mut buffer = [0 as c_char; 256];
        // SAFETY: an open queue, the entry's own `err_data`, and a buffer of this length.
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
        // SAFETY: a C string: in `buffer`, whose last byte is left 0, or the provider's own.
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
    // As many as the card has, if those are fewer; else the provider's default.
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
    // SAFETY: an open queue, and an output of the type that `FI_WAIT_FD` has.
    let result = unsafe { fi_getwait(cq.fid(), &raw mut fd) };
    check(result as isize)?;
    if fd < 0 { Err(FI_EOTHER) } else { Ok(fd) }
}

/// Whether one may sleep on the queue's descriptor.
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

/// Entries of the shared endpoint's queue: as many as it can have outstanding, twice.
pub(super) fn entries(terms: &OpenParams) -> usize {
    (terms.tx_depth.saturating_add(terms.rx_depth))
        .saturating_mul(2)
        .clamp(ENTRIES_MIN, ENTRIES_MAX)
}

/// Events taken out at once: 3 KiB of stack.
const BATCH: usize = 64;

/// Entries of the shared endpoint's queue at least; queues that grow do not need more.
const ENTRIES_MIN: usize = 4096;

/// Entries below which a provider's own number is better.
const ENTRIES_LEAST: usize = 256;

/// Entries at most, whatever depth the provider claims: 3 MiB.
const ENTRIES_MAX: usize = 65536;

/// Announced failures that turn out to be none, in a row, before the queue counts as broken.
const EMPTY_ERRORS: u32 = 1000;
