//! Options and counters of the port.

use mx_port_base::Resolver;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// As many links as an endpoint has remotes at most. Descriptors end long before, and the table of
/// links grows with use.
const MOST_LINKS: usize = 1 << 20;

/// Options for opening a [`super::TcpPort`].
pub struct TcpOptions {
    /// The addresses to listen at. Port 0 lets the kernel choose; then all addresses get the same
    /// one. Empty: no incoming connections.
    pub listen: Vec<SocketAddr>,
    /// Finds the addresses of a target.
    pub resolver: Resolver,
    /// Most links at a time, those under way included. A connection beyond it is turned away.
    pub max_links: usize,
    /// A silent peer is taken for dead after this time: its machine is gone, or the path to it. Not
    /// below some seconds: a living kernel answers at most two questions a second.
    pub dead_after: Duration,
    /// The time-out of a connection attempt to one address.
    pub dial_for: Duration,
    /// Limit of data links that a session has; 0: none.
    pub data_links: u32,
    /// Percent of the places that others leave which one source's links may have.
    pub source_share: u8,
    /// Bytes of parts of packets that all links together keep. Above that they stay in the kernel until
    /// their packets are whole.
    pub kept_bytes: usize,
    /// The time that a closed link may go on delivering.
    pub linger: Duration,
}

impl TcpOptions {
    /// The usual values: links as long as there are descriptors, 20 s for dead hosts and for dialling, 1 s of
    /// lingering.
    pub fn new(listen: Vec<SocketAddr>, resolver: Resolver) -> Self {
        Self {
            listen,
            resolver,
            max_links: MOST_LINKS,
            data_links: 1,
            source_share: 50,
            dead_after: Duration::from_secs(20),
            dial_for: Duration::from_secs(20),
            kept_bytes: 2 << 20,
            linger: Duration::from_secs(1),
        }
    }
}

impl fmt::Debug for TcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpOptions")
            .field("listen", &self.listen)
            .field("max_links", &self.max_links)
            .field("dead_after", &self.dead_after)
            .finish_non_exhaustive()
    }
}

mx_proto::counters! {
    /// The port's counters and figures.
    pub struct TcpStats("tcp_") {
        Count accepted: u64 = "TCP connections accepted",
        Count connected: u64 = "TCP connections established from this side",
        Count strangers: u64 = "TCP callers that do not speak this protocol",
        Count other_versions: u64 = "TCP callers of another version of the protocol",
        Count silent: u64 = "TCP callers that were not introduced in time",
        Count bad_lengths: u64 = "packets over TCP with an invalid length",
        Count turned_away: u64 = "TCP callers turned away: too many, or too many of their source",
        Count starved: u64 = "times that accepting stopped for lack of descriptors or memory",
        Count evicted: u64 = "strangers dropped to make room for others",
        Count awaited: u64 = "packets left in the kernel until they were complete",
        Level kept: u64 = "bytes kept of incomplete packets",
    }
}

/// True for the counts worth a line: each of the first few, then fewer and fewer.
pub(super) fn is_worth_a_line(count: u64) -> bool {
    count <= 8 || count.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::port::ConnectError;

    #[test]
    fn links_do_not_end_before_remotes_do() {
        let options = TcpOptions::new(Vec::new(), Box::new(|_| Err(ConnectError::NoRoute)));
        assert!(options.max_links >= mx_proto::Config::default().max_remotes);
    }
}
