//! What moves over one lane: reads of ours, and sends the peer asked for.
//!
//! ```text
//!   begin --> reads, in turn --ask--> receive posted, Ask sent --> completed --> next piece
//!               | a, b, a, b ...        at most WINDOW pieces          |
//!               |                       Refused: cancelled             `-- all of a read: ReadDone
//!
//!   on_ask --> asked for, in order --serve--> send posted --> completed
//!               at most ASKED_MAX               at most WINDOW
//! ```
//!
//! A receive is posted before the peer hears of it, straight into place and with a tag that is
//! used once, so nothing of a message is ever unexpected. One piece of each read in turn keeps a
//! long read from holding up a short one.
//!
//! Anything that does not go as it should is [`Broken`]: the lane is to be closed, which gives
//! back every piece at once. A refused piece alone is cancelled, for that hurts nobody else.
//!
//! Owns: reads and their pieces, pieces asked for by the peer.
//! Knows nothing of: how lanes come and go.

use super::exposure::{Exposures, Gather, PIECE_MAX};
use super::ops::Op;
use super::pieces::Pieces;
use super::remote::{LaneOp, News, Outcome, Outlet, PIECE_MIN, RemoteOp, Report, Wish};
use super::remote_frame::{Ask, RemoteFrame};
use libc::c_void;
use libfabric_sys::abi::{FI_ADDR_UNSPEC, FI_EAGAIN};
use mx_port_fabric::Ep;
use mx_proto::port::RemoteKey;
use mx_proto::{Instant, LinkId};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The traffic of one lane.
pub(super) struct Flow {
    reads: Slab<Read>,
    /// Reads that have pieces to ask for.
    turn: VecDeque<usize>,
    posted: Slab<Posted>,
    posted_bytes: usize,
    /// Since when the oldest cancelled piece is waited for.
    cancelled: Option<Instant>,
    asked: VecDeque<Asked>,
    /// Sends the provider has.
    sending: usize,
    next_tag: u64,
    tag_mask: u64,
}

struct Read {
    token: u64,
    key: RemoteKey,
    from: u64,
    pieces: Pieces,
    /// Pieces the provider has.
    posted: usize,
    failed: bool,
}

/// A piece that the provider writes to.
struct Posted {
    read: usize,
    len: usize,
    tag: u64,
    context: *mut c_void,
    cancelled: bool,
}

struct Asked {
    exposure: u64,
    gather: Gather,
    tag: u64,
}

/// Between whom a lane is.
#[derive(Clone, Copy)]
pub(super) struct Via<'a> {
    pub(super) ep: &'a Ep,
    pub(super) link: LinkId,
    /// Our lane's generation, and the peer's.
    pub(super) ours: u32,
    pub(super) theirs: u32,
    /// The peer's lane, in the address vector.
    pub(super) peer: u64,
}

/// The lane cannot be gone on with: what went wrong, and the error number if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken(pub(super) &'static str, pub(super) i32);

/// What came of trying to give the provider more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Pace {
    /// All that can be done has been.
    Rest,
    /// It had no room: to be tried again.
    Retry,
}

/// Where a read stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// There is none with that token.
    Unknown,
    /// The provider has nothing of it.
    Ours,
    /// The provider writes to its memory.
    Posted,
}

impl Flow {
    /// `tag_mask`: the bits both sides can use. `first_tag` is not to be guessed by strangers.
    pub(super) fn new(tag_mask: u64, first_tag: u64) -> Self {
        Self {
            reads: Slab::new(),
            turn: VecDeque::new(),
            posted: Slab::new(),
            posted_bytes: 0,
            cancelled: None,
            asked: VecDeque::new(),
            sending: 0,
            next_tag: first_tag & tag_mask,
            tag_mask,
        }
    }

    /// The bits of tags that are used.
    pub(super) fn tag_mask(&self) -> u64 {
        self.tag_mask
    }

    /// The peer has fewer bits. Only while nothing is under way.
    pub(super) fn narrow_tags(&mut self, mask: u64) {
        self.tag_mask &= mask;
        self.next_tag = following(self.next_tag, self.tag_mask);
    }

