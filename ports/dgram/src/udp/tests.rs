//! The service over kernel UDP, on loopback.

use super::*;
use mx_proto::reliability::Quote;
use mx_proto::{EndpointId, NicId, Route};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant as Wall};

const LONG: Duration = Duration::from_secs(20);

const HOSTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

fn is_here(address: IpAddr) -> bool {
    Interfaces::now().has(address)
}

/// Service that knows a single address, with the datagrams it received.
struct Side {
    udp: UdpDatagrams,
    got: Vec<(Channel, Address, Vec<u8>)>,
    /// Number of datagrams in each batch handed out.
    pieces: Vec<usize>,
    refused: Vec<(Address, Option<Quote>)>,
    too_large: Vec<(Address, usize)>,
}

impl Side {
    fn new(bind: Option<IpAddr>) -> Self {
        let options = DgramOptions {
            bind,
            is_here,
            receive_buffer: 4 << 20,
            ..DgramOptions::default()
        };
        Self {
            udp: UdpDatagrams::open(&options, Box::new(|_| Err(ConnectError::NoRoute))).unwrap(),
            got: Vec::new(),
            pieces: Vec::new(),
            refused: Vec::new(),
            too_large: Vec::new(),
        }
    }

    fn at(&self, host: IpAddr, channel: Channel) -> Address {
        let port = match channel {
            Channel::Command => self.udp.command.port(),
            Channel::Data => self.udp.data.port(),
        };
        Address::new(SocketAddr::new(host, port))
    }

    fn poll(&mut self) -> bool {
        self.udp.begin(64);
        loop {
            let incoming = match self.udp.next() {
                Received::Incoming(incoming) => incoming,
                Received::End { any, .. } => return any,
            };
            match incoming {
                Incoming::Datagrams {
                    channel,
                    from,
                    segment,
                } => {
                    let each = self.udp.bytes().chunks(segment);
                    self.pieces.push(each.len());
                    self.got
                        .extend(each.map(|bytes| (channel, from, bytes.to_vec())));
                }
                Incoming::Refused { to, quote } => self.refused.push((to, quote)),
                Incoming::TooLarge { to, most, .. } => self.too_large.push((to, most)),
            }
        }
    }

