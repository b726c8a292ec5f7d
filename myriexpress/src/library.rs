//! Initialization and end of the library in this process.
//!
//! ```text
//!              mx_init                  mx_init (count + 1, ALREADY_INITIALIZED)
//!   [ not ] -------------> [ count 1 ] <------------------------> [ count n ]
//!      ^                       |  |           mx_finalize
//!      `---- mx_finalize ------'  `-- fork --> child: as count 1, and one further mx_init succeeds
//!        endpoints closed
//! ```
//!
//! `mx_init` reads the environment, because programs set it just before.
//!
//! Owns: the count, the settings, the logger.
//! Out of scope: endpoints, except closing them all. Tested in `tests/lifecycle.rs`, in a separate process.

use crate::abi::MX_API;
use crate::error::{Code, Error};
use crate::process;
use libc::c_int;
use mx_sys::fork::ForkLock;
use mx_sys::{ForkMark, Settings, StderrLogger, nic, reserve};
use std::sync::Arc;

/// State while the count is above 0.
struct Running {
    count: u32,
    /// Marks the process that called `mx_init`: this one, or an ancestor.
    mark: ForkMark,
    settings: Arc<Settings>,
}

static RUNNING: ForkLock<Option<Running>> = ForkLock::new(None);

/// Starts the library: reads the settings from the environment and sets the use count to 1. Fails with `BadLibVersion`
/// if `api` has another major version. If the library is running, increments the count and returns
/// `AlreadyInitialized`; that call needs its own [`finalize`], too.
pub fn init(api: c_int) -> Result<(), Error> {
    if api >> 8 != MX_API >> 8 {
        let text = format!("interface {api:#x} is wanted, this library has {MX_API:#x}");
        return Err(Error::new(Code::BadLibVersion, text));
    }
    if let Some(running) = RUNNING.lock().as_mut().filter(|old| old.mark.is_mine()) {
        return Err(running.again());
    }
    StderrLogger::start();
    let (settings, refused) = Settings::of_process();
    for refused in refused {
        log::warn!("{refused}");
    }
    let peers = settings.peers.clone();
    let new = Running {
        count: 1,
        mark: ForkMark::new(),
        settings: Arc::new(settings),
    };
    let mut running = RUNNING.lock();
    match running.as_mut().filter(|old| old.mark.is_mine()) {
        // Another thread was faster.
        Some(other) => return Err(other.again()),
        None => *running = Some(new),
    }
    reserve::fill();
    drop(running);
    reserve::prepare_thread();
    nic::set_peers_file(peers);
    log::debug!("initialized");
    Ok(())
}

impl Running {
    fn again(&mut self) -> Error {
        self.count = self.count.saturating_add(1);
        let text = format!("the library is in use {} times now", self.count);
        Error::new(Code::AlreadyInitialized, text)
    }
}

/// Undoes one [`init`]; the last call closes every endpoint, and fails inside an unexpected handler. See `mx_finalize`.
pub fn finalize() -> Result<(), Error> {
    // Without the lock, which comes after the endpoints' locks.
    let in_handler = process::open_endpoints()
        .into_iter()
        .any(process::in_handler);
    let mut running = RUNNING.lock();
    let Some(old) = running.as_mut() else {
        return Err(not_initialized());
    };
    // A child does not undo its parent's inits: it inherits one.
    if old.count > 1 && old.mark.is_mine() {
        old.count -= 1;
        return Ok(());
    }
    if in_handler {
        let text = "called inside an unexpected handler";
        return Err(Error::new(Code::CloseInHandler, text));
    }
    *running = None;
    drop(running);
    process::close_all();
    let running = RUNNING.lock();
    if running.is_none() {
        reserve::empty();
    }
    drop(running);
    log::debug!("finalized");
    Ok(())
}

/// Returns the settings of this process; an error before `mx_init` and after `mx_finalize`.
pub fn settings() -> Result<Arc<Settings>, Error> {
    let running = RUNNING.lock();
    let settings = running
        .as_ref()
        .map(|running| Arc::clone(&running.settings));
    settings.ok_or_else(not_initialized)
}

#[cold]
fn not_initialized() -> Error {
    Error::new(Code::NotInitialized, "mx_init has not been called")
}
