//! The method of this process, for every thread.
//!
//! ```text
//!   any thread ---> INSTANCE ---> Shared<Slot> (one lock) ---> Method, or none
//!                                    ^
//!             helper thread ---------'
//! ```
//!
//! Everything here may be called at any time from any thread, also before `initialize` and after `finalize`. Names are
//! resolved and the host's functions called without a lock.
//!
//! The first `initialize` makes the instance, which is never freed, so a thread needs no reference to it. A child of
//! `fork` inherits the slot ([`mx_sys::slot`]):
//!
//! ```text
//!   fork --> inherited --a call that needs the network--> taken over, ports reopened --> as in the parent
//!               |  `---- finalize, initialize ----------> taken over, and dropped
//!               `------- no call: nothing happens
//! ```
//!
//! Owns: the one instance, and the calls of a running method.
//! Out of scope: the start and the end (`lifecycle`), the protocol, C's pointers.

mod life;
mod lifecycle;
mod names;

pub use crate::method::{Done, Post, PostKind, PostOutcome, Unexpected};
pub use lifecycle::{finalize, initialize};

use crate::abi::constants::{BMI_ENETRESET, BMI_ENODEV};
use crate::abi::types::bmi_method_addr;
use crate::address;
use crate::error::Error;
use crate::method::{Method, MethodReport, NextUnexpected, PeerGauges, UNEXPECTED_READY};
use crate::op::data::OpData;
use crate::peer::table::PeerKey;
use crate::peer_name::{self, PeerName};
use crate::{address_range, host};
use libc::{c_char, c_int, c_void};
use life::{HostMethod, HostSlot, PersistentState, Running};
use mx_proto::port::LinkControl;
use mx_proto::round::Begun;
use mx_proto::{EndpointId, NicId};
use mx_sys::lock::Mutex;
use mx_sys::nic::ResolveError;
use mx_sys::progress::{Guard, Tuning};
use mx_sys::slot::is_to_be_shown;
use mx_sys::{ForkMark, Interest, Shared, UserMemory, nic, reserve};
use std::cell::Cell;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

/// State shared by all openings of the method in this process.
struct Instance {
    shared: Arc<Shared<HostSlot>>,
    /// Held while the method starts or ends.
    lifecycle: Mutex<()>,
    /// Marks the process to which `lifecycle` belongs.
    mark: ForkMark,
}

/// The instance; null before the first `initialize`, never freed.
static INSTANCE: AtomicPtr<Instance> = AtomicPtr::new(ptr::null_mut());

/// Number of threads that are telling the host of peers; incremented with the slot's lock held.
static NOTIFYING: AtomicUsize = AtomicUsize::new(0);

/// A thread that is telling the host of peers, counted in [`NOTIFYING`].
struct NotificationGuard;

impl NotificationGuard {
    #[cold]
    fn begin() -> Self {
        NOTIFYING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for NotificationGuard {
    fn drop(&mut self) {
        NOTIFYING.fetch_sub(1, Ordering::Release);
    }
}

/// Returns the instance, creating it if necessary.
fn get_or_create() -> io::Result<&'static Instance> {
    if let Some(instance) = existing_instance() {
        return Ok(instance);
    }
    let slot = HostSlot::new(PersistentState::default());
    let shared = Arc::new(Shared::new(slot, Tuning::default())?);
    let (instance, new) = install(ptr::null_mut(), shared);
    if new {
        instance.shared.inherit();
    }
    Ok(instance)
}

/// Installs an instance with this slot in place of `before`. Returns it and true, or the instance of a faster thread
/// and false.
fn install(before: *mut Instance, shared: Arc<Shared<HostSlot>>) -> (&'static Instance, bool) {
    let ours = Box::into_raw(Box::new(Instance {
        shared,
        lifecycle: Mutex::new(()),
        mark: ForkMark::new(),
    }));
    match INSTANCE.compare_exchange(before, ours, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: never freed from now on.
        Ok(_) => (unsafe { &*ours }, true),
        Err(theirs) => {
            // SAFETY: made above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(ours) });
            // SAFETY: an installed instance is never freed.
            (unsafe { &*theirs }, false)
        }
    }
}

/// Returns the instance, whose slot a child of fork may have inherited from its parent. `None` before the first
/// `initialize`.
#[cold]
fn existing_instance() -> Option<&'static Instance> {
    let there = INSTANCE.load(Ordering::Acquire);
    // SAFETY: null, or never freed.
    let instance = unsafe { there.as_ref() }?;
    if instance.mark.is_mine() {
        return Some(instance);
    }
    // A thread that does not exist in the child may have held `lifecycle`.
    Some(install(there, Arc::clone(&instance.shared)).0)
}

