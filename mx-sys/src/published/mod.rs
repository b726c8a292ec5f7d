//! The page of counters that an open endpoint publishes for tools.
//!
//! ```text
//!   engine --publish--> Published: a page, memfd "mx-endpoint"
//!                          ^
//!   tool   ----find--------'   /proc/<pid>/fd/* -> /memfd:mx-endpoint, read, not mapped
//! ```
//!
//! The page has no path: it exists exactly as long as the endpoint, even if the process is killed. The kernel lets
//! those read it who may inspect the process. The process itself never reads the page, so a foreign write does no harm;
//! tools check everything in it.

mod counters;
mod find;
mod layout;
mod page;
mod peers;
mod publisher;

pub use crate::route::host_port::PortView;
pub(crate) use counters::joined;
pub use counters::{COUNT, Gauges, MethodGauges, Sample, all_counters, counters, values};
pub use find::{Found, find, find_in};
pub(crate) use layout::port_bit;
pub use page::Page;
pub use peers::Peer;
pub use publisher::Publisher;

#[cfg(test)]
mod tests;
