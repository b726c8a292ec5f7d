//! Lanes over the installed providers.

use super::side::{Pair, Pieces, pairs, pattern};
use crate::remote::Report;
use crate::remote_frame::{Ask, RemoteFrame};
use mx_proto::port::RemoteKey;
use mx_proto::{Instant, LinkId, Memory};
use std::time::Duration;

fn transfer(pair: &mut Pair, from: &Pieces, into: &mut Pieces, token: u64) -> bool {
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let key = pair.a.expose(at_a, from, token);
    if pair.b.read(at_b, key, into, token).is_err() {
        pair.a.conceal(at_a, key);
        return false;
    }
    pair.until("the read ends", |pair| pair.b.ended(at_b, token).is_some());
    pair.a.conceal(at_a, key);
    pair.b.ended(at_b, token) == Some(true)
}

#[test]
fn messages_arrive_whole_however_both_sides_are_cut() {
    const K: usize = 1024;
    let shapes: &[(&[usize], &[usize])] = &[
        (&[64 * K], &[64 * K]),
        (&[5 << 20], &[5 << 20]),
        (&[100_000, 3 << 20, 77_777], &[1 << 20, 2 << 20, 177_777]),
        (&[64 * K; 40], &[80 * K; 32]),
        (&[(9 << 20) + 1], &[1, (9 << 20) - 1, 1]),
    ];
    for mut pair in pairs(4) {
        pair.warm_up();
        for (token, (from, into)) in (1..).zip(shapes) {
            let from = pattern(token as u8, from);
            let mut into = pattern(99, into);
            assert!(transfer(&mut pair, &from, &mut into, token), "{token}");
            assert!(from.joined() == into.joined(), "shape {token}");
        }
        assert_eq!((pair.a.ops.len(), pair.b.ops.len()), (0, 0));
        let told = |report: &Report| matches!(report, Report::Exposed { token: 5, .. });
        assert!(pair.a.reports.iter().any(told));
        let told = |report: &Report| matches!(report, Report::Reading { token: 5, .. });
        assert!(pair.b.reports.iter().any(told));
        assert_eq!(pair.a.remote.exposures(), 0);
    }
}

#[test]
fn many_reads_at_once_in_both_directions_all_arrive() {
    for mut pair in pairs(4) {
        pair.warm_up();
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let sources: Vec<Pieces> = (0..24)
            .map(|n| pattern(n, &[40_000 + 150_000 * usize::from(n)]))
            .collect();
        let mut sinks: Vec<Pieces> = sources
            .iter()
            .map(|source| pattern(200, &[source.len()]))
            .collect();
        for (n, (source, sink)) in sources.iter().zip(&mut sinks).enumerate() {
            let token = n as u64;
            let begun = if n % 2 == 0 {
                let key = pair.a.expose(at_a, source, token);
                pair.b.read(at_b, key, sink, token)
            } else {
                let key = pair.b.expose(at_b, source, token);
                pair.a.read(at_a, key, sink, token)
            };
            begun.unwrap();
        }
        pair.until("all reads end", |pair| {
            (0..24).all(|n| match n % 2 {
                0 => pair.b.ended(at_b, n) == Some(true),
                _ => pair.a.ended(at_a, n) == Some(true),
            })
        });
        assert!(sources.iter().zip(&sinks).all(|(a, b)| a.0 == b.0));
        pair.a.link_down(at_a);
        pair.b.link_down(at_b);
    }
}

#[test]
fn a_link_gets_a_lane_with_its_second_large_message() {
    for mut pair in pairs(4) {
        let memory = pattern(1, &[64 << 10]);
        let mut into = pattern(2, &[64 << 10]);
        let key = pair.a.expose(pair.at_a, &memory, 1);
        assert!(pair.b.read(pair.at_b, key, &mut into, 1).is_err());
        pair.linger();
        assert_eq!(pair.b.remote.open_lanes(), 0);
        assert!(pair.b.read(pair.at_b, key, &mut into, 1).is_err());
        let at_b = pair.at_b;
        pair.until("a lane", |pair| pair.b.remote.is_warm(at_b));
        assert_eq!(
            (pair.a.remote.open_lanes(), pair.b.remote.open_lanes()),
            (1, 1)
        );
        pair.a.conceal(pair.at_a, key);
    }
}

