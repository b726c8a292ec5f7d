//! A [`Sink`] that passes on only the events a test implements.

use crate::sink::Sink;
use mx_proto::port::{HeaderBytes, LinkDown, Place};
use mx_proto::{LinkId, Memory, Source};

/// Events of a port that a test handles. A link's unexpected end fails the test.
pub trait Ear<M: Memory = Vec<u8>> {
    /// `on_up`.
    fn on_up(&mut self, _: LinkId) {}

    /// `on_down`.
    fn on_down(&mut self, _: LinkId, reason: LinkDown) {
        panic!("link down: {reason}");
    }

    /// `on_packet`.
    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B);

    /// `place`.
    fn place(&mut self, _: LinkId, _: &HeaderBytes) -> Option<Place<'_, M>> {
        None
    }

    /// `on_placed`.
    fn on_placed(&mut self, _: LinkId, _: &HeaderBytes) {}

    /// `on_writable`.
    fn on_writable(&mut self, _: LinkId) {}

    /// `on_remote_read`, with the token.
    fn on_remote_read(&mut self, _: LinkId, _: u64, _: bool) {
        panic!("nothing is read");
    }
}

/// Sink around an ear: `port.poll(&clock, 64, &mut Hearing(&mut ear))`.
#[derive(Debug)]
pub struct Hearing<'a, E>(pub &'a mut E);

impl<M: Memory, E: Ear<M>> Sink<M> for Hearing<'_, E> {
    fn on_up(&mut self, link: LinkId) {
        self.0.on_up(link);
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        self.0.on_down(link, reason);
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        self.0.on_packet(link, header, body);
    }

    fn place(&mut self, link: LinkId, header: &HeaderBytes, _: bool) -> Option<Place<'_, M>> {
        self.0.place(link, header)
    }

    fn on_placed(&mut self, link: LinkId, header: &HeaderBytes) {
        self.0.on_placed(link, header);
    }

    fn on_writable(&mut self, link: LinkId) {
        self.0.on_writable(link);
    }

    fn on_remote_read(&mut self, link: LinkId, token: u64, ok: bool) {
        self.0.on_remote_read(link, token, ok);
    }
}
