//! Messages, and how their requests end.

use super::{KEY, NIC, Net, Recv, fails};
use crate::engine::{COMPLETIONS, ContextIds, UNEXPECTED};
use crate::error::Code;
use crate::handles::{Address, RequestHandle};
use crate::status::StatusCode;
use mx_proto::SendMode;
use mx_proto::flow::{CREDIT, cost};
use mx_sim::{Profile, seeds};
use mx_sys::UserMemory;
use std::time::Duration;

const ALL: u64 = u64::MAX;

#[test]
fn a_message_arrives_and_both_statuses_say_everything() {
    for len in [0usize, 1, 100, 32_768, 32_769, 1 << 20] {
        let (mut net, b) = Net::pair();
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let (_, memory) = net.memory(&bytes);
        let engine = net.engine(0);
        let send = engine
            .isend(memory, b, 0xabcd, 0x51, SendMode::Buffered)
            .unwrap();
        assert_eq!(engine.context_of(send).unwrap(), 0x51);
        net.run_until_idle();
        let (buffer, memory) = net.memory(&vec![0; len + 10]);
        let engine = net.engine(1);
        let recv = engine.irecv(memory, 0xab00, 0xff00, 0x52).unwrap();
        net.run_until_idle();
        let sent = net.done(0, send);
        let length = len as u32;
        assert_eq!((sent.code, sent.source), (0, b));
        assert_eq!((sent.match_info, sent.context), (0xabcd, 0x51));
        assert_eq!((sent.msg_length, sent.xfer_length), (length, length));
        let got = net.done(1, recv);
        assert_eq!((got.code, got.match_info, got.context), (0, 0xabcd, 0x52));
        assert_eq!((got.msg_length, got.xfer_length), (length, length));
        assert_eq!(&net.buffers[buffer][..len], bytes);
        assert!(net.buffers[buffer][len..].iter().all(|byte| *byte == 0));
        let sender = net.engine(1).decompose(got.source).unwrap();
        assert_eq!((sender.nic, sender.endpoint.0), (NIC, 0));
        assert_eq!(sender, net.engine(0).identity());
        assert_eq!(net.engine(0).requests() + net.engine(1).requests(), 0);
    }
}

#[test]
fn a_shorter_buffer_is_filled_and_not_overrun() {
    for len in [100, 100_000] {
        let (mut net, b) = Net::pair();
        let recv = net.irecv(1, 0, 0, 40);
        let send = net.isend(0, b, 0, &vec![7; len]);
        net.run_until_idle();
        let got = net.done(1, recv.handle);
        assert_eq!(got.code, StatusCode::Truncated as u32);
        assert_eq!((got.msg_length, got.xfer_length), (len as u32, 40));
        assert_eq!(net.bytes(recv), [7; 40]);
        // Only a sender that waited for the receiver is told.
        let sent = net.done(0, send);
        let (code, transferred) = if len > 32_768 {
            (StatusCode::Truncated as u32, 40)
        } else {
            (0, len as u32)
        };
        assert_eq!((sent.code, sent.xfer_length), (code, transferred));
        assert_eq!(sent.msg_length, len as u32);
    }
}

/// Returns two endpoints. The second, and those added later, lend the credits for `largest` of the largest small
/// messages. Links take `room` bytes.
fn windows(largest: u32, room: usize) -> (Net, Address) {
    let profile = Profile {
        room,
        ..Profile::default()
    };
    let mut net = Net::new(1, profile);
    net.add(None);
    // And one more credit; never more than that, which is a quarter of what may be lent.
    let credit_limit = largest * cost(32_768) + 1;
    net.config.first_credits = credit_limit as u16;
    net.config.unexpected_bytes = (credit_limit as usize * 4 * 8).div_ceil(7) * CREDIT;
    net.add(None);
    let b = net.connect(0, 1);
    (net, b)
}

