//! Thousands of clients of one server in a few processes, and the server's cost for them.
//!
//! ```text
//!   Crew (a test, bmi_mx_perf scale)
//!     |-- orders, answers: lines on pipes --> crowd process: Client Client Client ...  one epoll
//!     |                                       crowd process: ...            | TCP, 127.0.0.1
//!     `-- "census" ------------------------> server process: the BMI table <-'
//! ```
//!
//! A client is a whole method with ports of its own, as in `bmi_method::instance`, but without a
//! helper thread or waiting threads: one loop per process drives all of them. The server is the
//! library behind its C table, with one calling thread and the helper that it starts itself.
//!
//! Owns: the three kinds of processes and the lines between them.

pub mod census;
pub mod client;
pub mod crew;
pub mod crowd;
pub mod limits;
pub mod orders;
pub mod server;
