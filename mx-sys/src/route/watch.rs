//! The sink between a port and the endpoint.
//!
//! ```text
//!   port --> Relay ----> endpoint
//!              |
//!              `-- Watch               whoever has to know first, and may keep it to himself:
//!                                      Scout, Settling or Detour
//! ```
//!
//! Owns: nothing.
//! Knows nothing of: what the watch is for.

use super::locator::{Locator, Locators, What, recognise};
use mx_proto::port::{HeaderBytes, LinkDown, Place, RemoteUse, Sink};
use mx_proto::{LinkId, Memory, Source};

/// Sees what a port tells before the endpoint does.
pub(super) trait Watch {
    /// False: the endpoint does not hear of it. So with the others.
    #[inline]
    fn on_up(&mut self, _link: LinkId) -> bool {
        true
    }

    /// What the endpoint is told, if anything.
    #[inline]
    fn on_down(&mut self, _link: LinkId, reason: LinkDown) -> Option<LinkDown> {
        Some(reason)
    }

    /// A packet on a link that is nobody's yet.
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
    pub(super) watch: W,
}

impl<M: Memory, S: Sink<M>, W: Watch> Sink<M> for Relay<'_, S, W> {
    fn on_up(&mut self, link: LinkId, cookie: u64) {
        if self.watch.on_up(link) {
            self.sink.on_up(link, cookie);
        }
    }

    fn on_down(&mut self, link: LinkId, cookie: u64, reason: LinkDown) {
        if let Some(reason) = self.watch.on_down(link, reason) {
            self.sink.on_down(link, cookie, reason);
        }
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        header: &HeaderBytes,
        body: &B,
    ) {
        if cookie != 0 || self.watch.on_stranger(link, header, body) {
            self.sink.on_packet(link, cookie, header, body);
        }
    }

    #[inline]
    fn place(&mut self, link: LinkId, cookie: u64, header: &HeaderBytes) -> Option<Place<'_, M>> {
        self.sink.place(link, cookie, header)
    }

    #[inline]
    fn on_placed(&mut self, link: LinkId, cookie: u64, header: &HeaderBytes) {
        self.sink.on_placed(link, cookie, header);
    }

    fn on_writable(&mut self, link: LinkId, cookie: u64) {
        if self.watch.on_writable(link) {
            self.sink.on_writable(link, cookie);
        }
    }

    fn on_released(&mut self, link: LinkId, cookie: u64, token: u64) {
        self.sink.on_released(link, cookie, token);
    }

    fn on_remote_activity(&mut self, link: LinkId, cookie: u64, what: RemoteUse) {
        self.sink.on_remote_activity(link, cookie, what);
    }

    fn on_remote_read(&mut self, link: LinkId, cookie: u64, token: u64, ok: bool) {
        self.sink.on_remote_read(link, cookie, token, ok);
    }
}

/// Watches the TCP port: what belongs to a locator does not reach the endpoint.
pub(super) struct Scout<'a>(pub(super) &'a mut Locators);

impl Watch for Scout<'_> {
    fn on_up(&mut self, link: LinkId) -> bool {
        self.on_writable(link)
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) -> Option<LinkDown> {
        match self.0.asking(link) {
            Some(locator) => {
                locator.on_down(link, reason);
                None
            }
            None => Some(reason),
        }
    }

    fn on_stranger<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: &B,
    ) -> bool {
        if let Some(locator) = self.0.asking(link) {
            locator.on_answer(link, header, body);
            return false;
        }
        if self.0.is_answering(link) {
            return false;
        }
        if let Some((What::Question(of), known)) = recognise(header) {
            self.0.answering(of).on_question(link, known, body);
            return false;
        }
        if let Some((What::Hail(of), true)) = recognise(header) {
            self.0.answering(of).on_hail(link);
            return false;
        }
        true
    }

    fn on_writable(&mut self, link: LinkId) -> bool {
        match self.0.asking(link) {
            Some(locator) => {
                locator.on_room(link);
                false
            }
            None => true,
        }
    }
}

/// Watches the rdm port: attempts end here.
pub(super) struct Settling<'a> {
    pub(super) locator: &'a mut Locator,
    /// Our provider.
    pub(super) ours: &'a str,
}

impl Watch for Settling<'_> {
    fn on_up(&mut self, link: LinkId) -> bool {
        self.locator.settle(self.ours, link, None);
        true
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) -> Option<LinkDown> {
        let settled = self.locator.settle(self.ours, link, Some(reason));
        settled.or(Some(reason))
    }
}
