//! RMA over made-up hardware, with everything that may go wrong.

use super::side::{Pair, Pieces, Side, pattern};
use crate::RdmOptions;
use crate::provider::Choice;
use crate::reading::Reading;
use crate::remote::Report;
use libfabric_fake::{Call, Fake, Faults, Shape};
use mx_port_fabric::regions;
use mx_proto::port::RemoteKey;
use mx_proto::{LinkId, Memory};
use std::sync::Arc;
use std::time::Duration;

/// Two machines on a made-up fabric.
fn made_up(shape: Shape, seed: u64) -> (Fake, Pair) {
    let options = RdmOptions {
        provider: Some(shape.provider.clone()),
        ..RdmOptions::default()
    };
    let fake = Fake::new(shape, seed);
    let side = |library: libfabric_sys::Library| {
        let library = Arc::new(library);
        let choice = Choice::make(&library, &options, Ok).unwrap();
        Side::open(&library, &choice)
    };
    let pair = Pair::new(
        side(fake.first().library()),
        side(fake.machine(&[]).library()),
    );
    (fake, pair)
}

/// Hardware of every kind that reads.
fn cards() -> Vec<Shape> {
    let shapes = vec![
        Shape::verbs_rxm(),
        Shape::cxi(),
        Shape::efa(),
        Shape::odd().with_mode(libfabric_sys::abi::FI_CONTEXT2, 0),
    ];
    shapes
}

fn finish(fake: Fake, pair: Pair) {
    drop(pair);
    assert_eq!(fake.open_objects(), Vec::<String>::new());
    fake.assert_clean();
}

fn transfer(pair: &mut Pair, from: &Pieces, into: &mut Pieces, token: u64) -> Option<bool> {
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let key = pair.a.try_register(at_a, from, token)?;
    let begun = pair.b.read(at_b, key, into, token).is_ok();
    if begun {
        pair.until("the read ends", |pair| pair.b.ended(at_b, token).is_some());
    }
    pair.a.deregister(at_a, key);
    begun.then(|| pair.b.ended(at_b, token) == Some(true))
}

#[test]
fn a_card_of_any_kind_reads_into_every_shape_of_memory() {
    for (seed, shape) in (1..).zip(cards()) {
        for rough in [false, true] {
            let name = shape.provider.clone();
            let (fake, mut pair) = made_up(shape.clone(), seed);
            if rough {
                fake.faults(|faults| *faults = Faults::rough());
            }
            let shapes: &[&[usize]] = &[
                &[32 << 10],
                &[9 << 20],
                &[1 << 20, (3 << 20) - 5, 5],
                &[100_000, 200_000, 300_000],
            ];
            for (token, into) in (1..).zip(shapes) {
                let mut into = pattern(7, into);
                let from = pattern(token as u8, &[into.len()]);
                let ok = transfer(&mut pair, &from, &mut into, token);
                assert_eq!(ok, Some(true), "{name} rough {rough} {token}");
                assert!(from.bytes() == into.bytes(), "{name} {token}");
            }
            assert_eq!((pair.a.ops.len(), pair.b.ops.len()), (0, 0));
            assert_eq!(fake.registered().0, 0, "{name}");
            assert!(!pair.a.remote.wants_renewal() && !pair.b.remote.wants_renewal());
            finish(fake, pair);
        }
    }
}

#[test]
fn several_segments_are_not_registered_with_a_card() {
    let (fake, mut pair) = made_up(Shape::verbs_rxm(), 1);
    let at_a = pair.at_a;
    let memory = pattern(1, &[1 << 20, 1 << 20]);
    assert!(pair.a.try_register(at_a, &memory, 1).is_none());
    finish(fake, pair);
}

