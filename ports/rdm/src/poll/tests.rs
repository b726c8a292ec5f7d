//! Calls of the port between two events of a round.

use super::*;
use crate::RdmOptions;
use crate::frame::Frame;
use crate::links::State;
use libfabric_fake::{Fake, Faults, Shape};
use mx_port_base::clock::MonotonicClock;
use mx_proto::Clock;
use mx_proto::port::{
    BODY_LEN_AT, Body, Close, Destination, HEADER_LEN, HeaderBytes, LinkControl, Port, SendError,
    Sent,
};

/// Number of rounds in which anything arrives.
const MANY: usize = 20;

/// Completions that a round handles: no multiple of [`BATCH`].
const BUDGET: usize = 50;

/// Two ports with a link between them.
struct Pair {
    fake: Fake,
    caller: RdmPort,
    callee: RdmPort,
    /// Link id at the caller.
    to: LinkId,
    /// Link id at the callee.
    from: LinkId,
}

fn next(port: &mut RdmPort) -> Next {
    Rounds::<Vec<u8>>::next(port)
}

fn begin(port: &mut RdmPort) {
    Rounds::<Vec<u8>>::begin(port, MonotonicClock.now(), BUDGET);
}

fn body(port: &RdmPort) -> Vec<u8> {
    Rounds::<Vec<u8>>::body(port).to_vec()
}

/// Runs rounds up to an event, and returns it in the middle of its round.
fn event(port: &mut RdmPort) -> PortEvent {
    for _ in 0..MANY {
        begin(port);
        if let Next::Event(event) = next(port) {
            return event;
        }
    }
    panic!("nothing happens: {port:?}");
}

/// Returns the other events of the round.
fn rest(port: &mut RdmPort) -> Vec<PortEvent> {
    std::iter::from_fn(|| match next(port) {
        Next::Event(event) => Some(event),
        Next::End { .. } => None,
    })
    .collect()
}

fn header(len: usize) -> HeaderBytes {
    let mut header = [7; HEADER_LEN];
    header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
    header
}

fn packet(link: LinkId, len: usize) -> PortEvent {
    let header = header(len);
    PortEvent::Packet { link, header }
}

fn part(link: LinkId, len: usize, begin: bool) -> PortEvent {
    PortEvent::Part {
        link,
        header: header(len),
        begin,
    }
}

impl Pair {
    /// Creates a pair whose link has been started, with its first frame in flight.
    fn greeting() -> Self {
        let shape = Shape {
            connect_polls: 0,
            ..Shape::tcp()
        };
        let fake = Fake::new(shape, 1);
        let open = || {
            RdmPort::open(RdmOptions {
                library: Some(fake.library()),
                ..RdmOptions::default()
            })
        };
        let (mut caller, mut callee) = (open().unwrap(), open().unwrap());
        let now = MonotonicClock.now();
        let (from, address) = callee.offer(now).unwrap();
        let to = caller.call(&address, now).unwrap();
        Self {
            fake,
            caller,
            callee,
            to,
            from,
        }
    }

    /// Creates a pair whose link is up, with nothing in flight.
    fn up() -> Self {
        let mut pair = Self::greeting();
        for _ in 0..MANY {
            begin(&mut pair.callee);
            assert_eq!(rest(&mut pair.callee), []);
            begin(&mut pair.caller);
            if rest(&mut pair.caller) == [PortEvent::Up(pair.to)] {
                return pair;
            }
        }
        panic!("{:?}", pair.caller);
    }

    fn send(&mut self, bytes: &[u8]) {
        let body = Body::<Vec<u8>>::Bytes(bytes);
        let sent = self.caller.send(self.to, &header(bytes.len()), body);
        assert_eq!(sent, Ok(Sent::Whole));
    }

    /// Sends a body of three frames, and returns its bytes.
    fn send_long(&mut self) -> Vec<u8> {
        let frame = self.caller.limits(self.to).packet_max;
        let memory: Vec<u8> = (0..3 * frame).map(|at| (at % 251) as u8).collect();
        let (offset, len) = (0, memory.len());
        let body = Body::Memory {
            memory: &memory,
            offset,
            len,
        };
        let sent = self.caller.send(self.to, &header(len), body);
        assert_eq!(sent, Ok(Sent::Whole));
        memory
    }

