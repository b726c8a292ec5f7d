//! Registrations of memory.
//!
//! ```text
//!   fi_mr_reg --> Region { span, access, key, desc }     bind, enable with FI_MR_ENDPOINT
//!                    |                    |
//!      remote access by key        local access by desc, with FI_MR_LOCAL
//! ```
//!
//! Owns: regions, keys, the check that a region covers an access.
//! Out of scope: operations.

use std::ffi::c_void;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::checker::{Span, total};
use crate::objects::{Id, code, enter, identify};
use crate::state::State;

#[derive(Clone)]
pub(crate) struct Region {
    pub(crate) domain: Id,
    pub(crate) span: Span,
    pub(crate) access: u64,
    pub(crate) key: u64,
    pub(crate) desc: usize,
    pub(crate) ep: Option<Id>,
    pub(crate) enabled: bool,
}

/// Descriptors are not addresses, so that dereferencing one crashes at once.
const DESC_BASE: usize = 0xfade_0000_0000_0000;

/// Reason of a denied access: its error, and whether it is a violation.
pub(crate) struct Denied {
    pub(crate) error: c_int,
    pub(crate) wrong: Option<String>,
}

impl State {
    /// Checks that local memory may be used in this way; only with `FI_MR_LOCAL`.
    pub(crate) fn local_access(
        &self,
        ep: Id,
        span: Span,
        desc: usize,
        access: u64,
    ) -> Result<(), String> {
        let domain = self.endpoints[&ep].domain;
        let mr_mode = self.domains[&domain].mr_mode;
        if mr_mode & FI_MR_LOCAL == 0 || span.len == 0 {
            return Ok(());
        }
        let found = self.valid().find(|region| region.desc == desc);
        let Some(region) = found.filter(|region| region.domain == domain) else {
            return Err(format!("memory without registration (desc {desc:#x})"));
        };
        if !region.enabled {
            return Err("memory whose registration is not enabled".to_owned());
        }
        if mr_mode & FI_MR_ENDPOINT != 0 && region.ep != Some(ep) {
            return Err("memory registered for another endpoint".to_owned());
        }
        if !region.span.holds(span) {
            return Err("memory not covered by its registration".to_owned());
        }
        if region.access & access != access {
            let (has, needs) = (region.access, access);
            return Err(format!(
                "memory registered for {has:#x}, not for {needs:#x}"
            ));
        }
        Ok(())
    }

    /// Returns the target's memory at an address and a key.
    pub(crate) fn remote_access(
        &self,
        target: Id,
        addr: u64,
        len: usize,
        key: u64,
        access: u64,
    ) -> Result<Span, Denied> {
        let denied = |error, text: &str| Denied {
            error,
            wrong: Some(format!(
                "remote access {text} (address {addr:#x}, {len} bytes)"
            )),
        };
        let domain = self.endpoints[&target].domain;
        let record = &self.domains[&domain];
        let keyed = |region: &&Region| region.domain == domain && region.key == key;
        let Some(region) = self.valid().find(keyed) else {
            let late = record.closed_keys.contains(&key);
            let wrong = (!late).then(|| format!("remote access with unknown key {key:#x}"));
            return Err(Denied {
                error: FI_EACCES,
                wrong,
            });
        };
        if !region.enabled {
            return Err(denied(FI_EACCES, "to a registration that is not enabled"));
        }
        if record.mr_mode & FI_MR_ENDPOINT != 0 && region.ep != Some(target) {
            return Err(denied(FI_EACCES, "through an endpoint it is not bound to"));
        }
        if region.access & access != access {
            return Err(denied(FI_EACCES, "that the registration does not allow"));
        }
        let base = if record.mr_mode & FI_MR_VIRT_ADDR != 0 {
            region.span.start as u64
        } else {
            0
        };
        let offset = addr
            .checked_sub(base)
            .and_then(|offset| usize::try_from(offset).ok());
        let inside = offset.filter(|offset| {
            offset
                .checked_add(len)
                .is_some_and(|end| end <= region.span.len)
        });
        match inside {
            Some(offset) => Ok(Span::new(region.span.start + offset, len)),
            None => Err(denied(FI_EINVAL, "outside the registration")),
        }
    }

