//! Receiving half of a link: from bytes to packets and placed bodies.
//!
//! ```text
//!                 staging                         PortEvent
//!   socket -----> [ packet | packet | pa...] --> Packet    whole in staging, and lent from there
//!      |                              |
//!      |                              `--------> Part      header complete, body not
//!      `--------> application memory <---------- read: straight into it, then Placed
//!                                                not read: collected in staging, or dropped
//!
//!   begin --> step --> event (what it lent is consumed by the next step) --> step --> ... --> end
//! ```
//!
//! A [`Turn`] is one visit of a link. It is suspended at each event, and resumed by the next step.
//!
//! When the memory for incomplete packets is used up, staging only peeks at the socket: a packet leaves the socket when
//! it is delivered (`unread`).
//!
//! Owns: a link's position in its stream.
//! Out of scope: epoll, other links. A header is checked in staging, which no peer can write to. The size of a read at a
//! packet boundary adapts: small while large bodies arrive (staged bytes of them are copied twice), up to a buffer while
//! small packets arrive.

use super::frame::{self, Greeting};
use super::staging::{Pool, STAGING, Staging};
use super::unread::{ReadThreshold, Reading, Rest};
use super::{PACKET_MAX, sys};
use mx_proto::port::{HEADER_LEN, HeaderBytes, Place, body_len};
use mx_proto::round::PortEvent;
use mx_proto::{LinkId, Memory};
use socket2::Socket;
use std::cell::Cell;
use std::{fmt, io};

/// Minimum read at a packet boundary in bytes, and all that is read after a placed body.
const READ_MIN: usize = 4096;

/// Maximum read into application memory by one call, in bytes: a poll should not take longer than copying this much.
const READ_MAX: usize = 1 << 20;

/// Bytes of large bodies after which other links are read.
const TURN: usize = 2 << 20;

/// Longest body in bytes that is accepted on a link that the endpoint has not bound to a remote yet: a hello or an
/// endpoint address, with room for extensions.
pub const STRANGER_MAX: usize = 1024;
const _: () = assert!(STRANGER_MAX + HEADER_LEN < READ_MIN);

/// Longest body that is always delivered whole, in bytes: asking for its place would not pay.
const PLACED_MIN: usize = 16 << 10;

/// Average size in bytes up to which pieces of application memory are filled from staging.
const COLLECT_MAX: usize = 256;

/// Link's position in its stream, and the unused bytes.
#[derive(Debug)]
pub(super) struct Rx {
    state: State,
    /// Bytes of its stream that the link keeps between two polls.
    kept: Staging,
    /// Bytes to read at the next boundary.
    want: u32,
    awaited: ReadThreshold,
    /// True if the last read within a body found nothing. No further part is handed out until bytes arrive: a part
    /// means progress, and would keep a peer that stopped in the middle of a body alive forever.
    dry: bool,
}

#[derive(Debug)]
enum State {
    /// Before the preamble.
    Greeting,
    /// At the beginning of a packet, which may be partly staged.
    Boundary,
    /// Within a body that goes into application memory; `got` bytes of it have arrived.
    Placing { header: HeaderBytes, got: u32 },
    /// After a body that has been read, which is being handed out.
    Placed { header: HeaderBytes },
    /// Within a body without a destination, of which `left` bytes are still to arrive.
    Dropping { left: u32 },
}

impl Default for Rx {
    fn default() -> Self {
        Self {
            state: State::Greeting,
            kept: Staging::default(),
            want: READ_MIN as u32,
            awaited: ReadThreshold::default(),
            dry: false,
        }
    }
}

/// Protocol violation in a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Violation {
    /// The stream begins with these bytes instead of the preamble.
    Nonsense(Box<[u8]>),
    /// The stream begins with the preamble of this other version.
    OtherVersion(u16),
    /// A header announces a body of this impossible length.
    BodyLength(usize),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nonsense(bytes) => {
                write!(f, "its first bytes are \"{}\"", bytes.escape_ascii())
            }
            Self::OtherVersion(version) => {
                write!(f, "it uses version {version} instead of {}", frame::VERSION)
            }
            Self::BodyLength(len) => write!(f, "invalid body length {len}"),
        }
    }
}

