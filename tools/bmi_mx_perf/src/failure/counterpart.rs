//! The server that is stopped, killed and started again, and that outlives its clients.
//!
//! ```text
//!   unexpected message ---> order ---> posts, waits for none of them
//!   completion ----------------------> its room is free again, whatever the error
//!   forget callback -----------------> DROP_ADDR_QUERY, DROP_ADDR      as OrangeFS does
//! ```
//!
//! Any number of clients at a time; what goes wrong with one is no concern of the others.
//!
//! Owns: the server's operations and their memory.
//! Knows nothing of: what is measured.

use super::calls::{self, Arrival, Done, Place, Posted, Verb};
use super::orders::{ANSWER_WORDS, LARGEST, ORDER_TAG, Order, Work};
use super::room::Room;
use crate::args::Args;
use crate::bmi::{Bmi, Remote};
use std::io::Write;

/// How long a call waits for something to happen, as OrangeFS's do.
const IDLE_MS: i32 = 10;

/// Serves until it is told to quit, or its parent ends.
pub(crate) fn serve(args: &Args, address: &str) -> Result<(), String> {
    if args.pin {
        crate::pin::to_core(1);
    }
    crate::peer::end_with_parent();
    calls::be_host(&args.library)?;
    let bmi = Bmi::start(&args.library, Some(address))?;
    let mut data = Room::new(LARGEST)?;
    data.fill(1);
    let mut counterpart = Counterpart {
        bmi: &bmi,
        data,
        held: Vec::new(),
        dead: Vec::new(),
        dropped: 0,
        failed: 0,
    };
    println!("ready on {address}");
    std::io::stdout()
        .flush()
        .map_err(|error| error.to_string())?;
    counterpart.run()
}

struct Counterpart<'a> {
    bmi: &'a Bmi,
    /// What every send sends.
    data: Room,
    /// By the user pointer of the operation; a place is used again.
    held: Vec<Option<Held>>,
    /// Peers the library has no more use for, as it says.
    dead: Vec<Remote>,
    dropped: usize,
    failed: usize,
}

/// One operation under way.
struct Held {
    with: Remote,
    id: i64,
    what: What,
}

enum What {
    Send,
    Recv(Room),
    /// Answers are their own memory.
    Answer(#[expect(dead_code, reason = "kept while it is sent")] Box<[u8]>),
}

impl Counterpart<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mut ends = Vec::new();
        loop {
            self.bmi.completions(IDLE_MS, &mut ends)?;
            self.take_in(&mut ends);
            while let Some(arrival) = self.bmi.arrival()? {
                if !self.obey(&arrival)? {
                    return Ok(());
                }
            }
            self.bury();
        }
    }

    fn take_in(&mut self, ends: &mut Vec<Done>) {
        for Done { user, error } in ends.drain(..) {
            self.failed += usize::from(error < 0);
            // Its memory goes with it: what the server keeps is the library's alone.
            if let Some(place) = self.held.get_mut(user) {
                *place = None;
            }
        }
    }

    /// False when that was the last one.
    fn obey(&mut self, arrival: &Arrival) -> Result<bool, String> {
        if arrival.tag != ORDER_TAG {
            return Ok(true);
        }
        match Order::parse(&arrival.words) {
            Some(Order::Work(works)) => {
                for work in works {
                    self.begin(arrival.from, work)?;
                }
            }
            Some(Order::Settle { tag }) => {
                let (called_off, begun) = self.settle(arrival.from)?;
                self.answer(arrival.from, tag, [called_off as u64, begun as u64, 0, 0]);
            }
            Some(Order::Ping { tag }) => self.answer(arrival.from, tag, [0; ANSWER_WORDS]),
            Some(Order::Stats { tag }) => {
                let known = calls::introduced().saturating_sub(self.dropped);
                let outstanding = self.held.iter().flatten().count();
                let words = [known, outstanding, self.failed, self.dropped];
                self.answer(arrival.from, tag, words.map(|word| word as u64));
            }
            Some(Order::Quit) => return Ok(false),
            None => eprintln!("bmi_mx_perf: an order that makes no sense"),
        }
        Ok(true)
    }

    fn begin(&mut self, with: Remote, work: Work) -> Result<(), String> {
        let place = |base| Place {
            base,
            len: work.size,
            pieces: 1,
        };
        if work.give {
            let place = place(self.data.base());
            self.post(Verb::Send, with, work.tag, place, What::Send);
            return Ok(());
        }
        let mut room = Room::new(work.size)?;
        room.clear_first();
        let place = place(room.base());
        self.post(Verb::Recv, with, work.tag, place, What::Recv(room));
        Ok(())
    }

    fn answer(&mut self, to: Remote, tag: i32, words: [u64; ANSWER_WORDS]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes = bytes.into_boxed_slice();
        let place = Place {
            base: bytes.as_mut_ptr(),
            len: bytes.len(),
            pieces: 1,
        };
        self.post(Verb::Send, to, tag, place, What::Answer(bytes));
    }

    /// What a dead peer refuses is only counted.
    fn post(&mut self, verb: Verb, with: Remote, tag: i32, place: Place, what: What) {
        let free = self.held.iter().position(Option::is_none);
        let user = free.unwrap_or(self.held.len());
        // SAFETY: `what` owns the memory, or it is `data`, which outlives the method; it is kept
        // until the operation is reported.
        let posted = unsafe { self.bmi.post(verb, with, tag, place, user) };
        match posted {
            Posted::Pending(id) => {
                let held = Some(Held { with, id, what });
                match self.held.get_mut(user) {
                    Some(place) => *place = held,
                    None => self.held.push(held),
                }
            }
            Posted::Complete => {}
            Posted::Refused(_) => self.failed += 1,
        }
    }

    /// Calls off all there is with a peer: how much that was, and how many of its receives had
    /// something in them.
    fn settle(&mut self, with: Remote) -> Result<(usize, usize), String> {
        let (mut called_off, mut begun) = (0, 0);
        for held in self.held.iter().flatten() {
            if held.with != with || matches!(held.what, What::Answer(_)) {
                continue;
            }
            called_off += 1;
            begun += usize::from(matches!(&held.what, What::Recv(room) if room.begun()));
            self.bmi.cancel(held.id);
        }
        let mut ends = Vec::new();
        self.bmi.completions(0, &mut ends)?;
        self.take_in(&mut ends);
        Ok((called_off, begun))
    }

    /// Gives back the addresses of the dead.
    fn bury(&mut self) {
        for peer in calls::forgotten() {
            if !self.dead.contains(&peer) {
                self.dead.push(peer);
            }
        }
        let (bmi, before) = (self.bmi, self.dead.len());
        self.dead.retain(|peer| !bmi.drop_dead(*peer));
        self.dropped += before - self.dead.len();
    }
}
