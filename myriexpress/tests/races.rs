//! Several threads at connected endpoints of one process, contending wherever two can meet.
//!
//! ```text
//!   senders ----.   endpoint a --- a port ---> endpoint b   .--> a waiter: exactly once,
//!   cancellers --+->     ^                        ^        -+    and then the memory is freed
//!                        `--- close, open ... ----'
//! ```
//!
//! A thread that gets a request's completion frees its memory at once, so that a sanitizer sees a later access. For
//! `make tsan` threads are joined one by one: the sanitizer does not see the order that the standard library makes.

use mx_proto::Route;
use mx_sys::{ROUTE_LOCAL, ROUTE_TCP, Settings, UserMemory};
use myriexpress_api::error::{Code, Error};
use myriexpress_api::handles::{Address, EndpointHandle, RequestHandle};
use myriexpress_api::process::{self, OpenParams, SendMode};
use myriexpress_api::status::Status;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

const NOW: Option<Duration> = Some(Duration::ZERO);

const KEY: u32 = 7;

/// Mask of a message's class.
const CLASS: u64 = 0xff << 32;

fn settings(port: Route) -> Settings {
    Settings {
        port,
        // Below the library's own block, in one of sixteen blocks by process; not those of the unit tests.
        port_base: 10_000 + ((std::process::id() + 8) % 16) as u16 * 1024,
        ..Settings::for_mx()
    }
}

fn open(port: Route) -> EndpointHandle {
    let params = OpenParams {
        key: KEY,
        ..OpenParams::default()
    };
    process::open(&settings(port), params).unwrap()
}

fn connect(from: EndpointHandle, to: EndpointHandle) -> Result<Address, Error> {
    let (nic, endpoint, _) = process::decompose(process::own_address(to)?)?;
    process::connect(from, nic, endpoint, KEY, Some(LONG))
}

/// Memory of a pending request, freed with its completion; the request's context is its address.
struct LentMemory(Vec<u8>);

/// Memory of pending requests, for a test that closes the endpoint before they complete. Not for other tests: the
/// common lock would order accesses whose lack of order should be seen.
type Lent = Mutex<HashSet<usize>>;

/// Frees a request's memory after overwriting it. Returns its contents.
fn take_back(context: usize, lent: Option<&Lent>) -> Vec<u8> {
    if let Some(lent) = lent {
        assert!(lent.lock().remove(&context), "handed out twice");
    }
    // SAFETY: the context of every request here comes from `lend`, and each completes once, which the test checks.
    let mut lent_memory = unsafe { Box::from_raw(context as *mut LentMemory) };
    let bytes = lent_memory.0.clone();
    lent_memory.0.fill(0xee);
    bytes
}

/// Posts a request with memory of its own. Returns the request and its context.
fn lend(
    len: usize,
    byte: u8,
    lent: Option<&Lent>,
    post: impl FnOnce(UserMemory, usize) -> Result<RequestHandle, Error>,
) -> Result<(RequestHandle, usize), Error> {
    let mut lent_memory = Box::new(LentMemory(vec![byte; len]));
    let (start, len) = (lent_memory.0.as_mut_ptr(), lent_memory.0.len());
    let context = Box::into_raw(lent_memory) as usize;
    if let Some(lent) = lent {
        lent.lock().insert(context);
    }
    // SAFETY: stays until the request has completed, or its endpoint is closed.
    let memory = unsafe { UserMemory::new(start.cast(), len) }.unwrap();
    match post(memory, context) {
        Ok(request) => Ok((request, context)),
        Err(error) => {
            take_back(context, lent);
            Err(error)
        }
    }
}

fn send(
    from: EndpointHandle,
    to: Address,
    bits: u64,
    len: usize,
    lent: Option<&Lent>,
) -> Result<(RequestHandle, usize), Error> {
    lend(len, bits as u8, lent, |memory, context| {
        process::isend(from, memory, to, bits, context, SendMode::Buffered, false)
    })
}

