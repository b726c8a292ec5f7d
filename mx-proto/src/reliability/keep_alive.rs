//! Keep-alive: Pings to a silent peer, and the end of a session whose peer does not answer.
//!
//! ```text
//!   heard --silence--> Ping --silence, shorter--> Ping ... --give-up time and three Pings--> lost
//!     ^                  |
//!     `--any datagram----'           no new acknowledgement for the give-up time, three time-outs --> lost
//!                                    three refusals ("port unreachable") ---------------------------> lost
//!   probed --silence, shortest--> Ping ... --a quarter of a second and three Pings-------------------> lost
//! ```
//!
//! Owns: the times of the peer's last datagram and of the last progress, the Pings since then.
//! Out of scope: segments that the answer to a Ping does not name (`recovery`).

use super::recovery::Recovery;
use super::reliable_config::ReliableConfig;
use crate::port::LinkDown;
use crate::time::Instant;
use std::time::Duration;

/// Liveness of the peer of one session.
#[derive(Debug, Default)]
pub(super) struct KeepAlive {
    /// Time of the peer's last valid datagram.
    pub(super) heard_at: Instant,
    /// Time at which the peer last acknowledged something new, or the send window was last empty.
    pub(super) progress_at: Instant,
    pub(super) pinged_at: Instant,
    /// Number of Pings since the peer's last datagram.
    pub(super) pings: u32,
    pub(super) wanted: bool,
    /// Number of refusals ("port unreachable") since the peer's last datagram.
    refusals: u32,
    /// Interval of Pings while operations wait for the peer, whose machine reports its end; `None`: not monitored.
    pub(super) monitored: Option<Duration>,
    /// Time at which a sign appeared that the peer's process may be dead; `None`: there was none, or the peer was heard
    /// late enough after it.
    probed_at: Option<Instant>,
}

/// Silence after which a probed peer is lost: the last datagrams of a dead process have arrived by then.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Number of Pings or time-outs before silence means death, so that after a long pause of this process the peer has a
/// chance.
pub(super) const TRIES_BEFORE_GIVING_UP: u32 = 3;

/// Number of refusals without a datagram in between after which the peer is dead.
const REFUSALS: u32 = 3;

