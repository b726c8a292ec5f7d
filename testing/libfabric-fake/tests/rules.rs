//! Rules of posting: what is broken is noticed, each one, and nothing else is.
//!
//! ```text
//!   one misuse --> the violation that names it      (no misuse, none: ports/rdm/tests/rdm/shapes.rs)
//! ```

use std::ptr::null_mut;

use crate::side::*;
use libfabric_fake::{Fake, Shape};
use libfabric_sys::abi::*;
use libfabric_sys::calls::*;

fn again(code: isize) -> bool {
    code == -(FI_EAGAIN as isize)
}

#[test]
fn a_send_changed_before_its_delivery_is_noticed() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let (mut out, mut into) = (lot(&[1; 100]), lot(&[0; 100]));
    assert_eq!(a.send(&mut out, to_b), 0);
    out.bytes[50] = 2;
    assert_eq!(b.receive(&mut into), 0);
    assert_eq!(b.events().len(), 1);
    noticed(&fake, "changed before it was delivered");
    // The bytes arrive as they were then: the change shows.
    assert_eq!(into.bytes[50], 2);
    assert_eq!(a.events().len(), 1);
    fake.take_violations();
    end(&fake, [a, b]);
}

#[test]
fn a_send_changed_before_its_completion_is_read_is_noticed() {
    let shape = Shape {
        eager: 1000,
        ..plain()
    };
    let fake = Fake::new(shape, 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let (mut out, mut into) = (lot(&[1; 100]), lot(&[0; 100]));
    assert_eq!(b.receive(&mut into), 0);
    assert_eq!(a.send(&mut out, to_b), 0);
    assert_eq!(b.events().len(), 1);
    out.bytes[50] = 2;
    assert_eq!(a.events().len(), 1);
    noticed(&fake, "memory of a send");
    assert_eq!(into.bytes[50], 1);
    end(&fake, [a, b]);
}

#[test]
fn a_posted_receive_written_to_by_its_user_is_noticed() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let (mut out, mut into) = (lot(&[1; 100]), lot(&[0; 100]));
    assert_eq!(b.receive(&mut into), 0);
    into.bytes[0] = 9;
    assert_eq!(a.send(&mut out, to_b), 0);
    assert_eq!(b.events().len(), 1);
    noticed(&fake, "posted receive's memory was written to");
    end(&fake, [a, b]);
}

#[test]
fn received_bytes_changed_before_their_completion_is_read_are_noticed() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let (mut out, mut into) = (lot(&[1; 100]), lot(&[0; 100]));
    assert_eq!(b.receive(&mut into), 0);
    assert_eq!(a.send(&mut out, to_b), 0);
    fake.step();
    into.bytes[99] = 9;
    assert_eq!(b.events().len(), 1);
    noticed(&fake, "memory of a receive");
    end(&fake, [a, b]);
}

#[test]
fn memory_for_two_is_noticed() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let mut into = lot(&[0; 100]);
    let mut second = Box::new(fi_context2::EMPTY);
    assert_eq!(b.receive(&mut into), 0);
    let (start, context) = (into.bytes.as_mut_ptr(), (&raw mut *second).cast());
    // SAFETY: live memory; that it is lent already is what this tests.
    let code = unsafe {
        fi_recv(
            b.ep,
            start.wrapping_add(99).cast(),
            1,
            null_mut(),
            FI_ADDR_UNSPEC,
            context,
        )
    };
    assert_eq!(code, 0);
    noticed(&fake, "memory that an operation");
    // SAFETY: as above.
    let code = unsafe { fi_send(a.ep, start.cast(), 10, null_mut(), to_b, null_mut()) };
    assert_eq!(code, 0);
    noticed(&fake, "memory that an operation");
    end(&fake, [a, b]);
}

fn contexts() -> Shape {
    plain().with_mode(FI_CONTEXT2, 0)
}

