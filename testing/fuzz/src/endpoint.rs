//! An endpoint whose peers keep the rules of the transport, but not those of the protocol.
//!
//! ```text
//!   application: connect send recv cancel disconnect decide          exactly one end each
//!        |
//!     Endpoint         heap, remotes and unexpected bytes bounded, no panic
//!        |
//!   HostilePort <- packets: valid answers to what was sent, nearly valid ones, any
//! ```

use crate::input::Input;
use crate::link::{
    Buffer, HostileNet, PACKET_MAX, STREAMED_MAX, link, links, open, sent, tell_all, tell_packet,
};
use crate::meter::{self, within};
use crate::packets::{put, u32_at, u64_at};
use crate::peers::{HostileEndpoint, KEY, begin, hello, packet, target};
use crate::program::{Program, run};
use mx_proto::memory::Source;
use mx_proto::port::{HEADER_LEN, HeaderBytes, LinkDown};
use mx_proto::{
    Arrival, Config, Decision, Deferred, EndpointId, InboxStats, LinkId, MatchBits, MatchMask,
    NicId, ReceivePosted, RegionKey, RemoteId, RequestId, Rights, Route, SendMode, SendPosted,
    Status, Verdict,
};
use mx_sim::script::Event;
use mx_sim::{Queue, Reports, Verdicts, VirtualClock};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Steps of one program.
const STEPS_MAX: usize = 400;
const REMOTES: usize = 6;
const UNEXPECTED: usize = 128 << 10;

/// Heap of an endpoint with [`config`]: unexpected messages, and 32 KiB for each remote's tables
/// and for each link's waiting packets.
const HEAP_MAX: isize = (UNEXPECTED + 12 * (32 << 10) + (256 << 10)) as isize;

/// Operations under way at a time.
const POSTED_MAX: usize = 32;
/// Regions registered at a time.
const REGIONS_MAX: usize = 8;
/// Links open at a time.
const LINKS_MAX: usize = 12;

/// Heap for the transitions that debug builds record, once for all endpoints.
const BOOKS_MAX: isize = 4096;

fn config(flags: u8) -> Config {
    Config {
        eager_max: STREAMED_MAX,
        unexpected_bytes: UNEXPECTED,
        first_credits: 16,
        request_timeout: (flags & 1 == 0).then_some(Duration::from_secs(20)),
        waiting_timeout: (flags & 2 != 0).then_some(Duration::from_secs(3)),
        max_remotes: REMOTES,
        keep_tombstones: if flags & 4 == 0 { 0 } else { 8 },
        connect_again: flags & 8 != 0,
        regions: flags & 64 == 0,
        ..Config::default()
    }
}

/// Runs one input.
pub fn endpoint(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    run(World::new(input.byte()), &mut input, STEPS_MAX);
}

struct World {
    net: HostileNet,
    clock: VirtualClock,
    endpoint: HostileEndpoint<Queue<Buffer, Host>>,
    pending: BTreeSet<u64>,
    remotes: Vec<RemoteId>,
    deferred: Option<Deferred>,
    contexts: u64,
    /// Keys of regions, registered now or earlier.
    regions: Vec<RegionKey>,
}

/// Owner that decides about messages without a receive.
struct Host {
    how: u8,
    buffers: Rc<()>,
    /// Turns with a message that can be taken, or could before it was forgotten.
    ready: usize,
}

impl Verdicts<Buffer> for Host {
    fn joins(_: &[u8]) -> bool {
        true
    }

    fn arrived<B: Source + ?Sized>(&mut self, arrival: &Arrival, body: Option<&B>) -> Verdict {
        assert!(body.is_none_or(|body| body.len() == arrival.length as usize));
        match self.how % 4 {
            0 => Verdict::Continue,
            1 => Verdict::Finished,
            2 => Verdict::Defer,
            _ => Verdict::Inbox {
                turn: u32::from(self.how / 4 % 4),
            },
        }
    }