/// Returns the instance if this process owns its slot; `None` before the first `initialize`, and in a child of fork
/// until the first call that needs the network.
///
/// On a thread's first call that is not a front alone, makes the C library allocate its per-thread state: glibc would
/// otherwise do so when the thread first blocks on a lock, and abort without memory. The check costs a dozen
/// instructions a call.
#[inline]
fn own_instance() -> Option<&'static Instance> {
    thread_local!(static PREPARED: Cell<bool> = const { Cell::new(false) });
    if !PREPARED.get() {
        PREPARED.set(true);
        reserve::prepare_thread();
    }
    front_instance()
}

/// Returns the instance if this process owns its slot, for the front of a call, which waits for no lock.
#[inline(always)]
fn front_instance() -> Option<&'static Instance> {
    // SAFETY: null, or never freed.
    let instance = unsafe { INSTANCE.load(Ordering::Acquire).as_ref() };
    instance.filter(|instance| instance.shared.is_mine())
}

/// Returns the instance's slot, possibly without a method, for a call that needs the network.
#[inline]
fn network_slot() -> Result<&'static Shared<HostSlot>, Box<Error>> {
    match own_instance() {
        Some(instance) => Ok(&instance.shared),
        None => take_over_slot(),
    }
}

#[cold]
fn take_over_slot() -> Result<&'static Shared<HostSlot>, Box<Error>> {
    let instance = existing_instance().ok_or_else(not_initialized)?;
    let _one_at_a_time = instance.lifecycle.lock();
    HostSlot::open_anew(&mut instance.shared.lock(), &instance.shared)
        .map_err(lifecycle::no_endpoint)?;
    Ok(&instance.shared)
}

/// Calls `f` with the method, if there is one, for a call that does not need the network.
fn with_method<R>(f: impl FnOnce(&mut HostMethod) -> R) -> Option<R> {
    let instance = match own_instance() {
        Some(instance) => instance,
        None => existing_instance()?,
    };
    let mut slot = instance.shared.lock();
    slot.take_over();
    slot.engine().map(f)
}

/// Returns whether an endpoint is open, or to be reopened after a fork.
fn is_initialized() -> bool {
    existing_instance().is_some_and(|instance| instance.shared.lock().open().is_some())
}

#[cold]
fn not_initialized() -> Box<Error> {
    Error::new(BMI_ENODEV, "not initialized")
}

/// Makes an address object for the first `mx://` address in `name`. See `BMI_mx_method_addr_lookup`.
pub fn lookup(name: &str) -> Option<NonNull<bmi_method_addr>> {
    let name = match peer_name::parse(name) {
        Ok(Some(name)) => name,
        Ok(None) => return None,
        Err(error) => {
            log::warn!("{error}");
            return None;
        }
    };
    if name.endpoint.is_none() && (!host::facts().listens_anywhere || is_initialized()) {
        log::warn!("{name}: no endpoint number after the host");
        return None;
    }
    if !address::has_room() {
        log::warn!("{name}: no memory for another address");
        return None;
    }
    let nics = match nic::resolve(&name.host, name.board) {
        Ok(found) => found.nics(),
        Err(reason) => {
            let own = own_nic(&name);
            let unknown = matches!(reason, ResolveError::Unknown { .. });
            if own.is_none() && unknown && is_initialized() {
                log::warn!("{name}: {reason}");
                return None;
            }
            if own.is_none() {
                // The host in the future server's own name may not resolve; posts to other names will fail.
                log::info!("{name}: {reason}");
            }
            own.into_iter().collect()
        }
    };
    let Some(addr) = address::create(name, nics.first().copied()) else {
        log::warn!("no memory for another address");
        return None;
    };
    if let Some(instance) = own_instance()
        && !nics.is_empty()
    {
        let known = address::name(addr.as_ptr());
        if let (Some(name), Ok(method)) = (known, instance.shared.lock().method())
            && let Err(error) = method.attach(addr.as_ptr(), &name, &nics, true)
        {
            log::warn!("{error}");
        }
    }
    Some(addr)
}

