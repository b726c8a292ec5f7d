//! Receiving from the sockets of links that are past the handshake: packets, while there are no
//! rings, and control messages.
//!
//! ```text
//!   the kernel reports a socket --> loud --the next poll--> hear: doorbells dropped, packets queued,
//!                                                           control messages handled, in order
//!   no room in the socket: blocked, with one control message unsent until the kernel reports room
//! ```
//!
//! While a link has rings only wake-ups come, and a control message when it is suspended or ends;
//! so they are read many at a time.
//!
//! A control message out of order fails only its own link.
//!
//! Owns: the order of messages from one socket.
//! Not here: handshakes of new links.

use super::LocalPort;
use super::control::DOORBELL;
use super::handshake::ControlMessage;
use super::layout::BODY_MAX;
use super::link::State;
use super::ring::visit;
use super::socket::{BATCH, Received, is_exhaustion, is_transient};
use mx_port_base::close_on_fork::CloseOnForkFd;
use mx_port_base::epoll::WRITABLE;
use mx_port_base::limits;
use mx_proto::port::{Body, HEADER_LEN, HeaderBytes, SendError, Sent};
use mx_proto::{LinkId, Memory as Bytes};
use std::io::{self, Write};

/// The peer said what is not in place.
pub(super) struct Violation;

/// The longest packet, and one byte to tell a longer one by.
const LONGEST: usize = HEADER_LEN + BODY_MAX + 1;

