//! Peers of the reliability layer that send everything except the awaited segments.

use super::live;
use mx_proto::port::{Destination, HEADER_LEN, HeaderBytes, LinkControl, LinkDown, Place};
use mx_proto::reliability::{Reliable, ReliableConfig};
use mx_proto::{EndpointId, Instant, LinkId, NicId, Source};
use mx_sim::Polled;
use mx_sim::datagram::header::{
    ACKED, DATA, FLAGS, FRAGMENT, FROM, GREETING, HELLO, OFFSET, OPENING, RESET, SEQ, TO, WELCOME,
    WHOLE, WINDOW, build, is_kind,
};
use mx_sim::datagram::{Passage, Terms};
use mx_sim::{DatagramNet, Ear, Hearing, SimAddress, SimDatagrams, World};
use std::cell::Cell;
use std::rc::Rc;

const EARLY: usize = 256 << 10;
const EARLY_ALL: usize = 512 << 10;
const PACKET_MAX: usize = 32 << 10;
/// Length of a fragment that is too large to be kept without a place for its body.
const LARGE: u32 = 247_808;
/// Limit of a session's memory besides what is counted: one packet, 8 KiB of early bytes, the
/// session itself.
const SESSION: usize = PACKET_MAX + (8 << 10) + (6 << 10);

/// Counts packets; may provide a place for every large one.
#[derive(Default)]
struct User {
    packets: usize,
    /// The link of the last event.
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

/// A peer with an open session, which sends from its true address.
#[derive(Clone, Copy)]
struct Session {
    from: u32,
    theirs: u64,
    ack: u64,
}

/// A part of a fragment: the number of the fragment, its length and the offset of the part, in
/// bytes.
#[derive(Clone, Copy)]
struct At(u32, u32, u32);

struct Stage {
    port: Reliable<SimDatagrams>,
    net: DatagramNet,
    /// Cookie and first number in the last Welcome that the port has sent.
    welcome: Rc<Cell<(u64, u64)>>,
    user: User,
}

impl Stage {
    fn new() -> Self {
        let world = World::new(1);
        let terms = Terms {
            safe: true,
            answers_refused: false,
            ..Terms::default()
        };
        let net = DatagramNet::new(&world, terms);
        let welcome = Rc::new(Cell::new((0, 0)));
        let last = Rc::clone(&welcome);
        net.set_gate(Box::new(move |_, _, batch| {
            if is_kind(batch.bytes, WELCOME) {
                last.set((FROM.of(batch.bytes), SEQ.of(batch.bytes)));
            }
            Passage::Taken
        }));
        let config = ReliableConfig {
            early_bytes: EARLY,
            early_bytes_all: EARLY_ALL,
            packet_max: PACKET_MAX,
            ..ReliableConfig::default()
        };
        let datagrams = SimDatagrams::open(&net, 0, NicId(1), EndpointId(0)).expect("a free name");
        Self {
            port: Reliable::new(datagrams, config, [7; 16]),
            net,
            welcome,
            user: User::default(),
        }
    }

    fn poll(&mut self) {
        self.port
            .poll(Instant(1), 256, &mut Hearing(&mut self.user));
    }

    fn arrives(&mut self, from: u32, bytes: &[u8]) {
        let [from, to] = [from, 0].map(|it| SimAddress::command(NicId(1), EndpointId(it)));
        self.net.inject(from, to, bytes);
        self.poll();
    }

    fn open(&mut self, from: u32) -> Session {
        let hello = build(HELLO, &[(FROM, from.into())], &[0; GREETING]);
        self.arrives(from, &hello);
        let (theirs, ack) = self.welcome.get();
        let session = Session { from, theirs, ack };
        // The session has to be accepted, or the peer could not send what the tests try.
        let whole = HEADER_LEN as u32;
        self.send(session, 0, At(0, whole, 0), &header(whole));
        let link = self.user.link.take().expect("a packet of its own");
        self.user.packets = 0;
        self.port.accept(link);
        session
    }

