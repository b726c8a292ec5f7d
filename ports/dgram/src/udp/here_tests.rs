//! Answers go out from the local address that the peer sent to, on every socket.

use super::*;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant as Wall};

const LONG: Duration = Duration::from_secs(20);

/// Local address other than the kernel's default source towards loopback, 127.0.0.1.
const SPOKEN_TO: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn open(tells: bool) -> UdpDatagrams {
    let options = DgramOptions {
        receive_buffer: 1 << 20,
        ..DgramOptions::default()
    };
    let resolver = Box::new(|_| Err(ConnectError::NoRoute));
    UdpDatagrams::open_telling(&options, resolver, tells).unwrap()
}

fn peer() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

/// Sends something to a channel of `udp`; returns the sender's address there.
fn speak(udp: &mut UdpDatagrams, peer: &UdpSocket, channel: Channel) -> Address {
    let port = udp.socket(channel).port();
    peer.send_to(b"hello", (SPOKEN_TO, port)).unwrap();
    let (begin, mut heard) = (Wall::now(), None);
    while heard.is_none() {
        assert!(begin.elapsed() < LONG);
        udp.begin(64);
        while let Received::Incoming(incoming) = udp.next() {
            match incoming {
                Incoming::Datagrams { from, .. } if udp.bytes() == b"hello" => heard = Some(from),
                other => panic!("{other:?}"),
            }
        }
    }
    heard.unwrap()
}

fn answer(udp: &mut UdpDatagrams, channel: Channel, to: Address, segment: usize, express: bool) {
    let batch = GsoBatch {
        bytes: b"answer, answer",
        segment,
        may_fragment: false,
        express,
    };
    udp.send(channel, to, batch).unwrap();
}

fn source(peer: &UdpSocket) -> SocketAddr {
    peer.recv_from(&mut [0; 100]).unwrap().1
}

#[test]
fn answers_come_from_the_address_that_was_spoken_to() {
    let (mut udp, peer) = (open(true), peer());
    for channel in [Channel::Command, Channel::Data] {
        let expected = SocketAddr::from((SPOKEN_TO, udp.socket(channel).port()));
        // More than one, so that each way of reading the socket is used.
        for _ in 0..2 * STREAK {
            let from = speak(&mut udp, &peer, channel);
            assert_eq!(from, Address::new(peer.local_addr().unwrap()));
            answer(&mut udp, channel, from, 100, false);
            assert_eq!(source(&peer), expected);
            answer(&mut udp, channel, from, 7, false);
            assert_eq!([source(&peer), source(&peer)], [expected; 2]);
        }
    }
}

#[test]
fn connected_socket_sends_from_the_right_address() {
    let (mut udp, active, next) = (open(true), peer(), peer());
    let called = Address::new(next.local_addr().unwrap());
    let spoken = speak(&mut udp, &active, Channel::Command);
    let command = udp.command.port();
    for (peer, to, from) in [
        (&active, spoken, SPOKEN_TO),
        (&next, called, Ipv4Addr::LOCALHOST),
        (&active, spoken, SPOKEN_TO),
    ] {
        let sources: Vec<_> = (0..100)
            .map(|_| {
                answer(&mut udp, Channel::Command, to, 100, true);
                source(peer)
            })
            .collect();
        assert!(sources.iter().all(|source| source.ip() == from));
        assert!(sources.iter().any(|source| source.port() != command));
    }
}
