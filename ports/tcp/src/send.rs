//! Sending half of a link: whole packets, parts of large ones, and the backlog.
//!
//! ```text
//!   packet -- small: header and body in one buffer, one send ------------> kernel
//!          -- large: header and pieces in one sendmsg
//!                    the kernel accepted only a part:
//!                      of a packet up to PACKET_MAX  -> backlog, Sent::Whole
//!                      of a larger one               -> Sent::Part, then resume or detach
//! ```
//!
//! Order on the wire: backlog, the rest of a body, the next packet; a packet is accepted only if the first two are empty.
//!
//! Owns: the bytes that the port has accepted and the kernel has not.
//! Out of scope: polling.

use super::PACKET_MAX;
use super::sys;
use mx_proto::Memory;
use mx_proto::port::{Body, HEADER_LEN, HeaderBytes, Sent};
use smallvec::SmallVec;
use socket2::Socket;
use std::io::{self, IoSlice};

/// Bytes of the scratch buffer in which small pieces are collected.
pub(super) const SCRATCH: usize = 16 * 1024;

/// Longest body in bytes that is copied behind its header, which is cheaper than a second `iovec`.
const COPY_MAX: usize = 4096;

/// Longest piece in bytes that is copied between others.
const COLLECT_MAX: usize = 256;

/// Reasons for refusing a packet.
#[derive(Debug)]
pub(super) enum Refusal {
    /// There is no room.
    Full,
    /// The connection is broken.
    Failed(io::Error),
}

/// Data that a link still has to send.
#[derive(Debug, Default)]
pub(super) struct Tx {
    /// Rest of an accepted packet, or of the preamble; sometimes an empty one.
    backlog: Option<Box<Backlog>>,
    /// Bytes of a body that its owner still has to bring.
    body_left: usize,
}

/// Bytes that the kernel has had no room for.
#[derive(Debug, Default)]
struct Backlog {
    bytes: Vec<u8>,
    /// The number of bytes that the kernel has taken since.
    flushed: usize,
}

impl Tx {
    /// Returns true if accepted bytes are left to send.
    #[inline]
    pub(super) fn has_backlog(&self) -> bool {
        (self.backlog.as_ref()).is_some_and(|backlog| !backlog.bytes.is_empty())
    }

    /// Returns true if a body is partly sent and its owner has to bring the rest.
    pub(super) fn is_partial(&self) -> bool {
        self.body_left > 0
    }

    /// Returns true if the next packet goes to the kernel at once.
    #[inline]
    pub(super) fn is_clear(&self) -> bool {
        !self.has_backlog() && self.body_left == 0
    }

