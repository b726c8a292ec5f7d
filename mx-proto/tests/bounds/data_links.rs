//! Peers that send false packets on data links, or about them.

use super::script::{Packet, Stage};
use hmac::{Hmac, Mac};
use mx_proto::wire::{Header, Kind};
use mx_proto::{Config, MatchBits, MatchMask};
use sha2::Sha256;

const BITS: u64 = 3;
const LARGE: u32 = 1 << 20;

/// A session that may have `data_links` data links, as its constructor is told.
struct Session {
    stage: Stage,
    /// The nonce that the endpoint has drawn for the session.
    nonce: Vec<u8>,
    /// Number of the link that the peer begins next.
    next: u32,
}

impl Session {
    fn new(data_links: u32) -> Self {
        let mut stage = Stage::new(Config::default());
        stage.peers(|peers| (peers.data_links, peers.listen) = (data_links, true));
        stage.call(0, 0);
        stage.run();
        let replies = stage.sent(Kind::Reply);
        let nonce = replies[0].2[48..64].to_vec();
        let next = 1;
        Self { stage, nonce, next }
    }

    /// Begins a link as the peer, with a correct Attach as data link `number`. Returns the link.
    fn attach(&mut self, number: u32) -> u32 {
        let link = self.next;
        self.attach_on(link, number);
        self.stage.run();
        self.next += 1;
        link
    }

    fn attach_on(&self, link: u32, number: u32) {
        let mut mac = Hmac::<Sha256>::new_from_slice(&[]).expect("a key of any length");
        mac.update(b"bmi_mx data link 1\0\x01");
        mac.update(&number.to_le_bytes());
        mac.update(&[0; 16]);
        mac.update(&[0; 16]);
        mac.update(&self.nonce);
        let proof = mac.finalize().into_bytes();
        let mut session = [0; 8];
        session.copy_from_slice(&self.nonce[..8]);
        let header = Header::new(Kind::Attach, u64::from_le_bytes(session), number);
        self.stage.say(link, header, &proof[..16]);
    }

    fn sent(&self, kind: Kind) -> Vec<Packet> {
        self.stage.sent(kind)
    }

    /// Returns the number of data links that have opened.
    fn opened(&self) -> u64 {
        self.stage.node.stats().data_links
    }

    /// Receives a large message that the peer offers. Returns the links on which the endpoint asks
    /// for its parts.
    fn pulled_on(&mut self) -> Vec<u32> {
        let memory = vec![0; LARGE as usize];
        let bits = MatchBits(BITS);
        let posted = self.stage.node.recv(bits, MatchMask::EXACT, memory, 0);
        posted.expect("a receive is posted");
        self.stage.offer(0, BITS, LARGE);
        self.stage.run();
        let link =
            |(_, _, body): &Packet| u32::from_le_bytes([body[12], body[13], body[14], body[15]]);
        self.sent(Kind::Pull).iter().map(link).collect()
    }
}

#[test]
fn a_data_link_has_a_number_that_stands_for_a_link() {
    for number in [1, 7, u32::MAX - 1] {
        let mut session = Session::new(1);
        session.attach(number);
        assert_eq!(
            (session.opened(), session.pulled_on()),
            (1, vec![number; 2])
        );
    }
    for number in [0, u32::MAX] {
        let mut session = Session::new(1);
        session.attach(number);
        assert_eq!((session.opened(), session.pulled_on()), (0, vec![0; 2]));
    }
}

#[test]
fn a_data_link_on_which_no_packet_of_ours_comes_is_lost() {
    for kind in [Kind::Attach, Kind::Connect, Kind::Eager, Kind::Ping] {
        let mut session = Session::new(1);
        let link = session.attach(1);
        session.stage.say(link, Header::new(kind, 0, 0), &[1; 20]);
        session.stage.run();
        let lost = session.sent(Kind::Lost);
        assert_eq!(lost.len(), 1, "{kind:?}");
        assert_eq!(
            (session.stage.node.remotes(), session.pulled_on()),
            (1, vec![0; 2])
        );
    }
    let mut session = Session::new(1);
    let link = session.attach(1);
    session.stage.say_bytes(link, [0xff; 32], &[1; 20]);
    session.stage.run();
    assert_eq!(session.sent(Kind::Lost).len(), 1);
    assert_eq!(
        (session.stage.node.remotes(), session.pulled_on()),
        (1, vec![0; 2])
    );
}

#[test]
fn a_link_whose_hello_is_refused_becomes_no_data_link() {
    let mut session = Session::new(1);
    let version = 0;
    session.stage.call_as(1, 1, version, 0);
    session.attach_on(1, 1);
    session.stage.run();
    assert_eq!((session.opened(), session.pulled_on()), (0, vec![0; 2]));
}

/// Number of links that the peer begins and breaks one after the other.
const ROUNDS: u32 = 2000;

#[test]
fn a_peer_that_reads_nothing_gets_no_further_data_links() {
    let mut session = Session::new(1);
    session.stage.deafen(1);
    for number in 1..=ROUNDS {
        let link = session.attach(number);
        session.stage.break_link(link);
        session.stage.run();
    }
    let opened = session.opened();
    session.stage.hear(0);
    session.stage.run();
    let lost = session.sent(Kind::Lost).len();
    assert!(lost < 300, "{lost} packets wait for the peer");
    // A peer that reads gets a link.
    session.attach(ROUNDS + 1);
    assert_eq!(session.opened(), opened + 1);
}