#[test]
fn small_sends_complete_within_credit_without_a_reader() {
    // The link takes a few of them; the others are copied.
    let count = 20;
    let (mut net, b) = windows(count, 100_000);
    for number in 0..count {
        let (buffer, memory) = net.memory(&vec![number as u8; 32_768]);
        let engine = net.engine(0);
        let send = engine.isend(memory, b, 9, 0, SendMode::Buffered).unwrap();
        assert!(engine.is_buffered(send).unwrap());
        assert_eq!(net.done(0, send).xfer_length, 32_768, "{number}");
        // The program owns the buffer again.
        net.buffers[buffer].fill(0xee);
    }
    assert!(net.engine(0).last_sends(), "copies wait");
    // Other sends wait for the receiver.
    let (one, full) = (net.isend(0, b, 9, b""), net.isend(0, b, 9, &[1; 32_768]));
    let large = net.isend(0, b, 9, &[2; 32_769]);
    let matched = net.issend(0, b, 9, &[3; 8]);
    assert_eq!(net.code(0, one), StatusCode::Success);
    for round in 0..2 {
        for pending in [full, large, matched] {
            assert!(!net.engine(0).is_buffered(pending).unwrap(), "{round}");
        }
        net.run_until_idle();
    }
    for number in 0..count {
        let recv = net.irecv(1, 9, u64::MAX, 32_768);
        net.run_until_idle();
        assert_eq!(net.done(1, recv.handle).code, 0);
        assert!(net.bytes(recv).iter().all(|byte| *byte == number as u8));
    }
    let empty = net.irecv(1, 9, u64::MAX, 0);
    // A message that was only offered is complete for its sender, whatever part the receiver took.
    let short = net.irecv(1, 9, u64::MAX, 40);
    net.run_until_idle();
    assert_eq!(net.code(1, empty.handle), StatusCode::Success);
    let got = net.done(1, short.handle);
    assert_eq!(
        (got.code, got.xfer_length),
        (StatusCode::Truncated as u32, 40)
    );
    let sent = net.done(0, full);
    assert_eq!((sent.code, sent.xfer_length), (0, 32_768));
    for (last, len) in [(large, 32_769), (matched, 8)] {
        let recv = net.irecv(1, 9, u64::MAX, len);
        net.run_until_idle();
        assert_eq!(net.done(1, recv.handle).msg_length, len as u32);
        assert_eq!(net.done(0, last).xfer_length, len as u32);
    }
    assert!(!net.engine(0).last_sends());
}

#[test]
fn copies_have_a_limit_and_a_time_out_is_not_for_them() {
    // An eighth of the total; a peer lends at most what 63 of them cost.
    let (count, peers) = ((64 << 20) / 8 / CREDIT / cost(32_768) as usize, 5);
    let (mut net, first) = windows(63, 1);
    let mut others = vec![first];
    for peer in 2..=peers {
        net.add(None);
        others.push(net.connect(0, peer));
    }
    net.engine(0)
        .set_request_timeout(Some(Duration::from_secs(1)));
    for peer in 1..=peers {
        net.cluster.node(peer).unwrap().idle = true;
    }
    let sends: Vec<_> = (0..count + 2 * peers)
        .map(|n| net.isend(0, others[n % peers], 9, &[1; 32_768]))
        .collect();
    let done = |net: &mut Net, send: &RequestHandle| net.engine(0).is_buffered(*send).unwrap();
    let at_once: Vec<_> = sends.iter().filter(|send| done(&mut net, send)).collect();
    assert!((count..=count + peers).contains(&at_once.len()));
    // The pending send is given up, completed ones are not.
    net.pass(Duration::from_secs(100));
    let ends: Vec<_> = sends.iter().map(|send| net.code(0, *send)).collect();
    assert_eq!(ends[at_once.len() - 1], StatusCode::Success);
    assert_eq!(ends.last(), Some(&StatusCode::Timeout));
    let mut received = 0;
    for peer in 1..=peers {
        net.cluster.node(peer).unwrap().idle = false;
        net.run_until_idle();
        while net.engine(peer).probe(0, 0).unwrap().is_some() {
            let recv = net.irecv(peer, 9, ALL, 32_768);
            net.run_until_idle();
            assert_eq!(net.code(peer, recv.handle), StatusCode::Success);
            received += 1;
        }
    }
    assert_eq!(received, at_once.len());
    assert!(!net.engine(0).last_sends());
}