/// Reasons why a link cannot continue.
#[derive(Debug)]
pub(super) enum LinkFailure {
    /// The peer has closed, within a packet or not.
    Finished { midway: bool },
    /// The kernel reported an error.
    Failed(io::Error),
    /// The peer has violated the protocol.
    Violated(Violation),
}

/// Figures of one visit of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnFigures {
    /// Number of packets handed out or placed.
    pub(super) packets: usize,
    /// True if any byte arrived.
    pub(super) bytes: bool,
    /// True if the visit ended although there may be more.
    pub(super) more: bool,
}

/// A visit of a link: at most about `quota` packets, read and handed out one by one.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) link: LinkId,
    pub(super) served: TurnFigures,
    quota: usize,
    /// True if the socket had nothing more.
    drained: bool,
    /// Bytes read into application memory.
    placed: usize,
    staging: Staging,
    reading: Reading,
    /// Bytes at the front of `staging` that are the packet handed out last; otherwise 0.
    lent: usize,
    /// True if the last event is a part that has not been read; the next step skips its body.
    unread: bool,
    /// Reason why reading the last part failed; the next step ends the link.
    broken: Option<LinkFailure>,
    /// True if there is no memory to keep a part of a packet.
    unkept: bool,
}

/// Result of one step of a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A packet is staged.
    Packet,
    /// Bytes of a body that may have a place are available.
    Part { begin: bool },
    /// A body has been read completely.
    Placed,
    /// The preamble is complete; packets follow.
    Greeted,
    /// The visit is over.
    End,
}

impl Turn {
    /// Lends the next packet, if it is staged whole and within the quota.
    #[inline]
    fn lend_packet(&mut self, stranger: bool) -> bool {
        let staged = self.staging.staged();
        let Some(header) = staged.first_chunk() else {
            return false;
        };
        let len = body_len(header);
        let most = if stranger { STRANGER_MAX } else { PACKET_MAX };
        if len > most || HEADER_LEN + len > staged.len() || self.served.packets >= self.quota {
            return false;
        }
        self.served.packets += 1;
        self.lent = HEADER_LEN + len;
        true
    }

    /// Asks for the place of a part. Returns false if the last event has asked, and nothing was read.
    #[inline]
    fn asks(&mut self) -> bool {
        self.unread = !self.unread;
        self.unread
    }

    /// Returns the body of the packet handed out last.
    #[inline]
    pub(super) fn body(&self) -> &[u8] {
        let staged = self.staging.staged();
        staged.get(HEADER_LEN..self.lent).unwrap_or(&[])
    }

    /// Accounts for a read of up to `asked` bytes. Returns the number read. `midway`: an end of stream here truncates a
    /// packet.
    #[inline]
    fn account(
        &mut self,
        read: io::Result<usize>,
        asked: usize,
        midway: bool,
    ) -> Result<usize, LinkFailure> {
        match read {
            Ok(0) => Err(LinkFailure::Finished { midway }),
            Ok(n) => {
                self.served.bytes = true;
                // A short read has emptied the socket; another would cost a call.
                self.drained = n < asked;
                Ok(n)
            }
            Err(error) if sys::would_block(&error) => {
                self.drained = true;
                Ok(0)
            }
            Err(error) => Err(LinkFailure::Failed(error)),
        }
    }

    /// Returns the buffer to the pool, and the bytes that the link cannot use yet. `busy`: more is expected soon.
    #[inline]
    pub(super) fn end(&mut self, pool: &mut Pool, busy: bool) -> Staging {
        pool.give_back(std::mem::take(&mut self.staging), busy)
    }

    /// Ends the visit of a link that has been closed, and drops its bytes.
    pub(super) fn abandon(&mut self, pool: &mut Pool) {
        self.staging.consume(self.staging.len());
        self.end(pool, false);
    }
}

impl Rx {
    /// Returns true if the link waits until all of a packet is in the kernel.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Ends the waiting: any data is read again.
    pub(super) fn stop_waiting(&mut self, fd: &Socket) {
        // Fails if the connection is broken, which is reported anyway.
        let _ = self.awaited.stop(fd);
    }

