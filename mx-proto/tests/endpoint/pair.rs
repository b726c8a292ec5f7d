//! Two endpoints on a scripted network, on which a test can hold, cut and change everything.

use mx_proto::origin::{LinkOrigin, Source};
use mx_proto::port::{ConnectError, HeaderBytes, Limits, LinkDown, RemoteUse};
use mx_proto::secret::Secret;
use mx_proto::wire::Kind;
use mx_proto::{
    Arrival, Config, Endpoint, EndpointId, Identity, Key, LinkId, MatchBits, MatchMask, NicId,
    ReceivePosted, RemoteId, RequestId, Route, SendMode, SendPosted, SessionId, Status, Target,
    Verdict,
};
use mx_sim::script::{self, Delivery, Ends, Event, RemoteCall};
use mx_sim::{Buffer, Queue, Reports, Script, ScriptedNet, ScriptedPort, Verdicts, VirtualClock};
use std::collections::HashMap;
use std::time::Duration;
use zeroize::Zeroizing;

pub(crate) const KEY: u32 = 0x7076_6673;
pub(crate) const UNEXPECTED_MAX: usize = 300_000;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Answers of an endpoint's owner, as a test wants them.
pub(crate) struct Answers {
    /// The verdict on a message that no receive accepts.
    pub(crate) answer: Answer,
    /// Whether there is memory for messages of the inbox.
    pub(crate) memory: bool,
    /// Turns for which a message was ready.
    pub(crate) ready: Vec<u32>,
    /// Length of each message that the owner was asked about, and the bytes that came.
    pub(crate) asked: Vec<(u32, Vec<u8>)>,
    /// Events of remotes, in the order in which they were told.
    pub(crate) told: Vec<Told>,
}

/// An event of a remote that an owner is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// A message has come from the remote, or a connect to it has been answered.
    Seen(RemoteId),
    /// The two remotes are of one process.
    Joined(RemoteId, RemoteId),
}

pub(crate) type Answer = fn(&Arrival) -> Verdict;

pub(crate) fn keep(_: &Arrival) -> Verdict {
    Verdict::Continue
}

/// Puts every message into the inbox, in the turn that its bits contain.
pub(crate) fn put_in(it: &Arrival) -> Verdict {
    let turn = (it.bits.0 >> 32) as u32 & 0xff;
    Verdict::Inbox { turn }
}

pub(crate) fn defer(_: &Arrival) -> Verdict {
    Verdict::Defer
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            answer: keep,
            memory: true,
            ready: Vec::new(),
            asked: Vec::new(),
            told: Vec::new(),
        }
    }
}

impl Verdicts<Buffer> for Answers {
    fn joins(_: &[u8]) -> bool {
        true
    }

    fn lane(bits: MatchBits) -> mx_proto::flow::Lane {
        if bits.0 >> 63 == 1 {
            mx_proto::flow::Lane::Unexpected
        } else {
            mx_proto::flow::Lane::Matched
        }
    }

    fn arrived<B: mx_proto::Source + ?Sized>(&mut self, it: &Arrival, body: Option<&B>) -> Verdict {
        let body = body.map(mx_proto::Source::to_vec).unwrap_or_default();
        self.asked.push((it.length, body));
        (self.answer)(it)
    }

    fn memory(&mut self, len: usize) -> Option<Buffer> {
        self.memory.then(|| vec![0x5a; len].into())
    }

    fn ready(&mut self, turn: u32) {
        self.ready.push(turn);
    }

    fn joined(&mut self, one: RemoteId, other: RemoteId) {
        self.told.push(Told::Joined(one, other));
    }

    fn seen(&mut self, remote: RemoteId, _: MatchBits) {
        self.told.push(Told::Seen(remote));
    }
}

pub(crate) type Node = Endpoint<ScriptedPort<Ports>, VirtualClock, Queue<Buffer, Answers>>;