    fn memory(&mut self, len: usize) -> Option<Buffer> {
        let there = self.how < 240;
        there.then(|| within(0, || Buffer::new(len, &self.buffers)))
    }

    fn ready(&mut self, _: u32) {
        self.ready += 1;
    }
}

impl World {
    fn new(flags: u8) -> Self {
        let host = Host {
            how: 0,
            buffers: Rc::new(()),
            ready: 0,
        };
        let (net, clock, endpoint) = begin(|| config(flags), Queue::new(host));
        let mut world = Self {
            net,
            clock,
            endpoint,
            pending: BTreeSet::new(),
            remotes: Vec::new(),
            deferred: None,
            contexts: 0,
            regions: Vec::new(),
        };
        if world.endpoint.config().regions {
            let (read, write) = (true, true);
            let memory = Buffer::new(20_000, &world.endpoint.owner_mut().buffers);
            let key = within(1, || {
                world.endpoint.register(memory, Rights { read, write })
            });
            world.regions.push(key);
        }
        // One remote that called, one that was called.
        if flags & 16 == 0 {
            let link = world.net.with(open);
            world.packet(link, &packet(1, 5, 0, &hello(KEY, 2, 0)), 0);
            world.progress();
        }
        if flags & 32 == 0 {
            world.connect(3);
            world.bring_up();
            world.answer(0, 0);
            world.progress();
        }
        world
    }

