//! Options and counters of the port.

use mx_port_base::Resolver;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Default limit of links, equal to an endpoint's maximum of remotes. Descriptors run out long before, and the table of
/// links grows with use.
const MOST_LINKS: usize = 1 << 20;

/// Options for opening a [`super::TcpPort`].
pub struct TcpOptions {
    /// Addresses to listen at. With port 0 the kernel chooses one port for all addresses. Empty: no incoming
    /// connections.
    pub listen: Vec<SocketAddr>,
    /// Resolver for the addresses of a target.
    pub resolver: Resolver,
    /// Maximum number of links, including connecting ones. Further connections are rejected.
    pub max_links: usize,
    /// Silence after which a peer counts as dead: its machine or the path has failed. At least some seconds: a live
    /// kernel answers at most two probes a second.
    pub dead_after: Duration,
    /// Timeout of a connection attempt to one address of a target; the next address is tried after it.
    pub dial_for: Duration,
    /// Maximum number of data links of a session; 0: none.
    pub data_links: u32,
    /// Maximum share of a source address in links, in percent (1 to 100) of those that all others leave free. Links
    /// that this side starts do not count against a source.
    pub source_share: u8,
    /// Maximum bytes of incomplete packets kept for all links. Above that, packets stay in the kernel until they are
    /// complete.
    pub kept_bytes: usize,
    /// Maximum time for which a closed link goes on sending.
    pub linger: Duration,
}

impl TcpOptions {
    /// Creates options with the usual values: as many links as descriptors allow, 20 s for dead peers and for dialling,
    /// 1 s of lingering.
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
    /// Counters and figures of the port.
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

/// Returns true for the counts worth a log line: the first few, then ever fewer.
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