/// Operations of a node that most tests begin with.
pub(crate) trait Acts: Reports {
    /// Sends a message in standard mode.
    fn sends(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        data: impl Into<Buffer>,
        context: u64,
    ) -> SendPosted;

    /// Posts a receive for which no message is there yet.
    fn posts(&mut self, bits: MatchBits, buffer: Buffer, context: u64) -> RequestId;

    /// Returns the remotes of endpoint 3 at that interface, oldest first.
    fn named(&self, nic: u64) -> Vec<RemoteId>;

    /// Returns the status of the operation that has ended first.
    fn ended(&mut self) -> Status {
        self.next_completion().expect("one has ended").status
    }
}

impl Acts for Node {
    fn sends(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        data: impl Into<Buffer>,
        context: u64,
    ) -> SendPosted {
        self.send(to, bits, data.into(), context, SendMode::Standard)
            .unwrap()
    }

    fn posts(&mut self, bits: MatchBits, buffer: Buffer, context: u64) -> RequestId {
        match self.recv(bits, MatchMask::EXACT, buffer, context).unwrap() {
            ReceivePosted::Pending(id) => id,
            ReceivePosted::Complete(done) => panic!("completed at once: {done:?}"),
        }
    }

    fn named(&self, nic: u64) -> Vec<RemoteId> {
        self.remotes_of(NicId(nic), EndpointId(3)).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    A,
    B,
}

/// A packet's header and body.
type Bytes = (HeaderBytes, Vec<u8>);

/// The ports of a (node 0) and b (node 1), and the state of the network.
#[derive(Default, Debug)]
pub(crate) struct Ports {
    hold_data: bool,
    /// Whether the network cannot tell b who its peers are.
    unnamed: bool,
    /// Whether no translator changes the addresses that are called.
    no_translator: bool,
    /// The interface at the other end of a cable, if it is not the claimed one.
    seen: HashMap<u32, u64>,
    /// Cables whose peer is the test and reads nothing.
    deaf: Vec<u32>,
    /// Whether ports ask for the place of a message when its header has come.
    streams: bool,
    /// Whether ports can read memory of the other side; a read begins, and ends only when the test
    /// says so.
    reads_remotely: bool,
    /// Whether a read that is rejected would end the link.
    refusals_end_links: bool,
    /// Tokens of stopped reads, and of closed registrations.
    stopped: Vec<u64>,
    deregistered: Vec<u64>,
    /// The token of the last read, and a handle of the memory that it goes to.
    reading: Option<(u64, Buffer)>,
    /// All packets that were sent, and whether the test has read them as the peer.
    heard: Vec<(LinkId, Bytes, bool)>,
}

/// Another address of a's machine.
const ALIAS_OF_A: u64 = 102;

/// An interface at which the test plays the peer.
pub(crate) const IMPOSTOR: u64 = 107;

/// Number of packets that a lane holds before the sender must wait.
const ROOM: usize = 8;

/// Bytes of the rest of a packet that a lane takes at a time.
const PART: usize = 20 * 1024;

impl Script for Ports {
    type Memory = Buffer;

    fn limits(&self) -> Limits {
        Limits {
            packet_max: 32 * 1024,
            streamed_max: if self.streams { 512 << 10 } else { 0 },
            data_max: 64 * 1024,
            pull_block: 96 * 1024,
            remote_read: self.reads_remotely,
            refusal_ends_link: self.refusals_end_links,
            data_links: 0,
        }
    }

    fn connect(
        &mut self,
        _: usize,
        target: Target,
    ) -> Result<(Option<usize>, Option<Event>), ConnectError> {
        Ok(match target.nic.0 {
            100 | ALIAS_OF_A => (Some(0), Some(Event::Up)),
            101 | 999 => (Some(1), Some(Event::Up)),
            IMPOSTOR => (None, Some(Event::Up)),
            _ => (None, Some(Event::Down(LinkDown::Refused))),
        })
    }