    fn take_step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 24 {
            0 | 1 => self.progress(),
            2 => {
                let number = input.byte() % 16;
                self.connect(number);
            }
            3 => self.bring_up(),
            4 => {
                if links(&self.net).len() < LINKS_MAX {
                    self.net.with(open);
                }
            }
            5 => self.take_down(input),
            6 => {
                let (to, bits, flags) = (input.below(8), input.byte() % 4, input.byte());
                let len = input.choose(&[0, 1, 100, 4096, 4097, 8192, 20_000, 20_001, 90_000]);
                self.send(to, bits.into(), len, flags);
            }
            7 => {
                let (bits, mask) = (input.byte() % 4, input.byte() % 4);
                let len = input.choose(&[0, 1, 100, 4096, 8192, 20_000, 50_000]);
                let flags = input.byte();
                if flags & 2 == 0 {
                    self.recv(u64::from(bits & mask), u64::from(mask), len);
                } else {
                    self.take(flags >> 2);
                }
            }
            8 => self.cancel(input),
            9 => {
                let at = input.below(8);
                if !self.remotes.is_empty() {
                    let remote = self.remotes[at % self.remotes.len()];
                    within(1, || self.endpoint.disconnect(remote));
                }
            }
            10 => self.endpoint.owner_mut().how = input.byte(),
            11 => self.decide(input.byte()),
            12 => {
                let millis = input.choose(&[1, 100, 2500, 6000, 21_000]);
                self.clock.advance(Duration::from_millis(millis));
            }
            13 => {
                let full = input.byte();
                self.net.with(|net| net.script.full = full);
            }
            14 => {
                self.net.with(|net| net.script.full = 0);
                tell_all(&self.net, &Event::Writable);
            }
            15 => self.net.with(|net| net.script.in_parts ^= true),
            16..=18 => {
                let (at, how) = (input.below(16), input.byte());
                self.answer(at, how);
                if how & 0x80 == 0 {
                    self.progress();
                }
            }
            19 => {
                let flags = input.byte();
                if links(&self.net).len() < LINKS_MAX {
                    let link = self.net.with(open);
                    let who = hello(KEY, 2 + flags % 4, flags >> 4);
                    self.packet(link, &packet(1, 5, flags.into(), &who), 0);
                }
            }
            22 if self.endpoint.config().regions => self.reach(input),
            23 if self.endpoint.config().regions => self.access(input),
            _ => self.lie(input),
        }
    }

    /// Registers memory, deregisters a region, or begins a get or put.
    fn reach(&mut self, input: &mut Input<'_>) {
        let (how, to) = (input.byte(), input.below(8));
        let len = input.choose(&[0, 1, 100, 8192, 20_000, 50_000]);
        if how & 3 == 0 {
            if self.regions.len() < REGIONS_MAX {
                let memory = Buffer::new(len, &self.endpoint.owner_mut().buffers);
                let rights = Rights {
                    read: how & 4 == 0,
                    write: how & 8 == 0,
                };
                let key = within(1, || self.endpoint.register(memory, rights));
                self.regions.push(key);
            }
            return;
        }
        if how & 3 == 1 {
            if !self.regions.is_empty() {
                let key = self.regions.remove(to % self.regions.len());
                assert!(within(1, || self.endpoint.deregister(key)));
            }
            return self.collect();
        }
        if self.remotes.is_empty() || self.pending.len() >= POSTED_MAX {
            return;
        }
        let remote = self.remotes[to % self.remotes.len()];
        let memory = Buffer::new(len, &self.endpoint.owner_mut().buffers);
        let what = (memory, self.next_context());
        let region = (RegionKey(input.u64()), input.u64());
        let posted = within(1, || match how & 4 {
            0 => self.endpoint.get(remote, region, what),
            _ => self.endpoint.put(remote, region, what),
        });
        if let Ok(SendPosted::Pending(request)) = posted {
            self.know(request);
        }
    }

    /// Reads or writes a region as a peer, with valid or invalid numbers.
    fn access(&mut self, input: &mut Input<'_>) {
        let Some(link) = self.link(input.below(LINKS_MAX)) else {
            return;
        };
        let how = input.byte();
        let nth = input.below(2 * self.regions.len() + 1);
        let known = self.regions.get(nth / 2);
        let key = known.map_or_else(|| input.u64(), |key| key.0);
        let at = input.choose(&[0, 0, 0, 1, 100, 8192, u32::MAX]);
        let len = input.choose(&[1, 100, 9000, 20_000, 20_001]);
        let (offset, len) = (input.choose(&[0, 0, 1, 19_000]), input.near(len));
        let offset = if how & 2 == 0 { offset } else { input.u64() };
        let mut body = vec![0; if how & 1 == 0 { 28 } else { 16 }];
        body[0] = input.byte() % 4;
        if how & 1 == 0 {
            put(&mut body, 8, len.into(), 4);
            put(&mut body, 12, u64::from(how & 4), 4);
            put(&mut body, 16, offset, 8);
            let whole = if how & 8 == 0 {
                at.wrapping_add(len)
            } else {
                len
            };
            put(&mut body, 24, whole.into(), 4);
        } else {
            put(&mut body, 8, offset, 8);
        }
        if how & 0xf0 == 0xf0 {
            body.pop();
        }
        let (kind, length) = if how & 1 == 0 { (24, at) } else { (25, len) };
        let mut packet = packet(kind, key, length, &body);
        put(&mut packet.0, 20, u64::from(input.byte() % 4), 4);
        self.packet(link, &packet, how & 1);
    }

    fn progress(&mut self) {
        within(1, || self.endpoint.progress());
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(done) = within(1, || self.endpoint.next_completion()) {
            let was = self.pending.remove(&done.request.to_word());
            assert!(was, "an end of what was not under way: {done:?}");
            assert!(done.transferred <= done.length || done.status != Status::Success);
            self.meet(done.remote);
        }
        while let Some(down) = within(1, || self.endpoint.next_down()) {
            assert!(self.endpoint.remote_identity(down.remote).is_none());
        }
    }

    fn meet(&mut self, remote: RemoteId) {
        if self.endpoint.remote_identity(remote).is_some() && !self.remotes.contains(&remote) {
            self.remotes.push(remote);
        }
        let endpoint = &self.endpoint;
        self.remotes
            .retain(|known| endpoint.remote_identity(*known).is_some());
    }

    fn know(&mut self, request: RequestId) {
        assert!(self.pending.insert(request.to_word()), "one name for two");
        self.collect();
    }

    fn next_context(&mut self) -> u64 {
        self.contexts += 1;
        self.contexts
    }

    fn connect(&mut self, number: u8) {
        if self.pending.len() >= POSTED_MAX {
            return;
        }
        let (target, context) = (target(number), self.next_context());
        let posted = within(1, || {
            self.endpoint.connect(target, KEY, MatchBits(0), context)
        });
        if let Ok(request) = posted {
            self.know(request);
        }
    }

    fn bring_up(&mut self) {
        tell_all(&self.net, &Event::Up);
        self.progress();
    }

    fn take_down(&mut self, input: &mut Input<'_>) {
        let reason = input.choose(&[
            LinkDown::Refused,
            LinkDown::Unreachable,
            LinkDown::TimedOut,
            LinkDown::Closed,
            LinkDown::Reset,
            LinkDown::Protocol,
            LinkDown::Elsewhere(Route(2)),
        ]);
        if let Some(link) = self.link(input.below(LINKS_MAX)) {
            self.net.with(|net| net.tell(link, Event::Down(reason)));
        }
    }

    fn link(&self, at: usize) -> Option<LinkId> {
        link(&self.net, at)
    }

    fn send(&mut self, to: usize, bits: u64, len: usize, flags: u8) {
        for number in 2..6 {
            let all = self.endpoint.remotes_of(NicId(1), EndpointId(number));
            for remote in all.collect::<Vec<_>>() {
                self.meet(remote);
            }
        }
        if self.remotes.is_empty() || self.pending.len() >= POSTED_MAX {
            return;
        }
        let to = self.remotes[to % self.remotes.len()];
        let mode = match flags & 1 {
            0 => SendMode::Standard,
            _ => SendMode::Synchronous,
        };
        let memory = Buffer::new(len, &self.endpoint.owner_mut().buffers);
        let context = self.next_context();
        let posted = within(1, || {
            self.endpoint
                .send(to, MatchBits(bits), memory, context, mode)
        });
        if let Ok(SendPosted::Pending(request)) = posted {
            self.know(request);
        }
    }

    /// Takes a message of the inbox, or drops those of a turn.
    fn take(&mut self, flags: u8) {
        within(1, || match flags % 3 {
            0 => drop(self.endpoint.next_message()),
            1 => drop(self.endpoint.next_turn(|_| true)),
            _ => self.endpoint.forget_messages(u32::from(flags / 4 % 4)),
        });
        self.collect();
    }

    fn recv(&mut self, bits: u64, mask: u64, len: usize) {
        if self.pending.len() >= POSTED_MAX {
            return;
        }
        let memory = Buffer::new(len, &self.endpoint.owner_mut().buffers);
        let (bits, mask) = (MatchBits(bits), MatchMask(mask));
        let context = self.next_context();
        let received = within(1, || self.endpoint.recv(bits, mask, memory, context));
        if let Ok(ReceivePosted::Pending(request)) = received {
            self.know(request);
        }
    }

    fn cancel(&mut self, input: &mut Input<'_>) {
        let at = input.below(POSTED_MAX);
        let Some(request) = self
            .pending
            .iter()
            .nth(at % self.pending.len().max(1))
            .copied()
        else {
            return;
        };
        let request = RequestId::from_word(request);
        let known = within(1, || self.endpoint.end(request, Status::Cancelled));
        assert!(known, "it was under way");
        self.collect();
        assert!(!self.pending.contains(&request.to_word()), "it goes on");
    }

    fn decide(&mut self, how: u8) {
        let decision = match how & 1 {
            0 => Decision::Continue,
            _ => Decision::Finished,
        };
        if let Some(deferred) = self.deferred.take() {
            within(1, || self.endpoint.decide(deferred, decision));
        }
        self.deferred = within(1, || self.endpoint.next_deferred());
        self.collect();
    }

    fn packet(&mut self, link: LinkId, packet: &(HeaderBytes, Vec<u8>), times: u8) {
        for _ in 0..=times {
            tell_packet(&self.net, link, packet, times & 1 == 0);
        }
    }

    /// Answers one of the endpoint's packets as a peer.
    fn answer(&mut self, at: usize, how: u8) {
        let Some((link, header, body)) = sent(&self.net, at) else {
            return;
        };
        let (word, length) = (u64_at(&wide(&header), 8), u32_at(&wide(&header), 16));
        let answer = match header[0] {
            1 => packet(2, word, 0, &hello(KEY, 3 + how % 3, how >> 4)),
            4 if how & 1 == 0 => {
                let mut pull = [0; 12];
                put(&mut pull, 0, 4242, 8);
                let len = if how & 2 == 0 { length } else { u32::MAX };
                put(&mut pull, 8, len.into(), 4);
                packet(5, first_word(&body), u32::from(how & 4) << 10, &pull)
            }
            4 => packet(
                7,
                first_word(&body),
                if how & 2 == 0 { length } else { 0 },
                &[],
            ),
            5 => {
                let len = if how & 1 == 0 {
                    8192
                } else {
                    usize::from(how) << 4
                };
                let mut pulled = [0; 16];
                pulled[..body.len().min(12)].copy_from_slice(&body[..body.len().min(12)]);
                let len = len.min(u32_at(&wide(&pulled), 8) as usize);
                packet(6, u64_at(&wide(&pulled), 0), length, &vec![7; len])
            }
            11 => packet(12, word, 0, &[]),
            24 if how & 1 == 0 => {
                let len = u32_at(&wide(&body), 8).min(u32::from(how) << 6);
                let mut data = packet(6, first_word(&body), length, &vec![8; len as usize]);
                data.0[20..24].copy_from_slice(&header[20..24]);
                data
            }
            25 if how & 1 == 0 => {
                let mut pull = [0; 12];
                put(&mut pull, 0, 4242, 8);
                put(&mut pull, 8, length.into(), 4);
                packet(5, first_word(&body), 0, &pull)
            }
            24 | 25 => {
                let mut refusal = packet(7, first_word(&body), 0, &[]);
                put(&mut refusal.0, 20, u64::from(how >> 1 & 7), 4);
                refusal
            }
            // Returns the endpoint's Claim.
            15 => packet(15, 0, 0, &body),
            _ => packet(9, 0, 0, &[]),
        };
        self.packet(link, &answer, 0);
    }

    /// Sends a packet of any kind, with numbers that were used before, or near them.
    fn lie(&mut self, input: &mut Input<'_>) {
        let Some(link) = self.link(input.below(LINKS_MAX)) else {
            return;
        };
        let kind = input.byte() % 17;
        let sent = sent(&self.net, input.below(16));
        let (theirs, theirs_body) = sent.map_or(([0; HEADER_LEN], Vec::new()), |(_, h, b)| (h, b));
        let word = match input.byte() % 6 {
            0 | 1 => u64_at(&wide(&theirs), 8),
            2 | 3 => first_word(&theirs_body),
            4 => u64::from(input.byte() % 4),
            _ => input.u64(),
        };
        let body = match kind {
            1 | 2 => {
                let mut who = hello(KEY, input.byte() % 8, input.byte());
                if input.byte() == 1 {
                    put(&mut who, 4, 3, 2);
                }
                who
            }
            3 => vec![1; input.choose(&[0, 1, 100, 4096, 4097, 8192, 16_000, 20_000])],
            4 => {
                let mut offer = vec![0; input.choose(&[8, 24, 8, 24, 7])];
                offer[0] = input.byte() % 8;
                offer
            }
            5 => {
                let mut pull = vec![0; 12];
                pull[0] = input.byte();
                let near = input.near(u32_at(&wide(&theirs), 16));
                put(&mut pull, 8, near.into(), 4);
                pull
            }
            6 => vec![2; input.choose(&[0, 1, 100, 8192, 20_000])],
            _ => {
                let len = input.choose(&[0, 0, 0, 12, 40, 128, 129, PACKET_MAX]);
                let mut any = input.bytes(len.min(32)).to_vec();
                any.resize(len, 0);
                any
            }
        };
        let length = match kind {
            3 if input.byte() != 1 => body.len() as u32,
            _ => input.near(u32_at(&wide(&theirs), 16)),
        };
        let mut lie = packet(kind, word, length, &body);
        put(&mut lie.0, 20, input.near(0).into(), 4);
        put(
            &mut lie.0,
            24,
            input.near(u32_at(&wide(&theirs), 24)).into(),
            4,
        );
        put(
            &mut lie.0,
            28,
            input.near(u32_at(&wide(&theirs), 28)).into(),
            4,
        );
        let times = match input.byte() {
            n @ 200.. => n - 192,
            n => n & 1,
        };
        self.packet(link, &lie, times);
        for _ in 0..=times / 32 {
            self.progress();
        }
    }
}

