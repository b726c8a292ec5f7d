//! The line between the director and one node: whole texts.
//!
//! ```text
//!   director [0] ===== SOCK_SEQPACKET ===== [3] node        the recorder's memory is at [4]
//! ```
//!
//! Owns: one end.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Descriptor of a node's end.
pub(crate) const LINE_FD: RawFd = 3;
/// Descriptor of the memory of a node's recorder.
pub(crate) const RECORDER_FD: RawFd = 4;

/// An end of the line.
#[derive(Debug)]
pub(crate) struct Line(OwnedFd);

/// Result of receiving.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    Text(String),
    Nothing,
    /// The other end is closed, and everything it sent was received.
    Gone,
}

impl Line {
    /// Makes both ends.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let mut fds = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us both descriptors.
        let [a, b] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok((Self(a), b))
    }

    /// Takes over a node's end, once.
    pub(crate) fn inherited() -> Self {
        // SAFETY: the director has put it there for this process, and it is not taken elsewhere.
        Self(unsafe { OwnedFd::from_raw_fd(LINE_FD) })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sends a text. Returns false if the line is full.
    pub(crate) fn offer(&self, text: &str) -> io::Result<bool> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: `text` outlives the call.
        let sent = unsafe { libc::send(self.fd(), text.as_ptr().cast(), text.len(), flags) };
        match sent {
            0.. => Ok(true),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                error => Err(error),
            },
        }
    }

    /// Sends a text, and waits while the line is full.
    pub(crate) fn say(&self, text: &str) -> io::Result<()> {
        while !self.offer(text)? {
            wait(&[(self.fd(), libc::POLLOUT)], Duration::from_millis(10));
        }
        Ok(())
    }

    /// Receives without waiting.
    pub(crate) fn hear(&self) -> Heard {
        let mut bytes = vec![0u8; LONGEST];
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: so many bytes may be written there.
        let got = unsafe { libc::recv(self.fd(), bytes.as_mut_ptr().cast(), LONGEST, flags) };
        match usize::try_from(got) {
            Ok(0) => Heard::Gone,
            Ok(len) => Heard::Text(String::from_utf8_lossy(&bytes[..len]).into_owned()),
            Err(_) => match io::Error::last_os_error().kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Heard::Nothing,
                // The other end was closed with unread texts. Texts that it sent before follow.
                io::ErrorKind::ConnectionReset => self.hear(),
                _ => Heard::Gone,
            },
        }
    }
}

/// Waits until one of these descriptors is ready, the time is over, or a signal came.
pub(crate) fn wait(fds: &[(RawFd, libc::c_short)], span: Duration) {
    let mut entries: Vec<libc::pollfd> = fds
        .iter()
        .map(|(fd, events)| libc::pollfd {
            fd: *fd,
            events: *events,
            revents: 0,
        })
        .collect();
    let nanos = span.subsec_nanos();
    let span = libc::timespec {
        tv_sec: span.as_secs() as i64,
        tv_nsec: nanos.into(),
    };
    let count = entries.len() as libc::nfds_t;
    // SAFETY: `count` entries and a time that outlive the call.
    unsafe {
        libc::ppoll(
            entries.as_mut_ptr(),
            count,
            &raw const span,
            std::ptr::null(),
        )
    };
}

/// Returns the time left until then.
pub(crate) fn until(then: Instant) -> Duration {
    then.saturating_duration_since(Instant::now())
}

/// Longer than any text: a report of thousands of operations.
const LONGEST: usize = 1 << 18;

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn texts_arrive_whole_and_the_end_is_noticed() {
        let (a, b) = Line::pair().unwrap();
        let b = Line(b);
        assert_eq!(b.hear(), Heard::Nothing);
        a.say("one").unwrap();
        a.say("and two").unwrap();
        drop(a);
        assert_eq!(b.hear(), Heard::Text("one".into()));
        assert_eq!(b.hear(), Heard::Text("and two".into()));
        assert_eq!(b.hear(), Heard::Gone);
    }

    #[test]
    fn what_was_said_is_heard_although_the_sender_has_gone() {
        let (a, b) = Line::pair().unwrap();
        let b = Line(b);
        a.say("unheard").unwrap();
        b.say("last words").unwrap();
        drop(b);
        assert_eq!(a.hear(), Heard::Text("last words".into()));
        assert_eq!(a.hear(), Heard::Gone);
    }

    #[test]
    fn who_does_not_listen_is_not_waited_for() {
        let (a, _b) = Line::pair().unwrap();
        let text = "x".repeat(10_000);
        let room = (0..10_000).take_while(|_| a.offer(&text).unwrap()).count();
        assert!(room > 0 && room < 10_000);
    }
}
