//! What an open endpoint lets tools see: who it is and what it has counted.
//!
//! ```text
//!   engine --publish--> Published: a page, memfd "mx-endpoint"
//!                          ^
//!   tool   ----find--------'   /proc/<pid>/fd/* -> /memfd:mx-endpoint, read, not mapped
//! ```
//!
//! The page has no place in any directory: it is there exactly as long as the endpoint, also when
//! the process is killed. Whoever may look into the process may read it, as the kernel decides.
//! The process itself never reads it, so nobody can harm it by writing there; tools take nothing in
//! it for granted.

mod counters;
mod find;
mod layout;
mod method;
mod page;
mod publisher;

pub use counters::{COUNT, Gauges, PortView, Sample, labels, values};
pub use find::{Found, find, find_in};
pub use method::{METHOD_COUNT, MethodGauges, method_labels, method_values};
pub use page::{OpenPorts, Page};
pub use publisher::Publisher;

#[cfg(test)]
mod tests;
