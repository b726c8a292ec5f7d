//! libfabric objects that close automatically, in the right order.
//!
//! ```text
//!   Mr --> [Ep] -----------> Domain's parts           closed from left to right,
//!          main --------.    av, queue,               whatever is dropped first
//!          own, queue ---`-> domain, fabric
//!
//!   endpoint.rs          Ep: post, inject                    fid_ep
//!   region.rs            Mr: keys, descriptors               fid_mr
//!   queue.rs             completions and errors              fid_cq
//!   addresses.rs         address vector                      fid_av
//!   open_params.rs       parameters for opening and using them
//!   places.rs            networks of addresses
//!   devices.rs           IP addresses of devices
//!   offers.rs            queries for offers, and the best offer
//!   finding.rs, error.rs verdicts on providers, errors of opening
//!   endpoint_address.rs  wire format of addresses
//!   memory.rs            Buffers, Contexts: memory of our own
//!   regions.rs           memory allocated for messages, which stays registered
//! ```
//!
//! Used by `rdm`, whose links share one endpoint, and by `dgram`, which has two endpoints with a queue each.
//!
//! Owns: fabric, domain, completion queue and address vector; opening everything else from them.
//! Out of scope: frames, links.
//!
//! Domains are opened for `FI_THREAD_DOMAIN`: one thread at a time uses all objects of a domain, which the port
//! guarantees by its lock. All values from a provider (counts, lengths, error codes of either sign) are checked here,
//! and failures to close are logged.

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

/// Open domain of a provider, with its fabric and an address vector. Has a completion queue if its main endpoint, which
/// all links share, uses the domain's queue. Stays open while endpoints or registrations of it exist.
pub struct Domain {
    parts: Rc<Parts>,
    terms: OpenParams,
    /// Next key to request, where we choose the keys.
    next_key: Cell<u64>,
}

/// Objects that endpoints and registrations keep open. They close in the order of the fields.
struct Parts {
    av: Handle<fid_av>,
    /// Queue of the shared endpoint; `None` without one.
    queue: Option<Queue>,
    domain: Handle<fid_domain>,
    fabric: Handle<fid_fabric>,
    /// Single entry with which all objects were opened.
    info: InfoList,
    library: Arc<Library>,
    /// Handles that failed to close; retried before the rest closes.
    stuck: RefCell<Vec<Handle<fid>>>,
}

// SAFETY: libfabric's objects belong to no thread, and one thread at a time uses all objects of a domain (see the
// module), including the counts of `Rc`.
unsafe impl Send for Domain {}

impl Domain {
    /// Opens a fabric, a domain, an address vector and, if `terms` want it, the shared queue, all for the first entry
    /// of `offers`. The error names the call that failed.
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

    /// Returns the parameters of the open domain; [`OpenParams::wait`] says how the shared queue can really be waited
    /// for.
    pub fn params(&self) -> &OpenParams {
        &self.terms
    }

    /// Appends up to `max` completion events, failed operations included, from the domain's queue to `out`, and returns
    /// their number; 0 if the domain has no queue.
    ///
    /// An error means that the queue is broken: close the domain and all that was opened from it.
    pub fn read(&self, out: &mut impl Extend<CqEvent>, max: usize) -> Result<usize, FabricError> {
        match &self.parts.queue {
            Some(queue) => queue.read(&self.parts.library, out, max),
            None => Ok(0),
        }
    }

    /// Returns the shared queue's descriptor, which becomes readable when there may be events; `None` if there is none
    /// or it has failed. Closed with the domain.
    pub fn wait_fd(&self) -> Option<RawFd> {
        self.parts.queue.as_ref()?.wait_fd()
    }

    /// Returns whether a thread may sleep on [`Domain::wait_fd`] now (`fi_trywait`). If not, there are events to read
    /// first, or no descriptor.
    pub fn may_sleep(&self) -> bool {
        let parts = &self.parts;
        let queue = parts.queue.as_ref();
        queue.is_some_and(|queue| queue.may_sleep(&parts.fabric, &parts.library))
    }

    /// Creates the error of the failed call `what`, with libfabric's text for `code` (`FI_E*`, positive).
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

/// Open libfabric object of any type.
struct Handle<T> {
    what: &'static str,
    raw: NonNull<T>,
}

/// Objects that contain others. Ours have closed before them, so only the provider's own objects can keep them open.
/// They are closed once and not retried: `ofi_rxm` 1.17 has already freed part of its domain when it finds that it
/// cannot close it.
const DOMAIN: &str = "domain";
const FABRIC: &str = "fabric";

impl<T> Handle<T> {
    fn new(what: &'static str, raw: NonNull<T>) -> Self {
        Self { what, raw }
    }

    fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// Returns the `fid` with which every object begins.
    fn fid(&self) -> *mut fid {
        self.raw.as_ptr().cast()
    }

    /// Closes the object, or returns it with the error.
    fn close(self) -> Result<(), (Self, i32)> {
        // Dropping it too would close the object twice.
        let this = ManuallyDrop::new(self);
        // SAFETY: an open object, not used again on success.
        let result = check(unsafe { fi_close(this.fid()) } as isize);
        result.map_err(|code| (Self::new(this.what, this.raw), code))
    }

    /// Returns the object as libfabric's base type.
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

/// Logs that a provider keeps a domain or fabric open; once only, because the user cannot change it.
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
    /// Closes an endpoint, queue or registration; keeps it for later on failure.
    fn close<T>(&self, handle: Handle<T>) -> Result<(), i32> {
        handle.close().map_err(|(handle, code)| {
            self.stuck.borrow_mut().push(handle.plain());
            code
        })
    }

    /// Retries the handles that failed to close, in order.
    fn retry_stuck(&self) {
        for handle in self.stuck.take() {
            // `close` queues a handle that fails again.
            let _ = self.close(handle);
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // All endpoints that kept registrations busy have closed. Others may stay busy until the provider has processed
        // arrivals.
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

/// Time for which closing is retried before the domain closes anyway. Recovery and callers wait for it.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum number of events per read during the retries.
const LAST_EVENTS: usize = 64;

/// Returns the handle that `open` writes to its argument.
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

/// Converts the result of a call: 0, or an error of either sign.
fn check(result: isize) -> Result<(), i32> {
    match result {
        0 => Ok(()),
        code => Err(positive(code)),
    }
}

/// Returns the positive error code of a result.
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
    // Later versions support only tables.
    let kind = if offered == FI_AV_MAP {
        FI_AV_MAP
    } else {
        FI_AV_TABLE
    };
    open(kind).or_else(|_| open(FI_AV_UNSPEC))
}

/// Local descriptor of a registration, passed with each operation on its memory; null without one.
pub type Desc = *mut c_void;

/// Failed call of libfabric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricError {
    /// Name of the call.
    pub what: &'static str,
    /// Error code `FI_E*`, positive.
    pub code: i32,
    /// libfabric's text for the code.
    pub text: String,
}

impl FabricError {
    /// Creates an error with the library's text for `code`.
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
