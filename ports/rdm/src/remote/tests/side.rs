//! Side of a test, and two of them with a connection.

use crate::bounce::BounceBuffers;
use crate::ops::{Op, Ops};
use crate::provider::Choice;
use crate::reading::Reading;
use crate::remote::{PortContext, Remote, Report};
use libfabric_sys::Library;
use mx_port_fabric::{CqEvent, Domain, Ep, Role};
use mx_proto::port::{RemoteKey, RemoteRead, SendError};
use mx_proto::{Instant, LinkId, Memory};
pub(super) use mx_sim::Pieces;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The parts of a port that `Remote` needs.
pub(super) struct Side {
    pub(super) remote: Remote,
    pub(super) main: Ep,
    pub(super) out: VecDeque<(LinkId, Reading)>,
    pub(super) backlog: VecDeque<CqEvent>,
    pub(super) ops: Ops,
    pub(super) reports: Vec<Report>,
    pub(super) now: Instant,
    pub(super) domain: Domain,
    pub(super) bounce: BounceBuffers,
}

impl Side {
    pub(super) fn open(library: &Arc<Library>, choice: &Choice) -> Self {
        let domain =
            Domain::open(Arc::clone(library), &choice.info, choice.plan.terms.clone()).unwrap();
        let main = domain.endpoint(Role::Main).unwrap();
        Self {
            remote: Remote::new(&choice.plan).expect("the provider reads"),
            main,
            out: VecDeque::new(),
            backlog: VecDeque::new(),
            ops: Ops::default(),
            reports: Vec::new(),
            now: Instant(1),
            domain,
            bounce: BounceBuffers::default(),
        }
    }

    pub(super) fn with<T>(
        &mut self,
        call: impl FnOnce(&mut Remote, &mut PortContext<'_>) -> T,
    ) -> T {
        let mut outlet = PortContext {
            domain: &self.domain,
            main: &self.main,
            ops: &mut self.ops,
            bounce: &mut self.bounce,
            out: &mut self.out,
            backlog: &mut self.backlog,
        };
        call(&mut self.remote, &mut outlet)
    }

    pub(super) fn register<M: Memory>(
        &mut self,
        link: LinkId,
        memory: &M,
        token: u64,
    ) -> Option<RemoteKey> {
        self.with(|remote, outlet| remote.register(outlet, link, memory, token))
    }

    pub(super) fn deregister(&mut self, link: LinkId, key: RemoteKey) {
        self.with(|remote, outlet| remote.deregister(outlet, link, key));
    }

    pub(super) fn read<M: Memory>(
        &mut self,
        link: LinkId,
        key: RemoteKey,
        memory: &mut M,
        token: u64,
    ) -> Result<(), SendError> {
        let part = (0, memory.len());
        self.read_part(link, key, memory, part, token)
    }

    pub(super) fn read_part<M: Memory>(
        &mut self,
        link: LinkId,
        key: RemoteKey,
        memory: &mut M,
        (at, len): (usize, usize),
        token: u64,
    ) -> Result<(), SendError> {
        let read = RemoteRead {
            key,
            from: 0,
            memory,
            at,
            len,
            token,
        };
        self.with(|remote, outlet| remote.read(outlet, link, read))
    }

    pub(super) fn recall(&mut self, link: LinkId, token: u64) {
        self.with(|remote, outlet| remote.recall(outlet, link, token));
    }

    pub(super) fn stop_reading(&mut self, link: LinkId, token: u64) {
        self.with(|remote, outlet| remote.stop_reading(outlet, link, token));
    }

    pub(super) fn link_down(&mut self, link: LinkId) {
        self.with(|remote, outlet| remote.on_link_down(outlet, link));
    }

    /// Polls, as a port does.
    pub(super) fn poll(&mut self) {
        let mut events: Vec<CqEvent> = self.backlog.drain(..).collect();
        self.domain.read(&mut events, 64).unwrap();
        for event in events {
            if let Some(Op::Read(piece)) = self.ops.end(event.context) {
                let outcome = event.outcome.map(drop);
                self.with(|remote, outlet| remote.on_event(outlet, piece, outcome));
            }
        }
        let now = self.now;
        self.with(|remote, outlet| remote.poll(outlet, now));
        while let Some(report) = self.remote.next_report() {
            self.reports.push(report);
        }
    }

    /// Returns true if a read has succeeded, false if it has failed, `None` before its end.
    pub(super) fn ended(&self, link: LinkId, token: u64) -> Option<bool> {
        self.reports.iter().find_map(|report| match *report {
            Report::ReadDone {
                link: of,
                token: is,
                ok,
            } if (of, is) == (link, token) => Some(ok),
            _ => None,
        })
    }
}

/// Two sides and the link between them, which has another id on each.
pub(super) struct Pair {
    pub(super) a: Side,
    pub(super) b: Side,
    /// Link's id at `a` and at `b`.
    pub(super) at_a: LinkId,
    pub(super) at_b: LinkId,
    started: std::time::Instant,
}

impl Pair {
    pub(super) fn new(mut a: Side, mut b: Side) -> Self {
        let (at_a, at_b) = (LinkId::new(3, 1), LinkId::new(5, 2));
        let b_from_a = a.domain.insert(b.main.address()).unwrap();
        let a_from_b = b.domain.insert(a.main.address()).unwrap();
        a.remote.on_link_up(at_a, b_from_a);
        b.remote.on_link_up(at_b, a_from_b);
        Self {
            a,
            b,
            at_a,
            at_b,
            started: std::time::Instant::now(),
        }
    }

    pub(super) fn step(&mut self) {
        let elapsed = self.started.elapsed();
        self.a.now = self.a.now.max(Instant(1).after(elapsed));
        self.b.now = self.b.now.max(Instant(1).after(elapsed));
        self.a.poll();
        self.b.poll();
        while let Some((_, reading)) = self.a.out.pop_front() {
            self.b.remote.on_reading(self.at_b, reading);
        }
        while let Some((_, reading)) = self.b.out.pop_front() {
            self.a.remote.on_reading(self.at_a, reading);
        }
    }

    pub(super) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(std::time::Instant::now() < deadline, "{what}");
            self.step();
        }
    }
}

/// Creates pieces with bytes that differ everywhere.
pub(super) fn pattern(seed: u8, lens: &[usize]) -> Pieces {
    let mut state = u64::from(seed) << 32 | 0x9e37_79b9;
    let mut byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    Pieces(
        lens.iter()
            .map(|len| (0..*len).map(|_| byte()).collect())
            .collect(),
    )
}
