//! Faults happen as they were asked for, and are seen as real providers show them.
//!
//! ```text
//!   slow: connecting, stalls, EAGAIN, late completions     wrong: errors, short, truncated
//!   gone: closed, killed, unplugged, never there           full: registrations, queues
//! ```

use std::os::fd::RawFd;

use crate::side::*;
use libfabric_fake::{Death, Fake, Faults, Release, Shape, Wait};
use libfabric_sys::abi::*;
use libfabric_sys::calls::*;

const AGAIN: isize = -(FI_EAGAIN as isize);

#[test]
fn a_connection_needs_polls_of_both_sides() {
    let fake = Fake::new(Shape::tcp(), 1);
    let (a, b, to_b, from_a) = Side::pair(&fake);
    assert_eq!(a.inject(&[1], to_b), AGAIN);
    (0..50).for_each(|_| assert!(a.event().is_none()));
    assert_eq!(a.inject(&[1], to_b), AGAIN);
    (0..2).for_each(|_| assert!(b.event().is_none()));
    assert_eq!(a.inject(&[1], to_b), AGAIN);
    assert!(b.event().is_none());
    assert_eq!(a.inject(&[1], to_b), 0);
    // And back over the same connection.
    assert_eq!(b.inject(&[1], from_a), 0);
    end(&fake, [a, b]);
}

#[test]
fn unmatched_messages_of_a_peer_stall_it_at_the_depth() {
    let shape = Shape {
        unexpected_depth: 4,
        ..plain()
    };
    let fake = Fake::new(shape, 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let mut outs: Vec<Lot> = (0..6).map(|n| lot(&[n; 10])).collect();
    for out in &mut outs {
        assert_eq!(a.send(out, to_b), 0);
    }
    (0..20).for_each(|_| assert!(b.event().is_none()));
    assert_eq!(fake.stats().unexpected, 4);
    assert!(fake.stats().stalls > 0);
    // Each one taken makes room for one.
    let mut intos: Vec<Lot> = (0..6).map(|_| lot(&[9; 10])).collect();
    for into in &mut intos {
        assert_eq!(b.receive(into), 0);
    }
    assert_eq!(b.events().len(), 6);
    for (into, out) in intos.iter().zip(&outs) {
        assert_eq!(into.bytes, out.bytes);
    }
    end(&fake, [a, b]);
}

#[test]
fn storms_of_again_pass() {
    let fake = Fake::new(plain(), 3);
    let (a, b, to_b, _) = Side::pair(&fake);
    fake.faults(|faults| (faults.again, faults.again_run) = (0.5, 10));
    let (mut accepted, mut longest, mut run) = (0, 0, 0);
    for _ in 0..1000 {
        match a.inject(&[1], to_b) {
            0 => (accepted, run) = (accepted + 1, 0),
            code => {
                assert_eq!(code, AGAIN);
                run += 1;
                longest = longest.max(run);
            }
        }
        b.events();
    }
    assert!(
        accepted > 50 && longest > 10,
        "{accepted} accepted, {longest} refused"
    );
    end(&fake, [a, b]);
}

#[test]
fn sends_that_complete_late_keep_their_memory() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    fake.faults(|faults| (faults.late_send, faults.late_send_polls) = (1.0, 50));
    let (mut out, mut into) = (lot(&[1; 10]), lot(&[0; 10]));
    assert_eq!((a.send(&mut out, to_b), b.receive(&mut into)), (0, 0));
    assert_eq!(b.events().len(), 1);
    assert!(a.event().is_none());
    let polls = (0..60).find(|_| a.event().is_some_and(|event| event.error == 0));
    assert!(polls.is_some());
    end(&fake, [a, b]);
}

#[test]
fn closing_gives_everything_back_with_or_without_events() {
    for close_flush in [true, false] {
        let shape = Shape {
            close_flush,
            ..plain()
        };
        let fake = Fake::new(shape, 1);
        let (mut a, b, to_b, _) = Side::pair(&fake);
        let (mut out, mut into, mut multi) = (lot(&[1; 10]), lot(&[0; 10]), lot(&[0; 100]));
        assert_eq!((a.send(&mut out, to_b), a.receive(&mut into)), (0, 0));
        assert_eq!(a.multi_receive(&mut multi), 0);
        assert_eq!(fake.lent(), 3);
        a.close_endpoint();
        assert_eq!(fake.lent(), 0);
        out.bytes.fill(9);
        into.bytes.fill(9);
        let events = a.events();
        assert_eq!(events.len(), if close_flush { 3 } else { 0 });
        assert!(events.iter().all(|event| event.error == FI_ECANCELED));
        assert!(b.events().is_empty());
        end(&fake, [a, b]);
    }
}

