//! Tests of the queue against simple models of it.

use super::*;
use crate::matching::KEPT_MAX;
use mx_sim::Rng;

fn come_offered(store: &mut UnexpectedQueue<u32>, source: u32, bits: u64, send_id: u64) -> EntryId {
    let what = (RemoteId::new(source, 1), MatchBits(bits), 1);
    let body = Body::AtSender(None);
    let id = store.add(UnexpectedMessage::new(
        what,
        Payment::Credits(1),
        Some(send_id),
        body,
    ));
    store.await_receive(id);
    id
}

fn receive(
    store: &mut UnexpectedQueue<u32>,
    bits: u64,
    mask: MatchMask,
) -> Option<UnexpectedMessage<u32>> {
    let id = store.front(MatchBits(bits), mask)?;
    Some(store.remove(id)?.0)
}

fn withdraw(
    store: &mut UnexpectedQueue<u32>,
    source: u32,
    send_id: u64,
) -> Option<UnexpectedMessage<u32>> {
    match store.names.get(&(RemoteId::new(source, 1), send_id)) {
        Some(OfferTarget::Unexpected(id)) => Some(store.remove(*id)?.0),
        _ => None,
    }
}

#[test]
fn a_withdrawn_offer_is_found_by_its_id() {
    let mut unexpected = UnexpectedQueue::default();
    come_offered(&mut unexpected, 3, 1, 42);
    assert!(withdraw(&mut unexpected, 4, 42).is_none());
    assert!(withdraw(&mut unexpected, 3, 41).is_none());
    assert!(withdraw(&mut unexpected, 3, 42).is_some());
    assert!(unexpected.messages.is_empty() && unexpected.names.is_empty());
}

#[test]
fn younger_of_two_offers_with_one_name_wins_it() {
    let mut unexpected = UnexpectedQueue::default();
    for bits in [1, 2, 3] {
        come_offered(&mut unexpected, 3, bits, 42);
    }
    assert!(receive(&mut unexpected, 1, MatchMask::EXACT).is_some());
    let withdrawn = withdraw(&mut unexpected, 3, 42);
    assert_eq!(withdrawn.map(|it| it.bits), Some(MatchBits(3)));
    assert!(withdraw(&mut unexpected, 3, 42).is_none());
    assert!(receive(&mut unexpected, 2, MatchMask::EXACT).is_some());
    assert!(unexpected.messages.is_empty() && unexpected.names.is_empty());
}

/// Reference model of the other stages: a message.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    id: EntryId,
    source: u64,
    bits: u64,
    name: Option<u64>,
    stage: Stage,
    previewed: bool,
}

