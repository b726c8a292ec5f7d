//! The method of this process, for every thread.
//!
//! ```text
//!   any thread ---> INSTANCE ---> Shared<Engine> (one lock) ---> Method, or none
//!                                    ^
//!             helper thread ---------'
//! ```
//!
//! Everything here may be called at any time from any thread, also before `initialize` and after
//! `finalize`. Names are resolved and the host's functions called without a lock.
//!
//! The instance is made by the first `initialize` and never freed, so a thread needs no reference
//! to it. A child of `fork` inherits the engine:
//!
//! ```text
//!   fork --> inherited --a call that needs the network--> taken over, ports opened anew --> as in the parent
//!               |  `---- finalize, initialize ----------> taken over, and dropped
//!               `------- no call: nothing happens
//! ```
//!
//! Owns: the one instance, and the calls of a running method.
//! Not here: the start and the end (`lifecycle`), the protocol, C's pointers.

mod lifecycle;
mod names;

pub use crate::method::{Done, Post, PostKind, Posted, Unexpected};
pub use lifecycle::{finalize, initialize};

use crate::abi::constants::BMI_ENODEV;
use crate::abi::types::bmi_method_addr;
use crate::address;
use crate::error::Error;
use crate::method::{Handout, Method, MethodReport, PeerGauges, UNEXPECTED_READY};
use crate::peer::table::PeerKey;
use crate::peer_name::{self, PeerName};
use crate::{address_range, buffer, host};
use libc::{c_char, c_int};
use mx_proto::port::WakeDescriptors;
use mx_proto::{Endpoint, EndpointId, Instant, NicId};
use mx_sys::lock::Mutex;
use mx_sys::nic::ResolveError;
use mx_sys::progress::{Guard, Tuning, WaitStats};
use mx_sys::published::{PortView, Publisher, Sample};
use mx_sys::{ForkMark, HostPorts, OpenAnew};
use mx_sys::{Helper, Interest, MonotonicClock, Progress, Shared, nic, reserve};
use std::cell::Cell;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

/// The method on a real machine.
type HostMethod = Method<HostPorts, MonotonicClock>;

/// The state behind the lock.
struct Engine {
    /// `None` while it is not initialized. By itself in memory: it is too large for small stacks.
    method: Option<Box<HostMethod>>,
    helper: Option<Helper<Self>>,
    /// The name to listen on, whose host need not be one, and our interface.
    listen: Option<(PeerName, NicId)>,
    /// The time that the last messages may take to leave.
    shutdown: Duration,
    /// The number of initializations: a thread that waits in one life of the method must not
    /// continue in the next.
    lives: u64,
    /// A life has just ended: all waiting threads must wake.
    ended: bool,
    /// Shows tools what the endpoint has counted.
    publisher: Publisher,
    /// A thread resolves names again.
    resolving: bool,
    /// Calls in a row that found what they asked for and left the poll out.
    unpolled: u32,
    ports: Ports,
    /// The life in a child of fork goes on like this one.
    opened: Option<OpenAnew>,
}

/// The owner of the method's ports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ports {
    /// This process.
    Own,
    /// The process that this one was forked from. They must not be used, and what is under way is over.
    Parents,
    /// The same, and everything that was under way has ended.
    Missing,
}

impl Engine {
    #[inline]
    fn method(&mut self) -> Result<&mut HostMethod, Box<Error>> {
        match &mut self.method {
            Some(method) => Ok(method),
            None => Err(not_initialized()),
        }
    }

    /// In a child of fork: ends what is the parent's. There are ports again after [`lifecycle::open_anew`].
    #[cold]
    fn take_over(&mut self) {
        if self.ports == Ports::Parents {
            self.ports = Ports::Missing;
            if let Some(method) = &mut self.method {
                method.inherit();
            }
        }
    }

    /// From now on this process's calls go straight to the engine.
    fn claim(&mut self, shared: &Shared<Self>) {
        self.ports = Ports::Own;
        shared.claim();
    }

    fn surround(&mut self, surroundings: lifecycle::Surroundings) {
        self.helper = surroundings.helper;
        self.publisher = surroundings.publisher;
        self.publish();
    }

