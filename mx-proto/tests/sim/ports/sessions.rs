//! The beginning and the end of sessions of the reliability layer, and packets of earlier sessions.

use super::peer::{NIC, Peer, exchange, target, two};
use super::{ReliablePeer, reliable, totals};
use mx_proto::EndpointId;
use mx_proto::port::{Close, LinkControl, LinkDown};
use mx_proto::reliability::{Channel, ReliableConfig};
use mx_proto::secret::Binding;
use mx_sim::datagram::Script;
use mx_sim::datagram::header::{ACK, DATA, HELLO, OFFSET, RESET, WELCOME, is_kind};
use mx_sim::link::Fate;
use mx_sim::{Cluster, DatagramNet, Faults, NodeId, Rng, SimAddress, Terms, World, seeds};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The datagrams of one node to another, as they were sent.
pub(crate) type Tape = Rc<RefCell<Vec<(Channel, Vec<u8>)>>>;

pub(crate) fn address(node: u32) -> SimAddress {
    SimAddress::command(NIC, EndpointId(node))
}

pub(crate) fn config() -> ReliableConfig {
    ReliableConfig {
        give_up: 4 * SECOND,
        connect_give_up: 3 * SECOND,
        keepalive: SECOND,
        ..ReliableConfig::default()
    }
}

/// Peers 0 and 1, of which 0 has called 1.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) net: DatagramNet,
    pub(crate) rng: Rng,
    pub(crate) cluster: Cluster<Peer<ReliablePeer>>,
}

impl Stage {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, config(), Terms::default())
    }

    pub(crate) fn with(seed: u64, config: ReliableConfig, terms: Terms) -> Self {
        Self::between(seed, [config; 2], terms)
    }

    /// Makes two peers with different settings.
    pub(crate) fn between(seed: u64, configs: [ReliableConfig; 2], terms: Terms) -> Self {
        let world = World::new(seed);
        seeds::watch(&world);
        world.note(0, format!("{terms:?} {configs:?}"));
        let net = DatagramNet::new(&world, terms);
        let [one, other] = configs;
        let ports = (reliable(&net, 0, one, 1), reliable(&net, 1, other, 2));
        let mut cluster = two(&world, ports);
        for (id, config) in configs.into_iter().enumerate() {
            // A received packet may be larger than one that this end may send.
            let peer = cluster.node(id).expect("it lives");
            peer.heard.packet_max = config.packet_max;
        }
        Self {
            world,
            net,
            rng: Rng::new(seed),
            cluster,
        }
    }

    pub(crate) fn exchange(&mut self, count: usize) {
        self.exchange_within(count, 10 * SECOND);
    }

    pub(crate) fn exchange_within(&mut self, count: usize, span: Duration) {
        exchange(&mut self.cluster, &mut self.rng, count, span);
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        assert!(
            self.cluster.run_until(until, 1_000_000),
            "too many steps in {span:?}"
        );
    }

    /// Returns the mean bytes of a datagram while three packets of that length go from 0 to 1.
    pub(crate) fn size_of_datagrams(&mut self, len: usize, span: Duration) -> u64 {
        let before = self.net.traffic();
        self.at(0).to_send.extend([len; 3]);
        self.run(span);
        let after = self.net.traffic();
        (after.sent_bytes - before.sent_bytes) / (after.sent - before.sent)
    }

    pub(crate) fn at(&mut self, id: usize) -> &mut Peer<ReliablePeer> {
        self.cluster.poke(id);
        self.cluster.node(id).expect("it lives")
    }

    pub(crate) fn down(&mut self, id: usize) -> Option<LinkDown> {
        self.at(id).heard.down
    }

    pub(crate) fn close(&mut self, id: usize, how: Close) {
        let peer = self.at(id);
        let link = peer.link.or(peer.heard.link).expect("it has a link");
        peer.port.close(link, how);
        peer.hang_up();
    }

    /// Ends the link and begins another. Returns tapes of all datagrams from then on, by sender.
    pub(crate) fn record_another_session(&mut self) -> [Tape; 2] {
        self.exchange(3);
        self.close(0, Close::Now);
        self.run(SECOND);
        self.at(1).hang_up();
        let tapes = [self.record(0, 1), self.record(1, 0)];
        self.at(0).call(target(1));
        tapes
    }

    /// Records all datagrams from `from` to `to` from now on.
    pub(crate) fn record(&self, from: usize, to: usize) -> Tape {
        let seen = Tape::default();
        self.record_on(from, to, &seen);
        seen
    }

    /// Records onto a tape that contains others as well.
    pub(crate) fn record_on(&self, from: usize, to: usize, tape: &Tape) {
        let tape = Rc::clone(tape);
        let script = move |channel: Channel, bytes: &[u8]| {
            tape.borrow_mut().push((channel, bytes.to_vec()));
            Fate::Chance
        };
        self.net.set_script(from, to, Some(Box::new(script)));
    }
}

