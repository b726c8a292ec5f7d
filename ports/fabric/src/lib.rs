//! Open libfabric objects, closed automatically in the right order.
//!
//! ```text
//!   Mr --> [Ep] -----------> Domain's parts           closed from left to right,
//!          main --------.    av, queue,               whatever is dropped first
//!          own, queue ---`-> domain, fabric
//!
//!   endpoint.rs   Ep: post, inject                    fid_ep
//!   region.rs     Mr: keys, descriptors               fid_mr
//!   queue.rs      completions and errors              fid_cq
//!   addresses.rs  peers                               fid_av
//!   terms.rs      parameters for opening and using them
//!   places.rs     their place on the network
//!   devices.rs    the addresses of devices
//!   offers.rs     asking for offers, and the best of them
//!   memory.rs     Buffers, Contexts: memory of our own
//!   regions.rs    memory that is allocated for messages, and stays registered
//! ```
//!
//! Used by `rdm`, whose links share one endpoint, and by `dgram`, which has two
//! endpoints with a queue each.
//!
//! Owns: fabric, domain, completion queue and address vector; opening everything else from them.
//! Out of scope: frames, links.
//!
//! Domains are opened for `FI_THREAD_DOMAIN`: one thread at a time in all the objects of a domain.
//! The port keeps all of them under its one lock. All values from a provider (counts, lengths,
//! error codes of either sign) are checked here, and a close that fails is logged.

mod addresses;
mod devices;
mod endpoint;
pub mod endpoint_address;
mod error;
mod finding;
mod memory;
pub mod offers;
mod open_params;
mod places;
mod queue;
mod region;
pub mod regions;

pub use addresses::is_address;
pub use devices::Devices;
pub use endpoint::{Ep, Role};
pub use error::{RdmError, memlock_limit};
pub use finding::{Finding, Offer, Paths, Verdict};
pub use memory::{Buffers, Contexts};
pub use open_params::Wait;
pub use open_params::{Entries, OpenParams, Prefix, modern_mr_mode};
pub use places::{AddressPlace, place, source};
pub use queue::{CqEvent, Done};
pub use region::{Mr, REGISTER};

pub use libfabric_sys::is_elevated;

use queue::Queue;

use libc::{c_int, c_void};
use libfabric_sys::abi::{
    FI_AV_MAP, FI_AV_TABLE, FI_AV_UNSPEC, FI_EINVAL, FI_EOTHER, fi_av_attr, fid, fid_av,
    fid_domain, fid_fabric,
};
use libfabric_sys::calls::{fi_av_open, fi_close, fi_domain};
use libfabric_sys::{InfoList, Library};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// A domain with a completion queue and an address vector.
pub struct Domain {
    parts: Rc<Parts>,
    terms: OpenParams,
    /// The next key to ask for, where keys are ours to choose.
    next_key: Cell<u64>,
}

/// Objects that endpoints and registrations keep open. The order of the members is the order in
/// which they are closed.
struct Parts {
    av: Handle<fid_av>,
    /// The queue of the shared endpoint, where there is one.
    queue: Option<Queue>,
    domain: Handle<fid_domain>,
    fabric: Handle<fid_fabric>,
    /// The info with which all of it was opened: one entry.
    info: InfoList,
    library: Arc<Library>,
    /// Handles that failed to close: tried again before the rest is closed.
    stuck: RefCell<Vec<Handle<fid>>>,
}

// SAFETY: libfabric's objects belong to no thread, and one thread at a time uses all objects of a
// domain: see the module's documentation. So too the counts of `Rc`.
unsafe impl Send for Domain {}