    #[cold]
    fn publish(&mut self) {
        if let Some(method) = &self.method {
            let ports = PortView::of(method.endpoint().port());
            let mut sample = Sample::of(method.endpoint(), ports, self.publisher.waits());
            sample.method = Some(method.gauges());
            self.publisher.publish(&sample);
        }
    }
}

/// Is it time to show tools what has been counted?
#[inline]
fn is_to_be_shown(method: &HostMethod) -> bool {
    let endpoint = method.endpoint();
    endpoint.looked_around() && Publisher::is_due(endpoint.port().turn())
}

impl Progress for Engine {
    #[inline]
    fn progress(&mut self) -> bool {
        let Some(method) = &mut self.method else {
            return false;
        };
        let busy = method.progress();
        let asks = method.has_questions();
        if is_to_be_shown(method) {
            self.publish();
        }
        if asks {
            names::resolve(self);
        }
        busy
    }

    #[inline]
    fn take_produced(&mut self) -> Interest {
        if std::mem::take(&mut self.ended) {
            return Interest::MAX;
        }
        self.method.as_deref_mut().map_or(0, Method::take_produced)
    }

    fn arm(&mut self) -> bool {
        let endpoint = self.method.as_deref_mut().map(Method::endpoint_mut);
        endpoint.is_some_and(Endpoint::arm)
    }

    fn disarm(&mut self) {
        if let Some(method) = &mut self.method {
            method.endpoint_mut().disarm();
        }
    }

    fn note_control(&mut self) {
        if let Some(method) = &mut self.method {
            method.endpoint_mut().port_mut().note_control();
        }
    }

    fn note_ready(&mut self, tokens: &[u64]) {
        if let Some(method) = &mut self.method {
            method.endpoint_mut().port_mut().note_ready(tokens);
        }
    }

    fn set(&self) -> Option<(RawFd, u64)> {
        let method = self.method.as_ref()?;
        Some(method.endpoint().port().set())
    }

    fn deadline(&self) -> Option<Instant> {
        self.method.as_deref().and_then(Method::deadline)
    }

    fn descriptors(&self) -> WakeDescriptors {
        let endpoint = self.method.as_deref().map(Method::endpoint);
        endpoint.map_or_else(WakeDescriptors::default, Endpoint::descriptors)
    }

    fn active(&self) -> bool {
        self.method.is_some() && self.ports == Ports::Own
    }

    fn on_sleep(&mut self, waits: &WaitStats) {
        self.publisher.note_waits(waits);
        self.publish();
    }

    fn give_back_due() -> Option<Instant> {
        buffer::next_due()
    }

    fn give_back() {
        buffer::give_back_unused();
    }

    fn in_child(&mut self) {
        self.ports = Ports::Parents;
        // The thread does not exist here, nor does the page; neither is to be dropped here.
        let helper = ManuallyDrop::new(self.helper.take());
        let publisher = std::mem::replace(&mut self.publisher, Publisher::silent());
        let _ = (helper, ManuallyDrop::new(publisher));
        self.resolving = false;
        TELLING.store(0, Ordering::Relaxed);
    }
}

/// The state shared by all lives of the method in this process.
struct Instance {
    shared: Arc<Shared<Engine>>,
    /// Held while the method starts or ends.
    lifecycle: Mutex<()>,
    /// The process in which that lock is of use.
    mark: ForkMark,
}

/// The instance, from the first `initialize` on; never freed.
static INSTANCE: AtomicPtr<Instance> = AtomicPtr::new(ptr::null_mut());

/// Threads that are telling the host of peers; begun with the engine's lock held.
static TELLING: AtomicUsize = AtomicUsize::new(0);

/// One of them.
struct Telling;

impl Telling {
    #[cold]
    fn begin() -> Self {
        TELLING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        TELLING.fetch_sub(1, Ordering::Release);
    }
}