    /// Sends the backlog. `Ok(true)`: none is left.
    pub(super) fn flush(&mut self, fd: &Socket) -> io::Result<bool> {
        let Some(Backlog { bytes, flushed }) = self.backlog.as_deref_mut() else {
            return Ok(true);
        };
        while *flushed < bytes.len() {
            match sys::send(fd, &bytes[*flushed..]) {
                Ok(n) => *flushed += n,
                Err(error) if sys::would_block(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.backlog = None;
        Ok(true)
    }

    /// Returns the backlog, to add to it.
    fn backlog_mut(&mut self) -> &mut Vec<u8> {
        &mut self.backlog.get_or_insert_default().bytes
    }

    /// Sends the preamble, or keeps what the kernel does not accept.
    pub(super) fn greet(&mut self, fd: &Socket, bytes: &[u8]) -> io::Result<()> {
        self.backlog_mut().extend_from_slice(bytes);
        self.flush(fd).map(|_| ())
    }

    /// Sends packets that were held, and keeps what the kernel does not accept. `Ok(true)`: nothing was kept.
    pub(super) fn batch(&mut self, fd: &Socket, packets: &[u8]) -> io::Result<bool> {
        debug_assert!(self.is_clear());
        let taken = match sys::send(fd, packets) {
            Ok(taken) if taken == packets.len() => return Ok(true),
            Err(error) if !sys::would_block(&error) => return Err(error),
            taken => taken.unwrap_or(0),
        };
        self.backlog_mut().extend_from_slice(&packets[taken..]);
        self.flush(fd)
    }

    #[inline]
    pub(super) fn packet<M: Memory>(
        &mut self,
        fd: &Socket,
        header: &HeaderBytes,
        body: &Body<'_, M>,
        scratch: &mut [u8],
    ) -> Result<Sent, Refusal> {
        if !self.is_clear() {
            return Err(Refusal::Full);
        }
        let len = body.len();
        let whole = HEADER_LEN + len;
        scratch[..HEADER_LEN].copy_from_slice(header);
        let taken = match body {
            Body::Bytes(bytes) if len <= COPY_MAX => {
                scratch[HEADER_LEN..whole].copy_from_slice(bytes);
                first(sys::send(fd, &scratch[..whole]))?
            }
            Body::Bytes(bytes) => {
                let pair = [IoSlice::new(header), IoSlice::new(bytes)];
                first(sys::send_vectored(fd, &pair, false))?
            }
            Body::Memory {
                memory,
                offset,
                len,
            } => pieces(fd, scratch, HEADER_LEN, *memory, *offset, *len)?,
        };
        if taken == whole {
            return Ok(Sent::Whole);
        }
        let of_header = taken.min(HEADER_LEN);
        let of_body = taken - of_header;
        if of_header < HEADER_LEN {
            self.backlog_mut().extend_from_slice(&header[of_header..]);
        }
        match body {
            Body::Bytes(bytes) => self.backlog_mut().extend_from_slice(&bytes[of_body..]),
            Body::Memory {
                memory,
                offset,
                len,
            } if *len <= PACKET_MAX => {
                let backlog = self.backlog_mut();
                backlog.reserve_exact(*len - of_body);
                memory.visit(*offset + of_body, *len - of_body, |piece| {
                    backlog.extend_from_slice(piece);
                });
                // A buffer shorter than it claims must not shift later packets.
                backlog.resize(whole - taken, 0);
            }
            Body::Memory { len, .. } => {
                self.body_left = *len - of_body;
                return Ok(Sent::Part(of_body));
            }
        }
        Ok(Sent::Whole)
    }

    /// Sends more of a partly sent body. [`Sent::Part`] counts the bytes of this call.
    pub(super) fn more<M: Memory>(
        &mut self,
        fd: &Socket,
        memory: &M,
        offset: usize,
        len: usize,
        scratch: &mut [u8],
    ) -> Result<Sent, Refusal> {
        debug_assert_eq!(len, self.body_left, "a body is resumed where it stopped");
        let len = len.min(self.body_left);
        if self.has_backlog() && !self.flush(fd).map_err(Refusal::Failed)? {
            return Err(Refusal::Full);
        }
        if len == 0 {
            return Ok(Sent::Whole);
        }
        let taken = pieces(fd, scratch, 0, memory, offset, len)?;
        self.body_left -= taken;
        Ok(if taken == len {
            Sent::Whole
        } else {
            Sent::Part(taken)
        })
    }

    /// Copies the rest of a partly sent body, whose memory is about to be revoked.
    pub(super) fn detach<M: Memory>(&mut self, memory: &M, offset: usize, len: usize) {
        let left = std::mem::take(&mut self.body_left);
        debug_assert_eq!(left, len, "the rest is the rest");
        let backlog = self.backlog_mut();
        let end = backlog.len() + left;
        memory.visit(offset, len.min(left), |piece| {
            backlog.extend_from_slice(piece)
        });
        // If the memory is shorter than promised, zeros complete the packet.
        backlog.resize(end, 0);
    }
}

/// Sends `ahead` bytes of `scratch` and then `len` bytes of `memory` from `offset` on. Returns the number of bytes that
/// the kernel accepted, at least one.
fn pieces<M: Memory>(
    fd: &Socket,
    scratch: &mut [u8],
    ahead: usize,
    memory: &M,
    offset: usize,
    len: usize,
) -> Result<usize, Refusal> {
    let whole = ahead + len;
    let mut ahead = ahead;
    let mut taken = 0;
    let mut pieces = memory.pieces(offset, len);
    let mut next = pieces.next();
    if len > 0 && next.is_none() {
        return copied(fd, &scratch[..ahead], memory, offset, len);
    }
    loop {
        let vector = gather(scratch, std::mem::take(&mut ahead), &mut next, &mut pieces);
        let offered = vector.iter().map(|slice| slice.len()).sum::<usize>();
        if offered == 0 {
            return Ok(taken);
        }
        let result = match &vector[..] {
            [one] => sys::send(fd, one),
            all => sys::send_vectored(fd, all, taken + offered < whole),
        };
        match result {
            Ok(n) => {
                taken += n;
                if n < offered || taken == whole {
                    return Ok(taken);
                }
            }
            Err(error) if !sys::would_block(&error) => return Err(Refusal::Failed(error)),
            Err(_) if taken == 0 => return Err(Refusal::Full),
            Err(_) => return Ok(taken),
        }
    }
}

/// Returns the vector of the next call: `ahead` bytes of `scratch`, then pieces, small ones collected in `scratch`.
/// `next`: the first piece, and on return the first one that does not fit.
fn gather<'v, 'm: 'v>(
    mut scratch: &'v mut [u8],
    ahead: usize,
    next: &mut Option<&'m [u8]>,
    pieces: &mut impl Iterator<Item = &'m [u8]>,
) -> SmallVec<[IoSlice<'v>; 4]> {
    let most = pieces.size_hint().1.unwrap_or(0).saturating_add(2);
    let mut vector = SmallVec::with_capacity(most.min(sys::VECTOR_MAX));
    let mut collected = ahead;
    while vector.len() < sys::VECTOR_MAX
        && let Some(piece) = next.take().or_else(|| pieces.next())
    {
        let end = collected + piece.len();
        if piece.len() <= COLLECT_MAX {
            if end > scratch.len() {
                *next = Some(piece);
                break;
            }
            scratch[collected..end].copy_from_slice(piece);
            collected = end;
            continue;
        }
        if collected > 0 {
            let (run, rest) = scratch.split_at_mut(collected);
            vector.push(IoSlice::new(run));
            (scratch, collected) = (rest, 0);
        }
        if vector.len() == sys::VECTOR_MAX {
            *next = Some(piece);
            break;
        }
        vector.push(IoSlice::new(piece));
    }
    if collected > 0 {
        vector.push(IoSlice::new(&scratch[..collected]));
    }
    vector
}

/// Copies memory that lends one piece at a time, and sends the copy.
#[cold]
fn copied<M: Memory>(
    fd: &Socket,
    ahead: &[u8],
    memory: &M,
    offset: usize,
    len: usize,
) -> Result<usize, Refusal> {
    let mut bytes = ahead.to_vec();
    memory.visit(offset, len, |piece| bytes.extend_from_slice(piece));
    first(sys::send(fd, &bytes))
}

#[inline]
fn first(result: io::Result<usize>) -> Result<usize, Refusal> {
    result.map_err(|error| {
        if sys::would_block(&error) {
            Refusal::Full
        } else {
            Refusal::Failed(error)
        }
    })
}
