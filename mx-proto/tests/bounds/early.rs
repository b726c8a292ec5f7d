//! Peers of the reliability layer that send everything but what is awaited.

use super::live;
use mx_proto::port::{
    ConnectError, Destination, HEADER_LEN, HeaderBytes, LinkControl, LinkDown, Place, Port,
};
use mx_proto::reliability::{
    Capacity, Channel, DatagramError, DatagramPort, GsoBatch, Incoming, Reliable, ReliableConfig,
};
use mx_proto::{Instant, LinkId, Source, Target};
use mx_sim::{Ear, Hearing};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

const EARLY: usize = 256 << 10;
const EARLY_ALL: usize = 512 << 10;
const PACKET_MAX: usize = 32 << 10;
/// Of a packet whose body has to have a place.
const LARGE: u32 = 247_808;
/// Limit of a session's memory besides what is counted: one packet, 8 KiB of early bytes, itself.
const SESSION: usize = PACKET_MAX + (8 << 10) + (6 << 10);

const DATAGRAM_HEADER: usize = 64;
const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const DATA: u8 = 3;
const RESET: u8 = 6;
const OPENING: u8 = 8;

/// Bytes of datagrams to the port, and what it answered.
#[derive(Default)]
struct Wire {
    inbound: VecDeque<(u32, Vec<u8>)>,
    welcome: Vec<u8>,
    resets: usize,
}

struct End(Rc<RefCell<Wire>>);

impl DatagramPort for End {
    type Address = u32;

    fn resolve(&mut self, target: Target) -> Result<u32, ConnectError> {
        Ok(target.endpoint.0)
    }

    fn data_name(&self) -> &[u8] {
        b"data"
    }

    fn data_address(&mut self, _: u32, _: &[u8]) -> Option<u32> {
        None
    }

    fn is_safe(&self, _: u32) -> bool {
        true
    }

    fn capacity(&self, _: Channel) -> Capacity {
        Capacity {
            datagram_max: 65_507,
            batch_max: 64,
            batch_bytes: 60_000,
        }
    }

    fn receive_buffer(&self) -> usize {
        4 << 20
    }

    fn now(&self) -> Instant {
        Instant(1)
    }

    fn send(&mut self, _: Channel, _: u32, batch: GsoBatch<'_>) -> Result<(), DatagramError> {
        let mut wire = self.0.borrow_mut();
        match batch.bytes[3] {
            WELCOME => wire.welcome = batch.bytes.to_vec(),
            RESET => wire.resets += 1,
            _ => {}
        }
        Ok(())
    }

