//! Opening and closing of links: the part of a poll that makes system calls.
//!
//! ```text
//!   listener --accept--> Accepted --Hello--> Welcome: Plain, or Denied: another user's endpoint
//!   connect: socket, Hello, Offer + memfd --> Greeting --Welcome--> Offered, on_up
//!   hang-up: drain the ring, on_down        timers: silent strangers, full backlogs, idle links
//! ```
//!
//! No packet passes through this code.
//!
//! Owns: the state transitions of a link.
//! Out of scope: rings.

use super::handshake::{BadMessage, ControlMessage, MESSAGE_LEN};
use super::link::{Dialing, Entry, State};
use super::queue::Reason;
use super::socket::{Name, Received, Socket, is_exhaustion, is_transient};
use super::{LocalPort, barrier};
use mx_port_base::epoll::{self, ENDED, ONCE, READABLE};
use mx_port_base::limits;
use mx_port_base::origin::Origin;
use mx_proto::origin::Source;
use mx_proto::port::{ConnectError, LinkDown};
use mx_proto::{Instant, LinkId, Route};
use std::io;
use std::time::Duration;

/// Token of the listener in the control set, never a link's.
pub(super) const LISTENER: u64 = u64::MAX;

/// Maximum number of descriptors handled in one call.
const BATCH: usize = 32;

/// Events of a socket whose handshake is not over: a message, or the end.
pub(super) const HEARD: u32 = READABLE | ENDED;

/// Events of a link's socket: new messages.
pub(super) const DOORBELL: u32 = READABLE | ONCE;

