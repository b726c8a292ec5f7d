//! Broken rules are noticed, each one, and nothing else is.
//!
//! ```text
//!   one misuse --> the violation that names it      (and conversations.rs: no misuse, none)
//! ```

mod side;

use std::ptr::null_mut;

use libfabric_fake::{Call, Fake, Machine, Shape};
use libfabric_sys::abi::*;
use libfabric_sys::calls::*;
use side::{CAPS, Lot, Side, lot, offers};

/// A shape without connections and without delays.
fn plain() -> Shape {
    Shape {
        connect_polls: 0,
        ..Shape::tcp()
    }
}

fn again(code: isize) -> bool {
    code == -(FI_EAGAIN as isize)
}

/// The fake noticed this and only this.
#[track_caller]
fn noticed(fake: &Fake, what: &str) {
    let violations = fake.take_violations();
    assert_eq!(violations.len(), 1, "{what}: {violations:#?}");
    assert!(violations[0].contains(what), "{what}: {violations:#?}");
}

fn end(fake: &Fake, sides: [Side; 2]) {
    sides.into_iter().for_each(Side::close);
    fake.assert_clean();
    assert_eq!(fake.open_objects(), Vec::<String>::new());
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
    // What arrives is what was there then: the change shows.
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
    // SAFETY: live memory; so below.
    let code = unsafe { fi_sendv(a.ep, iov.as_ptr(), null_mut(), 2, to_b, null_mut()) };
    assert_eq!(code, 0);
    // SAFETY: as above.
    let code = unsafe { fi_sendv(a.ep, iov.as_ptr(), null_mut(), 3, to_b, null_mut()) };
    assert!(code < 0);
    noticed(&fake, "segments");
    end(&fake, [a, b]);
}

