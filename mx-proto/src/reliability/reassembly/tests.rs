//! Tests with chunks in all orders, good and bad, and the results at the layer above.

use super::super::partial::PIECE_COST;
use super::*;
use crate::ids::LinkId;
use crate::port::{BODY_LEN_AT, Destination};

pub(in crate::reliability) const LINK: LinkId = LinkId::new(3, 1);
pub(in crate::reliability) const LIMITS: BodyLimits = BodyLimits {
    kept: 1000,
    any: 100_000,
};

/// Event at the layer above.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::reliability) enum Seen {
    Packet(u8, Vec<u8>),
    Placed(u8),
}

/// A layer above that takes everything; has destinations for packets of some tags (the header's first byte).
#[derive(Default)]
pub(in crate::reliability) struct Above {
    pub(in crate::reliability) seen: Vec<Seen>,
    pub(in crate::reliability) places: Vec<(u8, Vec<u8>)>,
    pub(in crate::reliability) asked: usize,
    /// Whether messages that are begun get a destination, one at a time, whichever packet asks for it.
    pub(in crate::reliability) streams: bool,
    pub(in crate::reliability) begun: Vec<(u8, Vec<u8>)>,
}

impl Above {
    pub(in crate::reliability) fn on_packet(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: &[u8],
    ) {
        assert_eq!(link, LINK);
        self.seen.push(Seen::Packet(header[0], body.to_vec()));
    }
    pub(in crate::reliability) fn place(
        &mut self,
        header: &HeaderBytes,
        begin: bool,
    ) -> Option<Place<'_, Vec<u8>>> {
        if begin && self.streams {
            assert!(self.begun.is_empty(), "one is in progress");
            self.begun.push((header[0], vec![0; 5 + body_len(header)]));
        }
        self.asked += 1;
        let mut places = self.places.iter_mut().chain(&mut self.begun);
        // For a message only its kind counts, not its tag.
        let (_, memory) =
            places.find(|(tag, _)| *tag == header[0] || *tag >= 100 && header[0] >= 100)?;
        Some(Place {
            memory: Destination::Memory(memory),
            offset: 5,
        })
    }
    pub(in crate::reliability) fn on_placed(&mut self, header: &HeaderBytes) {
        if let Some((tag, memory)) = self.begun.pop_if(|_| header[0] >= 100) {
            assert_eq!(
                (tag, &memory[5..]),
                (header[0], &body(tag, memory.len() - 5)[..])
            );
        }
        self.seen.push(Seen::Placed(header[0]));
    }
}

pub(in crate::reliability) fn body(tag: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 3 + i / 100) as u8 ^ tag).collect()
}

/// Makes a packet with a tag and a body of `len` bytes.
pub(in crate::reliability) fn packet(tag: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes[0] = tag;
    bytes[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
    bytes.extend(body(tag, len));
    bytes
}

pub(in crate::reliability) fn chunks(fragment: u32, packet: &[u8], size: usize) -> Vec<Chunk<'_>> {
    let parts = packet.chunks(size).enumerate();
    let chunk = |(i, payload)| Chunk {
        fragment,
        offset: (i * size) as u32,
        len: packet.len() as u32,
        fin: false,
        payload,
    };
    parts.map(chunk).collect()
}

const fn fin(fragment: u32) -> Chunk<'static> {
    Chunk {
        fragment,
        offset: 0,
        len: 0,
        fin: true,
        payload: &[],
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Taken {
    /// Whether everything that the peer sent has been delivered.
    fin: bool,
}

/// Delivers what can be delivered, with the bytes of the latest chunk.
fn drain(
    reassembly: &mut Reassembly,
    chunk: &[u8],
    budget: &mut usize,
    above: &mut Above,
) -> Taken {
    loop {
        match reassembly.next(budget) {
            Step::Done => return Taken { fin: false },
            Step::Fin => return Taken { fin: true },
            Step::Ask { header, begin } => {
                let place = above.place(&header, begin);
                reassembly.answer(place, chunk, LIMITS);
            }
            Step::Packet { header, bytes, at } => {
                above.on_packet(LINK, &header, &bytes[at..]);
                reassembly.reuse(bytes);
            }
            Step::Placed(header) => above.on_placed(&header),
        }
    }
}

struct Rig {
    reassembly: Reassembly,
    above: Above,
    budget: usize,
}

impl Rig {
    fn new(next: u32) -> Self {
        let reassembly = Reassembly {
            next,
            ..Reassembly::new(0)
        };
        Self {
            reassembly,
            above: Above::default(),
            budget: usize::MAX,
        }
    }

    fn take(&mut self, chunk: Chunk<'_>) -> Result<Taken, BadFragment> {
        let Self {
            reassembly,
            above,
            budget,
        } = self;
        let admitted = reassembly.admits(&chunk, false, usize::MAX);
        let fits = |window: &usize| reassembly.admits(&chunk, false, *window) == Admission::Yes;
        let window = [0, 96, 400, 800].into_iter().find(fits);
        let before = reassembly.kept_bytes();
        let taken = reassembly.take(&chunk, LIMITS, budget).map(|is_next| {
            if is_next && let Some((header, body)) = chunk.payload.split_first_chunk() {
                above.on_packet(LINK, header, body);
            }
            drain(reassembly, chunk.payload, budget, above)
        });
        // A chunk that is not admitted is rejected; one that is too long is detected only when it is taken.
        assert!(admitted == Admission::Yes || taken.is_err());
        assert!(window.is_none_or(|window| reassembly.kept_bytes() <= before + window));
        assert!(reassembly.waiting.capacity() <= SLOT_COST * (1 + reassembly.waiting.len()));
        taken
    }

    fn take_all<'a>(&mut self, chunks: impl IntoIterator<Item = Chunk<'a>>) {
        for chunk in chunks {
            assert_eq!(self.take(chunk), Ok(Taken::default()), "{chunk:?}");
        }
    }

    fn seen(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.above.seen)
    }
}

