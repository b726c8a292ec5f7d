//! The rdm port with real and simulated providers: over the provider of this machine, and over
//! simulated ones.

mod counts;
mod devices;
mod endings;
mod frames;
mod memory_returned;
mod messages;
mod receives;
mod shapes;
