//! The method on the simulated network. A single program, so that shared code is compiled once.

// Test programs have no public items.
#![allow(unreachable_pub)]

mod abandoned;
mod addresses;
mod conversations;
mod credits;
mod explore;
mod failures;
mod faults_flood;
mod faults_method;
mod gauges;
mod method;
mod names;
mod random;
mod rig;
mod timeouts;