fn whole(tag: u8, len: usize) -> Seen {
    Seen::Packet(tag, body(tag, len))
}

#[test]
fn the_budget_leaves_the_rest_for_the_next_time() {
    let packets: Vec<_> = (0..4u8).map(|i| packet(i, 10)).collect();
    let mut rig = Rig::new(0);
    rig.budget = 1;
    for (i, packet) in packets.iter().enumerate() {
        rig.take_all(chunks(i as u32, packet, 32 + 3 * i));
    }
    let end = rig.take(fin(4));
    assert_eq!(
        (end, rig.seen()),
        (Ok(Taken::default()), vec![whole(0, 10)])
    );
    for i in 1..4 {
        assert!(rig.reassembly.has_ready());
        let mut budget = 1;
        let taken = drain(&mut rig.reassembly, &[], &mut budget, &mut rig.above);
        assert_eq!((taken.fin, budget), (i == 3, 0));
        assert_eq!(rig.seen(), [whole(i, 10)]);
    }
    assert!(!rig.reassembly.has_ready());
    assert_eq!(rig.reassembly.kept_bytes(), 0);
}

#[test]
fn the_end_comes_after_everything_else_and_nothing_after_it() {
    let bytes = packet(1, 10);
    let mut rig = Rig::new(0);
    rig.take_all([fin(1)]);
    let taken = rig.take(chunks(0, &bytes, 100)[0]);
    assert_eq!(
        (taken, rig.seen()),
        (Ok(Taken { fin: true }), vec![whole(1, 10)])
    );
    assert_eq!(rig.take(chunks(2, &bytes, 100)[0]), Err(BadFragment));
    assert_eq!(rig.take(fin(2)), Err(BadFragment));
    let mut rig = Rig::new(0);
    rig.budget = 0;
    assert_eq!(rig.take(fin(0)), Ok(Taken { fin: true }));
}

#[test]
fn placed_body_is_written_early_and_reported_in_order() {
    let (small, large) = (packet(1, 10), packet(2, 3000));
    let mut rig = Rig::new(0);
    rig.above.places.push((2, vec![0; 3005]));
    rig.take_all(chunks(1, &large, 500));
    let kept = rig.reassembly.kept_bytes();
    assert_eq!((rig.seen(), kept), (vec![], WAITING_COST + Partial::COST));
    assert_eq!(rig.above.places[0].1[5..], body(2, 3000));
    rig.take_all(chunks(0, &small, 500));
    assert_eq!(rig.seen(), [whole(1, 10), Seen::Placed(2)]);
}

#[test]
fn body_dropped_halfway_is_not_reported_or_written() {
    let (large, small) = (packet(1, 3000), packet(2, 10));
    let parts = chunks(0, &large, 500);
    let mut rig = Rig::new(0);
    rig.above.places.push((1, vec![0; 3005]));
    rig.take_all([parts[0], parts[1], parts[4]]);
    let (_, gone) = rig.above.places.pop().expect("it is there");
    assert_eq!(
        gone[5 + 2000 - HEADER_LEN..][..500],
        body(1, 3000)[2000 - HEADER_LEN..][..500]
    );
    rig.take_all([parts[3]]);
    // Another destination now has the same tag.
    rig.above.places.push((1, vec![0; 3005]));
    rig.take_all([parts[2], parts[5], parts[6]]);
    rig.take_all(chunks(1, &small, 500));
    assert_eq!(rig.seen(), [whole(2, 10)]);
    assert!(rig.above.places[0].1.iter().all(|&byte| byte == 0));
    assert_eq!(rig.reassembly.kept_bytes(), 0);
}