impl LocalPort {
    /// A send on a link that has no rings.
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
            Some(entry) if entry.midway && entry.socket.is_some() && !entry.doomed => {
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
        let Some(socket) = entry.socket.as_ref().filter(|_| !entry.doomed) else {
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
                log::warn!("{:?}: {id:?} takes no packet: {error}", self.name);
                self.fail(id);
                Err(SendError::Down)
            }
        }
    }

    /// Sends a control message to the peer, as soon as there is room.
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

    /// The kernel is to tell when there is room in the socket, or no more.
    pub(super) fn listen_for_room(&self, id: LinkId, wanted: bool) {
        let room = if wanted { WRITABLE } else { 0 };
        if let Some(socket) = self.links.get(id).and_then(|entry| entry.socket.as_ref()) {
            let _ = self
                .data
                .modify(&socket.raw(), id.to_word(), DOORBELL | room);
        }
    }

    /// There is something in the link's socket, or room.
    pub(super) fn note_loud(&mut self, id: LinkId) {
        if let Some(entry) = self.links.get_mut(id)
            && !std::mem::replace(&mut entry.loud, true)
        {
            self.loud.push(id);
        }
    }

    /// Reads the sockets of links that have something to say. Returns whether that was more than wake-ups.
    #[cold]
    #[inline(never)]
    pub(super) fn hear_loud(&mut self) -> bool {
        // While these are read others may become loud. Both lists keep their memory: a wake-up allocates nothing.
        let empty = std::mem::take(&mut self.heard);
        let mut loud = std::mem::replace(&mut self.loud, empty);
        let mut any = false;
        for id in loud.drain(..) {
            if let Some(entry) = self.links.get_mut(id) {
                entry.loud = false;
                any |= self.hear(id);
            }
        }
        self.heard = loud;
        any
    }

    /// Takes in what the peer of a link that is past the handshake has said.
    fn hear(&mut self, id: LinkId) -> bool {
        if let Some(entry) = self.links.get_mut(id) {
            (entry.unread, entry.told) = (0, 0);
            if let Some(control) = entry.unsaid.take() {
                self.say(id, control);
            }
        }
        self.scratch.resize(LONGEST, 0);
        let mut message = std::mem::take(&mut self.scratch);
        // Bounded, because a peer may write as fast as this side reads.
        let (mut left, mut any) = (HEARD_AT_ONCE, false);
        while left != 0 {
            left -= 1;
            let entry = self.links.get(id).filter(|entry| !entry.doomed);
            let heard = match entry {
                None => Heard::Nothing,
                Some(entry) if entry.hears_control_only() => self.hear_control(id),
                Some(_) => self.hear_one(id, &mut message),
            };
            any |= heard == Heard::Something;
            if heard == Heard::Nothing {
                break;
            }
        }
        self.scratch = message;
        if left == 0
            && let Some(entry) = self.links.get(id)
        {
            // Re-arming reports what is left as new, which wakes sleepers.
            self.listen_for_room(id, entry.blocked || entry.unsaid.is_some());
        }
        any | self.offer_room(id)
    }

    /// Takes in what has come where only wake-ups and control messages do. (Not inlined: its batch is not on the
    /// stack when a packet is handled.)
    #[inline(never)]
    fn hear_control(&mut self, id: LinkId) -> Heard {
        let Some(socket) = self.links.get(id).and_then(|entry| entry.socket.as_ref()) else {
            return Heard::Nothing;
        };
        let messages = match socket.receive_short() {
            Ok(messages) => messages,
            Err(error) => return self.hear_end(id, &error),
        };
        let mut last = match messages.len() {
            BATCH => Heard::Doorbells,
            _ => Heard::Nothing,
        };
        for message in &messages {
            let heard = match (message.bytes(), message.is_whole) {
                ([], true) => {
                    self.hang_up(id);
                    return Heard::Nothing;
                }
                ([_], true) => continue,
                (control, true) => self.heed(id, control, Given::Nothing),
                (_, false) => Err(Violation),
            };
            if heard.is_err() {
                self.fail(id);
                return Heard::Nothing;
            }
            last = Heard::Something;
        }
        last
    }

    /// Nothing can be read any more, or not now.
    fn hear_end(&mut self, id: LinkId, error: &io::Error) -> Heard {
        match error.kind() {
            // The peer closed without reading everything; its earlier messages can still be read.
            io::ErrorKind::ConnectionReset => return Heard::Doorbells,
            io::ErrorKind::InvalidData => self.fail(id),
            _ if is_transient(error) => {}
            _ => self.hang_up(id),
        }
        Heard::Nothing
    }

    /// Takes in one message, which may be a packet.
    fn hear_one(&mut self, id: LinkId, message: &mut [u8]) -> Heard {
        let Some(entry) = self.links.get_mut(id) else {
            return Heard::Nothing;
        };
        let Some(socket) = &entry.socket else {
            return Heard::Nothing;
        };
        let heard = match socket.receive(message) {
            Ok(Received::Nothing) => return Heard::Nothing,
            Ok(Received::HangUp) => {
                self.hang_up(id);
                return Heard::Nothing;
            }
            Ok(Received::Message(1, None)) => return Heard::Doorbells,
            Ok(Received::Message(len, None)) if len >= HEADER_LEN => {
                let packet = message.get(..len).unwrap_or(&[]);
                match (packet.split_first_chunk(), &entry.state) {
                    (Some((header, body)), State::Plain | State::Offered(_))
                        if body.len() <= BODY_MAX =>
                    {
                        self.keep(id, *header, body.to_vec());
                        self.offer(id);
                        Ok(())
                    }
                    _ => Err(Violation),
                }
            }
            Ok(Received::Message(len, fd)) => {
                let given = fd.map_or(Given::Nothing, Given::Memory);
                self.heed(id, message.get(..len).unwrap_or(&[]), given)
            }
            Ok(Received::CutOff(len)) => {
                let limit = limits::descriptor_limit();
                self.warn_of_starving(&format_args!("a peer's memory cannot be taken; {limit}"));
                self.heed(id, message.get(..len).unwrap_or(&[]), Given::CutOff)
            }
            Err(error) => return self.hear_end(id, &error),
        };
        if heard.is_err() {
            self.fail(id);
            return Heard::Nothing;
        }
        Heard::Something
    }

    /// Handles a control message.
    fn heed(&mut self, id: LinkId, message: &[u8], given: Given) -> Result<(), Violation> {
        let control = ControlMessage::decode(message).map_err(|bad| {
            log::debug!("{:?}: {id:?} says: {bad}", self.name);
            Violation
        })?;
        let entry = self.links.get_mut(id).ok_or(Violation)?;
        let free = entry.unsaid.is_none();
        match (control, &entry.state, given) {
            (ControlMessage::Bye, _, Given::Nothing) => entry.bye = true,
            (ControlMessage::Offer(geometry), State::Plain, Given::Memory(fd))
                if entry.side == 1 && free =>
            {
                self.take_memory(id, geometry, Some(&fd))?;
            }
            (ControlMessage::Offer(geometry), State::Plain, Given::CutOff)
                if entry.side == 1 && free =>
            {
                self.take_memory(id, geometry, None)?;
            }
            (ControlMessage::Taken, State::Offered(_), Given::Nothing) => self.put_up(id, None),
            (ControlMessage::Later(less), State::Offered(_), Given::Nothing) => {
                self.take_back(id, less)
            }
            (ControlMessage::Suspend(sent), State::Up(_), Given::Nothing) if free => {
                self.take_suspend(id, sent)?;
            }
            _ => return Err(Violation),
        }
        Ok(())
    }

    /// Tells the endpoint when a link that was blocked may take packets over its socket, or did not while
    /// it had none of its rings.
    fn offer_room(&mut self, id: LinkId) -> bool {
        if let Some(entry) = self.links.get_mut(id)
            && entry.blocked
            && matches!(entry.state, State::Plain)
            && entry.unsaid.is_none()
            && entry.socket.is_some()
            && !entry.doomed
        {
            return self.unblock(id);
        }
        false
    }
}

/// The result of reading.
#[derive(PartialEq, Eq)]
enum Heard {
    Nothing,
    /// And perhaps more.
    Doorbells,
    /// And perhaps more.
    Something,
}

/// The descriptor that came with a message.
enum Given {
    Nothing,
    Memory(CloseOnForkFd),
    /// Memory, but there was no descriptor left for it.
    CutOff,
}

/// The peer is.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected
    )
}

/// Messages taken in from one link in one go.
const HEARD_AT_ONCE: usize = 16;