#[test]
fn a_recall_keeps_the_card_from_writing_at_every_moment() {
    for (seed, shape) in (10..).zip(cards()) {
        let local = shape.mr_mode & libfabric_sys::abi::FI_MR_LOCAL != 0;
        for steps in 0..16 {
            let (fake, mut pair) = made_up(shape.clone(), seed);
            fake.faults(|faults| *faults = Faults::rough());
            let (at_a, at_b) = (pair.at_a, pair.at_b);
            let memory = pattern(1, &[6 << 20]);
            let key = pair.a.try_register(at_a, &memory, 1).unwrap();
            let mut into = pattern(2, &[4 << 20, 2 << 20]);
            pair.b.read(at_b, key, &mut into, 5).unwrap();
            // The peer does not move, so that pieces are really under way.
            for _ in 0..steps {
                pair.b.poll();
                if steps % 2 == 0 {
                    pair.a.poll();
                }
            }
            fake.faults(|faults| {
                faults.hold = 1.0;
                faults.revocable = true;
            });
            pair.b.recall(at_b, 5);
            assert!(!pair.b.remote.wants_renewal(), "{}", shape.provider);
            if !local {
                let held = into.0.iter();
                let held = held.flat_map(|piece| fake.holds(piece.as_ptr(), piece.len()));
                assert_eq!(held.collect::<Vec<_>>(), Vec::<String>::new());
            }
            let after = into.clone();
            let had = pair
                .b
                .reports
                .iter()
                .any(|report| matches!(report, Report::ReadDone { token: 5, .. }));
            pair.b.reports.clear();
            fake.faults(|faults| {
                *faults = Faults::none();
                faults.revocable = true;
            });
            (0..50).for_each(|_| pair.step());
            fake.assert_clean();
            assert!(into == after, "{} after {steps} polls", shape.provider);
            assert!(had || pair.b.ended(at_b, 5).is_none());
            assert_eq!(pair.b.remote.counts(), (0, 0));
            pair.a.deregister(at_a, key);
            assert_eq!(pair.a.remote.counts(), (0, 0));
            drop((pair, memory, into));
            assert_eq!(fake.open_objects(), Vec::<String>::new());
        }
    }
}

/// Pieces of a read, with token 5, are under way, of which a look leaves each as it is with probability `hold`. The memory
/// of both sides is the last.
fn reading(seed: u64, hold: f64) -> (Fake, Pair, RemoteKey, [Pieces; 2]) {
    let (fake, mut pair) = made_up(Shape::verbs_rxm(), seed);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let memory = pattern(1, &[8 << 20]);
    let mut into = pattern(2, &[8 << 20]);
    assert_eq!(transfer(&mut pair, &memory, &mut into, 1), Some(true));
    let key = pair.a.try_register(at_a, &memory, 2).unwrap();
    fake.faults(|faults| {
        faults.hold = hold;
        faults.revocable = true;
    });
    pair.b.read(at_b, key, &mut into, 5).unwrap();
    (fake, pair, key, [memory, into])
}

#[test]
fn a_recall_waits_for_pieces_that_come_where_ending_them_ends_the_connection() {
    let (fake, mut pair, key, _memory) = reading(3, 0.99);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    pair.b.recall(at_b, 5);
    fake.faults(|faults| faults.hold = 0.0);
    (0..50).for_each(|_| pair.step());
    assert_eq!((fake.stats().denied, pair.b.remote.counts()), (0, (0, 0)));
    let broken = Report::Broken { link: at_b };
    assert!(!pair.b.reports.contains(&broken));
    pair.a.deregister(at_a, key);
    finish(fake, pair);
}

#[test]
fn a_recall_that_waits_leaves_the_processor_to_others() {
    let (fake, mut pair, key, _memory) = reading(4, 1.0);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let before = fake.stats().looks;
    pair.b.recall(at_b, 5);
    let looks = fake.stats().looks - before;
    assert!(looks < 2000, "{looks} in a quarter of a second");
    fake.faults(|faults| faults.hold = 0.0);
    (0..50).for_each(|_| pair.step());
    assert!(pair.b.reports.contains(&Report::Broken { link: at_b }));
    pair.a.deregister(at_a, key);
    finish(fake, pair);
}