    /// Releases the kept bytes of a link that ends.
    pub(super) fn forget(&self, pool: &mut Pool) {
        pool.forget(&self.kept);
    }

    /// Frees the buffer of a link that has become quiet.
    pub(super) fn retire(&mut self, pool: &mut Pool) {
        pool.retire(&mut self.kept);
    }

    /// Begins a visit of at most about `quota` packets, unless the rest of a packet is awaited.
    #[inline]
    pub(super) fn begin(
        &mut self,
        fd: &Socket,
        pool: &mut Pool,
        turn: &mut Option<Turn>,
        link: LinkId,
        stranger: bool,
        quota: usize,
    ) -> Result<(), LinkFailure> {
        let dire = mx_reserve::SUPPLY.is_critical();
        // Strangers are few and limited to little memory.
        let sparing = (pool.is_short() || dire) && !stranger;
        if !sparing {
            self.stop_waiting(fd);
        } else if self.awaited.is_some() && !self.awaited.look(fd).map_err(LinkFailure::Failed)? {
            return Ok(());
        }
        *turn = Some(Turn {
            link,
            served: TurnFigures::default(),
            quota,
            drained: false,
            placed: 0,
            staging: pool.take(&mut self.kept),
            reading: Reading::new(sparing),
            lent: 0,
            unread: false,
            broken: None,
            unkept: dire && stranger,
        });
        Ok(())
    }

    /// Continues a visit. `known`: the endpoint knows the link.
    #[inline]
    pub(super) fn step(
        &mut self,
        fd: &Socket,
        turn: &mut Turn,
        stranger: bool,
        known: bool,
    ) -> Result<Step, LinkFailure> {
        turn.staging.consume(std::mem::take(&mut turn.lent));
        // Most steps find the next packet, or nothing more.
        if matches!(self.state, State::Boundary) {
            if turn.lend_packet(stranger) {
                return Ok(Step::Packet);
            }
            if turn.drained && turn.staging.len() == 0 && !turn.reading.shows() {
                return Ok(Step::End);
            }
        }
        if let Some(broken) = turn.broken.take() {
            return Err(broken);
        }
        let step = self.run(fd, turn, stranger, known)?;
        if turn.unkept && step == Step::End && turn.staging.len() > 0 {
            let error = io::Error::from_raw_os_error(libc::ENOMEM);
            return Err(LinkFailure::Failed(error));
        }
        Ok(step)
    }

    /// Returns the event that a step has found.
    #[inline]
    pub(super) fn event(&self, turn: &Turn, step: Step) -> Option<PortEvent> {
        let (link, header) = (turn.link, self.header(turn)?);
        match step {
            Step::Packet => Some(PortEvent::Packet { link, header }),
            Step::Part { begin } => Some(PortEvent::Part {
                link,
                header,
                begin,
            }),
            Step::Placed => Some(PortEvent::Placed { link, header }),
            Step::Greeted | Step::End => None,
        }
    }

    /// Returns the header of the current packet.
    #[inline]
    fn header(&self, turn: &Turn) -> Option<HeaderBytes> {
        match &self.state {
            State::Boundary => frame::header(turn.staging.staged()),
            State::Placing { header, .. } | State::Placed { header } => Some(*header),
            State::Greeting | State::Dropping { .. } => None,
        }
    }

    /// Reads the available bytes of the part handed out to its place.
    #[inline]
    pub(super) fn read<M: Memory>(&mut self, fd: &Socket, turn: &mut Turn, place: Place<'_, M>) {
        debug_assert!(turn.unread, "no part has been given out");
        let header = self.header(turn);
        let Some(header) = header.filter(|header| fits(&place, body_len(header))) else {
            return;
        };
        turn.unread = false;
        let begins = matches!(self.state, State::Boundary);
        if begins {
            turn.staging.consume(HEADER_LEN);
            self.state = State::Placing { header, got: 0 };
        }
        if begins || turn.staging.len() > 0 {
            self.place_staged(&mut turn.staging, place);
        } else {
            match self.read_placed(fd, turn, place) {
                Ok(n) => {
                    self.dry = n == 0;
                    turn.placed += n;
                }
                Err(broken) => turn.broken = Some(broken),
            }
        }
    }

