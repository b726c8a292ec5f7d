//! Endpoints of type `FI_EP_DGRAM`: what is lost, and what its sender hears of it.

use crate::side::{Lot, Side};
use libfabric_fake::{Death, Fake, Shape};
use libfabric_sys::abi::*;
use libfabric_sys::calls::fi_sendmsg;

fn pair(fake: &Fake) -> (Side, Side, u64, u64) {
    let open = || Side::with(&fake.machine(&[]), FI_MSG | FI_SOURCE, FI_WAIT_NONE);
    let (a, b) = (open(), open());
    let (to_b, to_a) = (a.insert(&b.address()), b.insert(&a.address()));
    (a, b, to_b, to_a)
}

/// Sends by `fi_sendmsg`.
fn send_with(side: &Side, lot: &mut Lot, to: u64, flags: u64) -> isize {
    let segment = libc::iovec {
        iov_base: lot.bytes.as_mut_ptr().cast(),
        iov_len: lot.len,
    };
    let msg = fi_msg {
        msg_iov: &raw const segment,
        desc: std::ptr::null_mut(),
        iov_count: 1,
        addr: to,
        context: (&raw mut *lot.context).cast(),
        data: 0,
    };
    // SAFETY: an open endpoint; the lot outlives the operation.
    unsafe { fi_sendmsg(side.ep, &raw const msg, flags) }
}

#[test]
fn a_datagram_is_received_where_a_receive_is_posted_and_lost_where_not() {
    let fake = Fake::new(Shape::udp(), 1);
    let (mut a, mut b, to_b, _) = pair(&fake);
    let mut room = b.lot(100);
    assert_eq!(b.receive(&mut room), 0);
    let mut first = a.filled(b"first");
    let mut second = a.filled(b"second");
    assert_eq!(a.send(&mut first, to_b), 0);
    assert_eq!(a.send(&mut second, to_b), 0);
    let got = b.events();
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].context, got[0].len), (room.id(), 5));
    assert_eq!(&room.bytes[..5], b"first");
    // The sender knows nothing of it.
    let told: Vec<usize> = a.events().iter().map(|event| event.context).collect();
    assert_eq!(told, [first.id(), second.id()]);
    assert_eq!(fake.stats().lost, 1);
    a.close();
    b.close();
    fake.assert_clean();
    assert_eq!(fake.lent(), 0);
}

#[test]
fn a_send_to_a_killed_endpoint_completes() {
    let fake = Fake::new(Shape::udp(), 1);
    let (mut a, b, to_b, _) = pair(&fake);
    assert!(fake.kill(&b.address(), Death::Swallow));
    let mut lot = a.filled(b"hello!");
    assert_eq!(a.send(&mut lot, to_b), 0);
    assert_eq!(a.inject(b"hello?", to_b), 0);
    let told: Vec<usize> = a.events().iter().map(|event| event.context).collect();
    assert_eq!(told, [lot.id()]);
    a.close();
    b.close();
    fake.assert_clean();
}

#[test]
fn what_waits_for_more_goes_with_what_does_not() {
    let fake = Fake::new(Shape::udp(), 1);
    let (mut a, mut b, to_b, _) = pair(&fake);
    let mut rooms = [b.lot(10), b.lot(10)];
    for room in &mut rooms {
        assert_eq!(b.receive(room), 0);
    }
    let (mut first, mut second) = (a.filled(b"1"), a.filled(b"2"));
    assert_eq!(send_with(&a, &mut first, to_b, FI_COMPLETION | FI_MORE), 0);
    assert!(b.events().is_empty() && a.events().is_empty());
    assert_eq!(send_with(&a, &mut second, to_b, FI_COMPLETION), 0);
    assert_eq!((b.events().len(), a.events().len()), (2, 2));
    a.close();
    b.close();
    fake.assert_clean();
}

#[test]
fn a_queue_without_resource_management_is_not_given_too_much() {
    let shape = Shape {
        resource_mgmt: FI_RM_DISABLED,
        tx_depth: 1,
        ..Shape::udp()
    };
    let fake = Fake::new(shape, 1);
    let (mut a, b, to_b, _) = pair(&fake);
    let (mut first, mut second) = (a.filled(b"1"), a.filled(b"2"));
    assert_eq!(a.send(&mut first, to_b), 0);
    fake.assert_clean();
    assert_ne!(a.send(&mut second, to_b), 0);
    assert_eq!(fake.take_violations().len(), 1);
    a.inject(b"3", to_b);
    assert_eq!(fake.take_violations().len(), 1);
    a.close();
    b.close();
}