#[test]
fn a_read_that_is_stopped_ends_with_what_is_under_way() {
    for (seed, shape) in (30..).zip(cards()) {
        let name = shape.provider.clone();
        let (fake, mut pair) = made_up(shape, seed);
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[40 << 20]);
        let mut into = pattern(2, &[40 << 20]);
        let (mut first, one) = (pattern(3, &[1 << 20]), pattern(4, &[1 << 20]));
        assert_eq!(transfer(&mut pair, &one, &mut first, 1), Some(true));
        let key = pair.a.try_register(at_a, &memory, 2).unwrap();
        pair.b.read(at_b, key, &mut into, 5).unwrap();
        pair.b.stop_reading(at_b, 5);
        assert_eq!(pair.b.ended(at_b, 5), None, "{name}");
        pair.until("it ends", |pair| pair.b.ended(at_b, 5).is_some());
        assert_eq!(pair.b.ended(at_b, 5), Some(false), "{name}");
        assert!(memory.bytes() != into.bytes(), "{name}: all of it");
        assert_eq!((fake.stats().denied, pair.b.remote.counts()), (0, (0, 0)));
        let broken = Report::Broken { link: at_b };
        assert!(!pair.b.reports.contains(&broken));
        pair.a.deregister(at_a, key);
        finish(fake, pair);
    }
}

#[test]
fn a_read_that_fails_ends_the_link_where_it_ends_the_connection() {
    for (seed, shape) in (20..).zip(cards()) {
        let connected = shape.refusal_disconnects;
        let (fake, mut pair) = made_up(shape, seed);
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[1 << 20]);
        let key = pair.a.try_register(at_a, &memory, 1).unwrap();
        pair.a.deregister(at_a, key);
        let mut into = pattern(2, &[1 << 20]);
        pair.b.read(at_b, key, &mut into, 5).unwrap();
        pair.until("it fails", |pair| pair.b.ended(at_b, 5) == Some(false));
        let broken = Report::Broken { link: at_b };
        assert_eq!(pair.b.reports.contains(&broken), connected);
        finish(fake, pair);
    }
}

#[test]
fn what_is_deregistered_cannot_be_read_any_more() {
    for (seed, shape) in (20..).zip(cards()) {
        let (fake, mut pair) = made_up(shape, seed);
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[1 << 20]);
        let key = pair.a.try_register(at_a, &memory, 1).unwrap();
        pair.a.deregister(at_a, key);
        assert_eq!(fake.registered().0, 0);
        let mut into = pattern(2, &[1 << 20]);
        pair.b.read(at_b, key, &mut into, 5).unwrap();
        pair.until("it fails", |pair| pair.b.ended(at_b, 5) == Some(false));
        assert!(into == pattern(2, &[1 << 20]));
        assert!(fake.stats().denied > 0);
        drop(pair);
    }
}

#[test]
fn a_link_that_goes_down_leaves_no_registration() {
    for (seed, shape) in (30..).zip(cards()) {
        let (fake, mut pair) = made_up(shape, seed);
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[8 << 20]);
        let key = pair.a.try_register(at_a, &memory, 1).unwrap();
        let back = pair.b.try_register(at_b, &memory, 1);
        assert!(back.is_some());
        fake.faults(|faults| faults.revocable = true);
        let mut into = pattern(2, &[8 << 20]);
        pair.b.read(at_b, key, &mut into, 5).unwrap();
        pair.b.poll();
        pair.b.link_down(at_b);
        pair.a.link_down(at_a);
        assert!(!pair.b.remote.wants_renewal());
        assert_eq!(fake.registered().0, 0);
        assert_eq!(pair.b.remote.counts(), (0, 0));
        let after = into.clone();
        pair.b.reports.clear();
        (0..50).for_each(|_| pair.step());
        assert!(into == after);
        assert!(pair.b.reports.is_empty());
        assert_eq!(pair.b.bounce.taken(), 0);
        drop((pair, memory, into));
        assert_eq!(fake.open_objects(), Vec::<String>::new());
    }
}

