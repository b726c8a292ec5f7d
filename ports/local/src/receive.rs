//! Receiving from the sockets of links that are past the handshake: packets, while there are no
//! rings, and control messages.
//!
//! ```text
//!   the kernel reports a socket --> queue --the next poll--> hear, in order: doorbells dropped, packets lent one at
//!                                                            a time, control messages handled
//!   Suspend from the peer: packets left in its ring are read before later ones in the socket
//!   no room in the socket: blocked, with one control message unsent until the kernel reports room
//! ```
//!
//! A link with rings receives only wake-ups, and a control message when it is suspended or ends, so many messages are
//! read in one call.
//!
//! A control message out of order fails only its own link.
//!
//! Owns: the order of messages from one socket.
//! Out of scope: handshakes of new links.

use super::LocalPort;
use super::control::DOORBELL;
use super::handshake::{BadMessage, ControlMessage};
use super::layout::BODY_MAX;
use super::link::{Entry, Link, State};
use super::queue::Reason;
use super::ring::visit;
use super::round::Current;
use super::socket::{BATCH, Received, is_exhaustion, is_transient};
use mx_port_base::close_on_fork::CloseOnForkFd;
use mx_port_base::epoll::WRITABLE;
use mx_port_base::limits;
use mx_proto::port::{Body, HEADER_LEN, HeaderBytes, SendError, Sent};
use mx_proto::round::PortEvent;
use mx_proto::{LinkId, Memory as Bytes};
use std::io::{self, Write};

/// Protocol violation by the peer.
pub(super) struct Violation;

/// Bytes of the longest packet, and one more to detect a longer one.
const LONGEST: usize = HEADER_LEN + BODY_MAX + 1;

impl LocalPort {
    /// Sends a packet on a link without rings.
    #[cold]
    #[inline(never)]
    pub(super) fn send_plain<M: Bytes>(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        body: &Body<'_, M>,
    ) -> Result<Sent, SendError> {
        if body.len() > BODY_MAX {
            return self.send_long(id, header, body);
        }
        match self.links.get_mut(id) {
            Some(entry) if entry.midway && entry.socket.is_some() => {
                entry.blocked = true;
                Err(SendError::WouldBlock)
            }
            _ => self
                .send_over_socket(id, header, body)
                .map(|()| Sent::Whole),
        }
    }

    /// Sends a packet, or a piece of one, over a link's socket.
    pub(super) fn send_over_socket<M: Bytes>(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        body: &Body<'_, M>,
    ) -> Result<(), SendError> {
        let Some(entry) = self.links.get_mut(id) else {
            return Err(SendError::Down);
        };
        let Some(socket) = &entry.socket else {
            return Err(SendError::Down);
        };
        if !matches!(entry.state, State::Plain) || entry.unsaid.is_some() {
            entry.blocked = true;
            return Err(SendError::WouldBlock);
        }
        self.scratch.resize(LONGEST, 0);
        let end = HEADER_LEN + body.len();
        let Some(packet) = self.scratch.get_mut(..end) else {
            return Err(SendError::Down);
        };
        packet[..HEADER_LEN].copy_from_slice(header);
        let mut into = &mut packet[HEADER_LEN..];
        visit(body, |piece| drop(into.write(piece)));
        match socket.send(packet, None) {
            Ok(()) => {
                self.offer(id);
                Ok(())
            }
            Err(error) if is_transient(&error) || is_exhaustion(&error) => {
                entry.blocked = true;
                self.listen_for_room(id, true);
                Err(SendError::WouldBlock)
            }
            // Packets that the peer sent before it closed are still to be read.
            Err(error) if is_gone(&error) => Err(SendError::Down),
            Err(error) => {
                log::warn!("{:?}: cannot send to {id:?}: {error}", self.name);
                self.fail(id);
                Err(SendError::Down)
            }
        }
    }

