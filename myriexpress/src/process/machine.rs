//! The engine on a real machine, in its slot.
//!
//! A slot is never freed, so that a stale handle can be recognised.
//!
//! Out of scope: the table, waiting.

use super::wait::this_thread;
use crate::engine::{Engine, Program};
use crate::error::{Code, Error};
use crate::handles::EndpointHandle;
use mx_proto::{Config, Endpoint, Identity};
use mx_sys::slot::{self, Open, Slot, SlotError};
use mx_sys::thread::PROGRESS_STACK;
use mx_sys::{HostPorts, Interest, MonotonicClock, OpenError, limits};

/// The engine on a real machine.
pub(super) type HostEngine = Engine<HostPorts, MonotonicClock>;

/// The state behind the lock.
pub(super) type HostSlot = Slot<HostEngine>;

impl slot::Engine for HostEngine {
    const LIBRARY: &'static str = "myriexpress";
    type Owner = Program;
    /// See [`Engine::next_generation`].
    type PersistentState = u32;

    #[inline]
    fn endpoint(&self) -> &Endpoint<HostPorts, MonotonicClock, Program> {
        Self::endpoint(self)
    }

    fn endpoint_mut(&mut self) -> &mut Endpoint<HostPorts, MonotonicClock, Program> {
        Self::endpoint_mut(self)
    }

    #[inline]
    fn progress(&mut self, _: &mut u32) -> bool {
        Self::progress(self)
    }

    #[inline]
    fn take_produced(&mut self) -> Interest {
        Self::take_produced(self)
    }

    fn is_halted(&self) -> bool {
        Self::is_halted(self)
    }

    fn on_taken(&mut self, generation: &mut u32) {
        *generation = self.next_generation();
    }

    fn forget_threads(slot: &mut HostSlot) {
        if let Some(engine) = slot.engine() {
            engine.forget_other_threads(this_thread());
        }
    }

    fn inherit(&mut self) {
        Self::inherit(self);
    }

    fn reopen(
        &mut self,
        _: Option<u32>,
        config: Config,
        identity: Identity,
        ports: HostPorts,
    ) -> HostPorts {
        let id = identity.endpoint.0;
        log::info!(
            "endpoint {id} is open after a fork, session {:#x}",
            identity.session.0
        );
        Self::reopen(self, config, identity, ports)
    }

    fn leave_port(self) {
        Self::leave_port(self);
    }
}

/// Returns the endpoint of a handle.
pub(super) fn opened(slot: &HostSlot, ep: EndpointHandle) -> Result<&Open<HostEngine>, Error> {
    match slot.open() {
        Some(open) if slot.generation() == ep.generation() => Ok(open),
        _ => Err(not_open(ep)),
    }
}

/// Returns the engine of a handle's endpoint.
#[inline]
pub(super) fn engine(slot: &mut HostSlot, ep: EndpointHandle) -> Result<&mut HostEngine, Error> {
    let generation = slot.generation();
    match slot.engine() {
        Some(engine) if generation == ep.generation() => Ok(engine),
        _ => Err(not_open(ep)),
    }
}

/// Reports a handle of no open endpoint.
#[cold]
pub(super) fn not_open(ep: EndpointHandle) -> Error {
    Error::new(
        Code::BadEndpoint,
        format!("{:#x} is no open endpoint of this process", ep.0),
    )
}

/// Reports that no endpoint could be opened, or reopened after a fork.
#[cold]
pub(super) fn no_endpoint(reason: SlotError) -> Error {
    let what = match reason {
        SlotError::Ports(reason) => return refused(&reason),
        SlotError::Random(reason) => return refused(&OpenError::System(reason)),
        SlotError::Doorbells(reason) => {
            let limit = limits::of_descriptors(&reason);
            format!("no eventfd to wake threads with: {reason}{limit}")
        }
        SlotError::Helper(reason) => {
            let limit = limits::of_threads(&reason, PROGRESS_STACK);
            format!("no helper thread: {reason}{limit}")
        }
    };
    Error::new(Code::NoResources, what)
}

fn refused(error: &OpenError) -> Error {
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
        OpenError::Port(..) => Code::NoDev,
    };
    Error::new(code, error.to_string())
}
