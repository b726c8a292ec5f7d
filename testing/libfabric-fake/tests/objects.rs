//! Rules of objects and registrations.
//!
//! ```text
//!   fabric > domain > queue, vector > endpoint, registration    opened in this order, closed in reverse
//! ```

use crate::side::*;
use libfabric_fake::{Fake, Shape};
use libfabric_sys::abi::*;

#[test]
fn objects_are_closed_once_and_in_their_order() {
    let mut p = pair(plain());
    let early: [(*mut fid, &str); 4] = [
        (p.a.fabric.cast(), "fi_close of fabric"),
        (p.a.domain.cast(), "fi_close of domain"),
        (p.a.cq.cast(), "fi_close of completion queue"),
        (p.a.av.cast(), "fi_close of address vector"),
    ];
    for (object, what) in early {
        assert_eq!(close(object), -FI_EBUSY);
        p.noticed(what);
    }
    let ep = p.a.ep;
    p.a.close_endpoint();
    assert_eq!(inject(ep, &[1], p.to_b), -(FI_EBADF as isize));
    p.noticed("fi_inject of endpoint");
    assert_eq!(close(ep), -FI_EBADF);
    p.noticed("which is closed");
    p.end();
}

#[test]
fn endpoints_are_bound_enabled_and_then_used() {
    let fake = Fake::new(plain(), 1);
    let side = Side::open(fake.first());
    let info = side.info.first().expect("an offer").as_ptr();
    let ep = unbound(side.domain, info);
    assert_eq!(inject(ep, &[1], 0), -(FI_EOPBADSTATE as isize));
    noticed(&fake, "not enabled");
    assert_eq!(enable(ep), -FI_ENOCQ);
    noticed(&fake, "without completion queue");
    assert_eq!(bind(ep, side.cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!(enable(ep), -FI_ENOAV);
    noticed(&fake, "without address vector");
    assert_eq!((bind(ep, side.av, 0), enable(ep)), (0, 0));
    assert!(bind(ep, side.av, 0) < 0);
    noticed(&fake, "which is enabled");
    assert_eq!(close(ep), 0);
    side.close();
    fake.assert_clean();
}

#[test]
fn peers_must_be_in_the_address_vector() {
    let p = pair(plain());
    assert!(p.a.inject(&[1], p.to_b + 5) < 0);
    p.noticed("not in the address vector");
    let mut gone = p.to_a;
    assert_eq!(av_remove(p.b.av, &mut gone), 0);
    assert!(av_remove(p.b.av, &mut gone) < 0);
    p.noticed("fi_av_remove");
    // Removed from the vector, the sender is unknown; its messages still arrive.
    let (mut out, mut into) = (lot(&[1]), lot(&[0; 8]));
    p.exchange(&mut out, &mut into);
    assert_eq!(errors(&p.b.events()), [0]);
    p.end();
}

#[test]
fn an_address_has_one_owner_at_a_time() {
    let mut p = pair(plain());
    let address = p.b.address();
    let port = u16::from_be_bytes([address[2], address[3]]);
    let service = std::ffi::CString::new(port.to_string()).expect("digits");
    let library = p.fake.library();
    let list = library.query(Some(c"127.0.0.1"), Some(&service), FI_SOURCE, None);
    let list = list.expect("tcp");
    let ep = unbound(p.b.domain, list.first().expect("tcp").as_ptr());
    assert_eq!(bind(ep, p.b.cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!(bind(ep, p.b.av, 0), 0);
    assert_eq!(enable(ep), -FI_EADDRINUSE);
    p.b.close_endpoint();
    assert_eq!(p.a.inject(&[1], p.to_b), -(FI_EAGAIN as isize));
    assert_eq!((enable(ep), p.a.inject(&[1], p.to_b)), (0, 0));
    p.b.ep = ep;
    assert_eq!(p.b.address(), address);
    p.end();
}

fn at_once(shape: Shape) -> Shape {
    Shape {
        connect_polls: 0,
        ..shape
    }
}

#[test]
fn registrations_must_cover_what_is_used() {
    let mut p = pair(at_once(Shape::verbs_rxm()));
    let mut out = lot(&[1; 100]);
    assert!(p.a.send(&mut out, p.to_b) < 0);
    p.noticed("memory without registration");
    out.desc = desc_of(p.a.register(&mut out.bytes[..50], FI_SEND));
    assert!(p.a.send(&mut out, p.to_b) < 0);
    p.noticed("not covered");
    out.len = 50;
    assert_eq!(p.a.send(&mut out, p.to_b), 0);
    let mut into = lot(&[0; 50]);
    into.desc = desc_of(p.a.register(&mut into.bytes, FI_SEND));
    assert!(p.a.receive(&mut into) < 0);
    p.noticed("not for");
    // A registration of another domain.
    assert!(p.b.receive(&mut into) < 0);
    p.noticed("memory without registration");
    // No registration is needed for data that is copied at once.
    assert_eq!(p.a.inject(&[1; 64], p.to_b), 0);
    p.end();
}

#[test]
fn a_registration_closed_under_an_operation_is_noticed_twice() {
    let mut p = pair(Shape {
        eager: 0,
        ..at_once(Shape::verbs_rxm())
    });
    let (mut out, mut into) = (p.a.filled(&[1; 100]), p.b.lot(100));
    assert_eq!(p.a.send(&mut out, p.to_b), 0);
    assert_eq!(close(p.a.regions.pop().expect("the one of `out`")), 0);
    p.noticed("while an operation");
    assert_eq!(p.b.receive(&mut into), 0);
    assert_eq!(p.b.events().len(), 1);
    p.noticed("when carried out");
    p.end();
}

#[test]
fn invalid_or_excess_registrations_are_rejected() {
    let fake = Fake::new(Shape::verbs_rxm(), 1);
    let mut side = Side::open(fake.first());
    assert_eq!(side.try_register(&mut [], FI_SEND).err(), Some(-FI_EINVAL));
    noticed(&fake, "fi_mr_reg of 0 bytes");
    let refused = side.try_register(&mut [0; 8], FI_MULTI_RECV);
    assert_eq!(refused.err(), Some(-FI_EINVAL));
    noticed(&fake, "access");
    // No memory is mapped there.
    let (code, _) = register(side.domain, 0x10_0000 as *const u8, 4096, FI_SEND, 1);
    assert_eq!(code, -FI_EFAULT);
    noticed(&fake, "where no memory is");
    // Limited by number, and by bytes.
    let mut bytes = vec![0u8; 3000];
    let mut parts = bytes.chunks_mut(1000);
    for limits in [(Some(1), None), (None, Some(2000))] {
        fake.faults(|faults| (faults.register_limit, faults.register_bytes) = limits);
        assert!(side.try_register(parts.next().unwrap(), FI_SEND).is_ok());
        let more = side.try_register(&mut [0; 1000], FI_SEND);
        assert_eq!(more.err(), Some(-FI_ENOMEM));
    }
    assert_eq!(fake.registered(), (2, 2000));
    assert_eq!(fake.stats().unregistered, 2);
    side.close();
    fake.assert_clean();
}

#[test]
fn keys_that_the_user_chooses_are_checked() {
    let fake = Fake::new(Shape::odd(), 1);
    let side = Side::open(fake.first());
    let bytes = [0u8; 64];
    let register = |key| register(side.domain, bytes.as_ptr(), 64, FI_REMOTE_READ, key);
    for _ in 0..2 {
        let (code, first) = register(7);
        assert_eq!(code, 0);
        assert_eq!(register(7).0, -FI_ENOKEY);
        noticed(&fake, "in use");
        assert_eq!(register(1 << 32).0, -FI_EKEYREJECTED);
        noticed(&fake, "too large");
        assert_eq!(close(first), 0);
    }
    side.close();
    fake.assert_clean();
}

#[test]
fn remote_memory_is_guarded() {
    for shape in [Shape::cxi(), Shape::verbs_rxm()] {
        let mut p = pair(at_once(shape));
        let mut there = vec![7u8; 100];
        let mr = p.b.register(&mut there, FI_REMOTE_READ);
        let key = key_of(mr);
        let virt = p.b.mr_mode & FI_MR_VIRT_ADDR != 0;
        let base = |bytes: &[u8]| if virt { bytes.as_ptr() as u64 } else { 0 };
        let at = base(&there);
        let (mut into, to_b) = (p.a.lot(60), p.to_b);
        let a = &p.a;
        let mut read = |addr: u64, key: u64| {
            assert_eq!(a.read(&mut into, to_b, addr, key), 0);
            errors(&a.events())
        };
        assert_eq!([read(at, key), read(at + 40, key)], [[0], [0]]);
        p.fake.assert_clean();
        for (addr, key, error, what) in [
            (at + 41, key, FI_EINVAL, "outside"),
            (at.wrapping_sub(1), key, FI_EINVAL, "outside"),
            (at, key ^ 1, FI_EACCES, "unknown key"),
        ] {
            assert_eq!(read(addr, key), [error]);
            p.noticed(what);
        }
        // Closed in the meantime: denied and counted, but no rule was broken.
        p.b.regions.clear();
        assert_eq!(close(mr), 0);
        assert_eq!(read(at, key), [FI_EACCES]);
        p.fake.assert_clean();
        assert_eq!(p.fake.stats().denied, 4);
        let mut unreadable = vec![7u8; 100];
        let key = key_of(p.b.register(&mut unreadable, FI_REMOTE_WRITE));
        assert_eq!(read(base(&unreadable), key), [FI_EACCES]);
        p.noticed("does not allow");
        p.end();
    }
}

#[test]
fn registrations_of_an_endpoint_must_be_bound_and_enabled() {
    let mut p = pair(Shape::cxi());
    let there = [7u8; 100];
    let (code, mr) = register(p.b.domain, there.as_ptr(), 100, FI_REMOTE_READ, 0);
    assert_eq!(code, 0);
    let (key, mut into) = (key_of(mr), p.a.lot(100));
    assert_eq!(p.a.read(&mut into, p.to_b, 0, key), 0);
    assert_eq!(errors(&p.a.events()), [FI_EACCES]);
    p.noticed("not enabled");
    assert!(mr_enable(mr) < 0);
    p.noticed("fi_mr_enable");
    assert_eq!((mr_bind(mr, p.b.ep), mr_enable(mr)), (0, 0));
    assert_eq!(p.a.read(&mut into, p.to_b, 0, key), 0);
    assert_eq!(errors(&p.a.events()), [0]);
    assert_eq!(close(p.b.ep), -FI_EBUSY);
    p.noticed("fi_close of endpoint");
    assert_eq!(close(mr), 0);
    p.end();
}

#[test]
fn cache_keeps_closed_registrations_unless_it_is_empty() {
    for (count, valid) in [("7", true), ("0", false)] {
        // SAFETY: read by this test only, and by Rust's own functions.
        unsafe { std::env::set_var("FI_MR_CACHE_MAX_COUNT", count) };
        let mut p = pair(Shape {
            mr_cache: true,
            ..at_once(Shape::verbs_rxm())
        });
        let mut there = [7u8; 100];
        let mr = p.b.register(&mut there, FI_REMOTE_READ);
        p.b.regions.pop();
        let (key, mut into) = (key_of(mr), p.a.lot(100));
        assert_eq!(close(mr), 0);
        assert_eq!(p.a.read(&mut into, p.to_b, there.as_ptr() as u64, key), 0);
        let error = if valid { 0 } else { FI_EACCES };
        assert_eq!(errors(&p.a.events()), [error], "{count}");
        assert_eq!(p.fake.holds(there.as_ptr(), 100).is_empty(), !valid);
        let fake = p.fake.clone();
        p.end();
        assert!(fake.holds(there.as_ptr(), 100).is_empty());
    }
}
