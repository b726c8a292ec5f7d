//! The rdm port by itself: over the provider of this machine, and over made-up ones.

mod counts;
mod devices;
mod endings;
mod frames;
mod memory_returned;
mod messages;
mod receives;
mod shapes;
