//! Completion queues.
//!
//! ```text
//!   push ---> [ oldest .... newest ] ---> read: up to the requested number or the first failed one
//!               reorder: forward past              failed first: -FI_EAVAIL, then readerr
//!               those it need not follow
//!          `-> descriptor readable                 taken: the operation ends, its context and
//!                                                   memory belong to the user again
//! ```
//!
//! Owns: entries, the descriptor, the possible reordering.
//! Out of scope: the sources of completions.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::c_int;
use libfabric_sys::abi::*;

use crate::bytes;
use crate::checker::Span;
use crate::objects::{Id, code, enter};
use crate::shape::Wait;
use crate::state::State;

pub(crate) struct Queue {
    format: u32,
    size: usize,
    pub(crate) waits: bool,
    pub(crate) fd: Option<OwnedFd>,
    pub(crate) entries: VecDeque<Entry>,
    /// Set by an overrun: every read fails from then on.
    broken: bool,
}

/// A completion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) ep: Id,
    /// Operation, and whether this completion ends it.
    pub(crate) operation: Option<(u64, bool)>,
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: usize,
    /// Values of `err` and `olen`.
    pub(crate) failure: Option<(c_int, usize)>,
    /// Address of the sender.
    pub(crate) source: Option<Vec<u8>>,
    /// Memory that must be unchanged until now, and its checksum.
    pub(crate) intact: Option<(Vec<Span>, u64)>,
}

impl Entry {
    /// Returns true if `self` must stay behind `earlier`.
    fn follows(&self, earlier: &Self) -> bool {
        let same = |a: Option<(u64, bool)>, b: Option<(u64, bool)>| {
            a.is_some() && a.map(|(serial, _)| serial) == b.map(|(serial, _)| serial)
        };
        same(self.operation, earlier.operation)
            // Delays happen before queueing; the queue itself keeps that order.
            || (self.source.is_some() && self.source == earlier.source)
    }
}

impl State {
    /// Queues a completion for the user; an enabled endpoint has both queues.
    pub(crate) fn push_entry(&mut self, queue: Option<Id>, entry: Entry) {
        let Some(queue) = queue else {
            return;
        };
        let overruns = self.domain(queue).shape.cq_overruns;
        if entry.failure.is_some() {
            self.stats.errors += 1;
        }
        let Some(record) = self.queues.get_mut(&queue) else {
            return;
        };
        let mut place = record.entries.len();
        let mut passed = 0;
        while place > 0
            && !entry.follows(&record.entries[place - 1])
            && self.rng.chance(self.faults.reorder)
        {
            place -= 1;
            passed += 1;
        }
        self.stats.reordered += u64::from(passed > 0);
        record.entries.insert(place, entry);
        if overruns && record.entries.len() > record.size {
            record.broken = true;
        }
        record.wake();
    }

    /// Returns true if there is no completion and nothing can move: the descriptor then reports
    /// changes.
    pub(crate) fn may_sleep(&mut self, queue: Id) -> bool {
        let endpoints = self.endpoints_of(queue);
        if endpoints.iter().any(|ep| self.pending(*ep)) {
            return false;
        }
        let Some(record) = self.queues.get_mut(&queue) else {
            return false;
        };
        if !record.waits {
            self.violation(format!(
                "fi_trywait of completion queue {queue}, without wait object"
            ));
            return false;
        }
        if !record.entries.is_empty() || record.broken {
            return false;
        }
        record.quiet();
        true
    }

    /// Makes the descriptors of this endpoint's queues readable if there is work.
    pub(crate) fn nudge(&mut self, ep: Id) {
        if !self.pending(ep) {
            return;
        }
        for queue in self.queues_of(ep) {
            if let Some(record) = self.queues.get(&queue) {
                record.wake();
            }
        }
    }

    /// Breaks the queues of a machine, or all, as if they had been overrun.
    pub(crate) fn break_queues(&mut self, machine: Option<usize>) {
        let all: Vec<Id> = self.queues.keys().copied().collect();
        for id in all {
            let here = self.domain(id).machine;
            if machine.is_none_or(|machine| machine == here) {
                let queue = self.queues.get_mut(&id).expect("one of them");
                queue.broken = true;
                queue.wake();
            }
        }
    }

    /// Detaches queued completions of a closed endpoint from their operations and memory checks.
    pub(crate) fn release_entries(&mut self, ep: Id) {
        let entries = self
            .queues
            .values_mut()
            .flat_map(|queue| &mut queue.entries);
        for entry in entries.filter(|entry| entry.ep == ep) {
            entry.intact = None;
            entry.operation = None;
        }
    }

