//! Reads between two sides in one process, over made-up hardware.
//!
//! ```text
//!   Side a: domain, Ops, Remote  <--- frames, when the test lets them ---> Side b
//!                  `---------------- provider, made up ----------------'
//! ```

mod rma;
mod side;