impl Program for World {
    fn step(&mut self, input: &mut Input<'_>) {
        self.take_step(input);
        self.collect();
    }

    fn check(&self) {
        let held = meter::held(1);
        assert!(held <= HEAP_MAX, "{held} bytes of heap");
        assert!(self.endpoint.remotes() <= REMOTES + 8);
        assert!(self.endpoint.unexpected_bytes() <= UNEXPECTED);
        let buffers = Rc::strong_count(&self.endpoint.owner().buffers) - 1;
        let inbox = self.endpoint.inbox_stats();
        let (requests, messages) = (self.endpoint.requests(), inbox.messages);
        let begun = |link: &LinkId| self.net.with(|net| net.end(*link).begun);
        let coming = links(&self.net).iter().filter(|link| begun(link)).count();
        assert!(
            buffers <= requests + messages + coming + self.endpoint.regions(),
            "{buffers} buffers for {requests} requests and {messages} messages"
        );
        assert!(inbox.bytes + self.endpoint.unexpected_bytes() <= UNEXPECTED);
        // Messages to be shown to the owner are fetched, too.
        let (least, shown) = (
            self.pending.len() + inbox.fetching + self.endpoint.accesses(),
            self.endpoint.undecided(),
        );
        assert_eq!(self.endpoint.regions(), self.regions.len());
        assert!(
            (least..=least + shown).contains(&requests),
            "{requests} requests, {shown} undecided: {:?}, {inbox:?}",
            self.pending
        );
    }

