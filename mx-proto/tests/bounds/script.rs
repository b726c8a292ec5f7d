//! One endpoint, and a port on which the test is everybody else.
//!
//! ```text
//!   test --say(link, packet)--> Script port --> Endpoint --> what it sent, per link, or no room
//! ```
//!
//! Peer `n` has link `n` and the name `n + 1`. It says what the test says, true or not.

use mx_proto::ops::{Chunks, Ops};
use mx_proto::owner::Queue;
use mx_proto::port::{Body, Close, ConnectError, HeaderBytes, Limits, Port, SendError, Sent, Sink};
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{
    Arrival, Clock, Completion, Config, Down, Endpoint, EndpointId, Identity, Instant, LinkId,
    NicId, Outcome, Owner, RequestId, SessionId, Source, Target, Verdict,
};
use mx_sim::Queued;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

pub(crate) const KEY: u32 = 7;

/// A clock that stands still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Instant {
        Instant(1)
    }
}

/// A packet to the endpoint, or from it.
pub(crate) type Packet = (LinkId, Header, Vec<u8>);

#[derive(Default, Debug)]
pub(crate) struct Wires {
    inbound: VecDeque<(LinkId, HeaderBytes, Vec<u8>)>,
    writable: VecDeque<LinkId>,
    cookies: Vec<u64>,
    /// What each peer has been allowed to send, bytes and messages, and what it has sent.
    windows: Vec<[(u32, u32); 2]>,
    /// Links whose peers read nothing.
    pub(crate) deaf: Vec<bool>,
    /// What the endpoint has sent, if anybody wants to know.
    pub(crate) listen: bool,
    pub(crate) sent: VecDeque<Packet>,
    /// Attempts to send.
    pub(crate) attempts: u64,
    pub(crate) closed: usize,
}

impl Wires {
    /// What the endpoint calls the peer with this link.
    pub(crate) fn cookie_of(&self, link: u32) -> u64 {
        self.cookies[link as usize]
    }
}

#[derive(Debug)]
pub(crate) struct Script(Rc<RefCell<Wires>>);

impl Port<Vec<u8>> for Script {
    fn limits(&self, _: LinkId) -> Limits {
        Limits {
            packet_max: 32 << 10,
            data_max: 64 << 10,
            pull_block: 96 << 10,
            remote_read: false,
        }
    }

    fn connect(&mut self, _: Target, _: &dyn Clock) -> Result<LinkId, ConnectError> {
        Err(ConnectError::NoResources)
    }

    fn bind(&mut self, link: LinkId, cookie: u64) {
        let wires = &mut *self.0.borrow_mut();
        let cookies = &mut wires.cookies;
        let place = link.index() as usize;
        if cookies.len() <= place {
            cookies.resize(place + 1, 0);
            wires.windows.resize(place + 1, [(0, 0); 2]);
        }
        wires.cookies[place] = cookie;
    }

    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, Vec<u8>>,
    ) -> Result<Sent, SendError> {
        let wires = &mut *self.0.borrow_mut();
        wires.attempts += 1;
        let told = Header::parse(header).expect("what it sends is of the protocol");
        if wires.deaf.get(link.index() as usize) == Some(&true) {
            return Err(SendError::WouldBlock);
        }
        if wires.listen {
            let body = match body {
                Body::Bytes(bytes) => bytes.to_vec(),
                Body::Memory {
                    memory,
                    offset,
                    len,
                } => memory[offset..offset + len].to_vec(),
            };
            wires.sent.push_back((link, told, body));
        }
        if let Some([allowed, _]) = wires.windows.get_mut(link.index() as usize) {
            *allowed = (told.credit_bytes, told.credit_messages);
        }
        Ok(Sent::Whole)
    }

    fn resume(&mut self, _: LinkId, _: &Vec<u8>, _: usize, _: usize) -> Result<Sent, SendError> {
        Err(SendError::Down)
    }

    fn detach(&mut self, _: LinkId, _: &Vec<u8>, _: usize, _: usize) {}

    fn poll<S: Sink<Vec<u8>>>(&mut self, _: &dyn Clock, budget: usize, sink: &mut S) -> bool {
        let mut busy = false;
        for _ in 0..budget {
            let mut wires = self.0.borrow_mut();
            let cookie = |wires: &Wires, link: LinkId| {
                let place = link.index() as usize;
                wires.cookies.get(place).copied().unwrap_or(0)
            };
            if let Some(link) = wires.writable.pop_front() {
                let cookie = cookie(&wires, link);
                drop(wires);
                sink.on_writable(link, cookie);
            } else if let Some((link, header, body)) = wires.inbound.pop_front() {
                let cookie = cookie(&wires, link);
                drop(wires);
                sink.on_packet(link, cookie, &header, &body[..]);
            } else {
                break;
            }
            busy = true;
        }
        busy
    }

    fn close(&mut self, link: LinkId, _: Close) {
        let mut wires = self.0.borrow_mut();
        wires.closed += 1;
        wires.inbound.retain(|(of, _, _)| *of != link);
        let place = link.index() as usize;
        if let Some(cookie) = wires.cookies.get_mut(place) {
            *cookie = 0;
        }
    }

    fn arm(&mut self) -> bool {
        self.0.borrow().inbound.is_empty()
    }

    fn disarm(&mut self) {}
}

