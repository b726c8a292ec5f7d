//! RMA over made-up hardware, including everything that may fail.

use super::side::{Pair, Pieces, Side, pattern};
use crate::RdmOptions;
use crate::provider::Choice;
use crate::reading::Reading;
use crate::remote::{READ_MIN, Report};
use libfabric_fake::{Call, Fake, Faults, Shape};
use mx_port_fabric::regions;
use mx_proto::port::RemoteKey;
use mx_proto::{LinkId, Memory};
use std::sync::Arc;
use std::time::Duration;

/// Creates two machines on a made-up fabric.
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

/// Returns hardware of every kind that reads.
fn cards() -> Vec<Shape> {
    vec![
        Shape::verbs_rxm(),
        Shape::cxi(),
        Shape::efa(),
        Shape::odd().with_mode(libfabric_sys::abi::FI_CONTEXT2, 0),
    ]
}

/// Creates a pair, memory that the second may read with a key, and its destination.
fn offered(shape: Shape, seed: u64, len: usize) -> (Fake, Pair, RemoteKey, [Pieces; 2]) {
    let (fake, mut pair) = made_up(shape, seed);
    let [from, into] = [1, 2].map(|seed| pattern(seed, &[len]));
    let key = pair.a.register(pair.at_a, &from, 1).unwrap();
    (fake, pair, key, [from, into])
}

impl Pair {
    fn read<M: Memory>(&mut self, key: RemoteKey, into: &mut M, token: u64) {
        self.b.read(self.at_b, key, into, token).unwrap();
    }

    fn ended(&self, token: u64) -> Option<bool> {
        self.b.ended(self.at_b, token)
    }

    /// Waits for the end of the read; returns whether it succeeded.
    fn end(&mut self, token: u64) -> bool {
        self.until("the read ends", |pair| pair.ended(token).is_some());
        self.ended(token) == Some(true)
    }

    fn steps(&mut self, count: usize) {
        (0..count).for_each(|_| self.step());
    }

    fn is_broken(&self) -> bool {
        let broken = Report::Broken { link: self.at_b };
        self.b.reports.contains(&broken)
    }
}

/// Deregisters the keys and closes everything; checks that no rule was broken.
fn finish(fake: Fake, mut pair: Pair, keys: &[RemoteKey]) {
    for key in keys {
        pair.a.deregister(pair.at_a, *key);
    }
    assert_eq!(fake.registered().0, 0);
    drop(pair);
    assert_eq!(fake.open_objects(), Vec::<String>::new());
    fake.assert_clean();
}

fn refuse(fake: &Fake, error: i32) {
    fake.faults(|faults| {
        faults.refuse.insert(Call::Post, error);
    });
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
                let key = pair.a.register(pair.at_a, &from, token).unwrap();
                pair.read(key, &mut into, token);
                assert!(pair.end(token), "{name} rough {rough} {token}");
                pair.a.deregister(pair.at_a, key);
                assert!(from.bytes() == into.bytes(), "{name} {token}");
            }
            assert_eq!((pair.a.ops.len(), pair.b.ops.len()), (0, 0));
            assert!(!pair.a.remote.wants_renewal() && !pair.b.remote.wants_renewal());
            finish(fake, pair, &[]);
        }
    }
}

#[test]
fn lists_and_short_buffers_are_not_registered_or_read() {
    let (fake, mut pair, key, [_from, mut into]) = offered(Shape::verbs_rxm(), 1, 1 << 20);
    let (at_a, at_b) = (pair.at_a, pair.at_b);
    for (lens, fits) in [
        (&[1 << 20, 1 << 20][..], false),
        (&[READ_MIN - 1], false),
        (&[READ_MIN], true),
    ] {
        let memory = pattern(1, lens);
        let registered = pair.a.register(at_a, &memory, 2);
        assert_eq!(registered.is_some(), fits, "{lens:?}");
        if let Some(key) = registered {
            pair.a.deregister(at_a, key);
        }
    }
    let len = into.len();
    for (at, len, fits) in [
        (0, READ_MIN - 1, false),
        (1, len, false),
        (usize::MAX, READ_MIN, false),
        (len - READ_MIN, READ_MIN, true),
    ] {
        let begun = pair.b.read_part(at_b, key, &mut into, (at, len), 3);
        assert_eq!(begun.is_ok(), fits, "{len} bytes at {at}");
    }
    assert!(pair.end(3));
    finish(fake, pair, &[key]);
}