/// Injects a recorded datagram again, on the same channel.
pub(crate) fn replay(
    net: &DatagramNet,
    from: NodeId,
    to: NodeId,
    (channel, bytes): (Channel, Vec<u8>),
) {
    let of = |node: NodeId| match channel {
        Channel::Command => Some(address(node as u32)),
        Channel::Data => net.data_address(node),
    };
    if let (Some(from), Some(to)) = (of(from), of(to)) {
        net.inject(from, to, &bytes);
    }
}

#[test]
fn call_to_a_closed_name_is_refused_if_reported() {
    for answers in [true, false] {
        let mut stage = Stage::new(1);
        stage.net.change(|terms| terms.answers_refused = answers);
        drop(stage.cluster.kill(1));
        stage.run(6 * SECOND);
        let expected = if answers {
            LinkDown::Refused
        } else {
            LinkDown::TimedOut
        };
        assert_eq!(stage.down(0), Some(expected));
        assert_eq!(stage.at(0).port.sessions(), 0);
    }
}

#[test]
fn accepted_data_arrives_before_an_orderly_close() {
    seeds::each(8, |seed| {
        let mut stage = Stage::new(seed);
        stage.exchange(3);
        stage.net.set_faults(Faults {
            loss: 0.2,
            ..Faults::default()
        });
        stage.at(0).to_send.extend([20_000, 0, 30_000]);
        stage.run(Duration::from_micros(1));
        let accepted = stage.at(0).sent;
        stage.close(0, Close::Flush);
        stage.run(2 * SECOND);
        assert_eq!(stage.down(1), Some(LinkDown::Closed));
        assert_eq!(stage.at(1).heard.received.len() as u64, accepted);
        assert_eq!(
            (stage.at(0).port.sessions(), stage.at(1).port.sessions()),
            (0, 0)
        );
    });
}

#[test]
fn an_abrupt_close_is_a_reset_for_the_other_side() {
    let mut stage = Stage::new(1);
    stage.exchange(3);
    stage.close(1, Close::Now);
    stage.run(SECOND);
    assert_eq!(stage.down(0), Some(LinkDown::Reset));
    assert_eq!(stage.down(1), None, "one's own close is not reported");
}

#[test]
fn silent_peer_is_noticed_with_and_without_traffic() {
    for traffic in [true, false] {
        let mut stage = Stage::new(1);
        stage.exchange(3);
        stage.net.set_cut(0, 1, true);
        if traffic {
            stage.at(0).to_send.push_back(100);
        }
        stage.run(2 * SECOND);
        assert_eq!(stage.down(0), None, "given up too early");
        stage.run(8 * SECOND);
        assert_eq!(stage.down(0), Some(LinkDown::TimedOut));
        assert_eq!(stage.down(1), Some(LinkDown::TimedOut));
    }
}

/// Passes datagrams of one kind and drops all others.
fn only(kind: u8) -> Option<Script> {
    Some(Box::new(move |_, bytes| {
        if is_kind(bytes, kind) {
            Fate::Chance
        } else {
            Fate::Drop
        }
    }))
}

/// Makes a stage on which the caller has received a Welcome, and nothing that it has sent since has
/// arrived.
fn just_welcomed(seed: u64) -> Stage {
    let mut stage = Stage::new(seed);
    stage.net.set_script(0, 1, only(HELLO));
    stage.at(0).to_send.extend([100, 20_000, 5]);
    stage.run(Duration::from_millis(3));
    assert!(stage.at(0).introduced, "the caller takes it for open");
    assert_eq!(stage.at(1).port.sessions(), 0);
    stage
}