/// Receiving a message proves that every send completed before it has arrived.
#[test]
fn received_message_proves_all_completed_before_it() {
    let mut proofs = 0;
    seeds::each(200, |seed| {
        let mut net = Net::new(seed, Profile::default());
        let mut rng = net.world.fork_rng();
        net.profile = Profile {
            packet_max: rng.pick(&[4 << 10, 16 << 10, 32 << 10]),
            ..Profile::random(&mut rng)
        };
        net.config.first_credits = rng.pick(&[0, 2, 65, 320]);
        net.config.unexpected_bytes = rng.pick(&[10_000, 1 << 20, 64 << 20]);
        net.add(None);
        net.add(None);
        let b = net.connect(0, 1);
        // Data k has bits k, its token bits 1000 + k.
        let mut posted: Vec<(Recv, Recv, usize)> = Vec::new();
        let mut said = Vec::new();
        let check = |net: &mut Net, posted: &[(Recv, Recv, usize)], from: &mut usize| {
            while let Some((data, token, len)) = posted.get(*from)
                && !net.pending(1, token.handle)
            {
                let complete = net.bytes(*token)[0] == 1;
                let there = net.bytes(*data)[..*len]
                    .iter()
                    .all(|byte| *byte == *from as u8);
                assert!(there || !complete, "message {from} of {len} bytes is late");
                *from += 1;
            }
        };
        let (mut checked, lens) = (0, [1, 700, 3_000, 10_000, 17_000, 32_768]);
        let lens: Vec<usize> = (0..120).map(|_| rng.pick(&lens)).collect();
        while checked < lens.len() {
            match rng.below(4) {
                0 if posted.len() < lens.len() => {
                    let k = posted.len() as u64;
                    let data = net.irecv(1, k, ALL, 32_768);
                    net.engine(1).forget(data.handle).unwrap();
                    let token = net.irecv(1, 1000 + k, ALL, 1);
                    posted.push((data, token, lens[k as usize]));
                }
                1 | 2 if said.len() < lens.len() => {
                    let k = said.len();
                    let data = net.isend(0, b, k as u64, &vec![k as u8; lens[k]]);
                    let complete = net.engine(0).is_buffered(data).unwrap();
                    net.engine(0).forget(data).unwrap();
                    net.isend(0, b, 1000 + k as u64, &[complete.into()]);
                    said.push(complete);
                }
                _ => net.pass(rng.span(Duration::from_micros(200))),
            }
            check(&mut net, &posted, &mut checked);
        }
        proofs += said.iter().filter(|complete| **complete).count();
        net.run_until_idle();
        assert!(!net.engine(0).last_sends());
    });
    assert!(proofs > 1_000, "{proofs}");
}

#[test]
fn completions_come_out_oldest_first_among_those_that_match() {
    let (mut net, b) = Net::pair();
    let recvs: Vec<_> = (0..4).map(|n| net.irecv(1, n, ALL, 8)).collect();
    for bits in [2, 0, 3, 1] {
        net.isend(0, b, bits, b"x");
    }
    net.run_until_idle();
    let engine = net.engine(1);
    let first = engine.peek().unwrap();
    assert_eq!(first, Some(recvs[2].handle));
    assert_eq!(engine.peek().unwrap(), first);
    // Odd ones only.
    assert_eq!(engine.test_any(1, 1).unwrap().unwrap().match_info, 3);
    fails(engine.test(recvs[3].handle), Code::BadRequest);
    assert_eq!(engine.test_any(0, 0).unwrap().unwrap().match_info, 2);
    assert_eq!(engine.peek().unwrap(), Some(recvs[0].handle));
    assert_eq!(engine.test(recvs[0].handle).unwrap().unwrap().match_info, 0);
    assert_eq!(engine.test_any(0, 1).unwrap(), None);
    assert_eq!(engine.test_any(0, 0).unwrap().unwrap().match_info, 1);
    assert_eq!(
        (engine.peek().unwrap(), engine.test_any(0, 0).unwrap()),
        (None, None)
    );
    // Sends are completions like others.
    let sent: Vec<u64> = std::iter::from_fn(|| net.engine(0).test_any(0, 0).unwrap())
        .map(|status| status.match_info)
        .collect();
    assert_eq!(sent, [2, 0, 3, 1]);
}

