//! Connecting to a peer: attempts at its addresses start one after the other, beside those still unanswered (RFC 8305).
//!
//! ```text
//!   post --> attempt at the first address <-- if the peer cuts the connection: once more
//!               | 250 ms without an answer, or a failure
//!               v
//!            attempt at the next ... --none left--> the name is resolved again, each second
//!
//!   one is accepted --> the others are cancelled --> handshake (connect.rs)
//!   all have failed --> DISCONNECT, with the most informative cause
//! ```
//!
//! Owns: the order of attempts.
//! Out of scope: their bookkeeping (`../peer/attempts.rs`), the handshake, the questions for names.

use super::Method;
use crate::abi::types::bmi_method_addr;
use crate::error::Error;
use crate::match_layout::{KEY, MessageType, bits};
use crate::op::data::{OpData, Role};
use crate::peer::attempts::{ATTEMPT_DELAY, Attempt, Attempts};
use crate::peer::state::{Cause, Ready, State, WaitState};
use crate::peer::table::{PeerKey, Wait};
use mx_proto::port::{ConnectError, Port};
use mx_proto::{Clock, NicId, Outcome, RemoteId, RequestId, Status, Target};
use mx_sys::UserMemory;
use std::time::Duration;

/// Interval between look-ups of a peer's name after all its addresses have been tried.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Bit that tells this reminder's word from that of a handshake's time-out.
pub(super) const NEXT: u64 = 1 << 63;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Connects to a peer. `cut`: how the previous connection ended, if it was cut before READY.
    pub(crate) fn begin_connect(
        &mut self,
        key: PeerKey,
        cut: Option<Cause>,
    ) -> Result<(), Box<Error>> {
        let Some(peer) = self.peers_mut().get_mut(key) else {
            return Ok(());
        };
        peer.wait.get_or_insert_default().attempts = Attempts::after(cut);
        if let Err(reason) = self.begin_next(key) {
            let peer = self.peers().get(key);
            return Err(Error::connect(peer.map_or("", |peer| &peer.name), reason));
        }
        self.move_to(key, State::Wait(WaitState::Connecting));
        if let Some(peer) = self.peers_mut().get_mut(key)
            && std::mem::take(&mut peer.name_doubted)
        {
            self.ask(key);
        }
        Ok(())
    }

    /// Begins an attempt at the next address that accepts one, and schedules the attempt after it. Returns the first
    /// error if none does.
    fn begin_next(&mut self, key: PeerKey) -> Result<(), ConnectError> {
        let mut first = None;
        while let Some(peer) = self.peers().get(key)
            && let Some(nic) = peer.untried()
        {
            let cut = peer.wait.as_ref().and_then(|wait| wait.attempts.cut);
            match self.begin_attempt(key, nic, cut) {
                Ok(()) => {
                    self.set_next(key);
                    return Ok(());
                }
                Err(reason) => first = first.or(Some(reason)),
            }
        }
        Err(first.unwrap_or(ConnectError::NoRoute))
    }

    fn begin_attempt(
        &mut self,
        key: PeerKey,
        nic: NicId,
        cut: Option<Cause>,
    ) -> Result<(), ConnectError> {
        let Some(peer) = self.peers().get(key) else {
            return Ok(());
        };
        log::debug!("{} (id {}): an attempt at {nic:?}", peer.name, key.id());
        let target = Target { nic, ..peer.target };
        let bits = bits(MessageType::IconReq, key.id(), 0);
        let word = OpData::own(Role::Connect, key);
        let connect = self.endpoint.call(target, KEY, bits, word);
        if let Some(attempts) = self.attempts_mut(key) {
            attempts.begin(Attempt {
                nic,
                request: connect.map_err(Cause::of_start),
                cut,
                tx_id: None,
            });
        }
        connect.map(|_| ())
    }

    fn attempts_mut(&mut self, key: PeerKey) -> Option<&mut Attempts> {
        self.peers_mut().get_mut(key)?.attempts_mut()
    }

    /// Schedules the next attempt, or the next look-up of the name, in case no attempt succeeds or fails before.
    fn set_next(&mut self, key: PeerKey) {
        let now = self.endpoint.clock().now();
        let Some(peer) = self.peers_mut().get_mut(key) else {
            return;
        };
        let span = match peer.untried() {
            Some(_) => ATTEMPT_DELAY,
            None => ASK_EVERY,
        };
        let (at, word) = (now.after(span), key.to_word() | NEXT);
        let before = peer.attempts_mut().and_then(|all| all.next.take());
        if let Some((_, reminder)) = before {
            self.endpoint.forget_reminder(reminder, word);
        }
        let reminder = self.endpoint.remind(at, word);
        if let Some(attempts) = self.attempts_mut(key) {
            attempts.next = Some((at, reminder));
        }
    }

    /// Handles a reminder that is due. Returns false if it is not of this kind.
    pub(super) fn on_next_due(&mut self, word: u64) -> bool {
        if word & NEXT == 0 {
            return false;
        }
        let key = PeerKey::from_word(word & !NEXT);
        let now = self.endpoint.clock().now();
        // Another reminder may have been set meanwhile.
        let attempts = self.attempts_mut(key);
        if attempts.is_none_or(|all| all.next.take_if(|(at, _)| *at <= now).is_none()) {
            return true;
        }
        if self.begin_next(key).is_err() {
            self.ask(key);
            self.set_next(key);
        }
        true
    }

    /// Handles the completion of a transport connect.
    pub(super) fn on_connected(&mut self, key: PeerKey, op: RequestId, how: &Outcome) {
        let Some(attempt) = self.attempts_mut(key).and_then(|all| all.of(op)) else {
            // Cancelled after the peer had accepted: close the session, which the host never sees.
            if how.status == Status::Success {
                self.endpoint.disconnect(how.remote);
            }
            return;
        };
        let (nic, cut) = (attempt.nic, attempt.cut);
        match how.status {
            Status::Success => {
                let attempt = *attempt;
                self.on_accepted(key, attempt, how.remote);
            }
            Status::Unreachable
                if cut.is_none()
                    && self
                        .begin_attempt(key, nic, Some(Cause::Unreachable))
                        .is_ok() => {}
            status => {
                // The peer accepted the earlier attempt, so it is reachable: report how that one ended.
                let cause = match (status, cut) {
                    (Status::Unreachable, Some(cut)) => cut,
                    (status, _) => Cause::of_connect(status),
                };
                self.on_failed(key, op, cause);
            }
        }
    }

    /// Continues with the first accepted attempt, and cancels the others.
    fn on_accepted(&mut self, key: PeerKey, attempt: Attempt, remote: RemoteId) {
        if let Some(peer) = self.peers_mut().get_mut(key) {
            peer.reached = Some(attempt.nic);
        }
        self.call_off(key, |nic| nic == attempt.nic);
        match attempt.tx_id {
            Some(tx_id) => self.become_ready(key, Ready { remote, tx_id }, false),
            None => self.on_reached(key, remote, attempt.cut),
        }
    }

    /// Cancels the attempts in progress, except at interfaces to `keep`.
    pub(super) fn call_off(&mut self, key: PeerKey, keep: impl Fn(NicId) -> bool) {
        let gone = self.attempts_mut(key).map(|all| all.retain(keep));
        for request in gone.unwrap_or_default() {
            self.endpoint.cancel_unmatched(request);
        }
    }

    /// Stores new interfaces for an address object's name, and so for its peer. While the peer is being connected to,
    /// attempts at other interfaces are cancelled, and new ones are tried.
    pub(super) fn on_addresses(
        &mut self,
        key: PeerKey,
        addr: *mut bmi_method_addr,
        nics: &[NicId],
    ) {
        self.peers_mut().readdress(addr, nics);
        let Some(peer) = self.peers().get(key) else {
            return;
        };
        if peer.state != State::Wait(WaitState::Connecting) {
            return;
        }
        let addresses = peer.addresses();
        self.call_off(key, |nic| addresses.contains(&nic));
        let latest = self.endpoint.clock().now().after(ATTEMPT_DELAY);
        if let Some(peer) = self.peers().get(key)
            && let Some(Wait { attempts, .. }) = peer.wait.as_deref()
            && attempts.is_under_way()
        {
            if peer.untried().is_some() && attempts.next.is_none_or(|(at, _)| at > latest) {
                self.set_next(key);
            }
        } else {
            self.go_on(key);
        }
    }

    /// Records a failed attempt: the next begins at once.
    fn on_failed(&mut self, key: PeerKey, op: RequestId, cause: Cause) {
        if let Some(peer) = self.peers_mut().get_mut(key)
            && let Some(attempt) = peer.attempts_mut().and_then(|all| all.of(op))
        {
            attempt.request = Err(cause);
            let nic = attempt.nic;
            log::debug!("{} (id {}) at {nic:?}: {cause}", peer.name, key.id());
        }
        self.go_on(key);
    }

    /// Begins the next attempt; disconnects the peer if all have failed.
    fn go_on(&mut self, key: PeerKey) {
        let none_left = self.begin_next(key).is_err();
        let attempts = self.attempts_mut(key);
        if let Some(attempts) = attempts.filter(|attempts| none_left && !attempts.is_under_way()) {
            let cause = attempts.cause_of_failure(Cause::TimedOut);
            self.disconnect(key, cause);
        }
    }
}