    /// Delivers a frame from the caller to the callee, `by` frames early.
    fn overtake(&mut self, by: u16, kind: FrameKind, body: &[u8]) {
        let number = self.caller.links.of(self.to).unwrap().sequence.number();
        let frame = Frame {
            kind,
            number: number + by,
            link: 0,
            cookie: 0,
        };
        let now = self.callee.now;
        assert!(self.callee.links.hold(self.from, &frame, body, now));
    }

    /// Checks that the callee reports nothing more of the link, and that no rule of the provider was broken.
    fn ends_silently(mut self) {
        assert_eq!(rest(&mut self.callee), []);
        for _ in 0..MANY {
            begin(&mut self.caller);
            rest(&mut self.caller);
            begin(&mut self.callee);
            assert_eq!(rest(&mut self.callee), []);
        }
        drop((self.caller, self.callee));
        self.fake.assert_clean();
    }
}

fn read(port: &mut RdmPort, into: &mut Vec<u8>) {
    let memory = Destination::<Vec<u8>>::Bytes(into);
    port.read(Place { memory, offset: 0 });
}

#[test]
fn a_link_closed_at_one_of_its_packets_gives_no_other() {
    for how in [Close::Now, Close::Flush] {
        let mut pair = Pair::up();
        for bytes in [&b"one"[..], b"two", b"three"] {
            pair.send(bytes);
        }
        assert_eq!(event(&mut pair.callee), packet(pair.from, 3));
        assert_eq!(next(&mut pair.callee), Next::Event(packet(pair.from, 3)));
        pair.callee.close(pair.from, how);
        assert_eq!(body(&pair.callee), b"two", "lent until the next event");
        pair.ends_silently();
    }
}

#[test]
fn a_link_closed_at_a_part_reads_no_more_of_it() {
    for closed_at in 0..3 {
        let mut pair = Pair::up();
        let sent = pair.send_long();
        let mut got = vec![0; sent.len()];
        let mut part_of = event(&mut pair.callee);
        for number in 0..closed_at {
            assert_eq!(part_of, part(pair.from, sent.len(), number == 0));
            read(&mut pair.callee, &mut got);
            let Next::Event(another) = next(&mut pair.callee) else {
                panic!("part {number} is the last");
            };
            part_of = another;
        }
        assert_eq!(part_of, part(pair.from, sent.len(), closed_at == 0));
        pair.callee.close(pair.from, Close::Now);
        let before = got.clone();
        read(&mut pair.callee, &mut got);
        assert!(got == before, "closed at part {closed_at}");
        pair.ends_silently();
    }
}

#[test]
fn skipped_body_is_dropped_and_other_packets_arrive() {
    let mut pair = Pair::up();
    pair.send(b"before");
    let sent = pair.send_long();
    let again = pair.send_long();
    pair.send(b"after");
    assert_eq!(event(&mut pair.callee), packet(pair.from, 6));
    let (link, len) = (pair.from, sent.len());
    assert_eq!(next(&mut pair.callee), Next::Event(part(link, len, true)));
    Rounds::<Vec<u8>>::skip(&mut pair.callee);
    let mut got = vec![0; len];
    for begin in [true, false, false] {
        assert_eq!(next(&mut pair.callee), Next::Event(part(link, len, begin)));
        read(&mut pair.callee, &mut got);
    }
    let header = header(len);
    let placed = PortEvent::Placed { link, header };
    assert_eq!(next(&mut pair.callee), Next::Event(placed));
    assert!(got == again);
    assert_eq!(rest(&mut pair.callee), [packet(link, 5)]);
}

