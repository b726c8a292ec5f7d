//! Both ways of reading, between two sides in one process.
//!
//! ```text
//!   Side a: domain, Ops, Remote  <--- frames, as bytes, when the test lets them ---> Side b
//!                  `---- provider: installed (lanes), or made up (rma and lanes) ----'
//! ```

mod lanes;
mod rma;
mod side;