/// Returns the number of the open endpoint.
pub fn endpoint() -> Result<EndpointId, Box<Error>> {
    let mut slot = network_slot()?.lock();
    Ok(slot.method()?.endpoint().identity().endpoint)
}

/// Returns this endpoint's interface if `name` is what it listens on.
fn own_nic(name: &PeerName) -> Option<NicId> {
    let slot = existing_instance()?.shared.lock();
    let (own, nic) = slot.persistent.listen.as_ref()?;
    (own.host == name.host && own.endpoint == name.endpoint).then_some(*nic)
}

/// Returns the peer of an address object that has none yet, because the object was made before `initialize` or its host
/// did not resolve. Keeps the lock, so that the peer belongs to the current opening.
#[cold]
fn late_peer(
    shared: &Shared<HostSlot>,
    addr: NonNull<bmi_method_addr>,
) -> Result<(Guard<'_, HostSlot>, PeerKey), Box<Error>> {
    let pointer = addr.as_ptr();
    if !address::exists(pointer) {
        return Err(Error::unknown_address(pointer));
    }
    let Some(name) = address::name(pointer) else {
        // The session belonged to an earlier opening, and a peer that connected is never called back.
        let why = "the peer had called before, and its session is over";
        return Err(Error::new(BMI_ENETRESET, why));
    };
    let found_before = address::nic(pointer);
    let nics = match found_before {
        Some(nic) => vec![nic],
        None => {
            let found = nic::resolve(&name.host, name.board)?;
            address::set_nic(pointer, found.nic);
            found.nics()
        }
    };
    let mut slot = shared.lock();
    let method = slot.method()?;
    let key = method.attach(pointer, &name, &nics, true)?;
    if found_before.is_some() {
        method.doubt_name(key);
    }
    Ok((slot, key))
}

/// Posts an operation. `*id` is written before its completion can be seen; after an error nothing is reported for it.
#[inline(always)]
pub fn post(mut post: Post, id: &mut i64) -> Result<PostOutcome, Box<Error>> {
    match post.kind {
        PostKind::Recv => post_recv(&mut post, id),
        PostKind::Send | PostKind::SendUnexpected => post_send(&mut post, id),
    }
}

/// Front of [`post`] for a small expected message: sends it at once if nothing else waits. Returns false if nothing was
/// sent, and [`post`] is to be called.
#[inline(always)]
pub fn send_at_once(addr: NonNull<bmi_method_addr>, body: &[u8], tag: i32, context: i64) -> bool {
    let Some(instance) = front_instance() else {
        return false;
    };
    let Some(mut slot) = instance.shared.try_lock() else {
        return false;
    };
    let Some(method) = slot.engine() else {
        return false;
    };
    let Some(key) = method.peers().of_addr(addr.as_ptr()) else {
        return false;
    };
    if method.endpoint().port().sends_in_a_row() {
        return send_in_a_row(slot, key, (tag, context), body);
    }
    method.send_at_once(key, tag as u32, context, body)
}

/// Finishes [`send_at_once`] for a message that follows others directly, and that the port may hold.
#[inline(never)]
fn send_in_a_row(
    mut slot: Guard<'static, HostSlot>,
    key: PeerKey,
    (tag, context): (i32, i64),
    body: &[u8],
) -> bool {
    let may_hold = slot.may_hold();
    let Some(method) = slot.engine() else {
        return false;
    };
    method.endpoint_mut().port_mut().hold(may_hold);
    let sent = method.send_at_once(key, tag as u32, context, body);
    method.endpoint_mut().port_mut().hold(false);
    if may_hold {
        slot.send_held_soon();
    }
    sent
}

