//! Opening of sessions, and answers to datagrams without one.
//!
//! ```text
//!   Hello ------------> Welcome, and nothing is kept
//!   OPENING, true ----> a session
//!   OPENING, cookie not valid (any more) ------------> Reset, OPENING: send Hello again
//!   of a session that is over, or never existed -----> Reset
//!   Hello of another version ------------------------> Reset of ours, which ends the caller's link
//! ```
//!
//! A caller gets a second chance, because the called side may have restarted between its Welcome and the first
//! datagram.

use super::cookies::Cookies;
use super::links::{Links, Reply};
use super::packet::{DatagramKind, GREETING, Header, OPENING, UnsupportedVersion, VERSION};
use super::quote::Quote;
use super::seq::Seq;
use super::service::Channel;
use super::session::Caller;
use crate::ids::LinkId;
use crate::port::LinkDown;
use crate::round::PortEvent;
use crate::time::Instant;
use std::fmt;
use std::hash::Hash;

/// Maximum number of answers to strangers in one poll; other strangers ask again.
const REPLIES_MAX: usize = 1024;

impl<A: Copy + Eq + Hash + fmt::Debug> Links<A> {
    /// Answers a Hello without keeping state: the caller's next datagram proves its address.
    pub(super) fn on_hello(
        &mut self,
        now: Instant,
        (channel, from): (Channel, A),
        header: &Header,
    ) {
        let source = (self.source)(from);
        if channel != Channel::Command || !self.has_place(source) {
            self.stats.refused += 1;
            return;
        }
        if self.replies.len() >= REPLIES_MAX {
            return;
        }
        let epoch = Cookies::epoch(now);
        let (cookie, first) =
            self.cookies
                .of_caller((&from, source), header.from, header.seq, epoch);
        let mut welcome = Header::new(DatagramKind::Welcome, header.from, cookie);
        welcome.seq = self.config.first_seq.map_or(first, Seq);
        welcome.window = u32::try_from(self.window_limit()).unwrap_or(u32::MAX);
        self.replies.push(Reply {
            to: from,
            header: welcome,
        });
    }

    /// Handles a datagram without a known session: of a caller that proves its Welcome, of one that a former life of
    /// ours has welcomed, or of a session that is over.
    #[cold]
    pub(super) fn on_stranger(
        &mut self,
        now: Instant,
        (channel, from): (Channel, A),
        header: &Header,
    ) -> Option<LinkId> {
        // A datagram on the data channel may arrive before the opening of its session, so no Reset is sent.
        if channel == Channel::Data
            || matches!(header.kind, DatagramKind::Reset | DatagramKind::Welcome)
        {
            self.stats.old_session += 1;
            return None;
        }
        let is_new = header.flags & OPENING != 0 && !self.cookies.is_spent(header.to, now);
        if is_new {
            let caller = Caller {
                cookie: header.from,
                first: Seq(header.sack as u32),
            };
            let epoch = Cookies::epoch(now);
            for epoch in [epoch, epoch.wrapping_sub(1)] {
                let (cookie, first) = self.cookies.of_caller(
                    (&from, (self.source)(from)),
                    caller.cookie,
                    caller.first,
                    epoch,
                );
                if cookie == header.to {
                    return self.add(now, from, cookie, first, Some(caller));
                }
            }
        }
        self.stats.old_session += 1;
        if self.replies.len() < REPLIES_MAX {
            let mut reset = Header::new(DatagramKind::Reset, header.from, header.to);
            if is_new {
                reset.flags = OPENING;
            }
            self.replies.push(Reply {
                to: from,
                header: reset,
            });
        }
        None
    }

    /// Handles a datagram of another version: refuses a caller, and ends our call if a called peer refuses it.
    #[cold]
    pub(super) fn on_unsupported_version(
        &mut self,
        now: Instant,
        (channel, from): (Channel, A),
        foreign: &UnsupportedVersion,
    ) {
        let &UnsupportedVersion { version, .. } = foreign;
        if channel != Channel::Command {
            return;
        }
        if foreign.is_hello && foreign.from != 0 && self.replies.len() < REPLIES_MAX {
            self.log_unsupported_version(version, format_args!("{from:?} calls"));
            let header = Header::new(DatagramKind::Reset, foreign.from, foreign.from);
            self.replies.push(Reply { to: from, header });
        }
        let id = self.by_cookie.get(&foreign.to).copied();
        if foreign.is_reset
            && let Some(id) = id
            && let Some(link) = self.of_mut(id)
            && link.session.is_connecting()
            && link.address == from
        {
            self.log_unsupported_version(version, format_args!("{from:?} rejected our call:"));
            self.fail(now, id, LinkDown::Protocol);
        }
    }

    fn log_unsupported_version(&mut self, version: u8, what: fmt::Arguments<'_>) {
        if let Some(times) = self.other_versions.again(version) {
            log::warn!(
                "{what} with datagram version {version}; ours is {VERSION} (occurrence {times})"
            );
        }
    }

    pub(super) fn on_welcome(&mut self, now: Instant, id: LinkId, header: &Header, payload: &[u8]) {
        let Some(link) = self.table.get_mut(id) else {
            return;
        };
        if !link.session.on_welcome(now, header) {
            return;
        }
        let blocked = link.blocked.is_some();
        if let Ok(name) = <[u8; GREETING]>::try_from(payload) {
            self.named.push((id, name));
        }
        let again = link.session.was_welcome_before();
        self.touch(id);
        if !again {
            self.round.queue(PortEvent::Up(id));
        }
        if blocked {
            self.look_at(now, id);
        }
    }

    pub(super) fn on_refused(&mut self, now: Instant, what: (A, Option<Quote>)) {
        let id = self.whose(what);
        let link = id.and_then(|id| Some((id, self.of_mut(id)?)));
        let Some((id, link)) = link else { return };
        if link.address != what.0 {
            link.session.on_data_refused();
            return self.touch(id);
        }
        let calling = link.session.is_connecting() && !link.session.was_welcome_before();
        if link.session.on_refused() {
            let reason = if calling {
                LinkDown::Refused
            } else {
                LinkDown::Reset
            };
            return self.fail(now, id, reason);
        }
        self.touch(id);
    }

    /// Handles a Reset: the peer does not know the session. If it has restarted since its Welcome, a new session is
    /// begun.
    pub(super) fn on_reset(&mut self, now: Instant, id: LinkId, header: &Header) {
        let config = self.config;
        if let Some(link) = self.of_mut(id)
            && header.flags & OPENING != 0
            && link.session.call_again(now, &config)
        {
            log::debug!("{:?} has restarted: sending Hello again", link.address);
            // The next Welcome may name another data channel.
            link.data = None;
            return self.touch(id);
        }
        self.fail(now, id, LinkDown::Reset);
    }
}
