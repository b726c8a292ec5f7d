//! Several threads at one endpoint, and wake-ups.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self};
use std::time::Instant;

#[test]
fn a_wait_without_a_result_ends_by_its_time() {
    let (a, _b, _) = pair(ROUTE_LOCAL);
    let span = Duration::from_millis(20);
    let mut byte = [0];
    let request = recv(&a, 0, 0, &mut byte);
    let waits: [&dyn Fn() -> bool; 4] = [
        &|| wait_for(a.0, request, Some(span)).unwrap().is_none(),
        &|| wait_any(a.0, 0, 0, Some(span)).unwrap().is_none(),
        &|| peek(a.0, Some(span)).unwrap().is_none(),
        &|| probe(a.0, 0, 0, Some(span)).unwrap().is_none(),
    ];
    for wait in waits {
        let began = Instant::now();
        assert!(wait());
        assert!(began.elapsed() >= span);
    }
    assert_eq!(cancel(a.0, request), Ok(true));
}

#[test]
fn a_wake_up_ends_every_wait_and_is_not_kept() {
    let a = opened(ROUTE_TCP);
    let ep = a.0;
    // Has no effect without a waiting thread.
    wakeup(ep).unwrap();
    let began = Instant::now();
    let span = Duration::from_millis(20);
    assert_eq!(wait_any(ep, 0, 0, Some(span)), Ok(None));
    assert!(began.elapsed() >= span);
    // A listener that never answers.
    let silent = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let endpoint = match mx_sys::PortMap::new(settings(ROUTE_TCP).port_base) {
        Some(map) => map.endpoint(port).unwrap().0,
        None => unreachable!("the base is a good one"),
    };
    let nic = name(&a).0;
    let mut byte = [0];
    let request = recv(&a, 0, 0, &mut byte);
    thread::scope(|scope| {
        let waiters = [
            scope.spawn(|| wait_for(ep, request, None).unwrap().is_none()),
            scope.spawn(|| wait_any(ep, 0, 0, None).unwrap().is_none()),
            scope.spawn(|| peek(ep, None).unwrap().is_none()),
            scope.spawn(|| probe(ep, 0, 0, None).unwrap().is_none()),
            scope.spawn(move || code(connect(ep, nic, endpoint, KEY, None)) == Code::Timeout),
        ];
        // Wakes each thread once it waits, which only the thread itself knows.
        while waiters.iter().any(|waiter| !waiter.is_finished()) {
            wakeup(ep).unwrap();
            thread::yield_now();
        }
        for waiter in waiters {
            assert!(waiter.join().unwrap());
        }
    });
    assert_eq!(cancel(ep, request), Ok(true));
    assert_eq!(peek(ep, NOW), Ok(None));
}

#[test]
fn what_is_posted_forgotten_is_handed_to_no_thread() {
    let (a, _b, to_b) = pair(ROUTE_LOCAL);
    let (ep, (nic, endpoint)) = (a.0, name(&a));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let takers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        assert_eq!(peek(ep, NOW), Ok(None));
                        assert_eq!(test_any(ep, 0, 0), Ok(None));
                    }
                })
            })
            .collect();
        let (nothing, mode) = (UserMemory::empty, SendMode::Buffered);
        for _ in 0..2000 {
            let own = own_address(ep).unwrap();
            isend(ep, nothing(), to_b, 1, 0, mode, true).unwrap();
            isend(ep, nothing(), own, 2, 0, mode, true).unwrap();
            irecv(ep, nothing(), 2, ALL, 0, true).unwrap();
            iconnect(ep, (nic, endpoint), KEY, 3, 0, true).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        for taker in takers {
            taker.join().unwrap();
        }
    });
}

#[test]
fn each_completion_goes_to_one_of_many_waiting_threads() {
    const THREADS: u64 = 6;
    const EACH: u64 = 200;
    for port in [ROUTE_LOCAL, ROUTE_TCP] {
        let (a, b, to_b) = pair(port);
        let mut byte = [0u8; 1];
        for n in 0..THREADS * EACH {
            // The bytes are ignored.
            irecv(b.0, UserMemory::empty(), n, ALL, 0, false).unwrap();
        }
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..THREADS)
                .map(|n| {
                    let ep = b.0;
                    scope.spawn(move || {
                        // Three pairs with the same mask each.
                        let class = n % 3;
                        let mut got = Vec::new();
                        while let Some(status) =
                            wait_any(ep, class << 1, 0b110, Some(Duration::from_millis(500)))
                                .unwrap()
                        {
                            assert_eq!(status.match_info & 0b110, class << 1);
                            got.push(status.match_info);
                            if got.len() as u64 == EACH {
                                break;
                            }
                        }
                        got
                    })
                })
                .collect();
            for n in 0..THREADS * EACH {
                let sent = send(&a, to_b, n, &mut byte);
                forget(a.0, sent).unwrap();
            }
            let mut got: Vec<u64> = waiters
                .into_iter()
                .flat_map(|waiter| waiter.join().unwrap())
                .collect();
            // A quarter of the numbers belongs to none of the classes, and a waiter, or the sender, may have been
            // delayed for as long as the waiters waited.
            while (got.len() as u64) < THREADS * EACH {
                let status = wait_any(b.0, 0, 0, LONG).unwrap();
                got.push(status.expect("a completion").match_info);
            }
            assert_eq!(peek(b.0, NOW), Ok(None));
            got.sort_unstable();
            assert!(got.into_iter().eq(0..THREADS * EACH));
        });
    }
}

#[test]
fn nothing_is_processed_while_progression_is_disabled() {
    let (a, b, to_b) = pair(ROUTE_LOCAL);
    set_progression(b.0, false).unwrap();
    set_progression(b.0, false).unwrap();
    let mut byte = [1];
    let sent = send(&a, to_b, 1, &mut byte);
    ended(&a, sent);
    let span = Some(Duration::from_millis(20));
    assert_eq!(probe(b.0, 0, 0, span), Ok(None));
    set_progression(b.0, true).unwrap();
    assert_eq!(probe(b.0, 0, 0, LONG).unwrap().unwrap().match_info, 1);
    set_progression(b.0, true).unwrap();
}