/// Front of [`post`] for a receive of the `len` bytes at `buffer`. Returns false if nothing was posted, and [`post`] is
/// to be called.
///
/// # Safety
///
/// As for [`UserMemory::new`].
#[inline(always)]
pub unsafe fn recv_at_once(
    addr: NonNull<bmi_method_addr>,
    (buffer, len): (*mut c_void, usize),
    tag: i32,
    (user_ptr, context): (*mut c_void, i64),
    id: &mut i64,
) -> bool {
    let Some(instance) = front_instance() else {
        return false;
    };
    let Some(mut slot) = instance.shared.try_lock() else {
        return false;
    };
    let Some(method) = slot.engine() else {
        return false;
    };
    let Some(key) = method.peers().of_addr(addr.as_ptr()) else {
        return false;
    };
    let what = || {
        // SAFETY: the caller's promise.
        let memory = unsafe { UserMemory::of_one(buffer.cast(), len) };
        let receive = (PostKind::Recv, addr, tag as u32, 0);
        (memory, OpData::of(receive, len, (user_ptr, context), key))
    };
    let new = method.recv_at_once(key, tag as u32, what);
    if let Some(new) = new {
        // Under the lock, before another thread can see the completion.
        *id = new;
    }
    new.is_some()
}

#[inline(never)]
fn post_send(post: &mut Post, id: &mut i64) -> Result<PostOutcome, Box<Error>> {
    let (mut slot, key) = with_peer(post.addr)?;
    slot.method()?.post_send(key, post, id)
}

#[inline(never)]
fn post_recv(post: &mut Post, id: &mut i64) -> Result<PostOutcome, Box<Error>> {
    let (mut slot, key) = with_peer(post.addr)?;
    slot.method()?.post_recv(key, post, id)
}

/// Returns the locked slot, and the peer of an address object.
#[inline(always)]
fn with_peer(
    addr: NonNull<bmi_method_addr>,
) -> Result<(Guard<'static, HostSlot>, PeerKey), Box<Error>> {
    let shared = network_slot()?;
    let mut slot = shared.lock();
    match slot.method()?.peers().of_addr(addr.as_ptr()) {
        Some(key) => Ok((slot, key)),
        None => {
            drop(slot);
            late_peer(shared, addr)
        }
    }
}

/// Cancels an operation, which is still reported once.
pub fn cancel(id: i64, context: i64) -> Result<(), Box<Error>> {
    network_slot()?.lock().method()?.cancel(id, context)
}

/// Calls `take`: at once, after a poll, or repeatedly for at most `idle_us` microseconds. Tells the host of lost peers.
///
/// A result found at once needs no poll, but only [`UNPOLLED_MAX`] times in a row, because other operations depend on
/// polls.
#[inline]
fn find<R>(
    interest: Interest,
    idle_us: u64,
    take: impl FnMut(&mut HostMethod) -> Result<Option<R>, Box<Error>>,
) -> Result<Option<R>, Box<Error>> {
    let slot = network_slot()?.lock_for_poll();
    find_in(slot, Polled::No, interest, idle_us, take)
}

/// Progress of a call before [`find_in`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    /// No step was taken.
    No,
    /// The front found nothing completed, and [`Method::look`] returned this.
    Begun(Begun),
    /// The poll has been done, too.
    Yes,
}

/// Implements [`find`] with the lock held.
#[inline(always)]
fn find_in<R>(
    mut slot: Guard<'static, HostSlot>,
    polled: Polled,
    interest: Interest,
    idle_us: u64,
    mut take: impl FnMut(&mut HostMethod) -> Result<Option<R>, Box<Error>>,
) -> Result<Option<R>, Box<Error>> {
    let (Some(method), beside) = slot.parts() else {
        return Err(not_initialized());
    };
    let mut found = match polled {
        Polled::Begun(_) => None,
        Polled::No | Polled::Yes => take(method)?,
    };
    let mut due = false;
    if polled == Polled::No && found.is_some() && beside.unpolled < UNPOLLED_MAX {
        beside.unpolled += 1;
    } else if polled != Polled::Yes {
        beside.unpolled = 0;
        let begun = match polled {
            Polled::Begun(begun) => begun,
            _ => method.look(),
        };
        if method.progress_from(begun) && found.is_none() {
            found = take(method)?;
        }
        due = is_to_be_shown(method);
    }
    let forgotten = method.has_forgotten();
    if method.has_questions() {
        names::resolve(beside);
    }
    if due {
        slot.publish();
        if found.is_none() && slot.is_lost() {
            return after_loss(&mut slot, take);
        }
    }
    if found.is_none() && idle_us != 0 {
        return wait(slot, interest, idle_us, take);
    }
    if forgotten {
        tell(slot);
    }
    Ok(found)
}

