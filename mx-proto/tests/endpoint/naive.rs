//! A reference for matching, in lists that are searched from the front: slow, and plain to see.
//!
//! ```text
//!   arrive --> undecided, if others are, or posted? --> unexpected, undecided, or gone
//!   post --> unexpected? --> posted
//! ```
//!
//! Owns: the rules of MX and nothing else.
//! Not here: endpoints, packets, credits.

/// A message; its number is its length too, by which it is known everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) number: u32,
    pub(crate) bits: u64,
    /// Its bytes come later, so that it can be withdrawn until then.
    pub(crate) offer: bool,
}

/// A receive; a later one has a larger number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Receive {
    pub(crate) number: u64,
    pub(crate) bits: u64,
    pub(crate) mask: u64,
}

impl Receive {
    pub(crate) fn accepts(&self, message: &Message) -> bool {
        message.bits & self.mask == self.bits
    }
}

/// The handler's verdict on a message that matches nothing is in the message's bits.
pub(crate) const DEFER: u64 = 1 << 20;
pub(crate) const FINISH: u64 = 1 << 21;

/// One endpoint. Every list is oldest first.
#[derive(Default, Debug)]
pub(crate) struct Naive {
    pub(crate) posted: Vec<Receive>,
    pub(crate) unexpected: Vec<Message>,
    pub(crate) undecided: Vec<Message>,
    pub(crate) out: Option<Message>,
    /// Receives that wait for the bytes of an offer.
    pub(crate) matched: Vec<(Receive, Message)>,
    /// Receives that are complete, with their message.
    pub(crate) done: Vec<(Receive, Message)>,
}

impl Naive {
    pub(crate) fn post(&mut self, receive: Receive) {
        match take(&mut self.unexpected, |message| receive.accepts(message)) {
            Some(message) => self.join(receive, message),
            None => self.posted.push(receive),
        }
    }

    fn join(&mut self, receive: Receive, message: Message) {
        let list = if message.offer {
            &mut self.matched
        } else {
            &mut self.done
        };
        list.push((receive, message));
    }

    fn receive(&mut self, message: Message) -> bool {
        let receive = take(&mut self.posted, |receive| receive.accepts(&message));
        receive.map(|receive| self.join(receive, message)).is_some()
    }

    pub(crate) fn arrive(&mut self, message: Message) {
        if !self.undecided.is_empty() {
            self.undecided.push(message);
        } else if self.receive(message) {
        } else if message.bits & DEFER != 0 {
            self.undecided.push(message);
        } else if message.bits & FINISH == 0 {
            self.unexpected.push(message);
        }
    }

    pub(crate) fn withdraw(&mut self, number: u32) {
        self.unexpected.retain(|message| message.number != number);
        self.undecided.retain(|message| message.number != number);
        let Some((receive, _)) = take(&mut self.matched, |pair| pair.1.number == number) else {
            return;
        };
        // As if it had only been posted now, except for its place.
        match take(&mut self.unexpected, |message| receive.accepts(message)) {
            Some(message) => self.join(receive, message),
            None => {
                self.posted.push(receive);
                self.posted.sort_by_key(|receive| receive.number);
            }
        }
    }

    pub(crate) fn next(&mut self) -> Option<Message> {
        while self.out.is_none() && !self.undecided.is_empty() {
            let message = self.undecided.remove(0);
            if !self.receive(message) {
                self.out = Some(message);
                return Some(message);
            }
        }
        None
    }

    pub(crate) fn decide(&mut self, finished: bool) {
        let message = self.out.take().expect("a message is out");
        if !finished && !self.receive(message) {
            self.unexpected.push(message);
        }
    }

    pub(crate) fn probe(&self, wanted: Receive) -> Option<Message> {
        let mut unexpected = self.unexpected.iter();
        unexpected.find(|message| wanted.accepts(message)).copied()
    }
}

fn take<T>(list: &mut Vec<T>, wanted: impl FnMut(&T) -> bool) -> Option<T> {
    let at = list.iter().position(wanted)?;
    Some(list.remove(at))
}
