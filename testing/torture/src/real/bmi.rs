//! The method, as a node calls it.
//!
//! ```text
//!   load --> post, test, unexpected
//!                  |  reg_addr, forget_addr, log: from inside the library
//!                  v
//!                NEWS: read after each test call
//! ```
//!
//! Owns: reports of the library to its host, and the arguments that it must not access after a
//! post.

use super::args::Place;
use super::memory::Guarded;
use super::recorder::Recorder;
use bmi_host::abi;
use bmi_host::method::{Address, Done, Memory, Message, Method, Outputs, Post, Posted, Results};
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, OsStr};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A report of the library to its host during a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// A new address, and the name that it was given.
    Registered(Address, i64),
    Forgotten(i64),
    /// A forbidden callback, or a suspicious line in the log.
    Wrong(String),
}

static NEWS: Mutex<Vec<News>> = Mutex::new(Vec::new());
/// Number of threads in a test call.
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
    // Messages of the kernel when the library passes it memory that it no longer owns, and of the
    // library about itself.
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

/// Sets the recorder for all further lines.
pub(crate) fn record_in(recorder: Recorder) {
    let _ = RECORDER.set(recorder);
}

/// Returns the address of a node.
pub(crate) fn name_of(place: &Place, node: usize) -> String {
    format!("mx://localhost:{}", place.base + node as u32)
}

/// Loads the library and registers the host; the library stays loaded.
pub(crate) fn load(library: &OsStr) -> Result<Method, String> {
    let host = abi::Host {
        size: size_of::<abi::Host>(),
        reg_addr: Some(reg_addr),
        forget_addr: Some(forget_addr),
        log: Some(log),
    };
    abi::set_host(library, &host)?;
    Method::load(library)
}

/// Returns the library's reports since the last call.
pub(crate) fn news() -> Vec<News> {
    std::mem::take(&mut *NEWS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Posts one buffer, or a list. Arguments other than buffers become inaccessible when the call is
/// over.
///
/// # Safety
/// The pieces stay valid, and are not written to, until the operation is over.
pub(crate) unsafe fn post(
    method: Method,
    label: u64,
    pieces: &[(*mut u8, usize)],
    as_list: bool,
    post: impl FnOnce(Memory) -> Post,
) -> (Posted, Guarded) {
    let count = pieces.len();
    let slate = Guarded::new((2 + 2 * count) * 8, true, label);
    let outputs: *mut Outputs = slate.as_ptr().cast();
    let starts: *mut *mut c_void = outputs.wrapping_add(1).cast();
    let sizes: *mut i64 = starts.wrapping_add(count).cast();
    for (n, (start, len)) in pieces.iter().enumerate() {
        // SAFETY: the slate has room for `count` of them, and is aligned as it ends with a page.
        unsafe { starts.add(n).write(start.cast()) };
        // SAFETY: as above.
        unsafe { sizes.add(n).write(*len as i64) };
    }
    let total = pieces.iter().map(|(_, len)| *len).sum();
    let memory = if as_list {
        Memory::List {
            starts,
            sizes,
            count,
            total: total as i64,
        }
    } else {
        Memory::One(pieces.first().map_or(null_mut(), |piece| piece.0), total)
    };
    // SAFETY: the buffers are as the caller promises; the slate began as zeros.
    let posted = unsafe { method.post_with(&post(memory), outputs) };
    (posted, slate)
}

/// Returns the operations of a context that have ended.
pub(crate) fn test(method: Method, context: i64, idle_ms: i32) -> Result<Vec<Done>, String> {
    let mut results = Results::new();
    Ok(testing(|| method.test(context, idle_ms, &mut results))?.collect())
}

/// Returns unexpected messages.
pub(crate) fn unexpected(method: Method) -> Result<Vec<Message>, String> {
    Ok(testing(|| method.unexpected(8, 0))?)
}

/// Makes a test call, during which the library may register addresses.
fn testing<T>(call: impl FnOnce() -> T) -> T {
    TESTING.fetch_add(1, Ordering::Relaxed);
    let result = call();
    TESTING.fetch_sub(1, Ordering::Relaxed);
    result
}

/// Number of contexts of a node.
pub(crate) const CONTEXTS: i64 = 2;
