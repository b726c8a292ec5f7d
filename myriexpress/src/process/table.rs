//! The table of endpoints, by handle.
//!
//! ```text
//!   PLACES  [ EndpointPlace | EndpointPlace | - | - ... ]     made on first use, never freed
//!              |
//!              +-- Shared<HostSlot>, context ids
//!   TAKEN   places with an endpoint, or reserved for one
//! ```
//!
//! A child of fork inherits its parent's places: a call that needs the network first reopens the ports.
//!
//! Owns: the places.
//! Cost: one load to find a place, one to check that it belongs to this process.

use super::machine::{HostEngine, HostSlot, engine, no_endpoint, not_open, opened};
use crate::engine::{COMPLETIONS, ContextIds};
use crate::error::{Code, Error};
use crate::handles::{EndpointHandle, RequestHandle, SLOTS_MAX};
use mx_sys::fork::ForkLock;
use mx_sys::slot::{Open, SlotError};
use mx_sys::{Interest, Shared, Tuning};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A place for an endpoint.
pub(super) struct EndpointPlace {
    pub(super) shared: Arc<Shared<HostSlot>>,
    /// Context ids of the endpoint opened last, packed; 0 for none. Only a hint for waiting threads, and therefore
    /// outside the lock.
    context_ids: AtomicU32,
}

static PLACES: [OnceLock<EndpointPlace>; SLOTS_MAX] = [const { OnceLock::new() }; SLOTS_MAX];

/// Whether each place has an endpoint, or is reserved for one.
static TAKEN: ForkLock<[bool; SLOTS_MAX]> = ForkLock::new([false; SLOTS_MAX]);

/// A place for an endpoint that is being opened. Freed on drop, unless kept.
pub(super) struct Reserved {
    pub(super) slot: usize,
    pub(super) place: &'static EndpointPlace,
    kept: bool,
}

impl Reserved {
    /// Takes a free place.
    pub(super) fn new() -> Result<Self, Error> {
        let slot = take_slot()?;
        // Without the lock of `TAKEN`, which comes after the slots' locks.
        let reserved = place(slot).inspect_err(|_| release(slot));
        let reserved = Self {
            slot,
            place: reserved?,
            kept: false,
        };
        let shared = &reserved.place.shared;
        if !shared.is_mine() {
            // The slot was empty when the parent forked.
            shared.lock().drop_inherited(shared);
        }
        Ok(reserved)
    }

    /// Keeps the place for its endpoint; [`release`] frees it.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.kept {
            release(self.slot);
        }
    }
}

fn take_slot() -> Result<usize, Error> {
    let mut taken = TAKEN.lock();
    let Some(slot) = taken.iter().position(|taken| !taken) else {
        let what = format!("{SLOTS_MAX} endpoints are open in this process");
        return Err(Error::new(Code::NoResources, what));
    };
    taken[slot] = true;
    Ok(slot)
}

/// Returns a place that its caller has taken, making it on first use.
fn place(slot: usize) -> Result<&'static EndpointPlace, Error> {
    if let Some(place) = PLACES[slot].get() {
        return Ok(place);
    }
    let made = EndpointPlace::new()?;
    let place = PLACES[slot].get_or_init(|| made);
    place.shared.inherit();
    Ok(place)
}

/// Frees a place.
pub(super) fn release(slot: usize) {
    if let Some(taken) = TAKEN.lock().get_mut(slot) {
        *taken = false;
    }
}

impl EndpointPlace {
    fn new() -> Result<Self, Error> {
        let shared = Shared::new(HostSlot::new(0), Tuning::default());
        let shared = shared.map_err(|reason| no_endpoint(SlotError::Doorbells(reason)))?;
        Ok(Self {
            shared: Arc::new(shared),
            context_ids: AtomicU32::new(0),
        })
    }

    /// Stores the context ids of the endpoint that is being opened.
    pub(super) fn set_context_ids(&self, ids: Option<ContextIds>) {
        let word = ids.map_or(0, ContextIds::to_word);
        self.context_ids.store(word, Ordering::Release);
    }