    fn seen(&self, link: LinkId, ends: Ends, claimed: &Identity) -> LinkOrigin {
        let end = link.generation() as usize;
        let nic = match (self.seen.get(&link.index()), ends[1 - end]) {
            (Some(nic), _) => NicId(*nic),
            (None, None) => claimed.nic,
            (None, Some(node)) => NicId(100 + node as u64),
        };
        LinkOrigin {
            source: Source::TRUSTED,
            user: None,
            nic: (!self.unnamed || ends[end] != Some(1)).then_some(nic),
            oneself: ends[0] == ends[1],
        }
    }

    fn has_interface(&self, node: usize, nic: NicId) -> bool {
        let alias = if node == 0 { ALIAS_OF_A } else { 999 };
        let own = nic.0 == 100 + node as u64 || nic.0 == alias;
        own || !self.no_translator
    }

    fn refuses(&mut self, link: LinkId, header: &HeaderBytes) -> bool {
        let held = self.hold_data && header[0] == Kind::Data as u8;
        held || self.deaf.contains(&link.index())
    }

    fn part(&self, len: usize, first: bool) -> usize {
        if first { len / 2 } else { len.min(PART) }
    }

    fn delivery(&self, len: usize) -> Delivery {
        match len {
            ..=1000 => Delivery::Whole,
            _ if self.streams => Delivery::Halves,
            _ => Delivery::Placed { begin: false },
        }
    }

    fn on_sent(&mut self, link: LinkId, header: &HeaderBytes, body: &[u8]) {
        self.heard.push((link, (*header, body.to_vec()), false));
    }

    fn on_remote_call(&mut self, call: RemoteCall<'_, Buffer>) {
        match call {
            RemoteCall::Deregister(key) => self.deregistered.push(key.address),
            RemoteCall::Read(token, memory) => self.reading = Some((token, memory.share())),
            RemoteCall::Stop(token) => self.stopped.push(token),
            RemoteCall::Recall(token) => {
                let (reading, memory) = self.reading.as_ref().expect("it is read");
                let held = *reading == token && memory.handles() > 1;
                assert!(held, "memory went while a port could write to it");
            }
        }
    }
}

/// Returns the end of a cable that began it, and the other end.
fn ends(cable: usize) -> [LinkId; 2] {
    [0, 1].map(|end| script::link(cable as u32, end))
}

pub(crate) struct Pair {
    pub(crate) a: Node,
    pub(crate) b: Node,
    pub(crate) freeze_b: bool,
    pub(crate) hold_data: bool,
    net: ScriptedNet<Ports>,
    clock: VirtualClock,
    sessions: u64,
    secret_of_a: Option<Secret>,
}

/// Makes the secret of these letters.
pub(crate) fn secret(letters: &str) -> Secret {
    Secret::new(Zeroizing::new(letters.as_bytes().to_vec()))
}

fn settings(keep_tombstones: usize) -> Config {
    Config {
        unexpected_bytes: UNEXPECTED_MAX,
        request_timeout: Some(TIMEOUT),
        waiting_timeout: Some(TIMEOUT),
        peer_timeout: None,
        keep_tombstones,
        connect_again: keep_tombstones > 0,
        ..Config::default()
    }
}

fn node(
    net: &ScriptedNet<Ports>,
    clock: &VirtualClock,
    config: Config,
    number: usize,
    session: u64,
) -> Node {
    let identity = Identity {
        nic: NicId(100 + number as u64),
        endpoint: EndpointId(3),
        session: SessionId(session),
    };
    let port = net.port(number);
    Endpoint::new(config, identity, KEY, port, clock.clone(), Queue::default())
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::keeping(0)
    }

    /// Makes a pair that keeps so many messages of lost senders, and connects again unless that is
    /// 0.
    pub(crate) fn keeping(tombstones: usize) -> Self {
        Self::of(settings(tombstones), settings(tombstones))
    }

    fn of(a: Config, b: Config) -> Self {
        let net = ScriptedNet::<Ports>::default();
        net.with(|net| net.room = Some(ROOM));
        let clock = VirtualClock::default();
        Self {
            a: node(&net, &clock, a, 0, 1),
            b: node(&net, &clock, b, 1, 2),
            freeze_b: false,
            hold_data: false,
            net,
            clock,
            sessions: 2,
            secret_of_a: None,
        }
    }

