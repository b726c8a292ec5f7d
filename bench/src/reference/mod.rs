//! References for the limits of the hardware: the same transfers without a method, between two
//! threads pinned like the two processes of a measurement. Libraries, libfabric and UCX, are
//! measured between two processes of their own.

pub(crate) mod eventfd;
pub(crate) mod fabric;
pub(crate) mod list;
pub(crate) mod ring;
pub(crate) mod sides;
pub(crate) mod tcp;
pub(crate) mod ucx;
pub(crate) mod udp;

use crate::buffer::{Buffer, Layout};
use crate::peer::BUFFERS;

/// A way of moving bytes between two sides.
pub(crate) trait Wire: Send + 'static {
    /// Sends all of `data`.
    fn send(&mut self, data: &[u8]);
    /// Receives until `into` is full.
    fn recv(&mut self, into: &mut [u8]);
    /// Sends all pieces.
    fn send_list(&mut self, data: &Buffer);
    /// Receives until all pieces are full.
    fn recv_list(&mut self, into: &mut Buffer);

    /// Sends a message, as a list if it is one.
    #[inline]
    fn send_buffer(&mut self, data: &Buffer) {
        match data.whole() {
            Some(bytes) => self.send(bytes),
            None => self.send_list(data),
        }
    }

    /// Receives into a message's memory.
    #[inline]
    fn recv_buffer(&mut self, into: &mut Buffer) {
        match into.whole_mut() {
            Some(bytes) => self.recv(bytes),
            None => self.recv_list(into),
        }
    }
}

/// Measures half a round trip of a message, in microseconds, one value per group of round trips.
pub(crate) fn latency<W: Wire>(
    (mut here, mut there): (W, W),
    layout: Layout,
    groups: usize,
    group: usize,
    pin: bool,
) -> Vec<f64> {
    let rounds = groups * group + group;
    let echo = std::thread::spawn(move || {
        if pin {
            crate::pin::to_core(1);
        }
        let mut buffer = Buffer::new(layout);
        for _ in 0..rounds {
            there.recv_buffer(&mut buffer);
            there.send_buffer(&buffer);
        }
    });
    let data = Buffer::new(layout);
    let mut back = Buffer::new(layout);
    let mut round = || {
        here.send_buffer(&data);
        here.recv_buffer(&mut back);
        read(&back);
    };
    for _ in 0..group {
        round();
    }
    let times = (0..groups)
        .map(|_| {
            let start = std::time::Instant::now();
            for _ in 0..group {
                round();
            }
            start.elapsed().as_secs_f64() * 1e6 / (2 * group) as f64
        })
        .collect();
    // The other thread has answered every message, and ends.
    let _ = echo.join();
    times
}

/// Measures messages per second, one way, from one buffer into several in turn, like the method's.
pub(crate) fn stream<W: Wire>(
    (mut here, mut there): (W, W),
    layout: Layout,
    count: usize,
    pin: bool,
) -> f64 {
    let sink = std::thread::spawn(move || {
        if pin {
            crate::pin::to_core(1);
        }
        let mut buffers: Vec<_> = (0..BUFFERS).map(|_| Buffer::new(layout)).collect();
        for n in 0..count {
            let buffer = &mut buffers[n % BUFFERS];
            there.recv_buffer(buffer);
            read(buffer);
        }
        there.send(&[1]);
    });
    let data = Buffer::new(layout);
    let start = std::time::Instant::now();
    for _ in 0..count {
        here.send_buffer(&data);
    }
    here.recv(&mut [0]);
    let seconds = start.elapsed().as_secs_f64();
    let _ = sink.join();
    count as f64 / seconds
}

/// Stands for a program that reads every received byte: the compiler would omit a copy that is
/// never read. Takes no time itself, because the method's side reads nothing either.
#[inline]
fn read(received: &Buffer) {
    std::hint::black_box(received);
}
