//! The receiving half of a link: from bytes to packets and placed bodies.
//!
//! ```text
//!                 staging                        Sink
//!   socket -----> [ packet | packet | pa...] --> on_packet     whole in staging
//!      |                              |
//!      |                              `--------> begin, place? header there, body not
//!      `--------> application memory <---------- Some: read straight into it, on_placed
//!                                                None: collect it in staging, or drop it
//! ```
//!
//! When the memory for incomplete packets is used up, staging only peeks at the socket: a packet is
//! removed from it when it is delivered (`unread`).
//!
//! Owns: a link's position in its stream.
//! Not here: epoll, other links. A header is read once, checked, and then used from the copy. How much
//! is read at a packet's boundary adapts: little when large bodies come (what is staged of them is
//! copied twice), up to a buffer when small packets come.

use super::frame::{self, Greeting};
use super::staging::{Kept, Pool, STAGING, Staging};
use super::unread::{Awaited, Reading, Rest};
use super::{PACKET_MAX, sys};
use mx_proto::port::{HEADER_LEN, HeaderBytes, Place, Sink, body_len};
use mx_proto::{LinkId, Memory};
use socket2::Socket;
use std::cell::Cell;
use std::{fmt, io};

/// Least that is read at a packet's boundary, and all that is read behind a placed body.
const READ_MIN: usize = 4096;

/// Most that is read into application memory by one call: a poll should not take longer than
/// copying this.
const READ_MAX: usize = 1 << 20;

/// Bytes of large bodies after which other links get their turn.
const TURN: usize = 2 << 20;

/// Largest body of a packet on a link that the endpoint has not bound: a hello or an endpoint address, and what
/// they may come to carry.
pub const STRANGER_MAX: usize = 1024;
const _: () = assert!(STRANGER_MAX + HEADER_LEN < READ_MIN);

/// Bodies up to this size are delivered whole: a place for less is not worth asking for.
const PLACED_MIN: usize = 16 << 10;

/// Pieces of application memory that are no larger, on average, are filled from staging.
const COLLECT_MAX: usize = 256;

/// A link's position in its stream, and the bytes that are not used yet.
#[derive(Debug)]
pub(super) struct Rx {
    state: State,
    kept: Kept,
    /// The number of bytes to read at the next boundary.
    want: u32,
    awaited: Awaited,
    /// The last read within a body found nothing. The sink is not asked for the body's place again
    /// before something is there: that it is asked says that the message goes on, and would keep a
    /// peer that stopped in the middle of it alive for ever.
    dry: bool,
}

#[derive(Debug)]
enum State {
    /// Before the preamble.
    Greeting,
    /// At the beginning of a packet, which may be staged in part.
    Boundary,
    /// Within a body that goes into application memory; `got` bytes of it are there.
    Placing { header: HeaderBytes, got: u32 },
    /// Within a body without a destination; so many bytes of it are to come.
    Dropping { left: u32 },
}

impl Default for Rx {
    fn default() -> Self {
        Self {
            state: State::Greeting,
            kept: Kept::Nothing,
            want: READ_MIN as u32,
            awaited: Awaited::default(),
            dry: false,
        }
    }
}

/// The fault of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Violation {
    /// It does not begin with our preamble but with this.
    Nonsense(Box<[u8]>),
    /// It begins with the preamble of another version.
    OtherVersion(u16),
    /// A header announces a body of an impossible length.
    BodyLength(usize),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nonsense(bytes) => {
                write!(f, "its first bytes are \"{}\"", bytes.escape_ascii())
            }
            Self::OtherVersion(version) => {
                write!(f, "it speaks version {version}, not {}", frame::VERSION)
            }
            Self::BodyLength(len) => write!(f, "impossible body length {len}"),
        }
    }
}

/// Reasons why a link cannot continue.
#[derive(Debug)]
pub(super) enum Broken {
    /// The peer has finished, in the middle of a packet or not.
    Finished { midway: bool },
    /// The kernel says so.
    Failed(io::Error),
    /// The peer sent what no peer of ours sends.
    Violated(Violation),
}

/// The result of one turn of a link.
#[derive(Debug, Default)]
pub(super) struct TurnResult {
    /// Packets delivered or placed.
    pub(super) packets: usize,
    /// Any byte came.
    pub(super) bytes: bool,
    /// The turn ended although there may be more.
    pub(super) more: bool,
}