#[test]
fn what_a_card_keeps_of_peers_that_are_gone_is_bounded() {
    let shape = Shape::cxi();
    let most = shape.tx_depth / 2;
    let (fake, mut pair) = made_up(shape, 1);
    let memory = Pieces(vec![vec![1; 2 << 20]]);
    let key = pair.a.register(pair.at_a, &memory, 1);
    let address = pair.b.domain.insert(pair.a.main.address()).unwrap();
    fake.faults(|faults| faults.hold = 1.0);
    let mut into = Pieces(vec![vec![2; 2 << 20]]);
    for life in 0.. {
        let link = LinkId::new(100 + life, 1);
        pair.b.remote.on_link_up(link, address);
        pair.b.read(link, key, &mut into, 5).unwrap();
        let before = pair.b.bounce.taken();
        pair.b.link_down(link);
        assert_eq!(
            fake.holds(into.0[0].as_ptr(), 2 << 20),
            Vec::<String>::new()
        );
        assert_eq!(pair.b.bounce.taken(), before);
        assert_eq!(pair.b.remote.wants_renewal(), before > most, "{before}");
        if before > most {
            break;
        }
    }
    drop(pair);
    assert_eq!(fake.open_objects(), Vec::<String>::new());
}

#[test]
fn without_memory_to_register_nothing_is_registered_and_reads_are_refused() {
    let (fake, mut pair) = made_up(Shape::verbs_rxm(), 3);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let memory = pattern(1, &[1 << 20]);
    let key = pair.a.try_register(at_a, &memory, 1).unwrap();
    fake.faults(|faults| faults.register_limit = Some(1));
    assert!(pair.a.try_register(at_a, &memory, 2).is_none());
    let mut into = pattern(2, &[1 << 20]);
    fake.faults(|faults| faults.register_limit = Some(0));
    assert!(pair.b.read(at_b, key, &mut into, 5).is_err());
    let mut cut = pattern(2, &[1 << 19, 1 << 19]);
    fake.faults(|faults| faults.register_limit = Some(1));
    assert!(pair.b.read(at_b, key, &mut cut, 6).is_err());
    assert_eq!(fake.registered().0, 1);
    fake.faults(|faults| faults.register_limit = None);
    pair.b.read(at_b, key, &mut cut, 7).unwrap();
    pair.until("it ends", |pair| pair.b.ended(at_b, 7) == Some(true));
    assert!(cut.bytes() == memory.bytes());
    pair.a.deregister(at_a, key);
    finish(fake, pair);
}

/// A buffer as an application has it from `memalloc`.
struct Given(*mut u8, usize);

impl Given {
    fn new(len: usize) -> Self {
        let start = regions::allocate(len).unwrap().cast();
        // SAFETY: `len` bytes, just allocated.
        unsafe { std::ptr::write_bytes(start, 9, len) };
        Self(start, len)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: initialised in `new`, and the test looks only while nothing is under way.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        assert!(regions::release(self.0.cast()));
    }
}

impl Memory for Given {
    fn len(&self) -> usize {
        self.1
    }

    fn visit(&self, offset: usize, len: usize, mut visitor: impl FnMut(&[u8])) {
        visitor(&self.bytes()[offset..offset + len]);
    }

    fn visit_mut(&mut self, offset: usize, len: usize, mut visitor: impl FnMut(&mut [u8])) {
        // SAFETY: as in `bytes`, and `&mut self` is the only way to it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.0, self.1) };
        visitor(&mut bytes[offset..offset + len]);
    }
}