    /// Closes the endpoint: every operation has ended, and no memory is held.
    fn finish(mut self) {
        if let Some(deferred) = self.deferred.take() {
            within(1, || self.endpoint.decide(deferred, Decision::Continue));
        }
        within(1, || self.endpoint.close());
        self.collect();
        self.endpoint.owner_mut().how = 0;
        while within(1, || self.endpoint.next_message()).is_some() {}
        assert_eq!(self.endpoint.inbox_stats(), InboxStats::default());
        let flow = self.endpoint.flow_stats();
        assert_eq!((flow.drawn, flow.tombstones), (0, 0), "credits left");
        assert!(
            self.pending.is_empty(),
            "without an end: {:?}",
            self.pending
        );
        assert_eq!(self.endpoint.requests(), 0);
        for key in std::mem::take(&mut self.regions) {
            assert!(within(1, || self.endpoint.deregister(key)));
        }
        assert_eq!(
            Rc::strong_count(&self.endpoint.owner_mut().buffers),
            1,
            "memory is kept"
        );
        let endpoint = self.endpoint;
        within(1, || drop(endpoint));
        let left = meter::held(1);
        assert!(left <= BOOKS_MAX, "an endpoint leaves {left} bytes behind");
    }
}

/// Appends zeros, so that the bytes can be parsed as a datagram's header.
fn wide(bytes: &[u8]) -> [u8; 64] {
    let mut wide = [0; 64];
    wide[..bytes.len()].copy_from_slice(bytes);
    wide
}

fn first_word(body: &[u8]) -> u64 {
    u64_at(&wide(&body[..body.len().min(8)]), 0)
}
