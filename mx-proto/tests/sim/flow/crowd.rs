//! Many peers against one server, on a virtual clock.
//!
//! ```text
//!   peer: a window of requests, a new one with every reply
//!     |  10 us                                  10 us ^
//!     v                                               | reply, Credit, Revoke: all with credit fields
//!   Flow -- with data --> inbox -- 1 us a message --> host
//!        `-- announced --> pulls, in order, as draws allow -- 20 us -->'
//! ```
//!
//! All delays are constant, so every queue is in order of time, and equal inputs give equal runs.

use mx_proto::Instant;
use mx_proto::flow::{
    Accounts, Borrower, CreditFields, CreditMessage, EPOCH_TIME, Flow, FlowStats, Lane, Lender,
    Payment, Settings,
};
use mx_proto::origin::Source;
use std::collections::VecDeque;
use std::time::Duration;

/// The time of a packet between a peer and the server.
const LATENCY: Duration = Duration::from_micros(10);

/// Number of messages that have to arrive before the crowd may count as settled; often more are
/// needed.
const QUIET: u64 = 4096;

/// The host's time for a message.
const SERVICE: Duration = Duration::from_micros(1);

/// Limit of the credit messages that one step of an endpoint sends.
const SAID_AT_ONCE: usize = 8;

/// The lane of all requests.
const LANE: Lane = Lane::Unexpected;

/// Peers, their server, and everything under way between them.
pub(crate) struct Crowd {
    flow: Flow,
    accounts: Table,
    peers: Vec<Peer>,
    /// Credits that every message costs.
    cost: u32,
    up: VecDeque<(Instant, u32, Up)>,
    down: VecDeque<(Instant, u32, Down)>,
    pulls: VecDeque<(Instant, u32, Payment)>,
    /// Announced messages that wait for a draw.
    announced: VecDeque<(u32, Payment)>,
    /// Messages that the host can take, and whether they were pulled.
    inbox: VecDeque<(u32, Payment, bool)>,
    /// The time from which the host can take the next message.
    ready: Instant,
    now: Instant,
    /// The end of an epoch that only time ends.
    epoch: Option<Instant>,
    /// Number of packets that only carry requests, lent credits, Revokes or Returns, in both
    /// directions.
    pub(crate) controls: u64,
    /// Number of packets that only carry a running total, for credits of messages taken or possibly
    /// on their way.
    pub(crate) updates: u64,
    /// Number of messages that the host has taken.
    pub(crate) taken: u64,
    /// The longest wait of a peer with no message under way, as the number of messages taken
    /// meanwhile. (A peer with messages under way waits for the host, as all do.)
    pub(crate) longest_wait: u64,
    /// The most messages that waited here, with their data or announced.
    pub(crate) most_waiting: usize,
    /// The longest wait for the first credit of a peer that had been lent nothing.
    pub(crate) first_credit: Duration,
}

struct Table(Vec<Lender>);

impl Accounts for Table {
    fn account(&mut self, remote: u32) -> Option<(&mut Lender, Source)> {
        Some((self.0.get_mut(remote as usize)?, Source::TRUSTED))
    }
}

/// The contents of a packet besides its credit fields.
#[derive(Clone, Copy)]
enum Up {
    Message {
        paid: Payment,
        data: bool,
        wanted: u32,
    },
    Credit {
        wanted: u32,
    },
    Return(u32),
}

#[derive(Clone, Copy)]
enum Down {
    Reply(CreditFields),
    Credit(CreditFields),
    Revoke(u32, CreditFields),
}

#[derive(Clone, Copy)]
struct Peer {
    borrower: Borrower,
    active: bool,
    /// Number of messages that wait to be sent.
    backlog: u16,
    /// Number of messages that are under way or at the server.
    under_way: u16,
    /// Number of this peer's messages that the host has taken.
    served: u32,
    /// The count of taken messages since which the peer waits with no message under way.
    since: Option<u64>,
    /// The time since which the peer waits for a credit with none lent to it.
    without: Option<Instant>,
}

