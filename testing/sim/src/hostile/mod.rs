//! A node that attacks introductions.
//!
//! ```text
//!   overheard --> Gang: packets of all introductions --.      it calls others, and others call it
//!        |                                             v                 |
//!        |   turn: claim a name, a life, a session, replay, prove, flood answer: claim, replay, forge, relay
//!        `-> at once: the same call from here
//! ```
//!
//! The node keeps no rule except those of the port. Once it is accepted, under any name, it sends a
//! message with its true number (see [`MARK`]), so that the receiver can check the name.
//!
//! [`Siege`](crate::node::Siege) checks the effects on others.

pub mod packets;

use crate::buffer::Buffer;
use crate::check::Book;
use crate::clock::VirtualClock;
use crate::cluster::Drive;
use crate::ear::{Ear, Hearing};
use crate::node::{KEY, home};
use crate::rng::Rng;
use crate::sink::Polled;
use crate::world::{NodeId, World};
use mx_proto::memory::Source as Bytes;
use mx_proto::port::{Body, Close, HeaderBytes, LinkDown, Port, SendError};
use mx_proto::secret::Secret;
use mx_proto::wire::{Header, Kind};
use mx_proto::{Clock, EndpointId, Identity, Instant, LinkId, NicId, Route, SessionId, Target};
use packets::{Packet, Says, kind_of, packet};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Match bits of the messages by which hostile nodes identify themselves. Their bodies begin with
/// the number of the node.
pub const MARK: u64 = 3 << 62;

/// Common knowledge of the attackers.
#[derive(Debug, Default)]
pub struct Gang {
    /// Packets of introductions sent anywhere, oldest first.
    heard: VecDeque<Packet>,
    /// Latest call.
    call: Option<Packet>,
    /// Worlds and nodes that are woken by a call.
    members: Vec<(World, NodeId)>,
}

/// Maximum number of remembered packets.
const HEARD_MAX: usize = 256;

impl Gang {
    /// Records a packet that was sent somewhere.
    pub fn hear(&mut self, header: &HeaderBytes, body: &[u8]) {
        let kind = Header::parse(header).map(|header| header.kind);
        let introduces = matches!(
            kind,
            Some(Kind::Connect | Kind::Reply | Kind::Claim | Kind::Challenge | Kind::Prove)
        );
        if introduces {
            if self.heard.len() == HEARD_MAX {
                self.heard.pop_front();
            }
            let packet = (*header, body.to_vec());
            if kind == Some(Kind::Connect) && self.call.as_ref() != Some(&packet) {
                self.call = Some(packet.clone());
                for (world, node) in &self.members {
                    world.wake(world.now(), *node);
                }
            }
            self.heard.push_back(packet);
        }
    }

    fn any(&self, rng: &mut Rng, kind: Option<Kind>) -> Option<Packet> {
        let wanted = |packet: &&Packet| kind.is_none() || kind_of(packet) == kind;
        let all: Vec<_> = self.heard.iter().filter(wanted).collect();
        (!all.is_empty()).then(|| all[rng.index(all.len())].clone())
    }
}

/// A link, seen from this node's end.
#[derive(Debug, Default)]
struct Known {
    /// The link can carry packets.
    up: bool,
    /// Name that was called on it.
    to: Option<(NicId, EndpointId)>,
    /// Last hello received on it.
    said: Vec<u8>,
    /// Link to which packets from this one are relayed.
    relay: Option<LinkId>,
    /// Packets that wait until it is up.
    waiting: Vec<Packet>,
}

/// A hostile node.
pub struct Hostile<P> {
    id: NodeId,
    port: P,
    clock: VirtualClock,
    world: World,
    rng: Rng,
    book: Rc<RefCell<Book>>,
    gang: Rc<RefCell<Gang>>,
    /// First number of the hostile nodes.
    honest: usize,
    /// A secret other than the site's.
    secret: Option<Secret>,
    links: BTreeMap<LinkId, Known>,
    pause: Duration,
    next_turn: Instant,
    /// Latest call of another node that it knows.
    call: Option<Packet>,
    over: bool,
    /// Node to which calls are relayed, if the node does nothing else.
    relay: Option<NodeId>,
}

