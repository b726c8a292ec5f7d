//! Correct programs: every provider, nothing wrong and everything rough.
//!
//! ```text
//!   shapes x seeds x { messages, multi-receive, reads } --> bytes arrive, no rule broken
//! ```

use std::collections::VecDeque;

use crate::side::{Event, Side};
use libfabric_fake::{Fake, Faults, Shape};
use libfabric_sys::abi::*;

fn shapes() -> Vec<Shape> {
    vec![
        Shape::tcp(),
        Shape::tcp_rxm(),
        Shape::verbs_rxm(),
        Shape::cxi(),
        Shape::psm3(),
        Shape::efa(),
        Shape::odd(),
    ]
}

/// Runs for every shape, smooth and rough.
fn everywhere(test: impl Fn(&Fake)) {
    for shape in shapes() {
        for seed in 0..8 {
            let fake = Fake::new(shape.clone(), seed);
            if seed > 0 {
                fake.faults(|faults| *faults = Faults::rough());
            }
            test(&fake);
            let violations = fake.violations();
            assert!(
                violations.is_empty(),
                "{} seed {seed}: {violations:#?}",
                shape.provider
            );
            assert_eq!(fake.open_objects(), Vec::<String>::new());
            assert_eq!(fake.lent(), 0);
        }
    }
}

fn text(len: usize, salt: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 7 + salt * 13 + index / 251) as u8)
        .collect()
}

/// Two sides, and what their queues told.
struct Talk {
    a: Side,
    b: Side,
    to_b: u64,
    told_a: VecDeque<Event>,
    told_b: VecDeque<Event>,
}

impl Talk {
    fn new(fake: &Fake) -> Self {
        let (a, b, to_b, _) = Side::pair(fake);
        Self {
            a,
            b,
            to_b,
            told_a: VecDeque::new(),
            told_b: VecDeque::new(),
        }
    }

    fn poll(&mut self) {
        self.told_a.extend(self.a.event());
        self.told_b.extend(self.b.event());
    }

    /// Posts until it is accepted.
    fn post(&mut self, mut post: impl FnMut(&Self) -> isize) {
        for _ in 0..10_000 {
            match post(self) {
                0 => return,
                code => assert_eq!(code, -(FI_EAGAIN as isize)),
            }
            self.poll();
        }
        panic!("never accepted");
    }

    fn wait_a(&mut self) -> Event {
        for _ in 0..10_000 {
            if let Some(event) = self.told_a.pop_front() {
                assert_eq!(event.error, 0, "{event:?}");
                return event;
            }
            self.poll();
        }
        panic!("nothing told to a");
    }

    fn wait_b(&mut self) -> Event {
        for _ in 0..10_000 {
            if let Some(event) = self.told_b.pop_front() {
                assert_eq!(event.error, 0, "{event:?}");
                return event;
            }
            self.poll();
        }
        panic!("nothing told to b");
    }

    fn end(self) {
        self.a.close();
        self.b.close();
    }
}

const LENS: [usize; 9] = [0, 1, 7, 64, 200, 1000, 5000, 20_000, 70_000];

#[test]
fn messages_arrive_whole_whichever_side_posts_first() {
    everywhere(|fake| {
        let mut talk = Talk::new(fake);
        for (round, len) in LENS.into_iter().enumerate() {
            let body = text(len, round);
            let mut out = talk.a.filled(&body);
            let mut into = talk.b.lot(talk.b.prefix + len + 8);
            if round % 2 == 0 {
                talk.post(|talk| talk.b.receive(&mut into));
                talk.post(|talk| talk.a.send(&mut out, talk.to_b));
            } else {
                talk.post(|talk| talk.a.send(&mut out, talk.to_b));
                talk.post(|talk| talk.b.receive(&mut into));
            }
            let event = loop {
                let event = talk.wait_b();
                assert_eq!(event.context, into.id());
                if event.len == len + talk.b.prefix {
                    break event;
                }
                // A packet of the provider's own: the receive is used up, for nothing.
                assert!(talk.b.prefix > 0 && event.len <= talk.b.prefix);
                talk.post(|talk| talk.b.receive(&mut into));
            };
            assert_eq!(event.len, len + talk.b.prefix);
            assert_eq!(&into.body()[..len], body);
            assert_eq!(event.flags, FI_RECV | FI_MSG);
            let event = talk.wait_a();
            assert_eq!((event.context, event.flags), (out.id(), FI_SEND | FI_MSG));
        }
        talk.end();
    });
}