    /// Returns whether completions have several interest bits.
    #[inline]
    pub(super) fn has_context_ids(&self) -> bool {
        self.context_ids.load(Ordering::Acquire) != 0
    }

    /// Returns the interest of a thread that waits for completions with these bits under this mask.
    #[inline]
    pub(super) fn interest_in(&self, bits: u64, mask: u64) -> Interest {
        match ContextIds::from_word(self.context_ids.load(Ordering::Acquire)) {
            None => COMPLETIONS,
            Some(ids) => ids.interest_in(bits, mask),
        }
    }

    /// Calls `f` with the endpoint of a handle.
    pub(super) fn opened<R>(
        &self,
        ep: EndpointHandle,
        f: impl FnOnce(&Open<HostEngine>) -> R,
    ) -> Result<R, Error> {
        opened(&self.shared.lock(), ep).map(f)
    }
}

/// Returns the place of an endpoint, for a call that needs the network; the place may have another endpoint by now.
#[inline]
pub(super) fn find(ep: EndpointHandle) -> Result<&'static EndpointPlace, Error> {
    let place = held(ep)?;
    if !place.shared.is_mine() {
        find_anew(place, ep)?;
    }
    Ok(place)
}

#[cold]
fn find_anew(place: &'static EndpointPlace, ep: EndpointHandle) -> Result<(), Error> {
    let mut slot = place.shared.lock();
    opened(&slot, ep)?;
    HostSlot::open_anew(&mut slot, &place.shared).map_err(no_endpoint)
}

/// Returns the place of an endpoint, for a call that does not need the network: in a child of fork the ports may be the
/// parent's.
#[inline]
pub(super) fn held(ep: EndpointHandle) -> Result<&'static EndpointPlace, Error> {
    match ep.slot().and_then(of_slot) {
        Some(place) => Ok(place),
        None => Err(not_open(ep)),
    }
}

#[inline]
fn of_slot(slot: usize) -> Option<&'static EndpointPlace> {
    PLACES.get(slot)?.get()
}

/// Runs `f`, which does not need the network, with the engine of an endpoint.
pub(super) fn with_held<R>(
    ep: EndpointHandle,
    f: impl FnOnce(&mut HostEngine) -> Result<R, Error>,
) -> Result<R, Error> {
    let mut slot = held(ep)?.shared.lock();
    slot.take_over();
    f(engine(&mut slot, ep)?)
}

/// Runs `f` with the engine of an endpoint.
#[inline]
pub(super) fn with<R>(
    ep: EndpointHandle,
    f: impl FnOnce(&mut HostEngine) -> Result<R, Error>,
) -> Result<R, Error> {
    let place = find(ep)?;
    let mut slot = place.shared.lock();
    f(engine(&mut slot, ep)?)
}

/// Runs `f` with the engine in a request's slot; the engine has to check the request.
pub(super) fn of_request<R>(
    request: RequestHandle,
    f: impl FnOnce(&mut HostEngine) -> Result<R, Error>,
) -> Result<R, Error> {
    if let Some(place) = request.slot().and_then(of_slot) {
        let mut slot = place.shared.lock();
        slot.take_over();
        if let Some(engine) = slot.engine() {
            return f(engine);
        }
    }
    let what = format!("{:#x} is no request of an open endpoint", request.0);
    Err(Error::new(Code::BadRequest, what))
}

/// Returns every open endpoint of this process.
pub(super) fn open_endpoints() -> Vec<EndpointHandle> {
    let taken = *TAKEN.lock();
    let slots = taken.iter().enumerate().filter(|(_, taken)| **taken);
    slots
        .filter_map(|(slot, _)| {
            let inside = of_slot(slot)?.shared.lock();
            inside.open()?;
            Some(EndpointHandle::new(slot, inside.generation()))
        })
        .collect()
}
