//! Sinks between the ports and the endpoint that let the locator see what it waits for.
//!
//! ```text
//!   TCP port --> Scout ----> endpoint          rdm port --> Settling --> endpoint
//!                  |                                            |
//!                  `-- questions, and all of                    `-- ups and downs of links
//!                      the links that ask --> locator               that were looked for --> locator
//! ```
//!
//! Knows nothing of: what the locator does with it, and when.

use super::locator::{Locator, What, recognise};
use super::owner::{Named, RDM, TCP};
use mx_proto::port::{HeaderBytes, LinkDown, Place, RemoteUse, Sink};
use mx_proto::{LinkId, Memory, Source};

/// The TCP port's sink: what belongs to the locator does not reach the endpoint.
pub(super) struct Scout<'a, S> {
    locator: &'a mut Locator,
    sink: Named<'a, S>,
}

impl<'a, S> Scout<'a, S> {
    pub(super) fn new(locator: &'a mut Locator, sink: &'a mut S) -> Self {
        let sink = Named { sink, owner: TCP };
        Self { locator, sink }
    }
}

impl<M: Memory, S: Sink<M>> Sink<M> for Scout<'_, S> {
    fn on_up(&mut self, link: LinkId, cookie: u64) {
        if self.locator.is_asking(link) {
            self.locator.on_room(link);
        } else {
            self.sink.on_up(link, cookie);
        }
    }

    fn on_down(&mut self, link: LinkId, cookie: u64, reason: LinkDown) {
        if self.locator.is_asking(link) {
            self.locator.on_down(link, reason);
        } else {
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
        if cookie == 0 {
            if self.locator.is_asking(link) {
                return self.locator.on_answer(link, header, body);
            }
            if self.locator.is_answering(link) {
                return;
            }
            if let Some((What::Question, known)) = recognise(header) {
                return self.locator.on_question(link, known, body);
            }
            self.locator.on_stranger(link);
        }
        self.sink.on_packet(link, cookie, header, body);
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
        if self.locator.is_asking(link) {
            self.locator.on_room(link);
        } else {
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

/// The rdm port's sink: attempts end here.
pub(super) struct Settling<'a, S> {
    locator: &'a mut Locator,
    /// Our provider.
    ours: &'a str,
    sink: Named<'a, S>,
}

impl<'a, S> Settling<'a, S> {
    pub(super) fn new(locator: &'a mut Locator, ours: &'a str, sink: &'a mut S) -> Self {
        let sink = Named { sink, owner: RDM };
        Self {
            locator,
            ours,
            sink,
        }
    }
}

impl<M: Memory, S: Sink<M>> Sink<M> for Settling<'_, S> {
    fn on_up(&mut self, link: LinkId, cookie: u64) {
        self.locator.settle(self.ours, link, None);
        self.sink.on_up(link, cookie);
    }

    fn on_down(&mut self, link: LinkId, cookie: u64, reason: LinkDown) {
        let settled = self.locator.settle(self.ours, link, Some(reason));
        self.sink.on_down(link, cookie, settled.unwrap_or(reason));
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        header: &HeaderBytes,
        body: &B,
    ) {
        self.sink.on_packet(link, cookie, header, body);
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
        self.sink.on_writable(link, cookie);
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