/// The instance, made when there is none yet.
fn made() -> io::Result<&'static Instance> {
    if let Some(instance) = current() {
        return Ok(instance);
    }
    let engine = Engine {
        method: None,
        helper: None,
        listen: None,
        shutdown: Duration::ZERO,
        lives: 0,
        ended: false,
        publisher: Publisher::silent(),
        resolving: false,
        unpolled: 0,
        ports: Ports::Own,
        opened: None,
    };
    let shared = Arc::new(Shared::new(engine, Tuning::default())?);
    let (instance, new) = put(ptr::null_mut(), shared);
    if new {
        instance.shared.inherit();
    }
    Ok(instance)
}

/// Puts an instance with this engine in the place of `before`; or finds that another thread was faster.
fn put(before: *mut Instance, shared: Arc<Shared<Engine>>) -> (&'static Instance, bool) {
    let ours = Box::into_raw(Box::new(Instance {
        shared,
        lifecycle: Mutex::new(()),
        mark: ForkMark::new(),
    }));
    match INSTANCE.compare_exchange(before, ours, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: never freed from now on.
        Ok(_) => (unsafe { &*ours }, true),
        Err(theirs) => {
            // SAFETY: from right above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(ours) });
            // SAFETY: what has been put there is never freed.
            (unsafe { &*theirs }, false)
        }
    }
}

/// The instance; its engine may be what a child of fork has from its parent. `None` before the first
/// `initialize`.
#[cold]
fn current() -> Option<&'static Instance> {
    let there = INSTANCE.load(Ordering::Acquire);
    // SAFETY: null, or never freed.
    let instance = unsafe { there.as_ref() }?;
    if instance.mark.is_mine() {
        return Some(instance);
    }
    // A thread that the child does not have may have held the lock of the lifecycle.
    Some(put(there, Arc::clone(&instance.shared)).0)
}

/// The instance, when its engine is this process's; `None` before the first `initialize`, and in a child
/// of fork until the first call that needs the network.
///
/// Each thread takes at its first call what it gets from the C library when it first waits for a lock:
/// without memory that would end the process. That takes a word of the thread's own, at
/// a dozen instructions a call, because any call may come to that.
#[inline]
fn own() -> Option<&'static Instance> {
    thread_local!(static PREPARED: Cell<bool> = const { Cell::new(false) });
    if !PREPARED.get() {
        PREPARED.set(true);
        reserve::prepare_thread();
    }
    // SAFETY: null, or never freed.
    let instance = unsafe { INSTANCE.load(Ordering::Acquire).as_ref() };
    instance.filter(|instance| instance.shared.is_mine())
}

/// The same for a call that needs the network; it need not find a method in it.
#[inline]
fn shared() -> Result<&'static Shared<Engine>, Box<Error>> {
    match own() {
        Some(instance) => Ok(&instance.shared),
        None => taken_over(),
    }
}

#[cold]
fn taken_over() -> Result<&'static Shared<Engine>, Box<Error>> {
    let instance = current().ok_or_else(not_initialized)?;
    let _one_at_a_time = instance.lifecycle.lock();
    if !instance.shared.is_mine() {
        lifecycle::open_anew(&instance.shared)?;
    }
    Ok(&instance.shared)
}

/// The method, for a call that does not need the network, if there is one.
fn with_method<R>(f: impl FnOnce(&mut HostMethod) -> R) -> Option<R> {
    let instance = match own() {
        Some(instance) => instance,
        None => current()?,
    };
    let mut engine = instance.shared.lock();
    engine.take_over();
    engine.method.as_deref_mut().map(f)
}

/// Is there an endpoint open, or one to be opened anew after a fork?
fn is_initialized() -> bool {
    current().is_some_and(|instance| instance.shared.lock().method.is_some())
}

#[cold]
fn not_initialized() -> Box<Error> {
    Error::new(BMI_ENODEV, "not initialized")
}

