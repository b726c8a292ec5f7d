//! An endpoint, and a network on which the test plays all peers.
//!
//! ```text
//!   test --say(link, packet)--> ScriptedPort --> Endpoint --> Peers: the packets sent, or no room
//! ```
//!
//! Peer `n` has link `n` and the name `n + 1`. It sends what the test tells it to send, true or
//! not.

use mx_proto::flow::{Borrower, Lane, Payment, cost};
use mx_proto::origin::{self, LinkOrigin};
use mx_proto::port::{HeaderBytes, Limits, LinkDown};
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{
    Arrival, Config, Endpoint, EndpointId, Identity, Instant, LinkId, MatchBits, NicId, RemoteId,
    SessionId, Source, Verdict,
};
use mx_sim::script::{self, Ends, Event};
use mx_sim::{Queue, Reports, Script, ScriptedNet, ScriptedPort, Verdicts, VirtualClock};
use std::collections::VecDeque;

pub(crate) const KEY: u32 = 7;

/// Makes a clock that stands still.
pub(crate) fn still() -> VirtualClock {
    let clock = VirtualClock::new();
    clock.advance_to(Instant(1));
    clock
}

/// The least match bits of a message in the lane of unexpected messages.
pub(crate) const UNEXPECTED: u64 = 1 << 63;

/// A packet to the endpoint, or from it.
pub(crate) type Packet = (LinkId, Header, Vec<u8>);

/// The peers, which the test plays: peer `n` at its end of cable `n`.
#[derive(Default, Debug)]
pub(crate) struct Peers {
    /// The credits lent to each peer, as the peer counts them.
    credits: Vec<Borrower>,
    /// The sources of the links, by number; missing ones are trusted.
    pub(crate) sources: Vec<origin::Source>,
    /// Limit of the data links of a session.
    pub(crate) data_links: u32,
    /// Whether the peer of each link reads nothing.
    pub(crate) deaf: Vec<bool>,
    /// Whether to keep the packets that the endpoint sends.
    pub(crate) listen: bool,
    pub(crate) sent: VecDeque<Packet>,
    /// Number of attempts of the endpoint to send.
    pub(crate) attempts: u64,
}

impl Script for Peers {
    type Memory = Vec<u8>;

    fn limits(&self) -> Limits {
        Limits {
            packet_max: 32 << 10,
            streamed_max: 0,
            data_max: 64 << 10,
            pull_block: 96 << 10,
            remote_read: false,
            refusal_ends_link: false,
            data_links: self.data_links,
        }
    }

    fn seen(&self, link: LinkId, _: Ends, claimed: &Identity) -> LinkOrigin {
        let source = self.sources.get(link.index() as usize).copied();
        LinkOrigin {
            source: source.unwrap_or(origin::Source::TRUSTED),
            ..LinkOrigin::trusted(claimed)
        }
    }

    fn refuses(&mut self, link: LinkId, _: &HeaderBytes) -> bool {
        self.attempts += 1;
        self.deaf.get(link.index() as usize) == Some(&true)
    }

    fn on_sent(&mut self, link: LinkId, header: &HeaderBytes, body: &[u8]) {
        let told = Header::parse(header).expect("what it sends is of the protocol");
        let credits = &mut self.credits[link.index() as usize];
        match told.kind {
            Kind::Reply => *credits = Borrower::open(told.credit_fields.credit),
            _ => _ = credits.on_credit_fields(&told.credit_fields),
        }
        if self.listen {
            self.sent.push_back((link, told, body.to_vec()));
        }
    }
}

/// Returns the endpoint's end of the link of peer `n`.
fn link(n: u32) -> LinkId {
    script::link(n, 1)
}

/// Answers of the endpoint's owner, as a test wants them.
pub(crate) struct Answers {
    answer: Answer,
}

/// The verdict on a message that no receive accepts.
pub(crate) type Answer = fn(&Arrival) -> Verdict;

fn keep(_: &Arrival) -> Verdict {
    Verdict::Continue
}

impl Verdicts<Vec<u8>> for Answers {
    fn lane(bits: MatchBits) -> Lane {
        Lane::ALL[usize::from(bits.0 >= UNEXPECTED)]
    }

    fn arrived<B: Source + ?Sized>(&mut self, it: &Arrival, _: Option<&B>) -> Verdict {
        (self.answer)(it)
    }

    fn memory(&mut self, len: usize) -> Option<Vec<u8>> {
        Some(vec![0; len])
    }
}

pub(crate) type Node = Endpoint<ScriptedPort<Peers>, VirtualClock, Queue<Vec<u8>, Answers>>;