#[test]
fn truncation_is_an_error_that_says_how_much() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let (mut out, mut into) = (lot(&[1; 100]), lot(&[0; 40]));
    assert_eq!((a.send(&mut out, to_b), b.receive(&mut into)), (0, 0));
    let event = b.events()[0];
    assert_eq!((event.error, event.len, event.olen), (FI_ETRUNC, 40, 60));
    assert_eq!(into.bytes, [1; 40]);
    end(&fake, [a, b]);
}

#[test]
fn short_receives_say_nothing_of_it() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    fake.faults(|faults| faults.short = 1.0);
    let (mut out, mut into) = (lot(&[1; 100]), lot(&[0; 100]));
    assert_eq!((a.send(&mut out, to_b), b.receive(&mut into)), (0, 0));
    let event = b.events()[0];
    assert!(event.error == 0 && event.len < 100);
    assert_eq!(fake.stats().short, 1);
    end(&fake, [a, b]);
}

#[test]
fn errors_come_positive_and_negative() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    fake.faults(|faults| (faults.error, faults.errors) = (1.0, vec![FI_EIO]));
    for expected in [FI_EIO, -FI_EIO] {
        let (mut out, mut into) = (lot(&[1; 10]), lot(&[0; 10]));
        assert_eq!((a.send(&mut out, to_b), b.receive(&mut into)), (0, 0));
        let (at_b, at_a) = (b.events(), a.events());
        assert_eq!((at_b[0].error, at_a[0].error), (expected, expected));
        assert_eq!((at_b[0].context, at_a[0].context), (into.id(), out.id()));
        fake.faults(|faults| faults.negative = 1.0);
    }
    assert_eq!(fake.stats().errors, 4);
    end(&fake, [a, b]);
}

#[test]
fn completions_pass_others_but_not_their_own() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    fake.faults(|faults| faults.reorder = 0.5);
    let mut outs: Vec<Lot> = (0..40).map(|n| lot(&[n; 10])).collect();
    let mut intos: Vec<Lot> = (0..40).map(|_| lot(&[0; 10])).collect();
    for (out, into) in outs.iter_mut().zip(&mut intos) {
        assert_eq!((b.receive(into), a.send(out, to_b)), (0, 0));
    }
    fake.step();
    fake.step();
    let received: Vec<usize> = b.events().iter().map(|event| event.context).collect();
    // tcp delivers one peer's messages in order whatever else happens.
    assert_eq!(received, intos.iter().map(Lot::id).collect::<Vec<_>>());
    let done: Vec<usize> = a.events().iter().map(|event| event.context).collect();
    let posted: Vec<usize> = outs.iter().map(Lot::id).collect();
    assert_eq!(done.len(), 40);
    assert_ne!(done, posted);
    end(&fake, [a, b]);
}

#[test]
fn long_messages_are_reordered_where_no_order_was_promised() {
    let orders = |receives_in_order: bool| {
        let shape = Shape {
            eager: 64,
            receives_in_order,
            ..plain()
        };
        let fake = Fake::new(shape, 2);
        let (a, b, to_b, _) = Side::pair(&fake);
        fake.faults(|faults| faults.landing_polls = 20);
        let mut outs: Vec<Lot> = (0..20)
            .map(|n| lot(&vec![1; 10 + n % 2 * 200 + n]))
            .collect();
        let mut intos: Vec<Lot> = (0..20).map(|_| lot(&[0; 300])).collect();
        for (out, into) in outs.iter_mut().zip(&mut intos) {
            assert_eq!((b.receive(into), a.send(out, to_b)), (0, 0));
        }
        let lens: Vec<usize> = (0..900).filter_map(|_| b.event()).map(|e| e.len).collect();
        assert_eq!(lens.len(), 20);
        end(&fake, [a, b]);
        lens
    };
    let sent: Vec<usize> = (0..20).map(|n| 10 + n % 2 * 200 + n).collect();
    assert_eq!(orders(true), sent);
    let got = orders(false);
    assert_ne!(got, sent);
    // Short ones keep their order among themselves.
    let short: Vec<usize> = got.into_iter().filter(|len| *len <= 64).collect();
    assert!(short.is_sorted());
}

