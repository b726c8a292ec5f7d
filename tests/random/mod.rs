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
//! Knows nothing of: what a step does (`stage`), which promises there are (`actor`).

// Test programs have no public items.
#![allow(unreachable_pub)]

mod actor;
mod plan;
mod stage;

pub use plan::Plan;
pub use stage::run;