#[test]
fn proposals_that_cross_make_one_lane() {
    for mut pair in pairs(4) {
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[1 << 20]);
        let (from_a, from_b) = (
            pair.a.expose(at_a, &memory, 1),
            pair.b.expose(at_b, &memory, 1),
        );
        let mut into = pattern(2, &[1 << 20]);
        assert!(pair.b.read(at_b, from_a, &mut into, 1).is_err());
        assert!(pair.a.read(at_a, from_b, &mut into, 1).is_err());
        (pair.a_to_b, pair.b_to_a) = (false, false);
        pair.until("both propose", |pair| {
            pair.a.remote.open_lanes() == 1 && pair.b.remote.open_lanes() == 1
        });
        (pair.a_to_b, pair.b_to_a) = (true, true);
        pair.until("both are warm", |pair| {
            pair.a.remote.is_warm(at_a) && pair.b.remote.is_warm(at_b)
        });
        pair.a.conceal(at_a, from_a);
        pair.b.conceal(at_b, from_b);
        let mut into = pattern(2, &[1 << 20]);
        assert!(transfer(&mut pair, &memory, &mut into, 2));
    }
}

#[test]
fn a_read_of_what_has_been_concealed_fails_and_the_lane_stays() {
    for mut pair in pairs(4) {
        pair.warm_up();
        let memory = pattern(1, &[3 << 20]);
        let key = pair.a.expose(pair.at_a, &memory, 1);
        pair.a.conceal(pair.at_a, key);
        let mut into = pattern(2, &[3 << 20]);
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        pair.b.read(at_b, key, &mut into, 7).unwrap();
        pair.until("the read ends", |pair| pair.b.ended(at_b, 7) == Some(false));
        assert!(into == pattern(2, &[3 << 20]));
        assert!(pair.a.remote.is_warm(at_a) && pair.b.remote.is_warm(at_b));
        assert_eq!(pair.b.ops.len(), 0);
        let from = pattern(3, &[2 << 20]);
        let mut into = pattern(4, &[2 << 20]);
        assert!(transfer(&mut pair, &from, &mut into, 8));
        assert!(from.0 == into.0);
    }
}

#[test]
fn concealing_ends_sends_that_nobody_receives_by_closing_the_lane() {
    for mut pair in pairs(4) {
        pair.warm_up();
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[8 << 20]);
        let key = pair.a.expose(at_a, &memory, 1);
        // A peer that asks and posts nothing.
        let lane = pair.a.remote.generation(at_a).unwrap();
        for n in 0..8 {
            let ask = Ask {
                lane,
                exposure: key.address,
                key: key.key,
                from: n << 20,
                len: 1 << 20,
                tag: 1000 + n,
            };
            pair.a.frame(at_a, &RemoteFrame::Ask(ask).emit());
        }
        pair.linger();
        let began = std::time::Instant::now();
        pair.a.conceal(at_a, key);
        let took = began.elapsed();
        assert!(took < Duration::from_millis(500), "{took:?}");
        assert_eq!(pair.a.ops.len(), 0);
        assert_eq!(pair.a.remote.exposures(), 0);
        drop(memory);
        // A provider that takes everything in may have completed the sends by itself.
        if !pair.a.remote.is_warm(at_a) {
            pair.until("the peer closes its own", |pair| {
                pair.b.remote.open_lanes() == 0
            });
            assert_eq!(pair.b.ops.len(), 0);
            // After a pause there is another.
            pair.a.now = pair.a.now.after(Duration::from_secs(20));
            pair.b.now = pair.b.now.after(Duration::from_secs(20));
            pair.step();
            pair.warm_up();
        }
        assert!(!pair.a.remote.wants_renewal() && !pair.b.remote.wants_renewal());
        let from = pattern(3, &[2 << 20]);
        let mut into = pattern(4, &[2 << 20]);
        assert!(transfer(&mut pair, &from, &mut into, 9));
        assert!(from.0 == into.0);
        assert!(pair.b.remote.is_warm(at_b));
    }
}

#[test]
fn memory_is_untouched_after_a_recall_whenever_it_comes() {
    for mut pair in pairs(4) {
        for steps in 0..12 {
            pair.a.now = pair.a.now.after(Duration::from_secs(30));
            pair.b.now = pair.b.now.after(Duration::from_secs(30));
            pair.step();
            if !pair.b.remote.is_warm(pair.at_b) || !pair.a.remote.is_warm(pair.at_a) {
                pair.warm_up();
            }
            let (at_a, at_b) = (pair.at_a, pair.at_b);
            let memory = pattern(1, &[12 << 20]);
            let key = pair.a.expose(at_a, &memory, 1);
            let mut into = pattern(2, &[6 << 20, 6 << 20]);
            pair.b.read(at_b, key, &mut into, 77).unwrap();
            for _ in 0..steps {
                pair.step();
            }
            pair.b.recall(at_b, 77);
            let ended = pair
                .b
                .reports
                .iter()
                .any(|report| matches!(report, Report::ReadDone { token: 77, .. }));
            pair.b.reports.clear();
            let after = into.clone();
            pair.linger();
            assert!(into == after, "written to after the recall at step {steps}");
            assert!(!pair.b.reports.iter().any(|report| {
                matches!(
                    report,
                    Report::ReadDone { token: 77, .. } | Report::Reading { token: 77, .. }
                )
            }));
            assert!(ended || pair.b.remote.reads() == 0);
            pair.a.conceal(at_a, key);
        }
    }
}