impl KeepAlive {
    /// Makes the state of a peer heard at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            heard_at: now,
            progress_at: now,
            pinged_at: now,
            ..Self::default()
        }
    }

    /// Handles the peer's answer to a Hello: all counts begin again.
    pub(super) fn on_welcome(&mut self, now: Instant) {
        let monitored = self.monitored;
        *self = Self {
            monitored,
            ..Self::new(now)
        };
    }

    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard_at = now;
        // Datagrams that arrive right after the probe may have been in flight.
        self.probed_at = self.probed_at.filter(|at| now.since(*at) < LAST_WORDS);
        (self.pings, self.refusals) = (0, 0);
    }

    pub(super) fn on_pinged(&mut self, now: Instant) {
        self.wanted = false;
        self.pinged_at = now;
        self.pings = self.pings.saturating_add(1);
    }

    /// Begins to check whether the peer's process is alive.
    pub(super) fn probe_peer(&mut self, now: Instant) {
        if self.probed_at.is_none() {
            (self.probed_at, self.wanted, self.pings) = (Some(now), true, 0);
        }
    }

    /// Handles a report that a datagram found no socket at the peer's address. Returns true after too many of them.
    /// Until then the peer is sent Pings at short intervals, which grow if no more reports come.
    pub(super) fn on_refused(&mut self) -> bool {
        self.refusals += 1;
        self.pings = 0;
        self.refusals >= REFUSALS
    }

    /// Returns whether no Ping is to be sent or unanswered, and the peer is neither monitored nor probed.
    pub(super) fn is_settled(&self) -> bool {
        !self.wanted && self.pings == 0 && self.monitored.is_none() && self.probed_at.is_none()
    }

    /// Excludes a time in which this process did not run from the silence.
    pub(super) fn exclude_pause(&mut self, excused: Duration, now: Instant) {
        for at in [&mut self.heard_at, &mut self.progress_at] {
            *at = at.after(excused).min(now);
        }
    }

    /// Returns the time of the next Ping if the peer stays silent.
    pub(super) fn ping_at(&self, recovery: &Recovery, config: &ReliableConfig) -> Instant {
        let pause = match self.pings {
            _ if recovery.send.is_stuck() => recovery.rtt.rto().max(config.first_rto),
            // Early enough for some tries before the give-up time.
            0 => config.keepalive.min(config.give_up / 4),
            _ => config.max_rto.min(config.give_up / 8),
        };
        // A refusal comes from a nearby kernel, so earlier time-outs do not matter.
        let refused = (self.refusals > 0).then(|| recovery.pause_after(self.pings));
        let doubted = self.probed_at.map(|_| LAST_WORDS / 8);
        let sooner = refused.into_iter().chain(self.monitored).chain(doubted);
        let pause = sooner.fold(pause, Duration::min);
        self.heard_at.max(self.pinged_at).after(pause)
    }

    /// Returns the reason why the peer is lost: silence, or no progress after this many `timeouts`. `None`: it is not
    /// lost.
    pub(super) fn lost(
        &self,
        now: Instant,
        timeouts: u32,
        config: &ReliableConfig,
    ) -> Option<LinkDown> {
        let silent = now.since(self.heard_at) >= config.give_up;
        let no_progress = now.since(self.progress_at) >= config.give_up;
        let last_words = |at: Instant| now.since(at.max(self.heard_at)) >= LAST_WORDS;
        let asked = self.pings >= TRIES_BEFORE_GIVING_UP;
        if asked && self.probed_at.is_some_and(last_words) {
            return Some(LinkDown::Reset);
        }
        let lost = (silent && asked) || (no_progress && timeouts >= TRIES_BEFORE_GIVING_UP);
        lost.then_some(LinkDown::TimedOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_lost_after_the_give_up_time_and_enough_tries() {
        let config = ReliableConfig::default();
        let late = Instant(7).after(config.give_up);
        let early = late.before(Duration::from_nanos(1));
        let mut silent = KeepAlive::new(Instant(7));
        for tries in 0..=TRIES_BEFORE_GIVING_UP {
            let enough = tries == TRIES_BEFORE_GIVING_UP;
            let lost = enough.then_some(LinkDown::TimedOut);
            assert_eq!(silent.lost(late, 0, &config), lost, "{tries} Pings");
            assert_eq!(silent.lost(early, 0, &config), None);
            silent.on_pinged(Instant(7));
        }
        let mut stalled = KeepAlive::new(Instant(7));
        stalled.on_heard(late);
        for timeouts in 0..=TRIES_BEFORE_GIVING_UP {
            let enough = timeouts == TRIES_BEFORE_GIVING_UP;
            let lost = enough.then_some(LinkDown::TimedOut);
            assert_eq!(stalled.lost(late, timeouts, &config), lost);
            assert_eq!(stalled.lost(early, timeouts, &config), None);
        }
    }

    #[test]
    fn probed_peer_is_lost_soon_unless_it_is_heard_long_enough() {
        let config = ReliableConfig::default();
        let at = |ms| Instant(7).after(Duration::from_millis(ms));
        let mut peer = KeepAlive::new(at(0));
        assert!(peer.is_settled());
        peer.probe_peer(at(1000));
        assert!(peer.wanted && !peer.is_settled());
        for _ in 0..TRIES_BEFORE_GIVING_UP {
            assert_eq!(peer.lost(at(1250), 0, &config), None);
            peer.on_pinged(at(1001));
        }
        assert_eq!(peer.lost(at(1249), 0, &config), None);
        assert_eq!(peer.lost(at(1250), 0, &config), Some(LinkDown::Reset));
        // The last datagrams of a peer postpone the loss, and a later answer prevents it.
        peer.on_heard(at(1100));
        (0..TRIES_BEFORE_GIVING_UP).for_each(|_| peer.on_pinged(at(1101)));
        assert_eq!(peer.lost(at(1349), 0, &config), None);
        assert_eq!(peer.lost(at(1350), 0, &config), Some(LinkDown::Reset));
        peer.on_heard(at(1300));
        (0..TRIES_BEFORE_GIVING_UP).for_each(|_| peer.on_pinged(at(1301)));
        assert_eq!(peer.lost(at(2000), 0, &config), None);
    }

    #[test]
    fn an_excused_peer_was_heard_later_but_not_in_the_future() {
        let mut peer = KeepAlive::new(Instant(7));
        peer.exclude_pause(Duration::from_nanos(5), Instant(100));
        assert_eq!(
            (peer.heard_at, peer.progress_at),
            (Instant(12), Instant(12))
        );
        peer.exclude_pause(Duration::MAX, Instant(100));
        assert_eq!(peer.heard_at, Instant(100));
    }

    #[test]
    fn a_welcome_begins_everything_but_the_monitoring() {
        let mut peer = KeepAlive::new(Instant(7));
        peer.monitored = Some(Duration::from_millis(40));
        peer.on_pinged(Instant(8));
        peer.wanted = true;
        peer.on_welcome(Instant(9));
        assert_eq!((peer.pings, peer.wanted), (0, false));
        assert_eq!(peer.heard_at, Instant(9));
        assert!(peer.monitored.is_some() && !peer.is_settled());
    }
}