#[test]
fn tags_lose_their_bits_where_the_provider_has_none_for_them() {
    let shape = Shape {
        tag_format: 0x5555_5555_5555_5555,
        ..plain()
    };
    let fake = Fake::new(shape, 1);
    let (a, b, to_b, from_a) = Side::pair(&fake);
    let (mut out, mut into) = (lot(&[1; 10]), lot(&[0; 10]));
    assert_eq!(b.tagged_receive(&mut into, from_a, 7, 0), 0);
    assert_eq!(a.tagged_send(&mut out, to_b, 7 | (1 << 63)), 0);
    noticed(&fake, "bits the provider loses");
    assert_eq!(b.events()[0].tag, 7);
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
fn registrations_must_cover_what_is_used() {
    let shape = Shape {
        connect_polls: 0,
        ..Shape::verbs_rxm()
    };
    let fake = Fake::new(shape, 1);
    let (mut a, b, to_b, _) = Side::pair(&fake);
    let mut out = lot(&[1; 100]);
    assert!(a.send(&mut out, to_b) < 0);
    noticed(&fake, "memory without registration");
    let mr = a.register(&mut out.bytes[..50], FI_SEND);
    // SAFETY: an open registration; so below.
    out.desc = unsafe { (*mr).mem_desc };
    assert!(a.send(&mut out, to_b) < 0);
    noticed(&fake, "not covered");
    out.len = 50;
    assert_eq!(a.send(&mut out, to_b), 0);
    let mut into = lot(&[0; 50]);
    let mr = a.register(&mut into.bytes, FI_SEND);
    // SAFETY: as above.
    into.desc = unsafe { (*mr).mem_desc };
    assert!(a.receive(&mut into) < 0);
    noticed(&fake, "not for");
    // Another domain's.
    assert!(b.receive(&mut into) < 0);
    noticed(&fake, "memory without registration");
    // No registration for what is copied at once.
    assert_eq!(a.inject(&[1; 64], to_b), 0);
    end(&fake, [a, b]);
}

#[test]
fn a_registration_closed_under_an_operation_is_noticed_twice() {
    let shape = Shape {
        connect_polls: 0,
        eager: 0,
        ..Shape::verbs_rxm()
    };
    let fake = Fake::new(shape, 1);
    let (mut a, mut b, to_b, _) = Side::pair(&fake);
    let (mut out, mut into) = (a.filled(&[1; 100]), b.lot(100));
    assert_eq!(a.send(&mut out, to_b), 0);
    let mr = a.regions.pop().expect("the one of `out`");
    // SAFETY: an open registration.
    assert_eq!(unsafe { fi_close(mr.cast()) }, 0);
    noticed(&fake, "while an operation");
    assert_eq!(b.receive(&mut into), 0);
    assert_eq!(b.events().len(), 1);
    noticed(&fake, "when carried out");
    end(&fake, [a, b]);
}

#[test]
fn registrations_are_refused_where_they_make_no_sense() {
    let fake = Fake::new(Shape::verbs_rxm(), 1);
    let mut side = Side::open(fake.first());
    assert_eq!(side.try_register(&mut [], FI_SEND).err(), Some(-FI_EINVAL));
    noticed(&fake, "fi_mr_reg of 0 bytes");
    assert_eq!(
        side.try_register(&mut [0; 8], FI_MULTI_RECV).err(),
        Some(-FI_EINVAL)
    );
    noticed(&fake, "access");
    let mut mr = null_mut();
    // SAFETY: no memory is there, as this tests; registering reads none.
    let code = unsafe {
        let nowhere = 0x10_0000 as *const _;
        fi_mr_reg(
            side.domain,
            nowhere,
            4096,
            FI_SEND,
            0,
            1,
            0,
            &raw mut mr,
            null_mut(),
        )
    };
    assert_eq!(code, -FI_EFAULT);
    noticed(&fake, "where no memory is");
    side.close();
    fake.assert_clean();
}

#[test]
fn keys_that_the_user_chooses_are_checked() {
    let fake = Fake::new(Shape::odd(), 1);
    let side = Side::open(fake.first());
    let bytes = [0u8; 64];
    let register = |key: u64| {
        let mut mr = null_mut();
        // SAFETY: live memory.
        let code = unsafe {
            fi_mr_reg(
                side.domain,
                bytes.as_ptr().cast(),
                64,
                FI_REMOTE_READ,
                0,
                key,
                0,
                &raw mut mr,
                null_mut(),
            )
        };
        (code, mr)
    };
    let (code, first) = register(7);
    assert_eq!(code, 0);
    assert_eq!(register(7).0, -FI_ENOKEY);
    noticed(&fake, "in use");
    assert_eq!(register(1 << 32).0, -FI_EKEYREJECTED);
    noticed(&fake, "too large");
    // SAFETY: an open registration.
    assert_eq!(unsafe { fi_close(first.cast()) }, 0);
    let (code, second) = register(7);
    assert_eq!(code, 0);
    // SAFETY: an open registration.
    assert_eq!(unsafe { fi_close(second.cast()) }, 0);
    side.close();
    fake.assert_clean();
}

#[test]
fn remote_memory_is_guarded() {
    for shape in [Shape::cxi(), Shape::verbs_rxm()] {
        let shape = Shape {
            connect_polls: 0,
            ..shape
        };
        let fake = Fake::new(shape, 1);
        let (mut a, mut b, to_b, _) = Side::pair(&fake);
        let mut there = vec![7u8; 100];
        let mr = b.register(&mut there, FI_REMOTE_READ);
        // SAFETY: an open registration.
        let key = unsafe { (*mr).key };
        let virt = b.mr_mode & FI_MR_VIRT_ADDR != 0;
        let base = if virt { there.as_ptr() as u64 } else { 0 };
        let mut into = a.lot(60);
        let mut read = |addr: u64, key: u64| {
            assert_eq!(a.read(&mut into, to_b, addr, key), 0);
            let events = a.events();
            assert_eq!(events.len(), 1);
            events[0].error
        };
        assert_eq!((read(base, key), read(base + 40, key)), (0, 0));
        fake.assert_clean();
        assert_eq!(read(base + 41, key), FI_EINVAL);
        noticed(&fake, "outside");
        assert_eq!(read(base.wrapping_sub(1), key), FI_EINVAL);
        noticed(&fake, "outside");
        assert_eq!(read(base, key ^ 1), FI_EACCES);
        noticed(&fake, "unknown key");
        // Closed in the meantime: denied and counted, but nobody broke a rule.
        b.regions.clear();
        // SAFETY: an open registration.
        assert_eq!(unsafe { fi_close(mr.cast()) }, 0);
        assert_eq!(read(base, key), FI_EACCES);
        fake.assert_clean();
        assert_eq!(fake.stats().denied, 4);
        let mut unreadable = vec![7u8; 100];
        let mr = b.register(&mut unreadable, FI_REMOTE_WRITE);
        // SAFETY: an open registration.
        let key = unsafe { (*mr).key };
        let base = if virt { unreadable.as_ptr() as u64 } else { 0 };
        assert_eq!(read(base, key), FI_EACCES);
        noticed(&fake, "does not allow");
        end(&fake, [a, b]);
    }
}

#[test]
fn registrations_of_an_endpoint_must_be_bound_and_enabled() {
    let fake = Fake::new(Shape::cxi(), 1);
    let (mut a, b, to_b, _) = Side::pair(&fake);
    let there = [7u8; 100];
    let mut mr = null_mut();
    // SAFETY: live memory.
    let code = unsafe {
        let start = there.as_ptr().cast();
        fi_mr_reg(
            b.domain,
            start,
            100,
            FI_REMOTE_READ,
            0,
            0,
            0,
            &raw mut mr,
            null_mut(),
        )
    };
    assert_eq!(code, 0);
    // SAFETY: an open registration.
    let key = unsafe { (*mr).key };
    let mut into = a.lot(100);
    assert_eq!(a.read(&mut into, to_b, 0, key), 0);
    assert_eq!(a.events()[0].error, FI_EACCES);
    noticed(&fake, "not enabled");
    // SAFETY: an open registration; so below.
    assert!(unsafe { fi_mr_enable(mr) } < 0);
    noticed(&fake, "fi_mr_enable");
    // SAFETY: as above.
    assert_eq!(unsafe { fi_mr_bind(mr, b.ep.cast(), 0) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { fi_mr_enable(mr) }, 0);
    assert_eq!(a.read(&mut into, to_b, 0, key), 0);
    assert_eq!(a.events()[0].error, 0);
    // SAFETY: an open endpoint, which is not to be closed now.
    assert_eq!(unsafe { fi_close(b.ep.cast()) }, -FI_EBUSY);
    noticed(&fake, "fi_close of endpoint");
    // SAFETY: as above.
    assert_eq!(unsafe { fi_close(mr.cast()) }, 0);
    end(&fake, [a, b]);
}

#[test]
fn objects_are_closed_in_their_order() {
    let fake = Fake::new(plain(), 1);
    let side = Side::open(fake.first());
    let early: [(*mut fid, &str); 4] = [
        (side.fabric.cast(), "fi_close of fabric"),
        (side.domain.cast(), "fi_close of domain"),
        (side.cq.cast(), "fi_close of completion queue"),
        (side.av.cast(), "fi_close of address vector"),
    ];
    for (object, what) in early {
        // SAFETY: an open object, which is not to be closed now.
        assert_eq!(unsafe { fi_close(object) }, -FI_EBUSY);
        noticed(&fake, what);
    }
    side.close();
    fake.assert_clean();
}

#[test]
fn calls_on_closed_objects_are_noticed() {
    let fake = Fake::new(plain(), 1);
    let (mut a, b, to_b, _) = Side::pair(&fake);
    let ep = a.ep;
    a.close_endpoint();
    // SAFETY: closed, as this tests; the fake keeps its memory.
    let code = unsafe { fi_inject(ep, [1u8].as_ptr().cast(), 1, to_b) };
    assert_eq!(code, -(FI_EBADF as isize));
    noticed(&fake, "fi_inject of endpoint");
    // SAFETY: as above.
    assert_eq!(unsafe { fi_close(ep.cast()) }, -FI_EBADF);
    noticed(&fake, "which is closed");
    end(&fake, [a, b]);
}

#[test]
fn endpoints_are_bound_enabled_and_then_used() {
    let fake = Fake::new(plain(), 1);
    let side = Side::open(fake.first());
    let info = side.info.first().expect("an offer").as_ptr();
    let mut ep = null_mut();
    // SAFETY: open objects all the way; what is not allowed is what this tests. So below.
    assert_eq!(
        unsafe { fi_endpoint(side.domain, info, &raw mut ep, null_mut()) },
        0
    );
    // SAFETY: as above.
    let code = unsafe { fi_inject(ep, [1u8].as_ptr().cast(), 1, 0) };
    assert_eq!(code, -(FI_EOPBADSTATE as isize));
    noticed(&fake, "not enabled");
    // SAFETY: as above.
    assert_eq!(unsafe { fi_enable(ep) }, -FI_ENOCQ);
    noticed(&fake, "without completion queue");
    // SAFETY: as above.
    assert_eq!(
        unsafe { fi_ep_bind(ep, side.cq.cast(), FI_TRANSMIT | FI_RECV) },
        0
    );
    // SAFETY: as above.
    assert_eq!(unsafe { fi_enable(ep) }, -FI_ENOAV);
    noticed(&fake, "without address vector");
    // SAFETY: as above.
    assert_eq!(unsafe { fi_ep_bind(ep, side.av.cast(), 0) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { fi_enable(ep) }, 0);
    // SAFETY: as above.
    assert!(unsafe { fi_ep_bind(ep, side.av.cast(), 0) } < 0);
    noticed(&fake, "which is enabled");
    // SAFETY: as above.
    assert_eq!(unsafe { fi_close(ep.cast()) }, 0);
    side.close();
    fake.assert_clean();
}

#[test]
fn peers_must_be_in_the_address_vector() {
    let fake = Fake::new(plain(), 1);
    let (a, b, to_b, from_a) = Side::pair(&fake);
    assert!(a.inject(&[1], to_b + 5) < 0);
    noticed(&fake, "not in the address vector");
    let mut into = lot(&[0; 8]);
    assert!(b.tagged_receive(&mut into, from_a + 5, 1, 0) < 0);
    noticed(&fake, "not in the address vector");
    let mut gone = from_a;
    // SAFETY: an open vector and one handle; so below.
    assert_eq!(unsafe { fi_av_remove(b.av, &raw mut gone, 1, 0) }, 0);
    // SAFETY: as above.
    assert!(unsafe { fi_av_remove(b.av, &raw mut gone, 1, 0) } < 0);
    noticed(&fake, "fi_av_remove");
    // Removed there, the sender is unknown; its messages come all the same.
    assert_eq!(b.receive(&mut into), 0);
    assert_eq!(a.inject(&[1], to_b), 0);
    assert_eq!(b.events()[0].source, FI_ADDR_NOTAVAIL);
    end(&fake, [a, b]);
}

#[test]
fn what_was_not_asked_for_is_not_there() {
    let fake = Fake::new(plain(), 1);
    let a = Side::with(fake.first(), FI_MSG, FI_WAIT_NONE);
    let to_a = a.insert(&a.address());
    let mut out = lot(&[1; 8]);
    assert_eq!(a.tagged_send(&mut out, to_a, 1), -(FI_ENOSYS as isize));
    noticed(&fake, "without the capability");
    assert_eq!(a.read(&mut out, to_a, 0, 0), -(FI_ENOSYS as isize));
    noticed(&fake, "without the capability");
    assert!(a.multi_receive(&mut out) < 0);
    noticed(&fake, "multi-receive");
    a.close();
    fake.assert_clean();
}

#[test]
fn each_call_can_be_refused_with_an_error_of_choice() {
    let fake = Fake::new(plain(), 1);
    let refuse = |call: Call, error: i32| {
        fake.faults(|faults| {
            faults.refuse.clear();
            faults.refuse.insert(call, error);
        });
    };
    refuse(Call::GetInfo, FI_ENOMEM);
    assert_eq!(offers(fake.first(), CAPS).err(), Some(FI_ENOMEM));
    refuse(Call::Fabric, FI_ENODEV);
    let list = offers(fake.first(), CAPS).expect("an offer");
    let info = list.first().expect("an offer");
    assert_eq!(fake.library().fabric(info).err(), Some(FI_ENODEV));
    refuse(Call::Post, FI_ENOMEM);
    let (a, b, to_b, _) = Side::pair(&fake);
    assert_eq!(a.inject(&[1], to_b), -(FI_ENOMEM as isize));
    fake.faults(|faults| faults.refuse.clear());
    assert_eq!(a.inject(&[1], to_b), 0);
    drop(list);
    end(&fake, [a, b]);
}

#[test]
fn many_fabrics_do_not_know_each_other() {
    let fakes: Vec<Fake> = (0..8).map(|seed| Fake::new(plain(), seed)).collect();
    let sides: Vec<Side> = fakes.iter().map(|fake| Side::open(fake.first())).collect();
    for (fake, side) in fakes.iter().zip(sides) {
        assert_eq!(fake.addresses(), [side.address()]);
        side.close();
        fake.assert_clean();
    }
}

#[test]
fn an_address_can_be_had_again_when_its_owner_is_gone() {
    let fake = Fake::new(plain(), 1);
    let second: Machine = fake.machine(&[]);
    let (a, b, to_b, _) = Side::pair(&fake);
    let address = b.address();
    let port = u16::from_be_bytes([address[2], address[3]]);
    let service = std::ffi::CString::new(port.to_string()).expect("digits");
    let library = second.library();
    let list = library
        .query(Some(c"127.0.0.1"), Some(&service), FI_SOURCE, None)
        .expect("tcp");
    let info = list.first().expect("tcp").as_ptr();
    let again = |b: &Side| {
        let mut ep = null_mut();
        // SAFETY: open objects; so below.
        assert_eq!(
            unsafe { fi_endpoint(b.domain, info, &raw mut ep, null_mut()) },
            0
        );
        // SAFETY: as above.
        assert_eq!(
            unsafe { fi_ep_bind(ep, b.cq.cast(), FI_TRANSMIT | FI_RECV) },
            0
        );
        // SAFETY: as above.
        assert_eq!(unsafe { fi_ep_bind(ep, b.av.cast(), 0) }, 0);
        ep
    };
    let ep = again(&b);
    // SAFETY: as above.
    assert_eq!(unsafe { fi_enable(ep) }, -FI_EADDRINUSE);
    let mut b = b;
    b.close_endpoint();
    assert_eq!(a.inject(&[1], to_b), -(FI_EAGAIN as isize));
    // SAFETY: as above.
    assert_eq!(unsafe { fi_enable(ep) }, 0);
    assert_eq!(a.inject(&[1], to_b), 0);
    b.ep = ep;
    assert_eq!(b.address(), address);
    end(&fake, [a, b]);
}
