//! The unexpected handler, called as C calls it.

use super::*;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

/// Source, match bits, length and data.
type Told = (Address, u64, u32, Option<Vec<u8>>);

/// Calls of a handler, and its answer.
#[derive(Default)]
struct Log {
    ep: AtomicU64,
    seen: Mutex<Vec<Told>>,
    answer: AtomicU32,
    /// Whether the handler has to stay inside; the test clears it.
    hold: AtomicBool,
    inside: AtomicBool,
    close: Mutex<Option<Result<(), Error>>>,
    posted: Mutex<Option<RequestHandle>>,
    into: Mutex<Box<[u8]>>,
}

impl Log {
    fn at(ep: &Opened) -> Self {
        let log = Self::default();
        log.ep.store(ep.0.0, Ordering::Relaxed);
        log
    }

    fn handler(&self) -> Option<UnexpectedHandler> {
        Some(UnexpectedHandler {
            function: on_unexpected,
            context: std::ptr::from_ref(self) as usize,
        })
    }

    fn ep(&self) -> EndpointHandle {
        EndpointHandle(self.ep.load(Ordering::Relaxed))
    }
}

/// Records its arguments, posts a receive if requested, and tries to close the endpoint.
unsafe extern "C" fn on_unexpected(
    context: *mut c_void,
    source: Address,
    bits: u64,
    length: u32,
    data: *mut c_void,
) -> u32 {
    // SAFETY: the log of a test that unregisters the handler, or closes the endpoint, before dropping it.
    let log = unsafe { &*context.cast::<Log>() };
    let bytes = (!data.is_null()).then(|| {
        // SAFETY: the data of the message, `length` bytes long.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length as usize) }.to_vec()
    });
    log.seen.lock().unwrap().push((source, bits, length, bytes));
    log.inside.store(true, Ordering::Release);
    while log.hold.load(Ordering::Acquire) {
        thread::yield_now();
    }
    assert!(in_handler(log.ep()));
    *log.close.lock().unwrap() = Some(close(log.ep()));
    let mut into = log.into.lock().unwrap();
    if !into.is_empty() {
        let request = irecv(log.ep(), memory(&mut into), bits, ALL, 0, false).unwrap();
        *log.posted.lock().unwrap() = Some(request);
    }
    // Idempotent, also from inside.
    set_progression(log.ep(), false).unwrap();
    set_progression(log.ep(), true).unwrap();
    log.inside.store(false, Ordering::Release);
    log.answer.load(Ordering::Relaxed)
}

#[test]
fn handler_sees_unmatched_messages_and_may_consume_them() {
    for port in [ROUTE_LOCAL, ROUTE_TCP] {
        let (a, b, to_b) = pair(port);
        let log = Log::at(&b);
        log.answer.store(1, Ordering::Relaxed);
        register_handler(b.0, log.handler()).unwrap();
        let mut expected = [0u8; 4];
        let posted = recv(&b, 1, ALL, &mut expected);
        let mut bytes = *b"abcd";
        let mut large = vec![5; 100_000];
        let sends = [
            send(&a, to_b, 1, &mut bytes),
            send(&a, to_b, 2, &mut bytes),
            send(&a, to_b, 3, &mut large),
            issend(&a, to_b, 4, &mut []),
        ];
        while log.seen.lock().unwrap().len() < 3 {
            assert_eq!(
                wait_any(b.0, 9, ALL, Some(Duration::from_millis(1))),
                Ok(None)
            );
        }
        assert_eq!(ended(&b, posted).match_info, 1);
        let seen = log.seen.lock().unwrap().clone();
        let told: Vec<_> = seen
            .iter()
            .map(|(_, bits, length, _)| (*bits, *length))
            .collect();
        assert_eq!(told, [(2, 4), (3, 100_000), (4, 0)]);
        assert_eq!(seen[0].3.as_deref(), Some(&b"abcd"[..]));
        assert_eq!(seen[1].3, None);
        let codes: Vec<_> = sends.map(|sent| ended(&a, sent).code).into();
        assert_eq!(codes, [0, 0, StatusCode::Truncated as u32, 0]);
        let refused = log.close.lock().unwrap().take().unwrap();
        assert_eq!(code(refused), Code::CloseInHandler);
        assert_eq!(probe(b.0, 0, 0, NOW), Ok(None));
        register_handler(b.0, None).unwrap();
    }
}

