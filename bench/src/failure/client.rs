//! A client that keeps account of every operation, and of what each ends with.
//!
//! ```text
//!   post ---> under way ---> take_in ---> Ended { error }       exactly once, or the run fails
//!                 `--- cancel, timed ---------^
//! ```
//!
//! Owns: the client's operations and their memory.

use super::calls::post_pieces;
use super::orders::{ANSWER_WORDS, LARGEST, ORDER_TAG, Order};
use super::room::Room;
use crate::bmi::{Bmi, CONTEXT};
use bmi_host::codes;
use bmi_host::method::{Address, Done, Memory, Posted, Verb};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Longer than anything here may take. What exceeds it has not ended at all.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The client's own name of an operation; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct OpKey(usize);

pub(crate) struct Client {
    bmi: Bmi,
    /// The bytes of every send.
    data: Room,
    under_way: HashMap<OpKey, Op>,
    /// Memory for receives.
    spare: Vec<Room>,
    ends: Vec<Done>,
    queue: Queue,
    next: usize,
    /// Tags of answers; each is used once.
    next_tag: i32,
}

struct Op {
    id: i64,
    /// A receive's.
    room: Option<Room>,
}

/// An operation that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) key: OpKey,
    pub(crate) error: i32,
}

/// One cancel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancelled {
    /// From the call of cancel until testcontext had reported the operation.
    pub(crate) wall_us: f64,
    /// The same without the time in which the thread wanted a core and others had it.
    pub(crate) own_us: f64,
    /// The operation's error code.
    pub(crate) error: i32,
    /// Calls of testcontext until then.
    pub(crate) calls: usize,
}

/// A message to be posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) verb: Verb,
    pub(crate) tag: i32,
    pub(crate) size: usize,
    pub(crate) pieces: usize,
}

impl Client {
    pub(crate) fn new(bmi: Bmi) -> Result<Self, String> {
        let mut data = Room::new(LARGEST)?;
        data.fill(1);
        Ok(Self {
            bmi,
            data,
            under_way: HashMap::new(),
            spare: Vec::new(),
            ends: Vec::new(),
            queue: Queue::of_this_thread(),
            next: 1,
            next_tag: 1 << 30,
        })
    }

    pub(crate) fn lookup(&self, address: &str) -> Result<Address, String> {
        self.bmi.lookup(address)
    }

    pub(crate) fn forget(&self, peer: Address) {
        self.bmi.method.drop_address(peer);
    }

    /// A tag that no message has had.
    pub(crate) fn tag(&mut self) -> i32 {
        self.next_tag = self.next_tag.wrapping_add(1);
        self.next_tag
    }

    /// `Ok(Err(code))`: refused, or complete at once with that code, which is 0.
    pub(crate) fn post(
        &mut self,
        to: Address,
        message: Message,
    ) -> Result<Result<OpKey, i32>, String> {
        let Message {
            verb,
            tag,
            size,
            pieces,
        } = message;
        let room = match verb {
            Verb::Recv => Some(self.room(size)?),
            Verb::Send | Verb::SendUnexpected => None,
        };
        let base = room.as_ref().map_or_else(|| self.data.base(), Room::base);
        let len = size.min(LARGEST);
        let key = OpKey(self.next);
        self.next += 1;
        let place = (base, len, pieces);
        // SAFETY: `data` lives as long as the method, a receive's room until it has ended.
        match unsafe { post_pieces(&self.bmi, verb, to, tag, place, key.0) } {
            Posted::Pending(id) => {
                self.under_way.insert(key, Op { id, room });
                Ok(Ok(key))
            }
            Posted::Complete(_) => {
                self.spare.extend(room);
                Ok(Err(0))
            }
            Posted::Refused(code) => {
                self.spare.extend(room);
                Ok(Err(code))
            }
        }
    }

    fn room(&mut self, size: usize) -> Result<Room, String> {
        let mut room = match self.spare.iter().position(|room| room.len() >= size) {
            Some(found) => self.spare.swap_remove(found),
            None => Room::new(size.next_power_of_two())?,
        };
        room.clear_first();
        Ok(room)
    }