    /// Nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.asked.is_empty() && self.sending == 0
    }

    /// The provider has something.
    pub(super) fn has_posted(&self) -> bool {
        self.sending > 0 || !self.posted.is_empty()
    }

    /// Takes a read; false when its memory is too fragmented to be worth it.
    pub(super) fn begin(&mut self, wish: Wish, span: usize) -> bool {
        let pieces = Pieces::new(wish.segments, span.min(PIECE_MAX));
        if wish.len / pieces.left().max(1) < PIECE_MIN {
            return false;
        }
        let read = self.reads.insert(Read {
            token: wish.token,
            key: wish.key,
            from: wish.from,
            pieces,
            posted: 0,
            failed: false,
        });
        self.turn.push_back(read);
        true
    }

    /// Posts receives and asks for what goes there, as far as the window allows.
    pub(super) fn ask(&mut self, outlet: &mut Outlet<'_>, via: Via<'_>) -> Result<Pace, Broken> {
        while self.posted.len() < WINDOW
            && self.posted_bytes < WINDOW_BYTES
            && let Some(&id) = self.turn.front()
        {
            let Some(read) = self.reads.get_mut(id) else {
                self.turn.pop_front();
                continue;
            };
            let Some(piece) = read.pieces.peek() else {
                self.turn.pop_front();
                continue;
            };
            let what = LaneOp::Receive {
                piece: self.posted.vacant_key() as u32,
            };
            let context = outlet.ops.begin(via.op(what));
            let tag = self.next_tag;
            // SAFETY: the caller of `Remote::read` lends the memory until the read has been
            // reported or `recall` has returned, and either happens only when the provider has
            // completed this receive or its endpoint is closed.
            let posted = unsafe {
                via.ep.tagged_receive(
                    piece.start,
                    piece.len,
                    std::ptr::null_mut(),
                    FI_ADDR_UNSPEC,
                    tag,
                    context,
                )
            };
            if let Err(errno) = posted {
                outlet.ops.end(context);
                return match errno {
                    FI_EAGAIN => Ok(Pace::Retry),
                    _ => Err(Broken("a receive could not be posted", errno)),
                };
            }
            self.posted.insert(Posted {
                read: id,
                len: piece.len,
                tag,
                context,
                cancelled: false,
            });
            self.posted_bytes += piece.len;
            self.next_tag = following(tag, self.tag_mask);
            read.posted += 1;
            read.pieces.advance();
            let ask = RemoteFrame::Ask(Ask {
                lane: via.theirs,
                exposure: read.key.address,
                key: read.key.key,
                from: read.from.saturating_add(piece.offset as u64),
                len: piece.len as u32,
                tag,
            });
            outlet.out.push_back((via.link, ask));
            self.turn.rotate_left(1);
        }
        Ok(Pace::Rest)
    }

    /// A receive has ended.
    pub(super) fn on_received(
        &mut self,
        news: &mut News,
        link: LinkId,
        piece: u32,
        outcome: Outcome,
    ) -> Result<(), Broken> {
        let Some(posted) = self.posted.try_remove(piece as usize) else {
            return Err(Broken("a receive ended that was not posted", 0));
        };
        self.posted_bytes -= posted.len;
        if posted.cancelled && !self.posted.iter().any(|(_, other)| other.cancelled) {
            self.cancelled = None;
        }
        let right = outcome == Ok(posted.len);
        let Some(read) = self.reads.get_mut(posted.read) else {
            return Err(Broken("a receive ended whose read is no more", 0));
        };
        read.posted -= 1;
        read.failed |= !right;
        if right {
            news.report(Report::Reading {
                link,
                token: read.token,
            });
        }
        self.end_read(news, link, posted.read);
        match outcome {
            _ if right || posted.cancelled => Ok(()),
            Ok(_) => Err(Broken("a piece has the wrong length", 0)),
            Err(errno) => Err(Broken("a receive failed", errno)),
        }
    }

    /// The peer will not send a piece.
    pub(super) fn on_refused(&mut self, news: &mut News, via: Via<'_>, tag: u64, now: Instant) {
        let Some((_, posted)) = self
            .posted
            .iter_mut()
            .find(|(_, posted)| posted.tag == tag && !posted.cancelled)
        else {
            return;
        };
        posted.cancelled = true;
        self.cancelled.get_or_insert(now);
        let (context, read) = (posted.context, posted.read);
        if let Some(read) = self.reads.get_mut(read) {
            read.failed = true;
            read.pieces.finish();
        }
        via.ep.cancel(context);
        self.end_read(news, via.link, read);
    }

    /// Since when a piece has been waited for that was cancelled.
    pub(super) fn cancelled_since(&self) -> Option<Instant> {
        self.cancelled
    }

    /// Asks for nothing more for a read, and forgets it when nothing is posted.
    pub(super) fn recall(&mut self, token: u64) -> Standing {
        let Some((id, read)) = self.reads.iter_mut().find(|(_, read)| read.token == token) else {
            return Standing::Unknown;
        };
        read.pieces.finish();
        read.failed = true;
        if read.posted > 0 {
            return Standing::Posted;
        }
        self.reads.remove(id);
        Standing::Ours
    }

    /// Reports every read as failed; nothing is posted any more.
    pub(super) fn fail(self, news: &mut News, link: LinkId) {
        for (_, Read { token, .. }) in self.reads {
            let ok = false;
            news.report(Report::ReadDone { link, token, ok });
        }
    }

    /// Queues what the peer asks for. False: it shall be refused.
    pub(super) fn on_ask(&mut self, exposures: &Exposures, link: LinkId, ask: &Ask) -> bool {
        let key = RemoteKey {
            address: ask.exposure,
            key: ask.key,
        };
        let len = ask.len as usize;
        if self.asked.len() >= ASKED_MAX
            || len > PIECE_MAX
            || ask.tag == WARM_TAG
            || ask.tag & !self.tag_mask != 0
        {
            return false;
        }
        let Some(exposure) = exposures.find(link, key) else {
            return false;
        };
        let Some(gather) = exposures.gather(exposure, ask.from, len) else {
            return false;
        };
        self.asked.push_back(Asked {
            exposure,
            gather,
            tag: ask.tag,
        });
        true
    }

    /// Sends what was asked for, in order, as far as the provider takes it.
    pub(super) fn serve(
        &mut self,
        outlet: &mut Outlet<'_>,
        via: Via<'_>,
        exposures: &mut Exposures,
    ) -> Result<Pace, Broken> {
        while self.sending < WINDOW
            && let Some(asked) = self.asked.front()
        {
            let what = LaneOp::Send {
                exposure: asked.exposure,
            };
            let context = outlet.ops.begin(via.op(what));
            // SAFETY: the exposure lasts, and its memory with it, until `conceal` or
            // `on_link_down` returns, which take it off this queue and wait for its sends or
            // close their endpoint.
            let sent = unsafe {
                via.ep.tagged_send(
                    &asked.gather,
                    std::ptr::null_mut(),
                    via.peer,
                    asked.tag,
                    context,
                )
            };
            if let Err(errno) = sent {
                outlet.ops.end(context);
                return match errno {
                    FI_EAGAIN => Ok(Pace::Retry),
                    _ => Err(Broken("a send could not be posted", errno)),
                };
            }
            exposures.begin_send(asked.exposure);
            self.sending += 1;
            self.asked.pop_front();
        }
        Ok(Pace::Rest)
    }

    /// A send has ended.
    pub(super) fn on_sent(&mut self) {
        self.sending = self.sending.saturating_sub(1);
    }

    /// Takes everything of an exposure off the queue; the tags that will not come.
    pub(super) fn drop_asked(&mut self, exposure: u64) -> SmallVec<[u64; 4]> {
        let mut tags = SmallVec::new();
        self.asked.retain(|asked| {
            let stays = asked.exposure != exposure;
            if !stays {
                tags.push(asked.tag);
            }
            stays
        });
        tags
    }

    /// Reads that have not ended.
    #[cfg(test)]
    pub(super) fn reads(&self) -> usize {
        self.reads.len()
    }

    /// Reports a read of which nothing is to come any more.
    fn end_read(&mut self, news: &mut News, link: LinkId, id: usize) {
        let ended = self
            .reads
            .get(id)
            .is_some_and(|read| read.posted == 0 && read.pieces.peek().is_none());
        if ended {
            let Read { token, failed, .. } = self.reads.remove(id);
            // A later read may get its place, and must not find two turns.
            self.turn.retain(|turn| *turn != id);
            let ok = !failed;
            news.report(Report::ReadDone { link, token, ok });
        }
    }
}