fn compare(
    store: &UnexpectedQueue<u32>,
    seen: &[Seen],
    undecided: &[EntryId],
    unexpected: &[EntryId],
) {
    for of in 0..8 {
        let theirs = seen.iter().filter(|it| it.source == of).map(|it| it.id);
        let found = store.of(RemoteId::new(of as u32, 1)).map(|(id, _)| id);
        assert_eq!(found.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
        let theirs = |it: &&Seen| it.source == of && it.stage == Stage::Unexpected;
        let held = seen.iter().filter(theirs).count() as u32;
        assert_eq!(store.held_of(RemoteId::new(of as u32, 1)), held);
    }
    let names = seen.iter().filter_map(|it| Some((it.name?, it.id)));
    assert_eq!(store.names.len(), names.clone().count());
    for (name, id) in names {
        let named = store.names.iter().find(|((_, of), _)| *of == name);
        assert_eq!(named.map(|it| *it.1), Some(OfferTarget::Unexpected(id)));
    }
    let of = |id: &EntryId| seen.iter().find(|it| it.id == *id).unwrap();
    let out = seen
        .iter()
        .find(|it| it.stage == Stage::Out)
        .map(|it| it.id);
    assert_eq!(store.out(), out);
    let waits = |it: &&EntryId| {
        let previews = |other: &Seen| other.source == of(it).source && other.previewed;
        out.is_none() && !seen.iter().any(previews)
    };
    assert_eq!(
        store.next_undecided().as_ref(),
        undecided.iter().find(waits)
    );
    let oldest = undecided.first().filter(|_| out.is_none());
    assert_eq!(store.oldest_undecided().as_ref(), oldest);
    let count = undecided.len() + usize::from(out.is_some());
    assert_eq!(
        (store.undecided(), store.unexpected()),
        (count, unexpected.len())
    );
    let complete = |it: &&Seen| it.name.is_none() && it.stage != Stage::Streamed;
    assert_eq!(store.bytes(), seen.iter().filter(complete).count());
    assert_eq!(store.len(), seen.len());
}

#[test]
fn whatever_comes_and_goes_each_view_has_those_that_it_should() {
    mx_sim::seeds::each(1_000, |seed| {
        let mut rng = Rng::new(seed);
        let mut store = UnexpectedQueue::<u32>::default();
        // In the order of arrival, except those that got another source; and in that of each stage.
        let (mut seen, mut undecided, mut unexpected) = (Vec::<Seen>::new(), vec![], vec![]);
        for n in 0..rng.below(150) {
            let some = (!seen.is_empty()).then(|| rng.index(seen.len().max(1)));
            match rng.below(10) {
                0..4 => {
                    let (source, bits, offered) = (rng.below(4), rng.below(4), rng.chance(0.5));
                    let (name, body) = if offered {
                        (Some(n), Body::AtSender(None))
                    } else {
                        (None, Body::Bytes(vec![1]))
                    };
                    let what = (RemoteId::new(source as u32, 1), MatchBits(bits), 1);
                    let id = store.add(UnexpectedMessage::new(
                        what,
                        Payment::Credits(1),
                        name,
                        body,
                    ));
                    let (stage, previewed) = (Stage::Streamed, false);
                    seen.push(Seen {
                        id,
                        source,
                        bits,
                        name,
                        stage,
                        previewed,
                    });
                }
                4 | 5 => {
                    let Some(at) = some else { continue };
                    let it = &mut seen[at];
                    match (it.stage, rng.chance(0.5)) {
                        (Stage::Streamed, true) => {
                            store.defer(it.id);
                            undecided.push(it.id);
                            it.stage = Stage::Undecided;
                        }
                        (Stage::Streamed | Stage::Undecided | Stage::Out, _) => {
                            if it.previewed {
                                store.end(it.id, Body::Unavailable);
                            }
                            undecided.retain(|id| *id != it.id);
                            store.await_receive(it.id);
                            unexpected.push(it.id);
                            (it.stage, it.previewed) = (Stage::Unexpected, false);
                        }
                        _ => {}
                    }
                }
                6 => {
                    let Some(next) = store.next_undecided() else {
                        continue;
                    };
                    let it = seen.iter_mut().find(|it| it.id == next).unwrap();
                    if it.name.is_some() && rng.chance(0.7) && store.get(next).unwrap().is_there() {
                        store.begin(next, RequestId::new(n as u32, 1), 0);
                        it.previewed = true;
                        continue;
                    }
                    let bytes = store.show(next);
                    assert_eq!(bytes.is_some(), it.name.is_none());
                    undecided.retain(|id| *id != next);
                    it.stage = Stage::Out;
                }
                7 => {
                    let (bits, mask) = (rng.below(4), MatchMask(rng.below(4)));
                    let of = |id: &EntryId| seen.iter().position(|it| it.id == *id).unwrap();
                    let agrees = |id: &&EntryId| (seen[of(id)].bits ^ bits) & mask.0 == 0;
                    let oldest = unexpected.iter().find(agrees).copied();
                    let found = store.front(MatchBits(mask.0 & bits), mask);
                    assert_eq!(found, oldest);
                    if let Some(id) = found {
                        seen.remove(of(&id));
                        unexpected.retain(|other| *other != id);
                        assert!(store.remove(id).is_some() && store.remove(id).is_none());
                    }
                }
                8 => {
                    let Some(at) = some.filter(|at| seen[*at].name.is_none()) else {
                        continue;
                    };
                    let mut it = seen.remove(at);
                    it.source = 4 + rng.below(4);
                    store.rename(it.id, RemoteId::new(it.source as u32, 1));
                    seen.push(it);
                }
                _ => {
                    let Some(at) = some.filter(|at| !seen[*at].previewed) else {
                        continue;
                    };
                    let it = seen.remove(at);
                    undecided.retain(|id| *id != it.id);
                    unexpected.retain(|id| *id != it.id);
                    assert!(store.remove(it.id).is_some());
                }
            }
            compare(&store, &seen, &undecided, &unexpected);
        }
    });
}

/// Reference model of turns: a message.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    place: EntryId,
    source: u32,
    length: u32,
    state: State,
    ready: bool,
    gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Whole,
    Offered,
    Coming,
}

/// Model of the queue: lists that are searched from the front.
#[derive(Default)]
struct Model {
    turns: Vec<Vec<Known>>,
    rotation: Vec<u32>,
    line: Vec<u32>,
    ready: u64,
}

