//! Endpoint numbers that no other test program of this machine uses.
//!
//! A process claims a block by the name of an abstract Unix socket, as C programs do
//! (`c_tests/support/ids.h`), and holds it until the process ends, so that the number of a closed
//! node remains free for its successor.

use mx_proto::EndpointId;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Number of endpoint numbers in a block.
pub(crate) const BLOCK: u32 = 64;

/// The range of all blocks, above the library's own and below outgoing connections.
const ALL: std::ops::Range<u32> = 29 * 1024..32 * 1024;

/// Returns the next number of this process's block.
pub(crate) fn next() -> EndpointId {
    static CLAIM: OnceLock<(UnixDatagram, u32)> = OnceLock::new();
    static TURN: AtomicU32 = AtomicU32::new(0);
    let (_, first) = CLAIM.get_or_init(claim);
    EndpointId(first + TURN.fetch_add(1, Ordering::Relaxed) % BLOCK)
}

fn claim() -> (UnixDatagram, u32) {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        for first in ALL.step_by(BLOCK as usize) {
            let name = SocketAddr::from_abstract_name(format!("mx-tests-{first}")).unwrap();
            if let Ok(socket) = UnixDatagram::bind_addr(&name) {
                return (socket, first);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("every block of endpoint numbers is claimed");
}
