//! Opening and closing of endpoints.
//!
//! ```text
//!   open:   a free slot --> HostPorts::open --> Engine --> helper thread --> handle
//!   close:  handler finished? --> out of the slot, waiters woken --> helper stopped
//!           --> peers told, last packets sent (bounded) --> slot free
//! ```
//!
//! Not here: requests.

use super::slot::{About, HostEngine, Open, Slot};
use super::table::{Place, Reserved, held, open_endpoints, release};
use super::wait::this_thread;
use crate::engine::{ContextIds, Engine, HANDLER, Options, Program};
use crate::error::{Code, Error};
use crate::handles::EndpointHandle;
use mx_proto::{Config, Endpoint, EndpointId, Identity};
use mx_sys::published::Publisher;
use mx_sys::{
    EndpointChoice, Helper, HostPorts, MonotonicClock, OpenAnew, OpenError, OpenOptions, Settings,
    Shared, linger, nic, thread,
};
use std::sync::Arc;
use std::time::Duration;

/// The parameters of a new endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenParams {
    /// The number of the board; the first unless there is one.
    pub board: Option<u32>,
    /// The endpoint id; the lowest that is free unless there is one.
    pub endpoint: Option<u32>,
    /// The key that peers need to connect.
    pub key: u32,
    /// Bytes of messages without a receive that may wait here, instead of the settings'.
    pub unexpected_bytes: Option<usize>,
    /// The position of context ids in match bits.
    pub context_ids: Option<ContextIds>,
    /// The error handler: a C function, only handed through.
    pub error_handler: usize,
}

/// The time that [`close`] waits for the last messages to leave.
const LINGER: Duration = Duration::from_secs(1);

/// The name of this library in published counters.
pub(super) const LIBRARY: &str = "myriexpress";

/// Opens an endpoint.
pub fn open(settings: &Settings, params: OpenParams) -> Result<EndpointHandle, Error> {
    let reserved = Reserved::new(settings.tuning())?;
    let choice = match params.endpoint {
        Some(id) => EndpointChoice::Exact(EndpointId(id)),
        None => EndpointChoice::Lowest,
    };
    let options = OpenOptions {
        board: params.board,
        ..settings.open_options(choice)
    };
    let (ports, identity) = HostPorts::open(options.clone()).map_err(|error| refused(&error))?;
    let config = ports.endpoint_config(&settings.endpoint);
    let mut config = config.map_err(|error| refused(&OpenError::System(error)))?;
    if let Some(bytes) = params.unexpected_bytes {
        config.unexpected_bytes = bytes;
    }
    let eager_max = config.eager_max;
    let board = params.board.or_else(|| nic::board_number(identity.nic));
    let about = About {
        board: board.unwrap_or_default(),
        error_handler: params.error_handler,
    };
    let place = reserved.place;
    place.set_context_ids(params.context_ids);
    let publisher = Publisher::new(LIBRARY, &identity, about.board);
    // From the moment it can be found, another thread may close it: there is nothing left to fail.
    let helped = settings.helper && !settings.monothread;
    let helper = start_helper(helped, &place.shared)?;
    let again = EndpointChoice::Exact(identity.endpoint);
    let anew = OpenAnew::new(options, again, settings.tuning(), helped);
    let number = reserved.slot;
    reserved.keep();
    let handle = {
        let mut slot = place.shared.lock();
        let (generation, requests) = slot.next();
        let handle = EndpointHandle::new(number, generation);
        let options = Options {
            handle,
            key: params.key,
            eager_max,
            context_ids: params.context_ids,
            generation: requests,
        };
        let program = Program::new(identity, options);
        let engine = engine(config, identity, params.key, ports, program);
        slot.put(Open {
            engine,
            about,
            publisher,
            helper,
            anew,
        });
        handle
    };
    log::info!(
        "endpoint {} is open, session {:#x}",
        identity.endpoint.0,
        identity.session.0
    );
    Ok(handle)
}

/// The engine over these ports. By itself, for what is moved here lies on the stack several times.
#[inline(never)]
fn engine(
    config: Config,
    identity: Identity,
    key: u32,
    ports: Box<HostPorts>,
    program: Program,
) -> Box<HostEngine> {
    let endpoint = Endpoint::new(config, identity, key, *ports, MonotonicClock, program);
    Box::new(Engine::new(endpoint))
}

