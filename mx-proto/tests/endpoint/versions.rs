//! A peer of version 8, kept as bytes, and later versions derived from it.
//!
//! The bytes follow docs/wire-format.md. They stay as they are when the version changes, because a
//! machine of version 8 understands no others.

use super::pair::{Acts, Pair};
use super::{EXACT, bits};
use mx_proto::{NicId, ReceivePosted, Status};
use mx_sim::Reports;
use mx_sim::log_lines;

/// The kept Connect of endpoint 3, in life 0x6b65_7074, with connect id 7, 64 credits and a
/// greeting of 8 bytes.
const CONNECT: [u8; 32] = [
    1, 0, b'M', b'X', 72, 0, 0, 0, // kind, zero, magic, body length
    7, 0, 0, 0, 0, 0, 0, 0, // connect id
    0, 0, 0, 0, 0, 0, 0, 0, // length, status
    64, 0, 0, 0, 0, 0, 0, 0, // credits, slots and wanted
];
/// The kept Reply, with status 0; the connect id of the call is filled in.
const REPLY: [u8; 32] = {
    let mut bytes = CONNECT;
    bytes[0] = 2;
    bytes
};
const HELLO: [u8; 64] = [
    b'M', b'X', b's', b'1', 8, 0, 1, 0, // magic, version, epoch
    0x73, 0x66, 0x76, 0x70, 3, 0, 0, 0, // key, endpoint number
    1, 0, 0, 127, 0x58, 0x4d, 8, 0, // interface 127.0.0.1, oldest version
    0x74, 0x70, 0x65, 0x6b, 0, 0, 0, 0, // life
    101, 0, 0, 0, 0, 0, 8, 0, // interface called, length of the greeting, zero
    3, 0, 0, 0, 0, 0, 0, 0, // number called, features
    0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, // nonce
    0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf,
];
const GREETING: [u8; 8] = *b"greeting";

/// Offsets in a header and a hello.
const ZERO: usize = 1;
const BODY_LENGTH: usize = 4;
const CONNECT_ID: usize = 8;
const STATUS: usize = 20;
const VERSION: usize = 4;
const ENDPOINT: usize = 12;
const INTERFACE: usize = 16;
const OLDEST: usize = 22;
const LIFE: usize = 24;
const GREETING_LENGTH: usize = 38;
const FEATURES: usize = 44;
const NONCE: usize = 48;

const OTHER_VERSION: u32 = 2;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// Returns the kept hello and greeting.
fn kept() -> Vec<u8> {
    [&HELLO[..], &GREETING].concat()
}

/// Makes the hello of another version, otherwise the same.
fn of_version(version: u16, oldest: u16) -> Vec<u8> {
    let mut body = kept();
    body[VERSION..VERSION + 2].copy_from_slice(&version.to_le_bytes());
    body[OLDEST..OLDEST + 2].copy_from_slice(&oldest.to_le_bytes());
    body
}

/// Makes the hello of a later version that offers more: all features, a greeting longer than ours,
/// and bytes behind it.
fn with_more() -> Vec<u8> {
    let mut body = of_version(9, 8);
    body[GREETING_LENGTH] = 100;
    body[FEATURES..FEATURES + 4].fill(0xff);
    body.resize(64 + 100, b'g');
    body.extend([b'm'; 40]);
    body
}