    /// Keeps the bytes that a visit has left over.
    #[inline]
    pub(super) fn keep(&mut self, kept: Staging) {
        self.kept = kept;
    }

    /// Reads and drops arriving bytes. `Ok(())`: nothing more for now.
    pub(super) fn discard(&mut self, fd: &Socket, pool: &mut Pool) -> Result<(), LinkFailure> {
        let mut staging = pool.take(&mut self.kept);
        staging.consume(staging.len());
        let mut result = Ok(());
        for _ in 0..TURN / STAGING {
            match sys::recv(fd, staging.room(STAGING, STAGING)) {
                Ok(0) => result = Err(LinkFailure::Finished { midway: false }),
                Ok(_) => continue,
                Err(error) if sys::would_block(&error) => {}
                Err(error) => result = Err(LinkFailure::Failed(error)),
            }
            break;
        }
        self.kept = pool.give_back(staging, false);
        result
    }

    #[inline]
    fn run(
        &mut self,
        fd: &Socket,
        turn: &mut Turn,
        stranger: bool,
        known: bool,
    ) -> Result<Step, LinkFailure> {
        loop {
            // Staged bytes come first.
            let missing = match self.deliver(turn, stranger, known)? {
                Delivered::Step(step) => return Ok(step),
                Delivered::All(missing) => Some(missing),
                Delivered::Quota => None,
            };
            if turn.reading.shows() {
                let whole = match missing {
                    Some(Missing::Staged { whole, .. }) => Some(whole),
                    _ => None,
                };
                let rest =
                    turn.reading
                        .skip_delivered(fd, &mut turn.staging, whole, &mut self.awaited);
                let rest = rest.map_err(LinkFailure::Failed)?;
                if rest != Rest::Nothing {
                    turn.served.more = rest == Rest::Ready;
                    return Ok(Step::End);
                }
            }
            let Some(missing) = missing else {
                turn.served.more = true;
                return Ok(Step::End);
            };
            if turn.drained {
                return Ok(Step::End);
            }
            if turn.served.packets >= turn.quota || turn.placed >= TURN {
                turn.served.more = true;
                return Ok(Step::End);
            }
            match missing {
                Missing::Staged { whole, at_boundary } => {
                    self.read_staged(fd, turn, whole, at_boundary, stranger)?;
                }
                Missing::Placed { left } => {
                    if self.dry && !sys::readable(fd) {
                        return Ok(Step::End);
                    }
                    self.dry = false;
                    if turn.asks() {
                        return Ok(Step::Part { begin: false });
                    }
                    self.state = State::Dropping { left };
                }
            }
        }
    }

