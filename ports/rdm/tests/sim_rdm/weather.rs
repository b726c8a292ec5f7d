//! The fabric of a run, and its faults.
//!
//! ```text
//!   Shape: a real provider, with some of its properties changed
//!   Faults: late, full, out of order (always allowed); errors (in some runs)
//! ```

use libfabric_fake::{Death, Faults, Release, Shape, Wait};
use libfabric_sys::abi::{FI_ECONNRESET, FI_EIO, FI_MULTI_RECV, FI_RMA};
use mx_sim::Rng;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) shape: Shape,
    pub(crate) faults: Faults,
    pub(crate) keepalive: Duration,
    /// Whether messages are in several pieces; cards read only those in one piece.
    pub(crate) pieces: bool,
    pub(crate) large: bool,
}

impl Weather {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        Self {
            shape: shape(rng),
            faults: faults(rng),
            keepalive: Duration::from_millis(rng.pick(&[1_000, 3_000])),
            pieces: rng.chance(0.3),
            large: rng.chance(0.5),
        }
    }
}

fn shape(rng: &mut Rng) -> Shape {
    let presets = [
        Shape::verbs_rxm,
        Shape::cxi,
        Shape::efa,
        Shape::psm3,
        Shape::odd,
        Shape::tcp,
        Shape::tcp_rxm,
    ];
    let mut shape = rng.pick(&presets)();
    let rarely = |rng: &mut Rng| rng.chance(0.15);
    if rarely(rng) {
        shape.caps &= !FI_MULTI_RECV;
    }
    if rarely(rng) {
        shape.caps &= !FI_RMA;
    }
    if rarely(rng) {
        shape.wait = rng.pick(&[Wait::Fd, Wait::Refused, Wait::NoDescriptor]);
    }
    if rarely(rng) {
        shape.tx_depth = rng.pick(&[4, 16, 64]);
    }
    if rarely(rng) {
        shape.rx_depth = rng.pick(&[4, 16, 64]);
    }
    if rarely(rng) {
        shape.inject = rng.pick(&[0, 20, 64, 500]);
    }
    if rarely(rng) {
        shape.iov_limit = rng.pick(&[1, 2, 16]);
    }
    if rarely(rng) {
        shape.connect_polls = rng.pick(&[0, 1, 10, 100]);
    }
    if rarely(rng) {
        shape.connect_queues = true;
    }
    if rarely(rng) {
        shape.unexpected_depth = rng.pick(&[1, 8, usize::MAX]);
    }
    if rarely(rng) {
        shape.eager = rng.pick(&[0, 64, 4096, 1 << 20]);
    }
    if rarely(rng) {
        shape.multi_recv_release =
            rng.pick(&[Release::WithLast, Release::Separate, Release::Either]);
    }
    if rarely(rng) {
        shape.peer_gone = death(rng);
    }
    if rarely(rng) {
        shape.no_peer = death(rng);
    }
    if rarely(rng) {
        shape.cq_overruns = true;
    }
    if rarely(rng) {
        shape.close_flush = !shape.close_flush;
    }
    if rarely(rng) {
        shape.receives_in_order = !shape.receives_in_order;
    }
    shape
}

fn death(rng: &mut Rng) -> Death {
    rng.pick(&[
        Death::Again,
        Death::Vanish,
        Death::Swallow,
        Death::Fail(FI_EIO),
        Death::Fail(FI_ECONNRESET),
    ])
}

fn faults(rng: &mut Rng) -> Faults {
    let mut faults = Faults::none();
    if rng.chance(0.2) {
        return faults;
    }
    let maybe = |rng: &mut Rng, of: &[f64]| if rng.chance(0.5) { rng.pick(of) } else { 0.0 };
    faults.again = maybe(rng, &[0.01, 0.05, 0.3]);
    faults.again_run = rng.pick(&[1, 20, 100]);
    faults.hold = maybe(rng, &[0.1, 0.3, 0.8]);
    faults.landing_polls = rng.pick(&[0, 1, 4, 30]);
    faults.late_send = maybe(rng, &[0.1, 0.5]);
    faults.late_send_polls = rng.pick(&[1, 30, 300]);
    faults.reorder = maybe(rng, &[0.1, 0.5]);
    faults.spurious_wake = maybe(rng, &[0.05]);
    faults.empty_packet = maybe(rng, &[0.02]);
    faults.register = maybe(rng, &[0.05, 0.5]);
    faults.close_busy = maybe(rng, &[0.1, 0.5]);
    faults.revocable = true;
    if rng.chance(0.3) {
        faults.error = rng.pick(&[0.001, 0.01]);
        faults.negative = rng.pick(&[0.0, 0.5]);
    }
    if rng.chance(0.15) {
        faults.register_limit = Some(rng.pick(&[3, 10, 30]));
    }
    if rng.chance(0.1) {
        faults.register_bytes = Some(rng.pick(&[2 << 20, 8 << 20]));
    }
    if rng.chance(0.1) {
        faults.overrun = 0.0001;
    }
    faults
}
