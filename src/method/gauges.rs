//! Figures of a method: of all of it, and of one peer.
//!
//! Cost: O(1), but for [`Method::report`], which looks at every remote.

use super::Method;
use crate::peer::state::{State, StateName};
use crate::peer::table::PeerKey;
use mx_proto::flow::FlowStats;
use mx_proto::port::Port;
use mx_proto::{Account, Clock, InboxStats};
use mx_sys::UserMemory;
use mx_sys::published::MethodGauges;

/// The current figures and the counters of a method.
#[derive(Clone, Copy, Debug, Default)]
pub struct MethodReport {
    /// Credits.
    pub flow: FlowStats,
    /// Unexpected messages.
    pub inbox: InboxStats,
    /// Unexpected messages that can be had now.
    pub ready: u64,
    /// Times that a remote's sends had to wait for credits.
    pub credit_stalls: u64,
    /// Remotes whose sends do now.
    pub stalled: u64,
    /// Operations posted and not handed out.
    pub operations: u64,
    /// Bytes of messages that came before their receives.
    pub early_bytes: u64,
    /// Bytes that are lent or taken, and the limit.
    pub usage: (u64, u64),
}

/// The figures of one peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerGauges {
    /// Its state.
    pub state: StateName,
    /// The credits between it and us; `None`: there is no connection.
    pub account: Option<Account>,
    /// Operations with it that wait for the connection.
    pub pending: u32,
}

impl PeerGauges {
    /// The figures of an address object that stands for no peer yet.
    pub const NONE: Self = Self {
        state: StateName::Init,
        account: None,
        pending: 0,
    };
}

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// The counters that tools show beside the endpoint's.
    pub fn gauges(&self) -> MethodGauges {
        MethodGauges {
            peers: self.peers().len() as u64,
            operations: self.operations() as u64,
            dropped: self.endpoint.owner().arrivals.dropped(),
        }
    }

    /// The figures for a program's query.
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

    /// The figures of a peer; those of a peer that is gone are as of one that never connected.
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
