//! Endpoints of one process over real ports: the tests' common part.

mod handler;
mod lifecycle;
mod messages;
mod threads;

use super::*;
use mx_proto::Route;
use mx_sys::{ROUTE_LOCAL, ROUTE_TCP, Settings, nic};

/// Returns settings with ports of this process's own, so that concurrent tests do not interfere.
pub(super) fn settings(port: Route) -> Settings {
    Settings {
        port,
        // Below the library's own block, in one of sixteen blocks by process.
        port_base: 10_000 + (std::process::id() % 16) as u16 * 1024,
        ..Settings::for_mx()
    }
}

/// An endpoint that is closed when the test is over.
#[derive(Debug)]
pub(super) struct Opened(pub(super) EndpointHandle);

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = close(self.0);
    }
}

pub(super) const KEY: u32 = 0x4242;

pub(super) const ALL: u64 = u64::MAX;

pub(super) const LONG: Option<Duration> = Some(Duration::from_secs(20));

pub(super) const NOW: Option<Duration> = Some(Duration::ZERO);

pub(super) fn opened(port: Route) -> Opened {
    opened_with(port, OpenParams::default())
}

pub(super) fn opened_with(port: Route, params: OpenParams) -> Opened {
    let params = OpenParams { key: KEY, ..params };
    Opened(open(&settings(port), params).expect("an endpoint"))
}

/// Returns the endpoint's NIC and endpoint ids.
pub(super) fn name(ep: &Opened) -> (NicId, u32) {
    let (nic, endpoint, _) = decompose(own_address(ep.0).unwrap()).unwrap();
    (nic, endpoint)
}

/// Connects `from` to `to`, which another thread or its helper polls. Returns the address.
pub(super) fn connected(from: &Opened, to: &Opened) -> Address {
    let (nic, endpoint) = name(to);
    connect(from.0, nic, endpoint, KEY, LONG).expect("a connection")
}

/// Returns two endpoints, and the second's address for the first.
pub(super) fn pair(port: Route) -> (Opened, Opened, Address) {
    let (a, b) = (opened(port), opened(port));
    let address = connected(&a, &b);
    (a, b, address)
}

/// Makes memory of a test's buffer, which must outlive the operation.
pub(super) fn memory(bytes: &mut [u8]) -> UserMemory {
    let (start, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: tests wait for their operations, or close the endpoint, before they drop the buffer.
    unsafe { UserMemory::new(start.cast(), len) }.expect("a buffer")
}

pub(super) fn send(from: &Opened, to: Address, bits: u64, bytes: &mut [u8]) -> RequestHandle {
    let mode = SendMode::Buffered;
    isend(from.0, memory(bytes), to, bits, 0, mode, false).unwrap()
}

/// Posts a send that completes after a receive has matched.
pub(super) fn issend(from: &Opened, to: Address, bits: u64, bytes: &mut [u8]) -> RequestHandle {
    let mode = SendMode::Synchronous;
    isend(from.0, memory(bytes), to, bits, 0, mode, false).unwrap()
}

pub(super) fn recv(at: &Opened, bits: u64, mask: u64, bytes: &mut [u8]) -> RequestHandle {
    irecv(at.0, memory(bytes), bits, mask, 0, false).unwrap()
}

/// Returns the result of a request that ends soon.
pub(super) fn ended(at: &Opened, request: RequestHandle) -> Status {
    wait_for(at.0, request, LONG).unwrap().expect("an end")
}

pub(super) fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Code {
    result.unwrap_err().code()
}