    /// Returns the key of a new registration.
    fn new_key(&mut self, domain: Id, requested: u64) -> Result<u64, isize> {
        let record = &self.domains[&domain];
        let largest = u64::MAX >> (64 - 8 * record.shape.key_bytes.min(8));
        let used = |state: &Self, key: u64| {
            let mut regions = state.regions.values();
            regions.any(|region| region.domain == domain && region.key == key)
        };
        if record.mr_mode & FI_MR_PROV_KEY != 0 {
            loop {
                let key = self.rng.bits() & largest;
                let late = self.domains[&domain].closed_keys.contains(&key);
                if !used(self, key) && !late && key != largest {
                    return Ok(key);
                }
            }
        }
        if requested > largest {
            return Err(self.violated(
                FI_EKEYREJECTED,
                format!("fi_mr_reg with key {requested:#x}, too large"),
            ));
        }
        if used(self, requested) {
            return Err(self.violated(
                FI_ENOKEY,
                format!("fi_mr_reg with key {requested:#x}, which is in use"),
            ));
        }
        Ok(requested)
    }

    /// Returns true if the machine cannot register that much more.
    fn no_room(&mut self, domain: Id, len: usize) -> bool {
        let machine = |domain: Id| self.domains[&domain].machine;
        let here = |region: &&Region| machine(region.domain) == machine(domain);
        let mut spans: Vec<Span> = self.regions.values().filter(here).map(|r| r.span).collect();
        spans.push(Span::new(0, len));
        let (count, bytes) = (spans.len(), total(&spans));
        self.faults.register_limit.is_some_and(|most| count > most)
            || self.faults.register_bytes.is_some_and(|most| bytes > most)
            || self.rng.chance(self.faults.register)
    }

    fn register(
        &mut self,
        domain: Id,
        span: Span,
        access: u64,
        requested: u64,
        context: *mut c_void,
    ) -> Result<*mut fid_mr, isize> {
        if span.len == 0 || span.start == 0 || span.start.checked_add(span.len).is_none() {
            return Err(self.violated(
                FI_EINVAL,
                format!("fi_mr_reg of {} bytes at {:#x}", span.len, span.start),
            ));
        }
        let known = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        if access & !known != 0 || access == 0 {
            return Err(self.violated(FI_EINVAL, format!("fi_mr_reg for access {access:#x}")));
        }
        let mr_mode = self.domains[&domain].mr_mode;
        if mr_mode & FI_MR_ALLOCATED != 0 && !is_mapped(span) {
            return Err(self.violated(
                FI_EFAULT,
                format!("fi_mr_reg of {:#x}, where no memory is", span.start),
            ));
        }
        if self.no_room(domain, span.len) {
            self.stats.unregistered += 1;
            return Err(code(FI_ENOMEM));
        }
        let key = self.new_key(domain, requested)?;
        self.stats.registrations += 1;
        let (id, pointer) = self.opened(FI_CLASS_MR, Some(domain), context);
        let desc = DESC_BASE + 64 * id as usize;
        let enabled = mr_mode & FI_MR_ENDPOINT == 0;
        self.regions.insert(
            id,
            Region {
                domain,
                span,
                access,
                key,
                desc,
                ep: None,
                enabled,
            },
        );
        let mr = pointer.cast::<fid_mr>();
        // SAFETY: the body just made, not shared yet.
        unsafe { (*mr).mem_desc = desc as *mut c_void };
        // SAFETY: as above.
        unsafe { (*mr).key = key };
        Ok(mr)
    }
}