#[test]
fn memory_of_memalloc_is_registered_once_and_let_go_of_when_freed() {
    let (fake, mut pair) = made_up(Shape::verbs_rxm(), 4);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let from = pattern(1, &[1 << 20]);
    let key = pair.a.try_register(at_a, &from, 1).unwrap();
    let mut into = Given::new(1 << 20);
    for token in 0..3 {
        pair.b.read(at_b, key, &mut into, token).unwrap();
        pair.until("it ends", |pair| pair.b.ended(at_b, token) == Some(true));
        assert!(from.bytes() == into.bytes());
        // The registration, and the one that is kept.
        assert_eq!(fake.registered().0, 2);
    }
    // Freed: the pages stay until the registration is gone, which the next poll sees to.
    drop(into);
    assert_eq!(fake.registered().0, 2);
    pair.step();
    assert_eq!(fake.registered().0, 1);
    // Freed while it is being read into: a mistake of the host.
    let mut into = Given::new(2 << 20);
    fake.faults(|faults| faults.hold = 1.0);
    let wide = pattern(2, &[2 << 20]);
    let other = pair.a.try_register(at_a, &wide, 2).unwrap();
    pair.b.read(at_b, other, &mut into, 10).unwrap();
    drop(into);
    (0..5).for_each(|_| pair.step());
    fake.faults(|faults| faults.hold = 0.0);
    pair.until("it ends", |pair| pair.b.ended(at_b, 10) == Some(true));
    pair.until("the registration goes", |_| fake.registered().0 == 2);
    pair.a.deregister(at_a, key);
    pair.a.deregister(at_a, other);
    assert_eq!(fake.registered().0, 0);
    finish(fake, pair);
}