#[test]
fn a_receive_it_posts_takes_the_message() {
    let (a, b, to_b) = pair(ROUTE_LOCAL);
    let log = Log::at(&b);
    for len in [10, 100_000] {
        *log.into.lock().unwrap() = vec![0; len].into();
        register_handler(b.0, log.handler()).unwrap();
        let mut bytes = vec![9; len];
        let sent = send(&a, to_b, 7, &mut bytes);
        let status = wait_any(b.0, 7, ALL, LONG).unwrap().unwrap();
        assert_eq!(status.xfer_length as usize, len);
        assert_eq!(log.into.lock().unwrap()[..], bytes);
        assert_eq!(ended(&a, sent).code, 0);
        assert_eq!(
            code(test(b.0, log.posted.lock().unwrap().unwrap())),
            Code::BadRequest
        );
        register_handler(b.0, None).unwrap();
    }
}

#[test]
fn while_it_runs_others_post_and_test_and_who_ends_it_waits() {
    let (a, b, to_b) = pair(ROUTE_LOCAL);
    let log = Log::at(&b);
    let mut byte = [1];
    for end in 0..3 {
        register_handler(b.0, log.handler()).unwrap();
        log.hold.store(true, Ordering::Release);
        let sent = send(&a, to_b, 7, &mut byte);
        forget(a.0, sent).unwrap();
        thread::scope(|scope| {
            let runner = scope.spawn(|| wait_any(b.0, 9, ALL, Some(Duration::from_millis(300))));
            while !log.inside.load(Ordering::Acquire) {
                thread::yield_now();
            }
            // The endpoint is not locked.
            assert_eq!(test_any(b.0, 0, 0), Ok(None));
            let posted = irecv(b.0, UserMemory::empty(), 9, ALL, 0, false).unwrap();
            assert_eq!(cancel(b.0, posted), Ok(true));
            let ender = scope.spawn(|| match end {
                0 => register_handler(b.0, None),
                1 => set_progression(b.0, false),
                _ => close(b.0),
            });
            // The thread may not have begun to wait yet; a thread that returned too early would be noticed sometimes.
            for _ in 0..50 {
                thread::yield_now();
                assert!(!ender.is_finished(), "{end}");
            }
            log.hold.store(false, Ordering::Release);
            assert_eq!(ender.join().unwrap(), Ok(()));
            assert!(!log.inside.load(Ordering::Acquire));
            let ran = runner.join().unwrap();
            assert!(matches!(ran, Ok(None)) || end == 2, "{ran:?}");
        });
        if end < 2 {
            // The handler did not consume the message, so it is received.
            set_progression(b.0, true).unwrap();
            let mut into = [0];
            let got = recv(&b, 7, ALL, &mut into);
            assert_eq!(ended(&b, got).match_info, 7);
        }
    }
}

#[test]
fn a_stream_of_messages_does_not_keep_a_test_for_ever() {
    let (a, b, to_b) = pair(ROUTE_LOCAL);
    let log = Log::at(&b);
    log.answer.store(1, Ordering::Relaxed);
    register_handler(b.0, log.handler()).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let sent = isend(
                    a.0,
                    UserMemory::empty(),
                    to_b,
                    1,
                    0,
                    SendMode::Buffered,
                    false,
                );
                wait_for(a.0, sent.unwrap(), LONG).unwrap();
            }
        });
        for _ in 0..200 {
            assert_eq!(test_any(b.0, 9, ALL), Ok(None));
        }
        stop.store(true, Ordering::Relaxed);
    });
    register_handler(b.0, None).unwrap();
}
