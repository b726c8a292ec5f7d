//! Packets whose body comes in several frames.
//!
//! ```text
//!   Packet: header, body's beginning --begin--> its destination, or none
//!   Rest:   more of it               --place-->        "
//!   Rest:   the end                  --place-->        "               --> on_placed
//! ```
//!
//! Each frame is copied once, out of the buffer it came in. Pings may come between them, other
//! packets do not.
//!
//! Owns: the received length of a link's packet.
//! Not here: the order of frames.

use super::frame::Kind;
use super::links::Link;
use mx_proto::Memory;
use mx_proto::port::{HEADER_LEN, HeaderBytes, Sink, body_len};

/// A packet of which not all is here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    header: HeaderBytes,
    got: usize,
    /// It has a place.
    wanted: bool,
}

/// Bytes of the longest body that comes in several frames.
pub(super) const STREAMED_MAX: usize = 256 << 10;

/// Takes in one frame of a packet. False when no peer of ours sends it there.
#[inline]
pub(super) fn take<M: Memory, S: Sink<M>>(
    link: Option<&mut Link>,
    kind: Kind,
    bytes: &[u8],
    sink: &mut S,
) -> bool {
    let Some(link) = link else { return true };
    let (id, word) = (link.id, link.word);
    let (mut incoming, piece) = match (link.incoming.take(), kind) {
        (None, Kind::Packet) => {
            let Some((header, body)) = bytes.split_first_chunk::<HEADER_LEN>() else {
                return false;
            };
            if body_len(header) <= body.len() {
                // The sink checks that the body is not too long.
                sink.on_packet(id, word, header, body);
                return true;
            }
            let incoming = Incoming {
                header: *header,
                got: 0,
                wanted: true,
            };
            (incoming, body)
        }
        // An empty one would keep an incomplete packet alive for ever.
        (Some(incoming), Kind::Rest) if !bytes.is_empty() => (incoming, bytes),
        _ => return false,
    };
    let (header, at) = (incoming.header, incoming.got);
    incoming.got += piece.len();
    let len = body_len(&header);
    if len > STREAMED_MAX || incoming.got > len || link.is_stranger() {
        return false;
    }
    if incoming.wanted {
        let place = match kind {
            Kind::Packet => sink.begin(id, word, &header),
            _ => sink.place(id, word, &header),
        };
        incoming.wanted = place.is_some();
        if let Some(mut place) = place {
            place.memory.fill(place.offset + at, piece.len(), piece, 0);
        }
    }
    if incoming.got < len {
        link.incoming = Some(incoming);
    } else if incoming.wanted {
        sink.on_placed(id, word, &header);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::links::Links;
    use super::*;
    use mx_proto::port::{BODY_LEN_AT, Destination, LinkDown, Place, RemoteUse};
    use mx_proto::{Instant, LinkId, Source};
    use std::time::Duration;

    /// Wants what comes, until it does not.
    #[derive(Default)]
    struct User {
        unwanted: bool,
        body: Vec<u8>,
        packets: usize,
        placed: usize,
    }

    impl Sink<Vec<u8>> for User {
        fn on_packet<B: Source + ?Sized>(&mut self, _: LinkId, _: u64, _: &HeaderBytes, _: &B) {
            self.packets += 1;
        }

        fn place(&mut self, _: LinkId, _: u64, header: &HeaderBytes) -> Option<Place<'_, Vec<u8>>> {
            self.body.resize(body_len(header), 0);
            (!self.unwanted).then_some(Place {
                memory: Destination::Bytes(&mut self.body),
                offset: 0,
            })
        }

        fn on_placed(&mut self, _: LinkId, _: u64, _: &HeaderBytes) {
            self.placed += 1;
        }

        fn on_up(&mut self, _: LinkId, _: u64) {}
        fn on_down(&mut self, _: LinkId, _: u64, _: LinkDown) {}
        fn on_writable(&mut self, _: LinkId, _: u64) {}
        fn on_released(&mut self, _: LinkId, _: u64, _: u64) {}
        fn on_remote_activity(&mut self, _: LinkId, _: u64, _: RemoteUse) {}
        fn on_remote_read(&mut self, _: LinkId, _: u64, _: u64, _: bool) {}
    }

    fn first(len: usize, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn link() -> (Links, LinkId) {
        let mut links = Links::new(Duration::from_secs(1), 50);
        let id = links.reserve(7, None, Instant(0));
        (links, id)
    }

    #[test]
    fn a_body_is_put_together_and_a_packet_in_one_frame_is_given_out_as_it_is() {
        let (mut links, id) = link();
        let mut user = User::default();
        let frames = [
            (Kind::Packet, first(3, b"abc")),
            (Kind::Packet, first(6, b"ab")),
            (Kind::Rest, b"cd".to_vec()),
            (Kind::Rest, b"ef".to_vec()),
        ];
        for (kind, bytes) in frames {
            assert!(take(links.of_mut(id), kind, &bytes, &mut user));
        }
        assert_eq!((user.packets, user.placed), (1, 1));
        assert_eq!(user.body, b"abcdef");
    }

    #[test]
    fn an_unwanted_body_is_dropped_to_its_end() {
        let (mut links, id) = link();
        let mut user = User::default();
        assert!(take(
            links.of_mut(id),
            Kind::Packet,
            &first(6, b"ab"),
            &mut user
        ));
        user.unwanted = true;
        assert!(take(links.of_mut(id), Kind::Rest, b"cd", &mut user));
        user.unwanted = false;
        assert!(take(links.of_mut(id), Kind::Rest, b"ef", &mut user));
        assert_eq!((&user.body[..], user.placed), (&b"ab\0\0\0\0"[..], 0));
        assert!(take(
            links.of_mut(id),
            Kind::Packet,
            &first(2, b"gh"),
            &mut user
        ));
        assert_eq!(user.packets, 1);
    }

    #[test]
    fn frames_that_no_peer_of_ours_sends_are_refused() {
        let begun = || (Kind::Packet, first(6, b"ab"));
        let wrong = [
            vec![(Kind::Rest, b"ab".to_vec())],
            vec![(Kind::Packet, vec![0; HEADER_LEN - 1])],
            vec![(Kind::Packet, first(STREAMED_MAX + 1, b"ab"))],
            vec![begun(), begun()],
            vec![begun(), (Kind::Rest, b"cdefg".to_vec())],
            vec![begun(), (Kind::Rest, Vec::new())],
        ];
        for mut frames in wrong {
            let (mut links, id) = link();
            let mut user = User::default();
            let (kind, last) = frames.pop().unwrap();
            for (kind, bytes) in frames {
                assert!(take(links.of_mut(id), kind, &bytes, &mut user));
            }
            assert!(!take(links.of_mut(id), kind, &last, &mut user));
            assert_eq!(user.placed, 0);
        }
    }
}
