use super::{ChunkedStorage, List, ListKind, OpStorage, Ops, Record, State};
use crate::event::{Arrival, Outcome, Verdict};
use crate::ids::{MatchBits, RequestId};
use crate::memory::Source;
use crate::op_states::Stage;
use crate::owner::{Events, Owner};
use crate::queues::QueuePosition;
use crate::timeouts::{TimeOuts, Timeout};
use mx_sim::Rng;
use std::rc::Rc;

const FOR_EVER: TimeOuts = TimeOuts {
    transfer: Timeout::FOR_EVER,
    waiting: Timeout::FOR_EVER,
};

type Memory = Tracked;

#[derive(Debug)]
struct Tracked(#[expect(dead_code, reason = "it counts")] Rc<()>);

impl crate::memory::Memory for Tracked {
    fn len(&self) -> usize {
        1
    }

    fn visit(&self, _: usize, _: usize, _: impl FnMut(&[u8])) {}

    fn visit_mut(&mut self, _: usize, _: usize, _: impl FnMut(&mut [u8])) {}
}

/// An owner whose freed slots are reused after `N` others; it ignores all reports.
#[derive(Debug)]
struct Delayed<const N: u32>;

impl<const N: u32> Owner for Delayed<N> {
    type Memory = Memory;
    type OpData = u64;
    type OwnerEvent = ();
    type OpStorage = Rested<N>;

    fn completed(&mut self, _: &mut Ops<Self>, _: &mut Events<Self>, _: RequestId, _: Outcome) {}

    fn arrived<B: Source + ?Sized>(
        &mut self,
        _: &mut Events<Self>,
        _: &Arrival,
        _: Option<&B>,
    ) -> Verdict {
        Verdict::Continue
    }
}

/// Chunked storage that tracks slots in use, and is bounded.
#[derive(Debug, Default)]
struct Rested<const N: u32> {
    chunks: ChunkedStorage<Memory, u64, MOST>,
    used: Vec<bool>,
}

const MOST: u32 = 256;

impl<const N: u32> OpStorage<Memory, u64> for Rested<N> {
    fn reuse_delay(&self) -> u32 {
        N
    }

    fn len(&self) -> u32 {
        self.chunks.len()
    }

    fn grow(&mut self) -> bool {
        self.chunks.grow()
    }

    fn record(&self, place: u32) -> &Record<Memory> {
        self.chunks.record(place)
    }

    fn record_mut(&mut self, place: u32) -> &mut Record<Memory> {
        self.chunks.record_mut(place)
    }

    fn data(&self, place: u32) -> &u64 {
        self.chunks.data(place)
    }

    fn data_mut(&mut self, place: u32) -> &mut u64 {
        self.chunks.data_mut(place)
    }

    fn on_use<R>(
        &mut self,
        place: u32,
        begin: impl FnOnce() -> (R, u64),
    ) -> (R, &mut Record<Memory>) {
        self.used.resize(self.len() as usize, false);
        assert!(!std::mem::replace(&mut self.used[place as usize], true));
        self.chunks.on_use(place, begin)
    }

    fn on_free(&mut self, place: u32) -> &mut Record<Memory> {
        assert!(std::mem::replace(&mut self.used[place as usize], false));
        self.chunks.on_free(place)
    }
}

/// Reference for a list: a vector with the same content.
#[derive(Default)]
struct Model {
    list: List,
    all: Vec<RequestId>,
}

impl Model {
    fn join<const N: u32>(&mut self, ops: &mut Ops<Delayed<N>>, strand: ListKind, id: RequestId) {
        ops.join(strand, &mut self.list, id.index());
        self.all.push(id);
    }

    fn leave<const N: u32>(&mut self, ops: &mut Ops<Delayed<N>>, strand: ListKind, id: RequestId) {
        let before = self.all.len();
        self.all.retain(|other| *other != id);
        if self.all.len() < before {
            ops.leave(strand, &mut self.list, id.index());
        }
    }

    fn check<const N: u32>(&self, ops: &Ops<Delayed<N>>, strand: ListKind) {
        assert_eq!(self.list.len(), self.all.len());
        assert_eq!(self.list.is_empty(), self.all.is_empty());
        assert!(ops.of_list(strand, &self.list).eq(self.all.iter().copied()));
        assert_eq!(ops.first(&self.list), self.all.first().copied());
    }
}

/// Runs random steps against the simplest correct model.
fn random_steps<const N: u32>(rng: &mut Rng) {
    let mut ops = Ops::<Delayed<N>>::default();
    let (mut live, mut done, mut stale) = (Vec::new(), Vec::new(), Vec::new());
    let mut own: [Model; 2] = Default::default();
    let mut kin: [Model; 2] = Default::default();
    let mut finished = Model::default();
    let memory = Rc::new(());
    let most = rng.below(400);
    for n in 0..rng.below(600) {
        let step = rng.below(8);
        match step {
            0..3 if live.len() as u64 <= most => {
                let memory = Tracked(Rc::clone(&memory));
                let stand = QueuePosition::NOWHERE;
                let state = State::Queued { memory, stand };
                let bits = MatchBits(n);
                let Some(id) = ops.add(n, bits, FOR_EVER, state) else {
                    assert_eq!(live.len() + done.len(), MOST as usize);
                    continue;
                };
                assert_eq!(ops.data(id), Some(&n));
                live.push(id);
                own[rng.index(2)].join(&mut ops, ListKind::State, id);
                if rng.below(2) == 0 {
                    kin[rng.index(2)].join(&mut ops, ListKind::Remote, id);
                }
            }
            3..5 if !live.is_empty() => {
                let id = live.swap_remove(rng.index(live.len()));
                own.iter_mut()
                    .for_each(|list| list.leave(&mut ops, ListKind::State, id));
                kin.iter_mut()
                    .for_each(|list| list.leave(&mut ops, ListKind::Remote, id));
                assert!(!ops.free(id) && !ops.append(&mut finished.list, id));
                assert!(ops.finish(id) && !ops.finish(id));
                assert!(ops.get(id).is_none() && ops.is_done(id) && ops.data(id).is_some());
                let at = rng.index(finished.all.len() + 1);
                match finished.all.get(at) {
                    Some(behind) => ops.insert_completed(&mut finished.list, id, *behind),
                    None => assert!(ops.append(&mut finished.list, id)),
                }
                finished.all.insert(at, id);
                done.push(id);
            }
            5 if !done.is_empty() => {
                let oldest = finished.all.remove(0);
                let got = ops.pop(&mut finished.list, |_, place| place);
                assert_eq!(got, Some(oldest.index()));
                done.retain(|other| *other != oldest);
                stale.push(oldest);
            }
            6 if !done.is_empty() => {
                let id = done.swap_remove(rng.index(done.len()));
                ops.remove(&mut finished.list, id);
                finished.all.retain(|other| *other != id);
                assert!(ops.free(id) && !ops.free(id));
                stale.push(id);
            }
            _ if !live.is_empty() => {
                // An operation moves to the end of another list.
                let id = live[rng.index(live.len())];
                own.iter_mut()
                    .for_each(|list| list.leave(&mut ops, ListKind::State, id));
                own[rng.index(2)].join(&mut ops, ListKind::State, id);
            }
            _ => {}
        }
        own.iter()
            .for_each(|list| list.check(&ops, ListKind::State));
        kin.iter()
            .for_each(|list| list.check(&ops, ListKind::Remote));
        finished.check(&ops, ListKind::State);
        assert_eq!(ops.under_way(), live.len());
        assert_eq!(Rc::strong_count(&memory), 1 + live.len());
        let mut all: Vec<_> = ops.iter().map(|(id, _)| id).collect();
        let mut expected = live.clone();
        all.sort_unstable();
        expected.sort_unstable();
        assert_eq!(all, expected);
        let used = ops.places().used.iter().filter(|used| **used).count();
        assert_eq!(used, live.len() + done.len());
        let stale = stale.iter().rev().take(20);
        assert!(stale.clone().all(|id| ops.data(*id).is_none()));
        assert!(stale.copied().all(|id| !ops.finish(id) && !ops.free(id)));
    }
}

#[test]
fn operations_and_lists_stay_consistent_in_random_steps() {
    mx_sim::seeds::each(300, |seed| {
        let mut rng = Rng::new(seed);
        random_steps::<0>(&mut rng);
        random_steps::<7>(&mut rng);
    });
}

/// Makes an operation and ends it.
fn spent<const N: u32>(ops: &mut Ops<Delayed<N>>) -> Option<RequestId> {
    let state = State::Connecting { key: 0 };
    let id = ops.add(0, MatchBits(0), FOR_EVER, state)?;
    assert_eq!(
        ops.get(id).map(|record| record.state.stage()),
        Some(Stage::Connecting)
    );
    assert!(ops.finish(id) && ops.free(id));
    Some(id)
}

#[test]
fn freed_place_is_reused_after_others_and_bad_ids_are_none() {
    let mut ops = Ops::<Delayed<32>>::default();
    let first = spent(&mut ops).unwrap();
    for n in 0..200 {
        let next = spent(&mut ops).unwrap();
        assert_ne!(next, first);
        assert!(n >= 32 || next.index() != first.index());
    }
    let mut ops = Ops::<Delayed<0>>::default();
    let (first, second) = (spent(&mut ops).unwrap(), spent(&mut ops).unwrap());
    assert_eq!(first.index(), second.index());
    for forged in [
        RequestId::new(first.index(), 0),
        RequestId::new(u32::MAX, 1),
        RequestId::new(u32::MAX, 0),
        RequestId::new(64, 1),
        first,
    ] {
        assert!(ops.get(forged).is_none() && ops.data(forged).is_none());
        assert!(!ops.finish(forged) && !ops.free(forged));
    }
}

#[test]
fn generations_wrap_without_high_bit_and_zero() {
    let mut ops = Ops::<Delayed<0>>::default();
    ops.next_generation = u32::MAX >> 1;
    let last = spent(&mut ops).unwrap();
    let first = spent(&mut ops).unwrap();
    assert_eq!(last.generation(), u32::MAX >> 1);
    assert_eq!(first.generation(), 1);
    let mut others = Ops::<Delayed<0>>::default();
    others.begin_with(ops.next_generation());
    assert_eq!(spent(&mut others).unwrap().generation(), 2);
    others.begin_with(0);
    assert_eq!(spent(&mut others).unwrap().generation(), 1);
}

#[test]
fn operation_complete_at_post_keeps_its_place_until_freed() {
    let mut ops = Ops::<Delayed<0>>::default();
    let all: Vec<_> = std::iter::from_fn(|| ops.add_done(7)).collect();
    assert_eq!((all.len(), ops.in_use()), (MOST as usize, MOST as usize));
    assert_eq!((ops.under_way(), ops.iter().count()), (0, 0));
    for id in &all {
        assert!(ops.is_done(*id) && ops.get(*id).is_none() && !ops.finish(*id));
        assert_eq!(ops.data(*id), Some(&7));
        *ops.data_mut(*id).unwrap() = 8;
        assert_eq!(ops.data(*id), Some(&8));
        assert!(ops.free(*id) && !ops.free(*id));
    }
    assert_eq!(ops.in_use(), 0);
}

#[test]
fn records_do_not_move() {
    let mut places = ChunkedStorage::<Memory, u64>::default();
    assert!(places.is_empty() && places.grow());
    let at = |places: &ChunkedStorage<Memory, u64>| std::ptr::from_ref(places.record(63)).addr();
    let before = at(&places);
    for n in 1..100 {
        assert!(places.grow());
        assert_eq!(places.len(), (n + 1) * 64);
        *places.data_mut(n * 64) = n.into();
    }
    assert_eq!((at(&places), *places.data(99 * 64)), (before, 99));
}
