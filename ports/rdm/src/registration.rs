//! Registrations for local use, some of which are cached.
//!
//! ```text
//!   lease(start, len)
//!     in a Region (memalloc)   --> cached: registered once, together with the Region's Arc
//!     any other memory         --> registered for this lease only
//!   give_back(lease)           --> kept for the next lease, or closed
//!   tidy                       --> closes cached registrations of released regions
//! ```
//!
//! Registering costs microseconds to milliseconds, so caching is worthwhile. But a registration refers to pages, not
//! addresses: when memory is unmapped and other memory mapped there, a cached registration still refers to the old
//! pages, and data written by the card is lost silently. Some libraries hook `munmap` and similar calls to drop
//! registrations in time, but no set of hooks is complete (a static `mmap`, a `brk` of the allocator, `mremap`, another
//! library's hooks). So only registrations of `memalloc`ed memory are cached, which stays mapped while its [`Region`]
//! is referenced (see `regions`). Other memory is registered for one operation, during which its owner guarantees that
//! it stays mapped.
//!
//! Only registrations for this process's own operations are cached. Memory that a peer may read is registered for one
//! message, so that it cannot be read once the message is complete.
//!
//! Owns: the cached registrations.
//! Cost: a lease of cached memory is a search among at most [`KEPT_MAX`] entries.

use libc::c_void;
use libfabric_sys::abi::FI_READ;
use mx_port_fabric::regions::{self, Region};
use mx_port_fabric::{Domain, Ep, FabricError, Mr, memlock_limit};
use slab::Slab;
use std::sync::Arc;

/// Registrations of memory that our operations write to.
pub(super) struct Registrations {
    kept: Slab<CachedRegistration>,
    /// Registrations that failed to close; retried by [`Self::tidy`].
    stuck: Vec<(Mr, Arc<Region>)>,
    /// Total length of the cached registrations, in bytes.
    bytes: usize,
    limit: usize,
    /// Number of leases so far.
    turn: u64,
    /// Value of [`regions::released`] at the last check.
    seen: u64,
    complained: bool,
}

struct CachedRegistration {
    /// First field, so that it closes before the memory is freed; `None` once revoked.
    mr: Option<Mr>,
    /// Keeps the memory mapped.
    region: Arc<Region>,
    leases: usize,
    /// Value of `turn` at the last lease.
    used: u64,
}

/// Lease of registered memory.
#[derive(Debug)]
pub(super) enum Lease {
    /// A registration for this lease only.
    Own(Mr),
    /// A cached registration, by number.
    Kept(usize),
}

impl Registrations {
    pub(super) fn new() -> Self {
        Self::with_limit(bytes_max(memlock_limit()))
    }

    fn with_limit(limit: usize) -> Self {
        Self {
            kept: Slab::new(),
            stuck: Vec::new(),
            bytes: 0,
            limit,
            turn: 0,
            seen: regions::released(),
            complained: false,
        }
    }

    /// Registers `len` bytes at `start`, to be written by operations of ours.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped until the lease is given back.
    pub(super) unsafe fn lease(
        &mut self,
        domain: &Domain,
        ep: &Ep,
        start: *mut u8,
        len: usize,
    ) -> Result<Lease, FabricError> {
        self.turn += 1;
        if let Some(region) = regions::find(start, len)
            && let Some(number) = self.keep(domain, ep, region)
        {
            return Ok(Lease::Kept(number));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.register(domain, ep, start, len, FI_READ) }.map(Lease::Own)
    }

    /// Returns the provider's descriptor of the memory.
    pub(super) fn desc(&self, lease: &Lease) -> *mut c_void {
        match lease {
            Lease::Own(mr) => mr.desc(),
            Lease::Kept(number) => self
                .kept
                .get(*number)
                .and_then(|kept| kept.mr.as_ref())
                .map_or(std::ptr::null_mut(), Mr::desc),
        }
    }

    /// Ends a lease; the provider must have no operation on the memory. Fails with a registration that could not be
    /// closed.
    pub(super) fn give_back(&mut self, lease: Lease) -> Result<(), (Mr, i32)> {
        match lease {
            Lease::Own(mr) => mr.close(),
            Lease::Kept(number) => {
                if let Some(kept) = self.kept.get_mut(number) {
                    kept.leases -= 1;
                    if kept.leases == 0 && kept.mr.is_none() {
                        self.forget(number);
                    }
                }
                Ok(())
            }
        }
    }

    /// Closes the registration of a lease although operations use it: the provider denies them access from here on.
    /// Fails with a registration that could not be closed.
    pub(super) fn revoke(&mut self, lease: Lease) -> Result<(), (Mr, i32)> {
        let kept = match &lease {
            Lease::Own(_) => None,
            Lease::Kept(number) => self.kept.get_mut(*number),
        };
        match kept.and_then(|kept| kept.mr.take()) {
            Some(mr) => {
                let closed = mr.close();
                // The lease has no registration left, so returning it cannot fail.
                self.give_back(lease).and(closed)
            }
            None => self.give_back(lease),
        }
    }

