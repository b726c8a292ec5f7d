//! Introductions of peers, with a site's secret and without one.
//!
//! ```text
//!   program:  strangers' links, answers to calls          packets of introductions, near what is right
//!        |         those from RIGHTFUL on use the secret, the others have none
//!     Endpoint     peers without it are never known where there is one; nothing is left of links that end
//! ```
//!
//! The packets are made here from their description (docs/wire-format.md); the proofs with the code that
//! is tested by itself in `secret.rs`.

use crate::forge::put;
use crate::input::Input;
use crate::link::{Buffer, Wire, Word};
use crate::meter::{self, within};
use crate::peers::{HostileEndpoint, KEY, begin, hello, packet, target};
use crate::program::{Program, run};
use mx_proto::memory::Source;
use mx_proto::ops::{Chunks, Ops};
use mx_proto::owner::Queue;
use mx_proto::port::{HeaderBytes, LinkDown, Port};
use mx_proto::secret::{Purpose, Role, Secret, Words};
use mx_proto::wire::Kind;
use mx_proto::{
    Arrival, Config, Down, EndpointId, Key, LinkId, MatchBits, NicId, Outcome, Owner, RequestId,
    SessionId, Status, Verdict,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use zeroize::Zeroizing;

const STEPS_MAX: usize = 400;
const LINKS_MAX: usize = 24;
const REMOTES: usize = 8;
const CALLS_MAX: usize = 16;
/// Heap for all of that: remotes, introductions, what is said to links that read nothing.
const HEAP_MAX: isize = 512 << 10;
/// Endpoints with this number and above have the secret, if there is one.
const RIGHTFUL: u8 = 32;
/// Bytes of a challenge that its proof is about.
const SAID_LEN: usize = 40;

/// Runs one input.
pub fn introduction(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    run(World::new(input.byte()), &mut input, STEPS_MAX);
}

struct World {
    wire: Rc<RefCell<Wire>>,
    endpoint: HostileEndpoint<Host>,
    secret: Option<Secret>,
    /// The first hello of the program on each link.
    said: BTreeMap<u32, Vec<u8>>,
    calls: usize,
}

/// Takes every message, and checks its sender.
struct Host {
    ends: Queue<Buffer>,
    secret: bool,
}

impl Owner for Host {
    type Memory = Buffer;
    type Word = u64;
    type Places = Chunks<Buffer, u64>;

    fn completed(&mut self, ops: &mut Ops<Self>, op: RequestId, how: Outcome) {
        self.ends.keep(ops, op, how);
    }

    fn down(&mut self, _: &mut Ops<Self>, down: Down) {
        self.ends.keep_down(down);
    }

    fn has_events(&self) -> bool {
        self.ends.has_events()
    }

    fn arrived<B: Source + ?Sized>(&mut self, arrival: &Arrival, _: Option<&B>) -> Verdict {
        let number = arrival.identity.endpoint.0;
        assert!(
            !self.secret || number >= RIGHTFUL.into(),
            "a message of {number}, which does not know the secret"
        );
        Verdict::Finished
    }
}

fn secret() -> Secret {
    Secret::new(Zeroizing::new(b"one and the same for all".to_vec()))
}

impl World {
    /// `flags`: 1: there is a secret.
    fn new(flags: u8) -> Self {
        let has = flags & 1 != 0;
        let host = Host {
            ends: Queue::default(),
            secret: has,
        };
        let config = || Config {
            unexpected_bytes: 64 << 10,
            first_credits: 4,
            max_remotes: REMOTES,
            request_timeout: Some(Duration::from_secs(20)),
            connect_again: flags & 2 != 0,
            keep_tombstones: usize::from(flags >> 2 & 1) * 8,
            key: Key([5; 16]),
            secret: has.then(secret),
            ..Config::default()
        };
        let (wire, endpoint) = begin(config, host);
        Self {
            wire,
            endpoint,
            secret: has.then(secret),
            said: BTreeMap::new(),
            calls: 0,
        }
    }

    fn progress(&mut self) {
        within(1, || self.endpoint.progress());
    }

    fn collect(&mut self) {
        while let Some(done) = within(1, || self.endpoint.owner_mut().ends.next_completion()) {
            self.calls -= 1;
            let who = self.endpoint.remote_identity(done.remote);
            let number = who.map(|who| who.endpoint.0);
            let rightful = number.is_none_or(|number| number >= RIGHTFUL.into());
            let fine = done.status != Status::Success || !self.endpoint.owner().secret || rightful;
            assert!(fine, "connected to {number:?} without the secret");
        }
    }

    fn tell(&self, link: LinkId, word: Word) {
        self.wire.borrow_mut().tell(link, word);
    }

    fn link(&self, at: u8) -> Option<LinkId> {
        self.wire.borrow().link(at.into())
    }

    fn call(&mut self, number: u8) {
        let free = self.wire.borrow().links.len() < LINKS_MAX && self.calls < CALLS_MAX;
        if free {
            let target = target(number);
            let posted = within(1, || self.endpoint.connect(target, KEY, MatchBits(0), 0));
            self.calls += usize::from(posted.is_ok());
        }
    }

    fn send(&mut self, link: LinkId, (header, body): (HeaderBytes, Vec<u8>)) {
        if header[0] == Kind::Connect as u8 {
            let said = self.said.entry(link.index());
            said.or_insert_with(|| body.clone());
        }
        self.tell(link, Word::Packet(header, body, false));
    }

    fn stranger(&mut self, how: u8) {
        if self.wire.borrow().links.len() < LINKS_MAX {
            let link = self.wire.borrow_mut().open();
            self.send(link, packet(1, how.into(), 0, &named(how)));
        }
    }

    /// A peer's answer to something the endpoint has sent: right, if it can, or nearly so.
    fn answer(&mut self, at: usize, how: u8) {
        let sent = self.wire.borrow().sent.iter().rev().nth(at).cloned();
        let Some((link, header, body)) = sent else {
            return;
        };
        let mut word = [0; 8];
        word.copy_from_slice(&header[8..16]);
        let word = u64::from_le_bytes(word);
        let who = named(how);
        let answer = match header[0] {
            // Its Connect.
            1 if how & 0x40 != 0 => packet(17, 0, 0, &self.challenge(link, &body, how)),
            1 => packet(2, word, 0, &who),
            // Its Challenge, Confirm, Ping.
            17 => packet(18, 0, 0, &self.prove(link, &body, how)),
            15 => packet(16, 0, u32::from(how & 1), &[]),
            11 => packet(12, word, 0, &[]),
            _ => return,
        };
        self.send(link, answer);
    }

    /// A challenge to the peer that says `said`.
    fn challenge(&self, link: LinkId, said: &[u8], how: u8) -> Vec<u8> {
        let who = named(how);
        let mut bytes = vec![0; SAID_LEN];
        bytes[0..8].copy_from_slice(&who[16..24]);
        bytes[8..16].copy_from_slice(&who[24..32]);
        bytes[16..20].copy_from_slice(&who[12..16]);
        bytes[24..40].fill(how);
        let proof = self.proof(link, Role::Called, said, &bytes, number(&who));
        bytes.extend_from_slice(&proof);
        bytes
    }

    fn prove(&self, link: LinkId, challenge: &[u8], how: u8) -> Vec<u8> {
        let Some(said) = self.said.get(&link.index()) else {
            return vec![how; 32];
        };
        let asked = &challenge[..SAID_LEN.min(challenge.len())];
        let mut proof = self.proof(link, Role::Caller, said, asked, number(said));
        if how & 0x20 != 0 {
            proof[usize::from(how % 32)] ^= 1;
        }
        proof
    }

    /// A proof; zeros from a peer without the secret.
    fn proof(&self, link: LinkId, role: Role, said: &[u8], asked: &[u8], who: u8) -> Vec<u8> {
        let knows = self.secret.as_ref().filter(|_| who >= RIGHTFUL);
        let Some(secret) = knows else {
            return vec![0; 32];
        };
        let mut caller = said.to_vec();
        if let Some(key) = caller.get_mut(8..12) {
            key.fill(0);
        }
        let port = self.endpoint.port();
        let words = Words {
            purpose: Purpose::Introduction,
            caller: &caller,
            called: asked,
            binding: Port::<Buffer>::binding(port, link),
        };
        secret.prove(role, &words).to_vec()
    }

    /// Any packet of introductions, or another one before its time.
    fn say(&mut self, input: &mut Input<'_>) {
        let (at, kind, how) = (input.byte(), input.byte() % 20, input.byte());
        let Some(link) = self.link(at) else { return };
        let mut body = match kind {
            1 | 2 => named(how),
            3 => vec![how; 8],
            15 => {
                let who = named(how);
                let mut bytes = vec![0; 48];
                bytes[0..8].copy_from_slice(&who[16..24]);
                bytes[8..16].copy_from_slice(&who[24..32]);
                put(&mut bytes, 16, number(&who).into(), 4);
                put(&mut bytes, 40, (how & 3).into(), 8);
                bytes
            }
            17 => self.challenge(link, &[how; 72], how),
            18 => vec![how; 32],
            _ => Vec::new(),
        };
        match input.byte() {
            0 => body.truncate(usize::from(how)),
            1 => body.push(how),
            2 => {
                if let Some(byte) = body.get_mut(usize::from(how) % 72) {
                    *byte ^= how | 1;
                }
            }
            _ => {}
        }
        let length = if kind == 3 {
            body.len() as u32
        } else {
            u32::from(how & 3)
        };
        // A changed name may be a rightful one's: it has not proven anything.
        self.send(link, packet(kind, how.into(), length, &body));
        if input.byte() & 1 == 0 {
            self.progress();
        }
    }
}

impl Program for World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0 | 1 => self.progress(),
            2 => self.call(input.byte()),
            3 => {
                self.wire.borrow_mut().tell_all(&Word::Up);
                self.progress();
            }
            4 => self.stranger(input.byte()),
            5 => {
                if let Some(link) = self.link(input.byte()) {
                    self.tell(link, Word::Down(LinkDown::Reset));
                }
            }
            6 => {
                let millis = input.choose(&[1, 100, 1100, 3100, 21_000]);
                self.wire.borrow_mut().pass(Duration::from_millis(millis));
            }
            7 => {
                let number = EndpointId(input.byte().into());
                if let Some(remote) = self.endpoint.remote_of(NicId(1), number) {
                    within(1, || self.endpoint.disconnect(remote));
                }
            }
            8..=11 => {
                let (at, how) = (input.below(16), input.byte());
                self.answer(at, how);
                if how & 0x80 == 0 {
                    self.progress();
                }
            }
            _ => self.say(input),
        }
        while within(1, || self.endpoint.owner_mut().ends.next_down()).is_some() {}
        self.collect();
    }

    fn check(&self) {
        let held = meter::held(1);
        assert!(held <= HEAP_MAX, "{held} bytes of heap");
        assert!(self.endpoint.remotes() <= REMOTES + CALLS_MAX);
        let (waiting, links) = (
            self.endpoint.introductions(),
            self.wire.borrow().links.len(),
        );
        assert!(waiting <= links, "{waiting} introductions on {links} links");
        let strangers = 0..u32::from(RIGHTFUL);
        for number in strangers.filter(|_| self.endpoint.owner().secret) {
            let known = self.endpoint.remote_of(NicId(1), EndpointId(number));
            let who = known.and_then(|known| self.endpoint.remote_identity(known));
            let got_in = who.is_some_and(|who| who.session != SessionId(0));
            assert!(!got_in, "{number} is known without the secret");
        }
    }

    fn finish(mut self) {
        self.wire
            .borrow_mut()
            .tell_all(&Word::Down(LinkDown::Reset));
        for _ in 0..40 {
            self.progress();
        }
        within(1, || self.endpoint.close());
        self.collect();
        assert_eq!(self.calls, 0, "calls without an end");
        let endpoint = self.endpoint;
        assert_eq!(endpoint.introductions(), 0, "introductions left");
        within(1, || drop(endpoint));
    }
}