#[test]
fn a_mask_must_cover_the_bits() {
    let mut net = Net::of(1);
    let engine = net.engine(0);
    let refused = [
        engine.irecv(UserMemory::empty(), 3, 1, 0).map(|_| ()),
        engine.test_any(3, 1).map(|_| ()),
        engine.probe(3, 1).map(|_| ()),
    ];
    for result in refused {
        fails(result, Code::BadMatchMask);
    }
    assert_eq!(engine.requests(), 0);
}

#[test]
fn context_ids_must_be_named_by_receives_and_forbid_peeking() {
    let mut net = Net::of(1);
    let node = net.add(ContextIds::new(8, 8));
    let engine = net.engine(node);
    let error = engine.irecv(UserMemory::empty(), 0, 0x7fff, 0).unwrap_err();
    assert_eq!(error.code(), Code::BadMatchingForContextIdMask);
    fails(engine.peek(), Code::NotSupportedWithContextId);
    let recv = engine.irecv(UserMemory::empty(), 0x300, 0xff00, 0).unwrap();
    assert_eq!(engine.interest_of(recv), 1 << 3);
    engine.take_produced();
    let own = engine.own_address();
    engine
        .isend(UserMemory::empty(), own, 0x3aa, 0, SendMode::Buffered)
        .unwrap();
    net.run_until_idle();
    let engine = net.engine(node);
    assert_eq!(engine.take_produced() & COMPLETIONS, 1 << 3);
    // Any mask is legal.
    assert!(engine.test_any(0, 0).unwrap().is_some());
    assert!(engine.test_any(0xaa, 0xff).unwrap().is_some());
}

#[test]
fn what_is_forgotten_ends_in_silence() {
    let (mut net, b) = Net::pair();
    let (early, late) = (net.irecv(1, 1, ALL, 8), net.irecv(1, 2, ALL, 8));
    net.engine(1).forget(early.handle).unwrap();
    let send = net.isend(0, b, 1, b"one");
    net.isend(0, b, 2, b"two");
    net.engine(0).forget(send).unwrap();
    net.run_until_idle();
    assert_eq!(&net.bytes(early)[..3], b"one");
    let engine = net.engine(1);
    assert_eq!(engine.peek().unwrap(), Some(late.handle));
    fails(engine.test(early.handle), Code::BadRequest);
    engine.forget(late.handle).unwrap();
    assert_eq!((engine.peek().unwrap(), engine.requests()), (None, 0));
    assert_eq!(net.engine(0).test_any(0, 0).unwrap().unwrap().match_info, 2);
    assert_eq!(net.engine(0).test_any(0, 0).unwrap(), None);
}

#[test]
fn waiter_wakes_if_its_request_is_cancelled_or_forgotten() {
    let mut net = Net::of(1);
    let (one, two) = (net.irecv(0, 1, ALL, 8), net.irecv(0, 2, ALL, 8));
    let engine = net.engine(0);
    engine.take_produced();
    assert!(engine.cancel(one.handle).unwrap());
    assert_ne!(engine.take_produced() & COMPLETIONS, 0);
    engine.forget(two.handle).unwrap();
    assert_ne!(engine.take_produced() & COMPLETIONS, 0);
}