pub(crate) fn begin_anew(stage: &mut Stage, id: usize, life: u64) {
    drop(stage.cluster.kill(id));
    let port = reliable(&stage.net, id, config(), life);
    let reborn = Peer::new(id, 1 - id, port, stage.world.clock());
    stage.cluster.restart(id, reborn);
}

#[test]
fn peer_restarted_after_its_welcome_is_called_again() {
    seeds::each(8, |seed| {
        let mut stage = just_welcomed(seed);
        begin_anew(&mut stage, 1, 9);
        stage.net.set_script(0, 1, None);
        stage.exchange(10);
        assert_eq!(stage.down(0), None);
        let sent = stage.at(0).sent;
        assert_eq!(stage.at(1).heard.received.len() as u64, sent);
    });
}

#[test]
fn peer_that_forgets_welcomes_is_called_a_few_times() {
    let mut stage = just_welcomed(1);
    let hellos = Rc::new(RefCell::new(0));
    let count = Rc::clone(&hellos);
    let script = move |_: Channel, bytes: &[u8]| {
        *count.borrow_mut() += u32::from(is_kind(bytes, HELLO));
        Fate::Chance
    };
    stage.net.set_script(0, 1, Some(Box::new(script)));
    // With every Welcome the peer begins a new life before the next datagram comes.
    let welcomes = Rc::new(RefCell::new(0));
    let count = Rc::clone(&welcomes);
    let script = move |_: Channel, bytes: &[u8]| {
        *count.borrow_mut() += u32::from(is_kind(bytes, WELCOME));
        Fate::Chance
    };
    stage.net.set_script(1, 0, Some(Box::new(script)));
    begin_anew(&mut stage, 1, 9);
    let mut seen = 0;
    for life in 10..1_000_000 {
        if stage.down(0).is_some() {
            break;
        }
        stage.run(Duration::from_micros(1));
        if *welcomes.borrow() > seen {
            seen = *welcomes.borrow();
            begin_anew(&mut stage, 1, life);
        }
    }
    assert_eq!(stage.down(0), Some(LinkDown::Reset));
    assert_eq!(*hellos.borrow(), 4);
}

#[test]
fn call_cancelled_by_the_other_side_is_not_repeated() {
    let mut stage = just_welcomed(1);
    stage.net.set_script(0, 1, None);
    // The peer receives the call and ends it, and only the end arrives at the caller.
    stage.net.set_script(1, 0, only(RESET));
    stage.run(Duration::from_millis(100));
    stage.close(1, Close::Now);
    stage.run(SECOND);
    assert_eq!(stage.down(0), Some(LinkDown::Reset));
    assert_eq!(stage.at(1).port.sessions(), 0);
}

#[test]
fn caller_without_a_complete_packet_is_dropped() {
    let config = ReliableConfig::default();
    let mut stage = Stage::with(1, config, Terms::default());
    let first_parts_only = |_: Channel, bytes: &[u8]| {
        if is_kind(bytes, DATA) && OFFSET.of(bytes) != 0 {
            Fate::Drop
        } else {
            Fate::Chance
        }
    };
    stage.net.set_script(0, 1, Some(Box::new(first_parts_only)));
    stage.at(0).rude = true;
    stage.at(0).to_send.extend([20_000; 3]);
    stage.run(SECOND * 49 / 10);
    assert_eq!(stage.at(1).port.sessions(), 1);
    stage.run(SECOND / 5);
    assert_eq!(stage.at(1).port.sessions(), 0);
    assert!(stage.at(1).heard.received.is_empty());
    assert_eq!(stage.down(0), Some(LinkDown::Reset));
}

#[test]
fn honest_callers_bring_a_packet_in_time_over_bad_paths() {
    seeds::each(50, |seed| {
        let faults = Faults {
            loss: 0.3,
            ..Faults::default()
        };
        let mut stage = Stage::with(seed, ReliableConfig::default(), Terms::with(faults));
        stage.at(0).to_send.extend([100]);
        stage.run(15 * SECOND);
        assert_eq!(stage.at(1).heard.received.len(), 1);
        assert_eq!(stage.at(1).port.sessions(), 1);
    });
}

/// Exchanges packets and waits until both sides are suspended.
fn suspended_stage(seed: u64) -> Stage {
    let mut stage = Stage::new(seed);
    stage.exchange(10);
    assert_eq!(
        (stage.at(0).port.suspended(), stage.at(1).port.suspended()),
        (0, 0)
    );
    stage.run(10 * SECOND);
    assert_eq!(
        (stage.at(0).port.suspended(), stage.at(1).port.suspended()),
        (1, 1)
    );
    stage
}

