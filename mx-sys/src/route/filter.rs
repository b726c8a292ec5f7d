//! The sink between a port and the endpoint.
//!
//! ```text
//!   port --> Relay ----> endpoint
//!              |
//!              `-- Filter               sees events first, and may keep them:
//!                                      ExchangeFilter or FallbackFilter
//! ```
//!
//! Owns: nothing.

use super::address_exchange::{AddressExchange, What, recognise};
use mx_proto::port::{HeaderBytes, LinkDown, Place, RemoteUse, Sink};
use mx_proto::{LinkId, Memory, Source};

/// Sees what a port tells before the endpoint does.
pub(super) trait Filter {
    /// False: the endpoint does not hear of it. So with the others.
    #[inline]
    fn on_up(&mut self, _link: LinkId) -> bool {
        true
    }

    /// The event for the endpoint, if any.
    #[inline]
    fn on_down(&mut self, _link: LinkId, reason: LinkDown) -> Option<LinkDown> {
        Some(reason)
    }

    /// A packet on a link that is not bound yet.
    #[inline]
    fn on_stranger<B: Source + ?Sized>(
        &mut self,
        _link: LinkId,
        _header: &HeaderBytes,
        _body: &B,
    ) -> bool {
        true
    }

    /// There is room on a link.
    #[inline]
    fn on_writable(&mut self, _link: LinkId) -> bool {
        true
    }
}

/// Passes on what one port tells.
pub(super) struct Relay<'a, S, W> {
    pub(super) sink: &'a mut S,
    pub(super) filter: W,
}

impl<M: Memory, S: Sink<M>, W: Filter> Sink<M> for Relay<'_, S, W> {
    #[inline]
    fn is_bound(&self, link: LinkId) -> bool {
        self.sink.is_bound(link)
    }

    fn on_up(&mut self, link: LinkId) {
        if self.filter.on_up(link) {
            self.sink.on_up(link);
        }
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        if let Some(reason) = self.filter.on_down(link, reason) {
            self.sink.on_down(link, reason);
        }
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        if self.sink.is_bound(link) || self.filter.on_stranger(link, header, body) {
            self.sink.on_packet(link, header, body);
        }
    }

    #[inline]
    fn place(&mut self, link: LinkId, header: &HeaderBytes, begin: bool) -> Option<Place<'_, M>> {
        self.sink.place(link, header, begin)
    }

    #[inline]
    fn on_placed(&mut self, link: LinkId, header: &HeaderBytes) {
        self.sink.on_placed(link, header);
    }

    fn on_writable(&mut self, link: LinkId) {
        if self.filter.on_writable(link) {
            self.sink.on_writable(link);
        }
    }

    fn on_remote_activity(&mut self, link: LinkId, what: RemoteUse) {
        self.sink.on_remote_activity(link, what);
    }

    fn on_remote_read(&mut self, link: LinkId, token: u64, ok: bool) {
        self.sink.on_remote_read(link, token, ok);
    }
}

/// Filters the TCP port: what belongs to the address exchange does not reach the endpoint.
pub(super) struct ExchangeFilter<'a>(pub(super) &'a mut AddressExchange);

impl Filter for ExchangeFilter<'_> {
    fn on_up(&mut self, link: LinkId) -> bool {
        self.on_writable(link)
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) -> Option<LinkDown> {
        if !self.0.is_asking(link) && !self.0.is_watching(link) {
            return Some(reason);
        }
        self.0.on_down(link, reason);
        None
    }

    fn on_stranger<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: &B,
    ) -> bool {
        if self.0.is_asking(link) {
            self.0.on_answer(link, header, body);
            return false;
        }
        if self.0.is_answering(link) || self.0.is_watching(link) {
            return false;
        }
        match recognise(header) {
            Some((What::Question(of), known)) => self.0.on_question(of, link, known, body),
            Some((What::Hail(of), true)) => self.0.on_hail(of, link),
            _ => return true,
        }
        false
    }

    fn on_writable(&mut self, link: LinkId) -> bool {
        let asking = self.0.is_asking(link);
        if asking {
            self.0.on_room(link);
        }
        !asking
    }
}

/// Notes the ends of attempts to connect on the rdm or the dgram port.
pub(super) struct FallbackFilter<'a> {
    pub(super) exchange: &'a mut AddressExchange,
    /// Our provider.
    pub(super) ours: &'a str,
}

impl Filter for FallbackFilter<'_> {
    fn on_up(&mut self, link: LinkId) -> bool {
        self.exchange.end_attempt(self.ours, link, None);
        true
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) -> Option<LinkDown> {
        self.exchange.on_link_down(link);
        let outcome = self.exchange.end_attempt(self.ours, link, Some(reason));
        outcome.or(Some(reason))
    }
}