impl Crowd {
    /// Connects `count` idle peers. A message costs `cost` credits.
    pub(crate) fn new(settings: &Settings, count: u32, cost: u32) -> Self {
        let mut crowd = Self {
            flow: Flow::new(settings),
            accounts: Table(Vec::new()),
            peers: Vec::new(),
            cost,
            up: VecDeque::new(),
            down: VecDeque::new(),
            pulls: VecDeque::new(),
            announced: VecDeque::new(),
            inbox: VecDeque::new(),
            ready: Instant(1),
            now: Instant(1),
            epoch: None,
            controls: 0,
            updates: 0,
            taken: 0,
            longest_wait: 0,
            most_waiting: 0,
            first_credit: Duration::ZERO,
        };
        for _ in 0..count {
            crowd.connect();
        }
        crowd
    }

    /// Connects a peer.
    pub(crate) fn connect(&mut self) -> u32 {
        let peer = self.peers.len() as u32;
        let credit_limit = self.flow.first_credits(Source::TRUSTED);
        self.accounts.0.push(Lender::default());
        assert!(self.flow.open(&mut self.accounts, peer, credit_limit));
        self.peers.push(Peer {
            borrower: Borrower::open(credit_limit),
            active: false,
            backlog: 0,
            under_way: 0,
            served: 0,
            since: None,
            without: None,
        });
        peer
    }

    /// Makes a peer keep `window` messages under way from now on; with 0 it only finishes those
    /// that it has sent.
    pub(crate) fn keep_going(&mut self, peer: u32, window: u16) {
        let state = &mut self.peers[peer as usize];
        state.active = window > 0;
        let going = state.backlog + state.under_way;
        state.backlog += window.saturating_sub(going);
        if window == 0 {
            state.backlog = 0;
            (state.since, state.without) = (None, None);
        }
        self.send(peer);
    }

    /// Sends one message of a peer.
    pub(crate) fn send_one(&mut self, peer: u32) {
        self.peers[peer as usize].backlog += 1;
        self.send(peer);
    }

