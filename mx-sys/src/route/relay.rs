//! The sink between a port and the endpoint.
//!
//! ```text
//!   port --> Relay ----> endpoint      links under the names they have outside
//!              |
//!              `-- Watch               whoever has to know first, and may keep it to himself:
//!                                      Scout, Settling, Detour, or nobody
//! ```
//!
//! Owns: nothing.
//! Knows nothing of: what the watch is for.

use super::owner::outer;
use mx_proto::port::{HeaderBytes, LinkDown, Place, RemoteUse, Sink};
use mx_proto::{LinkId, Memory, Source};

/// Sees what a port tells before the endpoint does. Links have the names they have in the port.
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

/// Nobody watches.
impl Watch for () {}

/// Passes on what one port tells.
pub(super) struct Relay<'a, S, W = ()> {
    pub(super) sink: &'a mut S,
    /// Whose links they are: `owner`'s bits.
    pub(super) owner: u32,
    pub(super) watch: W,
}

impl<M: Memory, S: Sink<M>, W: Watch> Sink<M> for Relay<'_, S, W> {
    fn on_up(&mut self, link: LinkId, cookie: u64) {
        if self.watch.on_up(link) {
            self.sink.on_up(outer(link, self.owner), cookie);
        }
    }

    fn on_down(&mut self, link: LinkId, cookie: u64, reason: LinkDown) {
        if let Some(reason) = self.watch.on_down(link, reason) {
            self.sink.on_down(outer(link, self.owner), cookie, reason);
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
            self.sink
                .on_packet(outer(link, self.owner), cookie, header, body);
        }
    }

    #[inline]
    fn begin(&mut self, link: LinkId, cookie: u64, header: &HeaderBytes) -> Option<Place<'_, M>> {
        self.sink.begin(outer(link, self.owner), cookie, header)
    }

    #[inline]
    fn place(&mut self, link: LinkId, cookie: u64, header: &HeaderBytes) -> Option<Place<'_, M>> {
        self.sink.place(outer(link, self.owner), cookie, header)
    }

    #[inline]
    fn on_placed(&mut self, link: LinkId, cookie: u64, header: &HeaderBytes) {
        self.sink.on_placed(outer(link, self.owner), cookie, header);
    }

    fn on_writable(&mut self, link: LinkId, cookie: u64) {
        if self.watch.on_writable(link) {
            self.sink.on_writable(outer(link, self.owner), cookie);
        }
    }

    fn on_released(&mut self, link: LinkId, cookie: u64, token: u64) {
        self.sink
            .on_released(outer(link, self.owner), cookie, token);
    }

    fn on_remote_activity(&mut self, link: LinkId, cookie: u64, what: RemoteUse) {
        self.sink
            .on_remote_activity(outer(link, self.owner), cookie, what);
    }

    fn on_remote_read(&mut self, link: LinkId, cookie: u64, token: u64, ok: bool) {
        self.sink
            .on_remote_read(outer(link, self.owner), cookie, token, ok);
    }
}