/// Maximum number of links; beyond that the oldest is closed.
const LINKS_MAX: usize = 120;

impl<P: Port<Buffer>> Hostile<P> {
    /// Makes node `id`, which attacks those below `honest`, about once every `pause`.
    pub fn new(
        world: &World,
        (book, gang): (&Rc<RefCell<Book>>, &Rc<RefCell<Gang>>),
        (id, honest): (NodeId, usize),
        pause: Duration,
        secret: Option<Secret>,
        port: P,
    ) -> Self {
        gang.borrow_mut().members.push((world.clone(), id));
        Self {
            id,
            port,
            clock: world.clock(),
            world: world.clone(),
            rng: world.fork_rng(),
            book: Rc::clone(book),
            gang: Rc::clone(gang),
            honest,
            secret,
            links: BTreeMap::new(),
            pause,
            next_turn: world.now(),
            call: None,
            over: false,
            relay: None,
        }
    }

    /// Makes it relay calls to that node, and the answers back, and nothing else.
    #[must_use]
    pub fn relaying_to(mut self, node: NodeId) -> Self {
        self.relay = Some(node);
        self
    }

    fn has_turns(&self) -> bool {
        !self.over && self.relay.is_none()
    }

    /// Stops the node.
    pub fn stop(&mut self) {
        self.over = true;
        for link in std::mem::take(&mut self.links).into_keys() {
            self.port.close(link, Close::Now);
        }
    }

    fn name_of(&mut self, node: NodeId) -> (NicId, EndpointId) {
        let addresses = self.world.addresses(node);
        let nic = if addresses.is_empty() {
            home(&self.world, node)
        } else {
            self.rng.pick(&addresses)
        };
        (nic, self.world.number(node))
    }

    /// Returns a nonce of another node, or one that no node has.
    fn any_nonce(&mut self) -> [u8; 16] {
        let kind = self.rng.pick(&[Kind::Connect, Kind::Connect, Kind::Reply]);
        let heard = self.gang.borrow().any(&mut self.rng, Some(kind));
        let stolen = heard.and_then(|(_, body)| packets::nonce_of(&body));
        let guess = [self.rng.bits() as u8; 16];
        self.rng.pick(&[guess, stolen.unwrap_or(guess)])
    }

    /// Makes a hello that a node may have sent, or not.
    fn claim(&mut self, to: Option<(NicId, EndpointId)>) -> Says {
        let victim = self.rng.index(self.honest);
        let lives: Vec<SessionId> = {
            let book = self.book.borrow();
            let lives = book.lives().iter().filter(|life| life.node == victim);
            lives.map(|life| life.session).collect()
        };
        let present = lives.last().copied().unwrap_or(SessionId(1));
        let (own, theirs) = (self.name_of(self.id), home(&self.world, victim));
        let nowhere = NicId(self.rng.bits() >> 16);
        let of_victim = self.world.number(victim);
        let any = EndpointId(self.rng.below(1 << 20) as u32);
        let former = self.rng.pick(&lives_or(&lives, present));
        let drawn = SessionId(self.rng.bits());
        let nonce = self.any_nonce();
        let elsewhere = self.rng.index(self.honest);
        let other = self.name_of(elsewhere);
        let rng = &mut self.rng;
        let whole = rng.chance(0.5);
        let mut says = Says {
            who: Identity {
                nic: theirs,
                endpoint: of_victim,
                session: present,
            },
            to: to.unwrap_or(other),
            key: KEY,
            epoch: rng.pick(&[0, 1, 1, 2, 3, 9]),
            nonce,
        };
        if !whole {
            says.who = Identity {
                nic: rng.pick(&[own.0, own.0, own.0, theirs, nowhere]),
                endpoint: rng.pick(&[own.1, of_victim, any]),
                session: rng.pick(&[present, former, SessionId(present.0.wrapping_sub(1)), drawn]),
            };
            says.to = rng.pick(&[says.to, says.to, other, (NicId(0), EndpointId(0))]);
        }
        says
    }