/// Implements the waiting part of [`find`]. Takes `take` by value, which stays in registers until then.
#[cold]
#[inline(never)]
fn wait<R>(
    slot: Guard<'_, HostSlot>,
    interest: Interest,
    idle_us: u64,
    mut take: impl FnMut(&mut HostMethod) -> Result<Option<R>, Box<Error>>,
) -> Result<Option<R>, Box<Error>> {
    let idle = Duration::from_micros(idle_us);
    let life = slot.generation();
    let check = |slot: &mut HostSlot| {
        if slot.generation() != life {
            return Some(Err(not_initialized()));
        }
        if slot.is_lost() {
            return after_loss(slot, &mut take).transpose();
        }
        slot.method().and_then(&mut take).transpose()
    };
    let shared = slot.shared();
    let found = slot.wait(interest, Some(idle), check).transpose()?;
    let mut slot = shared.lock();
    if slot.engine().is_some_and(|method| method.has_forgotten()) {
        tell(slot);
    }
    Ok(found)
}

/// Ends a call that finds the descriptors closed: returns remaining completions, then the error.
#[cold]
fn after_loss<R>(
    slot: &mut HostSlot,
    mut take: impl FnMut(&mut HostMethod) -> Result<Option<R>, Box<Error>>,
) -> Result<Option<R>, Box<Error>> {
    match take(slot.method()?)? {
        Some(found) => Ok(Some(found)),
        None => Err(Error::descriptors_closed()),
    }
}

/// Maximum number of calls in a row without a poll.
const UNPOLLED_MAX: u32 = 15;

/// Tells the host of lost peers, after releasing the lock.
#[cold]
fn tell(mut slot: Guard<'_, HostSlot>) {
    let _telling = NotificationGuard::begin();
    let dead = slot.method().map(Method::take_forgotten);
    drop(slot);
    for name in dead.unwrap_or_default() {
        host::forget_addr(name);
    }
}

/// Returns the completion of operation `id` and frees the id, or `None` if it has not completed within `idle_us`
/// microseconds (0: does not wait).
#[inline]
pub fn test(id: i64, context: i64, idle_us: u64) -> Result<Option<Done>, Box<Error>> {
    find(1 << context, idle_us, move |method| {
        method.take_done(id, context)
    })
}

/// Tests the operations `ids` of a context: passes each completion to `out` with its index in `ids`, under the method's
/// lock, and frees its id. Returns the number of completions.
///
/// Waits at most `idle_us` microseconds for the first completion (0: does not wait). Ids that are 0 are skipped. An
/// invalid id fails the call before any completion is passed on.
#[inline]
pub fn test_some(
    ids: &[i64],
    context: i64,
    idle_us: u64,
    mut out: impl FnMut(usize, Done),
) -> Result<usize, Box<Error>> {
    let found = find(1 << context, idle_us, move |method| {
        let mut count = 0;
        // Report an invalid id before any completion is handed out, which would be lost.
        for id in ids.iter().filter(|id| **id != 0) {
            method.find(*id, context)?;
        }
        for (place, id) in ids.iter().enumerate().filter(|(_, id)| **id != 0) {
            // An id given twice completes once.
            if let Ok(Some(done)) = method.take_done(*id, context) {
                out(place, done);
                count += 1;
            }
        }
        let nothing_asked = ids.iter().all(|id| *id == 0);
        Ok((count > 0 || nothing_asked).then_some(count))
    })?;
    Ok(found.unwrap_or(0))
}

