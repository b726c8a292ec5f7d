//! Reads of remote memory.
//!
//! ```text
//!   post --> Remote { target, key } -----> polls of the initiator --> access checked --> bytes
//!                                                                        |
//!                                    closed, wrong key, out of range: error, nothing is moved
//! ```
//!
//! Owns: the execution. The target's process takes no part, as with an adapter.
//! Out of scope: the rules of registrations.

use libfabric_sys::abi::*;

use crate::bytes;
use crate::checker::total;
use crate::faults::Death;
use crate::memory::Denied;
use crate::objects::Id;
use crate::state::State;

/// A read of remote memory in progress.
pub(crate) struct Remote {
    pub(crate) serial: u64,
    pub(crate) target: Id,
    /// Remote address and key.
    pub(crate) remote: (u64, u64),
    pub(crate) wait: u32,
}

impl State {
    pub(crate) fn run_remote(&mut self, ep: Id) {
        let mut waiting = Vec::new();
        let mut refused = Vec::new();
        for mut remote in std::mem::take(&mut self.ep(ep).remote) {
            let cut = self.is_cut(ep, remote.target);
            if cut || remote.wait > 0 || self.rng.chance(self.faults.hold) {
                remote.wait = remote.wait.saturating_sub(1);
                waiting.push(remote);
            } else {
                let before = self.stats.denied;
                let failure = self.carry_out(ep, &remote).or_else(|| self.made_up());
                self.over(remote.serial, 0, failure);
                if self.stats.denied > before {
                    refused.push(remote.target);
                }
            }
        }
        self.ep(ep).remote = waiting;
        if self.ep(ep).shape.refusal_disconnects {
            for target in refused {
                self.disconnect(ep, target);
                self.disconnect(target, ep);
            }
        }
    }

    /// Moves the bytes, or returns the error.
    fn carry_out(&mut self, ep: Id, remote: &Remote) -> Option<i32> {
        let operation = self.operations.get(&remote.serial)?;
        let (spans, descs) = (operation.spans.clone(), operation.descs.clone());
        let (addr, key) = remote.remote;
        let access = self.remote_access(remote.target, addr, total(&spans), key, FI_REMOTE_READ);
        let target = match access {
            Ok(span) => span,
            Err(Denied { error, wrong }) => {
                self.stats.denied += 1;
                if let Some(text) = wrong {
                    self.violation(format!("endpoint {ep}: {text}"));
                }
                return Some(error);
            }
        };
        let mut here_now = spans.iter().zip(&descs);
        if self.faults.revocable
            && here_now.any(|(span, desc)| self.local_access(ep, *span, *desc, FI_READ).is_err())
        {
            self.stats.denied += 1;
            return Some(FI_EACCES);
        }
        self.still_registered(ep, &spans, &descs, FI_READ);
        bytes::scatter(&spans, &bytes::gather(&[target]));
        None
    }

    /// Ends reads of the memory of an endpoint that has ended.
    pub(crate) fn lose_reads_of(&mut self, target: Id, death: Death) {
        let all: Vec<Id> = self.endpoints.keys().copied().collect();
        for ep in all {
            self.lose_reads(ep, target, death);
        }
    }

    /// Ends such reads by one endpoint.
    pub(crate) fn lose_reads(&mut self, ep: Id, target: Id, death: Death) {
        let endpoint = self.ep(ep);
        let (lost, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut endpoint.remote)
            .into_iter()
            .partition(|remote| remote.target == target);
        endpoint.remote = stay;
        for remote in lost {
            self.end_with_peer(remote.serial, death, false);
        }
    }
}
