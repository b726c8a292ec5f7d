//! Log lines on stderr, which belongs to the host.
//!
//! ```text
//!   record --> filter --> one line of at most PIPE_BUF bytes
//!                           |   stderr is
//!                           |     a socket        send, MSG_DONTWAIT
//!                           |     a file          write
//!                           |     a pipe, a tty   opened again, with O_NONBLOCK: the host's descriptor stays
//!                           v                     unchanged. If that fails: poll, write
//!                  written, or counted; the next line written reports how many were lost
//! ```
//!
//! No line ends, stops or delays its thread: signals are blocked meanwhile, and those that the write raises are
//! consumed. Nothing here takes a lock, and no memory is required, so that a child of `fork` and a process without
//! memory can log.
//!
//! Owns: the number of lost lines.
//! Out of scope: which lines there are.

use crate::cancellation::CancellationDisabled;
use crate::settings;
use crate::thread::SignalsBlocked;
use env_logger::{Builder, Logger};
use log::{Level, LevelFilter, Log, Metadata, Record};
use mx_port_base::file_size::SigxfszBlocked;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{Mode, fstat};
use nix::unistd;
use std::fmt::{self, Arguments, Write};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of lines not written, or not completely.
static LOST: AtomicU64 = AtomicU64::new(0);
/// Whether the last line was written without its end.
static TORN: AtomicBool = AtomicBool::new(false);

/// Logger, for the `log` crate, that writes to stderr.
#[derive(Debug)]
pub struct StderrLogger {
    filter: Logger,
}

impl StderrLogger {
    /// Makes a logger that passes what the directives (in `env_logger`'s syntax) name, as in `info,mx_proto=trace`. An
    /// invalid directive is ignored with a warning.
    pub fn new(directives: &str) -> Self {
        let mut good = Vec::new();
        for directive in directives.split(',') {
            if is_directive(directive) {
                good.push(directive);
            } else {
                let error =
                    format_args!("'{directive}' is no level, and no name with one: ignored");
                say(Level::Warn, module_path!(), &error);
            }
        }
        Self {
            filter: Builder::new().parse_filters(&good.join(",")).build(),
        }
    }

    /// Sends the library's log lines to stderr: warnings, or the levels in `MX_LOG` at the first call. Does nothing in
    /// a Rust program that has set a logger.
    pub fn start() {
        static LOGGER: OnceLock<StderrLogger> = OnceLock::new();
        let logger = LOGGER.get_or_init(|| {
            let asked = settings::trusted_environment("MX_LOG").filter(|text| !text.is_empty());
            Self::new(asked.as_deref().unwrap_or("warn"))
        });
        if log::set_logger(logger).is_ok() {
            log::set_max_level(logger.filter());
        }
    }

    /// Returns the highest level that passes.
    pub fn filter(&self) -> LevelFilter {
        self.filter.filter()
    }
}

/// Installs a panic hook that reports panics of this library's code as log lines; Rust's own hook would block on a full
/// pipe. A Rust program's hook is not affected: the library has its own copy of the standard library.
pub fn take_panics() {
    std::panic::set_hook(Box::new(|panic| {
        say(Level::Error, module_path!(), &format_args!("{panic}"));
    }));
}

/// Returns whether `env_logger` accepts a directive; it would report others on stderr itself.
fn is_directive(text: &str) -> bool {
    let name = |name: &str| !name.contains(['=', '/']);
    match text.split_once('=') {
        Some((target, level)) => name(target) && level.trim().parse::<LevelFilter>().is_ok(),
        None => name(text),
    }
}

