//! Several threads calling the method of one process, colliding wherever two can.
//!
//! ```text
//!   posters ----.                          .--> by context ---.
//!   cancellers --+--> the method, itself --+--> by id          +--> exactly once, and then
//!   strangers --'     (calls itself)       '--> some, one only '    the memory is freed
//!                          ^
//!          initialize, finalize, the helper thread
//! ```
//!
//! A thread frees an operation's memory as soon as it gets the completion, so that a sanitizer
//! detects a later access. For `make tsan` locks are `parking_lot`'s and threads are joined one by
//! one: the sanitizer does not see the ordering of the standard library's.

use bmi_method::abi::constants::*;
use bmi_method::abi::types::bmi_method_addr;
use bmi_method::instance::{self, Done, Post, PostKind, PostOutcome, Unexpected};
use mx_sys::UserMemory;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
pub(crate) const LONG_US: u64 = LONG.as_micros() as u64;

/// Context whose operations are tested by their ids.
pub(crate) const BY_ID: i64 = 5;

/// Contexts whose operations are reported to any thread that asks.
const BY_CONTEXT: [i64; 2] = [6, 7];

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Addr(pub(crate) NonNull<bmi_method_addr>);

// SAFETY: identifies an object that any thread may use.
unsafe impl Send for Addr {}
// SAFETY: as above.
unsafe impl Sync for Addr {}

/// Address objects of a method that has called itself.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    /// Object of the listen address.
    listen: Addr,
    /// Object that was looked up, for sends.
    pub(crate) own: Addr,
    /// Object of the caller, for receives.
    pub(crate) caller: Addr,
}

/// Starts the method as a server with a name of its own, and calls it.
pub(crate) fn start() -> Ends {
    let first = std::process::id() % 900;
    for endpoint in (first..1024).chain(0..first) {
        let name = format!("mx://localhost:0:{endpoint}");
        let listen = instance::lookup(&name).unwrap();
        match instance::initialize(Some(listen), 3, BMI_INIT_SERVER | 4, None) {
            Ok(()) => return call_self(Addr(listen), Addr(instance::lookup(&name).unwrap())),
            Err(error) => {
                assert_eq!(error.code(), -BMI_EADDRINUSE, "{error}");
                instance::drop_addr(listen);
            }
        }
    }
    panic!("1024 endpoints in use");
}

fn call_self(listen: Addr, own: Addr) -> Ends {
    let tally = Tally::default();
    let request = tally.post(own, PostKind::SendUnexpected, 0, 1, BY_ID);
    let mut caller = None;
    while caller.is_none() {
        let each = |message: Unexpected| {
            // SAFETY: from malloc, and owned by this test now.
            unsafe { libc::free(message.buffer) };
            caller = Some(Addr(message.addr));
        };
        instance::test_unexpected(1, 0, TIMEOUTS[2], each).unwrap();
    }
    if let Some(id) = request {
        let done = instance::test(id, BY_ID, LONG_US).unwrap();
        tally.note(&done.expect("it was received"), 0);
    }
    Ends {
        listen,
        own,
        caller: caller.expect("a message of it"),
    }
}

impl Ends {
    /// Returns the object for operations of a kind.
    fn of(&self, kind: PostKind) -> Addr {
        if kind == PostKind::Recv {
            self.caller
        } else {
            self.own
        }
    }

    fn drop_all(&self) {
        for addr in [self.own, self.caller, self.listen] {
            instance::drop_addr(addr.0);
        }
        assert_eq!(bmi_method::address::count(), 0);
    }
}

pub(crate) fn stop(ends: Ends) {
    instance::finalize().unwrap();
    ends.drop_all();
}

/// Memory that belongs to an operation until a thread gets its completion.
struct LentMemory {
    bytes: Vec<u8>,
    /// Whether it belongs to a send; a receive's contents are checked.
    sent: bool,
}

