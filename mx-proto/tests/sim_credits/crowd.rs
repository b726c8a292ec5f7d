//! Many peers against one lender, on a virtual clock.
//!
//! ```text
//!   peer: a window of requests, a new one with every reply
//!     |  10 us                                  10 us ^
//!     v                                               | reply, Grant, Revoke
//!   Lender -- paid --> inbox -- 1 us a message --> host
//!        `--- offered --> pulls, in order, as draws allow -- 20 us -->'
//! ```
//!
//! All delays are constant, so every queue is in order of time, and equal inputs give equal runs.
//!
//! Knows nothing of: what is asserted of it.

use mx_proto::Instant;
use mx_proto::ledger::{
    Arrived, Borrower, ControlWord, CreditByte, Lender, LenderSettings, LenderStats,
};
use std::collections::VecDeque;
use std::time::Duration;

/// From here to there.
const LATENCY: Duration = Duration::from_micros(10);

/// Messages that have to come through before nothing is said to have moved. Many more may have
/// arrived.
const QUIET: u64 = 4096;

/// What the host does with a message before it takes the next.
const SERVICE: Duration = Duration::from_micros(1);

/// Peers, their lender, and what is under way between them.
pub(crate) struct Crowd {
    pub(crate) lender: Lender,
    peers: Vec<Peer>,
    /// Credits that every message costs.
    cost: u32,
    up: VecDeque<(Instant, u32, Up)>,
    down: VecDeque<(Instant, u32, Down)>,
    pulls: VecDeque<(Instant, u32)>,
    /// Offers that wait for a draw.
    offered: VecDeque<u32>,
    /// Messages that the host can take, and whether they were pulled.
    inbox: VecDeque<(u32, bool)>,
    /// When the host is ready for the next.
    ready: Instant,
    now: Instant,
    /// Messages that the host has taken.
    pub(crate) taken: u64,
    /// The longest that a peer with no message under way waited for a credit, in messages taken
    /// meanwhile. (Who has some under way waits for the host, as everybody does.)
    pub(crate) longest_wait: u64,
    /// And in time.
    pub(crate) longest_time: Duration,
}

#[derive(Clone, Copy)]
enum Up {
    Message { byte: CreditByte, offer: bool },
    Control(ControlWord),
}

#[derive(Clone, Copy)]
enum Down {
    Reply(CreditByte),
    Control(ControlWord),
}

#[derive(Clone, Copy)]
struct Peer {
    borrower: Borrower,
    active: bool,
    /// Messages that wait to be sent.
    backlog: u16,
    /// Messages that are under way, or here.
    under_way: u16,
    /// Since when it has waited for a credit, with no message under way.
    since: Option<(u64, Instant)>,
}

impl Crowd {
    /// All peers connect and do nothing. A message costs `cost` credits.
    pub(crate) fn new(settings: LenderSettings, count: u32, cost: u32) -> Self {
        assert_eq!(settings.check(), Ok(()));
        let mut crowd = Self {
            lender: Lender::new(settings),
            peers: Vec::new(),
            cost,
            up: VecDeque::new(),
            down: VecDeque::new(),
            pulls: VecDeque::new(),
            offered: VecDeque::new(),
            inbox: VecDeque::new(),
            ready: Instant(1),
            now: Instant(1),
            taken: 0,
            longest_wait: 0,
            longest_time: Duration::ZERO,
        };
        for _ in 0..count {
            crowd.connect();
        }
        crowd
    }

    /// One more peer.
    pub(crate) fn connect(&mut self) -> u32 {
        let peer = self.peers.len() as u32;
        let loan = self.lender.open(peer, true, self.now);
        self.peers.push(Peer {
            borrower: Borrower::open(loan),
            active: false,
            backlog: 0,
            under_way: 0,
            since: None,
        });
        peer
    }

    /// From now on the peer keeps so many messages going; with 0 it ends what it has begun.
    pub(crate) fn keep_going(&mut self, peer: u32, window: u16) {
        let state = &mut self.peers[peer as usize];
        state.active = window > 0;
        let going = state.backlog + state.under_way;
        state.backlog += window.saturating_sub(going);
        if window == 0 {
            state.backlog = 0;
            state.since = None;
        }
        self.send(peer);
    }