impl LocalPort {
    /// Handles the control descriptors that are ready, and expired timers.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_control(&mut self, now: Instant) -> bool {
        self.strangers.next_round();
        let mut events = epoll::room::<BATCH>();
        let ready = self.control.ready(&mut events);
        // A full batch: there may be more.
        self.control_wanted = ready.len() == BATCH;
        let mut any = !ready.is_empty();
        for event in ready {
            match event.u64 {
                LISTENER => self.accept_some(now),
                token => self.handle_socket(LinkId::from_word(token)),
            }
        }
        if !self.dialing.is_empty() || self.accept_again.is_some() || !self.strangers.is_empty() {
            any |= self.handle_timers(now);
        }
        self.tend(now);
        any
    }

    /// Handles an event that a sleeper got from the data descriptor: the link's peer has rung the doorbell or sent a
    /// message. Makes the link active, so that the next round looks at it. Returns false if the token is not a link's.
    pub fn note_doorbell(&mut self, token: u64) -> bool {
        let id = LinkId::from_word(token);
        let Some(entry) = self.links.get_mut(id) else {
            return false;
        };
        // A wake-up may stay unread.
        if !entry.is_doorbell() {
            self.note(id, Reason::Socket);
        }
        self.keep_active(id);
        true
    }

    /// Drains pending wake-ups and activates their links. Returns true if there were any, so that the caller looks at
    /// the rings.
    pub(super) fn take_doorbells(&mut self) -> bool {
        let mut any = false;
        // Bounded, because peers may ring without end.
        for _ in 0..=self.links.len() / BATCH {
            let mut events = epoll::room::<BATCH>();
            let ready = self.data.ready(&mut events);
            for event in ready {
                any |= self.note_doorbell(event.u64);
            }
            if ready.len() < BATCH {
                break;
            }
        }
        if any && self.armed {
            // Another thread sleeps meanwhile: links that have rung must ring again for it. The caller looks at the
            // rings after this barrier.
            self.set_active_asleep(true);
            barrier::heavy();
        }
        any
    }

    /// Starts a link like [`LocalPort::connect_to`], to a target that may also be reached over the route `instead`: if
    /// the link does not come up, for any reason, it goes down with [`LinkDown::Elsewhere`]. `None`: it goes down with
    /// the reason itself.
    pub fn connect_or(
        &mut self,
        board: u32,
        endpoint: u32,
        instead: Option<Route>,
        now: Instant,
    ) -> Result<LinkId, ConnectError> {
        if self.is_full() {
            return Err(ConnectError::NoResources);
        }
        let socket = Socket::new().map_err(|_| ConnectError::NoResources)?;
        let state = match socket.connect(Name {
            board,
            endpoint,
            ..self.name
        }) {
            Ok(()) => {
                self.greet(&socket)
                    .map_err(|error| self.connect_error(&error))?;
                State::Greeting(None)
            }
            Err(error) if is_transient(&error) => {
                let pause = FIRST_PAUSE;
                let next_try = now.after(pause);
                State::Dialing(Dialing {
                    board,
                    endpoint,
                    next_try,
                    pause,
                })
            }
            Err(error) => return Err(self.connect_error(&error)),
        };
        let dialing = matches!(state, State::Dialing(_));
        let entry = Entry {
            instead,
            user: socket.user(),
            endpoint: Some(endpoint),
            ..Entry::new(socket, state, true)
        };
        let id = self.links.insert(entry);
        self.places.take(Source::TRUSTED, 1);
        if dialing {
            self.dialing.push(id);
        } else if self.watch_handshake(id).is_err() {
            self.remove(id);
            return Err(ConnectError::NoResources);
        } else {
            self.bring_memory(id);
        }
        Ok(id)
    }

    /// Sends the first control message of a connection, in the name of our listener's user. A process that has given up
    /// that user renews its listener as its current user.
    fn greet(&self, socket: &Socket) -> io::Result<()> {
        let hello = ControlMessage::Hello {
            asymmetric: barrier::is_asymmetric(),
            endpoint: self.name.endpoint,
        };
        let hello = hello.encode();
        for _ in 0..2 {
            match socket.send_as(self.listener.user(), &hello) {
                Err(error) if is_another_user(&error) => self.listener.listen_as_now()?,
                other => return other,
            }
        }
        // The user has no number in this user namespace, but the kernel knows it anyway.
        socket.send(&hello, None)
    }

    fn connect_error(&mut self, error: &io::Error) -> ConnectError {
        match error.raw_os_error() {
            _ if is_exhaustion(error) => ConnectError::NoResources,
            // No process listens there, or it has ended.
            Some(libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE) => ConnectError::Refused,
            other => {
                if let Some(times) = self.barred.again(other) {
                    log::warn!(
                        "{:?}: no shared memory: {error} (attempt {times})",
                        self.name
                    );
                }
                ConnectError::NoRoute
            }
        }
    }

    /// Offers memory on a link whose peer has not answered yet, if memory is left.
    fn bring_memory(&mut self, id: LinkId) {
        if let Some(geometry) = self.choose(Source::TRUSTED, false) {
            let memory = self.hand_over(id, geometry);
            self.turn(id, |_| State::Greeting(memory));
        }
    }

    fn accept_some(&mut self, now: Instant) {
        for _ in 0..ACCEPTS {
            if !mx_reserve::SUPPLY.is_ample() {
                return self.accept_later(now);
            }
            match self.listener.accept() {
                Ok(socket) => {
                    self.accept_one(socket, now);
                    self.starved = false;
                }
                Err(error) if is_exhaustion(&error) && self.make_room() => {}
                Err(error) if is_exhaustion(&error) => {
                    // The connection stays in the backlog, so epoll would report it forever.
                    let limit = limits::of_descriptors(&error);
                    self.warn_of_starving(&format_args!("{error}{limit}"));
                    return self.accept_later(now);
                }
                Err(_) => return,
            }
        }
    }

    fn accept_later(&mut self, now: Instant) {
        self.listen_for(0);
        self.accept_again = Some(now.after(ACCEPT_PAUSE));
    }

    /// Warns that descriptors have run out; once, until some are free again.
    pub(super) fn warn_of_starving(&mut self, what: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.starved, true) {
            log::warn!(
                "{:?}: {what}: until descriptors are free, peers wait or connect over tcp",
                self.name
            );
        }
    }

    fn accept_one(&mut self, socket: Socket, now: Instant) {
        // Silent strangers must not keep others out.
        if self.is_full() && !self.evict(&"others need its place") {
            self.stats.refused += 1;
            log::debug!(
                "{:?}: rejecting a connection: {} links are the limit (MX_MAX_REMOTES)",
                self.name,
                self.links_max
            );
            // The peer may fall back to another port.
            let _ = socket.send(&ControlMessage::Later(None).encode(), None);
            return;
        }
        let user = socket.user();
        let source = Origin::User(user).source();
        if source != Source::TRUSTED && !self.places.may_take(source, 1) {
            self.stats.refused += 1;
            self.stats.over_share += 1;
            log::debug!(
                "{:?}: rejecting a connection: user {user} has used its share of links \
                 (MX_SOURCE_SHARE)",
                self.name
            );
            let _ = socket.send(&ControlMessage::Later(None).encode(), None);
            return;
        }
        let entry = Entry {
            user,
            source,
            stranger: true,
            ..Entry::new(socket, State::Accepted, false)
        };
        let id = self.links.insert(entry);
        self.places.take(source, 1);
        self.strangers.add(id, source, now);
        if let Err(error) = self.watch_handshake(id) {
            self.refuse(id, &error);
        }
    }

    fn is_full(&self) -> bool {
        self.links.len() >= self.links_max
    }

    /// Handles an event of a link's socket other than a wake-up.
    fn handle_socket(&mut self, id: LinkId) {
        let Some(entry) = self.links.get(id) else {
            return;
        };
        match &entry.state {
            State::Dialing(_) | State::Changing => {}
            State::Accepted => self.handle_hello(id),
            State::Greeting(_) => self.handle_welcome(id),
            State::Plain | State::Offered(_) | State::Up(_) => self.note(id, Reason::Socket),
        }
    }

    /// Handles the first message on an accepted connection.
    fn handle_hello(&mut self, id: LinkId) {
        let mut message = [0; MESSAGE_LEN];
        let Some(Entry {
            socket: Some(socket),
            ..
        }) = self.links.get(id)
        else {
            return;
        };
        let (len, user) = match socket.receive_from(&mut message) {
            Ok((Received::Nothing, _)) => return,
            Ok((Received::HangUp, _)) => return self.refuse(id, &"hang-up"),
            Ok((Received::Message(len, None), Some(user))) => (len, user),
            Ok((Received::Message(_, None), None)) => return self.refuse(id, &"no user with it"),
            Ok((Received::Message(_, Some(_)) | Received::CutOff(_), _)) => {
                return self.refuse(id, &"a descriptor in it");
            }
            Err(error) => return self.refuse(id, &error),
        };
        let (peer, endpoint) = match ControlMessage::decode(message.get(..len).unwrap_or(&[])) {
            Ok(ControlMessage::Hello {
                asymmetric,
                endpoint,
            }) => (asymmetric, endpoint),
            Ok(other) => return self.refuse(id, &format_args!("{other:?} comes first")),
            Err(bad @ BadMessage::Version(_)) => {
                // The version is the only part of the answer that the peer can read.
                let _ = socket.send(&ControlMessage::Later(None).encode(), None);
                self.warn_of_version(user, bad);
                return self.refuse(id, &bad);
            }
            Err(bad) => return self.refuse(id, &bad),
        };
        if !self.user_has(user, endpoint) {
            let _ = socket.send(&ControlMessage::Denied.encode(), None);
            return self.deny(id, user, endpoint);
        }
        if let Err(error) = socket.ask_users(false) {
            return self.refuse(id, &error);
        }
        let welcome = ControlMessage::Welcome {
            asymmetric: barrier::is_asymmetric(),
        };
        if let Err(error) = socket.send(&welcome.encode(), None) {
            return self.refuse(id, &error);
        }
        if let Some(entry) = self.links.get_mut(id) {
            (entry.user, entry.endpoint) = (user, Some(endpoint));
        }
        match self.bring_up(id, peer, |_| State::Plain) {
            Ok(()) => self.stats.accepted += 1,
            Err(error) => self.refuse(id, &error),
        }
    }

    /// Rejects a peer that claims an endpoint of another user.
    fn deny(&mut self, id: LinkId, user: u32, endpoint: u32) {
        if let Some(times) = self.denied.again((user, endpoint))
            && self.deniers.is_rare(user, CLAIMS_MAX)
        {
            log::warn!(
                "{:?}: user {user} claims endpoint {endpoint} of this machine, which it does not \
                 own: rejected (rejection {times})",
                self.name
            );
        }
        self.stats.denied += 1;
        self.refuse(id, &"another user's endpoint");
    }

    /// Logs that a process of this user speaks another version; once, then at growing intervals.
    fn warn_of_version(&mut self, user: u32, bad: BadMessage) {
        if let Some(times) = self.other_versions.again(user) {
            log::warn!(
                "{:?}: a process of user {user}: {bad}: no shared memory with it (attempt {times})",
                self.name
            );
        }
    }

    /// Handles the acceptor's answer.
    fn handle_welcome(&mut self, id: LinkId) {
        let mut message = [0; MESSAGE_LEN];
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        let Some(socket) = &entry.socket else { return };
        let heard = match socket.receive(&mut message) {
            // The peer closed without reading our Hello; its earlier messages can still be read.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                socket.receive(&mut message)
            }
            heard => heard,
        };
        let (len, fd) = match heard {
            Ok(Received::Nothing) => return,
            Ok(Received::Message(len, fd)) => (len, fd),
            // A Welcome has no descriptor.
            Ok(Received::CutOff(_)) => return self.end(id, LinkDown::Protocol),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return self.end(id, LinkDown::Protocol);
            }
            // A dead peer is not reached over other ports either.
            Ok(Received::HangUp) | Err(_) => return self.end(id, LinkDown::Refused),
        };
        let peer = match (
            ControlMessage::decode(message.get(..len).unwrap_or(&[])),
            fd,
        ) {
            (Ok(ControlMessage::Welcome { asymmetric }), None) => asymmetric,
            (Ok(ControlMessage::Later(_)), None) => return self.end_without_room(id),
            (Ok(ControlMessage::Denied), None) => return self.end_denied(id),
            (Err(bad @ BadMessage::Version(_)), None) => {
                let user = entry.user;
                self.warn_of_version(user, bad);
                return self.end(id, LinkDown::Protocol);
            }
            (answer, _) => {
                log::debug!("{:?}: {id:?} answered: {answer:?}", self.name);
                return self.end(id, LinkDown::Protocol);
            }
        };
        let up = self.bring_up(id, peer, |state| match state {
            State::Greeting(Some(memory)) => State::Offered(memory),
            _ => State::Plain,
        });
        if up.is_err() {
            return self.end(id, LinkDown::Reset);
        }
        self.stats.initiated += 1;
        self.note(id, Reason::Up);
    }

    /// Ends a link of ours for which this side or the peer has no room or no descriptor.
    fn end_without_room(&mut self, id: LinkId) {
        self.stats.turned_away += 1;
        self.end(id, LinkDown::Unreachable);
    }

    /// Ends a link whose peer finds that our endpoint is missing or open by another user.
    fn end_denied(&mut self, id: LinkId) {
        let whom = self.links.get(id).map(|entry| (entry.user, entry.endpoint));
        if let Some((user, Some(endpoint))) = whom
            && let Some(times) = self.denied.again((user, endpoint))
        {
            log::warn!(
                "{:?}: endpoint {endpoint} of user {user} rejects shared memory, because it cannot \
                 verify that our user owns this endpoint (rejection {times})",
                self.name
            );
        }
        self.end(id, LinkDown::Denied);
    }

    /// Brings a link up after its handshake.
    fn bring_up(
        &mut self,
        id: LinkId,
        asymmetric: bool,
        next: impl FnOnce(State) -> State,
    ) -> io::Result<()> {
        self.turn(id, next);
        let Some(entry) = self.links.get_mut(id) else {
            return Ok(());
        };
        entry.asymmetric = asymmetric;
        if let Some(socket) = &entry.socket {
            self.control.modify(&socket.raw(), id.to_word(), ENDED)?;
            self.data.add(&socket.raw(), id.to_word(), DOORBELL)?;
        }
        entry.instead = None;
        // Packets may already be queued.
        self.note(id, Reason::Socket);
        Ok(())
    }

    fn handle_timers(&mut self, now: Instant) -> bool {
        let mut any = false;
        if self.accept_again.is_some_and(|at| at <= now) {
            self.accept_again = None;
            self.listen_for(HEARD);
            any = true;
        }
        let mut dialing = std::mem::take(&mut self.dialing);
        dialing.retain(|id| match self.links.get(*id).map(|entry| &entry.state) {
            Some(State::Dialing(dialing)) => {
                if dialing.next_try <= now {
                    any = true;
                    self.dial_again(*id, *dialing, now);
                }
                true
            }
            _ => false,
        });
        self.dialing = dialing;
        any | self.drop_strangers(now)
    }

    fn dial_again(&mut self, id: LinkId, mut dialing: Dialing, now: Instant) {
        let name = Name {
            board: dialing.board,
            endpoint: dialing.endpoint,
            ..self.name
        };
        let Some(socket) = self.links.get(id).and_then(|entry| entry.socket.as_ref()) else {
            return;
        };
        match socket.connect(name).and_then(|()| self.greet(socket)) {
            Ok(()) => {
                let user = socket.user();
                if let Some(entry) = self.links.get_mut(id) {
                    entry.user = user;
                }
                self.turn(id, |_| State::Greeting(None));
                match self.watch_handshake(id) {
                    Ok(()) => self.bring_memory(id),
                    Err(_) => self.end_without_room(id),
                }
            }
            Err(error) if is_transient(&error) => {
                dialing.pause = (dialing.pause * 2).min(LAST_PAUSE);
                dialing.next_try = now.after(dialing.pause);
                self.turn(id, |_| State::Dialing(dialing));
            }
            Err(error) if is_exhaustion(&error) => self.end_without_room(id),
            Err(error) => {
                let reason = self.connect_error(&error).into();
                self.end(id, reason);
            }
        }
    }

    /// Drops a connection that never became a link.
    pub(super) fn refuse(&mut self, id: LinkId, why: &dyn std::fmt::Display) {
        if self.remove(id).is_some() {
            self.stats.refused += 1;
            log::debug!("{:?}: connection dropped: {why}", self.name);
        }
    }

    fn watch_handshake(&self, id: LinkId) -> io::Result<()> {
        match self.links.get(id).and_then(|entry| entry.socket.as_ref()) {
            Some(socket) => self.control.add(&socket.raw(), id.to_word(), HEARD),
            None => Ok(()),
        }
    }

    fn listen_for(&self, events: u32) {
        if let Err(error) = self.control.modify(&self.listener.raw(), LISTENER, events) {
            log::error!(
                "{:?}: cannot watch the listening socket: {error}",
                self.name
            );
        }
    }
}

/// Returns true if the message cannot be sent in that user's name.
fn is_another_user(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EINVAL))
}

/// Maximum number of connections accepted in one poll.
const ACCEPTS: usize = 32;

/// Pause of accepting after descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// First and longest pause between attempts to get into a full backlog; pauses double.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of claims of one user that are logged individually; later ones ever more rarely.
const CLAIMS_MAX: u64 = 64;
