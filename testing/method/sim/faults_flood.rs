//! A peer that repeats its request without reading the answers costs one answer.

use crate::rig::Rig;
use bmi_method::match_layout::{MessageType, VERSION, bits};
use bmi_method::peer::handshake::ConnReq;
use std::time::Duration;

/// Adds a stranger that reads nothing, with a connection to `node`.
fn deaf_stranger(rig: &mut Rig, node: usize) -> usize {
    rig.lend(1);
    let stranger = rig.add_stranger();
    rig.stranger(stranger).endpoint.owner_mut().closed = true;
    rig.stranger(stranger).connect(node);
    rig.run("the transport connect", |rig| {
        rig.peek_stranger(stranger).connected.is_some()
    });
    stranger
}

/// Sends invalid messages for a long time; returns the number of operations left at `node`.
fn flood(rig: &mut Rig, node: usize, stranger: usize, request: u64, body: &[u8]) -> usize {
    let mut most = 0;
    for _ in 0..100 {
        if !rig.stranger(stranger).is_connected() {
            return most;
        }
        rig.stranger(stranger).send(request, body);
        rig.run_for(Duration::from_millis(1));
        most = most.max(rig.peek(node).method.endpoint().requests());
    }
    most
}

#[test]
fn untaken_refusals_do_not_pile_up() {
    let (mut rig, server, client) = Rig::of_two(1);
    let stranger = deaf_stranger(&mut rig, server);
    let malformed = bits(MessageType::ConnReq, 5, VERSION).0;
    assert_eq!(flood(&mut rig, server, stranger, malformed, b""), 1);
    rig.introduce(client, server);
}

#[test]
fn untaken_acknowledgements_do_not_pile_up() {
    let (mut rig, server, client) = Rig::of_two(2);
    let stranger = deaf_stranger(&mut rig, server);
    let body = ConnReq::emit("mx://deaf:0:7");
    let request = bits(MessageType::ConnReq, 5, VERSION).0;
    let most = flood(&mut rig, server, stranger, request, &body);
    assert!((1..=3).contains(&most), "{most} operations");
    // A peer that calls repeatedly is disconnected.
    assert!(!rig.stranger(stranger).is_connected());
    rig.introduce(client, server);
}