/// The hello of endpoint `how`, by its lower bits, in one of two lives.
fn named(how: u8) -> Vec<u8> {
    let number = match how & 0x10 {
        0 => 2 + how % 8,
        _ => RIGHTFUL + how % 8,
    };
    hello(KEY, number, how >> 3 & 1)
}

/// The number in that.
fn number(hello: &[u8]) -> u8 {
    hello.get(12).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The remotes after a program, the refusals, and the packets that were sent.
    fn reached(name: &str) -> (usize, u64, Vec<u8>) {
        let path = format!("{}/corpus/introduction/{name}", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).expect("it is saved");
        let mut input = Input::new(&bytes);
        let mut world = World::new(input.byte());
        while !input.is_empty() {
            world.step(&mut input);
        }
        let sent = world
            .wire
            .borrow()
            .sent
            .iter()
            .map(|sent| sent.1[0])
            .collect();
        (
            world.endpoint.remotes(),
            world.endpoint.stats().refused,
            sent,
        )
    }

    #[test]
    fn saved_programs_prove_the_secret_rightly_and_wrongly() {
        let (challenge, prove) = (Kind::Challenge as u8, Kind::Prove as u8);
        for (name, known, refused, kind) in [
            ("stranger-secret-right", 1, 0, Some(challenge)),
            ("stranger-secret-wrong", 0, 1, Some(challenge)),
            ("stranger-secret-changed", 0, 1, Some(challenge)),
            ("called-secret-right", 1, 0, Some(prove)),
            ("called-secret-wrong", 0, 1, None),
            ("stranger-open-wrong", 1, 0, None),
        ] {
            let (remotes, refusals, sent) = reached(name);
            assert_eq!((remotes, refusals), (known, refused), "{name}: {sent:?}");
            let all = kind.iter().all(|kind| sent.contains(kind));
            let none = kind.is_some() || !sent.contains(&challenge) && !sent.contains(&prove);
            assert!(all && none, "{name}: {sent:?}");
        }
    }
}