pub(super) fn refused(error: &OpenError) -> Error {
    let code = match error {
        OpenError::Board(_) => Code::BoardUnknown,
        OpenError::Endpoint(_) => Code::BadEndpoint,
        OpenError::InUse { .. } => Code::Busy,
        OpenError::NoneFree | OpenError::Descriptors(_) | OpenError::System(_) => Code::NoResources,
        OpenError::Listen { error, .. } if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Code::NoPerm
        }
        OpenError::Secret(_) => Code::NoPerm,
        OpenError::Listen { .. } => Code::NoResources,
        OpenError::Rdm(_) | OpenError::Dgram(_) => Code::NoDev,
    };
    Error::new(code, error.to_string())
}

/// Starts the thread that looks after an endpoint, if it is to have one.
pub(super) fn start_helper(
    wanted: bool,
    shared: &Arc<Shared<Slot>>,
) -> Result<Option<Helper<Slot>>, Error> {
    let helper = wanted.then(|| Helper::start(Arc::clone(shared)));
    helper.transpose().map_err(|error| {
        let limit = thread::limit_of_threads(&error);
        let what = format!("no helper thread: {error}{limit}");
        Error::new(Code::NoResources, what)
    })
}

/// Closes an endpoint. Its requests are gone, and threads that wait on it return. Waits for a
/// handler that runs in another thread.
pub fn close(ep: EndpointHandle) -> Result<(), Error> {
    let place = held(ep)?;
    if !place.shared.is_mine() && close_inherited(ep, place)? {
        return Ok(());
    }
    let take = |slot: &mut Slot| {
        let engine = match slot.engine(ep) {
            Ok(engine) => engine,
            Err(error) => return Some(Err(error)),
        };
        match engine.running() {
            Some(thread) if thread == this_thread() => Some(Err(Error::new(
                Code::CloseInHandler,
                "the endpoint cannot be closed by its own handler",
            ))),
            Some(_) => {
                engine.end_turns();
                None
            }
            None => slot.take().map(Ok),
        }
    };
    // Without a time-out it ends with something.
    let Some(taken) = place.shared.wait_for(HANDLER, None, take) else {
        return Ok(());
    };
    let mut open = taken?;
    // Not with the lock: the thread takes it.
    if let Some(mut helper) = open.helper.take() {
        helper.stop();
    }
    let id = open.engine.identity().endpoint.0;
    // Small sends that wait for room, then what was sent last.
    drain(&mut open.engine, HostEngine::last_sends);
    open.engine.close();
    drain(&mut open.engine, |engine| {
        engine.endpoint().port().link_count() > 0
    });
    drop(open);
    if let Some(slot) = ep.slot() {
        release(slot);
    }
    log::info!("endpoint {id} is closed");
    Ok(())
}

/// In a child of fork: there is nothing to close but what is in its memory. False: it has just been opened
/// anew.
#[cold]
fn close_inherited(ep: EndpointHandle, place: &Place) -> Result<bool, Error> {
    let mut slot = place.shared.lock();
    let engine = slot.engine(ep)?;
    if place.shared.is_mine() {
        return Ok(false);
    }
    if engine.running().is_some() {
        let what = "the endpoint cannot be closed by its own handler";
        return Err(Error::new(Code::CloseInHandler, what));
    }
    slot.drop_inherited(&place.shared);
    drop(slot);
    if let Some(slot) = ep.slot() {
        release(slot);
    }
    Ok(true)
}

/// Closes every endpoint of this process, except for those whose handler makes this call.
pub fn close_all() {
    for ep in open_endpoints() {
        if let Err(error) = close(ep) {
            log::warn!("{error}");
        }
    }
}

/// Lets what has been sent leave, for a bounded time.
fn drain(engine: &mut HostEngine, mut left: impl FnMut(&mut HostEngine) -> bool) {
    linger(LINGER, || {
        let busy = engine.progress();
        left(engine).then(|| (busy, engine.descriptors()))
    });
}
