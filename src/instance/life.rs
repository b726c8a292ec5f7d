//! The method on a real machine, in its slot.
//!
//! Owns: the slot's persistent state.

use super::{NOTIFYING, lifecycle, names, not_initialized};
use crate::buffer;
use crate::error::Error;
use crate::method::{Host, Method};
use crate::peer_name::PeerName;
use mx_proto::{Config, Endpoint, Identity, Instant, NicId};
use mx_sys::published::MethodGauges;
use mx_sys::slot::{Engine, Slot};
use mx_sys::{HostPorts, Interest, MonotonicClock};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The method on a real machine.
pub(super) type HostMethod = Method<HostPorts, MonotonicClock>;

/// The state behind the lock.
pub(super) type HostSlot = Slot<HostMethod>;

/// State that outlives a method.
#[derive(Default)]
pub struct PersistentState {
    /// Name that a server listens on, and this endpoint's interface; `None` for a client. The host in the name need not
    /// resolve.
    pub(super) listen: Option<(PeerName, NicId)>,
    /// Time that the last messages may take to leave.
    pub(super) shutdown: Duration,
    /// Whether a thread is resolving names again.
    pub(super) resolving: bool,
    /// Number of calls in a row that found a result without polling.
    pub(super) unpolled: u32,
}

/// Access to the method for calls that need one.
pub(super) trait Running {
    /// Returns the method, or an error if none is initialized.
    fn method(&mut self) -> Result<&mut HostMethod, Box<Error>>;
}

impl Running for HostSlot {
    #[inline]
    fn method(&mut self) -> Result<&mut HostMethod, Box<Error>> {
        match self.engine() {
            Some(method) => Ok(method),
            None => Err(not_initialized()),
        }
    }
}

impl Engine for HostMethod {
    const LIBRARY: &'static str = "bmi_mx";
    type Owner = Host;
    type PersistentState = PersistentState;

    #[inline]
    fn endpoint(&self) -> &Endpoint<HostPorts, MonotonicClock, Host> {
        Self::endpoint(self)
    }

    fn endpoint_mut(&mut self) -> &mut Endpoint<HostPorts, MonotonicClock, Host> {
        Self::endpoint_mut(self)
    }

    #[inline]
    fn progress(&mut self, beside: &mut PersistentState) -> bool {
        let busy = Self::progress(self);
        if self.has_questions() {
            names::resolve(beside);
        }
        busy
    }

    #[inline]
    fn take_produced(&mut self) -> Interest {
        Self::take_produced(self)
    }

    fn gauges(&self) -> Option<MethodGauges> {
        Some(Self::gauges(self))
    }

    fn on_taken(&mut self, beside: &mut PersistentState) {
        beside.listen = None;
    }

    fn forget_threads(slot: &mut HostSlot) {
        slot.persistent.resolving = false;
        NOTIFYING.store(0, Ordering::Relaxed);
    }

    fn inherit(&mut self) {
        Self::inherit(self);
    }

    fn reopen(
        &mut self,
        board: Option<u32>,
        config: Config,
        identity: Identity,
        ports: HostPorts,
    ) -> HostPorts {
        let own = lifecycle::own_name(board, identity);
        log::info!(
            "{own} is open after a fork, session {:#x}",
            identity.session.0
        );
        Self::reopen(self, own.to_string(), config, identity, ports)
    }

    fn leave_port(self) {
        Self::leave_port(self);
    }

    fn give_back_due() -> Option<Instant> {
        buffer::next_due()
    }

    fn give_back() {
        buffer::give_back_unused();
    }
}
