//! The MX shim: everything a protocol endpoint needs of a real machine.
//!
//! ```text
//!        bmi-mx (BMI method)          myriexpress (MX C API)
//!              |  lock, wait_until           |
//!              v                             v
//!   +-- progress: Shared<T>, Helper ----------------------------+
//!   |   one lock, blocking wait, helper thread                  |
//!   |   +-- mx_proto::Endpoint<HostPorts, UserMemory, Clock> --+ |
//!   |   |  user_memory   clock   nic                           | |
//!   |   |  ports: loopback | local | tcp | rdm | dgram         | |
//!   |   +------------------------------------------------------+ |
//!   +-----------------------------------------------------------+
//! ```
//!
//! Protocol lives in `mx-proto`, which is pure; what C programs see lives above. Here are the
//! sockets, the shared memory, the clock, the threads and the application's pointers.

pub mod arguments;
pub mod clock;
mod descriptors;
pub mod endpoint_port;
pub mod eventfd;
pub mod fork;
pub mod interfaces;
mod layout;
pub mod linger;
mod literal;
pub mod nic;
pub mod peers_file;
pub mod places;
pub mod ports;
pub mod progress;
pub mod published;
mod random;
pub mod regions;
pub mod reserve;
mod sealed;
pub mod secret_file;
pub mod settings;
pub mod tunable;
pub mod user_memory;

pub use clock::MonotonicClock;
pub use endpoint_port::{EndpointRange, PortMap};
pub use fork::ForkMark;
pub use linger::{Lingering, linger};
pub use ports::dgram::DgramOptions;
pub use ports::host::{HostPorts, ROUTE_DGRAM, ROUTE_LOCAL, ROUTE_RDM, ROUTE_TCP};
pub use ports::open::{EndpointChoice, OpenError, OpenOptions};
pub use ports::rdm::RdmOptions;
pub use progress::{Guard, Helper, Interest, Progress, Shared, Tuning};
pub use settings::{PortChoice, Settings};
pub use user_memory::{MallocBuffer, SegmentError, UserMemory};