/// The endpoint and all its peers.
pub(crate) struct Stage {
    pub(crate) node: Node,
    /// The credits that each peer claims to need for messages of its own that wait.
    pub(crate) backlog: u32,
    pub(crate) clock: VirtualClock,
    net: ScriptedNet<Peers>,
}

impl Stage {
    pub(crate) fn new(config: Config) -> Self {
        let net = ScriptedNet::<Peers>::default();
        let identity = Identity {
            nic: NicId(0),
            endpoint: EndpointId(1),
            session: SessionId(1),
        };
        let port = net.port(0);
        let owner = Queue::new(Answers { answer: keep });
        let clock = still();
        let node = Endpoint::new(config, identity, KEY, port, clock.clone(), owner);
        Self {
            node,
            backlog: 0,
            clock,
            net,
        }
    }

    pub(crate) fn peers<T>(&self, look: impl FnOnce(&mut Peers) -> T) -> T {
        self.net.with(|net| look(&mut net.script))
    }

    /// Returns the endpoint's name for peer `n`, which has called under its own name.
    pub(crate) fn remote_of(&self, n: u32) -> RemoteId {
        let mut remotes = self.node.remotes_of(NicId(u64::from(n) + 1), EndpointId(2));
        remotes.next().expect("it has called")
    }

    /// Breaks the link of a peer.
    pub(crate) fn break_link(&self, n: u32) {
        self.net
            .with(|net| net.tell(link(n), Event::Down(LinkDown::Reset)));
    }

    /// Sends a packet of a peer.
    pub(crate) fn say(&self, n: u32, mut header: Header, body: &[u8]) {
        header.body_len = body.len() as u32;
        self.net.with(|net| {
            while net.cables() <= n {
                net.lay([None, Some(0)]);
                net.script.credits.push(Borrower::default());
            }
            net.inject(link(n), header.emit(), body.to_vec());
        });
    }

    /// Sends bytes of a peer, which may be no packet of the protocol.
    pub(crate) fn say_bytes(&self, n: u32, header: HeaderBytes, body: &[u8]) {
        self.net
            .with(|net| net.inject(link(n), header, body.to_vec()));
    }

    /// Introduces a peer on `link` under the name of peer `name`, as a peer that lends a
    /// practically unlimited number of credits.
    pub(crate) fn call(&self, link: u32, name: u32) {
        self.call_as(link, name, VERSION, 1 << 30);
    }

    /// Introduces a peer that speaks `version` and lends `credits` credits.
    pub(crate) fn call_as(&self, link: u32, name: u32, version: u16, credits: u32) {
        self.call_from((link, name, 5), version, credits);
    }

    /// Introduces a peer in one of its lives.
    pub(crate) fn call_from(&self, (link, name, life): (u32, u32, u8), version: u16, credits: u32) {
        let (header, hello) = introduction((name, life), version, credits);
        self.say(link, header, &hello);
    }

    /// Makes a stage on which peers `0..count` are connected.
    pub(crate) fn with_peers(config: Config, count: u32) -> Self {
        let mut stage = Self::new(config);
        for n in 0..count {
            stage.call(n, n);
            if n % 1000 == 999 {
                stage.run();
            }
        }
        stage.run();
        assert_eq!(stage.node.remotes(), count as usize);
        stage
    }

    /// Sends a message of a peer regardless of its credits.
    pub(crate) fn eager(&self, link: u32, bits: u64, body: &[u8]) {
        let header = Header::new(Kind::Eager, bits, body.len() as u32);
        self.say(link, header, body);
    }

    /// Offers a message of a peer.
    pub(crate) fn offer(&self, link: u32, bits: u64, len: u32) {
        let header = Header::new(Kind::Offer, bits, len);
        self.say(link, header, &bits.to_le_bytes());
    }

    /// Sends `body` of a peer as an endpoint of ours does: with its data, or offered, or in the
    /// slot of the matched lane; tells the endpoint which credits are missing. Returns false if the
    /// message may not be sent and only the need was told.
    pub(crate) fn send_honestly(&self, link: u32, bits: u64, body: &[u8]) -> bool {
        self.send_in(Lane::Matched, link, bits, body)
    }

