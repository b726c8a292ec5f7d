//! Faults of the C method (docs/hosts.md) that lie in starting, stopping and in
//! threads: shown not to be there, on the real ports, with the process talking to itself.
//!
//! One test function: what it counts is the process's.

use bmi_method::abi::constants::*;
use bmi_method::abi::types::bmi_method_addr;
use bmi_method::error::Error;
use bmi_method::instance::{self, Done, Post, PostKind, Posted};
use mx_sys::UserMemory;
use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

type Addr = NonNull<bmi_method_addr>;

/// A server's endpoint that no other process has: the first one that can be had.
fn start() -> (Addr, u32) {
    // Spread by process, so that two runs at once rarely meet.
    let first = std::process::id() % 900;
    for endpoint in (first..1024).chain(0..first) {
        let listen = look_up(&format!("mx://no-host-at-all:0:{endpoint}\n"));
        match instance::initialize(Some(listen), 3, BMI_INIT_SERVER | 4, None) {
            Ok(()) => return (listen, endpoint),
            Err(error) => {
                // Fault 16: after a failure it can be called again.
                assert_eq!(error.code(), -BMI_EADDRINUSE, "{error}");
                instance::drop_addr(listen);
            }
        }
    }
    panic!("1024 endpoints in use");
}

fn look_up(name: &str) -> Addr {
    instance::lookup(name).unwrap()
}

