//! Packets over datagrams that get lost: the reliability layer over whatever carries datagrams.
//!
//! ```text
//!   Reliable            mx_proto::reliability
//!      |
//!   faults              loss on purpose, when MX_DGRAM_FAULTS asks for it
//!      |
//!      +-- udp          kernel sockets, everywhere
//!      `-- fabric       libfabric, where it has datagrams
//! ```
//!
//! Owns: nothing yet but its parts.

pub mod faults;
pub mod udp;
