//! Code shared by all ports.
//!
//! ```text
//!   sources of links          origin  nic_id  strangers  bounded_map
//!   packets in pieces         incoming
//!   sleeping                  epoll  nest  eventfd
//!   numbers                   endpoint_port (of endpoints)  ports (the table of ports)
//!   sockets                   socket_option
//!   the machine               clock  descriptors  limits  interfaces  netlink  random
//!   cancelled threads         cancellation
//!   children of fork          fork  lock (futex)  close_on_fork
//!   memory                    sealed (between processes)  file_size  page
//! ```
//!
//! Out of scope: any port.

pub mod bounded_map;
pub mod cancellation;
pub mod clock;
pub mod close_on_fork;
pub mod descriptors;
pub mod endpoint_port;
pub mod epoll;
pub mod eventfd;
pub mod file_size;
pub mod fork;
#[cfg(not(tsan))]
mod futex;
pub mod incoming;
pub mod interfaces;
pub mod limits;
pub mod lock;
pub mod nest;
pub mod netlink;
pub mod nic_id;
pub mod origin;
pub mod page;
pub mod ports;
pub mod random;
pub mod sealed;
pub mod socket_option;
pub mod strangers;

use mx_proto::Target;
use mx_proto::port::ConnectError;
use smallvec::SmallVec;
use std::net::SocketAddr;

/// Function that returns the socket addresses of a target, best first, or why the target cannot be reached.
pub type Resolver = Box<dyn Fn(Target) -> Result<SmallVec<[SocketAddr; 2]>, ConnectError> + Send>;
