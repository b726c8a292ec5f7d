//! Rules of posting, of messages and of datagrams: each violation is recorded, and nothing else is.
//!
//! ```text
//!   one misuse --> the violation that names it      (no misuse, none: ports/rdm/tests/rdm/shapes.rs)
//! ```

use crate::side::*;
use libfabric_fake::{Fake, Shape};
use libfabric_sys::abi::*;
use std::ptr::null_mut;

const AGAIN: isize = -(FI_EAGAIN as isize);

#[test]
fn bytes_that_change_while_they_are_lent_are_noticed() {
    // Memory changed at four moments: a send's before its delivery; a receive's before the message
    // came, then before its completion was read; a send's before its completion was read.
    for (moment, what) in [
        "changed before it was delivered",
        "posted receive's memory was written to",
        "memory of a receive",
        "memory of a send",
    ]
    .into_iter()
    .enumerate()
    {
        let eager = if moment == 3 { 1000 } else { 0 };
        let p = pair(Shape { eager, ..plain() });
        let (mut out, mut into) = (lot(&[1; 100]), lot(&[0; 100]));
        if moment == 0 {
            assert_eq!(p.a.send(&mut out, p.to_b), 0);
            out.bytes[50] = 2;
            assert_eq!(p.b.receive(&mut into), 0);
        } else {
            assert_eq!(p.b.receive(&mut into), 0);
            if moment == 1 {
                into.bytes[0] = 9;
            }
            assert_eq!(p.a.send(&mut out, p.to_b), 0);
        }
        if moment == 2 {
            p.fake.step();
            into.bytes[99] = 9;
        }
        assert_eq!(p.b.events().len(), 1);
        if moment == 3 {
            out.bytes[50] = 2;
            assert_eq!((p.a.events().len(), into.bytes[50]), (1, 1));
        }
        p.noticed(what);
        assert_eq!(p.a.events().len(), usize::from(moment < 3));
        // The bytes arrive as they were at delivery: the change shows.
        assert_eq!(into.bytes[50], [2, 1, 1, 1][moment]);
        p.fake.take_violations();
        p.end();
    }
}

#[test]
fn memory_for_two_is_noticed() {
    let p = pair(plain());
    let mut into = lot(&[0; 100]);
    assert_eq!(p.b.receive(&mut into), 0);
    for at in [0, 99] {
        let start = into.bytes.as_mut_ptr().wrapping_add(at).cast();
        let code = p.a.send_at(start, (1, null_mut()), p.to_b, null_mut());
        assert_eq!(code, 0);
        p.noticed("memory that an operation");
    }
    p.end();
}

#[test]
fn contexts_are_required_and_belong_to_the_provider_in_use() {
    let p = pair(plain().with_mode(FI_CONTEXT2, 0));
    let (mut out, mut into) = (lot(&[1; 10]), lot(&[0; 10]));
    let (bytes, context) = out.raw();
    assert!(p.a.send_at(bytes, (10, null_mut()), p.to_b, null_mut()) < 0);
    p.noticed("null context");
    assert_eq!(p.a.send(&mut out, p.to_b), 0);
    assert!(p.a.send_at(bytes, (10, null_mut()), p.to_b, context) < 0);
    p.noticed("in use");
    // Free again once its completion was read.
    assert_eq!(p.b.receive(&mut into), 0);
    assert_eq!((p.b.events().len(), p.a.events().len()), (1, 1));
    p.exchange(&mut out, &mut into);
    assert_eq!(p.b.events().len(), 1);
    assert_eq!(p.b.receive(&mut into), 0);
    assert!(into.context.internal.iter().all(|word| !word.is_null()));
    into.context.internal[7] = null_mut();
    assert_eq!(p.a.inject(&[1], p.to_b), 0);
    assert_eq!(p.b.events().len(), 1);
    p.noticed("context of endpoint");
    p.end();
}

#[test]
fn prefixes_need_room_and_are_written_to() {
    let mut p = pair(plain().with_mode(FI_MSG_PREFIX, 40));
    let mut short = lot(&[1; 39]);
    assert!(p.a.send(&mut short, p.to_b) < 0);
    p.noticed("prefix");
    assert!(p.b.receive(&mut short) < 0);
    p.noticed("prefix");
    assert!(p.a.inject(&[0; 39], p.to_b) < 0);
    p.noticed("prefix");
    // Limits do not include the prefix.
    assert_eq!(p.a.inject(&[1; 40 + 128], p.to_b), 0);
    let (mut out, mut into) = (p.a.filled(&[1, 2, 3]), p.b.lot(43));
    assert_eq!(p.a.send(&mut out, p.to_b), 0);
    assert_ne!(out.bytes[..40], [0; 40]);
    let mut first = p.b.lot(200);
    assert_eq!((p.b.receive(&mut first), p.b.receive(&mut into)), (0, 0));
    let lens: Vec<usize> = p.b.events().iter().map(|event| event.len).collect();
    assert_eq!((lens, into.body()), (vec![168, 43], &[1, 2, 3][..]));
    p.end();
}

