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

use super::calls;
use super::orders::{ANSWER_WORDS, LARGEST, ORDER_TAG, Order, Work};
use super::room::Room;
use crate::args::Args;
use crate::bmi::{Bmi, CONTEXT};
use bmi_host::method::{Address, Done, Memory, Message, Posted, Verb};
use std::io::Write;

/// The time that a call waits for something to happen, as OrangeFS's do.
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
    /// The bytes of every send.
    data: Room,
    /// By the user pointer of the operation; a place is used again.
    held: Vec<Option<Held>>,
    /// Peers the library has no more use for, as it says.
    dead: Vec<Address>,
    dropped: usize,
    failed: usize,
}

/// One operation under way.
struct Held {
    with: Address,
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
            for message in self.bmi.method.unexpected(bmi_host::method::BATCH, 0)? {
                if !self.obey(&message)? {
                    return Ok(());
                }
            }
            self.bury();
        }
    }

    fn take_in(&mut self, ends: &mut Vec<Done>) {
        for Done { user, error, .. } in ends.drain(..) {
            self.failed += usize::from(error < 0);
            // Its memory goes with it: what the server keeps is the library's alone.
            if let Some(place) = self.held.get_mut(user) {
                *place = None;
            }
        }
    }

    /// False when that was the last one.
    fn obey(&mut self, message: &Message) -> Result<bool, String> {
        if message.tag() != ORDER_TAG {
            return Ok(true);
        }
        match Order::parse(&message.words()) {
            Some(Order::Work(works)) => {
                for work in works {
                    self.begin(message.from(), work)?;
                }
            }
            Some(Order::CancelAll { tag }) => {
                let (called_off, begun) = self.cancel_all(message.from())?;
                self.answer(message.from(), tag, [called_off as u64, begun as u64, 0, 0]);
            }
            Some(Order::Ping { tag }) => self.answer(message.from(), tag, [0; ANSWER_WORDS]),
            Some(Order::Stats { tag }) => {
                let known = calls::introduced().saturating_sub(self.dropped);
                let outstanding = self.held.iter().flatten().count();
                let words = [known, outstanding, self.failed, self.dropped];
                self.answer(message.from(), tag, words.map(|word| word as u64));
            }
            Some(Order::Quit) => return Ok(false),
            None => eprintln!("bmi_mx_perf: an order that makes no sense"),
        }
        Ok(true)
    }

    fn begin(&mut self, with: Address, work: Work) -> Result<(), String> {
        if work.give {
            let memory = Memory::One(self.data.base(), work.size);
            self.post(Verb::Send, with, work.tag, memory, What::Send);
            return Ok(());
        }
        let mut room = Room::new(work.size)?;
        room.clear_first();
        let memory = Memory::One(room.base(), work.size);
        self.post(Verb::Recv, with, work.tag, memory, What::Recv(room));
        Ok(())
    }

    fn answer(&mut self, to: Address, tag: i32, words: [u64; ANSWER_WORDS]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut bytes = bytes.into_boxed_slice();
        let memory = Memory::One(bytes.as_mut_ptr(), bytes.len());
        self.post(Verb::Send, to, tag, memory, What::Answer(bytes));
    }

    /// Posts. An error of a dead peer is only counted.
    fn post(&mut self, verb: Verb, with: Address, tag: i32, memory: Memory, what: What) {
        let free = self.held.iter().position(Option::is_none);
        let user = free.unwrap_or(self.held.len());
        // SAFETY: `what` owns the memory, or it is `data`, which outlives the method; it is kept
        // until the operation is reported.
        let posted = unsafe { self.bmi.post(verb, with, tag, memory, user) };
        match posted {
            Posted::Pending(id) => {
                let held = Some(Held { with, id, what });
                match self.held.get_mut(user) {
                    Some(place) => *place = held,
                    None => self.held.push(held),
                }
            }
            Posted::Complete(_) => {}
            Posted::Refused(_) => self.failed += 1,
        }
    }

    /// Calls off all there is with a peer: how much that was, and how many of its receives had
    /// something in them.
    fn cancel_all(&mut self, with: Address) -> Result<(usize, usize), String> {
        let (mut called_off, mut begun) = (0, 0);
        for held in self.held.iter().flatten() {
            if held.with != with || matches!(held.what, What::Answer(_)) {
                continue;
            }
            called_off += 1;
            begun += usize::from(matches!(&held.what, What::Recv(room) if room.begun()));
            self.bmi.method.cancel(held.id, CONTEXT);
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
        self.dead.retain(|peer| !calls::drop_dead(bmi, *peer));
        self.dropped += before - self.dead.len();
    }
}
