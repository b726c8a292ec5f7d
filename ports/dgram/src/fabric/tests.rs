//! The service over `udp` of the installed libfabric, on 127.0.0.1.
//!
//! `MX_LIBFABRIC=/path/libfabric.so.1` selects another library.

use super::*;
use mx_port_fabric::Wait;
use mx_proto::reliability::{DatagramError, DatagramPort, GsoBatch, Incoming, Received};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

const TIMEOUT: Duration = Duration::from_secs(20);

fn options() -> DgramOptions {
    DgramOptions {
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        provider: Some("udp".into()),
        ..DgramOptions::default()
    }
}

fn open() -> FabricDatagrams {
    match FabricDatagrams::open(options()) {
        Ok(service) => service,
        Err(error) => panic!("these tests need libfabric with its udp provider: {error}"),
    }
}

type Datagram = (Channel, FabricAddress, Vec<u8>);

fn poll(service: &mut FabricDatagrams, budget: usize) -> Vec<Datagram> {
    let mut got = Vec::new();
    service.begin(budget);
    while let Received::Incoming(incoming) = service.next() {
        match incoming {
            Incoming::Datagrams {
                channel,
                from,
                segment,
            } => {
                for datagram in service.bytes().chunks(segment) {
                    got.push((channel, from, datagram.to_vec()));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    got
}

/// Polls until there are `count` datagrams.
fn wait(service: &mut FabricDatagrams, count: usize) -> Vec<Datagram> {
    let until = std::time::Instant::now() + TIMEOUT;
    let mut got = Vec::new();
    while got.len() < count {
        assert!(
            std::time::Instant::now() < until,
            "{} of {count}",
            got.len()
        );
        got.extend(poll(service, 64));
    }
    got
}

fn send(service: &mut FabricDatagrams, channel: Channel, to: FabricAddress, bytes: &[u8]) {
    let until = std::time::Instant::now() + TIMEOUT;
    while let Err(error) = service.send(channel, to, GsoBatch::single(bytes)) {
        assert_eq!(error, DatagramError::WouldBlock);
        assert!(std::time::Instant::now() < until, "no room");
        poll(service, 0);
    }
}

#[test]
fn both_channels_carry_all_sizes_to_strangers_and_back() {
    let (mut a, mut b) = (open(), open());
    assert_eq!(a.provider(), "udp");
    for channel in [Channel::Command, Channel::Data] {
        let most = a.capacity(channel).datagram_max;
        assert!((1400..=1472).contains(&most), "{most}");
        assert_eq!(a.capacity(channel).batch_max, 1);
        for len in [1, 64, 768, most] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
            let to = b.address(channel);
            send(&mut a, channel, to, &bytes);
            let from = a.address(channel);
            assert_eq!(wait(&mut b, 1), [(channel, from, bytes.clone())]);
            send(&mut b, channel, from, &bytes);
            assert_eq!(wait(&mut a, 1), [(channel, to, bytes)]);
        }
        let to = b.address(channel);
        let long = vec![0; most + 1];
        let refused = a.send(channel, to, GsoBatch::single(&long));
        assert_eq!(refused, Err(DatagramError::TooLarge(most)));
    }
    let stats = a.stats();
    assert_eq!((stats.sent, stats.received, stats.strays), (8, 8, 0));
    assert_eq!((stats.foreign, stats.damaged, stats.send_errors), (0, 0, 0));
}

#[test]
fn a_child_does_not_keep_a_port() {
    let service = open();
    let port = service.address(Channel::Command).port().unwrap();
    let (mut forked, there) = io::pipe().unwrap();
    let there = there.as_raw_fd();
    // SAFETY: the child makes only calls that are safe after a fork, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the byte outlives the call; the alarm ends an abandoned child.
        unsafe {
            libc::write(there, [1_u8].as_ptr().cast(), 1);
            libc::alarm(60);
        }
        // SAFETY: as above; waits for the signal.
        unsafe { libc::pause() };
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    // The child's fork handlers have run once it writes.
    forked.read_exact(&mut [0]).unwrap();
    drop(service);
    let again = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
    // SAFETY: our own child, which has not been waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let mut status = 0;
    // SAFETY: `status` is writable.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    again.unwrap();
}

#[test]
fn datagrams_of_another_service_are_counted_and_dropped() {
    let mut service = open();
    let port = service.address(Channel::Command).port().unwrap();
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let own = frame::header(&service.address(Channel::Data));
    let mut damaged = own.clone();
    damaged[9] ^= 1;
    let packets: [&[u8]; 6] = [b"", b"mR", &[0xff; 1472], &own, &damaged, &own[..11]];
    for packet in packets {
        stranger
            .send_to(packet, (Ipv4Addr::LOCALHOST, port))
            .unwrap();
    }
    let mut good = own.clone();
    good.extend_from_slice(b"end");
    stranger
        .send_to(&good, (Ipv4Addr::LOCALHOST, port))
        .unwrap();
    let got = wait(&mut service, 1);
    // Any sender name is accepted here; the layer above asks for proof.
    let from = service.address(Channel::Data);
    assert_eq!(got, [(Channel::Command, from, b"end".to_vec())]);
    let stats = service.stats();
    assert_eq!((stats.foreign, stats.damaged), (2, 4));
    assert_eq!((stats.received, stats.strays), (1, 0));
}

#[test]
fn thousands_of_peers_share_the_places_there_are() {
    let mut service = open();
    let mut server = open();
    let address = server.address(Channel::Command);
    for number in 0..3 * peers::MOST as u32 {
        let [_, high, middle, low] = number.to_be_bytes();
        let place = SocketAddr::from(([127, 1 + high, middle, low.max(1)], 9));
        let name = address.elsewhere(place).unwrap();
        // Neither delivery nor an error of the kernel matters.
        let _ = service.send(Channel::Data, name, GsoBatch::single(b"x"));
    }
    let open = service.open.as_ref().unwrap();
    assert_eq!(open.peers.len(), peers::MOST);
    send(&mut service, Channel::Command, address, b"still");
    assert_eq!(wait(&mut server, 1)[0].2, b"still");
}

fn readable(service: &FabricDatagrams, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: service.descriptors().data.unwrap(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
}

#[test]
fn a_sleeper_is_woken_by_either_channel() {
    for how in [Wait::Fd, Wait::Poll] {
        let mut a = open();
        let mut b = FabricDatagrams::open(DgramOptions {
            wait: how,
            ..options()
        });
        let b = b.as_mut().unwrap();
        for channel in [Channel::Command, Channel::Data, Channel::Command] {
            let until = std::time::Instant::now() + TIMEOUT;
            while !b.arm() {
                assert!(std::time::Instant::now() < until, "never idle");
                b.disarm();
                poll(b, 64);
            }
            if how == Wait::Fd {
                assert!(!readable(b, 20), "woken for nothing");
            }
            let to = b.address(channel);
            send(&mut a, channel, to, b"wake");
            assert!(readable(b, 10_000), "{how:?}: slept through {channel:?}");
            b.disarm();
            assert_eq!(wait(b, 1)[0].0, channel);
        }
    }
}

#[test]
fn providers_that_are_not_there_or_never_used_are_named() {
    let with = |provider: &str| {
        let opened = FabricDatagrams::open(DgramOptions {
            provider: Some(provider.into()),
            ..options()
        });
        opened.unwrap_err().to_string()
    };
    let error = with("nonesuch");
    assert!(error.contains("nonesuch at 127.0.0.1"), "{error}");
    assert!(error.contains("udp: usable"), "{error}");
    assert!(with("sockets").contains("deprecated"));
    let nowhere = FabricDatagrams::open(DgramOptions {
        bind: Some(Ipv4Addr::new(192, 0, 2, 99).into()),
        ..options()
    });
    let error = nowhere.unwrap_err().to_string();
    assert!(error.contains("not an address of this host"), "{error}");
}