    /// The peer sends one message, once.
    pub(crate) fn send_one(&mut self, peer: u32) {
        self.peers[peer as usize].backlog += 1;
        self.send(peer);
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn stats(&self) -> LenderStats {
        self.lender.stats()
    }

    /// The next thing happens. False when there is none.
    pub(crate) fn step(&mut self) -> bool {
        let host = self.inbox.front().map(|_| self.ready.max(self.now));
        let times = [
            self.up.front().map(|(at, ..)| *at),
            self.down.front().map(|(at, ..)| *at),
            self.pulls.front().map(|(at, _)| *at),
            host,
            self.lender.deadline().map(|at| at.max(self.now)),
        ];
        let next = times
            .iter()
            .enumerate()
            .filter_map(|(what, at)| Some(((*at)?, what)));
        let Some((at, what)) = next.min() else {
            return false;
        };
        self.now = at;
        match what {
            0 => self.deliver_up(),
            1 => self.deliver_down(),
            2 => self.end_pull(),
            3 => self.take(),
            _ => self.lender.tick(at),
        }
        while let Some((peer, word)) = self.lender.poll_control() {
            let at = self.now.after(SERVICE + LATENCY);
            self.down.push_back((at, peer, Down::Control(word)));
        }
        assert_eq!(self.lender.poll_fault(), None);
        true
    }

    /// Until `end` says so, or nothing happens any more.
    pub(crate) fn run_until(&mut self, end: impl Fn(&Self) -> bool) {
        while !end(self) && self.step() {}
    }

    /// Until so many epochs have ended.
    pub(crate) fn run_epochs(&mut self, epochs: u64) {
        let end = self.stats().epochs + epochs;
        self.run_until(|crowd| crowd.lender.stats().epochs >= end);
    }

    /// Until two epochs in a row moved no credit and saw no control message, and the host took
    /// [`QUIET`] messages or four for each peer in either. `None` when that has not happened after
    /// `most`.
    pub(crate) fn run_until_settled(&mut self, most: u64) -> Option<Settling> {
        let moved =
            |stats: &LenderStats| (stats.controls, stats.granted, stats.returned, stats.kept);
        let (begin, begun) = (self.stats(), self.now);
        let (mut last, mut time, mut still) = (begin, begun, 0);
        let mut taken = self.taken;
        let before = self.taken;
        for _ in 0..most {
            let enough = self.taken + QUIET.max(4 * self.peers.len() as u64);
            self.run_epochs(1);
            self.run_until(|crowd| crowd.taken >= enough);
            let stats = self.stats();
            if moved(&stats) != moved(&last) {
                (last, time, taken, still) = (stats, self.now, self.taken, 0);
                continue;
            }
            still += 1;
            if still == 2 {
                return Some(Settling {
                    epochs: last.epochs - begin.epochs,
                    messages: taken - before,
                    time: time.since(begun),
                    controls: last.controls - begin.controls,
                    granted: last.granted - begin.granted,
                    returned: last.returned - begin.returned,
                });
            }
        }
        None
    }

    fn send(&mut self, peer: u32) {
        let arrives = self.now.after(LATENCY);
        let cost = self.cost;
        let state = &mut self.peers[peer as usize];
        while state.backlog > 0 {
            let whole = state.borrower.pay(cost).map(|byte| (byte, false));
            let paid = whole.or_else(|| Some((state.borrower.pay(1)?, true)));
            let Some((byte, offer)) = paid else {
                let want = state.borrower.stalled(cost * u32::from(state.backlog));
                let wants = want.map(|word| (arrives, peer, Up::Control(word)));
                self.up.extend(wants);
                if state.under_way == 0 {
                    state.since.get_or_insert((self.taken, self.now));
                }
                return;
            };
            if let Some((taken, since)) = state.since.take() {
                self.longest_wait = self.longest_wait.max(self.taken - taken);
                self.longest_time = self.longest_time.max(self.now.since(since));
            }
            state.backlog -= 1;
            state.under_way += 1;
            self.up
                .push_back((arrives, peer, Up::Message { byte, offer }));
        }
    }

    fn deliver_up(&mut self) {
        let Some((_, peer, up)) = self.up.pop_front() else {
            return;
        };
        match up {
            Up::Message { byte, offer } => {
                let cost = if offer { 1 } else { self.cost };
                let arrived = self.lender.arrived(peer, byte, cost, self.now);
                assert_eq!(arrived, Arrived::Paid);
                if offer {
                    self.offered.push_back(peer);
                    self.pull();
                } else {
                    self.inbox.push_back((peer, false));
                }
            }
            Up::Control(word) => {
                assert!(self.lender.on_control(peer, word.control, self.now));
            }
        }
    }

    fn deliver_down(&mut self) {
        let Some((_, peer, down)) = self.down.pop_front() else {
            return;
        };
        let state = &mut self.peers[peer as usize];
        match down {
            Down::Reply(byte) => {
                state.borrower.on_ride(byte);
                state.under_way -= 1;
                state.backlog += u16::from(state.active);
            }
            Down::Control(word) => {
                let answer = state.borrower.on_control(word);
                let arrives = self.now.after(LATENCY);
                self.up
                    .extend(answer.map(|word| (arrives, peer, Up::Control(word))));
            }
        }
        assert_eq!(state.borrower.lies(), 0);
        self.send(peer);
    }

    /// Begins as many pulls as there are credits for.
    fn pull(&mut self) {
        while let Some(&peer) = self.offered.front() {
            if !self.lender.draw(self.cost) {
                break;
            }
            self.offered.pop_front();
            self.pulls.push_back((self.now.after(2 * LATENCY), peer));
        }
    }

    fn end_pull(&mut self) {
        if let Some((_, peer)) = self.pulls.pop_front() {
            self.inbox.push_back((peer, true));
        }
    }

    /// The host takes a message and replies.
    fn take(&mut self) {
        let Some((peer, pulled)) = self.inbox.pop_front() else {
            return;
        };
        self.taken += 1;
        self.ready = self.now.after(SERVICE);
        if pulled {
            self.lender.taken(peer, 1);
            self.lender.undraw(self.cost);
        } else {
            self.lender.taken(peer, self.cost);
        }
        let byte = self.lender.ride(peer);
        let arrives = self.ready.after(LATENCY);
        self.down.push_back((arrives, peer, Down::Reply(byte)));
        self.pull();
    }
}

/// What it took until nothing moved any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settling {
    pub(crate) epochs: u64,
    /// Messages that the host took.
    pub(crate) messages: u64,
    pub(crate) time: Duration,
    pub(crate) controls: u64,
    /// Credits.
    pub(crate) granted: u64,
    pub(crate) returned: u64,
}
