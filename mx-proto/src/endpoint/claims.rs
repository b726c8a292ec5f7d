//! Sessions that are of one process: each side says so of its own.
//!
//! ```text
//!   us                                                them
//!   session x, just met; y is of the life that x says
//!   Reply of x, or Claim on x: "y is mine, too" ----> proof right: joined(x, y)
//!        joined(x, y) <------------------------------ the same
//! ```
//!
//! Two sessions between two processes arise when both call at once. A claim goes before every message on the later
//! session, in the Reply or right behind it, and so each side knows that the two are one before anything of the later one is seen.
//! A claim counts for who makes it only: a proof needs the nonce that the receiver has drawn for y, which the other end
//! of y alone knows, and is about the nonces of x and the receiver's name, so it is of no use on another session.
//!
//! Only for owners that [join](crate::Owner::JOINS) sessions. One that hears no claim of a session has it as another
//! peer's.

use super::Endpoint;
use crate::ids::RemoteId;
use crate::owner::Owner;
use crate::port::Port;
use crate::remote::Life;
use crate::secret::claim_proof;
use crate::time::Clock;
use crate::wire::{self, ClaimBody, Header};

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Claims to be made on a session that has been met: of all others of the life that its peer says.
    pub(super) fn claims_of(&self, id: RemoteId) -> impl Iterator<Item = ClaimBody> {
        let met = self.remotes.met(id).filter(|_| O::JOINS);
        let others = met.map(|met| self.remotes.all_of_life(met.session));
        let others = others.into_iter().flatten().filter(move |of| *of != id);
        others
            .take(OTHERS_MAX)
            .filter_map(move |other| self.claim_on(id, other))
    }

    /// The claim on a session that another one is ours, too.
    fn claim_on(&self, id: RemoteId, other: RemoteId) -> Option<ClaimBody> {
        let of = self.remotes.met(other)?.nonce;
        let remote = self.remotes.of(id)?;
        let nonces = [&remote.met()?.nonce, &self.nonce_of(id)?];
        let (called, number) = remote.name;
        Some(ClaimBody {
            number: crate::secret::call_of(&of),
            called,
            proof: claim_proof(&of, nonces, [called.0, u64::from(number.0)]),
        })
    }

    /// Our call has been accepted, perhaps with a claim: says what else is ours. `claimed`: its peer has claimed it on
    /// that session before.
    pub(super) fn claim_others(
        &mut self,
        id: RemoteId,
        claim: Option<ClaimBody>,
        claimed: Option<RemoteId>,
    ) {
        let claims: Vec<_> = self.claims_of(id).collect();
        for claim in claims {
            let header = Header::new(wire::Kind::Claim, 0, 0);
            self.push_control(id, header, &claim.emit());
        }
        if let Some(claim) = claim {
            self.on_claim(id, &claim);
        }
        let session = |id| self.remotes.met(id).map(|met| met.session);
        if let Some(by) = claimed.filter(|by| session(*by) == session(id)) {
            self.owner.joined(id, by);
        }
    }

    /// The peer of a session says that another one is its, too.
    pub(super) fn on_claim(&mut self, id: RemoteId, claim: &ClaimBody) {
        let other = RemoteId::from_word(claim.number);
        if !O::JOINS || other == id || !self.is_right(id, other, claim) {
            self.stats.stale += 1;
            return;
        }
        let Some(session) = self.remotes.met(id).map(|met| met.session) else {
            return;
        };
        let Some(remote) = self.remotes.of_mut(other) else {
            return;
        };
        match &mut remote.life {
            Life::Met(met) if met.session == session => self.owner.joined(id, other),
            // The answer to our call is on its way.
            Life::Connecting { claimed } => *claimed = Some(id),
            _ => {}
        }
    }

    fn is_right(&self, id: RemoteId, other: RemoteId, claim: &ClaimBody) -> bool {
        let theirs = self.remotes.met(id).map(|met| met.nonce);
        let (Some(of), Some(ours), Some(theirs)) =
            (self.nonce_of(other), self.nonce_of(id), theirs)
        else {
            return false;
        };
        let number = u64::from(self.identity.endpoint.0);
        let proof = claim_proof(&of, [&ours, &theirs], [claim.called.0, number]);
        proof == claim.proof && self.port.has_interface(claim.called)
    }
}

/// Sessions of one life that are claimed: two processes have two at most that are of use.
const OTHERS_MAX: usize = 4;
