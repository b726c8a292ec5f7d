//! Messages through the reliability layer over the service: over `udp` of the installed libfabric, and over a fake
//! provider that loses and delays.

use super::*;
use libfabric_fake::{Fake, Faults, Shape};
use mx_proto::LinkId;
use mx_proto::port::{Body, LinkControl, Port, SendError};
use mx_proto::reliability::{DatagramPort, Reliable, ReliableConfig};
use mx_sim::Polled;
use mx_sim::recorder::{Recorder, SinkCall, header_of};
use std::net::Ipv4Addr;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Two ports, each with a recording sink.
struct Pair {
    ports: [Reliable<FabricDatagrams>; 2],
    seen: [Recorder; 2],
    packets: [Vec<(LinkId, Vec<u8>)>; 2],
    up: Vec<LinkId>,
    until: std::time::Instant,
}

impl Pair {
    fn new(options: impl Fn() -> DgramOptions) -> Self {
        let port = |key: u8| {
            let service = FabricDatagrams::open(options()).unwrap();
            Reliable::new(service, ReliableConfig::default(), [key; 16])
        };
        Self {
            ports: [port(1), port(2)],
            seen: Default::default(),
            packets: Default::default(),
            up: Vec::new(),
            until: std::time::Instant::now() + TIMEOUT,
        }
    }

    fn poll(&mut self) {
        assert!(
            std::time::Instant::now() < self.until,
            "no end in {TIMEOUT:?}"
        );
        for end in 0..2 {
            Polled::<Vec<u8>>::poll(
                &mut self.ports[end],
                MonotonicClock.now(),
                64,
                &mut self.seen[end],
            );
            for seen in self.seen[end].take() {
                match seen {
                    SinkCall::Packet { link, body, .. } => {
                        self.ports[end].accept(link);
                        self.packets[end].push((link, body));
                    }
                    SinkCall::Up(link) => self.up.push(link),
                    SinkCall::Writable(..) => (),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn connect(&mut self) -> LinkId {
        let name = self.ports[1].datagrams().address(Channel::Command);
        let link = self.ports[0].call_at(name, MonotonicClock.now()).unwrap();
        while self.up.is_empty() {
            self.poll();
        }
        assert_eq!(self.up, [link]);
        link
    }

    fn send(&mut self, end: usize, link: LinkId, body: &[u8]) {
        loop {
            let bytes: Body<'_, Vec<u8>> = Body::Bytes(body);
            match self.ports[end].send(link, &header_of(1, body.len()), bytes) {
                Ok(_) => return,
                Err(SendError::WouldBlock) => self.poll(),
                Err(SendError::Down) => panic!("the link is down"),
            }
        }
    }
}

fn body(number: usize) -> Vec<u8> {
    let len = [1, 64, 700, 1500, 5000, 32 << 10][number % 6];
    (0..len)
        .map(|at| (at * 7 + at / 251 + number) as u8)
        .collect()
}

/// Sends packets of all sizes both ways and checks that they arrive whole and in order.
fn exchange(pair: &mut Pair, count: usize) {
    let link = pair.connect();
    for number in 0..count {
        pair.send(0, link, &body(number));
    }
    while pair.packets[1].len() < count {
        pair.poll();
    }
    let back = pair.packets[1][0].0;
    for number in 0..count {
        pair.send(1, back, &body(number));
    }
    while pair.packets[0].len() < count {
        pair.poll();
    }
    for (packets, link) in pair.packets.iter().zip([link, back]) {
        for (number, packet) in packets.iter().enumerate() {
            assert!(*packet == (link, body(number)), "packet {number}");
        }
    }
}

#[test]
fn messages_of_all_sizes_go_over_udp_both_ways() {
    let mut pair = Pair::new(|| DgramOptions {
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        provider: Some("udp".into()),
        ..DgramOptions::default()
    });
    exchange(&mut pair, 300);
    for port in &pair.ports {
        let stats = port.datagrams().stats();
        assert_eq!((stats.foreign, stats.damaged, stats.strays), (0, 0, 0));
        // Data uses its own channel once a probe on it has been answered.
        let service = port.datagrams();
        assert_eq!(service.capacity(Channel::Data).batch_max, 1);
    }
}

#[test]
fn messages_of_all_sizes_pass_a_lossy_slow_fabric() {
    let shapes = [
        Shape::usnic(),
        Shape::udp(),
        Shape::verbs_ud(),
        fake_tests::efa(),
    ];
    for shape in shapes {
        let fake = Fake::new(shape, 7);
        let library = fake.library();
        let mut pair = Pair::new(|| DgramOptions {
            library: Some(library.clone()),
            ..DgramOptions::default()
        });
        fake.faults(|faults| {
            *faults = Faults::rough();
            faults.lose = 0.02;
            faults.error = 0.01;
        });
        exchange(&mut pair, 120);
        assert!(fake.stats().lost > 0);
        fake.faults(|faults| *faults = Faults::none());
        drop(pair);
        fake.assert_clean();
        assert_eq!((fake.lent(), fake.registered()), (0, (0, 0)));
    }
}