#[test]
fn contexts_must_be_there_and_free() {
    let fake = Fake::new(contexts(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let (mut out, mut into) = (lot(&[1; 10]), lot(&[0; 10]));
    let bytes = out.bytes.as_ptr().cast();
    // SAFETY: live memory.
    assert!(unsafe { fi_send(a.ep, bytes, 10, null_mut(), to_b, null_mut()) } < 0);
    noticed(&fake, "null context");
    assert_eq!(a.send(&mut out, to_b), 0);
    // SAFETY: live memory, and a context that is in use, as this tests.
    let code = unsafe {
        fi_send(
            a.ep,
            bytes,
            10,
            null_mut(),
            to_b,
            (&raw mut *out.context).cast(),
        )
    };
    assert!(code < 0);
    noticed(&fake, "in use");
    // Read out, it is free again.
    assert_eq!(b.receive(&mut into), 0);
    assert_eq!((b.events().len(), a.events().len()), (1, 1));
    assert_eq!(a.send(&mut out, to_b), 0);
    end(&fake, [a, b]);
}

#[test]
fn contexts_are_the_providers_while_in_use() {
    let fake = Fake::new(contexts(), 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let (mut out, mut into) = (lot(&[1; 10]), lot(&[0; 10]));
    assert_eq!(b.receive(&mut into), 0);
    assert!(!into.context.internal[0].is_null() && !into.context.internal[7].is_null());
    into.context.internal[7] = null_mut();
    assert_eq!(a.send(&mut out, to_b), 0);
    assert_eq!(b.events().len(), 1);
    noticed(&fake, "context of endpoint");
    end(&fake, [a, b]);
}

#[test]
fn prefixes_need_room_and_are_written_to() {
    let fake = Fake::new(plain().with_mode(FI_MSG_PREFIX, 40), 1);
    let (mut a, mut b, to_b, _) = Side::pair(&fake);
    let mut short = lot(&[1; 39]);
    assert!(a.send(&mut short, to_b) < 0);
    noticed(&fake, "prefix");
    assert!(b.receive(&mut short) < 0);
    noticed(&fake, "prefix");
    assert!(a.inject(&[0; 39], to_b) < 0);
    noticed(&fake, "prefix");
    // Limits do not count the prefix.
    assert_eq!(a.inject(&[1; 40 + 128], to_b), 0);
    let (mut out, mut into) = (a.filled(&[1, 2, 3]), b.lot(43));
    assert_eq!(a.send(&mut out, to_b), 0);
    assert_ne!(out.bytes[..40], [0; 40]);
    let mut first = b.lot(200);
    assert_eq!((b.receive(&mut first), b.receive(&mut into)), (0, 0));
    let lens: Vec<usize> = b.events().iter().map(|event| event.len).collect();
    assert_eq!(lens, [168, 43]);
    assert_eq!(into.body(), [1, 2, 3]);
    end(&fake, [a, b]);
}

#[test]
fn limits_hold_at_below_and_above() {
    let shape = Shape {
        inject: 16,
        max_msg: 1000,
        iov_limit: 2,
        ..plain()
    };
    let fake = Fake::new(shape, 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    assert_eq!((a.inject(&[1; 15], to_b), a.inject(&[1; 16], to_b)), (0, 0));
    assert!(a.inject(&[1; 17], to_b) < 0);
    noticed(&fake, "inject_size");
    let mut whole = lot(&[1; 1001]);
    whole.len = 1000;
    assert_eq!(a.send(&mut whole, to_b), 0);
    let mut more = lot(&[1; 1001]);
    assert_eq!(a.send(&mut more, to_b), -(FI_EMSGSIZE as isize));
    noticed(&fake, "max_msg_size");
    let bytes = [1u8; 30];
    let piece = |n: usize| libc::iovec {
        iov_base: bytes[10 * n..].as_ptr().cast_mut().cast(),
        iov_len: 10,
    };
    let iov = [piece(0), piece(1), piece(2)];
    let send = |iov_count: usize| {
        let msg = fi_msg {
            msg_iov: iov.as_ptr(),
            desc: null_mut(),
            iov_count,
            addr: to_b,
            context: null_mut(),
            data: 0,
        };
        // SAFETY: live memory.
        unsafe { fi_sendmsg(a.ep, &raw const msg, 0) }
    };
    assert_eq!(send(2), 0);
    assert!(send(3) < 0);
    noticed(&fake, "segments");
    end(&fake, [a, b]);
}

#[test]
fn full_queues_are_no_violation() {
    let shape = Shape {
        tx_depth: 3,
        rx_depth: 2,
        ..plain()
    };
    let fake = Fake::new(shape, 1);
    let (a, b, to_b, _) = Side::pair(&fake);
    let mut outs: Vec<Lot> = (0..4).map(|_| lot(&[1; 10])).collect();
    let codes: Vec<isize> = outs.iter_mut().map(|out| a.send(out, to_b)).collect();
    assert!(codes[..3] == [0; 3] && again(codes[3]));
    assert!(again(a.inject(&[1], to_b)));
    let mut intos: Vec<Lot> = (0..3).map(|_| lot(&[0; 10])).collect();
    let codes: Vec<isize> = intos.iter_mut().map(|into| b.receive(into)).collect();
    assert!(codes[..2] == [0; 2] && again(codes[2]));
    assert_eq!((b.events().len(), a.events().len()), (2, 2));
    assert_eq!(a.send(&mut outs[3], to_b), 0);
    assert_eq!(fake.stats().again, 3);
    end(&fake, [a, b]);
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