    /// Returns everything that the network and the ports have, for comparisons.
    pub(crate) fn port_states(&self) -> String {
        format!("{:?}", self.net)
    }

    /// Makes another port of a's to the same network.
    pub(crate) fn another_port(&self) -> ScriptedPort<Ports> {
        self.net.port(0)
    }

    /// Makes a pair in which each side has a key, and the site's secret as it believes it to be; a
    /// poll takes `poll_budget` packets.
    pub(crate) fn with_secrets(
        a: Option<&str>,
        b: Option<&str>,
        tombstones: usize,
        poll_budget: usize,
    ) -> Self {
        let config = |key, letters: Option<&str>| Config {
            key: Key([key; 16]),
            secret: letters.map(secret),
            poll_budget,
            ..settings(tombstones)
        };
        Self {
            secret_of_a: a.map(secret),
            ..Self::of(config(1, a), config(2, b))
        }
    }

    /// Makes a pair in which each side offers registered memory or not.
    pub(crate) fn with_regions(a: bool, b: bool) -> Self {
        let config = |regions| Config {
            regions,
            ..settings(0)
        };
        Self::of(config(a), config(b))
    }

    /// Returns a target that leads to the test.
    pub(crate) fn impostor(&self) -> Target {
        Target {
            nic: NicId(IMPOSTOR),
            endpoint: EndpointId(3),
            route: Route::AUTO,
        }
    }

    /// Has a call b. Returns the status of the connect and a's name for b.
    pub(crate) fn call(&mut self) -> (Status, RemoteId) {
        let target = self.target(Side::B);
        self.a.connect(target, KEY, MatchBits(0), 1).unwrap();
        self.run();
        let done = self.a.next_completion().expect("it ends at once");
        (done.status, done.remote)
    }

    /// Connects a to b, which has to succeed. Returns a's name for b.
    pub(crate) fn connected(&mut self) -> RemoteId {
        let (status, b) = self.call();
        assert_eq!(status, Status::Success);
        b
    }

    /// Sends a message from a to b, which receives it.
    pub(crate) fn talk(&mut self, b: RemoteId) {
        let (bits, data) = (MatchBits(9), Buffer::from(vec![5; 100]));
        self.a.send(b, bits, data, 0, SendMode::Standard).unwrap();
        self.run();
        let got = self
            .b
            .recv(bits, MatchMask::EXACT, Buffer::from(vec![0; 100]), 0);
        assert!(matches!(got, Ok(ReceivePosted::Complete(_))));
    }

    /// Makes a pair whose ports ask for the place of a message when its header has come.
    pub(crate) fn streaming(first_credits: u16) -> Self {
        let pair = Self::lending(first_credits);
        pair.net.with(|net| net.script.streams = true);
        pair
    }

    /// Makes a pair whose ports read memory of the other side.
    pub(crate) fn reading_remotely() -> Self {
        let pair = Self::new();
        pair.read_remotely();
        pair
    }

    /// Lets ports read memory of the other side from now on.
    pub(crate) fn read_remotely(&self) {
        self.net.with(|net| net.script.reads_remotely = true);
    }

    /// Makes a pair of which each side reads the other's memory, and a rejected read ends the link.
    pub(crate) fn reading_over_connections() -> Self {
        let pair = Self::reading_remotely();
        pair.net.with(|net| net.script.refusals_end_links = true);
        pair
    }

    /// Returns the tokens of b's stopped reads.
    pub(crate) fn stopped(&self) -> Vec<u64> {
        self.net.with(|net| net.script.stopped.clone())
    }

    /// Returns the tokens of closed registrations.
    pub(crate) fn closed(&self) -> Vec<u64> {
        self.net.with(|net| net.script.deregistered.clone())
    }

