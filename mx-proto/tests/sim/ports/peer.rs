//! An end of a link that sends numbered packets and checks those that arrive. Like an endpoint, the
//! peer introduces itself first and sends nothing else before the answer comes.
//!
//! ```text
//!   call --- introduction --> bound, and
//!   up   <--- its answer ----'
//!        --- packet 0, 1, .. -->
//! ```

use mx_proto::memory::{Memory, Source};
use mx_proto::port::{
    BODY_LEN_AT, Body, Destination, HeaderBytes, LinkDown, Place, Port, SendError, Sent,
};
use mx_proto::{Clock, EndpointId, Instant, LinkId, NicId, Route, Target};
use mx_sim::Polled;
use mx_sim::{Buffer, Cluster, Drive, Ear, Hearing, NodeId, Rng, VirtualClock, World};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

pub(crate) const NIC: NicId = NicId(0x5151);

pub(crate) fn target(node: NodeId) -> Target {
    Target {
        nic: NIC,
        endpoint: EndpointId(node as u32),
        route: Route::AUTO,
    }
}

/// Returns the body of packet `number` of a sender.
pub(crate) fn body(sender: usize, number: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(number << 8 | sender as u64);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.bits().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub(crate) fn header(number: u64, len: usize) -> HeaderBytes {
    let mut header = [0; 32];
    header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header
}

pub(crate) fn number_of(header: &HeaderBytes) -> u64 {
    u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"))
}

pub(crate) fn len_of(header: &HeaderBytes) -> usize {
    let at = BODY_LEN_AT;
    u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize
}

/// A packet before the numbered ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Greeting {
    Introduction,
    Answer,
}

impl Greeting {
    /// Length of the body, about that of an endpoint's introduction.
    const LEN: usize = 72;

    fn number(self) -> u64 {
        u64::MAX - self as u64
    }

    pub(crate) fn of(header: &HeaderBytes) -> Option<Self> {
        let number = number_of(header);
        [Self::Introduction, Self::Answer]
            .into_iter()
            .find(|greeting| greeting.number() == number)
    }

    /// Sends the greeting. Returns false if it has to wait.
    pub(crate) fn send<P: Port<Buffer>>(self, port: &mut P, link: LinkId) -> bool {
        let header = header(self.number(), Self::LEN);
        let sent = port.send(link, &header, Body::Bytes(&[0x11; Self::LEN]));
        sent != Err(SendError::WouldBlock)
    }
}

/// The events that a peer has been told of.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) peer: usize,
    pub(crate) packet_max: usize,
    /// Memory of placed packets by number; parts of several packets may alternate.
    pub(crate) placed: HashMap<u64, Buffer>,
    /// Numbers received, in order.
    pub(crate) received: Vec<u64>,
    pub(crate) link: Option<LinkId>,
    pub(crate) up: bool,
    pub(crate) down: Option<LinkDown>,
    pub(crate) writable: bool,
    /// Links that have introduced themselves, and have to be bound and answered.
    strange: Vec<LinkId>,
    /// Whether our introduction has been answered.
    answered: bool,
    /// Whether anything may arrive.
    pub(crate) indifferent: bool,
}

impl Heard {
    fn accept(&mut self, link: LinkId, header: &HeaderBytes, bytes: &[u8]) {
        if self.indifferent {
            return;
        }
        assert!(
            self.down.is_none(),
            "a packet came after the end of its link"
        );
        assert_eq!(*self.link.get_or_insert(link), link, "a second link");
        let number = number_of(header);
        assert_eq!(number, self.received.len() as u64, "packets out of order");
        assert_eq!(
            bytes,
            body(self.peer, number, len_of(header)),
            "packet {number} is damaged"
        );
        self.received.push(number);
    }
}