#[test]
fn limits_hold_at_below_and_above() {
    let p = pair(Shape {
        inject: 16,
        max_msg: 1000,
        iov_limit: 2,
        ..plain()
    });
    let injected = [15, 16, 17].map(|len| p.a.inject(&vec![1; len], p.to_b) == 0);
    assert_eq!(injected, [true, true, false]);
    p.noticed("inject_size");
    let mut whole = lot(&[1; 1001]);
    whole.len = 1000;
    assert_eq!(p.a.send(&mut whole, p.to_b), 0);
    let refused = p.a.send(&mut lot(&[1; 1001]), p.to_b);
    assert_eq!(refused, -(FI_EMSGSIZE as isize));
    p.noticed("max_msg_size");
    let bytes = [1u8; 30];
    let iov = [0, 10, 20].map(|at| libc::iovec {
        iov_base: bytes[at..].as_ptr().cast_mut().cast(),
        iov_len: 10,
    });
    assert_eq!(p.a.send_pieces(&iov[..2], p.to_b, null_mut(), 0), 0);
    assert!(p.a.send_pieces(&iov, p.to_b, null_mut(), 0) < 0);
    p.noticed("segments");
    p.end();
}

#[test]
fn full_queues_are_no_violation() {
    let p = pair(Shape {
        tx_depth: 3,
        rx_depth: 2,
        ..plain()
    });
    let mut outs = [(); 4].map(|()| lot(&[1; 10]));
    let mut intos = [(); 3].map(|()| lot(&[0; 10]));
    let sent = outs.each_mut().map(|out| p.a.send(out, p.to_b));
    assert_eq!(sent, [0, 0, 0, AGAIN]);
    assert_eq!(p.a.inject(&[1], p.to_b), AGAIN);
    let received = intos.each_mut().map(|into| p.b.receive(into));
    assert_eq!(received, [0, 0, AGAIN]);
    assert_eq!((p.b.events().len(), p.a.events().len()), (2, 2));
    assert_eq!(p.a.send(&mut outs[3], p.to_b), 0);
    assert_eq!(p.fake.stats().again, 3);
    p.end();
}

#[test]
fn what_was_not_asked_for_is_not_there() {
    let fake = Fake::new(plain(), 1);
    let a = Side::with(fake.first(), FI_MSG, FI_WAIT_NONE);
    let to_a = a.insert(&a.address());
    let mut out = lot(&[1; 8]);
    assert_eq!(a.read(&mut out, to_a, 0, 0), -(FI_ENOSYS as isize));
    noticed(&fake, "without the capability");
    assert!(a.multi_receive(&mut out) < 0);
    noticed(&fake, "multi-receive");
    a.close();
    fake.assert_clean();
}

fn datagrams(shape: Shape) -> Pair {
    pair_with(shape, FI_MSG | FI_SOURCE, FI_WAIT_NONE)
}

#[test]
fn datagram_without_a_posted_receive_is_lost() {
    let mut p = datagrams(Shape::udp());
    let (mut room, mut first, mut second) =
        (p.b.lot(100), p.a.filled(b"first"), p.a.filled(b"second"));
    p.exchange(&mut first, &mut room);
    assert_eq!(p.a.send(&mut second, p.to_b), 0);
    let got = p.b.events();
    assert_eq!((got.len(), got[0].context, got[0].len), (1, room.id(), 5));
    assert_eq!(&room.bytes[..5], b"first");
    // The sender is not told.
    let told: Vec<usize> = p.a.events().iter().map(|event| event.context).collect();
    assert_eq!(told, [first.id(), second.id()]);
    assert_eq!(p.fake.stats().lost, 1);
    p.end();
}

#[test]
fn what_waits_for_more_goes_with_what_does_not() {
    let mut p = datagrams(Shape::udp());
    let mut rooms = [p.b.lot(10), p.b.lot(10)];
    for room in &mut rooms {
        assert_eq!(p.b.receive(room), 0);
    }
    let mut both = [p.a.filled(b"1"), p.a.filled(b"2")];
    for (out, (flags, done)) in both.iter_mut().zip([(FI_MORE, 0), (0, 2)]) {
        let (iov_base, context) = out.raw();
        let iov = [libc::iovec {
            iov_base,
            iov_len: 1,
        }];
        let code =
            p.a.send_pieces(&iov, p.to_b, context, FI_COMPLETION | flags);
        assert_eq!(code, 0);
        assert_eq!((p.b.events().len(), p.a.events().len()), (done, done));
    }
    p.end();
}

#[test]
fn a_queue_without_resource_management_is_not_given_too_much() {
    let mut p = datagrams(Shape {
        resource_mgmt: FI_RM_DISABLED,
        tx_depth: 1,
        ..Shape::udp()
    });
    let (mut first, mut second) = (p.a.filled(b"1"), p.a.filled(b"2"));
    assert_eq!(p.a.send(&mut first, p.to_b), 0);
    p.fake.assert_clean();
    assert_ne!(p.a.send(&mut second, p.to_b), 0);
    assert_eq!(p.fake.take_violations().len(), 1);
    p.a.inject(b"3", p.to_b);
    assert_eq!(p.fake.take_violations().len(), 1);
    p.end();
}