    /// Ends a read of b's.
    pub(crate) fn end_read(&mut self, token: u64, ok: bool) {
        self.tell(ends(0)[1], Event::Read(token, ok));
        self.run();
    }

    /// Returns the token of the last read that has begun.
    pub(crate) fn reading(&self) -> Option<u64> {
        self.net.with(|net| Some(net.script.reading.as_ref()?.0))
    }

    /// Reports to one side that its port moves bytes.
    pub(crate) fn moves(&mut self, side: Side, what: RemoteUse) {
        self.tell(ends(0)[side as usize], Event::Activity(what));
        self.run();
    }

    /// Has the second half of a body wait for another event of its link from now on, or come at
    /// once.
    pub(crate) fn stop_midway(&self, stop: bool) {
        self.net.with(|net| {
            net.halts = stop;
            let links: Vec<_> = net.links(1).filter(|_| !stop).collect();
            for link in links {
                net.tell(link, Event::Writable);
            }
        });
    }

    /// Has ports say from now on whether there is room when they are asked.
    pub(crate) fn tell_of_room(&self) {
        self.net.with(|net| net.tells_of_room = true);
    }

    /// Returns packets that the calling end has sent on a link, each once.
    pub(crate) fn said(&mut self, cable: usize) -> Vec<(HeaderBytes, Vec<u8>)> {
        self.read(ends(cable)[0])
    }

    /// Stops reading the test's end of a cable.
    pub(crate) fn read_nothing(&mut self, cable: usize) {
        self.net.with(|net| net.script.deaf.push(cable as u32));
    }

    /// Reads the calling end of a cable again.
    pub(crate) fn read_again(&mut self, cable: usize) {
        self.net.with(|net| {
            net.script.deaf.retain(|deaf| *deaf != cable as u32);
            net.tell(ends(cable)[1], Event::Writable);
        });
        self.run();
    }

    /// Sends a packet to the calling end of a cable.
    pub(crate) fn answer(&mut self, cable: usize, header: HeaderBytes, body: Vec<u8>) {
        let link = ends(cable)[0];
        self.net.with(|net| net.inject(link, header, body));
    }

    /// Makes a pair whose unmatched sends have no time-out.
    pub(crate) fn waiting_for_ever() -> Self {
        let config = Config {
            waiting_timeout: None,
            ..settings(0)
        };
        Self::of(config.clone(), config)
    }

    /// Makes a pair in which b fetches messages of up to `fetched_max` bytes into its inbox.
    pub(crate) fn with_inbox(fetched_max: u32) -> Self {
        let config = Config {
            fetched_max,
            ..settings(0)
        };
        Self::of(settings(0), config)
    }

    /// Makes a pair in which b lends `first_credits` credits at first.
    pub(crate) fn lending(first_credits: u16) -> Self {
        let config = Config {
            first_credits,
            ..settings(0)
        };
        Self::of(settings(0), config)
    }

    /// Makes a pair in which a asks for credits before it announces, and b has `credits` credits in
    /// all.
    pub(crate) fn asking(credits: usize, first_credits: u16) -> Self {
        let patient = Config {
            ask_before_announcing: true,
            ..settings(0)
        };
        let lender = Config {
            unexpected_bytes: credits * mx_proto::flow::CREDIT,
            first_credits,
            ..settings(0)
        };
        Self::of(patient, lender)
    }

    pub(crate) fn target(&self, side: Side) -> Target {
        let nic = NicId(if side == Side::A { 100 } else { 101 });
        Target {
            nic,
            endpoint: EndpointId(3),
            route: Route::AUTO,
        }
    }

    /// Returns another interface of b's host.
    pub(crate) fn alias_of_b(&self) -> Target {
        Target {
            nic: NicId(999),
            endpoint: EndpointId(3),
            route: Route::AUTO,
        }
    }

    /// Returns another interface of a's host.
    pub(crate) fn alias_of_a(&self) -> Target {
        Target {
            nic: NicId(ALIAS_OF_A),
            ..self.target(Side::A)
        }
    }