#[test]
fn a_link_that_goes_down_gives_everything_back_at_once() {
    for mut pair in pairs(4) {
        pair.warm_up();
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[12 << 20]);
        let key = pair.a.expose(at_a, &memory, 1);
        let back = pair.b.expose(at_b, &memory, 2);
        let (mut into, mut other) = (pattern(2, &[12 << 20]), pattern(3, &[12 << 20]));
        pair.b.read(at_b, key, &mut into, 7).unwrap();
        pair.a.read(at_a, back, &mut other, 8).unwrap();
        pair.step();
        pair.step();
        pair.b.link_down(at_b);
        assert_eq!(pair.b.ops.len(), 0);
        assert_eq!((pair.b.remote.exposures(), pair.b.remote.reads()), (0, 0));
        let after = into.clone();
        pair.linger();
        assert!(into == after);
        pair.a.link_down(at_a);
        assert_eq!(pair.a.ops.len(), 0);
        let after = other.clone();
        pair.linger();
        assert!(other == after);
        assert_eq!(
            (pair.a.remote.open_lanes(), pair.b.remote.open_lanes()),
            (0, 0)
        );
        assert!(
            pair.a
                .with(|remote, outlet| remote.expose(outlet, at_a, &memory, 1))
                .is_none()
        );
    }
}

#[test]
fn a_read_over_a_lane_the_peer_closed_fails_and_may_be_repeated() {
    for mut pair in pairs(4) {
        pair.warm_up();
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[12 << 20]);
        let key = pair.a.expose(at_a, &memory, 1);
        let mut into = pattern(2, &[12 << 20]);
        pair.b.read(at_b, key, &mut into, 7).unwrap();
        pair.step();
        // The sender takes its message back while it is read.
        pair.a.conceal(at_a, key);
        pair.until("the read ends", |pair| pair.b.ended(at_b, 7).is_some());
        assert_eq!(pair.b.ended(at_b, 7), Some(false));
        let after = into.clone();
        pair.linger();
        assert!(into == after);
    }
}

#[test]
fn an_idle_lane_is_closed_on_both_sides() {
    for mut pair in pairs(4) {
        pair.warm_up();
        pair.b.now = pair.b.now.after(Duration::from_secs(59));
        pair.step();
        assert_eq!(pair.b.remote.open_lanes(), 1);
        pair.b.now = pair.b.now.after(Duration::from_secs(2));
        pair.until("both close", |pair| {
            pair.a.remote.open_lanes() + pair.b.remote.open_lanes() == 0
        });
        assert_eq!((pair.a.ops.len(), pair.b.ops.len()), (0, 0));
    }
}

#[test]
fn without_room_for_a_lane_a_proposal_is_declined() {
    for mut pair in pairs(1) {
        let third = LinkId::new(9, 9);
        pair.warm_up();
        pair.b.remote.on_link_up(third, 0);
        let address = pair.b.main.address().to_vec();
        let proposal = RemoteFrame::Lane {
            generation: 42,
            with: 0,
            tag_mask: u64::MAX,
            address: address.as_slice().into(),
        };
        pair.b.frame(third, &proposal.emit());
        pair.b.poll();
        let answer = pair.b.out.pop_front();
        assert_eq!(
            answer,
            Some((third, RemoteFrame::NoLane { generation: 42 }))
        );
        assert_eq!(pair.b.remote.open_lanes(), 1);
        // One that has been idle makes room.
        pair.b.now = pair.b.now.after(Duration::from_secs(10));
        pair.b.frame(third, &proposal.emit());
        pair.b.poll();
        assert!(pair.b.remote.generation(third).is_some());
        assert!(pair.b.remote.generation(pair.at_b).is_none());
        assert_eq!(pair.b.remote.open_lanes(), 1);
        pair.b.link_down(third);
    }
}

