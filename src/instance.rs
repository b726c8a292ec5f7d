//! The method of this process, for every thread.
//!
//! ```text
//!   any thread ---> its copy of INSTANCE -------> Shared<Engine> (one lock) ---> Method
//!                                                    ^
//!                             helper thread ---------'
//! ```
//!
//! Everything here may be called at any time from any thread, before `initialize` and after
//! `finalize` too. Names are resolved and the host's functions called without a lock.
//!
//! Owns: the one instance, its start and its end.
//! Knows nothing of: the protocol, C's pointers.

pub use crate::completion::Done;
pub use crate::method::{Post, PostKind, Posted, Unexpected};

use crate::abi::constants::BMI_INIT_SERVER;
use crate::abi::types::{BMI_addr_t, bmi_method_addr};
use crate::address::{self, Address};
use crate::config::Config;
use crate::error::Error;
use crate::match_layout::KEY;
use crate::method::{Handout, Method, PeerGauges, Reports, Settings, UNEXPECTED_READY};
use crate::peer::table::PeerKey;
use crate::peer_name::{self, PeerName, ROUTE_DGRAM, ROUTE_RDM};
use crate::{address_range, host};
use libc::{c_char, c_int};
use mx_proto::port::WakeDescriptors;
use mx_proto::{Endpoint, EndpointId, Instant, NicId, Route};
use mx_sys::ports::host::HostPorts;
use mx_sys::ports::open::{EndpointChoice, OpenOptions};
use mx_sys::progress::WaitStats;
use mx_sys::published::{MethodGauges, PortView, Publisher, Sample};
use mx_sys::{Helper, Interest, Lingering, MonotonicClock, Progress, Shared, linger, nic, reserve};
use parking_lot::{Mutex, RwLock};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The method on a real machine.
type HostMethod = Method<HostPorts, MonotonicClock>;

/// What the lock protects.
struct Engine {
    /// `None` once it has been finalized.
    method: Option<HostMethod>,
    /// It has just been: everybody who waits must look.
    ended: bool,
    /// Shows tools what the endpoint has counted.
    publisher: Publisher,
}