/// Numbers of operations, and memory of pending ones.
#[derive(Default)]
pub(crate) struct Tally {
    posted: AtomicUsize,
    over: AtomicUsize,
    /// Used by a test that ends the method before its operations complete. Other tests must not
    /// take this lock, since it would order what has to be seen without order.
    lent: Option<Mutex<HashSet<usize>>>,
}

impl Tally {
    /// Posts an operation with memory of its own. Returns `None` if it is complete already, or
    /// rejected.
    pub(crate) fn post(
        &self,
        addr: Addr,
        kind: PostKind,
        tag: i32,
        len: usize,
        context: i64,
    ) -> Option<i64> {
        let sent = kind != PostKind::Recv;
        let mut lent_memory = Box::new(LentMemory {
            bytes: vec![if sent { tag as u8 } else { 0 }; len],
            sent,
        });
        let (start, len) = (lent_memory.bytes.as_mut_ptr(), lent_memory.bytes.len());
        let lent_memory = Box::into_raw(lent_memory);
        let post = Post {
            kind,
            addr: addr.0,
            // SAFETY: the memory is kept until the operation completes.
            memory: unsafe { UserMemory::new(start.cast(), len) }.unwrap(),
            tag,
            class: 0,
            user_ptr: lent_memory.cast(),
            context,
        };
        if let Some(lent) = &self.lent {
            lent.lock().insert(lent_memory as usize);
        }
        let mut id = 0;
        self.posted.fetch_add(1, Ordering::Relaxed);
        match instance::post(post, &mut id) {
            Ok(PostOutcome::Pending) => Some(id),
            Ok(PostOutcome::Complete { size }) => {
                self.end(lent_memory, 0, size, tag);
                None
            }
            Err(error) => {
                assert_eq!(error.code(), -BMI_ENODEV);
                self.end(lent_memory, 0, 0, -1);
                None
            }
        }
    }

    pub(crate) fn note(&self, done: &Done, tag: i32) {
        self.end(done.user_ptr.cast(), done.error, done.size, tag);
    }

    /// Handles a completion, and frees the operation's memory.
    fn end(&self, lent_memory: *mut LentMemory, error: i32, size: i64, tag: i32) {
        // -BMI_ENORECVR: the matching receive was cancelled, or thrown away at the end.
        assert!(
            [0, -BMI_ECANCEL, -BMI_ENORECVR].contains(&error),
            "error {error}"
        );
        if let Some(lent) = &self.lent {
            assert!(
                lent.lock().remove(&(lent_memory as usize)),
                "handed out twice"
            );
        }
        // SAFETY: made by `post`, and completed once, which this test checks.
        let mut lent_memory = unsafe { Box::from_raw(lent_memory) };
        if error == 0 && !lent_memory.sent && tag >= 0 {
            let size = usize::try_from(size).unwrap();
            assert!(
                lent_memory.bytes[..size]
                    .iter()
                    .all(|byte| *byte == tag as u8)
            );
        }
        // The memory belongs to the program again: written to, and freed.
        lent_memory.bytes.fill(0xee);
        self.over.fetch_add(1, Ordering::Relaxed);
    }

    fn all_over(&self) -> bool {
        // In this order: no completion is counted before its post.
        let over = self.over.load(Ordering::Relaxed);
        over >= self.posted.load(Ordering::Relaxed)
    }
}

/// Pseudo-random numbers, the same in every run of a thread.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Time-outs of test calls in microseconds: none, one that passes while others work, one that is
/// never reached.
const TIMEOUTS: [u64; 3] = [0, 50, 20_000];

/// Lengths of messages: within a packet, in one piece with a copy, and larger.
const LENGTHS: [usize; 4] = [0, 60, 3_000, 70_000];

/// Ids of posted operations, for the cancelling threads; an id may be stale by then, or reused.
struct Given {
    ids: Vec<AtomicI64>,
    count: AtomicUsize,
}

impl Given {
    fn new(most: usize) -> Self {
        Self {
            ids: (0..most).map(|_| AtomicI64::new(0)).collect(),
            count: AtomicUsize::new(0),
        }
    }