#[test]
fn multi_receive_buffers_are_filled_and_come_back_once() {
    everywhere(|fake| {
        let mut talk = Talk::new(fake);
        let slot = 512 + talk.b.prefix;
        talk.b.set_least_multi(slot);
        let mut pool: Vec<_> = (0..3).map(|_| talk.b.lot(4096)).collect();
        for lot in &mut pool {
            talk.post(|talk| talk.b.multi_receive(lot));
        }
        let (mut next, mut got, mut released) = (0, Vec::new(), 0);
        // A message no longer than the prefix is a packet of the provider's own, so none of these is.
        let marked = usize::from(talk.b.prefix > 0);
        let body = |n: usize| text(n * 8 + marked, n);
        let mut outs: Vec<_> = (0..60).map(|n| talk.a.filled(&body(n))).collect();
        while got.len() < outs.len() {
            if let Some(out) = outs.get_mut(next)
                && talk.a.send(out, talk.to_b) == 0
            {
                next += 1;
            }
            talk.poll();
            while let Some(event) = talk.told_b.pop_front() {
                assert_eq!(event.error, 0);
                let index = pool.iter().position(|lot| lot.id() == event.context);
                let index = index.expect("a buffer of ours");
                if event.flags & FI_RECV != 0 && (event.len > talk.b.prefix || marked == 0) {
                    let start = event.buf - pool[index].bytes.as_ptr() as usize;
                    let body = &pool[index].bytes[start + talk.b.prefix..start + event.len];
                    got.push(body.to_vec());
                }
                if event.flags & FI_MULTI_RECV != 0 {
                    released += 1;
                    let lot = &mut pool[index];
                    talk.post(|talk| talk.b.multi_receive(lot));
                }
            }
        }
        got.sort_by_key(Vec::len);
        for (n, got) in got.iter().enumerate() {
            assert_eq!(*got, body(n));
        }
        assert!(released >= 2, "{released}");
        (0..60).for_each(|_| assert!(talk.wait_a().flags & FI_SEND != 0));
        talk.end();
    });
}

#[test]
fn remote_memory_is_read_by_key() {
    everywhere(|fake| {
        let mut talk = Talk::new(fake);
        let mut there = text(10_000, 3);
        let mr = talk.b.register(&mut there, FI_REMOTE_READ);
        // SAFETY: an open registration.
        let key = unsafe { (*mr).key };
        let virt = talk.b.mr_mode & FI_MR_VIRT_ADDR != 0;
        let base = if virt { there.as_ptr() as u64 } else { 0 };
        for (offset, len) in [(0, 10_000), (1, 1), (9_999, 1), (5000, 3000)] {
            let mut into = talk.a.lot(len);
            let at = base + offset as u64;
            talk.post(|talk| talk.a.read(&mut into, talk.to_b, at, key));
            let event = talk.wait_a();
            assert_eq!((event.context, event.flags), (into.id(), FI_RMA | FI_READ));
            assert_eq!(into.bytes, &there[offset..offset + len]);
        }
        talk.end();
    });
}

#[test]
fn injected_bytes_are_free_at_once() {
    everywhere(|fake| {
        let mut talk = Talk::new(fake);
        let mut into = talk.b.lot(talk.b.prefix + 24);
        let mut bytes = vec![7u8; talk.a.prefix + 24];
        let prefix = talk.a.prefix;
        bytes[prefix..].copy_from_slice(&text(24, 1));
        talk.post(|talk| talk.a.inject(&bytes, talk.to_b));
        bytes.fill(0);
        talk.post(|talk| talk.b.receive(&mut into));
        while talk.wait_b().len != talk.b.prefix + 24 {
            talk.post(|talk| talk.b.receive(&mut into));
        }
        assert_eq!(into.body(), text(24, 1));
        talk.end();
    });
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| {
        let fake = Fake::new(Shape::tcp_rxm(), seed);
        fake.faults(|faults| *faults = Faults::rough());
        let mut talk = Talk::new(&fake);
        let mut order = Vec::new();
        let mut lots: Vec<_> = (0..20)
            .map(|n| (talk.a.filled(&text(n * 2000, n)), talk.b.lot(40_000)))
            .collect();
        for (out, into) in &mut lots {
            talk.post(|talk| talk.a.send(out, talk.to_b));
            talk.post(|talk| talk.b.receive(into));
        }
        (0..20).for_each(|_| order.push(talk.wait_b().len));
        (0..20).for_each(|_| assert_eq!(talk.wait_a().error, 0));
        talk.end();
        (order, fake.stats())
    };
    assert_eq!(run(5), run(5));
    assert!((0..10).any(|seed| run(seed) != run(seed + 10)));
}