    fn call(&mut self, to: NodeId) -> Option<LinkId> {
        let (nic, endpoint) = self.name_of(to);
        let target = Target {
            nic,
            endpoint,
            // Any route except the first, from which calls may get a fallback.
            route: Route(1),
        };
        let link = self.port.connect(target, self.clock.now()).ok()?;
        if self.links.len() >= LINKS_MAX
            && let Some((oldest, _)) = self.links.pop_first()
        {
            self.port.close(oldest, Close::Now);
        }
        let known = Known {
            to: Some((nic, endpoint)),
            ..Known::default()
        };
        self.links.insert(link, known);
        Some(link)
    }

    fn send(&mut self, link: LinkId, (header, body): &Packet) {
        if kind_of(&(*header, Vec::new())) == Some(Kind::Connect)
            && let Some(known) = self.links.get_mut(&link)
        {
            known.said.clone_from(body);
        }
        let sent = self.port.send(link, header, Body::Bytes(body));
        if sent == Err(SendError::Down) {
            self.links.remove(&link);
        }
    }

    fn connect_as(&mut self, link: LinkId) {
        let to = self.links.get(&link).and_then(|known| known.to);
        let says = self.claim(to);
        let (word, body) = (self.rng.bits(), packets::hello(&says));
        self.send(link, &packet(Kind::Connect, word, 0, 0, body));
    }

    /// Identifies itself in a message.
    fn reveal(&mut self, link: LinkId) {
        let body = (self.id as u64).to_le_bytes().to_vec();
        self.send(link, &packet(Kind::Eager, MARK, body.len() as u32, 0, body));
    }

    /// Claims another node's session as its own.
    fn claim_session(&mut self, link: LinkId) {
        let to = self.rng.index(self.honest);
        let (called, _) = self.name_of(to);
        let heard = self.gang.borrow().any(&mut self.rng, Some(Kind::Claim));
        let number = heard.and_then(|(_, body)| packets::number_of(&body));
        let guess = self.rng.below(8);
        let number = self.rng.pick(&[guess, number.unwrap_or(guess)]);
        let body = packets::claim(number, called, self.any_nonce());
        self.send(link, &packet(Kind::Claim, 0, 0, 0, body));
    }

    /// Repeats another node's call, perhaps before it arrives.
    fn repeat(&mut self) -> bool {
        let call = self.gang.borrow().call.clone();
        if call == self.call || !self.has_turns() {
            return false;
        }
        self.call.clone_from(&call);
        let Some(call) = call.filter(|_| self.rng.chance(0.3)) else {
            return false;
        };
        let to = packets::receiver_of(&call.1);
        let there = |known: &Known| known.up && known.said.is_empty() && known.to == to;
        let mut ready = self.links.iter().filter(|(_, known)| there(known));
        let Some((link, _)) = ready.next() else {
            return false;
        };
        let link = *link;
        self.book.borrow_mut().count("repeated at once");
        self.send(link, &call);
        true
    }

