//! No heap allocation for a small message in steady state.
//!
//! Two endpoints of this process exchange ten thousand messages; the library's allocations on this thread meanwhile are
//! counted. There are no helper threads: when one first meets the program on a lock, parking_lot allocates a table
//! entry for each thread, once and not per message. The test therefore has a separate process.

use crate::counting::allocations;
use crate::own_process::in_own_process;
use mx_sys::{ROUTE_LOCAL, Settings, UserMemory};
use myriexpress_api::handles::{Address, EndpointHandle};
use myriexpress_api::process::{self, OpenParams, SendMode};
use std::time::Duration;

const WARM_UP: u64 = 2_000;
const COUNTED: u64 = 10_000;
const LONG: Option<Duration> = Some(Duration::from_secs(20));

fn open() -> EndpointHandle {
    let settings = Settings {
        port: ROUTE_LOCAL,
        helper: false,
        ..Settings::for_mx()
    };
    process::open(&settings, OpenParams::default()).expect("an endpoint")
}

/// Connects, polling the other side, too.
fn connect(from: EndpointHandle, to: EndpointHandle) -> Address {
    let own = process::own_address(to).unwrap();
    let (nic, endpoint, _) = process::decompose(own).unwrap();
    process::iconnect(from, (nic, endpoint), 0, 1, 0, false).unwrap();
    loop {
        process::progress(to).unwrap();
        if let Some(status) = process::test_any(from, 1, u64::MAX).unwrap() {
            assert_eq!(status.code, 0);
            return status.source;
        }
    }
}

fn memory(bytes: &mut [u8]) -> UserMemory {
    // SAFETY: the buffers outlive the exchange.
    unsafe { UserMemory::new(bytes.as_mut_ptr().cast(), bytes.len()) }.unwrap()
}

/// Sends a message, and receives it with `test_any`, with `wait_for`, or after it has arrived.
fn exchange(
    n: u64,
    from: EndpointHandle,
    at: EndpointHandle,
    to: Address,
    bufs: &mut [[u8; 64]; 2],
) {
    let [out, into] = bufs;
    let posted = |into: &mut [u8]| process::irecv(at, memory(into), n, u64::MAX, 0, false).unwrap();
    let early = (n % 3 != 0).then(|| posted(into));
    let sent = process::isend(from, memory(out), to, n, 0, SendMode::Buffered, false).unwrap();
    let got = match early {
        Some(request) if n % 3 == 1 => process::wait_for(at, request, LONG).unwrap(),
        Some(_) => process::wait_any(at, n & 0xff, 0xff, LONG).unwrap(),
        None => {
            while process::probe(at, n, u64::MAX, Some(Duration::ZERO))
                .unwrap()
                .is_none()
            {}
            let request = posted(into);
            process::test(at, request).unwrap()
        }
    };
    assert_eq!(got.unwrap().match_info, n);
    assert!(process::test(from, sent).unwrap().is_some());
}

#[test]
fn small_message_does_not_allocate_once_tables_have_grown() {
    in_own_process!();
    let (a, b) = (open(), open());
    let to_b = connect(a, b);
    let mut bufs = [[7; 64], [0; 64]];
    for n in 0..WARM_UP {
        exchange(n, a, b, to_b, &mut bufs);
    }
    let before = allocations();
    for n in WARM_UP..WARM_UP + COUNTED {
        exchange(n, a, b, to_b, &mut bufs);
    }
    let allocated = allocations() - before;
    // An unexpected message is stored in memory of its own size.
    let unexpected = COUNTED / 3 + 1;
    assert!(allocated <= unexpected, "{allocated} allocations");
    process::close(a).unwrap();
    process::close(b).unwrap();
}
