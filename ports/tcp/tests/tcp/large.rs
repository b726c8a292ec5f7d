//! Large bodies over TCP: placed directly, in parts, withdrawn and abandoned.

use crate::tcp_common::*;
use mx_proto::Memory;
use mx_proto::port::{LinkDown, Port, SendError, Sent};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};

const LARGE: usize = 1 << 20;

/// Sends one large body, resuming it as often as necessary. Returns the number of calls.
fn send_all(
    a: &mut Node,
    b: &mut Node,
    link: mx_proto::LinkId,
    tag: u64,
    memory: &Pieces,
) -> usize {
    let len = memory.len();
    let mut calls = 0;
    let mut at = None;
    until(a, b, "the body is sent", |a, _| {
        let sent = match at {
            None => a.send_memory(link, tag, memory),
            Some(at) => a.port.resume(link, memory, at, len - at),
        };
        match sent {
            Ok(Sent::Whole) => at = Some(len),
            Ok(Sent::Part(n)) => {
                assert!(n < len - at.unwrap_or(0), "a part is less than the whole");
                at = Some(at.unwrap_or(0) + n);
            }
            Err(SendError::WouldBlock) => {}
            Err(SendError::Down) => panic!("the link is down"),
        }
        calls += usize::from(sent.is_ok());
        at == Some(len)
    });
    calls
}

#[test]
fn large_bodies_go_straight_to_their_place_whatever_the_pieces() {
    let shapes: [&[usize]; 5] = [
        &[],
        &[1],
        &[100; 1000],
        &[70_000, 3, 200_000, 5000, 4095],
        &[4096; 200],
    ];
    for (ip, nic) in [
        (Ipv4Addr::LOCALHOST.into(), 4),
        (std::net::IpAddr::from(Ipv6Addr::LOCALHOST), 6),
    ] {
        let (mut a, mut b) = (Node::open(ip), Node::open(ip));
        let (at_a, _) = linked(&mut a, &mut b, nic);
        let mut tag = 100;
        for from in shapes {
            for to in shapes {
                tag += 1;
                let bytes = pattern(LARGE, tag);
                let to_sizes: Vec<usize> = Pieces::cut(&bytes, to).0.iter().map(Vec::len).collect();
                b.sink.posted.insert(tag, Pieces::zeros(&to_sizes));
                send_all(&mut a, &mut b, at_a, tag, &Pieces::cut(&bytes, from));
                until(&mut a, &mut b, "there is room", |a, _| {
                    a.send(at_a, tag, b"next").is_ok()
                });
                until(&mut a, &mut b, "what follows arrives", |_, b| {
                    b.sink.events.len() == 2
                });
                assert!(b.sink.is_placed(tag), "placed before what follows it");
                assert_eq!(b.sink.packets(), [(tag, b"next".to_vec())]);
                assert!(b.sink.posted[&tag].bytes() == bytes, "{from:?} into {to:?}");
                b.sink.events.clear();
                b.sink.posted.clear();
            }
        }
    }
}

#[test]
fn bodies_around_every_limit_arrive_whole() {
    let (mut a, mut b, at_a, _) = joined();
    let edges = [
        4064,
        4096,
        8160,
        16 * 1024,
        48 * 1024,
        64 * 1024 - 32,
        64 * 1024,
        1 << 20,
    ];
    for edge in edges {
        for len in [edge - 1, edge, edge + 1] {
            let tag = len as u64;
            let bytes = pattern(len, tag);
            b.sink.posted.insert(tag, Pieces::zeros(&[len]));
            send_all(&mut a, &mut b, at_a, tag, &Pieces::whole(bytes.clone()));
            until(&mut a, &mut b, "it arrives", |_, b| {
                !b.sink.events.is_empty()
            });
            match &b.sink.events[..] {
                [Event::Packet(_, got, body)] => {
                    assert!(
                        len <= 48 * 1024 && *got == tag && *body == bytes,
                        "{len} whole"
                    );
                }
                [Event::Placed(_, got)] => {
                    assert!(
                        *got == tag && b.sink.posted[&tag].bytes() == bytes,
                        "{len} placed"
                    );
                }
                other => panic!("{len}: {} events", other.len()),
            }
            b.sink.events.clear();
        }
    }
}

