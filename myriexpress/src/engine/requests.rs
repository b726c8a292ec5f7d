//! What the program has posted and not taken back: a slab whose keys go stale.
//!
//! ```text
//!   insert --> Posted --> Pending(id) --> Done(entry)   -- test, test_any --> gone
//!                 `--------------------------^
//!   forgotten: gone when done        hidden (mx_connect): done without an entry in the queue
//! ```
//!
//! Owns: the requests and the numbers of their handles.
//! Knows nothing of: the protocol endpoint, order among requests.
//! Cost: insert, look up and remove are O(1); memory is reused.

use crate::handles::{REQUESTS_MAX, RequestKey};
use crate::status::Status;
use mx_proto::{EntryId, Kind, RequestId};

/// One posted operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) owner: Owner,
    /// A send that is complete without its receiver, as programs know them by their length.
    pub(crate) eager: bool,
    pub(crate) stage: Stage,
    /// How it ended; until then, as far as that is known.
    pub(crate) status: Status,
}

/// Who wants to know of its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The program, by handle or by match bits.
    Program,
    /// A call of this library that waits for it.
    Hidden,
    /// Nobody any more.
    Nobody,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The protocol endpoint has not been given it yet.
    Posted,
    /// The protocol endpoint has it.
    Pending(RequestId),
    /// It has ended; its place among the completions, unless it is hidden.
    Done(Option<EntryId>),
}

/// All requests of one endpoint.
#[derive(Debug)]
pub(crate) struct Requests {
    slots: Vec<Slot>,
    /// The first of the free slots, which form a list.
    free: u32,
    len: usize,
    next_generation: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    next_free: u32,
    request: Option<Request>,
}

/// The end of the list of free slots.
const NONE: u32 = u32::MAX;

impl Requests {
    /// `generation` is what an earlier table of the same handles left off with.
    pub(crate) fn new(generation: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            len: 0,
            next_generation: generation % RequestKey::GENERATIONS,
        }
    }

    /// What the next table of the same handles begins with, so that none of today's fits there.
    pub(crate) fn next_generation(&self) -> u32 {
        self.next_generation
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// `None` when there are as many as handles can name.
    #[inline]
    pub(crate) fn insert(&mut self, request: Request) -> Option<RequestKey> {
        let generation = self.next_generation;
        let index = match self.slots.get_mut(self.free as usize) {
            Some(slot) => {
                let index = self.free;
                self.free = slot.next_free;
                slot.generation = generation;
                slot.request = Some(request);
                index
            }
            None => {
                let index = self.slots.len();
                if index >= REQUESTS_MAX {
                    return None;
                }
                self.slots.push(Slot {
                    generation,
                    next_free: NONE,
                    request: Some(request),
                });
                index as u32
            }
        };
        self.next_generation = (generation + 1) % RequestKey::GENERATIONS;
        self.len += 1;
        Some(RequestKey { index, generation })
    }

    #[inline]
    pub(crate) fn get(&self, key: RequestKey) -> Option<&Request> {
        let slot = self.slots.get(key.index as usize)?;
        match &slot.request {
            Some(request) if slot.generation == key.generation => Some(request),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: RequestKey) -> Option<&mut Request> {
        let slot = self.slots.get_mut(key.index as usize)?;
        match &mut slot.request {
            Some(request) if slot.generation == key.generation => Some(request),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: RequestKey) -> Option<Request> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let request = slot.request.take()?;
        slot.next_free = self.free;
        self.free = key.index;
        self.len -= 1;
        Some(request)
    }
}

/// A key as the word that goes through the protocol endpoint and comes back with the completion.
#[inline]
pub(crate) fn to_word(key: RequestKey) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

/// The inverse of [`to_word`].
#[inline]
pub(crate) fn from_word(word: u64) -> RequestKey {
    RequestKey {
        index: word as u32,
        generation: (word >> 32) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handles::Address;

    fn request(context: usize) -> Request {
        Request {
            kind: Kind::Send,
            owner: Owner::Program,
            eager: false,
            stage: Stage::Posted,
            status: Status {
                code: 0,
                source: Address::NOBODY,
                match_info: 0,
                msg_length: 0,
                xfer_length: 0,
                context,
            },
        }
    }

    #[test]
    fn a_key_is_stale_once_its_request_is_gone_and_its_place_is_used_again() {
        let mut requests = Requests::new(0);
        let first = requests.insert(request(1)).unwrap();
        let second = requests.insert(request(2)).unwrap();
        assert_eq!(from_word(to_word(second)), second);
        assert_eq!(requests.remove(first).unwrap().status.context, 1);
        assert!(requests.get(first).is_none() && requests.remove(first).is_none());
        let third = requests.insert(request(3)).unwrap();
        assert_eq!(third.index, first.index);
        assert!(requests.get(first).is_none() && requests.get_mut(first).is_none());
        assert_eq!(requests.get(third).unwrap().status.context, 3);
        assert_eq!(requests.len(), 2);
    }

    #[test]
    fn generations_wrap_and_go_on_in_the_next_table() {
        let mut requests = Requests::new(RequestKey::GENERATIONS - 1);
        let last = requests.insert(request(0)).unwrap();
        assert_eq!(last.generation, RequestKey::GENERATIONS - 1);
        assert_eq!(requests.insert(request(0)).unwrap().generation, 0);
        assert_eq!(requests.next_generation(), 1);
    }
}