fn packet(mut header: [u8; 32], body: &[u8]) -> [u8; 32] {
    header[BODY_LENGTH..BODY_LENGTH + 4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    header
}

/// Returns the status of a Reply to the kept Connect, its body, and whether b has closed the link.
/// The header and the first 32 bytes of the hello are where version 8 reads them.
fn status_of(pair: &mut Pair, link: usize) -> (u32, Vec<u8>, bool) {
    let (mut packets, closed) = pair.told(link);
    let (header, body) = packets.remove(0);
    assert_eq!(header[..4], [2, 0, b'M', b'X']);
    assert_eq!(u32_at(&header, BODY_LENGTH), body.len() as u32);
    assert_eq!(header[CONNECT_ID..16], CONNECT[CONNECT_ID..16]);
    assert_eq!(body[..VERSION], *b"MXs1");
    assert!(u16_at(&body, OLDEST) <= 8 && u16_at(&body, VERSION) >= 8);
    assert_eq!((body[ENDPOINT], body[LIFE]), (3, 2), "it is b");
    (u32_at(&header, STATUS), body, closed)
}

/// Calls b as a stranger of that interface.
fn call(pair: &mut Pair, nic: u64, header: [u8; 32], body: Vec<u8>) -> usize {
    let link = pair.stranger();
    pair.seen_as(link, nic);
    pair.inject(link, packet(header, &body), body);
    pair.run();
    link
}

#[test]
fn peers_of_version_8_and_later_compatible_are_accepted() {
    let marked = {
        let mut header = CONNECT;
        header[ZERO] = 0x5a;
        header
    };
    let callers = [
        (CONNECT, kept()),
        (marked, kept()),
        (CONNECT, with_more()),
        (CONNECT, of_version(u16::MAX, 8)),
        (CONNECT, of_version(8, 0)),
    ];
    let mut pair = Pair::new();
    let b = pair.connected();
    for (nic, (header, body)) in (600..).zip(callers) {
        let link = call(&mut pair, nic, header, body);
        let (status, hello, closed) = status_of(&mut pair, link);
        assert_eq!((status, closed), (0, false));
        assert_eq!(u32_at(&hello, FEATURES), 0, "no feature is used");
        assert_ne!(hello[NONCE..64], [0; 16]);
        // A claim follows if others have presented that life before.
        let end = 64 + usize::from(hello[GREETING_LENGTH]);
        assert!(hello.len() == end || hello.len() == end + 40);
        // Its messages are its own.
        let mut eager = CONNECT;
        (eager[0], eager[CONNECT_ID], eager[16]) = (3, 5, 1);
        eager[24] = 0;
        pair.inject(link, packet(eager, &[9]), vec![9]);
        pair.run();
        let got = pair.b.recv(bits(5), EXACT, pair.shared(1), 0);
        let Ok(ReceivePosted::Complete(done)) = got else {
            panic!("it has come: {got:?}");
        };
        let identity = pair.b.remote_identity(done.remote).unwrap();
        assert_eq!(
            (identity.nic, identity.session.0),
            (NicId(nic), 0x6b65_7074)
        );
        pair.talk(b);
    }
    assert_eq!((pair.b.stats().refused, pair.b.stats().malformed), (0, 0));
}

#[test]
fn incompatible_versions_are_rejected_readably() {
    let mut pair = Pair::new();
    let b = pair.connected();
    let callers = [
        (60_000, 60_000),
        (u16::MAX, u16::MAX),
        (9, 9),
        (0, 0),
        (0, u16::MAX),
        (7, 9),
        (8, 9),
        (7, 7),
    ];
    for (count, (version, oldest)) in (1..).zip(callers) {
        // A whole hello; its part common to all versions; a body that ends before its greeting
        // does.
        for len in [72, 32, 64] {
            let mut body = of_version(version, oldest)[..len].to_vec();
            body[INTERFACE] = count as u8;
            let mut told = None;
            let lines = log_lines(|| {
                let link = call(&mut pair, 600 + count, CONNECT, body);
                told = Some(status_of(&mut pair, link));
            });
            let (status, hello, closed) = told.expect("it is answered");
            assert_eq!((status, closed), (OTHER_VERSION, true));
            assert!(hello[32..].iter().all(|byte| *byte == 0));
            let lines = lines.iter().filter(|line| line.contains("rejected"));
            let lines: Vec<_> = lines.collect();
            assert!(lines.len() <= 1, "{lines:?}");
            let of_versions = |line: &str| {
                line.contains(&format!("version {version}"))
                    && line.ends_with("ours is 8: rejected (rejection 1)")
                    && line.contains(&format!("before {oldest};")) == (oldest > 8)
            };
            assert_eq!(
                lines.iter().any(|line| of_versions(line)),
                len == 72,
                "{lines:?}"
            );
            pair.talk(b);
        }
        assert_eq!(pair.b.stats().refused, 3 * count);
    }
    // Shorter than the common part, or with another magic.
    for body in [of_version(60_000, 60_000)[..31].to_vec(), vec![0; 64]] {
        let link = call(&mut pair, 700, CONNECT, body);
        assert_eq!(pair.told(link), (vec![], true));
    }
    // In a version that is understood: a body that ends before its greeting does.
    let link = call(&mut pair, 700, CONNECT, kept()[..71].to_vec());
    assert_eq!(pair.told(link), (vec![], true));
    assert_eq!((pair.b.remotes(), pair.b.stats().malformed), (1, 3));
    pair.talk(b);
    assert_eq!((pair.a.next_down(), pair.b.next_down()), (None, None));
}

/// Has a call an impostor, which answers with these. Returns how the call ends. The Connect is
/// where version 8 reads it.
fn answered(status: u8, mark: u8, body: Vec<u8>) -> (Status, Pair) {
    let mut pair = Pair::new();
    pair.a
        .connect(pair.impostor(), super::pair::KEY, bits(0), 1)
        .unwrap();
    pair.run();
    let (asked, hello) = pair.said(0).remove(0);
    assert_eq!(asked[..4], CONNECT[..4]);
    assert_eq!(hello[..VERSION], *b"MXs1");
    assert!(u16_at(&hello, OLDEST) <= 8 && u16_at(&hello, VERSION) >= 8);
    assert_eq!(hello[8..16], HELLO[8..16]);
    assert_eq!(hello[LIFE], 1, "it is a");
    let mut header = packet(REPLY, &body);
    header[CONNECT_ID..16].copy_from_slice(&asked[CONNECT_ID..16]);
    (header[STATUS], header[ZERO]) = (status, mark);
    pair.answer(0, header, body);
    pair.run();
    let done = pair.a.next_completion().expect("it is answered");
    (done.status, pair)
}

#[test]
fn a_call_of_the_kept_peer_or_a_later_one_is_answered() {
    for (mark, body) in [(0, kept()), (0x5a, kept()), (0, with_more())] {
        let (status, mut pair) = answered(0, mark, body);
        assert_eq!(status, Status::Success);
        let remote = pair.a.named(super::pair::IMPOSTOR)[0];
        pair.a.sends(remote, bits(1), vec![1; 8], 0);
        pair.run();
        let (header, body) = pair.said(0).pop().expect("it is sent");
        assert_eq!((header[0], &body[..]), (3, &[1; 8][..]));
    }
}

#[test]
fn a_call_that_another_version_answers_ends_whatever_it_says() {
    for (code, version, oldest, len) in [
        (2, 60_000, 60_000, 32),
        (2, 9, 9, 72),
        (2, 7, 0, 64),
        // The peer has understood us, and we do not understand the peer.
        (0, 60_000, 60_000, 72),
        (0, 9, 9, 32),
        (0, 0, 0, 72),
    ] {
        let body = of_version(version, oldest)[..len].to_vec();
        let (status, pair) = answered(code, 0, body);
        assert_eq!(status, Status::BadEndpoint, "{version} {oldest} {code}");
        assert!(pair.left(0));
        assert_eq!((pair.a.remotes(), pair.a.stats().malformed), (0, 0));
    }
}