#[test]
fn unclosable_registration_requires_reopening() {
    let (fake, mut pair, key, _memory) = offered(Shape::cxi(), 1, 1 << 20);
    fake.faults(|faults| faults.close_busy = 1.0);
    pair.a.deregister(pair.at_a, key);
    assert!(pair.a.remote.wants_renewal());
    fake.faults(|faults| faults.close_busy = 0.0);
    drop(pair);
    assert_eq!(fake.open_objects(), Vec::<String>::new());
}

#[test]
fn completions_during_a_read_start_are_handled_in_it() {
    let (fake, mut pair, key, [_from, mut into]) = offered(Shape::verbs_rxm(), 1, 1 << 20);
    for token in [0, 1] {
        pair.read(key, &mut into, token);
        assert!(token == 1 || pair.end(token));
    }
    // Completions are found when the registration of a first segment does not close at once.
    fake.faults(|faults| (faults.close_busy, faults.register_limit) = (0.9, Some(2)));
    let mut cut = pattern(4, &[1 << 19, 1 << 19]);
    let begun = (0..200).any(|_| {
        let begun = pair.b.read(pair.at_b, key, &mut cut, 2).is_ok();
        assert!(pair.b.remote.events.met.is_empty());
        begun
    });
    assert!(begun, "the first one has ended on the way");
    fake.faults(|faults| *faults = Faults::none());
    assert!(pair.end(1) && pair.end(2));
    finish(fake, pair, &[key]);
}