    /// Sends any packet.
    fn speak(&mut self, link: LinkId) {
        let any = self.rng.bits();
        match self.rng.below(100) {
            0..25 => self.connect_as(link),
            25..60 => {
                let heard = self.gang.borrow().any(&mut self.rng, None);
                if let Some(packet) = heard {
                    self.send(link, &packet);
                }
            }
            60..76 => self.claim_session(link),
            76..82 => {
                let len = self.rng.pick(&[0, 31, 32, 32, 33]);
                self.send(link, &packet(Kind::Prove, 0, 0, 0, vec![any as u8; len]));
            }
            82..86 => {
                let len = self.rng.pick(&[40, 72, 72]);
                self.send(
                    link,
                    &packet(Kind::Challenge, 0, 0, 0, vec![any as u8; len]),
                );
            }
            86..94 => self.reveal(link),
            _ => {
                let kinds = [
                    Kind::Ping,
                    Kind::Pong,
                    Kind::Disconnect,
                    Kind::Credit,
                    Kind::Return,
                    Kind::Revoke,
                ];
                let kind = self.rng.pick(&kinds);
                self.send(link, &packet(kind, any % 4, 0, 0, Vec::new()));
            }
        }
    }

    fn take_turn(&mut self) {
        let open: Vec<LinkId> = {
            let up = self.links.iter().filter(|(_, known)| known.up);
            up.map(|(link, _)| *link).collect()
        };
        let link = (!open.is_empty()).then(|| self.rng.pick(&open));
        match (self.rng.below(100), link) {
            (0..6, _) => {
                let to = self.rng.index(self.honest);
                for _ in 0..self.rng.within(5..=40) {
                    self.call(to);
                }
            }
            (6..40, _) | (_, None) => {
                let to = self.rng.index(self.honest);
                self.call(to);
            }
            (40..90, Some(link)) => self.speak(link),
            (_, Some(link)) => {
                self.links.remove(&link);
                self.port.close(link, Close::Now);
            }
        }
    }

    fn on_up(&mut self, link: LinkId) {
        let Some(known) = self.links.get_mut(&link) else {
            return;
        };
        known.up = true;
        let (waiting, relays) = (std::mem::take(&mut known.waiting), known.relay.is_some());
        for packet in waiting {
            self.send(link, &packet);
        }
        if !relays {
            // Other hostile nodes wait for a call that can be repeated.
            if self.rng.chance(0.7) {
                self.connect_as(link);
            } else if self.rng.chance(0.3) {
                self.speak(link);
            }
        }
    }

    /// Relays a packet. A node that accepts it has perhaps taken this node for another.
    fn pass_on(&mut self, link: LinkId, to: LinkId, packet: &Packet) {
        match self.links.get_mut(&to) {
            Some(known) if !known.up => known.waiting.push(packet.clone()),
            _ => self.send(to, packet),
        }
        if kind_of(packet) == Some(Kind::Reply) {
            self.reveal(link);
            self.reveal(to);
        }
    }

    fn on_packet(&mut self, link: LinkId, packet: &Packet) {
        self.gang.borrow_mut().hear(&packet.0, &packet.1);
        let known = self.links.entry(link).or_insert_with(|| {
            self.port.accept(link);
            Known {
                up: true,
                ..Known::default()
            }
        });
        if let Some(to) = known.relay {
            return self.pass_on(link, to, packet);
        }
        let Some(header) = Header::parse(&packet.0) else {
            return;
        };
        match header.kind {
            Kind::Connect => self.on_call(link, packet, &header),
            Kind::Challenge => self.on_challenge(link, packet),
            Kind::Reply if header.aux == 0 => {
                self.reveal(link);
                if self.rng.chance(0.3) {
                    self.claim_session(link);
                }
            }
            Kind::Ping if self.rng.chance(0.8) => {
                let pong = packets::packet(Kind::Pong, header.word, 0, 0, Vec::new());
                self.send(link, &pong);
            }
            _ => {}
        }
    }