/// Keeps what it is told, and answers as a test wants.
pub(crate) struct Desk {
    queue: Queue<Vec<u8>>,
    answer: Answer,
}

/// What becomes of a message that no receive accepts.
pub(crate) type Answer = fn(&Arrival) -> Verdict<Vec<u8>>;

fn keep(_: &Arrival) -> Verdict<Vec<u8>> {
    Verdict::Continue
}

impl Desk {
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.queue.next_completion()
    }

    pub(crate) fn next_down(&mut self) -> Option<Down> {
        self.queue.next_down()
    }
}

impl Queued for Desk {
    fn queue(&mut self) -> &mut Queue<Vec<u8>> {
        &mut self.queue
    }
}

impl Owner for Desk {
    type Memory = Vec<u8>;
    type Word = u64;
    type Places = Chunks<Vec<u8>, u64>;

    fn completed(&mut self, ops: &mut Ops<Self>, op: RequestId, how: Outcome) {
        self.queue.keep(ops, op, how);
    }

    fn down(&mut self, down: Down) {
        self.queue.down(down);
    }

    fn arrived<B: Source + ?Sized>(&mut self, it: &Arrival, _: Option<&B>) -> Verdict<Vec<u8>> {
        (self.answer)(it)
    }

    fn has_news(&self) -> bool {
        self.queue.has_news()
    }
}

pub(crate) type Node = Endpoint<Script, StillClock, Desk>;

/// The endpoint and everybody else.
pub(crate) struct Stage {
    pub(crate) node: Node,
    wires: Rc<RefCell<Wires>>,
}

impl Stage {
    pub(crate) fn new(config: Config) -> Self {
        let wires = Rc::new(RefCell::new(Wires::default()));
        let identity = Identity {
            nic: NicId(0),
            endpoint: EndpointId(1),
            session: SessionId(1),
        };
        let port = Script(wires.clone());
        let desk = Desk {
            queue: Queue::default(),
            answer: keep,
        };
        let node = Endpoint::new(config, identity, KEY, port, StillClock, desk);
        Self { node, wires }
    }

    pub(crate) fn wires<T>(&self, look: impl FnOnce(&mut Wires) -> T) -> T {
        look(&mut self.wires.borrow_mut())
    }

    /// A peer says something.
    pub(crate) fn say(&self, link: u32, mut header: Header, body: &[u8]) {
        header.body_len = body.len() as u32;
        let packet = (LinkId::new(link, 1), header.emit(), body.to_vec());
        self.wires.borrow_mut().inbound.push_back(packet);
    }

    /// A peer introduces itself: on `link`, under the name of peer `name`.
    pub(crate) fn call(&self, link: u32, name: u32) {
        let mut hello = [0; HELLO_LEN];
        hello[0..4].copy_from_slice(b"MXs1");
        hello[4..6].copy_from_slice(&VERSION.to_le_bytes());
        hello[6..8].copy_from_slice(&1u16.to_le_bytes());
        hello[8..12].copy_from_slice(&KEY.to_le_bytes());
        hello[12..16].copy_from_slice(&2u32.to_le_bytes());
        hello[16..24].copy_from_slice(&(u64::from(name) + 1).to_le_bytes());
        hello[24..32].copy_from_slice(&5u64.to_le_bytes());
        let mut header = Header::new(Kind::Connect, 1, 0);
        // What we let it send: everything.
        (header.credit_bytes, header.credit_messages) = (1 << 30, 1 << 30);
        self.say(link, header, &hello);
    }

