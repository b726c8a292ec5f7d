//! The MTU of the path between two peers, and links on a path whose MTU changes.
//!
//! ```text
//!   n0 ===[ mtu 9000 ]=== n1      then 1300, then 9000 again; or the data channel is dead
//! ```

use super::sessions::{SECOND, Stage, config};
use super::totals;
use mx_proto::port::LinkDown;
use mx_proto::reliability::{Channel, ReliableConfig};
use mx_sim::datagram::header::{DATA, KIND};
use mx_sim::datagram::{Oversize, Terms};
use mx_sim::link::Fate;
use mx_sim::seeds;
use std::time::Duration;

const ALL: [Oversize; 3] = [
    Oversize::Vanishes,
    Oversize::IsReported,
    Oversize::IsRefused,
];

/// Calls `run` with each treatment of too large datagrams except the one that swallows them for
/// good.
fn each_treatment(run: impl Fn(Oversize)) {
    seeds::each(1, |_| ALL.into_iter().for_each(&run));
}

fn stage(mtu: usize, oversize: Oversize) -> Stage {
    let config = ReliableConfig {
        give_up: 15 * SECOND,
        ..config()
    };
    let terms = Terms {
        mtu,
        oversize,
        ..Terms::default()
    };
    Stage::with(1, config, terms)
}

fn set_mtu(stage: &Stage, mtu: usize) {
    stage.net.set_mtu_of(0, 1, mtu);
    stage.net.set_mtu_of(1, 0, mtu);
}

/// Loses all datagrams on one channel from now on.
fn lose_channel(stage: &Stage, dead: Channel) {
    for (from, to) in [(0, 1), (1, 0)] {
        let script = move |channel, _: &[u8]| {
            if channel == dead {
                Fate::Drop
            } else {
                Fate::Chance
            }
        };
        stage.net.set_script(from, to, Some(Box::new(script)));
    }
}

#[test]
fn the_smallest_mtu_there_is_carries_everything() {
    let run = |oversize| {
        for mtu in [548, 600, 700, 1_280] {
            let mut stage = stage(mtu, oversize);
            stage.world.note(0, format!("{mtu} {oversize:?}"));
            stage.exchange(20);
        }
    };
    each_treatment(run);
    // A narrow link that swallows larger datagrams, without a router that knows and could fragment
    // them.
    seeds::each(1, |_| run(Oversize::IsSwallowed));
}

#[test]
fn the_largest_datagram_that_passes_is_found_and_used() {
    each_treatment(|oversize| {
        for (mtu, least) in [(1_472, 900), (9_000, 4_000), (65_507, 12_000)] {
            let mut stage = stage(mtu, oversize);
            stage.exchange(3);
            stage.run(5 * SECOND);
            let size = stage.size_of_datagrams(200_000, SECOND);
            assert!(size >= least, "{size} bytes of {mtu}: {oversize:?}");
        }
    });
}

#[test]
fn a_path_that_carries_less_than_before_is_noticed_in_mid_run() {
    each_treatment(|oversize| {
        let mut stage = stage(9_000, oversize);
        stage.exchange(3);
        stage.run(5 * SECOND);
        stage.at(0).to_send.extend([60_000; 30]);
        stage.run(Duration::from_micros(300));
        set_mtu(&stage, 1_300);
        let began = stage.world.now();
        stage.exchange(5);
        let took = stage.world.now().since(began);
        assert!(took < 5 * SECOND, "{oversize:?}: it took {took:?}");
        let before = stage.net.traffic();
        stage.exchange(10);
        let after = stage.net.traffic();
        let lost = after.too_large - before.too_large;
        assert!(lost <= 10, "{oversize:?}: {lost} more were too large");
        if oversize == Oversize::Vanishes {
            assert!(totals(&mut stage.cluster).black_holes > 0);
        }
    });
}

/// An interface with less than the least MTU of IPv4, which is reported, or known before anything
/// is sent.
#[test]
fn narrow_path_works_if_the_ip_layer_fragments() {
    for oversize in [Oversize::IsReported, Oversize::IsRefused] {
        let mut stage = stage(500, oversize);
        stage.exchange(10);
        stage.run(60 * SECOND);
        let before = stage.net.traffic().sent;
        stage.run(60 * SECOND);
        let idle = stage.net.traffic().sent - before;
        assert!(
            idle < 600,
            "{oversize:?}: {idle} datagrams in an idle minute"
        );
        stage.exchange(10);
    }
}

#[test]
fn path_that_narrows_later_works_with_fragmentation() {
    for oversize in [Oversize::IsReported, Oversize::IsRefused] {
        let mut stage = stage(1_472, oversize);
        stage.exchange(5);
        stage.run(SECOND);
        set_mtu(&stage, 500);
        stage.exchange(10);
    }
}

#[test]
fn a_path_that_carries_more_than_before_is_noticed_in_time() {
    let mut stage = stage(1_300, Oversize::Vanishes);
    stage.exchange(3);
    stage.run(5 * SECOND);
    assert!(stage.size_of_datagrams(200_000, SECOND) <= 1_300);
    set_mtu(&stage, 9_000);
    for _ in 0..70 {
        stage.run(10 * SECOND);
        stage.exchange(1);
    }
    let size = stage.size_of_datagrams(200_000, SECOND);
    assert!(size > 4_000, "still {size} bytes after ten minutes");
}

#[test]
fn without_a_data_channel_everything_still_arrives() {
    let mut stage = stage(1_472, Oversize::Vanishes);
    lose_channel(&stage, Channel::Data);
    stage.exchange(10);
    let data = stage.net.data_address(1).expect("it lives");
    let before = stage.net.bytes_to(data);
    stage.run(60 * SECOND);
    let probed = stage.net.bytes_to(data) - before;
    assert!(
        probed < 64 << 10,
        "{probed} bytes to a dead channel in a minute"
    );
}

#[test]
fn dead_data_channel_is_abandoned_and_all_data_arrives() {
    let mut stage = stage(1_472, Oversize::Vanishes);
    stage.exchange(5);
    stage.run(SECOND);
    lose_channel(&stage, Channel::Data);
    let began = stage.world.now();
    stage.at(0).to_send.extend([5_000; 10]);
    stage.run(20 * SECOND);
    let arrived = stage.at(1).heard.received.len();
    let ended = stage.down(0);
    let all = stage.at(0).sent as usize == arrived && stage.at(0).to_send.is_empty();
    assert!(
        all || ended == Some(LinkDown::TimedOut),
        "neither arrived nor ended since {began:?}: {arrived}"
    );
}

#[test]
fn a_path_on_which_only_talk_passes_and_no_data_ends_the_link() {
    let mut stage = stage(1_472, Oversize::Vanishes);
    stage.exchange(5);
    let script = |_: Channel, bytes: &[u8]| match bytes[KIND.at] {
        DATA => Fate::Drop,
        _ => Fate::Chance,
    };
    stage.net.set_script(0, 1, Some(Box::new(script)));
    stage.at(0).to_send.extend([5_000; 10]);
    stage.run(60 * SECOND);
    assert_eq!(stage.down(0), Some(LinkDown::TimedOut));
}

#[test]
fn a_command_channel_that_dies_in_mid_run_ends_the_link() {
    let mut stage = stage(1_472, Oversize::Vanishes);
    stage.exchange(5);
    lose_channel(&stage, Channel::Command);
    stage.at(0).to_send.extend([100; 10]);
    stage.run(60 * SECOND);
    let arrived = stage.at(1).heard.received.len();
    let all = stage.at(0).sent as usize == arrived;
    assert!(all || stage.down(0) == Some(LinkDown::TimedOut));
}
