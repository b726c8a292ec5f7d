//! Rules of opening, binding, enabling and closing; addresses.
//!
//! ```text
//!   fabric > domain > queue, vector > endpoint    and back
//! ```

use crate::side::*;
use libfabric_fake::{Call, Fake, Machine};
use libfabric_sys::abi::*;
use libfabric_sys::calls::*;

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
        assert_eq!(close(object), -FI_EBUSY);
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
    assert_eq!(inject(ep, &[1], to_b), -(FI_EBADF as isize));
    noticed(&fake, "fi_inject of endpoint");
    assert_eq!(close(ep), -FI_EBADF);
    noticed(&fake, "which is closed");
    end(&fake, [a, b]);
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
    assert_eq!(bind(ep, side.av, 0), 0);
    assert_eq!(enable(ep), 0);
    assert!(bind(ep, side.av, 0) < 0);
    noticed(&fake, "which is enabled");
    assert_eq!(close(ep), 0);
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
    let mut gone = from_a;
    // SAFETY: an open vector and one handle; so below.
    assert_eq!(unsafe { fi_av_remove(b.av, &raw mut gone, 1, 0) }, 0);
    // SAFETY: as above.
    assert!(unsafe { fi_av_remove(b.av, &raw mut gone, 1, 0) } < 0);
    noticed(&fake, "fi_av_remove");
    // Removed there, the sender is unknown; its messages come all the same.
    assert_eq!(b.receive(&mut into), 0);
    assert_eq!(a.inject(&[1], to_b), 0);
    assert_eq!(b.events()[0].error, 0);
    end(&fake, [a, b]);
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
        let ep = unbound(b.domain, info);
        assert_eq!(bind(ep, b.cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(bind(ep, b.av, 0), 0);
        ep
    };
    let ep = again(&b);
    assert_eq!(enable(ep), -FI_EADDRINUSE);
    let mut b = b;
    b.close_endpoint();
    assert_eq!(a.inject(&[1], to_b), -(FI_EAGAIN as isize));
    assert_eq!(enable(ep), 0);
    assert_eq!(a.inject(&[1], to_b), 0);
    b.ep = ep;
    assert_eq!(b.address(), address);
    end(&fake, [a, b]);
}
