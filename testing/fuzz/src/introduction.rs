//! Introductions of peers, with a site's secret and without one.
//!
//! ```text
//!   program:  strangers' links, answers to calls          packets of introductions, nearly valid
//!        |         endpoints from RIGHTFUL on use the secret, the others have none
//!     Endpoint     with a secret, peers without it are never accepted; links that end leave nothing behind
//! ```
//!
//! The packets are built here from their description (docs/wire-format.md); the proofs with the
//! product's code, which `secret.rs` tests by itself.

use crate::input::Input;
use crate::link::{Buffer, HostileNet, link, links, open, sent, tell_all, tell_packet};
use crate::meter::{self, within};
use crate::peers::{
    HostileEndpoint, KEY, NONCE_AT, RIGHTFUL, begin, hello, is_rightful, packet, target,
    with_status,
};
use crate::program::{Program, run};
use hmac::{Hmac, Mac};
use mx_proto::memory::Source;
use mx_proto::port::{HeaderBytes, LinkControl, LinkDown};
use mx_proto::secret::{ProofTranscript, Purpose, Role, Secret};
use mx_proto::wire::{HELLO_LEN, Kind};
use mx_proto::{
    Arrival, Config, EndpointId, Key, LinkId, MatchBits, NicId, RemoteId, SessionId, Status,
    Verdict,
};
use mx_sim::script::Event;
use mx_sim::{Queue, Reports, Verdicts, VirtualClock};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::time::Duration;
use zeroize::Zeroizing;

const STEPS_MAX: usize = 400;
const LINKS_MAX: usize = 24;
const REMOTES: usize = 8;
const CALLS_MAX: usize = 16;
/// Heap for all of that: remotes, introductions, packets to links that read nothing.
const HEAP_MAX: isize = 512 << 10;
/// Number of the endpoint's packets that may be sent back to it.
const SENT: usize = 16;
/// Bytes of a challenge that its proof covers.
const SAID_LEN: usize = 40;

/// Runs one input.
pub fn introduction(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    run(World::new(input.byte()), &mut input, STEPS_MAX);
}

struct World {
    net: HostileNet,
    clock: VirtualClock,
    endpoint: HostileEndpoint<Queue<Buffer, Host>>,
    secret: Option<Secret>,
    /// First hello of the program on each link.
    said: BTreeMap<u32, Vec<u8>>,
    calls: usize,
}

/// Owner that takes every message, and checks its sender.
struct Host {
    secret: bool,
    /// Last two remotes of one process that were joined.
    joined: Option<(RemoteId, RemoteId)>,
    joins: usize,
}

impl Verdicts<Buffer> for Host {
    fn joins(_: &[u8]) -> bool {
        true
    }

    fn joined(&mut self, one: RemoteId, other: RemoteId) {
        self.joined = Some((one, other));
        self.joins += 1;
    }

    fn arrived<B: Source + ?Sized>(&mut self, arrival: &Arrival, _: Option<&B>) -> Verdict {
        let who = arrival.identity;
        assert!(
            !self.secret || is_rightful(who.session),
            "a message of {who:?}, which does not know the secret"
        );
        Verdict::Finished
    }
}

fn secret() -> Secret {
    Secret::new(Zeroizing::new(b"one and the same for all".to_vec()))
}

