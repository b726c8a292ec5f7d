//! Lines that one thread logs, for tests of the log.

use log::{LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;

/// Runs `action` and returns the lines that this thread logs meanwhile, down to debug level. The
/// process must have no other logger.
pub fn log_lines(action: impl FnOnce()) -> Vec<String> {
    // A second call finds the logger installed by the first.
    let _ = log::set_logger(&ThreadLogger);
    log::set_max_level(LevelFilter::Debug);
    LINES.set(Some(Vec::new()));
    action();
    LINES.take().unwrap_or_default()
}

thread_local! {
    /// Lines of the running call of [`log_lines`]; `None` outside of one.
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

struct ThreadLogger;

impl Log for ThreadLogger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        LINES.with_borrow(Option::is_some)
    }

    fn log(&self, record: &Record<'_>) {
        LINES.with_borrow_mut(|lines| {
            if let Some(lines) = lines {
                lines.push(record.args().to_string());
            }
        });
    }

    fn flush(&self) {}
}
