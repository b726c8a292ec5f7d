//! How lanes come to be: proposals, answers, and two that become a pair.
//!
//! ```text
//!   wanted --> open, Lane(g, 0) --.                 .-- Lane(h, 0) from the peer
//!                                 v                 v
//!             Lane(h, g): pair <--'   no lane here: open, Lane(g, h), pair
//!             Lane(h, 0): pair (they crossed)       no room: NoLane(h)
//!             NoLane(g):  closed, later again
//! ```
//!
//! An answer names the proposal it is for, so that one which was overtaken by the end of its lane
//! is recognised.
//!
//! Owns: the rules. Knows nothing of: what moves over a lane.

use super::super::flow::{Broken, Flow};
use super::super::remote::{News, Outlet};
use super::super::remote_frame::RemoteFrame;
use super::one::{Hello, Lane, Peer, WARM_MAX};
use super::{Cause, Lanes};
use mx_port_fabric::Role;
use mx_proto::LinkId;
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::time::Duration;

/// A lane of the peer's.
pub(super) struct Proposal {
    pub(super) generation: u32,
    pub(super) tag_mask: u64,
    pub(super) address: SmallVec<[u8; 32]>,
}

impl Lanes {
    /// What a link's turn in a poll is for.
    pub(super) fn attend(
        &mut self,
        outlet: &mut Outlet<'_>,
        news: &mut News,
        link: LinkId,
        may_open: &mut bool,
    ) {
        let now = self.now;
        let Some(side) = self.links.get_mut(&link) else {
            return;
        };
        if side.lane.is_some() {
            return self.drive(outlet, news, link);
        }
        if let Some(proposal) = &side.proposal {
            let generation = proposal.generation;
            if !*may_open {
                return self.queue(link);
            }
            if now < side.answer_after {
                side.proposal = None;
                return outlet
                    .out
                    .push_back((link, RemoteFrame::NoLane { generation }));
            }
            *may_open = false;
            if !self.open(outlet, news, link, generation) {
                outlet
                    .out
                    .push_back((link, RemoteFrame::NoLane { generation }));
                return;
            }
            let proposal = self
                .links
                .get_mut(&link)
                .and_then(|side| side.proposal.take());
            if let Some(proposal) = proposal {
                self.pair(outlet, news, link, &proposal);
            }
        } else if side.wanted {
            if now < side.not_before {
                let at = side.not_before;
                self.wake_at(at);
            } else if *may_open {
                *may_open = false;
                self.open(outlet, news, link, 0);
            } else {
                self.queue(link);
            }
        }
    }

    /// Opens a lane and tells the peer: an answer to its lane `with`, or a proposal where that is
    /// 0.
    fn open(&mut self, outlet: &mut Outlet<'_>, news: &mut News, link: LinkId, with: u32) -> bool {
        if self.open >= self.most {
            self.make_room(outlet, news);
        }
        let now = self.now;
        let Some(side) = self.links.get_mut(&link) else {
            return false;
        };
        if self.open >= self.most {
            side.proposal = None;
            side.put_off(now);
            return false;
        }
        let ep = match outlet.domain.endpoint(Role::Lane) {
            Ok(ep) => ep,
            Err(error) => {
                log::debug!("link {link:?}: no lane: {error}");
                side.proposal = None;
                side.put_off(now);
                return false;
            }
        };
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        let generation = self.generation;
        log::debug!("link {link:?}: lane {generation} opened");
        let announcement = RemoteFrame::Lane {
            generation,
            with,
            tag_mask: self.tag_mask,
            address: SmallVec::from_slice(ep.address()),
        };
        outlet.out.push_back((link, announcement));
        side.wanted = false;
        side.answer_after = now.after(ANSWER_PAUSE);
        self.active.push(link);
        side.lane = Some(Lane {
            ep,
            generation,
            hello: Hello::default(),
            peer: None,
            flow: Flow::new(self.tag_mask, self.tags.hash_one(generation)),
            opened: now,
            used: now,
            active: true,
        });
        self.open += 1;
        self.wake_at(now.after(WARM_MAX));
        true
    }