impl Via<'_> {
    pub(super) fn op(&self, what: LaneOp) -> Op {
        Op::Remote(RemoteOp::Lane {
            link: self.link,
            lane: self.ours,
            what,
        })
    }
}

/// The tag after `tag`, never that of the first message.
fn following(tag: u64, mask: u64) -> u64 {
    match tag.wrapping_add(1) & mask {
        WARM_TAG => 1 & mask,
        next => next,
    }
}

/// The tag of a lane's first message.
pub(super) const WARM_TAG: u64 = 0;

/// Pieces of a lane in flight each way. One is on the way, one is being asked for and one ends;
/// the others are for the time in which nobody polls. The smallest queue of a provider is 256.
pub(super) const WINDOW: usize = 16;

/// The same in bytes: what a fast network carries in a millisecond.
const WINDOW_BYTES: usize = 8 << 20;

/// Pieces a peer may have asked for and not got. One of ours has at most [`WINDOW`] on the way.
const ASKED_MAX: usize = 4 * WINDOW;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_go_round_and_leave_out_the_first_message_s() {
        assert_eq!(following(5, u64::MAX), 6);
        assert_eq!(following(u64::MAX, u64::MAX), 1);
        assert_eq!(following((1 << 48) - 1, (1 << 48) - 1), 1);
    }
}
