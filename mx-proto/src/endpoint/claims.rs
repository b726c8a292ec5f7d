//! Claims: proofs that two sessions belong to the same process.
//!
//! ```text
//!   us                                                them
//!   session x has just connected; the peer's hello says that sessions x and y are of one life
//!   Reply of x, or Claim on x: "y is mine, too" ----> proof right: joined(x, y)
//!        joined(x, y) <------------------------------ Claim on x: "y is mine, too"
//! ```
//!
//! Two sessions between two processes arise when both call. A process sends its claim before every message on the
//! session, in the Reply or right after it, so its peer learns that two sessions are one before it sees anything of the
//! second. A claim speaks only for its sender. The proof needs the nonce that the receiver has drawn for y, which only
//! the other end of y knows. It covers the nonces of x, so it is of no use on another session, and the names by which
//! the claimant knows the receiver in each session: if a relay passes on what both say, that name is the relay's. (A
//! name changed by an address translator is not the receiver's either, so such sessions are not joined.)
//!
//! Only sessions that their owner [joins](crate::Owner::joins) are claimed. An endpoint that receives no claim for a
//! session treats the session as another peer's.

use super::Endpoint;
use crate::event::Event;
use crate::ids::{NicId, RemoteId, SessionId};
use crate::owner::Owner;
use crate::port::Port;
use crate::remote::{Connected, RemoteState};
use crate::secret::claim_proof;
use crate::time::Clock;
use crate::wire::{self, ClaimBody, Header};
use smallvec::SmallVec;

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Returns the claims to send on a session that has just connected: one for each other session of the life that its
    /// peer names. Sessions under the peer's own name come first, so that impostors naming the same life cannot crowd
    /// them out.
    pub(super) fn claims_of(&self, id: RemoteId) -> impl Iterator<Item = ClaimBody> {
        let name_of = |id| self.remotes.of(id).map(|remote| remote.name);
        let name = name_of(id);
        let others = move || {
            let of_peer = |met: &&Connected| met.joins && met.session != self.identity.session;
            let met = self.remotes.connected(id).filter(of_peer);
            let all = met.map(|met| self.remotes.all_of_life(met.session));
            all.into_iter().flatten().filter(move |other| *other != id)
        };
        let namesakes = others().filter(move |other| name_of(*other) == name);
        let rest = others().filter(move |other| name_of(*other) != name);
        namesakes
            .chain(rest)
            .take(OTHERS_MAX)
            .filter_map(move |other| self.claim_on(id, other))
    }

    /// Joins a session that has just connected to this endpoint itself; no claim is needed.
    pub(super) fn join_own(&mut self, id: RemoteId) {
        let life = self.identity.session;
        let is_own = |met: &Connected| met.joins && met.session == life;
        if self.remotes.connected(id).is_some_and(is_own) {
            let other = self.remotes.all_of_life(life).find(|other| *other != id);
            if let Some(other) = other {
                self.join(id, other);
            }
        }
    }

    /// Sends the claims on a session, except the first `made`, which have been sent already.
    pub(super) fn send_claims(&mut self, id: RemoteId, made: usize) {
        let claims: SmallVec<[_; OTHERS_MAX]> = self.claims_of(id).skip(made).collect();
        for claim in claims {
            let header = Header::new(wire::Kind::Claim, 0, 0);
            self.push_control(id, header, &claim.emit());
        }
    }

    /// Returns the claim on session `id` that session `other` is ours, too.
    fn claim_on(&self, id: RemoteId, other: RemoteId) -> Option<ClaimBody> {
        let (remote, other) = (self.remotes.of(id)?, self.remotes.of(other)?);
        let of = other.connected()?.nonce;
        let nonces = [&remote.connected()?.nonce, &self.nonce_of(id)?];
        let names = [remote.name, other.name];
        Some(ClaimBody {
            number: crate::secret::call_of(&of),
            called: names.map(|(nic, _)| nic),
            proof: claim_proof(&of, nonces, names),
        })
    }

    /// Handles the acceptance of our call, perhaps with a claim, and sends our own claims. `claimed`: the session on
    /// which the peer claimed this one before.
    pub(super) fn claim_others(
        &mut self,
        id: RemoteId,
        claim: Option<ClaimBody>,
        claimed: Option<RemoteId>,
    ) {
        self.send_claims(id, 0);
        if let Some(claim) = claim {
            self.on_claim(id, &claim);
        }
        let session = |id| self.remotes.connected(id).map(|met| met.session);
        if let Some(by) = claimed.filter(|by| session(*by) == session(id)) {
            self.join(id, by);
        }
    }

    fn join(&mut self, id: RemoteId, other: RemoteId) {
        let Some(word) = self.remote_context(other) else {
            return;
        };
        let Some(remote) = self.remotes.of_mut(id) else {
            return;
        };
        let who = remote.identity();
        if word != 0 {
            remote.context = word;
        } else {
            let word = remote.context;
            self.set_remote_context(other, word);
        }
        self.events.push_back(Event::Joined {
            one: id,
            other,
            who,
        });
    }

    /// Hands the receive at this slot, posted for messages of another session, to `from` if the two sessions are
    /// joined. Returns false if they are not.
    #[cold]
    pub(super) fn is_also_for(&mut self, place: u32, from: RemoteId) -> bool {
        let joined = self.are_joined(self.ops.record(place).remote, from);
        let Some(receive) = self.ops.at(place).filter(|_| joined) else {
            return false;
        };
        self.detach_op(receive);
        self.attach_op(receive, from);
        true
    }

    /// Returns whether two sessions are joined, that is, known to be with one process, or are one session. Joined
    /// sessions have the same context, not 0, which their owner sets.
    pub fn are_joined(&self, one: RemoteId, other: RemoteId) -> bool {
        let word = |id| self.remotes.of(id).map(|remote| remote.context);
        let (joined, words) = (self.joins(one) && self.joins(other), [one, other].map(word));
        one == other || joined && words[0] == words[1] && words[0] != Some(0)
    }

    fn joins(&self, id: RemoteId) -> bool {
        self.remotes.connected(id).is_some_and(|met| met.joins)
    }

    /// Returns the connected sessions whose peer named `life`, its endpoint's own id, in its hello, oldest first. Lists
    /// only sessions that the owner [joins](crate::Owner::joins), proven by a claim or not: a hello proves nothing.
    pub fn joined_of(&self, life: SessionId) -> impl Iterator<Item = RemoteId> {
        self.remotes.all_of_life(life)
    }

    /// Handles a peer's claim that another session is its own, too.
    pub(super) fn on_claim(&mut self, id: RemoteId, claim: &ClaimBody) {
        let other = RemoteId::from_word(claim.number);
        if !self.joins(id) || other == id || !self.is_right(id, other, claim) {
            self.stats.stale += 1;
            return;
        }
        let Some(session) = self.remotes.connected(id).map(|met| met.session) else {
            return;
        };
        let Some(remote) = self.remotes.of_mut(other) else {
            return;
        };
        match &mut remote.state {
            RemoteState::Connected(met) if met.session == session => self.join(id, other),
            // The answer to our call is still on its way.
            RemoteState::Connecting { claimed } => *claimed = Some(id),
            _ => {}
        }
    }

    fn is_right(&self, id: RemoteId, other: RemoteId, claim: &ClaimBody) -> bool {
        let theirs = self.remotes.connected(id).map(|met| met.nonce);
        let (Some(of), Some(ours), Some(theirs)) =
            (self.nonce_of(other), self.nonce_of(id), theirs)
        else {
            return false;
        };
        let names = claim.called.map(|nic| (nic, self.identity.endpoint));
        let is_ours = |nic: &NicId| self.port.has_interface(*nic);
        claim_proof(&of, [&ours, &theirs], names) == claim.proof && claim.called.iter().all(is_ours)
    }
}

/// Maximum number of sessions claimed for one life. Two processes have at most two sessions of use.
const OTHERS_MAX: usize = 4;
