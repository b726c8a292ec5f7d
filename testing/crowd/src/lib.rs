//! Thousands of clients of one server in a few processes, and what the server pays for them.
//!
//! ```text
//!   Crew (a test, bmi_mx_perf scale)
//!     |-- orders, answers: lines on pipes --> crowd process: Client Client Client ...  one epoll
//!     |                                       crowd process: ...            | TCP, 127.0.0.1
//!     `-- "census" ------------------------> server process: the BMI table <-'
//! ```
//!
//! A client is a whole method with ports of its own, as in `bmi_method::instance`, but without a helper
//! thread and without a thread that waits: one loop for a process drives all of them. The server is
//! the library behind its C table, with one thread that calls it and the helper it starts itself.
//!
//! Owns: the three kinds of processes and the words between them.

pub mod census;
pub mod client;
pub mod crew;
pub mod crowd;
pub mod limits;
pub mod orders;
pub mod server;
