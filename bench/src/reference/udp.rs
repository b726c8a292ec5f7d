//! Bare UDP over loopback, polled: single datagrams there and back, and GSO batches one way.
//!
//! ```text
//!   latency   send ---> recv ---> send ---> recv                 a datagram each
//!   stream    [1472|1472| .. x 44] one call (UDP_SEGMENT) ---> one call (UDP_GRO) [.. up to 64 KiB]
//!             sender <--- bytes received, through memory --- receiver
//! ```
//!
//! Owns: the sockets, and the limit of bytes under way, which the receiver's buffer holds.
//! Out of scope: order, loss and acknowledgement; the benchmark measures the cost of adding them.

use super::{Wire, list};
use crate::buffer::Buffer;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Result};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Name in tables.
pub(crate) const NAME: &str = "bare UDP";

/// A side of a pair of connected sockets.
pub(crate) struct Socket(UdpSocket);

/// Connects both sides.
pub(crate) fn pair() -> Result<(Socket, Socket)> {
    let (near, far) = (
        UdpSocket::bind("127.0.0.1:0")?,
        UdpSocket::bind("127.0.0.1:0")?,
    );
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    for socket in [&near, &far] {
        socket.set_nonblocking(true)?;
        // The system may allow less.
        let _ = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER);
        let _ = set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER);
    }
    Ok((Socket(near), Socket(far)))
}

impl Wire for Socket {
    fn send(&mut self, data: &[u8]) {
        sent(|| self.0.send(data));
    }

    fn recv(&mut self, into: &mut [u8]) {
        received(|| self.0.recv(into));
    }

    /// Sends a datagram of at most `IOV_MAX` pieces.
    fn send_list(&mut self, data: &Buffer) {
        let pieces: Vec<_> = data.pieces().map(IoSlice::new).collect();
        sent(|| list::send(&self.0, &pieces));
    }

    fn recv_list(&mut self, into: &mut Buffer) {
        let mut pieces: Vec<_> = into.pieces_mut().map(IoSliceMut::new).collect();
        received(|| list::recv(&self.0, &mut pieces));
    }
}

/// Repeats a call until the socket has accepted the data.
#[inline]
fn sent(mut call: impl FnMut() -> Result<usize>) {
    while let Err(error) = call() {
        match error.kind() {
            ErrorKind::WouldBlock => std::hint::spin_loop(),
            // The other side has ended, and the measurement with it.
            _ => return,
        }
    }
}

/// Repeats a call until data has come, or the other side has ended.
#[inline]
fn received(mut call: impl FnMut() -> Result<usize>) {
    let mut timeout = Timeout::new(LOST);
    while let Err(error) = call() {
        if error.kind() != ErrorKind::WouldBlock || timeout.is_over() {
            return;
        }
    }
}

/// Datagrams given to the kernel in one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GsoBatch {
    /// Bytes of each datagram.
    pub(crate) segment: usize,
    pub(crate) count: usize,
}

impl GsoBatch {
    /// Datagrams for Ethernet, as many as fit into one call.
    pub(crate) const ETHERNET: Self = Self {
        segment: 1472,
        count: 44,
    };
    /// A datagram of the largest size, which loopback's MTU allows.
    pub(crate) const LOOPBACK: Self = Self {
        segment: 65_507,
        count: 1,
    };
    /// Returns single datagrams of that size, one a call.
    pub(crate) fn single(segment: usize) -> Self {
        Self { segment, count: 1 }
    }

    fn bytes(self) -> usize {
        self.segment * self.count
    }

    /// Returns the most space that one call's datagrams take in the receiver's buffer, the kernel's
    /// own data included.
    fn cost(self) -> usize {
        self.bytes() + self.bytes() / 4 + 1280
    }
}

