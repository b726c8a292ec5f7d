//! The MX shim: runs a protocol endpoint on a real machine.
//!
//! ```text
//!        bmi-mx (BMI method)          myriexpress (MX C API)
//!              |  lock, wait_until           |
//!              v                             v
//!   +-- progress: Shared<T>, Helper -----------------------------+
//!   |   one lock, blocking wait, helper thread                   |
//!   |   +-- mx_proto::Endpoint<HostPorts, UserMemory, Clock> --+ |
//!   |   |  user_memory   clock   nic                           | |
//!   |   |  route: loopback | local | tcp | rdm | dgram         | |
//!   |   +------------------------------------------------------+ |
//!   +------------------------------------------------------------+
//! ```
//!
//! The protocol is in `mx-proto`, which does no I/O; the C interfaces are above; sockets and shared memory are in the
//! ports' crates (`ports/`). This crate has the choice among ports, addresses, settings, threads and the application's
//! pointers.

pub mod deferred_log;
mod layout;
pub mod linger;
mod literal;
pub mod nic;
pub mod peers_file;
pub mod progress;
pub mod published;
pub mod reservation;
pub mod route;
pub mod secret_file;
pub mod settings;
pub mod slot;
pub mod stderr;
pub mod thread;
pub mod tunable;
pub mod user_memory;

pub use linger::linger;
pub use mx_port_base::clock::{self, MonotonicClock};
pub use mx_port_base::endpoint_port::{EndpointRange, PortMap};
pub use mx_port_base::fork::{self, ForkMark};
pub use mx_port_base::page::page_size;
pub use mx_port_base::ports::{self, ROUTE_DGRAM, ROUTE_LOCAL, ROUTE_RDM, ROUTE_TCP};
pub use mx_port_base::{cancellation, epoll, eventfd, interfaces, limits, lock};
pub use mx_port_dgram::DgramOptions;
pub use mx_port_fabric::regions;
pub use mx_port_rdm::{RdmError, RdmOptions, hardware};
pub use mx_reserve::{self as reserve, library_allocator, on_load};
pub use progress::{Guard, Helper, Interest, Progress, Shared, Tuning};
pub use route::host::HostPorts;
pub use route::open::{EndpointChoice, OpenError, OpenOptions};
pub use route::reopen::ReopenOptions;
pub use settings::Settings;
pub use stderr::StderrLogger;
pub use user_memory::{MallocBuffer, SegmentError, UserMemory};
