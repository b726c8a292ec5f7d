//! Both ways of reading, between two sides in one process.
//!
//! ```text
//!   Side a: domain, Ops, Remote  <--- frames, as bytes, when the test lets them ---> Side b
//!                  `------------------- provider: the installed one -----------------'
//! ```

mod lanes;
mod side;