#[test]
fn a_place_withdrawn_in_the_middle_is_not_written_any_more() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut raw = TcpStream::connect(("127.0.0.1", b.port.local_port())).unwrap();
    raw.write_all(&preamble()).unwrap();
    raw.write_all(&frame(1, b"hello")).unwrap();
    until_one(&mut b, "the first packet", |b| b.sink.packet_count() == 1);
    let link = b.sink.first_link();
    b.accept(link);
    b.sink.posted.insert(2, Pieces::zeros(&[LARGE]));

    let body = vec![9; LARGE];
    raw.write_all(&header(2, LARGE)).unwrap();
    raw.write_all(&body[..100_000]).unwrap();
    until_one(&mut b, "some of it is placed", |b| {
        b.sink.posted[&2].bytes()[99_999] == 9
    });
    // The request is cancelled: from now on there is no place, and the memory must not change.
    let taken = b.sink.posted.remove(&2).unwrap();
    raw.set_nonblocking(true).unwrap();
    let mut at = 100_000;
    let rest = [&body[..], &frame(3, b"after")[..]].concat();
    until_one(&mut b, "the rest is swallowed", |b| {
        if at < rest.len() {
            at += raw.write(&rest[at..]).unwrap_or(0);
        }
        b.sink.packet_count() == 2
    });
    assert_eq!(b.sink.packets()[1], (3, b"after".to_vec()));
    assert!(!b.sink.is_placed(2));
    let bytes = taken.bytes();
    assert!(bytes[..100_000].iter().all(|byte| *byte == 9));
    assert!(bytes[100_000..].iter().all(|byte| *byte == 0));
    assert!(b.sink.downs().is_empty());
}

#[test]
fn body_too_large_for_the_kernel_is_sent_in_parts() {
    let (mut a, mut b, at_a, _) = joined();
    let bytes = pattern(64 << 20, 3);
    let memory = Pieces::cut(&bytes, &[1 << 20, 17, 2048, 30_000, 9 << 20]);
    b.sink
        .posted
        .insert(3, Pieces::zeros(&[33 << 20, 31 << 20]));
    let sent = a.send_memory(at_a, 3, &memory).unwrap();
    let Sent::Part(mut at) = sent else {
        panic!("64 MiB do not fit: {sent:?}")
    };
    assert_eq!(a.send(at_a, 4, b"not yet"), Err(SendError::WouldBlock));
    let mut resumes = 0;
    until(&mut a, &mut b, "it is all sent", |a, _| {
        if a.sink.writables() == 0 {
            return false;
        }
        a.sink.events.clear();
        resumes += 1;
        match a.port.resume(at_a, &memory, at, bytes.len() - at) {
            Ok(Sent::Whole) => true,
            Ok(Sent::Part(n)) => {
                at += n;
                false
            }
            Err(SendError::WouldBlock) => false,
            other => panic!("{other:?}"),
        }
    });
    assert!(resumes > 1);
    until(&mut a, &mut b, "it is placed", |_, b| b.sink.is_placed(3));
    assert!(b.sink.posted[&3].bytes() == bytes);
    assert!(b.sink.asked >= 1);
}