/// A's results of a pending large send, a later small one and a read when B is gone.
fn after_death(death: Death) -> (Fake, Side, Vec<i32>, isize, isize) {
    let fake = Fake::new(plain(), 1);
    let (mut a, mut b, to_b, _) = Side::pair(&fake);
    let mut there = vec![7u8; 100];
    let mr = b.register(&mut there, FI_REMOTE_READ);
    let key = key_of(mr);
    let mut large = lot(&[1; 1000]);
    assert_eq!(a.send(&mut large, to_b), 0);
    let mut into = lot(&[0; 100]);
    fake.faults(|faults| faults.hold = 1.0);
    assert_eq!(a.read(&mut into, to_b, 0, key), 0);
    assert!(fake.kill(&b.address(), death));
    assert!(!fake.kill(&b.address(), death));
    fake.faults(|faults| faults.hold = 0.0);
    let inject = a.inject(&[1], to_b);
    let mut later = lot(&[1; 10]);
    let send = a.send(&mut later, to_b);
    let errors = a.events().iter().map(|event| event.error).collect();
    // The dead side's own calls move nothing, and it can still be cleaned up.
    assert!(b.events().is_empty());
    a.close_endpoint();
    b.close();
    (fake, a, errors, inject, send)
}

#[test]
fn the_dead_may_leave_everything_hanging() {
    let (fake, a, errors, inject, send) = after_death(Death::Again);
    assert_eq!((errors, inject, send), (vec![], AGAIN, AGAIN));
    a.close();
    assert_eq!(fake.lent(), 0);
    fake.assert_clean();
}

#[test]
fn the_dead_may_take_everything_and_say_nothing() {
    let (fake, a, errors, inject, send) = after_death(Death::Vanish);
    assert_eq!((errors, inject, send), (vec![], 0, 0));
    a.close();
    fake.assert_clean();
}

#[test]
fn the_dead_may_seem_to_take_small_messages() {
    let shape = Shape {
        eager: 64,
        peer_gone: Death::Swallow,
        ..plain()
    };
    let fake = Fake::new(shape, 1);
    let (a, mut b, to_b, _) = Side::pair(&fake);
    b.close_endpoint();
    let (mut small, mut large) = (lot(&[1; 64]), lot(&[1; 65]));
    assert_eq!((a.send(&mut small, to_b), a.send(&mut large, to_b)), (0, 0));
    let events = a.events();
    assert_eq!((events.len(), events[0].error), (1, 0));
    assert_eq!(events[0].context, small.id());
    end(&fake, [a, b]);
}

#[test]
fn the_dead_may_be_told_of_by_errors_of_injects_too() {
    let (fake, a, errors, inject, send) = after_death(Death::Fail(FI_EIO));
    // The large send, the read, the inject without a context, the small send.
    assert_eq!((errors, inject, send), (vec![FI_EIO; 4], 0, 0));
    a.close();
    fake.assert_clean();
}

#[test]
fn no_endpoint_was_ever_there() {
    for (no_peer, code) in [(Death::Again, AGAIN), (Death::Fail(FI_ECONNREFUSED), 0)] {
        let shape = Shape { no_peer, ..plain() };
        let fake = Fake::new(shape, 1);
        let a = Side::open(fake.first());
        let mut address = a.address();
        address[3] ^= 0x55;
        let to_none = a.insert(&address);
        let mut out = lot(&[1; 10]);
        assert_eq!(a.send(&mut out, to_none), code);
        let errors: Vec<i32> = a.events().iter().map(|event| event.error).collect();
        assert_eq!(
            errors,
            if code == 0 {
                vec![FI_ECONNREFUSED]
            } else {
                vec![]
            }
        );
        a.close();
        fake.assert_clean();
    }
}