impl Ear<Buffer> for Heard {
    fn on_up(&mut self, _link: LinkId) {
        let twice = std::mem::replace(&mut self.up, true);
        assert!(!twice || self.indifferent, "up twice");
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        // Links of an earlier time may end later.
        if self.link == Some(link) && !self.indifferent {
            assert!(self.down.is_none(), "down twice");
            self.down = Some(reason);
        }
    }

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        assert_eq!(body.len(), len_of(header));
        assert!(body.len() <= self.packet_max);
        match Greeting::of(header) {
            Some(Greeting::Introduction) => {
                self.strange.push(link);
                if !self.indifferent {
                    assert_eq!(*self.link.get_or_insert(link), link, "a second link");
                }
            }
            Some(Greeting::Answer) => self.answered = true,
            None => self.accept(link, header, &body.to_vec()),
        }
    }

    fn place(&mut self, _link: LinkId, header: &HeaderBytes) -> Option<Place<'_, Buffer>> {
        if self.indifferent || Greeting::of(header).is_some() {
            return None;
        }
        let number = number_of(header);
        // Every third small packet gets no place until it has arrived whole.
        if len_of(header) <= self.packet_max && number % 3 == 0 {
            return None;
        }
        let room = || Buffer::in_pieces(vec![0xee; len_of(header) + 7], vec![5, 1000]);
        let memory = self.placed.entry(number).or_insert_with(room);
        Some(Place {
            memory: Destination::Memory(memory),
            offset: 7,
        })
    }

    fn on_placed(&mut self, link: LinkId, header: &HeaderBytes) {
        let memory = self.placed.remove(&number_of(header));
        let memory = memory.expect("placed without having asked");
        self.accept(link, header, &memory.bytes()[7..]);
    }

    fn on_writable(&mut self, _link: LinkId) {
        self.writable = true;
    }
}

/// An end of a link that sends packets and checks those that arrive.
pub(crate) struct Peer<P> {
    pub(crate) node: NodeId,
    pub(crate) port: P,
    pub(crate) clock: VirtualClock,
    pub(crate) heard: Heard,
    pub(crate) link: Option<LinkId>,
    /// Whether the introduction has been sent.
    pub(crate) introduced: bool,
    /// Whether packets are sent without an introduction.
    pub(crate) rude: bool,
    /// Lengths of packets still to be sent.
    pub(crate) to_send: VecDeque<usize>,
    pub(crate) sent: u64,
    /// Memory of a packet that the link has taken in part, and the number of bytes taken.
    pub(crate) partial: Option<(Buffer, usize)>,
    pub(crate) budget: usize,
}

impl<P: Port<Buffer>> Peer<P> {
    pub(crate) fn new(node: NodeId, peer: NodeId, port: P, clock: VirtualClock) -> Self {
        let packet_max = port.limits(LinkId::new(0, 0)).packet_max;
        let heard = Heard {
            peer,
            packet_max,
            writable: true,
            ..Heard::default()
        };
        Self {
            node,
            port,
            clock,
            heard,
            link: None,
            introduced: false,
            rude: false,
            to_send: VecDeque::new(),
            sent: 0,
            partial: None,
            budget: 64,
        }
    }

    /// Begins a link, which replaces any earlier one.
    pub(crate) fn call(&mut self, target: Target) {
        let link = self
            .port
            .connect(target, self.clock.now())
            .expect("a known name");
        self.hang_up();
        self.link = Some(link);
        self.heard.link = Some(link);
    }

    /// Forgets the link, and begins to count anew.
    pub(crate) fn hang_up(&mut self) {
        let (peer, packet_max) = (self.heard.peer, self.heard.packet_max);
        self.heard = Heard {
            peer,
            packet_max,
            writable: true,
            ..Heard::default()
        };
        (self.link, self.introduced) = (None, false);
        (self.sent, self.partial) = (0, None);
        self.to_send.clear();
    }

