//! Levels and counters of a method, and of one peer.
//!
//! Cost: O(1), except [`Method::report`], which visits every remote.

use super::Method;
use crate::peer::state::{State, StateName};
use crate::peer::table::PeerKey;
use mx_proto::flow::FlowStats;
use mx_proto::port::Port;
use mx_proto::{Account, Clock, InboxStats};
use mx_sys::UserMemory;
use mx_sys::published::MethodGauges;

/// Counters of a method, and its present numbers of messages, operations and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MethodReport {
    /// Counters of flow control.
    pub flow: FlowStats,
    /// Counters of unexpected messages.
    pub inbox: InboxStats,
    /// Number of unexpected messages available now.
    pub ready: u64,
    /// Times that a remote's sends had to wait for credits.
    pub credit_stalls: u64,
    /// Number of remotes whose sends wait for credits now.
    pub stalled: u64,
    /// Number of operations posted and not reported.
    pub operations: u64,
    /// Bytes of messages that arrived before their receives.
    pub early_bytes: u64,
    /// Bytes for unexpected messages that are lent to peers or in use, and the maximum of that number.
    pub usage: (u64, u64),
}

/// Present state of one peer: connection, credits and waiting operations.
#[derive(Clone, Copy, Debug)]
pub struct PeerGauges {
    /// State of the peer.
    pub state: StateName,
    /// Credits between the peer and this process; `None` without a connection.
    pub account: Option<Account>,
    /// Number of operations that wait for the connection.
    pub pending: u32,
}

impl PeerGauges {
    /// Gauges of an address object without a peer.
    pub const NONE: Self = Self {
        state: StateName::Init,
        account: None,
        pending: 0,
    };
}

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Returns the method's counters for the published page, where tools read them beside the endpoint's.
    pub fn gauges(&self) -> MethodGauges {
        MethodGauges {
            peers: self.peers().len() as u64,
            operations: self.operations() as u64,
            dropped: self.endpoint.owner().arrivals.dropped(),
        }
    }

    /// Returns the levels and counters that answer a program's `BMI_MX_GET_CREDITS`.
    pub fn report(&self) -> MethodReport {
        let (used, limit) = self.endpoint.unexpected_usage();
        MethodReport {
            flow: self.endpoint.flow_stats(),
            inbox: self.endpoint.inbox_stats(),
            ready: self.unexpected() as u64,
            credit_stalls: self.endpoint.stats().credit_stalls,
            stalled: self.endpoint.stalled() as u64,
            operations: self.operations() as u64,
            early_bytes: self.endpoint.unexpected_bytes() as u64,
            usage: (used as u64, limit as u64),
        }
    }

    /// Returns the levels of a peer; [`PeerGauges::NONE`] if it was removed.
    pub fn peer_gauges(&self, key: PeerKey) -> PeerGauges {
        let Some(peer) = self.peers().get(key) else {
            return PeerGauges::NONE;
        };
        let account = match peer.state {
            State::Ready(ready) => self.endpoint.account(ready.remote),
            _ => None,
        };
        PeerGauges {
            state: peer.state.name(),
            account,
            pending: peer.queued(),
        }
    }
}
