//! Random programs on simulated nodes.
//!
//! ```text
//!   seed --> Plan: shape, network, time-outs --> Stage: does every step, looks at all that comes
//!                                                  |
//!                                                  v  all is healed: it settles
//!                                                all talk --> all drop each other --> all end
//! ```
//!
//! Owns: what follows from a seed.
//! Not here: carrying out steps (`stage`), the promises (`actor`).

// Test programs have no public items.
#![allow(unreachable_pub)]

mod actor;
mod plan;
mod stage;

pub use plan::Plan;
pub use stage::run;