    /// Handles staged bytes.
    #[inline]
    fn deliver(
        &mut self,
        turn: &mut Turn,
        stranger: bool,
        known: bool,
    ) -> Result<Delivered, LinkFailure> {
        loop {
            match &mut self.state {
                State::Boundary => {
                    if turn.lend_packet(stranger) {
                        return Ok(Delivered::Step(Step::Packet));
                    }
                    let Some(header) = frame::header(turn.staging.staged()) else {
                        return Ok(Delivered::All(Missing::Staged {
                            whole: HEADER_LEN,
                            at_boundary: true,
                        }));
                    };
                    let len = body_len(&header);
                    let whole = HEADER_LEN + len;
                    if stranger && len > STRANGER_MAX {
                        return Err(LinkFailure::Violated(Violation::BodyLength(len)));
                    }
                    if len <= PACKET_MAX && whole <= turn.staging.len() {
                        return Ok(Delivered::Quota);
                    }
                    if len > frame::BODY_MAX {
                        return Err(LinkFailure::Violated(Violation::BodyLength(len)));
                    }
                    if len > PLACED_MIN && turn.asks() {
                        return Ok(Delivered::Step(Step::Part { begin: true }));
                    }
                    if len <= PACKET_MAX {
                        return Ok(Delivered::All(Missing::Staged {
                            whole,
                            at_boundary: false,
                        }));
                    }
                    if !known {
                        // A stranger's first packet matches no posted receive.
                        return Err(LinkFailure::Violated(Violation::BodyLength(len)));
                    }
                    turn.staging.consume(HEADER_LEN);
                    self.state = State::Dropping { left: len as u32 };
                }
                State::Placing { header, got } => {
                    let left = body_len(header) as u32 - *got;
                    if left == 0 {
                        turn.served.packets += 1;
                        self.state = State::Placed { header: *header };
                        return Ok(Delivered::Step(Step::Placed));
                    }
                    if turn.staging.len() == 0 {
                        return Ok(Delivered::All(Missing::Placed { left }));
                    }
                    if turn.asks() {
                        return Ok(Delivered::Step(Step::Part { begin: false }));
                    }
                    self.state = State::Dropping { left };
                }
                State::Placed { .. } => self.state = State::Boundary,
                State::Dropping { left } => {
                    let n = turn.staging.len().min(*left as usize);
                    turn.staging.consume(n);
                    *left -= n as u32;
                    if *left > 0 {
                        return Ok(Delivered::All(Missing::Staged {
                            whole: 1,
                            at_boundary: false,
                        }));
                    }
                    self.state = State::Boundary;
                }
                State::Greeting => match frame::judge(turn.staging.staged()) {
                    Greeting::Known => {
                        turn.staging.consume(frame::PREAMBLE_LEN);
                        self.state = State::Boundary;
                        return Ok(Delivered::Step(Step::Greeted));
                    }
                    Greeting::Incomplete => {
                        return Ok(Delivered::All(Missing::Staged {
                            whole: frame::PREAMBLE_LEN,
                            at_boundary: true,
                        }));
                    }
                    Greeting::OtherVersion(version) => {
                        return Err(LinkFailure::Violated(Violation::OtherVersion(version)));
                    }
                    Greeting::Nonsense => {
                        let shown = turn.staging.len().min(16);
                        let bytes = turn.staging.staged()[..shown].into();
                        return Err(LinkFailure::Violated(Violation::Nonsense(bytes)));
                    }
                },
            }
        }
    }

    /// Reads into staging, until at least `whole` bytes are there.
    #[inline]
    fn read_staged(
        &mut self,
        fd: &Socket,
        turn: &mut Turn,
        whole: usize,
        at_boundary: bool,
        stranger: bool,
    ) -> Result<(), LinkFailure> {
        let sparing = turn.reading.sparing;
        let want = if stranger {
            READ_MIN
        } else if at_boundary && !sparing {
            self.want as usize
        } else {
            STAGING
        };
        let staged = turn.staging.len();
        let want = want.max(whole.saturating_sub(staged));
        // A peeked packet has to fit whole, whatever its length.
        let fits = if sparing { STAGING } else { whole };
        let room = turn.staging.room(fits, want);
        let asked = room.len();
        let midway = staged > 0 || !matches!(self.state, State::Boundary);
        let read = turn.reading.recv(fd, room);
        let n = turn.account(read, asked, midway)?;
        turn.staging.filled(n);
        if at_boundary && n == asked && !stranger {
            self.want = (self.want * 2).min(STAGING as u32);
        }
        Ok(())
    }

    /// Copies staged bytes of a body to its place.
    #[inline]
    fn place_staged<M: Memory>(&mut self, staging: &mut Staging, mut place: Place<'_, M>) {
        let State::Placing { header, got } = &mut self.state else {
            return;
        };
        let have = *got as usize;
        let n = staging.len().min(body_len(header) - have);
        let bytes = &staging.staged()[..n];
        place.memory.fill(place.offset + have, n, bytes, 0);
        staging.consume(n);
        *got += n as u32;
    }

