//! Inheritance: a child of `fork` goes on with its copy of an endpoint.
//!
//! ```text
//!   parent: endpoint --- goes on ------------------------------------------------->
//!               `- fork - copy: inherit --> operations have ended, no remotes, --> reopen: another port,
//!                                           the port is not used                   another session
//! ```
//!
//! Links, and everything that arrived over them, belong to the parent. The copy does not call its old port, because
//! whatever that port would close or send is the parent's.
//!
//! Knows nothing of: processes.

use super::{
    Endpoint, data_links, deadlines, introductions, liveness, moves, order, regions, streamed,
    tombstones,
};
use crate::config::Config;
use crate::event::Identity;
use crate::flow::Flow;
use crate::ids::RequestId;
use crate::ops::Record;
use crate::owner::Owner;
use crate::port::{LinkDown, Port};
use crate::queues::Spares;
use crate::status::{DownReason, Status};
use crate::time::Clock;
use crate::timer::Wheel;
use crate::unexpected::UnexpectedQueue;
use std::mem::ManuallyDrop;

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Ends everything in the child of a fork, without using the port, which belongs to the parent: every operation
    /// completes as unreachable, as if all links had been reset, and messages that have not been received are dropped.
    /// Buffered copies end as sent, because the parent sends them. Until [`Self::reopen`], only completed operations
    /// may be taken.
    pub fn inherit(&mut self) {
        self.drop_empty_tombstones();
        self.inherited = true;
        self.introductions = introductions::Introductions::default();
        let all = |keep: fn(&Record<O::Memory>) -> bool| -> Vec<RequestId> {
            let all = self.ops.iter();
            all.filter(|(_, record)| keep(record))
                .map(|(id, _)| id)
                .collect()
        };
        for copy in all(|record| record.state.is_copy()) {
            self.complete(copy, Status::Success, 0);
        }
        for remote in self.remotes.ids() {
            self.end_remote(remote, DownReason::Link(LinkDown::Reset), false);
        }
        let left: Vec<_> = self.ops.iter().map(|(id, _)| id).collect();
        for id in left {
            self.complete(id, Status::Unreachable, 0);
        }
        self.forget_links();
    }

    /// Opens an endpoint again in the child of a fork, over a new `port`, after [`Self::inherit`]. The new settings may
    /// differ from the old ones in secrets only. Returns the old port, which is the parent's.
    pub fn reopen(&mut self, config: Config, identity: Identity, port: P) -> P {
        debug_assert!(self.remotes.len() == 0);
        self.inherited = false;
        self.identity = identity;
        self.config = config;
        std::mem::replace(&mut self.port, port)
    }

    /// Drops the endpoint without its port, whose memory is leaked: nothing that a parent process shares with it is
    /// closed or changed.
    pub fn leave_port(self) {
        let _ = ManuallyDrop::new(self.port);
    }

    /// Drops all state of links, and all work still to be done with them.
    fn forget_links(&mut self) {
        // Every field is named, so that no new one is left out.
        let Self {
            port: _,
            clock: _,
            inherited: _,
            owner: _,
            events: _,
            config,
            identity: _,
            key: _,
            ops: _,
            remotes: _,
            spares,
            posted: _,
            unexpected,
            starved,
            messages: _,
            tombstones,
            regions,
            refused_accesses,
            timeouts: _,
            flow,
            epoch_ends,
            wheel,
            liveness,
            ready,
            bound,
            data_links,
            moves,
            order,
            streamed,
            bodies: _,
            introductions,
            challenges,
            controls,
            stats: _,
        } = self;
        *spares = Spares::default();
        *unexpected = UnexpectedQueue::default();
        *tombstones = tombstones::Tombstones::default();
        // Keys belong to the parent.
        regions.clear();
        *refused_accesses = regions::Refusals::default();
        *flow = Flow::new(&config.flow());
        *wheel = Wheel::new(deadlines::TICK);
        *liveness = liveness::Liveness::new(config.peer_timeout);
        *order = order::MatchOrder::default();
        *data_links = data_links::DataLinks::default();
        *moves = moves::Moves::default();
        *streamed = streamed::AllStreamed::default();
        *introductions = introductions::Introductions::default();
        *challenges = introductions::Challenges::default();
        (*starved, *epoch_ends) = (false, false);
        *controls = 0;
        ready.clear();
        bound.clear();
    }
}
