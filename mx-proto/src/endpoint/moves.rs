//! Moves of sessions from their meeting link, a TCP link, to a link over a fabric.
//!
//! ```text
//!   caller   Expected --Upgrade--> Calling --the fabric answers: Attach, Fence--> Fenced --Fence--> Moved
//!               |                    |                                              |
//!               `--------------------+------------- lost, Lost, late --------------+--> stays where it is
//!                                    |                                              |
//!   called   Offered --Attach, and Fence on the meeting link--> Answered --Fence over the fabric--> Moved
//! ```
//!
//! A fabric's endpoint cannot hold one peer back, so no packet may come over it before the whole meeting link has been
//! read: a Fence is its sender's last packet there, and the answer to it opens the fabric's link. Until the caller has
//! received the called side's Fence, the session can stay where it is; after that it ends with the fabric's link.
//!
//! After the move the meeting link carries nothing. If it ends, the peer is probed over the fabric. If slots for links
//! run short, the oldest meeting links are closed.
//!
//! Owns: the added link of each session until it is the command link, and the meeting link from then on.
//! Out of scope: addresses of a fabric, which the port makes and reads.
//! Cost: an entry for each session that moves, or has kept its meeting link.

use super::Endpoint;
use super::deadlines::Deadline;
use crate::ids::{LinkId, RemoteId, RequestId};
use crate::memory::Source;
use crate::owner::Owner;
use crate::port::{Close, LinkDown, MoveRefusal, Port};
use crate::queues::Control;
use crate::remote::{COMMAND_LINK, LinkState, Tx};
use crate::secret::{self, Role};
use crate::status::{DownReason, Status, Violation};
use crate::time::Clock;
use crate::wire::{self, Header};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Moves {
    sessions: HashMap<RemoteId, Move, RandomState>,
    /// Sessions by their link that is not the command link: the fabric's before the move, the meeting link after it.
    by_link: HashMap<LinkId, RemoteId, RandomState>,
}

#[derive(Debug)]
struct Move {
    stage: Stage,
    /// Feature bit of the fabric.
    fabric: u32,
    /// Whether the session ends if it cannot move.
    strict: bool,
    /// Accepted connects that complete with the move.
    held: SmallVec<[RequestId; 1]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The caller waits for an address.
    Expected,
    /// The caller waits for an answer on its link over the fabric.
    Calling(LinkId),
    /// The caller has sent its Attach and its Fence.
    Fenced(LinkId),
    /// The called side has sent an address.
    Offered {
        /// Link over the fabric. `None` until the caller's link is attached, over a fabric that needs no slot for it
        /// before.
        link: Option<LinkId>,
        attached: bool,
        /// Whether the caller's Fence has come.
        fenced: bool,
    },
    /// The called side has answered the Fence. `None`: its link over the fabric is lost, and the caller reports whether
    /// it has moved.
    Answered(Option<LinkId>),
    /// The fabric's link is the command link.
    Moved {
        meeting: LinkId,
        /// Number of the move at this endpoint.
        nth: u64,
    },
}

impl Stage {
    /// Returns the session's link that is not its command link.
    fn link(self) -> Option<LinkId> {
        match self {
            Self::Expected => None,
            Self::Calling(link) | Self::Fenced(link) | Self::Moved { meeting: link, .. } => {
                Some(link)
            }
            Self::Offered { link, .. } | Self::Answered(link) => link,
        }
    }
}

impl Moves {
    /// Returns the session of a link that is not its command link.
    #[inline]
    pub(super) fn session_of(&self, link: LinkId) -> Option<RemoteId> {
        self.by_link.get(&link).copied()
    }

    pub(super) fn is_moving(&self, id: RemoteId) -> bool {
        let stage = self.stage_of(id);
        stage.is_some_and(|stage| !matches!(stage, Stage::Moved { .. }))
    }

    /// Returns whether connects to a session complete only when it has moved.
    pub(super) fn holds(&self, id: RemoteId) -> bool {
        self.is_moving(id) && self.sessions.get(&id).is_some_and(|of| of.strict)
    }

    /// Holds an accepted connect until the session has moved.
    pub(super) fn hold(&mut self, id: RemoteId, connect: RequestId) {
        if let Some(of) = self.sessions.get_mut(&id) {
            of.held.push(connect);
        }
    }

    fn stage_of(&self, id: RemoteId) -> Option<Stage> {
        self.sessions.get(&id).map(|of| of.stage)
    }

    fn begin(&mut self, id: RemoteId, fabric: u32, strict: bool, stage: Stage) {
        let held = SmallVec::new();
        let of = Move {
            stage,
            fabric,
            strict,
            held,
        };
        self.sessions.insert(id, of);
        self.by_link.extend(stage.link().map(|link| (link, id)));
    }