/// Returns the bindings of both ends to their link.
fn bindings(stage: &mut Stage) -> [Binding; 2] {
    [0, 1].map(|id| {
        let peer = stage.at(id);
        let link = peer.heard.link.expect("a link");
        peer.port.binding(link)
    })
}

#[test]
fn both_ends_of_a_session_share_a_unique_binding() {
    let mut stage = suspended_stage(1);
    let [ours, theirs] = bindings(&mut stage);
    assert!(ours == theirs && ours[0] != ours[1] && !ours.contains(&0));
    let suspended = [0, 1].map(|id| stage.at(id).port.suspended());
    assert_eq!(suspended, [1, 1], "asked without waking them");
    stage.exchange(3);
    assert_eq!(bindings(&mut stage), [ours; 2], "the same when awake");
    for id in [1, 0] {
        stage.at(id).hang_up();
    }
    stage.at(0).call(target(1));
    stage.exchange(3);
    let [next, theirs] = bindings(&mut stage);
    assert!(next == theirs && next.iter().all(|name| !ours.contains(name)));
}

#[test]
fn suspended_links_go_on_where_they_were() {
    seeds::each(8, |seed| {
        let mut stage = suspended_stage(seed);
        for round in 0..4 {
            stage.net.set_faults(Faults {
                loss: 0.02 * f64::from(round),
                ..Faults::default()
            });
            stage.exchange(20);
            stage.net.set_faults(Faults::default());
            stage.run(10 * SECOND);
            let both = [0, 1].map(|id| stage.at(id).port.suspended());
            assert_eq!(both, [1, 1], "after round {round}");
        }
        assert_eq!((stage.down(0), stage.down(1)), (None, None));
    });
}

#[test]
fn a_suspended_link_sends_as_large_datagrams_as_before_at_once() {
    let mut stage = suspended_stage(1);
    let before = stage.net.traffic().too_large;
    let each = stage.size_of_datagrams(30_000, Duration::from_millis(5));
    assert!(each > 1_000, "{each} bytes each");
    assert_eq!(stage.net.traffic().too_large, before);
}

#[test]
fn a_suspended_link_can_be_closed_at_once_or_after_a_flush() {
    for (how, reason) in [
        (Close::Flush, LinkDown::Closed),
        (Close::Now, LinkDown::Reset),
    ] {
        let mut stage = suspended_stage(2);
        stage.close(1, how);
        stage.run(SECOND);
        assert_eq!(stage.down(0), Some(reason));
        assert_eq!(
            (stage.at(0).port.sessions(), stage.at(1).port.sessions()),
            (0, 0)
        );
    }
}

#[test]
fn the_death_of_a_peer_is_noticed_on_a_suspended_link() {
    let mut stage = suspended_stage(3);
    stage.net.set_cut(0, 1, true);
    stage.run(6 * SECOND);
    assert_eq!(stage.down(0), Some(LinkDown::TimedOut));
    assert_eq!(stage.down(1), Some(LinkDown::TimedOut));
}

#[test]
fn an_idle_link_stays_up() {
    let mut stage = Stage::new(1);
    stage.exchange(3);
    stage.run(100 * SECOND);
    assert_eq!((stage.down(0), stage.down(1)), (None, None));
    stage.exchange(3);
}

#[test]
fn a_short_silence_is_survived() {
    let mut stage = Stage::new(1);
    stage.exchange(3);
    stage.at(0).to_send.extend([500; 40]);
    stage.net.set_cut(0, 1, true);
    stage.run(2 * SECOND);
    stage.net.set_cut(0, 1, false);
    stage.exchange(3);
}

#[test]
fn restarted_peer_rejects_the_former_session() {
    let mut stage = Stage::new(1);
    stage.exchange(3);
    begin_anew(&mut stage, 1, 3);
    stage.at(0).to_send.push_back(5_000);
    stage.run(SECOND);
    assert_eq!(stage.down(0), Some(LinkDown::Reset));
    assert!(stage.at(1).heard.received.is_empty());
    assert!(stage.at(1).port.stats().old_session > 0);
    stage.at(0).call(target(1));
    stage.exchange(10);
}

