//! Messages between two nodes, each of which is checked.
//!
//! ```text
//!   exchange   messages of given sizes in both directions      stream   many small ones, in one direction
//! ```

use super::{Node, pattern, waiting};
use mx_proto::{RemoteId, Route, SendPosted, Status};

/// Sends messages of these sizes in both directions at once, and compares each byte by byte.
pub(crate) fn exchange(a: &Node, b: &Node, to_b: RemoteId, sizes: &[usize]) {
    let to_a = b.connect(a.target(Route::AUTO)).unwrap();
    for (n, &size) in sizes.iter().enumerate() {
        let bits = n as u64;
        let (there, back) = (pattern(size, bits + 1), pattern(size, bits + 100));
        let (mut at_a, mut at_b) = (vec![0xee; size + 1], vec![0xee; size + 1]);
        waiting(b.post(bits, &mut at_b, bits));
        waiting(a.post(bits, &mut at_a, bits));
        let sends = [
            (a, a.send(to_b, bits, &there, 1000)),
            (b, b.send(to_a, bits, &back, 1000)),
        ];
        for (node, other) in [(a, &at_a), (b, &at_b)] {
            let done = node.done(bits);
            assert_eq!(done.status, Status::Success, "{size} bytes");
            assert_eq!(done.transferred as usize, size);
            assert_eq!(other[size], 0xee, "a byte behind the message");
        }
        for (node, posted) in sends {
            if posted != SendPosted::Complete {
                assert_eq!(node.done(1000).status, Status::Success);
            }
        }
        assert!(at_a[..size] == back[..] && at_b[..size] == there[..]);
    }
}

/// Sends `count` small messages, which must arrive whole and in order.
pub(crate) fn stream(a: &Node, b: &Node, to_b: RemoteId, count: u64) {
    let messages: Vec<Vec<u8>> = (0..count).map(|n| pattern(n as usize % 300, n)).collect();
    let posted: Vec<SendPosted> = messages
        .iter()
        .enumerate()
        .map(|(n, bytes)| a.send(to_b, 7, bytes, n as u64))
        .collect();
    let mut buffer = vec![0; 300];
    for message in &messages {
        let done = b.receive(7, &mut buffer);
        assert_eq!(
            (done.status, done.length as usize),
            (Status::Success, message.len())
        );
        assert_eq!(buffer[..message.len()], message[..]);
    }
    for (n, posted) in posted.iter().enumerate() {
        if *posted != SendPosted::Complete {
            assert_eq!(a.done(n as u64).status, Status::Success);
        }
    }
}