/// Returns true if the whole span is mapped.
fn is_mapped(span: Span) -> bool {
    // SAFETY: no precondition.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let start = span.start / page * page;
    let mut pages = vec![0u8; (span.end() - start).div_ceil(page)];
    // SAFETY: a multiple of the page size, and room for a byte a page; reads no memory.
    let result =
        unsafe { libc::mincore(start as *mut c_void, span.end() - start, pages.as_mut_ptr()) };
    result == 0
}

pub(crate) unsafe extern "C" fn reg(
    object: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    requested_key: u64,
    _flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let reg = |state: &mut State, id: Id| {
        let span = Span::new(buf as usize, len);
        match state.register(id, span, access, requested_key, context) {
            Ok(mr) => {
                // SAFETY: an output, by the call's contract.
                unsafe { out.write(mr) };
                0
            }
            Err(error) => error,
        }
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_DOMAIN, "fi_mr_reg", reg) as c_int }
}

pub(crate) unsafe extern "C" fn bind(object: *mut fid, other: *mut fid, _flags: u64) -> c_int {
    // SAFETY: an object of a fake, or null.
    let other = unsafe { identify(other.cast()) };
    let bind = |state: &mut State, id: Id| {
        let wanted = state.domain(id).mr_mode & FI_MR_ENDPOINT != 0;
        let ep = other.filter(|(other, class)| *class == FI_CLASS_EP && state.is_open(*other));
        let Some((ep, _)) = ep.filter(|_| wanted) else {
            return state.violated(
                FI_EINVAL,
                format!("fi_mr_bind of registration {id} to what it cannot be"),
            );
        };
        let domain = state.ep(ep).domain;
        let region = state.region(id);
        if region.ep.is_some() || region.enabled || domain != region.domain {
            return state.violated(
                FI_EINVAL,
                format!("fi_mr_bind of registration {id}, bound or enabled before"),
            );
        }
        region.ep = Some(ep);
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_MR, "fi_mr_bind", bind) as c_int }
}

pub(crate) unsafe extern "C" fn control(
    object: *mut fid,
    command: c_int,
    _arg: *mut c_void,
) -> c_int {
    let control = |state: &mut State, id: Id| {
        if command != FI_ENABLE {
            return code(FI_ENOSYS);
        }
        let region = state.region(id);
        if region.enabled || region.ep.is_none() {
            return state.violated(
                FI_EINVAL,
                format!("fi_mr_enable of registration {id}, not to be enabled now"),
            );
        }
        region.enabled = true;
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_MR, "fi_mr_enable", control) as c_int }
}

impl State {
    fn region(&mut self, id: Id) -> &mut Region {
        self.regions.get_mut(&id).expect("an open registration")
    }

    /// Ends a registration before it is removed; returns false if it stays.
    pub(crate) fn end_region(&mut self, id: Id) -> bool {
        let region = &self.regions[&id];
        let (desc, key, domain) = (region.desc, region.key, region.domain);
        let local = self.domains[&domain].mr_mode & FI_MR_LOCAL != 0;
        if local
            && !self.faults.revocable
            && let Some(ep) = self.user_of(desc)
        {
            self.violation(format!(
                "fi_close of registration {id} while an operation of endpoint {ep} uses it"
            ));
        }
        if self.rng.chance(self.faults.close_busy) {
            return false;
        }
        let cache = std::env::var_os("FI_MR_CACHE_MAX_COUNT").is_none_or(|count| count != "0");
        let domain = self.domains.get_mut(&domain).expect("a region's domain");
        domain.closed_keys.push(key);
        if domain.shape.mr_cache && cache {
            self.cached.push(self.regions[&id].clone());
        }
        true
    }

    /// Returns the registrations that make memory accessible: the open ones, and cached ones.
    pub(crate) fn valid(&self) -> impl Iterator<Item = &Region> {
        self.regions.values().chain(&self.cached)
    }

    fn user_of(&self, desc: usize) -> Option<Id> {
        let mut users = self.operations.values();
        users
            .find(|operation| operation.descs.contains(&desc))
            .map(|operation| operation.ep)
    }
}