#[test]
fn stalled_body_is_no_sign_of_life() {
    let (mut a, mut b, at_a, _) = joined();
    // No byte is 0, so that each can be seen to arrive.
    let bytes = vec![7; 16 * LARGE];
    let memory = Pieces::cut(&bytes, &[]);
    b.sink.posted.insert(5, Pieces::zeros(&[bytes.len()]));
    let mut part = 0;
    until(&mut a, &mut b, "a part is taken", |a, _| {
        match a.send_memory(at_a, 5, &memory) {
            Ok(Sent::Part(n)) => part = n,
            Err(SendError::WouldBlock) => {}
            other => panic!("{other:?}"),
        }
        part > 0
    });
    let last = part - 1;
    until(&mut a, &mut b, "the part is there", |_, b| {
        b.sink.posted[&5].bytes()[last] == bytes[last]
    });
    // One more poll may find that this was all.
    b.look();
    let asked = b.sink.asked;
    for _ in 0..100 {
        b.look();
    }
    assert_eq!(b.sink.asked, asked, "nothing came");
    let sent = a.port.resume(at_a, &memory, part, bytes.len() - part);
    assert!(matches!(sent, Ok(Sent::Part(_) | Sent::Whole)), "{sent:?}");
    until(&mut a, &mut b, "it goes on", |_, b| b.sink.asked > asked);
}

#[test]
fn detached_body_ends_with_its_bytes_and_the_link_continues() {
    let (mut a, mut b, at_a, _) = joined();
    let len = 32 << 20;
    let memory = Pieces::whole(vec![7; len]);
    b.sink.posted.insert(5, Pieces::zeros(&[len]));
    let sent = a.send_memory(at_a, 5, &memory).unwrap();
    let Sent::Part(taken) = sent else {
        panic!("32 MiB do not fit: {sent:?}")
    };
    a.port.detach(at_a, &memory, taken, len - taken);
    drop(memory);
    assert_eq!(
        a.send(at_a, 6, b"x"),
        Err(SendError::WouldBlock),
        "the rest comes first"
    );
    until(&mut a, &mut b, "the link is free", |a, _| {
        a.sink.writables() == 1
    });
    a.send(at_a, 6, b"after").unwrap();
    until(&mut a, &mut b, "what follows arrives", |_, b| {
        b.sink.packet_count() == 1
    });
    assert!(b.sink.is_placed(5));
    let got = b.sink.posted[&5].bytes();
    assert!(got.iter().all(|byte| *byte == 7));
}

#[test]
fn a_link_closed_with_a_large_body_under_way_cuts_it() {
    let (mut a, mut b, at_a, at_b) = joined();
    let len = 32 << 20;
    b.sink.posted.insert(5, Pieces::zeros(&[len]));
    let memory = Pieces::whole(vec![7; len]);
    assert!(matches!(a.send_memory(at_a, 5, &memory), Ok(Sent::Part(_))));
    a.close(at_a, mx_proto::port::Close::Flush);
    until(&mut a, &mut b, "the peer learns it", |_, b| {
        !b.sink.downs().is_empty()
    });
    assert_eq!(b.sink.events, [Event::Down(at_b, LinkDown::Reset)]);
    assert!(!b.sink.is_placed(5));
}

#[test]
fn both_directions_carry_large_bodies_at_once() {
    let (mut a, mut b, at_a, at_b) = joined();
    let len = 24 << 20;
    let (there, back) = (pattern(len, 1), pattern(len, 2));
    let (from_a, from_b) = (Pieces::whole(there.clone()), Pieces::whole(back.clone()));
    b.sink.posted.insert(1, Pieces::zeros(&[len]));
    a.sink.posted.insert(2, Pieces::zeros(&[len]));
    let mut sides = [(at_a, 1, &from_a, None), (at_b, 2, &from_b, None)];
    until(&mut a, &mut b, "both arrive", |a, b| {
        for (node, (link, tag, memory, at)) in [&mut *a, &mut *b].into_iter().zip(&mut sides) {
            let sent = match at {
                None => node.send_memory(*link, *tag, memory),
                Some(at) if *at < len => node.port.resume(*link, *memory, *at, len - *at),
                Some(_) => continue,
            };
            match sent {
                Ok(Sent::Whole) => *at = Some(len),
                Ok(Sent::Part(n)) => *at = Some(at.unwrap_or(0) + n),
                _ => {}
            }
        }
        a.sink.is_placed(2) && b.sink.is_placed(1)
    });
    assert!(b.sink.posted[&1].bytes() == there && a.sink.posted[&2].bytes() == back);
}
