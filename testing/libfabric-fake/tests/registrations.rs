//! Rules of registrations, and of remote memory.
//!
//! ```text
//!   one misuse --> the violation that names it
//! ```

use std::ptr::null_mut;

use crate::side::{Side, end, lot, noticed};
use libfabric_fake::{Fake, Shape};
use libfabric_sys::abi::*;
use libfabric_sys::calls::*;

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
        // Closed in the meantime: denied and counted, but no rule was broken.
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
fn a_cache_keeps_closed_registrations_valid_unless_it_has_no_entries() {
    // Read by this test only.
    let off = |count: Option<&str>| match count {
        // SAFETY: nothing here reads the environment otherwise than by Rust's own functions.
        Some(count) => unsafe { std::env::set_var("FI_MR_CACHE_MAX_COUNT", count) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var("FI_MR_CACHE_MAX_COUNT") },
    };
    for (count, valid) in [(None, true), (Some("7"), true), (Some("0"), false)] {
        off(count);
        let shape = Shape {
            mr_cache: true,
            connect_polls: 0,
            ..Shape::verbs_rxm()
        };
        let fake = Fake::new(shape, 1);
        let (mut a, mut b, to_b, _) = Side::pair(&fake);
        let mut there = [7u8; 100];
        let mr = b.register(&mut there, FI_REMOTE_READ);
        b.regions.pop();
        // SAFETY: an open registration; so below.
        let key = unsafe { (*mr).key };
        // SAFETY: as above.
        assert_eq!(unsafe { fi_close(mr.cast()) }, 0);
        let mut into = a.lot(100);
        assert_eq!(a.read(&mut into, to_b, there.as_ptr() as u64, key), 0);
        let error = if valid { 0 } else { FI_EACCES };
        assert_eq!(a.events()[0].error, error, "{count:?}");
        assert_eq!(fake.holds(there.as_ptr(), 100).is_empty(), !valid);
        end(&fake, [a, b]);
        assert!(fake.holds(there.as_ptr(), 100).is_empty());
    }
}