    pub(crate) fn nowhere(&self) -> Target {
        Target {
            nic: NicId(1),
            endpoint: EndpointId(3),
            route: Route::AUTO,
        }
    }

    pub(crate) fn shared(&self, len: usize) -> Buffer {
        vec![0xaa; len].into()
    }

    pub(crate) fn filled(&self, bytes: Vec<u8>) -> Buffer {
        bytes.into()
    }

    /// Lets both sides work until nothing happens any more.
    pub(crate) fn run(&mut self) {
        self.run_with(keep);
    }

    /// Runs with `answer` as b's verdict on messages that no receive accepts.
    pub(crate) fn run_with(&mut self, answer: Answer) {
        self.b.owner_mut().answer = answer;
        self.net.with(|net| {
            net.script.hold_data = self.hold_data;
            net.wake_senders();
        });
        let mut quiet = 0;
        for _ in 0..100_000 {
            let mut busy = self.a.progress();
            self.a.take_events();
            if !self.freeze_b {
                busy |= self.b.progress();
                self.b.take_events();
            }
            quiet = if busy { 0 } else { quiet + 1 };
            if quiet == 3 {
                return;
            }
        }
        panic!("the endpoints never come to rest");
    }

    /// Makes one progress call of b with that verdict. Returns whether it did anything.
    pub(crate) fn b_works(&mut self, answer: Answer) -> bool {
        self.b.owner_mut().answer = answer;
        let busy = self.b.progress();
        self.b.owner_mut().answer = keep;
        busy
    }

    /// Lets time pass in ten steps or more, none of which counts as an absence.
    pub(crate) fn advance(&mut self, span: Duration) {
        let steps = (span.as_secs() as u32 * 2).max(10);
        for _ in 0..steps {
            self.clock.advance(span / steps);
            self.run();
        }
    }

    /// Returns the number of links so far.
    pub(crate) fn links(&self) -> usize {
        self.net.with(|net| net.cables() as usize)
    }

    /// Holds what arrives on these links, the oldest being 0, and lets everything arrive on all
    /// others.
    pub(crate) fn hold(&mut self, links: &[usize]) {
        let held = links.iter().map(|link| *link as u32).collect();
        self.net.with(|net| net.held = held);
    }

    /// Has a side take in at most what is next on one link.
    pub(crate) fn step(&mut self, side: Side, link: usize) {
        self.net.with(|net| {
            let all = 0..net.cables();
            net.held = all.filter(|other| *other as usize != link).collect();
        });
        match side {
            Side::A => self.a.progress(),
            Side::B => self.b.progress(),
        };
        self.hold(&[]);
    }

    /// Has the port look at its newest link first.
    pub(crate) fn newest_first(&mut self) {
        self.net.with(|net| net.newest_first = true);
    }

    /// Resets every link.
    pub(crate) fn cut(&mut self) {
        self.net.with(|net| net.cut(LinkDown::Reset));
    }

    /// Returns the ends at which something waits: a side and its link.
    pub(crate) fn due(&self) -> Vec<(Side, usize)> {
        self.net.with(|net| {
            let ends: [Vec<_>; 2] = [(0, Side::A), (1, Side::B)].map(|(node, side)| {
                let links = net
                    .links(node)
                    .filter(|link| !net.end(*link).inbox.is_empty());
                links.map(|link| (side, link.index() as usize)).collect()
            });
            let mut due = ends.concat();
            due.dedup();
            due
        })
    }

    /// Makes a pair that loses peers which have been silent for `peer_timeout`.
    pub(crate) fn losing(peer_timeout: Duration) -> Self {
        let config = Config {
            peer_timeout: Some(peer_timeout),
            ..settings(0)
        };
        Self::of(config.clone(), config)
    }

    /// Resets a link.
    pub(crate) fn cut_link(&mut self, cable: usize) {
        for end in ends(cable) {
            self.tell(end, Event::Down(LinkDown::Reset));
        }
    }

