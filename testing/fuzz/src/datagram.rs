//! A port that receives datagrams of strangers only.
//!
//! ```text
//!   input: seal | sender | length | bytes ... , repeated
//!              `- unchanged, or with the right magic, or with the right sums as well
//! ```
//!
//! Whatever arrives: no session begins, the layer above sees no event, no memory is kept, and an
//! address never gets more bytes than came from it. No input can contain a valid cookie, because
//! the key is derived from the whole input.
use crate::input::{Input, digest};
use crate::meter::{self, within};
use crate::net::{Datagram, Net};
use crate::user::User;
use mx_proto::port::LinkControl;
use mx_proto::reliability::{Reliable, ReliableConfig, describe};
use mx_proto::time::Instant;
use mx_sim::Polled;
use mx_sim::datagram::header::{FLAGS, GREETING, HEADER, SUMMED, claim, seal};
use std::time::Duration;

/// Heap of a port without sessions: 1024 answers and scratch.
const HEAP_MAX: isize = 256 << 10;

/// Runs one input.
pub fn datagram(bytes: &[u8]) {
    let _ = describe(bytes);
    meter::clear();
    let net = Net::new(9000, false);
    let end = net.borrow().open(1);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&digest(bytes).to_le_bytes());
    let mut port = within(1, || Reliable::new(end, ReliableConfig::default(), key));
    let mut user = User::default();
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let how = input.byte();
        let from = (2 + input.byte() % 4, how >> 6 & 1);
        let len = match how >> 2 & 3 {
            0 => usize::from(input.byte()),
            1 => HEADER,
            2 => HEADER + GREETING,
            _ => usize::from(input.u16()) % 9000,
        };
        let mut bytes = vec![0; len];
        let given = input.bytes(len);
        bytes[..given.len()].copy_from_slice(given);
        if how & 1 != 0 && len >= HEADER {
            claim(&mut bytes);
        }
        if how & 2 != 0 && len >= HEADER {
            let flags = (FLAGS.of(&bytes) & !SUMMED) | (u64::from(how >> 4 & 1) * SUMMED);
            FLAGS.put(&mut bytes, flags);
            seal(&mut bytes);
        }
        let _ = describe(&bytes);
        let segment = match how >> 5 & 1 {
            0 => bytes.len().max(1),
            _ => 1 + usize::from(input.byte()),
        };
        let to = (1, from.1);
        net.borrow_mut()
            .arrive_cut(Datagram { from, to, bytes }, segment);
        if how & 0x80 != 0 {
            let span = Duration::from_secs(input.byte().into());
            net.borrow().pass(span);
        }
        let now = net.borrow().now();
        within(1, || port.poll(now, 64, &mut user));
        for host in 2..6 {
            for channel in 0..2 {
                let excess = net.borrow().excess(1, (host, channel));
                assert!(
                    excess <= 0,
                    "{excess} bytes more went to a stranger than came"
                );
            }
        }
        let held = meter::held(1);
        assert!(held <= HEAP_MAX, "{held} bytes kept for strangers");
    }
    assert_eq!(
        port.sessions(),
        0,
        "a session with a stranger that knows nothing"
    );
    assert_eq!(user.calls, 0, "the layer above heard of strangers");
    let deadline = port.deadline();
    assert!(
        deadline.is_none_or(|at| at == Instant(0)),
        "a timer without a session"
    );
    within(1, || drop(port));
}