    /// Sends a segment, with numbers of segments and fragments counted from after the introduction.
    fn say(&mut self, session: Session, seq: u32, At(fragment, whole, offset): At, payload: &[u8]) {
        self.send(session, seq + 1, At(fragment + 1, whole, offset), payload);
    }

    fn send(&mut self, session: Session, seq: u32, at: At, payload: &[u8]) {
        let At(fragment, whole, offset) = at;
        let fields = [
            (TO, session.theirs),
            (FROM, session.from.into()),
            (SEQ, seq.into()),
            (ACKED, session.ack),
            (WINDOW, 1 << 20),
            (FLAGS, OPENING),
            (FRAGMENT, fragment.into()),
            (OFFSET, offset.into()),
            (WHOLE, whole.into()),
        ];
        self.arrives(session.from, &build(DATA, &fields, payload));
    }

    /// Sends a Reset: the peer no longer has the session.
    fn forget(&mut self, session: Session) {
        let cookies = [(TO, session.theirs), (FROM, session.from.into())];
        self.arrives(session.from, &build(RESET, &cookies, &[]));
    }
}

/// Makes the header of a packet of `whole` bytes, the header included.
fn header(whole: u32) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    let at = mx_proto::port::BODY_LEN_AT;
    header[at..at + 4].copy_from_slice(&(whole - HEADER_LEN as u32).to_le_bytes());
    header
}

type Attack = fn(&mut Stage, Session);

/// Sends single bytes of the front fragment, no two of them adjacent, in segments without a gap.
fn front_without_a_header(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(0, LARGE, 32 + 2 * seq), &[1]);
    }
}

/// Sends the header of the front packet, then single bytes of it.
fn front_with_a_header(stage: &mut Stage, session: Session) {
    stage.say(session, 0, At(0, LARGE, 0), &header(LARGE));
    for seq in 1..20_000 {
        stage.say(session, seq, At(0, LARGE, 32 + 2 * seq), &[1]);
    }
}

/// Fills the window before the first segment of the front fragment.
fn front_early(stage: &mut Stage, session: Session) {
    for seq in 1..1024 {
        stage.say(session, seq, At(0, LARGE, 32 + 2 * seq), &[1]);
    }
}

/// Sends single bytes of a fragment behind the front, which never comes.
fn one_behind(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(1, LARGE, 32 + 2 * seq), &[1]);
    }
}

/// Sends the header of a packet behind the front, then single bytes of it from its end.
fn one_behind_backwards(stage: &mut Stage, session: Session) {
    stage.say(session, 0, At(1, LARGE, 0), &header(LARGE));
    for seq in 1..20_000 {
        stage.say(session, seq, At(1, LARGE, LARGE - 2 * seq), &[1]);
    }
}

/// Sends one byte of each of many fragments.
fn a_byte_of_each(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(1 + seq, LARGE, 33), &[1]);
    }
}

/// Sends the header of each of many fragments.
fn a_header_of_each(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(1 + seq, LARGE, 0), &header(LARGE));
    }
}

/// Sends many packets without a body.
fn empty_packets(stage: &mut Stage, session: Session) {
    for seq in 0..20_000 {
        stage.say(session, seq, At(1 + seq, 32, 0), &header(32));
    }
}

/// Sends all bytes of a packet but the last, one by one.
fn a_packet_in_bytes(stage: &mut Stage, session: Session) {
    let whole = (HEADER_LEN + PACKET_MAX) as u32;
    stage.say(session, 0, At(0, whole, 0), &header(whole));
    for seq in 1..PACKET_MAX as u32 {
        stage.say(session, seq, At(0, whole, 31 + seq), &[1]);
    }
}

/// Sends packets in two parts, and after each a byte of a further fragment, which remains.
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

/// Sends every other byte of a fragment, then those between, and so on with the next fragment.
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
fn early_bytes_are_counted_and_limited() {
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
fn misplaced_bytes_of_the_front_fragment_end_the_session() {
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
        // Three arrive before the first, enough to show the sender that the first is lost.
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