#[test]
fn a_lane_whose_peer_never_answers_is_given_up() {
    for mut pair in pairs(4) {
        pair.a_to_b = false;
        let memory = pattern(1, &[1 << 20]);
        let key = pair.a.expose(pair.at_a, &memory, 1);
        let mut into = pattern(2, &[1 << 20]);
        assert!(pair.b.read(pair.at_b, key, &mut into, 1).is_err());
        pair.until("it opens", |pair| pair.b.remote.open_lanes() == 1);
        pair.b.now = pair.b.now.after(Duration::from_secs(6));
        pair.step();
        assert_eq!(pair.b.remote.open_lanes(), 0);
        assert_eq!(pair.b.ops.len(), 0);
        pair.a.link_down(pair.at_a);
    }
}

#[test]
fn what_a_hostile_peer_sends_costs_no_more_than_its_own_lane() {
    for mut pair in pairs(4) {
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[1 << 20, 1 << 19]);
        let mut state = 12345u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 24
        };
        for round in 0..60 {
            pair.a.now = pair.a.now.after(Duration::from_secs(20));
            pair.b.now = pair.b.now.after(Duration::from_secs(20));
            pair.step();
            if round % 20 == 0 && !pair.a.remote.is_warm(at_a) {
                pair.warm_up();
            }
            let key = pair.a.expose(at_a, &memory, 1);
            for _ in 0..300 {
                let lane = pair.a.remote.generation(at_a).unwrap_or(1);
                let near = |value: u64, random: &mut dyn FnMut() -> u64| match random() % 4 {
                    0 => random(),
                    1 => value ^ 1 << (random() % 64),
                    _ => value,
                };
                let frame = match random() % 8 {
                    0 => RemoteFrame::Refused {
                        lane,
                        tag: random(),
                    },
                    1 => RemoteFrame::NoLane {
                        generation: near(u64::from(lane), &mut random) as u32,
                    },
                    2 => RemoteFrame::Reading {
                        address: random(),
                        key: random(),
                    },
                    3 if random() % 16 == 0 => RemoteFrame::Gone {
                        generation: random() as u32 % 8,
                    },
                    3 if random() % 16 == 0 => RemoteFrame::Lane {
                        generation: random() as u32 % 4,
                        with: near(u64::from(lane), &mut random) as u32 % 16,
                        tag_mask: random() << (random() % 64),
                        address: (0..random() % 40).map(|_| random() as u8).collect(),
                    },
                    _ => RemoteFrame::Ask(Ask {
                        lane: near(u64::from(lane), &mut random) as u32,
                        exposure: near(key.address, &mut random),
                        key: near(key.key, &mut random),
                        from: near(1 << 20, &mut random),
                        len: near(1 << 16, &mut random) as u32,
                        tag: random(),
                    }),
                };
                let mut bytes = frame.emit();
                if random() % 8 == 0 {
                    let at = random() as usize % bytes.len();
                    bytes[at] = random() as u8;
                    bytes.truncate(at.max(1));
                }
                pair.a.frame(at_a, &bytes);
                assert!(pair.a.out.len() <= 300, "{}", pair.a.out.len());
                if random() % 32 == 0 {
                    pair.a.poll();
                }
            }
            assert!(pair.a.ops.len() <= 64, "{:?}", pair.a.ops);
            pair.a.conceal(at_a, key);
            assert_eq!(pair.a.remote.exposures(), 0);
            pair.a.out.clear();
        }
        assert!(!pair.a.remote.wants_renewal());
        pair.a.link_down(at_a);
        pair.b.link_down(at_b);
        assert_eq!((pair.a.ops.len(), pair.b.ops.len()), (0, 0));
    }
}

#[test]
fn what_is_too_short_or_too_fragmented_is_not_read_like_this() {
    for mut pair in pairs(4) {
        pair.warm_up();
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let short = pattern(1, &[(32 << 10) - 1]);
        assert!(
            pair.a
                .with(|remote, outlet| remote.expose(outlet, at_a, &short, 1))
                .is_none()
        );
        let crumbs = pattern(1, &[4000; 100]);
        assert!(
            pair.a
                .with(|remote, outlet| remote.expose(outlet, at_a, &crumbs, 1))
                .is_none()
        );
        let whole = pattern(1, &[400_000]);
        let key = pair.a.expose(at_a, &whole, 1);
        let mut into = pattern(2, &[4000; 100]);
        assert!(pair.b.read(at_b, key, &mut into, 1).is_err());
        let address = key.address | 63 << 56;
        let forged = RemoteKey { address, ..key };
        let mut into = pattern(2, &[400_000]);
        assert!(pair.b.read(at_b, forged, &mut into, 1).is_err());
        pair.a.conceal(at_a, key);
        assert!(pair.b.remote.deadline().is_some_and(|at| at > Instant(1)));
    }
}