impl Domain {
    /// Opens the first offer of `offers` on these terms.
    pub fn open(
        library: Arc<Library>,
        offers: &InfoList,
        mut terms: OpenParams,
    ) -> Result<Self, FabricError> {
        let fail = |what, code| FabricError::new(&library, what, code);
        let first = offers.first();
        let first = first.ok_or_else(|| fail("fi_getinfo", FI_EINVAL))?;
        let info = offers.keep(first);
        let info = info.map_err(|code| fail("fi_dupinfo", code))?;
        let raw = info.first().ok_or_else(|| fail("fi_dupinfo", FI_EOTHER))?;

        let fabric = library.fabric(raw);
        let fabric = fabric.map_err(|code| fail("fi_fabric", code))?;
        let fabric = Handle::new(FABRIC, fabric);
        let domain = opened(DOMAIN, |out| {
            // SAFETY: an open fabric, an info of the same library, an output.
            unsafe { fi_domain(fabric.as_ptr(), raw.as_ptr(), out, std::ptr::null_mut()) }
        });
        let domain = domain.map_err(|code| fail("fi_domain", code))?;
        let queue = if terms.shared_queue {
            let queue = Queue::open(&fabric, &domain, queue::entries(&terms), &terms);
            let queue = queue.map_err(|code| fail("fi_cq_open", code))?;
            if queue.wait_fd().is_none() {
                terms.wait = Wait::Poll;
            }
            Some(queue)
        } else {
            None
        };
        let av = open_av(&domain, raw.av_type()).map_err(|code| fail("fi_av_open", code))?;
        Ok(Self {
            parts: Rc::new(Parts {
                av,
                queue,
                domain,
                fabric,
                info,
                library,
                stuck: RefCell::new(Vec::new()),
            }),
            terms,
            next_key: Cell::new(1),
        })
    }

    /// The terms with which it was opened; [`OpenParams::wait`] is that of the shared queue.
    pub fn params(&self) -> &OpenParams {
        &self.terms
    }

    /// Appends up to `max` events of the shared endpoint to `out`, and says how many. An error means
    /// that the queue is broken, and with it all that was opened from this domain.
    pub fn read(&self, out: &mut impl Extend<CqEvent>, max: usize) -> Result<usize, FabricError> {
        match &self.parts.queue {
            Some(queue) => queue.read(&self.parts.library, out, max),
            None => Ok(0),
        }
    }

    /// The descriptor that becomes readable when there may be events; `None` when there is none, or
    /// when it has stopped working.
    pub fn wait_fd(&self) -> Option<RawFd> {
        self.parts.queue.as_ref()?.wait_fd()
    }

    /// Whether one may sleep on [`Domain::wait_fd`] now. If not, there is something to read, or no
    /// descriptor.
    pub fn may_sleep(&self) -> bool {
        let parts = &self.parts;
        let queue = parts.queue.as_ref();
        queue.is_some_and(|queue| queue.may_sleep(&parts.fabric, &parts.library))
    }

    /// The error of `what`, in libfabric's words.
    pub fn error(&self, what: &'static str, code: i32) -> FabricError {
        FabricError::new(&self.parts.library, what, code)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("provider", &self.terms.provider)
            .field("wait_fd", &self.wait_fd())
            .finish_non_exhaustive()
    }
}

/// An open object of libfabric's, of any kind.
struct Handle<T> {
    what: &'static str,
    raw: NonNull<T>,
}

/// Objects that others live in. Those of ours have been closed before; what keeps them open then is
/// the provider's own. They are closed once and not tried again: 1.17's `ofi_rxm` has given back part
/// of its domain when it finds that it cannot close it.
const DOMAIN: &str = "domain";
const FABRIC: &str = "fabric";

impl<T> Handle<T> {
    fn new(what: &'static str, raw: NonNull<T>) -> Self {
        Self { what, raw }
    }

    fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// Every object begins with its `fid`.
    fn fid(&self) -> *mut fid {
        self.raw.as_ptr().cast()
    }

    /// Closes it, or gives it back with the error.
    fn close(self) -> Result<(), (Self, i32)> {
        // Not dropped unless this fails, to be closed only once.
        let this = ManuallyDrop::new(self);
        // SAFETY: an open object, not used again when this succeeds.
        let result = check(unsafe { fi_close(this.fid()) } as isize);
        result.map_err(|code| (Self::new(this.what, this.raw), code))
    }