    /// Closes cached registrations of freed memory. Only compares a counter if no memory was freed.
    pub(super) fn tidy(&mut self) {
        for (mr, region) in std::mem::take(&mut self.stuck) {
            if let Err((mr, _)) = mr.close() {
                self.stuck.push((mr, region));
            }
        }
        let released = regions::released();
        if released == self.seen {
            return;
        }
        self.seen = released;
        let tombstones: Vec<usize> = self
            .kept
            .iter()
            .filter(|(_, kept)| kept.leases == 0 && Arc::strong_count(&kept.region) == 1)
            .map(|(number, _)| number)
            .collect();
        for number in tombstones {
            self.forget(number);
        }
        // A later call finds leased ones.
        if self
            .kept
            .iter()
            .any(|(_, kept)| Arc::strong_count(&kept.region) == 1)
        {
            self.seen = self.seen.wrapping_sub(1);
        }
    }

    /// Registers memory for one purpose; closes cached registrations if resources are short.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped until the registration is closed.
    pub(super) unsafe fn register(
        &mut self,
        domain: &Domain,
        ep: &Ep,
        start: *mut u8,
        len: usize,
        access: u64,
    ) -> Result<Mr, FabricError> {
        loop {
            // SAFETY: guaranteed by the caller.
            match unsafe { domain.register(start, len, access, Some(ep)) } {
                Ok(mr) => return Ok(mr),
                Err(error) if is_shortage(error.code) && self.drop_oldest() => {}
                Err(error) => {
                    self.complain(len, &error);
                    return Err(error);
                }
            }
        }
    }

    /// Returns the number of the region's cached registration, registering it if new; `None` if it cannot be cached.
    fn keep(&mut self, domain: &Domain, ep: &Ep, region: Arc<Region>) -> Option<usize> {
        let known = self
            .kept
            .iter()
            .find(|(_, kept)| kept.mr.is_some() && Arc::ptr_eq(&kept.region, &region))
            .map(|(number, _)| number);
        if let Some(number) = known {
            let kept = &mut self.kept[number];
            kept.leases += 1;
            kept.used = self.turn;
            return Some(number);
        }
        let len = region.len();
        if len > self.limit {
            return None;
        }
        while self.bytes + len > self.limit || self.kept.len() >= KEPT_MAX {
            if !self.drop_oldest() {
                return None;
            }
        }
        // SAFETY: the region is held until the registration has been closed.
        let mr = unsafe { self.register(domain, ep, region.start(), len, FI_READ) };
        self.bytes += len;
        Some(self.kept.insert(CachedRegistration {
            region,
            mr: Some(mr.inspect_err(|_| self.bytes -= len).ok()?),
            leases: 1,
            used: self.turn,
        }))
    }

    /// Closes the least recently leased registration. Returns false if all are leased.
    fn drop_oldest(&mut self) -> bool {
        let oldest = self
            .kept
            .iter()
            .filter(|(_, kept)| kept.leases == 0)
            .min_by_key(|(_, kept)| kept.used)
            .map(|(number, _)| number);
        if let Some(number) = oldest {
            self.forget(number);
        }
        oldest.is_some()
    }

    fn forget(&mut self, number: usize) {
        let CachedRegistration { region, mr, .. } = self.kept.remove(number);
        self.bytes -= region.len();
        if let Some(Err((mr, code))) = mr.map(Mr::close) {
            // The pages stay mapped while they are registered, so closing can be retried later.
            log::debug!("rdm: a kept registration is not closed yet (error {code})");
            self.stuck.push((mr, region));
        }
    }

    fn complain(&mut self, len: usize, error: &FabricError) {
        if self.complained {
            return;
        }
        self.complained = true;
        let limit = match memlock_limit() {
            None => "unlimited".to_owned(),
            Some(bytes) => format!("{} KiB", bytes / 1024),
        };
        log::warn!(
            "rdm: {len} bytes cannot be registered: {error}; such messages are copied. The limit \
             of locked memory (RLIMIT_MEMLOCK) is {limit}: raise it with `ulimit -l` or \
             LimitMEMLOCK= if needed"
        );
    }
}

/// Returns true if closing registrations might help.
fn is_shortage(code: i32) -> bool {
    matches!(
        code,
        libc::ENOMEM | libc::EAGAIN | libc::ENOSPC | libc::ENOBUFS | libc::EPERM
    )
}

/// Returns the maximum bytes to cache: half of the lockable memory, leaving the other half to registrations of single
/// operations, and at most a gigabyte.
fn bytes_max(memlock: Option<u64>) -> usize {
    let half = memlock.map_or(u64::MAX, |bytes| bytes / 2);
    usize::try_from(half).unwrap_or(usize::MAX).min(1 << 30)
}

/// Maximum number of cached registrations: the search is linear.
const KEPT_MAX: usize = 256;