    pub(crate) fn stats(&self) -> FlowStats {
        self.flow.stats()
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Begins to count the messages taken from each peer.
    pub(crate) fn count_served(&mut self) {
        for peer in &mut self.peers {
            peer.served = 0;
        }
    }

    /// Returns the fewest and the most messages of one active peer that the host has taken since
    /// then.
    pub(crate) fn served(&self) -> (u32, u32) {
        let active = || self.peers.iter().filter(|peer| peer.active);
        let served = || active().map(|peer| peer.served);
        (served().min().unwrap_or(0), served().max().unwrap_or(0))
    }

    /// Processes the next event. Returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        if !self.flow.is_waited_for() {
            self.epoch = None;
        } else if self.epoch.is_none() {
            self.epoch = Some(self.now.after(EPOCH_TIME));
        }
        let times = [
            self.flow.is_ready().then_some(self.now),
            self.up.front().map(|(at, ..)| *at),
            self.down.front().map(|(at, ..)| *at),
            self.pulls.front().map(|(at, ..)| *at),
            self.inbox.front().map(|_| self.ready.max(self.now)),
            self.epoch,
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
            0 => self.poll(),
            1 => self.deliver_up(),
            2 => self.deliver_down(),
            3 => self.end_pull(),
            4 => self.take(),
            _ => {
                self.epoch = None;
                self.flow.end_epoch();
            }
        }
        true
    }

    /// Runs until `end` returns true or nothing happens any more.
    pub(crate) fn run_until(&mut self, end: impl Fn(&Self) -> bool) {
        while !end(self) && self.step() {}
    }

    /// Runs until `epochs` epochs have ended.
    pub(crate) fn run_epochs(&mut self, epochs: u64) {
        let end = self.stats().epochs + epochs;
        self.run_until(|crowd| crowd.flow.stats().epochs >= end);
    }

    /// Runs until two epochs in a row moved no credit and saw no packet of nothing but credits, and
    /// the host took [`QUIET`] messages, or four for each peer, in each of them. Returns `None` if
    /// that has not happened after `most` epochs.
    pub(crate) fn run_until_settled(&mut self, most: u64) -> Option<Settling> {
        let moved = |crowd: &Self| {
            let stats = crowd.stats();
            let moved = (stats.granted, stats.returned, stats.narrowed);
            (crowd.controls, moved)
        };
        let (begin, begun, controls) = (self.stats(), self.now, self.controls);
        let (mut last, mut at, mut still) = (begin, moved(self), 0);
        let (mut time, mut taken, before) = (begun, self.taken, self.taken);
        for _ in 0..most {
            let enough = self.taken + QUIET.max(4 * self.peers.len() as u64);
            self.run_epochs(1);
            self.run_until(|crowd| crowd.taken >= enough);
            if moved(self) != at {
                (last, at, still) = (self.stats(), moved(self), 0);
                (time, taken) = (self.now, self.taken);
                continue;
            }
            still += 1;
            if still == 2 {
                return Some(Settling {
                    epochs: last.epochs - begin.epochs,
                    messages: taken - before,
                    time: time.since(begun),
                    controls: at.0 - controls,
                    granted: last.granted - begin.granted,
                    returned: last.returned + last.narrowed - begin.returned - begin.narrowed,
                });
            }
        }
        None
    }

    /// Sends credit messages that the server begins.
    fn poll(&mut self) {
        for _ in 0..SAID_AT_ONCE {
            let Some((peer, say)) = self.flow.poll(&mut self.accounts) else {
                return;
            };
            match say {
                CreditMessage::Credit => {
                    self.controls += 1;
                    self.tell(peer);
                }
                CreditMessage::Revoke(credits) => {
                    self.controls += 1;
                    let fields = self.credit_fields(peer);
                    self.say(peer, Down::Revoke(credits, fields));
                }
            }
        }
    }

    /// Returns the credit fields of a packet that leaves the server.
    fn credit_fields(&mut self, peer: u32) -> CreditFields {
        let account = &mut self.accounts.0[peer as usize];
        let mut ours = Borrower::default();
        let fields = self.flow.credit_fields(account, &ours, 0);
        Flow::on_told(account, &mut ours, &fields);
        fields
    }

    fn tell(&mut self, peer: u32) {
        let fields = self.credit_fields(peer);
        self.say(peer, Down::Credit(fields));
    }

    fn say(&mut self, peer: u32, what: Down) {
        let at = self.now.after(SERVICE + LATENCY);
        self.down.push_back((at, peer, what));
    }

    fn send(&mut self, peer: u32) {
        let arrives = self.now.after(LATENCY);
        let cost = self.cost;
        let state = &mut self.peers[peer as usize];
        if state.borrower.free() > 0 {
            if let Some(since) = state.without.take() {
                self.first_credit = self.first_credit.max(self.now.since(since));
            }
        } else if state.backlog > 0 && self.accounts.0[peer as usize].credit_limit() == 0 {
            state.without.get_or_insert(self.now);
        }
        while state.backlog > 0 {
            let waiting = cost * u32::from(state.backlog);
            let borrower = &mut state.borrower;
            let wanted = borrower.wanted(waiting);
            let whole = borrower.payment(cost, LANE).map(|paid| (paid, true));
            let paid = whole.or_else(|| Some((borrower.payment(1, LANE)?, false)));
            let Some((paid, data)) = paid else {
                if state.under_way == 0 {
                    state.since.get_or_insert(self.taken);
                }
                if wanted > 0 {
                    borrower.on_said(wanted);
                    self.controls += 1;
                    self.up.push_back((arrives, peer, Up::Credit { wanted }));
                }
                return;
            };
            if let Some(taken) = state.since.take() {
                self.longest_wait = self.longest_wait.max(self.taken - taken);
            }
            borrower.pay(paid);
            borrower.on_said(wanted);
            state.backlog -= 1;
            state.under_way += 1;
            let message = Up::Message { paid, data, wanted };
            self.up.push_back((arrives, peer, message));
        }
    }

    fn deliver_up(&mut self) {
        let Some((_, peer, up)) = self.up.pop_front() else {
            return;
        };
        let all = &mut self.accounts;
        let wanted = match up {
            Up::Message { paid, data, wanted } => {
                let account = &mut all.0[peer as usize];
                if self.flow.arrived(account, paid).expect("honest") {
                    self.flow.note_use(all, peer);
                }
                if data {
                    self.inbox.push_back((peer, paid, false));
                } else {
                    self.announced.push_back((peer, paid));
                    self.pull();
                }
                let waiting = self.inbox.len() + self.announced.len();
                self.most_waiting = self.most_waiting.max(waiting);
                wanted
            }
            Up::Credit { wanted } => wanted,
            Up::Return(credits) => {
                self.flow.returned(all, peer, credits).expect("honest");
                0
            }
        };
        let all = &mut self.accounts;
        let asks = wanted > 0 && self.flow.wants(all, peer, wanted);
        if asks || self.flow.is_overdue(&all.0[peer as usize]) {
            self.updates += 1;
            self.tell(peer);
        }
    }

    fn deliver_down(&mut self) {
        let Some((_, peer, down)) = self.down.pop_front() else {
            return;
        };
        let state = &mut self.peers[peer as usize];
        match down {
            Down::Reply(fields) => {
                state.borrower.on_credit_fields(&fields);
                state.under_way -= 1;
                state.served += 1;
                state.backlog += u16::from(state.active);
            }
            Down::Credit(fields) => {
                state.borrower.on_credit_fields(&fields);
            }
            Down::Revoke(credits, fields) => {
                state.borrower.on_credit_fields(&fields);
                let waiting = u32::from(state.backlog);
                let back = state.borrower.give_back(credits, waiting);
                self.controls += 1;
                let arrives = self.now.after(LATENCY);
                self.up.push_back((arrives, peer, Up::Return(back)));
            }
        }
        self.send(peer);
    }

    /// Begins as many pulls as there are credits for.
    fn pull(&mut self) {
        while let Some(&(peer, paid)) = self.announced.front() {
            if !self.flow.draw(self.cost - 1) {
                break;
            }
            self.announced.pop_front();
            let ends = self.now.after(2 * LATENCY);
            self.pulls.push_back((ends, peer, paid));
        }
    }

    fn end_pull(&mut self) {
        if let Some((_, peer, paid)) = self.pulls.pop_front() {
            self.inbox.push_back((peer, paid, true));
        }
    }

    /// Has the host take a message and reply.
    fn take(&mut self) {
        let Some((peer, paid, pulled)) = self.inbox.pop_front() else {
            return;
        };
        self.taken += 1;
        self.ready = self.now.after(SERVICE);
        let account = &mut self.accounts.0[peer as usize];
        self.flow.taken(account, Source::TRUSTED, paid);
        if pulled {
            self.flow.undraw(self.cost - 1);
        }
        // The reply carries credit fields that would otherwise need a packet of their own.
        let fields = self.credit_fields(peer);
        let arrives = self.ready.after(LATENCY);
        self.down.push_back((arrives, peer, Down::Reply(fields)));
        self.pull();
    }
}

/// The cost of settling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settling {
    pub(crate) epochs: u64,
    /// Number of messages that the host took.
    pub(crate) messages: u64,
    pub(crate) time: Duration,
    pub(crate) controls: u64,
    /// Credits lent and returned; those taken back without asking count as returned.
    pub(crate) granted: u64,
    pub(crate) returned: u64,
}
