//! Destinations and levels of log records.
//!
//! ```text
//!   log::warn!(..)  -->  level enabled?  -->  bmi_mx_set_host's log, if there is one
//!        not built when off        |          gossip, inside a file system
//!                                  |          stderr, otherwise
//!   BMI_MX_LOG=debug (or MX_LOG) decides the level; without it, and in an elevated process:
//!      bmi_mx_set_host's log   info
//!      gossip                  warn, and trace while bit 50 of the debug mask is on
//!      stderr                  warn
//! ```
//!
//! Errors go to `gossip_err`, other levels to `__gossip_debug`, warnings with the letter W in front: the callers of
//! that function check the mask, not the function itself. At most 100 lines a second of `info` and above are written;
//! the others are counted, and their number is logged.
//!
//! Owns: the choice of destination and level.

use crate::config::LOG_VARIABLES;
use crate::host;
use libc::c_int;
use log::{Level, LevelFilter, Log, Metadata, Record};
use mx_sys::{StderrLogger, deferred_log, settings};
use parking_lot::Mutex;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Maximum lines per second of `info` and above.
const BURST: u32 = 100;

/// Installs the library's logger on the first call, unless the program has a Rust logger of its own; then, and on each
/// later call, does what [`refresh`] does.
pub fn start() {
    static STARTED: OnceLock<bool> = OnceLock::new();
    // In a Rust program with a logger of its own, that one stays.
    let ours = *STARTED.get_or_init(|| log::set_logger(&LOGGER).is_ok());
    if ours {
        refresh();
    }
}

/// Applies the log level that is in force now, as the host may have changed its debug mask. Reads only a few words.
pub fn refresh() {
    if let Some(sinks) = LOGGER.sinks.get() {
        log::set_max_level(level_now(sinks));
    } else {
        log::set_max_level(level_now(LOGGER.sinks()));
    }
}

static LOGGER: MethodLogger = MethodLogger {
    sinks: OnceLock::new(),
    budget: Mutex::new(Budget {
        second: None,
        spent: 0,
        dropped: 0,
    }),
};

struct MethodLogger {
    sinks: OnceLock<Sinks>,
    budget: Mutex<Budget>,
}

/// Settings from the environment.
struct Sinks {
    stderr: StderrLogger,
    /// Whether one of the variables is set.
    asked: bool,
}

fn level_now(sinks: &Sinks) -> LevelFilter {
    if sinks.asked {
        return sinks.stderr.filter();
    }
    if host::given_log().is_some() {
        return LevelFilter::Info;
    }
    match host::gossip() {
        Some(gossip) if gossip.debug_wanted() => LevelFilter::Trace,
        _ => LevelFilter::Warn,
    }
}

impl MethodLogger {
    fn sinks(&self) -> &Sinks {
        self.sinks.get_or_init(|| {
            let filter = LOG_VARIABLES
                .iter()
                .find_map(|name| settings::trusted_environment(name))
                .filter(|text| !text.is_empty());
            Sinks {
                stderr: StderrLogger::new(filter.as_deref().unwrap_or("warn")),
                asked: filter.is_some(),
            }
        })
    }

    /// Returns the number of lines dropped before this one; `None` if this one is dropped.
    fn admit(&self, level: Level) -> Option<u32> {
        match level {
            Level::Debug | Level::Trace => Some(0),
            // Another thread holds the lock, or held it when this process was forked: pass the line uncounted.
            _ => match self.budget.try_lock() {
                Some(mut budget) => budget.admit(Instant::now()),
                None => Some(0),
            },
        }
    }

    fn write(&self, record: &Record<'_>) {
        let sinks = self.sinks();
        // Deferred, because the host's functions must not be called with a lock held.
        let (say, with_level): (fn(Level, &CStr), bool) = if host::given_log().is_some() {
            (to_given, false)
        } else if host::gossip().is_some() {
            (to_gossip, true)
        } else {
            return sinks.stderr.log(record);
        };
        if let Some(line) = line(record, with_level) {
            deferred_log::defer(record.level(), line, say);
        }
    }
}

impl Log for MethodLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let sinks = self.sinks();
        if sinks.asked {
            sinks.stderr.enabled(metadata)
        } else {
            metadata.level() <= log::max_level()
        }
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let Some(dropped) = self.admit(record.level()) else {
            return;
        };
        if dropped > 0 {
            let metadata = Metadata::builder()
                .level(Level::Warn)
                .target(TARGET)
                .build();
            self.write(
                &Record::builder()
                    .metadata(metadata)
                    .args(format_args!("{dropped} log lines left out"))
                    .build(),
            );
        }
        self.write(record);
    }

    fn flush(&self) {}
}

const TARGET: &str = "bmi_mx";

fn to_given(level: Level, line: &CStr) {
    if let Some(log) = host::given_log() {
        // SAFETY: a function of this signature, and a C string.
        unsafe { log(level as c_int, line.as_ptr()) };
    }
}

fn to_gossip(level: Level, line: &CStr) {
    let Some(gossip) = host::gossip() else {
        return;
    };
    match level {
        Level::Error => gossip.error(line),
        Level::Warn => gossip.debug(b'W', line),
        _ => gossip.debug(b'D', line),
    }
}

/// Formats a record as one C string. NULs and newlines become blanks.
fn line(record: &Record<'_>, with_level: bool) -> Option<CString> {
    let text = if with_level {
        format!("bmi_mx: {}: {}", level_word(record.level()), record.args())
    } else {
        format!("bmi_mx: {}", record.args())
    };
    CString::new(text.replace(['\0', '\n'], " ")).ok()
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// Number of lines passed in the current second.
struct Budget {
    second: Option<Instant>,
    spent: u32,
    dropped: u32,
}

impl Budget {
    /// Returns the number of lines dropped since the last one passed; `None` above the limit.
    fn admit(&mut self, now: Instant) -> Option<u32> {
        let running = self
            .second
            .is_some_and(|begin| now.saturating_duration_since(begin) < Duration::from_secs(1));
        if !running {
            self.second = Some(now);
            self.spent = 0;
        }
        if self.spent >= BURST {
            self.dropped = self.dropped.saturating_add(1);
            return None;
        }
        self.spent += 1;
        Some(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget {
            second: None,
            spent: 0,
            dropped: 0,
        }
    }

    #[test]
    fn suppressed_lines_are_reported_in_the_next_second() {
        let mut budget = budget();
        let start = Instant::now();
        for _ in 0..BURST {
            assert_eq!(budget.admit(start), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(budget.admit(start + Duration::from_millis(999)), None);
        }
        assert_eq!(budget.admit(start + Duration::from_secs(1)), Some(7));
        assert_eq!(budget.admit(start + Duration::from_secs(1)), Some(0));
    }

    #[test]
    fn a_line_for_c_has_no_nul_and_no_newline() {
        let record = |args| Record::builder().level(Level::Warn).args(args).build();
        let text = line(&record(format_args!("a\0b\nc")), true).unwrap();
        assert_eq!(text.to_str(), Ok("bmi_mx: warning: a b c"));
        let text = line(&record(format_args!("x")), false).unwrap();
        assert_eq!(text.to_str(), Ok("bmi_mx: x"));
    }
}