#[test]
fn held_frames_follow_in_their_round_unless_the_link_is_closed() {
    for closed in [false, true] {
        let mut pair = Pair::up();
        let early: Vec<u8> = [&header(5)[..], b"early"].concat();
        pair.overtake(1, FrameKind::Packet, &early);
        pair.overtake(2, FrameKind::Bye, &[]);
        pair.send(b"one");
        assert_eq!(event(&mut pair.callee), packet(pair.from, 3));
        assert_eq!(body(&pair.callee), b"one");
        if closed {
            pair.callee.close(pair.from, Close::Now);
            assert_eq!(rest(&mut pair.callee), []);
        } else {
            assert_eq!(next(&mut pair.callee), Next::Event(packet(pair.from, 5)));
            assert_eq!(body(&pair.callee), b"early");
            let down = PortEvent::Down(pair.from, LinkDown::Closed);
            assert_eq!(rest(&mut pair.callee), [down]);
        }
        // A link that was closed before has ended with the peer's Bye.
        assert!(pair.callee.links.of(pair.from).is_none());
    }
}

#[test]
fn a_link_closed_as_it_comes_up_gives_no_packet() {
    for closed in [false, true] {
        let mut pair = Pair::greeting();
        // The peer sends a packet right after its HelloAck.
        while pair.callee.links.of(pair.from).unwrap().state != State::Up {
            begin(&mut pair.callee);
            assert_eq!(rest(&mut pair.callee), []);
        }
        let body_sent = Body::<Vec<u8>>::Bytes(b"one");
        let sent = pair.callee.send(pair.from, &header(3), body_sent);
        assert_eq!(sent, Ok(Sent::Whole));
        assert_eq!(event(&mut pair.caller), PortEvent::Up(pair.to));
        if closed {
            pair.caller.close(pair.to, Close::Now);
        } else {
            assert_eq!(next(&mut pair.caller), Next::Event(packet(pair.to, 3)));
            assert_eq!(body(&pair.caller), b"one");
        }
        assert_eq!(rest(&mut pair.caller), []);
    }
}

#[test]
fn link_closed_before_its_greeting_answer_is_gone() {
    let mut pair = Pair::greeting();
    pair.caller.close(pair.to, Close::Now);
    assert!(pair.caller.links.of(pair.to).is_none());
    // The Hello is in flight, and the called side closes its end with the session.
    assert_eq!(rest(&mut pair.callee), []);
    pair.callee.close(pair.from, Close::Now);
    pair.ends_silently();
}

#[test]
fn a_link_closed_while_it_waits_for_room_gives_no_word_of_it() {
    for closed in [false, true] {
        let mut pair = Pair::up();
        pair.fake.faults(|faults| faults.again = 1.0);
        let body_sent = Body::<Vec<u8>>::Bytes(b"one");
        let sent = pair.caller.send(pair.to, &header(3), body_sent);
        assert_eq!(sent, Err(SendError::WouldBlock));
        if closed {
            pair.caller.close(pair.to, Close::Flush);
        }
        pair.fake.faults(|faults| *faults = Faults::none());
        let due = pair.caller.room_at;
        Rounds::<Vec<u8>>::begin(&mut pair.caller, due, BUDGET);
        let told = rest(&mut pair.caller);
        let room = [PortEvent::Writable(pair.to)];
        assert_eq!(told, if closed { &[][..] } else { &room[..] });
        assert!(pair.caller.blocked.is_empty(), "what waited has been tried");
    }
}

#[test]
fn fabric_reopened_between_events_drops_its_frames() {
    let mut pair = Pair::up();
    for bytes in [&b"one"[..], b"two"] {
        pair.send(bytes);
    }
    assert_eq!(event(&mut pair.callee), packet(pair.from, 3));
    pair.callee.renew();
    assert_eq!(body(&pair.callee), b"");
    let down = PortEvent::Down(pair.from, LinkDown::Reset);
    assert_eq!(rest(&mut pair.callee), [down]);
    pair.ends_silently();
}

#[test]
fn a_round_ends_though_its_peer_sends_at_every_event() {
    let mut pair = Pair::up();
    (0..2 * BUDGET).for_each(|_| pair.send(b"ping"));
    let mut given = 0;
    for _ in 0..MANY {
        begin(&mut pair.callee);
        let before = given;
        while let Next::Event(event) = next(&mut pair.callee) {
            assert_eq!(event, packet(pair.from, 4));
            given += 1;
            pair.send(b"pong");
        }
        assert!(given <= before + BUDGET);
    }
    assert!(given > BUDGET);
}