fn post(kind: PostKind, addr: Addr, tag: i32, buffer: &mut [u8], context: i64) -> Post {
    Post {
        kind,
        addr,
        // SAFETY: the tests keep their buffers until the operations are over.
        memory: unsafe { UserMemory::new(buffer.as_mut_ptr().cast(), buffer.len()) }.unwrap(),
        tag,
        class: 0,
        user_ptr: ptr::without_provenance_mut(tag as usize),
        context,
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, Box<Error>>) -> i32 {
    result.unwrap_err().code()
}

fn wait(id: i64, context: i64) -> Done {
    let long = 30_000_000;
    instance::test(id, context, long).unwrap().unwrap()
}

fn count(of: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{of}"))
        .unwrap()
        .count()
}

/// Descriptors and threads, as soon as they are `expected`: the kernel lists a thread for a moment
/// after it has been joined.
fn settled(expected: (usize, usize)) -> (usize, usize) {
    let timeout = Instant::now() + Duration::from_secs(5);
    loop {
        let now = (count("fd"), count("task"));
        if now == expected || Instant::now() > timeout {
            return now;
        }
        std::thread::yield_now();
    }
}

/// Everything, while there is no instance.
fn nothing_works_and_nothing_breaks(addr: Addr) {
    let mut id = 7;
    let mut buffer = [0; 4];
    let refused = instance::post(post(PostKind::Send, addr, 1, &mut buffer, 0), &mut id);
    assert_eq!(code(refused), -BMI_ENODEV);
    assert_eq!(id, 7);
    let none = 0;
    assert_eq!(code(instance::test(1, 0, none)), -BMI_ENODEV);
    assert_eq!(
        code(instance::test_some(&[1], 0, none, |_, _| ())),
        -BMI_ENODEV
    );
    assert_eq!(
        code(instance::test_context(0, 1, none, |_| ())),
        -BMI_ENODEV
    );
    assert_eq!(
        code(instance::test_unexpected(1, 0, none, |_| ())),
        -BMI_ENODEV
    );
    assert_eq!(code(instance::cancel(1, 0)), -BMI_ENODEV);
    assert_eq!(code(instance::open_context(0)), -BMI_ENODEV);
    assert_eq!(code(instance::finalize()), -BMI_ENODEV);
    instance::close_context(0);
    assert!(!instance::drop_addr_query(addr));
}

#[test]
fn starting_and_stopping_in_any_order_and_from_any_thread_does_what_it_says() {
    let _alone = crate::alone();
    let early = look_up("mx://localhost:0:999");
    nothing_works_and_nothing_breaks(early);
    assert!(instance::lookup("tcp://localhost:3334").is_none());
    assert!(instance::lookup("mx://").is_none());

    // Address and flag must agree.
    assert_eq!(
        code(instance::initialize(None, 0, BMI_INIT_SERVER, None)),
        -BMI_EINVAL
    );
    assert_eq!(
        code(instance::initialize(Some(early), 0, 0, None)),
        -BMI_EINVAL
    );
    let nonsense = NonNull::dangling();
    let refused = instance::initialize(Some(nonsense), 0, BMI_INIT_SERVER, None);
    assert_eq!(code(refused), -BMI_EINVAL);
    nothing_works_and_nothing_breaks(early);

    // Once warm, no life leaves a descriptor or a thread behind.
    one_life(early);
    let before = (count("fd"), count("task"));
    for _ in 0..3 {
        one_life(early);
        assert_eq!(settled(before), before);
    }
    nothing_works_and_nothing_breaks(early);
    instance::drop_addr(early);
    instance::drop_addr(early);
    assert_eq!(bmi_method::address::count(), 0);
}

fn one_life(early: Addr) {
    let (listen, endpoint) = start();
    assert_eq!(code(instance::initialize(None, 0, 0, None)), -BMI_EALREADY);
    // SAFETY: live objects, which are not written to.
    unsafe {
        assert_eq!((*listen.as_ptr()).method_type, 3);
        assert_eq!((*early.as_ptr()).method_type, 3);
    }
    // Its own listen string again: a usable address, which is itself.
    let own = look_up(&format!("mx://no-host-at-all:0:{endpoint}"));
    let local = look_up(&format!("tcp://x:1,mx://localhost:0:{endpoint}"));
    assert!(own != listen && own != local);
    // SAFETY: the object lives.
    let text = unsafe { CStr::from_ptr(instance::rev_lookup(local.as_ptr())) };
    assert_eq!(
        text.to_str().unwrap(),
        format!("mx://localhost:0:{endpoint}")
    );

    talk_to_myself(listen, own, local);
    strangers_ids(own);
    no_more_and_no_sooner_than_asked(local);
    many_threads(local);
    a_blocked_thread_is_woken(local);
    instance::drop_addr(own);
    instance::drop_addr(own);

    // Operations that are under way when it ends are simply over.
    let mut buffer = [0; 8];
    let mut id = 0;
    let receive = post(PostKind::Recv, local, 9, &mut buffer, 0);
    assert_eq!(instance::post(receive, &mut id).unwrap(), Posted::Pending);
    let began = Instant::now();
    instance::finalize().unwrap();
    // It lingers for a second at most; far from what an operation may take.
    assert!(began.elapsed() < Duration::from_secs(10));
    nothing_works_and_nothing_breaks(local);
    // OrangeFS drops addresses after the end.
    instance::drop_addr(local);
    instance::drop_addr(listen);
}

/// Each of the three names is the same peer, and messages of all sizes arrive.
fn talk_to_myself(listen: Addr, own: Addr, local: Addr) {
    for (round, len) in [0, 10, 40_000, 3 << 20].into_iter().enumerate() {
        let mut out: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        let mut into = vec![0; len + 1];
        let (mut recv, mut send) = (0, 0);
        let receive = post(PostKind::Recv, own, 5, &mut into, 2);
        assert_eq!(instance::post(receive, &mut recv).unwrap(), Posted::Pending);
        let from = [listen, local, own, local][round];
        let sending = post(PostKind::Send, from, 5, &mut out, 3);
        let posted = instance::post(sending, &mut send).unwrap();
        let done = wait(recv, 2);
        assert_eq!((done.error, done.size), (0, len as i64));
        assert!(into[..len] == out[..]);
        if posted == Posted::Pending {
            assert_eq!(wait(send, 3).error, 0);
        }
    }
    // Unexpected, 300 KiB, to oneself.
    let mut out = vec![7; 300 << 10];
    let mut send = 0;
    let sending = post(PostKind::SendUnexpected, local, 6, &mut out, 0);
    let posted = instance::post(sending, &mut send).unwrap();
    let mut got = Vec::new();
    let until = Instant::now() + Duration::from_secs(30);
    while got.is_empty() && Instant::now() < until {
        let each = |message: instance::Unexpected| {
            // SAFETY: malloc'ed with that size, and ours now.
            unsafe {
                let bytes = message.buffer.cast::<u8>();
                assert_eq!(bytes.read(), 7);
                libc::free(message.buffer);
            }
            got.push((message.size, message.tag, message.error));
        };
        instance::test_unexpected(5, 0, 100_000, each).unwrap();
    }
    assert_eq!(got, [(300 << 10, 6, 0)]);
    if posted == Posted::Pending {
        assert_eq!(wait(send, 0).error, 0);
    }
}

/// Ids that name nothing are refused by all calls and do no harm.
fn strangers_ids(addr: Addr) {
    let mut buffer = [0; 8];
    let mut live = 0;
    let receive = post(PostKind::Recv, addr, 1, &mut buffer, 4);
    instance::post(receive, &mut live).unwrap();
    for id in [0, 1, -1, 8, live + 8, live + 1, i64::MIN, i64::MAX] {
        assert_eq!(code(instance::test(id, 4, 0)), -BMI_EINVAL);
        assert_eq!(code(instance::cancel(id, 4)), -BMI_EINVAL);
    }
    // The right id in the wrong context: no operation of that one's is under way.
    instance::cancel(live, 5).unwrap();
    assert_eq!(instance::test(live, 4, 0).unwrap(), None);
    assert_eq!(code(instance::test(live, 5, 0)), -BMI_EINVAL);
    // The words that the host reads, without asking, at the address that an id is.
    let block = live as *const i64;
    // SAFETY: an operation under way.
    unsafe {
        assert_eq!(block.read(), live);
        assert_eq!(block.add(9).read(), addr.as_ptr() as i64);
    }
    instance::cancel(live, 4).unwrap();
    instance::cancel(live, 4).unwrap();
    assert_eq!(wait(live, 4).error, -BMI_ECANCEL);
    // Too late, which is no mistake; and what the host reads is still there.
    instance::cancel(live, 4).unwrap();
    assert_eq!(code(instance::test(live, 4, 0)), -BMI_EINVAL);
    // SAFETY: blocks are never unmapped.
    unsafe {
        assert_eq!(block.read(), live);
        assert_eq!(block.add(9).read(), addr.as_ptr() as i64);
    }
}

/// The caller's arrays have room for `max`; and as long as nothing is complete, `test_some` waits.
fn no_more_and_no_sooner_than_asked(addr: Addr) {
    for tag in 0..3 {
        let (mut out, mut send) = ([1; 4], 0);
        let sending = post(PostKind::SendUnexpected, addr, tag, &mut out, 0);
        if instance::post(sending, &mut send).unwrap() == Posted::Pending {
            assert_eq!(wait(send, 0).error, 0);
        }
    }
    let mut tags = Vec::new();
    let until = Instant::now() + Duration::from_secs(30);
    while tags.len() < 3 && Instant::now() < until {
        let before = tags.len();
        let each = |message: instance::Unexpected| {
            // SAFETY: malloc'ed, and ours now.
            unsafe { libc::free(message.buffer) };
            tags.push(message.tag);
        };
        let count = instance::test_unexpected(2, 0, 100_000, each).unwrap();
        assert!(count <= 2 && tags.len() == before + count);
    }
    assert_eq!(tags, [0, 1, 2]);

    let (mut into, mut recv) = ([0; 4], 0);
    instance::post(post(PostKind::Recv, addr, 1, &mut into, 4), &mut recv).unwrap();
    let began = Instant::now();
    let none = |_, _| panic!("nothing is complete");
    let found = instance::test_some(&[0, recv], 4, 20_000, none).unwrap();
    assert!(found == 0 && began.elapsed() >= Duration::from_millis(20));
    instance::cancel(recv, 4).unwrap();
    assert_eq!(wait(recv, 4).error, -BMI_ECANCEL);
}

/// Posts, tests and cancels from several threads at once: each operation is reported exactly once.
fn many_threads(addr: Addr) {
    const THREADS: usize = 4;
    const EACH: usize = 500;
    let addr = addr.as_ptr() as usize;
    let reported = AtomicUsize::new(0);
    let pending = AtomicUsize::new(0);
    let posting = AtomicUsize::new(THREADS);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let (pending, posting) = (&pending, &posting);
            threads.push(scope.spawn(move || {
                let addr = NonNull::new(addr as *mut _).unwrap();
                for n in 0..EACH {
                    let tag = (thread * EACH + n) as i32;
                    // Reported by whichever thread asks first, so the buffers stay for good.
                    let into = Box::leak(vec![0; 64].into_boxed_slice());
                    let out = Box::leak(vec![1; 64].into_boxed_slice());
                    let mut id = 0;
                    pending.fetch_add(1, Ordering::Relaxed);
                    instance::post(post(PostKind::Recv, addr, tag, into, 6), &mut id).unwrap();
                    if n % 10 == 0 {
                        // It may have been reported already, or the id be another's by now.
                        let _ = instance::cancel(id, 6);
                        continue;
                    }
                    let sending = post(PostKind::Send, addr, tag, out, 6);
                    pending.fetch_add(1, Ordering::Relaxed);
                    if instance::post(sending, &mut id).unwrap() != Posted::Pending {
                        pending.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                posting.fetch_sub(1, Ordering::Relaxed);
            }));
        }
        for _ in 0..2 {
            let (reported, pending, posting) = (&reported, &pending, &posting);
            threads.push(scope.spawn(move || {
                let until = Instant::now() + Duration::from_secs(60);
                loop {
                    let each = |done: Done| {
                        assert!(done.error == 0 || done.error == -BMI_ECANCEL, "{done:?}");
                        reported.fetch_add(1, Ordering::Relaxed);
                    };
                    instance::test_context(6, 7, 1000, each).unwrap();
                    let all = posting.load(Ordering::Relaxed) == 0
                        && reported.load(Ordering::Relaxed) >= pending.load(Ordering::Relaxed);
                    if all {
                        break;
                    }
                    assert!(
                        Instant::now() < until,
                        "{reported:?} of {pending:?} reported"
                    );
                }
            }));
        }
        // That the scope does as well; ThreadSanitizer sees this.
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(reported.into_inner(), pending.into_inner());
}

/// Fault 19: a thread blocked in `test_context` returns for a completion, and for an unexpected
/// message, long before its time is up.
fn a_blocked_thread_is_woken(addr: Addr) {
    let long = Duration::from_secs(20);
    for unexpected in [false, true] {
        let mut into = [0; 4];
        let mut recv = 0;
        instance::post(post(PostKind::Recv, addr, 8, &mut into, 7), &mut recv).unwrap();
        let kind = if unexpected {
            PostKind::SendUnexpected
        } else {
            PostKind::Send
        };
        let began = Instant::now();
        let waiting = std::thread::spawn(move || {
            instance::test_context(7, 1, long.as_micros() as u64, |_| ()).unwrap()
        });
        let mut out = [1; 4];
        let mut send = 0;
        let sending = post(kind, addr, 8, &mut out, 8);
        if instance::post(sending, &mut send).unwrap() == Posted::Pending {
            wait(send, 8);
        }
        assert_eq!(waiting.join().unwrap(), usize::from(!unexpected));
        assert!(began.elapsed() < long / 2);
        if unexpected {
            let mut tags = Vec::new();
            let each = |message: instance::Unexpected| {
                // SAFETY: malloc'ed, and ours now.
                unsafe { libc::free(message.buffer) };
                tags.push(message.tag);
            };
            instance::test_unexpected(1, 0, 0, each).unwrap();
            assert_eq!(tags, [8]);
            instance::cancel(recv, 7).unwrap();
            assert_eq!(wait(recv, 7).error, -BMI_ECANCEL);
        }
    }
}