/// The receiver of a link's packets.
pub(super) struct Addressee<'a, S> {
    pub(super) link: LinkId,
    /// The endpoint has not bound it yet.
    pub(super) stranger: bool,
    /// Set when the sink has heard of the link.
    pub(super) known: &'a mut bool,
    pub(super) sink: &'a mut S,
}

impl Rx {
    /// True when the preamble has come.
    pub(super) fn is_greeted(&self) -> bool {
        !matches!(self.state, State::Greeting)
    }

    /// The link waits until all of a packet is in the kernel.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Any data is to be read again.
    pub(super) fn stop_waiting(&mut self, fd: &Socket) {
        // Fails if the connection is gone, which is reported anyway.
        let _ = self.awaited.stop(fd);
    }

    /// The link ends.
    pub(super) fn forget(&self, pool: &mut Pool) {
        pool.forget(&self.kept);
    }

    /// The link is quiet: it does with less memory.
    pub(super) fn retire(&mut self, pool: &mut Pool) {
        pool.retire(&mut self.kept);
    }

    /// Reads and delivers at most about `quota` packets. `busy`: more is expected soon.
    #[inline]
    pub(super) fn turn<M: Memory, S: Sink<M>>(
        &mut self,
        fd: &Socket,
        pool: &mut Pool,
        quota: usize,
        busy: bool,
        to: Addressee<'_, S>,
    ) -> (TurnResult, Result<(), Broken>) {
        let mut turn = TurnResult::default();
        let (dire, stranger) = (mx_reserve::SUPPLY.is_dire(), to.stranger);
        // Strangers are few and limited to little memory.
        let sparing = (pool.is_short() || dire) && !stranger;
        if !sparing {
            self.stop_waiting(fd);
        } else if self.awaited.is_some() {
            match self.awaited.look(fd) {
                Ok(true) => {}
                Ok(false) => return (turn, Ok(())),
                Err(error) => return (turn, Err(Broken::Failed(error))),
            }
        }
        let mut staging = pool.take(&mut self.kept);
        let reading = Reading::new(sparing);
        let mut result = self.run(fd, &mut staging, reading, quota, &mut turn, to);
        if dire && stranger && result.is_ok() && staging.len() > 0 {
            // No memory for a part of a packet.
            let error = io::Error::from_raw_os_error(libc::ENOMEM);
            result = Err(Broken::Failed(error));
        }
        self.kept = pool.give_back(staging, busy);
        (turn, result)
    }

    /// Reads and forgets what comes. `Ok(())`: nothing more at the moment.
    pub(super) fn discard(&mut self, fd: &Socket, pool: &mut Pool) -> Result<(), Broken> {
        let mut staging = pool.take(&mut self.kept);
        staging.consume(staging.len());
        let mut result = Ok(());
        for _ in 0..TURN / STAGING {
            match sys::recv(fd, staging.room(STAGING, STAGING)) {
                Ok(0) => result = Err(Broken::Finished { midway: false }),
                Ok(_) => continue,
                Err(error) if sys::would_block(&error) => {}
                Err(error) => result = Err(Broken::Failed(error)),
            }
            break;
        }
        self.kept = pool.give_back(staging, false);
        result
    }