    /// Makes progress, applies faults and checks the queue, before an entry is taken.
    pub(crate) fn before_read(&mut self, queue: Id) -> Result<(), isize> {
        self.poll_queue(queue);
        let overrun = self.rng.chance(self.faults.overrun);
        let spurious = self.rng.chance(self.faults.spurious_wake);
        let Some(record) = self.queues.get_mut(&queue) else {
            return Err(code(FI_EINVAL));
        };
        record.broken |= overrun;
        if spurious {
            record.wake();
        }
        if record.broken {
            Err(code(FI_EOVERRUN))
        } else {
            Ok(())
        }
    }

    /// Takes the oldest entry, if its kind (failed or not) is wanted.
    pub(crate) fn take(&mut self, queue: Id, failed: bool) -> Option<Entry> {
        let record = self.queues.get_mut(&queue)?;
        record
            .entries
            .front()
            .filter(|entry| entry.failure.is_some() == failed)?;
        let entry = record.entries.pop_front()?;
        self.stats.completions += 1;
        if let Some((spans, sum)) = &entry.intact
            && bytes::sum(spans) != *sum
        {
            let what = if entry.flags & FI_SEND != 0 {
                "send"
            } else {
                "receive or read"
            };
            let text = format!(
                "memory of a {what} on endpoint {} changed before its completion was read",
                entry.ep
            );
            self.violation(text);
        }
        if let Some((serial, true)) = entry.operation {
            self.end_operation(serial);
        }
        Some(entry)
    }
}

impl Queue {
    pub(crate) fn wake(&self) {
        let Some(fd) = &self.fd else {
            return;
        };
        let one = 1u64.to_ne_bytes();
        // A full counter is readable, too, so the result does not matter.
        // SAFETY: eight bytes of this function, to an eventfd of this queue.
        unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn quiet(&self) {
        let Some(fd) = &self.fd else {
            return;
        };
        let mut count = [0u8; 8];
        // Nothing to read means that it is drained.
        // SAFETY: space for eight bytes in this function; the descriptor does not block.
        unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    pub(crate) fn entry_size(&self) -> usize {
        match self.format {
            FI_CQ_FORMAT_CONTEXT => size_of::<fi_cq_entry>(),
            FI_CQ_FORMAT_MSG => size_of::<fi_cq_msg_entry>(),
            _ => size_of::<fi_cq_tagged_entry>(),
        }
    }
}

pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    let open = |state: &mut State, id: Id| {
        // SAFETY: attributes or null, by the call's contract.
        let attr = unsafe { attr.as_ref() }
            .copied()
            .unwrap_or(fi_cq_attr::EMPTY);
        let shape = state.domain(id).shape.clone();
        if attr.format > FI_CQ_FORMAT_TAGGED {
            return state.violated(FI_EINVAL, format!("fi_cq_open with format {}", attr.format));
        }
        if attr.format == FI_CQ_FORMAT_TAGGED && !shape.tagged_entries {
            return code(FI_ENOSYS);
        }
        let size = match attr.size {
            0 => shape.cq_size,
            size => size,
        };
        if size > shape.cq_limit {
            return code(FI_EINVAL);
        }
        let waits = attr.wait_obj != FI_WAIT_NONE;
        let fd = match (attr.wait_obj, shape.wait) {
            (FI_WAIT_NONE, _) => None,
            (_, Wait::Refused) => return code(FI_ENOSYS),
            (_, Wait::NoDescriptor) => None,
            (FI_WAIT_FD | FI_WAIT_UNSPEC, Wait::Fd | Wait::WhenBound) => match eventfd() {
                Some(fd) => Some(fd),
                None => return code(FI_EMFILE),
            },
            _ => return code(FI_ENOSYS),
        };
        let (cq, pointer) = state.opened(FI_CLASS_CQ, Some(id), context);
        // The manual leaves the default format to the provider; the fake's is an inconvenient one.
        let format = if attr.format == 0 {
            FI_CQ_FORMAT_CONTEXT
        } else {
            attr.format
        };
        state.queues.insert(
            cq,
            Queue {
                format,
                size,
                waits,
                fd,
                entries: VecDeque::new(),
                broken: false,
            },
        );
        // SAFETY: an output, by the call's contract.
        unsafe { out.write(pointer.cast()) };
        0
    };
    // SAFETY: an object of a fake.
    unsafe { enter(domain.cast(), FI_CLASS_DOMAIN, "fi_cq_open", open) as c_int }
}

fn eventfd() -> Option<OwnedFd> {
    // SAFETY: no precondition.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    // SAFETY: just opened, and not shared.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(serial: u64, source: Option<u8>) -> Entry {
        Entry {
            operation: Some((serial, true)),
            source: source.map(|byte| vec![byte]),
            ..Entry::default()
        }
    }

    #[test]
    fn completions_of_one_operation_or_one_peer_keep_their_order() {
        assert!(entry(1, None).follows(&entry(1, None)));
        assert!(!entry(1, None).follows(&entry(2, None)));
        assert!(entry(1, Some(7)).follows(&entry(2, Some(7))));
        assert!(!entry(1, Some(7)).follows(&entry(2, Some(8))));
    }
}