#[test]
fn restarted_caller_is_served_beside_its_former_life() {
    seeds::each(5, |seed| {
        let mut stage = Stage::new(seed);
        stage.exchange(3);
        // Packets are under way in both directions when the node dies.
        for id in 0..2 {
            stage.at(id).to_send.extend([6_000; 20]);
        }
        let pause = stage.rng.span(Duration::from_micros(100));
        stage.run(pause);
        drop(stage.cluster.kill(0));
        let port = reliable(&stage.net, 0, config(), 1_000 + seed);
        let reborn = Peer::new(0, 1, port, stage.world.clock());
        stage.cluster.restart(0, reborn);
        // The packets that were under way arrive.
        stage.run(Duration::from_millis(1));
        stage.at(1).hang_up();
        stage.at(0).call(target(1));
        stage.exchange(10);
        stage.run(10 * SECOND);
        assert_eq!(
            (stage.at(0).port.sessions(), stage.at(1).port.sessions()),
            (1, 1),
            "the former session has not ended"
        );
        stage.exchange(3);
    });
}

#[test]
fn everything_of_an_earlier_session_repeated_changes_nothing() {
    seeds::each(5, |seed| {
        let mut stage = Stage::new(seed);
        let [there, back] = stage.record_another_session();
        stage.exchange(10);
        stage.close(0, Close::Flush);
        stage.run(SECOND);
        assert_eq!(stage.down(1), Some(LinkDown::Closed));
        stage.at(1).hang_up();
        let (there, back) = (there.take(), back.take());
        stage.at(0).call(target(1));
        stage.exchange(3);
        there
            .into_iter()
            .for_each(|sent| replay(&stage.net, 0, 1, sent));
        back.into_iter()
            .for_each(|sent| replay(&stage.net, 1, 0, sent));
        stage.exchange(10);
        let old: u64 = (0..2).map(|id| stage.at(id).port.stats().old_session).sum();
        assert!(old > 0, "nothing was recognised as old");
        stage.run(5 * SECOND);
        assert_eq!(
            (stage.at(0).port.sessions(), stage.at(1).port.sessions()),
            (1, 1)
        );
    });
}

/// Applies a fate to the nth datagram of a kind; all others pass.
fn on_the(nth: usize, kind: u8, fate: Fate) -> Option<Script> {
    let mut seen = 0;
    Some(Box::new(move |_, bytes| {
        seen += usize::from(is_kind(bytes, kind));
        if is_kind(bytes, kind) && seen == nth {
            fate
        } else {
            Fate::Pass
        }
    }))
}

#[test]
fn one_lost_fragment_is_sent_again_before_any_timeout() {
    let mut stage = Stage::new(1);
    stage.exchange(5);
    let before = totals(&mut stage.cluster).resent;
    stage.net.set_script(0, 1, on_the(3, DATA, Fate::Drop));
    stage.at(0).to_send.push_back(30_000);
    stage.run(Duration::from_millis(50));
    assert_eq!(stage.at(0).to_send.len(), 0);
    let stats = *stage.at(0).port.stats();
    assert_eq!(
        (totals(&mut stage.cluster).resent - before, stats.timeouts),
        (1, 0)
    );
}

#[test]
fn lost_ack_is_harmless_if_a_later_one_arrives() {
    let mut stage = Stage::new(1);
    stage.exchange(5);
    let before = totals(&mut stage.cluster).resent;
    stage.net.set_script(1, 0, on_the(1, ACK, Fate::Drop));
    stage.at(0).to_send.extend([60_000, 60_000]);
    stage.run(Duration::from_millis(50));
    assert_eq!(totals(&mut stage.cluster).resent - before, 0);
}

#[test]
fn stopped_receiver_stops_the_sender_without_loss() {
    let config = ReliableConfig {
        window: 32,
        give_up: 20 * SECOND,
        ..config()
    };
    let mut stage = Stage::with(1, config, Terms::default());
    stage.exchange(3);
    let before = stage.at(0).port.stats().datagrams_out;
    stage.cluster.stall(1, 2 * SECOND);
    stage.at(0).to_send.extend([7_000; 30]);
    stage.run(2 * SECOND);
    let sent = stage.at(0).port.stats().datagrams_out - before;
    assert!(
        sent < 200,
        "{sent} datagrams to a peer that does not answer"
    );
    stage.exchange(1);
}