/// An address object for the first address of ours in `name`. See `BMI_mx_method_addr_lookup`.
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
    let nic = match nic::resolve(&name.host, name.board) {
        Ok(found) => Some(found.nic),
        Err(reason) => {
            let own = own_nic(&name);
            let unknown = matches!(reason, ResolveError::Unknown { .. });
            if own.is_none() && unknown && is_initialized() {
                log::warn!("{name}: {reason}");
                return None;
            }
            if own.is_none() {
                // The name of the server that is to be need not be one; for others posts will fail.
                log::info!("{name}: {reason}");
            }
            own
        }
    };
    let addr = address::create(name, nic);
    if let (Some(instance), Some(nic)) = (own(), nic) {
        let known = address::find(addr.as_ptr());
        if let (Some(address), Ok(method)) = (known, instance.shared.lock().method())
            && let Err(error) = method.attach(addr.as_ptr(), &address, nic, true)
        {
            log::warn!("{error}");
        }
    }
    Some(addr)
}

/// The endpoint that is open.
pub fn endpoint() -> Result<EndpointId, Box<Error>> {
    let mut engine = shared()?.lock();
    Ok(engine.method()?.endpoint().identity().endpoint)
}

/// Our own interface, if it is what we listen on.
fn own_nic(name: &PeerName) -> Option<NicId> {
    let engine = current()?.shared.lock();
    let (own, nic) = engine.listen.as_ref()?;
    (own.host == name.host && own.endpoint == name.endpoint).then_some(*nic)
}

/// The peer of an address object that has none yet: made before `initialize`, or its host was not
/// found so far. With the lock, so that it is of this life.
#[cold]
fn late_peer(
    shared: &Shared<Engine>,
    addr: NonNull<bmi_method_addr>,
) -> Result<(Guard<'_, Engine>, PeerKey), Box<Error>> {
    let pointer = addr.as_ptr();
    let address = address::find(pointer).ok_or_else(|| Error::unknown_address(pointer))?;
    let nic = match address.nic() {
        Some(nic) => nic,
        None => {
            let name = &address.name;
            let found = nic::resolve(&name.host, name.board)?;
            address.set_nic(found.nic);
            found.nic
        }
    };
    let mut engine = shared.lock();
    let key = engine.method()?.attach(pointer, &address, nic, true)?;
    Ok((engine, key))
}

/// Posts an operation. `*id` is written before its completion can be seen; after an error nothing
/// is ever reported for it.
#[inline(always)]
pub fn post(mut post: Post, id: &mut i64) -> Result<Posted, Box<Error>> {
    match post.kind {
        PostKind::Recv => post_recv(&mut post, id),
        PostKind::Send | PostKind::SendUnexpected => post_send(&mut post, id),
    }
}

#[inline(never)]
fn post_send(post: &mut Post, id: &mut i64) -> Result<Posted, Box<Error>> {
    let (mut engine, key) = with_peer(post.addr)?;
    engine.method()?.post_send(key, post, id)
}

#[inline(never)]
fn post_recv(post: &mut Post, id: &mut i64) -> Result<Posted, Box<Error>> {
    let (mut engine, key) = with_peer(post.addr)?;
    engine.method()?.post_recv(key, post, id)
}

/// The engine, and the peer of an address object.
#[inline(always)]
fn with_peer(
    addr: NonNull<bmi_method_addr>,
) -> Result<(Guard<'static, Engine>, PeerKey), Box<Error>> {
    let shared = shared()?;
    let mut engine = shared.lock();
    match engine.method()?.peers().of_addr(addr.as_ptr()) {
        Some(key) => Ok((engine, key)),
        None => {
            drop(engine);
            late_peer(shared, addr)
        }
    }
}

/// Calls an operation off; it is reported once all the same.
pub fn cancel(id: i64, context: i64) -> Result<(), Box<Error>> {
    shared()?.lock().method()?.cancel(id, context)
}