    fn put(&self, id: i64) {
        let place = self.count.fetch_add(1, Ordering::Relaxed);
        self.ids[place].store(id, Ordering::Relaxed);
    }

    /// Picks one of the last few ids.
    fn late(&self, dice: &mut Dice) -> i64 {
        let count = self.count.load(Ordering::Relaxed);
        match count.checked_sub(1 + dice.below(12) as usize) {
            Some(place) => self.ids[place].load(Ordering::Relaxed),
            None => 0,
        }
    }

    fn all(&self) -> impl Iterator<Item = i64> {
        self.ids.iter().map(|id| id.load(Ordering::Relaxed))
    }
}

fn cancel(id: i64, context: i64) {
    if let Err(error) = instance::cancel(id, context) {
        assert_eq!(error.code(), -BMI_EINVAL, "{error}");
    }
}

#[test]
fn concurrent_posts_cancels_and_tests_end_exactly_once() {
    const EACH: usize = 400;
    const POSTERS: usize = 3;
    let _alone = crate::alone();
    let ends = start();
    let tally = &Tally::default();
    let given = &Given::new(POSTERS * EACH * 2);
    let posting = &AtomicUsize::new(POSTERS);
    let unexpected = &AtomicUsize::new(0);
    let over = || posting.load(Ordering::Acquire) == 0 && tally.all_over();
    let timeout = Instant::now() + LONG;
    let check = || {
        assert!(Instant::now() < timeout, "some are never over");
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for poster in 0..POSTERS {
            threads.push(scope.spawn(move || {
                let mut dice = Dice(0x9e37_79b9 + poster as u64);
                for n in 0..EACH {
                    let tag = (poster * EACH + n) as i32;
                    let len = LENGTHS[dice.below(4) as usize];
                    let context = BY_CONTEXT[n % 2];
                    if dice.below(4) == 0 {
                        let kind = PostKind::SendUnexpected;
                        if let Some(id) = tally.post(ends.of(kind), kind, tag, len, context) {
                            given.put(id);
                        }
                        continue;
                    }
                    // Either may come first.
                    let mut kinds = [PostKind::Recv, PostKind::Send];
                    if dice.below(2) == 0 {
                        kinds.swap(0, 1);
                    }
                    for kind in kinds {
                        if let Some(id) = tally.post(ends.of(kind), kind, tag, len, context) {
                            given.put(id);
                        }
                    }
                }
                posting.fetch_sub(1, Ordering::Release);
            }));
        }
        // A thread that waits for its own operations by id, and cancels some of them.
        threads.push(scope.spawn(move || {
            let mut dice = Dice(77);
            for n in 0..EACH {
                let tag = 1_000_000 + n as i32;
                let recv = tally.post(ends.caller, PostKind::Recv, tag, 3_000, BY_ID);
                let recv = recv.unwrap();
                let mut ids = vec![recv];
                if dice.below(3) == 0 {
                    instance::cancel(recv, BY_ID).unwrap();
                } else {
                    ids.extend(tally.post(ends.own, PostKind::Send, tag, 3_000, BY_ID));
                }
                while !ids.is_empty() {
                    let mut ended = Vec::new();
                    if n % 2 == 0 {
                        if let Some(done) = instance::test(ids[0], BY_ID, TIMEOUTS[2]).unwrap() {
                            tally.note(&done, tag);
                            ended.push(0);
                        }
                    } else {
                        let each = |place, done: Done| {
                            tally.note(&done, tag);
                            ended.push(place);
                        };
                        instance::test_some(&ids, BY_ID, TIMEOUTS[1], each).unwrap();
                    }
                    for place in ended.into_iter().rev() {
                        ids.remove(place);
                    }
                    check();
                }
            }
        }));
        // Two threads that cancel the latest operations, and in the end those whose match was
        // cancelled.
        for canceller in 0..2 {
            threads.push(scope.spawn(move || {
                let mut dice = Dice(5 + canceller);
                while !over() {
                    if posting.load(Ordering::Acquire) > 0 {
                        cancel(given.late(&mut dice), BY_CONTEXT[dice.below(2) as usize]);
                        thread::yield_now();
                    } else {
                        for id in given.all() {
                            for context in BY_CONTEXT {
                                cancel(id, context);
                            }
                        }
                    }
                    check();
                }
            }));
        }
        for poller in 0..3usize {
            threads.push(scope.spawn(move || {
                let mut dice = Dice(1 + poller as u64);
                while !over() {
                    let timeout = TIMEOUTS[dice.below(3) as usize];
                    let context = BY_CONTEXT[dice.below(2) as usize];
                    let each = |done: Done| tally.note(&done, -1);
                    instance::test_context(context, 7, timeout, each).unwrap();
                    check();
                }
            }));
        }
        threads.push(scope.spawn(move || {
            while !over() {
                let each = |message: Unexpected| {
                    let bytes = message.buffer.cast::<u8>();
                    for at in 0..message.size as usize {
                        // SAFETY: owned by this test, with that length.
                        assert_eq!(unsafe { bytes.add(at).read() }, message.tag as u8);
                    }
                    // SAFETY: from malloc, and owned by this test now.
                    unsafe { libc::free(message.buffer) };
                    unexpected.fetch_add(1, Ordering::Relaxed);
                };
                instance::test_unexpected(3, 0, TIMEOUTS[1], each).unwrap();
                check();
            }
        }));
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert_eq!(
        tally.over.load(Ordering::Relaxed),
        tally.posted.load(Ordering::Relaxed)
    );
    assert!(unexpected.load(Ordering::Relaxed) > 0);
    stop(ends);
}

/// Makes the calls of one role until the method has ended. Returns the error code of the last call.
fn busy_until_the_end(ends: Ends, tally: &Tally, role: usize) -> i32 {
    let mut dice = Dice(31 + role as u64);
    let each = |done: Done| tally.note(&done, -1);
    loop {
        let result = match role {
            // Blocked without limit, in each kind of test call.
            0 => instance::test_context(8, 1, LONG_US, each).map(|_| ()),
            1 => instance::test_unexpected(1, 0, LONG_US, |_| ()).map(|_| ()),
            // Polling.
            2 => instance::test_context(6, 3, 0, each).map(|_| ()),
            // Sleeping briefly.
            3 => instance::test_context(7, 3, TIMEOUTS[1], each).map(|_| ()),
            // Posting. Receives stay pending, so that the end has operations to end.
            _ => {
                let tag = dice.below(1 << 20) as i32;
                let kind = match dice.below(2) {
                    0 => PostKind::Recv,
                    _ => PostKind::Send,
                };
                let id = tally.post(ends.of(kind), kind, tag, 60, BY_CONTEXT[tag as usize % 2]);
                match id {
                    Some(id) if dice.below(3) > 0 => instance::cancel(id, 6),
                    _ => instance::test_context(6, 1, 0, each).map(|_| ()),
                }
            }
        };
        match result {
            Ok(()) => {}
            // Another thread got its completion, or it belongs to another context.
            Err(error) if error.code() == -BMI_EINVAL => {}
            Err(error) => return error.code(),
        }
    }
}

#[test]
fn finalize_wakes_all_threads_and_touches_no_memory() {
    const ROLES: usize = 6;
    let _alone = crate::alone();
    for life in 0..20u64 {
        let ends = start();
        let tally = &Tally {
            lent: Some(Mutex::default()),
            ..Tally::default()
        };
        let running = &AtomicUsize::new(0);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..ROLES)
                .map(|role| {
                    scope.spawn(move || {
                        running.fetch_add(1, Ordering::Relaxed);
                        busy_until_the_end(ends, tally, role)
                    })
                })
                .collect();
            while running.load(Ordering::Relaxed) < ROLES {
                thread::yield_now();
            }
            // Some threads are asleep by then, others are not.
            thread::sleep(Duration::from_micros(life * 150));
            let began = Instant::now();
            instance::finalize().unwrap();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), -BMI_ENODEV);
            }
            assert!(began.elapsed() < LONG / 2, "a waiter was not woken");
        });
        for lent_memory in std::mem::take(&mut *tally.lent.as_ref().unwrap().lock()) {
            // SAFETY: made by `Tally::post`; the method has ended and released it.
            let mut lent_memory = unsafe { Box::from_raw(lent_memory as *mut LentMemory) };
            lent_memory.bytes.fill(0xee);
        }
        ends.drop_all();
    }
}