#[test]
fn memory_that_was_unmapped_and_mapped_again_is_registered_anew() {
    let (fake, mut pair) = made_up(Shape::verbs_rxm(), 5);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let len = 1 << 20;
    let map = |at: *mut libc::c_void| {
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
        // SAFETY: fresh pages, or unused pages of this test's.
        let start = unsafe {
            libc::mmap(
                at,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        start
    };
    let start = map(std::ptr::null_mut());
    let from = pattern(1, &[len]);
    for token in 0..3 {
        let key = pair.a.try_register(at_a, &from, token).unwrap();
        let mut into = std::mem::ManuallyDrop::new(Given(start.cast(), len));
        pair.b.read(at_b, key, &mut *into, token).unwrap();
        pair.until("it ends", |pair| pair.b.ended(at_b, token) == Some(true));
        assert!(from.bytes() == into.bytes());
        pair.a.deregister(at_a, key);
        assert_eq!(fake.registered().0, 0);
        assert_eq!(map(start), start);
    }
    // SAFETY: mapped above, and not used any more.
    assert_eq!(unsafe { libc::munmap(start, len) }, 0);
    finish(fake, pair);
}

#[test]
fn kept_registrations_make_room_for_others() {
    let (fake, mut pair) = made_up(Shape::verbs_rxm(), 6);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let from = pattern(1, &[1 << 20]);
    let key = pair.a.try_register(at_a, &from, 1).unwrap();
    let mut buffers: Vec<Given> = (0..4).map(|_| Given::new(1 << 20)).collect();
    fake.faults(|faults| faults.register_limit = Some(2));
    for (token, into) in (0..).zip(&mut buffers) {
        pair.b.read(at_b, key, into, token).unwrap();
        pair.until("it ends", |pair| pair.b.ended(at_b, token) == Some(true));
        assert!(from.bytes() == into.bytes());
    }
    assert_eq!(fake.registered().0, 3);
    pair.a.deregister(at_a, key);
    drop(buffers);
    finish(fake, pair);
}

#[test]
fn a_read_whose_pieces_fail_ends_once_and_gives_everything_back() {
    for (seed, shape) in (40..).zip(cards()) {
        let (fake, mut pair) = made_up(shape, seed);
        let (at_a, at_b) = (pair.at_a, pair.at_b);
        let memory = pattern(1, &[20 << 20]);
        let key = pair.a.try_register(at_a, &memory, 1).unwrap();
        fake.faults(|faults| faults.error = 0.5);
        let mut into = pattern(2, &[20 << 20]);
        pair.b.read(at_b, key, &mut into, 5).unwrap();
        pair.until("it ends", |pair| pair.b.ended(at_b, 5).is_some());
        pair.step();
        (0..20).for_each(|_| pair.step());
        let ends = pair
            .b
            .reports
            .iter()
            .filter(|report| matches!(report, Report::ReadDone { .. }));
        assert_eq!(ends.count(), 1);
        assert_eq!(pair.b.ops.len(), 0);
        pair.a.deregister(at_a, key);
        assert_eq!(fake.registered().0, 0);
        finish(fake, pair);
    }
}

#[test]
fn reads_that_cannot_be_posted_fail_or_wait() {
    let (fake, mut pair) = made_up(Shape::cxi(), 7);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let memory = pattern(1, &[1 << 20]);
    let key = pair.a.try_register(at_a, &memory, 1).unwrap();
    let mut into = pattern(2, &[1 << 20]);
    fake.faults(|faults| {
        faults.refuse.insert(Call::Post, libc::EAGAIN);
    });
    pair.b.read(at_b, key, &mut into, 5).unwrap();
    (0..20).for_each(|_| pair.step());
    assert!(pair.b.ended(at_b, 5).is_none());
    assert!(pair.b.remote.deadline().is_some());
    fake.faults(|faults| faults.refuse.clear());
    pair.until("it ends", |pair| pair.b.ended(at_b, 5) == Some(true));
    assert!(memory.0 == into.0);
    fake.faults(|faults| {
        faults.refuse.insert(Call::Post, libc::EIO);
    });
    pair.b.read(at_b, key, &mut into, 6).unwrap();
    pair.until("it fails", |pair| pair.b.ended(at_b, 6) == Some(false));
    fake.faults(|faults| faults.refuse.clear());
    pair.a.deregister(at_a, key);
    finish(fake, pair);
}

#[test]
fn a_peer_that_is_read_hears_of_it_while_bytes_move_and_only_then() {
    let (fake, mut pair) = made_up(Shape::verbs_rxm(), 8);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    let memory = pattern(1, &[80 << 20]);
    let key = pair.a.try_register(at_a, &memory, 1).unwrap();
    let mut into = pattern(2, &[80 << 20]);
    pair.b.read(at_b, key, &mut into, 5).unwrap();
    pair.until("a piece arrives", |pair| !pair.b.reports.is_empty());
    fake.faults(|faults| faults.hold = 1.0);
    (0..20).for_each(|_| pair.step());
    pair.b.now = pair.b.now.after(Duration::from_secs(3));
    pair.step();
    let heard = |pair: &Pair| {
        let told = |report: &&Report| matches!(report, Report::Registered { token: 1, .. });
        pair.a.reports.iter().filter(told).count()
    };
    pair.step();
    assert_eq!(heard(&pair), 1);
    pair.b.now = pair.b.now.after(Duration::from_secs(3));
    (0..5).for_each(|_| pair.step());
    assert_eq!(heard(&pair), 1);
    // A stranger's word is none.
    for (link, key) in [
        (LinkId::new(8, 8), key),
        (
            at_a,
            RemoteKey {
                key: key.key ^ 1,
                ..key
            },
        ),
    ] {
        pair.a.remote.on_reading(link, Reading(key));
    }
    pair.step();
    assert_eq!(heard(&pair), 1);
    fake.faults(|faults| faults.hold = 0.0);
    pair.until("it ends", |pair| pair.b.ended(at_b, 5) == Some(true));
    pair.a.deregister(at_a, key);
    finish(fake, pair);
}