impl World {
    /// Makes a world. `flags`: 1: there is a secret.
    fn new(flags: u8) -> Self {
        let has = flags & 1 != 0;
        let host = Host {
            secret: has,
            joined: None,
            joins: 0,
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
        let (net, clock, endpoint) = begin(config, Queue::new(host));
        Self {
            net,
            clock,
            endpoint,
            secret: has.then(secret),
            said: BTreeMap::new(),
            calls: 0,
        }
    }

    fn progress(&mut self) {
        within(1, || self.endpoint.progress());
        self.endpoint.take_events();
    }

    /// Checks that joined sessions are of one life.
    fn check_joined(&mut self) {
        if let Some((one, other)) = self.endpoint.owner_mut().joined.take() {
            let life = |remote| Some(self.endpoint.remote_identity(remote)?.session);
            if let (Some(one), Some(other)) = (life(one), life(other)) {
                assert_eq!(one, other, "two lives are joined");
            }
        }
    }

    fn collect(&mut self) {
        while let Some(done) = within(1, || self.endpoint.next_completion()) {
            self.calls -= 1;
            let who = self.endpoint.remote_identity(done.remote);
            let rightful = who.is_none_or(|who| is_rightful(who.session));
            let fine = done.status != Status::Success || !self.endpoint.owner().secret || rightful;
            assert!(fine, "connected to {who:?} without the secret");
        }
    }

    fn link(&self, at: u8) -> Option<LinkId> {
        link(&self.net, at.into())
    }

    fn call(&mut self, number: u8) {
        let free = links(&self.net).len() < LINKS_MAX && self.calls < CALLS_MAX;
        if free {
            let target = target(number);
            let posted = within(1, || self.endpoint.connect(target, KEY, MatchBits(0), 0));
            self.calls += usize::from(posted.is_ok());
        }
    }

    fn send(&mut self, link: LinkId, packet: (HeaderBytes, Vec<u8>)) {
        if packet.0[0] == Kind::Connect as u8 {
            let said = self.said.entry(link.index());
            said.or_insert_with(|| packet.1.clone());
        }
        tell_packet(&self.net, link, &packet, false);
    }

    fn stranger(&mut self, how: u8) {
        if links(&self.net).len() < LINKS_MAX {
            let link = self.net.with(open);
            self.send(link, packet(1, how.into(), 0, &named(how)));
        }
    }

    /// Answers one of the endpoint's packets as a peer: correctly if possible, or nearly so.
    fn answer(&mut self, at: usize, how: u8) {
        let Some((link, header, body)) = sent(&self.net, at) else {
            return;
        };
        let mut word = [0; 8];
        word.copy_from_slice(&header[8..16]);
        let word = u64::from_le_bytes(word);
        let who = named(how);
        let answer = match header[0] {
            // To a Connect.
            1 if how & 0x40 != 0 => packet(17, 0, 0, &self.challenge(link, &body, how)),
            1 if how & 0x20 != 0 => self.other_reply(link, word, how),
            1 => packet(2, word, 0, &who),
            // To a Challenge, Claim or Ping.
            17 => packet(18, 0, 0, &self.prove(link, &body, how)),
            15 => packet(15, 0, 0, &body),
            11 => packet(12, word, 0, &[]),
            _ => return,
        };
        self.send(link, answer);
    }

    /// Makes a rejection, or an answer with a claim.
    fn other_reply(&self, link: LinkId, word: u64, how: u8) -> (HeaderBytes, Vec<u8>) {
        let mut who = named(how);
        if how & 4 == 0 {
            return with_status(packet(2, word, 0, &who), 1 + how % 8);
        }
        let claim = self.claim(link, &who, how);
        who.extend_from_slice(&claim);
        packet(2, word, 0, &who)
    }

    /// Makes a claim, on a link whose hello was `said`, on the session of the endpoint's latest
    /// accepted call: valid, unless `how` selects another nonce, or an interface of another
    /// endpoint.
    fn claim(&self, link: LinkId, said: &[u8], how: u8) -> Vec<u8> {
        let hellos = (0..SENT).filter_map(|at| sent(&self.net, at));
        let hellos: Vec<_> = hellos.filter(|it| matches!(it.1[0], 1 | 2)).collect();
        let nonce = |body: &[u8]| body.get(NONCE_AT..HELLO_LEN).map(<[u8]>::to_vec);
        let here = hellos.iter().find(|it| it.0 == link);
        let ours = here.and_then(|it| nonce(&it.2)).unwrap_or_default();
        let accepted = hellos.iter().find(|it| it.1[0] == 2 && it.0 != link);
        let of = accepted.and_then(|it| nonce(&it.2));
        let of = of.filter(|_| how & 2 == 0).unwrap_or_else(|| ours.clone());
        let nics = [1, 1 + (how & 1)];
        let theirs = nonce(said).unwrap_or_default();
        let mut bytes = of.get(..8).unwrap_or(&[0; 8]).to_vec();
        for nic in nics {
            bytes.extend_from_slice(&u64::from(nic).to_le_bytes());
        }
        bytes.extend_from_slice(&claim_proof(&of, [&ours, &theirs], nics));
        bytes
    }

    /// Returns one of the endpoint's own packets.
    fn echo(&self, at: u8) -> Option<(HeaderBytes, Vec<u8>)> {
        let (_, header, body) = sent(&self.net, usize::from(at) % SENT)?;
        Some((header, body))
    }

    /// Makes a challenge to the peer whose hello is `said`.
    fn challenge(&self, link: LinkId, said: &[u8], how: u8) -> Vec<u8> {
        let who = named(how);
        let mut bytes = vec![0; SAID_LEN];
        bytes[0..8].copy_from_slice(&who[16..24]);
        bytes[8..16].copy_from_slice(&who[24..32]);
        bytes[16..20].copy_from_slice(&who[12..16]);
        bytes[24..40].fill(how);
        let proof = self.proof(link, Role::Called, said, &bytes, &who);
        bytes.extend_from_slice(&proof);
        bytes
    }

    fn prove(&self, link: LinkId, challenge: &[u8], how: u8) -> Vec<u8> {
        let Some(said) = self.said.get(&link.index()) else {
            return vec![how; 32];
        };
        let asked = &challenge[..SAID_LEN.min(challenge.len())];
        let mut proof = self.proof(link, Role::Caller, said, asked, said);
        if how & 0x20 != 0 {
            proof[usize::from(how % 32)] ^= 1;
        }
        proof
    }

    /// Makes a proof; zeros for a peer without the secret.
    fn proof(&self, link: LinkId, role: Role, said: &[u8], asked: &[u8], who: &[u8]) -> Vec<u8> {
        let rightful = is_rightful(session(who));
        let knows = self.secret.as_ref().filter(|_| rightful);
        let Some(secret) = knows else {
            return vec![0; 32];
        };
        let mut caller = said.to_vec();
        if let Some(key) = caller.get_mut(8..12) {
            key.fill(0);
        }
        let port = self.endpoint.port();
        let words = ProofTranscript {
            purpose: Purpose::Introduction,
            caller: &caller,
            called: asked,
            binding: port.binding(link),
        };
        secret.prove(role, &words).to_vec()
    }

    /// Sends any packet of introductions, or another one too early.
    fn say(&mut self, input: &mut Input<'_>) {
        let (at, kind, how) = (input.byte(), input.byte() % 20, input.byte());
        let Some(link) = self.link(at) else { return };
        let mut body = match kind {
            1 | 2 => named(how),
            3 => vec![how; 8],
            15 => {
                let said = self.said.get(&link.index()).cloned();
                self.claim(link, &said.unwrap_or_else(|| named(how)), how)
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
        if kind == 19
            && let Some(packet) = self.echo(how)
        {
            return self.send(link, packet);
        }
        // The altered identity may be a rightful one's, although it has not proven anything.
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
                tell_all(&self.net, &Event::Up);
                self.progress();
            }
            4 => self.stranger(input.byte()),
            5 => {
                if let Some(link) = self.link(input.byte()) {
                    self.net
                        .with(|net| net.tell(link, Event::Down(LinkDown::Reset)));
                }
            }
            6 => {
                let millis = input.choose(&[1, 100, 1100, 3100, 21_000]);
                self.clock.advance(Duration::from_millis(millis));
            }
            7 => {
                let number = EndpointId(input.byte().into());
                let mut all = self.endpoint.remotes_of(NicId(1), number);
                let first = all.next();
                drop(all);
                if let Some(remote) = first {
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
        while within(1, || self.endpoint.next_down()).is_some() {}
        self.collect();
        self.check_joined();
    }

    fn check(&self) {
        let held = meter::held(1);
        assert!(held <= HEAP_MAX, "{held} bytes of heap");
        assert!(self.endpoint.remotes() <= REMOTES + CALLS_MAX);
        let (waiting, links) = (self.endpoint.introductions(), links(&self.net).len());
        assert!(waiting <= links, "{waiting} introductions on {links} links");
        let names = (0..=u8::MAX).flat_map(|number| [(number, 1), (number, 7)]);
        for (number, nic) in names.filter(|_| self.endpoint.owner().secret) {
            let name = (NicId(nic), EndpointId(number.into()));
            let known = self.endpoint.remotes_of(name.0, name.1);
            let who = known.filter_map(|known| self.endpoint.remote_identity(known));
            for who in who.filter(|who| who.session != SessionId(0)) {
                let right = is_rightful(who.session);
                assert!(right, "{who:?} is known without the secret");
            }
        }
    }

    fn finish(mut self) {
        tell_all(&self.net, &Event::Down(LinkDown::Reset));
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

/// Returns the proof of a claim as docs/wire-format.md defines it: keyed by the nonce drawn for the
/// other session, over the nonces drawn and received for this one, and the interfaces of endpoint 1
/// that the claimant knows.
fn claim_proof(of: &[u8], nonces: [&[u8]; 2], nics: [u8; 2]) -> [u8; 16] {
    let mut proof = [0; 16];
    let mut mac = Hmac::<Sha256>::new_from_slice(of).expect("HMAC takes every key");
    mac.update(b"bmi_mx claim 1\0");
    for nonce in nonces {
        mac.update(nonce);
    }
    for nic in nics {
        mac.update(&u64::from(nic).to_le_bytes());
        mac.update(&1u32.to_le_bytes());
    }
    proof.copy_from_slice(&mac.finalize().into_bytes()[..16]);
    proof
}

/// Makes the hello of the endpoint in `how`'s lower bits, in one of two lives.
fn named(how: u8) -> Vec<u8> {
    let number = match how & 0x10 {
        0 => 2 + how % 8,
        _ => RIGHTFUL + how % 8,
    };
    hello(KEY, number, how >> 3 & 1)
}

/// Returns the session in a hello.
fn session(hello: &[u8]) -> SessionId {
    let bytes = hello.get(24..32).and_then(|bytes| bytes.try_into().ok());
    SessionId(bytes.map_or(0, u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a saved program; returns the remotes, the rejections, the number of joins, and the
    /// packets sent.
    fn reached(name: &str) -> (usize, u64, usize, Vec<u8>) {
        let path = format!("{}/corpus/introduction/{name}", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).expect("it is saved");
        let mut input = Input::new(&bytes);
        let mut world = World::new(input.byte());
        while !input.is_empty() {
            world.step(&mut input);
        }
        let sent = world.net.with(|net| {
            let kinds = net.script.sent.iter().map(|sent| sent.1[0]);
            kinds.collect()
        });
        (
            world.endpoint.remotes(),
            world.endpoint.stats().refused,
            world.endpoint.owner().joins,
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
            // The peer has proven one life, and then claims another.
            ("stranger-secret-another", 1, 0, Some(challenge)),
            ("stranger-open-wrong", 1, 0, None),
            // A call is answered with a claim on the stranger's session.
            ("called-claims-right", 2, 0, None),
            ("called-claims-wrong", 2, 0, None),
            ("called-claims-elsewhere", 2, 0, None),
        ] {
            let (remotes, refusals, joins, sent) = reached(name);
            assert_eq!((remotes, refusals), (known, refused), "{name}: {sent:?}");
            assert_eq!(joins, usize::from(name == "called-claims-right"), "{name}");
            let all = kind.iter().all(|kind| sent.contains(kind));
            let none = kind.is_some() || !sent.contains(&challenge) && !sent.contains(&prove);
            assert!(all && none, "{name}: {sent:?}");
        }
    }
}
