//! The table of endpoints, by handle.
//!
//! ```text
//!   PLACES  [ Place | Place | - | - ... ]     made when first used, there for ever
//!              |
//!              +-- Shared<Slot>, helper thread, context ids
//!   TAKEN   those with an endpoint, or reserved for one
//! ```
//!
//! A child of fork recognises its parent's places, and takes others.
//!
//! Owns: the places.
//! Cost: one load to find a place, one to check that it belongs to this process.

use super::slot::{HostEngine, Open, Slot, not_open};
use crate::engine::{COMPLETIONS, ContextIds};
use crate::error::{Code, Error};
use crate::handles::{EndpointHandle, RequestHandle, SLOTS_MAX};
use mx_sys::fork::ForkLock;
use mx_sys::{Helper, Interest, Shared, Tuning};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A place for an endpoint.
pub(super) struct Place {
    pub(super) shared: Arc<Shared<Slot>>,
    /// The thread that looks after the endpoint.
    pub(super) helper: Mutex<Option<Helper<Slot>>>,
    /// The context ids of the endpoint that was opened last: bits and shift, or 0 for none. Only a
    /// hint for waiting threads, and therefore outside the lock.
    context_ids: AtomicU32,
}

static PLACES: [OnceLock<Place>; SLOTS_MAX] = [const { OnceLock::new() }; SLOTS_MAX];

/// The places with an endpoint, or reserved for one.
static TAKEN: ForkLock<[bool; SLOTS_MAX]> = ForkLock::new([false; SLOTS_MAX]);

/// A place for an endpoint that is being opened. Given back when dropped, unless it is kept.
pub(super) struct Reserved {
    pub(super) slot: usize,
    pub(super) place: &'static Place,
    kept: bool,
}

impl Reserved {
    /// Takes a free place, with waiting tuned like this.
    pub(super) fn new(tuning: Tuning) -> Result<Self, Error> {
        let mut taken = TAKEN.lock();
        for (slot, taken) in taken.iter_mut().enumerate() {
            if *taken {
                continue;
            }
            let place = match PLACES[slot].get() {
                Some(place) => place,
                None => {
                    let made = Place::new(tuning)?;
                    PLACES[slot].get_or_init(|| made)
                }
            };
            if !place.shared.is_mine() {
                // The parent's, empty when it forked.
                continue;
            }
            place
                .shared
                .retune(tuning)
                .map_err(|e| no_descriptors(&e))?;
            *taken = true;
            return Ok(Self {
                slot,
                place,
                kept: false,
            });
        }
        let what = format!("{SLOTS_MAX} endpoints are open in this process");
        Err(Error::new(Code::NoResources, what))
    }

    /// There is an endpoint now; [`release`] ends it.
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

fn no_descriptors(error: &io::Error) -> Error {
    let what = format!("no descriptors for waking threads: {error}");
    Error::new(Code::NoResources, what)
}

/// The place is free again.
pub(super) fn release(slot: usize) {
    if let Some(taken) = TAKEN.lock().get_mut(slot) {
        *taken = false;
    }
}

impl Place {
    fn new(tuning: Tuning) -> Result<Self, Error> {
        let shared = Shared::new(Slot::default(), tuning).map_err(|e| no_descriptors(&e))?;
        Ok(Self {
            shared: Arc::new(shared),
            helper: Mutex::new(None),
            context_ids: AtomicU32::new(0),
        })
    }

    /// Notes the context ids of the endpoint that is being opened.
    pub(super) fn set_context_ids(&self, ids: Option<ContextIds>) {
        let word = ids.map_or(0, ContextIds::to_word);
        self.context_ids.store(word, Ordering::Release);
    }

    /// Whether completions are of several classes.
    #[inline]
    pub(super) fn has_context_ids(&self) -> bool {
        self.context_ids.load(Ordering::Acquire) != 0
    }

    /// The interest of a thread that waits for completions with these bits under this mask.
    #[inline]
    pub(super) fn interest_in(&self, bits: u64, mask: u64) -> Interest {
        match ContextIds::from_word(self.context_ids.load(Ordering::Acquire)) {
            None => COMPLETIONS,
            Some(ids) => ids.interest_in(bits, mask),
        }
    }

    /// Looks at an endpoint that is open here.
    pub(super) fn opened<R>(
        &self,
        ep: EndpointHandle,
        f: impl FnOnce(&Open) -> R,
    ) -> Result<R, Error> {
        let mut slot = self.shared.lock();
        slot.opened(ep).map(|open| f(open))
    }
}

/// The place of an endpoint; what is there now need not be that endpoint.
#[inline]
pub(super) fn find(ep: EndpointHandle) -> Result<&'static Place, Error> {
    match ep.slot().and_then(of_slot) {
        Some(place) => Ok(place),
        None => Err(not_open(ep)),
    }
}

#[inline]
fn of_slot(slot: usize) -> Option<&'static Place> {
    let place = PLACES.get(slot)?.get()?;
    place.shared.is_mine().then_some(place)
}

/// Runs `f` with the engine of an endpoint.
#[inline]
pub(super) fn with<R>(
    ep: EndpointHandle,
    f: impl FnOnce(&mut HostEngine) -> Result<R, Error>,
) -> Result<R, Error> {
    let place = find(ep)?;
    let mut slot = place.shared.lock();
    f(slot.engine(ep)?)
}

/// Runs `f` with the engine in the slot a request names; the engine has to know the request.
pub(super) fn of_request<R>(
    request: RequestHandle,
    f: impl FnOnce(&mut HostEngine) -> Result<R, Error>,
) -> Result<R, Error> {
    if let Some(place) = request.slot().and_then(of_slot)
        && let Some(engine) = place.shared.lock().any_engine()
    {
        return f(engine);
    }
    let what = format!("{:#x} is no request of an open endpoint", request.0);
    Err(Error::new(Code::BadRequest, what))
}

/// Every endpoint of this process.
pub(super) fn open_endpoints() -> Vec<EndpointHandle> {
    let taken = *TAKEN.lock();
    let slots = taken.iter().enumerate().filter(|(_, taken)| **taken);
    slots
        .filter_map(|(slot, _)| {
            let generation = of_slot(slot)?.shared.lock().open_generation()?;
            Some(EndpointHandle::new(slot, generation))
        })
        .collect()
}