    /// Polls until `ready`.
    fn until(&mut self, mut ready: impl FnMut(&Self) -> bool) {
        let begin = Wall::now();
        while !ready(self) {
            assert!(begin.elapsed() < LONG, "{} datagrams", self.got.len());
            self.poll();
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn batch(bytes: &[u8], segment: usize) -> GsoBatch<'_> {
    GsoBatch {
        bytes,
        segment,
        may_fragment: false,
        express: false,
    }
}

#[test]
fn batches_of_all_shapes_arrive_on_both_channels() {
    let shapes = [
        (1, 1),
        (100, 100),
        (100, 1000),
        (768, 64),
        (1200, 1200),
        (2048, 2048),
        (12_000, 1200),
        (12_001, 1200),
        (11_999, 1200),
        (76_800 / 2, 600),
        (60_000, 1452),
    ];
    let large = [
        (9000, 9000),
        (61_440, 8192),
        (61_441, 20_000),
        (65_487, 65_487),
    ];
    for host in HOSTS {
        let mut sides = [Side::new(None), Side::new(Some(host))];
        for channel in [Channel::Command, Channel::Data] {
            let large = large.iter().filter(|_| channel == Channel::Data);
            for &(len, segment) in shapes.iter().chain(large) {
                for from in [0, 1] {
                    let to = sides[1 - from].at(host, channel);
                    let bytes = pattern(len);
                    let source = sides[from].at(host, channel);
                    sides[from]
                        .udp
                        .send(channel, to, batch(&bytes, segment))
                        .unwrap();
                    let side = &mut sides[1 - from];
                    let count = len.div_ceil(segment);
                    side.until(|side| side.got.len() >= count);
                    let expected: Vec<_> = bytes
                        .chunks(segment)
                        .map(|bytes| (channel, source, bytes.to_vec()))
                        .collect();
                    assert!(
                        std::mem::take(&mut side.got) == expected,
                        "{len} by {segment}"
                    );
                }
            }
        }
        assert!(
            sides
                .iter()
                .all(|side| side.refused.is_empty() && side.too_large.is_empty())
        );
    }
}

#[test]
fn a_batch_arrives_in_one_piece_and_is_cut_where_it_was() {
    for (host, channel, tells) in [
        (0, Channel::Command, false),
        (0, Channel::Command, true),
        (1, Channel::Command, true),
        (0, Channel::Data, false),
        (1, Channel::Data, true),
    ] {
        let [mut a, mut b] = [Side::new(None), Side::new(None)];
        for side in [&mut a, &mut b] {
            side.udp.look.streak = 0;
            if tells {
                side.udp.command.tell_addresses();
                side.udp.data.tell_addresses();
            }
        }
        assert_eq!(
            a.udp.socket(channel).batch_max(),
            64,
            "this kernel knows GSO"
        );
        let to = b.at(HOSTS[host], channel);
        let bytes = pattern(31 * 1400 + 72);
        let small = pattern(64 * 72 - 1);
        // The first reads of the command channel fill one buffer, the next ones many.
        for turn in 0..4 {
            for (bytes, segment) in [(&bytes, 1400), (&small, 72)] {
                a.udp.send(channel, to, batch(bytes, segment)).unwrap();
                let count = bytes.len().div_ceil(segment);
                b.until(|b| b.got.len() >= count);
                assert_eq!(b.pieces, [count], "{channel:?} {turn}");
                b.pieces.clear();
                let source = a.at(HOSTS[host], channel);
                let got = b.got.drain(..);
                assert!(
                    got.zip(bytes.chunks(segment))
                        .all(|((on, from, got), sent)| {
                            // An address counts as another one if its peer sends to another one of ours.
                            (on, from.socket_address()) == (channel, source.socket_address())
                                && got == sent
                        })
                );
            }
        }
        // Datagrams of another size, and of another sender, are not joined with these.
        let mut c = Side::new(None);
        let sides = [&mut a, &mut c];
        for (from, len) in [(0, 72), (1, 72), (0, 30)] {
            let batch = batch(&small[..2 * len], len);
            sides[from].udp.send(channel, to, batch).unwrap();
        }
        b.until(|b| b.got.len() >= 6);
        let lens: Vec<_> = b.got.iter().map(|(_, _, bytes)| bytes.len()).collect();
        assert_eq!(
            (lens, &*b.pieces),
            (vec![72, 72, 72, 72, 30, 30], &[2, 2, 2][..])
        );
    }
}

#[test]
fn largest_datagram_is_not_truncated_on_either_channel() {
    let mut b = Side::new(None);
    let stranger = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let bytes = pattern(DATA_MAX);
    for channel in [Channel::Command, Channel::Data] {
        // A stranger may send whatever it likes to any port.
        let to = b.at(HOSTS[0], channel).socket_address();
        for _ in 0..2 * STREAK {
            stranger.send_to(&bytes, to).unwrap();
            b.until(|b| !b.got.is_empty());
            let (_, _, got) = b.got.pop().unwrap();
            assert!(got == bytes && b.got.is_empty());
        }
    }
}

/// Returns the beginning of a datagram of the layer above, from session `from`.
fn datagram_of(from: u64) -> Vec<u8> {
    let mut bytes = pattern(1000);
    bytes[..4].copy_from_slice(b"mR\x03\x03");
    bytes[16..24].copy_from_slice(&from.to_le_bytes());
    bytes
}

#[test]
fn an_icmp_refusal_is_reported_for_its_destination_only() {
    for host in HOSTS {
        let (mut a, mut b) = (Side::new(None), Side::new(None));
        let (gone, gone_data) = {
            let gone = Side::new(None);
            (
                gone.at(host, Channel::Command),
                gone.at(host, Channel::Data),
            )
        };
        let long = datagram_of(0x1122_3344_5566_7788);
        let quote = Quote::read(&long);
        assert!(quote.is_some());
        for (channel, to, bytes, quote) in [
            (Channel::Command, gone, &b"ping"[..], None),
            (Channel::Data, gone_data, b"ping", None),
            (Channel::Command, gone, &long, quote),
            (Channel::Data, gone_data, &long, quote),
        ] {
            a.udp.send(channel, to, GsoBatch::single(bytes)).unwrap();
            // The error is queued already; the next call to any destination reports it.
            let there = b.at(host, channel);
            a.udp
                .send(channel, there, GsoBatch::single(b"hello"))
                .unwrap();
            a.udp
                .send(channel, there, batch(&pattern(4000), 1000))
                .unwrap();
            b.until(|b| b.got.len() == 5);
            b.got.clear();
            a.until(|a| !a.refused.is_empty());
            assert_eq!(std::mem::take(&mut a.refused), [(to, quote)]);
        }
    }
}

#[test]
fn who_slept_hears_of_a_refusal_although_nothing_else_comes() {
    let mut a = Side::new(None);
    let gone = Side::new(None).at(HOSTS[0], Channel::Command);
    assert!(a.udp.arm());
    a.udp
        .send(Channel::Command, gone, GsoBatch::single(b"?"))
        .unwrap();
    let nest = a.udp.nest.readable();
    assert_eq!(nest, 1 << MEMBER_COMMAND);
    a.until(|a| a.refused == [(gone, None)]);
    assert_eq!(a.udp.nest.readable(), 0);
    assert!(a.udp.arm() && !a.poll());
}

#[test]
fn what_no_interface_takes_is_too_large_and_says_what_is_not() {
    let (mut a, mut b) = (Side::new(None), Side::new(None));
    let bytes = pattern(65_507);
    for host in HOSTS {
        let to = b.at(host, Channel::Data);
        let most = sys::link_mtu(to).unwrap() - to.headers();
        let sent = a.udp.send(Channel::Data, to, GsoBatch::single(&bytes));
        if most < bytes.len() {
            assert_eq!(sent, Err(DatagramError::TooLarge(most)))
        } else {
            assert_eq!(sent, Ok(()))
        }
        // The error is reported once, and the socket still works.
        assert_eq!(a.udp.nest.readable(), 0);
        a.udp
            .send(Channel::Data, to, batch(&bytes[..3000], 1000))
            .unwrap();
        let count = 3 + usize::from(sent.is_ok());
        b.until(|b| b.got.len() == count);
        b.got.clear();
        assert!(!a.poll());
    }
    let to = b.at(HOSTS[0], Channel::Command);
    let sent = a.udp.send(Channel::Command, to, GsoBatch::single(&bytes));
    assert_eq!(sent, Err(DatagramError::TooLarge(COMMAND_MAX)));
}

#[test]
fn what_may_be_cut_and_what_may_not_take_turns() {
    for host in HOSTS {
        let (mut a, mut b) = (Side::new(None), Side::new(None));
        let bytes = pattern(60_000);
        let to = b.at(host, Channel::Data);
        for may_fragment in [true, false, true, true, false] {
            let batch = GsoBatch {
                may_fragment,
                ..batch(&bytes, 30_000)
            };
            a.udp.send(Channel::Data, to, batch).unwrap();
            assert_eq!(a.udp.data.batch_max(), 64);
            b.until(|b| b.got.len() == 2);
            assert!(
                b.got
                    .drain(..)
                    .flat_map(|got| got.2)
                    .eq(bytes.iter().copied())
            );
        }
    }
}

#[test]
fn quiet_data_channel_is_polled_seldom_or_on_request() {
    let (mut a, mut b) = (Side::new(None), Side::new(None));
    let to = b.at(HOSTS[0], Channel::Data);
    b.poll();
    while b.udp.look.idle < ACTIVE_LOOKS || b.udp.look.polls % DATA_EVERY != 0 {
        b.poll();
    }
    for _ in 0..20 {
        a.udp
            .send(Channel::Data, to, GsoBatch::single(b"x"))
            .unwrap();
    }
    assert!(!b.poll(), "this one leaves it out");
    let mut came = 0;
    let mut drain = |budget| {
        b.udp.begin_data(budget);
        loop {
            match b.udp.next() {
                Received::Incoming(_) => came += 1,
                Received::End { drained, .. } => return drained,
            }
        }
    };
    assert!(!drain(16), "there are four more");
    assert!(drain(16) && drain(16));
    assert_eq!(came, 20);
}

#[test]
fn port_number_has_one_owner_and_data_channel_its_name() {
    let a = Side::new(None);
    let open = |port| {
        let options = DgramOptions {
            port,
            receive_buffer: 1 << 16,
            ..DgramOptions::default()
        };
        UdpDatagrams::open(&options, Box::new(|_| Err(ConnectError::NoRoute)))
    };
    let taken = open(a.udp.local_port()).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    let mut b = open(0).unwrap();
    assert!(b.receive_buffer() >= 1 << 16);
    let command = a.at(HOSTS[0], Channel::Command);
    let data = b.data_address(command, a.udp.data_name());
    assert_eq!(data, Some(a.at(HOSTS[0], Channel::Data)));
    for name in [&b""[..], b"U", b"U1", b"U\0\0", b"X12", b"U123"] {
        assert_eq!(b.data_address(command, name), None, "{name:?}");
    }
}

#[test]
fn targets_become_addresses_this_service_reaches() {
    let of = |bind: Option<&str>, found: &[&str]| {
        let found: Vec<SocketAddr> = found.iter().map(|text| text.parse().unwrap()).collect();
        let resolver = move |_| {
            if found.is_empty() {
                Err(ConnectError::UnknownNic)
            } else {
                Ok(found.iter().copied().collect())
            }
        };
        let options = DgramOptions {
            is_here,
            receive_buffer: 1 << 16,
            ..DgramOptions::default()
        };
        let mut udp = UdpDatagrams::open(&options, Box::new(resolver)).unwrap();
        // A machine may lack the address to bind to.
        udp.bound = bind.map(|bind| bind.parse().unwrap());
        udp.resolve(Target {
            nic: NicId(1),
            endpoint: EndpointId(2),
            route: Route::AUTO,
        })
    };
    let at = |text: &str| Ok(Address::new(text.parse().unwrap()));
    assert_eq!(of(None, &["127.0.0.1:5", "10.0.0.1:5"]), at("127.0.0.1:5"));
    assert_eq!(
        of(Some("127.0.0.1"), &["127.0.0.1:5", "10.0.0.1:5"]),
        at("127.0.0.1:5")
    );
    assert_eq!(
        of(Some("10.0.0.2"), &["127.0.0.1:5", "10.0.0.1:5"]),
        at("10.0.0.1:5")
    );
    // A bound socket gets the first address other than loopback, if there is one.
    let asked = ["10.0.0.7:5", "127.0.0.1:5", "10.0.0.1:5"];
    assert_eq!(of(Some("10.0.0.2"), &asked), at("10.0.0.7:5"));
    assert_eq!(of(None, &asked), at("10.0.0.7:5"));
    assert_eq!(of(None, &["[2001:db8::1]:5"]), at("[2001:db8::1]:5"));
    assert_eq!(
        of(Some("10.0.0.2"), &["[2001:db8::1]:5"]),
        Err(ConnectError::NoRoute)
    );
    assert_eq!(of(None, &[]), Err(ConnectError::UnknownNic));
}

#[test]
fn what_is_addressed_to_this_host_is_safe() {
    let a = Side::new(None);
    assert!(a.udp.is_safe(a.at(HOSTS[0], Channel::Data)));
    for board in Interfaces::now().boards() {
        assert!(a.udp.is_safe(Address::new(board.socket_address())));
    }
    // Documentation addresses, which no machine has.
    for address in ["192.0.2.1:1", "[2001:db8::1]:1"] {
        assert!(!a.udp.is_safe(Address::new(address.parse().unwrap())));
    }
}