#[test]
fn a_receive_being_filled_by_the_dead_fails_or_hangs() {
    for death in [Death::Fail(FI_EIO), Death::Vanish] {
        let fake = Fake::new(plain(), 1);
        let (a, b, to_b, _) = Side::pair(&fake);
        fake.faults(|faults| faults.landing_polls = 30);
        let (mut out, mut into) = (lot(&[1; 1000]), lot(&[0; 1000]));
        assert_eq!((b.receive(&mut into), a.send(&mut out, to_b)), (0, 0));
        let early = b.event();
        fake.first().kill(death);
        let mut errors: Vec<i32> = (0..40).filter_map(|_| b.event()).map(|e| e.error).collect();
        if let Some(event) = early {
            errors.push(event.error);
        }
        match death {
            Death::Fail(_) => assert_eq!(errors, [FI_ENOTCONN]),
            _ => assert!(errors.is_empty()),
        }
        end(&fake, [a, b]);
    }
}

#[test]
fn what_was_injected_arrives_after_its_sender_is_closed() {
    let fake = Fake::new(plain(), 1);
    let (mut a, b, to_b, _) = Side::pair(&fake);
    assert_eq!(a.inject(&[1, 2, 3], to_b), 0);
    a.close_endpoint();
    let mut into = lot(&[0; 3]);
    assert_eq!(b.receive(&mut into), 0);
    assert_eq!(b.events().len(), 1);
    assert_eq!(into.bytes, [1, 2, 3]);
    end(&fake, [a, b]);
}

#[test]
fn an_unplugged_machine_answers_that_it_has_no_device() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    fake.first().unplug(Death::Fail(FI_EHOSTDOWN));
    assert_eq!(a.inject(&[1], to_b), -(FI_ENODEV as isize));
    assert_eq!(look(a.cq), -(FI_ENODEV as isize));
    end(&fake, [a, b]);
}

#[test]
fn an_overrun_queue_is_broken_for_good() {
    let fake = Fake::new(plain(), 1);
    let (a, b, ..) = Side::pair(&fake);
    fake.overrun();
    for _ in 0..3 {
        assert_eq!(look(a.cq), -(FI_EOVERRUN as isize));
    }
    end(&fake, [a, b]);
}

