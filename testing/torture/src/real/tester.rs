//! A thread that tests one context, while another thread posts and cancels.
//!
//! ```text
//!   node's thread:  post, cancel     take <---- | over, over ... | <---- testcontext: this thread
//! ```
//!
//! Owns: the thread, and the completions it has got.
//! Out of scope: operations.

use super::bmi;
use bmi_host::method::{Done, Method};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The testing thread.
#[derive(Debug)]
pub(crate) struct Tester {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    /// Completions, or an error.
    picked: Mutex<Result<Vec<Done>, String>>,
}

impl Tester {
    /// Begins to test a context.
    pub(crate) fn begin(method: Method, context: i64, idle_ms: i32) -> Self {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            picked: Mutex::new(Ok(Vec::new())),
        });
        let its = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while !its.stop.load(Ordering::Relaxed) {
                let got = bmi::test(method, context, idle_ms);
                let mut picked = its.picked.lock().unwrap_or_else(PoisonError::into_inner);
                match (&mut *picked, got) {
                    (Ok(all), Ok(more)) => all.extend(more),
                    (_, Ok(_)) => {}
                    (_, Err(wrong)) => {
                        *picked = Err(wrong);
                        return;
                    }
                }
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Returns the completions since the last call.
    pub(crate) fn take(&self) -> Result<Vec<Done>, String> {
        let picked = &self.shared.picked;
        let mut picked = picked.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *picked, Ok(Vec::new()))
    }

    /// Ends the thread, and returns its last completions.
    pub(crate) fn end(mut self) -> Result<Vec<Done>, String> {
        self.stop();
        self.take()
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Tester {
    fn drop(&mut self) {
        self.stop();
    }
}
