//! Numbers of ports, which are part of their links' ids ([`LinkId::at_port`]) and name their descriptors in
//! a nest.
//!
//! Not here: the ports.
//!
//! [`LinkId::at_port`]: mx_proto::LinkId::at_port

/// Shared memory.
pub const LOCAL: u8 = 0;
/// Kernel TCP.
pub const TCP: u8 = 1;
/// An endpoint's links to itself.
pub const LOOPBACK: u8 = 2;
/// libfabric's reliable datagrams.
pub const RDM: u8 = 3;
/// Datagrams.
pub const DGRAM: u8 = 4;

/// The name of the port of that number, for people. `None`: there is none.
pub fn name(port: u8) -> Option<&'static str> {
    Some(match port {
        LOCAL => "local",
        TCP => "tcp",
        LOOPBACK => "loopback",
        RDM => "rdm",
        DGRAM => "dgram",
        _ => return None,
    })
}
