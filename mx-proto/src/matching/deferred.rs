//! Undecided messages: one that matched no receive, and those behind it.
//!
//! ```text
//!   arrival, unmatched or --> [ oldest ... youngest ] -- next --> out, being decided -- back -->
//!   behind one that was                   `-- withdraw, forget: its sender takes it back, or is gone
//! ```
//!
//! Owns: their bytes, except those of the one that is out.
//! Cost: as for unexpected messages ([`Unexpected`]); there are as many as senders have credits for. The
//! next one is found by passing over those of sources whose bytes are on their way.

use crate::flow::Paid;
use crate::ids::{RemoteId, RequestId};
use crate::matching::{EntryId, Unexpected, Waiting};
use crate::origin::Source;

/// A message that is being decided elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    from: RemoteId,
    pub(crate) paid: Paid,
    /// Its sender has gone, and what it costs is a tombstone from there.
    pub(crate) tombstone: Option<Source>,
}

/// The bytes of an offered message are being fetched.
#[derive(Clone, Copy, Debug)]
struct Preview {
    message: EntryId,
    source: RemoteId,
    fetch: RequestId,
}

/// All undecided messages of one endpoint. Every one is younger than every unexpected message.
#[derive(Debug, Default)]
pub(crate) struct Undecided {
    queue: Unexpected,
    /// Messages of which the bytes are on their way: one of a source, which those behind it wait for.
    previews: Vec<Preview>,
    /// One has been handed out and has not come back.
    out: Option<Out>,
    /// All of them. Every message that comes asks whether it is 0.
    count: usize,
}

impl Undecided {
    /// Nothing waits and nothing is out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of waiting messages, including the one that is out.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// One is being decided.
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        self.out.is_some()
    }

    pub(crate) fn add(&mut self, waiting: Waiting) {
        self.queue.add(waiting);
        self.recount();
    }

    /// The oldest one behind none of which the bytes are on their way; `None` while one is out.
    pub(crate) fn next(&self) -> Option<EntryId> {
        if self.out.is_some() {
            return None;
        }
        let previews = &self.previews;
        self.queue
            .oldest(|source| previews.iter().all(|preview| preview.source != source))
    }

    /// The oldest one of all; `None` while one is out.
    pub(crate) fn oldest(&self) -> Option<EntryId> {
        self.queue.oldest(|_| true).filter(|_| self.out.is_none())
    }

    pub(crate) fn get_mut(&mut self, message: EntryId) -> Option<&mut Waiting> {
        self.queue.get_mut(message)
    }

    pub(crate) fn take(&mut self, message: EntryId) -> Option<Waiting> {
        let taken = self.queue.remove(message);
        self.recount();
        taken
    }

    /// Whether the bytes of one more message may be fetched.
    pub(crate) fn may_preview(&self) -> bool {
        self.previews.len() < PREVIEWS_MAX
    }

    /// They are, from now on.
    pub(crate) fn begin_preview(&mut self, message: EntryId, source: RemoteId, fetch: RequestId) {
        self.previews.push(Preview {
            message,
            source,
            fetch,
        });
    }

    /// They are not any more. Gives the message, which may be gone.
    pub(crate) fn end_preview(&mut self, fetch: RequestId) -> Option<EntryId> {
        let mut all = self.previews.iter();
        let at = all.position(|preview| preview.fetch == fetch)?;
        Some(self.previews.swap_remove(at).message)
    }

    /// Records that the message from [`Self::next`] is out for a decision.
    pub(crate) fn hand_out(&mut self, source: RemoteId, paid: Paid) {
        debug_assert!(self.out.is_none(), "two messages are being decided");
        self.out = Some(Out {
            from: source,
            paid,
            tombstone: None,
        });
        self.recount();
    }

    /// It is decided. `None` when none was out.
    pub(crate) fn take_back(&mut self) -> Option<Out> {
        let was_out = self.out.take();
        self.recount();
        was_out
    }

    /// Takes out the offer `send_id` of `source`.
    pub(crate) fn withdraw(&mut self, source: RemoteId, send_id: u64) -> Option<Waiting> {
        let found = self.queue.withdraw(source, send_id);
        self.recount();
        found
    }

    /// The number of complete messages from `source`.
    pub(crate) fn whole_of(&self, source: RemoteId) -> usize {
        self.queue.whole_of(source)
    }

    /// Puts another name on the oldest `count` whole messages from `source`.
    pub(crate) fn rename(&mut self, source: RemoteId, to: RemoteId, count: usize) {
        self.queue.rename(source, to, count);
    }

    /// Takes out everything from `source` that is `wanted`.
    pub(crate) fn forget(
        &mut self,
        source: RemoteId,
        wanted: impl Fn(&Waiting) -> bool,
    ) -> Vec<Waiting> {
        let gone = self.queue.forget(source, wanted);
        self.recount();
        gone
    }

    /// The message that is being decided, if it is from `source`.
    pub(crate) fn out_of(&mut self, source: RemoteId) -> Option<&mut Out> {
        self.out.as_mut().filter(|out| out.from == source)
    }

    fn recount(&mut self) {
        self.count = self.queue.len() + usize::from(self.out.is_some());
    }
}

/// Messages of which the bytes may be on their way at once, each of another source. Their memory is not
/// paid for.
const PREVIEWS_MAX: usize = 64;
