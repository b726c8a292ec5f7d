//! Reads and writes of remote memory.
//!
//! ```text
//!   post --> Remote { target, pieces } --> polls of who posted it --> access checked --> bytes
//!                                                                        |
//!                                    closed, wrong key, out of range: error, nothing is moved
//! ```
//!
//! Owns: carrying them out. The target's process takes no part, as with a card.
//! Knows nothing of: registrations' own rules.

use libfabric_sys::abi::*;

use crate::bytes;
use crate::checker::{Span, total};
use crate::faults::Death;
use crate::finishing::Finish;
use crate::memory::Denied;
use crate::objects::{Id, code};
use crate::posting::Route;
use crate::state::{Operation, State, What};

/// One read or write under way.
pub(crate) struct Remote {
    serial: u64,
    pub(crate) target: Id,
    pieces: Vec<fi_rma_iov>,
    write: bool,
    wait: u32,
}

/// A read or write, however it was called.
pub(crate) struct RemoteCall {
    pub(crate) name: &'static str,
    pub(crate) spans: Vec<Span>,
    pub(crate) descs: Vec<usize>,
    pub(crate) peer: u64,
    pub(crate) pieces: Vec<fi_rma_iov>,
    pub(crate) context: usize,
    pub(crate) write: bool,
}

impl State {
    pub(crate) fn post_remote(&mut self, ep: Id, call: RemoteCall) -> Result<(), isize> {
        let name = call.name;
        let shape = self.ready(ep, name)?;
        let Some(endpoint) = self.endpoints.get(&ep) else {
            return Err(code(FI_EINVAL));
        };
        let full = endpoint.outstanding >= endpoint.tx_size;
        let access = if call.write { FI_WRITE } else { FI_READ };
        if endpoint.caps & (FI_RMA | access) != FI_RMA | access {
            return Err(self.wrong(name, ep, "without the capability", FI_ENOSYS));
        }
        self.check_segments(ep, name, &call.spans, shape.iov_limit, 0)?;
        let there = call
            .pieces
            .iter()
            .fold(0usize, |sum, piece| sum.saturating_add(piece.len));
        if call.pieces.len() > shape.rma_iov_limit || there != total(&call.spans) {
            return Err(self.wrong(name, ep, "pieces that do not fit the segments", FI_EINVAL));
        }
        if there > shape.max_msg {
            return Err(self.wrong(name, ep, "more than max_msg_size", FI_EMSGSIZE));
        }
        self.check_registered(ep, name, &call.spans, &call.descs, access)?;
        let route = self.route(ep, name, call.peer)?;
        if full || matches!(route, Route::Later | Route::Gone(Death::Again)) {
            return Err(self.again());
        }
        self.check_context(ep, name, &shape, call.context)?;
        self.check_overlap(ep, name, &call.spans, !call.write);
        self.stats.remotes += 1;
        let operation = Operation {
            ep,
            what: What::Remote { write: call.write },
            context: call.context,
            scribbled: 0,
            sum: if call.write {
                bytes::sum(&call.spans)
            } else {
                0
            },
            spans: call.spans,
            descs: call.descs,
            report: true,
            canary: None,
            done: false,
        };
        let serial = self.lend(&shape, operation);
        let wait = self.rng.upto(self.faults.landing_polls);
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            endpoint.outstanding += 1;
            if let Route::To(target) = route {
                endpoint.remote.push(Remote {
                    serial,
                    target,
                    pieces: call.pieces,
                    write: call.write,
                    wait,
                });
            }
        }
        if let Route::Gone(death) = route {
            self.bereave(serial, death, false);
        }
        self.nudge(ep);
        Ok(())
    }

    pub(crate) fn run_remote(&mut self, ep: Id) {
        let Some(endpoint) = self.endpoints.get_mut(&ep) else {
            return;
        };
        let mut waiting = Vec::new();
        for mut remote in std::mem::take(&mut endpoint.remote) {
            let cut = self.is_cut(ep, remote.target);
            if cut || remote.wait > 0 || self.rng.chance(self.faults.hold) {
                remote.wait = remote.wait.saturating_sub(1);
                waiting.push(remote);
            } else {
                let failure = self.carry_out(ep, &remote).or_else(|| self.made_up());
                if let Some(endpoint) = self.endpoints.get_mut(&ep) {
                    endpoint.finishing.push(Finish {
                        serial: remote.serial,
                        wait: 0,
                        failure,
                    });
                }
            }
        }
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            endpoint.remote = waiting;
        }
    }

    /// Moves the bytes, or says why not.
    fn carry_out(&mut self, ep: Id, remote: &Remote) -> Option<i32> {
        let operation = self.operations.get(&remote.serial)?;
        let (spans, descs, sum) = (
            operation.spans.clone(),
            operation.descs.clone(),
            operation.sum,
        );
        let (here, there) = if remote.write {
            (FI_WRITE, FI_REMOTE_WRITE)
        } else {
            (FI_READ, FI_REMOTE_READ)
        };
        let mut target = Vec::with_capacity(remote.pieces.len());
        for piece in &remote.pieces {
            match self.remote_access(remote.target, piece.addr, piece.len, piece.key, there) {
                Ok(span) => target.push(span),
                Err(Denied { error, wrong }) => {
                    self.stats.denied += 1;
                    if let Some(text) = wrong {
                        self.violation(format!("endpoint {ep}: {text}"));
                    }
                    return Some(error);
                }
            }
        }
        let mut here_now = spans.iter().zip(&descs);
        if self.faults.revocable
            && here_now.any(|(span, desc)| self.local_access(ep, *span, *desc, here).is_err())
        {
            self.stats.denied += 1;
            return Some(FI_EACCES);
        }
        self.still_registered(ep, &spans, &descs, here);
        if remote.write {
            let bytes = bytes::gather(&spans);
            if crate::checker::Sum::of(&bytes) != sum {
                self.violation(format!(
                    "a write's memory changed before it was sent (from {ep})"
                ));
            }
            bytes::scatter(&target, &bytes);
        } else {
            bytes::scatter(&spans, &bytes::gather(&target));
        }
        self.stats.bytes += total(&spans) as u64;
        None
    }

    /// Reads and writes of the memory of an endpoint that is gone.
    pub(crate) fn lose_reads_of(&mut self, target: Id, death: Death) {
        let all: Vec<Id> = self.endpoints.keys().copied().collect();
        for ep in all {
            self.lose_reads(ep, target, death);
        }
    }

    /// The same for those of one endpoint.
    pub(crate) fn lose_reads(&mut self, ep: Id, target: Id, death: Death) {
        let Some(endpoint) = self.endpoints.get_mut(&ep) else {
            return;
        };
        let (lost, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut endpoint.remote)
            .into_iter()
            .partition(|remote| remote.target == target);
        endpoint.remote = stay;
        for remote in lost {
            self.bereave(remote.serial, death, false);
        }
    }
}