#[test]
fn only_an_unanswered_request_can_be_cancelled() {
    let (mut net, b) = Net::pair();
    let (first, second) = (net.irecv(1, 1, ALL, 8), net.irecv(1, 1, ALL, 8));
    assert!(net.engine(1).cancel(first.handle).unwrap());
    fails(net.engine(1).test(first.handle), Code::BadRequest);
    let send = net.issend(0, b, 9, b"x");
    fails(net.engine(0).cancel(send), Code::CancelNotSupported);
    net.isend(0, b, 1, b"hello");
    net.run_until_idle();
    assert!(!net.engine(1).cancel(second.handle).unwrap());
    assert_eq!(net.bytes(first), [0xee; 8]);
    assert_eq!(net.done(1, second.handle).xfer_length, 5);
    // A connect that has been answered, too.
    let request = net.iconnect(0, 1, KEY);
    net.run_until_idle();
    assert!(!net.engine(0).cancel(request).unwrap());
    assert_eq!(net.code(0, request), StatusCode::Success);
    net.fabric.cut(0, 1);
    let lost = net.iconnect(0, 1, KEY);
    assert!(net.engine(0).cancel(lost).unwrap());
    assert!(net.pending(0, send), "what is left was not touched");
    assert_eq!(net.engine(0).requests(), 2);
}

#[test]
fn a_synchronous_send_ends_when_a_receive_has_matched() {
    let (mut net, b) = Net::pair();
    let (ordinary, synchronous) = (net.isend(0, b, 1, b"abc"), net.issend(0, b, 2, b"def"));
    net.run_until_idle();
    assert!(net.engine(0).is_buffered(ordinary).unwrap());
    assert!(!net.engine(0).is_buffered(synchronous).unwrap());
    assert!(net.pending(0, synchronous));
    let recv = net.irecv(1, 2, ALL, 3);
    net.run_until_idle();
    assert!(net.engine(0).is_buffered(synchronous).unwrap());
    assert_eq!(net.code(0, synchronous), StatusCode::Success);
    assert_eq!(net.bytes(recv), b"def");
    let error = net.engine(1).is_buffered(recv.handle).unwrap_err();
    assert_eq!(error.code(), Code::BadRequest);
}

#[test]
fn probing_sees_the_oldest_unexpected_message_and_leaves_it() {
    let (mut net, b) = Net::pair();
    net.engine(1).take_produced();
    net.isend(0, b, 5, b"12345");
    net.isend(0, b, 6, &[0; 50_000]);
    net.run_until_idle();
    assert_ne!(net.engine(1).take_produced() & UNEXPECTED, 0);
    for _ in 0..2 {
        let engine = net.engine(1);
        let status = engine.probe(0, 0).unwrap().unwrap();
        assert_eq!(
            (status.match_info, status.msg_length, status.xfer_length),
            (5, 5, 5)
        );
        let large = engine.probe(6, ALL).unwrap().unwrap();
        assert_eq!((large.source, large.msg_length), (status.source, 50_000));
    }
    net.irecv(1, 5, ALL, 8);
    assert_eq!(net.engine(1).probe(5, ALL).unwrap(), None);
    assert_eq!(net.engine(1).probe(0, 0).unwrap().unwrap().match_info, 6);
}

