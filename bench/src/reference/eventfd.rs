//! A bare wake-up: two threads that wake each other through eventfds and sleep in between.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Measures half a round trip in microseconds, one value per round trip.
pub(crate) fn wakeup(rounds: usize, pin: bool) -> std::io::Result<Vec<f64>> {
    let (there, back) = (eventfd()?, eventfd()?);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if pin {
                crate::pin::to_core(1);
            }
            for _ in 0..rounds {
                sleep_on(&there);
                signal(&back);
            }
        });
        Ok((0..rounds)
            .map(|_| {
                // The other thread has time to fall asleep.
                std::thread::sleep(std::time::Duration::from_micros(300));
                let start = std::time::Instant::now();
                signal(&there);
                sleep_on(&back);
                start.elapsed().as_secs_f64() * 1e6 / 2.0
            })
            .collect())
    })
}

fn eventfd() -> std::io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `fd` is open and not owned elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn signal(fd: &OwnedFd) {
    let one = 1u64;
    // SAFETY: eight bytes at `one`.
    let _ = unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// Sleeps as a method does: in `poll`, and reads afterwards.
fn sleep_on(fd: &OwnedFd) {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut poll, 1, -1) };
    let mut count = 0u64;
    // SAFETY: room for eight bytes.
    let _ = unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
}