/// Calls `take`: at once, after a poll, or while waiting for at most `idle_us` microseconds. Tells
/// the host of peers that died.
///
/// A result found at once needs no poll, but only so many times in a row, because others wait for
/// the poll.
#[inline]
fn find<R>(
    interest: Interest,
    idle_us: u64,
    mut take: impl FnMut(&mut HostMethod) -> Result<Option<R>, Box<Error>>,
) -> Result<Option<R>, Box<Error>> {
    let shared = shared()?;
    let mut engine = shared.attend();
    let Engine {
        method, unpolled, ..
    } = &mut *engine;
    let Some(method) = method else {
        return Err(not_initialized());
    };
    let mut found = take(method)?;
    let mut due = false;
    if found.is_some() && *unpolled < UNPOLLED_MAX {
        *unpolled += 1;
    } else {
        *unpolled = 0;
        if method.progress() && found.is_none() {
            found = take(method)?;
        }
        due = is_to_be_shown(method);
    }
    let (forgotten, asks) = (method.has_forgotten(), method.has_questions());
    if due {
        engine.publish();
    }
    if asks {
        names::resolve(&mut engine);
    }
    if found.is_none() && idle_us != 0 {
        return wait(shared, engine, interest, idle_us, take);
    }
    if forgotten {
        tell(engine);
    }
    Ok(found)
}

/// The rest of [`find`]. Takes `take` itself, which stays in registers until then.
#[cold]
#[inline(never)]
fn wait<R>(
    shared: &Shared<Engine>,
    engine: Guard<'_, Engine>,
    interest: Interest,
    idle_us: u64,
    mut take: impl FnMut(&mut HostMethod) -> Result<Option<R>, Box<Error>>,
) -> Result<Option<R>, Box<Error>> {
    let idle = Duration::from_micros(idle_us);
    let life = engine.lives;
    let check = |engine: &mut Engine| {
        let method = if engine.lives == life {
            engine.method()
        } else {
            Err(not_initialized())
        };
        method.and_then(&mut take).transpose()
    };
    let found = engine.wait(interest, Some(idle), check).transpose()?;
    let engine = shared.lock();
    if engine.method.as_deref().is_some_and(Method::has_forgotten) {
        tell(engine);
    }
    Ok(found)
}

/// Calls in a row that may do without a poll.
const UNPOLLED_MAX: u32 = 15;

/// Tells the host of peers that died, without the lock.
#[cold]
fn tell(mut engine: Guard<'_, Engine>) {
    let _telling = Telling::begin();
    let dead = engine.method().map(Method::take_forgotten);
    drop(engine);
    for name in dead.unwrap_or_default() {
        host::forget_addr(name);
    }
}

/// The end of one operation.
#[inline]
pub fn test(id: i64, context: i64, idle_us: u64) -> Result<Option<Done>, Box<Error>> {
    find(1 << context, idle_us, move |method| {
        method.take_done(id, context)
    })
}