impl Model {
    fn see(&mut self) {
        for turn in 0..self.turns.len() as u32 {
            let list = &mut self.turns[turn as usize];
            let here = list
                .iter()
                .take_while(|it| it.state == State::Whole)
                .count();
            for it in list[..here].iter_mut().filter(|it| !it.ready) {
                it.ready = true;
                self.ready += 1;
            }
            let offered = list.get(here).is_some_and(|it| it.state == State::Offered);
            for (all, stands) in [(&mut self.rotation, here > 0), (&mut self.line, offered)] {
                match all.iter().position(|other| *other == turn) {
                    Some(at) if !stands => drop(all.remove(at)),
                    None if stands => all.push(turn),
                    _ => {}
                }
            }
        }
    }

    fn find(&mut self, place: EntryId) -> (u32, usize) {
        let mut all = (0..).zip(&self.turns);
        let found = all.find_map(|(turn, list)| {
            let at = list.iter().position(|it| it.place == place)?;
            Some((turn, at))
        });
        found.expect("it is there")
    }

    fn check(&self, inbox: &UnexpectedQueue<u32>) {
        let all = || self.turns.iter().flatten();
        assert_eq!(inbox.len(), all().count());
        assert_eq!(inbox.turn(), self.rotation.first().copied());
        let numbers = |chains: &Chains, ends| -> Vec<u32> {
            let slots = chains.walk(ends);
            slots
                .map(|slot| inbox.turns.all[slot as usize].number)
                .collect()
        };
        assert_eq!(
            numbers(&inbox.turns.rotating, inbox.turns.rotation),
            self.rotation
        );
        let line = numbers(&inbox.turns.lined, inbox.turns.line);
        let stats = inbox.inbox_stats();
        assert_eq!((&line, stats.waiting), (&self.line, line.len()));
        let fetch = self.line.first().map(|turn| {
            let mut list = self.turns[*turn as usize].iter();
            list.find(|it| it.state != State::Whole).unwrap().place
        });
        assert_eq!(inbox.to_fetch(), fetch);
        assert_eq!(inbox.ready(), all().filter(|it| it.ready).count());
        let whole = || all().filter(|it| it.state == State::Whole);
        assert_eq!(stats.messages, whole().count());
        let coming = || all().filter(|it| it.state == State::Coming);
        assert_eq!(stats.fetching, coming().count());
        let bytes: u32 = whole().chain(coming()).map(|it| it.length).sum();
        assert_eq!(stats.bytes, bytes as usize);
        for (turn, list) in (0..).zip(&self.turns) {
            assert_eq!(inbox.holds(turn), !list.is_empty());
            assert_eq!(inbox.last(turn), list.last().map(|it| it.place));
        }
        let turns = self.turns.iter().filter(|list| !list.is_empty()).count();
        let found = (inbox.turns.all.len(), inbox.turns.slots.len());
        assert_eq!(found, (turns, turns));
        for source in 0..3 {
            let theirs = all().filter(|it| it.source == source && !it.gone);
            let mut theirs: Vec<_> = theirs.map(|it| it.place).collect();
            let found = inbox.of(RemoteId::new(source, 1));
            let mut found: Vec<_> = found.map(|(id, _)| id).collect();
            theirs.sort_unstable_by_key(|id| id.index());
            found.sort_unstable_by_key(|id| id.index());
            assert_eq!(found, theirs);
        }
    }
}

const TURNS: u32 = 5;

