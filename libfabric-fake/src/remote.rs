//! Reads of remote memory.
//!
//! ```text
//!   post --> Remote { target, key } -----> polls of who posted it --> access checked --> bytes
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

/// One read under way.
pub(crate) struct Remote {
    serial: u64,
    pub(crate) target: Id,
    /// Address and key there.
    remote: (u64, u64),
    wait: u32,
}

/// A read, as it was called.
pub(crate) struct RemoteCall {
    pub(crate) name: &'static str,
    pub(crate) spans: Vec<Span>,
    pub(crate) descs: Vec<usize>,
    pub(crate) peer: u64,
    /// Address and key there.
    pub(crate) remote: (u64, u64),
    pub(crate) context: usize,
}

impl State {
    pub(crate) fn post_remote(&mut self, ep: Id, call: RemoteCall) -> Result<(), isize> {
        let name = call.name;
        let shape = self.ready(ep, name)?;
        let Some(endpoint) = self.endpoints.get(&ep) else {
            return Err(code(FI_EINVAL));
        };
        let full = endpoint.outstanding >= endpoint.tx_size;
        if endpoint.caps & (FI_RMA | FI_READ) != FI_RMA | FI_READ {
            return Err(self.wrong(name, ep, "without the capability", FI_ENOSYS));
        }
        self.check_segments(ep, name, &call.spans, shape.iov_limit, 0)?;
        if total(&call.spans) > shape.max_msg {
            return Err(self.wrong(name, ep, "more than max_msg_size", FI_EMSGSIZE));
        }
        self.check_registered(ep, name, &call.spans, &call.descs, FI_READ)?;
        let route = self.route(ep, name, call.peer)?;
        if full || matches!(route, Route::Later | Route::Gone(Death::Again)) {
            return Err(self.again());
        }
        self.check_context(ep, name, &shape, call.context)?;
        self.check_overlap(ep, name, &call.spans, true);
        self.stats.remotes += 1;
        let operation = Operation {
            ep,
            what: What::Read,
            context: call.context,
            scribbled: 0,
            sum: 0,
            spans: call.spans,
            descs: call.descs,
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
                    remote: call.remote,
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
        self.stats.bytes += total(&spans) as u64;
        None
    }

    /// Reads of the memory of an endpoint that is gone.
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