#[test]
fn of_threads_that_start_or_end_the_method_at_once_one_does() {
    let _alone = crate::alone();
    let lives = &AtomicUsize::new(0);
    let up = &AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|n| {
                scope.spawn(move || {
                    let mut dice = Dice(n + 1);
                    for _ in 0..60 {
                        if dice.below(2) == 0 {
                            match instance::initialize(None, 3, 0, None) {
                                Ok(()) => {
                                    assert!(!up.swap(true, Ordering::Relaxed), "two at once");
                                    lives.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(error) => assert_eq!(error.code(), -BMI_EALREADY, "{error}"),
                            }
                        } else if up.swap(false, Ordering::Relaxed) {
                            instance::finalize().unwrap();
                        }
                        let tested = instance::test_context(0, 1, 0, |_| ());
                        if let Err(error) = tested {
                            assert_eq!(error.code(), -BMI_ENODEV, "{error}");
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert!(lives.load(Ordering::Relaxed) > 4);
    if up.load(Ordering::Relaxed) {
        instance::finalize().unwrap();
    }
}

/// The instance is used again: a thread that waits in one life must not keep waiting, or get
/// completions, in the next.
#[test]
fn who_waits_in_one_life_does_not_go_on_in_the_next() {
    const LIVES: u64 = 20;
    let _alone = crate::alone();
    let ended = &AtomicUsize::new(0);
    let mut late = 0;
    for life in 0..LIVES {
        let ends = start();
        let mut byte = [0];
        // SAFETY: kept until the method has ended.
        let memory = unsafe { UserMemory::new(byte.as_mut_ptr().cast(), 1) }.unwrap();
        let receive = Post {
            kind: PostKind::Recv,
            addr: ends.caller.0,
            memory,
            tag: 1,
            class: 0,
            user_ptr: std::ptr::null_mut(),
            context: BY_ID,
        };
        let mut id = 0;
        assert_eq!(
            instance::post(receive, &mut id).unwrap(),
            PostOutcome::Pending
        );
        let begun = &AtomicUsize::new(0);
        ended.store(0, Ordering::Relaxed);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|role| {
                    scope.spawn(move || {
                        begun.fetch_add(1, Ordering::Relaxed);
                        let told = match role {
                            0 => instance::test_context(8, 1, LONG_US, |_| ()).map(|_| ()),
                            1 => instance::test_unexpected(1, 0, LONG_US, |_| ()).map(|_| ()),
                            _ => instance::test(id, BY_ID, LONG_US).map(|_| ()),
                        };
                        ended.fetch_add(1, Ordering::Relaxed);
                        told
                    })
                })
                .collect();
            while begun.load(Ordering::Relaxed) < threads.len() {
                thread::yield_now();
            }
            // Some threads are asleep by then, others poll.
            thread::sleep(Duration::from_micros(100 + life * 150));
            instance::finalize().unwrap();
            instance::initialize(None, 3, 0, None).unwrap();
            let until = Instant::now() + Duration::from_millis(500);
            while ended.load(Ordering::Relaxed) < threads.len() && Instant::now() < until {
                thread::yield_now();
            }
            // A thread may have been so late that it waits in the second life.
            late += threads.len() - ended.load(Ordering::Relaxed);
            stop(ends);
            for thread in threads {
                let code = thread.join().unwrap().unwrap_err().code();
                assert!([-BMI_ENODEV, -BMI_EINVAL].contains(&code), "{code}");
            }
        });
    }
    assert!(late < LIVES as usize, "{late} went on waiting");
}