    /// Answers a call.
    fn on_call(&mut self, link: LinkId, packet: &Packet, header: &Header) {
        if let Some(to) = self.relay {
            return self.begin_relay(link, to, packet);
        }
        let says = self.claim(None);
        match self.rng.below(8) {
            0..3 => {
                let to = self.rng.index(self.honest);
                self.begin_relay(link, to, packet);
            }
            3 | 4 => {
                let status = self.rng.pick(&[0, 0, 0, 1, 3, 5, 6]);
                let body = packets::hello(&says);
                let reply = packets::packet(Kind::Reply, header.word, 1, status, body);
                self.send(link, &reply);
                self.reveal(link);
            }
            5 => {
                let heard = self.gang.borrow().any(&mut self.rng, Some(Kind::Challenge));
                if let Some(challenge) = heard {
                    self.send(link, &challenge);
                }
            }
            6 => {
                let binding = self.port.binding(link);
                if let Some(secret) = &self.secret {
                    let body = packets::challenge(&says, &packet.1, secret, binding);
                    let challenge = packets::packet(Kind::Challenge, 0, 0, 0, body);
                    self.send(link, &challenge);
                } else {
                    self.send(link, packet);
                }
            }
            _ => self.speak(link),
        }
    }

    /// Begins to relay packets of a link to another node, and its answers back.
    fn begin_relay(&mut self, link: LinkId, to: NodeId, packet: &Packet) {
        let Some(on) = self.call(to) else { return };
        for (one, other) in [(link, on), (on, link)] {
            if let Some(known) = self.links.get_mut(&one) {
                known.relay = Some(other);
            }
        }
        self.pass_on(link, on, packet);
    }

    fn on_challenge(&mut self, link: LinkId, asked: &Packet) {
        let binding = self.port.binding(link);
        let said = self.links.get(&link).map(|known| known.said.clone());
        let heard = self.gang.borrow().any(&mut self.rng, Some(Kind::Prove));
        let proof = match (&self.secret, said, heard) {
            (Some(secret), Some(said), _) if self.rng.chance(0.4) => {
                packets::answer(&said, &asked.1, secret, binding)
            }
            (_, _, Some((_, proof))) if self.rng.chance(0.7) => proof,
            // The other side's own proof.
            _ => asked.1.get(40..).unwrap_or_default().to_vec(),
        };
        self.send(link, &packet(Kind::Prove, 0, 0, 0, proof));
        if self.rng.chance(0.5) {
            self.reveal(link);
        }
    }
}

fn lives_or(lives: &[SessionId], present: SessionId) -> Vec<SessionId> {
    if lives.is_empty() {
        vec![present]
    } else {
        lives.to_vec()
    }
}

impl<P: Port<Buffer>> Drive for Hostile<P> {
    fn progress(&mut self) -> bool {
        let mut came = Came::default();
        let mut busy = self
            .port
            .poll(self.clock.now(), 64, &mut Hearing(&mut came));
        for heard in came.0 {
            match heard {
                _ if self.over => {}
                Heard::Up(link) => self.on_up(link),
                Heard::Down(link) => {
                    self.links.remove(&link);
                }
                Heard::Packet(link, packet) => self.on_packet(link, &packet),
            }
        }
        busy |= self.repeat();
        if self.has_turns() && self.next_turn <= self.world.now() {
            busy = true;
            let pause = self.rng.span(self.pause);
            self.next_turn = self.world.now().after(pause.max(Duration::from_nanos(1)));
            self.take_turn();
        }
        busy
    }

    fn deadline(&self) -> Option<Instant> {
        let own = self.has_turns().then_some(self.next_turn);
        own.into_iter().chain(self.port.deadline()).min()
    }
}

impl<P> fmt::Debug for Hostile<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hostile")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Events of one poll.
#[derive(Default)]
struct Came(Vec<Heard>);

enum Heard {
    Up(LinkId),
    Down(LinkId),
    Packet(LinkId, Packet),
}

impl Ear<Buffer> for Came {
    fn on_up(&mut self, link: LinkId) {
        self.0.push(Heard::Up(link));
    }

    fn on_down(&mut self, link: LinkId, _: LinkDown) {
        self.0.push(Heard::Down(link));
    }

    fn on_packet<B: Bytes + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        self.0.push(Heard::Packet(link, (*header, body.to_vec())));
    }
}