    /// Replaces a by another session without telling b.
    pub(crate) fn restart_a_silently(&mut self) {
        self.sessions += 1;
        self.net.with(|net| net.forget(0));
        self.a = node(&self.net, &self.clock, settings(0), 0, self.sessions);
    }

    /// Closes a and opens it again at once, as another session.
    pub(crate) fn reopen_a(&mut self, tombstones: usize) {
        self.sessions += 1;
        self.a.close();
        let config = Config {
            key: Key([self.sessions as u8; 16]),
            secret: self.secret_of_a.clone(),
            ..settings(tombstones)
        };
        self.a = node(&self.net, &self.clock, config, 0, self.sessions);
    }

    /// Makes a link to b whose calling end the test plays.
    pub(crate) fn stranger(&mut self) -> usize {
        self.net.with(|net| net.lay([None, Some(1)]) as usize)
    }

    pub(crate) fn inject(&mut self, cable: usize, header: HeaderBytes, body: Vec<u8>) {
        let link = ends(cable)[1];
        self.net.with(|net| net.inject(link, header, body));
    }

    /// Returns the packet that b receives next on link 0.
    pub(crate) fn next_for_b(&self) -> Option<(HeaderBytes, Vec<u8>)> {
        self.net
            .with(|net| match net.end(ends(0)[1]).inbox.front()? {
                Event::Packet(header, body, _) => Some((*header, body.clone())),
                _ => None,
            })
    }

    /// Leaves called addresses unchanged from now on.
    pub(crate) fn translate_none(&mut self) {
        self.net.with(|net| net.script.no_translator = true);
    }

    /// Hides from b who its peers are, from now on.
    pub(crate) fn unname(&mut self) {
        self.net.with(|net| net.script.unnamed = true);
    }

    /// Sets the interface at the other end of a cable.
    pub(crate) fn seen_as(&mut self, cable: usize, nic: u64) {
        self.net
            .with(|net| net.script.seen.insert(cable as u32, nic));
    }

    /// Returns the body of the first packet of that kind that was sent.
    pub(crate) fn overheard(&self, kind: Kind) -> Vec<u8> {
        self.all_of(kind).remove(0).1
    }

    fn all_of(&self, kind: Kind) -> Vec<Bytes> {
        self.net.with(|net| {
            let all = net.script.heard.iter().map(|(_, packet, _)| packet);
            let wanted = all.filter(|(header, _)| header[0] == kind as u8);
            wanted.cloned().collect()
        })
    }

    /// Returns packets from that end of a cable that have not been read.
    fn read(&self, link: LinkId) -> Vec<Bytes> {
        self.net.with(|net| {
            let all = net.script.heard.iter_mut();
            let unread = all.filter(|(from, _, read)| *from == link && !read);
            let read = unread.map(|(_, packet, read)| {
                *read = true;
                packet.clone()
            });
            read.collect()
        })
    }

    fn tell(&self, link: LinkId, event: Event) {
        self.net.with(|net| net.tell(link, event));
    }

    /// Returns packets that b has sent on a link that it did not begin, and whether b has closed
    /// it.
    pub(crate) fn told(&mut self, cable: usize) -> (Vec<(HeaderBytes, Vec<u8>)>, bool) {
        let link = ends(cable)[1];
        (self.read(link), self.net.with(|net| net.end(link).closed))
    }

    /// Returns whether the calling end has closed that link.
    pub(crate) fn left(&self, cable: usize) -> bool {
        self.net.with(|net| net.end(ends(cable)[0]).closed)
    }

    /// Makes a pair in which each side has a key, as a host gives one to each endpoint.
    pub(crate) fn with_keys() -> Self {
        let config = |key| Config {
            key: Key([key; 16]),
            ..settings(0)
        };
        Self::of(config(1), config(2))
    }

    /// Sends a packet to b as if it came from a.
    pub(crate) fn inject_from_a(&mut self, header: HeaderBytes, body: Vec<u8>) {
        self.inject(0, header, body);
    }
}