    pub(crate) fn is_under_way(&self, key: OpKey) -> bool {
        self.under_way.contains_key(&key)
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Whether a receive has begun to be filled.
    pub(crate) fn begun(&self, key: OpKey) -> bool {
        let op = self.under_way.get(&key);
        op.and_then(|op| op.room.as_ref()).is_some_and(Room::begun)
    }

    /// Appends what has ended, waiting up to `idle_ms` for something to.
    pub(crate) fn take_in(&mut self, idle_ms: i32, out: &mut Vec<Ended>) -> Result<(), String> {
        self.bmi.completions(idle_ms, &mut self.ends)?;
        self.account(out)
    }

    fn account(&mut self, out: &mut Vec<Ended>) -> Result<(), String> {
        for Done { user, error, .. } in self.ends.drain(..) {
            let key = OpKey(user);
            let Some(op) = self.under_way.remove(&key) else {
                return Err(format!("operation {user} was reported a second time"));
            };
            self.spare.extend(op.room);
            out.push(Ended { key, error });
        }
        Ok(())
    }

    /// Calls an operation that is under way off. `out` gets whatever else ended meanwhile.
    pub(crate) fn cancel(&mut self, key: OpKey, out: &mut Vec<Ended>) -> Result<Cancelled, String> {
        let op = self.under_way.get(&key).ok_or("nothing to cancel")?;
        let (id, mut calls) = (op.id, 0);
        let queued = self.queue.waited();
        let start = Instant::now();
        let code = self.bmi.method.cancel(id, CONTEXT);
        let found = loop {
            self.bmi.completions(0, &mut self.ends)?;
            calls += 1;
            if let Some(found) = self.ends.iter().find(|end| end.user == key.0) {
                break *found;
            }
            if start.elapsed() > TIMEOUT {
                return Err(format!(
                    "a cancelled operation was not reported in {TIMEOUT:?}"
                ));
            }
        };
        let wall = start.elapsed();
        let queued = self.queue.waited().saturating_sub(queued);
        if code != 0 {
            return Err(format!("cancel: {}", codes::name(code)));
        }
        self.account(out)?;
        out.retain(|end| end.key != key);
        Ok(Cancelled {
            wall_us: wall.as_secs_f64() * 1e6,
            own_us: wall.saturating_sub(queued).as_secs_f64() * 1e6,
            error: found.error,
            calls,
        })
    }

    /// Calls everything off that is under way.
    pub(crate) fn cancel_all(&mut self) -> Result<(), String> {
        let keys: Vec<OpKey> = self.under_way.keys().copied().collect();
        for key in keys {
            if self.is_under_way(key) {
                self.cancel(key, &mut Vec::new())?;
            }
        }
        Ok(())
    }

    /// Sends an order and waits until it has left: 0, or what became of it.
    pub(crate) fn order(&mut self, to: Address, order: &Order) -> Result<i32, String> {
        let bytes: Vec<u8> = order
            .words()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let memory = Memory::One(bytes.as_ptr().cast_mut(), bytes.len());
        let key = OpKey(self.next);
        self.next += 1;
        // SAFETY: what is sent is not written, and `bytes` lives until it has ended: an error of
        // `wait` ends the process's use of the method.
        match unsafe {
            self.bmi
                .post(Verb::SendUnexpected, to, ORDER_TAG, memory, key.0)
        } {
            Posted::Complete(_) => Ok(0),
            Posted::Refused(code) => Ok(code),
            Posted::Pending(id) => {
                self.under_way.insert(key, Op { id, room: None });
                let outcome = self.wait(key);
                if outcome.is_err() {
                    // Still the library's: never given back.
                    let _ = bytes.leak();
                }
                outcome
            }
        }
    }

    /// Waits for one operation; others that end meanwhile have ended.
    fn wait(&mut self, key: OpKey) -> Result<i32, String> {
        let (start, mut ends) = (Instant::now(), Vec::new());
        while start.elapsed() < TIMEOUT {
            self.take_in(10, &mut ends)?;
            if let Some(end) = ends.iter().find(|end| end.key == key) {
                return Ok(end.error);
            }
        }
        Err(format!("an operation has not ended in {TIMEOUT:?}"))
    }

    /// Sends an order that is answered on `tag`. `Ok(Err(code))`: the peer is not there.
    pub(crate) fn ask(
        &mut self,
        to: Address,
        order: &Order,
        tag: i32,
    ) -> Result<Result<[u64; ANSWER_WORDS], i32>, String> {
        let room = self.room(8 * ANSWER_WORDS)?;
        let base = room.base();
        let key = OpKey(self.next);
        self.next += 1;
        let memory = Memory::One(base, 8 * ANSWER_WORDS);
        // SAFETY: `room` is kept with the operation, or by this function when it is complete.
        let id = match unsafe { self.bmi.post(Verb::Recv, to, tag, memory, key.0) } {
            Posted::Pending(id) => id,
            Posted::Complete(_) => return Err("an answer before the question".into()),
            Posted::Refused(code) => return Ok(Err(code)),
        };
        self.under_way.insert(
            key,
            Op {
                id,
                room: Some(room),
            },
        );
        let sent = self.order(to, order)?;
        if sent != 0 {
            if self.under_way.contains_key(&key) {
                self.cancel(key, &mut Vec::new())?;
            }
            return Ok(Err(sent));
        }
        if self.under_way.contains_key(&key) {
            let code = self.wait(key)?;
            if code != 0 {
                return Ok(Err(code));
            }
        }
        let mut answer = [0; ANSWER_WORDS];
        for (n, word) in answer.iter_mut().enumerate() {
            // SAFETY: within the room, which is among the spare ones now; it is aligned to a page.
            *word = unsafe { base.cast::<u64>().add(n).read_volatile() };
        }
        Ok(Ok(answer))
    }

    /// Asks until there is an answer: a peer that has just come may have to be found first.
    pub(crate) fn greet(&mut self, peer: Address) -> Result<(), String> {
        let start = Instant::now();
        let mut code = 0;
        while start.elapsed() < TIMEOUT {
            let tag = self.tag();
            match self.ask(peer, &Order::Ping { tag }, tag)? {
                Ok(_) => return Ok(()),
                Err(refused) => code = refused,
            }
            self.pause()?;
        }
        Err(format!("no answer: {}", codes::name(code)))
    }

    /// About a millisecond of what a program does that waits.
    pub(crate) fn pause(&mut self) -> Result<(), String> {
        self.take_in(1, &mut Vec::new())
    }
}

/// The queue for a core, as the kernel accounts it for one thread.
struct Queue(Option<File>);

impl Queue {
    fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// The time that the thread has waited so far; 0 where the kernel does not say.
    fn waited(&self) -> Duration {
        let mut text = [0; 80];
        let read = self.0.as_ref().map(|file| file.read_at(&mut text, 0));
        let Some(Ok(len)) = read else {
            return Duration::ZERO;
        };
        std::str::from_utf8(&text[..len]).map_or(Duration::ZERO, waited)
    }
}

/// The second of three numbers is nanoseconds in the queue.
fn waited(schedstat: &str) -> Duration {
    let field = schedstat.split_ascii_whitespace().nth(1);
    let nanoseconds = field.and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_time_in_the_queue_is_the_second_number() {
        assert_eq!(waited("5 1500 7\n"), Duration::from_nanos(1500));
        assert_eq!(waited("nonsense"), Duration::ZERO);
    }
}