/// The ends of some of these operations; ids that are 0 are skipped. `out` gets each with its
/// place in `ids`, with the lock held.
#[inline]
pub fn test_some(
    ids: &[i64],
    context: i64,
    idle_us: u64,
    mut out: impl FnMut(usize, Done),
) -> Result<usize, Box<Error>> {
    let found = find(1 << context, idle_us, move |method| {
        let mut count = 0;
        // A wrong id is told before anything is handed out, or what was would be lost.
        for id in ids.iter().filter(|id| **id != 0) {
            method.find(*id, context)?;
        }
        for (place, id) in ids.iter().enumerate().filter(|(_, id)| **id != 0) {
            // The same id twice is complete once.
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

/// The ends of at most `max` operations of a context, in their order. Returns early, with none, when
/// an unexpected message waits: the same thread may be the one to fetch it.
#[inline(always)]
pub fn test_context(
    context: i64,
    max: usize,
    idle_us: u64,
    mut out: impl FnMut(Done),
) -> Result<usize, Box<Error>> {
    if max == 0 {
        return await_context(context, idle_us);
    }
    let found = find(1 << context | UNEXPECTED_READY, idle_us, move |method| {
        let mut count = 0;
        while count < max
            && method.has_done(context)
            && let Some(done) = pop(method, context)
        {
            out(done);
            count += 1;
        }
        let updated = method.unmatched_mut().take_events();
        Ok((count > 0 || updated).then_some(count))
    })?;
    Ok(found.unwrap_or(0))
}

/// [`test_context`] asked for none: it waits as long.
#[cold]
#[inline(never)]
fn await_context(context: i64, idle_us: u64) -> Result<usize, Box<Error>> {
    find(1 << context | UNEXPECTED_READY, idle_us, |method| {
        let updated = method.unmatched_mut().take_events();
        Ok((updated || method.has_done(context)).then_some(()))
    })?;
    Ok(0)
}

/// Takes out what has completed first in a context. Apart, so that what is done with it stays in registers.
#[inline(never)]
fn pop(method: &mut HostMethod, context: i64) -> Option<Done> {
    method.pop_done(context)
}

/// At most `max` unexpected messages of a class: one of each peer in turn, of each its oldest. Asked for
/// none, it waits as long.
pub fn test_unexpected(
    max: usize,
    class: u8,
    idle_us: u64,
    mut out: impl FnMut(Unexpected),
) -> Result<usize, Box<Error>> {
    let mut count = 0;
    loop {
        let register = find(UNEXPECTED_READY, idle_us, |method| {
            method.unmatched_mut().take_events();
            while count < max {
                match method.next_unexpected(class) {
                    Some(Handout::Message(message)) => {
                        out(message);
                        count += 1;
                    }
                    Some(Handout::Register(addr)) => return Ok(Some(Some(addr))),
                    None => break,
                }
            }
            let more = count == max && method.unexpected() > 0;
            if more {
                // For the next call.
                method.unmatched_mut().set_events();
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

/// Tells the host of a new peer. False when it could not take it.
#[cold]
fn introduce(addr: NonNull<bmi_method_addr>) -> Result<bool, Box<Error>> {
    // SAFETY: made by `address::create`, and kept until the host drops it.
    let name = unsafe { host::register_addr(addr.as_ptr()) };
    Ok(shared()?.lock().method()?.registered(addr, name))
}

/// Opens a context. They all exist always.
pub fn open_context(_context: i64) -> Result<(), Box<Error>> {
    shared()?.lock().method()?;
    Ok(())
}

/// Drops untested completions.
pub fn close_context(context: i64) {
    with_method(|method| method.close_context(context));
}

/// The host has no more use for an address object. Also before `initialize` and after `finalize`;
/// twice does no harm.
pub fn drop_addr(addr: NonNull<bmi_method_addr>) {
    let addr = addr.as_ptr();
    // Without an instance there is no peer either.
    with_method(|method| method.drop_addr(addr));
    if !address::remove(addr) {
        log::debug!("{addr:?} is dropped but no address of this method");
    }
}

/// May the host drop the address of a peer that came to us?
pub fn drop_addr_query(addr: NonNull<bmi_method_addr>) -> bool {
    with_method(|method| method.may_drop(addr.as_ptr())).unwrap_or(false)
}

/// The figures and counters of the method.
pub fn report() -> Result<MethodReport, Box<Error>> {
    Ok(shared()?.lock().method()?.report())
}

/// The same of the peer of an address object.
pub fn peer_gauges(addr: NonNull<bmi_method_addr>) -> Result<PeerGauges, Box<Error>> {
    let pointer = addr.as_ptr();
    let mut engine = shared()?.lock();
    let method = engine.method()?;
    match method.peers().of_addr(pointer) {
        Some(key) => Ok(method.peer_gauges(key)),
        // Looked up before `initialize`, or its host was not found so far.
        None if address::find(pointer).is_some() => Ok(PeerGauges::NONE),
        None => Err(Error::unknown_address(pointer)),
    }
}

/// An address object's name, valid as long as the object.
pub fn rev_lookup(addr: *const bmi_method_addr) -> *const c_char {
    let text = address::text(addr);
    if text.is_null() {
        c"(unknown)".as_ptr()
    } else {
        text
    }
}

/// Whether a peer's host lies in a range. See `BMI_mx_query_addr_range`.
pub fn query_addr_range(
    addr: NonNull<bmi_method_addr>,
    wildcard: &str,
    netmask: c_int,
) -> Result<bool, Box<Error>> {
    let pointer = addr.as_ptr();
    let address = address::find(pointer).ok_or_else(|| Error::unknown_address(pointer))?;
    address_range::contains(&address, wildcard, netmask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finalize_does_not_wait_for_a_thread_that_has_told_the_host() {
        tell(made().unwrap().shared.lock());
        assert_eq!(TELLING.load(Ordering::Acquire), 0);
    }
}