impl Engine {
    #[inline]
    fn method(&mut self) -> Result<&mut HostMethod, Error> {
        match &mut self.method {
            Some(method) => Ok(method),
            None => Err(Error::NotInitialized),
        }
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

impl Progress for Engine {
    #[inline]
    fn progress(&mut self) -> bool {
        if self.publisher.due() {
            self.publish();
        }
        self.method.as_mut().is_some_and(Method::progress)
    }

    #[inline]
    fn take_produced(&mut self) -> Interest {
        if std::mem::take(&mut self.ended) {
            return Interest::MAX;
        }
        self.method.as_mut().map_or(0, Method::take_produced)
    }

    fn arm(&mut self) -> bool {
        let endpoint = self.method.as_mut().map(Method::endpoint_mut);
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

    fn deadline(&self) -> Option<Instant> {
        self.method.as_ref().and_then(Method::deadline)
    }

    fn descriptors(&self) -> WakeDescriptors {
        let endpoint = self.method.as_ref().map(Method::endpoint);
        endpoint.map_or_else(WakeDescriptors::default, Endpoint::descriptors)
    }

    fn active(&self) -> bool {
        self.method.is_some()
    }

    fn on_rest(&mut self, waits: &WaitStats) {
        self.publisher.note_waits(waits);
        self.publish();
    }
}

/// One life of the method.
struct Instance {
    shared: Arc<Shared<Engine>>,
    helper: Mutex<Option<Helper<Engine>>>,
    /// The name to listen on; its host need not be one.
    listen: Option<PeerName>,
    nic: NicId,
    /// How long the last messages may take to leave.
    shutdown: Duration,
}

static INSTANCE: RwLock<Option<Arc<Instance>>> = RwLock::new(None);

/// Counts changes of [`INSTANCE`], so that threads can keep a copy without asking for the lock.
static CHANGES: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// This thread's copy of [`INSTANCE`], and as of which change.
    static COPY: Copied = const { Copied { change: Cell::new(0), instance: RefCell::new(None) } };
}

struct Copied {
    change: Cell<u64>,
    instance: RefCell<Option<Arc<Instance>>>,
}

/// Held while the method starts or ends.
static LIFECYCLE: Mutex<()> = Mutex::new(());

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

/// How long `finalize` waits for threads that are in a function of the host's.
const LINGER: Duration = Duration::from_secs(1);

/// Starts the method. See `BMI_mx_initialize`.
pub fn initialize(
    listen: Option<NonNull<bmi_method_addr>>,
    method_id: i32,
    flags: i32,
    options: Option<&str>,
) -> Result<(), Error> {
    let _one_at_a_time = LIFECYCLE.lock();
    let before = INSTANCE.read().clone();
    if let Some(instance) = before {
        if instance.shared.is_mine() {
            return Err(Error::AlreadyInitialized);
        }
        // The parent's: its sockets and shared memory are not ours to end, not even to close in
        // order. A child that starts over leaves them alone.
        let _ = ManuallyDrop::new(instance);
        let _ = ManuallyDrop::new(replace(None));
    }
    let server = flags & BMI_INIT_SERVER != 0;
    if server != listen.is_some() {
        let listen = listen.is_some();
        return Err(Error::ListenMismatch { flags, listen });
    }
    let listen = match listen {
        None => None,
        Some(addr) => {
            let known = address::find(addr.as_ptr());
            let known = known.ok_or(Error::UnknownAddress(addr.as_ptr() as usize))?;
            Some((addr, known))
        }
    };
    if cfg!(feature = "reserve") {
        reserve::fill();
    }
    let started = start(listen, method_id, options);
    let instance = started.inspect_err(|_| reserve::empty())?;
    replace(Some(Arc::new(instance)));
    Ok(())
}

fn start(
    listen: Option<(NonNull<bmi_method_addr>, Arc<Address>)>,
    method_id: i32,
    options: Option<&str>,
) -> Result<Instance, Error> {
    let (config, refused) = Config::load(options);
    for refused in &refused {
        log::warn!("{refused}");
    }
    config.check(&refused)?;
    nic::set_peers_file(config.mx.peers.clone());
    let name = listen.as_ref().map(|(_, address)| &address.name);
    let (ports, identity) =
        HostPorts::open(open_options(name, &config)).map_err(|reason| Error::Open {
            name: name.map_or_else(|| "an endpoint".to_owned(), PeerName::to_string),
            reason,
        })?;
    let own = PeerName {
        host: nic::machine_name().to_owned(),
        board: name.and_then(|name| name.board),
        endpoint: identity.endpoint.0,
        route: Route::AUTO,
    };
    let endpoint_config = ports.endpoint_config(&config.mx.endpoint);
    let endpoint_config = endpoint_config.map_err(|reason| Error::System {
        what: "random numbers",
        reason,
    })?;
    let settings = Settings::from(&config);
    let reports = Reports::new(&settings);
    let endpoint = Endpoint::new(
        endpoint_config,
        identity,
        KEY,
        ports,
        MonotonicClock,
        reports,
    );
    let mut method = Method::new(settings, own.to_string(), endpoint);
    address::set_method_type(method_id);
    if let Some((addr, address)) = &listen {
        // Whatever its host is called, it is this one.
        address.set_nic(identity.nic);
        method.attach(addr.as_ptr(), address, identity.nic, false)?;
    }
    let board = nic::board_number(identity.nic).unwrap_or(0);
    let mut engine = Engine {
        method: Some(method),
        ended: false,
        publisher: Publisher::with_method("bmi_mx", &identity, board),
    };
    engine.publish();
    let shared = Shared::new(engine, config.mx.tuning()).map_err(|reason| Error::System {
        what: "descriptors for waking threads",
        reason,
    })?;
    let shared = Arc::new(shared);
    let helper = match config.mx.helper {
        false => None,
        true => {
            let helper = Helper::start(Arc::clone(&shared));
            Some(helper.map_err(|reason| Error::System {
                what: "helper thread",
                reason,
            })?)
        }
    };
    log::info!("{own} is open, session {:#x}", identity.session.0);
    Ok(Instance {
        shared,
        helper: Mutex::new(helper),
        listen: listen.map(|(_, address)| address.name.clone()),
        nic: identity.nic,
        shutdown: config.shutdown,
    })
}

fn open_options(listen: Option<&PeerName>, config: &Config) -> OpenOptions {
    let endpoint = match listen {
        Some(name) => EndpointChoice::Exact(EndpointId(name.endpoint)),
        None => EndpointChoice::Any,
    };
    OpenOptions {
        board: listen.and_then(|name| name.board),
        // Peers that know us by that name come over it or not at all.
        rdm_required: listen.is_some_and(|name| name.route == ROUTE_RDM),
        dgram_required: listen.is_some_and(|name| name.route == ROUTE_DGRAM),
        ..config.mx.open_options(endpoint)
    }
}

/// Stops the method. See `BMI_mx_finalize`.
pub fn finalize() -> Result<(), Error> {
    let _one_at_a_time = LIFECYCLE.lock();
    let instance = INSTANCE.read().clone().ok_or(Error::NotInitialized)?;
    if !instance.shared.is_mine() {
        return Err(Error::Forked);
    }
    // Not with the lock: the thread takes it.
    if let Some(mut helper) = instance.helper.lock().take() {
        helper.stop();
    }
    let method = {
        let mut engine = instance.shared.lock();
        engine.ended = true;
        engine.publisher = Publisher::silent();
        engine.method.take()
    };
    replace(None);
    // Threads that live on keep their copies of the instance until they call again.
    instance.shared.end();
    if let Some(mut method) = method {
        method.close();
        leave(&mut method, instance.shutdown);
    }
    // The host drops its addresses next, and none of them is named to it afterwards.
    linger(LINGER, || match TELLING.load(Ordering::Acquire) {
        0 => Lingering::Over,
        _ => Lingering::Idle(WakeDescriptors::default()),
    });
    reserve::empty();
    log::info!("finalized");
    Ok(())
}

/// Lets what was sent last leave, for a bounded time.
fn leave(method: &mut HostMethod, at_most: Duration) {
    linger(at_most, || {
        if method.endpoint().port().link_count() == 0 {
            Lingering::Over
        } else if method.leave() {
            Lingering::Busy
        } else {
            Lingering::Idle(method.endpoint().descriptors())
        }
    });
}

/// Puts another instance, or none, in the place of the one there is, and gives that back.
fn replace(instance: Option<Arc<Instance>>) -> Option<Arc<Instance>> {
    let before = std::mem::replace(&mut *INSTANCE.write(), instance);
    CHANGES.fetch_add(1, Ordering::Release);
    let _ = COPY.try_with(Copied::refresh);
    before
}

impl Copied {
    #[cold]
    fn refresh(&self) {
        let change = CHANGES.load(Ordering::Acquire);
        if self.change.get() == 0 {
            reserve::prepare_thread();
        }
        // In use further up the stack: the next call looks again.
        if let Ok(mut instance) = self.instance.try_borrow_mut() {
            let before = std::mem::replace(&mut *instance, INSTANCE.read().clone());
            self.change.set(change);
            drop(instance);
            drop(before);
        }
    }
}

/// Runs `f` with the instance, if there is one of this process. Takes no lock for it.
#[inline]
fn with<R>(f: impl FnOnce(&Instance) -> Result<R, Error>) -> Result<R, Error> {
    let mut f = Some(f);
    let result = COPY.try_with(|copy| {
        if copy.change.get() != CHANGES.load(Ordering::Acquire) {
            copy.refresh();
        }
        let instance = copy.instance.try_borrow().ok()?;
        // Taken once: the closure runs once.
        Some(of_process(instance.as_deref(), f.take()?))
    });
    match (result, f) {
        (Ok(Some(result)), _) => result,
        // A thread that is about to end has no copy any more.
        (_, Some(f)) => of_process(INSTANCE.read().clone().as_deref(), f),
        (_, None) => Err(Error::NotInitialized),
    }
}

#[inline]
fn of_process<R>(
    instance: Option<&Instance>,
    f: impl FnOnce(&Instance) -> Result<R, Error>,
) -> Result<R, Error> {
    match instance {
        None => Err(Error::NotInitialized),
        Some(instance) if !instance.shared.is_mine() => Err(Error::Forked),
        Some(instance) => f(instance),
    }
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
    if !address::has_room() {
        log::warn!("{name}: no memory for another address");
        return None;
    }
    let instance = INSTANCE.read().clone();
    let instance = instance.filter(|instance| instance.shared.is_mine());
    let nic = match nic::resolve(&name.host, name.board) {
        Ok(found) => Some(found.nic),
        Err(reason) => {
            let own = instance.as_ref().filter(|instance| instance.is_own(&name));
            if own.is_none() {
                // A server's own name need not be one; for others posts will fail.
                log::info!("{name}: {reason}");
            }
            own.map(|instance| instance.nic)
        }
    };
    let addr = address::create(name, nic);
    if let (Some(instance), Some(nic)) = (instance, nic) {
        let known = address::find(addr.as_ptr());
        if let (Some(address), Ok(method)) = (known, instance.shared.lock().method())
            && let Err(error) = method.attach(addr.as_ptr(), &address, nic, true)
        {
            log::warn!("{error}");
        }
    }
    Some(addr)
}

impl Instance {
    /// Is it what we listen on?
    fn is_own(&self, name: &PeerName) -> bool {
        self.listen
            .as_ref()
            .is_some_and(|own| own.host == name.host && own.endpoint == name.endpoint)
    }

    /// The peer of an address object that has none yet: made before `initialize`, or its host was
    /// not found so far.
    #[cold]
    fn late_peer(&self, addr: NonNull<bmi_method_addr>) -> Result<PeerKey, Error> {
        let pointer = addr.as_ptr();
        let address = address::find(pointer).ok_or(Error::UnknownAddress(pointer as usize))?;
        let nic = match address.nic() {
            Some(nic) => nic,
            None => {
                let found = nic::resolve(&address.name.host, address.name.board)?;
                address.set_nic(found.nic);
                found.nic
            }
        };
        let mut engine = self.shared.lock();
        engine.method()?.attach(pointer, &address, nic, true)
    }
}

/// Posts an operation. `*id` is written before anybody can see its completion; after an error
/// nothing is ever reported for it.
#[inline]
pub fn post(post: Post, id: &mut i64) -> Result<Posted, Error> {
    with(|instance| {
        let addr = post.addr;
        let mut engine = instance.shared.lock();
        if let Some(key) = engine.method()?.peers().of_addr(addr.as_ptr()) {
            return engine.method()?.post(key, post, id);
        }
        drop(engine);
        let key = instance.late_peer(addr)?;
        let mut engine = instance.shared.lock();
        engine.method()?.post(key, post, id)
    })
}

/// Calls an operation off; it is reported once all the same.
pub fn cancel(id: i64, context: i64) -> Result<(), Error> {
    with(|instance| instance.shared.lock().method()?.cancel(id, context))
}

/// Waits at most `idle` until `check` has something, and tells the host of peers that died.
#[inline]
fn wait<R>(
    interest: Interest,
    idle: Duration,
    mut check: impl FnMut(&mut HostMethod) -> Result<Option<R>, Error>,
) -> Result<Option<R>, Error> {
    let mut dead: Vec<BMI_addr_t> = Vec::new();
    let mut telling = None;
    let run = |instance: &Instance| {
        instance
            .shared
            .wait_for(interest, Some(idle), |engine| {
                let method = match engine.method() {
                    Ok(method) => method,
                    Err(error) => return Some(Err(error)),
                };
                let found = check(method).transpose();
                let mut forgotten = method.take_forgotten();
                if !forgotten.is_empty() {
                    telling.get_or_insert_with(Telling::begin);
                    dead.append(&mut forgotten);
                }
                found
            })
            .transpose()
    };
    let found = with(run);
    for name in dead {
        host::forget_addr(name);
    }
    drop(telling);
    found
}

/// The end of one operation.
#[inline]
pub fn test(id: i64, context: i64, idle: Duration) -> Result<Option<Done>, Error> {
    wait(1 << context, idle, |method| method.take_done(id, context))
}

/// The ends of some of these operations; ids that are 0 are skipped. `out` gets each with its
/// place in `ids`.
pub fn test_some(
    ids: &[i64],
    context: i64,
    idle: Duration,
    out: &mut dyn FnMut(usize, Done),
) -> Result<usize, Error> {
    let found = wait(1 << context, idle, |method| {
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

/// The ends of at most `max` operations of a context, oldest first. Returns early, with none, when
/// an unexpected message waits: the same thread may be the one to fetch it.
#[inline]
pub fn test_context(
    context: i64,
    max: usize,
    idle: Duration,
    out: &mut dyn FnMut(Done),
) -> Result<usize, Error> {
    let found = wait(1 << context | UNEXPECTED_READY, idle, |method| {
        let mut count = 0;
        while count < max
            && let Some(done) = method.pop_done(context)
        {
            out(done);
            count += 1;
        }
        let news = method.inbox_mut().take_news();
        Ok((count > 0 || news).then_some(count))
    })?;
    Ok(found.unwrap_or(0))
}

/// At most `max` unexpected messages: one of each peer in turn, of each its oldest.
pub fn test_unexpected(
    max: usize,
    idle: Duration,
    out: &mut dyn FnMut(Unexpected),
) -> Result<usize, Error> {
    let mut count = 0;
    loop {
        let register = wait(UNEXPECTED_READY, idle, |method| {
            method.inbox_mut().take_news();
            while count < max {
                match method.next_unexpected() {
                    Some(Handout::Message(message)) => {
                        out(message);
                        count += 1;
                    }
                    Some(Handout::Register(addr)) => return Ok(Some(Some(addr))),
                    None => break,
                }
            }
            if method.unexpected() > 0 {
                // For the next call.
                method.inbox_mut().set_news();
            }
            Ok((count > 0).then_some(None))
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
fn introduce(addr: NonNull<bmi_method_addr>) -> Result<bool, Error> {
    // SAFETY: made by `address::create`, and kept until the host drops it.
    let name = unsafe { host::register_addr(addr.as_ptr()) };
    with(|instance| Ok(instance.shared.lock().method()?.registered(addr, name)))
}

/// Opens a context. They all exist always.
pub fn open_context(_context: i64) -> Result<(), Error> {
    with(|_| Ok(()))
}

/// Drops completions that nobody has asked for.
pub fn close_context(context: i64) {
    let closed = with(|instance| {
        instance.shared.lock().method()?.close_context(context);
        Ok(())
    });
    if let Err(error) = closed {
        log::debug!("close_context: {error}");
    }
}

/// The host has no more use for an address object. Also before `initialize` and after `finalize`;
/// twice does no harm.
pub fn drop_addr(addr: NonNull<bmi_method_addr>) {
    let addr = addr.as_ptr();
    // Without an instance there is no peer either.
    let _ = with(|instance| {
        instance.shared.lock().method()?.drop_addr(addr);
        Ok(())
    });
    if !address::remove(addr) {
        log::debug!("{addr:?} is dropped but no address of this method");
    }
}

/// May the host drop the address of a peer that came to us?
pub fn drop_addr_query(addr: NonNull<bmi_method_addr>) -> bool {
    let may = with(|instance| Ok(instance.shared.lock().method()?.may_drop(addr.as_ptr())));
    may.unwrap_or(false)
}

/// What the method has and has counted.
pub fn gauges() -> Result<MethodGauges, Error> {
    with(|instance| Ok(instance.shared.lock().method()?.gauges()))
}

/// The same of the peer of an address object.
pub fn peer_gauges(addr: NonNull<bmi_method_addr>) -> Result<PeerGauges, Error> {
    let pointer = addr.as_ptr();
    with(|instance| {
        let mut engine = instance.shared.lock();
        let method = engine.method()?;
        match method.peers().of_addr(pointer) {
            Some(key) => Ok(method.peer_gauges(key)),
            // Looked up before `initialize`, or its host was not found so far.
            None if address::find(pointer).is_some() => Ok(PeerGauges::NONE),
            None => Err(Error::UnknownAddress(pointer as usize)),
        }
    })
}

/// An address object's name, valid as long as the object.
pub fn rev_lookup(addr: NonNull<bmi_method_addr>) -> *const c_char {
    let text = address::text(addr.as_ptr());
    match text.is_null() {
        true => c"(unknown)".as_ptr(),
        false => text,
    }
}

/// Whether a peer's host lies in a range. See `BMI_mx_query_addr_range`.
pub fn query_addr_range(
    addr: NonNull<bmi_method_addr>,
    wildcard: &str,
    netmask: c_int,
) -> Result<bool, Error> {
    let pointer = addr.as_ptr();
    let address = address::find(pointer).ok_or(Error::UnknownAddress(pointer as usize))?;
    address_range::contains(&address, wildcard, netmask)
}