    fn send_some(&mut self) -> bool {
        let link = self.link.or(self.heard.link);
        let Some(link) = link.filter(|_| self.heard.down.is_none()) else {
            return false;
        };
        if self.link.is_some() && !self.heard.answered && !self.rude {
            let goes = !self.introduced && self.heard.writable;
            if goes {
                self.introduced = Greeting::Introduction.send(&mut self.port, link);
                self.heard.writable = self.introduced;
            }
            return goes;
        }
        let mut any = false;
        while self.heard.writable {
            let outcome = if let Some((memory, at)) = &self.partial {
                let left = memory.len() - at;
                self.port
                    .resume(link, memory, *at, left)
                    .map(|sent| (sent, memory.clone(), *at))
            } else if let Some(&len) = self.to_send.front() {
                let memory = Buffer::in_pieces(body(self.node, self.sent, len), vec![1, len / 2]);
                let all = Body::Memory {
                    memory: &memory,
                    offset: 0,
                    len,
                };
                let outcome = self.port.send(link, &header(self.sent, len), all);
                if outcome.is_ok() {
                    self.to_send.pop_front();
                    self.sent += 1;
                }
                outcome.map(|sent| (sent, memory.clone(), 0))
            } else {
                return any;
            };
            match outcome {
                Ok((Sent::Whole, memory, _)) => {
                    memory.give_back();
                    self.partial = None;
                }
                Ok((Sent::Part(part), memory, at)) => {
                    assert!(at + part < memory.len(), "a part is less than all");
                    self.partial = Some((memory, at + part));
                    self.heard.writable = false;
                }
                Err(SendError::WouldBlock) => self.heard.writable = false,
                Err(SendError::Down) => return any,
            }
            any = true;
        }
        any
    }
}

impl<P: Port<Buffer>> Drive for Peer<P> {
    fn progress(&mut self) -> bool {
        let now = self.clock.now();
        let mut busy = self
            .port
            .poll(now, self.budget, &mut Hearing(&mut self.heard));
        let port = &mut self.port;
        self.heard.strange.retain(|link| {
            port.accept(*link);
            !Greeting::Answer.send(port, *link)
        });
        busy |= self.send_some();
        busy
    }

    fn deadline(&self) -> Option<Instant> {
        self.port.deadline()
    }
}

/// Returns random lengths of packets, now and then zero or the largest.
pub(crate) fn sizes(
    rng: &mut Rng,
    count: usize,
    packet_max: usize,
    data_max: usize,
) -> VecDeque<usize> {
    let some = |rng: &mut Rng| match rng.below(10) {
        0 => 0,
        1 => packet_max,
        2 => data_max,
        3 => rng.within(0..=data_max),
        4..=6 => rng.within(0..=packet_max),
        _ => rng.within(1..=200),
    };
    (0..count).map(|_| some(rng)).collect()
}

/// Makes peers 0 and 1 on these ports; 0 has called 1.
pub(crate) fn two<P: Port<Buffer>>(world: &World, ports: (P, P)) -> Cluster<Peer<P>> {
    let mut cluster = Cluster::new(world);
    let mut a = Peer::new(0, 1, ports.0, world.clock());
    let b = Peer::new(1, 0, ports.1, world.clock());
    a.call(target(1));
    cluster.add(a);
    cluster.add(b);
    cluster
}

/// Describes the progress of both peers.
fn describe<P: Port<Buffer>>(cluster: &mut Cluster<Peer<P>>) -> String {
    let one = |id| {
        let peer: &mut Peer<P> = cluster.node(id).expect("no node dies");
        let heard = &peer.heard;
        format!(
            "n{id} sent {} (next {:?}, writable {}) received {} ",
            peer.sent,
            peer.to_send.front(),
            heard.writable,
            heard.received.len()
        )
    };
    (0..2).map(one).collect()
}

/// Has both peers send `count` more packets each, and runs until all of them have arrived.
pub(crate) fn exchange<P: Port<Buffer>>(
    cluster: &mut Cluster<Peer<P>>,
    rng: &mut Rng,
    count: usize,
    give_up: Duration,
) {
    let mut wanted = [0; 2];
    for id in 0..2 {
        let peer = cluster.node(id).expect("no node dies");
        let limits = peer.port.limits(LinkId::new(0, 0));
        peer.to_send
            .extend(sizes(rng, count, limits.packet_max, limits.data_max));
        peer.budget = rng.pick(&[1, 7, 64]);
        wanted[1 - id] = peer.sent as usize + peer.to_send.len();
        cluster.poke(id);
    }
    let until = cluster.world().now().after(give_up);
    let done = cluster.run_while(20_000_000, |cluster| {
        let over = cluster.world().now() >= until;
        assert!(!over, "not done in {give_up:?}: {}", describe(cluster));
        let mut all = true;
        for (id, wanted) in wanted.into_iter().enumerate() {
            let peer = cluster.node(id).expect("no node dies");
            assert_eq!(peer.heard.down, None);
            all &= peer.heard.received.len() == wanted;
        }
        !all
    });
    assert!(done, "nothing happens any more: {}", describe(cluster));
}
