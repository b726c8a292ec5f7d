//! Habits of real providers that a port has to handle, and injected faults.

use crate::side::*;
use libfabric_fake::{Death, Fake, Faults, Release, Shape, Wait};
use libfabric_sys::abi::*;
use std::os::fd::RawFd;

const AGAIN: isize = -(FI_EAGAIN as isize);

#[test]
fn a_connection_needs_polls_of_both_sides() {
    let p = pair(Shape::tcp());
    assert_eq!(p.a.inject(&[1], p.to_b), AGAIN);
    (0..50).for_each(|_| assert!(p.a.event().is_none()));
    assert_eq!(p.a.inject(&[1], p.to_b), AGAIN);
    (0..2).for_each(|_| assert!(p.b.event().is_none()));
    assert_eq!(p.a.inject(&[1], p.to_b), AGAIN);
    assert!(p.b.event().is_none());
    // In reverse over the same connection.
    assert_eq!((p.a.inject(&[1], p.to_b), p.b.inject(&[1], p.to_a)), (0, 0));
    p.end();
}

#[test]
fn unmatched_messages_of_a_peer_stall_it_at_the_depth() {
    let p = pair(Shape {
        unexpected_depth: 4,
        ..plain()
    });
    let mut outs = [0, 1, 2, 3, 4, 5].map(|n| lot(&[n; 10]));
    for out in &mut outs {
        assert_eq!(p.a.send(out, p.to_b), 0);
    }
    (0..20).for_each(|_| assert!(p.b.event().is_none()));
    assert_eq!(p.fake.stats().unexpected, 4);
    assert!(p.fake.stats().stalls > 0);
    // Each message that is taken makes room for another.
    let mut intos = [(); 6].map(|()| lot(&[9; 10]));
    for into in &mut intos {
        assert_eq!(p.b.receive(into), 0);
    }
    assert_eq!(p.b.events().len(), 6);
    assert!(intos.iter().zip(&outs).all(|(i, o)| i.bytes == o.bytes));
    p.end();
}

#[test]
fn closing_gives_everything_back_with_or_without_events() {
    for close_flush in [true, false] {
        let mut p = pair(Shape {
            close_flush,
            ..plain()
        });
        let (mut out, mut into, mut multi) = (lot(&[1; 10]), lot(&[0; 10]), lot(&[0; 100]));
        assert_eq!((p.a.send(&mut out, p.to_b), p.a.receive(&mut into)), (0, 0));
        assert_eq!(p.a.multi_receive(&mut multi), 0);
        assert_eq!(p.fake.lent(), 3);
        p.a.close_endpoint();
        assert_eq!(p.fake.lent(), 0);
        out.bytes.fill(9);
        into.bytes.fill(9);
        let told = if close_flush { 3 } else { 0 };
        assert_eq!(errors(&p.a.events()), vec![FI_ECANCELED; told]);
        assert!(p.b.events().is_empty());
        p.end();
    }
}

#[test]
fn truncation_reports_its_size_and_short_receives_nothing() {
    let p = pair(plain());
    let (mut out, mut into) = (lot(&[1; 100]), lot(&[0; 40]));
    p.exchange(&mut out, &mut into);
    let event = p.b.events()[0];
    assert_eq!((event.error, event.len, event.olen), (FI_ETRUNC, 40, 60));
    assert_eq!(into.bytes, [1; 40]);
    p.a.events();
    p.fake.faults(|faults| faults.short = 1.0);
    let mut into = lot(&[0; 100]);
    p.exchange(&mut out, &mut into);
    let event = p.b.events()[0];
    assert!(event.error == 0 && event.len < 100);
    assert_eq!(p.fake.stats().short, 1);
    p.end();
}

#[test]
fn sends_complete_late_and_errors_come_positive_and_negative() {
    let p = pair(plain());
    p.fake
        .faults(|faults| (faults.late_send, faults.late_send_polls) = (1.0, 50));
    let (mut out, mut into) = (lot(&[1; 10]), lot(&[0; 10]));
    p.exchange(&mut out, &mut into);
    assert_eq!((p.b.events().len(), p.a.event()), (1, None));
    assert!((0..60).any(|_| p.a.event().is_some_and(|event| event.error == 0)));
    for (negative, expected) in [(0.0, FI_EIO), (1.0, -FI_EIO)] {
        p.fake.faults(|faults| {
            *faults = Faults {
                error: 1.0,
                errors: vec![FI_EIO],
                negative,
                ..Faults::none()
            };
        });
        p.exchange(&mut out, &mut into);
        let [at_b, at_a] = [p.b.events()[0], p.a.events()[0]];
        assert_eq!([at_b.error, at_a.error], [expected; 2]);
        assert_eq!((at_b.context, at_a.context), (into.id(), out.id()));
    }
    assert_eq!(p.fake.stats().errors, 4);
    p.end();
}

