//! Log lines deferred until their thread has released the engine's lock.
//!
//! ```text
//!   log::warn!(..) --> defer --> line <- line <- line
//!                                    |
//!                                    v  at the end of an exported function, and of a round of the helper
//!                                  flush: oldest first, each through its own `say`, which calls the host's logger
//! ```
//!
//! The helper does not write the lines of the host's threads: a call logs why it failed before it returns.
//!
//! The lists are lock-free, so a child of `fork` finds them consistent. Lines pending at the fork are logged by parent
//! and child.
//!
//! Owns: the lines.

use crate::cancellation::CancellationDisabled;
use log::Level;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Lines of the host's threads.
static CALLS: Lines = Lines::new();
/// Lines of the helper.
static ROUNDS: Lines = Lines::new();

thread_local! {
    /// Whether this thread is the helper.
    static HELPER: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread is inside the host's logger.
    static SAYS: Cell<bool> = const { Cell::new(false) };
}

/// Pending lines: a linked list, newest first.
struct Lines(AtomicPtr<Line>);

struct Line {
    level: Level,
    text: CString,
    say: fn(Level, &CStr),
    before: *mut Self,
}

/// Queues a log line until [`flush`] (on the helper thread: [`say_helpers`]), which passes it to `say`. For callers
/// that may hold the engine's lock, under which the host's logger must not be called.
pub fn defer(level: Level, text: CString, say: fn(Level, &CStr)) {
    let lines = if HELPER.get() { &ROUNDS } else { &CALLS };
    lines.put(level, text, say);
}

/// Writes the queued lines of all threads, oldest first; called at the end of each exported function, without the
/// engine's lock. Does nothing inside the host's logger: lines that arise there wait for a later call.
#[inline]
pub fn flush() {
    if CALLS.wait() | ROUNDS.wait() {
        say_both();
    }
}

#[cold]
fn say_both() {
    CALLS.say();
    ROUNDS.say();
}

/// Marks the calling thread as the helper, and writes the lines that it has queued. The helper calls this after each of
/// its polling rounds, without the engine's lock.
pub fn say_helpers() {
    HELPER.set(true);
    if ROUNDS.wait() {
        ROUNDS.say();
    }
}

impl Lines {
    const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn put(&self, level: Level, text: CString, say: fn(Level, &CStr)) {
        let line = Box::into_raw(Box::new(Line {
            level,
            text,
            say,
            before: ptr::null_mut(),
        }));
        let put = |latest| {
            // SAFETY: `line` belongs to this thread until the exchange succeeds.
            unsafe { (*line).before = latest };
            Some(line)
        };
        // Cannot fail: `put` always returns `Some`.
        let _ = self
            .0
            .fetch_update(Ordering::Release, Ordering::Relaxed, put);
    }

    /// Returns whether lines are pending.
    #[inline]
    fn wait(&self) -> bool {
        !self.0.load(Ordering::Relaxed).is_null()
    }

    /// Writes the lines. Lines that the host's logger causes by calling the library stay pending, or the recursion
    /// would not end.
    #[cold]
    fn say(&self) {
        let _off = CancellationDisabled::new();
        if SAYS.replace(true) {
            return;
        }
        let mut latest = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        let mut lines = Vec::new();
        while !latest.is_null() {
            // SAFETY: `put` made the pointer, and the swap gave this thread the whole list.
            let line = unsafe { Box::from_raw(latest) };
            latest = line.before;
            lines.push(line);
        }
        for line in lines.into_iter().rev() {
            (line.say)(line.level, &line.text);
        }
        SAYS.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    static OWN: Lines = Lines::new();

    #[test]
    fn deferred_lines_are_logged_once_in_order_not_nested() {
        fn say(level: Level, text: &CStr) {
            let text = text.to_str().unwrap().to_owned();
            if text == "b" {
                OWN.put(level, c"c".to_owned(), say);
                OWN.say();
            }
            SAID.lock().unwrap().push(text);
        }
        OWN.put(Level::Warn, c"a".to_owned(), say);
        OWN.put(Level::Warn, c"b".to_owned(), say);
        assert_eq!(SAID.lock().unwrap().len(), 0);
        OWN.say();
        OWN.say();
        assert_eq!(*SAID.lock().unwrap(), ["a", "b", "c"]);
    }

    #[test]
    fn the_helper_leaves_the_lines_of_calls_to_them() {
        static CALLERS: Mutex<Vec<bool>> = Mutex::new(Vec::new());
        fn say(_: Level, _: &CStr) {
            CALLERS.lock().unwrap().push(HELPER.get());
        }
        defer(Level::Warn, c"of a call".to_owned(), say);
        let helper = std::thread::spawn(|| {
            say_helpers();
            defer(Level::Warn, c"of a round".to_owned(), say);
            say_helpers();
        });
        helper.join().unwrap();
        assert_eq!(*CALLERS.lock().unwrap(), [true]);
        flush();
        assert_eq!(*CALLERS.lock().unwrap(), [true, false]);
    }
}