#[test]
fn window_bounds_kept_bytes_and_front_is_always_accepted() {
    let (small, large) = (packet(1, 10), packet(2, 3000));
    let mut rig = Rig::new(0);
    let (front, early) = (chunks(0, &small, 500)[0], chunks(1, &small, 500)[0]);
    let parts = chunks(2, &large, 500);
    let cost = WAITING_COST + Partial::cost_of_first(&early);
    for in_order in [false, true] {
        let admits = |window| rig.reassembly.admits(&early, in_order, window);
        assert_eq!(admits(cost - 1), Admission::Full);
        assert_eq!(admits(cost), Admission::Yes);
    }
    for chunk in [front, fin(0)] {
        let admits = |in_order| rig.reassembly.admits(&chunk, in_order, 0);
        assert_eq!(admits(true), Admission::Yes);
        assert_eq!(admits(false), Admission::Full);
    }
    assert_eq!(rig.reassembly.admits(&parts[1], false, 0), Admission::Full);
    rig.above.places.push((2, vec![0; 3005]));
    rig.take_all([parts[0]]);
    // A chunk that is placed costs something only after a hole.
    let admits = |at: usize, window| rig.reassembly.admits(&parts[at], false, window);
    assert_eq!(admits(1, 0), Admission::Yes);
    assert_eq!(admits(2, PIECE_COST - 1), Admission::Full);
    assert_eq!(admits(2, PIECE_COST), Admission::Yes);
    rig.take_all([parts[2]]);
    let admits = |at: usize, window| rig.reassembly.admits(&parts[at], false, window);
    assert_eq!(admits(3, 0), Admission::Yes);
}

#[test]
fn only_the_front_fragment_reuses_memory() {
    let (small, large) = (packet(1, 10), packet(2, 900));
    let mut rig = Rig::new(0);
    rig.take_all(chunks(0, &large, 500));
    assert!(rig.reassembly.spare.is_some());
    rig.take_all([chunks(2, &large, 500)[0]]);
    assert!(rig.reassembly.spare.is_some());
    rig.take_all(chunks(1, &small, 500));
    assert!(rig.reassembly.spare.is_none());
}

/// Checks that the second of these chunks is rejected after a change, once the first and the fourth have arrived.
fn refuses<'a>(parts: &[Chunk<'a>], change: impl FnOnce(&mut Chunk<'a>)) {
    let mut chunk = parts[1];
    change(&mut chunk);
    let mut rig = Rig::new(0);
    rig.take_all([parts[0], parts[3]]);
    assert_eq!(rig.take(chunk), Err(BadFragment), "{chunk:?}");
    assert!(rig.seen().is_empty());
}

#[test]
fn what_no_peer_sends_is_refused() {
    let bytes = packet(1, 3000);
    let lie = packet(1, 3001);
    let parts = chunks(0, &bytes, 500);
    // Beyond the end, overlapping, within the header, empty, of another length.
    refuses(&parts, |chunk| chunk.offset = 2533);
    refuses(&parts, |chunk| chunk.offset = u32::MAX);
    refuses(&parts, |chunk| chunk.offset = 499);
    refuses(&parts, |chunk| chunk.offset = 1001);
    refuses(&parts, |chunk| chunk.offset = 1999);
    refuses(&parts, |chunk| chunk.offset = 31);
    refuses(&parts, |chunk| chunk.payload = &[]);
    refuses(&parts, |chunk| chunk.len += 1);
    refuses(&parts, |chunk| chunk.len = u32::MAX);
    refuses(&parts, |chunk| chunk.len = 31);
    // An end with contents, or in the middle.
    refuses(&parts, |chunk| chunk.fin = true);
    refuses(&parts, |chunk| *chunk = fin(0));
    refuses(&parts, |chunk| *chunk = Chunk { len: 1, ..fin(1) });
    // Fragments that were delivered before, or are too far ahead.
    refuses(&parts, |chunk| chunk.fragment = u32::MAX);
    refuses(&parts, |chunk| chunk.fragment = AHEAD_MAX);
    // The header again, another one, a split one, one of another length.
    refuses(&parts, |chunk| *chunk = parts[0]);
    refuses(&parts, |chunk| {
        *chunk = Chunk {
            payload: &parts[0].payload[..31],
            fragment: 1,
            ..parts[0]
        }
    });
    refuses(&parts, |chunk| {
        *chunk = Chunk {
            payload: &lie[..500],
            fragment: 1,
            ..parts[0]
        }
    });
    let whole_lie = Chunk {
        len: 3032,
        payload: &lie[..3032],
        ..parts[0]
    };
    assert_eq!(Rig::new(0).take(whole_lie), Err(BadFragment));
    assert_eq!(
        Rig::new(9).take(Chunk {
            fragment: 10,
            ..whole_lie
        }),
        Err(BadFragment)
    );
    // Longer than any packet may be, although hardly anything has arrived.
    let limit = (LIMITS.any + HEADER_LEN) as u32;
    let part = Chunk {
        len: limit,
        fragment: 1,
        ..parts[1]
    };
    assert!(Rig::new(0).take(part).is_ok());
    assert_eq!(
        Rig::new(0).take(Chunk {
            len: limit + 1,
            ..part
        }),
        Err(BadFragment)
    );
}