/// Returns the bytes per second that arrive when `volume` bytes are sent in such GSO batches.
pub(crate) fn stream(batch: GsoBatch, volume: usize, pin: bool) -> Result<f64> {
    let (Socket(near), Socket(far)) = pair()?;
    if batch.count > 1 {
        let segment = batch.segment as libc::c_int;
        set(&near, libc::SOL_UDP, libc::UDP_SEGMENT, segment)?;
        set(&far, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    }
    let under_way = (receive_buffer(&far)? / 2).min(UNDER_WAY) / batch.cost();
    let under_way = (under_way.max(1) * batch.bytes()) as u64;
    let sink = Arc::new(Sink::default());
    let counting = sink.clone();
    let receiver = std::thread::spawn(move || {
        if pin {
            crate::pin::to_core(1);
        }
        counting.count(&far);
    });
    let data = vec![1u8; batch.bytes()];
    let calls = volume.div_ceil(batch.bytes()).max(1);
    let start = Instant::now();
    let (mut sent, mut lost) = (0, 0);
    for _ in 0..calls {
        while let Err(error) = near.send(&data) {
            if error.kind() != ErrorKind::WouldBlock {
                sink.over.store(true, Ordering::Release);
                return Err(error);
            }
        }
        sent += data.len() as u64;
        lost += sink.wait(sent - lost, under_way);
    }
    lost += sink.wait(sent - lost, 0);
    let seconds = start.elapsed().as_secs_f64();
    sink.over.store(true, Ordering::Release);
    let _ = receiver.join();
    Ok((sent - lost) as f64 / seconds)
}

/// State of the receiving thread.
#[derive(Default)]
struct Sink {
    received: AtomicU64,
    over: AtomicBool,
}

impl Sink {
    fn count(&self, socket: &UdpSocket) {
        let mut into = vec![0u8; 1 << 16];
        let mut received = 0;
        while !self.over.load(Ordering::Acquire) {
            if let Ok(len) = socket.recv(&mut into) {
                received += len as u64;
                self.received.store(received, Ordering::Release);
            }
        }
    }

    /// Waits until at most `under_way` of `sent` bytes have not been received; returns the number
    /// of bytes that are lost.
    fn wait(&self, sent: u64, under_way: u64) -> u64 {
        let mut timeout = Timeout::new(LOST);
        loop {
            let missing = sent.saturating_sub(self.received.load(Ordering::Acquire));
            if missing <= under_way {
                return 0;
            }
            if timeout.is_over() {
                return missing;
            }
        }
    }
}

/// A time-out that reads the clock rarely.
struct Timeout {
    limit: Duration,
    looks: u32,
    since: Option<Instant>,
}

impl Timeout {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            looks: 0,
            since: None,
        }
    }

    #[inline]
    fn is_over(&mut self) -> bool {
        std::hint::spin_loop();
        self.looks = self.looks.wrapping_add(1);
        self.looks % LOOKS == 0
            && self.since.get_or_insert_with(Instant::now).elapsed() > self.limit
    }
}

fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: an open socket and a value of the length given.
    let rc = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            len,
        )
    };
    match rc {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn receive_buffer(socket: &UdpSocket) -> Result<usize> {
    let (mut value, mut len) = (
        0 as libc::c_int,
        size_of::<libc::c_int>() as libc::socklen_t,
    );
    // SAFETY: an open socket, and room for a value of the length given.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    match rc {
        0 => Ok(value.unsigned_abs() as usize),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Requested size of each socket buffer.
const BUFFER: libc::c_int = 4 << 20;
/// Most of it in use at a time, so that the data stays in the cache.
const UNDER_WAY: usize = 1 << 20;
/// Time after which a datagram counts as lost by loopback.
const LOST: Duration = Duration::from_millis(200);
/// Polls between two readings of the clock.
const LOOKS: u32 = 1 << 12;

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn every_byte_of_every_batch_arrives() {
        for batch in [GsoBatch::ETHERNET, GsoBatch::LOOPBACK, GsoBatch::single(8)] {
            let speed = stream(batch, 40 * batch.bytes(), false);
            assert!(speed.is_ok_and(|speed| speed > 0.0), "{batch:?}");
        }
    }

    #[test]
    fn what_is_lost_is_waited_for_once_and_not_counted() {
        let sink = Sink::default();
        sink.received.store(60, Ordering::Release);
        assert_eq!(sink.wait(100, 40), 0);
        assert_eq!(sink.wait(100, 0), 40);
        assert_eq!(sink.wait(60, 0), 0);
    }
}
