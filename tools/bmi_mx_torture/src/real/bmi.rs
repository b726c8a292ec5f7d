//! The method, as a node calls it.
//!
//! ```text
//!   Bmi::start --> post, cancel, test, unexpected, addresses --> finalize, drop_address
//!                             |  reg_addr, forget_addr, log: from inside the library
//!                             v
//!                          NEWS: picked up after each test call
//! ```
//!
//! Owns: the calls, and what the library tells its host.
//! Knows nothing of: what operations are for.

use super::args::Place;
use super::memory::Guarded;
use super::recorder::Recorder;
use bmi_host::abi::{self, Ops, Unexpected};
use bmi_mx_torture::Verb;
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString, OsStr};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The method, initialised.
pub(crate) struct Bmi {
    ops: &'static Ops,
    listen: Address,
}

/// An address object, by its place in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Address(pub(crate) usize);

/// Why the method does not run.
#[derive(Debug)]
pub(crate) enum NoStart {
    /// Another process has the endpoint.
    Taken,
    Other(String),
}

/// An operation, as it is posted.
#[derive(Debug)]
pub(crate) struct Post<'a> {
    pub(crate) verb: Verb,
    pub(crate) to: Address,
    pub(crate) tag: i32,
    pub(crate) pieces: &'a [(*mut u8, usize)],
    pub(crate) as_list: bool,
    /// The piece came from `memalloc`.
    pub(crate) lent: bool,
    pub(crate) label: u64,
    pub(crate) context: i64,
}

/// How it was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Posted {
    Pending(i64),
    Complete(i64),
    Refused(i32),
}

/// An operation that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Over {
    pub(crate) id: i64,
    pub(crate) label: u64,
    pub(crate) error: i32,
    pub(crate) size: i64,
    /// When the call that reported it had returned.
    pub(crate) at: Instant,
}

/// A message that was not expected.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) from: Address,
    pub(crate) tag: i32,
    pub(crate) error: i32,
    pub(crate) bytes: Vec<u8>,
}

/// What the library told its host during a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// A new address, and the name it was given.
    Registered(Address, i64),
    Forgotten(i64),
    /// The host was called where it must not be, or something is wrong in the log.
    Wrong(String),
}

static NEWS: Mutex<Vec<News>> = Mutex::new(Vec::new());
/// Threads that are in a test call.
static TESTING: AtomicUsize = AtomicUsize::new(0);
static NAMES: AtomicI64 = AtomicI64::new(1);
static RECORDER: OnceLock<Recorder> = OnceLock::new();

fn tell(news: News) {
    let mut all = NEWS.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(news);
}

extern "C" fn reg_addr(addr: *mut c_void) -> i64 {
    if TESTING.load(Ordering::Relaxed) == 0 {
        tell(News::Wrong("reg_addr outside of a test call".into()));
    }
    let name = NAMES.fetch_add(1, Ordering::Relaxed);
    tell(News::Registered(Address(addr as usize), name));
    name
}

extern "C" fn forget_addr(name: i64) -> c_int {
    tell(News::Forgotten(name));
    0
}

extern "C" fn log(level: c_int, line: *const c_char) {
    // SAFETY: the library passes a C string that outlives this call.
    let line = unsafe { CStr::from_ptr(line) }.to_bytes();
    let text = String::from_utf8_lossy(line);
    record(&format!("log {level}: {text}"));
    // What the kernel says when the library hands it memory that is no longer its own, and what the
    // library says of itself.
    let bad = ["Bad address", "os error 14", "panic"];
    if bad.iter().any(|bad| text.contains(bad)) {
        tell(News::Wrong(format!("in the log: {text}")));
    }
}

/// Adds a line to this node's recorder.
pub(crate) fn record(text: &str) {
    if let Some(recorder) = RECORDER.get() {
        let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let at = at.unwrap_or_default();
        let line = format!("{}.{:06} {text}", at.as_secs() % 10_000, at.subsec_micros());
        recorder.line(line.as_bytes());
    }
}

/// Where lines go from now on.
pub(crate) fn record_in(recorder: Recorder) {
    let _ = RECORDER.set(recorder);
}

/// What node of the program has this name.
pub(crate) fn name_of(place: &Place, node: usize) -> String {
    format!("mx://localhost:{}", place.base + node as u32)
}