    /// Sends a control message, or keeps it until the socket has room.
    pub(super) fn say(&mut self, id: LinkId, control: ControlMessage) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if let Some(socket) = &entry.socket
            && let Err(error) = socket.send(&control.encode(), None)
            && !is_gone(&error)
        {
            entry.unsaid = Some(control);
            self.listen_for_room(id, true);
        }
    }

    /// Makes the kernel report room in the socket, or not.
    pub(super) fn listen_for_room(&self, id: LinkId, wanted: bool) {
        let room = if wanted { WRITABLE } else { 0 };
        if let Some(socket) = self.links.get(id).and_then(|entry| entry.socket.as_ref()) {
            let _ = self
                .data
                .modify(&socket.raw(), id.to_word(), DOORBELL | room);
        }
    }

    /// Reads the socket of the link at the front of the queue, up to a packet. `None`: no packet is left for now.
    pub(super) fn hear(&mut self, id: LinkId) -> Option<PortEvent> {
        let entry = self.links.get_mut(id)?;
        if entry.heard == 0 {
            (entry.unread, entry.told) = (0, 0);
            if let Some(control) = entry.unsaid.take() {
                self.say(id, control);
            }
        }
        loop {
            match self.hear_some(id) {
                Ok(ReadOutcome::Event(event)) => return Some(event),
                Ok(ReadOutcome::More) => {}
                Ok(ReadOutcome::Nothing) => break,
                Err(Violation) => {
                    self.fail(id);
                    break;
                }
            }
        }
        let entry = self.links.get_mut(id)?;
        entry.heard = 0;
        // A blocked link may now send over its socket, which it could not while it gave up its rings.
        if entry.blocked
            && matches!(entry.state, State::Plain)
            && entry.unsaid.is_none()
            && entry.socket.is_some()
        {
            self.note(id, Reason::Room);
        }
        self.settle(id, Reason::Socket);
        None
    }

    /// Reads the next messages from the peer of a link past the handshake.
    fn hear_some(&mut self, id: LinkId) -> Result<ReadOutcome, Violation> {
        let entry = self.links.get_mut(id);
        let Some(entry) = entry.filter(|entry| entry.socket.is_some()) else {
            return Ok(ReadOutcome::Nothing);
        };
        if let State::Up(Link {
            suspended: Some(sent),
            ..
        }) = entry.state
        {
            return self.take_left(id, sent);
        }
        // Bounded, because a peer may write as fast as this side reads.
        if entry.heard == HEARD_AT_ONCE {
            // Re-arming reports unread messages as new, which wakes sleepers.
            let wanted = entry.blocked || entry.unsaid.is_some();
            self.listen_for_room(id, wanted);
            return Ok(ReadOutcome::Nothing);
        }
        entry.heard += 1;
        if entry.hears_control_only() {
            self.hear_control(id)
        } else {
            self.hear_one(id)
        }
    }

    /// Reads messages where only wake-ups and control messages may come. (Not inlined, so that its batch is not on the
    /// stack while a packet is handled.)
    #[inline(never)]
    fn hear_control(&mut self, id: LinkId) -> Result<ReadOutcome, Violation> {
        let Some(socket) = self.links.get(id).and_then(|entry| entry.socket.as_ref()) else {
            return Ok(ReadOutcome::Nothing);
        };
        let messages = match socket.receive_short() {
            Ok(messages) => messages,
            Err(error) => return self.hear_end(id, &error),
        };
        let mut last = match messages.len() {
            BATCH => ReadOutcome::More,
            _ => ReadOutcome::Nothing,
        };
        for message in &messages {
            match (message.bytes(), message.is_whole) {
                ([], true) => {
                    self.hang_up(id);
                    return Ok(ReadOutcome::Nothing);
                }
                ([_], true) => continue,
                (control, true) => self.handle_control(
                    id,
                    ControlMessage::decode(control),
                    AttachedMemory::Nothing,
                )?,
                (_, false) => return Err(Violation),
            }
            last = ReadOutcome::More;
        }
        Ok(last)
    }

    /// Handles an error of a receive: nothing can be read now, or any more.
    fn hear_end(&mut self, id: LinkId, error: &io::Error) -> Result<ReadOutcome, Violation> {
        match error.kind() {
            // The peer closed without reading everything; its earlier messages can still be read.
            io::ErrorKind::ConnectionReset => return Ok(ReadOutcome::More),
            io::ErrorKind::InvalidData => return Err(Violation),
            _ if is_transient(error) => {}
            _ => self.hang_up(id),
        }
        Ok(ReadOutcome::Nothing)
    }

    /// Reads one message, which may be a packet.
    fn hear_one(&mut self, id: LinkId) -> Result<ReadOutcome, Violation> {
        let Some(Entry {
            socket: Some(socket),
            state,
            ..
        }) = self.links.get(id)
        else {
            return Ok(ReadOutcome::Nothing);
        };
        self.round.message.resize(LONGEST, 0);
        let (len, given) = match socket.receive(&mut self.round.message) {
            Ok(Received::Nothing) => return Ok(ReadOutcome::Nothing),
            Ok(Received::HangUp) => {
                self.hang_up(id);
                return Ok(ReadOutcome::Nothing);
            }
            Ok(Received::Message(1, None)) => return Ok(ReadOutcome::More),
            Ok(Received::Message(len, None)) if len >= HEADER_LEN => {
                return match (self.round.message.first_chunk(), state) {
                    (Some(header), State::Plain | State::Offered(_))
                        if len - HEADER_LEN <= BODY_MAX =>
                    {
                        let (header, current) = (*header, Current::Owned(id, len as u32));
                        self.offer(id);
                        self.lend(id, current, &header)
                    }
                    _ => Err(Violation),
                };
            }
            Ok(Received::Message(len, fd)) => (
                len,
                fd.map_or(AttachedMemory::Nothing, AttachedMemory::Memory),
            ),
            Ok(Received::CutOff(len)) => {
                let limit = limits::descriptor_limit();
                self.warn_of_starving(&format_args!("a peer's memory cannot be taken; {limit}"));
                (len, AttachedMemory::CutOff)
            }
            Err(error) => return self.hear_end(id, &error),
        };
        let control = ControlMessage::decode(self.round.message.get(..len).unwrap_or(&[]));
        self.handle_control(id, control, given)?;
        Ok(ReadOutcome::More)
    }

    fn handle_control(
        &mut self,
        id: LinkId,
        control: Result<ControlMessage, BadMessage>,
        given: AttachedMemory,
    ) -> Result<(), Violation> {
        self.round.any = true;
        let control = control.map_err(|bad| {
            log::debug!("{:?}: {id:?} sent a bad message: {bad}", self.name);
            Violation
        })?;
        let entry = self.links.get_mut(id).ok_or(Violation)?;
        let free = entry.unsaid.is_none();
        match (control, &mut entry.state, given) {
            (ControlMessage::Bye, _, AttachedMemory::Nothing) => entry.bye = true,
            (ControlMessage::Offer(geometry), State::Plain, AttachedMemory::Memory(fd))
                if entry.side == 1 && free =>
            {
                self.take_memory(id, geometry, Some(&fd))?;
            }
            (ControlMessage::Offer(geometry), State::Plain, AttachedMemory::CutOff)
                if entry.side == 1 && free =>
            {
                self.take_memory(id, geometry, None)?;
            }
            (ControlMessage::Taken, State::Offered(_), AttachedMemory::Nothing) => {
                self.put_up(id, None)
            }
            (ControlMessage::Later(less), State::Offered(_), AttachedMemory::Nothing) => {
                self.take_back(id, less)
            }
            (ControlMessage::Suspend(sent), State::Up(link), AttachedMemory::Nothing)
                if free && link.suspended.is_none() =>
            {
                link.suspended = Some(sent);
            }
            _ => return Err(Violation),
        }
        Ok(())
    }
}

/// Result of reading a socket.
pub(super) enum ReadOutcome {
    Nothing,
    /// There may be more messages.
    More,
    /// A packet, or a piece of one, is lent.
    Event(PortEvent),
}

/// Descriptor that came with a message.
enum AttachedMemory {
    Nothing,
    Memory(CloseOnForkFd),
    /// Memory that this process had no descriptor left to receive.
    CutOff,
}

/// Returns true if the error means that the peer has closed.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected
    )
}

/// Maximum number of reads from one link in a row.
const HEARD_AT_ONCE: u8 = 16;