#[test]
fn a_small_queue_overruns_by_itself_where_it_may() {
    let shape = Shape {
        cq_size: 2,
        cq_overruns: true,
        ..plain()
    };
    let fake = Fake::new(shape, 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let mut intos: Vec<Lot> = (0..3).map(|_| lot(&[0; 1])).collect();
    intos
        .iter_mut()
        .for_each(|into| assert_eq!(b.receive(into), 0));
    (0..3).for_each(|_| assert_eq!(a.inject(&[1], to_b), 0));
    assert_eq!(look(b.cq), -(FI_EOVERRUN as isize));
    end(&fake, [a, b]);
}

#[test]
fn registrations_run_out_by_number_and_by_bytes() {
    let fake = Fake::new(Shape::verbs_rxm(), 1);
    let mut side = Side::open(fake.first());
    let mut bytes = vec![0u8; 3000];
    let (first, rest) = bytes.split_at_mut(1000);
    let (second, third) = rest.split_at_mut(1000);
    fake.faults(|faults| faults.register_limit = Some(1));
    assert!(side.try_register(first, FI_SEND).is_ok());
    assert_eq!(side.try_register(second, FI_SEND).err(), Some(-FI_ENOMEM));
    fake.faults(|faults| (faults.register_limit, faults.register_bytes) = (None, Some(2000)));
    assert!(side.try_register(second, FI_SEND).is_ok());
    assert_eq!(side.try_register(third, FI_SEND).err(), Some(-FI_ENOMEM));
    assert_eq!(fake.registered(), (2, 2000));
    assert_eq!(fake.stats().unregistered, 2);
    side.close();
    fake.assert_clean();
}

#[test]
fn a_busy_registration_is_closed_at_another_try() {
    let fake = Fake::new(Shape::verbs_rxm(), 1);
    let mut side = Side::open(fake.first());
    let mut bytes = vec![0u8; 100];
    let mr = side.register(&mut bytes, FI_REMOTE_READ);
    fake.faults(|faults| faults.close_busy = 1.0);
    assert_eq!(close(mr), -FI_EBUSY);
    assert_eq!(fake.registered().0, 1);
    fake.faults(|faults| *faults = Faults::none());
    side.close();
    fake.assert_clean();
}

#[test]
fn providers_do_not_understand_each_other() {
    let other = Shape {
        provider: "tcp;ofi_rxm".into(),
        ..plain()
    };
    let fake = Fake::offering(vec![plain(), other], 1);
    let a = Side::open(&fake.machine(&["tcp"]));
    let b = Side::open(&fake.machine(&["tcp;ofi_rxm"]));
    let to_b = a.insert(&b.address());
    assert_eq!(a.inject(&[1], to_b), AGAIN);
    end(&fake, [a, b]);
}

#[test]
fn the_end_of_a_multi_receive_buffer_is_told_as_its_shape_says() {
    for release in [Release::WithLast, Release::Separate] {
        let shape = Shape {
            multi_recv_release: release,
            ..plain()
        };
        let fake = Fake::new(shape, 1);
        let (a, b, to_b, _) = Side::pair(&fake);
        b.set_least_multi(50);
        let mut into = lot(&[0; 100]);
        assert_eq!(b.multi_receive(&mut into), 0);
        (0..2).for_each(|n| assert_eq!(a.inject(&[n; 40], to_b), 0));
        let flags: Vec<u64> = b.events().iter().map(|event| event.flags).collect();
        let receive = FI_RECV | FI_MSG;
        match release {
            // 60 bytes are left after the first: one more fits.
            Release::WithLast => assert_eq!(flags, [receive, receive | FI_MULTI_RECV]),
            _ => assert_eq!(flags, [receive, receive, FI_MULTI_RECV]),
        }
        assert_eq!(fake.lent(), 0);
        end(&fake, [a, b]);
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

fn may_sleep(side: &Side) -> bool {
    let mut fids: [*mut fid; 1] = [side.cq.cast()];
    // SAFETY: open objects.
    match unsafe { fi_trywait(side.fabric, fids.as_mut_ptr(), 1) } {
        0 => true,
        code => {
            assert_eq!(code, -FI_EAGAIN);
            false
        }
    }
}

#[test]
fn a_descriptor_tells_of_everything_that_was_not_seen_before_sleeping() {
    let fake = Fake::new(Shape::tcp(), 1);
    let a = Side::with(fake.first(), CAPS, FI_WAIT_FD);
    let b = Side::with(&fake.machine(&[]), CAPS, FI_WAIT_FD);
    let to_b = a.insert(&b.address());
    let mut fd = -1;
    // SAFETY: a queue with a descriptor, and room for it.
    assert_eq!(unsafe { fi_getwait(b.cq.cast(), &raw mut fd) }, 0);
    assert!(may_sleep(&b) && !readable(fd));
    // A connects.
    assert_eq!(a.inject(&[1], to_b), AGAIN);
    assert!(readable(fd) && !may_sleep(&b));
    (0..3).for_each(|_| assert!(a.event().is_none() && b.event().is_none()));
    assert!(may_sleep(&b) && !readable(fd));
    // A message without a receive is taken in, and does not wake.
    assert_eq!(a.inject(&[1], to_b), 0);
    assert!(readable(fd) && !may_sleep(&b));
    assert!(b.event().is_none());
    assert!(may_sleep(&b) && !readable(fd));
    // A receive for it is.
    let mut into = lot(&[0; 1]);
    assert_eq!(b.receive(&mut into), 0);
    assert!(readable(fd) && !may_sleep(&b));
    assert!(b.event().is_some());
    assert!(may_sleep(&b) && !readable(fd));
    end(&fake, [a, b]);
}

#[test]
fn a_queue_that_cannot_be_waited_for_says_so() {
    for (wait, opens) in [(Wait::Refused, false), (Wait::NoDescriptor, true)] {
        let shape = Shape { wait, ..plain() };
        let fake = Fake::new(shape, 1);
        let side = Side::open(fake.first());
        let (code, cq) = open_queue(side.domain, FI_WAIT_FD);
        assert_eq!(code, if opens { 0 } else { -FI_ENOSYS });
        if opens {
            let mut fd = -1;
            // SAFETY: an open queue, and room for a descriptor.
            assert_eq!(unsafe { fi_getwait(cq.cast(), &raw mut fd) }, -FI_ENOSYS);
            assert_eq!(close(cq), 0);
        }
        side.close();
        fake.assert_clean();
    }
}