#[test]
fn messages_to_oneself_arrive_in_order_from_the_first_on() {
    let mut net = Net::of(1);
    let own = net.engine(0).own_address();
    for round in 0..2 {
        let lengths = [3usize, 100_000, 0, 5];
        let sends: Vec<_> = lengths
            .iter()
            .map(|len| net.isend(0, own, 1, &vec![*len as u8; *len]))
            .collect();
        let recvs: Vec<_> = (0..4).map(|_| net.irecv(0, 1, ALL, 100_000)).collect();
        net.run_until_idle();
        for (n, len) in lengths.into_iter().enumerate() {
            assert_eq!(net.code(0, sends[n]), StatusCode::Success);
            let status = net.done(0, recvs[n].handle);
            assert_eq!(
                (status.msg_length as usize, status.source),
                (len, own),
                "{round}"
            );
        }
        assert_eq!(net.engine(0).decompose(own).unwrap().endpoint.0, 0);
        // The second round begins without a connection.
        net.engine(0).disconnect(own).unwrap();
        net.run_until_idle();
    }
    let waiting = net.isend(0, own, 1, b"x");
    net.engine(0).disconnect(own).unwrap();
    net.run_until_idle();
    assert_eq!(net.code(0, waiting), StatusCode::EndpointUnreachable);
}

#[test]
fn nothing_overtakes_what_waits_for_the_connection_to_oneself() {
    // The program's own connect to itself is answered before, with or after the hidden one.
    for lead in 0..40 {
        let mut net = Net::of(1);
        let own = net.engine(0).own_address();
        net.iconnect(0, 0, KEY);
        net.pass(Duration::from_micros(lead));
        for n in 0..40 {
            net.isend(0, own, n, b"x");
            net.pass(Duration::from_micros(1));
        }
        net.run_until_idle();
        for n in 0..40 {
            let recv = net.irecv(0, 0, 0, 1);
            assert_eq!(net.done(0, recv.handle).match_info, n, "{lead}");
        }
    }
}

#[test]
fn connecting_to_oneself_gives_ones_own_address() {
    let mut net = Net::of(1);
    let own = net.engine(0).own_address();
    assert_eq!(net.connect(0, 0), own);
    let recv = net.irecv(0, 0, 0, 8);
    net.isend(0, own, 4, b"me");
    net.run_until_idle();
    assert_eq!(net.done(0, recv.handle).source, own);
    // Both ends of the connection.
    assert_eq!((net.connect(0, 0), net.remotes()), (own, vec![2]));
    net.engine(0).disconnect(own).unwrap();
    assert_eq!(net.remotes(), [0]);
}

#[test]
fn self_send_keeps_the_timeout_set_before_connecting() {
    let mut net = Net::of(1);
    let own = net.engine(0).own_address();
    let (short, patient) = (net.issend(0, own, 1, b"x"), net.issend(0, own, 2, b"y"));
    let second = Duration::from_secs(1);
    net.engine(0).set_timeout_of(short, Some(second)).unwrap();
    net.pass(Duration::from_millis(900));
    assert!(net.pending(0, short));
    net.pass(second);
    assert_eq!(net.code(0, short), StatusCode::Timeout);
    let recv = net.irecv(0, 0, 0, 1);
    net.run_until_idle();
    assert_eq!(net.done(0, recv.handle).match_info, 2);
    assert_eq!(net.code(0, patient), StatusCode::Success);
}

#[test]
fn a_send_without_progress_ends_by_its_time_out() {
    let (mut net, b) = Net::pair();
    let patient = net.issend(0, b, 1, b"x");
    net.engine(0)
        .set_request_timeout(Some(Duration::from_secs(2)));
    let short = net.issend(0, b, 2, b"x");
    let shorter = net.issend(0, b, 3, b"x");
    let recv = net.irecv(0, 1, ALL, 1);
    let second = Duration::from_secs(1);
    net.engine(0).set_timeout_of(shorter, Some(second)).unwrap();
    net.engine(0)
        .set_timeout_of(recv.handle, Some(second))
        .unwrap();
    net.pass(Duration::from_millis(1500));
    assert_eq!(net.code(0, shorter), StatusCode::Timeout);
    assert!(net.pending(0, short));
    net.pass(second);
    assert_eq!(net.code(0, short), StatusCode::Timeout);
    net.pass(Duration::from_secs(100));
    assert!(net.pending(0, patient) && net.pending(0, recv.handle));
    let gone = net.engine(0).set_timeout_of(short, None);
    fails(gone, Code::BadRequest);
}