    #[inline]
    fn run<M: Memory, S: Sink<M>>(
        &mut self,
        fd: &Socket,
        staging: &mut Staging,
        mut reading: Reading,
        quota: usize,
        turn: &mut TurnResult,
        mut to: Addressee<'_, S>,
    ) -> Result<(), Broken> {
        let mut drained = false;
        let mut placed = 0;
        loop {
            // Staged bytes come first.
            let missing = self.deliver(staging, quota, turn, &mut to)?;
            if reading.shows() {
                let whole = match missing {
                    Some(Missing::Staged { whole, .. }) => Some(whole),
                    _ => None,
                };
                let rest = reading.skip_delivered(fd, staging, whole, &mut self.awaited);
                let rest = rest.map_err(Broken::Failed)?;
                if rest != Rest::Nothing {
                    turn.more = rest == Rest::Ready;
                    return Ok(());
                }
            }
            let Some(missing) = missing else {
                turn.more = true;
                return Ok(());
            };
            if drained {
                return Ok(());
            }
            if turn.packets >= quota || placed >= TURN {
                turn.more = true;
                return Ok(());
            }
            let read = match missing {
                Missing::Staged { whole, at_boundary } => {
                    let want = if to.stranger {
                        READ_MIN
                    } else if at_boundary && !reading.sparing {
                        self.want as usize
                    } else {
                        STAGING
                    };
                    let want = want.max(whole.saturating_sub(staging.len()));
                    // A packet that is peeked at has to fit whole, whatever its length.
                    let fits = if reading.sparing { STAGING } else { whole };
                    let room = staging.room(fits, want);
                    let asked = room.len();
                    let n = there(reading.recv(fd, room))?;
                    staging.filled(n.unwrap_or(0));
                    if at_boundary && n == Some(asked) && !to.stranger {
                        self.want = (self.want * 2).min(STAGING as u32);
                    }
                    Read { n, asked }
                }
                Missing::Placed => {
                    self.want = READ_MIN as u32;
                    let ahead = if reading.sparing { 0 } else { READ_MIN };
                    let Some(read) = self.read_placed(fd, staging, ahead, &mut to)? else {
                        continue;
                    };
                    placed += read.n.unwrap_or(0);
                    read
                }
            };
            match read.n {
                None => drained = true,
                Some(0) => {
                    let midway = staging.len() > 0 || !matches!(self.state, State::Boundary);
                    return Err(Broken::Finished { midway });
                }
                Some(n) => {
                    turn.bytes = true;
                    // A short read has emptied the socket; another would cost a call.
                    drained = n < read.asked;
                }
            }
        }
    }

    /// Deals with what is staged. `None`: the quota ended first.
    #[inline]
    fn deliver<M: Memory, S: Sink<M>>(
        &mut self,
        staging: &mut Staging,
        quota: usize,
        turn: &mut TurnResult,
        to: &mut Addressee<'_, S>,
    ) -> Result<Option<Missing>, Broken> {
        loop {
            match &mut self.state {
                State::Boundary => {
                    let Some(header) = frame::header(staging.staged()) else {
                        return Ok(Some(Missing::Staged {
                            whole: HEADER_LEN,
                            at_boundary: true,
                        }));
                    };
                    let len = body_len(&header);
                    let whole = HEADER_LEN + len;
                    if to.stranger && len > STRANGER_MAX {
                        return Err(Broken::Violated(Violation::BodyLength(len)));
                    }
                    if len <= PACKET_MAX && whole <= staging.len() {
                        if turn.packets >= quota {
                            return Ok(None);
                        }
                        *to.known = true;
                        let body = &staging.staged()[HEADER_LEN..whole];
                        to.sink.on_packet(to.link, &header, body);
                        turn.packets += 1;
                        staging.consume(whole);
                        continue;
                    }
                    if len > frame::BODY_MAX {
                        return Err(Broken::Violated(Violation::BodyLength(len)));
                    }
                    let missing = Missing::Staged {
                        whole,
                        at_boundary: false,
                    };
                    if len <= PLACED_MIN {
                        return Ok(Some(missing));
                    }
                    if let Some(mut place) = place(to, &header, len, true) {
                        let got = (staging.len() - HEADER_LEN).min(len);
                        let body = &staging.staged()[HEADER_LEN..HEADER_LEN + got];
                        place.memory.fill(place.offset, got, body, 0);
                        staging.consume(HEADER_LEN + got);
                        self.state = State::Placing {
                            header,
                            got: got as u32,
                        };
                    } else if len <= PACKET_MAX {
                        return Ok(Some(missing));
                    } else if !*to.known {
                        // A stranger's first packet matches no posted receive.
                        return Err(Broken::Violated(Violation::BodyLength(len)));
                    } else {
                        staging.consume(HEADER_LEN);
                        self.state = State::Dropping { left: len as u32 };
                    }
                }
                State::Placing { header, got } => {
                    let len = body_len(header);
                    let have = *got as usize;
                    if have == len {
                        to.sink.on_placed(to.link, header);
                        turn.packets += 1;
                        self.state = State::Boundary;
                    } else if staging.len() == 0 {
                        return Ok(Some(Missing::Placed));
                    } else {
                        let n = staging.len().min(len - have);
                        if let Some(mut place) = place(to, header, len, false) {
                            let bytes = &staging.staged()[..n];
                            place.memory.fill(place.offset + have, n, bytes, 0);
                            *got += n as u32;
                        } else {
                            self.state = State::Dropping {
                                left: (len - have - n) as u32,
                            };
                        }
                        staging.consume(n);
                    }
                }
                State::Dropping { left } => {
                    let n = staging.len().min(*left as usize);
                    staging.consume(n);
                    *left -= n as u32;
                    if *left > 0 {
                        return Ok(Some(Missing::Staged {
                            whole: 1,
                            at_boundary: false,
                        }));
                    }
                    self.state = State::Boundary;
                }
                State::Greeting => match frame::judge(staging.staged()) {
                    Greeting::Known => {
                        staging.consume(frame::PREAMBLE_LEN);
                        self.state = State::Boundary;
                    }
                    Greeting::Incomplete => {
                        let whole = frame::PREAMBLE_LEN;
                        return Ok(Some(Missing::Staged {
                            whole,
                            at_boundary: true,
                        }));
                    }
                    Greeting::OtherVersion(version) => {
                        return Err(Broken::Violated(Violation::OtherVersion(version)));
                    }
                    Greeting::Nonsense => {
                        let shown = staging.len().min(16);
                        let bytes = staging.staged()[..shown].into();
                        return Err(Broken::Violated(Violation::Nonsense(bytes)));
                    }
                },
            }
        }
    }