    /// Sends a message of a peer in a lane, as [`Self::send_honestly`] does.
    pub(crate) fn send_in(&self, lane: Lane, link: u32, bits: u64, body: &[u8]) -> bool {
        let (len, price) = (body.len() as u32, cost(body.len() as u32));
        let credits = self.credits_of(link);
        let wanted = credits.wanted(price.max(self.backlog));
        let whole = credits.payment(price, lane);
        let paid = whole.or_else(|| credits.payment(1, lane));
        let kind = match (whole, paid) {
            (Some(_), _) => Kind::Eager,
            (None, Some(_)) => Kind::Offer,
            (None, None) if wanted == 0 => return false,
            (None, None) => Kind::Credit,
        };
        let mut header = Header::new(kind, bits, len);
        header.aux = paid.map_or(0, Payment::aux);
        header.credit_fields.wanted = wanted;
        let name = bits.to_le_bytes();
        self.say(
            link,
            header,
            match kind {
                Kind::Eager => body,
                Kind::Offer => &name,
                _ => &[],
            },
        );
        self.peers(|peers| {
            let credits = &mut peers.credits[link as usize];
            credits.on_said(wanted);
            if let Some(paid) = paid {
                credits.pay(paid);
            }
        });
        paid.is_some()
    }

    /// Returns the credits lent to a peer.
    pub(crate) fn credits_of(&self, link: u32) -> Borrower {
        self.peers(|peers| peers.credits[link as usize])
    }

    /// Returns the number of credits that a peer may still use.
    pub(crate) fn free(&self, link: u32) -> u32 {
        self.credits_of(link).free()
    }

    /// Counts `credits` credits of a peer as used.
    pub(crate) fn spend(&self, link: u32, credits: u32) {
        self.peers(|peers| peers.credits[link as usize].pay(Payment::Credits(credits)));
    }

    /// Returns credits of a peer as an endpoint of ours answers a Revoke for `asked` credits.
    pub(crate) fn give_back(&self, link: u32, asked: u32) -> u32 {
        let back = self.peers(|peers| peers.credits[link as usize].give_back(asked, 0));
        self.say(link, Header::new(Kind::Return, 0, back), &[]);
        back
    }

    /// Lets a peer read again.
    pub(crate) fn hear(&self, n: u32) {
        self.net.with(|net| {
            net.script.deaf[n as usize] = false;
            net.tell(link(n), Event::Writable);
        });
    }

    pub(crate) fn deafen(&self, links: u32) {
        self.peers(|peers| peers.deaf = vec![true; links as usize]);
    }

    /// Lets the endpoint work until nothing happens any more.
    pub(crate) fn run(&mut self) {
        self.run_with(keep);
    }

    /// Runs with `answer` as the verdict on messages that no receive accepts.
    pub(crate) fn run_with(&mut self, answer: Answer) {
        self.node.owner_mut().answer = answer;
        for _ in 0..1_000_000 {
            let busy = self.node.progress();
            self.node.take_events();
            if !busy && !self.net.with(|net| net.is_due(0)) {
                return;
            }
        }
        panic!("the endpoint never comes to rest");
    }

    /// Makes `calls` progress calls, for cases in which something always waits that cannot be sent.
    pub(crate) fn run_while_busy_at_most(&mut self, calls: usize) {
        self.node.owner_mut().answer = keep;
        for _ in 0..calls {
            self.node.progress();
            self.node.take_events();
        }
        assert!(!self.net.with(|net| net.is_due(0)));
    }

    /// Returns the packets of one kind that the endpoint has sent, and drops those of other kinds.
    pub(crate) fn sent(&self, kind: Kind) -> Vec<Packet> {
        let all: Vec<_> = self.peers(|peers| peers.sent.drain(..).collect());
        let wanted = all.into_iter().filter(|(_, header, _)| header.kind == kind);
        wanted.collect()
    }
}

/// Makes the introduction of a peer in one of its lives.
fn introduction((name, life): (u32, u8), version: u16, credits: u32) -> (Header, [u8; HELLO_LEN]) {
    let mut hello = [0; HELLO_LEN];
    hello[0..4].copy_from_slice(b"MXs1");
    hello[4..6].copy_from_slice(&version.to_le_bytes());
    hello[6..8].copy_from_slice(&1u16.to_le_bytes());
    hello[8..12].copy_from_slice(&KEY.to_le_bytes());
    hello[12..16].copy_from_slice(&2u32.to_le_bytes());
    hello[16..24].copy_from_slice(&(u64::from(name) + 1).to_le_bytes());
    hello[24] = life;
    hello[25..29].copy_from_slice(&name.to_le_bytes());
    // The peer can have data links.
    hello[44] = 1;
    let mut header = Header::new(Kind::Connect, 1, 0);
    header.credit_fields.credit = credits;
    (header, hello)
}