    fn poll(&mut self, budget: usize, mut receive: impl FnMut(Incoming<'_, u32>)) -> bool {
        for _ in 0..budget {
            let next = self.0.borrow_mut().inbound.pop_front();
            let Some((from, bytes)) = next else {
                return false;
            };
            receive(Incoming::Datagrams {
                channel: Channel::Command,
                from,
                bytes: &bytes,
                segment: bytes.len(),
            });
        }
        true
    }

    fn drain_data(&mut self, _: usize, _: impl FnMut(Incoming<'_, u32>)) -> bool {
        // Everything comes over the command channel.
        true
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

/// Counts packets; has a place for every large one, if at all.
#[derive(Default)]
struct User {
    packets: usize,
    /// Of the last one.
    link: Option<LinkId>,
    place: Vec<u8>,
}

impl Ear for User {
    fn on_down(&mut self, _: LinkId, _: LinkDown) {}

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, _: &HeaderBytes, _: &B) {
        self.packets += 1;
        self.link = Some(link);
    }

    fn place(&mut self, _: LinkId, _: &HeaderBytes) -> Option<Place<'_, Vec<u8>>> {
        (!self.place.is_empty()).then_some(Place {
            memory: Destination::Memory(&mut self.place),
            offset: 0,
        })
    }
}

/// A peer with an open session, at its true address.
#[derive(Clone, Copy)]
struct Session {
    from: u32,
    theirs: u64,
    ack: u32,
}

/// A part of a fragment: which, of how many bytes, where it begins.
#[derive(Clone, Copy)]
struct At(u32, u32, u32);

struct Stage {
    port: Reliable<End>,
    wire: Rc<RefCell<Wire>>,
    user: User,
}

impl Stage {
    fn new() -> Self {
        let wire = Rc::new(RefCell::new(Wire::default()));
        let config = ReliableConfig {
            early_bytes: EARLY,
            early_bytes_all: EARLY_ALL,
            packet_max: PACKET_MAX,
            ..ReliableConfig::default()
        };
        Self {
            port: Reliable::new(End(wire.clone()), config, [7; 16]),
            wire,
            user: User::default(),
        }
    }

    fn poll(&mut self) {
        self.port
            .poll(Instant(1), 256, &mut Hearing(&mut self.user));
    }

    fn arrives(&mut self, from: u32, bytes: Vec<u8>) {
        self.wire.borrow_mut().inbound.push_back((from, bytes));
        self.poll();
    }

    fn open(&mut self, from: u32) -> Session {
        self.arrives(from, datagram(HELLO, 0, from.into(), &[0; 65]));
        let welcome = std::mem::take(&mut self.wire.borrow_mut().welcome);
        let session = Session {
            from,
            theirs: u64::from_le_bytes(welcome[16..24].try_into().unwrap()),
            ack: u32::from_le_bytes(welcome[24..28].try_into().unwrap()),
        };
        // It is let in: before that it could send nothing of what it is to be tried with.
        let whole = HEADER_LEN as u32;
        self.send(session, 0, At(0, whole, 0), &header(whole));
        let link = self.user.link.take().expect("a packet of its own");
        self.user.packets = 0;
        self.port.bind(link, 1);
        session
    }

    /// Segments and fragments count from the introduction.
    fn say(&mut self, session: Session, seq: u32, At(fragment, whole, offset): At, payload: &[u8]) {
        self.send(session, seq + 1, At(fragment + 1, whole, offset), payload);
    }

    fn send(&mut self, session: Session, seq: u32, at: At, payload: &[u8]) {
        let mut bytes = datagram(DATA, session.theirs, session.from.into(), payload);
        bytes[24..28].copy_from_slice(&seq.to_le_bytes());
        bytes[28..32].copy_from_slice(&session.ack.to_le_bytes());
        bytes[40..44].copy_from_slice(&(1u32 << 20).to_le_bytes());
        bytes[44] = OPENING;
        let At(fragment, whole, offset) = at;
        for (place, value) in [(48, fragment), (52, offset), (56, whole)] {
            bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
        }
        seal(&mut bytes);
        self.arrives(session.from, bytes);
    }

    /// They know of no session any more.
    fn forget(&mut self, session: Session) {
        let bytes = datagram(RESET, session.theirs, session.from.into(), &[]);
        self.arrives(session.from, bytes);
    }
}

fn datagram(kind: u8, to: u64, from: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; DATAGRAM_HEADER];
    bytes[..4].copy_from_slice(&[b'm', b'R', 3, kind]);
    bytes[8..16].copy_from_slice(&to.to_le_bytes());
    bytes[16..24].copy_from_slice(&from.to_le_bytes());
    bytes[46..48].copy_from_slice(&(payload.len() as u16).to_le_bytes());
    bytes.extend(payload);
    seal(&mut bytes);
    bytes
}

/// CRC-32C of the header, bit by bit.
fn seal(bytes: &mut [u8]) {
    bytes[4..8].fill(0);
    let step = |crc: u32| crc >> 1 ^ (0x82f6_3b78 * (crc & 1));
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    let sum = !bytes[..DATAGRAM_HEADER].iter().fold(u32::MAX, byte);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// A packet's header, for a fragment of so many bytes.
fn header(whole: u32) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    let at = mx_proto::port::BODY_LEN_AT;
    header[at..at + 4].copy_from_slice(&(whole - HEADER_LEN as u32).to_le_bytes());
    header
}

type Attack = fn(&mut Stage, Session);

/// Single bytes of the front fragment, none beside another, in numbers without a hole.
fn front_without_a_header(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(0, LARGE, 32 + 2 * seq), &[1]);
    }
}

/// The same of one that is wanted, or not, after its header.
fn front_with_a_header(stage: &mut Stage, session: Session) {
    stage.say(session, 0, At(0, LARGE, 0), &header(LARGE));
    for seq in 1..20_000 {
        stage.say(session, seq, At(0, LARGE, 32 + 2 * seq), &[1]);
    }
}

/// All that the window takes, before the front fragment has begun.
fn front_early(stage: &mut Stage, session: Session) {
    for seq in 1..1024 {
        stage.say(session, seq, At(0, LARGE, 32 + 2 * seq), &[1]);
    }
}

/// Single bytes of a fragment that is never its turn.
fn one_behind(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(1, LARGE, 32 + 2 * seq), &[1]);
    }
}

/// The same after its header, from its end.
fn one_behind_backwards(stage: &mut Stage, session: Session) {
    stage.say(session, 0, At(1, LARGE, 0), &header(LARGE));
    for seq in 1..20_000 {
        stage.say(session, seq, At(1, LARGE, LARGE - 2 * seq), &[1]);
    }
}

/// A byte each of many fragments.
fn a_byte_of_each(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(1 + seq, LARGE, 33), &[1]);
    }
}