    fn advance(&mut self, id: RemoteId, stage: Stage) {
        if let Some(of) = self.sessions.get_mut(&id) {
            of.stage = stage;
            self.by_link.extend(stage.link().map(|link| (link, id)));
        }
    }

    fn take(&mut self, id: RemoteId) -> Option<Move> {
        let of = self.sessions.remove(&id)?;
        if let Some(link) = of.stage.link() {
            self.by_link.remove(&link);
        }
        Some(of)
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Returns the feature bit of the fabric to which a session on `link` may move, given the peer's features; 0: none.
    pub(super) fn common_fabric(&self, link: LinkId, features: u32) -> u32 {
        let common = features & self.features(link) & wire::FABRICS;
        // A correct peer offers one fabric.
        common & common.wrapping_neg()
    }

    /// Prepares for a move after our call has been accepted. Returns false if the session must move and cannot.
    pub(super) fn expect_move(&mut self, id: RemoteId, link: LinkId, features: u32) -> bool {
        let fabric = self.common_fabric(link, features);
        let strict = self.port.must_move(link);
        if fabric != 0 {
            self.moves.begin(id, fabric, strict, Stage::Expected);
            return true;
        }
        if self.features(link) & wire::FABRICS != 0 {
            self.port.decline_move(link, MoveRefusal::NotOffered);
        }
        !strict
    }

    /// Sends a caller our address on the fabric that both sides have.
    pub(super) fn offer_move(&mut self, id: RemoteId, link: LinkId, features: u32) {
        let fabric = self.common_fabric(link, features);
        if fabric == 0 {
            return;
        }
        let mut header = Header::new(wire::Kind::Upgrade, 0, fabric);
        let now = self.clock.now();
        let address = match self.port.offer(link, fabric, now) {
            Ok((link, address)) => {
                let (attached, fenced) = (false, false);
                let stage = Stage::Offered {
                    link,
                    attached,
                    fenced,
                };
                self.moves.begin(id, fabric, false, stage);
                address
            }
            Err(why) => {
                log::debug!("sending remote {id:?} no fabric address: {why}");
                header.aux = why.code();
                Vec::new()
            }
        };
        self.push_control(id, header, &address);
    }

    /// Handles the called side's address on the fabric, or the reason why there is none.
    #[cold]
    pub(super) fn on_upgrade(&mut self, link: LinkId, id: RemoteId, header: &Header) {
        let expected = self.moves.sessions.get(&id).filter(|of| {
            of.stage == Stage::Expected
                && of.fabric == header.length
                && header.body_len as usize <= ADDRESS_MAX
        });
        let Some(fabric) = expected.map(|of| of.fabric) else {
            return self.violation(link, Violation::Move);
        };
        let now = self.clock.now();
        let address = self.port.body().to_vec();
        let called = match header.aux {
            0 => self.port.call(link, fabric, &address, now),
            code => Err(MoveRefusal::of_code(code)),
        };
        match called {
            Ok(added) => {
                self.moves.advance(id, Stage::Calling(added));
                let until = now.after(TIMEOUT);
                self.wheel.set(now, until, Deadline::Move(id));
            }
            Err(why) => self.stay(id, why, true),
        }
    }

    /// Ends a move that has taken too long.
    pub(super) fn end_move_time(&mut self, id: RemoteId) {
        if let Some(Stage::Calling(_) | Stage::Fenced(_)) = self.moves.stage_of(id) {
            self.stay(id, MoveRefusal::Ended(LinkDown::TimedOut), true);
        }
    }

    /// Sends the Attach when our link over a fabric is up, or has room again.
    #[cold]
    pub(super) fn added_link_ready(&mut self, link: LinkId) {
        let Some(id) = self.moves.session_of(link) else {
            return;
        };
        if self.moves.stage_of(id) != Some(Stage::Calling(link)) {
            return;
        }
        let session = self
            .remotes
            .connected(id)
            .map(|met| secret::call_of(&met.nonce));
        let header = Header::new(
            wire::Kind::Attach,
            session.unwrap_or_default(),
            COMMAND_LINK,
        );
        // If the link has no room, the port reports when it has.
        if self.send_proof(link, id, Role::Caller, header) {
            self.moves.advance(id, Stage::Fenced(link));
            self.push_control(id, Header::new(wire::Kind::Fence, 0, 0), &[]);
        }
    }

    /// Handles the Attach on a caller's link over the fabric, with its proof.
    pub(super) fn on_attach_move(&mut self, link: LinkId, header: &Header, proof: &[u8]) {
        let id = RemoteId::from_word(header.word);
        let stage = self.moves.stage_of(id);
        let proven = self.data_link_proof(link, id, Role::Caller, COMMAND_LINK);
        match stage {
            Some(Stage::Offered {
                link: offered,
                attached: false,
                fenced,
            }) if offered.is_none_or(|offered| offered == link)
                && proven.is_some_and(|proven| proven == proof) =>
            {
                let stage = Stage::Offered {
                    link: Some(link),
                    attached: true,
                    fenced,
                };
                self.moves.advance(id, stage);
                self.port.accept(link);
                self.answer_fence(id);
            }
            _ => self.added_link_violation(link),
        }
    }

    /// Handles a Fence on a command link.
    #[cold]
    pub(super) fn on_fence(&mut self, link: LinkId, id: RemoteId) {
        match self.moves.stage_of(id) {
            Some(Stage::Fenced(added)) => {
                self.move_to(id, added);
                // The called side accepts no packet on the new link before this Fence.
                let answer = Control::new(Header::new(wire::Kind::Fence, 0, 0), &[]);
                self.push_control_first(id, answer);
            }
            Some(Stage::Offered {
                link,
                attached,
                fenced: false,
            }) => {
                let fenced = true;
                let stage = Stage::Offered {
                    link,
                    attached,
                    fenced,
                };
                self.moves.advance(id, stage);
                self.answer_fence(id);
            }
            // Either side may have said meanwhile that the session stays.
            None => self.stats.stale += 1,
            Some(_) => self.violation(link, Violation::Move),
        }
    }

    /// Answers the caller's Fence once the fabric's link has come, too.
    fn answer_fence(&mut self, id: RemoteId) {
        if let Some(Stage::Offered {
            link,
            attached: true,
            fenced: true,
        }) = self.moves.stage_of(id)
        {
            self.moves.advance(id, Stage::Answered(link));
            self.push_control(id, Header::new(wire::Kind::Fence, 0, 0), &[]);
        }
    }

    /// Notes that our Fence has been sent on a link. Returns true if nothing else may be sent there.
    pub(super) fn fence(&mut self, id: RemoteId, link: LinkId) -> bool {
        let fences = matches!(
            self.moves.stage_of(id),
            Some(Stage::Fenced(_) | Stage::Answered(_))
        );
        if fences && let Some(met) = self.remotes.connected_mut(id) {
            met.tx = Tx::Fenced(link);
        }
        fences
    }

    /// Handles a packet on a link of a session that is not its command link.
    #[cold]
    pub(super) fn on_added_link(&mut self, link: LinkId, header: &Header) {
        let Some(id) = self.moves.session_of(link) else {
            return;
        };
        let fenced = self
            .remotes
            .connected(id)
            .is_some_and(|met| met.tx.is_fenced());
        match (header.kind, self.moves.stage_of(id)) {
            (wire::Kind::Fence, Some(Stage::Answered(_))) if fenced => {
                self.move_to(id, link);
                self.apply_credit_fields(id, header);
            }
            (wire::Kind::Attach, Some(Stage::Offered { .. })) => {
                let proof = self.port.body().to_vec();
                self.on_attach(link, header, &proof);
            }
            _ => self.added_link_violation(link),
        }
    }

    /// Closes an added link whose peer violates the protocol there.
    fn added_link_violation(&mut self, link: LinkId) {
        self.stats.malformed += 1;
        log::debug!("link {link:?}: {}; closing it", Violation::Move);
        match self.moves.session_of(link) {
            Some(_) => self.added_link_down(link, LinkDown::Protocol),
            None => self.close_link(link, Close::Now),
        }
    }

    /// Replaces the command link with the fabric's link.
    fn move_to(&mut self, id: RemoteId, added: LinkId) {
        let Some(of) = self.moves.take(id) else {
            return;
        };
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        let meeting = remote.link.replace((added, LinkState::Proven));
        let links = self.port.limits(added).data_links;
        if let Some(met) = self.remotes.connected_mut(id) {
            met.tx = Tx::Open(added);
            met.data_links = links.min(met.data_links);
        }
        self.bind(added, id);
        self.learn_limits(id, added);
        self.stats.moved += 1;
        if let Some((meeting, _)) = meeting {
            self.forget_link(meeting);
            if self.port.has_places_beside(meeting) {
                let nth = self.stats.moved;
                let stage = Stage::Moved { meeting, nth };
                self.moves.begin(id, of.fabric, false, stage);
            } else {
                self.port.close(meeting, Close::Flush);
            }
        }
        for connect in of.held {
            self.end_connect(id, connect, Status::Success);
        }
    }

    /// Closes the oldest eighth of the meeting links kept, but at least one.
    #[cold]
    pub(super) fn give_up_meeting_links(&mut self) {
        let kept = self.moves.sessions.iter();
        let kept = kept.filter_map(|(id, of)| match of.stage {
            Stage::Moved { meeting, nth } => Some((nth, *id, meeting)),
            _ => None,
        });
        let mut kept: Vec<_> = kept.collect();
        kept.sort_unstable_by_key(|(nth, ..)| *nth);
        kept.truncate(kept.len().div_ceil(8));
        for (_, id, meeting) in kept {
            self.moves.take(id);
            // Both Fences have been read, and nothing follows them.
            self.port.close(meeting, Close::Now);
        }
    }

    /// Handles the end of a link that is not the session's command link.
    pub(super) fn added_link_down(&mut self, link: LinkId, reason: LinkDown) {
        let Some(id) = self.moves.session_of(link) else {
            return;
        };
        match self.moves.stage_of(id) {
            Some(Stage::Moved { .. }) => {
                self.moves.take(id);
                self.port.close(link, Close::Now);
                self.probe_peer(id);
            }
            // The caller ends the session if it has moved; otherwise it reports that the session stays.
            Some(Stage::Answered(_)) => {
                self.moves.by_link.remove(&link);
                self.moves.advance(id, Stage::Answered(None));
                self.port.close(link, Close::Now);
            }
            _ => self.stay(id, MoveRefusal::Ended(reason), true),
        }
    }

    /// Handles the end of a session's meeting link. Returns true if the session continues over the fabric: the caller,
    /// if it is alive, has read our Fence.
    pub(super) fn moves_without_meeting_link(&mut self, id: RemoteId) -> bool {
        let fenced = self
            .remotes
            .connected(id)
            .is_some_and(|met| met.tx.is_fenced());
        match self.moves.stage_of(id) {
            Some(Stage::Answered(Some(added))) if fenced => {
                self.move_to(id, added);
                self.probe_peer(id);
                true
            }
            _ => false,
        }
    }

    /// Checks whether the peer's process is still alive.
    fn probe_peer(&mut self, id: RemoteId) {
        let now = self.clock.now();
        let link = self.remotes.of(id).and_then(|remote| remote.tx_link());
        if !link.is_some_and(|link| self.port.probe_peer(link, now)) {
            self.ask_whether_there(id, now);
        }
    }

    /// Handles the peer's report that the session stays where it is.
    pub(super) fn on_stays(&mut self, id: RemoteId) {
        match self.moves.stage_of(id) {
            // Both sides may report this at once.
            None => self.stats.stale += 1,
            Some(Stage::Moved { .. }) => {
                self.fail_remote(id, DownReason::Protocol(Violation::Move));
            }
            Some(_) => self.stay(id, MoveRefusal::Ended(LinkDown::Closed), false),
        }
    }

    /// Ends a move: the session stays on its meeting link. `tells`: the peer may not know.
    fn stay(&mut self, id: RemoteId, why: MoveRefusal, tells: bool) {
        let Some(of) = self.moves.take(id) else {
            return;
        };
        log::debug!("remote {id:?} stays on its TCP link: {why}");
        if let Some(added) = of.stage.link() {
            self.port.close(added, Close::Now);
        }
        let Some(remote) = self.remotes.of(id) else {
            return;
        };
        let (meeting, called) = (remote.link, remote.called.is_some());
        if let Some(met) = self.remotes.connected_mut(id)
            && let Tx::Fenced(link) = met.tx
        {
            met.tx = Tx::Open(link);
        }
        if tells {
            self.push_control(id, Header::new(wire::Kind::Lost, 0, COMMAND_LINK), &[]);
        }
        self.make_ready(id);
        if let Some((meeting, _)) = meeting
            && called
        {
            self.port.decline_move(meeting, why);
        }
        if of.strict {
            self.fail_remote(id, DownReason::Link(LinkDown::Unreachable));
        }
    }

    /// Ends a move because the session is about to end: packets held until the caller's Fence is answered can then
    /// leave at once.
    pub(super) fn stay_to_part(&mut self, id: RemoteId) {
        if let Some(Stage::Fenced(_)) = self.moves.stage_of(id) {
            self.stay(id, MoveRefusal::Ended(LinkDown::Closed), true);
        }
    }

    /// Closes the link other than the command link of a session that is over.
    pub(super) fn end_move(&mut self, id: RemoteId) {
        if let Some(of) = self.moves.take(id)
            && let Some(link) = of.stage.link()
            && !self.inherited
        {
            // Nothing has been sent over the fabric before the move.
            let how = match of.stage {
                Stage::Moved { .. } => Close::Flush,
                _ => Close::Now,
            };
            self.port.close(link, how);
        }
    }
}

/// Time in which the fabric has to answer the caller, and the called side has to answer its Fence.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size in bytes of a fabric address accepted from a peer.
const ADDRESS_MAX: usize = 512;