#[test]
fn completions_pass_others_but_not_their_own() {
    let p = pair(plain());
    p.fake.faults(|faults| faults.reorder = 0.5);
    let mut lots: [_; 40] = std::array::from_fn(|n| [lot(&[n as u8; 10]), lot(&[0; 10])]);
    for [out, into] in &mut lots {
        p.exchange(out, into);
    }
    (0..2).for_each(|_| p.fake.step());
    let contexts = |side: &Side| Vec::from_iter(side.events().iter().map(|event| event.context));
    let posted = |which: usize| Vec::from_iter(lots.iter().map(|lots| lots[which].id()));
    // tcp delivers one peer's messages in order, whatever else happens.
    assert_eq!(contexts(&p.b), posted(1));
    let done = contexts(&p.a);
    assert!(done.len() == 40 && done != posted(0));
    p.end();
}

#[test]
fn long_messages_are_reordered_where_no_order_was_promised() {
    let sent: [usize; 20] = std::array::from_fn(|n| 10 + n % 2 * 200 + n);
    let orders = |receives_in_order: bool| {
        let p = pair(Shape {
            eager: 64,
            receives_in_order,
            ..plain()
        });
        p.fake.faults(|faults| faults.landing_polls = 20);
        let mut lots = sent.map(|len| [lot(&vec![1; len]), lot(&[0; 300])]);
        for [out, into] in &mut lots {
            p.exchange(out, into);
        }
        let lens = (0..900).filter_map(|_| p.b.event()).map(|event| event.len);
        let lens: Vec<usize> = lens.collect();
        p.end();
        lens
    };
    assert_eq!(orders(true), sent);
    let got = orders(false);
    assert!(got.len() == 20 && got != sent);
    // Short messages keep their order among themselves.
    assert!(got.into_iter().filter(|len| *len <= 64).is_sorted());
}

/// Returns the errors at A of a large send and a read, which are pending when B dies, and the
/// results of an inject and a small send after that.
fn after_death(death: Death) -> (Vec<i32>, isize, isize) {
    let mut p = pair(plain());
    let mut there = vec![7u8; 100];
    let key = key_of(p.b.register(&mut there, FI_REMOTE_READ));
    let (mut large, mut into, mut later) = (lot(&[1; 1000]), lot(&[0; 100]), lot(&[1; 10]));
    assert_eq!(p.a.send(&mut large, p.to_b), 0);
    p.fake.faults(|faults| faults.hold = 1.0);
    assert_eq!(p.a.read(&mut into, p.to_b, 0, key), 0);
    let killed = [(); 2].map(|()| p.fake.kill(&p.b.address(), death));
    assert_eq!(killed, [true, false]);
    p.fake.faults(|faults| faults.hold = 0.0);
    let codes = (p.a.inject(&[1], p.to_b), p.a.send(&mut later, p.to_b));
    let told = errors(&p.a.events());
    // The dead side's own calls do nothing, and it can still be closed.
    assert!(p.b.events().is_empty());
    p.end();
    (told, codes.0, codes.1)
}

#[test]
fn the_dead_may_hang_take_everything_or_be_told_of_by_errors() {
    assert_eq!(after_death(Death::Again), (vec![], AGAIN, AGAIN));
    assert_eq!(after_death(Death::Vanish), (vec![], 0, 0));
    let told = vec![FI_EIO; 4];
    assert_eq!(after_death(Death::Fail(FI_EIO)), (told, 0, 0));
    // In another provider small messages seem to be accepted.
    let mut p = pair(Shape {
        eager: 64,
        peer_gone: Death::Swallow,
        ..plain()
    });
    p.b.close_endpoint();
    let (mut small, mut large) = (lot(&[1; 64]), lot(&[1; 65]));
    let codes = (p.a.send(&mut small, p.to_b), p.a.send(&mut large, p.to_b));
    assert_eq!(codes, (0, 0));
    let events = p.a.events();
    assert_eq!((events.len(), events[0].error), (1, 0));
    assert_eq!(events[0].context, small.id());
    p.end();
}

#[test]
fn a_receive_being_filled_by_the_dead_fails_or_hangs() {
    for (death, told) in [
        (Death::Fail(FI_EIO), vec![FI_ENOTCONN]),
        (Death::Vanish, vec![]),
    ] {
        let p = pair(plain());
        p.fake.faults(|faults| faults.landing_polls = 30);
        let (mut out, mut into) = (lot(&[1; 1000]), lot(&[0; 1000]));
        p.exchange(&mut out, &mut into);
        let mut events = Vec::from_iter(p.b.event());
        p.fake.first().kill(death);
        events.extend((0..40).filter_map(|_| p.b.event()));
        assert_eq!(errors(&events), told);
        p.end();
    }
}