fn receive(
    at: EndpointHandle,
    class: u64,
    lent: Option<&Lent>,
) -> Result<(RequestHandle, usize), Error> {
    lend(LENGTHS[3], 0, lent, |memory, context| {
        process::irecv(at, memory, class, CLASS, context, false)
    })
}

fn checked(status: &Status) {
    assert_eq!(status.code, 0);
    let bytes = take_back(status.context, None);
    let got = &bytes[..status.xfer_length as usize];
    assert!(got.iter().all(|byte| *byte == status.match_info as u8));
}

/// Within a packet, in one piece with a copy, and larger than that.
const LENGTHS: [usize; 4] = [0, 80, 5_000, 100_000];

#[test]
fn concurrent_sends_receives_and_cancels_end_exactly_once() {
    for port in [ROUTE_LOCAL, ROUTE_TCP] {
        exchange(port);
    }
}

fn exchange(port: Route) {
    const CLASSES: u64 = 3;
    const EACH: u64 = 300;
    let (a, b) = (open(port), open(port));
    let to_b = connect(a, b).unwrap();
    let received = &AtomicU64::new(0);
    let cancelled = &AtomicU64::new(0);
    let timeout = Instant::now() + LONG;
    let check = || {
        assert!(Instant::now() < timeout, "{received:?} received");
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for class in 0..CLASSES {
            threads.push(scope.spawn(move || {
                for n in 0..EACH {
                    let len = LENGTHS[(n + class) as usize % 4];
                    let (request, _) = send(a, to_b, class << 32 | n, len, None).unwrap();
                    // Contends with the waiters.
                    checked(&process::wait_for(a, request, Some(LONG)).unwrap().unwrap());
                }
            }));
            // Every third receive is cancelled as soon as it is posted, if that is not too late.
            threads.push(scope.spawn(move || {
                let mut good = 0;
                for n in 0.. {
                    if good == EACH {
                        break;
                    }
                    let (request, context) = receive(b, class << 32, None).unwrap();
                    good += 1;
                    if n % 3 == 0 {
                        match process::cancel(b, request) {
                            Ok(true) => {
                                take_back(context, None);
                                cancelled.fetch_add(1, Ordering::Relaxed);
                                good -= 1;
                            }
                            // The receive completes, or another thread has got its completion.
                            Ok(false) => {}
                            Err(error) => assert_eq!(error.code(), Code::BadRequest),
                        }
                    }
                    check();
                }
            }));
        }
        // One waiter for all classes, and one for each.
        for waiter in 0..4u64 {
            threads.push(scope.spawn(move || {
                let (class, mask) = match waiter {
                    0 => (0, 0),
                    other => ((other - 1) << 32, CLASS),
                };
                while received.load(Ordering::Relaxed) < CLASSES * EACH {
                    let timeout = match waiter % 2 {
                        0 => Duration::from_micros(50),
                        _ => Duration::from_millis(20),
                    };
                    if let Some(status) = process::wait_any(b, class, mask, Some(timeout)).unwrap()
                    {
                        assert_eq!((status.match_info ^ class) & mask, 0);
                        checked(&status);
                        received.fetch_add(1, Ordering::Relaxed);
                    }
                    check();
                }
            }));
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(received.load(Ordering::Relaxed), CLASSES * EACH);
    assert_eq!(process::peek(b, NOW), Ok(None));
    process::close(a).unwrap();
    process::close(b).unwrap();
}

/// Makes a thread's calls of an endpoint until it is closed. Returns the code of the last call.
fn busy_until_the_end(ep: EndpointHandle, own: Address, lent: &Lent, role: usize) -> Code {
    let mut n = 0;
    loop {
        n += 1;
        let result = match role {
            // Blocked, in each kind of wait.
            0 => process::wait_any(ep, 1 << 60, u64::MAX, None).map(|_| ()),
            1 => process::peek(ep, None).map(|_| thread::yield_now()),
            2 => process::probe(ep, 1 << 60, u64::MAX, None).map(|_| ()),
            3 => receive(ep, 5 << 32, Some(lent)).and_then(|(request, _)| {
                process::wait_for(ep, request, None).map(|ended| assert_eq!(ended, None))
            }),
            // Polling.
            4 => process::test_any(ep, 3 << 32, CLASS).map(|ended| {
                if let Some(status) = ended {
                    take_back(status.context, Some(lent));
                }
            }),
            // Posting; some requests stay pending.
            5 => receive(ep, 3 << 32, Some(lent)).and_then(|(request, context)| {
                if n % 2 == 0 && process::cancel(ep, request)? {
                    take_back(context, Some(lent));
                }
                Ok(())
            }),
            6 => send(ep, own, 3 << 32 | 1, LENGTHS[n % 4], Some(lent)).map(|_| ()),
            // Queries of the endpoint itself.
            7 => process::counters(ep).map(|_| ()),
            _ => process::wakeup(ep).and_then(|()| process::board_of(ep).map(|_| ())),
        };
        match result {
            Ok(()) => {}
            Err(error) if error.code() == Code::BadRequest => {}
            Err(error) => return error.code(),
        }
        if role > 4 {
            thread::sleep(Duration::from_micros(20));
        }
    }
}

#[test]
fn waiters_of_a_closed_endpoint_return_and_memory_is_safe() {
    // A peer that connects and sends to the current endpoint, and endpoints that take places which have just become
    // free.
    let peer = open(ROUTE_LOCAL);
    let over = &AtomicBool::new(false);
    let current = &AtomicU64::new(0);
    thread::scope(|scope| {
        let talking = scope.spawn(move || {
            while !over.load(Ordering::Acquire) {
                let ep = EndpointHandle(current.load(Ordering::Acquire));
                let Ok(address) = connect(peer, ep) else {
                    thread::yield_now();
                    continue;
                };
                for n in 0..20 {
                    let Ok((request, _)) = send(peer, address, 3 << 32 | 2, LENGTHS[n % 4], None)
                    else {
                        break;
                    };
                    let ended = process::wait_for(peer, request, Some(LONG)).unwrap();
                    let status = ended.expect("an end, whether the endpoint is there or not");
                    take_back(status.context, None);
                    if status.code != 0 {
                        break;
                    }
                }
                let _ = process::disconnect(peer, address);
            }
        });
        let reopening = scope.spawn(move || {
            while !over.load(Ordering::Acquire) {
                let other = open(ROUTE_LOCAL);
                thread::yield_now();
                process::close(other).unwrap();
            }
        });
        for life in 0..20 {
            one_life(current, Duration::from_micros(life * 150));
        }
        over.store(true, Ordering::Release);
        talking.join().unwrap();
        reopening.join().unwrap();
    });
    process::close(peer).unwrap();
}

fn one_life(current: &AtomicU64, pause: Duration) {
    const ROLES: usize = 9;
    let ep = open(ROUTE_LOCAL);
    let own = process::own_address(ep).unwrap();
    current.store(ep.0, Ordering::Release);
    let lent = &Lent::default();
    let running = &AtomicUsize::new(0);
    thread::scope(|scope| {
        let busy = |role| {
            scope.spawn(move || {
                running.fetch_add(1, Ordering::Relaxed);
                busy_until_the_end(ep, own, lent, role)
            })
        };
        let threads: Vec<_> = (0..ROLES).map(busy).collect();
        while running.load(Ordering::Relaxed) < ROLES {
            thread::yield_now();
        }
        // Some threads are asleep by then and some are not.
        thread::sleep(pause);
        let began = Instant::now();
        process::close(ep).unwrap();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Code::BadEndpoint);
        }
        assert!(began.elapsed() < LONG / 2, "a waiter was not woken");
    });
    for context in std::mem::take(&mut *lent.lock()) {
        // SAFETY: made by `lend`; the endpoint has ended, and no longer accesses it.
        let mut lent_memory = unsafe { Box::from_raw(context as *mut LentMemory) };
        lent_memory.0.fill(0xee);
    }
}
