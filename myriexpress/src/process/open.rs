//! Opening and closing of endpoints.
//!
//! ```text
//!   open:   a free slot --> HostPorts::open --> Engine --> helper thread --> handle
//!   close:  handler finished? --> out of the slot, waiters woken --> helper stopped
//!           --> peers told, last packets sent (bounded) --> slot free
//! ```
//!
//! Out of scope: requests.

use super::machine::{self, HostEngine, HostSlot, no_endpoint};
use super::table::{EndpointPlace, Reserved, held, open_endpoints, release};
use super::wait::this_thread;
use crate::engine::{ContextIds, Engine, HANDLER, Options, Program};
use crate::error::{Code, Error};
use crate::handles::EndpointHandle;
use mx_proto::port::LinkControl;
use mx_proto::{Config, Endpoint, EndpointId, Identity};
use mx_sys::slot::{Open, SlotError};
use mx_sys::{
    EndpointChoice, HostPorts, MonotonicClock, OpenOptions, ReopenOptions, Settings, linger,
};
use std::time::Duration;

/// Parameters of a new endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenParams {
    /// Board number; `None`: the first board.
    pub board: Option<u32>,
    /// Endpoint id; `None`: the lowest free one.
    pub endpoint: Option<u32>,
    /// Key that peers need to connect.
    pub key: u32,
    /// Maximum bytes of messages without a receive; `None`: the settings' limit.
    pub unexpected_bytes: Option<usize>,
    /// Position of context ids in match bits; `None` without them.
    pub context_ids: Option<ContextIds>,
    /// Address of the error handler, a C function, or 0; not called here.
    pub error_handler: usize,
}

/// Time that [`close`] waits for the last messages to leave.
const LINGER: Duration = Duration::from_secs(1);

/// Opens an endpoint on this machine's ports, with a helper thread if the settings ask for one, and returns its handle.
pub fn open(settings: &Settings, params: OpenParams) -> Result<EndpointHandle, Error> {
    let reserved = Reserved::new()?;
    let choice = match params.endpoint {
        Some(id) => EndpointChoice::Exact(EndpointId(id)),
        None => EndpointChoice::Lowest,
    };
    let options = OpenOptions {
        board: params.board,
        ..settings.open_options(choice)
    };
    let opened = HostPorts::open(options.clone()).map_err(SlotError::Ports);
    let (ports, identity) = opened.map_err(no_endpoint)?;
    let config = ports.endpoint_config(&settings.endpoint);
    let config = config.map_err(SlotError::Random);
    let mut config = config.map_err(no_endpoint)?;
    if let Some(bytes) = params.unexpected_bytes {
        config.unexpected_bytes = bytes;
    }
    let eager_max = config.eager_max;
    let place = reserved.place;
    place.set_context_ids(params.context_ids);
    let again = EndpointChoice::Exact(identity.endpoint);
    let helped = settings.helper && !settings.monothread;
    let anew = ReopenOptions::new(options, again, settings.tuning(), helped);
    let shared = &place.shared;
    // The place is reserved, so no other endpoint is put there.
    let (handle, generation) = {
        let mut slot = shared.lock();
        let tuned = slot.retune(anew.tuning).map_err(SlotError::Doorbells);
        tuned.map_err(no_endpoint)?;
        let generation = slot.generation().wrapping_add(1);
        (
            EndpointHandle::new(reserved.slot, generation),
            slot.persistent,
        )
    };
    let options = Options {
        handle,
        key: params.key,
        eager_max,
        context_ids: params.context_ids,
        generation,
        error_handler: params.error_handler,
    };
    let program = Program::new(identity, options);
    let engine = engine(config, identity, params.key, ports, program);
    let open = Open::new(engine, anew, shared).map_err(no_endpoint)?;
    // Once other threads can find the endpoint, one may close it: nothing may fail from here on.
    reserved.keep();
    shared.lock().put(open);
    log::info!(
        "endpoint {} is open, session {:#x}",
        identity.endpoint.0,
        identity.session.0
    );
    Ok(handle)
}

/// Makes the engine over these ports. Not inlined: the values moved here take several copies on the stack.
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

/// Closes an endpoint. Its requests end without a completion, and threads that wait on it return. Waits for a handler
/// that runs in another thread; fails inside the endpoint's own handler.
pub fn close(ep: EndpointHandle) -> Result<(), Error> {
    let place = held(ep)?;
    if !place.shared.is_mine() && close_inherited(ep, place)? {
        return Ok(());
    }
    let take = |slot: &mut HostSlot| {
        let engine = match machine::engine(slot, ep) {
            Ok(engine) => engine,
            Err(error) => return Some(Err(error)),
        };
        match engine.running() {
            Some(thread) if thread == this_thread() => Some(Err(Error::new(
                Code::CloseInHandler,
                "the endpoint cannot be closed by its own handler",
            ))),
            // Nothing can wake this thread after the descriptors are lost.
            Some(_) if !engine.endpoint().port().is_lost() => {
                engine.end_turns();
                None
            }
            _ => slot.take().map(Ok),
        }
    };
    place.shared.lock().check_lost();
    // Without a time-out the wait always finds something.
    let Some(taken) = place.shared.wait_for(HANDLER, None, take) else {
        return Ok(());
    };
    let mut engine = taken?.into_engine();
    let id = engine.identity().endpoint.0;
    if engine.endpoint().port().is_lost() {
        engine.leave_port();
    } else {
        // First small sends that wait for room, then the last packets.
        drain(&mut engine, HostEngine::last_sends);
        engine.close();
        drain(&mut engine, |engine| {
            engine.endpoint().port().link_count() > 0
        });
        drop(engine);
    }
    if let Some(slot) = ep.slot() {
        release(slot);
    }
    log::info!("endpoint {id} is closed");
    Ok(())
}

/// Closes an inherited endpoint in a child of fork, where only memory has to be freed. Returns false if it has just
/// been reopened.
#[cold]
fn close_inherited(ep: EndpointHandle, place: &EndpointPlace) -> Result<bool, Error> {
    let mut slot = place.shared.lock();
    let engine = machine::engine(&mut slot, ep)?;
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

/// Closes every open endpoint of this process, and waits for unexpected handlers in other threads. If an unexpected
/// handler makes this call, its own endpoint stays open.
pub fn close_all() {
    for ep in open_endpoints() {
        if let Err(error) = close(ep) {
            log::warn!("{error}");
        }
    }
}

/// Polls until `left` is false, for a bounded time.
fn drain(engine: &mut HostEngine, mut left: impl FnMut(&mut HostEngine) -> bool) {
    linger(LINGER, || {
        let busy = engine.progress();
        left(engine).then(|| (busy, engine.endpoint().descriptors()))
    });
}
