//! A sink for tests that hear links and packets, and have a place for no body.

use mx_proto::port::{HeaderBytes, LinkDown, Place, RemoteUse, Sink};
use mx_proto::{LinkId, Source};

/// What a test hears of its port.
pub(crate) trait Ear {
    fn on_up(&mut self, _: LinkId) {}

    fn on_down(&mut self, _: LinkId, reason: LinkDown) {
        panic!("link down: {reason}");
    }

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B);

    fn on_writable(&mut self, _: LinkId) {}
}

/// The sink with that ear: `port.poll(&clock, 64, &mut Hearing(&mut ear))`.
pub(crate) struct Hearing<'a, E>(pub(crate) &'a mut E);

impl<E: Ear> Sink<Vec<u8>> for Hearing<'_, E> {
    fn on_up(&mut self, link: LinkId, _: u64) {
        self.0.on_up(link);
    }

    fn on_down(&mut self, link: LinkId, _: u64, reason: LinkDown) {
        self.0.on_down(link, reason);
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        _: u64,
        header: &HeaderBytes,
        body: &B,
    ) {
        self.0.on_packet(link, header, body);
    }

    fn place(&mut self, _: LinkId, _: u64, _: &HeaderBytes) -> Option<Place<'_, Vec<u8>>> {
        None
    }

    fn on_placed(&mut self, _: LinkId, _: u64, _: &HeaderBytes) {}

    fn on_writable(&mut self, link: LinkId, _: u64) {
        self.0.on_writable(link);
    }

    fn on_released(&mut self, _: LinkId, _: u64, _: u64) {}
    fn on_remote_activity(&mut self, _: LinkId, _: u64, _: RemoteUse) {}
    fn on_remote_read(&mut self, _: LinkId, _: u64, _: u64, _: bool) {}
}