impl Bmi {
    /// Loads the library; it stays loaded.
    pub(crate) fn load(library: &OsStr) -> Result<&'static Ops, String> {
        let host = abi::Host {
            size: size_of::<abi::Host>(),
            reg_addr: Some(reg_addr),
            forget_addr: Some(forget_addr),
            log: Some(log),
        };
        abi::set_host(library, &host)?;
        abi::load(library)
    }

    /// Starts it as a server of that name.
    pub(crate) fn start(ops: &'static Ops, name: &str) -> Result<Self, NoStart> {
        let listen = lookup(ops, name).map_err(NoStart::Other)?;
        let at = listen.0 as *mut c_void;
        // SAFETY: an address of this method.
        let rc = unsafe { (ops.initialize)(at, 0, abi::INIT_SERVER, std::ptr::null()) };
        match rc {
            0 => {}
            bmi_host::codes::EADDRINUSE => return Err(NoStart::Taken),
            code => {
                let code = bmi_host::codes::name(code);
                return Err(NoStart::Other(format!("initialize({name}): {code}")));
            }
        }
        for context in 0..CONTEXTS {
            // SAFETY: the method is initialised.
            unsafe { (ops.open_context)(context) };
        }
        Ok(Self { ops, listen })
    }

    pub(crate) fn lookup(&self, name: &str) -> Result<Address, String> {
        lookup(self.ops, name)
    }

    /// Posts it. What the call is given besides buffers is out of reach when it is over.
    ///
    /// # Safety
    /// The pieces stay valid, and are not written to, until the operation is over.
    pub(crate) unsafe fn post(&self, post: &Post<'_>) -> (Posted, Guarded) {
        let count = post.pieces.len();
        let words = 2 + 2 * count;
        let slate = Guarded::new(words * 8, true, post.label);
        let id: *mut i64 = slate.as_ptr().cast();
        let actual = id.wrapping_add(1);
        let pointers: *mut *mut c_void = id.wrapping_add(2).cast();
        let sizes = id.wrapping_add(2 + count);
        let mut total = 0;
        for (n, (pointer, len)) in post.pieces.iter().enumerate() {
            total += *len as i64;
            // SAFETY: the slate has room for `count` of them, and is aligned as it ends with a page.
            unsafe { pointers.add(n).write(pointer.cast()) };
            // SAFETY: as above.
            unsafe { sizes.add(n).write(*len as i64) };
        }
        let to = post.to.0 as *mut c_void;
        let first = post
            .pieces
            .first()
            .map_or(null_mut(), |piece| piece.0.cast());
        let kind = if post.lent {
            abi::PRE_ALLOC
        } else {
            abi::EXT_ALLOC
        };
        let user = post.label as usize as *mut c_void;
        let (tag, context, hints) = (post.tag, post.context, null_mut());
        let (ops, n) = (self.ops, count as c_int);
        let rc = match (post.verb, post.as_list) {
            // SAFETY: the outputs have room, the address is one of this method, and the buffers are as
            // the caller promises.
            (Verb::Recv, false) => unsafe {
                (ops.post_recv)(
                    id, to, first, total, actual, kind, tag, user, context, hints,
                )
            },
            // SAFETY: as above.
            (Verb::Recv, true) => unsafe {
                (ops.post_recv_list)(
                    id, to, pointers, sizes, n, total, actual, kind, tag, user, context, hints,
                )
            },
            (verb, false) => {
                let call = match verb {
                    Verb::Send => ops.post_send,
                    _ => ops.post_sendunexpected,
                };
                // SAFETY: as above.
                unsafe { call(id, to, first, total, kind, tag, user, context, hints) }
            }
            (verb, true) => {
                let call = match verb {
                    Verb::Send => ops.post_send_list,
                    _ => ops.post_sendunexpected_list,
                };
                let list = pointers.cast_const().cast();
                // SAFETY: as above.
                unsafe {
                    call(
                        id, to, list, sizes, n, total, kind, tag, user, context, hints,
                    )
                }
            }
        };
        // SAFETY: both are in the slate, which began as zeros.
        let (id, actual) = unsafe { (id.read(), actual.read()) };
        let posted = match rc {
            0 => Posted::Pending(id),
            1 => Posted::Complete(actual),
            code => Posted::Refused(code),
        };
        (posted, slate)
    }

    pub(crate) fn cancel(&self, id: i64, context: i64) -> i32 {
        // SAFETY: takes numbers.
        unsafe { (self.ops.cancel)(id, context) }
    }

    /// Operations of a context that are over.
    pub(crate) fn test(&self, context: i64, idle_ms: i32) -> Result<Vec<Over>, String> {
        test(self.ops, context, idle_ms)
    }

    /// The table, for another thread.
    pub(crate) fn ops(&self) -> &'static Ops {
        self.ops
    }

    /// Messages nobody expected.
    pub(crate) fn unexpected(&self) -> Result<Vec<Handed>, String> {
        let none = || Unexpected {
            error_code: 0,
            addr: null_mut(),
            buffer: null_mut(),
            size: 0,
            tag: 0,
        };
        let mut all: [Unexpected; 8] = std::array::from_fn(|_| none());
        let mut count = 0;
        TESTING.fetch_add(1, Ordering::Relaxed);
        // SAFETY: room for eight.
        let rc = unsafe { (self.ops.testunexpected)(8, &raw mut count, all.as_mut_ptr(), 0) };
        TESTING.fetch_sub(1, Ordering::Relaxed);
        if rc != 0 || !(0..=8).contains(&count) {
            return Err(format!("testunexpected: {rc}, {count} messages"));
        }
        let handed = |info: &Unexpected| {
            let len = usize::try_from(info.size).unwrap_or(0);
            let bytes = if info.buffer.is_null() {
                Vec::new()
            } else {
                // SAFETY: the library gives out `size` bytes there.
                unsafe { std::slice::from_raw_parts(info.buffer.cast::<u8>(), len) }.to_vec()
            };
            // SAFETY: it came from testunexpected and is not used again.
            unsafe { (self.ops.unexpected_free)(info.buffer) };
            Handed {
                from: Address(info.addr as usize),
                tag: info.tag,
                error: info.error_code,
                bytes,
            }
        };
        Ok(all[..count as usize].iter().map(handed).collect())
    }

    /// What the library has told since the last time.
    pub(crate) fn news(&self) -> Vec<News> {
        let mut all = NEWS.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *all)
    }

    /// The name of a peer.
    pub(crate) fn name(&self, address: Address) -> String {
        // SAFETY: an address of this method that was not dropped.
        let name = unsafe { (self.ops.rev_lookup_unexpected)(address.0 as *mut c_void) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: a C string that stays until the address is dropped.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_string_lossy().into_owned()
    }

    pub(crate) fn drop_address(&self, address: Address) {
        // SAFETY: an address of this method, dropped once.
        unsafe { (self.ops.set_info)(abi::DROP_ADDR, address.0 as *mut c_void) };
    }

    /// Whether the library has no more use for an address.
    pub(crate) fn may_drop(&self, address: Address) -> bool {
        let mut query = abi::DropQuery {
            addr: address.0 as *mut c_void,
            response: 0,
        };
        // SAFETY: what this option takes.
        unsafe { (self.ops.get_info)(abi::DROP_ADDR_QUERY, (&raw mut query).cast()) };
        query.response == 1
    }

    /// Memory of the library's; `None` when it gives none.
    pub(crate) fn lend(&self, len: usize) -> Option<*mut u8> {
        // SAFETY: takes numbers.
        let at = unsafe { (self.ops.memalloc)(len as i64, abi::SEND) };
        (!at.is_null()).then_some(at.cast())
    }

    pub(crate) fn take_back(&self, at: *mut u8, len: usize) -> i32 {
        // SAFETY: lent before, and not used again.
        unsafe { (self.ops.memfree)(at.cast(), len as i64, abi::SEND) }
    }

    /// Ends it, but for addresses.
    pub(crate) fn finalize(&self) -> i32 {
        for context in 0..CONTEXTS {
            // SAFETY: opened before.
            unsafe { (self.ops.close_context)(context) };
        }
        // SAFETY: the method is initialised; nothing of it but addresses is used afterwards.
        unsafe { (self.ops.finalize)() }
    }

    pub(crate) fn listen(&self) -> Address {
        self.listen
    }
}