#[test]
fn a_recall_keeps_the_card_from_writing_at_every_moment() {
    for (seed, shape) in (10..).zip(cards()) {
        let local = shape.mr_mode & libfabric_sys::abi::FI_MR_LOCAL != 0;
        for steps in 0..16 {
            let (fake, mut pair, key, [memory, _]) = offered(shape.clone(), seed, 6 << 20);
            fake.faults(|faults| *faults = Faults::rough());
            let (at_a, at_b) = (pair.at_a, pair.at_b);
            let mut into = pattern(2, &[4 << 20, 2 << 20]);
            pair.read(key, &mut into, 5);
            // The peer does not poll, so that pieces are really in flight.
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
            let had = pair.ended(5).is_some();
            pair.b.reports.clear();
            fake.faults(|faults| {
                *faults = Faults::none();
                faults.revocable = true;
            });
            pair.steps(50);
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

/// Recalls a read whose pieces are in flight; each queue read leaves each piece pending with probability `hold`.
/// Returns the number of queue reads in the recall, and whether the connection was given up.
fn recalled(seed: u64, hold: f64) -> (u64, bool) {
    let (fake, mut pair, key, [_from, mut into]) = offered(Shape::verbs_rxm(), seed, 8 << 20);
    pair.read(key, &mut into, 1);
    assert!(pair.end(1));
    fake.faults(|faults| (faults.hold, faults.revocable) = (hold, true));
    pair.read(key, &mut into, 5);
    let before = fake.stats().looks;
    pair.b.recall(pair.at_b, 5);
    let looks = fake.stats().looks - before;
    fake.faults(|faults| faults.hold = 0.0);
    pair.steps(50);
    let broken = pair.is_broken();
    let denied = fake.stats().denied > 0;
    assert!(!denied || broken);
    assert_eq!(pair.b.remote.counts(), (0, 0));
    finish(fake, pair, &[key]);
    (looks, broken)
}

#[test]
fn recall_waits_for_pieces_if_ending_them_ends_the_link() {
    assert!(!recalled(3, 0.99).1);
    // For pieces that never end, the recall yields the processor for a quarter of a second.
    let (looks, broken) = recalled(4, 1.0);
    assert!(looks < 2000 && broken, "{looks} looks");
}

#[test]
fn a_read_that_is_stopped_ends_with_what_is_under_way() {
    for (seed, shape) in (30..).zip(cards()) {
        let name = shape.provider.clone();
        let (fake, mut pair, key, [from, mut into]) = offered(shape, seed, 40 << 20);
        let mut first = pattern(3, &[1 << 20]);
        pair.b
            .read_part(pair.at_b, key, &mut first, (0, 1 << 20), 1)
            .unwrap();
        assert!(pair.end(1));
        pair.read(key, &mut into, 5);
        pair.b.stop_reading(pair.at_b, 5);
        assert_eq!(pair.ended(5), None, "{name}");
        assert!(!pair.end(5), "{name}");
        assert!(from.bytes() != into.bytes(), "{name}: all of it");
        assert_eq!((fake.stats().denied, pair.b.remote.counts()), (0, (0, 0)));
        assert!(!pair.is_broken());
        finish(fake, pair, &[key]);
    }
}

#[test]
fn deregistered_memory_is_unreadable_and_ends_the_link() {
    for (seed, shape) in (20..).zip(cards()) {
        let connected = shape.refusal_disconnects;
        let (fake, mut pair, key, [_from, mut into]) = offered(shape, seed, 1 << 20);
        pair.a.deregister(pair.at_a, key);
        assert_eq!(fake.registered().0, 0);
        pair.read(key, &mut into, 5);
        assert!(!pair.end(5) && fake.stats().denied > 0);
        assert!(into == pattern(2, &[1 << 20]));
        assert_eq!(pair.is_broken(), connected);
        finish(fake, pair, &[]);
    }
}

#[test]
fn a_link_that_goes_down_leaves_no_registration() {
    for (seed, shape) in (30..).zip(cards()) {
        let (fake, mut pair, key, [from, mut into]) = offered(shape, seed, 8 << 20);
        assert!(pair.b.register(pair.at_b, &from, 1).is_some());
        fake.faults(|faults| faults.revocable = true);
        pair.read(key, &mut into, 5);
        pair.b.poll();
        pair.b.link_down(pair.at_b);
        pair.a.link_down(pair.at_a);
        assert!(!pair.b.remote.wants_renewal());
        assert_eq!((fake.registered().0, pair.b.remote.counts()), (0, (0, 0)));
        let after = into.clone();
        pair.b.reports.clear();
        pair.steps(50);
        assert!(into == after && pair.b.reports.is_empty());
        assert_eq!(pair.b.bounce.taken(), 0);
        drop((pair, from, into));
        assert_eq!(fake.open_objects(), Vec::<String>::new());
    }
}

#[test]
fn what_a_card_keeps_of_peers_that_are_gone_is_bounded() {
    let shape = Shape::cxi();
    let most = shape.tx_depth / 2;
    let (fake, mut pair, key, [_from, mut into]) = offered(shape, 1, 2 << 20);
    let address = pair.b.domain.insert(pair.a.main.address()).unwrap();
    fake.faults(|faults| faults.hold = 1.0);
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
fn without_memory_nothing_is_registered_or_read() {
    let (fake, mut pair, key, [from, mut into]) = offered(Shape::verbs_rxm(), 3, 1 << 20);
    let limit = |most| fake.faults(|faults| faults.register_limit = most);
    limit(Some(1));
    assert!(pair.a.register(pair.at_a, &from, 2).is_none());
    limit(Some(0));
    assert!(pair.b.read(pair.at_b, key, &mut into, 5).is_err());
    let mut cut = pattern(2, &[1 << 19, 1 << 19]);
    limit(Some(1));
    assert!(pair.b.read(pair.at_b, key, &mut cut, 6).is_err());
    assert_eq!(fake.registered().0, 1);
    limit(None);
    pair.read(key, &mut cut, 7);
    assert!(pair.end(7) && cut.bytes() == from.bytes());
    finish(fake, pair, &[key]);
}

/// Buffer as allocated by an application with `memalloc`.
struct Given(*mut u8, usize);

impl Given {
    fn new(len: usize) -> Self {
        let start = regions::allocate(len).unwrap().cast();
        // SAFETY: `len` bytes, just allocated.
        unsafe { std::ptr::write_bytes(start, 9, len) };
        Self(start, len)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: initialised in `new`, and the test reads only while nothing is in flight.
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
        // SAFETY: as in `bytes`, and `&mut self` is the only access.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.0, self.1) };
        visitor(&mut bytes[offset..offset + len]);
    }
}

#[test]
fn memalloc_memory_is_registered_once_until_freed() {
    let (fake, mut pair, key, [from, _]) = offered(Shape::verbs_rxm(), 4, 1 << 20);
    let mut into = Given::new(1 << 20);
    for token in 0..3 {
        pair.read(key, &mut into, token);
        assert!(pair.end(token) && from.bytes() == into.bytes());
        // The peer's registration, and the cached one.
        assert_eq!(fake.registered().0, 2);
    }
    // The pages stay until the next poll closes the registration of the freed memory.
    drop(into);
    assert_eq!(fake.registered().0, 2);
    pair.step();
    assert_eq!(fake.registered().0, 1);
    // Freed while it is being read into: a bug of the host.
    let mut into = Given::new(2 << 20);
    fake.faults(|faults| faults.hold = 1.0);
    let wide = pattern(2, &[2 << 20]);
    let other = pair.a.register(pair.at_a, &wide, 2).unwrap();
    pair.read(other, &mut into, 10);
    drop(into);
    pair.steps(5);
    fake.faults(|faults| faults.hold = 0.0);
    assert!(pair.end(10));
    pair.until("the registration goes", |_| fake.registered().0 == 2);
    finish(fake, pair, &[key, other]);
}

#[test]
fn remapped_memory_is_registered_anew() {
    let (fake, mut pair) = made_up(Shape::verbs_rxm(), 5);
    let len = 1 << 20;
    let map = |at: *mut libc::c_void| {
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: fresh pages, or unused pages of this test.
        let start = unsafe { libc::mmap(at, len, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        start
    };
    let start = map(std::ptr::null_mut());
    let from = pattern(1, &[len]);
    for token in 0..3 {
        let key = pair.a.register(pair.at_a, &from, token).unwrap();
        let mut into = std::mem::ManuallyDrop::new(Given(start.cast(), len));
        pair.read(key, &mut *into, token);
        assert!(pair.end(token) && from.bytes() == into.bytes());
        pair.a.deregister(pair.at_a, key);
        assert_eq!(fake.registered().0, 0);
        assert_eq!(map(start), start);
    }
    // SAFETY: mapped above, and no longer used.
    assert_eq!(unsafe { libc::munmap(start, len) }, 0);
    finish(fake, pair, &[]);
}

#[test]
fn kept_registrations_make_room_for_others() {
    let (fake, mut pair, key, [from, _]) = offered(Shape::verbs_rxm(), 6, 1 << 20);
    let mut buffers: Vec<Given> = (0..4).map(|_| Given::new(1 << 20)).collect();
    fake.faults(|faults| faults.register_limit = Some(2));
    for (token, into) in (0..).zip(&mut buffers) {
        pair.read(key, into, token);
        assert!(pair.end(token) && from.bytes() == into.bytes());
    }
    assert_eq!(fake.registered().0, 3);
    pair.a.deregister(pair.at_a, key);
    drop((buffers, pair));
    fake.assert_clean();
}

#[test]
fn failed_read_ends_once_and_releases_everything() {
    for (seed, shape) in (40..).zip(cards()) {
        let (fake, mut pair, key, [_from, mut into]) = offered(shape, seed, 20 << 20);
        fake.faults(|faults| faults.error = 0.5);
        pair.read(key, &mut into, 5);
        pair.end(5);
        pair.steps(21);
        let done = |report: &&Report| matches!(report, Report::ReadDone { .. });
        assert_eq!(pair.b.reports.iter().filter(done).count(), 1);
        assert_eq!(pair.b.ops.len(), 0);
        finish(fake, pair, &[key]);
    }
}

#[test]
fn reads_that_cannot_be_posted_fail_or_wait() {
    let (fake, mut pair, key, [from, mut into]) = offered(Shape::cxi(), 7, 1 << 20);
    refuse(&fake, libc::EAGAIN);
    pair.read(key, &mut into, 5);
    pair.steps(20);
    assert!(pair.ended(5).is_none() && pair.b.remote.deadline().is_some());
    fake.faults(|faults| faults.refuse.clear());
    assert!(pair.end(5) && from.0 == into.0);
    refuse(&fake, libc::EIO);
    pair.read(key, &mut into, 6);
    assert!(!pair.end(6));
    fake.faults(|faults| faults.refuse.clear());
    finish(fake, pair, &[key]);
}

#[test]
fn reader_signals_only_while_bytes_move() {
    let (fake, mut pair, key, [_from, mut into]) = offered(Shape::verbs_rxm(), 8, 80 << 20);
    let at_a = pair.at_a;
    pair.read(key, &mut into, 5);
    pair.until("a piece arrives", |pair| !pair.b.reports.is_empty());
    fake.faults(|faults| faults.hold = 1.0);
    pair.steps(20);
    let heard = |pair: &Pair| {
        let told = |report: &&Report| matches!(report, Report::Registered { token: 1, .. });
        pair.a.reports.iter().filter(told).count()
    };
    for steps in [2, 5] {
        pair.b.now = pair.b.now.after(Duration::from_secs(3));
        pair.steps(steps);
        assert_eq!(heard(&pair), 1);
    }
    // Reports of strangers are ignored.
    let mut wrong = key;
    wrong.key ^= 1;
    for (link, key) in [(LinkId::new(8, 8), key), (at_a, wrong)] {
        pair.a.remote.on_reading(link, Reading(key));
    }
    pair.step();
    assert_eq!(heard(&pair), 1);
    fake.faults(|faults| faults.hold = 0.0);
    assert!(pair.end(5));
    finish(fake, pair, &[key]);
}
