//! The references of each port.
//!
//! | port  | latency                                           | streams                              |
//! |-------|---------------------------------------------------|--------------------------------------|
//! | local | bare ring; UCX over posix up to 8 KiB             | the same                             |
//! | tcp   | bare TCP; UCX over tcp up to 8 KiB                | the same                             |
//! | rdm   | libfabric, the same provider                      | the same                             |
//! | dgram | bare UDP up to a datagram, bare TCP, `udp;ofi_rxd` | bare TCP, bare UDP, `udp;ofi_rxd`    |
//!
//! Lists: local and tcp as above without UCX, dgram bare UDP (latency) and bare TCP, each with the same
//! list. libfabric's providers take a few pieces at most: beside rdm it sends the same bytes in one piece.
//!
//! Each is paired with the method separately: ring, reference, method, ring, reference, method.
//!
//! Owns: the choice of references, and their names.
//! Out of scope: the method.

use super::Bench;
use super::latency::GROUPS;
use crate::args::Port;
use crate::buffer::Layout;
use crate::reference::list::IOV_MAX;
use crate::reference::udp::GsoBatch;
use crate::reference::{self, ring, tcp, ucx, udp};

/// A reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beside {
    Ring,
    Tcp,
    /// A datagram per message.
    Udp,
    /// As many datagrams per call as the kernel takes.
    GsoBatches(GsoBatch),
    Fabric,
    Ucx,
}

impl Beside {
    /// Returns the references for messages of `size` bytes there and back.
    pub(super) fn latency(bench: &Bench<'_>, layout: Layout) -> Vec<Self> {
        match bench.port {
            Port::Local => [Self::Ring]
                .into_iter()
                .chain(Self::ucx(bench, layout.size))
                .collect(),
            Port::Tcp => [Self::Tcp]
                .into_iter()
                .chain(Self::ucx(bench, layout.size))
                .collect(),
            Port::Rdm => vec![Self::Fabric],
            Port::Dgram => {
                let one_call = layout.size <= DATAGRAM && layout.pieces <= Some(IOV_MAX);
                let udp = one_call.then_some(Self::Udp);
                let others = [Self::Tcp].into_iter().chain(Self::fabric(bench));
                udp.into_iter().chain(others).collect()
            }
        }
    }

    /// Returns the references for messages of `size` bytes one way.
    pub(super) fn stream(bench: &Bench<'_>, layout: Layout) -> Vec<Self> {
        if bench.port != Port::Dgram {
            return Self::latency(bench, layout);
        }
        // A GSO batch has no messages; if it is at least as long, both move the same bytes.
        let udp = match layout.size {
            // UDP streams have no lists.
            _ if layout.pieces.is_some() => vec![],
            0..=DATAGRAM => vec![Self::Udp],
            _ => vec![
                Self::GsoBatches(GsoBatch::ETHERNET),
                Self::GsoBatches(GsoBatch::LOOPBACK),
            ],
        };
        let first = [Self::Tcp].into_iter().chain(udp);
        first.chain(Self::fabric(bench)).collect()
    }

    fn fabric(bench: &Bench<'_>) -> Option<Self> {
        bench.references.fabric.as_ref().map(|_| Self::Fabric)
    }

    fn ucx(bench: &Bench<'_>, size: usize) -> Option<Self> {
        let small = size <= ucx::LARGEST;
        bench
            .references
            .ucx
            .as_ref()
            .filter(|_| small)
            .map(|_| Self::Ucx)
    }

    pub(super) fn name(self, bench: &Bench<'_>) -> String {
        match (self, &bench.references.fabric) {
            (Self::Ring, _) => "bare ring".into(),
            (Self::Tcp, _) => tcp::NAME.into(),
            (Self::Udp, _) => udp::NAME.into(),
            (Self::GsoBatches(GsoBatch { segment, count }), _) => {
                format!("{} {segment} x {count}", udp::NAME)
            }
            (Self::Fabric, Some(fabric)) => {
                // Named by its provider if it is one of several references.
                let fabric = fabric.borrow();
                match bench.port {
                    Port::Dgram => fabric.name().into(),
                    _ if bench.args.pieces.is_some() => {
                        format!("libfabric {}, whole", fabric.name())
                    }
                    _ => format!("libfabric {}", fabric.name()),
                }
            }
            (Self::Fabric, None) => "libfabric".into(),
            (Self::Ucx, _) => match &bench.references.ucx {
                Some(ucx) => {
                    let ucx = ucx.borrow();
                    format!("{} {} {}", ucx::NAME, ucx.version(), ucx.name())
                }
                None => ucx::NAME.into(),
            },
        }
    }

    /// Measures half round trips in microseconds, one value per group.
    pub(super) fn times(
        self,
        bench: &Bench<'_>,
        layout: Layout,
        group: usize,
    ) -> Result<Vec<f64>, String> {
        let pin = bench.args.pin;
        match self {
            Self::Ring => Ok(reference::latency(ring::pair(), layout, GROUPS, group, pin)),
            Self::Tcp => {
                let pair = tcp::pair().map_err(|error| error.to_string())?;
                // A TCP stream has no empty messages; one byte replaces them.
                let size = layout.size.max(1);
                let layout = Layout { size, ..layout };
                Ok(reference::latency(pair, layout, GROUPS, group, pin))
            }
            Self::Udp | Self::GsoBatches(_) => {
                let pair = udp::pair().map_err(|error| error.to_string())?;
                Ok(reference::latency(pair, layout, GROUPS, group, pin))
            }
            Self::Fabric => bench.fabric()?.latency(layout.size, GROUPS, group),
            Self::Ucx => bench.ucx()?.latency(layout.size, GROUPS, group),
        }
    }

    /// Measures messages per second, one way.
    pub(super) fn rate(
        self,
        bench: &Bench<'_>,
        layout: Layout,
        count: usize,
    ) -> Result<f64, String> {
        let (pin, size) = (bench.args.pin, layout.size);
        match self {
            Self::Ring => Ok(reference::stream(ring::pair(), layout, count, pin)),
            Self::Tcp => {
                let pair = tcp::pair().map_err(|error| error.to_string())?;
                Ok(reference::stream(pair, layout, count, pin))
            }
            Self::Udp => batches(GsoBatch::single(size.max(1)), size, count, pin),
            Self::GsoBatches(batch) => batches(batch, size, count, pin),
            Self::Fabric => {
                let most = match bench.port {
                    Port::Dgram => (SLOW_VOLUME / size.max(1)).clamp(16, SLOW_COUNT),
                    _ => count,
                };
                bench.fabric()?.stream(size, count.min(most))
            }
            Self::Ucx => bench.ucx()?.stream(size, count),
        }
    }
}

fn batches(batch: GsoBatch, size: usize, count: usize, pin: bool) -> Result<f64, String> {
    let size = size.max(1);
    let speed = udp::stream(batch, size * count, pin).map_err(|error| error.to_string())?;
    Ok(speed / size as f64)
}

/// Largest message that is measured over bare UDP: of the sizes in the design's table, those that
/// fit into one datagram.
const DATAGRAM: usize = 8 << 10;
/// Bytes per repeat through libfabric's own reliable datagrams, which are slow.
const SLOW_VOLUME: usize = 32 << 20;
const SLOW_COUNT: usize = 20_000;
