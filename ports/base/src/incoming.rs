//! Packets whose body comes in several pieces.
//!
//! ```text
//!   header and the body's beginning --place, begin--> its destination, or none
//!   more of it                      --place-------->        "
//!   the end                         --place-------->        "               --> on_placed
//! ```
//!
//! Each piece is copied once, out of the memory it came in. No other packet of the link comes between
//! them.
//!
//! Owns: the received length of a link's packet.
//! Not here: the order of pieces.

use mx_proto::port::{HeaderBytes, Sink, body_len};
use mx_proto::{LinkId, Memory, Source};

/// A packet of which not all is here.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    header: HeaderBytes,
    got: usize,
    /// It has a place.
    wanted: bool,
}

impl Incoming {
    /// Takes in one piece of a packet of a link, whose body has at most `most` bytes: with `header` the first.
    /// False when no peer of ours sends it there.
    #[inline]
    pub fn take<M: Memory, S: Sink<M>, B: Source + ?Sized>(
        place: &mut Option<Self>,
        link: LinkId,
        (header, piece): (Option<&HeaderBytes>, &B),
        most: usize,
        sink: &mut S,
    ) -> bool {
        let mut incoming = match (place.take(), header) {
            (None, Some(header)) => Self {
                header: *header,
                got: 0,
                wanted: true,
            },
            // An empty one would keep an incomplete packet alive for ever.
            (Some(incoming), None) if piece.len() != 0 => incoming,
            _ => return false,
        };
        let (whole, at) = (incoming.header, incoming.got);
        incoming.got += piece.len();
        let len = body_len(&whole);
        if len > most || incoming.got > len {
            return false;
        }
        if incoming.wanted {
            let into = sink.place(link, &whole, header.is_some());
            incoming.wanted = into.is_some();
            if let Some(mut into) = into {
                into.memory.fill(into.offset + at, piece.len(), piece, 0);
            }
        }
        if incoming.got < len {
            *place = Some(incoming);
        } else if incoming.wanted {
            sink.on_placed(link, &whole);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::port::{BODY_LEN_AT, Destination, HEADER_LEN, LinkDown, Place, RemoteUse};

    /// Wants what comes, until it does not.
    #[derive(Default)]
    struct User {
        unwanted: bool,
        body: Vec<u8>,
        placed: usize,
    }

    impl Sink<Vec<u8>> for User {
        fn on_packet<B: Source + ?Sized>(&mut self, _: LinkId, _: &HeaderBytes, _: &B) {}

        fn place(
            &mut self,
            _: LinkId,
            header: &HeaderBytes,
            _: bool,
        ) -> Option<Place<'_, Vec<u8>>> {
            self.body.resize(body_len(header), 0);
            (!self.unwanted).then_some(Place {
                memory: Destination::Bytes(&mut self.body),
                offset: 0,
            })
        }

        fn on_placed(&mut self, _: LinkId, _: &HeaderBytes) {
            self.placed += 1;
        }

        fn on_up(&mut self, _: LinkId) {}
        fn on_down(&mut self, _: LinkId, _: LinkDown) {}
        fn on_writable(&mut self, _: LinkId) {}
        fn on_remote_activity(&mut self, _: LinkId, _: RemoteUse) {}
        fn on_remote_read(&mut self, _: LinkId, _: u64, _: bool) {}
    }

    /// The most of a body here.
    const MOST: usize = 6;

    fn header(len: usize) -> HeaderBytes {
        let mut header = [0; HEADER_LEN];
        header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
        header
    }

    #[derive(Default)]
    struct Link {
        incoming: Option<Incoming>,
        user: User,
    }

    impl Link {
        /// A piece comes: the first of a body of `first` bytes, or another one.
        fn take(&mut self, first: Option<usize>, piece: &[u8]) -> bool {
            let header = first.map(header);
            let id = LinkId::new(0, 1);
            let piece = (header.as_ref(), piece);
            Incoming::take(&mut self.incoming, id, piece, MOST, &mut self.user)
        }
    }

    #[test]
    fn a_body_is_put_together() {
        let mut link = Link::default();
        assert!(link.take(Some(6), b"ab") && link.take(None, b"cd"));
        assert_eq!(link.user.placed, 0);
        assert!(link.take(None, b"ef"));
        assert_eq!((&link.user.body[..], link.user.placed), (&b"abcdef"[..], 1));
        assert!(link.incoming.is_none());
    }

    #[test]
    fn an_unwanted_body_is_dropped_to_its_end() {
        let mut link = Link::default();
        assert!(link.take(Some(6), b"ab"));
        link.user.unwanted = true;
        assert!(link.take(None, b"cd"));
        link.user.unwanted = false;
        assert!(link.take(None, b"ef"));
        let user = &link.user;
        assert_eq!((&user.body[..], user.placed), (&b"ab\0\0\0\0"[..], 0));
        assert!(link.incoming.is_none());
    }

    #[test]
    fn pieces_that_no_peer_of_ours_sends_are_refused() {
        type Piece = (Option<usize>, &'static [u8]);
        let wrong: [&[Piece]; 5] = [
            &[(None, b"ab")],
            &[(Some(MOST + 1), b"ab")],
            &[(Some(6), b"ab"), (Some(6), b"ab")],
            &[(Some(6), b"ab"), (None, b"cdefg")],
            &[(Some(6), b"ab"), (None, b"")],
        ];
        for pieces in wrong {
            let mut link = Link::default();
            let ((first, last), before) = pieces.split_last().unwrap();
            assert!(before.iter().all(|(first, piece)| link.take(*first, piece)));
            assert!(!link.take(*first, last));
            assert_eq!(link.user.placed, 0);
        }
    }
}