fn step(rng: &mut Rng, inbox: &mut UnexpectedQueue<u32>, model: &mut Model, n: u32) {
    let turn = rng.below(TURNS.into()) as u32;
    let places: Vec<_> = model.turns.iter().flatten().map(|it| it.place).collect();
    let some = (!places.is_empty()).then(|| places[rng.index(places.len().max(1))]);
    let before = model.ready;
    let ready = match rng.below(15) {
        0..6 => {
            let (source, whole) = (rng.below(3) as u32, rng.chance(0.6));
            let body = match (whole, rng.chance(0.5)) {
                (true, true) => Body::Memory(n),
                (true, false) => Body::Bytes(vec![0; n as usize]),
                (false, keyed) => Body::AtSender(keyed.then_some(RemoteKey {
                    address: n.into(),
                    key: 1,
                })),
            };
            let from = (RemoteId::new(source, 1), MatchBits(n.into()), n);
            let name = (!whole).then_some(n.into());
            let message = UnexpectedMessage::new(from, Payment::Credits(1), name, body);
            let (place, ready) = put(inbox, turn, message);
            model.turns[turn as usize].push(Known {
                place,
                source,
                length: n,
                state: if whole { State::Whole } else { State::Offered },
                ready: false,
                gone: false,
            });
            model.see();
            u64::from(ready)
        }
        6..9 => {
            let passed = rng.chance(0.3);
            if passed {
                inbox.pass();
            }
            if passed && !model.rotation.is_empty() {
                model.rotation.rotate_left(1);
            }
            let turn = inbox.turn();
            let entry = inbox.take();
            let first = turn.map(|turn| model.turns[turn as usize].remove(0));
            assert!(first.as_ref().is_none_or(|it| it.ready));
            let key = |it: Known| (turn.unwrap(), it.length);
            assert_eq!(entry.map(|(turn, it)| (turn, it.length)), first.map(key));
            model.see();
            if let Some(turn) = turn.filter(|turn| model.rotation.contains(turn)) {
                model.rotation.retain(|other| *other != turn);
                model.rotation.push(turn);
            }
            0
        }
        9..12 => {
            let Some(place) = inbox.to_fetch() else {
                return;
            };
            let (turn, at) = model.find(place);
            let it = &mut model.turns[turn as usize][at];
            let offer = inbox.get(place).map(|message| message.offer().0);
            assert_eq!(offer, Some(it.length.into()));
            inbox.begin(place, RequestId::new(n, 1), 3);
            it.state = State::Coming;
            model.see();
            0
        }
        12 | 13 => {
            let mut coming = model.turns.iter_mut().flatten();
            let Some(it) = coming.find(|it| it.state == State::Coming) else {
                return;
            };
            it.state = State::Whole;
            let ready = inbox.end(it.place, Body::Memory(0));
            model.see();
            ready.into()
        }
        _ => {
            let Some(place) = some else { return };
            let (turn, at) = model.find(place);
            let list = &mut model.turns[turn as usize];
            if rng.chance(0.5) && list[at].state == State::Whole {
                let mut it = list.remove(at);
                it.gone = true;
                let here = list.iter().take_while(|it| it.ready).count();
                list.insert(if it.ready { at } else { here }, it);
                model.see();
                let ready = inbox.charge_to_tombstone(place, Source(7));
                assert!(!inbox.charge_to_tombstone(place, Source(7)));
                assert_eq!(u64::from(ready), model.ready - before);
                return;
            }
            if inbox.turns.all[inbox.turns.slots[&turn] as usize].absent == Some(place.index()) {
                // The next message has not waited.
                model.line.retain(|other| *other != turn);
            }
            let it = model.turns[turn as usize].remove(at);
            let (entry, ready) = inbox.remove(place).unwrap();
            assert_eq!(entry.length, it.length);
            assert_eq!(
                entry.drawn,
                if it.state == State::Offered {
                    0
                } else {
                    entry.drawn
                }
            );
            assert_eq!(entry.tombstone, it.gone.then_some(Source(7)));
            model.see();
            ready.into()
        }
    };
    assert_eq!(ready, model.ready - before, "told of so many more");
}

#[test]
fn lists_that_are_searched_from_the_front_say_the_same() {
    mx_sim::seeds::each(2_000, |seed| {
        let mut rng = Rng::new(seed);
        let mut inbox = UnexpectedQueue::default();
        let mut model = Model {
            turns: vec![Vec::new(); TURNS as usize],
            ..Model::default()
        };
        for n in 1..=1 + rng.below(150) as u32 {
            step(&mut rng, &mut inbox, &mut model, n);
            model.check(&inbox);
        }
    });
}

/// Puts a message into a turn. Returns whether it is ready.
fn put(
    inbox: &mut UnexpectedQueue<u32>,
    turn: u32,
    message: UnexpectedMessage<u32>,
) -> (EntryId, bool) {
    let id = inbox.add(message);
    (id, inbox.await_turn(id, turn))
}

fn put_whole(inbox: &mut UnexpectedQueue<u32>, turn: u32, tag: u64) -> (EntryId, bool) {
    let from = (RemoteId::new(turn, 1), MatchBits(tag), 8);
    let message = UnexpectedMessage::new(from, Payment::Credits(1), None, Body::Memory(0));
    put(inbox, turn, message)
}

fn tags(inbox: &mut UnexpectedQueue<u32>) -> Vec<u64> {
    let next = || inbox.take();
    std::iter::from_fn(next)
        .map(|(_, message)| message.bits.0)
        .collect()
}

#[test]
fn memory_of_a_flood_is_returned_and_a_little_kept() {
    for (count, kept) in [(KEPT_MAX / 2, true), (2 * KEPT_MAX, false)] {
        let mut inbox = UnexpectedQueue::default();
        for n in 0..count as u64 {
            put_whole(&mut inbox, n as u32 % 100, n);
        }
        while inbox.take().is_some() {}
        assert_eq!((inbox.len(), inbox.messages.capacity() > 0), (0, kept));
        put_whole(&mut inbox, 7, 70);
        assert_eq!(tags(&mut inbox), [70]);
    }
}