#[test]
fn handle_is_stale_after_test_although_its_copy_waits() {
    let (mut net, b) = windows(20, 100_000);
    net.cluster.node(1).unwrap().idle = true;
    let mut stale = Vec::new();
    for number in 0..20 {
        let send = net.isend(0, b, number, &[1; 32_768]);
        let engine = net.engine(0);
        assert_eq!(engine.peek().unwrap(), Some(send));
        match number % 3 {
            0 => assert!(engine.test(send).unwrap().is_some()),
            1 => assert!(engine.test_any(number, ALL).unwrap().is_some()),
            _ => engine.forget(send).unwrap(),
        }
        stale.push(send);
        assert_eq!((engine.requests(), engine.peek().unwrap()), (0, None));
    }
    assert!(net.engine(0).last_sends(), "copies wait");
    let refused = |net: &mut Net| {
        for send in &stale {
            let engine = net.engine(0);
            fails(engine.test(*send), Code::BadRequest);
            let buffered = engine.is_buffered(*send).unwrap_err();
            assert_eq!(buffered.code(), Code::BadRequest);
        }
    };
    refused(&mut net);
    net.cluster.node(1).unwrap().idle = false;
    let recvs: Vec<_> = (0..20)
        .map(|bits| net.irecv(1, bits, ALL, 32_768))
        .collect();
    net.run_until_idle();
    for recv in recvs {
        assert_eq!(net.code(1, recv.handle), StatusCode::Success);
    }
    assert!(!net.engine(0).last_sends());
    assert_eq!(net.engine(0).endpoint().ops().in_use(), 0);
    // Their places are reused.
    let again = net.irecv(0, 1, ALL, 1).handle;
    assert!(stale.iter().any(|send| send.place() == again.place()));
    refused(&mut net);
    assert!(net.engine(0).cancel(again).unwrap());
}

#[test]
fn made_up_handles_are_refused_everywhere() {
    let mut net = Net::of(2);
    let recv = net.irecv(1, 0, 0, 1).handle;
    let engine = net.engine(0);
    for handle in [
        RequestHandle(0),
        RequestHandle(u64::MAX),
        RequestHandle(1),
        recv,
    ] {
        let refused = [
            engine.test(handle).map(|_| ()),
            engine.cancel(handle).map(|_| ()),
            engine.forget(handle),
            engine.is_buffered(handle).map(|_| ()),
            engine.context_of(handle).map(|_| ()),
            engine.set_timeout_of(handle, None),
        ];
        for result in refused {
            fails(result, Code::BadRequest);
        }
    }
    let others = net.engine(1).own_address();
    let engine = net.engine(0);
    for address in [Address::NONE, others] {
        let sent = engine.isend(UserMemory::empty(), address, 0, 0, SendMode::Buffered);
        let refused = [
            sent.map(|_| ()),
            engine.disconnect(address),
            engine.decompose(address).map(|_| ()),
            engine.peer_context(address).map(|_| ()),
            engine.set_peer_context(address, 1),
        ];
        for result in refused {
            fails(result, Code::BadEndpoint);
        }
    }
    assert_eq!(engine.requests(), 0);
}

#[test]
fn a_hidden_connect_is_seen_by_its_caller_only() {
    let mut net = Net::of(2);
    let request = net.engine(0).iconnect((NIC, 1), KEY, 0, 0, true).unwrap();
    net.run_until_idle();
    let engine = net.engine(0);
    assert_eq!(
        (engine.peek().unwrap(), engine.test_any(0, 0).unwrap()),
        (None, None)
    );
    let status = engine.test(request).unwrap().unwrap();
    assert_eq!(engine.decompose(status.source).unwrap().endpoint.0, 1);
    let lost = engine.iconnect((NIC, 1), KEY, 0, 0, true).unwrap();
    assert_eq!(engine.abandon(lost), None);
    net.run_until_idle();
    assert_eq!(net.engine(0).requests(), 0);
}