    /// The object as one of no particular kind.
    fn plain(self) -> Handle<fid> {
        let this = ManuallyDrop::new(self);
        Handle::new(this.what, this.raw.cast())
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: an open object, and the last use of it.
        let result = check(unsafe { fi_close(self.fid()) } as isize);
        let Err(code) = result else { return };
        match self.what {
            what @ (DOMAIN | FABRIC) if code == libc::EBUSY => note_kept(what),
            what => log::warn!("fabric: the {what} cannot be closed (error {code})"),
        }
    }
}

/// A provider keeps a domain or a fabric. The user cannot change that, so it is said once.
fn note_kept(what: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        log::info!(
            "fabric: the {what} cannot be closed and stays until the process ends: the provider \
             still has objects open in it, such as registrations of interrupted large messages \
             (ofi_rxm of 1.17 does this)"
        );
    });
    log::debug!("fabric: the {what} cannot be closed: the provider keeps it");
}

impl Parts {
    /// Closes an endpoint, its queue or a registration; one that will not is kept for later.
    fn close<T>(&self, handle: Handle<T>) -> Result<(), i32> {
        handle.close().map_err(|(handle, code)| {
            self.stuck.borrow_mut().push(handle.plain());
            code
        })
    }

    /// Tries to close what would not be closed before, in that order.
    fn retry_stuck(&self) {
        for handle in self.stuck.take() {
            // A handle that fails again is queued again.
            let _ = self.close(handle);
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Endpoints that kept registrations busy are gone. What is still busy may be so until the
        // provider has processed arrivals.
        let until = Instant::now() + CLOSE_TIMEOUT;
        let mut events = Vec::new();
        self.retry_stuck();
        while !self.stuck.get_mut().is_empty() && Instant::now() < until {
            events.clear();
            if let Some(queue) = &self.queue {
                let _ = queue.read(&self.library, &mut events, LAST_EVENTS);
            }
            self.retry_stuck();
        }
        // The last attempt.
        drop(self.stuck.take());
    }
}

/// The time that a provider may refuse to close parts of a domain before the domain is closed all
/// the same. Recovery and callers wait for it.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Events taken from the queue at a time meanwhile.
const LAST_EVENTS: usize = 64;

/// The handle that `open` puts into its argument.
fn opened<T>(
    what: &'static str,
    open: impl FnOnce(*mut *mut T) -> c_int,
) -> Result<Handle<T>, i32> {
    let mut raw = std::ptr::null_mut();
    check(open(&raw mut raw) as isize)?;
    NonNull::new(raw)
        .map(|raw| Handle::new(what, raw))
        .ok_or(FI_EOTHER)
}

/// The result of a call: 0, or an error of either sign.
fn check(result: isize) -> Result<(), i32> {
    match result {
        0 => Ok(()),
        code => Err(positive(code)),
    }
}

/// The errno in what a call returned.
fn positive(code: isize) -> i32 {
    i32::try_from(code.unsigned_abs()).unwrap_or(FI_EOTHER)
}

fn open_av(domain: &Handle<fid_domain>, offered: u32) -> Result<Handle<fid_av>, i32> {
    let open = |kind| {
        let mut attr = fi_av_attr {
            r#type: kind,
            ..fi_av_attr::EMPTY
        };
        opened("address vector", |out| {
            // SAFETY: an open domain, attributes for the time of the call, an output.
            unsafe { fi_av_open(domain.as_ptr(), &raw mut attr, out, std::ptr::null_mut()) }
        })
    };
    // Later versions have tables only.
    let kind = if offered == FI_AV_MAP {
        FI_AV_MAP
    } else {
        FI_AV_TABLE
    };
    open(kind).or_else(|_| open(FI_AV_UNSPEC))
}

/// A `desc` argument: null where there is none to give.
pub type Desc = *mut c_void;

/// A call of libfabric's that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricError {
    /// The call.
    pub what: &'static str,
    /// `FI_E*`, positive.
    pub code: i32,
    /// libfabric's words for it.
    pub text: String,
}

impl FabricError {
    /// An error with the library's words for `code`.
    pub fn new(library: &Library, what: &'static str, code: i32) -> Self {
        let text = library.strerror(code);
        Self { what, code, text }
    }
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.what, self.text, self.code)
    }
}

impl std::error::Error for FabricError {}
