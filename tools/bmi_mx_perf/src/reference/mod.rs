//! What the hardware allows: the same transfers without a method in between, between two threads
//! pinned as the two processes of a measurement are. For libfabric, between two processes.

pub(crate) mod eventfd;
pub(crate) mod fabric;
pub(crate) mod ring;
pub(crate) mod tcp;
pub(crate) mod udp;

/// One way of moving bytes between two sides.
pub(crate) trait Wire: Send + 'static {
    /// Moves all of `data` out.
    fn send(&mut self, data: &[u8]);
    /// Fills all of `into`.
    fn recv(&mut self, into: &mut [u8]);
}

/// Half a round trip of `size` bytes, in microseconds, one value per group of round trips.
pub(crate) fn latency<W: Wire>(
    (mut here, mut there): (W, W),
    size: usize,
    groups: usize,
    group: usize,
    pin: bool,
) -> Vec<f64> {
    let rounds = groups * group + group;
    let echo = std::thread::spawn(move || {
        if pin {
            crate::pin::to_core(1);
        }
        let mut buffer = vec![0u8; size];
        for _ in 0..rounds {
            there.recv(&mut buffer);
            there.send(&buffer);
        }
    });
    let data = vec![1u8; size];
    let mut back = vec![0u8; size];
    let mut round = || {
        here.send(&data);
        here.recv(&mut back);
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
    // The other thread has answered as often as it was asked, and ends.
    let _ = echo.join();
    times
}

/// Messages of `size` bytes per second, one way.
pub(crate) fn stream<W: Wire>(
    (mut here, mut there): (W, W),
    size: usize,
    count: usize,
    pin: bool,
) -> f64 {
    let sink = std::thread::spawn(move || {
        if pin {
            crate::pin::to_core(1);
        }
        let mut buffer = vec![0u8; size.max(1)];
        for _ in 0..count {
            there.recv(&mut buffer[..size]);
        }
        there.send(&[1]);
    });
    let data = vec![1u8; size];
    let start = std::time::Instant::now();
    for _ in 0..count {
        here.send(&data);
    }
    here.recv(&mut [0]);
    let seconds = start.elapsed().as_secs_f64();
    let _ = sink.join();
    count as f64 / seconds
}