#[test]
fn what_was_injected_arrives_after_its_sender_is_closed() {
    let mut p = pair(plain());
    assert_eq!(p.a.inject(&[1, 2, 3], p.to_b), 0);
    p.a.close_endpoint();
    let mut into = lot(&[0; 3]);
    assert_eq!(p.b.receive(&mut into), 0);
    assert_eq!((p.b.events().len(), &into.bytes[..]), (1, &[1, 2, 3][..]));
    p.end();
}

#[test]
fn the_end_of_a_multi_receive_buffer_is_told_as_its_shape_says() {
    for multi_recv_release in [Release::WithLast, Release::Separate] {
        let p = pair(Shape {
            multi_recv_release,
            ..plain()
        });
        p.b.set_least_multi(50);
        let mut into = lot(&[0; 100]);
        assert_eq!(p.b.multi_receive(&mut into), 0);
        (0..2).for_each(|n| assert_eq!(p.a.inject(&[n; 40], p.to_b), 0));
        let flags: Vec<u64> = p.b.events().iter().map(|event| event.flags).collect();
        let receive = FI_RECV | FI_MSG;
        match multi_recv_release {
            // 60 bytes are left after the first message: one more fits.
            Release::WithLast => assert_eq!(flags, [receive, receive | FI_MULTI_RECV]),
            _ => assert_eq!(flags, [receive, receive, FI_MULTI_RECV]),
        }
        assert_eq!(p.fake.lent(), 0);
        p.end();
    }
}

fn readable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry; does not wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// Returns whether there is an event; checks that the descriptor agrees.
fn wakes(side: &Side, fd: RawFd) -> bool {
    let before = readable(fd);
    let code = trywait(side.fabric, &mut [side.cq.cast()]);
    match code {
        0 => assert!(!readable(fd)),
        _ => assert_eq!((code, before), (-FI_EAGAIN, true)),
    }
    code != 0
}

#[test]
fn descriptor_reports_everything_not_seen_before_sleep() {
    let p = pair_with(Shape::tcp(), CAPS, FI_WAIT_FD);
    let mut fd = -1;
    assert_eq!(getwait(p.b.cq, &mut fd), 0);
    assert!(!wakes(&p.b, fd));
    // A connects.
    assert_eq!(p.a.inject(&[1], p.to_b), AGAIN);
    assert!(wakes(&p.b, fd));
    (0..3).for_each(|_| assert!(p.a.event().is_none() && p.b.event().is_none()));
    assert!(!wakes(&p.b, fd));
    // A message without a receive is accepted, and does not wake.
    assert_eq!(p.a.inject(&[1], p.to_b), 0);
    assert!(wakes(&p.b, fd) && p.b.event().is_none() && !wakes(&p.b, fd));
    // A receive for it does.
    let mut into = lot(&[0; 1]);
    assert_eq!(p.b.receive(&mut into), 0);
    assert!(wakes(&p.b, fd) && p.b.event().is_some() && !wakes(&p.b, fd));
    p.end();
}

#[test]
fn a_queue_that_cannot_be_waited_for_or_is_broken_says_so() {
    for (wait, opens) in [(Wait::Refused, false), (Wait::NoDescriptor, true)] {
        let fake = Fake::new(Shape { wait, ..plain() }, 1);
        let side = Side::open(fake.first());
        let (code, cq) = open_queue(side.domain, FI_WAIT_FD);
        assert_eq!(code, if opens { 0 } else { -FI_ENOSYS });
        if opens {
            assert_eq!(getwait(cq, &mut -1), -FI_ENOSYS);
            assert_eq!(close(cq), 0);
        }
        // For ever.
        fake.overrun();
        let looks = [(); 3].map(|()| look(side.cq));
        assert_eq!(looks, [-(FI_EOVERRUN as isize); 3]);
        side.close();
        fake.assert_clean();
    }
    // A small queue breaks by itself where the provider allows it.
    let p = pair(Shape {
        cq_size: 2,
        cq_overruns: true,
        ..plain()
    });
    let mut intos = [(); 3].map(|()| lot(&[0; 1]));
    for into in &mut intos {
        assert_eq!((p.b.receive(into), p.a.inject(&[1], p.to_b)), (0, 0));
    }
    assert_eq!(look(p.b.cq), -(FI_EOVERRUN as isize));
    p.fake.first().unplug(Death::Fail(FI_EHOSTDOWN));
    let gone = -(FI_ENODEV as isize);
    assert_eq!((p.a.inject(&[1], p.to_b), look(p.a.cq)), (gone, gone));
    p.end();
}