/// Passes at most `max` completions of a context to `out`, in their order, and returns their number. Waits at most
/// `idle_us` microseconds for the first one; returns early, with none, if an unexpected message waits: the same thread
/// may be the one to fetch it.
#[inline(always)]
pub fn test_context(
    context: i64,
    max: usize,
    idle_us: u64,
    mut out: impl FnMut(Done) + Clone,
) -> Result<usize, Box<Error>> {
    if max == 0 {
        return await_context(context, idle_us);
    }
    let (mut slot, mut polled) = match look(context, idle_us) {
        Looked::Nothing => return Ok(0),
        Looked::Some(slot, polled) => (slot, polled),
        // A copy, so that the original stays in registers.
        Looked::NotAtAll => return find_context(context, max, idle_us, out.clone()),
    };
    if polled == Polled::Begun(Begun::Active)
        && let (Some(method), beside) = slot.parts()
    {
        beside.unpolled = 0;
        method.progress_from(Begun::Active);
        if method.has_done(context) && !method.has_rest() {
            let count = pop_done(method, context, max, &mut out);
            return Ok(count);
        }
        polled = Polled::Yes;
    }
    find_context_in((slot, polled), context, max, idle_us, out.clone())
}

/// Passes at most `max` completions of a context to `out`. Returns their number.
#[inline(always)]
fn pop_done(method: &mut HostMethod, context: i64, max: usize, mut out: impl FnMut(Done)) -> usize {
    let mut count = 0;
    while count < max
        && let Some(done) = method.pop_done(context)
    {
        out(done);
        count += 1;
    }
    method.arrivals_mut().take_events();
    count
}