    /// Reads from the socket into application memory, and some further bytes into the empty staging buffer. Returns the
    /// number of bytes read.
    #[inline]
    fn read_placed<M: Memory>(
        &mut self,
        fd: &Socket,
        turn: &mut Turn,
        mut place: Place<'_, M>,
    ) -> Result<usize, LinkFailure> {
        let State::Placing { header, got } = &mut self.state else {
            return Ok(0);
        };
        self.want = READ_MIN as u32;
        let ahead = if turn.reading.sparing { 0 } else { READ_MIN };
        let have = *got as usize;
        let left = body_len(header) - have;
        let at = place.offset + have;
        let rest = place.memory.len() - at;
        let cells = place.memory.cells(at, left);
        // Pieces of the whole rest of the memory, beyond this body, too.
        let count = cells.size_hint().1.unwrap_or(usize::MAX);
        let mut places = sys::ReadVector::of(count);
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
            // Small pieces, or memory that lends one at a time, are filled from staging.
            let room = turn.staging.room(STAGING, left.min(STAGING) + ahead);
            let asked = room.len();
            let read = sys::recv(fd, room);
            let n = turn.account(read, asked, true)?;
            turn.staging.filled(n);
            return Ok(n);
        }
        if of_body == left {
            let ahead = Cell::from_mut(turn.staging.room(ahead, ahead));
            places.push(ahead.as_slice_of_cells());
        }
        let asked = places.len();
        let read = sys::recv_into(fd, &places);
        let n = turn.account(read, asked, true)?;
        let into = n.min(of_body);
        *got += into as u32;
        turn.staging.filled(n - into);
        Ok(n)
    }
}

/// Result of handling staged bytes.
enum Delivered {
    /// The visit is suspended, or ends.
    Step(Step),
    /// All staged bytes have been handled.
    All(Missing),
    /// The quota was used up first.
    Quota,
}

/// Bytes needed before a link can continue.
enum Missing {
    /// Bytes in staging, up to `whole`.
    Staged { whole: usize, at_boundary: bool },
    /// Bytes of a body that goes into application memory, of which `left` are still to arrive.
    Placed { left: u32 },
}

/// Returns whether a body of `len` bytes fits into its place.
fn fits<M: Memory>(place: &Place<'_, M>, len: usize) -> bool {
    let room = place.memory.len().saturating_sub(place.offset);
    debug_assert!(
        len <= room,
        "a body of {len} bytes does not fit into {room}"
    );
    len <= room
}

#[cfg(test)]
mod tests {
    use super::super::send::{SCRATCH, Tx};
    use super::*;
    use mx_proto::port::{Body, Destination};
    use mx_sim::{Pieces, header_of};

    /// Returns the number of calls to send and to receive a list; checks its contents.
    fn calls(sizes: &[usize]) -> (usize, usize) {
        let (near, far) = Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        for end in [&near, &far] {
            end.set_nonblocking(true).unwrap();
            end.set_send_buffer_size(4 << 20).unwrap();
        }
        let len = sizes.iter().sum();
        let bytes: Vec<u8> = (0..len).map(|at| (at ^ (at >> 8)) as u8).collect();
        let memory = Pieces::cut(&bytes, sizes);
        let mut posted = Pieces::zeros(sizes);
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
        let mut pool = Pool::new(1 << 20);
        sys::CALLS.set(0);
        let sent = Tx::default().packet(&near, &header, &body, &mut [0; SCRATCH]);
        assert_eq!(sent.unwrap(), mx_proto::port::Sent::Whole, "{sizes:?}");
        let out = sys::CALLS.replace(0);
        let mut complete = false;
        while !complete {
            let mut slot = None;
            rx.begin(&far, &mut pool, &mut slot, LinkId::new(0, 0), false, 64)
                .unwrap();
            let turn = slot.as_mut().unwrap();
            loop {
                let step = rx.step(&far, turn, false, true).unwrap();
                let Some(event) = rx.event(turn, step) else {
                    break;
                };
                complete = match event {
                    PortEvent::Part { .. } => {
                        let place = Place {
                            memory: Destination::Memory(&mut posted),
                            offset: 0,
                        };
                        rx.read(&far, turn, place);
                        false
                    }
                    PortEvent::Packet { .. } => posted.fill(0, len, turn.body(), 0) == len,
                    PortEvent::Placed { .. } => true,
                    other => panic!("{other:?}"),
                };
            }
            rx.keep(turn.end(&mut pool, true));
        }
        assert!(posted.bytes() == bytes, "{sizes:?}");
        (out, sys::CALLS.get())
    }

    #[test]
    fn a_list_takes_as_many_calls_as_its_vector() {
        for (sizes, out, into) in [
            (vec![1 << 18], 1, 2),
            (vec![1 << 12; 64], 1, 2),
            (vec![1 << 12; 256], 1, 2),
            // More pieces than a vector may have.
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
