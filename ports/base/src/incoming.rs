//! Reassembly of packets whose body arrives in several pieces.
//!
//! ```text
//!   piece arrives --take_piece--> Part --read_piece, or not--> end_piece --all has been read--> Placed
//!                       |
//!                       |-- an earlier piece was not read: dropped
//!                       `-- no correct peer sends this piece here: BadPiece
//! ```
//!
//! Each piece is copied once, from the memory it arrived in. Pieces of other packets never come between those of one
//! packet on a link.
//!
//! Owns: the received length of a link's current packet.
//! Out of scope: the order of pieces, their bytes.

use mx_proto::port::{HeaderBytes, Place, body_len};
use mx_proto::round::PortEvent;
use mx_proto::{LinkId, Memory, Source};

/// Packet of which a link has received a part; a link has one at most.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    header: HeaderBytes,
    /// Bytes of the body that have arrived, the latest piece included.
    got: usize,
    /// True once the latest piece has been read. A piece that is not read makes the rest of the packet unwanted.
    wanted: bool,
}

/// Error of a piece that no correct peer sends at this point: the body or the piece is too long, a later piece is
/// empty, or the order of pieces is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadPiece;

impl Incoming {
    /// Accepts a piece of `len` bytes of a link's current `packet`, whose body has at most `most` bytes. The first
    /// piece comes with the packet's header. Returns the event that asks where to copy the piece; after it the caller
    /// calls [`Self::read_piece`], or not, and then [`Self::end_piece`]. `None`: an earlier piece was not read, so the
    /// packet is dropped.
    #[inline]
    pub fn take_piece(
        packet: &mut Option<Self>,
        link: LinkId,
        header: Option<&HeaderBytes>,
        len: usize,
        most: usize,
    ) -> Result<Option<PortEvent>, BadPiece> {
        let begin = header.is_some();
        let mut incoming = match (packet.take(), header) {
            (None, Some(header)) => Self {
                header: *header,
                got: 0,
                wanted: true,
            },
            // An empty piece would keep an incomplete packet alive forever.
            (Some(incoming), None) if len != 0 => incoming,
            _ => return Err(BadPiece),
        };
        let (header, whole) = (incoming.header, body_len(&incoming.header));
        incoming.got += len;
        if whole > most || incoming.got > whole {
            return Err(BadPiece);
        }
        if std::mem::take(&mut incoming.wanted) {
            *packet = Some(incoming);
            return Ok(Some(PortEvent::Part {
                link,
                header,
                begin,
            }));
        }
        *packet = Some(incoming).filter(|incoming| incoming.got < whole);
        Ok(None)
    }

    /// Copies the piece that [`Self::take_piece`] accepted last to its location in the body, which begins at `place`.
    /// If it is not called for a piece, the rest of the packet is dropped.
    #[inline]
    pub fn read_piece<M: Memory>(
        &mut self,
        mut place: Place<'_, M>,
        piece: &(impl Source + ?Sized),
    ) {
        self.wanted = true;
        let at = place.offset + self.got - piece.len();
        place.memory.fill(at, piece.len(), piece, 0);
    }

    /// Ends the handling of a piece, read or not. After a packet's last piece, forgets the packet and returns
    /// [`PortEvent::Placed`] if all its pieces were read; otherwise returns `None`.
    #[inline]
    pub fn end_piece(packet: &mut Option<Self>, link: LinkId) -> Option<PortEvent> {
        let Self { header, wanted, .. } =
            packet.take_if(|incoming| incoming.got == body_len(&incoming.header))?;
        wanted.then_some(PortEvent::Placed { link, header })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::port::{BODY_LEN_AT, Destination, HEADER_LEN};

    /// Largest body in these tests, in bytes.
    const MOST: usize = 6;

    fn header(len: usize) -> HeaderBytes {
        let mut header = [0; HEADER_LEN];
        header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
        header
    }

    /// A link whose user reads pieces until `unwanted` is set.
    #[derive(Default)]
    struct Link {
        incoming: Option<Incoming>,
        unwanted: bool,
        /// For each `Part` event: whether it began a packet.
        begun: Vec<bool>,
        body: Vec<u8>,
        placed: usize,
    }

    impl Link {
        /// Delivers a piece: the first of a body of `first` bytes, or a later one. Returns false if it is rejected.
        fn take(&mut self, first: Option<usize>, piece: &[u8]) -> bool {
            let id = LinkId::new(0, 1);
            let (packet, header) = (&mut self.incoming, first.map(header));
            let taken = Incoming::take_piece(packet, id, header.as_ref(), piece.len(), MOST);
            let Ok(event) = taken else { return false };
            let Some(event) = event else { return true };
            let PortEvent::Part { header, begin, .. } = event else {
                panic!("{event:?}");
            };
            self.begun.push(begin);
            self.body.resize(body_len(&header), 0);
            if !self.unwanted {
                let memory = Destination::<Vec<u8>>::Bytes(&mut self.body);
                let place = Place { memory, offset: 0 };
                packet.as_mut().unwrap().read_piece(place, piece);
            }
            if let Some(event) = Incoming::end_piece(packet, id) {
                assert_eq!(event, PortEvent::Placed { link: id, header });
                self.placed += 1;
            }
            true
        }
    }

    #[test]
    fn a_body_is_put_together() {
        let mut link = Link::default();
        assert!(link.take(Some(6), b"ab") && link.take(None, b"cd"));
        assert_eq!(link.placed, 0);
        assert!(link.take(None, b"ef"));
        assert_eq!((&link.body[..], link.placed), (&b"abcdef"[..], 1));
        assert_eq!(link.begun, [true, false, false]);
        assert!(link.incoming.is_none());
    }

    #[test]
    fn an_unwanted_body_is_dropped_to_its_end() {
        let mut link = Link::default();
        assert!(link.take(Some(6), b"ab"));
        link.unwanted = true;
        assert!(link.take(None, b"cd"));
        link.unwanted = false;
        assert!(link.take(None, b"ef"));
        assert_eq!((&link.body[..], link.placed), (&b"ab\0\0\0\0"[..], 0));
        assert_eq!(link.begun, [true, false]);
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
            assert_eq!(link.placed, 0);
        }
    }
}
