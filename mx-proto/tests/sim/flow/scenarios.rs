//! Workloads of crowds, and measurements of them.
//!
//! ```text
//!   static   some peers keep a window of requests under way, the others are idle
//!   moving   the same, but other peers take over, again and again
//!   all      all peers keep a few requests under way
//!   storm    all peers connect and send one request at once; later, once more
//! ```

use super::crowd::{Crowd, Settling};
use mx_proto::flow::Settings;
use std::fmt;
use std::time::Duration;

/// The columns of a [`Row`].
pub(crate) const HEADER: &str = "workload    peers  settled after: epochs   messages       ms  \
     controls  granted  returned  | still moving   updates  longest wait: messages  fewest .. most served  waiting    lent  first credit us";

/// The measurements of one crowd.
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) peers: u32,
    /// The cost of settling; `None` if the crowd had not settled after [`EPOCHS_MAX`].
    pub(crate) settling: Option<Settling>,
    /// Number of control messages in the five epochs after that.
    pub(crate) controls_after: u64,
    /// Number of packets in these epochs that only carried a running total, and of messages that
    /// the host took.
    pub(crate) updates: (u64, u64),
    /// The longest wait of a peer with no message under way, as the number of messages that the
    /// host took meanwhile.
    pub(crate) longest_wait: u64,
    /// The fewest and the most messages of an active peer that the host took in these epochs.
    pub(crate) served: (u32, u32),
    /// The most messages that waited at the host; then the credits lent at the end.
    pub(crate) most_waiting: usize,
    pub(crate) lent: u32,
    /// The longest wait for the first credit of a peer that had been lent nothing.
    pub(crate) first_credit: Duration,
}

/// Measures a crowd in which some peers stay busy.
pub(crate) fn still(settings: &Settings, peers: u32) -> Row {
    let mut crowd = Crowd::new(settings, peers, COST);
    for peer in 0..busy(peers) {
        crowd.keep_going(peer, WINDOW);
    }
    let settling = crowd.run_until_settled(EPOCHS_MAX);
    Row::of("static", &mut crowd, settling)
}

/// Measures a crowd in which other peers take over [`MOVES`] times. The cost of settling is the
/// worst of all moves.
pub(crate) fn moving(settings: &Settings, peers: u32) -> Row {
    let mut crowd = Crowd::new(settings, peers, COST);
    let busy = busy(peers);
    let mut worst: Option<Settling> = None;
    for turn in 0..MOVES {
        for peer in 0..busy {
            if turn > 0 {
                crowd.keep_going(((turn - 1) * busy + peer) % peers, 0);
            }
            crowd.keep_going((turn * busy + peer) % peers, WINDOW);
        }
        let settling = crowd.run_until_settled(EPOCHS_MAX);
        worst = match (worst, settling) {
            (None, first) => first,
            (Some(_), None) => return Row::of("moving", &mut crowd, None),
            (Some(worst), Some(this)) => Some(worst.or_worse(this)),
        };
    }
    Row::of("moving", &mut crowd, worst)
}

/// Measures a crowd of busy peers. With more of them than there is memory for, the crowd cannot
/// settle.
pub(crate) fn all(settings: &Settings, peers: u32) -> Row {
    let mut crowd = Crowd::new(settings, peers, COST);
    for peer in 0..peers {
        crowd.keep_going(peer, 16);
    }
    let settling = crowd.run_until_settled(10);
    Row::of("all", &mut crowd, settling)
}

/// Measures a crowd whose peers all connect and send one message, and a second one when all first
/// ones have been taken. The crowd counts as settled when all messages have been taken.
pub(crate) fn storm(settings: &Settings, peers: u32) -> Row {
    let mut crowd = Crowd::new(settings, 0, COST);
    for _ in 0..peers {
        let peer = crowd.connect();
        crowd.send_one(peer);
    }
    let all = |crowd: &Crowd| crowd.taken >= u64::from(peers);
    crowd.run_until(all);
    assert!(all(&crowd));
    let (time, stats, controls) = (crowd.now(), crowd.stats(), crowd.controls);
    for peer in 0..peers {
        crowd.send_one(peer);
    }
    crowd.run_until(|crowd| crowd.taken >= 2 * u64::from(peers));
    assert_eq!(crowd.taken, 2 * u64::from(peers));
    let settling = Settling {
        epochs: stats.epochs,
        messages: u64::from(peers),
        time: time.since(mx_proto::Instant(1)),
        controls,
        granted: stats.granted,
        returned: stats.returned + stats.narrowed,
    };
    let mut row = Row::of("storm", &mut crowd, Some(settling));
    row.controls_after = crowd.controls - controls;
    row
}

impl Row {
    fn of(workload: &'static str, crowd: &mut Crowd, settling: Option<Settling>) -> Self {
        let (before, updates, taken) = (crowd.controls, crowd.updates, crowd.taken);
        crowd.count_served();
        crowd.run_epochs(5);
        let stats = crowd.stats();
        assert_eq!(stats.violations, 0);
        Self {
            workload,
            peers: stats.remotes,
            settling,
            controls_after: crowd.controls - before,
            updates: (crowd.updates - updates, crowd.taken - taken),
            longest_wait: crowd.longest_wait,
            served: crowd.served(),
            most_waiting: crowd.most_waiting,
            lent: stats.lent,
            first_credit: crowd.first_credit,
        }
    }
}

impl Settling {
    fn or_worse(self, other: Self) -> Self {
        Self {
            epochs: self.epochs.max(other.epochs),
            messages: self.messages.max(other.messages),
            time: self.time.max(other.time),
            controls: self.controls.max(other.controls),
            granted: self.granted.max(other.granted),
            returned: self.returned.max(other.returned),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8} {:8}", self.workload, self.peers)?;
        match &self.settling {
            Some(s) => write!(
                f,
                "  {:20} {:10} {:8.1} {:9} {:8} {:9}",
                s.epochs,
                s.messages,
                s.time.as_secs_f64() * 1e3,
                s.controls,
                s.granted,
                s.returned
            )?,
            None => write!(
                f,
                "  {:>20} {:>10} {:>8} {:>9} {:>8} {:>9}",
                "never", "", "", "", "", ""
            )?,
        }
        let (fewest, most) = self.served;
        write!(
            f,
            "  | {:12}  {:8}  {:22}  {fewest:6} .. {most:<6} {:8} {:7} {:16}",
            self.controls_after,
            self.updates.0,
            self.longest_wait,
            self.most_waiting,
            self.lent,
            self.first_credit.as_micros()
        )
    }
}

/// Returns the number of peers that are busy at once.
fn busy(peers: u32) -> u32 {
    (peers / 2).min(200)
}

/// Credits of a message of 1 KiB.
const COST: u32 = 3;

/// Number of messages that a busy peer keeps under way.
const WINDOW: u16 = 128;

/// The number of times that others take over.
const MOVES: u32 = 8;

/// Number of epochs after which a crowd counts as not settled.
const EPOCHS_MAX: u64 = 100;