    /// Reads into application memory, and up to `ahead` further bytes into the empty staging
    /// buffer. `None`: the body has no destination any more.
    #[inline]
    fn read_placed<M: Memory, S: Sink<M>>(
        &mut self,
        fd: &Socket,
        staging: &mut Staging,
        ahead: usize,
        to: &mut Addressee<'_, S>,
    ) -> Result<Option<Read>, Broken> {
        let State::Placing { header, got } = &mut self.state else {
            return Ok(None);
        };
        if self.dry && !sys::readable(fd) {
            return Ok(Some(Read { n: None, asked: 0 }));
        }
        self.dry = false;
        let len = body_len(header);
        let have = *got as usize;
        let left = len - have;
        let Some(mut place) = place(to, header, len, false) else {
            self.state = State::Dropping { left: left as u32 };
            return Ok(None);
        };
        let at = place.offset + have;
        let rest = place.memory.len() - at;
        let cells = place.memory.cells(at, left);
        // The pieces of all that follows, whether it belongs to this body or not.
        let count = cells.size_hint().1.unwrap_or(usize::MAX);
        let mut places = sys::Places::of(count);
        if rest > count.saturating_mul(COLLECT_MAX) || count == 1 {
            for cells in cells {
                let n = cells.len().min(READ_MAX - places.len());
                places.push(&cells[..n]);
                if places.len() == READ_MAX || places.is_full() {
                    break;
                }
            }
        }
        let of_body = places.len();
        if of_body == 0 {
            // Small pieces, or memory that lends one at a time: filled from staging.
            let room = staging.room(STAGING, left.min(STAGING) + ahead);
            let asked = room.len();
            let n = there(sys::recv(fd, room))?;
            self.dry = n.is_none();
            staging.filled(n.unwrap_or(0));
            return Ok(Some(Read { n, asked }));
        }
        if of_body == left {
            let ahead = Cell::from_mut(staging.room(ahead, ahead));
            places.push(ahead.as_slice_of_cells());
        }
        let asked = places.len();
        let n = there(sys::recv_into(fd, &places))?;
        self.dry = n.is_none();
        let into = n.unwrap_or(0).min(of_body);
        *got += into as u32;
        staging.filled(n.unwrap_or(0) - into);
        Ok(Some(Read { n, asked }))
    }
}

/// The data needed before a link can continue.
enum Missing {
    /// Bytes in staging, until `whole` are there.
    Staged { whole: usize, at_boundary: bool },
    /// Bytes of a body that goes into application memory.
    Placed,
}

/// The result of a read, and whether there was room for more.
struct Read {
    /// `None`: nothing was there. `Some(0)`: the peer has finished.
    n: Option<usize>,
    asked: usize,
}