impl Log for StderrLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.filter.matches(record) {
            say(record.level(), record.target(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Writes a line of the log, or counts it as lost.
fn say(level: Level, target: &str, args: &Arguments<'_>) {
    say_text(&format_args!("[{} {level:<5} {target}] {args}", Utc::now()));
}

/// Writes a line to stderr without blocking. A line that cannot be written is counted as lost; the next one that can be
/// written is preceded by a line with that number.
#[cold]
#[inline(never)]
pub fn say_text(text: &Arguments<'_>) {
    // On the heap: the stack may be small, and is deepest where something fails. Without memory the line is truncated.
    let (mut long, mut short) = (Vec::new(), [b'\n'; SHORT]);
    let bytes = match long.try_reserve_exact(libc::PIPE_BUF) {
        Ok(()) => {
            long.resize(libc::PIPE_BUF, b'\n');
            &mut long[..]
        }
        Err(_) => &mut short[..],
    };
    let line = Line::new(bytes, text);
    let _off = CancellationDisabled::new();
    // Also SIGTTOU, which would stop the process, and handlers.
    let _signals = SignalsBlocked::new();
    let lost = LOST.swap(0, Ordering::Relaxed);
    if lost > 0 && !put_lost(lost) {
        LOST.fetch_add(lost + 1, Ordering::Relaxed);
    } else if !put(&line) {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reports how many lines were lost.
fn put_lost(lost: u64) -> bool {
    let (time, level, target) = (Utc::now(), Level::Warn, module_path!());
    let note = format_args!("[{time} {level:<5} {target}] {lost} log lines could not be written");
    put(&Line::new(&mut [b'\n'; SHORT], &note))
}

/// Writes a line. Returns false unless all of it was written.
fn put(line: &Line<'_>) -> bool {
    let torn = TORN.swap(false, Ordering::Relaxed);
    let bytes = line.bytes(torn);
    let written = {
        let _quiet = SigxfszBlocked::new();
        write(bytes)
    };
    if written == Some(bytes.len()) {
        return true;
    }
    TORN.store(
        torn || written.is_some_and(|count| count > 0),
        Ordering::Relaxed,
    );
    false
}

/// Writes without blocking. Returns the number of bytes; `None` if nothing could be written.
fn write(bytes: &[u8]) -> Option<usize> {
    let stderr = io::stderr();
    let stderr = stderr.as_fd();
    let written = match kind(stderr)? {
        libc::S_IFSOCK => {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            send(stderr.as_raw_fd(), bytes, flags)
        }
        libc::S_IFREG => unistd::write(stderr, bytes),
        libc::S_IFIFO | libc::S_IFCHR => match once_more() {
            Ok(own) => unistd::write(own, bytes),
            Err(_) if is_writable(stderr) => unistd::write(stderr, bytes),
            Err(_) => return None,
        },
        _ => return None,
    };
    written.ok()
}

/// Returns the file type of stderr. `None` if stderr is closed, or its number now belongs to another descriptor: one
/// that is read-only, or closed on exec, as all of this library's are.
fn kind(stderr: BorrowedFd<'_>) -> Option<libc::mode_t> {
    let stat = fstat(stderr).ok()?;
    let open = fcntl(stderr, FcntlArg::F_GETFL).ok()?;
    let own = fcntl(stderr, FcntlArg::F_GETFD).ok()?;
    let is_stderr = open & libc::O_ACCMODE != libc::O_RDONLY && own & libc::FD_CLOEXEC == 0;
    is_stderr.then_some(stat.st_mode & libc::S_IFMT)
}

/// Opens the same pipe or terminal with O_NONBLOCK, which on stderr itself would affect every process that shares it.
fn once_more() -> nix::Result<OwnedFd> {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    open(c"/proc/thread-self/fd/2", flags, Mode::empty())
}

/// Returns whether a write of up to PIPE_BUF bytes will not block, as far as poll tells.
fn is_writable(stderr: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::new(stderr, PollFlags::POLLOUT)];
    poll(&mut asked, PollTimeout::ZERO) == Ok(1) && asked[0].revents() == Some(PollFlags::POLLOUT)
}

/// A text between two newlines, truncated to its buffer: the first newline ends a torn line.
struct Line<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

/// Buffer size in bytes for the number of lost lines, and for a line without memory.
const SHORT: usize = 256;

impl<'a> Line<'a> {
    /// Writes `text` into `bytes`, which must be filled with newlines.
    fn new(bytes: &'a mut [u8], text: &Arguments<'_>) -> Self {
        let mut line = Self { bytes, len: 1 };
        // An error means that the line is truncated.
        let _ = line.write_fmt(*text);
        line
    }

    fn bytes(&self, after_torn: bool) -> &[u8] {
        let begin = usize::from(!after_torn);
        self.bytes.get(begin..=self.len).unwrap_or(&[])
    }
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.len == self.bytes.len() - 1 {
                return Err(fmt::Error);
            }
            self.bytes[self.len] = if byte == b'\n' { b' ' } else { byte };
            self.len += 1;
        }
        Ok(())
    }
}

/// Seconds since 1970, displayed as in RFC 3339. Not by the C library, whose functions take a lock.
struct Utc(u64);

impl Utc {
    fn now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(now.map_or(0, |now| now.as_secs()))
    }
}

impl fmt::Display for Utc {
    /// The date is Howard Hinnant's `civil_from_days` (chrono-Compatible Low-Level Date Algorithms).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0 / 86_400 + 719_468, self.0 % 86_400);
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_of_its_year() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (68_169_599, "1972-02-28T23:59:59Z"),
            (68_169_600, "1972-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Utc(seconds).to_string(), text);
        }
    }

    #[test]
    fn a_line_has_one_end_and_no_more_than_a_pipe_takes_at_once() {
        let line = |text: &str| {
            let bytes = vec![b'\n'; 4096].leak();
            Line::new(bytes, &format_args!("[INFO  mx] {text}"))
        };
        let text = |line: &Line<'_>, torn| String::from_utf8(line.bytes(torn).to_vec()).unwrap();
        let short = line("a\nb");
        assert!(text(&short, false).starts_with('[') && text(&short, true).starts_with("\n["));
        assert!(text(&short, false).ends_with("[INFO  mx] a b\n"));
        let header = short.bytes(false).len() - 4;
        // Both newlines count.
        for (len, whole) in [(4093, true), (4094, true), (4095, false), (9000, false)] {
            let long = line(&"x".repeat(len - header));
            assert_eq!(long.bytes(true).len(), 4096.min(len + 2));
            assert_eq!(text(&long, true).matches('\n').count(), 2);
            assert_eq!(long.bytes(false).len() == len + 1, whole);
        }
        let mut little = [b'\n'; SHORT];
        let cut = Line::new(&mut little, &format_args!("{}", "x".repeat(SHORT)));
        assert_eq!(cut.bytes(true).len(), SHORT);
        assert!(text(&cut, true).ends_with("x\n"));
    }

    #[test]
    fn a_directive_that_is_none_leaves_the_others() {
        let logger = StderrLogger::new("warn,mx_proto=loud,mx_sys=debug");
        assert_eq!(logger.filter(), LevelFilter::Debug);
        let enabled = |level, target| {
            let metadata = Metadata::builder().level(level).target(target).build();
            logger.enabled(&metadata)
        };
        assert!(enabled(Level::Debug, "mx_sys::route") && enabled(Level::Warn, "mx_proto"));
        assert!(!enabled(Level::Info, "mx_proto"));
    }
}