/// Result of the front of [`test_context`].
enum Looked {
    /// Nothing has completed or arrived, and nothing else is due.
    Nothing,
    /// The call continues from there, with the lock.
    Some(Guard<'static, HostSlot>, Polled),
    /// Another thread has the lock, or this process owns no instance.
    NotAtAll,
}

/// Implements the front of [`test_context`]: waits for no lock, and does nothing that must be repeated.
#[inline(always)]
fn look(context: i64, idle_us: u64) -> Looked {
    let Some(instance) = front_instance() else {
        return Looked::NotAtAll;
    };
    let Some(mut slot) = instance.shared.try_lock_for_poll() else {
        return Looked::NotAtAll;
    };
    let (Some(method), beside) = slot.parts() else {
        return Looked::Some(slot, Polled::No);
    };
    if method.has_done(context) || method.unmatched().has_events() {
        return Looked::Some(slot, Polled::No);
    }
    let begun = method.look();
    if begun == Begun::Nothing && idle_us == 0 && !method.has_rest() {
        beside.unpolled = 0;
        return Looked::Nothing;
    }
    Looked::Some(slot, Polled::Begun(begun))
}

/// Implements [`test_context`] without its front.
#[inline(never)]
fn find_context(
    context: i64,
    max: usize,
    idle_us: u64,
    out: impl FnMut(Done),
) -> Result<usize, Box<Error>> {
    let slot = network_slot()?.lock_for_poll();
    find_context_in((slot, Polled::No), context, max, idle_us, out)
}

/// Implements the rest of [`test_context`].
#[inline(never)]
fn find_context_in(
    (slot, polled): (Guard<'static, HostSlot>, Polled),
    context: i64,
    max: usize,
    idle_us: u64,
    mut out: impl FnMut(Done),
) -> Result<usize, Box<Error>> {
    let interest = 1 << context | UNEXPECTED_READY;
    let found = find_in(slot, polled, interest, idle_us, move |method| {
        let updated = method.arrivals_mut().take_events();
        let count = pop_done(method, context, max, &mut out);
        Ok((count > 0 || updated).then_some(count))
    })?;
    Ok(found.unwrap_or(0))
}

/// Implements [`test_context`] for `max` 0: waits without taking completions.
#[cold]
#[inline(never)]
fn await_context(context: i64, idle_us: u64) -> Result<usize, Box<Error>> {
    find(1 << context | UNEXPECTED_READY, idle_us, |method| {
        let updated = method.arrivals_mut().take_events();
        Ok((updated || method.has_done(context)).then_some(()))
    })?;
    Ok(0)
}

/// Passes at most `max` unexpected messages of a class to `out` and returns their number: one of each peer in turn, the
/// oldest first. Waits at most `idle_us` microseconds for the first one; with `max` 0 it only waits.
pub fn test_unexpected(
    max: usize,
    class: u8,
    idle_us: u64,
    mut out: impl FnMut(Unexpected),
) -> Result<usize, Box<Error>> {
    let mut count = 0;
    loop {
        let register = find(UNEXPECTED_READY, idle_us, |method| {
            method.arrivals_mut().take_events();
            while count < max {
                match method.next_unexpected(class) {
                    Some(NextUnexpected::Message(message)) => {
                        out(message);
                        count += 1;
                    }
                    Some(NextUnexpected::Register(addr)) => return Ok(Some(Some(addr))),
                    None => break,
                }
            }
            let more = count == max && method.unexpected() > 0;
            if more {
                // The next call must not wait.
                method.arrivals_mut().set_events();
            }
            Ok((count > 0 || more).then_some(None))
        })?;
        let Some(Some(addr)) = register else {
            return Ok(count);
        };
        if !introduce(addr)? {
            return Ok(count);
        }
    }
}

/// Registers a new peer with the host. Returns false if the host has no memory for it.
#[cold]
fn introduce(addr: NonNull<bmi_method_addr>) -> Result<bool, Box<Error>> {
    // SAFETY: made by `address::create`, and kept until the host drops it.
    let name = unsafe { host::register_addr(addr.as_ptr()) };
    Ok(network_slot()?.lock().method()?.registered(addr, name))
}

/// Opens a context. All contexts always exist, so this only checks for a method.
pub fn open_context(_context: i64) -> Result<(), Box<Error>> {
    network_slot()?.lock().method()?;
    Ok(())
}

/// Closes a BMI context: drops its completions that no test call has collected. Operations in progress are not
/// cancelled.
pub fn close_context(context: i64) {
    with_method(|method| method.close_context(context));
}

/// Drops an address object that the host no longer uses. May be called before `initialize`, after `finalize`, and
/// twice.
pub fn drop_addr(addr: NonNull<bmi_method_addr>) {
    let addr = addr.as_ptr();
    // Without an instance there is no peer either.
    with_method(|method| method.drop_addr(addr));
    if !address::remove(addr) {
        log::debug!("dropping {addr:?}, which is not an address of this method");
    }
}

/// Returns whether the host may drop the address of a peer that connected to this process.
pub fn drop_addr_query(addr: NonNull<bmi_method_addr>) -> bool {
    with_method(|method| method.may_drop(addr.as_ptr())).unwrap_or(false)
}

/// Returns the counters of the method, and its present numbers of messages, operations and bytes.
pub fn report() -> Result<MethodReport, Box<Error>> {
    Ok(network_slot()?.lock().method()?.report())
}

/// Returns the connection state, credits and number of waiting operations of an address object's peer;
/// [`PeerGauges::NONE`] if the object has no peer yet. Fails for a pointer that is no address object of this method.
pub fn peer_gauges(addr: NonNull<bmi_method_addr>) -> Result<PeerGauges, Box<Error>> {
    let pointer = addr.as_ptr();
    let mut slot = network_slot()?.lock();
    let method = slot.method()?;
    match method.peers().of_addr(pointer) {
        Some(key) => Ok(method.peer_gauges(key)),
        // Looked up before `initialize`, or its host did not resolve.
        None if address::exists(pointer) => Ok(PeerGauges::NONE),
        None => Err(Error::unknown_address(pointer)),
    }
}

/// Returns an address object's name, valid as long as the object.
pub fn rev_lookup(addr: *const bmi_method_addr) -> *const c_char {
    let text = address::text(addr);
    if text.is_null() {
        c"(unknown)".as_ptr()
    } else {
        text
    }
}

/// Returns whether a peer's host is in an address range. See `BMI_mx_query_addr_range`.
pub fn query_addr_range(
    addr: NonNull<bmi_method_addr>,
    wildcard: &str,
    netmask: c_int,
) -> Result<bool, Box<Error>> {
    let pointer = addr.as_ptr();
    if !address::exists(pointer) {
        return Err(Error::unknown_address(pointer));
    }
    address_range::contains(address::nic(pointer), wildcard, netmask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalize_does_not_wait_for_a_thread_that_has_told_the_host() {
        tell(get_or_create().unwrap().shared.lock());
        assert_eq!(NOTIFYING.load(Ordering::Acquire), 0);
    }
}