#[test]
fn random_orders_give_the_packets_in_order_and_leave_nothing() {
    let mut random = 3u64;
    let mut draw = move |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % below
    };
    let lens = [0, 1, 400, 999, 1000, 1001, 4000, 452, 453];
    for round in 0..200 {
        let first = u32::MAX - round % 7;
        let packets: Vec<_> = (0..20u8)
            .map(|tag| packet(tag, lens[draw(lens.len())]))
            .collect();
        let mut all: Vec<_> = packets
            .iter()
            .enumerate()
            .flat_map(|(i, packet)| chunks(first.wrapping_add(i as u32), packet, 484))
            .collect();
        // Some chunks in order, some nearly, some not at all.
        let reach = [1, 3, 1000][round as usize % 3].min(all.len());
        let last = all.len() - 1;
        for i in 0..last {
            all.swap(i, (i + draw(reach)).min(last));
        }
        let mut rig = Rig::new(first);
        rig.above.places = (0..20).step_by(2).map(|tag| (tag, vec![0; 4005])).collect();
        let mut deferred = 0;
        for chunk in all {
            rig.budget = draw(3);
            rig.take_all([chunk]);
            deferred += usize::from(rig.reassembly.has_ready());
        }
        rig.budget = usize::MAX;
        drain(&mut rig.reassembly, &[], &mut rig.budget, &mut rig.above);
        assert!(deferred > 0 && !rig.reassembly.has_ready());
        let mut expected = Vec::new();
        for (tag, packet) in (0..20u8).zip(&packets) {
            let len = packet.len() - HEADER_LEN;
            // A packet that fits a segment causes no question unless it is too large to be kept.
            let placed = tag % 2 == 0 && packet.len() > 484;
            if placed {
                let memory = &rig.above.places[usize::from(tag / 2)].1;
                assert_eq!(memory[5..5 + len], packet[HEADER_LEN..]);
                expected.push(Seen::Placed(tag));
            } else if len <= LIMITS.kept {
                expected.push(whole(tag, len));
            }
        }
        assert_eq!(rig.seen(), expected, "round {round}");
        assert_eq!(rig.reassembly.kept_bytes(), 0);
        rig.reassembly.shrink();
        assert_eq!(rig.reassembly.waiting.capacity(), 0);
        assert!(rig.reassembly.spare.is_none());
    }
}

fn but<'a>(chunks: &[Chunk<'a>], at: usize) -> Vec<Chunk<'a>> {
    let mut chunks = chunks.to_vec();
    chunks.remove(at);
    chunks
}

#[test]
fn message_begins_in_order_and_is_not_overtaken() {
    let packets: Vec<_> = (100..104).map(|tag| packet(tag, 20_000)).collect();
    let data = packet(1, 20_000);
    let all: Vec<Vec<_>> = packets
        .iter()
        .zip([0, 1, 3, 4])
        .map(|(one, at)| chunks(at, one, 1000))
        .collect();
    let data = chunks(2, &data, 1000);
    // The first message lacks its beginning, then its end, while the others come; one of them is pulled.
    for lacks in [0, 20] {
        let mut rig = Rig::new(0);
        rig.above.streams = true;
        rig.above.places.push((1, vec![0; 20_005]));
        rig.take_all(but(&all[0], lacks));
        assert_eq!(rig.above.begun.len(), usize::from(lacks > 0));
        rig.take_all(all[2].iter().copied());
        rig.take_all(data.iter().copied());
        rig.take_all(but(&all[1], 20));
        rig.take_all(but(&all[3], 7).into_iter().rev());
        assert!(rig.seen().is_empty() && rig.reassembly.kept_bytes() > 60_000);
        rig.take_all([all[0][lacks]]);
        assert_eq!(rig.seen(), [Seen::Placed(100)]);
        assert_eq!(rig.above.begun[0].0, 101);
        rig.take_all([all[1][20]]);
        assert_eq!(rig.seen(), [101, 1, 102].map(Seen::Placed));
        assert_eq!(rig.above.places[0].1[5..], body(1, 20_000));
        rig.take_all([all[3][7]]);
        assert_eq!(rig.seen(), [Seen::Placed(103)]);
        assert_eq!(rig.reassembly.kept_bytes(), 0);
    }
}