/// The number of bytes read. `None`: there was nothing.
fn there(read: io::Result<usize>) -> Result<Option<usize>, Broken> {
    match read {
        Ok(n) => Ok(Some(n)),
        Err(error) if sys::would_block(&error) => Ok(None),
        Err(error) => Err(Broken::Failed(error)),
    }
}

/// Asks where a body belongs, or begins ([`Sink::place`]). A place that it does not fit into is none.
fn place<'a, M: Memory + 'a, S: Sink<M>>(
    to: &'a mut Addressee<'_, S>,
    header: &HeaderBytes,
    len: usize,
    begin: bool,
) -> Option<Place<'a, M>> {
    let place = to.sink.place(to.link, header, begin)?;
    let room = place.memory.len().checked_sub(place.offset)?;
    debug_assert!(
        len <= room,
        "a body of {len} bytes does not fit into {room}"
    );
    (len <= room).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::super::send::{SCRATCH, Tx};
    use super::*;
    use mx_proto::Source;
    use mx_proto::port::{Body, Destination};
    use mx_sim::{Ear, Hearing, Pieces, header_of};

    /// A posted receive.
    struct Posted {
        memory: Pieces,
        complete: bool,
    }

    impl Ear<Pieces> for Posted {
        fn on_packet<B: Source + ?Sized>(&mut self, _: LinkId, _: &HeaderBytes, body: &B) {
            self.memory.fill(0, body.len(), body, 0);
            self.complete = true;
        }

        fn place(&mut self, _: LinkId, _: &HeaderBytes) -> Option<Place<'_, Pieces>> {
            Some(Place {
                memory: Destination::Memory(&mut self.memory),
                offset: 0,
            })
        }

        fn on_placed(&mut self, _: LinkId, _: &HeaderBytes) {
            self.complete = true;
        }
    }

    /// The calls that a list takes to go out and to come in, which arrives as it was sent.
    fn calls(sizes: &[usize]) -> (usize, usize) {
        let (near, far) = Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        for end in [&near, &far] {
            end.set_nonblocking(true).unwrap();
            end.set_send_buffer_size(4 << 20).unwrap();
        }
        let len = sizes.iter().sum();
        let bytes: Vec<u8> = (0..len).map(|at| (at ^ (at >> 8)) as u8).collect();
        let memory = Pieces::cut(&bytes, sizes);
        let mut posted = Posted {
            memory: Pieces::zeros(sizes),
            complete: false,
        };
        let header = header_of(1, len);
        let body = Body::Memory {
            memory: &memory,
            offset: 0,
            len,
        };
        let mut rx = Rx {
            state: State::Boundary,
            ..Rx::default()
        };
        let (mut pool, mut known) = (Pool::new(1 << 20), true);
        sys::CALLS.set(0);
        let sent = Tx::default().packet(&near, &header, &body, &mut [0; SCRATCH]);
        assert_eq!(sent.unwrap(), mx_proto::port::Sent::Whole, "{sizes:?}");
        let out = sys::CALLS.replace(0);
        while !posted.complete {
            let to = Addressee {
                link: LinkId::new(0, 0),
                stranger: false,
                known: &mut known,
                sink: &mut Hearing(&mut posted),
            };
            let (_, result) = rx.turn::<Pieces, _>(&far, &mut pool, 64, true, to);
            result.unwrap();
        }
        assert!(posted.memory.bytes() == bytes, "{sizes:?}");
        (out, sys::CALLS.get())
    }

    #[test]
    fn a_list_takes_as_many_calls_as_its_vector() {
        for (sizes, out, into) in [
            (vec![1 << 18], 1, 2),
            (vec![1 << 12; 64], 1, 2),
            (vec![1 << 12; 256], 1, 2),
            // More than a vector may have.
            (vec![512; 2048], 3, 4),
            (vec![257; 1023], 1, 2),
            // Copied through buffers of 16 and 64 KiB.
            (vec![128; 2048], 17, 6),
            (vec![1; 4096], 1, 2),
            // Small pieces between large ones.
            ([64, 4032].repeat(64), 1, 2),
            ([30_000, 1, 1, 1].repeat(8), 1, 2),
        ] {
            let (sent, received) = calls(&sizes);
            let shown = format!("{} of {}: {sent}, {received}", sizes.len(), sizes[0]);
            assert!(sent <= out && received <= into, "{shown}");
        }
    }
}
