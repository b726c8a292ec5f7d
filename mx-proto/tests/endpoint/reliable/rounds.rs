//! Calls between two events of a round.

use super::{Pair, bytes, command, micros, millis};
use mx_proto::LinkId;
use mx_proto::port::{Close, Destination, Place};
use mx_proto::reliability::ReliableConfig;
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_sim::header_of;

impl Pair {
    fn begin(&mut self, end: usize) {
        let now = self.now();
        Rounds::<Vec<u8>>::begin(&mut self.ports[end], now, 1000);
    }

    fn next(&mut self, end: usize) -> Option<PortEvent> {
        match Rounds::<Vec<u8>>::next(&mut self.ports[end]) {
            Next::Event(event) => Some(event),
            Next::End { .. } => None,
        }
    }

    /// Returns the next event that asks for no place.
    fn next_whole(&mut self, end: usize) -> Option<PortEvent> {
        loop {
            let event = self.next(end)?;
            if !matches!(event, PortEvent::Part { .. }) {
                return Some(event);
            }
            Rounds::<Vec<u8>>::skip(&mut self.ports[end]);
        }
    }

    /// Lets time pass until `next` finds an event in a round of the second end, and goes no
    /// further.
    fn first(&mut self, next: fn(&mut Self, usize) -> Option<PortEvent>) -> PortEvent {
        for _ in 0..1000 {
            self.poll(0);
            self.begin(1);
            if let Some(event) = next(self, 1) {
                return event;
            }
            self.pass(micros(20));
        }
        panic!("nothing has come");
    }

    fn body(&self, end: usize) -> Vec<u8> {
        Rounds::<Vec<u8>>::body(&self.ports[end]).to_vec()
    }

    /// Asserts that nothing more comes in this round or later, and that no session remains.
    fn ends_without_a_word(&mut self) {
        assert_eq!(self.next(1), None);
        self.run(millis(100));
        assert!(self.users[1].packets.is_empty() && self.users[1].down.is_empty());
        assert_eq!(self.sessions(), 0);
    }
}

/// Returns two ports with a link: its id at the first, then at the second.
fn connected() -> (Pair, LinkId, LinkId) {
    let (pair, link) = Pair::connected(ReliableConfig::default());
    let called = pair.users[1].from.expect("an introduction");
    (pair, link, called)
}

/// Lengths of bodies that come in one datagram, and in several.
const LENS: [usize; 2] = [100, 20_000];

#[test]
fn a_link_may_be_closed_while_its_packet_is_handled() {
    for (len, how) in LENS
        .into_iter()
        .flat_map(|len| [(len, Close::Now), (len, Close::Flush)])
    {
        let (mut pair, link, called) = connected();
        for mark in [1, 2] {
            pair.send(0, link, mark, &bytes(len)).unwrap();
        }
        let packet = PortEvent::Packet {
            link: called,
            header: header_of(1, len),
        };
        assert_eq!(pair.first(Pair::next_whole), packet);
        pair.close(1, called, how);
        assert_eq!(pair.body(1), bytes(len));
        pair.ends_without_a_word();
    }
}

#[test]
fn link_may_be_closed_before_a_body_part_is_read() {
    for how in [Close::Now, Close::Flush] {
        let (mut pair, link, called) = connected();
        pair.send(0, link, 1, &bytes(100_000)).unwrap();
        let part = PortEvent::Part {
            link: called,
            header: header_of(1, 100_000),
            begin: false,
        };
        assert_eq!(pair.first(Pair::next), part);
        assert_eq!(pair.body(1), b"");
        pair.close(1, called, how);
        let mut memory = vec![0; 100_000];
        let place = Place {
            memory: Destination::Memory(&mut memory),
            offset: 0,
        };
        pair.ports[1].read(place);
        assert!(memory.iter().all(|&byte| byte == 0));
        pair.ends_without_a_word();
    }
}

#[test]
fn answer_sent_during_a_packet_leaves_its_body_alone() {
    for len in LENS {
        let (mut pair, link, called) = connected();
        for mark in [1, 2] {
            pair.send(0, link, mark, &bytes(len)).unwrap();
        }
        for mark in [1, 2] {
            let packet = PortEvent::Packet {
                link: called,
                header: header_of(mark, len),
            };
            let next = pair.next_whole(1);
            let event = next.unwrap_or_else(|| pair.first(Pair::next_whole));
            assert_eq!(event, packet);
            let before = pair.logged();
            pair.send(1, called, mark, &bytes(300)).unwrap();
            assert_eq!(pair.logged(), before + 1, "it has left");
            assert_eq!(pair.body(1), bytes(len));
        }
        assert_eq!(pair.next(1), None);
        pair.run(millis(10));
        assert_eq!(pair.users[0].packets, [1, 2].map(|mark| (mark, bytes(300))));
    }
}

#[test]
fn events_of_a_closed_link_that_are_queued_do_not_come() {
    let (mut pair, link) = Pair::connected(ReliableConfig::default());
    let links = [link, pair.call(1), pair.call(1)];
    pair.run(millis(50));
    assert_eq!(pair.users[0].up, links);
    pair.net.cut_off(command(1));
    pair.ports[0].leave_old_addresses();
    pair.begin(0);
    let mut down = Vec::new();
    while let Some(event) = pair.next(0) {
        let PortEvent::Down(at, _) = event else {
            panic!("{event:?}");
        };
        down.push(at);
        pair.close(0, links[1], Close::Now);
    }
    assert_eq!(down, [links[0], links[2]]);
}