/// The header each of many fragments.
fn a_header_of_each(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(1 + seq, LARGE, 0), &header(LARGE));
    }
}

/// Many packets without a body.
fn empty_packets(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(1 + seq, 32, 0), &header(32));
    }
}

/// A packet byte by byte, all but its last.
fn a_packet_in_bytes(stage: &mut Stage, session: Session) {
    let whole = (HEADER_LEN + PACKET_MAX) as u32;
    stage.say(session, 0, At(0, whole, 0), &header(whole));
    for seq in 1..PACKET_MAX as u32 {
        stage.say(session, seq, At(0, whole, 31 + seq), &[1]);
    }
}

/// Packets in two parts, and after each a byte of a fragment of its own that stays.
fn memory_that_is_used_again(stage: &mut Stage, session: Session) {
    let whole = (HEADER_LEN + PACKET_MAX) as u32;
    let mut first = [0; 1000];
    first[..HEADER_LEN].copy_from_slice(&header(whole));
    for n in 0..200 {
        stage.say(session, 3 * n, At(n, whole, 0), &first);
        stage.say(
            session,
            3 * n + 1,
            At(n, whole, 1000),
            &[1; PACKET_MAX + HEADER_LEN - 1000],
        );
        stage.say(session, 3 * n + 2, At(1000 + n, LARGE, 33), &[1]);
    }
}

/// Every other byte of a fragment, then those between, and so on with the next.
fn tables_that_were_large(stage: &mut Stage, session: Session) {
    let (mut seq, whole) = (0, 20_000);
    for n in 1..=40 {
        stage.say(session, seq, At(n, whole, 0), &header(whole));
        for at in (0..800)
            .map(|i| 33 + 2 * i)
            .chain((0..800).map(|i| 32 + 2 * i))
        {
            seq += 1;
            stage.say(session, seq, At(n, whole, at), &[1]);
        }
        seq += 1;
    }
}

const ATTACKS: [(&str, Attack); 11] = [
    ("front, no header", front_without_a_header),
    ("front, header", front_with_a_header),
    ("front, early", front_early),
    ("one behind", one_behind),
    ("one behind, backwards", one_behind_backwards),
    ("a byte of each", a_byte_of_each),
    ("a header of each", a_header_of_each),
    ("empty packets", empty_packets),
    ("a packet in bytes", a_packet_in_bytes),
    ("memory used again", memory_that_is_used_again),
    ("large tables", tables_that_were_large),
];

#[test]
fn what_comes_early_takes_no_more_than_is_counted_and_that_is_limited() {
    for (name, attack) in ATTACKS {
        for wanted in [false, true] {
            let mut stage = Stage::new();
            stage.user.place = vec![0; if wanted { LARGE as usize } else { 0 }];
            let before = live();
            for from in 1..=6 {
                let session = stage.open(from);
                attack(&mut stage, session);
                let counted = stage.port.early_bytes();
                let grown = (live() - before) as usize;
                println!("{name}, wanted: {wanted}: {counted} counted, {grown} bytes");
                assert!(counted <= EARLY_ALL, "{name}");
                assert!(grown <= counted + from as usize * SESSION, "{name}");
            }
        }
    }
}

#[test]
fn what_was_counted_is_given_back_when_the_sessions_end() {
    for (name, attack) in ATTACKS {
        let mut stage = Stage::new();
        let sessions = [1, 2, 3].map(|from| {
            let session = stage.open(from);
            attack(&mut stage, session);
            session
        });
        for session in sessions {
            stage.forget(session);
        }
        assert_eq!(stage.port.sessions(), 0, "{name}");
        assert_eq!(stage.port.early_bytes(), 0, "{name}");
    }
}

#[test]
fn bytes_of_the_front_fragment_that_are_not_the_next_end_the_session() {
    for attack in [front_without_a_header, front_with_a_header] {
        let mut stage = Stage::new();
        let session = stage.open(1);
        attack(&mut stage, session);
        assert_eq!(stage.port.sessions(), 0);
    }
}

#[test]
fn peers_that_hold_all_there_is_leave_the_others_some() {
    let mut stage = Stage::new();
    for from in 1..=20 {
        let session = stage.open(from);
        one_behind(&mut stage, session);
    }
    assert_eq!(stage.port.sessions(), 20);
    for from in 100..110 {
        let honest = stage.open(from);
        // Three arrive before the first: enough to show the sender that it is lost.
        let whole = 1400;
        let mut packet = vec![0; whole as usize];
        packet[..HEADER_LEN].copy_from_slice(&header(whole));
        for seq in [1, 2, 3, 0] {
            stage.say(honest, seq, At(seq, whole, 0), &packet);
        }
        stage.poll();
        assert_eq!(std::mem::take(&mut stage.user.packets), 4);
    }
}
