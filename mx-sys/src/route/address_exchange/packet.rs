//! Questions and answers as packets that cannot be confused with the endpoint's.
//!
//! ```text
//!   'L', what, "mx", length of the body, version, zeroes        32 bytes (docs/wire-format.md)
//! ```

use mx_port_base::ports;
use mx_port_tcp::TcpPort;
use mx_proto::port::{BODY_LEN_AT, Body, HEADER_LEN, HeaderBytes, Port, SendError, Sent};
use mx_proto::{LinkId, Source};
use std::fmt;

/// The version of the question and its answer. Neither is read when it differs.
const VERSION: u16 = 1;

/// The value of the byte in which packets of the MX protocol have their kind; no kind has it.
const KIND: u8 = b'L';
const MAGIC: [u8; 2] = *b"mx";
const VERSION_AT: usize = 8;

/// The port whose peers are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::route) enum For {
    Rdm,
    Dgram,
}

impl fmt::Display for For {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ports::name(self.port()).unwrap_or_default())
    }
}

/// A packet of the address exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::route) enum What {
    Question(For),
    Answer,
    /// The asker has a secret, and requests a nonce.
    Hail(For),
    /// Here it is.
    Nonce,
}

impl What {
    fn byte(self) -> u8 {
        match self {
            Self::Question(For::Rdm) => 1,
            Self::Answer => 2,
            Self::Question(For::Dgram) => 3,
            Self::Hail(For::Rdm) => 4,
            Self::Hail(For::Dgram) => 5,
            Self::Nonce => 6,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let all = [
            Self::Question(For::Rdm),
            Self::Answer,
            Self::Question(For::Dgram),
            Self::Hail(For::Rdm),
            Self::Hail(For::Dgram),
            Self::Nonce,
        ];
        all.into_iter().find(|what| what.byte() == byte)
    }
}

impl For {
    /// The port that has a link.
    pub(in crate::route) fn of(link: LinkId) -> Self {
        match link.port() {
            ports::RDM => Self::Rdm,
            _ => Self::Dgram,
        }
    }

    /// The number of the port.
    pub(in crate::route) fn port(self) -> u8 {
        match self {
            Self::Rdm => ports::RDM,
            Self::Dgram => ports::DGRAM,
        }
    }

    /// As words that are proven name it.
    pub(in crate::route) fn byte(self) -> u8 {
        What::Question(self).byte()
    }
}

pub(in crate::route) fn send(
    tcp: &mut TcpPort,
    link: LinkId,
    what: What,
    body: &[u8],
) -> Result<Sent, SendError> {
    let header = header(what, body.len());
    tcp.send(link, &header, Body::<Vec<u8>>::Bytes(body))
}

fn header(what: What, body_len: usize) -> HeaderBytes {
    let mut header = [0; HEADER_LEN];
    header[0] = KIND;
    header[1] = what.byte();
    header[2..4].copy_from_slice(&MAGIC);
    // Bodies are a few hundred bytes.
    header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(body_len as u32).to_le_bytes());
    header[VERSION_AT..VERSION_AT + 2].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// The packet of the address exchange in these bytes, and whether its version is ours. `None`: it
/// is the endpoint's.
#[inline]
pub(in crate::route) fn recognise(header: &HeaderBytes) -> Option<(What, bool)> {
    if header[0] != KIND || header[2..4] != MAGIC {
        return None;
    }
    let what = What::from_byte(header[1])?;
    let known = header[VERSION_AT..VERSION_AT + 2] == VERSION.to_le_bytes();
    Some((what, known))
}

/// The bytes of a body, unless there are more than anything of ours has.
pub(in crate::route) fn bytes_of<B: Source + ?Sized>(body: &B, most: usize) -> Option<Vec<u8>> {
    (body.len() <= most).then(|| body.to_vec())
}
