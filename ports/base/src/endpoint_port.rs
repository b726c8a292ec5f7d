//! Endpoint numbers and TCP ports.
//!
//! ```text
//!   endpoint   0 ......... 1023      1024 .. base-1   base .. base+1023   base+1024 .. 65535
//!                |                      |                  |                   |
//!   TCP port   base ... base+1023    the same          (refused)            the same
//! ```
//!
//! Users choose small endpoint numbers (`mx://host:3`), which are privileged port numbers; programs
//! that take any endpoint get a free port from the kernel. The refused ids would be second names
//! for the ports of the small ones.

use mx_proto::EndpointId;
use std::fmt;
use std::ops::RangeInclusive;

/// The number of endpoint ids that are moved to a block of ports of their own.
pub const SMALL_IDS: u32 = 1024;

/// The block's first port unless `MX_PORT_BASE` says otherwise. It ends at 29695, below 32768
/// where Linux starts giving out ephemeral ports (`net.ipv4.ip_local_port_range`), so that no
/// outgoing connection takes a server's port, and below the node ports of Kubernetes (30000); the
/// IANA registry has almost no TCP service there. All hosts of a cluster must agree on it.
pub const DEFAULT_PORT_BASE: u16 = 28672;

/// Legal bases: above the privileged ports, with room for the block.
pub const PORT_BASES: RangeInclusive<u16> = 1024..=64512;

/// The translation for one base.
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
    /// The translation with `base`; `None` unless [`PORT_BASES`] contains it.
    pub fn new(base: u16) -> Option<Self> {
        PORT_BASES.contains(&base).then_some(Self { base })
    }

    /// The first port of the block.
    pub const fn base(self) -> u16 {
        self.base
    }

    /// The TCP port of an endpoint.
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

    /// The endpoint of a TCP port; `None` for ports no endpoint can have (below 1024).
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

/// Reasons why a number is not an endpoint's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndpointRange {
    /// Larger than any port.
    TooLarge {
        /// The number.
        id: u32,
    },
    /// As a port it belongs to a small endpoint id.
    Alias {
        /// The number.
        id: u32,
        /// The small endpoint that has this port.
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