    /// Closes the lane that has been idle the longest, unless all are in use.
    fn make_room(&mut self, outlet: &mut Outlet<'_>, news: &mut News) {
        let now = self.now;
        let idlest = self
            .links
            .iter()
            .filter_map(|(link, side)| Some((*link, side.lane.as_ref()?)))
            .filter(|(_, lane)| lane.flow.is_idle() && now.since(lane.used) >= KEEP)
            .min_by_key(|(_, lane)| lane.used);
        if let Some((link, _)) = idlest {
            self.shut(outlet, news, link, Cause::Idle);
        }
    }

    /// The peer has a lane: an answer to ours, or a proposal.
    pub(super) fn on_lane(
        &mut self,
        outlet: &mut Outlet<'_>,
        news: &mut News,
        link: LinkId,
        with: u32,
        proposal: Proposal,
    ) {
        let Some(side) = self.links.get_mut(&link) else {
            return;
        };
        let theirs = proposal.generation;
        let (ours, known) = match &side.lane {
            Some(lane) => (lane.generation, lane.peer.map(|peer| peer.generation)),
            None => (0, None),
        };
        match (with, known) {
            // 0 names no lane; an answer to one that is closed is overtaken by our `Gone`.
            _ if theirs == 0 || (with != 0 && with != ours) => {}
            (0, None) if ours == 0 => {
                side.proposal = Some(proposal);
                self.queue(link);
            }
            // An answer, or two proposals that crossed and are one then.
            (_, None) => self.pair(outlet, news, link, &proposal),
            (_, Some(known)) if known == theirs => {}
            (_, Some(_)) => {
                let why = Broken("the peer has two lanes", 0);
                self.shut(outlet, news, link, Cause::Broken(why));
                let generation = theirs;
                outlet
                    .out
                    .push_back((link, RemoteFrame::NoLane { generation }));
            }
        }
    }

    /// Both lanes are open.
    fn pair(&mut self, outlet: &mut Outlet<'_>, news: &mut News, link: LinkId, with: &Proposal) {
        let Some((lane, _)) = self.lane(link) else {
            return;
        };
        let own = lane.ep.address();
        let tag_mask = lane.flow.tag_mask() & with.tag_mask;
        // Addresses of one format; a provider reads as many bytes as that has.
        let fits = own.len() == with.address.len() && *own != *with.address;
        // A hostile mask would make tags repeat.
        if !fits || tag_mask.trailing_ones() < TAG_BITS_MIN {
            let why = Broken("the peer's lane does not fit ours", 0);
            return self.shut(outlet, news, link, Cause::Broken(why));
        }
        lane.hello.first = *own < *with.address;
        lane.flow
            .narrow_tags(u64::MAX >> tag_mask.trailing_ones().abs_diff(64).min(63));
        match outlet.domain.insert(&with.address) {
            Ok(address) => {
                lane.peer = Some(Peer {
                    generation: with.generation,
                    address,
                });
                self.drive(outlet, news, link);
            }
            Err(error) => {
                let why = Broken("the peer's address is not accepted", error.code);
                self.shut(outlet, news, link, Cause::Broken(why));
            }
        }
    }

    pub(super) fn on_gone(
        &mut self,
        outlet: &mut Outlet<'_>,
        news: &mut News,
        link: LinkId,
        generation: u32,
    ) {
        let Some(side) = self.links.get_mut(&link) else {
            return;
        };
        side.proposal
            .take_if(|proposal| proposal.generation == generation);
        let paired = side
            .lane
            .as_ref()
            .and_then(|lane| lane.peer)
            .is_some_and(|peer| peer.generation == generation);
        if paired {
            self.shut(outlet, news, link, Cause::PeerGone);
        }
    }
}

/// A lane used more recently than this is not taken away for another peer. Two peers in turn
/// would otherwise spend their time connecting.
const KEEP: Duration = Duration::from_secs(1);

/// A peer that proposes again and again must not keep us opening endpoints.
const ANSWER_PAUSE: Duration = Duration::from_millis(50);

/// Tags have to be different while pieces are in flight, and hard to guess.
const TAG_BITS_MIN: u32 = 32;