    /// Peers `0..count` are there.
    pub(crate) fn with_peers(config: Config, count: u32) -> Self {
        let mut stage = Self::new(config);
        for n in 0..count {
            stage.call(n, n);
            if n % 1000 == 999 {
                stage.run();
            }
        }
        stage.run();
        assert_eq!(stage.node.partners(), count as usize);
        stage
    }

    pub(crate) fn eager(&self, link: u32, bits: u64, body: &[u8]) {
        let header = Header::new(Kind::Eager, bits, body.len() as u32);
        self.say(link, header, body);
    }

    pub(crate) fn offer(&self, link: u32, bits: u64, len: u32) {
        let header = Header::new(Kind::Offer, bits, len);
        self.say(link, header, &bits.to_le_bytes());
    }

    /// A peer sends `body` if its window allows, offers it if not, and otherwise says nothing.
    /// False: it may not send a message.
    pub(crate) fn send_honestly(&self, link: u32, bits: u64, body: &[u8]) -> bool {
        let (bytes, messages) = self.window(link);
        if messages == 0 {
            return false;
        }
        let len = body.len() as u32;
        let eager = bytes >= len;
        self.spend(link, if eager { len } else { 0 }, 1);
        match eager {
            true => self.eager(link, bits, body),
            false => self.offer(link, bits, len),
        }
        true
    }

    /// What a peer may still send, bytes and messages.
    pub(crate) fn window(&self, link: u32) -> (u32, u32) {
        let [allowed, sent] = self.wires(|wires| wires.windows[link as usize]);
        let left = |allowed: u32, sent: u32| allowed.wrapping_sub(sent);
        (left(allowed.0, sent.0), left(allowed.1, sent.1))
    }

    /// A peer counts so much of its window as used.
    pub(crate) fn spend(&self, link: u32, bytes: u32, messages: u32) {
        self.wires(|wires| {
            let [_, sent] = &mut wires.windows[link as usize];
            *sent = (sent.0.wrapping_add(bytes), sent.1.wrapping_add(messages));
        });
    }

    /// The peer reads again.
    pub(crate) fn hear(&self, link: u32) {
        self.wires(|wires| {
            wires.deaf[link as usize] = false;
            wires.writable.push_back(LinkId::new(link, 1));
        });
    }

    pub(crate) fn deafen(&self, links: u32) {
        self.wires(|wires| wires.deaf = vec![true; links as usize]);
    }

    /// Lets the endpoint work until nothing happens any more.
    pub(crate) fn run(&mut self) {
        self.run_with(keep);
    }

    /// The same with an answer to what no receive accepts.
    pub(crate) fn run_with(&mut self, answer: Answer) {
        self.node.owner_mut().answer = answer;
        for _ in 0..1_000_000 {
            if !self.node.progress() && self.wires(|wires| wires.inbound.is_empty()) {
                return;
            }
        }
        panic!("the endpoint never comes to rest");
    }

    /// It works once.
    pub(crate) fn work_once(&mut self, answer: Answer) {
        self.node.owner_mut().answer = answer;
        self.node.progress();
    }

    /// The same as [`Self::run`] while something always waits that cannot go: so many calls.
    pub(crate) fn run_while_busy_at_most(&mut self, calls: usize) {
        self.node.owner_mut().answer = keep;
        for _ in 0..calls {
            self.node.progress();
        }
        assert!(self.wires(|wires| wires.inbound.is_empty()));
    }

    /// What it has sent since last asked, of one kind.
    pub(crate) fn sent(&self, kind: Kind) -> Vec<Packet> {
        let all: Vec<_> = self.wires(|wires| wires.sent.drain(..).collect());
        let wanted = all.into_iter().filter(|(_, header, _)| header.kind == kind);
        wanted.collect()
    }

    /// Gives back what the script itself has grown to.
    pub(crate) fn shrink(&self) {
        self.wires(|wires| {
            wires.inbound.shrink_to_fit();
            wires.writable.shrink_to_fit();
            wires.sent = VecDeque::new();
        });
    }
}
