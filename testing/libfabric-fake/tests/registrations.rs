//! Rules of registrations, and of remote memory.
//!
//! ```text
//!   one misuse --> the violation that names it
//! ```

use crate::side::*;
use libfabric_fake::{Fake, Shape};
use libfabric_sys::abi::*;

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
    out.desc = desc_of(mr);
    assert!(a.send(&mut out, to_b) < 0);
    noticed(&fake, "not covered");
    out.len = 50;
    assert_eq!(a.send(&mut out, to_b), 0);
    let mut into = lot(&[0; 50]);
    let mr = a.register(&mut into.bytes, FI_SEND);
    into.desc = desc_of(mr);
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
    assert_eq!(close(mr), 0);
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
    // No memory is there.
    let (code, _) = register(side.domain, 0x10_0000 as *const u8, 4096, FI_SEND, 1);
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
    let register = |key| register(side.domain, bytes.as_ptr(), 64, FI_REMOTE_READ, key);
    let (code, first) = register(7);
    assert_eq!(code, 0);
    assert_eq!(register(7).0, -FI_ENOKEY);
    noticed(&fake, "in use");
    assert_eq!(register(1 << 32).0, -FI_EKEYREJECTED);
    noticed(&fake, "too large");
    assert_eq!(close(first), 0);
    let (code, second) = register(7);
    assert_eq!(code, 0);
    assert_eq!(close(second), 0);
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
        let key = key_of(mr);
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
        assert_eq!(close(mr), 0);
        assert_eq!(read(base, key), FI_EACCES);
        fake.assert_clean();
        assert_eq!(fake.stats().denied, 4);
        let mut unreadable = vec![7u8; 100];
        let mr = b.register(&mut unreadable, FI_REMOTE_WRITE);
        let key = key_of(mr);
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
    let (code, mr) = register(b.domain, there.as_ptr(), 100, FI_REMOTE_READ, 0);
    assert_eq!(code, 0);
    let key = key_of(mr);
    let mut into = a.lot(100);
    assert_eq!(a.read(&mut into, to_b, 0, key), 0);
    assert_eq!(a.events()[0].error, FI_EACCES);
    noticed(&fake, "not enabled");
    assert!(mr_enable(mr) < 0);
    noticed(&fake, "fi_mr_enable");
    assert_eq!(mr_bind(mr, b.ep.cast(), 0), 0);
    assert_eq!(mr_enable(mr), 0);
    assert_eq!(a.read(&mut into, to_b, 0, key), 0);
    assert_eq!(a.events()[0].error, 0);
    assert_eq!(close(b.ep), -FI_EBUSY);
    noticed(&fake, "fi_close of endpoint");
    assert_eq!(close(mr), 0);
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
        let key = key_of(mr);
        assert_eq!(close(mr), 0);
        let mut into = a.lot(100);
        assert_eq!(a.read(&mut into, to_b, there.as_ptr() as u64, key), 0);
        let error = if valid { 0 } else { FI_EACCES };
        assert_eq!(a.events()[0].error, error, "{count:?}");
        assert_eq!(fake.holds(there.as_ptr(), 100).is_empty(), !valid);
        end(&fake, [a, b]);
        assert!(fake.holds(there.as_ptr(), 100).is_empty());
    }
}