/// Operations of a context that are over.
pub(crate) fn test(ops: &Ops, context: i64, idle_ms: i32) -> Result<Vec<Over>, String> {
    let mut ids = [0; BATCH];
    let mut errors = [0; BATCH];
    let mut sizes = [0; BATCH];
    let mut users = [null_mut(); BATCH];
    let mut count = 0;
    TESTING.fetch_add(1, Ordering::Relaxed);
    // SAFETY: every output has room for BATCH.
    let rc = unsafe {
        (ops.testcontext)(
            BATCH as c_int,
            ids.as_mut_ptr(),
            &raw mut count,
            errors.as_mut_ptr(),
            sizes.as_mut_ptr(),
            users.as_mut_ptr(),
            idle_ms,
            context,
        )
    };
    TESTING.fetch_sub(1, Ordering::Relaxed);
    if rc != 0 || !(0..=BATCH as c_int).contains(&count) {
        return Err(format!("testcontext: {rc}, {count} completions"));
    }
    let at = Instant::now();
    let over = |n: usize| Over {
        id: ids[n],
        label: users[n] as usize as u64,
        error: errors[n],
        size: sizes[n],
        at,
    };
    Ok((0..count as usize).map(over).collect())
}

fn lookup(ops: &Ops, name: &str) -> Result<Address, String> {
    let text = CString::new(name).map_err(|_| "a NUL in the address")?;
    // SAFETY: a C string.
    let addr = unsafe { (ops.method_addr_lookup)(text.as_ptr()) };
    match addr.is_null() {
        true => Err(format!("lookup of {name} gives nothing")),
        false => Ok(Address(addr as usize)),
    }
}

/// Contexts that a node uses.
pub(crate) const CONTEXTS: i64 = 2;
const BATCH: usize = 64;
