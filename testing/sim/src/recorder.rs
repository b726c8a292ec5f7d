//! A [`Sink`] for tests: writes down what it is told.

use crate::sink::Sink;
use mx_proto::port::{BODY_LEN_AT, Destination, HEADER_LEN, HeaderBytes, LinkDown, Place};
use mx_proto::{LinkId, Source};

/// A call of a sink's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SinkCall {
    /// `on_up`: link.
    Up(LinkId),
    /// `on_down`: link, reason.
    Down(LinkId, LinkDown),
    /// `on_packet`.
    Packet {
        /// On which link.
        link: LinkId,
        /// Its header.
        header: HeaderBytes,
        /// Its body.
        body: Vec<u8>,
    },
    /// The end of a body that was placed.
    Placed {
        /// On which link.
        link: LinkId,
        /// Its header.
        header: HeaderBytes,
    },
    /// `on_writable`: link.
    Writable(LinkId),
    /// `on_remote_read`: link, which, whether it succeeded.
    RemoteRead(LinkId, u64, bool),
}

impl SinkCall {
    /// A packet with a [`header_of`].
    pub fn packet(link: LinkId, tag: u8, body: &[u8]) -> Self {
        Self::Packet {
            link,
            header: header_of(tag, body.len()),
            body: body.to_vec(),
        }
    }
}

/// A header of no kind, with a body's length where ports look for it.
pub fn header_of(tag: u8, body_len: usize) -> HeaderBytes {
    let mut header = [tag; HEADER_LEN];
    header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(body_len as u32).to_le_bytes());
    header
}

/// A recording of a sink's calls, and the place for the next bodies (from offset 2 on).
#[derive(Default)]
pub struct Recorder {
    /// All calls since the last [`take`](Self::take).
    pub seen: Vec<SinkCall>,
    /// Where they belong.
    pub place: Option<Vec<u8>>,
}

impl Recorder {
    /// Takes the calls since the last time.
    pub fn take(&mut self) -> Vec<SinkCall> {
        std::mem::take(&mut self.seen)
    }
}

impl Sink<Vec<u8>> for Recorder {
    fn on_up(&mut self, link: LinkId) {
        self.seen.push(SinkCall::Up(link));
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        self.seen.push(SinkCall::Down(link, reason));
    }

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        self.seen.push(SinkCall::Packet {
            link,
            header: *header,
            body: body.to_vec(),
        });
    }

    fn place(&mut self, _: LinkId, _: &HeaderBytes, _: bool) -> Option<Place<'_, Vec<u8>>> {
        self.place.as_mut().map(|memory| Place {
            memory: Destination::Memory(memory),
            offset: 2,
        })
    }

    fn on_placed(&mut self, link: LinkId, header: &HeaderBytes) {
        self.seen.push(SinkCall::Placed {
            link,
            header: *header,
        });
    }

    fn on_writable(&mut self, link: LinkId) {
        self.seen.push(SinkCall::Writable(link));
    }

    fn on_remote_read(&mut self, link: LinkId, token: u64, ok: bool) {
        self.seen.push(SinkCall::RemoteRead(link, token, ok));
    }
}
