//! Translation between endpoint ids and TCP ports.
//!
//! ```text
//!   endpoint   0 ......... 1023      1024 .. base-1   base .. base+1023   base+1024 .. 65535
//!                |                      |                  |                   |
//!   TCP port   base ... base+1023    id                (rejected)            id
//! ```
//!
//! Users choose small endpoint ids (`mx://host:3`), which as port numbers would be privileged; programs that take any
//! endpoint get a free port from the kernel. The rejected ids would be aliases of the ports of small ids.

use mx_proto::EndpointId;
use std::fmt;
use std::ops::RangeInclusive;

/// Number of endpoint ids that are mapped to a block of ports.
pub const SMALL_IDS: u32 = 1024;

/// Default for the block's first port; `MX_PORT_BASE` sets another. The block ends at 29695: below 32768, where Linux's
/// ephemeral ports begin (`net.ipv4.ip_local_port_range`), so that no outgoing connection takes a server's port, and
/// below the node ports of Kubernetes (30000). The IANA registry lists almost no TCP service there. All machines of a
/// cluster must agree on the base.
pub const DEFAULT_PORT_BASE: u16 = 28672;

/// Legal values of `MX_PORT_BASE`: above the privileged ports, and low enough for the block to end at 65535.
pub const PORT_BASES: RangeInclusive<u16> = 1024..=64512;

/// Translation between endpoint ids and port numbers for one base, the first port of the block of small ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortMap {
    base: u16,
}

impl Default for PortMap {
    fn default() -> Self {
        Self {
            base: DEFAULT_PORT_BASE,
        }
    }
}

impl PortMap {
    /// Creates the translation with `base`; `None` unless [`PORT_BASES`] contains it.
    pub fn new(base: u16) -> Option<Self> {
        PORT_BASES.contains(&base).then_some(Self { base })
    }

    /// Returns the first port of the block, which is endpoint 0's.
    pub const fn base(self) -> u16 {
        self.base
    }

    /// Returns the TCP port of an endpoint: the base plus the id for ids below [`SMALL_IDS`], or else the id itself.
    /// Fails for ids above 65535, and for ids within the block of the small ones.
    pub fn port(self, endpoint: EndpointId) -> Result<u16, EndpointRange> {
        let EndpointId(id) = endpoint;
        if id < SMALL_IDS {
            // A base is at most 64512, so the sum fits.
            return Ok(self.base + id as u16);
        }
        let port = u16::try_from(id).map_err(|_| EndpointRange::TooLarge { id })?;
        match self.small_id(port) {
            Some(small) => Err(EndpointRange::Alias { id, small }),
            None => Ok(port),
        }
    }

    /// Returns the endpoint of a TCP port; `None` for ports that no endpoint has (below 1024).
    pub fn endpoint(self, port: u16) -> Option<EndpointId> {
        match self.small_id(port) {
            Some(small) => Some(EndpointId(small)),
            None if u32::from(port) >= SMALL_IDS => Some(EndpointId(u32::from(port))),
            None => None,
        }
    }

    fn small_id(self, port: u16) -> Option<u32> {
        let id = u32::from(port).checked_sub(u32::from(self.base))?;
        (id < SMALL_IDS).then_some(id)
    }
}

/// Reasons why a number is not an endpoint id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointRange {
    /// The number is larger than any port.
    TooLarge {
        /// Rejected number.
        id: u32,
    },
    /// The number is the port of a small endpoint id.
    Alias {
        /// Rejected number.
        id: u32,
        /// Small endpoint id with this port.
        small: u32,
    },
}

impl fmt::Display for EndpointRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { id } => write!(f, "endpoint {id} is out of range (0 to 65535)"),
            Self::Alias { id, small } => {
                write!(
                    f,
                    "endpoint {id} is the TCP port of endpoint {small}; use that number"
                )
            }
        }
    }
}

impl std::error::Error for EndpointRange {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ids_move_to_the_block_and_others_stay() {
        let map = PortMap::default();
        let base = DEFAULT_PORT_BASE;
        assert_eq!(map.port(EndpointId(0)), Ok(base));
        assert_eq!(map.port(EndpointId(1023)), Ok(base + 1023));
        assert_eq!(map.port(EndpointId(1024)), Ok(1024));
        assert_eq!(map.port(EndpointId(u32::from(base) - 1)), Ok(base - 1));
        assert_eq!(
            map.port(EndpointId(u32::from(base) + 1024)),
            Ok(base + 1024)
        );
        assert_eq!(map.port(EndpointId(65535)), Ok(65535));
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let map = PortMap::default();
        let error = map.port(EndpointId(65536)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "endpoint 65536 is out of range (0 to 65535)"
        );
        let error = map
            .port(EndpointId(u32::from(DEFAULT_PORT_BASE) + 3))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "endpoint 28675 is the TCP port of endpoint 3; use that number"
        );
        assert_eq!(
            map.port(EndpointId(u32::MAX)),
            Err(EndpointRange::TooLarge { id: u32::MAX })
        );
    }

    #[test]
    fn each_unprivileged_port_is_exactly_one_endpoint() {
        for base in [1024, DEFAULT_PORT_BASE, 64512] {
            let map = PortMap::new(base).unwrap();
            for port in 0..=u16::MAX {
                match map.endpoint(port) {
                    Some(endpoint) => assert_eq!(map.port(endpoint), Ok(port)),
                    None => assert!(port < 1024),
                }
            }
        }
    }

    #[test]
    fn bases_without_room_are_refused() {
        assert_eq!(PortMap::new(1023), None);
        assert_eq!(PortMap::new(64513), None);
    }

    #[test]
    fn the_default_block_lies_below_the_ephemeral_ports() {
        assert!(u32::from(DEFAULT_PORT_BASE) + SMALL_IDS <= 30000);
    }
}
